"""`streamguard top`: the guarded runs of this user on this machine, live.

Shows what `streamguard run` and programs with `streamguard.publish_to_top()` say of themselves
(`published`). On a terminal it goes on until `q`; elsewhere, or with --once, it is printed once.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from streamguard._base.durations import parsed
from streamguard._base.quoting import quoted
from streamguard._base.signal_words import in_words
from streamguard.cli import EXIT_OK, live_screen
from streamguard.cli.helping import with_unit
from streamguard.cli.parsers import Parser
from streamguard.cli.tables import WIDEST, Column, Columns, Line, clock, cut, width_of
from streamguard.top.published import read_all

RUNS: Final = Columns(
    columns=(
        Column("NAME", 16),
        Column("SILENT", is_number=True),
        Column("STATE", 14),
        Column("LIMIT", is_number=True),
        Column("IN FLIGHT", 9),
        Column("BACKEND", 7),
        Column("PID", is_number=True),
        Column("SPENT", is_number=True),
        Column("AGE", is_number=True),
        Column("MESSAGES", is_number=True),
        Column("LAST MESSAGE"),
    ),
    nothing="No guarded run of yours is going on. A run is shown if it was started by\n\n"
    "    streamguard run --idle 15m -- COMMAND\n\n"
    "or by a program that says so:\n\n"
    "    with streamguard.publish_to_top():\n"
    "        ...",
)
EXIT_CODES: Final = (
    ("0", "it was shown"),
    ("2", "wrong usage, or a fleet's store that does not answer"),
)
_NAME_LENGTH: Final = 40
# Without time that counts: what a run, or a stream, says of itself then.
_PAUSED: Final = frozenset({"between turns", "held", "new", "ended", "streaming"})
# A program that nobody has heard of for so long is stopped, or hangs as a whole.
_HEARD_OF: Final = 60.0
_UNREAD: Final = 5.0
_ALARMING, _NOTABLE = 0.8, 0.5
_RED, _YELLOW, _BOLD, _PLAIN = "\x1b[31m", "\x1b[33m", "\x1b[1m", "\x1b[0m"


def main(words: Sequence[str]) -> int:
    """The exit code: 0, or 2 if a fleet's store does not answer."""
    asked = parser().parse_args(words)
    if asked.fleet or asked.store is not None:
        from streamguard.cli.fleet import looking

        return looking.top(asked)
    if asked.json:
        print(json.dumps(snapshot(read_all(), time.monotonic()), indent=2))
        return EXIT_OK
    return show(asked, RUNS, "run", lambda: (_runs(), ""))


def show(
    asked: argparse.Namespace,
    table: Columns,
    what: str,
    look: Callable[[], tuple[list[Line], str]],
) -> int:
    """Show it as is asked for: once as plain lines, or again and again on a screen of its own.

    `look` gives the rows, and what is wrong with them.
    """
    if asked.once or not live_screen.can_show():
        lines, _ = look()
        is_whole = not sys.stdout.isatty()  # in a pipe nothing has to be left out
        print(table.plain(lines, None if is_whole else live_screen.size()[0]))
        return EXIT_OK

    def drawn(width: int, height: int) -> list[str]:
        lines, wrong = look()
        return screen(table, lines, what, width=width, height=height, wrong=wrong)

    live_screen.show(drawn, asked.every)
    return EXIT_OK


