"""The command about data-parallel training: ddp."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from ringbench.arguments import UsageError
from ringbench.cli.ddp_measuring import ddp_job, ddp_jobs
from ringbench.cli.talk import words_of
from ringbench.records.ddp_settings import DdpPlan, DdpSettings, override_ddp, read_ddp_plan, settings_from_json
from ringbench.records.run import read_run, run_file

if TYPE_CHECKING:
    from ringbench.ddp.costs import Costs
    from ringbench.ddp.workloads import Workload

#: What is planned where nothing else is asked for.
PLAN_RANKS = (8,)
SCALING = tuple(2**power for power in range(11))
PLAN_SIZES = tuple(2**power for power in range(18, 29))


def ddp_command(arguments: argparse.Namespace) -> int:
    """Measure or predict steps of data-parallel training; return the exit status."""
    from ringbench.launch.environment import inside_mpi_job, launched

    if arguments.plan:
        try:
            return _plan(arguments, ddp_settings(arguments))
        except (ValueError, OSError) as error:
            raise UsageError(words_of(error)) from None
    if launched(os.environ) is not None or inside_mpi_job(os.environ) is not None or arguments.append is not None:
        return ddp_job(arguments, ddp_settings)
    try:
        plan = ddp_settings(arguments)
        _workload(plan.settings)
    except (ValueError, OSError) as error:
        raise UsageError(words_of(error)) from None
    return ddp_jobs(arguments, plan)


def ddp_settings(arguments: argparse.Namespace) -> DdpPlan:
    """Return what the plan's file (else the run that is gone on with, else the defaults) and the options say."""
    if arguments.file:
        plan = read_ddp_plan(arguments.file)
    elif arguments.resume and arguments.out is not None and run_file(arguments.out).exists():
        said = read_run(arguments.out).plan
        plan = DdpPlan(settings=settings_from_json(said.get("settings") or {}), ranks=tuple(said.get("ranks") or ()))
    else:
        plan = DdpPlan(settings=DdpSettings())
    plan = override_ddp(plan, **vars(arguments))
    if not plan.settings.workload:
        raise ValueError("ddp needs a --workload: resnet50, bert-large, gpt2, llama-7b, or a FILE.toml")
    return plan


def _workload(settings: DdpSettings) -> Workload:
    from ringbench.ddp.workloads import workload_named

    return workload_named(settings.workload, backward_s=settings.backward_s, batch=settings.batch)


def _plan(arguments: argparse.Namespace, plan: DdpPlan) -> int:
    """Show what a network would give, without MPI."""
    from ringbench.ddp.costs import costs_of
    from ringbench.ddp.plan import Case, Planner, words
    from ringbench.report.ddp import render_plan

    settings = plan.settings
    costs: Costs | None = costs_of(settings)
    if costs is None:
        raise ValueError("a plan needs what links cost: --beta (and --alpha), --inner and --outer, or --fit RUN")
    planner = Planner(
        workload=_workload(settings),
        costs=costs,
        dtype=settings.dtype,
        ranks_per_node=settings.ranks_per_node,
        critical_batch=arguments.critical_batch,
    )
    named = "bucket_sizes" in plan.named
    sizes = settings.bucket_sizes if named else PLAN_SIZES
    first = settings.accumulate[0]
    more = max(settings.accumulate) if max(settings.accumulate) > first else 2 * first
    engines = settings.engines if "engines" in plan.named else ("thread",)
    ranks = plan.ranks or PLAN_RANKS
    rows = []
    for nranks in ranks:
        for engine in engines:
            for algorithm in settings.algorithms:
                case = Case(
                    nranks=nranks,
                    engine=engine,
                    algorithm=algorithm,
                    bucket_nbytes=settings.bucket_sizes[0],
                    first_nbytes=settings.first_bucket,
                    accumulate=first,
                )
                rows += planner.bucket_rows(case, sizes)
                rows += planner.rank_rows(case, SCALING, sizes) if nranks == ranks[0] else []
                ratio = 2.0 if arguments.ratio is None else arguments.ratio
                rows += planner.lever_rows(case, sizes, more, ratio, arguments.encode or 0.0)
    sys.stdout.write(render_plan([row.to_json() for row in rows], arguments.format, words(rows)))
    return 0
