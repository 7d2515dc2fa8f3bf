"""Temporal's server for development, as `.ci/tools` installs it: on a port of this machine, for as long as the tests run."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import time
from pathlib import Path

from tests.fleet.postgres import LEASHED
from tests.real.clis import TOOLS

PATIENCE = 60.0
KILLED_WITH_US = LEASHED.replace("-QUIT", "-KILL")


class NoTemporalError(Exception):
    """It is not on this machine; the text says what to run."""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


class DevServer:
    """One server. With a `file` it can be killed and started again where it was."""

    def __init__(
        self, folder: Path, *, file: bool = False, settings: tuple[str, ...] = ()
    ) -> None:
        self._binary = TOOLS / "bin/temporal"
        if not self._binary.exists():
            raise NoTemporalError("no temporal: run .ci/tools")
        self._log = folder / "temporal.log"
        self.file = folder / "temporal.db" if file else None
        self._settings = settings
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Begin it; it answers soon."""
        words = ["--headless", "--port", str(self.port), "--log-level", "warn"]
        if self.file is not None:
            words += ["--db-filename", str(self.file)]
        for setting in self._settings:
            words += ["--dynamic-config-value", setting]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                ["sh", "-c", KILLED_WITH_US, "sh", self._binary, "server", "start-dev", *words],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(PATIENCE)
            self._process.stdin.close()
            self._process = None

    async def client(self, address: str = "", **options):
        """A client of it, as soon as it answers."""
        from temporalio.client import Client

        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return await Client.connect(address or self.address, **options)
            except RuntimeError:
                if self._process is not None and self._process.poll() is not None:
                    raise RuntimeError(self._log.read_text()[-2000:]) from None
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.1)
