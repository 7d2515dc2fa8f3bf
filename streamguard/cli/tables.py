"""Tables of what is live: plain lines for a pipe, drawn by rich for a terminal. What they say is not known here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

# How many characters of a cell are shown.
WIDEST: Final = 120
_BAR: Final = 10


class Line(NamedTuple):
    """One row: its cells as texts that a terminal may have, and how much of a limit is spent (0 to 1 and more)."""

    cells: tuple[str, ...]
    spent: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Columns:
    """What a table has: names, those of numbers, and what is said where there is no row."""

    names: tuple[str, ...]
    numbers: frozenset[str]
    nothing: str
    nothing_drawn: str
    caption: str
    has_bar: bool = False

    def plain(self, shown: Sequence[Line]) -> str:
        """As plain text."""
        if not shown:
            return self.nothing
        lines = [self.names, *(row.cells for row in shown)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.names))]
        return "\n".join(
            "  ".join(
                cell.rjust(width) if name in self.numbers else cell.ljust(width)
                for name, cell, width in zip(self.names, line, widths, strict=True)
            ).rstrip()
            for line in lines
        )

    def drawn(self, shown: Sequence[Line], caption: str = "") -> Table:
        """For a terminal, with a bar for how much of the limit is spent: as many rows as it has lines."""
        import shutil

        from rich.box import SIMPLE
        from rich.table import Table
        from rich.text import Text

        made = Table(box=SIMPLE, expand=True, caption=Text(caption or self.caption))
        names = (*self.names, "") if self.has_bar else self.names
        for name in names:
            made.add_column(
                name, justify="right" if name in self.numbers else "left", no_wrap=True
            )
        for row in shown[: shutil.get_terminal_size().lines]:
            cells = [Text(cell) for cell in row.cells]
            made.add_row(*cells, *([_bar(row.spent)] if self.has_bar else []))
        if not shown:
            made.add_row("-", self.nothing_drawn, *("" for _ in names[2:]))
        return made


def _bar(spent: float) -> Text:
    from rich.text import Text

    colour = "red" if spent >= 0.8 else "yellow" if spent >= 0.5 else "default"
    full = round(min(1.0, spent) * _BAR)
    return Text("█" * full + "·" * (_BAR - full), style=colour)


def clock(value: float) -> str:
    """`3:07`, `1:06:40`."""
    minutes, seconds = divmod(int(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
