from __future__ import annotations

import json
import math
import random
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import ringbench.collectives  # noqa: F401
from ringbench.cli import main
from ringbench.model import crowd
from ringbench.model.closed import closed_form
from ringbench.model.network import Link, Network
from ringbench.model.simulate import Event, Simulation, simulate
from ringbench.report import timeline
from ringbench.schedule.blocks import block_sizes
from ringbench.schedule.cost import cost
from ringbench.schedule.parameters import nodes_of
from ringbench.schedule.registry import Algorithm, algorithm_named, algorithms
from ringbench.schedule.rendezvous import Observer, play
from ringbench.schedule.step import Local, Operations, Spans, Step, block_numbers, spans, work

ALPHA, BETA, GAMMA = 2e-6, 1e-9, 3e-10
FLAT = Network(inner=Link(alpha_s=ALPHA, beta_s_per_byte=BETA), gamma_s_per_byte=GAMMA)
EVERY = [pytest.param(algorithm, id=algorithm.title) for algorithm in algorithms()]


def flat(**changes: Any) -> Network:
    return Network(inner=FLAT.inner, gamma_s_per_byte=GAMMA, **changes)


def made(generator: Any, nblocks: int) -> Algorithm:
    """Return an algorithm that is in no registry."""
    return Algorithm(
        collective="allreduce",
        name=generator.__name__,
        generator=generator,
        blocks=lambda nranks: nblocks,
        temp=lambda nranks: 0,
        rounds=lambda nranks: 0,
        sent=lambda nranks: Fraction(0),
        identical_bits=False,
        segmentable=True,
    )


class Slow(Observer):
    """Play rank by rank and message by message: the model once more, as plainly as it can be written."""

    def __init__(self, algorithm: Algorithm, nranks: int, nbytes: int, network: Network) -> None:
        self.network = network
        self.sizes, self.ntemp = block_sizes(nbytes, algorithm.blocks(nranks)), algorithm.temp(nranks)
        self.now = [0.0] * nranks
        for rank, late in network.late:
            self.now[rank] += late
        self.begin = min(self.now)
        self.ends: list[list[float]] = [[] for _ in range(nranks)]
        self.sent, self.busy = [0] * nranks, 0.0
        self.spans: list[list[tuple[float, float]]] = [[] for _ in range(nranks)]
        assert play([algorithm.operations(rank, nranks) for rank in range(nranks)], self) == []

    def nbytes(self, spans: Spans) -> int:
        blocks = block_numbers(spans, len(self.sizes), self.ntemp)
        return sum(self.sizes[block % len(self.sizes)] for _, block in blocks)

    def factor(self, rank: int) -> float:
        return math.prod(factor for slow, factor in self.network.slow_ranks if slow == rank)

    def message(self, sender: int, send_round: int, sent: Step, receiver: int, recv_round: int, received: Step) -> None:
        network, nbytes = self.network, self.nbytes(sent.send)
        link, factor = network.inner, max(self.factor(sender), self.factor(receiver))
        if network.outer and network.groups and not any({sender, receiver} <= set(group) for group in network.groups):
            link = network.outer
        for one, other, slower in network.slow_links:
            if {one, other} == {sender, receiver}:
                factor *= slower
        start = max(self.now[sender], self.now[receiver])
        end = start + factor * (link.alpha_s + nbytes * link.beta_s_per_byte)
        self.sent[sender] += nbytes
        for rank in (sender, receiver):
            self.spans[rank].append((start, end))

    def finish(self, rank: int, round: int, step: Step) -> None:
        (first, last), *rest = sorted(self.spans[rank])
        self.spans[rank] = []
        self.busy += last - first
        for start, end in rest:
            self.busy += max(0.0, end - max(start, last))
            last = max(last, end)
        self.now[rank] = last
        if step.combine and step.source is not None:
            self.add(rank, step.recv)

    def meet(self, ranks: tuple[int, ...], rounds: tuple[int, ...]) -> None:
        """Pass an empty message 1, 2, 4 ... places on: after so many rounds each has heard from all."""
        away = 1
        while away < len(ranks):
            for at, rank in enumerate(ranks):
                self.message(rank, 0, Step(), ranks[(at + away) % len(ranks)], 0, Step())
            for rank in ranks:
                self.finish(rank, 0, Step())
            away *= 2

    def local(self, rank: int, round: int, action: Local) -> None:
        theirs = tuple(span for span in (*spans(action.source), *spans(action.dest)) if span.rank is not None)
        spent = self.nbytes(theirs) * self.network.inner.beta_s_per_byte * self.factor(rank)
        self.now[rank] += spent
        self.busy += spent
        if action.action == "combine":
            self.add(rank, action.dest)

    def add(self, rank: int, spans: Spans) -> None:
        spent = self.nbytes(spans) * self.network.gamma_s_per_byte * self.factor(rank)
        self.now[rank] += spent
        self.busy += spent

    @property
    def total(self) -> float:
        return max(self.now) - self.begin


