"""What is told of a stream's work, holds and turns: the watch, as it changed.

The watch notes which work and which holds have changed, so that a look costs what is new, whatever else there
is. Made only where somebody observes. Knows the watch, signals, events and the activity's holds; decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import TYPE_CHECKING

from streamguard import events
from streamguard._watch.windows import Changed
from streamguard.signals import Signal, TurnEnded, Waiting, WorkFinished

if TYPE_CHECKING:
    from streamguard._watch.in_flight import Work
    from streamguard._watch.watch import Watch
    from streamguard.events.teller import Teller


class News:
    """Tells what has changed since the last look."""

    __slots__ = ("_activity", "_changed", "_held", "_holds", "_ids", "_teller", "_watch", "_work")

    def __init__(self, watch: Watch, teller: Teller) -> None:
        self._watch = watch
        self._activity = teller.activity
        self._teller = teller
        self._changed = watch.changed = Changed(watch.work, (key for _, _, key in watch.holds))
        # As they were when they were looked at last.
        self._work: dict[str, Work] = {}
        self._holds: dict[object, tuple[float, int, object]] = {}
        self._held: dict[object, tuple[str, str]] = {}  # what was told of each: id and reason
        self._ids = 0

    def look(self, now: float, signals: Iterable[Signal] = ()) -> None:
        """Tell what is new since the last look; `signals` are what a message has just said."""
        if self._changed.work:
            changed, self._changed.work = self._changed.work, {}
            failed = {s.id for s in signals if isinstance(s, WorkFinished) and s.error}
            finished = {s.id for s in signals if isinstance(s, WorkFinished)}
            self._tell_of_work(now, changed, finished, failed)
        if self._changed.holds:
            moved, self._changed.holds = self._changed.holds, {}
            reasons = {s.id: s.reason for s in signals if isinstance(s, Waiting)}
            self._tell_of_holds(now, moved, reasons)
        for signal in signals:
            if isinstance(signal, TurnEnded):
                is_empty = self._watch.ended_empty
                self._teller.tell(
                    events.TurnOver, at=now, outcome=signal.outcome, is_empty=is_empty
                )

    def end(self, now: float) -> None:
        """The stream is over, and with it what was in flight or held."""
        for id_, work in self._work.items():
            self._tell_work_over(id_, work, now, "dropped")
        for key in list(self._held):
            self._tell_hold_over(key, now)
        self._work = {}
        if self._watch.changed is self._changed:
            self._watch.changed = None

    def _tell_of_work(
        self, now: float, changed: Iterable[str], finished: set[str], failed: set[str]
    ) -> None:
        before, present = self._work, self._watch.work
        over = [(id_, before[id_]) for id_ in changed if id_ in before and id_ not in present]
        for id_, work in sorted(over, key=_number):
            del before[id_]
            ended: events.WorkOutcome = "finished" if id_ in finished else "dropped"
            self._tell_work_over(id_, work, now, "failed" if id_ in failed else ended)
        known = [(id_, present[id_]) for id_ in changed if id_ in present]
        for id_, work in sorted(known, key=_number):
            is_new = id_ not in before
            before[id_] = work
            if is_new:
                self._teller.tell(
                    events.WorkBegan,
                    at=now,
                    id=id_,
                    name=work.name,
                    background=work.background,
                    scope=work.scope,
                    parent=work.parent,
                )

    def _tell_work_over(
        self, id_: str, work: Work, now: float, outcome: events.WorkOutcome
    ) -> None:
        self._teller.tell(
            events.WorkOver,
            at=now,
            id=id_,
            name=work.name,
            elapsed=now - work.since,
            outcome=outcome,
        )

    def _tell_of_holds(
        self, now: float, changed: Iterable[object], reasons: Mapping[str, str]
    ) -> None:
        before, present = self._holds, self._watch.holds
        over = [before[key] for key in changed if key in before and key not in present]
        for until, _, key in sorted(over, key=itemgetter(1)):
            del before[key]
            self._tell_hold_over(key, min(now, until))
        known = [entry for key in changed if (entry := present.get(key)) is not None]
        for entry in sorted(known, key=itemgetter(1)):
            until, _, key = entry
            if key not in before or before[key][0] != until:
                id_, reason = self._held.get(key) or self._named(key, reasons)
                self._held[key] = id_, reason
                self._teller.tell(events.HoldBegan, at=now, id=id_, reason=reason, until=until)
            before[key] = entry

    def _tell_hold_over(self, key: object, at: float) -> None:
        id_, reason = self._held.pop(key)
        self._teller.tell(events.HoldOver, at=at, id=id_, reason=reason)

    def _named(self, key: object, reasons: Mapping[str, str]) -> tuple[str, str]:
        """A hold's id and reason: the user's, or one that the backend announced."""
        self._ids += 1
        if (held := (self._activity._holds or {}).get(key)) is not None:
            return f"hold-{self._ids}", held.reason
        announced = str(getattr(key, "id", ""))
        return announced, reasons.get(announced, "held")


def _number(work: tuple[str, Work]) -> int:
    """Its place in the order in which all of it began."""
    return work[1].number
