"""`Timeline`: events and messages of a run in, lines out of which `streamguard report` draws it.

It has no I/O and no clock: the recorder calls it, writes what `take` gives, and says what time its
instants are. Which event begins, ends or marks what is here; how that stays small is in `lanes`,
and what the lines mean to a reader in docs/how-to/report.md. Of messages it learns the stream and the kind,
of errors the type: nothing that a message said gets in (E3).
"""

from __future__ import annotations

from typing import Any, Final

from streamguard import events
from streamguard.errors import Verdict, spelled
from streamguard.evidence.lanes import OTHERS, Count, Lane, Line, Stretch
from streamguard.evidence.stream_names import stream_of

__all__ = ["Line", "Timeline"]

STREAMS: Final = 2000
COUNTS_PER_LINE: Final = 100  # so that a line is a few KB
# What a backend says without doing anything: a silence goes on (S0).
_SILENT: Final = frozenset({"Liveness", "Usage"})
_SILENCES: Final = frozenset({"idle", "first", "liveness", "after_sleep"})
# What is drawn, and said in the table, by spans alone.
_UNMARKED: Final = (
    events.StreamStarted,
    events.StreamEnded,
    events.WorkBegan,
    events.WorkOver,
    events.HoldBegan,
    events.HoldOver,
    events.AttemptStarted,
    events.SessionOver,
)
_ENDS_SILENCE: Final = (
    events.WorkBegan,
    events.WorkOver,
    events.HoldBegan,
    events.TurnOver,
    events.StreamEnded,
)


class Timeline:
    """What is told of a run, aggregated: a million messages make a few thousand lines."""

    def __init__(self) -> None:
        self._lanes: dict[str, Lane] = {}
        self._to_tell: dict[str, Lane] = {}  # those of which something is not told yet
        self._open: dict[tuple[str, str], Stretch] = {}

    def message(self, stream: str, kind: str, at: float, count: int = 1) -> None:
        """`count` messages came on `stream`, whose last signal was a `kind`, the last one at `at`."""
        stretch = self._open.get((stream, kind))
        if stretch is not None and at < stretch.until:
            stretch.n += count
            stretch.last = at
        else:
            self._count(stream, kind, at, count)

    def event(self, event: events.Event | events.ScopeEvent) -> None:
        """Something happened."""
        if isinstance(event, events.ScopeEvent):
            self._scope(event)
            return
        lane = self._lane(stream_of(event.activity), event.at)
        if isinstance(event, _ENDS_SILENCE):
            lane.end("idle", "", event.at)
        self._spans(lane, event)
        if not isinstance(event, _UNMARKED):
            level, text = events.described(event)
            facts = {"level": level, "text": str(text), **_facts(event)}
            lane.mark(type(event).__name__, event.at, **facts)

    def take(self, *, last: bool = False) -> list[Line]:
        """The lines to be written now. With `last`, all that is known is told as it stands."""
        lines: list[Line] = []
        counts: list[Count] = []
        for stream, lane in list(self._to_tell.items()):
            of_lane, counted = lane.take(last=last)
            lines += of_lane
            counts += counted
            if lane.is_told:
                del self._to_tell[stream]
                lane.listen()
        for i in range(0, len(counts), COUNTS_PER_LINE):
            lines.append({"kind": "counts", "counts": counts[i : i + COUNTS_PER_LINE]})
        return lines

    def _lane(self, stream: str, at: float) -> Lane:
        if (lane := self._lanes.get(stream)) is None:
            if len(self._lanes) >= STREAMS and stream != OTHERS:
                return self._lane(OTHERS, at)
            lane = self._lanes[stream] = Lane(stream, at)
        self._to_tell[stream] = lane
        return lane

    def _count(self, stream: str, kind: str, at: float, count: int) -> None:
        lane = self._lane(stream, at)
        if kind not in _SILENT:
            lane.end("idle", "", at)
        stretch = lane.count("message", kind, at, at, n=count)
        if stream in self._lanes and lane.stretches.get(("message", kind)) is stretch:
            self._open[stream, kind] = stretch

    def _spans(self, lane: Lane, event: events.Event) -> None:  # noqa: C901, PLR0912 - a table
        """What begins or ends with `event`."""
        at = event.at
        match event:
            case events.StreamStarted():
                lane.begin("stream", "", "stream", at)
            case events.StreamEnded():
                how = "ended" if event.error is None else type(event.error).__name__
                if event.outcome not in {"completed", "failed"}:
                    how = event.outcome
                lane.end_all(at, but=("attempt", "backoff"), how=how)
                lane.settle()
            case events.WorkBegan():
                background = {"background": True} if event.background else {}
                lane.begin("work", event.id, event.name or event.id, at, **background)
            case events.WorkOver():
                lane.end("work", event.id, at, how=event.outcome)
            case events.HoldBegan():
                lane.begin("hold", event.id, event.reason, at, until_at=round(event.until, 3))
            case events.HoldOver():
                lane.end("hold", event.id, at)
            case events.HalfTime():
                lane.begin("idle", "", event.limit, at - event.window / 2, window=event.window)
                lane.listen()
            case events.TimedOut() if event.enforced:
                _cut(lane, event.verdict, at)
            case events.TornDown():
                lane.end(
                    "teardown",
                    "",
                    at,
                    how="confirmed" if event.teardown.confirmed else "NOT confirmed",
                )
            case events.CutWithdrawn():
                lane.end("idle", "", at, how="withdrawn")
            case events.AttemptStarted():
                lane.end("backoff", "", at)
                how = "resumed" if event.resumes else "fresh"
                lane.begin("attempt", "", str(event.attempt), at, opened=how)
            case events.AttemptEnded():
                lane.end("attempt", "", at, how=event.outcome, confirmed=event.confirmed)
            case events.RetryScheduled():
                lane.begin("backoff", "", event.error_class, at, delay=event.delay)
            case events.GaveUp():
                lane.end("backoff", "", at)
            case _:
                pass

    def _scope(self, event: events.ScopeEvent) -> None:
        """A time scope belongs to no stream: its path is a lane of its own."""
        verdict = event.verdict
        lane = self._lane(spelled(verdict.scope) or "time scopes", verdict.at)
        lane.begin("scope", "", verdict.limit, verdict.at - verdict.elapsed)
        lane.end("scope", "", verdict.at, how=type(event).__name__)
        lane.mark(
            type(event).__name__, verdict.at, level=30, text=verdict.reason, **_decided(verdict)
        )


