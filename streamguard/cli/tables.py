"""Tables of what is live, as lines for a terminal of any width or for a pipe. What they say is not known here.

The first columns are the most important. Where not all of them have room, the last ones are left out, and of the
others those are cut that may be; no line is ever longer than the terminal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from unicodedata import category, east_asian_width

# How many characters of a cell are shown at most.
WIDEST: Final = 120
_GAP: Final = "  "
_CUT: Final = "…"


class Column(NamedTuple):
    """One column; `least`: it may be cut down to so many characters (0: never)."""

    name: str
    least: int = 0
    is_number: bool = False


class Line(NamedTuple):
    """One row: its cells as texts that a terminal may have, and how much of a limit is spent (0 to 1 and more)."""

    cells: tuple[str, ...]
    spent: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Columns:
    """What a table has: its columns, the most important first, and what is said where there is no row."""

    columns: tuple[Column, ...]
    nothing: str

    def plain(self, shown: Sequence[Line], width: int | None = None) -> str:
        """As text, of lines that are no longer than `width`."""
        return "\n".join(self.lines(shown, width)) if shown else self.nothing

    def lines(self, shown: Sequence[Line], width: int | None = None) -> list[str]:
        """The names of the columns, and a line for each row."""
        names = tuple(column.name for column in self.columns)
        everything = [names, *(row.cells for row in shown)]
        widths = self._widths(everything, width)
        return [
            _GAP.join(
                _padded(cells[index], room, is_number=self.columns[index].is_number)
                for index, room in widths
            ).rstrip()
            for cells in everything
        ]

    def _widths(
        self, lines: Sequence[tuple[str, ...]], width: int | None
    ) -> list[tuple[int, int]]:
        """Which columns are shown, by number, and how wide each is."""
        wanted = [max(width_of(line[index]) for line in lines) for index in range(len(lines[0]))]
        if width is None:
            return list(enumerate(wanted))
        rooms: list[int] = []
        left = width + len(_GAP)
        for column, most in zip(self.columns, wanted, strict=True):
            room = min(most, column.least) if column.least else most
            if room + len(_GAP) > left:
                break
            left -= room + len(_GAP)
            rooms.append(room)
        for index, room in enumerate(rooms):
            more = min(wanted[index] - room, left)
            rooms[index] += more
            left -= more
        return list(enumerate(rooms))


def width_of(text: str) -> int:
    """How many places it takes on a terminal."""
    return len(text) if text.isascii() else sum(map(_places, text))


def cut(text: str, room: int) -> str:
    """As much of it as has room, with a mark where something is left out."""
    if width_of(text) <= room:
        return text
    kept, taken = "", 0
    for character in text:
        taken += _places(character)
        if taken > room - 1:
            break
        kept += character
    return f"{kept}{_CUT}" if room > 0 else ""


def _padded(text: str, room: int, *, is_number: bool) -> str:
    shown = cut(text, room)
    blanks = " " * (room - width_of(shown))
    return blanks + shown if is_number else shown + blanks


def _places(character: str) -> int:
    if category(character) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if east_asian_width(character) in "WF" else 1


def clock(value: float) -> str:
    """`3:07`, `1:06:40`."""
    minutes, seconds = divmod(int(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
