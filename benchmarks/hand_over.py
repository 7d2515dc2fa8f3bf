"""What it costs per message that a stream has a task of its own (R2): one message, two switches.

A cost is what is added to the source alone, in CPU time of one interleaved race. Beside a session's
slot run the channels that one would otherwise take: without a buffer, since nothing may be read
ahead.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio

from benchmarks.figures import Figure
from benchmarks.race import LOOPS, Contestant, Laps, race, run
from benchmarks.sources import buffered, exhaust
from streamguard import ResumePoint, idle_guard, keep_alive, reconnecting_resume, session

BARE = "source alone"
SESSION = "session | idle_guard | reconnecting_resume"
KEPT = "the same | keep_alive"
CHANNEL = "anyio memory channel, no guard"
SAFE_CHANNEL = "trio.as_safe_channel, no guard"
HOLD = 8_000.0


def measure(rounds: int, n: int) -> list[Figure]:
    figures: list[Figure] = []
    for loop in LOOPS:
        laps = run(loop, race, _contestants(loop), rounds, n // 4)
        bare = laps[BARE]
        figures += [_cost(loop, name, lap, bare) for name, lap in laps.items() if lap is not bare]
        peer = SAFE_CHANNEL if loop == "trio" else CHANNEL
        figures.append(
            Figure(
                group="hand-over",
                loop=loop,
                what=f"{SESSION} / {peer.removesuffix(', no guard')}",
                value=(laps[SESSION].best - bare.best) / (laps[peer].best - bare.best),
                unit="x",
            )
        )
    return figures


def _cost(loop: str, name: str, lap: Laps, bare: Laps) -> Figure:
    return Figure(
        group="hand-over",
        loop=loop,
        what=name,
        value=(lap.best - bare.best) * 1e9,
        median=(lap.median - bare.median) * 1e9,
        unit="ns added",
        hold=HOLD if name == SESSION and loop == "asyncio" else None,
    )


def _contestants(loop: str) -> dict[str, Contestant]:
    contestants: dict[str, Contestant] = {
        BARE: lambda n: exhaust(buffered(n)),
        SESSION: _session,
        KEPT: _kept_alive,
        CHANNEL: _channel,
    }
    if loop == "trio":
        contestants[SAFE_CHANNEL] = _safe_channel
    return contestants


async def _session(n: int) -> None:
    async with session(_opener(n)) | idle_guard(180) | reconnecting_resume() as chat:
        await exhaust(aiter(chat))


async def _kept_alive(n: int) -> None:
    guarded = session(_opener(n)) | idle_guard(180) | reconnecting_resume()
    async with guarded | keep_alive(15, bytes) as chat:
        await exhaust(aiter(chat))


def _opener(n: int) -> Any:
    @asynccontextmanager
    async def opened(_point: ResumePoint) -> AsyncIterator[Any]:
        yield buffered(n)

    return opened


async def _channel(n: int) -> None:
    send, receive = anyio.create_memory_object_stream[Any](0)

    async def pump() -> None:
        async with send:
            async for message in buffered(n):
                await send.send(message)

    async with anyio.create_task_group() as tg, receive:
        tg.start_soon(pump)
        await exhaust(aiter(receive))


async def _safe_channel(n: int) -> None:
    import trio

    @trio.as_safe_channel
    async def messages() -> AsyncIterator[Any]:
        async for message in buffered(n):
            yield message

    async with messages() as receive:
        await exhaust(aiter(receive))
