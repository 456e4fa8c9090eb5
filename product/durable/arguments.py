"""Command lines: argparse for people, and a short way for lines with nothing out of the ordinary. Pure, but for what
argparse prints.

A quarter of an idle recovery was argparse, which walks its groups and compiles patterns for every line that it reads. So
what it was told is looked up in a table made from it, once; any line that the table does not answer (help, a mistake, an
abbreviation, ``--option=value``) is argparse's to answer, as ever.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

EXIT_USAGE = 64


class Parser(argparse.ArgumentParser):
    """argparse with the exit status for usage that sysexits.h has."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(EXIT_USAGE, f"{self.prog}: {message}\n")
        raise AssertionError("exit() does not return")


@dataclass(frozen=True, slots=True)
class _Command:
    """``options``: a value each, ``flags``: a constant each, ``positionals``: in order; by their action's name."""

    options: Mapping[str, argparse.Action]
    flags: Mapping[str, argparse.Action]
    positionals: Sequence[argparse.Action]
    defaults: Mapping[str, Any]
    required: frozenset[str]


class CommandLine:
    """Reads what ``parser``, whose subparsers are the commands (``dest="command"``), reads, with the same result."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._parser = parser
        self._commands = {
            name: command
            for action in parser._actions
            if isinstance(action, argparse._SubParsersAction)
            for name, subparser in action.choices.items()
            if (command := _learn(subparser)) is not None
        }

    def read(self, argv: Sequence[str]) -> argparse.Namespace:
        """The arguments. Raises SystemExit: 0 after help, 64 after a mistake was explained."""
        return self.read_plainly(argv) or self._parser.parse_args(argv)

    def read_plainly(self, argv: Sequence[str]) -> argparse.Namespace | None:
        """The arguments, or None where argparse must be asked."""
        command = self._commands.get(argv[0]) if argv else None
        values = None if command is None else _read(command, iter(argv[1:]))
        return None if values is None else argparse.Namespace(command=argv[0], **values)


def _learn(parser: argparse.ArgumentParser) -> _Command | None:
    """What the parser of one command was told; None for what the short way does not know."""
    options, flags, positionals, defaults = {}, {}, [], dict(parser._defaults)
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction):
            continue
        if isinstance(action.default, str) and action.type is not None:
            return None  # argparse would convert it
        if isinstance(action, argparse._StoreTrueAction):
            flags.update(dict.fromkeys(action.option_strings, action))
        elif not isinstance(action, argparse._StoreAction) or action.nargs is not None:
            return None
        elif action.option_strings:
            options.update(dict.fromkeys(action.option_strings, action))
        else:
            positionals.append(action)
        defaults[action.dest] = action.default
    required = frozenset(action.dest for action in parser._actions if action.required)
    return _Command(options, flags, positionals, defaults, required)


def _read(command: _Command, words: Any) -> dict[str, Any] | None:
    given: dict[str, Any] = {}
    positionals = iter(command.positionals)
    for word in words:
        if word in command.flags:
            given[command.flags[word].dest] = True
            continue
        action = command.options.get(word) if word.startswith("-") else next(positionals, None)
        text = next(words, "-") if word.startswith("-") else word
        if action is None or text.startswith("-"):
            return None
        try:
            value = text if action.type is None else action.type(text)  # type: ignore[operator]
        except (argparse.ArgumentTypeError, TypeError, ValueError):
            return None
        if action.choices is not None and value not in action.choices:
            return None
        given[action.dest] = value
    return {**command.defaults, **given} if command.required <= given.keys() else None
