"""A store's database on a server: PostgreSQL, by psycopg (`pip install 'agent-streamguard[postgres]'`).

Each statement is a transaction of its own and arrives whole, so that no lock waits for a client whose network has
gone black. A thread that waits there is freed by `shutdown` on its socket, from outside: a peer that is gone but
whose machine still acknowledges never makes a wait end by itself, whatever timeouts are set. The server is told
the same bounds, so that it lets go of what we have given up.

An address may hold a password, in many disguises: what psycopg says of a connection that cannot be made is shown only
if no part of a secret is in it.
"""

from __future__ import annotations

import os
import re
import select
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import unquote

from streamguard._base import quoting
from streamguard._base.distribution import install
from streamguard.errors import StoreError
from streamguard.fleet import schema
from streamguard.fleet.database import Database
from streamguard.fleet.pool import Lane, Link

if TYPE_CHECKING:
    import psycopg

    from streamguard.fleet.schema import Dialect, Migration

PATIENCE: Final = 20.0
_OLDEST: Final = 13
_PARAMETER: Final = re.compile(r"(?<![:\w]):([a-z_]+)")
_SHOWN: Final = re.compile(r"[\w./:,\[\]@ -]*")
# Only one at a time changes the schema. Any number will do, if it is always the same.
_SCHEMA_LOCK: Final = 0x73677561
_SECRETS: Final = ("password", "sslpassword", "passfile", "sslkey", "oauth_client_secret")
# What a connection is told unless the address says otherwise: a peer that is gone is noticed.
_DEFAULTS: Final[Mapping[str, str]] = {
    "application_name": "streamguard",
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
}
_FROM_ENVIRONMENT: Final = {
    "application_name": "PGAPPNAME",
    "connect_timeout": "PGCONNECT_TIMEOUT",
}
_SET_UP: Final = """
SELECT set_config('statement_timeout', :bound, false),
    set_config('idle_in_transaction_session_timeout', :bound, false)
"""
_CANNOT_BE_SAID: Final = (
    "the server cannot be reached (its own words may hold a part of the password, and are left out). "
    "Check the address; in an URL, write @ : / of a password as %40 %3A %2F"
)
_WHO: Final = (
    "refuses this user or password: check both in the address, PGPASSWORD or ~/.pgpass, and the "
    "server's pg_hba.conf"
)
_ADVICE: Final[Mapping[str, str]] = {
    "28P01": _WHO,
    "28000": _WHO,
    "3D000": "has no such database: make it (createdb), or correct its name in the address",
    "53300": "has no connection left: raise its max_connections, or run fewer workers",
    "42501": "does not let this user do that: grant it the rights, or name another user",
    "42P01": "holds no store any more: run `streamguard fleet migrate`",
    "42883": "holds no store any more: run `streamguard fleet migrate`",
    "25006": (
        "is read-only, such as a standby: name the primary, or add target_session_attrs=read-write"
    ),
    "57014": "took too long, or was cancelled: try again",
    "53100": "is full: make room on its disk",
}
# As libpq says them when it connects; there is no code then.
_SAID: Final = (
    ("password authentication failed", _WHO),
    ("no password supplied", "wants a password: put it into PGPASSWORD or ~/.pgpass"),
    ("no pg_hba.conf entry", _WHO),
    ("timeout expired", "does not answer: see that it runs, and that a network leads there"),
    ("does not support SSL", "does not speak TLS, and the address asks for it (sslmode)"),
)
_MISSING_DATABASE: Final = re.compile(r'database "[^"]*" does not exist')


