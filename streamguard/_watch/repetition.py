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
_UNTOLD: Final = "untold"
_ADDRESS: Final = " at 0x"


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
        shown = repr(value)
    except Exception:  # noqa: BLE001 - somebody's own code never disturbs the stream
        return None
    # An address says where it lies, not what it is: the next object may get the same one.
    return None if _ADDRESS in shown else hash(shown)


class _Deed:
    """A piece of work that began. Once it is over, `step` is one number for all of it, or _UNTOLD."""

    __slots__ = ("asked", "id", "is_error", "name", "row", "step")

    is_error: bool  # from its end on

    def __init__(self, id_: str, name: str, asked: int | None, row: _Row) -> None:
        self.id = id_
        self.name = name
        self.asked = asked
        self.row = row
        self.step: int | str | None = None


class _Row:
    """The latest steps of one agent, the last one first; and from the first deed that is in flight on, all."""

    __slots__ = ("names", "queue", "runs", "steps", "told")

    def __init__(self) -> None:
        self.queue: deque[_Deed] = deque()  # as they began
        self.steps: tuple[int, ...] = ()
        # Of each period: how many steps in a row are those of a period before. Most rows have none.
        self.runs: list[int] | None = None
        self.names: tuple[str, ...] = ()  # of the steps, as long as anything is repeated
        self.told = 0  # the period of what was found, as long as it goes on

    def forget(self) -> None:
        self.steps, self.runs, self.told = (), None, 0

    def add(self, deed: _Deed, times: int) -> Found | None:
        """The next step: what it shows, if it shows anything."""
        step, steps = deed.step, self.steps
        if not isinstance(step, int):
            self.forget()
            return None
        if step not in steps:
            if self.runs is not None:
                self.runs, self.told = None, 0
            self.steps = (step, *steps[: LONGEST_CYCLE - 1])
            return None
        if self.runs is None:
            self.runs, self.names = [0] * LONGEST_CYCLE, ()
        period = self._count(step, self.runs, times)
        self.steps = (step, *steps[: LONGEST_CYCLE - 1])
        self.names = (*self.names[1 - LONGEST_CYCLE :], deed.name)
        if not period:
            return None
        names = self.names[-period:]
        return Found("repeats", window=times, amount=times, names=names, is_error=deed.is_error)

    def _count(self, step: int, runs: list[int], times: int) -> int:
        """The shortest period that has now been gone through `times` times, if that is new; else 0."""
        found = 0
        for before, earlier in enumerate(self.steps):
            if earlier != step:
                runs[before] = 0
                continue
            runs[before] += 1
            period = before + 1
            if not found and runs[before] >= period * (times - 1):
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
        self._in_flight: dict[str, _Deed] = {}

    def started(self, signal: WorkStarted) -> None:
        """Work began, or its beginning is told once more, maybe with what it was asked."""
        id_, asked = signal.id, signal.input
        if signal.background or signal.scope == "hook" or not id_:
            return  # nobody waits for it, or nobody can tell which it is
        number = None if asked is None else digest(asked)
        if (known := self._in_flight.get(id_)) is not None:
            if known.asked is None:
                known.asked = number
            return
        row = self._rows.get(signal.parent) or self._row_of(signal.parent)
        self._in_flight[id_] = deed = _Deed(id_, signal.name, number, row)
        row.queue.append(deed)
        if len(row.queue) > _MOST_IN_FLIGHT:
            self._lose(row.queue.popleft())
            row.forget()

    def _row_of(self, parent: str | None) -> _Row:
        if len(self._rows) >= _MOST_ROWS:
            self._lose(*self._rows.pop(next(iter(self._rows))).queue)
        row = self._rows[parent] = _Row()
        return row

    def finished(self, signal: WorkFinished) -> Found | None:
        """Work ended: what its row shows now, if anything."""
        id_, outcome = signal.id, signal.outcome
        if id_ in self._rows:  # of a sub-agent that is over, nothing more is compared
            self._lose(*self._rows.pop(id_).queue)
        deed = self._in_flight.pop(id_, None)
        if deed is None:
            return None
        came = None if deed.asked is None or outcome is None else digest(outcome)
        deed.is_error = error = signal.error
        deed.step = _UNTOLD if came is None else hash((deed.name, deed.asked, came, error))
        found, row = None, deed.row
        queue = row.queue
        while queue and queue[0].step is not None:
            found = row.add(queue.popleft(), self._times) or found
        return found

    def _lose(self, *deeds: _Deed) -> None:
        for deed in deeds:
            if self._in_flight.get(deed.id) is deed:  # its id may be another's by now
                del self._in_flight[deed.id]

    def forget(self) -> None:
        """Another turn begins: what is asked again by a person is no loop."""
        self._rows.clear()
        self._in_flight.clear()
