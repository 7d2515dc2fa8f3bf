"""Wakes sleepers when their time has come: one alarm per loop, however many streams.

A sleeper is woken once for each `put`, is told the time, and may ask to be heard again after
the loop has made its passes, by when whatever had arrived has been handed over (T4, T9). Sleepers
are held weakly: an abandoned stream costs nothing but its entry, until that entry's time (O7).
One that fails is logged and woken again later; the others, and the run, go on.
Knows neither asyncio nor trio: a loop's own module says how an alarm is set and passes are made.
"""

from __future__ import annotations

import itertools
import logging
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextvars import Context
from heapq import heapify, heappop, heappush
from typing import Final, Protocol, TypeAlias

# One pass for each relay between the pull and what it waits for: task, its callback, its waiter.
PASSES: Final = 3
# A failing sleeper is woken again after so long: a guard that gave up would guard nothing.
_RETRY: Final = 1.0
# How many forgotten entries the heap may hold before they are looked for.
_MANY: Final = 64

logger = logging.getLogger("streamguard")


class Sleeper(Protocol):
    """Who can be woken. `entry` belongs to the timekeeper.

    It is called in `context`: an alarm is everybody's, what follows from it is not.
    """

    entry: Entry | None
    context: Context

    def on_time(self, now: float) -> bool:
        """The time has come. True: call `on_confirmed` after the passes."""
        ...

    def on_confirmed(self, now: float) -> None:
        """The loop has made its passes."""
        ...


Entry: TypeAlias = "tuple[float, int, weakref.ref[Sleeper]]"


class Timekeeper(ABC):
    """The heap of a loop's sleepers. Entries are tuples, so the heap compares them in C."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._heap: list[Entry] = []
        self._numbers = itertools.count()
        self._forgotten = 0

    def put(self, sleeper: Sleeper, when: float) -> None:
        """Wake `sleeper` at `when`, instead of whatever was set before."""
        if sleeper.entry is not None:
            self._forgotten += 1
        sleeper.entry = entry = (when, next(self._numbers), weakref.ref(sleeper))
        heappush(self._heap, entry)
        if self._heap[0] is entry:
            self.set_alarm(when)

    def drop(self, sleeper: Sleeper) -> None:
        """Forget `sleeper`; with the last one the alarm goes too."""
        if sleeper.entry is None:
            return
        sleeper.entry = None
        self._forgotten += 1
        if self._forgotten > max(_MANY, len(self._heap) // 2):
            # Many short streams with a long window: their entries would pile up until then.
            self._heap = [entry for entry in self._heap if _is_valid(entry)]
            heapify(self._heap)
            self._forgotten = 0
        while self._heap and not _is_valid(self._heap[0]):
            self._pop()
        if not self._heap:
            self.set_alarm(None)

    def ring(self) -> None:
        """The alarm went off: wake all whose time has come."""
        now = self._clock()
        curious = [s for s in list(self._due(now)) if self._call(s, s.on_time, now)]
        if curious:
            self.after_passes(lambda: self._confirm(curious))
        self.set_alarm(self._heap[0][0] if self._heap else None)

    def _due(self, now: float) -> Iterable[Sleeper]:
        while self._heap and self._heap[0][0] <= now:
            if (sleeper := self._pop()) is not None:
                sleeper.entry = None
                yield sleeper

    def _pop(self) -> Sleeper | None:
        """Take the first entry off the heap: its sleeper, unless it was forgotten."""
        entry = heappop(self._heap)
        if _is_valid(entry):
            return entry[2]()
        self._forgotten = max(0, self._forgotten - 1)
        return None

    def _confirm(self, sleepers: Iterable[Sleeper]) -> None:
        for sleeper in sleepers:
            self._call(sleeper, sleeper.on_confirmed, self._clock())

    def _call(self, sleeper: Sleeper, method: Callable[[float], object], now: float) -> bool:
        try:
            return bool(sleeper.context.run(method, now))
        except Exception:
            logger.exception("%r failed when its time had come; it is asked again", sleeper)
            if sleeper.entry is None:
                self.put(sleeper, now + _RETRY)
            return False

    @abstractmethod
    def set_alarm(self, when: float | None) -> None:
        """Call `ring` at `when` or, by the loop's own resolution, a little later."""

    @abstractmethod
    def after_passes(self, function: Callable[[], None]) -> None:
        """Call `function` when the loop has run everything now ready, `PASSES` times over."""


def _is_valid(entry: Entry) -> bool:
    sleeper = entry[2]()
    return sleeper is not None and sleeper.entry is entry
