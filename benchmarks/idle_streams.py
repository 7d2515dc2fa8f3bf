"""10,000 idle streams: what each costs in memory, and how often the process wakes for them.

Memory is what `tracemalloc` has counted since before the first task was made, for tasks that are all
parked in `async for` over a generator that waits, divided by their number.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import anyio
import trio
import trio.testing

from benchmarks.figures import Figure
from benchmarks.race import LOOPS, run
from benchmarks.sources import exhaust, silent
from streamguard import IdleTimeoutError, idle_guard

Consume = Callable[[AsyncIterator[Any]], Coroutine[Any, Any, None]]

_IDLE = idle_guard(180)
_WINDOW = 0.5
_WATCHED = 100


async def _guarded(source: AsyncIterator[Any]) -> None:
    async for _ in source | _IDLE:
        pass


async def _hosted(source: AsyncIterator[Any]) -> None:
    async with source | _IDLE as messages:
        async for _ in messages:
            pass


def measure(streams: int, repeats: int) -> list[Figure]:
    figures: list[Figure] = []
    for loop in LOOPS:
        figures += _memory(loop, streams)
        figures += _wakeups(loop, repeats)
    return figures


# -- memory ----------------------------------------------------------------------------------


def _memory(loop: str, streams: int) -> list[Figure]:
    ways: dict[str, Consume] = {
        "bare": exhaust,
        "guarded": _guarded,
        "guarded, async with": _hosted,
    }
    sizes = {name: run(loop, _size, loop, consume, streams) for name, consume in ways.items()}
    figures = [
        Figure(group="memory", loop=loop, what=name, value=size, unit="bytes per stream")
        for name, size in sizes.items()
    ]
    ratio = sizes["guarded"] / sizes["bare"]
    figures.append(
        Figure(group="memory", loop=loop, what="guarded / bare", value=ratio, unit="x", hold=1.3)
    )
    return figures


async def _size(loop: str, consume: Consume, streams: int) -> float:
    park = _park_trio if loop == "trio" else _park_asyncio
    await park(consume, 10)  # whatever is made once is made before
    gc.collect()
    tracemalloc.start()
    try:
        return await park(consume, streams)
    finally:
        tracemalloc.stop()


async def _park_asyncio(consume: Consume, streams: int) -> float:
    """Bytes per stream while `streams` of them are parked, each in a plain task."""
    before = _traced()
    tasks = [asyncio.create_task(consume(silent("asyncio"))) for _ in range(streams)]
    await anyio.wait_all_tasks_blocked()
    gc.collect()
    size = (_traced() - before) / streams
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return size


async def _park_trio(consume: Consume, streams: int) -> float:
    before = _traced()
    async with trio.open_nursery() as nursery:
        for _ in range(streams):
            nursery.start_soon(consume, silent("trio"))
        await trio.testing.wait_all_tasks_blocked()
        gc.collect()
        size = (_traced() - before) / streams
        nursery.cancel_scope.cancel()
    return size


def _traced() -> int:
    return tracemalloc.get_traced_memory()[0]


# -- wakeups ---------------------------------------------------------------------------------


def _wakeups(loop: str, repeats: int) -> list[Figure]:
    """How often the process went to sleep in one window, from first pull to verdict.

    Voluntary context switches, as the kernel counts them, so that no loop and no timekeeper
    has to be believed. The switches of as long a sleep of the loop alone are taken off.
    """
    counts = {
        streams: min(run(loop, _switches, loop, streams) for _ in range(repeats))
        for streams in (1, _WATCHED)
    }
    return [
        Figure(
            group="wakeups",
            loop=loop,
            what=f"per window and stream, {streams} stream{'s' * (streams > 1)}",
            value=count / streams,
            unit="wakeups",
            hold=2.0,
        )
        for streams, count in counts.items()
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
