"""A worker of the fleet's benchmark: `python -m benchmarks.fleet_worker ADDRESS SETTINGS`, with its settings as JSON.

A session's spec says how many messages come and how long each takes to come. It says what it measured as one line of JSON
for each thing that was asked for; `began` of each session, if `tells`.
"""

from __future__ import annotations

import json
import logging
import resource
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio

from streamguard import ResumePoint, idle_guard, reconnecting_resume, session
from streamguard._base.boottime import boottime
from streamguard.fleet import Lease, LocalEngine, store_at
from streamguard.signals import Progress, SessionOpened, TurnEnded


class Work:
    """What this worker's sessions do, and what came of it."""

    def __init__(self, *, tells: bool) -> None:
        self.begun = self.delivered = self.done = 0
        self._tells = tells

    async def handle(self, lease: Lease) -> None:
        self.begun += 1
        if self._tells:
            say(began=lease.key, at=boottime(), token=lease.token)
        guarded = session(opener(lease.spec), point=lease.resume_point()) | idle_guard(
            180, read=of
        )
        async with guarded | reconnecting_resume(dedupe_by=number) as chat:
            async for _ in chat:
                self.delivered += 1
        self.done += 1


def say(**words: Any) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


def of(message: tuple[int, Any]) -> Any:
    return message[1]


def number(message: tuple[int, Any]) -> int:
    return message[0]


def opener(spec: Any) -> Any:
    last, every = spec["messages"], spec["every"]

    @asynccontextmanager
    async def opened(point: ResumePoint) -> AsyncIterator[Any]:
        async def stream() -> AsyncIterator[Any]:
            cursor: Any = point.cursor
            for n in range(0 if cursor is None else cursor + 1, last):
                if every:
                    await anyio.sleep(every)
                yield n, SessionOpened("s") if n == 0 else Progress()
            yield last, TurnEnded("success")

        yield stream()

    return opened


async def serve(address: str, settings: dict[str, Any]) -> None:
    store = store_at(address)
    engine = LocalEngine(store, **settings["engine"])
    work = Work(tells=settings.get("tells", False))
    if seconds := settings.get("watched"):
        async with anyio.create_task_group() as group:
            group.start_soon(engine.serve, work.handle)
            await watch(work, settings["sessions"], seconds)
            group.cancel_scope.cancel()
    else:
        began = time.monotonic()
        await engine.serve(work.handle, until_idle=True)
        say(done=work.done, took=time.monotonic() - began)


async def watch(work: Work, sessions: int, seconds: float) -> None:
    """What so many sessions cost while they run, and how often one was begun again."""
    while work.begun < sessions:
        await anyio.sleep(0.05)
    await anyio.sleep(2)
    delivered, cpu, began = work.delivered, time.process_time(), time.monotonic()
    late = 0.0
    while (now := time.monotonic()) < began + seconds:
        await anyio.sleep(0.01)
        late = max(late, time.monotonic() - now - 0.01)
    took = time.monotonic() - began
    say(
        cpu=(time.process_time() - cpu) / took,
        rate=(work.delivered - delivered) / took,
        again=work.begun - sessions,
        late=late,
        memory=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )


def main() -> None:
    logging.getLogger("streamguard").setLevel(logging.CRITICAL)
    settings = json.loads(sys.argv[2])
    say(up=True)
    sys.stdin.readline()
    anyio.run(serve, sys.argv[1], settings, backend=settings.get("loop", "asyncio"))


if __name__ == "__main__":
    main()
