from __future__ import annotations

import pytest

from ringbench.schedule.rendezvous import Observer, Program, play
from ringbench.schedule.step import Local, Step, copy, temp, work


class Diary(Observer):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def local(self, rank: int, round: int, action: Local) -> None:
        self.lines.append(f"local {rank}.{round}")

    def message(self, sender: int, send_round: int, sent: Step, receiver: int, recv_round: int, received: Step) -> None:
        self.lines.append(f"message {sender}.{send_round} {receiver}.{recv_round}")

    def finish(self, rank: int, round: int, step: Step) -> None:
        self.lines.append(f"finish {rank}.{round}")


def send(dest: int) -> Step:
    return Step(dest=dest, send=work(0))


def receive(source: int) -> Step:
    return Step(source=source, recv=work(0))


def sendrecv(dest: int, source: int) -> Step:
    return Step(dest=dest, send=work(0), source=source, recv=temp(0))


def diary(*programs: Program) -> list[str]:
    observer = Diary()
    assert play(programs, observer) == []
    return observer.lines


def test_a_message_passes_before_either_side_goes_on() -> None:
    lines = diary([send(1)], [receive(0)])
    assert lines[0] == "message 0.0 1.0"
    assert sorted(lines[1:]) == ["finish 0.0", "finish 1.0"]


def test_a_rank_leaves_a_step_when_both_its_messages_have_passed() -> None:
    lines = diary([sendrecv(1, 2)], [receive(0), send(2)], [receive(1), send(0)])
    assert [line for line in lines if line.startswith("message")] == [
        "message 0.0 1.0",
        "message 1.1 2.0",
        "message 2.1 0.0",
    ]
    assert lines.index("finish 0.0") > lines.index("message 2.1 0.0")


def test_a_circle_of_sendrecv_ends() -> None:
    lines = diary(*[[sendrecv((rank + 1) % 5, (rank - 1) % 5)] * 3 for rank in range(5)])
    assert len([line for line in lines if line.startswith("message")]) == 15


def test_a_step_without_peers_is_passed() -> None:
    assert diary([Step()], []) == ["finish 0.0"]


def test_local_actions_come_between_the_steps_around_them() -> None:
    action = copy(temp(0), work(0))
    lines = diary([action, send(1), action], [receive(0), action])
    mine = [line for line in lines if "local 0" in line or "finish 0" in line]
    assert mine == ["local 0.0", "finish 0.0", "local 0.1"]
    assert lines.index("local 1.1") > lines.index("finish 1.0")


def test_messages_of_one_pair_keep_their_order() -> None:
    lines = diary([send(1), send(1)], [receive(0), receive(0)])
    assert [line for line in lines if line.startswith("message")] == ["message 0.0 1.0", "message 0.1 1.1"]


@pytest.mark.parametrize(
    ("programs", "blocked"),
    [
        ([[receive(1), send(1)], [receive(0), send(0)]], [(0, 0, False, True), (1, 0, False, True)]),
        ([[send(1), receive(1)], [send(0), receive(0)]], [(0, 0, True, False), (1, 0, True, False)]),
        ([[send(1)], []], [(0, 0, True, False)]),
        ([[send(1), receive(1)], [receive(0)]], [(0, 1, False, True)]),
        ([[sendrecv(1, 1)], [receive(0)]], [(0, 0, False, True)]),
    ],
)
def test_whoever_cannot_go_on_is_named(programs: list[list[Step]], blocked: list[tuple[int, int, bool, bool]]) -> None:
    states = play(programs, Observer())
    assert [(state.rank, state.round, state.sending, state.receiving) for state in states] == blocked
    assert all(state.waits_for == 1 - state.rank for state in states)
    assert all(state.step == programs[state.rank][state.round] for state in states)


def test_a_message_goes_to_the_rank_it_is_for() -> None:
    states = play([[send(2)], [receive(0)], [receive(0)]], Observer())
    assert [(state.rank, state.waits_for) for state in states] == [(1, 0)]


def test_a_rank_may_wait_for_one_that_waits_elsewhere() -> None:
    states = play([[sendrecv(1, 2)], [sendrecv(0, 0)], []], Observer())
    assert [(state.rank, state.sending, state.receiving, state.waits_for) for state in states] == [
        (0, False, True, 2),
        (1, True, False, 0),
    ]