def parser() -> Parser:
    """The words that it understands."""
    from streamguard.cli.fleet import where

    made = Parser(
        prog="streamguard top",
        description="What the guarded runs of this user on this machine are doing: since when each is silent, how "
        "long it may be, and what is in flight. The nearest to its limit is first. q ends it; the runs go on.",
        epilog="A run is shown if it was started by `streamguard run`, or by a program within "
        "`with streamguard.publish_to_top():`.",
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
        raise argparse.ArgumentTypeError(f"{text!r}: use a duration from 0.1s to 1h")
    return value


def _runs() -> list[Line]:
    return rows(read_all(), time.monotonic())


# --- the screen ---------------------------------------------------------------------------


def screen(
    table: Columns, shown: Sequence[Line], what: str, *, width: int, height: int, wrong: str = ""
) -> list[str]:
    """What is on a terminal of that size: a heading, then as many rows as there is room for."""
    colour = live_screen.is_coloured()
    count = f"{len(shown)} {what}{'' if len(shown) == 1 else 's'}"
    heading = wrong or f"streamguard top: {count} at {time.strftime('%H:%M:%S')}"
    keys = "q: quit"
    heading = cut(heading, width - len(keys) - 2)
    head = f"{heading}{' ' * (width - width_of(heading) - len(keys))}{keys}"
    if not shown:
        return [head, "", *table.nothing.splitlines()]
    room = max(1, height - 2)  # the heading, and the names of the columns
    hidden = len(shown) - room
    if hidden > 0:
        room -= 1
    visible = shown[:room]
    names, *lines = table.lines(visible, width)
    if colour:
        names = f"{_BOLD}{names}{_PLAIN}"
        lines = [_coloured(line, row.spent) for line, row in zip(lines, visible, strict=True)]
    more = [f"... and {len(shown) - room} more"] if hidden > 0 else []
    return [head, names, *lines, *more]


def _coloured(line: str, spent: float) -> str:
    if spent < _NOTABLE:
        return line
    return f"{_RED if spent >= _ALARMING else _YELLOW}{line}{_PLAIN}"


# --- rows ---------------------------------------------------------------------------------


def snapshot(runs: Iterable[dict[str, Any]], now: float) -> list[dict[str, Any]]:
    """The runs as a program gets them, those that are nearest to their limit first: with `--json`.

    The fields are those of `published`, the ages as they are now, and three more: `silent` is what the table shows,
    `limit` is what it may come to (null: no limit counts now), and `spent` how much of that is used up, 1 being all.
    """
    seen = sorted((_Judged(run, now) for run in runs), key=lambda each: each.order)
    return [
        {
            **each.run,
            "age": round(each.age, 3),
            "last_message_age": None if each.last is None else round(each.last, 3),
            "state": each.state,
            "silent": round(each.silent, 3),
            "limit": each.idle if each.counts else None,
            "spent": round(each.spent, 3),
        }
        for each in seen
    ]


def rows(runs: Iterable[dict[str, Any]], now: float) -> list[Line]:
    """The runs as rows, those that are nearest to their limit first."""
    seen = sorted((_Judged(run, now) for run in runs), key=lambda each: each.order)
    return [_row(each) for each in seen]


class _Judged:
    """What a run's file says, as it is `now`."""

    def __init__(self, run: dict[str, Any], now: float) -> None:
        self.run = run
        since = max(0.0, now - _number(run.get("boot"), now))
        self.age = _number(run.get("age"), 0.0) + since
        last = run.get("last_message_age")
        self.last = None if last is None else _number(last, 0.0) + since
        self.silent = self.age if self.last is None else self.last
        self.work: list[str] = run.get("in_flight") or []
        limits: dict[str, float | None] = run.get("limits") or {}
        self.idle = _number(limits.get("idle"), 0.0)
        said = str(run.get("state", "unknown"))
        # Work in flight pauses the limit, and between turns there is none.
        self.counts = self.idle > 0 and not self.work and said not in _PAUSED
        self.spent = self.silent / self.idle if self.counts else 0.0
        self.state = said
        if run.get("kind") == "stream" and since > _HEARD_OF:
            self.state = "its program is stopped"
        elif said == "streaming" and self.silent > _UNREAD:
            self.state = "not read"  # the program asks for no message: no silence of the backend's

    @property
    def order(self) -> tuple[float, float]:
        return -self.spent, -self.silent


def _row(seen: _Judged) -> Line:
    run = seen.run
    attempt, concern = run.get("attempt") or 1, run.get("concern")
    how = [seen.state, *([f"attempt {attempt}"] if attempt != 1 else [])]
    how += [f"concern: {concern}"] if concern else []
    cells = (
        quoted(run.get("name", "?"), _NAME_LENGTH),
        clock(seen.silent),
        ", ".join(how),
        with_unit(seen.idle) if seen.idle else "-",
        ", ".join(map(str, seen.work)) or "-",
        str(run.get("backend") or "-"),
        str(run.get("pid")),
        f"{min(seen.spent, 9.99):.0%}" if seen.counts else "-",
        clock(seen.age),
        str(run.get("messages", 0)),
        in_words(str(run.get("last_signal") or "-")),
    )
    # A name is whatever somebody chose: nothing of it may reach the terminal as a command.
    return Line(tuple(quoted(cell, WIDEST) for cell in cells), seen.spent)


def _number(value: Any, otherwise: float) -> float:
    return float(value) if isinstance(value, int | float) else otherwise
