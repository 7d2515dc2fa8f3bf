"""A worker of a fleet: `LocalEngine` with backends that play what a session's spec says. Everything is written down.

    python -m tests.fleet.acceptance.children.worker '{"address": ..., "log": ..., ...}'

It begins when a line comes. SIGUSR1 stops it as SIGSTOP would, at an instant when no message is on its way; SIGTERM
drains it. A spec's `kind` says what its backend does and how its consumer is: see `KINDS`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from streamguard import (
    Backoff,
    CircuitBreaker,
    Connection,
    Recorder,
    RetryPolicy,
    idle_guard,
    reconnecting_resume,
    session,
)
from streamguard.errors import StoreError
from streamguard.fleet import Lease, LocalEngine, store_at
from streamguard.process.sentinel import sentinel
from streamguard.signals import Progress, SessionOpened, TurnEnded, WorkStarted
from tests.fleet.acceptance.faults import FAULTS
from tests.fleet.acceptance.truth import Pen, boottime

BACKEND = Path(__file__).with_name("backend.py")


@dataclass(frozen=True)
class Message:
    seq: int
    says: Any


class Seen:
    """A store whose beats are written down, and which goes black while a file is there."""

    blocks = True

    def __init__(self, store: Any, note: Pen, black: str | None) -> None:
        self._store, self._note = store, note
        self._black = Path(black) if black else None
        self._cuts = 0

    @property
    def circuits(self) -> Any:
        return self._store.circuits

    def beat(self, beats: Any, ttl: float) -> Any:
        self._wait()
        sent = boottime()
        kept = self._store.beat(beats, ttl)
        self._note("beat", sent=sent, kept=[key for key, answer in kept.items()])
        return kept

    def interrupt(self) -> None:
        self._cuts += 1
        self._store.interrupt()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self._wait()
            return method(*args, **kwargs)

        return call

    def _wait(self) -> None:
        cuts = self._cuts
        while self._black is not None and self._black.exists():
            if self._cuts != cuts:
                raise StoreError("cut in a black network")
            time.sleep(0.005)


class Worker:
    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.note = Pen(config["log"])
        where: Any = config["address"]
        self.store: Any = Seen(store_at(where), self.note, config.get("black"))
        breaker = config.get("breaker")
        self.breaker = None
        if breaker is not None:
            shared = {"store": self.store.circuits} if breaker.pop("shared") else {}
            self.breaker = CircuitBreaker("backend", **breaker, **shared)

    async def serve(self) -> None:
        idle = self.config.get("idle_delay", 4.0)
        policy = RetryPolicy(idle=Backoff(5, (idle,)), network=Backoff(20, (0.2,)))
        engine = LocalEngine(self.store, policy=policy, **self.config["engine"])
        async with anyio.create_task_group() as group:
            group.start_soon(self._stop_when_told)
            if self.config.get("ticks"):
                group.start_soon(self._tick)
            self.note("up", owner=engine.owner)
            await engine.serve(self.handle, drain_on=[signal.SIGTERM])
            group.cancel_scope.cancel()
        self.note("served")

    async def _stop_when_told(self) -> None:
        with anyio.open_signal_receiver(signal.SIGUSR1) as received:
            async for _ in received:
                self.note("stopped")
                os.kill(os.getpid(), signal.SIGSTOP)
                self.note("continued")

    async def _tick(self) -> None:
        """How late a task is that wants to run each 5 ms: noted for each half second."""
        while True:
            began, late = time.monotonic(), [0.0]
            while time.monotonic() < began + 0.5:
                before = time.monotonic()
                await anyio.sleep(0.005)
                late.append(time.monotonic() - before - 0.005)
            self.note("ticked", late=max(late), began=boottime() - (time.monotonic() - began))

    # -- a session -----------------------------------------------------------------------------

    async def handle(self, lease: Lease) -> None:
        run = Run(self, lease)
        run.note("began", attempt=lease.attempt)
        try:
            await getattr(run, str(lease.spec["kind"]))()
        except Exception as error:
            run.note("ended", error=type(error).__name__)
            raise
        except BaseException as error:
            run.note("ended", error=type(error).__name__)
            raise
        run.note("ended", error="")


class Run:
    """One session, run once."""

    def __init__(self, worker: Worker, lease: Lease) -> None:
        self.worker, self.lease, self.spec = worker, lease, lease.spec
        self.last: Any = self.spec.get("messages", 60)
        self.every: Any = self.spec.get("every", 0.1)
        self.busy: Any = self.spec.get("busy", 0.0)

    def note(self, what: str, **more: Any) -> None:
        self.worker.note(what, session=self.lease.key, token=self.lease.token, **more)

    # -- what there is -------------------------------------------------------------------------

    async def steady(self) -> None:
        """A message each 0.1 s, from where the last one had got to."""
        await self._consume(self._open_scripted, self._resume())

    async def flaky(self) -> None:
        """The same, but after each second message the connection breaks."""
        policy = RetryPolicy(
            network=Backoff(1000, (0.15,)), max_in_a_row=1000, max_reconnects=10_000
        )
        await self._consume(self._open_scripted, self._resume(policy=policy), breaks=2)

    async def process(self) -> None:
        """A process that works by itself, and is asked to end when it is to."""
        await self._consume(self._open_process, self._resume())

    async def lost(self) -> None:
        """A process; where the consumer is when its lease is lost says `where`."""
        folder = Path(self.worker.config["evidence"])
        resume = self._resume(policy=RetryPolicy(network=Backoff(5, (300.0,))))
        with Recorder(folder, run_id=self.lease.key, flow="fleet", step="lost"):
            await self._consume(self._open_process, resume)

    async def tools(self) -> None:
        """A tool is begun, no token is told, and then it works for long."""
        await self._consume(self._open_tools, None)

    async def hangs(self) -> None:
        """One message, and silence. A second worker gets more. `within`: it is retried in the session instead."""
        within: Any = self.spec.get("within")
        resume = self._resume(policy=RetryPolicy(idle=Backoff(5, (within,)))) if within else None
        await self._consume(self._open_hanging, resume, idle=0.5)

    async def kills(self) -> None:
        """Whoever runs it is dead."""
        os.kill(os.getpid(), signal.SIGKILL)

    async def refused(self) -> None:
        """A backend that fails; tried again by all of its sessions, through one breaker."""
        self.note("waits")
        policy = RetryPolicy(
            network=Backoff(10_000, (0.0,)), max_in_a_row=10_000, max_reconnects=10_000
        )
        await self._consume(
            self._open_failing, self._resume(policy=policy, breaker=self.worker.breaker)
        )

    # -- how -----------------------------------------------------------------------------------

    def _resume(self, **knobs: Any) -> Any:
        return reconnecting_resume(dedupe_by=lambda message: message.seq, **knobs)

    async def _consume(
        self, open_: Any, resume: Any, *, breaks: int = 0, idle: float = 180.0
    ) -> None:
        self.breaks = breaks
        pipe: Any = session(open_, point=self.lease.resume_point())
        pipe = pipe | idle_guard(idle, read=lambda message: message.says)
        async with pipe | resume if resume is not None else pipe as chat:
            async for message in chat:
                self.note("delivered", seq=message.seq)
                await self._work_on(message)
            if self.spec.get("where") == "between":
                await anyio.sleep(3600)
        self.note("done")

    async def _work_on(self, message: Message) -> None:
        if self.spec.get("where") == "busy" and message.seq == 3:
            await anyio.sleep(3600)
        if self.busy:
            await anyio.sleep(self.busy)
            self.note("processed", seq=message.seq)

    def _first(self, point: Any) -> int:
        return 0 if point.cursor is None else point.cursor + 1

    def _message(self, seq: int) -> Message:
        says: Any = Progress()
        if seq == 0:
            says = SessionOpened(f"token of {self.lease.key}")
        elif seq > self.last:
            says = TurnEnded("success")
        return Message(seq, says)

    @asynccontextmanager
    async def _open_scripted(self, point: Any) -> AsyncIterator[Any]:
        self.note("opened")

        async def stream() -> AsyncIterator[Message]:
            for count, seq in enumerate(range(self._first(point), self.last + 2)):
                if self.breaks and count == self.breaks:
                    raise ConnectionError("reset")
                await anyio.sleep(self.every)
                self.note("emitted", seq=seq)
                yield self._message(seq)

        yield stream()

    @asynccontextmanager
    async def _open_hanging(self, point: Any) -> AsyncIterator[Any]:
        self.note("opened")

        async def stream() -> AsyncIterator[Message]:
            if point.token is None:
                yield self._message(0)
                await anyio.sleep(3600)
            yield self._message(1)
            yield Message(2, TurnEnded("success"))

        yield stream()

    @asynccontextmanager
    async def _open_failing(self, point: Any) -> AsyncIterator[Any]:
        self.note("opened")
        if point.token != "never":
            raise ConnectionError("not today")
        yield

    @asynccontextmanager
    async def _open_tools(self, point: Any) -> AsyncIterator[Any]:
        self.note("opened")

        async def stream() -> AsyncIterator[Message]:
            yield Message(1, WorkStarted("t1", "Bash"))
            for seq in range(2, 1000):
                await anyio.sleep(self.every)
                yield Message(seq, Progress())

        yield stream()

    @asynccontextmanager
    async def _open_process(self, point: Any) -> AsyncIterator[Any]:
        self.note("opened")
        words = (
            self.lease.key,
            str(self.lease.token),
            str(self._first(point)),
            str(self.last + 1),
            str(self.every),
            "polite" if self.spec.get("where") == "backoff" else "deaf",
        )
        process = await anyio.open_process(
            [sys.executable, "-I", "-S", str(BACKEND), self.worker.config["log"], *words],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.note("spawned", backend=process.pid)

        async def disconnect() -> None:
            self.note("disconnecting")
            await anyio.sleep(float(self.spec.get("closing", 0.0)))  # type: ignore[arg-type]
            self.note("disconnected")

        async def stream() -> AsyncIterator[Message]:
            where = self.spec.get("where")
            assert process.stdout is not None
            rest = b""
            async for chunk in process.stdout:
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    seq = int(line)
                    if where == "between" and seq == 3:
                        yield Message(seq, TurnEnded("success"))
                        return
                    yield self._message(seq)
                    if where in {"backoff", "closing"} and seq == 3:
                        raise ConnectionError("reset")
                    if where == "idle" and seq == 3:
                        await anyio.sleep(3600)

        connection: Any = stream()
        if self.spec.get("where") == "between":
            connection = lambda _prompt: stream()  # noqa: E731 - one that takes further prompts
        yield Connection(connection, process=process, disconnect=disconnect)


def main() -> None:
    config = json.loads(sys.argv[1])
    for fault in config.get("faults", ()):
        FAULTS[fault]()
    if config.get("processes"):
        sentinel.start_helper()
    sys.stdin.readline()
    anyio.run(Worker(config).serve, backend=config.get("loop", "asyncio"))


if __name__ == "__main__":
    main()
