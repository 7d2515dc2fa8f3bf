"""A yard to let a fleet loose in: a store, workers as processes, a network that can go black, and the truth.

What a test waits for, it waits for in the file of what really happened, with a generous bound. `FULL` is for whoever has
minutes: more sessions, longer, and each loop with each store.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from streamguard.fleet import store_at
from tests.fleet.acceptance.truth import Reader, Truth, boottime
from tests.fleet.silent_proxy import SilentProxy

ROOT = Path(__file__).parents[3]
FULL = os.environ.get("STREAMGUARD_FLEET_FULL") == "1"
PATIENCE = 90.0
TTL = 2.0
FLUSH = 0.25
# What a busy machine may add to any time.
SLACK = 5.0


class WorkerProcess:
    """One worker. It serves when it is told to `go`."""

    def __init__(self, yard: Yard, config: dict[str, Any]) -> None:
        self._yard = yard
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fleet.acceptance.children.worker", json.dumps(config)],
            stdin=subprocess.PIPE,
            cwd=ROOT,
            stderr=yard.log_of(config["name"]),
        )
        self.pid = self._process.pid

    def go(self) -> WorkerProcess:
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        return self

    def is_up(self, truth: Truth) -> bool:
        assert self._process.poll() is None, "a worker has ended"
        return bool(truth.of("up", pid=self.pid))

    def kill(self) -> float:
        """Kill it; when."""
        at = boottime()
        self._process.kill()
        self._process.wait()
        return at

    def term(self) -> float:
        at = boottime()
        self._process.send_signal(signal.SIGTERM)
        return at

    def stop(self) -> float:
        """Have it stop, as by SIGSTOP; when it has. Never in the midst of a write, which would stop all the others, too."""
        times = 0
        while True:
            times += 1
            self._process.send_signal(signal.SIGUSR1)
            truth = self._yard.until(
                lambda truth, wanted=times: len(truth.of("stopped", pid=self.pid)) == wanted
            )
            if self._yard.can_be_written():
                return float(truth.of("stopped", pid=self.pid)[-1]["at"])
            self.go_on()

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def ended(self) -> int:
        return self._process.wait(PATIENCE)

    def remove(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()


class Yard:
    """A fleet's store at `address`, and all that is started there."""

    def __init__(
        self, place: str, address: str, folder: Path, loop: str, socket: str = ""
    ) -> None:
        self.place, self.address, self.loop = place, address, loop
        self.folder = folder
        self.log = folder / "truth"
        self.log.touch()
        self._reader = Reader(self.log)
        self.evidence = folder / "evidence"
        self.store: Any = store_at(address)
        self._socket = socket
        self._workers: list[WorkerProcess] = []
        self._proxies: list[SilentProxy] = []
        self._files: list[Any] = []

    def log_of(self, name: str) -> Any:
        file = (self.folder / f"{name}.log").open("wb")
        self._files.append(file)
        return file

    # -- who is there --------------------------------------------------------------------------

    def worker(
        self, name: str = "worker", *, limit: int = 50, ttl: float = TTL, **config: Any
    ) -> WorkerProcess:
        config = {
            "name": name,
            "address": self.address,
            "log": str(self.log),
            "evidence": str(self.evidence),
            "loop": self.loop,
            "engine": {
                "ttl": ttl,
                "flush": min(config.pop("flush", FLUSH), ttl / 3),
                "limit": limit,
                "claim": min(limit, 10),
                **config.pop("engine", {}),
            },
            **config,
        }
        worker = WorkerProcess(self, config)
        self._workers.append(worker)
        return worker

    def proxy(self) -> SilentProxy:
        proxy = SilentProxy(self._socket)
        self._proxies.append(proxy)
        return proxy

    def through(self, proxy: SilentProxy) -> str:
        """The store's address, by way of that proxy."""
        host = f"host='{Path(self._socket).parent}'"
        assert host in self.address
        return self.address.replace(host, f"host=127.0.0.1 port={proxy.port} connect_timeout=2")

    def submit(self, keys: Iterable[str], **spec: Any) -> list[str]:
        keys = list(keys)
        for key in keys:
            assert self.store.submit(key, {"prompt": "go", **spec})
        return keys

    def can_be_written(self) -> bool:
        """Whether nobody who stands still has the file to himself. A server's sessions do not bar each other."""
        file = Path(self.address)
        if not file.is_file():
            return True
        with contextlib.closing(sqlite3.connect(file, timeout=0.5)) as database:
            try:
                database.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return False
            return True

    # -- what happens --------------------------------------------------------------------------

    def truth(self) -> Truth:
        return self._reader.read()

    def until(self, true: Callable[[Truth], Any], within: float = PATIENCE) -> Truth:
        """Wait until that is so; what is true then."""
        deadline = time.monotonic() + within
        while True:
            truth = self.truth()
            if true(truth):
                return truth
            assert time.monotonic() < deadline, self._said()
            time.sleep(0.02)

    def until_after(self, at: float) -> Truth:
        """Wait until that instant is over."""
        return self.until(lambda _: boottime() > at)

    def statuses(self, keys: Iterable[str]) -> set[str]:
        wanted = set(keys)
        return {row.status for row in self.store.live(all=True) if row.key in wanted}

    def until_status(self, keys: Iterable[str], status: str) -> Truth:
        keys = list(keys)
        self.until(lambda _: self.statuses(keys) == {status})
        return self.truth()  # all of it: a session is over after its last line

    def _said(self) -> str:
        """For who has waited in vain."""
        logs = [
            f"--- {file.name}\n{file.read_text()[-3000:]}"
            for file in sorted(self.folder.glob("*.log"))
        ]
        rows = "\n".join(map(str, self.store.live(all=True)))
        last = "\n".join(map(str, self.truth().lines[-30:]))
        return "\n".join((rows, last, *logs))

    # -- the end -------------------------------------------------------------------------------

    def close(self) -> None:
        for worker in self._workers:
            worker.remove()
        for line in self.truth().of("spawned"):
            self._end_backend(line["backend"])
        for proxy in self._proxies:
            proxy.close()
        self.store.close()
        self._reader.close()
        for file in self._files:
            file.close()

    def _end_backend(self, pid: int) -> None:
        """A control leaves some behind."""
        with contextlib.suppress(OSError):
            if str(self.log).encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
