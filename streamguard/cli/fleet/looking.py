"""What there is to see of a fleet: `list`, `show`, `log`, and the live table of `streamguard top --fleet`.

All of it comes from the store. Its rows hold no token, no prompt and no text of an error; keys, owners and reasons
are whatever somebody has written, so nothing of them reaches a terminal as a command.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from streamguard._base import quoting
from streamguard._base.quoting import quoted
from streamguard.cli import EXIT_FAILED, EXIT_OK, EXIT_USAGE
from streamguard.cli.fleet import where
from streamguard.cli.tables import WIDEST, Column, Columns, Line, clock
from streamguard.errors import ConfigError, StoreError

if TYPE_CHECKING:
    import argparse

    from streamguard.fleet.sql_store import SqlStore
    from streamguard.fleet.store import Row

SESSIONS: Final = Columns(
    columns=(
        Column("KEY", 12),
        Column("STATUS", 9),
        Column("SILENT", is_number=True),
        Column("WORKER", 12),
        Column("ATTEMPT", is_number=True),
        Column("WAIT", is_number=True),
        Column("WHY", 12),
        Column("DELIVERED", is_number=True),
        Column("AGE", is_number=True),
    ),
    nothing="No session.",
)
# What is over on its own comes last: first what a person must see to.
_FOLLOWED: Final = {
    "retry": "it was tried again, or will be",
    "escalate": "it was parked",
    "fail": "its handler went on, or it was cancelled",
}
_RANKS: Final = {
    status: rank
    for rank, status in enumerate(("parked", "running", "waiting", "cancelled", "done"))
}
_KEY_LENGTH: Final = 40


def list_(asked: argparse.Namespace) -> int:
    """The sessions, in the order in which they were submitted."""
    with where.opened(asked.store, must_be_there=True) as store:
        rows = store.live(all=asked.all)
        if asked.json:
            print(json.dumps([asdict(row) for row in rows], indent=2))
        elif rows:
            print(SESSIONS.plain(lines_of(rows)))
        else:
            more = "" if asked.all else ", or all are over: see --all"
            print(f"No session in {quoted(_place(store))}{more}.")
    return EXIT_OK


def show(asked: argparse.Namespace) -> int:
    """One session, field by field."""
    with where.opened(asked.store, must_be_there=True) as store:
        row = store.show(asked.key)
        if row is None:
            return unknown(asked.key, store)
        if asked.json:
            print(json.dumps(asdict(row), indent=2))
        else:
            _print_fields(row)
    return EXIT_OK


def log(asked: argparse.Namespace) -> int:
    """The fleet's log of timeouts, oldest first."""
    with where.opened(asked.store, must_be_there=True) as store:
        since = 0.0 if asked.since is None else time.time() - asked.since
        for line in logged(store, since, asked.key):
            print(json.dumps(line) if asked.json else _sentence(line))
    return EXIT_OK


def logged(
    store: SqlStore, since: float = 0.0, key: str | None = None
) -> Iterator[dict[str, Any]]:
    """The log's lines, of one session or of all."""
    for line in store.timeouts(since):
        if key is None or line["session"] == key:
            yield line


def unknown(key: str, store: SqlStore) -> int:
    """There is no such session."""
    print(
        f"streamguard fleet: no session {quoting.name(key)!r} in {quoted(_place(store))}",
        file=sys.stderr,
    )
    return EXIT_FAILED


def top(asked: argparse.Namespace) -> int:
    """The live table of `streamguard top --fleet`."""
    from streamguard.cli.top import show as shown

    try:
        with where.opened(asked.store, must_be_there=True) as store:
            rows = store.live()  # what is wrong with the store is said before a screen is made
            if asked.json:
                print(json.dumps([asdict(row) for row in rows], indent=2))
                return EXIT_OK
            return shown(asked, SESSIONS, "session", _View(store).look)
    except (ConfigError, StoreError) as error:
        print(f"streamguard top: {quoted(error)}", file=sys.stderr)
        return EXIT_USAGE


class _View:
    """What was seen last, for as long as the store is away."""

    def __init__(self, store: SqlStore) -> None:
        self._store = store
        self._lines: list[Line] = []

    def look(self) -> tuple[list[Line], str]:
        """The rows, and what is wrong with them."""
        try:
            self._lines = lines_of(_ranked(self._store.live()))
        except StoreError as error:
            return self._lines, f"NOT UP TO DATE: {quoted(error)}"
        return self._lines, ""


# --- rows -----------------------------------------------------------------------------------


def lines_of(rows: Iterable[Row]) -> list[Line]:
    """The rows as cells that a terminal may have."""
    return [Line(tuple(quoted(cell, WIDEST) for cell in _cells(row))) for row in rows]


def _ranked(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: _RANKS[row.status])


def _cells(row: Row) -> tuple[str, ...]:
    return (
        quoted(row.key, _KEY_LENGTH),
        _status(row),
        clock(row.silent) if row.status == "running" else "-",
        row.owner or "-",
        str(row.attempt),
        clock(row.wait) if row.status == "waiting" else "-",
        row.why or "-",
        str(row.delivered),
        clock(row.age),
    )


def _status(row: Row) -> str:
    return f"{row.status}, to be cancelled" if row.cancelling else row.status


def _print_fields(row: Row) -> None:
    fields = {
        "key": row.key,
        "status": _status(row),
        "worker": row.owner,
        "why": row.why,
        "attempt": str(row.attempt),
        "without progress": str(row.fruitless) if row.fruitless and row.status != "parked" else "",
        "delivered": f"{row.delivered} messages",
        "silent for": clock(row.silent) if row.status == "running" else "",
        "may begin in": clock(row.wait) if row.status == "waiting" else "",
        "submitted": f"{clock(row.age)} ago",
    }
    for name, text in fields.items():
        if text:
            print(f"{name + ':':<17} {quoted(text)}")


def _sentence(line: dict[str, Any]) -> str:
    when, key, attempt = line.get("timestamp"), line["session"], line.get("attempt")
    worker = quoting.name(line.get("worker"))
    return quoted(
        f"{when}  {quoting.name(key)}, attempt {attempt} on {worker}: {line.get('reason')}; {_followed(line)}"
    )


def _followed(line: dict[str, Any]) -> str:
    return _FOLLOWED.get(str(line.get("final_action")), "what followed is not known")


def _place(store: SqlStore) -> str:
    return store.place
