"""The command line: the only room that prints or exits."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from ringbench.arguments import UsageError, make_parser
from ringbench.cli.cluster import doctor_command, lab_command, slurm_command
from ringbench.cli.completion import completion_command
from ringbench.cli.ddp import ddp_command
from ringbench.cli.drawing import plot_command
from ringbench.cli.measuring import run_command, sweep_command
from ringbench.cli.reporting import report_command
from ringbench.cli.schedules import draw_command, list_command, simulate_command, verify_command
from ringbench.cli.showing import compare_command, fit_command, import_command, predict_command, table_command
from ringbench.cli.talk import Terminated, ending, say, say_once
from ringbench.cli.versions import versions

COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "sweep": sweep_command,
    "run": run_command,
    "table": table_command,
    "plot": plot_command,
    "report": report_command,
    "compare": compare_command,
    "fit": fit_command,
    "predict": predict_command,
    "ddp": ddp_command,
    "verify": verify_command,
    "import": import_command,
    "list": list_command,
    "draw": draw_command,
    "simulate": simulate_command,
    "doctor": doctor_command,
    "slurm": slurm_command,
    "lab": lab_command,
    "completion": completion_command,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Carry out one command; return the exit status."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  (closed by the caller, as with >&-)
    try:
        arguments = make_parser(versions).parse_args(argv)
        status = COMMANDS[arguments.command](arguments)
        sys.stdout.flush()
    except UsageError as error:
        say_once(f"ringbench: {error}")
        return 2
    except ModuleNotFoundError as error:
        if (error.name or "ringbench").partition(".")[0] == "ringbench":
            raise  # ours to answer for
        say_once(f"ringbench: {error} in {sys.executable}")
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        with contextlib.suppress(OSError):
            say(f"ringbench: {error}")
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what could not be written must not fail once more at exit
        return 1
    except (KeyboardInterrupt, Terminated) as reason:
        say(f"ringbench: {ending(reason)}")
        return 130 if isinstance(reason, KeyboardInterrupt) else 1
    return status


def console() -> NoReturn:
    """Run the command line and exit."""
    sys.exit(main())
