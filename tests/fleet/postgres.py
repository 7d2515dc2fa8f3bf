"""A PostgreSQL server of Debian's package, in a folder of its own, for as long as the tests run.

It listens on a unix socket alone and never waits for the disk. PostgreSQL refuses to be root, so that root starts it
as the user `postgres`, or as `nobody` where there is none.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

PATIENCE = 60.0
SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "16MB",
    "max_connections": "100",
    "log_min_messages": "warning",
}
# A server whose tests are killed ends with them: it is told so by the end of a pipe.
LEASHED = 'exec 3<&0; (read -r _ <&3; kill -QUIT $$) & exec "$@" 3<&- </dev/null'
# Roles by how they get in. Nobody else needs a password.
ADMITTED = """\
local all locked scram-sha-256
local all all trust
"""


class NoServerError(Exception):
    """There is no PostgreSQL on this machine."""


def program(name: str) -> str:
    """Where Debian has it, which is on nobody's PATH."""
    found = shutil.which(name)
    homes = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    if found is None and not homes:
        raise NoServerError(f"no {name}: .ci/tools installs it")
    return found or str(homes[-1])


class Server:
    """A server; it can be killed and started again. `start` waits until it answers."""

    def __init__(self) -> None:
        self._initdb, self._postgres = program("initdb"), program("postgres")
        self.home = Path(tempfile.mkdtemp(prefix="streamguard-pg-", dir="/tmp"))
        self._data = self.home / "data"
        self._user = _unprivileged()
        if self._user is not None:
            os.chown(self.home, self._user.pw_uid, self._user.pw_gid)
        self.home.chmod(0o711)
        self._process: subprocess.Popen[bytes] | None = None
        self._run(
            self._initdb,
            *("-D", str(self._data), "-A", "trust", "-U", "admin", "-E", "UTF8"),
            *("--no-locale", "--no-sync", "--no-instructions"),
        )
        (self._data / "pg_hba.conf").write_text(ADMITTED)

    def address(self, **words: str) -> str:
        """A libpq DSN for it."""
        known = {"host": str(self.home), "user": "admin", "dbname": "postgres", **words}
        return " ".join(f"{name}='{value}'" for name, value in known.items())

    @property
    def socket(self) -> str:
        return str(self.home / ".s.PGSQL.5432")

    def start(self) -> None:
        options = [word for name in SETTINGS for word in ("-c", f"{name}={SETTINGS[name]}")]
        with (self.home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *("sh", "-c", LEASHED, "sh"),
                    *(self._postgres, "-D", str(self._data), "-k", str(self.home), *options),
                ],
                stdout=log,
                stderr=log,
                stdin=subprocess.PIPE,
                cwd="/",
                start_new_session=True,
                **self._as_user(),
            )
        self._wait()

    def stop(self) -> None:
        """At once, as `pg_ctl -m immediate` does it."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(PATIENCE)
            self._process.stdin.close()
            self._process = None

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.home, ignore_errors=True)

    def execute(self, *statements: str, **words: str) -> list[tuple]:
        """Run statements as the administrator; the rows of the last."""
        import psycopg

        rows = []
        with psycopg.connect(self.address(**words), autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement)
                rows = cursor.fetchall() if cursor.description else []
        return rows

    def _wait(self) -> None:
        import psycopg

        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                psycopg.connect(self.address()).close()
            except psycopg.OperationalError:
                assert self._process is not None
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError((self.home / "log").read_text()) from None
                time.sleep(0.02)
            else:
                return

    def _as_user(self) -> dict:
        if self._user is None:
            return {}
        return {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []}

    def _run(self, *command: str) -> None:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=120,
            cwd="/",
            check=False,
            **self._as_user(),
        )
        assert done.returncode == 0, done.stdout + done.stderr


def _unprivileged() -> pwd.struct_passwd | None:
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise NoServerError("PostgreSQL refuses to be root, and there is no user nobody")
