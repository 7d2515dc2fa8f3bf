"""Which store an address means: a file's path, or where a PostgreSQL server is.

What libpq understands is passed on untouched, TLS options included. An address may hold a password: it is
never shown.
"""

from __future__ import annotations

import os
import re
from typing import Final

from streamguard._base import quoting
from streamguard.errors import ConfigError
from streamguard.fleet.sql_store import SqlStore
from streamguard.fleet.sqlite_database import SqliteDatabase

_SCHEME: Final = re.compile(r"([A-Za-z][\w+.-]*)://")
_ALMOST: Final = re.compile(r"(sqlite|postgres|postgresql):", re.IGNORECASE)
# How a libpq keyword DSN begins, and hardly a path.
_KEYWORD: Final = re.compile(
    r"\s*(host|hostaddr|port|dbname|user|password|passfile|service|servicefile|options|connect_timeout"
    r"|application_name|ssl\w+|target_session_attrs|keepalives\w*)\s*="
)


def store_at(where: str | os.PathLike[str]) -> SqlStore:
    """The store at `where`; nothing is opened before it is used.

        store_at("fleet.db")                           SQLite; also sqlite:///fleet.db
        store_at("sqlite:////var/lib/fleet.db")        with an absolute path
        store_at("postgresql://user@host/database?sslmode=verify-full")
        store_at("host=/run/postgresql dbname=fleet")  a libpq keyword DSN

    StoreError if a package that it needs is not installed; ConfigError if this is no place of a store.
    """
    address = os.fspath(where)
    scheme = _SCHEME.match(address)
    kind = scheme[1].lower() if scheme else ""
    if kind in {"postgresql", "postgres"} or (not kind and _KEYWORD.match(address)):
        from streamguard.fleet.postgres_database import PostgresDatabase

        return SqlStore(PostgresDatabase(address))
    if not kind and _ALMOST.match(address):
        raise ConfigError(
            f"{quoting.name(address.partition(':')[0])}: what follows the colon of an address is two slashes: "
            "sqlite:///path or postgresql://…; a file of such a name is ./ and its name"
        )
    if kind not in {"", "sqlite"}:
        raise ConfigError(
            f"{quoting.name(kind)}://: a fleet's store is a path, sqlite:///path or postgresql://…"
        )
    return SqlStore(_file(_path(address)))


def _path(address: str) -> str:
    if not _SCHEME.match(address):
        return address
    rest = address.partition("://")[2]
    if not rest.startswith("/"):
        raise ConfigError("use sqlite:///path, or sqlite:////path for an absolute one")
    return rest[1:]


def _file(path: str) -> SqliteDatabase:
    if not path or path == ":memory:" or "\0" in path:
        raise ConfigError(
            f"{quoting.name(repr(path))}: a store of SQLite is a file, since others share it"
        )
    return SqliteDatabase(path)
