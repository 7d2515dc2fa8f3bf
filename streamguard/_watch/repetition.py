"""Whether the same work is done again and again, with the same outcome (B2).

Each finished piece of work is a *step*: a hash of its name, of what it was asked, and of what came of it.
Steps are looked at in the order in which their works began, for several may be in flight at once; each
sub-agent has a *row* of its own, since others' steps between its own say nothing of it. A row in which the
latest step, or the latest two to four, came `times` times in a row is found. A step whose input or outcome
nobody tells breaks its row: what cannot be compared proves nothing.

Only hashes are kept. Pure: told facts, asked nothing; imports the values that it answers with.
"""

from __future__ import annotations

from collections import deque
from marshal import dumps
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from streamguard._watch.windows import Found

if TYPE_CHECKING:
    from streamguard.signals import WorkFinished, WorkStarted

LONGEST_CYCLE: Final = 4
_Steps: TypeAlias = tuple[int | None, int | None, int | None, int | None]
_NO_STEPS: Final[_Steps] = (None, None, None, None)
# Work whose end is lost must not hold up its row for ever, nor what never stops beginning grow without bound.
_MOST_IN_FLIGHT: Final = 32
_MOST_ROWS: Final = 256
_ADDRESS: Final = " at 0x"


def digest(value: Any) -> int | None:
    """A number that is the same for the same value, in this process; None if it cannot be told."""
    if type(value) is str:
        return hash(value)
    try:
        return hash(dumps(value, 0))
    except ValueError:
        pass  # an object of somebody's: what it shows of itself is all that can be compared
    try:
        shown = repr(value)
    except Exception:  # noqa: BLE001 - somebody's own code never disturbs the stream
        return None
    # An address says where it lies, not what it is: the next object may get the same one.
    return None if _ADDRESS in shown else hash(shown)


class _Deed:
    """A piece of work that began. Once it `is_over`, `step` is one number for all of it."""

    __slots__ = ("asked", "id", "is_error", "is_over", "name", "row", "step")

    # From its end on.
    is_error: bool
    step: int | None

    def __init__(self, id_: str, name: str, asked: int | None, row: _Row) -> None:
        self.id = id_
        self.name = name
        self.asked = asked
        self.row = row
        self.is_over = False