def check_against_slow(algorithm: Algorithm, nranks: int, nbytes: int, network: Network) -> None:
    found, slow = simulate(algorithm, nranks, nbytes, network), Slow(algorithm, nranks, nbytes, network)
    assert found.simulated_s == pytest.approx(slow.total, rel=1e-9)
    assert found.bytes_sent_max == max(slow.sent)
    if slow.total:
        assert found.idle_share == pytest.approx(1 - slow.busy / (nranks * slow.total), abs=1e-9)
        shares = (found.alpha_share, found.beta_share, found.gamma_share, found.waiting_share)
        assert sum(shares) == pytest.approx(1)
        assert min(shares) >= 0


@pytest.mark.parametrize("algorithm", EVERY)
def test_every_algorithm_plays_as_its_ranks_do_one_by_one(algorithm: Algorithm) -> None:
    chance = random.Random(algorithm.title)
    for nranks in (1, 2, 3, 4, 5, 7, 8, 12):
        for variant in algorithm.variants(nranks):
            nodes = dict(variant.arguments).get("groups") if variant.shared else nodes_of(nranks, 2)
            slow = [(chance.randrange(nranks), chance.uniform(0.5, 3)) for _ in range(chance.randrange(3))]
            link = [(0, nranks - 1, 4.0)] if nranks > 1 and chance.random() < 0.5 else []
            late = [(rank, chance.uniform(0, 2e-5)) for rank in range(nranks)] if chance.random() < 0.7 else []
            network = Network(
                inner=Link(alpha_s=1e-6, beta_s_per_byte=2e-9),
                outer=Link(alpha_s=7e-6, beta_s_per_byte=9e-9) if chance.random() < 0.5 else None,
                groups=nodes if isinstance(nodes, tuple) else None,
                gamma_s_per_byte=chance.choice([0.0, GAMMA, 1e-7]),
                slow_ranks=slow,
                slow_links=link,
                late=late,
            )
            check_against_slow(variant, nranks, nranks * chance.randrange(2000), network)
            if algorithm.collective != "alltoall":  # which wants blocks of one size
                check_against_slow(variant, nranks, chance.randrange(2000), network)


@pytest.mark.parametrize("algorithm", EVERY)
def test_closed_forms_are_what_is_simulated(algorithm: Algorithm) -> None:
    proved = 0
    for nranks in (1, 2, 3, 4, 5, 8, 12, 16, 31, 32):
        for variant in algorithm.variants(nranks):
            nbytes = 12 * nranks * variant.blocks(nranks)
            found = simulate(variant, nranks, nbytes, FLAT)
            counted = cost(variant, nranks, nbytes)
            assert (found.rounds, found.bytes_sent_max) == (counted.rounds, counted.sent_max)
            assert found.closed_s == closed_form(variant, nranks, nbytes, FLAT)
            if found.closed_s is not None:
                assert found.simulated_s == pytest.approx(found.closed_s, rel=1e-9)
                proved += 1
    assert proved or algorithm.name == "double_binary_tree"


# rounds, bytes, reductions per vector of N = 16 and of N = 12 (folded: p' = 8), from the table of costs.
TABLE: dict[str, list[tuple[int, float, float]]] = {
    "ring": [(30, 30 / 16, 15 / 16), (22, 22 / 12, 11 / 12)],
    "naive": [(15, 15, 15), (11, 11, 11)],
    "parameter_server": [(30, 30, 15), (22, 22, 11)],
    "binomial_tree": [(8, 8, 4), (8, 8, 4)],
    "recursive_doubling": [(4, 4, 4), (5, 5, 4)],
    "rabenseifner": [(8, 30 / 16, 15 / 16), (8, 14 / 8 + 2, 1 + 7 / 8)],
    "swing": [(8, 30 / 16, 15 / 16), (8, 14 / 8 + 2, 1 + 7 / 8)],
}


