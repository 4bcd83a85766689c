from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache, partial
from math import ceil, log2

import pytest
from playthrough import Layout, contribution, execute, fault, play_elements

import ringbench.collectives  # noqa: F401  (registers the algorithms)
from ringbench.collectives.double_tree import two_trees
from ringbench.collectives.swing import partner, position, reach
from ringbench.schedule.cost import Cost, cost
from ringbench.schedule.parameters import Groups
from ringbench.schedule.registry import Algorithm, algorithm_named, algorithms
from ringbench.schedule.semantics import collective_named
from ringbench.schedule.step import Meet, Span, Step, block_numbers, spans
from ringbench.schedule.verify import verify


def title(algorithm: Algorithm) -> str:
    return f"{algorithm.collective}-{algorithm.name}"


every = pytest.mark.parametrize("algorithm", algorithms(), ids=title)

#: What may run between nodes.
OUTERS = [
    a.name
    for a in algorithms("allreduce")
    if "groups" not in dict(a.arguments) and a.identical_bits and a.shared is None
]


def divisible(algorithm: Algorithm, nranks: int) -> int:
    """Return a number of elements that blocks, and blocks of blocks, divide."""
    return 2 * nranks * algorithm.blocks(nranks)


@every
def test_proved_for_1_to_33_ranks(algorithm: Algorithm) -> None:
    for nranks in range(1, 34):
        for variant in algorithm.variants(nranks):
            verify(variant, nranks)


@every
def test_proved_for_64_ranks(algorithm: Algorithm) -> None:
    for variant in algorithm.variants(64):
        verify(variant, 64)


@cache
def counters_of(algorithm: Algorithm, nranks: int) -> Cost:
    return cost(algorithm, nranks, divisible(algorithm, nranks))


@every
def test_the_closed_forms_are_what_the_schedule_costs(algorithm: Algorithm) -> None:
    for nranks in range(1, 34):
        for variant in algorithm.variants(nranks):
            count, counters = divisible(variant, nranks), counters_of(variant, nranks)
            if variant.exact:
                assert variant.rounds(nranks) == counters.rounds, (variant.title, nranks)
                assert variant.sent(nranks) * count == counters.sent_max, (variant.title, nranks)
            else:
                assert variant.rounds(nranks) >= counters.rounds, (variant.title, nranks)
                assert variant.sent(nranks) * count >= counters.sent_max, (variant.title, nranks)


@every
def test_nothing_beats_the_lower_bounds(algorithm: Algorithm) -> None:
    for nranks in range(2, 34):
        for variant in algorithm.variants(nranks):
            count, counters = divisible(variant, nranks), counters_of(variant, nranks)
            least = (nranks - 1) * count
            twice = 2 if variant.collective == "allreduce" else 1
            assert counters.rounds >= ceil(log2(nranks))
            assert sum(map(sum, (counters.sent, counters.read, counters.written))) >= twice * least
            # A rooted collective moves the whole vector over one link, the others all but the own part.
            share = Fraction(1) if variant.collective in ("bcast", "reduce") else Fraction(nranks - 1, nranks)
            assert counters.critical_sent >= twice * share * count
            if collective_named(variant.collective).reduces:
                assert sum(counters.reduced) >= least
                assert counters.critical_reduced >= Fraction(nranks - 1, nranks) * count
            else:
                assert sum(counters.reduced) == 0


@every
def test_every_element_holds_every_contribution_once(algorithm: Algorithm) -> None:
    for nranks in range(1, 9):
        for count in range(18):
            if collective_named(algorithm.collective).transposes and count % nranks:
                continue
            memories, layout = play_elements(algorithm, nranks, count)
            for rank, memory in enumerate(memories):
                wanted = layout.wanted(rank, partial(contribution, nranks))
                found = {i: memory["work"][i] for i in wanted}
                assert found == wanted, (nranks, count, rank)


@every
@pytest.mark.parametrize("nranks", [2, 3, 5, 6])
def test_sums_averages_and_bits_are_right_in_whole_messages_and_in_segments(algorithm: Algorithm, nranks: int) -> None:
    for variant in algorithm.variants(nranks):
        assert fault(variant, nranks) is None, variant.title


# The costs of the literature.


def lg(nranks: int) -> int:
    """Return f, the logarithm of the largest power of two up to nranks."""
    return max(f for f in range(20) if 2**f <= nranks)


