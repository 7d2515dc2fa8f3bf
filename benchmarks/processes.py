"""Processes: how soon a death is noticed, and how long it takes to end a tree.

Deaths are watched in three ways at once, in one run: through the pidfd, and by looking now and
then, as peers do. Who looks is told by the pidfd, too, so only the interval counts. Trees are one
process and its children, all with a mark; each end includes the proof that nobody is left.
"""

from __future__ import annotations

import ctypes
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio

from benchmarks.figures import Figure
from benchmarks.race import LOOPS, percentile, run
from streamguard.process import ProcessTree, marked_env

_HOLD = 5.0  # ms that the notice of a death may take
_SIZES = (1, 10, 100, 300)
_clock = time.perf_counter

# A process that forks SIZE - 1 others; they wait for ever, and do not hear TERM if they are deaf.
_TREE = """
import os, signal, sys
if sys.argv[2] == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range(int(sys.argv[1]) - 1):
    if os.fork() == 0:
        break
else:
    os.write(1, b"ready\\n")
while True:
    signal.pause()
"""


def measure(deaths: int, intervals: tuple[float, ...], trees: int) -> list[Figure]:
    figures: list[Figure] = []
    for loop in LOOPS:
        figures += _noticed(loop, run(loop, _deaths, deaths, intervals))
    _adopt_orphans()
    for loop in LOOPS:
        for kind, grace in (("asked to end", 60.0), ("killed", 0.0)):
            for size in _SIZES:
                times = [run(loop, _end, size, grace) * 1e3 for _ in range(trees)]
                figures.append(
                    Figure(
                        group="tree ended",
                        loop=loop,
                        what=f"{size} process{'es' * (size > 1)}, {kind}",
                        value=min(times),
                        median=statistics.median(times),
                        unit="ms",
                    )
                )
    return figures


# -- deaths ----------------------------------------------------------------------------------


def _noticed(loop: str, lateness: dict[str, list[float]]) -> list[Figure]:
    return [
        Figure(
            group="death noticed",
            loop=loop,
            what=f"{way}, p{p}",
            value=percentile(late, p) * 1e3,
            unit="ms",
            hold=_HOLD if way == "pidfd" and p == 95 else None,
        )
        for way, late in lateness.items()
        for p in (50, 95)
    ]


async def _deaths(deaths: int, intervals: tuple[float, ...]) -> dict[str, list[float]]:
    """How late each way is, of so many deaths at random instants of the longest interval."""
    late: dict[str, list[float]] = {way: [] for way in ("pidfd", *map(_look, intervals))}
    chance = random.Random(0)
    async with anyio.create_task_group() as tasks:
        for _ in range(deaths):
            tasks.start_soon(_one_death, chance.uniform(0, max(intervals)), intervals, late)
    return late


def _look(interval: float) -> str:
    return f"a look every {interval:g} s"


async def _one_death(
    after: float, intervals: tuple[float, ...], late: dict[str, list[float]]
) -> None:
    process = subprocess.Popen(["sleep", "600"])
    killed = 0.0

    async def watch(way: str, dead: Callable[[], Awaitable[None]]) -> None:
        await dead()
        late[way].append(_clock() - killed)

    async def look(interval: float) -> None:
        while not tree.is_dead:
            await anyio.sleep(interval)

    with process, ProcessTree.adopt(process) as tree:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch, "pidfd", tree.wait_dead)
            for interval in intervals:
                tasks.start_soon(watch, _look(interval), lambda i=interval: look(i))
            await anyio.sleep(after)
            killed = _clock()
            process.kill()


# -- trees -----------------------------------------------------------------------------------


def _adopt_orphans() -> None:
    """Make their zombies ours to reap: left to init for seconds, they would lengthen later walks."""
    pr_set_child_subreaper = 36
    ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1, 0, 0, 0)


def _reap_orphans() -> None:
    with suppress(ChildProcessError):
        while True:
            os.wait()


async def _end(size: int, grace: float) -> float:
    kind = "deaf" if grace == 0 else "hears"
    command = [sys.executable, "-I", "-S", "-c", _TREE, str(size), kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=marked_env()) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with ProcessTree.adopt(process) as tree:
            began = _clock()
            ended = await tree.terminate(grace)
            took = _clock() - began
    _reap_orphans()
    assert ended.confirmed, ended
    assert ended.cause == ("killed" if grace == 0 else "terminated"), ended
    return took
