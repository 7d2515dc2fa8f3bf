"""A store's database in a file: SQLite, of the standard library.

One connection writes at a time, in this process by waiting for it, among processes by trying again; readers wait
for nobody, by the write-ahead log. A transaction is on disk before it counts (`synchronous=FULL`): a power
failure that took back a `finish` would run a session twice, and one sync for each beat of all sessions is cheap.

The file is made at its first use, readable by its owner alone, and what SQLite puts beside it as well.
Time is this machine's: nobody else uses the file.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from streamguard._base import quoting
from streamguard.errors import StoreError
from streamguard.fleet import schema
from streamguard.fleet.database import Database
from streamguard.fleet.pool import Lane, Link

if TYPE_CHECKING:
    from streamguard.fleet.schema import Dialect, Migration

PATIENCE: Final = 20.0
_SHORTEST_PAUSE: Final = 0.0005
_LONGEST_PAUSE: Final = 0.01
_TABLES: Final = "SELECT name FROM sqlite_master WHERE type = 'table'"
# Closing a file takes all the locks that this process has on it: only one that nobody has yet is opened here.
_making: Final = threading.Lock()
_ADVICE: Final[Mapping[int, str]] = {
    sqlite3.SQLITE_NOTADB: "is no SQLite database: name another file, or move this one away",
    sqlite3.SQLITE_CORRUPT: "is damaged: restore it, or move it away to begin anew",
    sqlite3.SQLITE_READONLY: (
        "may not be written to: give this user the right to write to it and to its folder"
    ),
    sqlite3.SQLITE_CANTOPEN: (
        "cannot be opened: see that it is a file, and that this user may write to it and to its folder"
    ),
    sqlite3.SQLITE_FULL: "is full, or its disk is: make room",
    sqlite3.SQLITE_BUSY: "is locked by another process for too long: see who has opened it",
    sqlite3.SQLITE_IOERR: "cannot be read or written: the disk has failed",
}


class SqliteLink(Link):
    """A connection to the file."""

    def __init__(self, raw: sqlite3.Connection, patience: float) -> None:
        self._raw = raw
        self._patience = patience
        self._was_cut = threading.Event()

    def run(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        """See `Link`."""
        if self._was_cut.is_set():
            raise sqlite3.OperationalError("interrupted")
        return self._raw.execute(statement, values).fetchall()

    def begin(self) -> None:
        """See `Link`."""
        self.patiently("BEGIN IMMEDIATE")

    def patiently(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement that others may be in the way of. SQLite's own wait cannot be interrupted."""
        deadline = time.monotonic() + self._patience
        pause = _SHORTEST_PAUSE
        while True:
            try:
                return self.run(statement)
            except sqlite3.OperationalError as error:
                if not _is(error, sqlite3.SQLITE_BUSY) or time.monotonic() > deadline:
                    raise
            self._was_cut.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def commit(self) -> None:
        """See `Link`."""
        self.run("COMMIT")

    def is_alive(self) -> bool:
        """See `Link`."""
        return True

    def end_wait(self) -> None:
        """See `Link`."""
        self._was_cut.set()
        with suppress(sqlite3.Error):
            self._raw.interrupt()

    def close(self) -> None:
        """See `Link`."""
        with suppress(sqlite3.Error):
            self._raw.close()


class SqliteDatabase(Database[SqliteLink]):
    """A file. `clock` is its time, in seconds since the epoch."""

    dialect: ClassVar[Dialect] = "sqlite"
    limits: ClassVar[Mapping[Lane, int]] = {"read": 4, "write": 1}
    lanes: ClassVar[Mapping[Lane, Lane]] = {"read": "read", "write": "write", "beat": "write"}

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        clock: Callable[[], float] = time.time,
        patience: float = PATIENCE,
        migrations: Sequence[Migration] = schema.MIGRATIONS,
    ) -> None:
        self.path = Path(path).expanduser().absolute()
        self._clock = clock
        place = f"the store {quoting.name(self.path)}"
        self._patience = patience
        # A call may wait for others to end, and then take its time.
        super().__init__(place, patience=2 * patience, migrations=migrations)

    def __repr__(self) -> str:
        return f"SqliteDatabase({str(self.path)!r})"

    def _connect(self, lane: Lane) -> SqliteLink:
        self._make_file()
        try:
            raw = sqlite3.connect(
                self.path, timeout=0.0, isolation_level=None, check_same_thread=False
            )
        except sqlite3.Error as error:
            raise self._explained(error) from None
        link = SqliteLink(raw, self._patience)
        try:
            self._set_up(link, lane)
        except sqlite3.Error as error:
            link.close()
            raise self._explained(error) from None
        except BaseException:
            link.close()
            raise
        return link

    def _make_file(self) -> None:
        try:
            with _making:
                _make_folder(self.path.parent)
                with suppress(FileExistsError):
                    os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except OSError as error:
            raise StoreError(
                f"{self.place} cannot be made: {quoting.quoted(error.strerror)}. Name another file, "
                "or give this user the right to write there"
            ) from None

    def _set_up(self, link: SqliteLink, lane: Lane) -> None:
        link._raw.create_function("streamguard_now", 0, self._clock)
        names = {name for (name,) in link.patiently(_TABLES)}
        if names and "streamguard_version" not in names:
            raise StoreError(
                f"{self.place} is a database of something else: name a file of its own"
            )
        [(mode,)] = link.patiently("PRAGMA journal_mode = WAL")
        if mode != "wal":
            raise StoreError(
                f"{self.place} can have no write-ahead log (its file system has no shared memory): "
                "use a local disk, or PostgreSQL"
            )
        link.run("PRAGMA synchronous = FULL")
        if lane == "read":  # what readers wait for, if for anything, is over in an instant
            link.run(f"PRAGMA busy_timeout = {int(self._patience * 1000)}")

    def _check(self, link: SqliteLink) -> None:
        if not schema.check(link.run, self.dialect, self._migrations, self.place):
            link.begin()
            schema.create(link.run, self.dialect, self._migrations, self.place)
            link.commit()

    @contextmanager
    def _using(self, link: SqliteLink, lane: Lane) -> Generator[None]:
        if lane == "read":
            yield
        else:
            link.begin()
            yield
            link.commit()

    def _begin_whole(self, link: SqliteLink) -> None:
        link.begin()

    def _is_its_own(self, error: BaseException) -> bool:
        return isinstance(error, sqlite3.Error)

    def _explained(self, error: BaseException) -> StoreError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_CANTOPEN and self.path.is_file() and not _is_writable(self.path):
            code = sqlite3.SQLITE_READONLY
        advice = _ADVICE.get(code, f"failed: {quoting.quoted(error, 400)}")
        return StoreError(f"{self.place} {advice}")


def _is(error: sqlite3.Error, code: int) -> bool:
    """Whether an error is of that kind. Those that Python raises itself have no code."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == code


def _is_writable(path: Path) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def _make_folder(folder: Path) -> None:
    """Make a folder, and those above it that are missing, for this user alone."""
    if not folder.is_dir():
        _make_folder(folder.parent)
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