@pytest.mark.parametrize("name", TABLE)
def test_table_of_costs_is_what_is_simulated(name: str) -> None:
    for nranks, (rounds, moved, reduced) in zip((16, 12), TABLE[name], strict=True):
        nbytes = 48 * 10**6
        found = simulate(algorithm_named("allreduce", name), nranks, nbytes, FLAT)
        expected = rounds * ALPHA + moved * nbytes * BETA + reduced * nbytes * GAMMA
        assert found.simulated_s == pytest.approx(expected, rel=1e-9)
        assert found.rounds == rounds
        assert found.alpha_share == pytest.approx(rounds * ALPHA / expected, rel=1e-6)
        assert found.gamma_share == pytest.approx(reduced * nbytes * GAMMA / expected, rel=1e-6)


def test_worked_number_of_a_ring() -> None:
    network = Network(inner=Link(alpha_s=2e-6, beta_s_per_byte=1e-9))
    assert simulate(algorithm_named("allreduce", "ring"), 4, 4 * 10**6, network).simulated_s == pytest.approx(6.012e-3)


@pytest.mark.parametrize("name", ["hierarchical", "hierarchical_leaders"])
def test_hierarchy_uses_both_kinds_of_links(name: str) -> None:
    size, nodes, nbytes = 4, 6, 24 * 10**5
    groups = nodes_of(size * nodes, size)
    outer = Link(alpha_s=5e-6, beta_s_per_byte=4e-9)
    network = Network(inner=FLAT.inner, outer=outer, gamma_s_per_byte=GAMMA, groups=groups)
    found = simulate(algorithm_named("allreduce", name).given(groups=groups), size * nodes, nbytes, network)
    if name == "hierarchical":
        shard = nbytes / size
        inside = 2 * (size - 1) * (ALPHA + shard * BETA) + (size - 1) * shard * GAMMA
    else:
        shard = nbytes
        inside = 4 * (ALPHA + nbytes * BETA) + 2 * nbytes * GAMMA
    piece = shard / nodes
    across = 2 * (nodes - 1) * (5e-6 + piece * 4e-9) + (nodes - 1) * piece * GAMMA
    assert found.simulated_s == pytest.approx(inside + across, rel=1e-9)
    assert found.closed_s == pytest.approx(found.simulated_s, rel=1e-9)


def test_closed_form_of_two_levels_takes_all_links_for_outer_ones() -> None:
    network = flat(outer=Link(alpha_s=1e-5, beta_s_per_byte=1e-8), groups=nodes_of(8, 4))
    ring = simulate(algorithm_named("allreduce", "ring"), 8, 8000, network)
    assert ring.closed_s == pytest.approx(14 * (1e-5 + 1000e-8) + 7 * 1000 * GAMMA)
    assert ring.simulated_s == pytest.approx(ring.closed_s)  # one outer link holds up the whole ring
    halving = simulate(algorithm_named("allreduce", "rabenseifner"), 8, 8000, network)
    assert halving.over_closed is not None
    assert halving.over_closed < -0.2
    uneven = algorithm_named("allreduce", "hierarchical").given(groups=((0, 1, 2), (3,)))
    assert simulate(uneven, 4, 8000, flat(groups=((0, 1, 2), (3,)))).closed_s is None


def both_ways(rank: int, nranks: int) -> Operations:
    """Send three blocks one way and one the other way, and add what comes."""
    if rank == 0:
        yield Step(dest=1, send=work(0, 3), source=1, recv=work(3), combine=True)
    else:
        yield Step(dest=0, send=work(3), source=0, recv=work(0, 3), combine=True)


def test_messages_of_unlike_length_go_side_by_side_and_the_longer_counts() -> None:
    found = simulate(made(both_ways, 4), 2, 4000, FLAT)
    # Both leave when the longer message is over; then rank 1 has three blocks to add.
    assert found.simulated_s == pytest.approx(ALPHA + 3000 * BETA + 3000 * GAMMA)
    assert found.last_rank == 1
    busy = 2 * (ALPHA + 3000 * BETA) + 3000 * GAMMA + 1000 * GAMMA
    assert found.idle_share == pytest.approx(1 - busy / 2 / found.simulated_s)


