"""A fleet on Temporal's server for development, if `.ci/tools` has installed it: the rows of `benchmarks.fleet` that an engine of its own can have.

There is no store by itself: each beat is one call to the server, which shares the cores with the workers and keeps all in memory.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from streamguard.fleet import TemporalEngine
from tests.fleet.temporal import DevServer, NoTemporalError
from tests.fleet.temporal_kinds import Truth

Tell = Callable[..., None]
KILLED, TTL = 40, 3.0


def measure(tell: Tell, sessions: int, seconds: float, most: int) -> None:
    """Tell each figure: what, value, unit, and what must hold."""
    folder = Path(tempfile.mkdtemp())
    try:
        server = DevServer(folder)
    except NoTemporalError:
        return
    server.start()
    try:
        truth = Truth(folder / "truth")
        asyncio.run(_measure(server, truth, tell, sessions, (seconds, most)))
    finally:
        server.kill()


async def _measure(
    server: DevServer, truth: Truth, tell: Tell, sessions: int, watched: tuple[float, int]
) -> None:
    seconds, most = watched
    clients = [await server.client() for _ in range(2)]
    await _short_sessions(clients, truth, tell, sessions)
    await _recovery(server, clients[0], truth, tell)
    for count in (1, 100, 300, 1000):
        if count <= most:
            await _many(clients[0], truth, tell, count, seconds)
    await _beats(clients[0], truth, tell, seconds)


@asynccontextmanager
async def _serving(workers: list[TemporalEngine], handler: Any):
    tasks = [asyncio.ensure_future(worker.serve(handler)) for worker in workers]
    yield
    for worker in workers:
        worker.drain()
    await asyncio.gather(*tasks)


async def _until(true: Callable[[], bool]) -> None:
    while not true():
        await asyncio.sleep(0.05)


async def _submit(engine: TemporalEngine, name: str, count: int) -> None:
    for number in range(count):
        await engine.submit(f"{name}-{number}", {"prompt": "go"})


async def _short_sessions(clients: list[Any], truth: Truth, tell: Tell, count: int) -> None:
    workers = [TemporalEngine(client, task_queue="short") for client in clients]
    await _submit(workers[0], "short", count)
    began = time.monotonic()
    async with _serving(workers, truth.handler("short", count=3, pace=0)):
        await _until(lambda: sum(line.number == 2 for line in truth.lines()) >= count)
        tell("sessions of 3 messages, 2 workers", count / (time.monotonic() - began), "a second")


async def _recovery(server: DevServer, client: Any, truth: Truth, tell: Tell) -> None:
    """From a worker's SIGKILL until the last of its sessions has begun elsewhere."""
    await _submit(
        TemporalEngine(client, task_queue="killed", ttl=TTL, flush=TTL / 8), "killed", KILLED
    )
    words = [server.address, str(truth._path), str(TTL), "10000", "sound=killed"]
    old = subprocess.Popen(
        [sys.executable, "-m", "tests.fleet.children.temporal_worker", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        await _until(lambda: len(truth.begun("child")) == KILLED)
        worker = TemporalEngine(client, task_queue="killed", ttl=TTL, flush=TTL / 8)
        async with _serving([worker], truth.handler("next", count=10_000)):
            await asyncio.sleep(1)
            killed = time.monotonic()
            os.kill(old.pid, signal.SIGKILL)
            await _until(lambda: len(truth.begun("next")) == KILLED)
            tell(
                f"{KILLED} sessions go on after SIGKILL, ttl={TTL:g}",
                max(truth.begun("next").values()) - killed,
                "s",
            )
    finally:
        old.kill()
        old.wait()


async def _many(client: Any, truth: Truth, tell: Tell, count: int, seconds: float) -> None:
    """One worker, with ever more sessions of ten messages a second; each beats once a second, or in five from 1,000 on."""
    name, flush = f"many{count}", 5.0 if count >= 1000 else 1.0
    worker = TemporalEngine(client, task_queue=name, flush=flush, limit=count)
    await _submit(worker, name, count)
    async with _serving([worker], truth.handler(name, count=100_000)):
        await _until(lambda: len(worker._held) >= count)
        began, cpu = time.monotonic(), time.process_time()
        await asyncio.sleep(seconds)
        lasted = time.monotonic() - began
        many = f"{count} session{'s' * (count > 1)}"
        tell(f"{many}, worker's CPU", (time.process_time() - cpu) / lasted * 100, "% of a core")
        rows = await worker.sessions()
        mine = [row for row in rows if row.key.startswith(f"{name}-")]
        tell(f"{many}, false expiries", sum(row.attempt != 1 for row in mine), "", 0)
    await _cancel(worker, name, count)


async def _beats(client: Any, truth: Truth, tell: Tell, seconds: float) -> None:
    """As many checkpoints as there can be, of fifty sessions that beat all the time."""
    worker = TemporalEngine(client, task_queue="beats", flush=0.04, limit=50)
    written = 0
    beat: Callable[[Any], Awaitable[None]] = worker._beat

    async def counted(holding: Any) -> None:
        nonlocal written
        await beat(holding)
        written += 1

    worker._beat = counted  # type: ignore[method-assign]
    await _submit(worker, "beats", 50)
    async with _serving([worker], truth.handler("beats", count=100_000)):
        await _until(lambda: len(worker._held) >= 50)
        written, began = 0, time.monotonic()
        await asyncio.sleep(seconds)
        tell("checkpoints", written / (time.monotonic() - began), "a second")
    await _cancel(worker, "beats", 50)


async def _cancel(engine: TemporalEngine, name: str, count: int) -> None:
    for number in range(count):
        await engine.cancel(f"{name}-{number}", "over")
