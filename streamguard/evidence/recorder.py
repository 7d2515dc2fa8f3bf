"""`Recorder`: what happened in a run, written down as it happens.

On the loop's thread a recorder only takes note: messages and events go into queues, a verdict becomes
a `Timeout`. Two threads do the rest: the *writer* everything that is written, in order; the *inspector*
what may take its time at a verdict (git, the user's artifacts), so that a receipt is there at once and
complete a moment later. A verdict's error is raised when the receipt is there, or after `WORTH`.

Nothing here raises into a stream: what could not be recorded is told once per kind as a
`RecordingFailed`, and counted in `failures`.
"""

from __future__ import annotations

import atexit
import os
import time
import uuid
import weakref
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, cast

import anyio

from streamguard import events, loops, recording, scopes
from streamguard.errors import ConfigError
from streamguard.evidence.messages import Rendering
from streamguard.evidence.receipts import (
    FinalAction,
    Marks,
    Place,
    Standing,
    Timeout,
    short,
)
from streamguard.evidence.scribe import MEGABYTE, Scribe, inspector, writer
from streamguard.evidence.secrets import Redaction
from streamguard.evidence.stream import Stream
from streamguard.evidence.streams import stream_of
from streamguard.evidence.waiting import in_thread
from streamguard.operators import Operator
from streamguard.plan import Plan
from streamguard.recording import Recording, Tap

if TYPE_CHECKING:
    from streamguard.activity import Activity
    from streamguard.attempt import Attempt
    from streamguard.errors import Verdict
    from streamguard.evidence.surroundings import Artifacts, StrPath

# How long a verdict's error may wait for its receipt, in seconds of the wall.
WORTH: Final = 2.0
_AT_THE_END: Final = 5.0
_LONGEST_CURSOR: Final = 1000

_recorders: Final[weakref.WeakSet[Recorder]] = weakref.WeakSet()
# Verdicts of which it is yet to be decided what follows, by their id.
_undecided: Final[dict[str, tuple[Recorder, Stream, Timeout]]] = {}


