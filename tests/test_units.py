from __future__ import annotations

import pytest

from ringbench.records.units import (
    format_seconds,
    format_size,
    parse_bandwidth,
    parse_latency,
    parse_ranks,
    parse_size,
    parse_sizes,
)


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("8", 8),
        ("0", 0),
        ("8B", 8),
        ("1K", 1024),
        ("1M", 2**20),
        ("1MB", 10**6),
        ("1MiB", 2**20),
        ("64KB", 64_000),
        ("64KiB", 65_536),
        ("3G", 3 * 2**30),
        ("1TiB", 2**40),
        ("1TB", 10**12),
        ("1mib", 2**20),
        ("1mb", 10**6),
        (" 16 MiB ", 2**24),
        ("1.5K", 1536),
        ("0.5KB", 500),
        ("9223372036854775807", 9223372036854775807),
    ],
)
def test_sizes(text: str, nbytes: int) -> None:
    assert parse_size(text) == nbytes


@pytest.mark.parametrize(
    "text", ["", "M", "-1", "+1", "1e6", "1PB", "1 M B", "0x10", "1,5K", "1.5", "0.3K", "1.K", "nan"]
)
def test_malformed_sizes_are_named(text: str) -> None:
    with pytest.raises(ValueError, match="malformed size") as caught:
        parse_size(text)
    assert repr(text) in str(caught.value)


def test_what_the_units_mean_is_said_where_one_is_not_understood() -> None:
    with pytest.raises(ValueError, match=r"K, M, G, T or KiB.*\(powers of 1024\) or KB.*\(powers of 1000\)"):
        parse_size("1X")


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("8:64:x2", [8, 16, 32, 64]),
        ("8:64", [8, 16, 32, 64]),
        ("8:63:x2", [8, 16, 32]),
        ("1:1000:x10", [1, 10, 100, 1000]),
        ("1K:4K:x4", [1024, 4096]),
        ("5:5", [5]),
        ("1MiB,8,1KiB", [8, 1024, 2**20]),
        ("8,8,8:16", [8, 16]),
        ("0", [0]),
    ],
)
def test_lists_and_ranges_ascend_and_name_each_size_once(text: str, sizes: list[int]) -> None:
    assert parse_sizes(text) == sizes


def test_the_range_of_the_documentation_has_24_sizes() -> None:
    sizes = parse_sizes("8:64MiB:x2")
    assert (sizes[0], sizes[-1], len(sizes)) == (8, 2**26, 24)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("8:64:2", "'8:64:2'"),
        ("8:64:x1", "'8:64:x1'"),
        ("8:64:x0", "'8:64:x0'"),
        ("8:64:x2:x2", "'8:64:x2:x2'"),
        ("64:8", "'64:8'"),
        ("0:8", "'0:8'"),
        ("8:many:x2", "'many'"),
        ("8,,16", "''"),
        ("8,16Q", "'16Q'"),
    ],
)
def test_malformed_lists_and_ranges_are_named(text: str, named: str) -> None:
    with pytest.raises(ValueError, match="malformed size") as caught:
        parse_sizes(text)
    assert named in str(caught.value)


def test_rank_counts() -> None:
    assert parse_ranks("4, 1,2,2") == [1, 2, 4]


@pytest.mark.parametrize(
    ("text", "named"), [("0", "'0'"), ("1,-2", "'-2'"), ("1,two", "'two'"), ("1,,2", "''"), ("2.0", "'2.0'")]
)
def test_malformed_rank_counts_are_named(text: str, named: str) -> None:
    with pytest.raises(ValueError, match="malformed rank count") as caught:
        parse_ranks(text)
    assert named in str(caught.value)


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0B"),
        (8, "8B"),
        (1000, "1000B"),
        (1024, "1KiB"),
        (1536, "1536B"),
        (65_536, "64KiB"),
        (2**20, "1MiB"),
        (3 * 2**30, "3GiB"),
        (2**41, "2TiB"),
        (10**6, "1000000B"),
    ],
)
def test_sizes_are_written_exactly(nbytes: int, text: str) -> None:
    assert format_size(nbytes) == text
    assert parse_size(text) == nbytes


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0us"), (1.23456e-5, "12.35us"), (9.99e-4, "999us"), (0.0123, "12.3ms"), (1.5, "1.5s"), (3e-8, "0.03us")],
)
def test_times_are_written_in_ascii_with_a_unit(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text
    assert text.isascii()


@pytest.mark.parametrize(
    ("text", "seconds"), [("2us", 2e-6), ("1.5 ms", 1.5e-3), ("3ns", 3e-9), ("4s", 4.0), ("1e3us", 1e-3)]
)
def test_latencies_are_read_with_their_unit(text: str, seconds: float) -> None:
    assert parse_latency(text) == pytest.approx(seconds, rel=1e-15)


@pytest.mark.parametrize(("text", "cost"), [("50GB/s", 2e-11), ("1GiB/s", 2.0**-30), ("400 MB/s", 2.5e-9)])
def test_bandwidth_is_read_as_the_time_of_a_byte(text: str, cost: float) -> None:
    assert parse_bandwidth(text) == pytest.approx(cost, rel=1e-15)


@pytest.mark.parametrize("text", ["", "2", "0", "us", "-2us", "0us", "2us/B", "2 min", "nan", "inf"])
def test_malformed_latencies_are_named(text: str) -> None:
    with pytest.raises(ValueError, match="malformed latency") as caught:
        parse_latency(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", ["", "50", "50GB", "0GB/s", "-1GB/s", "50Gb/s/s", "2ns", "50XB/s", "inf"])
def test_malformed_bandwidths_are_named(text: str) -> None:
    with pytest.raises(ValueError, match="malformed bandwidth") as caught:
        parse_bandwidth(text)
    assert repr(text) in str(caught.value)


def test_numbers_without_measure_are_refused() -> None:
    with pytest.raises(ValueError, match="2\\^63 bytes or more"):
        parse_size("1" + "0" * 400)
    with pytest.raises(ValueError, match="'10000000': 65536 at most"):
        parse_ranks("2,10000000")
