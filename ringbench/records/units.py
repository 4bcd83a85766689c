"""Sizes and times: reading them, and writing them for people."""

from __future__ import annotations

import re

_UNITS: dict[str, int] = {"": 1, "B": 1}
for _power, _prefix in enumerate("KMGT", 1):
    _UNITS |= {_prefix: 1024**_power, f"{_prefix}IB": 1024**_power, f"{_prefix}B": 1000**_power}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")
_HOW = "a size is a number with B, K, M, G, T or KiB, MiB, GiB, TiB (powers of 1024) or KB, MB, GB, TB (powers of 1000)"


def parse_size(text: str) -> int:
    """Return the bytes in a size such as ``8``, ``64K`` = ``64KiB`` = 65536 or ``64KB`` = 64000.

    A bare letter means a power of 1024, as for OSU and nccl-tests. Case does not matter. Raises ValueError naming the
    text where it is no size or not a whole number of bytes.
    """
    match = _SIZE.fullmatch(text)
    factor = _UNITS.get(match[2].upper()) if match else None
    if match is None or factor is None:
        raise ValueError(f"malformed size {text!r}: {_HOW}")
    whole, _, part = match[1].partition(".")
    divisor: int = 10 ** len(part)
    nbytes, remainder = divmod(int(whole + part) * factor, divisor)
    if nbytes >= 2**63:
        raise ValueError(f"malformed size {text[:40]!r}: 2^63 bytes or more")
    if remainder:
        raise ValueError(f"malformed size {text!r}: not a whole number of bytes")
    return nbytes


def parse_sizes(text: str) -> list[int]:
    """Return the bytes of a list of sizes ``8,1KiB,1MiB`` or of a range ``8:64MiB:x2``, each once, ascending.

    A range multiplies by the factor behind ``x`` (2 unless given) up to and including its end. Raises ValueError
    naming the part that is malformed.
    """
    sizes: set[int] = set()
    for part in text.split(","):
        sizes.update(_range(part) if ":" in part else [parse_size(part)])
    return sorted(sizes)


def _range(text: str) -> list[int]:
    start_text, end_text, *rest = text.split(":")
    factor_text = rest[0].strip() if rest else "x2"
    if len(rest) > 1 or not re.fullmatch(r"x\d+", factor_text) or int(factor_text[1:]) < 2:
        raise ValueError(f"malformed size range {text!r}: write START:END:xFACTOR, as in 8:64MiB:x2")
    start, end, factor = parse_size(start_text), parse_size(end_text), int(factor_text[1:])
    if start < 1 or end < start:
        raise ValueError(f"malformed size range {text!r}: it must start at 1 byte or more and not end before")
    sizes = [start]
    while sizes[-1] * factor <= end:
        sizes.append(sizes[-1] * factor)
    return sizes


MAX_RANKS = 65536


def parse_ranks(text: str) -> list[int]:
    """Return rank counts from a list such as ``1,2,4``, each once, ascending; raise ValueError naming a bad one."""
    ranks = set()
    for part in text.split(","):
        if not re.fullmatch(r"\s*[1-9]\d*\s*", part):
            raise ValueError(f"malformed rank count {part.strip()!r}: a list of whole numbers from 1, as in 1,2,4")
        if int(part) > MAX_RANKS:
            raise ValueError(f"malformed rank count {part.strip()!r}: {MAX_RANKS} at most")
        ranks.add(int(part))
    return sorted(ranks)


def format_size(nbytes: int) -> str:
    """Write bytes in the largest binary unit that divides them: ``64KiB``, ``1000B``."""
    for power, prefix in reversed(list(enumerate("KMGT", 1))):
        if nbytes and nbytes % 2 ** (10 * power) == 0:
            return f"{nbytes >> (10 * power)}{prefix}iB"
    return f"{nbytes}B"


def rough_size(nbytes: int) -> str:
    """Write bytes with three digits in the largest binary unit: ``33.1KiB``."""
    for power, prefix in reversed(list(enumerate("KMGT", 1))):
        if nbytes >= 1024**power:
            value = nbytes / 1024**power
            return f"{value:.3g}{prefix}iB" if value < 999.5 else f"{value:.0f}{prefix}iB"
    return f"{nbytes}B"


def format_seconds(seconds: float) -> str:
    """Write a time with a unit and four digits, in ASCII: ``12.3us``."""
    for factor, unit in ((1e6, "us"), (1e3, "ms")):
        if seconds * factor < 1000:
            return f"{seconds * factor:.4g}{unit}"
    return f"{seconds:.4g}s"


def parse_latency(text: str) -> float:
    """Return the seconds in a latency such as ``2us``; raise ValueError naming what is malformed."""
    return _scaled(text, {"NS": 1e-9, "US": 1e-6, "MS": 1e-3, "S": 1.0}, "latency 2us")


def parse_bandwidth(text: str) -> float:
    """Return the seconds of a byte at a bandwidth such as ``50GB/s``; raise ValueError naming what is malformed."""
    per_second = {f"{unit}/S": float(factor) for unit, factor in _UNITS.items() if unit.endswith("B")}
    return 1 / _scaled(text, per_second, "bandwidth 50GB/s")


def _scaled(text: str, units: dict[str, float], what: str) -> float:
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?(?:E[-+]?\d+)?)\s*([A-Z/]+)\s*", text.upper())
    value = float(match[1]) * units.get(match[2], 0.0) if match else 0.0
    if not 1e-15 < value < 1e18:
        name, example = what.split()
        raise ValueError(f"malformed {name} {text!r}: a number above 0 with its unit, as in {example}")
    return value
