from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import pairwise, product
from typing import Any

import pytest
from machine import BROUGHT, REDUCING, Machine, answer, run_programs
from playthrough import Layout, execute

import ringbench.collectives  # noqa: F401  (registers the algorithms)
from ringbench.runtime.compile import compile_program, scratch_sizes
from ringbench.runtime.moves import (
    MESSAGE_LIMIT,
    Combine,
    Copy,
    Divide,
    Exchange,
    Piece,
    Program,
    segment_elements,
)
from ringbench.schedule.cost import cost
from ringbench.schedule.registry import Algorithm, algorithm_named, algorithms
from ringbench.schedule.step import Local, Operations, Place, Span, Step, combine, copy, original, scale, temp, work
from ringbench.schedule.verify import verify

SMALL = tuple(range(18))
SEGMENTS = (1, 2, 3, 7, MESSAGE_LIMIT)

every = pytest.mark.parametrize("algorithm", algorithms(), ids=lambda a: f"{a.collective}-{a.name}")
every_sum = pytest.mark.parametrize(
    "algorithm", [a for a in algorithms() if a.collective in REDUCING], ids=lambda a: f"{a.collective}-{a.name}"
)


def sound(
    algorithm: Algorithm,
    nranks: int,
    counts: tuple[int, ...] = SMALL,
    segments: tuple[int, ...] = SEGMENTS,
    averages: tuple[bool, ...] = (False,),
    *,
    alternating: bool = False,
) -> None:
    """Hold what was compiled against the right result; in place and out of place, or alternating between the two."""
    if algorithm.collective == "alltoall":  # only as many for each rank: see the refusal of others below
        counts = tuple(sorted({-(-count // nranks) * nranks for count in counts if count <= 1000 - nranks}))
    for count, average in product(counts, averages if algorithm.collective in REDUCING else (False,)):
        right = [answer(algorithm, rank, nranks, count, average) for rank in range(nranks)]
        sent = cost(algorithm, nranks, count).sent
        for number, (segment, in_place) in enumerate(product(segments, (True, False))):
            if alternating and (number + number // 2 + count) % 2:
                continue
            if count <= segment < MESSAGE_LIMIT in segments:
                continue  # cuts nothing, as the limit does not
            found, programs = run_programs(
                algorithm, nranks, count, in_place=in_place, average=average, segment=segment
            )
            if algorithm.collective == "reduce":
                assert [row for rank, row in enumerate(found) if rank != algorithm.root] == [[]] * (nranks - 1)
            assert found == right, (algorithm.title, nranks, count, in_place, average, segment)
            assert tuple(program.sent for program in programs) == sent


@every
@pytest.mark.parametrize("nranks", range(1, 9))
def test_every_algorithm_gives_the_right_result(algorithm: Algorithm, nranks: int) -> None:
    fewer = {5: (2, MESSAGE_LIMIT), 6: (1, 7), 7: (3, MESSAGE_LIMIT), 8: (1, MESSAGE_LIMIT)}
    sound(algorithm, nranks, segments=fewer.get(nranks, SEGMENTS), alternating=nranks in fewer)


@every
@pytest.mark.parametrize("nranks", range(1, 8))
def test_every_variant_gives_the_right_result(algorithm: Algorithm, nranks: int) -> None:
    for variant in algorithm.variants(nranks)[1:]:
        sound(variant, nranks, counts=(0, 1, nranks - 1, 11), segments=(2, MESSAGE_LIMIT))
        sound(variant, nranks, counts=(17,), segments=(3,), averages=(True,))


@pytest.mark.parametrize("nranks", [4, 7])
@pytest.mark.parametrize(
    "algorithm",
    [a for a in algorithms() if dict(a.arguments).get("root") == 0],
    ids=lambda a: f"{a.collective}-{a.name}",
)
def test_every_rank_can_be_the_root(algorithm: Algorithm, nranks: int) -> None:
    for root in range(nranks):
        assert algorithm.given(root=root).root == root
        sound(algorithm.given(root=root), nranks, counts=(2, 17), segments=(2, MESSAGE_LIMIT))


@every_sum
@pytest.mark.parametrize("nranks", range(1, 9))
def test_every_algorithm_averages(algorithm: Algorithm, nranks: int) -> None:
    sound(algorithm, nranks, counts=(0, 1, 7, 9, 17), segments=(2, MESSAGE_LIMIT), averages=(True,))


@every
@pytest.mark.parametrize("nranks", [2, 3, 8])
def test_every_algorithm_at_a_thousand_elements(algorithm: Algorithm, nranks: int) -> None:
    sound(algorithm, nranks, counts=(1000,), segments=(7, MESSAGE_LIMIT))


@every_sum
def test_every_algorithm_averages_a_thousand_elements(algorithm: Algorithm) -> None:
    sound(algorithm, 3, counts=(1000,), segments=(7, MESSAGE_LIMIT), averages=(True,))


@every
def test_a_thousand_elements_one_by_one(algorithm: Algorithm) -> None:
    sound(algorithm, 3, counts=(1000,), segments=(1,))


# The machine itself: what it must not let pass.


def machine(*moves: Exchange | Combine | Copy | Divide, scratch: int = 2, segment: int = 9, result: int = 2) -> Machine:
    program = Program(moves=moves, scratch={"temp": scratch}, sent=0, segment=segment)
    memory: dict[str, list[Any]] = {"input": [1, 2], "result": [3] * result}
    return Machine([program], [memory])


R2, T2, I2 = Piece("result", 0, 2), Piece("temp", 0, 2), Piece("input", 0, 2)


@pytest.mark.parametrize(
    ("moves", "message"),
    [
        ((Copy(T2, R2),), "not all of which was written"),
        ((Combine(I2, T2, R2),), "not all of which was written"),
        ((Divide(T2),), "not all of which was written"),
        ((Copy(R2, I2),), "writes its input"),
        ((Copy(I2, Piece("result", 1, 3)),), "outside of 2"),
        ((Copy(I2, Piece("result", 0, 1)),), "2 elements into"),
        ((Copy(Piece("input", 1, 3), R2),), "outside of 2"),
        ((Exchange(None, None, None, None),), "nothing with nobody"),
        ((Exchange(I2, 0, None, None),), "deadlock"),
        ((Exchange(R2, 0, Piece("result", 1, 2), 0),), "while it receives"),
        ((Exchange(Piece("input", 0, 10), 0, None, None),), "longer than a segment"),
    ],
)
def test_the_machine_sees_a_wrong_program(moves: tuple[Any, ...], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        machine(*moves).run()


def test_the_machine_sees_bytes_that_were_not_counted() -> None:
    program = Program(moves=(Exchange(I2, 0, R2, 0),), scratch={}, sent=1, segment=9)
    with pytest.raises(AssertionError):
        Machine([program], [{"input": [1, 2], "result": [0, 0]}]).run()


# Schedules that no shipped algorithm is.


def made(
    generator: Callable[[int, int], Operations],
    blocks: Callable[[int], int] = lambda nranks: 1,
    ntemp: Callable[[int], int] = lambda nranks: 0,
    collective: str = "allreduce",
    **more: Any,
) -> Algorithm:
    values: dict[str, Any] = {"identical_bits": False, "segmentable": True, **more}
    return Algorithm(
        collective=collective,
        name="made",
        generator=generator,
        blocks=blocks,
        temp=ntemp,
        rounds=lambda nranks: 0,
        sent=lambda nranks: Fraction(0),
        **values,
    )


def recursive_doubling(rank: int, nranks: int) -> Operations:
    distance = 1
    while distance < nranks:
        peer = rank ^ distance
        yield Step(dest=peer, send=work(0), source=peer, recv=work(0), combine=True)
        distance *= 2


def recursive_halving(rank: int, nranks: int) -> Operations:
    low, size = 0, nranks
    while size > 1:
        size //= 2
        upper = rank & size
        keep, give = (low + size, low) if upper else (low, low + size)
        yield Step(dest=rank ^ size, send=work(give, size), source=rank ^ size, recv=work(keep, size), combine=True)
        low = keep


def halving_and_doubling(rank: int, nranks: int) -> Operations:
    yield from recursive_halving(rank, nranks)
    yield scale(work(rank))
    size = 1
    while size < nranks:
        mine, theirs = rank & -size, (rank ^ size) & -size
        yield Step(dest=rank ^ size, send=work(mine, size), source=rank ^ size, recv=work(theirs, size))
        size *= 2


def binomial_tree(rank: int, nranks: int) -> Operations:
    """Only sends, only receives: add towards rank 0, then hand down the same tree."""
    distance, children = 1, []
    while distance < nranks and not rank & distance:
        if rank + distance < nranks:
            children.append(rank + distance)
            yield Step(source=rank + distance, recv=work(0), combine=True)
        distance *= 2
    if rank:
        parent = rank & (rank - 1)
        yield Step(dest=parent, send=work(0))
        yield Step(source=parent, recv=work(0))
    for child in reversed(children):
        yield Step(dest=child, send=work(0))


def bruck_allgather(rank: int, nranks: int) -> Operations:
    """Ranges that pass the end of the vector and go on at its start: two pieces in one message."""
    have = 1
    while have < nranks:
        more = min(have, nranks - have)
        left, right = (rank - have) % nranks, (rank + have) % nranks
        yield Step(dest=left, send=work(rank, more), source=right, recv=work(rank + have, more))
        have += more


def pairwise_reduce_scatter(rank: int, nranks: int) -> Operations:
    for k in range(1, nranks):
        dest, source = (rank + k) % nranks, (rank - k) % nranks
        yield Step(dest=dest, send=original(dest), source=source, recv=work(rank), combine=True)


def adding_as_it_arrives(rank: int, nranks: int) -> Operations:
    """Send the input again and again although it was added to in place: it has to be saved first."""
    for k in range(1, nranks):
        dest, source = (rank + k) % nranks, (rank - k) % nranks
        yield Step(dest=dest, send=original(0), source=source, recv=work(0), combine=True)


def ring_of_pairs(rank: int, nranks: int) -> Operations:
    """The ring over blocks b and b+N, which are not neighbours: two spans in each message, added and overwritten."""
    right, left = (rank + 1) % nranks, (rank - 1) % nranks

    def pair(block: int) -> tuple[Span, Span]:
        block %= nranks
        return work(block + nranks), work(block)

    for k in range(nranks - 1):
        yield Step(dest=right, send=pair(rank - k), source=left, recv=pair(rank - k - 1), combine=True)
    yield scale(pair(rank + 1))
    for k in range(nranks - 1):
        yield Step(dest=right, send=pair(rank + 1 - k), source=left, recv=pair(rank - k))


def by_way_of_temp(rank: int, nranks: int) -> Operations:
    """Gather N vectors of two blocks each in temp, add them there, copy the sum back, average it at the end."""
    yield copy(work(0, 2), temp(2 * rank, 2))
    for k in range(1, nranks):
        dest, source = (rank + k) % nranks, (rank - k) % nranks
        yield Step(dest=dest, send=temp(2 * rank, 2), source=source, recv=temp(2 * source, 2))
    for other in range(1, nranks):
        yield combine((temp(2 * other + 1), temp(2 * other)), (temp(1), temp(0)))
    yield copy(temp(0, 2), work(0, 2))
    yield scale(work(0, 2))


def twisted(rank: int, nranks: int) -> Operations:
    """Two ranks: ranges around the end of work and of temp, and an empty message."""
    other = 1 - rank
    yield Step(dest=other, send=work(1, 2), source=other, recv=temp(3, 2))
    yield Step(dest=other, source=other)
    yield combine(temp(3, 2), work(1, 2))
    yield Step(dest=other, send=(work(1), work(0)), source=other, recv=(temp(1), temp(0)))
    yield Step(dest=other, send=(work(1), work(0)), source=other, recv=temp(1, 2))
    yield copy(temp(1, 2), work(1, 2))


def overwritten_at_once(rank: int, nranks: int) -> Operations:
    """Two ranks: the input is sent while what arrives takes its place, and read once more after that."""
    other = 1 - rank
    yield Step(dest=other, send=original(0), source=other, recv=work(0))
    yield combine(original(0), work(0))


def moved_away_at_once(rank: int, nranks: int) -> Operations:
    """Two ranks: one action overwrites the input and, behind that, copies it away."""
    other = 1 - rank
    yield Step(dest=other, send=work(0), source=other, recv=temp(0))
    yield copy((temp(0), original(0)), (work(0), temp(1)))
    yield combine(temp(1), work(0))


def long_and_short(rank: int, nranks: int) -> Operations:
    """Two ranks: sends both blocks of the input while it adds to one of them, so that segments do not keep step."""
    if rank == 0:
        yield Step(dest=1, send=original(0, 2), source=1, recv=work(1), combine=True)
        yield Step(source=1, recv=work(0), combine=True)
    else:
        yield Step(dest=0, send=work(1), source=0, recv=temp(0, 2))
        yield Step(dest=0, send=work(0))
        yield combine(temp(0, 2), work(0, 2))


def rewritten_block(rank: int, nranks: int) -> Operations:
    """Two ranks: an allgather that reads its own block from the input after it overwrote it by itself."""
    other = 1 - rank
    yield copy(work(rank), temp(rank))
    yield copy(temp(rank), work(rank))
    yield Step(dest=other, send=original(rank), source=other, recv=work(other))


def traded(rank: int, nranks: int) -> Operations:
    """An all-to-all in which every two ranks trade one block each, in place."""
    for k in range(nranks):
        peer = (k - rank) % nranks
        if peer != rank:
            yield Step(dest=peer, send=work(peer), source=peer, recv=work(peer))


def traded_around_the_end(rank: int, nranks: int) -> Operations:
    """Two ranks: the whole vectors change places, each in two spans, before they are added."""
    other, both = 1 - rank, (work(1), work(0))
    yield Step(dest=other, send=both, source=other, recv=both)
    yield Step(dest=other, send=both, source=other, recv=both, combine=True)


def scattered_sum(rank: int, nranks: int) -> Operations:
    """A reduction to rank 0 whose other ranks add up, and average, blocks for which their result has no room."""
    right, left = (rank + 1) % nranks, (rank - 1) % nranks
    for k in range(nranks - 1):
        yield Step(dest=right, send=work(rank - k - 1), source=left, recv=work(rank - k - 2), combine=True)
    yield scale(work(rank))
    if rank:
        yield Step(dest=0, send=work(rank))
    else:
        for source in range(1, nranks):
            yield Step(source=source, recv=work(source))


def told_one_by_one(rank: int, nranks: int) -> Operations:
    """A broadcast from rank 0 to one rank after the other, the second block first."""
    both = (work(1), work(0))
    if rank:
        yield Step(source=0, recv=both)
    else:
        for dest in range(1, nranks):
            yield Step(dest=dest, send=both)


def two(nranks: int) -> int:
    return 2


def own(nranks: int) -> int:
    return nranks


POWERS, ANY, PAIR = (1, 2, 4, 8), (1, 2, 3, 5, 8), (1, 2)
MADE = {
    "recursive doubling": (made(recursive_doubling, identical_bits=True), POWERS),
    "recursive halving": (made(recursive_halving, own, collective="reduce_scatter"), POWERS),
    "halving and doubling": (made(halving_and_doubling, own, identical_bits=True), POWERS),
    "binomial tree": (made(binomial_tree, identical_bits=True), (*ANY, 6, 7)),
    "Bruck": (made(bruck_allgather, own, collective="allgather", identical_bits=True), (*ANY, 6, 7)),
    "pairwise": (made(pairwise_reduce_scatter, own, collective="reduce_scatter"), ANY),
    "adding as it arrives": (made(adding_as_it_arrives), ANY),
    "ring of pairs": (made(ring_of_pairs, lambda nranks: 2 * nranks, identical_bits=True), ANY),
    "by way of temp": (made(by_way_of_temp, two, lambda nranks: 2 * nranks, identical_bits=True), ANY),
    "twisted": (made(twisted, two, lambda nranks: 4), PAIR),
    "overwritten at once": (made(overwritten_at_once), PAIR),
    "moved away at once": (made(moved_away_at_once, ntemp=two), PAIR),
    "long and short": (made(long_and_short, two, two), PAIR),
    "traded": (made(traded, own, collective="alltoall"), ANY),
    "traded around the end": (made(traded_around_the_end, two, identical_bits=True), PAIR),
    "scattered sum": (made(scattered_sum, own, collective="reduce"), ANY),
    "told one by one": (made(told_one_by_one, two, collective="bcast"), ANY),
    "rewritten block": (made(rewritten_block, own, own, "allgather"), PAIR),
}
CASES = [
    pytest.param(algorithm, nranks, id=f"{name}-{nranks}") for name, (algorithm, ns) in MADE.items() for nranks in ns
]


@pytest.mark.parametrize(("algorithm", "nranks"), CASES)
def test_schedules_unlike_the_shipped_ones(algorithm: Algorithm, nranks: int) -> None:
    verify(algorithm, nranks)
    sound(algorithm, nranks, counts=(0, 1, 3, nranks + 1, 17, 40), segments=(1, 3, MESSAGE_LIMIT))
    sound(algorithm, nranks, counts=(0, 1, 5, 17), segments=(2, MESSAGE_LIMIT), averages=(True,))


# Random schedules: right or wrong as collectives, they must do what the language says.


def drawn(seed: int) -> tuple[Algorithm, list[list[Step | Local]], int]:
    """Return an allreduce that computes something, by moves that the language allows, its programs and its ranks."""
    dice = random.Random(seed)
    nranks, nblocks = dice.choice((2, 2, 3, 4)), dice.choice((1, 2, 3))
    ntemp = nblocks * dice.choice((0, 1, 2))
    known: list[set[tuple[Place, int]]] = [
        {(place, block) for place in ("work", "original") for block in range(nblocks)} for _ in range(nranks)
    ]
    programs: list[list[Step | Local]] = [[] for _ in range(nranks)]

    def targets(rank: int, among: list[int], *, combined: bool) -> list[tuple[Place, int]]:
        """Draw where blocks of these numbers go at a rank: each place once."""
        named: list[tuple[Place, int]] = []
        for block in among:
            places: list[tuple[Place, int]] = [("work", block)]
            places += [("temp", block + whole) for whole in range(0, ntemp, nblocks)]
            dice.shuffle(places)
            fit = [place for place in places if place not in named and (not combined or place in known[rank])]
            named.append(fit[0] if fit else ("work", -1))
        return named

    def sources(rank: int, among: list[int], without: set[tuple[Place, int]]) -> list[tuple[Place, int]]:
        named: list[tuple[Place, int]] = []
        for block in among:
            fit = sorted(name for name in known[rank] - without if name[1] % nblocks == block)
            named.append(dice.choice(fit) if fit else ("work", -1))
        return named

    def spelled(named: list[tuple[Place, int]]) -> tuple[Span, ...]:
        """Write blocks as spans, those that follow one another as one range, also around the end."""
        ranges: list[Span] = []
        for place, block in named:
            size = ntemp if place == "temp" else nblocks
            last = ranges[-1] if ranges else None
            if last and last.place == place and (last.first + last.count) % size == block and last.count < size:
                ranges[-1] = Span(place, last.first, last.count + 1)
            else:
                ranges.append(Span(place, block + dice.choice((0, 0, size, -size))))
        return tuple(ranges)

    def numbers() -> list[int]:
        first, length = dice.randrange(nblocks), dice.randint(1, nblocks)
        among = [(first + k) % nblocks for k in range(length)]
        return among if dice.random() < 0.7 else dice.sample(among, len(among))

    for _ in range(dice.randint(1, 6)):
        if dice.random() < 0.4:
            rank, among = dice.randrange(nranks), numbers()
            if dice.random() < 0.25:
                named = [("work", block) for block in among]
                programs[rank].append(Local("scale", spelled(named)))  # type: ignore[arg-type]
                continue
            combined = dice.random() < 0.5
            dest = targets(rank, among, combined=combined)
            source = sources(rank, among, set(dest))
            if ("work", -1) not in dest + source:
                programs[rank].append(Local("combine" if combined else "copy", spelled(dest), spelled(source)))
                known[rank] |= set(dest)
            continue
        if dice.random() < 0.2:  # the same blocks change places
            (one, other), among, combined = dice.sample(range(nranks), 2), numbers(), dice.random() < 0.3
            here, there = targets(one, among, combined=True), targets(other, among, combined=True)
            if ("work", -1) not in here + there:
                for rank, peer, same in ((one, other, here), (other, one, there)):
                    programs[rank].append(
                        Step(dest=peer, send=spelled(same), source=peer, recv=spelled(same), combine=combined)
                    )
            continue
        ring = dice.sample(range(nranks), dice.randint(2, nranks))
        edges = list(zip(ring, [*ring[1:], ring[0]], strict=True))[: dice.choice((1, len(ring)))]
        among_of = {edge: numbers() for edge in edges}
        combined_at = {receiver: dice.random() < 0.5 for _, receiver in edges}
        landing = {edge: targets(edge[1], among_of[edge], combined=combined_at[edge[1]]) for edge in edges}
        arriving = {receiver: set(landing[sender, receiver]) for sender, receiver in edges}
        leaving = {edge: sources(edge[0], among_of[edge], arriving.get(edge[0], set())) for edge in edges}
        if any(("work", -1) in named for named in (*landing.values(), *leaving.values())):
            continue
        for rank in ring:
            out = next((edge for edge in edges if edge[0] == rank), None)
            into = next((edge for edge in edges if edge[1] == rank), None)
            if out or into:
                programs[rank].append(
                    Step(
                        dest=out[1] if out else None,
                        send=spelled(leaving[out]) if out else (),
                        source=into[0] if into else None,
                        recv=spelled(landing[into]) if into else (),
                        combine=bool(into) and combined_at[rank],
                    )
                )
        for _, receiver in edges:
            known[receiver] |= arriving[receiver]
    algorithm = made(
        lambda rank, size: programs[rank] if size == nranks else [], lambda size: nblocks, lambda size: ntemp
    )
    return algorithm, programs, nranks


def test_random_schedules_do_what_the_language_says() -> None:
    moves = 0
    for seed in range(200):
        algorithm, schedules, nranks = drawn(seed)
        moves += sum(map(len, schedules))
        for count, average in ((7, False), (6, True)):
            layout = Layout(algorithm, nranks, count)
            divisor = nranks if average and algorithm.scales else 1
            memories = execute(layout, schedules, lambda rank, i: BROUGHT[rank][i], divisor=1)
            if divisor != 1:
                memories = execute(layout, schedules, lambda rank, i: Fraction(BROUGHT[rank][i]), divisor=divisor)
            right = [memory["work"] for memory in memories]
            if average and not algorithm.scales:
                right = [[Fraction(value, nranks) for value in row] for row in right]
            for in_place, segment in product((True, False), (1, 2, MESSAGE_LIMIT)):
                found, _ = run_programs(algorithm, nranks, count, in_place=in_place, average=average, segment=segment)
                assert found == right, (seed, count, in_place, average, segment, schedules)
    assert moves > 500


# Sizes that nobody can allocate.

HUGE = 3_221_225_472  # float32 elements: 12 GiB


def exchanges(program: Program) -> list[Exchange]:
    return [move for move in program.moves if isinstance(move, Exchange)]


def pieces(program: Program) -> Iterator[Piece]:
    for move in program.moves:
        yield from (part for part in move if isinstance(part, Piece))


def test_case_5_offsets_of_three_billion_elements() -> None:
    ring = algorithm_named("allreduce", "ring")
    for rank in range(4):
        program = compile_program(ring, rank, 4, HUGE, in_place=True)
        starts = {piece.start for piece in pieces(program) if piece.buffer == "result"}
        assert sorted(starts) == [0, 805306368, 1610612736, 2415919104]
        assert all(type(number) is int for piece in pieces(program) for number in piece[1:3])
        assert {move.send.length for move in exchanges(program) if move.send} == {HUGE // 4}
        assert program.scratch == {"arrived": HUGE // 4}
        assert program.sent == 6 * HUGE // 4


@pytest.mark.parametrize(("count", "parts"), [(MESSAGE_LIMIT, 1), (MESSAGE_LIMIT + 1, 2), (HUGE, 2), (3 * HUGE, 5)])
def test_case_5_a_message_above_the_limit_of_mpi_is_cut_alike_at_both_ends(count: int, parts: int) -> None:
    server = algorithm_named("allreduce", "parameter_server")
    root, worker = (compile_program(server, rank, 2, count, in_place=True) for rank in range(2))
    sent = [move.send for move in exchanges(worker) if move.send]
    received = [move.recv for move in exchanges(root) if move.recv]
    assert [piece.length for piece in sent] == [piece.length for piece in received]
    assert len(sent) == parts
    assert max(piece.length for piece in sent) <= MESSAGE_LIMIT == 2**31 - 1
    assert (sent[0].start, sent[-1].stop) == (0, count)
    assert all(one.stop == other.start for one, other in pairwise(sent))


def test_case_5_a_message_that_may_not_be_cut_is_refused_by_the_name_of_the_limit() -> None:
    whole = made(recursive_doubling, segmentable=False)
    message = r"^allreduce made: a message of 2147483648 elements exceeds the limit of 2147483647 \(INT_MAX\)"
    for rank in range(2):
        assert len(exchanges(compile_program(whole, rank, 2, MESSAGE_LIMIT, in_place=True, segment=2**28))) == 1
        with pytest.raises(ValueError, match=message):
            compile_program(whole, rank, 2, MESSAGE_LIMIT + 1, in_place=True, segment=5)
        with pytest.raises(ValueError, match=message):
            scratch_sizes(whole, rank, 2, MESSAGE_LIMIT + 1, in_place=True, segment=5)
    assert exchanges(compile_program(whole, 0, 1, HUGE, in_place=True)) == []


def test_what_may_not_be_cut_is_sent_whole_and_says_so() -> None:
    whole = made(halving_and_doubling, own, segmentable=False)
    sound(whole, 4, counts=(3, 17), segments=(1, 3))
    program = compile_program(whole, 0, 4, 16, in_place=True, segment=1)
    assert [move.send.length for move in exchanges(program) if move.send] == [8, 4, 4, 8]
    assert program.segment == MESSAGE_LIMIT


# Shape of programs.


def test_segments_differ_by_one_element_at_most_and_land_in_one_place() -> None:
    server = algorithm_named("allreduce", "parameter_server")
    root = compile_program(server, 0, 2, 10, in_place=True, segment=4)
    arrived = [move.recv for move in exchanges(root) if move.recv]
    assert arrived == [Piece("arrived", 0, 4), Piece("arrived", 0, 3), Piece("arrived", 0, 3)]
    adds = [move for move in root.moves if isinstance(move, Combine)]
    assert [move.out for move in adds] == [Piece("result", 0, 4), Piece("result", 4, 7), Piece("result", 7, 10)]
    assert root.scratch == {"arrived": 4}
    assert root.segment == 4


def test_a_program_says_what_each_step_moves_and_reduces_however_it_is_cut() -> None:
    for segment in (1, MESSAGE_LIMIT):
        ring = compile_program(algorithm_named("allreduce", "ring"), 0, 3, 7, in_place=True, segment=segment)
        assert ring.steps == ((3, 2), (2, 2), (3, 0), (3, 0))  # of blocks of 3, 2 and 2 elements
        server = algorithm_named("allreduce", "parameter_server")
        assert compile_program(server, 0, 2, 7, in_place=True, segment=segment).steps == ((7, 7), (7, 0))
        assert compile_program(server, 1, 2, 7, in_place=True, segment=segment).steps == ((7, 0), (7, 0))


def test_each_segment_is_added_before_the_next_arrives() -> None:
    ring = compile_program(algorithm_named("allreduce", "ring"), 1, 3, 12, in_place=True, segment=2)
    kinds = "".join(type(move).__name__[0] for move in ring.moves)
    assert kinds == "ECEC" * 2 + "EE" * 2


def test_out_of_place_reads_what_is_untouched_from_the_input() -> None:
    ring = algorithm_named("allreduce", "ring")
    program = compile_program(ring, 0, 3, 6, in_place=False)
    assert program.moves[:2] == (
        Exchange(Piece("input", 0, 2), 1, Piece("arrived", 0, 2), 2),
        Combine(Piece("input", 4, 6), Piece("arrived", 0, 2), Piece("result", 4, 6)),
    )
    assert not [move for move in program.moves if isinstance(move, Copy)]


def test_an_exchange_of_the_same_blocks_lands_in_a_buffer_first() -> None:
    mine = Piece("result", 2, 4)
    trade = compile_program(MADE["traded"][0], 0, 2, 4, in_place=True)
    landing = Piece("recv_pack", 0, 2)
    assert trade.moves == (Exchange(mine, 1, landing, 1), Copy(landing, mine))
    assert trade.scratch == {"recv_pack": 2}
    trade = compile_program(MADE["traded"][0], 0, 2, 4, in_place=False)
    assert trade.moves[0] == Exchange(Piece("input", 2, 4), 1, mine, 1)  # nothing is overwritten
    assert "recv_pack" not in trade.scratch


@pytest.mark.parametrize("in_place", [True, False])
def test_an_alltoall_without_as_many_elements_for_each_rank_is_refused(in_place: bool) -> None:
    for algorithm in algorithms("alltoall"):
        for count, elements in ((1, "1 element"), (5, "5 elements"), (7, "7 elements")):
            with pytest.raises(
                ValueError, match=f"^alltoall of {elements}: needs a multiple of 3, as many for each rank$"
            ):
                compile_program(algorithm, 1, 3, count, in_place=in_place)
            with pytest.raises(
                ValueError, match=f"^alltoall of {elements}: needs a multiple of 3, as many for each rank$"
            ):
                scratch_sizes(algorithm, 1, 3, count, in_place=in_place)


@pytest.mark.parametrize("root", [0, 2, 4])
def test_a_sum_for_another_rank_is_kept_in_scratch_memory_where_the_result_has_no_room(root: int) -> None:
    for algorithm in algorithms("reduce"):
        for rank in range(5):
            rooted = algorithm.given(root=root)
            out, within = (compile_program(rooted, rank, 5, 20, in_place=in_place) for in_place in (False, True))
            assert not [
                piece for piece in pieces(out) if (piece.buffer, piece.rank) == ("result", None) and rank != root
            ]
            assert "partial" not in within.scratch
            adds = any(isinstance(move, Combine) for move in out.moves)
            assert out.scratch.get("partial", 0) == (20 if adds and rank != root else 0), (algorithm.name, rank)


def test_in_place_saves_the_input_only_where_it_is_needed() -> None:
    def saved(algorithm: Algorithm, *, in_place: bool, rank: int = 0) -> int:
        return compile_program(algorithm, rank, 2, 6, in_place=in_place).scratch.get("saved", 0)

    for algorithm in algorithms():
        assert saved(algorithm, in_place=False) == 0
        # Only an all-to-all must send from the input what it has overwritten by then.
        assert saved(algorithm, in_place=True) == (6 if algorithm.title == "alltoall pairwise" else 0), algorithm.title
    assert saved(MADE["overwritten at once"][0], in_place=True) == 6
    assert saved(MADE["overwritten at once"][0], in_place=False) == 0
    assert saved(MADE["pairwise"][0], in_place=True) == 0


def test_one_rank_copies_its_input_and_divides_nothing() -> None:
    for algorithm in algorithms():
        assert compile_program(algorithm, 0, 1, 5, in_place=True, average=True).moves == ()
        moves = compile_program(algorithm, 0, 1, 5, in_place=False, average=True).moves
        assert moves == (Copy(Piece("input", 0, 5), Piece("result", 0, 5)),)
        assert compile_program(algorithm, 0, 1, 0, in_place=False).moves == ()


def test_nothing_to_send_is_not_sent() -> None:
    for algorithm in algorithms():
        for rank in range(4):
            program = compile_program(algorithm, rank, 4, 0, in_place=False, average=True)
            assert (program.moves, program.scratch, program.sent) == ((), {}, 0)
    ring = compile_program(algorithm_named("allreduce", "ring"), 3, 4, 3, in_place=True)
    assert [move.dest for move in exchanges(ring)].count(None) == 2  # case 2: the fourth block is empty


@pytest.mark.parametrize("segment", [-1, 0])
def test_a_segment_holds_one_element_at_least(segment: int) -> None:
    ring = compile_program(algorithm_named("allreduce", "ring"), 0, 2, 4, in_place=True, segment=segment)
    assert ring.segment == 1


@pytest.mark.parametrize(
    ("nbytes", "itemsize", "elements"), [(0, 4, MESSAGE_LIMIT), (1, 4, 1), (8, 4, 2), (7, 4, 1), (2**21, 8, 2**18)]
)
def test_elements_of_a_segment(nbytes: int, itemsize: int, elements: int) -> None:
    assert segment_elements(nbytes, itemsize) == elements


@pytest.mark.parametrize("algorithm", [*algorithms(), *(algorithm for algorithm, _ in MADE.values())])
def test_scratch_is_known_without_the_segments(algorithm: Algorithm) -> None:
    counts = (0, 2, 18, 100) if algorithm.collective == "alltoall" else (0, 1, 17, 100)
    for count, segment, in_place in product(counts, (1, 3, 16, MESSAGE_LIMIT), (True, False)):
        for rank in range(2):
            program = compile_program(algorithm, rank, 2, count, in_place=in_place, segment=segment)
            assert scratch_sizes(algorithm, rank, 2, count, in_place=in_place, segment=segment) == program.scratch


def test_scratch_of_what_nobody_could_cut_is_known_at_once() -> None:
    ring = algorithm_named("allreduce", "ring")
    assert scratch_sizes(ring, 0, 1024, 2**58, in_place=True, segment=2) == {"arrived": 2}


@pytest.mark.parametrize("name", ["rabenseifner", "swing"])
def test_as_many_ranks_as_the_largest_machines_have(name: str) -> None:
    nranks, count = 2**16, 2**20
    for rank in (0, 40_000, nranks - 1):
        program = compile_program(algorithm_named("allreduce", name), rank, nranks, count, in_place=False)
        assert len(exchanges(program)) == 32
        assert len(program.moves) == 32 + 16
        assert program.sent == 2 * (count - count // nranks)
        assert set(program.scratch) == {"arrived"}


def test_a_thousand_ranks() -> None:
    program = compile_program(algorithm_named("allreduce", "ring"), 1023, 1024, 2**20, in_place=True)
    assert len(exchanges(program)) == 2 * 1023
    assert program.sent == 2 * 1023 * 1024