def shifted(rank: int, nranks: int) -> Operations:
    """Send to the right in step 2 k, receive from the left in step 2 k + 1; every third rank the other way round."""
    for _ in range(200):
        if rank % 2:
            yield Step(source=(rank - 1) % nranks, recv=work(0), combine=True)
            yield Step(dest=(rank + 1) % nranks, send=work(0))
        else:
            yield Step(dest=(rank + 1) % nranks, send=work(0))
            yield Step(source=(rank - 1) % nranks, recv=work(0), combine=True)


def test_long_schedules_are_asked_for_bit_by_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringbench.model.simulate.HELD", 1)
    monkeypatch.setattr("ringbench.model.simulate.FEWEST", 3)
    check_against_slow(made(shifted, 1), 6, 1000, FLAT)
    for algorithm in (algorithm_named("allreduce", name) for name in ("ring", "parameter_server", "naive", "bine")):
        check_against_slow(algorithm, 7, 1000, flat(late=[(2, 1e-5)]))


def handshake(rank: int, nranks: int) -> Operations:
    """Wait for ever: each rank receives first."""
    yield Step(source=1 - rank, recv=work(0))
    yield Step(dest=1 - rank, send=work(0))


def endless(rank: int, nranks: int) -> Operations:
    while True:
        yield Step(dest=1 - rank, send=work(0), source=1 - rank, recv=work(0))


def test_schedules_that_do_not_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="handshake, 2 ranks: rank 0 never ends"):
        simulate(made(handshake, 1), 2, 8, FLAT)
    monkeypatch.setattr(crowd, "MAX_OPERATIONS", 1000)
    with pytest.raises(ValueError, match="endless, 2 ranks: rank 0 does not come to an end"):
        simulate(made(endless, 1), 2, 8, FLAT)


def ladder(rank: int, nranks: int) -> Operations:
    """Ask of every rank in turn whether it is the one: no more than a few questions are put to all."""
    asked = []
    for other in range(nranks):
        asked.append(other)
        if rank == other:
            break
    calls.append(len(asked))
    yield Step(dest=rank ^ 1, send=work(0), source=rank ^ 1, recv=work(0))


calls: list[int] = []


def test_generator_that_parts_its_ranks_again_and_again_is_asked_rank_by_rank() -> None:
    calls.clear()
    found = simulate(made(ladder, 1), 400, 1000, FLAT)
    assert found.simulated_s == pytest.approx(ALPHA + 1000 * BETA)
    assert len(calls) == 400 + 1  # rank 0 is asked once more, to see how wide messages are


def test_kinds_of_ranks_are_few_where_a_generator_branches() -> None:
    asked = 0
    algorithm = algorithm_named("allreduce", "rabenseifner")

    def counting(rank: Any, nranks: int) -> Iterator[Any]:
        nonlocal asked
        asked += 1
        yield from algorithm.generator(rank, nranks)

    simulate(made(counting, 1024), 1500, 4096, FLAT)
    assert asked < 40


def test_messages_of_many_spans_are_asked_for_by_a_few_ranks_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowd, "MAX_SPANS", 9)
    for collective in ("allgather", "reduce_scatter"):
        algorithm = algorithm_named(collective, "pat")
        assert len(crowd.operations(algorithm, 8, 1000)) == 4  # four spans in the longest message: two ranks together
        check_against_slow(algorithm, 8, 1001, FLAT)


def test_late_rank_is_waited_for() -> None:
    ring = algorithm_named("allreduce", "ring")
    on_time, late = simulate(ring, 8, 8000, FLAT), simulate(ring, 8, 8000, flat(late=[(3, 1e-3)]))
    assert late.simulated_s == pytest.approx(on_time.simulated_s + 1e-3)
    assert late.waiting_share == pytest.approx(1e-3 / late.simulated_s)
    assert late.closed_s == on_time.closed_s
    assert late.over_closed == pytest.approx(1e-3 / on_time.simulated_s)
    assert on_time.waiting_share == 0
    assert late.idle_share > 0.9


def test_all_late_alike_is_nobody_late() -> None:
    found = simulate(algorithm_named("allreduce", "ring"), 4, 4000, flat(late=[(rank, 1.0) for rank in range(4)]))
    assert found.simulated_s == pytest.approx(simulate(algorithm_named("allreduce", "ring"), 4, 4000, FLAT).simulated_s)
    assert found.waiting_share == 0


