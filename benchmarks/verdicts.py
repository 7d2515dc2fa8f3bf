"""What one verdict costs, end to end: from a silent stream's first pull to the error in its consumer's hands.

CPU time of the whole way (start, wait, judgement, confirmation, cut, unwinding, error), beside that of peers around the same
stream; what `lateness` says of many at one instant, this says of one by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import anyio
import trio

from benchmarks.figures import Figure
from benchmarks.race import LOOPS, Contestant, race, run
from benchmarks.sources import silent
from streamguard import IdleTimeoutError, idle_guard

GUARD: Final = "idle_guard"
_WINDOW: Final = 0.001
_IDLE: Final = idle_guard(_WINDOW)
_PER_LAP: Final = 25
_CUT: Final = (IdleTimeoutError, TimeoutError, trio.TooSlowError)


def measure(rounds: int) -> list[Figure]:
    figures: list[Figure] = []
    for loop in LOOPS:
        laps = run(loop, race, _contestants(loop), rounds, _PER_LAP)
        figures += [
            Figure(
                group="a verdict",
                loop=loop,
                what=f"{what}, from the first pull to the error",
                value=lap.best * 1e6,
                median=lap.median * 1e6,
                unit="us",
            )
            for what, lap in laps.items()
        ]
        peer = "anyio.fail_after"
        figures.append(
            Figure(
                group="a verdict",
                loop=loop,
                what=f"{GUARD} / {peer}",
                value=laps[GUARD].best / laps[peer].best,
                unit="x",
            )
        )
    return figures


def _contestants(loop: str) -> dict[str, Contestant]:
    ways: dict[str, Callable[[Any], Awaitable[object]]] = {
        GUARD: _guarded,
        "anyio.fail_after": _with_anyio,
        **({"trio.fail_after": _with_trio} if loop == "trio" else _ASYNCIO),
    }
    return {name: _cut(loop, way) for name, way in ways.items()}


def _cut(loop: str, wait: Callable[[Any], Awaitable[object]]) -> Contestant:
    async def lap(n: int) -> None:
        for _ in range(n):
            with suppress(*_CUT):
                await wait(silent(loop))

    return lap


async def _guarded(source: Any) -> None:
    async for _ in source | _IDLE:
        pass


async def _with_anyio(source: Any) -> None:
    with anyio.fail_after(_WINDOW):
        await anext(source)


async def _with_trio(source: Any) -> None:
    with trio.fail_after(_WINDOW):
        await anext(source)


async def _with_timeout(source: Any) -> None:
    async with asyncio.timeout(_WINDOW):
        await anext(source)


async def _with_wait_for(source: Any) -> None:
    await asyncio.wait_for(anext(source), _WINDOW)


_ASYNCIO: Final = {"asyncio.timeout": _with_timeout, "asyncio.wait_for": _with_wait_for}