class PostgresLink(Link):
    """A connection to the server."""

    def __init__(self, raw: psycopg.Connection[tuple[Any, ...]]) -> None:
        self._raw = raw
        # A second handle of its socket: whoever cuts it cannot hit another that has its number by now.
        self._socket = socket.socket(fileno=os.dup(raw.pgconn.socket))

    def run(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        """See `Link`."""
        cursor = self._raw.execute(_translated(statement), values)
        return cursor.fetchall() if cursor.description else []

    def begin(self) -> None:
        """See `Link`."""
        self.run("BEGIN")

    def commit(self) -> None:
        """See `Link`."""
        self.run("COMMIT")

    def is_alive(self) -> bool:
        """See `Link`. What is to be read though nothing was asked is the server's farewell."""
        waiting = select.poll()
        waiting.register(self._socket, select.POLLIN)
        return not self._raw.closed and not waiting.poll(0)

    def end_wait(self) -> None:
        """See `Link`."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """See `Link`."""
        self._raw.close()
        self._socket.close()


class PostgresDatabase(Database[PostgresLink]):
    """A database of a server, at an address as libpq understands it."""

    dialect: ClassVar[Dialect] = "postgresql"
    limits: ClassVar[Mapping[Lane, int]] = {"read": 3, "write": 4, "beat": 2}
    lanes: ClassVar[Mapping[Lane, Lane]] = {"read": "read", "write": "write", "beat": "beat"}

    def __init__(
        self,
        address: str,
        *,
        patience: float = PATIENCE,
        migrations: Sequence[Migration] = schema.MIGRATIONS,
    ) -> None:
        self._psycopg = _imported()
        self._words = self._parsed(address)
        self._secrets = _secrets_of(address, self._words)
        super().__init__(
            f"the PostgreSQL store {self._shown()}", patience=patience, migrations=migrations
        )

    def __repr__(self) -> str:
        return f"<PostgresDatabase: {self.place}>"

    def _parsed(self, address: str) -> dict[str, Any]:
        """The address in parts. What cannot be read is not shown: who knows what of it is a password."""
        from psycopg.conninfo import conninfo_to_dict

        words: dict[str, Any] | None = None
        with suppress(self._psycopg.Error):
            words = dict(conninfo_to_dict(address))
        if words is None:
            raise StoreError(
                "the address of the PostgreSQL store cannot be read: use "
                "postgresql://user@host:5432/database, with @ : / of a password as %40 %3A %2F, or "
                "'host=… dbname=… user=…'"
            )
        for name, value in _DEFAULTS.items():
            if not os.environ.get(_FROM_ENVIRONMENT.get(name, "")):
                words.setdefault(name, value)
        words["client_encoding"] = "UTF8"
        return words

    def _shown(self) -> str:
        """Where it is: host, port and database, if these are plain words that hold no secret."""
        name = ":".join(str(self._words[part]) for part in ("host", "port") if part in self._words)
        parts = [name, *(str(self._words[part]) for part in ("dbname",) if part in self._words)]
        shown = "/".join(parts)
        is_plain = bool(shown) and "@" not in shown and _SHOWN.fullmatch(shown) is not None
        return quoting.name(shown) if is_plain and self._is_clean(shown) else "(address not shown)"

    def _is_clean(self, text: str) -> bool:
        return not any(secret in text for secret in self._secrets)

    def _connect(self, lane: Lane) -> PostgresLink:  # noqa: ARG002 - all are alike
        raw, failed = self._connected()
        if raw is None:
            raise self._refused(failed)
        if raw.info.server_version < _OLDEST * 10_000:
            found = raw.info.server_version // 10_000
            raw.close()
            raise StoreError(
                f"{self.place} is PostgreSQL {found}, and a store needs {_OLDEST} or newer: upgrade "
                "the server"
            )
        link = PostgresLink(raw)
        try:
            link.run(_SET_UP, bound=str(int(self.patience * 1000)))
        except self._psycopg.Error as error:
            link.close()
            raise self._explained(error) from None
        except BaseException:
            link.close()
            raise
        return link

    def _connected(self) -> tuple[psycopg.Connection[tuple[Any, ...]] | None, str]:
        try:
            # Statements are not prepared, so that PgBouncer may stand between.
            raw = self._psycopg.connect(**self._words, autocommit=True, prepare_threshold=None)
        except self._psycopg.Error as error:
            return None, str(error)
        else:
            return raw, ""

    def _refused(self, said: str) -> StoreError:
        """What a person is told of a connection that cannot be made."""
        for words, advice in _SAID:
            if words in said:
                return StoreError(f"{self.place} {advice}")
        if _MISSING_DATABASE.search(said):
            return StoreError(f"{self.place} {_ADVICE['3D000']}")
        line = quoting.quoted(" ".join(said.split()), 400)
        if not self._is_clean(line) or "@" in line:
            return StoreError(f"{self.place}: {_CANNOT_BE_SAID}")
        return StoreError(f"{self.place} cannot be reached: {line}")

    def _begin_whole(self, link: PostgresLink) -> None:
        link.begin()
        link.run("SELECT set_config('statement_timeout', '0', true)")
        link.run("SELECT pg_advisory_xact_lock(:number)", number=_SCHEMA_LOCK)
        [(encoding,)] = link.run("SHOW server_encoding")
        if encoding != "UTF8":
            raise StoreError(
                f"{self.place} has the encoding {quoting.name(encoding)}, which cannot hold every "
                "text: make the database with ENCODING 'UTF8'"
            )

    def _is_its_own(self, error: BaseException) -> bool:
        return isinstance(error, self._psycopg.Error)

    def _explained(self, error: BaseException) -> StoreError:
        """The server's details are left out: they show whole rows."""
        code = getattr(error, "sqlstate", None) or ""
        if advice := _ADVICE.get(code):
            return StoreError(f"{self.place} {advice}")
        said = getattr(getattr(error, "diag", None), "message_primary", None)
        if isinstance(error, self._psycopg.OperationalError):
            why = f" ({quoting.name(said)})" if said else ""
            return StoreError(
                f"{self.place}: the connection was lost{why}. It is not known whether what was under "
                "way was done: try again"
            )
        return StoreError(
            f"{self.place} failed: {quoting.name(said or type(error).__name__)} ({code or 'no code'})"
        )


def _imported() -> Any:
    try:
        import psycopg
    except ImportError:
        raise StoreError(f"a PostgreSQL store needs psycopg: {install('postgres')}") from None
    return psycopg


def _secrets_of(address: str, words: Mapping[str, Any]) -> set[str]:
    """Every text that could be a part of a password: of one with an @ in it, libpq sees but the beginning."""
    found = {str(words[name]) for name in _SECRETS if words.get(name)}
    user_and_rest = address.partition("://")[2]
    if "@" in user_and_rest:
        password = user_and_rest.rpartition("@")[0].partition(":")[2]
        found |= {password, *re.split(r"[@:/?#]", password)}
    return {text for secret in found for text in (secret, unquote(secret)) if text}


@lru_cache(maxsize=128)
def _translated(statement: str) -> bytes:
    """A statement with its parameters as psycopg has them."""
    return _PARAMETER.sub(r"%(\1)s", statement.replace("%", "%%")).encode()
