"""`streamguard top`: the guarded runs of this user on this machine, live.

Shows what `streamguard run` and programs with `streamguard.publishing()` say of themselves
(`published`). The live table is drawn by rich, `pip install 'agent-streamguard[top]'`; without a terminal,
or with --once, plain lines need nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from streamguard._base.distribution import install
from streamguard._base.durations import parsed, typed
from streamguard._base.quoting import quoted
from streamguard.cli import EXIT_OK, EXIT_USAGE
from streamguard.cli.parsers import Parser
from streamguard.cli.tables import WIDEST, Columns, Line, clock
from streamguard.top.published import read_all

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

RUNS: Final = Columns(
    names=("PID", "NAME", "STATE", "SILENT", "LIMIT", "IN FLIGHT", "MESSAGES", "AGE", "LAST"),
    numbers=frozenset({"PID", "SILENT", "LIMIT", "MESSAGES", "AGE"}),
    nothing="No guarded run of yours says anything. `streamguard run` does; a program with publishing().",
    nothing_drawn="no guarded run",
    caption="Ctrl-C ends this; the runs go on",
    has_bar=True,
)
EXIT_CODES: Final = (
    ("0", "it was shown"),
    ("2", "wrong usage, or a fleet's store that does not answer"),
)
# How many characters of a name are shown.
_NAME_LENGTH: Final = 40


def main(words: Sequence[str]) -> int:
    """The exit code: 0, or 2 if a live table is wanted and rich is not installed, or a fleet's store does not answer."""
    asked = parser().parse_args(words)
    if asked.fleet or asked.store is not None:
        from streamguard.cli.fleet import looking

        return looking.top(asked)
    if asked.json:
        print(json.dumps(read_all(), indent=2))
        return EXIT_OK
    return show(asked, lambda: RUNS.plain(_runs()), lambda: RUNS.drawn(_runs()))


def show(asked: argparse.Namespace, plain: Callable[[], str], drawn: Callable[[], Table]) -> int:
    """Show it as is asked for: once as plain lines, or again and again as a table."""
    if asked.once or not sys.stdout.isatty():
        print(plain())
        return EXIT_OK
    try:
        from rich.live import Live as Screen
    except ImportError:
        print(
            f"streamguard top: the live table needs rich: {install('top')}, "
            "or look once with --once",
            file=sys.stderr,
        )
        return EXIT_USAGE
    return _show(Screen(screen=True, auto_refresh=False), drawn, asked.every)


def parser() -> Parser:
    """The words that it understands."""
    from streamguard.cli.fleet import where

    made = Parser(
        prog="streamguard top",
        description="What the guarded runs of this user on this machine are doing: since when each is silent, how "
        "long it may be, and what is in flight. The nearest to its limit is first. q ends it; the runs go on.",
        epilog="A run is shown if it was started by `streamguard run`, or by a program within "
        "`with streamguard.publishing():`.",
        exit_codes=EXIT_CODES,
    )
    made.add_argument(
        "--once", action="store_true", help="look once, and print plain lines, as into a pipe"
    )
    made.add_argument("--json", action="store_true", help="look once, and print JSON")
    made.add_argument(
        "--every",
        type=_interval,
        default=1.0,
        metavar="DURATION",
        help="how often to look [1s]",
    )
    made.add_argument(
        "--fleet", action="store_true", help="the sessions of a fleet instead, from its store"
    )
    where.add_option(made)
    return made


def _interval(text: str) -> float:
    try:
        value = parsed(text)
    except ValueError:
        value = 0.0
    if not 0.1 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r}: use a duration from 0.1 to 3600 seconds")
    return value


def _show(live: Live, drawn: Callable[[], Table], every: float) -> int:
    with live as screen:
        try:
            while True:
                screen.update(drawn(), refresh=True)
                time.sleep(every)
        except KeyboardInterrupt:
            return EXIT_OK


def _runs() -> list[Line]:
    return rows(read_all(), time.monotonic())


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
    attempt, concern = run.get("attempt") or 1, run.get("concern")
    how = [state, *([f"attempt {attempt}"] if attempt != 1 else [])]
    how += [f"concern: {concern}"] if concern else []
    cells = (
        str(run.get("pid")),
        quoted(run.get("name", "?"), _NAME_LENGTH),
        ", ".join(how),
        clock(silent),
        typed(idle) if idle else "-",
        ", ".join(map(str, work)) or "-",
        str(run.get("messages", 0)),
        clock(age),
        str(run.get("last_signal") or "-"),
    )
    # A name is whatever somebody chose: nothing of it may reach the terminal as a command.
    shown = tuple(quoted(cell, WIDEST) for cell in cells)
    return Line(shown, silent / idle if counts else 0.0)


def _number(value: Any, otherwise: float) -> float:
    return float(value) if isinstance(value, int | float) else otherwise
