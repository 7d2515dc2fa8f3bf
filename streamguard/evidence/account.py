"""`Account`: what a recorder makes of the events it is told, verdicts above all.

Here an event becomes a `Timeout`, and what is known of it later changes that. It is told on the thread
of whoever records (a loop's, or a process's that does nothing else), takes note, and leaves all writing to
its scribe. So a `Recorder` and `streamguard run --record` leave the same. Knows no loop.
"""

from __future__ import annotations

import os
import uuid
import weakref
from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from streamguard import events
from streamguard.evidence.receipts import FinalAction, Marks, Place, Standing, Timeout, short
from streamguard.evidence.sequels import Sequels, what_was_cut
from streamguard.evidence.stream import Stream
from streamguard.evidence.stream_names import stream_of

if TYPE_CHECKING:
    from streamguard.activity import Activity
    from streamguard.errors import ScopeName, Verdict
    from streamguard.evidence.scribe import Scribe

_LONGEST_CURSOR: Final = 1000
_MOST_CUTS: Final = 100


class Account:
    """What one recorder knows of its streams.

    The flow and step that nobody has named are found in the scopes that `around` gives.
    """

    def __init__(self, scribe: Scribe, around: Callable[[], Iterable[Any]] = tuple) -> None:
        self._scribe = scribe
        self._around = around
        self._marks = Marks()
        # Verdicts of which a session is yet to decide what follows, by their id.
        self._undecided: dict[str, Timeout] = {}
        self.sequels = Sequels(self._decide, self._recover)
        self._streams: weakref.WeakKeyDictionary[Activity, Stream] = weakref.WeakKeyDictionary()

    def mark(self, **said: str | None) -> None:
        """Where the step stands, as `Marks` has it. What is None stays as it was."""
        new = {name: short(text) for name, text in said.items() if text is not None}
        self._marks = replace(self._marks, **new)

    def stream_of(self, activity: Activity) -> Stream:
        """What is known of one activity."""
        stream = self._streams.get(activity)
        if stream is None:
            place = self._place(self._around(), activity)
            stream = self._streams[activity] = Stream(activity, place, self._scribe)
        return stream

    def settle(self) -> None:
        """Nobody will decide any more what was undecided."""
        for timeout in list(self._undecided.values()):
            self._decide(timeout, "fail")
        self.sequels.settle()
        self._scribe.writer.now(partial(self._scribe.do, last=True))

    def forget(self) -> None:
        """What is undecided is somebody else's to write."""
        self._undecided.clear()
        self.sequels.forget()

    def __call__(self, event: events.Event | events.ScopeEvent, /) -> None:
        """Something happened."""
        if isinstance(event, events.ScopeEvent):
            at, when = event.verdict.at, event.verdict.when or datetime.now(UTC)
            self._scribe.writer.now(partial(self._scribe.chart, event, at, when.timestamp() - at))
            if isinstance(event, events.ScopeTimedOut):
                self._scope_timed_out(event.verdict, event.activity)
            return
        stream = self.stream_of(event.activity)
        stream.told(event)
        self._follow(stream, event)

    def _follow(self, stream: Stream, event: events.Event) -> None:  # noqa: C901 - a table
        match event:
            case events.TimedOut(enforced=True) if event.verdict.limit != "exit_grace":
                self._timed_out(stream, event)
            case events.TornDown():
                self._torn_down(stream, event)
            case events.StreamStarted():
                self.sequels.began(stream.place, stream)
            case events.StreamEnded():
                self._ended(stream, event)
            case events.ProcessAdopted():
                stream.pid, stream.backend_ended = event.pid, False
            case events.ProcessExited():
                self._is_known_of_backend(stream, ended=True)
            case events.AttemptStarted():
                stream.attempts = event.attempt
            case events.AttemptEnded():
                if stream.timeout is not None:
                    stream.timeout.backend_ended = event.confirmed
                    self._rewrite(stream.timeout)
                self._is_known_of_backend(stream, ended=event.confirmed)
            case events.RetryScheduled():
                stream.retries, stream.is_retrying = stream.retries + 1, True
                self.decided(stream, "retry")
            case events.GaveUp():
                self.decided(stream, "escalate" if event.escalate else "fail")
            case _:
                pass

    # -- verdicts --------------------------------------------------------------------------

    def _timed_out(self, stream: Stream, event: events.TimedOut) -> None:
        activity, verdict = event.activity, event.verdict
        timeout = self._timeout_of(verdict, stream.place, stream.place, stream, activity)
        if verdict.limit == "exited" and (activity.status == "between turns" or not verdict.exit):
            stream.deferred = timeout  # it may be a normal end after all (T10)
        else:
            self._record(stream, timeout)

    def _scope_timed_out(self, verdict: Verdict, activity: Activity | None) -> None:
        stream = self._streams.get(activity) if activity is not None else None
        place = self._place(verdict.scope, activity if stream is not None else None)
        what = what_was_cut(verdict)
        timeout = self._timeout_of(verdict, what, place, stream, activity)
        if stream is not None:
            timeout.backend_ended = stream.backend_ended
            stream.cut = (*stream.cut[-_MOST_CUTS:], timeout)
        self.sequels.struck(what, timeout)
        self._hand_on(stream, timeout)

    def _is_known_of_backend(self, stream: Stream, *, ended: bool) -> None:
        stream.backend_ended = ended
        for timeout in stream.cut:
            timeout.backend_ended = ended
            self._rewrite(timeout)

    def scope_over(
        self, path: tuple[ScopeName, ...], scope: object, *, came_through: bool
    ) -> None:
        """A time scope is left."""
        if came_through:
            self.sequels.came_through(path)
        self.sequels.over(path, scope)

    def session_over(self, activity: Activity) -> None:
        """A session is over, and decides nothing more."""
        stream = self.stream_of(activity)
        stream.awaits_decision = False
        timeout = stream.timeout
        if timeout is not None and self._undecided.pop(timeout.id, None) is not None:
            self.sequels.struck(stream.place, timeout)
        self.sequels.over(stream.place, stream)

    def _timeout_of(
        self,
        verdict: Verdict,
        what: Hashable,
        place: Place,
        stream: Stream | None,
        activity: Activity | None,
    ) -> Timeout:
        attempt = stream.attempt() if stream is not None and stream.attempt is not None else None
        if activity is None and attempt is not None:
            activity = attempt.activity
        cursor = getattr(attempt.reading, "cursor", None) if attempt is not None else None
        retries = self.sequels.retries(what)
        standing = Standing(retries=retries)
        if stream is not None:
            is_plain = isinstance(cursor, int | str) and len(str(cursor)) <= _LONGEST_CURSOR
            standing = Standing(
                stream=stream.name,
                backend=stream.backend or (activity.backend if activity is not None else None),
                token=verdict.token or (activity.token if activity is not None else None),
                cursor=cursor if is_plain else None,
                attempt=stream.attempts,
                retries=stream.retries + retries,
                done=verdict.done if activity is None else activity.done,
                delivered=stream.delivered,
                pid=stream.pid,
            )
        transcript = self._scribe.transcript_path(place)
        return Timeout(
            id=uuid.uuid4().hex,
            verdict=verdict,
            place=place,
            marks=self._marks,
            standing=standing,
            recovery_path=os.fspath(self._scribe.receipt_path(place)),
            transcript_path=os.fspath(transcript) if transcript and stream else None,
            work_dir=os.fspath(self._scribe.work_dir),
            needs_teardown=verdict.effective is None,
        )

    def _record(self, stream: Stream, timeout: Timeout) -> None:
        stream.timeout = timeout
        if stream.awaits_decision:
            self._undecided[timeout.id] = timeout
        else:
            self.sequels.struck(stream.place, timeout)
        self._hand_on(stream, timeout)

    def _hand_on(self, stream: Stream | None, timeout: Timeout) -> None:
        self._scribe.supersede(timeout)
        self._scribe.writer.now(partial(self._scribe.write_verdict, stream, timeout))
        self._scribe.inspector.now(partial(self._scribe.inspect, stream, timeout))

    def _torn_down(self, stream: Stream, event: events.TornDown) -> None:
        for timeout in (stream.timeout, stream.deferred):
            if timeout is not None and timeout.verdict is event.verdict:
                timeout.teardown = event.teardown
                timeout.backend_ended = event.teardown.confirmed
                if timeout is stream.timeout:
                    self._rewrite(timeout)

    def _ended(self, stream: Stream, event: events.StreamEnded) -> None:
        deferred, stream.deferred = stream.deferred, None
        if event.error is not None and deferred is not None:
            self._record(stream, deferred)
        is_well = event.outcome == "completed"
        timeout = stream.timeout
        if is_well and timeout is not None and timeout.final_action == "retry":
            self._recover(timeout)
        if is_well:
            self.sequels.came_through(stream.place)
            stream.timeout, stream.retries = None, 0
            if self._scribe.is_first(stream.place):
                self._scribe.writer.now(partial(self._scribe.close_receipt, stream))
        if not stream.awaits_decision:
            self.sequels.over(stream.place, stream)
        if event.error is not None:
            how = type(event.error).__name__
        else:
            how = "normally" if is_well else event.outcome
        if self._scribe.reads_all:
            self._scribe.writer.now(
                partial(self._scribe.end_transcript, stream, how, event.at, stream.attempts)
            )

    def decided(self, stream: Stream, action: FinalAction) -> None:
        """What follows its latest verdict."""
        if (timeout := stream.timeout) is not None:
            self._decide(timeout, action)
            if action != "retry":
                self.sequels.struck(stream.place, timeout)

    def _decide(self, timeout: Timeout, action: FinalAction) -> None:
        self._undecided.pop(timeout.id, None)
        # A retry that has come to nothing is not what followed in the end.
        if timeout.final_action in (None, "retry"):
            timeout.final_action = action
            self._rewrite(timeout)

    def _recover(self, timeout: Timeout) -> None:
        timeout.recovered = True
        self._rewrite(timeout)

    def _rewrite(self, timeout: Timeout) -> None:
        self._scribe.writer.now(partial(self._scribe.write_receipt, None, timeout))

    def _place(self, path: Iterable[Any], activity: Activity | None) -> Place:
        inner = {name.kind: name.name for name in path if name.name}
        names = self._scribe.names
        step = names.step or inner.get("step")
        if step is None and activity is not None:
            # A number is one process's only, and several may write the run.
            step = activity.name or f"{stream_of(activity)}-{os.getpid()}"
        flow = names.flow or inner.get("flow") or "flow"
        return Place(run_id=names.run_id, flow=flow, step=step or "step", agent=names.agent)
