"""Bring a lab up, run a command on its head, and see that all of it ends: the only module that runs what lab.py says.

Two processes do it. The outer one starts the inner one as process 1 of namespaces of its own, and hands signals on
through a pipe. The inner one sets the nodes up and runs the command; when it ends, for whatever reason, the kernel
ends every process in the lab and takes links and mounts down. It ends when the command does or the pipe is closed,
which it is as soon as the outer process is gone.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from ringbench.launch import lab as texts
from ringbench.launch import lab_needs as needs
from ringbench.launch.lab import Lab, LabError

#: What the command gets between the first SIGTERM or SIGHUP and the end of the lab.
GRACE_S = 10.0

_PROBE_LIMIT_S, _SLURM_LIMIT_S, _COMMAND_LIMIT_S = 10.0, 20.0, 5.0
_HANDED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
#: How sigwaitinfo(2) marks a signal of the kernel, such as a terminal's, which the whole process group has got.
_SI_KERNEL = 0x80


def search_path(environ: Mapping[str, str]) -> str:
    """Return the PATH with the folders of administration, which ordinary users often lack."""
    return os.pathsep.join([environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"])


def check_system(lab: Lab, environ: Mapping[str, str]) -> list[str]:
    """Return the command that makes the lab's namespaces; raise LabError saying what to install or to enable."""
    path = search_path(environ)
    needed = needs.PROGRAMS | (needs.SLURM_PROGRAMS if lab.slurm else {})
    missing = needs.missing_programs(needed, {name: shutil.which(name, path=path) for name in needed})
    if missing is not None:
        raise LabError(missing)
    uid = os.getuid()
    if uid == 0 and _probe(command := texts.unshare_command(user=False), path) is None:
        return command  # root in a container may lack what this takes, and still be allowed what any user is
    if lab.slurm and uid != 0:
        ids = {file: _text(Path(file)) for file in ("/etc/subuid", "/etc/subgid")}
        missing = needs.missing_ids(_user_name(uid), uid, ids, shutil.which("newuidmap", path=path))
        if missing is not None:
            raise LabError(missing)
    command = texts.unshare_command(user=True, ids=lab.slurm)
    said = _probe(command, path)
    if said is not None:
        kernel = {name: _text(Path("/proc/sys", *name.split("."))) for name in needs.SWITCHES}
        raise LabError(needs.refused_namespaces(said, kernel))
    return command


def _probe(command: Sequence[str], path: str) -> str | None:
    """Return what is said where a command cannot make its namespaces, None where it can."""
    try:
        done = subprocess.run(
            [*command, "true"], env={"PATH": path}, capture_output=True, text=True, timeout=_PROBE_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"{command[0]} does not end"
    return done.stderr if done.returncode else None


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def run_lab(lab: Lab, inner: Callable[[int], Sequence[str]], environ: Mapping[str, str]) -> int:
    """Run ``inner(descriptor)`` as process 1 of a lab and return its exit status, 128 + N for a signal N.

    It is to call ``run_inside`` with the descriptor.

    SIGINT, SIGTERM, SIGHUP and SIGQUIT go to the command, but not a second time where a terminal sent them to all.
    After a SIGTERM or SIGHUP it has ``GRACE_S``. Raises LabError where this system has no room for a lab.
    """
    unshare = check_system(lab, environ)
    reader, writer = os.pipe()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*_HANDED_ON, signal.SIGCHLD})
    try:
        process = subprocess.Popen(
            [*unshare, *inner(reader)],
            env={**environ, "PATH": search_path(environ)},
            pass_fds=[reader],
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before),
        )
    except BaseException:
        os.close(writer)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        raise
    finally:
        os.close(reader)
    try:
        end = None
        while process.poll() is None:
            # SIGCHLD may have come for a process of earlier: so never wait without a limit.
            left = 1.0 if end is None else min(1.0, end - time.monotonic())
            if left <= 0:
                break
            info = signal.sigtimedwait({*_HANDED_ON, signal.SIGCHLD}, left)
            if info is None or info.si_signo == signal.SIGCHLD:
                continue
            if info.si_signo in (signal.SIGTERM, signal.SIGHUP) and end is None:
                end = time.monotonic() + GRACE_S
            if info.si_code != _SI_KERNEL or info.si_signo == signal.SIGHUP:
                with contextlib.suppress(BrokenPipeError):
                    os.write(writer, bytes([info.si_signo]))
    finally:
        os.close(writer)
        status = process.wait()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return status if status >= 0 else 128 - status