class _Row:
    """The latest steps of one agent, the last one first; and from the first deed that is in flight on, all."""

    __slots__ = ("names", "queue", "runs", "steps", "stuck", "told")

    def __init__(self) -> None:
        self.queue: deque[_Deed] = deque()  # as they began
        self.steps: _Steps = _NO_STEPS
        # Of each period: how many steps in a row are those of a period before. Most rows have none.
        self.runs: list[int] | None = None
        self.names: tuple[str, ...] = ()  # of the steps, as long as anything is repeated
        self.told = 0  # the period of what was found, as long as it goes on
        self.stuck: int | None = (
            None  # the only step there is, once that was found: another is no news
        )

    def forget(self) -> None:
        self.steps, self.runs, self.told, self.stuck = _NO_STEPS, None, 0, None

    def add(self, step: int | None, name: str, times: int, *, is_error: bool) -> Found | None:
        """The next step, or one that nobody can tell: what it shows, if it shows anything."""
        if step is None:
            self.forget()
            return None
        if step == self.stuck:
            return None
        last, second, third, _ = self.steps
        if step not in self.steps:
            if self.runs is not None:
                self.runs, self.told, self.stuck = None, 0, None
            self.steps = step, last, second, third
            return None
        if self.runs is None:
            self.runs, self.names = [0] * LONGEST_CYCLE, ()
        period = self._count(step, self.runs, times)
        self.steps = step, last, second, third
        self.stuck = step if self.told == 1 and last == second == third == step else None
        self.names = (*self.names[1 - LONGEST_CYCLE :], name)
        if not period:
            return None
        names = self.names[-period:]
        return Found("repeats", window=times, amount=times, names=names, is_error=is_error)

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

    __slots__ = ("_alone", "_asked", "_in_flight", "_name", "_row", "_rows", "_times")

    def __init__(self, times: int) -> None:
        self._times = times
        self._rows: dict[str | None, _Row] = {}
        self._in_flight: dict[str, _Deed] = {}
        # Most work is the only one that is in flight. It waits for no other, and makes no queue.
        self._alone = ""  # its id, if there is one
        self._name = ""
        self._asked: int | None = None
        self._row = _Row()

    def started(self, signal: WorkStarted) -> None:
        """Work began, or its beginning is told once more, maybe with what it was asked."""
        id_, asked = signal.id, signal.input
        if signal.background or signal.scope == "hook" or not id_:
            return  # nobody waits for it, or nobody can tell which it is
        number = None if asked is None else digest(asked)
        if self._alone or self._in_flight:
            self._join(signal, number)
            return
        row = self._rows.get(signal.parent) or self._row_of(signal.parent)
        if row.queue:
            self._queue(_Deed(id_, signal.name, number, row))
        else:
            self._alone, self._name, self._asked, self._row = id_, signal.name, number, row

    def _join(self, signal: WorkStarted, asked: int | None) -> None:
        """It began, or is told once more, while some are in flight."""
        if self._alone == signal.id:
            if self._asked is None:
                self._asked = asked
            return
        if self._alone:
            self._queue(_Deed(self._alone, self._name, self._asked, self._row))
            self._alone = ""
        if (known := self._in_flight.get(signal.id)) is not None:
            if known.asked is None:
                known.asked = asked
            return
        row = self._rows.get(signal.parent) or self._row_of(signal.parent)
        self._queue(_Deed(signal.id, signal.name, asked, row))
        if len(row.queue) > _MOST_IN_FLIGHT:
            self._lose(row.queue.popleft())
            row.forget()

    def _queue(self, deed: _Deed) -> None:
        self._in_flight[deed.id] = deed
        deed.row.queue.append(deed)

    def _row_of(self, parent: str | None) -> _Row:
        if len(self._rows) >= _MOST_ROWS:
            self._drop(next(iter(self._rows)))
        row = self._rows[parent] = _Row()
        return row

    def _drop(self, parent: str | None) -> None:
        row = self._rows.pop(parent)
        self._lose(*row.queue)
        if row is self._row:
            self._alone = ""

    def finished(self, signal: WorkFinished) -> Found | None:
        """Work ended: what its row shows now, if anything."""
        id_ = signal.id
        if id_ in self._rows:  # of a sub-agent that is over, nothing more is compared
            self._drop(id_)
        if id_ != self._alone or not id_:
            return self._leave(id_, signal)
        self._alone = ""
        step = _step(self._name, self._asked, signal)
        return self._row.add(step, self._name, self._times, is_error=signal.error)

    def _leave(self, id_: str, signal: WorkFinished) -> Found | None:
        """It ended, while others are in flight or are over, but began after one that is."""
        deed = self._in_flight.pop(id_, None)
        if deed is None:
            return None
        deed.step, deed.is_error, deed.is_over = (
            _step(deed.name, deed.asked, signal),
            signal.error,
            True,
        )
        found, row = None, deed.row
        queue = row.queue
        while queue and queue[0].is_over:
            over = queue.popleft()
            found = row.add(over.step, over.name, self._times, is_error=over.is_error) or found
        return found

    def _lose(self, *deeds: _Deed) -> None:
        for deed in deeds:
            if self._in_flight.get(deed.id) is deed:  # its id may be another's by now
                del self._in_flight[deed.id]

    def forget(self) -> None:
        """Another turn begins: what is asked again by a person is no loop."""
        self._rows.clear()
        self._in_flight.clear()
        self._alone = ""


def _step(name: str, asked: int | None, ended: WorkFinished) -> int | None:
    """One number for all of it; None if it cannot be compared."""
    outcome = ended.outcome
    if asked is None or outcome is None:
        return None
    came = outcome if type(outcome) is str else digest(outcome)
    return None if came is None else hash((name, asked, came, ended.error))
