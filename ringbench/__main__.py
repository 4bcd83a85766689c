"""Run the command line with ``python -m ringbench``."""

from ringbench.cli import console

console()
