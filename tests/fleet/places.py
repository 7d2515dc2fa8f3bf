"""Where a test's store is: in a file, or in a schema of its own of the session's server.

A place has a clock that stands still until the test moves it, and gives any number of stores, as each process of a
fleet has its own.
"""

from __future__ import annotations

import itertools
from pathlib import Path

from streamguard.fleet.sql_store import SqlStore
from streamguard.fleet.sqlite_database import SqliteDatabase

MIDNIGHT = 1_700_000_000.0
_numbers = itertools.count()
# The time of the place in place of the server's.
STANDS_STILL = (
    "CREATE TABLE test_clock (now DOUBLE PRECISION)",
    f"INSERT INTO test_clock VALUES ({MIDNIGHT})",
    """
    CREATE OR REPLACE FUNCTION streamguard_now() RETURNS DOUBLE PRECISION LANGUAGE sql VOLATILE
    AS 'SELECT now FROM test_clock'
    """,
)


class Place:
    """What both kinds have in common."""

    def __init__(self) -> None:
        self._stores: list[SqlStore] = []
        self.now = MIDNIGHT

    def store(self, kind: type[SqlStore] = SqlStore) -> SqlStore:
        """One more store at this place."""
        store = kind(self._database())
        self._stores.append(store)
        return store

    def close(self) -> None:
        for store in self._stores:
            store.close()


class FilePlace(Place):
    name = "sqlite"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.address = str(folder / "fleet.db")

    def _database(self):
        return SqliteDatabase(self.address, clock=lambda: self.now)

    def advance(self, seconds: float) -> None:
        self.now += seconds

    def execute(self, statement: str) -> list[tuple]:
        """Ask the database itself."""
        import sqlite3

        connection = sqlite3.connect(self.address, isolation_level=None)
        try:
            return connection.execute(statement).fetchall()
        finally:
            connection.close()


class ServerPlace(Place):
    name = "postgresql"

    def __init__(self, server, *, stands_still: bool = True) -> None:
        super().__init__()
        self.server = server
        self.schema = f"test_{next(_numbers)}"
        server.execute(f"CREATE SCHEMA {self.schema}")
        self._words = {"options": f"-c search_path={self.schema}"}
        self.address = server.address(**self._words)
        with self.store() as store:
            store.initialise()
        if stands_still:
            server.execute(*STANDS_STILL, **self._words)

    def _database(self):
        from streamguard.fleet.postgres_database import PostgresDatabase

        return PostgresDatabase(self.address)

    def advance(self, seconds: float) -> None:
        self.now += seconds
        self.execute(f"UPDATE test_clock SET now = {self.now!r}")

    def execute(self, statement: str) -> list[tuple]:
        """Ask the database itself."""
        return self.server.execute(statement, **self._words)
