"""What an all-reduce takes on some ranks, by its bytes: from given links, or from those that were fitted to a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ringbench.ddp.timeline import Time
from ringbench.model.fit import FitResult, fit_rows
from ringbench.model.links import time_on
from ringbench.model.network import Link
from ringbench.model.points import CALL, LINK
from ringbench.model.predict import time_of
from ringbench.records.ddp_settings import DdpSettings, latency, link
from ringbench.records.run import read_run, run_file
from ringbench.records.units import parse_bandwidth


class Costs(Protocol):
    """Tell what an all-reduce takes."""

    @property
    def basis(self) -> str:
        """Return where that comes from: ``given`` or ``fit``."""

    @property
    def levels(self) -> int:
        """Return how many kinds of links there are."""

    def time(self, algorithm: str, nranks: int) -> Time:
        """Return the time by bytes; raise ValueError where it is not known."""


def _alone(nbytes: int) -> float:
    """Return what a single rank needs: nothing."""
    return 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenLinks:
    """Hold what links are said to cost: one kind, or ``outer`` between nodes of ``ranks_per_node`` ranks.

    With ``shared`` the ranks of a node share one link to the others. A node that is not full is taken for a full one.
    """

    inner: Link
    outer: Link | None = None
    ranks_per_node: int | None = None
    gamma_s_per_byte: float = 0.0
    shared: bool = False
    basis: str = "given"

    @property
    def levels(self) -> int:
        """Return 2 where nodes have a link of their own between them."""
        return 1 if self.outer is None else 2

    def time(self, algorithm: str, nranks: int) -> Time:
        """Return the time by bytes; raise ValueError for an algorithm whose messages are not known."""
        if nranks == 1:
            return _alone
        return time_on(
            "allreduce",
            algorithm,
            nranks,
            self.inner,
            self.outer,
            self.ranks_per_node,
            gamma_s_per_byte=self.gamma_s_per_byte,
            shared=self.shared,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedLinks:
    """Hold the curves fitted to a run, and the type whose additions count, if it was measured."""

    result: FitResult
    dtype: str
    basis: str = "fit"

    @property
    def levels(self) -> int:
        """Return 1: a fit has one curve for all of its links."""
        return 1

    def time(self, algorithm: str, nranks: int) -> Time:
        """Return the time by bytes: of the schedule on the fitted curve, or of whole calls at their own rank count."""
        if nranks == 1:
            return _alone
        problem = f"{algorithm} on {nranks} ranks"
        for model in sorted(self.result.models, key=lambda model: not model.points[0].row.in_place):
            names = {(point.row.collective, point.row.algorithm) for point in model.points}
            if model.basis == LINK:
                try:
                    return time_of(model, "allreduce", algorithm, nranks, ("sum", self.dtype))
                except ValueError as error:
                    problem = str(error)
            elif model.basis == CALL and ("allreduce", algorithm) in names and nranks in model.nranks:
                curve = model.curve
                return lambda nbytes: curve.time(((float(nbytes), 1.0),))
        raise ValueError(f"nothing in the run tells what {problem} takes")


def hierarchy(costs: Costs, nranks: int, ranks_per_node: int | None) -> bool:
    """Say whether a hierarchical algorithm can be told apart from a flat one."""
    return costs.levels > 1 and ranks_per_node is not None and 1 < ranks_per_node < nranks


def costs_of(settings: DdpSettings) -> Costs | None:
    """Return what links cost by the settings, None where they do not say.

    Raises ValueError where they say too much or too little, and where a run cannot be fitted, OSError where there is
    none.
    """
    given = [name for name in ("fit", "beta", "inner") if getattr(settings, name) is not None]
    if len(given) > 1:
        raise ValueError(f"what links cost is said twice: by {' and by '.join(given)}")
    for name, needs in (("alpha", "beta"), ("outer", "inner"), ("shared_link", "outer")):
        if getattr(settings, name) and getattr(settings, needs) is None:
            raise ValueError(f"{name} goes with {needs}, which is not given")
    if settings.fit is not None:
        file = run_file(settings.fit)
        if file.exists() and not file.is_file():  # a pipe, say, that a run names which somebody else has made
            raise ValueError(f"{settings.fit}: no file of a run")
        return FittedLinks(result=fit_rows(read_run(settings.fit).rows, resamples=0), dtype=settings.dtype)
    gamma = parse_bandwidth(settings.gamma) if settings.gamma is not None else 0.0
    if settings.beta is not None:
        alpha = latency(settings.alpha) if settings.alpha is not None else 0.0
        inner = Link(alpha_s=alpha, beta_s_per_byte=parse_bandwidth(settings.beta))
        return GivenLinks(inner=inner, gamma_s_per_byte=gamma)
    if settings.inner is None:
        return None
    if settings.outer is None or settings.ranks_per_node is None:
        raise ValueError("inner needs outer and ranks_per_node beside it")
    near, far = (Link(alpha_s=a, beta_s_per_byte=b) for a, b in map(link, (settings.inner, settings.outer)))
    return GivenLinks(
        inner=near,
        outer=far,
        ranks_per_node=settings.ranks_per_node,
        gamma_s_per_byte=gamma,
        shared=settings.shared_link,
    )
