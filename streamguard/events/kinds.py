"""What happened, as frozen dataclasses, and the way they reach observers.

An observer is any callable that takes one event. Observers never disturb the stream: one
that raises is logged and the rest are still called (E6). Log lines hold no payloads: of what a
stream yields or raises they name the type, and where it was raised (E3). Lines are
quoted. Imports only errors, signals and quoting.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from traceback import walk_tb
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

from streamguard._base import quoting
from streamguard._base.durations import in_words
from streamguard._base.quoting import quoted
from streamguard.errors import (
    ENDS_THE_PROGRAM,
    Limit,
    NotASignalError,
    Teardown,
    Verdict,
)

if TYPE_CHECKING:
    from streamguard.activity import Activity
    from streamguard.signals import Outcome

logger = logging.getLogger("streamguard")

# `cancelled`: by somebody else, around the consumer; `left`: by a break, or an error of its own.
StreamOutcome: TypeAlias = Literal["completed", "failed", "cancelled", "left"]
AttemptOutcome: TypeAlias = StreamOutcome
WorkOutcome: TypeAlias = Literal["finished", "failed", "dropped"]


@dataclass(frozen=True, kw_only=True)
class Event:
    """Base of all events: which guarded stream it is about, and the loop's time of it."""

    activity: Activity
    at: float


@dataclass(frozen=True, kw_only=True)
class StreamStarted(Event):
    """The first pull was made, or the block was entered."""


@dataclass(frozen=True, kw_only=True)
class StreamEnded(Event):
    """The attempt is over; `error` is what the consumer sees, None for a normal end.

    A stream that its consumer was cancelled out of has ended, too; asked again, it starts again.
    """

    error: BaseException | None
    outcome: StreamOutcome = "completed"


@dataclass(frozen=True, kw_only=True)
class WorkBegan(Event):
    """Work went in flight: a tool, a subagent. Told only where somebody observes, as the next four."""

    id: str
    name: str
    background: bool


@dataclass(frozen=True, kw_only=True)
class WorkOver(Event):
    """Work is in flight no more; `dropped` if its end never came, but its turn's or stream's did."""

    id: str
    name: str
    elapsed: float
    outcome: WorkOutcome


@dataclass(frozen=True, kw_only=True)
class HoldBegan(Event):
    """`idle` is paused; by itself it goes on at `until`. Said again if that has moved."""

    id: str
    reason: str
    until: float


@dataclass(frozen=True, kw_only=True)
class HoldOver(Event):
    """The hold is released, has lapsed, or its stream has ended."""

    id: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class TurnOver(Event):
    """The backend ended its turn."""

    outcome: Outcome


@dataclass(frozen=True, kw_only=True)
class HalfTime(Event):
    """Half of a silence's window is gone."""

    limit: Limit
    window: float


@dataclass(frozen=True, kw_only=True)
class LoopStalled(Event):
    """A deadline was noticed late: the event loop did not run, so the limit was extended (T4)."""

    limit: Limit
    lateness: float
    extended_by: float


@dataclass(frozen=True, kw_only=True)
class UnknownMessage(Event):
    """A message type that no reader knows; it counts as Progress. Once per type."""

    type_name: str


@dataclass(frozen=True, kw_only=True)
class ReaderFailed(Event):
    """The reader raised; the message counts as Progress. Once per stream."""

    type_name: str
    error: BaseException


@dataclass(frozen=True, kw_only=True)
class WindowCollides(Event):
    """A window fires before the backend's own recovery. Once per backend and process."""

    limit: Limit
    window: float
    advice: str


@dataclass(frozen=True, kw_only=True)
class CutWithdrawn(Event):
    """The cancelled pull still yielded a message, so the verdict was taken back (T3)."""

    verdict: Verdict


@dataclass(frozen=True, kw_only=True)
class TimedOut(Event):
    """A verdict is final. `enforced` is False in mode `warn`."""

    verdict: Verdict
    enforced: bool


@dataclass(frozen=True, kw_only=True)
class PullDeaf(Event):
    """The cancelled pull has not unwound; teardown starts without it (O6)."""

    verdict: Verdict


