"""What it costs where work starts or ends that progress is judged, too: and nowhere else.

Messages are starts and ends of tools in turns, each with an input and an outcome as agents have them.
The same guard runs with `quiet` and `repeats` and without; a cost is the difference of the best laps of
one interleaved race. Of messages that are plain progress the difference must be lost in the noise.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

from benchmarks.figures import Figure
from benchmarks.race import LOOPS, Contestant, Laps, race, run
from benchmarks.sources import buffered, exhaust
from streamguard import Operator, idle_guard
from streamguard.signals import Signal, Usage, WorkFinished, WorkStarted

OFF: Final = "idle_guard, progress off"
ON: Final = "idle_guard, quiet and repeats"
LOOPING: Final = "the same, of a loop"
CEILING: Final = "the same, with ceilings"
HOLD: Final = 300.0
NOISE: Final = 15.0  # of 300: what the same race has with itself
_OFF: Final[dict[str, Any]] = {"quiet": None, "repeats": None}


def measure(rounds: int, n: int) -> list[Figure]:
    figures: list[Figure] = []
    for loop in LOOPS:
        work = run(loop, race, _contestants(), rounds, n // 2)
        figures += [
            _added(loop, "a start or an end of work", work, ON, OFF, hold=HOLD),
            _added(loop, "a start or an end, of a loop", work, LOOPING, OFF, hold=HOLD),
            _added(loop, "a message that tells usage", work, CEILING, f"{CEILING} off", hold=HOLD),
        ]
        plain = run(loop, race, _plain(), rounds, n)
        figures.append(_added(loop, "any other message", plain, ON, OFF, hold=NOISE))
    return figures


def _added(
    loop: str, what: str, laps: dict[str, Laps], on: str, off: str, *, hold: float | None = None
) -> Figure:
    return Figure(
        group="progress",
        loop=loop,
        what=what,
        value=(laps[on].best - laps[off].best) * 1e9,
        median=(laps[on].median - laps[off].median) * 1e9,
        unit="ns added",
        hold=hold,
    )


def _contestants() -> dict[str, Contestant]:
    return {
        OFF: _guarded(_working, idle_guard(180, **_OFF)),
        ON: _guarded(_working, idle_guard(180)),
        LOOPING: _guarded(_looping, idle_guard(180)),
        f"{CEILING} off": _guarded(_spending, idle_guard(180)),
        CEILING: _guarded(_spending, idle_guard(180, tokens=10**12, cost=10**6)),
    }


def _plain() -> dict[str, Contestant]:
    off, on = idle_guard(180, **_OFF), idle_guard(180)
    return {
        OFF: lambda n: exhaust(aiter(buffered(n) | off)),
        ON: lambda n: exhaust(aiter(buffered(n) | on)),
    }


def _guarded(make: Any, operator: Operator) -> Contestant:
    guard = operator.replace(read=_read)
    return lambda n: exhaust(aiter(make(n) | guard))


def _read(message: Signal) -> Signal:
    return message


async def _working(n: int) -> AsyncIterator[Signal]:
    """Each call is another one."""
    for number in range(n // 2):
        asked = {"command": f"pytest -q tests/part_{number}", "timeout": 120_000}
        yield WorkStarted("t", "Bash", input=asked)
        yield WorkFinished("t", outcome=f"{number} passed in 3.14s")


async def _looping(n: int) -> AsyncIterator[Signal]:
    asked = {"command": "pytest -q tests/part_1", "timeout": 120_000}
    for _ in range(n // 2):
        yield WorkStarted("t", "Bash", input=asked)
        yield WorkFinished("t", outcome="1 failed in 3.14s")


async def _spending(n: int) -> AsyncIterator[Signal]:
    for number in range(n):
        yield Usage({"input_tokens": 1000.0, "output_tokens": 50.0}, call=str(number))