def run_inside(lab: Lab, command: Sequence[str], control: int, environ: Mapping[str, str]) -> int:
    """Set the lab up as process 1 of its namespaces, run the command on its head, and return its exit status.

    ``control`` is the pipe of the outer process: each byte is a signal for the command, and its end is the end of
    everything. Raises LabError where the lab cannot be set up or the command cannot be started.
    """
    if os.getpid() != 1:  # its end is that of all processes around
        raise LabError("the inside of a lab starts as process 1 of namespaces of its own, by `ringbench lab`")
    for number in _HANDED_ON:  # which no handler would do for others, but process 1 and its children differ
        signal.signal(number, lambda number, frame: None)
    os.set_inheritable(control, False)
    started: list[int] = []
    ended: list[int] = []
    threading.Thread(target=_listen, args=(control, started, ended), daemon=True).start()
    kept = {name: value for name, value in environ.items() if not name.startswith("SLURM_")}
    inside = {**kept, **texts.environment(lab)}
    try:
        pids = _set_up(lab, inside)
        if lab.slurm:
            _start_slurm(lab, pids, inside)
        try:
            process = subprocess.Popen(command, env=inside)
        except OSError as error:
            raise LabError(f"cannot start {command[0]}: {error.strerror or error}") from None
    except (LabError, OSError, subprocess.TimeoutExpired) as error:
        if ended:
            return 128 + ended[0]
        if isinstance(error, LabError):
            raise
        raise LabError(f"the lab could not be set up: {error}") from None
    started.append(process.pid)
    while True:  # orphans of the whole lab fall to process 1
        pid, status = os.waitpid(-1, 0)
        if pid == process.pid:
            process.returncode = code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _listen(control: int, started: Sequence[int], ended: list[int]) -> None:
    """Hand signals on to the command once it runs; at the end of the pipe kill every process of the lab but this.

    A signal that comes before the command runs, when there is nothing to save, does the same; ``ended`` tells which.
    """
    while data := os.read(control, 1):
        if not started:
            ended.append(data[0])
            break
        with contextlib.suppress(ProcessLookupError):
            os.kill(started[0], data[0])
    ended.append(signal.SIGKILL)
    while True:  # what is being set up may start another one yet
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        time.sleep(0.02)


def _set_up(lab: Lab, environ: Mapping[str, str]) -> list[int]:
    """Make the head, the nodes and the links between them; return the process that holds each node."""
    _run(["sh", "-ec", texts.head_script(lab)], environ, "the head could not be set up")
    nodes = [
        subprocess.Popen(
            texts.hold_command(texts.node_script(lab, index)),
            env=dict(environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in range(lab.nodes)
    ]
    for name, node in zip(lab.names, nodes, strict=True):
        _expect(node, "here", name, lab)
    pids = [node.pid for node in nodes]
    _run(["ip", "-batch", "-"], environ, "the links could not be set up", texts.network_batch(pids))
    for node in nodes:
        with contextlib.suppress(BrokenPipeError):
            _pipe(node.stdin).write("\n")
            _pipe(node.stdin).close()
    for name, node in zip(lab.names, nodes, strict=True):
        _expect(node, "up", name, lab)
    Path(texts.OPENMPI_HOSTS).write_text(texts.openmpi_hosts(lab))
    Path(texts.HYDRA_HOSTS).write_text(texts.hydra_hosts(lab))
    agent = Path(texts.AGENT)
    agent.write_text(texts.agent_script(pids))
    agent.chmod(0o755)
    return pids


def _expect(node: subprocess.Popen[str], word: str, name: str, lab: Lab) -> None:
    """Wait for a word of a node; raise LabError with its last ones where it ends instead."""
    if _pipe(node.stdout).readline().strip() != word:
        raise LabError(needs.failed_node(name, _pipe(node.stderr).read(), lab))


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def _run(command: Sequence[str], environ: Mapping[str, str], what: str, given: str | None = None) -> str:
    """Run a command of the set-up and return what it says; raise LabError in one line where it fails."""
    done = subprocess.run(
        command, env=dict(environ), input=given, capture_output=True, text=True, timeout=_SLURM_LIMIT_S, check=False
    )
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise LabError(f"{what}: {lines[-1] if lines else f'status {done.returncode}'}")
    return done.stdout


def _start_slurm(lab: Lab, pids: Sequence[int], environ: Mapping[str, str]) -> None:
    """Start the controller and the daemons of the nodes, and wait until each node is idle."""
    folder = Path(texts.FOLDER, "slurm")
    for name in ("state", *lab.names):
        (folder / name).mkdir(parents=True)
    Path(texts.SLURM_CONF).write_text(texts.slurm_conf(lab))
    daemons = {"slurmctld": ["slurmctld", "-D"]}
    for name, pid in zip(lab.names, pids, strict=True):
        daemons[name] = [*texts.enter_command(pid), "slurmd", "-N", name, "-D"]
    processes = {}
    for name, command in daemons.items():
        with open(folder / f"{name}.out", "wb") as out:
            processes[name] = subprocess.Popen(
                command, env=dict(environ), stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )
    end = time.monotonic() + _SLURM_LIMIT_S
    idle = 0
    while idle < lab.nodes:
        for name, process in processes.items():
            if process.poll() is not None:
                raise LabError(f"Slurm did not start: {_last_line(folder, name)}")
        if time.monotonic() > end:
            slow = "slurmctld" if idle == 0 else "slurmd"
            raise LabError(
                f"Slurm did not start: {idle} of {lab.nodes} nodes are idle after {_SLURM_LIMIT_S:g} s "
                f"({slow}: {_last_line(folder, 'slurmctld' if idle == 0 else lab.names[-1])})"
            )
        time.sleep(0.05)
        with contextlib.suppress(subprocess.TimeoutExpired, ValueError):
            asked = ["sinfo", "--noheader", "--partition=lab", "--states=idle", "--format=%D"]
            done = subprocess.run(
                asked, env=dict(environ), capture_output=True, text=True, timeout=_COMMAND_LIMIT_S, check=False
            )
            idle = int(done.stdout.strip() or 0)


def _last_line(folder: Path, name: str) -> str:
    """Return the last line that a daemon wrote into its log or to its standard error."""
    for file in (folder / f"{name}.log", folder / f"{name}.out"):
        lines = _text(file).strip().splitlines()
        if lines:
            return lines[-1]
    return f"{name} wrote nothing"
