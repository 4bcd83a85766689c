"""The command that prints what a shell needs to complete ringbench's words, made from the parsers."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterator

from ringbench.arguments import make_parser

_SCRIPT = """\
# Completion of ringbench; to be read by {shell}: eval "$(ringbench completion {shell})"
{before}_ringbench() {{
    local word command="" current="${{COMP_WORDS[COMP_CWORD]}}" last="${{COMP_WORDS[COMP_CWORD-1]}}" words=""
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case $word in {commands}) command=$word; break ;; esac
    done
    COMPREPLY=()
    case $command:$last in
{values}
        *)
            case $command in
                "") words={first} ;;
{options}
            esac ;;
    esac
    if [[ $current == -* || -z $command || $words != -* ]]; then
        COMPREPLY=($(compgen -W "$words" -- "$current"))
    fi
}}
complete -o default -F _ringbench ringbench
"""

_ZSH = "autoload -U +X compinit && compinit -u\nautoload -U +X bashcompinit && bashcompinit\n"


def completion_command(arguments: argparse.Namespace) -> int:
    """Print the script of a shell."""
    sys.stdout.write(script(arguments.shell))
    return 0


def script(shell: str) -> str:
    """Return the script for ``bash``, or for ``zsh``, which reads the same behind two lines.

    It completes commands, options, and the values of those options that have a fixed list; all else are files.
    """
    commands = {name: list(_options(parser)) for name, parser in _commands().items()}
    choices = [
        f"        {name}:{option}) words={shlex.quote(' '.join(map(str, action.choices)))} ;;"
        for name, actions in commands.items()
        for action in actions
        if action.choices and action.nargs is None
        for option in action.option_strings
    ]
    words = {
        name: " ".join(word for one in actions for word in one.option_strings) for name, actions in commands.items()
    }
    options = [f"                {name}) words={shlex.quote(line)} ;;" for name, line in words.items()]
    return _SCRIPT.format(
        shell=shell,
        before=_ZSH if shell == "zsh" else "",
        commands="|".join(commands),
        values="\n".join(choices),
        options="\n".join(options),
        first=shlex.quote(" ".join([*commands, "--help", "--version"])),
    )


def _commands() -> dict[str, argparse.ArgumentParser]:
    (found,) = [one for one in make_parser()._actions if isinstance(one, argparse._SubParsersAction)]
    return dict(found.choices)


def _options(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the actions of options that are shown."""
    for action in parser._actions:
        if action.option_strings and action.help != argparse.SUPPRESS:
            yield action