@dataclass(frozen=True, kw_only=True)
class Interrupting(Event):
    """The backend is asked to end its turn by itself, before anything is torn down (D1)."""

    verdict: Verdict
    bound: float


@dataclass(frozen=True, kw_only=True)
class InterruptFailed(Event):
    """An interrupt callback raised."""

    error: BaseException


@dataclass(frozen=True, kw_only=True)
class DisconnectFailed(Event):
    """A disconnect callback raised."""

    error: BaseException


@dataclass(frozen=True, kw_only=True)
class DisconnectAbandoned(Event):
    """A disconnect callback outlived its bound; it goes on in its own task, unheeded."""

    bound: float


@dataclass(frozen=True, kw_only=True)
class ProcessAdopted(Event):
    """The backend's process is known, and by what: from here on it is watched."""

    pid: int
    proof: str


@dataclass(frozen=True, kw_only=True)
class ProcessUnknown(Event):
    """`process=` raised, or gave None to the end: only the disconnect can end the backend."""

    error: BaseException | None


@dataclass(frozen=True, kw_only=True)
class ProcessExited(Event):
    """The backend's process itself is dead, whoever ended it. What it started may live."""

    pid: int
    exit: int | None


@dataclass(frozen=True, kw_only=True)
class ProcessKilled(Event):
    """The process tree had to be ended by `signals`."""

    pid: int
    signals: tuple[str, ...]
    exit: int | None
    elapsed: float


@dataclass(frozen=True, kw_only=True)
class ProcessSurvived(Event):
    """The budget is spent, and of the process tree these are alive, or may be if there are none."""

    pid: int
    survivors: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class TornDown(Event):
    """Teardown is over."""

    verdict: Verdict
    teardown: Teardown


@dataclass(frozen=True, kw_only=True)
class AttemptStarted(Event):
    """A session begins an attempt: number `attempt`, going on with what is there if `resumes`."""

    attempt: int
    resumes: bool


@dataclass(frozen=True, kw_only=True)
class AttemptEnded(Event):
    """A session's attempt is over, and its backend gone if `confirmed`."""

    attempt: int
    outcome: AttemptOutcome
    error: BaseException | None
    confirmed: bool


@dataclass(frozen=True, kw_only=True)
class RetryScheduled(Event):
    """There will be another attempt, in `delay` seconds: retry number `retry` of its class.

    `delay_source` says who wanted the delay: the policy, the server (`Retry-After`), or the
    circuit breaker.
    """

    error_class: str
    retry: int
    delay: float
    why: str
    delay_source: str = "policy"


@dataclass(frozen=True, kw_only=True)
class RetryRecovered(Event):
    """A turn that had to be retried so many times has ended well."""

    retries: int


@dataclass(frozen=True, kw_only=True)
class Reconnected(Event):
    """Another attempt is connected: whatever you keep of the stream before it is void (R7)."""

    attempt: int
    resumes: bool


@dataclass(frozen=True, kw_only=True)
class ReplayDropped(Event):
    """After a reconnect so many messages came again, and were not delivered again (R6)."""

    attempt: int
    messages: int


@dataclass(frozen=True, kw_only=True)
class KeysRepeated(Event):
    """`dedupe_by` gave one key to several messages of one attempt: a replay cannot be told (R6)."""

    attempt: int


@dataclass(frozen=True, kw_only=True)
class GaveUp(Event):
    """No further attempt: `reason` is the error's `gave_up`. `escalate`: a person should know."""

    reason: str
    why: str
    error: BaseException
    escalate: bool


@dataclass(frozen=True, kw_only=True)
class OwnerAbandoned(Event):
    """The task that owns an attempt does not end, whatever is done: it was left behind (O6)."""

    attempt: int


@dataclass(frozen=True, kw_only=True)
class CloseFailed(Event):
    """Closing an attempt's connection raised `error`, after something else had ended it."""

    attempt: int
    error: BaseException


@dataclass(frozen=True, kw_only=True)
class RecordingFailed(Event):
    """Some of the evidence could not be written: `what`, where, and `why`. Once per recorder and why.

    The stream goes on as if nothing had happened; `Recorder.failures` counts.
    """

    what: str
    path: str | None
    why: str


