"""Who comes late to a collective, and by how much: what ``--straggler`` says."""

from __future__ import annotations

from dataclasses import dataclass

from ringbench.records.units import format_seconds, parse_latency

#: What stands in a row that nobody disturbed.
NOBODY = "none"

MAX_DELAY_S = 60.0
_HOW = "as in rank=1,delay=5ms or rank=rotate,delay=10%,jitter=1ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """Hold a time: ``seconds`` as they are, or a ``share`` of what is disturbed, where that is not None."""

    seconds: float = 0.0
    share: float | None = None

    def of(self, base_s: float) -> float:
        """Return the seconds, where what is disturbed takes ``base_s``."""
        return self.seconds if self.share is None else self.share * base_s

    def __str__(self) -> str:
        """Write it as it is read."""
        return format_seconds(self.seconds) if self.share is None else f"{self.share * 100:g}%"


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggler:
    """Say which rank is late each time (None: each in its turn) and by how much; every rank is late within ``jitter``.

    ``delay`` None means that only the jitter disturbs.
    """

    rank: int | None = None
    delay: Delay | None = None
    jitter: Delay | None = None

    def __str__(self) -> str:
        """Write it as it is read, always in the same way."""
        parts = [f"rank={'rotate' if self.rank is None else self.rank}", f"delay={self.delay}"] if self.delay else []
        return ",".join([*parts, f"jitter={self.jitter}"] if self.jitter else parts)

    def check_ranks(self, nranks: int) -> None:
        """Raise ValueError where the late rank is none of so many."""
        if self.delay is not None and self.rank is not None and self.rank >= nranks:
            raise ValueError(f"straggler rank {self.rank}: there are {nranks} ranks, from 0")


def parse_straggler(text: str) -> Straggler:
    """Read a straggler; raise ValueError quoting what is malformed."""
    found: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = (word.strip() for word in part.partition("="))
        if not equals or name not in ("rank", "delay", "jitter") or name in found:
            raise ValueError(f"malformed straggler {text!r}: {_HOW}")
        found[name] = value
    if ("rank" in found) != ("delay" in found):
        lacks = "delay" if "rank" in found else "rank"
        raise ValueError(f"malformed straggler {text!r}: it lacks {lacks}, {_HOW}")
    rank = found.get("rank", "rotate")
    if rank != "rotate" and not (rank.isascii() and rank.isdecimal() and len(rank) < 10):
        raise ValueError(f"malformed straggler rank {rank!r}: a number, or rotate")
    delays = {name: _delay(name, found[name]) for name in ("delay", "jitter") if name in found}
    return Straggler(rank=None if rank == "rotate" else int(rank), **delays)


def _delay(name: str, text: str) -> Delay:
    if text.endswith("%"):
        try:
            share = float(text[:-1]) / 100
        except ValueError:
            share = -1.0
        if not 0 < share <= 100:
            raise ValueError(f"malformed straggler {name} {text!r}: a time as in 5ms, or a share as in 10%")
        return Delay(share=share)
    seconds = parse_latency(text)
    if seconds > MAX_DELAY_S:
        raise ValueError(f"straggler {name} {text}: {MAX_DELAY_S:g} s at most")
    return Delay(seconds=seconds)
