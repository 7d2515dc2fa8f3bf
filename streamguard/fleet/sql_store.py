"""Sessions in a database: a `CheckpointStore`, whose every operation is one of the `statements`.

What was done and not heard of may be done again: `finish`, `give_back` and `park` of a claim that has ended so already
say True. What is written is made into text here, and what is read into values; the spec and the checkpoint are
read by `claim` alone. Knows no dialect but by what `Database` says of itself, and nothing of connections.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

from streamguard._base.numbers import check_count, check_number
from streamguard.fleet import statements
from streamguard.fleet.sql_circuits import SqlCircuits
from streamguard.fleet.store import JSON, Beat, Checkpoint, Claimed, Kept, Row
from streamguard.fleet.stored_texts import checked_name, fitting, json_of

if TYPE_CHECKING:
    from streamguard.fleet.database import Database


class SqlStore:
    """A `CheckpointStore` in a database, with the circuits that its workers share: see `store_at`."""

    blocks = True

    def __init__(self, database: Database[Any]) -> None:
        self._database = database
        self.circuits = SqlCircuits(database)
        takes_locks = database.dialect == "postgresql"
        self._claim = statements.CLAIM.replace(
            "{SKIP}", "FOR UPDATE SKIP LOCKED" if takes_locks else ""
        )
        self._log = statements.LOG.replace("{LOCK}", "FOR UPDATE" if takes_locks else "")

    def __repr__(self) -> str:
        return f"<SqlStore: {self._database.place}>"

    @property
    def place(self) -> str:
        """Where it is, for people: no password, no option."""
        return self._database.place

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- the database ----------------------------------------------------------------------

    def initialise(self) -> None:
        """Make the tables unless they are there. A file does that by itself when it is first used."""
        self._database.create()

    def migrate(self) -> list[str]:
        """Bring the tables to this version, and make them if they are missing. Says in words what was done."""
        return self._database.migrate()

    def interrupt(self) -> None:
        """See `CheckpointStore`."""
        self._database.interrupt()

    def close(self) -> None:
        """See `CheckpointStore`."""
        self._database.close()

    # -- the queue -------------------------------------------------------------------------

    def submit(self, key: str, spec: Mapping[str, JSON]) -> bool:
        """See `CheckpointStore`."""
        checked_name("key", key)
        text = json_of(spec, "the spec", key)
        with self._database.use("write") as run:
            return bool(run(statements.SUBMIT, key=key, spec=text))

    def claim(self, owner: str, ttl: float, limit: int) -> list[Claimed]:
        """See `CheckpointStore`."""
        checked_name("owner", owner)
        check_number("ttl", ttl, positive=True)
        check_count("limit", limit, least=1)
        found: list[tuple[Any, ...]] = []
        with self._database.use("write") as run:
            while len(found) < limit:
                wanted = limit - len(found)
                rows = run(self._claim, owner=owner, ttl=float(ttl), limit=wanted)
                found += [row for row in rows if row[2] == "running"]
                if len(rows) < wanted:
                    break
        return [_claimed(row[3:], owner) for row in sorted(found, key=lambda row: row[:2])]

    def release(self, key: str) -> bool:
        """See `CheckpointStore`."""
        checked_name("key", key)
        with self._database.use("write") as run:
            return bool(run(statements.RELEASE, key=key))

    def cancel(self, key: str, why: str) -> bool:
        """See `CheckpointStore`."""
        checked_name("key", key)
        with self._database.use("write") as run:
            return bool(run(statements.CANCEL, key=key, why=fitting(why)))

    # -- what is held ----------------------------------------------------------------------

    def beat(self, beats: Sequence[Beat], ttl: float) -> Mapping[str, Kept]:
        """See `CheckpointStore`."""
        check_number("ttl", ttl, positive=True)
        written = [_written(beat) for beat in beats]
        if not written:
            return {}
        with self._database.use("beat") as run:
            if self._database.dialect == "postgresql":
                columns = {name: [values[name] for values in written] for name in written[0]}
                rows = run(statements.BEATS, ttl=float(ttl), **columns)
            else:
                rows = [
                    row for values in written for row in run(statements.BEAT, ttl=ttl, **values)
                ]
        return {key: "cancel" if is_cancelling else "kept" for key, is_cancelling in rows}

    def finish(self, beat: Beat, *, cancelled: bool = False) -> bool:
        """See `CheckpointStore`."""
        return self._end(beat, "cancelled" if cancelled else "done", gives_way=cancelled)

    def give_back(self, beat: Beat, delay: float, *, counts: bool = True, why: str = "") -> bool:
        """See `CheckpointStore`."""
        check_number("delay", delay)
        return self._end(
            beat, "waiting", why=why, delay=float(delay), uncounted=not counts, fruitless=counts
        )

    def park(self, beat: Beat, why: str) -> bool:
        """See `CheckpointStore`."""
        return self._end(beat, "parked", why=why)

    def _end(
        self,
        beat: Beat,
        status: Literal["waiting", "done", "parked", "cancelled"],
        *,
        why: str = "",
        delay: float | None = None,
        gives_way: bool = True,
        uncounted: bool = False,
        fruitless: bool = False,
    ) -> bool:
        """Let go of what is held. Also true of what this claim has let go of in that way before."""
        end = {"status": status, "gives_way": int(gives_way)}
        how = {"uncounted": int(uncounted), "fruitless": int(fruitless), "delay": delay}
        written = _written(beat)
        mine = {name: written[name] for name in ("key", "token", "owner")}
        with self._database.use("write") as run:
            return bool(
                run(statements.END, **end, **how, **written, why=fitting(why))
                or run(statements.HAS_ENDED, **end, **mine)
            )

    # -- what is seen ----------------------------------------------------------------------

    def log_timeout(self, beat: Beat, line: Mapping[str, Any]) -> bool:
        """See `CheckpointStore`."""
        text = json_of(line, "a line of the log", beat.key)
        mine = {"key": beat.key, "token": beat.token, "owner": beat.owner}
        with self._database.use("write") as run:
            return bool(run(self._log, line=text, **mine))

    def note_timeout(self, key: str, line: Mapping[str, Any]) -> None:
        """See `TimeoutsLog`."""
        checked_name("key", key)
        text = json_of(line, "a line of the log", key)
        with self._database.use("write") as run:
            run(statements.NOTE, key=key, line=text)

    def timeouts(self, since: float = 0.0) -> Iterator[dict[str, Any]]:
        """See `CheckpointStore`."""
        after = 0
        while rows := self._logged(since, after):
            for number, logged, session, line in rows:
                after = number
                yield {**json.loads(line), "session": session, "logged": logged}

    def _logged(self, since: float, after: int) -> list[tuple[Any, ...]]:
        """Some lines: nothing is held open while somebody reads them."""
        with self._database.use("read") as run:
            return run(statements.TIMEOUTS, since=since, after=after)

    def live(self, *, all: bool = False) -> list[Row]:  # noqa: A002 - the word of the command line
        """See `CheckpointStore`."""
        with self._database.use("read") as run:
            found = run(statements.ALL if all else statements.LIVE)
        return [_row(columns) for columns in found]

    def show(self, key: str) -> Row | None:
        """See `CheckpointStore`."""
        checked_name("key", key)
        with self._database.use("read") as run:
            found = run(statements.ONE, key=key)
        return _row(found[0]) if found else None


def _claimed(columns: tuple[Any, ...], owner: str) -> Claimed:
    key, token, attempt, fruitless, spec, checkpoint, delivered = columns
    kept: dict[str, Any] = json.loads(checkpoint) if checkpoint is not None else {}
    return Claimed(
        key=key,
        token=token,
        owner=owner,
        attempt=attempt,
        fruitless=fruitless,
        spec=json.loads(spec),
        checkpoint=Checkpoint(delivered=delivered, **kept),
    )


def _written(beat: Beat) -> dict[str, Any]:
    """What a beat says, as it is written."""
    kept = beat.checkpoint
    text = None
    if kept is not None:
        text = json_of({"point": kept.point, "state": kept.state}, "the checkpoint", beat.key)
    return {
        "key": beat.key,
        "token": beat.token,
        "owner": beat.owner,
        "progressed": int(beat.progressed),
        "checkpoint": text,
        "delivered": None if kept is None else kept.delivered,
    }


def _row(columns: tuple[Any, ...]) -> Row:
    (
        key,
        status,
        owner,
        attempt,
        fruitless,
        delivered,
        why,
        due,
        heard,
        submitted,
        cancelling,
        now,
    ) = columns
    is_running = status == "running"
    return Row(
        key=key,
        status=status,
        owner=owner if is_running else "",
        attempt=attempt,
        fruitless=fruitless,
        delivered=delivered,
        why=why,
        wait=max(0.0, due - now) if status == "waiting" else 0.0,
        silent=max(0.0, now - heard) if is_running else 0.0,
        age=max(0.0, now - submitted),
        cancelling=bool(cancelling),
    )