def test_skew_is_the_same_each_time_and_within_bounds() -> None:
    ring = algorithm_named("allreduce", "ring")
    on_time, one, other = (simulate(ring, 64, 64000, network) for network in (FLAT, *[flat(skew_s=1e-3)] * 2))
    assert one == other
    assert on_time.simulated_s + 5e-4 < one.simulated_s <= on_time.simulated_s + 1e-3
    assert one.waiting_share > 0


def test_slow_link_holds_up_a_ring_and_spares_a_tree() -> None:
    slow = flat(slow_links=[(3, 4, 10.0)])
    ring = simulate(algorithm_named("allreduce", "ring"), 8, 8000, slow)
    assert ring.simulated_s == pytest.approx(14 * 10 * (ALPHA + 1000 * BETA) + 7 * 1000 * GAMMA)
    tree = algorithm_named("allreduce", "binomial_tree")
    assert simulate(tree, 8, 8000, slow).over_closed == pytest.approx(0)


def test_slow_rank_reduces_and_talks_slowly() -> None:
    server = algorithm_named("allreduce", "parameter_server")
    slow = simulate(server, 4, 1000, flat(slow_ranks=[(0, 2.0)]))
    assert slow.simulated_s == pytest.approx(2 * simulate(server, 4, 1000, FLAT).simulated_s)
    one = simulate(server, 4, 1000, flat(slow_ranks=[(2, 3.0)]))
    assert one.simulated_s == pytest.approx(
        6 * (ALPHA + 1000 * BETA) + 3 * 1000 * GAMMA + 2 * 2 * (ALPHA + 1000 * BETA)
    )


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (flat(late=[(4, 1.0)]), "rank 4: there are 4 ranks"),
        (flat(slow_ranks=[(9, 2.0)]), "rank 9"),
        (flat(slow_links=[(0, 7, 2.0)]), "rank 7"),
        (flat(groups=((0, 1),)), "groups 0,1"),
    ],
)
def test_ranks_that_there_are_not_are_refused(network: Network, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        simulate(algorithm_named("allreduce", "ring"), 4, 8, network)


def test_values_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="alpha_s -1"):
        Link(alpha_s=-1.0, beta_s_per_byte=0.0)
    for nranks, nbytes, message in ((0, 8, "nranks = 0"), (2, -1, "nbytes = -1")):
        with pytest.raises(ValueError, match=message):
            simulate(algorithm_named("allreduce", "ring"), nranks, nbytes, FLAT)


def test_nothing_takes_time_where_nothing_costs() -> None:
    network = Network(inner=Link(alpha_s=0.0, beta_s_per_byte=0.0))
    found = simulate(algorithm_named("allreduce", "ring"), 4, 0, network)
    assert (found.simulated_s, found.idle_share, found.over_closed, found.rounds) == (0.0, 0.0, None, 6)
    json.dumps(found.to_json(), allow_nan=False)


MANY = """
import json, sys
from ringbench.model.closed import closed_form
from ringbench.model.network import Link, Network
from ringbench.model.simulate import simulate
from ringbench.schedule.registry import algorithm_named

network = Network(inner=Link(alpha_s=2e-6, beta_s_per_byte=2e-11), skew_s=float(sys.argv[4]))
found = simulate(algorithm_named(sys.argv[1], sys.argv[2]), int(sys.argv[3]), 1 << 30, network)
print(json.dumps([found.simulated_s, found.closed_s, found.rounds]))
"""


@pytest.mark.parametrize(
    ("collective", "name", "nranks", "rounds"),
    [
        ("allreduce", "ring", 4096, 8190),
        ("allreduce", "recursive_doubling", 65536, 16),
        ("allreduce", "rabenseifner", 65536, 32),
        ("allreduce", "rabenseifner", 50000, 32),
        ("allreduce", "swing", 65536, 32),
        ("allreduce", "binomial_tree", 65536, 32),
        ("allgather", "bruck", 65536, 16),
    ],
)
@pytest.mark.parametrize("skew", [0.0, 1e-4])
def test_thousands_of_ranks_fit_into_two_gigabytes(
    collective: str, name: str, nranks: int, rounds: int, skew: float
) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))

    words = [sys.executable, "-c", MANY, collective, name, str(nranks), str(skew)]
    done = subprocess.run(words, stdout=subprocess.PIPE, check=True, timeout=240, preexec_fn=limit)
    simulated, closed, found = json.loads(done.stdout)
    assert found == rounds
    # 2^30 does not divide evenly among 50000, and a skew may add as much as itself.
    assert closed * (1 - 1e-9) <= simulated <= closed * (1 + (1e-4 if nranks == 50000 else 1e-9)) + skew


