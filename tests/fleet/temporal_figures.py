"""How much workers on Temporal's server for development do: figures, no tests.

    .ci/tools && python -m tests.fleet.temporal_figures [--file]

`--file`: the server writes to a disk. Sessions of three messages, submitted and run; and streams with 10 messages a second
each, with beats every second, and as many as there can be.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path

from streamguard.fleet import TemporalEngine
from tests.fleet.temporal import DevServer
from tests.fleet.temporal_kinds import Truth

SHORT, SECONDS = 300, 20.0


@asynccontextmanager
async def serving(workers, handler):
    tasks = [asyncio.ensure_future(worker.serve(handler)) for worker in workers]
    yield
    for worker in workers:
        worker.drain()
    await asyncio.gather(*tasks)


async def short_sessions(clients, truth: Truth) -> None:
    workers = [TemporalEngine(client, task_queue="short") for client in clients]
    began = time.monotonic()
    for n in range(SHORT):
        await workers[0].submit(f"short-{n}", {"prompt": "go"})
    print(f"submitted: {SHORT / (time.monotonic() - began):.0f} sessions/s")
    began = time.monotonic()
    async with serving(workers, truth.handler("short", count=3, pace=0)):
        while sum(line.number == 2 for line in truth.lines()) < SHORT:
            await asyncio.sleep(0.05)
        print(f"run, of 3 messages: {SHORT / (time.monotonic() - began):.0f} sessions/s")


async def streams(client, truth: Truth, count: int, flush: float) -> None:
    queue = f"long-{count}"
    worker = TemporalEngine(client, task_queue=queue, flush=flush, limit=count)
    took: list[float] = []
    beat = worker._beat

    async def timed(holding):
        began = time.monotonic()
        await beat(holding)
        took.append(time.monotonic() - began)

    worker._beat = timed
    for n in range(count):
        await worker.submit(f"{queue}-{n}", {"prompt": "go"})
    async with serving([worker], truth.handler("long", count=10_000)):
        while len(worker._held) < count:
            await asyncio.sleep(0.05)
        took.clear()
        began, cpu = time.monotonic(), time.process_time()
        await asyncio.sleep(SECONDS)
        lasted, cpu = time.monotonic() - began, time.process_time() - cpu
        took.sort()
        print(
            f"{count} streams, a beat every {flush:g} s: {len(took) / lasted:.0f} checkpoints/s, each {took[len(took) // 2] * 1000:.1f} ms (p50), "
            f"{took[-len(took) // 100] * 1000:.0f} ms (p99); {cpu / lasted:.0%} of a processor"
        )
        began = time.monotonic()
        rows = await worker.sessions()
        print(f"{len(rows)} sessions listed in {time.monotonic() - began:.2f} s")
        print(f"false expiries: {sum(row.attempt != 1 for row in rows)}")
        began = time.monotonic()
    print(f"{count} sessions handed on in {time.monotonic() - began:.2f} s")


async def main(*words: str) -> None:
    folder = Path(tempfile.mkdtemp())
    server = DevServer(folder, file="--file" in words)
    server.start()
    try:
        clients = [await server.client() for _ in range(2)]
        truth = Truth(folder / "truth")
        await short_sessions(clients, truth)
        await streams(clients[0], truth, 300, 1.0)
        await streams(clients[0], truth, 50, 0.01)
    finally:
        server.kill()


asyncio.run(main(*sys.argv[1:]))
