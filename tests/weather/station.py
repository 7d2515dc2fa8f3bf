"""A process with one loop, in which sessions run side by side: `python -m tests.weather.station '{...}'`.

It writes a line for each session that is over, for each reading of its gauges, and for each complaint.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from tests.weather import gauges, judge, runs, sessions
from tests.weather.plans import Plan, plan

_LOOKS_EVERY = 5.0


class Station:
    def __init__(self, config: dict[str, Any], say: Callable[..., None]) -> None:
        self._seed, self._loop = str(config["seed"]), config["loop"]
        self._full = Path(config["full"]) if config.get("full") else None
        self._keep = Path(config["keep"])
        self._numbers = iter(config["numbers"] or range(1, 10**9))
        self._until = time.monotonic() + config["seconds"]
        self._width = config["width"]
        self._say = say
        self._over = 0
        self._began = time.monotonic()

    async def serve(self) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self._look)
            group.start_soon(self._step_the_clock)
            async with anyio.create_task_group() as players:
                for _ in range(self._width):
                    players.start_soon(self._play)
            group.cancel_scope.cancel()

    async def _play(self) -> None:
        while time.monotonic() < self._until and (number := next(self._numbers, None)) is not None:
            await self._session(plan(self._seed, self._loop, number))

    async def _session(self, drawn: Plan) -> None:
        folder = Path(tempfile.mkdtemp(prefix="session-", dir=self._keep))
        if drawn.command:
            seen = await runs.play(drawn, folder)
        else:
            seen = await sessions.play(drawn, folder, self._full)
        wrong = await anyio.to_thread.run_sync(lambda: list(judge.complaints(seen)))
        self._over += 1
        self._say(
            "session",
            name=drawn.name,
            messages=len(seen.got),
            reconnects=seen.reconnects,
            verdicts=len(seen.verdicts),
            processes=sum(line["did"] == "began" for line in judge.truth_of(seen.log)),
            blocked=len(seen.blocked),
            took=round(seen.took, 2),
        )
        for each in wrong:
            self._say("complaint", name=drawn.name, what=each, kept=str(folder))
        if not wrong:
            shutil.rmtree(folder, ignore_errors=True)

    async def _look(self) -> None:
        while True:
            tasks = self._tasks()
            reading = gauges.read(time.monotonic() - self._began, self._over, tasks)
            self._say("reading", **reading.as_data())
            await anyio.sleep(_LOOKS_EVERY)

    def _tasks(self) -> int:
        if self._loop == "trio":
            import trio

            return trio.lowlevel.current_statistics().tasks_living
        return len(asyncio.all_tasks())

    async def _step_the_clock(self) -> None:
        """The clock on the wall is set, to and fro; no limit goes by it."""
        draw, real = random.Random(self._seed), time.time
        try:
            while True:
                step = draw.choice((0.0, -3600.0, 86400.0, -1.5))
                time.time = lambda step=step: real() + step
                await anyio.sleep(draw.uniform(1, 4))
        finally:
            time.time = real


def main() -> None:
    logging.disable()
    config = json.loads(sys.argv[1])

    def say(kind: str, **facts: Any) -> None:
        print(json.dumps({"kind": kind, "loop": config["loop"], **facts}), flush=True)

    station = Station(config, say)
    options = {"use_uvloop": True} if config["loop"] == "uvloop" else {}
    backend = "trio" if config["loop"] == "trio" else "asyncio"
    anyio.run(partial(station.serve), backend=backend, backend_options=options)
    say("done")


if __name__ == "__main__":
    main()
