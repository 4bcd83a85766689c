"""The commands about schedules: verify, list, draw, simulate."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ringbench.arguments import UsageError
from ringbench.cli.measuring import abort_job, write_record
from ringbench.cli.talk import Terminated, heed_signals, say, words_of, world

if TYPE_CHECKING:
    from ringbench.model.network import Network


#: Rank counts up to which `verify` also counts rounds and bytes.
FORMULA_LIMIT = 16


def verify_command(arguments: argparse.Namespace) -> int:
    """Prove schedules, or try the check on broken collectives."""
    if arguments.mutants:
        return _mutants(arguments)
    for name in ("ranks", "mpirun", "mpirun_args", "format"):
        if getattr(arguments, name):
            raise UsageError(f"--{name.replace('_', '-')} goes with --mutants: a proof starts no job")
    return _prove(arguments)


def _mutants(arguments: argparse.Namespace) -> int:
    """Run broken collectives in MPI jobs, or as one of those jobs."""
    from ringbench.launch.environment import inside_mpi_job
    from ringbench.launch.mpirun import find_mpirun
    from ringbench.launch.process import LaunchError
    from ringbench.launch.selftest import run_mutants
    from ringbench.report.mutants import all_caught, render_mutants
    from ringbench.schedule.semantics import collective_named

    if arguments.append is not None:
        return _try_mutants(arguments)
    try:
        if arguments.max_ranks is not None or arguments.algorithms is not None:
            raise ValueError("--mutants breaks algorithms of its own choice: neither --max-ranks nor --algorithms")
        if arguments.collective is not None:
            collective_named(arguments.collective)
        ranks = arguments.ranks or (2, 3, 4)
        if 1 in ranks:
            raise ValueError("--ranks 1: a rank alone does nothing that could be broken")
        inside = inside_mpi_job(os.environ)
        if inside is not None:
            raise ValueError(f"verify --mutants starts MPI jobs itself, but {inside}; start it outside")
        mpirun = find_mpirun(os.environ, override=arguments.mpirun)
    except (ValueError, LaunchError) as error:
        raise UsageError(str(error)) from None
    heed_signals()
    try:
        cells, failures = run_mutants(
            ranks,
            collective=arguments.collective,
            mpirun=mpirun,
            python=sys.executable,
            environ=os.environ,
            extra=arguments.mpirun_args,
            stderr=sys.stderr.fileno(),
            report=lambda text: say(f"ringbench: {text}"),
        )
    except Terminated:
        say("ringbench: terminated")
        return 1
    sys.stdout.write(render_mutants(cells, arguments.format or "text"))
    return 0 if all_caught(cells) and not failures else 1


def _try_mutants(arguments: argparse.Namespace) -> int:
    from ringbench.launch.process import end_with_parent

    end_with_parent()  # as in ``run``
    comm = world()
    from ringbench.runtime.mutants import try_mutants  # which would start MPI as it likes

    try:
        cells = list(try_mutants(comm, arguments.collective))
        if comm.Get_rank() == 0:
            write_record(arguments.append, {"cells": cells})
    except BaseException:
        abort_job(comm, f"ringbench: rank {comm.Get_rank()} of {comm.Get_size()} failed\n{traceback.format_exc()}")
    return 0


def _prove(arguments: argparse.Namespace) -> int:
    from ringbench.schedule.cost import check_formulas
    from ringbench.schedule.registry import algorithm_named, algorithms
    from ringbench.schedule.semantics import collective_named
    from ringbench.schedule.verify import verify

    __import__("ringbench.collectives")
    try:
        if arguments.collective is not None:
            collective_named(arguments.collective)
        chosen = algorithms(arguments.collective)
        if arguments.algorithms:
            for name in arguments.algorithms:
                if name == "mpi":
                    raise ValueError("algorithm 'mpi' is the library's own: it has no schedule here to prove")
                if name not in [algorithm.name for algorithm in chosen]:
                    algorithm_named(arguments.collective or "allreduce", name)
            chosen = [algorithm for algorithm in chosen if algorithm.name in arguments.algorithms]
    except ValueError as error:
        raise UsageError(str(error)) from None
    most = 64 if arguments.max_ranks is None else arguments.max_ranks
    if most < 1:
        raise UsageError(f"--max-ranks {most}: must be at least 1")
    status = 0
    for algorithm in chosen:
        try:
            proofs = 0
            for nranks in range(1, most + 1):
                for variant in algorithm.variants(nranks):
                    verify(variant, nranks)
                    if nranks <= FORMULA_LIMIT:
                        check_formulas(variant, nranks)
                    proofs += 1
            cases = "" if proofs == most else f", {proofs} cases of {_words(algorithm.arguments)}"
            print(f"proved  {algorithm.collective} {algorithm.name}: 1 to {most} ranks{cases}", flush=True)
        except ValueError as error:
            print(f"WRONG   {error}", flush=True)
            status = 1
    return status


def _words(arguments: Sequence[tuple[str, Any]]) -> str:
    return ", ".join(name for name, _ in arguments)


def list_command(arguments: argparse.Namespace) -> int:
    """Show algorithms, or warnings."""
    from ringbench.report.algorithms import render_algorithms
    from ringbench.report.doctor import render_warnings
    from ringbench.schedule.registry import algorithms

    if arguments.warnings:
        sys.stdout.write(render_warnings(arguments.format))
        return 0
    __import__("ringbench.collectives")
    sys.stdout.write(render_algorithms(algorithms(), arguments.format))
    return 0


def draw_command(arguments: argparse.Namespace) -> int:
    """Show a schedule."""
    from ringbench.schedule.draw import draw_svg, draw_text
    from ringbench.schedule.parameters import parse_groups
    from ringbench.schedule.registry import algorithm_named

    __import__("ringbench.collectives")
    try:
        if arguments.algorithm == "mpi":
            raise ValueError("algorithm 'mpi' is the library's own: it has no schedule here to draw")
        groups = None if arguments.groups is None else parse_groups(arguments.groups)
        given = {"root": arguments.root, "chunks": arguments.chunks, "groups": groups, "outer": arguments.outer}
        given["inner"] = arguments.inner
        known = {name: value for name, value in given.items() if value is not None}
        algorithm = algorithm_named(arguments.collective, arguments.algorithm).given(**known)
        text = draw_text(algorithm, arguments.ranks)
        remark = algorithm.remark(arguments.ranks)
        picture = draw_svg(algorithm, arguments.ranks) if arguments.svg else ""
    except ValueError as error:
        raise UsageError(str(error)) from None
    if arguments.svg:
        try:
            arguments.svg.write_text(picture, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{arguments.svg}: {error.strerror or error}") from None
        say(f"ringbench: the picture is in {arguments.svg}")
    if remark:
        say(f"ringbench: {remark}")
    sys.stdout.write(text)
    return 0


def simulate_command(arguments: argparse.Namespace) -> int:
    """Play schedules on a network, and show what they took."""
    from ringbench.model.simulate import simulate
    from ringbench.report.tables import render
    from ringbench.report.timeline import Timeline
    from ringbench.schedule.registry import algorithm_named

    __import__("ringbench.collectives")
    rows, timeline = [], None
    cases = [
        (name, nranks, size) for name in arguments.algorithm for nranks in arguments.ranks for size in arguments.size
    ]
    try:
        if arguments.trace and len(cases) > 1:
            raise ValueError(f"--trace: shows one simulation, not {len(cases)}")
        for name, nranks, nbytes in cases:
            if name == "mpi":
                raise ValueError("algorithm 'mpi' is the library's own: it has no schedule here to simulate")
            network = _network(arguments, nranks)
            given = {"root": arguments.root, "chunks": arguments.chunks, "outer": arguments.between}
            given["inner"] = arguments.inside
            known = {key: value for key, value in given.items() if value is not None}
            algorithm = algorithm_named(arguments.collective, name).given(groups=network.groups, **known)
            timeline = Timeline(f"{algorithm.title}, {nranks} ranks") if arguments.trace else None
            found = simulate(algorithm, nranks, nbytes, network, timeline.add if timeline else None)
            rows.append(found.to_json())
    except ValueError as error:
        raise UsageError(str(error)) from None
    if timeline is not None:
        try:
            arguments.trace.write_text(timeline.render(), encoding="ascii")
        except OSError as error:
            raise UsageError(words_of(error)) from None
        say(f"ringbench: the trace is in {arguments.trace}, for chrome://tracing or ui.perfetto.dev")
    sys.stdout.write(render(rows, "simulate", arguments.format))
    return 0


def _network(arguments: argparse.Namespace, nranks: int) -> Network:
    """Return the network that the options describe; raise ValueError for options that do not go together."""
    from ringbench.model.network import Link, Network
    from ringbench.schedule.parameters import nodes_of

    plain = (arguments.alpha, arguments.beta)
    if (None in plain) == (arguments.inner is None) or (arguments.inner and plain != (None, None)):
        raise ValueError("a link needs --alpha and --beta, or --inner alpha,beta in their place")
    if arguments.groups and arguments.ranks_per_node:
        raise ValueError("--groups and --ranks-per-node both say which ranks share a node")
    groups = nodes_of(nranks, arguments.ranks_per_node) if arguments.ranks_per_node else arguments.groups
    if arguments.outer and groups is None:
        raise ValueError("--outer needs --ranks-per-node or --groups to know which ranks share a node")
    inner, outer = (
        link and Link(alpha_s=link[0], beta_s_per_byte=link[1]) for link in (arguments.inner or plain, arguments.outer)
    )
    return Network(
        inner=inner,
        outer=outer,
        gamma_s_per_byte=arguments.gamma,
        groups=groups,
        slow_ranks=arguments.slow_rank,
        slow_links=arguments.slow_link,
        skew_s=arguments.skew,
        late=arguments.late,
    )
