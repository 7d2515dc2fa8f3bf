"""Where a fleet's store is, as the command line, a variable or a file says it.

    --store fleet.db              a file, for the workers of one machine
    --store postgresql://user@host/database
    --store @FILE                 what FILE holds, in one line
    STREAMGUARD_FLEET=...         the same, where there is no --store

Everybody on a machine sees the words of a command (`ps`), so an address with a password is refused there; and so is
a file that holds one and that others may read. Knows what a password in an address looks like, and nothing of what a
store does.
"""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from streamguard._base import quoting, trusted
from streamguard._base.variables import FLEET
from streamguard.errors import ConfigError

if TYPE_CHECKING:
    import argparse

    from streamguard.fleet.sql_store import SqlStore

_MOST: Final = 64 << 10
_SECRET_WORD: Final = re.compile(
    r"(?:^|[?&\s])(?:password|sslpassword|oauth_client_secret)\s*=", re.IGNORECASE
)
_FORGOTTEN_SCHEME: Final = re.compile(r"[^/\s:@]+:[^/\s]+@")
_AUTHORITY_ENDS: Final = re.compile(r"[/?#]")
_PORT: Final = re.compile(r":(\d*)$")
HELP: Final = (
    f"where the sessions are: a file, an address without a password, or @FILE, a file that holds the address [{FLEET}, "
    "else ~/.local/state/streamguard/fleet.db]"
)


def add_option(parser: argparse.ArgumentParser) -> None:
    """The option that says it."""
    parser.add_argument("--store", metavar="STORE", help=HELP)


def opened(said: str | None, *, must_be_there: bool = False) -> SqlStore:
    """The store that `--store` says, or else the variable, or else this user's own.

    `must_be_there`: for those who only look, where a name that is misspelt should make no file.
    """
    from streamguard.fleet.addresses import store_at
    from streamguard.fleet.sqlite_database import SqliteDatabase

    store = store_at(_address(said))
    database = store._database
    if (
        must_be_there
        and isinstance(database, SqliteDatabase)
        and not os.path.exists(database.path)
    ):
        raise ConfigError(
            f"there is no store at {quoting.name(database.path)}: `streamguard fleet submit` makes one. Name another with "
            f"--store or {FLEET}"
        )
    return store


def _address(said: str | None) -> str:
    if said is None:
        said, told = os.environ.get(FLEET, ""), f"the environment variable {FLEET}"
    elif holds_password(said):
        raise ConfigError(
            "--store: this address holds a password, which everybody on this machine can see (ps). Put the address into "
            f"the environment variable {FLEET}, or into a file that only you can read, and say --store @FILE"
        )
    else:
        told = "--store"
        if not said:
            raise ConfigError("--store: name a file, or an address")
    if said.startswith("@"):
        return _in_file(said[1:], told)
    return said or own_file()


def own_file() -> str:
    """This user's own store, for whoever says nothing."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(state, "streamguard", "fleet.db")


def holds_password(address: str) -> bool:
    """Whether an address of a server has a password in it; if in doubt, yes."""
    scheme, separator, rest = address.partition("://")
    if separator and scheme.lower() == "sqlite":
        return False
    if _SECRET_WORD.search(unquote(address)):
        return True
    if not separator:
        return _FORGOTTEN_SCHEME.match(address) is not None
    if "@" not in rest:
        return False
    authority = _AUTHORITY_ENDS.split(rest)[0]
    if "@" in authority:
        return ":" in authority.rpartition("@")[0]
    # A password that has a / in it, unescaped, ends the authority, and looks like a port.
    return ":" in authority and not all(map(_PORT.search, authority.split(",")))


def _in_file(path: str, told: str) -> str:
    told = f"{told}: {quoting.name(path)}"
    try:
        text = trusted.read_named(path, _MOST).decode("utf-8").strip()
        there = os.stat(path)
    except OSError as error:
        raise ConfigError(f"{told} cannot be read: {quoting.quoted(error.strerror)}") from None
    except ValueError:  # no UTF-8; a NUL in its name
        raise ConfigError(f"{told} is no text: write the address into it, in one line") from None
    if not text or len(text.splitlines()) > 1:
        raise ConfigError(f"{told} should hold the address of a store, in one line")
    if text.startswith("@"):
        raise ConfigError(f"{told} should hold the address itself, and names another file")
    # As libpq wants it of a key: root's may be a group's to read.
    forbidden = 0o037 if there.st_uid == 0 and os.geteuid() != 0 else 0o077
    if holds_password(text) and stat.S_IMODE(there.st_mode) & forbidden:
        raise ConfigError(
            f"{told} holds a password, and others may read it: chmod 600 {quoting.name(path)}"
        )
    return text
