"""How often the process wakes for idle streams: in one window, from first pull to verdict.

Voluntary context switches, as the kernel counts them, so that no loop and no timekeeper has to be
believed. The switches of as long a sleep of the loop alone are taken off.
"""

from __future__ import annotations

import resource
from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from benchmarks.figures import Figure
from benchmarks.race import LOOPS, run
from benchmarks.sources import silent
from streamguard import IdleTimeoutError, idle_guard

_WINDOW = 0.5
_WATCHED = 100


def measure(repeats: int) -> list[Figure]:
    return [
        Figure(
            group="wakeups",
            loop=loop,
            what=f"per window and stream, {streams} stream{'s' * (streams > 1)}",
            value=min(run(loop, _switches, loop, streams) for _ in range(repeats)) / streams,
            unit="wakeups",
            hold=2.0,
        )
        for loop in LOOPS
        for streams in (1, _WATCHED)
    ]


async def _switches(loop: str, streams: int) -> int:
    asleep = await _counted(anyio.sleep, _WINDOW)
    guarded = await _counted(_hang, loop, streams)
    # The sleep's own alarm is a wakeup, as the verdict is one.
    return guarded - asleep + 1


async def _counted(function: Callable[..., Awaitable[object]], *args: Any) -> int:
    await anyio.sleep(0.01)
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    await function(*args)
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before


async def _hang(loop: str, streams: int) -> None:
    async with anyio.create_task_group() as tasks:
        for _ in range(streams):
            tasks.start_soon(_until_verdict, loop)
            await anyio.lowlevel.checkpoint()


async def _until_verdict(loop: str) -> None:
    try:
        async for _ in silent(loop) | idle_guard(_WINDOW):
            pass
    except IdleTimeoutError:
        pass