@dataclass(frozen=True, kw_only=True)
class WatchdogEvent(Event):
    """Base of what a `SubprocessWatchdog` tells; `pid` is None if it only has a disconnect.

    Its types are told under the names that a watchdog's events have: `told_as`.
    """

    told_as = "watchdog"

    pid: int | None


@dataclass(frozen=True, kw_only=True)
class WatchdogStarted(WatchdogEvent):
    """It watches, with this configuration."""

    told_as = "watchdog.started"

    timeout_seconds: float
    poll_interval_seconds: float
    kill_grace_seconds: float


@dataclass(frozen=True, kw_only=True)
class WatchdogActivity(WatchdogEvent):
    """It was told of activity. In the log only, at the level of debugging."""

    told_as = "watchdog.activity"


@dataclass(frozen=True, kw_only=True)
class WatchdogTimeout(WatchdogEvent):
    """The process was idle for too long. `enforced` is False in mode `warn`: nothing is ended."""

    told_as = "watchdog.timeout"

    idle_seconds: float
    timeout_seconds: float
    enforced: bool


@dataclass(frozen=True, kw_only=True)
class WatchdogKilled(WatchdogEvent):
    """The process is dead. `signals`: what was sent to it and to what it had started."""

    told_as = "watchdog.killed"

    signals: tuple[str, ...]
    exit: int | None
    elapsed: float


Observer: TypeAlias = Callable[[Event], None]


@dataclass(frozen=True, kw_only=True)
class ScopeEvent:
    """Base of what happens to time scopes (`limits`).

    `activity`: the stream that was pulled in it last, if any.
    """

    verdict: Verdict
    activity: Activity | None = None


@dataclass(frozen=True, kw_only=True)
class ScopeTimedOut(ScopeEvent):
    """A time scope's verdict is final: time is up, or too little was left to begin."""


@dataclass(frozen=True, kw_only=True)
class CleanupCut(ScopeEvent):
    """A cleanup outlived its budget and was cut; what it was to do may not be done."""


ScopeObserver: TypeAlias = Callable[[ScopeEvent], None]
_E = TypeVar("_E")
_scope_observers: ContextVar[tuple[ScopeObserver, ...]] = ContextVar(
    "streamguard_scope_observers", default=()
)


@contextmanager
def observing_scopes(observer: ScopeObserver) -> Generator[None, None, None]:
    """Within the block, and the tasks begun in it, `observer` is told of every time scope."""
    token = _scope_observers.set((*_scope_observers.get(), observer))
    try:
        yield
    finally:
        _scope_observers.reset(token)


def tell_of_scope(event: ScopeEvent) -> None:
    """Log `event` and give it to every observer of scopes in force."""
    tell((_log_scope, *_scope_observers.get()), event)


def _log_scope(event: ScopeEvent) -> None:
    if logger.isEnabledFor(logging.WARNING):
        from streamguard.events.flat import fields_of

        told = {"streamguard": fields_of(event)}
        logger.warning("%s", event.verdict.reason, extra=told)


def log(event: Event) -> None:
    """The default observer: the events a person on call needs, as log lines.

    A line's record carries the same facts as `record.streamguard`, a flat dict, for handlers
    that write JSON.
    """
    level, text = described(event)
    if logger.isEnabledFor(level):
        from streamguard.events.flat import fields_of

        told = {"streamguard": fields_of(event)}
        if isinstance(event, WatchdogEvent):  # it names the process itself
            logger.log(level, "%s", text, extra=told)
            return
        logger.log(
            level, "%s: %s", quoting.name(event.activity.name or "stream"), text, extra=told
        )


def described(event: Event) -> tuple[int, str]:
    """An event's level, as `logging` has it, and the words for a person: one line."""
    level, text = (
        _trouble(event)
        or _trouble_with_processes(event)
        or _trouble_with_sessions(event)
        or _trouble_with_evidence(event)
        or _news_of_watchdogs(event)
        or _news_of_sessions(event)
        or _news_of_work(event)
        or _news(event)
    )
    return level, quoted(text)


