"""The whole command line as values: what `--help` says, for whoever writes pages about it.

    for command in commands():
        command.name, command.usage, command.groups, command.exit_codes

Everything is taken from the tables and parsers that read the words, so that it is written once.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from streamguard.cli import COMMANDS
from streamguard.cli.helping import default_of, flags

if TYPE_CHECKING:
    from streamguard.cli.arguments import Option
    from streamguard.cli.parsers import Parser


class Flag(NamedTuple):
    """An option, or an argument: as it is typed, what it does, and its default (empty: none).

    Of an argparse command the default is in `says`, in [brackets].
    """

    flags: str
    says: str
    default: str = ""


class Command(NamedTuple):
    """One command, or a part of one (`fleet submit`)."""

    name: str
    usage: str
    says: str
    groups: Mapping[str, tuple[Flag, ...]]
    exit_codes: tuple[tuple[str, str], ...]


def commands() -> Iterator[Command]:
    """All of them, in the order of `streamguard --help`."""
    for name in COMMANDS:
        module = import_module(f"streamguard.cli.{name}")
        if hasattr(module, "GROUPS"):
            yield _of_tables(name, module)
        else:
            yield from _of_parser(module.parser())


def _of_tables(name: str, module: Any) -> Command:
    letter_of = {long: letter for letter, long in module.LETTERS.items()}
    tables: Mapping[str, Mapping[str, Option]] = module.GROUPS
    groups = {
        heading: tuple(
            Flag(flags(long, option, letter_of.get(long)), option.says, default_of(option))
            for long, option in options.items()
        )
        for heading, options in tables.items()
    }
    usage = module.USAGE.removeprefix("usage: ")
    return Command(name, usage, module.INTRO, groups, module.EXIT_CODES)


def _of_parser(parser: Parser) -> Iterator[Command]:
    actions = parser._actions
    named = tuple(_flag(each) for each in actions if each.option_strings)
    unnamed = tuple(
        _flag(each) for each in actions if not each.option_strings and each.metavar != "COMMAND"
    )
    groups = {
        heading: found for heading, found in (("Arguments", unnamed), ("Options", named)) if found
    }
    usage = " ".join(parser.format_usage().split()).removeprefix("usage: ")
    name = parser.prog.removeprefix("streamguard ")
    yield Command(name, usage, parser.description or "", groups, parser.exit_codes)
    for part in _parts(actions):
        yield from _of_parser(part)


def _parts(actions: Iterable[argparse.Action]) -> Iterator[Parser]:
    for action in actions:
        if action.metavar == "COMMAND" and action.choices is not None:
            yield from cast("Mapping[str, Parser]", action.choices).values()


def _flag(action: argparse.Action) -> Flag:
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    if not metavar and action.choices:
        metavar = "|".join(map(str, action.choices))
    typed = f"{', '.join(action.option_strings)} {metavar}".strip()
    return Flag(typed, (action.help or "").replace("%%", "%"))
