"""What each of many idle streams costs while nothing happens: its memory, and the collector's work.

The streams are parked, each in a plain task, in `async for` over a generator that waits. Memory is what `tracemalloc` has counted
since before the first task was made, divided by their number. The collector's work is one collection of everything: what the
program's own collections of the oldest generation are made of, and what a loop stands still for.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
import tracemalloc
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import anyio
import trio
import trio.testing

from benchmarks.figures import Figure
from benchmarks.peers import PEERS
from benchmarks.race import LOOPS, run
from benchmarks.sources import exhaust, silent
from streamguard import idle_guard

Consume = Callable[[AsyncIterator[Any]], Coroutine[Any, Any, None]]

BARE = "bare"
GUARDED = "guarded"
HOSTED = "guarded, async with"

_IDLE = idle_guard(180)
# Bytes that a guarded stream may need beyond the bare one. What a block and trio need is what they were measured at.
_HOLDS: dict[str, dict[str, float]] = {
    "asyncio": {GUARDED: 1300.0, HOSTED: 3300.0},
    "uvloop": {GUARDED: 1300.0, HOSTED: 3300.0},
    "trio": {GUARDED: 2450.0, HOSTED: 4250.0},
}
# And the peer that it is to stay below.
_ABOVE_WAIT_FOR = sys.version_info < (3, 12)  # since then that one is `asyncio.timeout`
_BELOW = "anyio.fail_after"
_COLLECTED = (BARE, GUARDED, _BELOW)


async def _guarded(source: AsyncIterator[Any]) -> None:
    async for _ in source | _IDLE:
        pass


async def _hosted(source: AsyncIterator[Any]) -> None:
    async with source | _IDLE as messages:
        async for _ in messages:
            pass


def _ways(loop: str) -> dict[str, Consume]:
    return {BARE: exhaust, GUARDED: _guarded, HOSTED: _hosted, **PEERS[loop]}


def measure(streams: int, most: int, repeats: int) -> list[Figure]:
    figures: list[Figure] = []
    for loop in LOOPS:
        figures += _memory(loop, streams)
    for loop in LOOPS:
        figures += _tracked(loop, streams // 10)
    return figures + _collections(most, repeats)


def _figure(
    group: str, loop: str, what: str, value: float, unit: str, *, hold: float | None = None
) -> Figure:
    return Figure(group=group, loop=loop, what=what, value=value, unit=unit, hold=hold)


# -- memory ----------------------------------------------------------------------------------


def _memory(loop: str, streams: int) -> list[Figure]:
    sizes = {
        name: run(loop, _size, loop, consume, streams) for name, consume in _ways(loop).items()
    }
    bare = sizes.pop(BARE)
    above = {name: size - bare for name, size in sizes.items()}
    peers = [_BELOW]
    if _ABOVE_WAIT_FOR and loop != "trio":
        peers.insert(0, "asyncio.wait_for")
    return [
        _figure("memory", loop, BARE, bare, "bytes"),
        *(
            _figure(
                "memory", loop, f"{name}, above bare", size, "bytes", hold=_HOLDS[loop].get(name)
            )
            for name, size in above.items()
        ),
        *(
            _figure(
                "memory",
                loop,
                f"{GUARDED} / {peer}, above bare",
                above[GUARDED] / above[peer],
                "x",
                hold=1.0,
            )
            for peer in peers
        ),
    ]


async def _size(loop: str, consume: Consume, streams: int) -> float:
    async with _parked(loop, consume, 10):
        pass  # whatever is made once is made before
    gc.collect()
    tracemalloc.start()
    try:
        before = _traced()
        async with _parked(loop, consume, streams):
            gc.collect()
            return (_traced() - before) / streams
    finally:
        tracemalloc.stop()


def _traced() -> int:
    return tracemalloc.get_traced_memory()[0]


@asynccontextmanager
async def _parked(loop: str, consume: Consume, streams: int) -> AsyncGenerator[None]:
    """While `streams` of them are parked, each in a plain task."""
    if loop == "trio":
        async with trio.open_nursery() as nursery:
            for _ in range(streams):
                nursery.start_soon(consume, silent(loop))
            await trio.testing.wait_all_tasks_blocked()
            yield
            nursery.cancel_scope.cancel()
        return
    tasks = [asyncio.create_task(consume(silent(loop))) for _ in range(streams)]
    await anyio.wait_all_tasks_blocked()
    yield
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


# -- the collector ---------------------------------------------------------------------------


def _tracked(loop: str, streams: int) -> list[Figure]:
    """Of how many objects the collector must know, for each stream."""
    return [
        _figure(
            "collector",
            loop,
            f"{name}: tracked objects",
            run(loop, _objects, loop, consume, streams),
            "a stream",
        )
        for name, consume in _ways(loop).items()
    ]


async def _objects(loop: str, consume: Consume, streams: int) -> float:
    async with _parked(loop, consume, 10):
        pass
    gc.collect()
    before = len(gc.get_objects())
    async with _parked(loop, consume, streams):
        gc.collect()
        return (len(gc.get_objects()) - before) / streams


def _collections(streams: int, repeats: int) -> list[Figure]:
    """How long one collection of everything takes while so many are parked."""
    ways = _ways("asyncio")
    took = {name: run("asyncio", _collection, ways[name], streams, repeats) for name in _COLLECTED}
    what = f"one of all, {streams:,} streams"
    return [
        _figure("collector", "asyncio", f"{name}: {what}", seconds * 1e3, "ms")
        for name, seconds in took.items()
    ]


async def _collection(consume: Consume, streams: int, repeats: int) -> float:
    gc.collect()
    gc.freeze()  # what was there before is none of theirs
    gc.disable()
    try:
        async with _parked("asyncio", consume, streams):
            gc.collect()
            return min(_collecting() for _ in range(repeats))
    finally:
        gc.enable()
        gc.unfreeze()


def _collecting() -> float:
    began = time.process_time()
    gc.collect()
    return time.process_time() - began