# Another simulator.


@cache
def simgrid_python() -> str | None:
    """Return a Python that has SimGrid's bindings, of the interface that the program is written for."""
    for python in dict.fromkeys([sys.executable, "/usr/bin/python3", shutil.which("python3")]):
        probe = "import simgrid; simgrid.NetZone.create_full_zone"
        if python and subprocess.run([python, "-c", probe], stderr=subprocess.DEVNULL, timeout=60).returncode == 0:
            return python
    return None


@pytest.mark.parametrize(
    ("name", "nranks"), [("ring", 6), ("rabenseifner", 8), ("binomial_tree", 7), ("double_binary_tree", 6)]
)
def test_simgrid_says_the_same(name: str, nranks: int) -> None:
    python = simgrid_python()
    if python is None:
        pytest.skip("no Python here has SimGrid's bindings (Debian: python3-simgrid)")
    algorithm, nbytes = algorithm_named("allreduce", name), 5040 * 100
    sizes = block_sizes(nbytes, algorithm.blocks(nranks))

    def weight(spans: Spans) -> int:
        return sum(sizes[block] for _, block in block_numbers(spans, len(sizes), 0))

    programs = [
        [
            {
                "dest": step.dest,
                "source": step.source,
                "sent": weight(step.send),
                "reduced": weight(step.recv) if step.combine and step.source is not None else 0,
            }
            for step in algorithm.operations(rank, nranks)
            if isinstance(step, Step)
        ]
        for rank in range(nranks)
    ]
    case = {"alpha_s": ALPHA, "beta_s_per_byte": BETA, "gamma_s_per_byte": GAMMA, "programs": programs}
    program = str(Path(__file__).with_name("simgrid_play.py"))
    done = subprocess.run(
        [python, program], input=json.dumps(case), stdout=subprocess.PIPE, text=True, check=True, timeout=120
    )
    expected = json.loads(done.stdout)["simulated_s"]
    assert simulate(algorithm, nranks, nbytes, FLAT).simulated_s == pytest.approx(expected, rel=1e-6)


# The command line.

LINK = ["--alpha", "2us", "--beta", "1GB/s"]