def _cut(lane: Lane, verdict: Verdict, at: float) -> None:
    if verdict.limit in _SILENCES:
        lane.begin("idle", "", verdict.limit, at - verdict.elapsed, window=verdict.window)
    lane.end("idle", "", at, how="verdict")
    lane.begin("teardown", "", verdict.limit, at)


def _facts(event: events.Event) -> dict[str, Any]:
    """What is known of an event besides its text: for the header and the table of a report, or a program."""
    match event:
        case events.TimedOut():
            vitals = event.verdict.vitals
            said = {**_decided(event.verdict), "enforced": event.enforced}
            if vitals is not None:
                said["vitals"] = str(vitals)
            return {**said, "text": event.verdict.reason}
        case events.TornDown():
            done = event.teardown
            return {
                "text": str(done),
                "confirmed": done.confirmed,
                "survivors": done.survivors,
                "disconnect": done.disconnect,
                "signals": done.signals,
                "elapsed": round(done.elapsed, 3),
                "tree": done.tree,
                "exit": done.exit,
            }
        case events.ProcessSurvived():
            return {"survivors": event.survivors}
        case events.GaveUp():
            return {"reason": event.reason, "escalate": event.escalate}
        case events.ProcessAdopted():
            return {"pid": event.pid}
        case events.TurnOver():
            return {"outcome": event.outcome}
        case events.HalfTime():
            return {}  # its span says it
        case events.Concern():
            return {"limit": event.limit}
        case _:
            return {}


def _decided(verdict: Verdict) -> dict[str, Any]:
    age = verdict.last_message_age
    return {
        "limit": verdict.limit,
        "window": verdict.window,
        "since_at": round(verdict.at - verdict.elapsed, 3),
        "elapsed": round(verdict.elapsed, 3),
        "in_flight": verdict.in_flight,
        "messages": verdict.messages,
        "last_signal": verdict.last_signal,
        "last_message_age": None if age is None else round(age, 3),
    }
