"""`streamguard top`: the guarded runs of this user on this machine, live.

Shows what `streamguard run` and programs with `streamguard.publishing()` say of themselves
(`published`). The live table is drawn by rich, `pip install 'streamguard[top]'`; without a terminal,
or with --once, plain lines need nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streamguard._base.durations import typed
from streamguard._base.quoting import quoted
from streamguard.cli import EXIT_OK, EXIT_USAGE
from streamguard.cli.parsers import Parser
from streamguard.top.published import read_all

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

COLUMNS: Final = (
    "PID",
    "NAME",
    "STATE",
    "SILENT",
    "LIMIT",
    "IN FLIGHT",
    "MESSAGES",
    "AGE",
    "LAST",
)
_NUMBERS: Final = frozenset({"PID", "SILENT", "LIMIT", "MESSAGES", "AGE"})
# How many characters are shown: of a name, and of any other cell.
_NAME_LENGTH: Final = 40
_WIDEST: Final = 120
_BAR: Final = 10


class Line(NamedTuple):
    """One run: its cells as texts, and how much of its idle limit is spent (0 to 1 and more)."""

    cells: tuple[str, ...]
    spent: float


def main(words: Sequence[str]) -> int:
    """The exit code: 0, or 2 if a live table is wanted and rich is not installed."""
    asked = _parser().parse_args(words)
    if asked.json:
        print(json.dumps(read_all(), indent=2))
        return EXIT_OK
    if asked.once or not sys.stdout.isatty():
        print(plain(rows(read_all(), time.monotonic())))
        return EXIT_OK
    try:
        from rich.live import Live as Screen
    except ImportError:
        print(
            "streamguard top: the live table needs rich: pip install 'streamguard[top]', "
            "or look once with --once",
            file=sys.stderr,
        )
        return EXIT_USAGE
    return _show(Screen(screen=True, auto_refresh=False), asked.every)


def _parser() -> Parser:
    parser = Parser(
        prog="streamguard top",
        description="The guarded runs of this user on this machine: what each is doing, since when "
        "it is silent, and what is in flight. Ctrl-C ends it.",
    )
    parser.add_argument("--once", action="store_true", help="look once, and print plain lines")
    parser.add_argument("--json", action="store_true", help="look once, for a program")
    parser.add_argument(
        "--every",
        type=_interval,
        default=1.0,
        metavar="SECONDS",
        help="how often to look (default: 1)",
    )
    return parser


def _interval(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.1 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r}: use seconds, 0.1 to 3600")
    return value


def _show(live: Live, every: float) -> int:
    with live as screen:
        try:
            while True:
                screen.update(table(rows(read_all(), time.monotonic())), refresh=True)
                time.sleep(every)
        except KeyboardInterrupt:
            return EXIT_OK


# --- rows ---------------------------------------------------------------------------------


def rows(runs: Iterable[dict[str, Any]], now: float) -> list[Line]:
    """The runs as rows, those that are nearest to their limit first."""
    made = [_row(run, now) for run in runs]
    return sorted(made, key=lambda row: row.spent, reverse=True)


def _row(run: dict[str, Any], now: float) -> Line:
    since = max(0.0, now - _number(run.get("boot"), now))
    age = _number(run.get("age"), 0.0) + since
    last = run.get("last_message_age")
    silent = age if last is None else _number(last, 0.0) + since
    work: list[str] = run.get("in_flight") or []
    limits: dict[str, float | None] = run.get("limits") or {}
    idle = _number(limits.get("idle"), 0.0)
    state = str(run.get("state", "unknown"))
    # Work in flight pauses the limit, and between turns there is none.
    counts = idle > 0 and not work and state not in {"between turns", "held"}
    attempt = run.get("attempt") or 1
    cells = (
        str(run.get("pid")),
        quoted(run.get("name", "?"), _NAME_LENGTH),
        state if attempt == 1 else f"{state}, attempt {attempt}",
        _clock(silent),
        typed(idle) if idle else "-",
        ", ".join(map(str, work)) or "-",
        str(run.get("messages", 0)),
        _clock(age),
        str(run.get("last_signal") or "-"),
    )
    # A name is whatever somebody chose: nothing of it may reach the terminal as a command.
    shown = tuple(quoted(cell, _WIDEST) for cell in cells)
    return Line(shown, silent / idle if counts else 0.0)


def _number(value: Any, otherwise: float) -> float:
    return float(value) if isinstance(value, int | float) else otherwise


def _clock(value: float) -> str:
    minutes, seconds = divmod(int(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


# --- pictures -----------------------------------------------------------------------------


def plain(shown: Sequence[Line]) -> str:
    """A table of plain text."""
    if not shown:
        return "No guarded run of yours says anything. `streamguard run` does; a program with publishing()."
    lines = [COLUMNS, *(row.cells for row in shown)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(COLUMNS))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if name in _NUMBERS else cell.ljust(width)
            for name, cell, width in zip(COLUMNS, line, widths, strict=True)
        ).rstrip()
        for line in lines
    )


def table(shown: Sequence[Line]) -> Table:
    """A table for a terminal, with a bar for how much of the limit is spent."""
    from rich.box import SIMPLE
    from rich.table import Table
    from rich.text import Text

    made = Table(box=SIMPLE, expand=True, caption="Ctrl-C ends this; the runs go on")
    for name in (*COLUMNS, ""):
        made.add_column(name, justify="right" if name in _NUMBERS else "left", no_wrap=True)
    for row in shown:
        colour = "red" if row.spent >= 0.8 else "yellow" if row.spent >= 0.5 else "default"
        full = round(min(1.0, row.spent) * _BAR)
        bar = Text("█" * full + "·" * (_BAR - full), style=colour)
        made.add_row(*(Text(cell) for cell in row.cells), bar)
    if not shown:
        made.add_row("-", "no guarded run", *("" for _ in COLUMNS[2:]), "")
    return made
