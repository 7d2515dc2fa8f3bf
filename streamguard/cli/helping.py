"""The help of `run` and `timeout`, made of the tables that say which options they have; and tables of exit codes.

80 columns wide. Imported when somebody asks for help.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from streamguard._base.durations import typed

if TYPE_CHECKING:
    from streamguard.cli.arguments import Option

WIDTH: Final = 79
_OPTION: Final = 26


def text_of(
    usage: str,
    intro: str,
    groups: Mapping[str, Mapping[str, Option]],
    letters: Mapping[str, str],
    *,
    exit_codes: Iterable[tuple[str, str]],
    outro: str,
) -> str:
    """All of a command's help."""
    letter_of = {name: letter for letter, name in letters.items()}
    parts = [f"{usage}\n\n{intro}"]
    for heading, options in groups.items():
        rows = [
            (flags(name, option, letter_of.get(name)), says(option))
            for name, option in options.items()
        ]
        parts.append(f"{heading}:\n{columns(rows, _OPTION)}")
    parts += [exits(exit_codes), outro]
    return "\n".join(parts)


def flags(name: str, option: Option, letter: str | None = None) -> str:
    """An option as it is typed: `-k, --kill-after DURATION`."""
    short = f"-{letter}, " if letter else ""
    return f"{short}--{name} {option.metavar}".rstrip()


def says(option: Option) -> str:
    """What an option does, with its default."""
    default = default_of(option)
    return f"{option.says} [{default}]" if default else option.says


def default_of(option: Option) -> str:
    """An option's default as it would be typed; empty if it has none."""
    match option.default:
        case None:
            return ""
        case float(seconds):
            return with_unit(seconds)
        case tuple():
            return ",".join(f"{each:g}" for each in option.default)
        case other:
            return str(other)


def with_unit(seconds: float) -> str:
    """A duration as it would be typed, with its unit in any case."""
    text = typed(seconds)
    return f"{text}s" if text[-1:].isdigit() and seconds else text


def exits(codes: Iterable[tuple[str, str]]) -> str:
    """The exit codes, as a part of a command's help."""
    return f"Exit codes:\n{columns(codes, 13)}"


def columns(rows: Iterable[tuple[str, str]], width: int) -> str:
    """Two columns, the first of them as wide as that; a longer entry has a line of its own."""
    lines: list[str] = []
    for entry, text in rows:
        wrapped = textwrap.wrap(text, WIDTH - width, break_on_hyphens=False) or [""]
        first = f"  {entry}"
        if len(first) > width - 1:
            lines.append(first)
            first = ""
        lines.append(f"{first:<{width}}{wrapped[0]}".rstrip())
        lines += [" " * width + line for line in wrapped[1:]]
    return "\n".join(lines) + "\n"
