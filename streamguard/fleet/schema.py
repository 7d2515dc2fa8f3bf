"""What a store's database holds, and how one version of it becomes the next.

The database says its version in a row. Each entry of `MIGRATIONS` brings it one version further, from nothing at
first; a new version is one more entry, and none is ever changed once it was published. `create` makes a database,
`migrate` brings an older one up to date, both in one transaction each, which their caller opens; `check` refuses all
but the present version. Statements are the same for every database but for words in braces, of which each dialect has
its own. Knows nothing of connections.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from streamguard.errors import StoreError

Dialect: TypeAlias = Literal["sqlite", "postgresql"]
Run: TypeAlias = Callable[..., list[tuple[Any, ...]]]
"""Runs one statement: `run("... WHERE key = :key", key=key)` gives its rows."""

_WORDS: Final[Mapping[Dialect, Mapping[str, str]]] = {
    "sqlite": {"{id}": "INTEGER PRIMARY KEY AUTOINCREMENT"},
    "postgresql": {"{id}": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"},
}
_HAS_VERSION: Final[Mapping[Dialect, str]] = {
    "sqlite": "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'streamguard_version'",
    "postgresql": "SELECT 1 WHERE to_regclass('streamguard_version') IS NOT NULL",
}


@dataclass(frozen=True, kw_only=True)
class Migration:
    """From one version to the next. `only`: what one dialect needs beside the rest, and before it."""

    what: str
    statements: Sequence[str]
    only: Mapping[Dialect, Sequence[str]] = field(default_factory=dict[Dialect, Sequence[str]])


_FIRST: Final = Migration(
    what="sessions, the log of timeouts, circuits",
    only={
        # SQLite has it from the connection: its own clock has no fractions of a second before 3.42.
        "postgresql": (
            """
            CREATE FUNCTION streamguard_now() RETURNS DOUBLE PRECISION LANGUAGE sql VOLATILE
            AS 'SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS DOUBLE PRECISION)'
            """,
        ),
    },
    statements=(
        # `due`: from when on it may be claimed: when it is to begin, or when its lease ends.
        # `ready`: that time as it was when it was claimed last. `heard`: the last claim or beat.
        # `cancelling`: why it is to be cancelled, while its owner does not know.
        # `fruitless`: claims that are over and came to nothing; `progressed`: whether this one has come to something,
        # -1 as long as no beat has come.
        """
        CREATE TABLE streamguard_sessions (
            id {id},
            key TEXT NOT NULL UNIQUE,
            status TEXT NOT NULL,
            due DOUBLE PRECISION,
            ready DOUBLE PRECISION,
            heard DOUBLE PRECISION NOT NULL,
            submitted DOUBLE PRECISION NOT NULL,
            token BIGINT NOT NULL,
            owner TEXT NOT NULL,
            attempt BIGINT NOT NULL,
            fruitless BIGINT NOT NULL,
            progressed BIGINT NOT NULL,
            delivered BIGINT NOT NULL,
            why TEXT NOT NULL,
            cancelling TEXT,
            spec TEXT NOT NULL,
            checkpoint TEXT
        )
        """,
        "CREATE INDEX streamguard_due ON streamguard_sessions (due, id) WHERE due IS NOT NULL",
        """
        CREATE INDEX streamguard_open ON streamguard_sessions (id)
        WHERE status IN ('waiting', 'running', 'parked')
        """,
        """
        CREATE TABLE streamguard_timeouts (
            id {id},
            logged DOUBLE PRECISION NOT NULL,
            session TEXT NOT NULL,
            line TEXT NOT NULL
        )
        """,
        "CREATE INDEX streamguard_logged ON streamguard_timeouts (logged)",
        """
        CREATE TABLE streamguard_circuits (
            key TEXT PRIMARY KEY,
            version BIGINT NOT NULL,
            writer TEXT NOT NULL,
            circuit TEXT NOT NULL
        )
        """,
    ),
)

MIGRATIONS: Final = (_FIRST,)


def version_of(run: Run, dialect: Dialect) -> int | None:
    """The version that a database says it has; None if there is none of ours in it."""
    if not run(_HAS_VERSION[dialect]):
        return None
    rows = run("SELECT version FROM streamguard_version")
    if len(rows) != 1:
        raise StoreError(
            f"the table streamguard_version has {len(rows)} rows instead of one: somebody has "
            "changed it by hand. Restore the database"
        )
    return int(rows[0][0])


def create(run: Run, dialect: Dialect, migrations: Sequence[Migration], place: str) -> None:
    """Make all that is needed in a database that has nothing of it, and let one be that has it."""
    found = version_of(run, dialect)
    if found is None:
        _apply(run, dialect, migrations)
        run("CREATE TABLE streamguard_version (version BIGINT NOT NULL)")
        run("INSERT INTO streamguard_version (version) VALUES (:version)", version=len(migrations))
    else:
        _refuse_other(found, migrations, place)


def migrate(run: Run, dialect: Dialect, migrations: Sequence[Migration], place: str) -> list[str]:
    """Bring a database to the present version, from nothing too; what was done, in words."""
    found = version_of(run, dialect)
    if found is None:
        create(run, dialect, migrations, place)
        return [migration.what for migration in migrations]
    missing = migrations[found:]
    if not missing:
        _refuse_other(found, migrations, place)
        return []
    _apply(run, dialect, missing)
    run("UPDATE streamguard_version SET version = :version", version=len(migrations))
    return [migration.what for migration in missing]


def check(run: Run, dialect: Dialect, migrations: Sequence[Migration], place: str) -> bool:
    """Whether the database is there; a StoreError if it is of another version."""
    found = version_of(run, dialect)
    if found is not None:
        _refuse_other(found, migrations, place)
    return found is not None


def _refuse_other(found: int, migrations: Sequence[Migration], place: str) -> None:
    known = len(migrations)
    if found < known:
        raise StoreError(
            f"{place} is of version {found}, and this streamguard wants version {known}: stop the "
            "workers and run `streamguard fleet migrate`"
        )
    if found > known:
        raise StoreError(
            f"{place} is of version {found}, and this streamguard knows up to version {known}: "
            "upgrade streamguard"
        )


def _apply(run: Run, dialect: Dialect, migrations: Sequence[Migration]) -> None:
    for migration in migrations:
        for statement in (*migration.only.get(dialect, ()), *migration.statements):
            for word, meaning in _WORDS[dialect].items():
                statement = statement.replace(word, meaning)  # noqa: PLW2901
            run(statement)