def power(nranks: int) -> int:
    return 1 << lg(nranks)


def left_out(nranks: int) -> bool:
    return nranks != power(nranks)


#: Rounds, elements moved and reduced on the critical path, and sent by the busiest rank, in units of the vector.
Row = tuple[int, "Fraction | int", "Fraction | int", "Fraction | int"]


def bandwidth_optimal(rounds: int, size: int) -> Row:
    share = Fraction(size - 1, size)
    return rounds, 2 * share, share, 2 * share


def halving_row(nranks: int) -> Row:
    rounds, moved, reduced, sent = bandwidth_optimal(2 * lg(nranks), power(nranks))
    return (rounds + 2, moved + 2, reduced + 1, sent + 1) if left_out(nranks) else (rounds, moved, reduced, sent)


def doubling_row(nranks: int) -> Row:
    f = lg(nranks)
    return (f + 2, f + 2, f + 1, f + 1) if left_out(nranks) else (f, f, f, f)


def binomial_row(nranks: int) -> Row:
    rounds = ceil(log2(nranks))
    return 2 * rounds, 2 * rounds, rounds, rounds


TABLE: dict[str, Callable[[int], Row]] = {
    "ring": lambda n: bandwidth_optimal(2 * (n - 1), n),
    "naive": lambda n: (n - 1, n - 1, n - 1, n - 1),
    "parameter_server": lambda n: (2 * (n - 1), 2 * (n - 1), n - 1, n - 1),
    "binomial_tree": binomial_row,
    "recursive_doubling": doubling_row,
    "rabenseifner": halving_row,
    "swing": halving_row,
    "swing_latency": doubling_row,
    "hierarchical": lambda n: bandwidth_optimal(2 * (n - 1), n),
}


def row(counters: Cost, count: int) -> Row:
    return (
        counters.rounds,
        Fraction(counters.critical_sent, count),
        Fraction(counters.critical_reduced, count),
        Fraction(counters.sent_max, count),
    )


@pytest.mark.parametrize("name", TABLE)
def test_factors_of_alpha_beta_and_gamma_are_those_of_the_literature(name: str) -> None:
    algorithm = algorithm_named("allreduce", name)
    for nranks in [*range(2, 34), 64]:
        count = divisible(algorithm, nranks)
        assert row(cost(algorithm, nranks, count), count) == TABLE[name](nranks), nranks


@pytest.mark.parametrize(("nodes", "size"), [(2, 2), (2, 8), (3, 4), (4, 2), (5, 3), (1, 6), (6, 1)])
def test_the_costs_of_a_hierarchy_of_equal_nodes(nodes: int, size: int) -> None:
    groups = tuple(tuple(range(node * size, (node + 1) * size)) for node in range(nodes))
    algorithm = algorithm_named("allreduce", "hierarchical").given(groups=groups)
    inside, across = Fraction(size - 1, size), Fraction(nodes - 1, nodes * size)
    count = divisible(algorithm, nodes * size)
    assert row(cost(algorithm, nodes * size, count), count) == (
        2 * (size - 1) + 2 * (nodes - 1),
        2 * inside + 2 * across,
        inside + across,
        2 * inside + 2 * across,
    )


def test_the_double_tree_takes_at_most_two_rounds_less_than_registered_and_tends_to_twice_the_vector() -> None:
    tree = algorithm_named("allreduce", "double_binary_tree")
    for nranks in [*range(1, 34), 63, 64, 65, 127, 128]:
        for chunks in (1, 2, 5):
            variant = tree.given(chunks=chunks)
            assert 0 <= variant.rounds(nranks) - cost(variant, nranks, 2 * chunks).rounds <= 2, (nranks, chunks)
    for nranks in (4, 16, 17, 64):
        worse = None
        for chunks in (1, 4, 16, 256):
            count = 4 * chunks
            counters = cost(tree.given(chunks=chunks), nranks, count)
            moved, reduced = counters.critical_sent / count, counters.critical_reduced / count
            assert worse is None or (moved, reduced) < worse
            worse = moved, reduced
            assert counters.sent_max == 2 * count
        assert moved < 2.05
        assert reduced < 1.03


