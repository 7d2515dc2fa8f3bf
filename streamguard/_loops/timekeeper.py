"""Wakes sleepers when their time has come: one alarm per loop, however many streams.

A sleeper is woken once for each `put`, is told the time, and may ask to be heard again after
the loop has made its passes, by when whatever had arrived has been handed over (T4, T9). Who was
dropped, or put off, is not called any more, at whichever of these steps that happens: `entry` says
what a sleeper is still owed. Sleepers are held weakly: an abandoned stream costs nothing but its
entry, until that entry's time (O7). One that fails is logged and woken again later; the others,
and the run, go on, also when one of them ends the program.
Knows neither asyncio nor trio: a loop's own module says how an alarm is set and passes are made.
"""

from __future__ import annotations

import gc
import itertools
import logging
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Final, Protocol, TypeAlias

from streamguard._base.waking import Sleeps

# One pass for each relay between the pull and what it waits for: task, its callback, its waiter.
PASSES: Final = 3
# A failing sleeper is woken again after so long: a guard that gave up would guard nothing.
_RETRY: Final = 1.0
# How many forgotten entries the heap may hold before they are looked for; how many at once are many.
_MANY: Final = 64

logger = logging.getLogger("streamguard")


class Sleeper(Protocol):
    """Who can be woken. `entry` belongs to the timekeeper.

    It is called in nobody's context: an alarm is everybody's, and what follows from it is not. What
    it raises to end the program (SystemExit, KeyboardInterrupt) is the loop's own business.
    """

    entry: Entry | None

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
        self._sleeps: Sleeps | None = None

    def heed_sleep(self) -> None:
        """From here on sleepers that have `on_wake` are told when this machine has slept (B5).

        At once, where a descriptor tells of it, and at the next wakeup else: none is made for it.
        """
        if self._sleeps is None:
            self._sleeps = Sleeps()

    def look_for_sleep(self) -> None:
        """Tell of it, if this machine has slept since the last look."""
        if self._sleeps is None or not (slept := self._sleeps.news()):
            return
        now = self._clock()
        for sleeper in [who for entry in self._heap if (who := _sleeper_of(entry)) is not None]:
            if (on_wake := getattr(sleeper, "on_wake", None)) is None:
                continue
            try:
                on_wake(now, slept)
            except Exception as error:  # noqa: BLE001 - the others are waiting
                self._failed(sleeper, error, now)

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
        if sleeper.entry is not None:
            sleeper.entry = None
            self._forgotten += 1
        if self._forgotten > max(_MANY, len(self._heap) // 2):
            # Many short streams with a long window: their entries would pile up until then.
            self._heap = [entry for entry in self._heap if _sleeper_of(entry) is not None]
            heapify(self._heap)
            self._forgotten = 0
        self._skip_forgotten()
        if not self._heap:
            self.set_alarm(None)

    def _skip_forgotten(self) -> None:
        """Take those off the front that nobody waits for: an alarm for them would be left behind."""
        while self._heap and _sleeper_of(self._heap[0]) is None:
            heappop(self._heap)
            self._forgotten = max(0, self._forgotten - 1)

    def ring(self) -> None:
        """The alarm went off: wake all whose time has come."""
        self.look_for_sleep()
        due = self._in_turn()
        curious: deque[tuple[Sleeper, Entry]] = deque()
        try:
            for sleeper, entry, now in due:
                if sleeper.entry is not entry:
                    continue
                sleeper.entry = None
                try:
                    is_curious = sleeper.on_time(now)
                except Exception as error:  # noqa: BLE001 - the others are waiting
                    self._failed(sleeper, error, now)
                    continue
                if is_curious:
                    sleeper.entry = owed = (now, -1, entry[2])
                    curious.append((sleeper, owed))
        finally:  # whoever ends the program ends it for nobody else
            for sleeper, entry, now in due:
                if sleeper.entry is entry:
                    self.put(sleeper, now)
            self._skip_forgotten()
            if curious:
                self.after_passes(partial(self._confirm, curious))
            self.set_alarm(self._heap[0][0] if self._heap else None)

    def _in_turn(self) -> Iterator[tuple[Sleeper, Entry, float]]:
        """All whose time has come, then those whose time has come while these were asked.

        Asked later, the second ones would be confirmed when all of the first have unwound.
        """
        for _ in range(2):
            now = self._clock()
            for sleeper, entry in self._due(now):
                yield sleeper, entry, now

    def _due(self, now: float) -> list[tuple[Sleeper, Entry]]:
        """Take those off the heap whose time has come, in the order of their times."""
        heap, entries = self._heap, list[Entry]()
        while heap and heap[0][0] <= now:
            if len(entries) > len(heap) // _MANY:
                # Many at once: to look through the rest is cheaper than to pop them one by one.
                entries += sorted(entry for entry in heap if entry[0] <= now)
                self._heap = [entry for entry in heap if entry[0] > now]
                heapify(self._heap)
                break
            entries.append(heappop(heap))
        due = [
            (who, entry)
            for entry in entries
            if (who := entry[2]()) is not None and who.entry is entry
        ]
        self._forgotten = max(0, self._forgotten - len(entries) + len(due))
        return due

    def _confirm(self, curious: deque[tuple[Sleeper, Entry]]) -> None:
        if len(curious) > _MANY:
            with _collector_at_rest():
                self._confirm_all(curious)
        else:
            self._confirm_all(curious)

    def _confirm_all(self, curious: deque[tuple[Sleeper, Entry]]) -> None:
        try:
            # Taken out, or whoever keeps what comes of one would keep all: trio's cancels have the
            # frames they were sent from.
            while curious:
                sleeper, owed = curious.popleft()
                if sleeper.entry is not owed:
                    continue
                sleeper.entry = None
                now = self._clock()
                try:
                    sleeper.on_confirmed(now)
                except Exception as error:  # noqa: BLE001 - the others are waiting
                    self._failed(sleeper, error, now)
        finally:
            if curious:
                self.after_passes(partial(self._confirm, curious))

    def _failed(self, sleeper: Sleeper, error: Exception, now: float) -> None:
        logger.error(
            "%r raised when its deadline came; it will be asked again", sleeper, exc_info=error
        )
        if sleeper.entry is None:
            self.put(sleeper, now + _RETRY)

    @abstractmethod
    def set_alarm(self, when: float | None) -> None:
        """Call `ring` at `when` or, by the loop's own resolution, a little later."""

    @abstractmethod
    def after_passes(self, function: Callable[[], None]) -> None:
        """Call `function` when the loop has run everything now ready, `PASSES` times over."""


@contextmanager
def _collector_at_rest() -> Generator[None, None, None]:
    """Python's collector waits for the end of the block, unless it is off already.

    What 10,000 cancels make is alive until the cancelled have unwound, and none of it is garbage; but it
    is so much that the collector looks through the whole program for it, twice, before the last one
    is cut: on trio that was two thirds of the time. It is the whole program's collector, so it rests for
    as long as one call takes, in which nobody awaits, and is on again whatever happens.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _sleeper_of(entry: Entry) -> Sleeper | None:
    """Whom `entry` is to wake; None if it was forgotten."""
    sleeper = entry[2]()
    return sleeper if sleeper is not None and sleeper.entry is entry else None