def command(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(["simulate", *words])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_command_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = command(
        capsys, "--algorithm", "ring,naive", "--ranks", "4", "--size", "4MB", *LINK, "--format", "json"
    )
    ring, naive = json.loads(out)
    assert (status, err) == (0, "")
    assert set(ring) == set(Simulation.__dataclass_fields__)
    assert ring["simulated_s"] == pytest.approx(6.012e-3)
    assert naive["simulated_s"] == pytest.approx(12.006e-3)
    assert (ring["bytes_sent_max"], ring["rounds"], naive["bytes_sent_max"]) == (6_000_000, 6, 12_000_000)


def test_command_prints_a_table_with_what_the_closed_form_misses(capsys: pytest.CaptureFixture[str]) -> None:
    disturbed = [
        "--late",
        "1:1ms",
        "--slow-rank",
        "2:2x",
        "--slow-link",
        "0-3:10x",
        "--skew",
        "1us",
        "--gamma",
        "9GB/s",
    ]
    status, out, _ = command(capsys, "--ranks", "4", "--size", "1MiB", *LINK, *disturbed, "--format", "markdown")
    assert status == 0
    heading = "alpha 2us, beta 1 GB/s, gamma 9 GB/s; starts within 1us; rank 1 1ms late; rank 2 2x slower; "
    assert f"4 ranks; {heading}link 0-3 10x slower" in out
    (row,) = [line for line in out.splitlines() if " ring " in line]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[:2] == ["1MiB", "ring"]
    assert float(cells[4].rstrip("%")) > 500
    assert "warn" not in out


def test_command_takes_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--algorithm", "hierarchical", "--ranks", "8", "--size", "8000B", "--inner", "1us,8GB/s"]
    words += ["--outer", "5us,500MB/s", "--between", "recursive_doubling", "--format", "json"]
    for nodes in (["--ranks-per-node", "4"], ["--groups", "0,1,2,3/4,5,6,7"]):
        (row,) = json.loads(command(capsys, *words, *nodes)[1])
        assert row["simulated_s"] == pytest.approx(6 * (1e-6 + 2000 / 8e9) + 5e-6 + 2000 * 2e-9)
        assert row["simulated_s"] == pytest.approx(row["closed_s"])
        assert row["remark"] == "2 nodes of 4, recursive_doubling between"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--alpha", "2us"], "a link needs --alpha and --beta, or --inner alpha,beta"),
        ([*LINK, "--inner", "1us,1GB/s"], "a link needs"),
        (["--inner", "1us"], "malformed bandwidth ''"),
        (["--alpha", "2", "--beta", "1GB/s"], "malformed latency '2'"),
        (["--alpha", "2us", "--beta", "1GB"], "malformed bandwidth '1GB'"),
        ([*LINK, "--outer", "1us,1GB/s"], "--outer needs --ranks-per-node or --groups"),
        ([*LINK, "--groups", "0,1/2,3", "--ranks-per-node", "2"], "--groups and --ranks-per-node both say"),
        ([*LINK, "--late", "4:1us"], "rank 4: there are 4 ranks"),
        ([*LINK, "--late", "1"], "malformed latency ''"),
        ([*LINK, "--slow-rank", "1:0x"], "malformed factor '0x'"),
        ([*LINK, "--slow-link", "1:2x"], "malformed slow link '1:2x'"),
        ([*LINK, "--algorithm", "mpi"], "the library's own"),
        ([*LINK, "--algorithm", "bogus"], "unknown algorithm 'bogus'"),
        ([*LINK, "--algorithm", "ring,naive", "--trace", "x"], "--trace: shows one simulation, not 2"),
    ],
)
def test_command_says_in_one_line_what_is_wrong(
    capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    status, out, err = command(capsys, "--ranks", "4", "--size", "8", *words)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_trace_has_a_row_for_each_rank(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    words = ["--algorithm", "naive", "--ranks", "5", "--size", "1000B", *LINK, "--gamma", "2GB/s", "--late", "2:3us"]
    status, out, err = command(capsys, *words, "--trace", str(file), "--format", "json")
    assert status == 0
    assert str(file) in err
    (row,) = json.loads(out)
    found = json.loads(file.read_text())["traceEvents"]
    names = {event["tid"]: event["args"]["name"] for event in found if event["name"] == "thread_name"}
    assert names == {rank: f"rank {rank}" for rank in range(5)}
    events = [event for event in found if event["ph"] == "X"]
    ends = []
    for rank in range(5):
        own = sorted((event for event in events if event["tid"] == rank), key=lambda event: float(event["ts"]))
        assert sum(event["cat"] == "message" for event in own) == 4
        assert sum(event["args"].get("sent_bytes", 0) for event in own) == 4000
        assert sum(event["args"].get("reduced_bytes", 0) for event in own) == 4000
        for one, after in pairwise(own):
            assert one["ts"] + one["dur"] <= after["ts"] + 1e-9
        ends.append(own[-1]["ts"] + own[-1]["dur"])
    assert max(ends) == pytest.approx(row["simulated_s"] * 1e6)
    assert ends.index(max(ends)) == row["last_rank"]


def test_trace_that_nobody_could_look_at_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline, "MAX_EVENTS", 100)
    file = tmp_path / "trace.json"
    status, out, err = command(capsys, "--ranks", "8", "--size", "8", *LINK, "--trace", str(file))
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "a trace of more than 100 events; take fewer ranks" in err
    assert not file.exists()


def test_trace_that_cannot_be_written_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "missing" / "trace.json"
    status, out, err = command(capsys, "--ranks", "2", "--size", "8", *LINK, "--trace", str(file))
    assert (status, out) == (2, "")
    assert str(file) in err


def test_recording_changes_nothing() -> None:
    ring, events = algorithm_named("allreduce", "ring"), list[Event]()
    assert simulate(ring, 4, 4000, FLAT, events.append) == simulate(ring, 4, 4000, FLAT)
    assert len(events) == 4 * (6 + 3)
