"""How late a verdict is: for one stream, and for 10,000 whose deadlines fall together.

Three instants, each less the deadline (the start of the pull plus the window):

    decided   the limit was found reached and confirmed, the pull is cut (`verdict.lateness`)
    told      the pull has unwound, the verdict is final: observers get `TimedOut`
    raised    the consumer has its error

The first is what a guard must hold: what comes after it takes as long as the source and its
consumer take to unwind (T2, T3).
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import anyio
import trio

from benchmarks.figures import Figure
from benchmarks.race import LOOPS, percentile, run
from benchmarks.sources import silent
from streamguard import IdleTimeoutError, idle_guard
from streamguard.events import Event, TimedOut

_HOLD = {"asyncio": 0.05, "uvloop": 0.05, "trio": 0.15}
_HOLD_ALONE = 0.005
_WINDOW = 0.02
_clock = time.perf_counter


@dataclass
class Lateness:
    """What was noted of all verdicts."""

    decided: list[float] = field(default_factory=list[float])
    told: list[float] = field(default_factory=list[float])
    raised: list[float] = field(default_factory=list[float])


def measure(streams: int, verdicts: int, repeats: int) -> list[Figure]:
    figures: list[Figure] = []
    for loop in LOOPS:
        figures += _figures(
            "lateness, one stream", loop, [run(loop, _one_by_one, loop, verdicts)], _HOLD_ALONE
        )
        group = f"lateness, {streams:,} together"
        figures += _beside_a_peer(group, loop, streams, repeats)
    return figures


def _beside_a_peer(group: str, loop: str, streams: int, repeats: int) -> list[Figure]:
    together: list[Lateness] = []
    late: list[float] = []
    for _ in range(repeats):
        together.append(run(loop, _together, loop, streams))
        late.append(percentile(run(loop, _peers_together, loop, streams), 99))
    mine = _figures(group, loop, together, _HOLD[loop])
    raised = next(figure.value for figure in mine if figure.what == "raised, p99")
    peer = "trio.fail_after" if loop == "trio" else "asyncio.timeout"
    theirs = min(late) * 1e3
    return [
        *mine,
        Figure(group=group, loop=loop, what=f"{peer}, raised, p99", value=theirs, unit="ms"),
        Figure(
            group=group,
            loop=loop,
            what=f"raised / {peer}, raised",
            value=raised / theirs,
            unit="x",
            hold=1.0,
        ),
    ]


def _figures(group: str, loop: str, runs: list[Lateness], hold: float) -> list[Figure]:
    figures: list[Figure] = []
    for instant in ("decided", "told", "raised"):
        values = sorted(percentile(getattr(one, instant), 99) * 1e3 for one in runs)
        figures.append(
            Figure(
                group=group,
                loop=loop,
                what=f"{instant}, p99",
                value=values[0],
                median=values[len(values) // 2],
                unit="ms",
                hold=hold * 1e3 if instant == "decided" else None,
            )
        )
    return figures


async def _guarded(loop: str, window: float, late: Lateness) -> None:
    deadline = _clock() + window

    def note(event: Event) -> None:
        if isinstance(event, TimedOut):
            late.told.append(_clock() - deadline)
            late.decided.append(event.verdict.lateness)

    try:
        async for _ in silent(loop) | idle_guard(window, observer=note):
            pass
    except IdleTimeoutError:
        late.raised.append(_clock() - deadline)


async def _one_by_one(loop: str, verdicts: int) -> Lateness:
    await _guarded(loop, _WINDOW, Lateness())
    late = Lateness()
    for _ in range(verdicts):
        await _guarded(loop, _WINDOW, late)
    return late


async def _together(loop: str, streams: int) -> Lateness:
    late = Lateness()
    await _at_once(lambda window: _guarded(loop, window, late), streams)
    assert len(late.told) == len(late.raised) == streams
    return late


async def _at_once(wait: Callable[[float], Awaitable[None]], streams: int) -> None:
    """Start `streams` waits, one after another, that all end at the same instant.

    By then the collector has seen them once, as it has where they have waited for long.
    """
    end = _clock() + max(1.0, streams * 2e-4)
    async with anyio.create_task_group() as tasks:
        for _ in range(streams):
            tasks.start_soon(_wait_until, wait, end)
        await anyio.wait_all_tasks_blocked()
        gc.collect()
        assert _clock() < end, "this machine is too busy to start so many in time"


async def _wait_until(wait: Callable[[float], Awaitable[None]], end: float) -> None:
    await wait(end - _clock())


# -- today's timeouts ------------------------------------------------------------------------


async def _peers_together(loop: str, streams: int) -> list[float]:
    late: list[float] = []
    wait = _with_trio if loop == "trio" else _with_asyncio
    await _at_once(lambda window: wait(loop, window, late), streams)
    assert len(late) == streams
    return late


async def _with_asyncio(loop: str, window: float, late: list[float]) -> None:
    deadline = _clock() + window
    try:
        async with asyncio.timeout(window):
            await anext(silent(loop))
    except TimeoutError:
        late.append(_clock() - deadline)


async def _with_trio(loop: str, window: float, late: list[float]) -> None:
    deadline = _clock() + window
    try:
        with trio.fail_after(window):
            await anext(silent(loop))
    except trio.TooSlowError:
        late.append(_clock() - deadline)