@pytest.mark.parametrize(
    ("name", "nranks", "rounds", "most", "fewest", "total"),
    [
        ("ring", 5, 8, 1606, 1604, 8024),
        ("ring", 7, 12, 1720, 1718, 12036),
        ("recursive_doubling", 5, 4, 3009, 1003, 10030),
        ("rabenseifner", 5, 6, 2508, 1003, 8024),
        ("binomial_tree", 6, 6, 3009, 1003, 10030),
    ],
)
def test_exact_counters_for_1003_elements(
    name: str, nranks: int, rounds: int, most: int, fewest: int, total: int
) -> None:
    counters = cost(algorithm_named("allreduce", name), nranks, 1003)
    assert (counters.rounds, max(counters.sent), min(counters.sent)) == (rounds, most, fewest)
    assert sum(counters.sent) == total


def sizes(count: int, nblocks: int) -> list[int]:
    return [count // nblocks + (block < count % nblocks) for block in range(nblocks)]


def hops(count: int, nblocks: int) -> int:
    """Return what a binomial tree sends to bring every block to, or from, its place: one hop for each bit set."""
    return sum(size * block.bit_count() for block, size in enumerate(sizes(count, nblocks)))


def doubling_total(nranks: int, count: int) -> int:
    return (lg(nranks) * power(nranks) + 2 * (nranks - power(nranks))) * count


def halving_total(nranks: int, count: int) -> int:
    """Return what is sent where one of each folded pair gets only its own block back."""
    return (nranks - 1) * count + sum(sizes(count, nranks)[0 : 2 * (nranks - power(nranks)) : 2])


#: In elements, for any number of them: once for each rank but one in each half of an allreduce.
BYTES_SENT_BY_ALL: dict[tuple[str, str], Callable[[int, int], int]] = {
    **{
        ("allreduce", name): lambda nranks, count: 2 * (nranks - 1) * count
        for name in (
            "ring",
            "parameter_server",
            "binomial_tree",
            "rabenseifner",
            "swing",
            "double_binary_tree",
            "hierarchical",
            "hierarchical_leaders",
        )
    },
    **{
        case: lambda nranks, count: (nranks - 1) * count
        for case in (
            ("reduce_scatter", "ring"),
            ("reduce_scatter", "pairwise"),
            ("reduce_scatter", "pat"),
            ("allgather", "ring"),
            ("allgather", "bruck"),
            ("allgather", "pat"),
            ("allgather", "recursive_doubling"),
            ("bcast", "binomial"),
            ("bcast", "chain"),
            ("reduce", "binomial"),
            ("alltoall", "pairwise"),
        )
    },
    ("allreduce", "naive"): lambda nranks, count: nranks * (nranks - 1) * count,
    ("allreduce", "recursive_doubling"): doubling_total,
    ("allreduce", "swing_latency"): doubling_total,
    ("reduce_scatter", "recursive_halving"): halving_total,
    ("bcast", "scatter_allgather"): lambda nranks, count: (nranks - 1) * count + hops(count, nranks),
    ("reduce", "rabenseifner"): lambda nranks, count: (nranks - 1) * count + hops(count, power(nranks)),
    ("alltoall", "bruck"): lambda nranks, count: count * sum(distance.bit_count() for distance in range(nranks)),
}


@pytest.mark.parametrize(("collective", "name"), BYTES_SENT_BY_ALL)
def test_what_all_ranks_send_together_holds_for_every_size(collective: str, name: str) -> None:
    algorithm, total = algorithm_named(collective, name), BYTES_SENT_BY_ALL[collective, name]
    for nranks in range(1, 14):
        for count in [*range(0, 18, 1 + nranks % 3), 1003]:
            if algorithm.collective == "alltoall":
                count -= count % nranks
            counters = cost(algorithm, nranks, count)
            assert sum(counters.sent) == total(nranks, count), (nranks, count)


@pytest.mark.parametrize("name", ["hierarchical", "hierarchical_leaders"])
def test_no_layout_changes_what_all_ranks_send_together(name: str) -> None:
    for nranks in range(1, 14):
        for variant in algorithm_named("allreduce", name).variants(nranks):
            if dict(variant.arguments)["outer"] not in ("naive", "recursive_doubling"):
                for count in (0, 1, 10, 1003):
                    counters = cost(variant, nranks, count)
                    moved = sum(map(sum, (counters.sent, counters.read, counters.written)))
                    assert moved == 2 * (nranks - 1) * count, variant.title


def test_folded_ranks_for_1_to_70() -> None:
    folding = [a for a in algorithms() if "folded" in a.formulas[0]]
    assert {a.name for a in folding} >= {
        "recursive_doubling",
        "rabenseifner",
        "swing",
        "swing_latency",
        "recursive_halving",
    }
    for algorithm in folding:
        for nranks in [*range(34, 71, 4), 63, 65]:
            verify(algorithm, nranks)


@pytest.mark.parametrize("nranks", [3, 5, 6, 7])
@pytest.mark.parametrize("name", [a.name for a in algorithms("allreduce")])
def test_case_3_numbers_of_ranks_that_are_no_powers_of_two(name: str, nranks: int) -> None:
    found = sums(algorithm_named("allreduce", name), nranks, 3)
    assert found == [[2**nranks - 1] * 3] * nranks


def test_case_1_and_2_few_elements() -> None:
    for algorithm in algorithms("allreduce"):
        assert sums(algorithm, 4, 10) == [[15] * 10] * 4
        assert sums(algorithm, 4, 3) == [[15] * 3] * 4
        assert sums(algorithm, 8, 4) == [[255] * 4] * 8


def sums(algorithm: Algorithm, nranks: int, count: int) -> list[list[int]]:
    """Return what each rank ends with where rank r brings 2^r."""
    layout = Layout(algorithm, nranks, count)
    programs = [algorithm.operations(rank, nranks) for rank in range(nranks)]
    return [memory["work"] for memory in execute(layout, programs, lambda rank, i: 2**rank)]


# Hierarchies.

LAYOUTS: list[Groups] = [
    ((0, 1, 2), (3,)),
    ((0, 2), (1, 3)),
    ((0,), (1,), (2,)),
    ((0, 3, 5), (1, 4), (2,)),
    ((1, 0), (3, 2), (5, 4)),
]


@pytest.mark.parametrize("outer", OUTERS)
@pytest.mark.parametrize("name", ["hierarchical", "hierarchical_leaders"])
def test_case_4_layouts_and_whatever_runs_between_nodes(name: str, outer: str) -> None:
    for groups in LAYOUTS:
        nranks = sum(map(len, groups))
        for chunks in (1, 3):
            algorithm = algorithm_named("allreduce", name).given(groups=groups, outer=outer, chunks=chunks)
            verify(algorithm, nranks)
            for count in (1, 10):
                assert sums(algorithm, nranks, count) == [[2**nranks - 1] * count] * nranks
            assert fault(algorithm, nranks) is None


def test_what_may_run_between_nodes() -> None:
    assert set(OUTERS) >= {
        "binomial_tree",
        "double_binary_tree",
        "naive",
        "parameter_server",
        "rabenseifner",
        "recursive_doubling",
        "ring",
        "swing",
    }
    hierarchical = algorithm_named("allreduce", "hierarchical")
    flat = (
        "swing, bine, binomial_tree, ring, double_binary_tree, naive, parameter_server, recursive_doubling, "
        "rabenseifner"
    )
    for outer in ("hierarchical_leaders", "swing_latency", "rign", "mpi"):
        message = f"^outer '{outer}': must be a flat allreduce with identical bits: {flat}$"
        with pytest.raises(ValueError, match=message):
            hierarchical.given(outer=outer).operations(0, 4)
    for outer in flat.split(", "):
        assert hierarchical.given(outer=outer).operations(0, 4)


def crossing(algorithm: Algorithm, nranks: int, groups: Groups, count: int) -> int:
    """Return the elements sent from node to node."""
    node = {rank: number for number, group in enumerate(groups) for rank in group}
    layout = Layout(algorithm, nranks, count)
    return sum(
        len(layout.elements(step.send))
        for rank in range(nranks)
        for step in algorithm.operations(rank, nranks)
        if isinstance(step, Step) and step.dest is not None and node[step.dest] != node[rank]
    )


@pytest.mark.parametrize("groups", [((0, 2, 4), (1, 3, 5)), ((0, 1), (2, 3), (4, 5)), ((0, 3), (1, 2, 4), (5,))])
def test_as_little_as_possible_crosses_between_nodes(groups: Groups) -> None:
    for name in ("hierarchical", "hierarchical_leaders"):
        algorithm = algorithm_named("allreduce", name).given(groups=groups)
        assert crossing(algorithm, 6, groups, 60) == 2 * (len(groups) - 1) * 60
    assert crossing(algorithm_named("allreduce", "ring"), 6, ((0, 2, 4), (1, 3, 5)), 60) == 2 * 5 * 60  # all of it


def test_all_ranks_of_equal_nodes_use_the_network_and_only_leaders_otherwise() -> None:
    def talking(name: str, groups: Groups) -> set[int]:
        algorithm = algorithm_named("allreduce", name).given(groups=groups)
        node = {rank: number for number, group in enumerate(groups) for rank in group}
        return {
            rank
            for rank in range(6)
            for step in algorithm.operations(rank, 6)
            if isinstance(step, Step) and step.dest is not None and node[step.dest] != node[rank]
        }

    assert talking("hierarchical", ((0, 2, 4), (1, 3, 5))) == {0, 1, 2, 3, 4, 5}
    assert talking("hierarchical_leaders", ((0, 2, 4), (1, 3, 5))) == {0, 1}
    assert talking("hierarchical", ((0, 2, 4), (1, 3), (5,))) == {0, 1, 5}


@pytest.mark.parametrize(
    ("name", "groups", "remark"),
    [
        ("hierarchical", None, "1 node of 4, ring between"),
        ("hierarchical", ((0, 1), (2, 3)), "2 nodes of 2, ring between"),
        (
            "hierarchical",
            ((0, 1, 2), (3,)),
            "2 nodes of 1 and 3, ring between leaders: nodes of unlike size have no common shards",
        ),
        ("hierarchical_leaders", ((0, 1, 2), (3,)), "2 nodes of 1 and 3, ring between leaders"),
        ("hierarchical_leaders", ((0, 1), (2, 3)), "2 nodes of 2, ring between leaders"),
        ("ring", None, None),
    ],
)
def test_a_row_is_told_what_a_layout_led_to(name: str, groups: Groups | None, remark: str | None) -> None:
    assert algorithm_named("allreduce", name).given(groups=groups).remark(4) == remark


def test_a_hierarchy_of_unlike_nodes_is_the_one_with_leaders() -> None:
    groups = ((0, 1, 2), (3,))
    one, other = (
        algorithm_named("allreduce", n).given(groups=groups) for n in ("hierarchical", "hierarchical_leaders")
    )
    for rank in range(4):
        assert one.operations(rank, 4) == other.operations(rank, 4)
    assert (one.blocks(4), one.temp(4), one.rounds(4), one.sent(4)) == (
        other.blocks(4),
        other.temp(4),
        other.rounds(4),
        other.sent(4),
    )


# Trees.


def steps(collective: str, name: str, rank: int, nranks: int, **values: int) -> list[Step]:
    operations = algorithm_named(collective, name).given(**values).operations(rank, nranks)
    return [operation for operation in operations if isinstance(operation, Step)]


def test_the_second_tree_has_the_leaves_of_the_first_as_inner_ranks_and_two_colours_are_enough() -> None:
    for nranks in [*range(2, 201), 1023, 1024, 1025]:
        trees, colour = two_trees(nranks)
        for tree in trees:
            assert tree.parent.count(None) == 1
            assert max(map(len, tree.children)) <= 2
            assert max(tree.depth) == max(tree.height) <= lg(nranks)
            for rank, parent in enumerate(tree.parent):
                if parent is not None:
                    assert rank in tree.children[parent]
                    assert tree.depth[rank] == tree.depth[parent] + 1  # so that all are connected with the root
                    assert tree.height[rank] < tree.height[parent]
        for rank in range(nranks):
            assert not (trees[0].children[rank] and trees[1].children[rank]), (nranks, rank)
            up = [colour[number, rank] for number in (0, 1) if trees[number].parent[rank] is not None]
            down = [colour[number, child] for number in (0, 1) for child in trees[number].children[rank]]
            assert len(set(up)) == len(up) <= 2, (nranks, rank)
            assert len(set(down)) == len(down) <= 2, (nranks, rank)
        assert set(colour.values()) <= {0, 1}


def test_links_of_the_double_tree_are_busy_in_both_directions_once_the_pipeline_is_full() -> None:
    """Where a rank is a leaf of one tree and inner in the other, a step sends and receives at once."""
    for rank in range(16):
        peers = [(step.dest, step.source) for step in steps("allreduce", "double_binary_tree", rank, 16)]
        assert (None, None) not in peers
        if rank not in (0, 7, 8, 15):  # the roots have nothing above them, and those at the ends nothing below
            assert sum(None not in both for both in peers) >= 4, rank


def test_binomial_trees_are_rooted_where_asked_and_the_farthest_is_told_first() -> None:
    for root in range(8):
        told = [step.dest for step in steps("bcast", "binomial", root, 8, root=root)]
        assert told == [(root + distance) % 8 for distance in (4, 2, 1)]
        heard = [step.source for step in steps("reduce", "binomial", root, 8, root=root)]
        assert heard == [(root + distance) % 8 for distance in (1, 2, 4)]


def test_a_chain_passes_one_chunk_on_while_the_next_arrives() -> None:
    middle = steps("bcast", "chain", 2, 4, chunks=3, root=1)
    assert [(step.dest, step.source) for step in middle] == [(None, 1), (3, 1), (3, 1), (3, None)]
    assert [block_numbers(step.send, 3, 0) for step in middle[1:]] == [[("work", chunk)] for chunk in range(3)]
    assert [block_numbers(step.recv, 3, 0) for step in middle[:-1]] == [[("work", chunk)] for chunk in range(3)]


# Partners.


def test_swings_partners_lie_alternately_left_and_right() -> None:
    assert [reach(step) for step in range(6)] == [1, -1, 3, -5, 11, -21]
    assert [partner(0, step, 64) for step in range(6)] == [1, 63, 3, 59, 11, 43]
    assert [partner(1, step, 64) for step in range(6)] == [0, 2, 62, 6, 54, 22]
    for f in range(1, 9):
        for step in range(f):
            for index in range(2**f):
                assert partner(partner(index, step, 2**f), step, 2**f) == index
    for name, expected in (("swing", [1, 15, 3, 11, 11, 3, 15, 1]), ("swing_latency", [1, 15, 3, 11])):
        assert [step.dest for step in steps("allreduce", name, 0, 16)] == expected


@pytest.mark.parametrize("f", range(1, 13))
def test_swing_numbers_ranks_such_that_those_who_still_exchange_are_neighbours(f: int) -> None:
    p = 2**f
    place = [position(index, p) for index in range(p)]
    assert sorted(place) == list(range(p))
    # Join those who exchange from the last step back: before step s is joined, parts are what remains after it.
    parts = [[index] for index in range(p)]
    part_of = list(range(p))
    for step in reversed(range(f)):
        size = p >> (step + 1)
        for part in parts:
            start = min(place[index] for index in part)
            assert start % size == 0
            assert sorted(place[index] for index in part) == list(range(start, start + size))
        joined: list[list[int]] = []
        belongs = [0] * p
        for number, part in enumerate(parts):
            others = {part_of[partner(index, step, p)] for index in part}
            assert len(others) == 1  # all of a half deal with the same other half
            other = others.pop()
            if number < other:
                for index in (union := part + parts[other]):
                    belongs[index] = len(joined)
                joined.append(union)
        parts, part_of = joined, belongs
    assert len(parts) == 1


def test_recursive_halving_starts_far_away_and_recursive_doubling_close_by() -> None:
    assert [step.dest for step in steps("reduce_scatter", "recursive_halving", 0, 16)] == [8, 4, 2, 1]
    assert [step.dest for step in steps("allgather", "recursive_doubling", 0, 16)] == [1, 2, 4, 8]
    assert [step.dest for step in steps("allreduce", "recursive_doubling", 5, 16)] == [4, 7, 1, 13]
    assert [step.dest for step in steps("allreduce", "rabenseifner", 0, 8)] == [4, 2, 1, 1, 2, 4]
    folded_away = steps("allreduce", "rabenseifner", 0, 5)
    assert [(step.dest, step.source) for step in folded_away] == [(1, None), (None, 1)]


def lengths(program: Sequence[Step]) -> list[int]:
    return [sum(span.count for span in spans(step.send)) for step in program]


def test_pat_sends_its_longest_messages_to_neighbours_and_bruck_to_the_farthest() -> None:
    for nranks in (8, 11, 16):
        pat = steps("allgather", "pat", 3, nranks)
        distances = [1 << k for k in reversed(range(ceil(log2(nranks))))]
        assert [((step.dest or 0) - 3) % nranks for step in pat] == distances
        assert lengths(pat) == [len(range(0, nranks - d, 2 * d)) for d in distances]
        assert lengths(pat)[-1] == max(lengths(pat)) == nranks // 2
        back = steps("reduce_scatter", "pat", 3, nranks)
        assert [(3 - (step.dest or 0)) % nranks for step in back] == distances[::-1]
        assert lengths(back) == lengths(pat)[::-1]
        bruck = steps("allgather", "bruck", 3, nranks)
        assert [(3 - (step.dest or 0)) % nranks for step in bruck] == distances[::-1]
        assert lengths(bruck) == [min(d, nranks - d) for d in distances[::-1]]


def test_bruck_sends_along_what_others_need_and_pairwise_sends_only_to_whom_it_is_for() -> None:
    for rank in range(6):
        bruck = steps("alltoall", "bruck", rank, 6)
        assert [step.dest for step in bruck] == [(rank + distance) % 6 for distance in (1, 2, 4)]
        moved = [sorted(block for _, block in block_numbers(step.send, 6, 6)) for step in bruck]
        assert moved == [[1, 3, 5], [2, 3], [4, 5]]
        for step in steps("alltoall", "pairwise", rank, 6):
            assert block_numbers(step.send, 6, 0) == [("original", step.dest)]
            assert block_numbers(step.recv, 6, 0) == [("work", step.source)]


@pytest.mark.parametrize("name", ["rabenseifner", "swing"])
@pytest.mark.parametrize("nranks", [65_536, 100_003])
def test_schedules_of_the_largest_machines_stay_small(name: str, nranks: int) -> None:
    algorithm = algorithm_named("allreduce", name)
    for rank in (0, 1, 12_345, 40_001, nranks - 1):
        operations = algorithm.operations(rank, nranks)
        assert 2 <= len(operations) <= 40
        for operation in operations:
            assert not isinstance(operation, Meet)
            values = (operation.send, operation.recv) if isinstance(operation, Step) else (operation.dest,)
            assert all(isinstance(span, Span) for value in values for span in spans(value))
            assert max(len(spans(value)) for value in values) <= 2


# The ring, and what it is measured against.


@pytest.mark.parametrize("nranks", [2, 3, 4, 5, 8])
def test_the_ring_follows_the_index_rule_of_the_textbook(nranks: int) -> None:
    for i in range(nranks):
        ring = steps("allreduce", "ring", i, nranks)
        assert len(ring) == 2 * (nranks - 1)
        for k, step in enumerate(ring):
            first = k < nranks - 1
            shift = i - k if first else i + 1 - (k - (nranks - 1))
            assert (step.dest, step.source) == ((i + 1) % nranks, (i - 1) % nranks)
            assert block_numbers(step.send, nranks, 0) == [("work", shift % nranks)]
            assert block_numbers(step.recv, nranks, 0) == [("work", (shift - 1) % nranks)]
            assert step.combine is first


def test_the_first_half_of_the_ring_leaves_the_next_block_complete_and_reduce_scatter_the_own_one() -> None:
    for i in range(5):
        last = steps("allreduce", "ring", i, 5)[3]
        assert block_numbers(last.recv, 5, 0) == [("work", (i + 1) % 5)]
        last = steps("reduce_scatter", "ring", i, 5)[-1]
        assert block_numbers(last.recv, 5, 0) == [("work", i)]


def test_the_naive_exchange_sends_its_input_and_never_the_sum_so_far() -> None:
    for rank in range(5):
        naive = steps("allreduce", "naive", rank, 5)
        assert {span.place for step in naive for span in spans(step.send)} == {"original"}
        assert not any(step.combine for step in naive)
        assert sorted(step.dest for step in naive if step.dest is not None) == [r for r in range(5) if r != rank]


def test_the_workers_of_the_parameter_server_talk_to_rank_0_only() -> None:
    for rank in range(1, 5):
        assert {step.dest for step in steps("allreduce", "parameter_server", rank, 5)} == {0, None}
    assert algorithm_named("allreduce", "parameter_server").sent(5) == Fraction(4)