def _trouble(event: Event) -> tuple[int, object] | None:
    """What is worth a warning, with its level."""
    match event:
        case TimedOut():
            verb = "ending" if event.enforced else "would end (mode warn)"
            return logging.WARNING, f"{verb}: {event.verdict.reason}"
        case LoopStalled():
            return logging.WARNING, (
                f"the event loop did not run for {in_words(event.lateness)}, so silence is not "
                f"proven: limit {event.limit} extended by {in_words(event.extended_by)}"
            )
        case PullDeaf():
            return logging.WARNING, "the cancelled pull does not unwind; tearing down anyway"
        case DisconnectFailed():
            return logging.WARNING, f"disconnect raised {event.error!r}"
        case DisconnectAbandoned():
            return logging.ERROR, (
                f"disconnect still hung after {in_words(event.bound)} and was abandoned; "
                "the backend may be alive"
            )
        case InterruptFailed():
            return logging.WARNING, f"interrupt raised {event.error!r}; tearing down"
        case ReaderFailed():
            return logging.WARNING, (
                f"the reader raised {_named(event.error, first=1)} on a {event.type_name}, "
                "which counts as progress"
            )
        case WindowCollides():
            return logging.WARNING, event.advice
        case TornDown() if not event.teardown.confirmed:
            return logging.ERROR, event.teardown
        case _:
            return None


def _trouble_with_processes(event: Event) -> tuple[int, str] | None:
    match event:
        case ProcessUnknown():
            why = "gave None" if event.error is None else f"raised {event.error!r}"
            return logging.WARNING, (
                f"process= {why}, so no process can be watched or ended: disconnect is all there is"
            )
        case ProcessKilled():
            return logging.WARNING, (
                f"process {event.pid} and its tree had to be ended: {', '.join(event.signals)} "
                f"in {in_words(event.elapsed)}"
            )
        case ProcessSurvived():
            left = ", ".join(map(str, event.survivors)) or "nobody that could be seen"
            return logging.ERROR, f"of the tree of process {event.pid} there survived: {left}"
        case _:
            return None


def _trouble_with_sessions(event: Event) -> tuple[int, str] | None:
    match event:
        case RetryScheduled():
            return logging.WARNING, event.why
        case GaveUp():
            return logging.ERROR, f"gave up ({event.reason}): {event.why}"
        case OwnerAbandoned():
            return logging.ERROR, (
                f"the task of attempt {event.attempt} does not end and was left behind; "
                "the backend may be alive"
            )
        case KeysRepeated():
            return logging.WARNING, (
                f"dedupe_by gave one key to several messages of attempt {event.attempt}: keys must be "
                "unique, or a replay cannot be told from new messages, and the turn is not retried"
            )
        case CloseFailed():
            return logging.WARNING, (
                f"closing the connection of attempt {event.attempt} raised {_named(event.error)}"
            )
        case _:
            return None


def _trouble_with_evidence(event: Event) -> tuple[int, str] | None:
    if not isinstance(event, RecordingFailed):
        return None
    where = f" ({event.path})" if event.path else ""
    return logging.ERROR, f"evidence is missing: {event.what}{where}: {event.why}"


def _news_of_watchdogs(event: Event) -> tuple[int, str] | None:
    if not isinstance(event, WatchdogEvent):
        return None
    who = "the backend" if event.pid is None else f"subprocess {event.pid}"
    match event:
        case WatchdogStarted():
            whom = "a backend without a PID" if event.pid is None else f"PID {event.pid}"
            return logging.INFO, f"Watchdog started for {whom}, timeout={event.timeout_seconds}s"
        case WatchdogActivity():
            return logging.DEBUG, f"Watchdog was told of activity of {who}"
        case WatchdogTimeout():
            verb = "disconnecting" if event.pid is None else "killing"
            after = f"{who} after {event.timeout_seconds}s idle"
            if not event.enforced:
                return logging.WARNING, f"Watchdog would be {verb} {after} (mode warn)"
            return logging.WARNING, f"Watchdog {verb} {after}"
        case WatchdogKilled() if "KILL" in event.signals:
            return logging.WARNING, f"Subprocess {event.pid} required SIGKILL"
        case WatchdogKilled() if event.signals:
            return logging.INFO, f"Subprocess {event.pid} terminated gracefully"
        case WatchdogKilled():
            return logging.INFO, f"Subprocess {event.pid} has ended without a signal"
        case _:
            return None


