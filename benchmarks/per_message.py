"""What a guard costs per message, against one bare hop and against today's timeouts.

A cost is what is *added*: the best lap with the guard or the peer, less the best lap of the source
alone, from the same interleaved race. Ratios are ratios of such costs; their median is that of the
rounds, each a race of its own.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

from benchmarks.figures import Figure
from benchmarks.messages import OBJECTS as MESSAGES
from benchmarks.peers import PEERS
from benchmarks.race import LOOPS, Contestant, Laps, race, run
from benchmarks.sources import Hop, buffered, exhaust, lines, turn, waited
from streamguard import Activity, Operator, activity_stamp, idle_guard, idle_timeout
from streamguard import inflight_tool_gate as gate
from streamguard.signals import TurnEnded

Make = Callable[[int], AsyncIterator[Any]]

BARE = "source alone"
HOP = "one bare hop"
GUARD = "idle_guard(180)"
TOTAL = "idle_guard(180, total=14400)"
ALL = "idle_guard, every limit"
ALL_BUT_TOTAL = "idle_guard, every limit but total"
SIX = "six operators"
HOSTED = "async with idle_guard(180)"
CALLBACK = "idle_guard | activity_stamp(callback)"
OBJECTS = "idle_guard, Claude's objects"
CLAUDES = MESSAGES["claude, a message"]
LINES = "idle_guard, Claude's JSON lines"

_HOPS = {ALL: 2.7, ALL_BUT_TOTAL: 2.5}
_CALLBACK_HOLD = 1600.0  # ns
_WAIT_FOR_HOLD = 1 / 20 if sys.version_info < (3, 12) else 1 / 5


def all_but_total() -> Operator:
    """`idle_guard` with a disconnect and every limit that is judged while a pull waits."""
    return idle_guard(180, first=300, liveness=90, turn=3600, exit_grace=60, disconnect=_nothing)


def all_limits() -> Operator:
    """The same with `total`, for which a bare stream looks at the clock now and then (T1)."""
    return all_but_total() | idle_guard(180, total=14400)


def six() -> Operator:
    """Six operators in one pipe."""
    stamp = activity_stamp(Activity("six"))
    return idle_timeout(180) | gate() | stamp | idle_timeout(240) | gate(3600) | idle_guard(300)


def measure(rounds: int, n: int) -> list[Figure]:
    figures: list[Figure] = []
    for loop in LOOPS:
        ready = run(loop, race, _buffered(loop), rounds, n)
        figures += _costs("per message, ready", loop, ready)
        figures += _ready_ratios(loop, ready)
        waits = run(loop, race, _waited(loop), rounds, n // 4)
        figures += _costs("per message, waited for", loop, waits)
        figures += _waited_ratios(loop, waits)
    return figures


def _contestants(loop: str, make: Make) -> dict[str, Contestant]:
    contestants: dict[str, Contestant] = {
        BARE: lambda n: exhaust(make(n)),
        HOP: lambda n: exhaust(Hop(make(n))),
        GUARD: _guarded(make, lambda: idle_guard(180)),
        TOTAL: _guarded(make, lambda: idle_guard(180, total=14400)),
        ALL: _guarded(make, all_limits),
        ALL_BUT_TOTAL: _guarded(make, all_but_total),
        HOSTED: lambda n: _hosted(make(n)),
    }
    for name, peer in PEERS[loop].items():
        contestants[name] = _peer(make, peer)
    return contestants


def _buffered(loop: str) -> dict[str, Contestant]:
    contestants = _contestants(loop, buffered)
    contestants[SIX] = _guarded(buffered, six)
    contestants[CALLBACK] = _guarded(buffered, lambda: idle_guard(180) | _stamp)
    for name, messages in ((LINES, lines()), (OBJECTS, (CLAUDES, TurnEnded()))):
        contestants[name] = _guarded(_turn_of(*messages), lambda: idle_guard(180))
    return contestants


def _waited(loop: str) -> dict[str, Contestant]:
    return _contestants(loop, waited(loop))


def _guarded(make: Make, operator: Callable[[], Operator]) -> Contestant:
    return lambda n: exhaust(aiter(make(n) | operator()))


def _turn_of(said: Any, last: Any) -> Make:
    return lambda n: turn(n, said, last)


def _peer(make: Make, peer: Callable[[AsyncIterator[Any]], Awaitable[None]]) -> Contestant:
    return lambda n: peer(make(n))


async def _hosted(source: AsyncIterator[Any]) -> None:
    async with source | idle_guard(180) as messages:
        await exhaust(messages)


def _nothing(_: object = None) -> None:
    """A disconnect, or a stamp's callback."""


_stamp = activity_stamp(_nothing, every=1)


def _costs(group: str, loop: str, laps: dict[str, Laps]) -> list[Figure]:
    bare = laps[BARE]
    return [
        Figure(
            group=group,
            loop=loop,
            what=name,
            value=lap.best * 1e9 if lap is bare else (lap.best - bare.best) * 1e9,
            median=lap.median * 1e9 if lap is bare else (lap.median - bare.median) * 1e9,
            unit="ns" if lap is bare else "ns added",
            hold=_CALLBACK_HOLD if name == CALLBACK else None,
        )
        for name, lap in laps.items()
    ]


def _ratio(loop: str, laps: dict[str, Laps], what: str, to: str, hold: float | None) -> Figure:
    bare = laps[BARE]
    return Figure(
        group="ratios",
        loop=loop,
        what=f"{what} / {to}",
        value=(laps[what].best - bare.best) / (laps[to].best - bare.best),
        median=statistics.median(
            (mine - alone) / (theirs - alone)
            for mine, theirs, alone in zip(
                laps[what].values, laps[to].values, bare.values, strict=True
            )
        ),
        unit="x",
        hold=hold,
    )


def _ready_ratios(loop: str, laps: dict[str, Laps]) -> list[Figure]:
    """Every limit is what is meant by "full"; what a bare `total` adds is told apart."""
    holds = (
        {"trio.fail_after": 1 / 10}
        if loop == "trio"
        else {HOP: None, "asyncio.wait_for": _WAIT_FOR_HOLD}
    )
    ratios = [
        _ratio(loop, laps, what, to, _HOPS[what] if hold is None else hold)
        for to, hold in holds.items()
        for what in (ALL, ALL_BUT_TOTAL)
    ]
    return [*ratios, _ratio(loop, laps, SIX, GUARD, 1.2)]


def _waited_ratios(loop: str, laps: dict[str, Laps]) -> list[Figure]:
    if loop != "trio":
        return []
    ratios = [_ratio(loop, laps, what, "trio.fail_after", 1.0) for what in (ALL, ALL_BUT_TOTAL)]
    return [replace(ratio, what=f"each real wait: {ratio.what}") for ratio in ratios]