class Recorder(Recording):
    """Writes down what happens to the streams and time scopes in its block, or in its pipe.

    `with recorder:` (or `async with`, which also waits until all is written) around scopes and
    streams; or `stream | idle_guard(180) | record_with(recorder)`. One recorder may serve any
    number of streams, and several processes may write one run.
    """

    def __init__(
        self,
        run_dir: StrPath,
        *,
        run_id: str | None = None,
        flow: str | None = None,
        step: str | None = None,
        agent: str | None = None,
        work_dir: StrPath | None = None,
        artifacts: Artifacts = (),
        transcript: bool = True,
        transcript_bytes: int = 32 * MEGABYTE,
        redact: Callable[[str], str] | None = None,
    ) -> None:
        """Nothing is written, or made, before there is something to write.

        Args:
            run_dir: The run's folder.

            run_id: What the run is called; the folder's name if left out.

            flow: Which flow it is. If left out: the `flow` scope that a stream begins in, or "flow".

            step: Which step. If left out: the `step` scope, or the activity's name.

            agent: Who does it: `agent_key` in receipts.

            work_dir: The work tree that git is asked about, and where artifacts are looked for,
                beside the run's folder. The current folder if left out.

            artifacts: What the step is to write: paths, or a function that gives them (called at a
                verdict, in a thread). An `evidence.surroundings.Artifact` says more than a path.

            transcript: Whether messages are written down at all.

            transcript_bytes: About how much of each step's transcript is kept: the latest.

            redact: Called with each text of a transcript when the known kinds of secrets are out of
                it; in a thread.
        """
        for name, value in (("run_id", run_id), ("flow", flow), ("step", step), ("agent", agent)):
            if not isinstance(cast("object", value), str | None) or value == "":
                raise ConfigError(f"Recorder({name}={value!r}): use a name, or leave it out")
        if isinstance(artifacts, str | bytes):
            raise ConfigError(f"Recorder(artifacts={artifacts!r}): use a list of paths")
        self._run = Path(run_dir)
        self._run_id = run_id or self._run.resolve().name
        names = {"run_id": self._run_id, "flow": flow, "step": step, "agent": agent}
        self._scribe = Scribe(
            self._run,
            names,
            Rendering(Redaction(redact), writer.breathe),
            work_dir=Path.cwd() if work_dir is None else Path(work_dir).absolute(),
            artifacts=artifacts if callable(artifacts) else tuple(artifacts),
            transcript_cap=max(1, transcript_bytes // 2) if transcript else None,
        )
        self._flow, self._step, self._agent = flow, step, agent
        self.reads_all = transcript
        self._marks = Marks()
        self._entered = 0
        self._streams: weakref.WeakKeyDictionary[Activity, Stream] = weakref.WeakKeyDictionary()
        self._latest_stream: dict[tuple[str, str], weakref.ref[Stream]] = {}
        _recorders.add(self)

    def __repr__(self) -> str:
        return f"Recorder({os.fspath(self._run)!r})"

    # -- what users call -------------------------------------------------------------------

    @property
    def run_dir(self) -> Path:
        """The run's folder."""
        return self._run

    @property
    def failures(self) -> Mapping[str, int]:
        """What could not be recorded, and how often; empty if all is well."""
        return self._scribe.failures

    def mark(
        self,
        *,
        phase: str | None = None,
        progress: str | None = None,
        checkpoint: str | None = None,
    ) -> None:
        """Say where the step stands, for the receipt. What is left out stays as it was.

        `phase`: such as "work", "finalize" or "route". `progress`: in words. `checkpoint`: what was
        done last that a retry can go on from.
        """
        marks = self._marks
        self._marks = Marks(
            phase=marks.phase if phase is None else short(phase),
            progress=marks.progress if progress is None else short(progress),
            checkpoint=marks.checkpoint if checkpoint is None else short(checkpoint),
        )

    def flush(self, timeout: float = _AT_THE_END) -> bool:
        """Wait until all that was told is on disk; False if that took too long. Blocks."""
        deadline = time.monotonic() + timeout
        inspected = inspector.flush(timeout)
        return writer.flush(max(0.0, deadline - time.monotonic())) and inspected

    def __enter__(self) -> Self:
        recording.enter(self)
        self._entered += 1
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        self._leave()
        if loops.current_or_none() is None:
            self.flush()
        # Else nothing may block: it is written soon, and before the program ends.

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        self._leave()
        with anyio.CancelScope(shield=True):
            await self._wait_for(self.flush)

    def _leave(self) -> None:
        recording.leave(self)
        self._entered -= 1
        if not self._entered:  # else a task that shares it may still be waiting for a decision
            self._settle()

    def _settle(self) -> None:
        """Nobody will decide any more what was undecided."""
        for recorder, stream, timeout in list(_undecided.values()):
            if recorder is self:
                self._decide(stream, timeout, "fail")
        writer.now(partial(self._scribe.do, last=True))

    # -- what streams and scopes call ------------------------------------------------------

    def tap(self, attempt: Attempt) -> Tap:
        stream = self._stream_of(attempt.activity)
        stream.begin(attempt)
        return stream.transcribed if self.reads_all else stream.counted

    def await_decision(self, activity: Activity) -> None:
        self._stream_of(activity).awaits_decision = True

    async def written(self) -> None:
        await self._wait_for(partial(writer.flush, WORTH))

    async def _wait_for(self, flush: Callable[[], bool]) -> None:
        try:
            await in_thread(flush)
        except RuntimeError:  # no thread can be begun any more: it is written at the program's end
            events.logger.exception("%r could not wait for what it writes", self)

    def __call__(self, event: events.Event | events.ScopeEvent, /) -> None:
        if isinstance(event, events.ScopeEvent):
            at, when = event.verdict.at, event.verdict.when or datetime.now(UTC)
            writer.now(partial(self._scribe.chart, event, at, when.timestamp() - at))
            if isinstance(event, events.ScopeTimedOut):
                self._scope_timed_out(event.verdict)
            return
        stream = self._stream_of(event.activity)
        stream.told(event)
        self._follow(stream, event)

    def _follow(self, stream: Stream, event: events.Event) -> None:
        match event:
            case events.TimedOut(enforced=True) if event.verdict.limit != "exit_grace":
                self._timed_out(stream, event)
            case events.TornDown():
                self._torn_down(stream, event)
            case events.StreamEnded():
                self._ended(stream, event)
            case events.ProcessAdopted():
                stream.pid = event.pid
            case events.AttemptStarted():
                stream.attempts = event.attempt
            case events.AttemptEnded() if stream.timeout is not None:
                stream.timeout.backend_ended = event.confirmed
                self._rewrite(stream, stream.timeout)
            case events.RetryScheduled():
                stream.retries, stream.is_retrying = stream.retries + 1, True
                self._decided(stream, "retry")
            case events.GaveUp():
                self._decided(stream, "escalate" if event.escalate else "fail")
            case _:
                pass

    # -- verdicts, on the loop's thread ----------------------------------------------------

    def _timed_out(self, stream: Stream, event: events.TimedOut) -> None:
        activity, verdict = event.activity, event.verdict
        timeout = self._timeout_of(verdict, stream.place, stream, activity)
        if verdict.limit == "exited" and (activity.status == "between turns" or not verdict.exit):
            stream.deferred = timeout  # it may be a normal end after all (T10)
        else:
            self._record(stream, timeout)

    def _scope_timed_out(self, verdict: Verdict) -> None:
        place = self._place(verdict.scope, None)
        known = self._latest_stream.get((place.flow, place.step))
        stream = known() if known is not None else None
        if stream is None and len(only := list(self._streams.values())) == 1:
            stream, place = only[0], only[0].place
        timeout = self._timeout_of(verdict, place, stream, None)
        timeout.final_action = "fail"
        self._hand_on(stream, timeout)

    def _timeout_of(
        self, verdict: Verdict, place: Place, stream: Stream | None, activity: Activity | None
    ) -> Timeout:
        attempt = stream.attempt() if stream is not None and stream.attempt is not None else None
        if activity is None and attempt is not None:
            activity = attempt.activity
        cursor = getattr(attempt.reading, "cursor", None) if attempt is not None else None
        standing = Standing()
        if stream is not None:
            is_plain = isinstance(cursor, int | str) and len(str(cursor)) <= _LONGEST_CURSOR
            standing = Standing(
                stream=stream.name,
                token=verdict.token or (activity.token if activity is not None else None),
                cursor=cursor if is_plain else None,
                attempt=stream.attempts,
                retries=stream.retries,
                tools_run=stream.tools_run,
                delivered=stream.delivered,
                pid=stream.pid,
                usage=dict(activity.usage) if activity is not None else {},
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
            _undecided[timeout.id] = (self, stream, timeout)
        else:
            timeout.final_action = "fail"
        self._hand_on(stream, timeout)

    def _hand_on(self, stream: Stream | None, timeout: Timeout) -> None:
        self._scribe.supersede(timeout)
        writer.now(partial(self._scribe.write_verdict, stream, timeout))
        inspector.now(partial(self._scribe.inspect, stream, timeout))

    def _torn_down(self, stream: Stream, event: events.TornDown) -> None:
        for timeout in (stream.timeout, stream.deferred):
            if timeout is not None and timeout.verdict is event.verdict:
                timeout.teardown = event.teardown
                timeout.backend_ended = event.teardown.confirmed
                if timeout is stream.timeout:
                    self._rewrite(stream, timeout)

    def _ended(self, stream: Stream, event: events.StreamEnded) -> None:
        deferred, stream.deferred = stream.deferred, None
        if event.error is not None and deferred is not None:
            self._record(stream, deferred)
        is_well = event.outcome == "completed"
        timeout = stream.timeout
        if is_well and timeout is not None and timeout.final_action == "retry":
            timeout.recovered = True
            self._rewrite(stream, timeout)
        if is_well:
            stream.timeout, stream.retries = None, 0
            if self._scribe.is_first(stream.place):
                writer.now(partial(self._scribe.close_receipt, stream))
        if event.error is not None:
            how = type(event.error).__name__
        else:
            how = "normally" if is_well else event.outcome
        if self.reads_all:
            writer.now(partial(self._scribe.end_transcript, stream, how, event.at))

    def _decided(self, stream: Stream, action: FinalAction) -> None:
        if (timeout := stream.timeout) is not None:
            self._decide(stream, timeout, action)

    def _decide(self, stream: Stream, timeout: Timeout, action: FinalAction) -> None:
        _undecided.pop(timeout.id, None)
        if timeout.final_action is None:
            timeout.final_action = action
            self._rewrite(stream, timeout)

    def _rewrite(self, stream: Stream | None, timeout: Timeout) -> None:
        writer.now(partial(self._scribe.write_receipt, stream, timeout))

    # -- where things are ------------------------------------------------------------------

    def _stream_of(self, activity: Activity) -> Stream:
        stream = self._streams.get(activity)
        if stream is None:
            place = self._place(scopes.path(), activity)
            stream = self._streams[activity] = Stream(activity, place, self._scribe)
            self._latest_stream[place.flow, place.step] = weakref.ref(stream)
        return stream

    def _place(self, path: Iterable[Any], activity: Activity | None) -> Place:
        inner = {name.kind: name.name for name in path if name.name}
        step = self._step or inner.get("step")
        if step is None:
            step = _step_of(activity) if activity is not None else "step"
        flow = self._flow or inner.get("flow") or "flow"
        return Place(run_id=self._run_id, flow=flow, step=step, agent=self._agent)


def record_with(recorder: Recorder, /) -> Operator:
    """Records the stream with `recorder`, wherever it is used.

    `with recorder:` does the same for all streams and time scopes in its block.
    """
    if not isinstance(cast("object", recorder), Recorder):
        raise ConfigError(f"record_with({recorder!r}): give it a Recorder(run_dir, ...)")
    return Operator(Plan(observers=(recorder,)), f"record_with({recorder!r})")


def _step_of(activity: Activity) -> str:
    # A number is one process's only, and several may write the run.
    return activity.name or f"{stream_of(activity)}-{os.getpid()}"


@atexit.register
def _settle_all() -> None:
    for recorder in list(_recorders):
        recorder._settle()


def _forget() -> None:
    """In a forked child: what was recorded up to here is the parent's to write."""
    _undecided.clear()
    _recorders.clear()


os.register_at_fork(after_in_child=_forget)
