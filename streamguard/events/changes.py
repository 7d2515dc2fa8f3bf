"""What is told of a stream's work, holds and turns: the watch, as it changed.

The watch keeps its state in mappings that are replaced and never changed, so that a look which
finds the same ones again costs two comparisons. Made only where somebody observes. Knows the
watch, signals, events and the activity's holds; decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from streamguard import events
from streamguard.signals import Signal, TurnEnded, Waiting, WorkFinished

if TYPE_CHECKING:
    from streamguard._watch.watch import Watch
    from streamguard._watch.windows import Work
    from streamguard.events.teller import Teller


class News:
    """Tells what has changed since the last look."""

    __slots__ = ("_activity", "_held", "_holds", "_ids", "_teller", "_watch", "_work")

    def __init__(self, watch: Watch, teller: Teller) -> None:
        self._watch = watch
        self._activity = teller.activity
        self._teller = teller
        self._work: Mapping[str, Work] = {}
        self._holds: Mapping[object, float] = {}
        self._held: dict[object, tuple[str, str]] = {}  # what was told of each: id and reason
        self._ids = 0

    def look(self, now: float, signals: Iterable[Signal] = ()) -> None:
        """Tell what is new since the last look; `signals` are what a message has just said."""
        if self._watch.work is not self._work:
            failed = {s.id for s in signals if isinstance(s, WorkFinished) and s.error}
            finished = {s.id for s in signals if isinstance(s, WorkFinished)}
            self._tell_of_work(now, finished, failed)
        if self._watch._holds is not self._holds:
            reasons = {s.id: s.reason for s in signals if isinstance(s, Waiting)}
            self._tell_of_holds(now, reasons)
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

    def _tell_of_work(self, now: float, finished: set[str], failed: set[str]) -> None:
        before, self._work = self._work, self._watch.work
        for id_, work in before.items():
            if id_ not in self._work:
                ended: events.WorkOutcome = "finished" if id_ in finished else "dropped"
                self._tell_work_over(id_, work, now, "failed" if id_ in failed else ended)
        for id_, work in self._work.items():
            if id_ not in before:
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

    def _tell_of_holds(self, now: float, reasons: Mapping[str, str]) -> None:
        before, self._holds = self._holds, self._watch._holds
        for key in before:
            if key not in self._holds:
                self._tell_hold_over(key, min(now, before[key]))
        for key, until in self._holds.items():
            if before.get(key) != until:
                id_, reason = self._held.get(key) or self._named(key, reasons)
                self._held[key] = id_, reason
                self._teller.tell(events.HoldBegan, at=now, id=id_, reason=reason, until=until)

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
