"""What nobody listens to: a stream from its start to its end, with and without somebody who is told of it.

With no observer and a log that hears warnings only, which is how most run, a stream must cost what it costs where logging is
disabled, and no more than where nothing is ever told.
"""

from __future__ import annotations

import logging
import statistics
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final
from unittest import mock

from benchmarks.figures import Figure
from benchmarks.race import LOOPS, Contestant, Laps, race, run
from benchmarks.sources import buffered, exhaust
from streamguard import Operator, idle_guard
from streamguard.events.teller import Teller, logger

UNHEARD: Final = "nobody listens"
DISABLED: Final = "logging disabled"
SILENT: Final = "nothing is told"
OBSERVED: Final = "an observer"
LOGGED: Final = "a log that hears it all"
HOLD: Final = 1.05
_GUARD: Final = idle_guard(180)
_NOWHERE: Final = logging.NullHandler()
_OBSERVED: Final = idle_guard(180, observer=lambda _event: None)


def measure(rounds: int, n: int) -> list[Figure]:
    figures: list[Figure] = []
    for loop in LOOPS:
        laps = run(loop, race, _contestants(), rounds, n)
        figures += [_cost(loop, what, lap) for what, lap in laps.items()]
        figures += [_ratio(loop, laps, to) for to in (DISABLED, SILENT)]
    return figures


def _cost(loop: str, what: str, lap: Laps) -> Figure:
    return Figure(
        group="nobody listens",
        loop=loop,
        what=f"a stream's start and end, {what}",
        value=lap.best * 1e6,
        median=lap.median * 1e6,
        unit="us",
    )


def _ratio(loop: str, laps: dict[str, Laps], to: str) -> Figure:
    pairs = zip(laps[UNHEARD].values, laps[to].values, strict=True)
    return Figure(
        group="nobody listens",
        loop=loop,
        what=f"{UNHEARD} / {to}",
        value=laps[UNHEARD].best / laps[to].best,
        median=statistics.median(mine / theirs for mine, theirs in pairs),
        unit="x",
        hold=HOLD,
    )


def _contestants() -> dict[str, Contestant]:
    return {
        UNHEARD: _streams(_GUARD, lambda: _log_at(logging.WARNING)),
        DISABLED: _streams(_GUARD, lambda: _log_at(logging.CRITICAL + 1)),
        SILENT: _streams(_GUARD, lambda: mock.patch.object(Teller, "tell", _tell_nothing)),
        OBSERVED: _streams(_OBSERVED, lambda: _log_at(logging.WARNING)),
        LOGGED: _streams(_GUARD, lambda: _log_at(logging.DEBUG)),
    }


def _streams(guard: Operator, setting: Callable[[], AbstractContextManager[Any]]) -> Contestant:
    async def lap(n: int) -> None:
        with setting():
            for _ in range(n):
                await exhaust(aiter(buffered(1) | guard))

    return lap


def _tell_nothing(*_: object, **__: object) -> None:
    """As if a stream had nothing to tell."""


@contextmanager
def _log_at(level: int) -> Generator[None]:
    """A log that hears of that level and above, and writes nothing."""
    before, propagates = logger.level, logger.propagate
    logger.setLevel(level)
    logger.addHandler(_NOWHERE)
    logger.propagate = False
    try:
        yield
    finally:
        logger.setLevel(before)
        logger.removeHandler(_NOWHERE)
        logger.propagate = propagates
