"""What there may be many of: streams, messages, operators, scopes."""

from __future__ import annotations

import asyncio
import functools
import operator
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any

import anyio
import trio
import trio.testing

from benchmarks.growth.curve import Growth, timed
from benchmarks.sources import buffered, exhaust, silent
from streamguard import Operator, idle_guard, idle_timeout, live, scope

_IDLE = idle_guard(180)
_STREAMS = (1, 10, 100, 1_000, 10_000, 100_000)
_MESSAGES = (1_000, 10_000, 100_000, 1_000_000)
_OPERATORS = (1, 10, 100, 1_000)
_PULLS = 2_000


async def _guarded(source: Any) -> None:
    async for _ in source | _IDLE:
        pass


async def _on_asyncio(n: int) -> Mapping[str, float]:
    with timed(n) as starting:
        tasks = [asyncio.create_task(_guarded(silent("asyncio"))) for _ in range(n)]
        await asyncio.sleep(0)  # each is parked after its first step
    looking = _look(n)
    with timed(n) as ending:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return {"start": starting.seconds, "live()": looking, "cancel": ending.seconds}


async def _on_trio(n: int) -> Mapping[str, float]:
    async with trio.open_nursery() as nursery:
        with timed(n) as starting:
            for _ in range(n):
                nursery.start_soon(_guarded, silent("trio"))
            await trio.testing.wait_all_tasks_blocked()
        looking = _look(n)
        with timed(n) as ending:
            nursery.cancel_scope.cancel()
            await _all_gone(nursery)
    return {"start": starting.seconds, "live()": looking, "cancel": ending.seconds}


async def _all_gone(nursery: trio.Nursery) -> None:
    with trio.CancelScope(shield=True):
        while nursery.child_tasks:
            await trio.lowlevel.checkpoint()


def _look(n: int) -> float:
    looks = max(1, 1000 // n)
    with timed(n * looks) as looking:
        for _ in range(looks):
            assert len(live()) == n
    return looking.seconds


async def _messages(n: int) -> Mapping[str, float]:
    stream = aiter(buffered(n + 1) | _IDLE)
    await anext(stream)  # what is done once is done before
    with timed(n) as watch:
        await exhaust(stream)
    return {"a message": watch.seconds}


async def _piping(n: int) -> Mapping[str, float]:
    return {
        "one more": _piped(n, lambda: idle_timeout(180))[0],
        "one more, with a disconnect": _piped(n, lambda: idle_guard(180, disconnect=lambda: None))[
            0
        ],
    }


async def _piped_messages(n: int) -> Mapping[str, float]:
    _, guard = _piped(n, lambda: idle_timeout(180))
    stream = aiter(buffered(_PULLS + 1) | guard)
    await anext(stream)
    with timed(_PULLS) as watch:
        await exhaust(stream)
    return {"a message": watch.seconds}


def _piped(n: int, make: Callable[[], Operator]) -> tuple[float, Operator]:
    with timed(n) as watch:
        guard = functools.reduce(operator.or_, (make() for _ in range(n)), _IDLE)
    return watch.seconds, guard


async def _scopes(n: int) -> Mapping[str, float]:
    with timed(n) as watch:
        async with AsyncExitStack() as stack:
            for _ in range(n):
                await stack.enter_async_context(scope("flow", timeout=600))
            await anyio.lowlevel.checkpoint()
    return {"one in all others": watch.seconds}


ROWS = (
    Growth(grows="streams", sizes=_STREAMS, lap=_on_asyncio, law="linear"),
    Growth(grows="streams", sizes=_STREAMS, lap=_on_trio, law="linear", loops=("trio",)),
    Growth(grows="messages", sizes=_MESSAGES, lap=_messages, law="constant"),
    Growth(grows="operators", sizes=_OPERATORS, lap=_piping, law="linear"),
    Growth(grows="operators", sizes=_OPERATORS, lap=_piped_messages, law="constant"),
    Growth(grows="scopes", sizes=(1, 10, 30, 100), lap=_scopes, law="linear"),
)
