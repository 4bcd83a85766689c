"""The command about data-parallel training: ddp."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from ringbench.arguments import UsageError
from ringbench.cli.talk import words_of

if TYPE_CHECKING:
    from ringbench.ddp.costs import Costs
    from ringbench.ddp.workloads import Workload

#: What is planned where nothing else is asked for.
PLAN_RANKS = (8,)
SCALING = tuple(2**power for power in range(11))
PLAN_SIZES = tuple(2**power for power in range(18, 29))


def ddp_command(arguments: argparse.Namespace) -> int:
    """Predict steps of data-parallel training."""
    try:
        return _plan(arguments)
    except (ValueError, OSError) as error:
        raise UsageError(words_of(error)) from None


def _plan(arguments: argparse.Namespace) -> int:
    """Show what a network would give, without MPI."""
    from ringbench.ddp.buckets import BUCKET_BYTES, FIRST_BUCKET_BYTES
    from ringbench.ddp.plan import Case, Planner, words
    from ringbench.report.ddp import render_plan

    dtype = arguments.dtype or "float32"
    costs = _costs(arguments, dtype)
    planner = Planner(
        workload=_workload(arguments),
        costs=costs,
        dtype=dtype,
        ranks_per_node=arguments.ranks_per_node,
        critical_batch=arguments.critical_batch,
    )
    sizes, accumulate = arguments.bucket_sizes or PLAN_SIZES, arguments.accumulate or (1,)
    engines, algorithms = arguments.engines or ("thread",), arguments.algorithms or ("ring",)
    more = max(accumulate) if max(accumulate) > accumulate[0] else 2 * accumulate[0]
    ratio = 2.0 if arguments.ratio is None else arguments.ratio
    rows = []
    for nranks in arguments.ranks or PLAN_RANKS:
        for engine in engines:
            for algorithm in algorithms:
                case = Case(
                    nranks=nranks,
                    engine=engine,
                    algorithm=algorithm,
                    bucket_nbytes=sizes[0] if arguments.bucket_sizes else BUCKET_BYTES,
                    first_nbytes=arguments.first_bucket or FIRST_BUCKET_BYTES,
                    accumulate=accumulate[0],
                )
                rows += planner.bucket_rows(case, sizes)
                rows += planner.rank_rows(case, SCALING, sizes) if nranks == (arguments.ranks or PLAN_RANKS)[0] else []
                rows += planner.lever_rows(case, sizes, more, ratio, arguments.encode or 0.0)
    sys.stdout.write(render_plan([row.to_json() for row in rows], arguments.format, words(rows)))
    return 0


def _workload(arguments: argparse.Namespace) -> Workload:
    from ringbench.ddp.workloads import workload_named

    if arguments.workload is None:
        raise UsageError("ddp needs a --workload: resnet50, bert-large, gpt2, llama-7b, or a FILE.toml")
    return workload_named(arguments.workload, backward_s=arguments.backward_s, batch=arguments.batch)


def _costs(arguments: argparse.Namespace, dtype: str) -> Costs:
    """Return what links cost: as given, or as fitted to a run."""
    from ringbench.ddp.costs import FittedLinks, GivenLinks
    from ringbench.model.network import Link

    two = (arguments.inner, arguments.outer, arguments.ranks_per_node)
    if sum((arguments.fit is not None, arguments.beta is not None, arguments.inner is not None)) != 1:
        raise UsageError(
            "what links cost is not said: --beta (and --alpha), or --inner, --outer and --ranks-per-node, or --fit RUN"
        )
    if arguments.fit is not None:
        from ringbench.model.fit import fit_rows
        from ringbench.records.run import read_run

        return FittedLinks(result=fit_rows(read_run(arguments.fit).rows, resamples=0), dtype=dtype)
    gamma = arguments.gamma or 0.0
    if arguments.beta is not None:
        inner = Link(alpha_s=arguments.alpha or 0.0, beta_s_per_byte=arguments.beta)
        return GivenLinks(inner=inner, gamma_s_per_byte=gamma)
    if None in two:
        raise UsageError("--inner needs --outer and --ranks-per-node beside it")
    inner, outer = (Link(alpha_s=alpha, beta_s_per_byte=beta) for alpha, beta in (arguments.inner, arguments.outer))
    return GivenLinks(
        inner=inner,
        outer=outer,
        ranks_per_node=arguments.ranks_per_node,
        gamma_s_per_byte=gamma,
        shared=bool(arguments.shared_link),
    )
