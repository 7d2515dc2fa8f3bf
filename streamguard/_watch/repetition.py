"""Whether the same work is done again and again, with the same outcome (B2).

Each finished piece of work is a *step*: a hash of its name, of what it was asked, and of what came of it.
Steps are looked at in the order in which their works began, for several may be in flight at once; each
sub-agent has a *row* of its own, since others' steps between its own say nothing of it. A row in which the
latest step, or the latest two to four, came `times` times in a row is found. A step whose input or outcome
nobody tells breaks its row: what cannot be compared proves nothing.

Only hashes are kept. Pure: told facts, asked nothing; imports the values that it answers with.
"""

from __future__ import annotations

import marshal
from collections import deque
from typing import TYPE_CHECKING, Any, Final, cast

from streamguard._watch.windows import Found

if TYPE_CHECKING:
    from streamguard.signals import WorkFinished, WorkStarted

LONGEST_CYCLE: Final = 4
# Work whose end is lost must not hold up its row for ever, nor what never stops beginning grow without bound.
_MOST_IN_FLIGHT: Final = 32
_MOST_ROWS: Final = 256

_UNKNOWN: Final = None


def digest(value: object) -> int | None:
    """A number that is the same for the same value, in this process; None if it cannot be told."""
    if type(value) is str:
        return hash(value)
    try:
        return hash(marshal.dumps(cast("Any", value), 0))
    except (
        ValueError
    ):  # an object of somebody's: what it shows of itself is all that can be compared
        pass
    try:
        return hash(repr(value))
    except Exception:  # noqa: BLE001 - somebody's own code never disturbs the stream
        return None


class _Deed:
    """A piece of work that began: what it was asked, then what came of it."""

    __slots__ = ("asked", "failed", "id", "is_over", "name", "outcome")

    def __init__(self, id_: str, name: str, asked: int | None) -> None:
        self.id = id_
        self.name = name
        self.asked = asked
        self.outcome: int | None = _UNKNOWN
        self.failed = self.is_over = False


class _Row:
    """The steps of one agent: those in flight, and the latest few that are over."""

    __slots__ = ("names", "queue", "runs", "steps", "told")

    def __init__(self) -> None:
        self.queue: deque[_Deed] = deque()  # from the first that is in flight on, as they began
        self.steps: tuple[int, ...] = ()
        self.names: tuple[str, ...] = ()
        self.runs = [0] * LONGEST_CYCLE  # how many steps in a row are those of a period before
        self.told = 0  # the period of what was found, as long as it goes on

    def forget(self) -> None:
        if self.steps:
            self.steps = self.names = ()
            self.runs = [0] * LONGEST_CYCLE
            self.told = 0

    def add(self, step: _Deed, times: int) -> Found | None:
        """The next step is over: what it shows, if it shows anything."""
        if step.asked is None or step.outcome is None:
            self.forget()
            return None
        known = hash((step.name, step.asked, step.outcome, step.failed))
        if known not in self.steps:
            if self.told or any(self.runs):
                self.runs = [0] * LONGEST_CYCLE
                self.told = 0
            found = None
        else:
            found = self._count(known, times)
        self.steps = (*self.steps[1 - LONGEST_CYCLE :], known)
        self.names = (*self.names[1 - LONGEST_CYCLE :], step.name)
        if not found:
            return None
        return Found(
            "repeats",
            window=times,
            amount=times,
            names=self.names[-found:],
            is_error=step.failed,
        )

    def _count(self, known: int, times: int) -> int:
        """The shortest period that has now been gone through `times` times, if that is new; else 0."""
        steps, runs, found = self.steps, self.runs, 0
        for period in range(1, LONGEST_CYCLE + 1):
            is_same = period <= len(steps) and steps[-period] == known
            runs[period - 1] = runs[period - 1] + 1 if is_same else 0
            if not found and is_same and runs[period - 1] >= period * (times - 1):
                found = period
        if self.told and runs[self.told - 1]:
            return 0
        self.told = found
        return found


class Repetition:
    """Finds work that is repeated `times` times."""

    __slots__ = ("_in_flight", "_rows", "_times")

    def __init__(self, times: int) -> None:
        self._times = times
        self._rows: dict[str | None, _Row] = {}
        self._in_flight: dict[str, tuple[_Row, _Deed]] = {}

    def started(self, signal: WorkStarted) -> None:
        """Work began, or its beginning is told once more, maybe with what it was asked."""
        if signal.background or signal.scope == "hook" or not signal.id:
            return  # nobody waits for it, or nobody can tell which it is
        asked = None if signal.input is None else digest(signal.input)
        if (known := self._in_flight.get(signal.id)) is not None:
            if known[1].asked is None:
                known[1].asked = asked
            return
        row = self._rows.get(signal.parent)
        if row is None:
            if len(self._rows) >= _MOST_ROWS:
                self._lose(*self._rows.pop(next(iter(self._rows))).queue)
            row = self._rows[signal.parent] = _Row()
        deed = _Deed(signal.id, signal.name, asked)
        row.queue.append(deed)
        if len(row.queue) > _MOST_IN_FLIGHT:
            self._lose(row.queue.popleft())
            row.forget()
        self._in_flight[signal.id] = row, deed

    def finished(self, signal: WorkFinished) -> Found | None:
        """Work ended: what its row shows now, if anything."""
        if (its_own := self._rows.pop(signal.id, None)) is not None:
            self._lose(*its_own.queue)  # of a sub-agent that is over, nothing more is compared
        known = self._in_flight.pop(signal.id, None)
        if known is None:
            return None
        row, deed = known
        deed.is_over, deed.failed = True, signal.error
        deed.outcome = None if signal.outcome is None else digest(signal.outcome)
        found, queue = None, row.queue
        while queue and queue[0].is_over:
            found = row.add(queue.popleft(), self._times) or found
        return found

    def _lose(self, *deeds: _Deed) -> None:
        for deed in deeds:
            self._in_flight.pop(deed.id, None)

    def forget(self) -> None:
        """Another turn begins: what is asked again by a person is no loop."""
        self._rows.clear()
        self._in_flight.clear()
