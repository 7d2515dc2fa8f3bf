"""Workers on Temporal in a process that can be killed and stopped, until it drains on SIGTERM.

    python -m tests.fleet.children.temporal_worker ADDRESS TRUTH TTL COUNT KIND=QUEUE ...

It says that it is there as soon as all of them serve. `COUNT`: messages of each session.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from temporalio.client import Client

from tests.fleet.temporal_kinds import KINDS, Truth


async def main(address: str, truth: str, ttl: str, count: str, *queues: str) -> None:
    client = await Client.connect(address)
    handler = Truth(Path(truth)).handler("child", int(count))
    async with asyncio.TaskGroup() as group:
        for each in queues:
            kind, _, queue = each.partition("=")
            knobs = {"task_queue": queue, "ttl": float(ttl), "flush": 0.25}
            worker = KINDS[kind](client, **knobs)
            group.create_task(worker.serve(handler, drain_on=[signal.SIGTERM]))
        sys.stdout.write("here\n")
        sys.stdout.flush()


asyncio.run(main(*sys.argv[1:]))