def _news_of_sessions(event: Event) -> tuple[int, str] | None:
    match event:
        case AttemptStarted():
            how = "resuming" if event.resumes else "afresh"
            return logging.DEBUG, f"attempt {event.attempt} begins, {how}"
        case AttemptEnded():
            state = "" if event.confirmed else ", its backend's end NOT confirmed"
            by = f" by {_named(event.error)}" if event.error else ""
            return logging.DEBUG, f"attempt {event.attempt} {event.outcome}{by}{state}"
        case Reconnected():
            how = "the session goes on" if event.resumes else "a fresh session"
            return logging.INFO, f"connected again in attempt {event.attempt}: {how}"
        case RetryRecovered():
            times = f"{event.retries} retr{'y' if event.retries == 1 else 'ies'}"
            return logging.INFO, f"the turn ended well after {times}"
        case ReplayDropped():
            return logging.DEBUG, (
                f"attempt {event.attempt} played {event.messages} messages again, now dropped"
            )
        case _:
            return None


def _news_of_work(event: Event) -> tuple[int, str] | None:
    match event:
        case WorkBegan():
            return logging.DEBUG, f"{event.name or event.id} is in flight"
        case WorkOver():
            return logging.DEBUG, (
                f"{event.name or event.id} {event.outcome} after {in_words(event.elapsed)}"
            )
        case HoldBegan():
            left = in_words(event.until - event.at)
            return logging.DEBUG, f"held ({event.reason}), for at most {left}"
        case HoldOver():
            return logging.DEBUG, f"held no more ({event.reason})"
        case TurnOver():
            return logging.DEBUG, f"turn ended: {event.outcome}"
        case _:
            return None


def _news(event: Event) -> tuple[int, object]:
    """What is good to know, with its level."""
    match event:
        case TornDown():
            return logging.INFO, event.teardown
        case HalfTime():
            return logging.INFO, f"half of {event.limit}={event.window:g} has passed in silence"
        case Interrupting():
            return logging.INFO, f"interrupting, for at most {in_words(event.bound)}"
        case ProcessAdopted():
            return logging.DEBUG, f"process {event.pid} adopted ({event.proof})"
        case ProcessExited():
            status = "unknown" if event.exit is None else event.exit
            return logging.INFO, f"process {event.pid} has ended, exit status {status}"
        case CutWithdrawn():
            return logging.INFO, "a message came after all: not ending"
        case UnknownMessage():
            return logging.DEBUG, f"{event.type_name} is a type nobody reads: it is progress"
        case StreamEnded():
            return logging.DEBUG, f"ended by {_named(event.error)}" if event.error else "ended"
        case _:
            return logging.DEBUG, type(event).__name__


def _named(error: BaseException, *, first: int | None = None) -> str:
    """An error's type, and where it was raised: its text may quote a message (E3).

    `first`: also where in that frame, counted from the one that caught it.
    """
    name = type(error).__name__
    if isinstance(error, NotASignalError):
        return f"{name}: {error}"  # our own words
    places = [f"{frame.f_code.co_filename}:{line}" for frame, line in walk_tb(error.__traceback__)]
    if not places:
        return name
    if first is not None and first < len(places) - 1:
        return f"{name} ({places[first]}, in {places[-1]})"
    return f"{name} ({places[-1]})"


def tell(observers: Iterable[Callable[[_E], None]], event: _E) -> None:
    """Give `event` to every observer; one that raises is logged, never propagated."""
    for observer in observers:
        try:
            observer(event)
        except ENDS_THE_PROGRAM:
            raise
        except BaseException:  # nothing is awaited here, so a cancellation is nobody's
            logger.exception("observer %r raised on %r", observer, type(event).__name__)
