"""The commands about machines: doctor, slurm, lab."""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

from ringbench.arguments import UsageError
from ringbench.cli.devices import look_at_devices
from ringbench.cli.measuring import start_ranks
from ringbench.cli.talk import say, world
from ringbench.records.settings import read_plan
from ringbench.records.units import format_size

if TYPE_CHECKING:
    from ringbench.launch.lab import Lab
    from ringbench.launch.mpirun import Mpirun


def doctor_command(arguments: argparse.Namespace) -> int:
    """Say what on this machine will spoil the numbers; return 1 where something does."""
    from ringbench.launch.environment import inside_mpi_job, node_count
    from ringbench.launch.mpirun import ask_mpi_types, find_mpirun, usable_cpus
    from ringbench.launch.process import LaunchError
    from ringbench.launch.sweep import default_ranks
    from ringbench.report import doctor
    from ringbench.runtime.load import watch_others
    from ringbench.runtime.machine import WARN, judge, read_machine
    from ringbench.runtime.peek import try_by_child
    from ringbench.runtime.world import library_version

    inside = inside_mpi_job(os.environ)
    if inside is not None:
        raise UsageError(f"doctor looks at a machine before a job, but {inside}")
    nranks = arguments.ranks or default_ranks(os.environ)[-1]
    nnodes = node_count(os.environ)
    cores = os.sched_getaffinity(0)
    machine = read_machine(
        host=socket.gethostname(),
        cores=cores,
        others_cpus=watch_others("/", cores),
        cma=try_by_child(),
        environ=os.environ,
    )
    library: str | ValueError
    launcher: Mpirun | LaunchError
    try:
        library = library_version()
    except ValueError as error:
        library = error
    try:
        launcher = find_mpirun(os.environ)
    except LaunchError as error:
        launcher = error
    known = library if isinstance(library, str) else None
    checks = [doctor.library_check(library), doctor.launcher_check(launcher, known)]
    if "SLURM_JOB_ID" in os.environ:
        types: str | LaunchError
        try:
            types = ask_mpi_types(find_mpirun(os.environ, override="srun"), os.environ)
        except LaunchError as error:
            types = error
        checks.append(doctor.srun_check(types, known))
    checks += [
        doctor.placement_check(nranks, nnodes, *usable_cpus()),
        *doctor.machine_checks(judge(machine, nranks=-(-nranks // nnodes), nnodes=nnodes, library=known)),
    ]
    if arguments.device != "cpu":
        checks += look_at_devices(arguments.device, launcher, known)
    sys.stdout.write(doctor.render_checks(checks, arguments.format))
    return 1 if any(check.state == WARN for check in checks) else 0


def slurm_command(arguments: argparse.Namespace) -> int:
    """Print the job script of a plan, or submit it."""
    from ringbench.launch.slurm import JobScript, estimated_seconds, format_time, job_script

    try:
        plan = read_plan(arguments.plan)
        jobs = plan.launches if arguments.array else len(set(arguments.nodes)) * plan.launches
        needed = estimated_seconds(plan.settings.time_budget_s, jobs)
        names = ("plan", "nodes", "ntasks_per_node", "partition", "account", "gpus_per_node", "array", "launcher")
        given = {name: getattr(arguments, name) for name in (*names, "mpi_type")}
        text = job_script(JobScript(**given, time_s=arguments.time or needed, setup=tuple(arguments.setup or ())))
    except OSError as error:
        raise UsageError(f"{arguments.plan}: {error.strerror or error}") from None
    except ValueError as error:
        raise UsageError(str(error)) from None
    if arguments.time is not None and needed > arguments.time:
        limit = format_time(arguments.time)
        say(f"ringbench: the plan takes about {format_time(needed)}, more than the time limit of {limit}")
    if not arguments.submit:
        sys.stdout.write(text)
        return 0
    try:
        done = subprocess.run(
            ["sbatch", "--parsable"], input=text, capture_output=True, text=True, timeout=SBATCH_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"sbatch: {error}") from None
    sys.stdout.write(done.stdout)
    if done.returncode:
        say(f"ringbench: {done.stderr.strip()}")
    return 1 if done.returncode else 0


#: Client commands wait minutes for a controller that is not there.
SBATCH_LIMIT_S = 60.0


def lab_command(arguments: argparse.Namespace) -> int:
    """Run a command on an emulated cluster; return its exit status."""
    from ringbench.launch.lab import Lab, LabError, lab_around
    from ringbench.launch.lab_run import run_inside, run_lab
    from ringbench.launch.process import LaunchError
    from ringbench.launch.sweep import SAFE_PATH

    program = [sys.executable, *SAFE_PATH, "-m", "ringbench", "lab"]
    line = arguments.line[arguments.line[:1] == ["--"] :]
    if bool(line) == arguments.selftest:
        raise UsageError("lab runs a command, as in `ringbench lab -- ringbench sweep`, or its --selftest")
    names = ("nodes", "ranks_per_node", "rate", "delay", "slurm")
    try:
        lab, around = Lab(**{name: getattr(arguments, name) for name in names}), lab_around(os.environ)
        if arguments.inside is not None:
            return run_inside(lab, line, arguments.inside, os.environ)
        if around is not None and arguments.selftest:
            return _selftest(around)
        if around is not None:
            raise LabError("this is a lab already, and none fits into it")
        words = [*lab.arguments(), "--", *(line or [*program, "--selftest"])]
        # What is installed beside this Python comes first, as in a virtual environment that was activated.
        path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
        inner = {**os.environ, "PATH": path}
        return run_lab(lab, lambda control: [*program, f"--inside={control}", *words], inner)
    except (ValueError, LabError, LaunchError, OSError) as error:
        raise UsageError(str(error)) from None


def _selftest(lab: Lab) -> int:
    """Check the links of the lab around: start this on its ranks, and there send bare messages between the nodes."""
    from ringbench.launch.environment import declared_size
    from ringbench.launch.mpirun import find_mpirun
    from ringbench.launch.sweep import START_LIMIT_S
    from ringbench.report.link import render_link

    if declared_size(os.environ) is None:
        return start_ranks(["lab", "--selftest"], lab.ranks, find_mpirun(os.environ), (), START_LIMIT_S)
    comm = world()
    from ringbench.runtime.link import pass_messages

    nnodes, passed = pass_messages(comm, lab.bytes_per_s)
    fast = [size for size in passed if size.too_fast(lab.bytes_per_s, lab.burst)]
    if comm.Get_rank() == 0:
        if passed:
            sys.stdout.write(render_link([(size.nbytes, size.seconds) for size in passed], lab.bytes_per_s))
            sys.stdout.flush()
        if nnodes != lab.nodes:
            say(f"ringbench: MPI sees {nnodes} nodes, not {lab.nodes}")
        if fast:
            sizes = ", ".join(format_size(size.nbytes) for size in fast)
            say(f"ringbench: messages of {sizes} passed faster than {lab.rate}: they did not go over the link")
    comm.Barrier()  # or a launcher might end rank 0, at the first exit, before it has spoken
    return 1 if fast or nnodes != lab.nodes else 0
