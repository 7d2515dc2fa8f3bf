"""What happened to a stream, a backend or a scope, as frozen dataclasses that say their own level and text.

A session's events are in `session_events`; what all of them are, in `event`.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from streamguard._base.durations import in_words
from streamguard.errors import NotASignalError
from streamguard.events.event import Event, ScopeEvent, where_raised

if TYPE_CHECKING:
    from streamguard._base.vitals import Vitals
    from streamguard.errors import Limit, Teardown, Verdict
    from streamguard.signals import Outcome, WorkScope

# `cancelled`: by somebody else, around the consumer; `left`: by a break, or an error of its own.
# Two ends are normal for the consumer and hollow all the same: `empty`, the last turn ended with success and
# did nothing; `abandoned`, work was open in the background.
StreamOutcome: TypeAlias = Literal[
    "completed", "failed", "cancelled", "left", "empty", "abandoned"
]
WorkOutcome: TypeAlias = Literal["finished", "failed", "dropped"]


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

    def text(self) -> str:
        return f"ended by {where_raised(self.error)}" if self.error else "ended"


@dataclass(frozen=True, kw_only=True)
class WorkBegan(Event):
    """Work went in flight: a tool, a subagent. Told only to observers, as the next four.

    `parent`: the id of the work that began it, as a subagent begins its tools.
    """

    id: str
    name: str
    background: bool
    scope: WorkScope = "tool"
    parent: str | None = None

    def text(self) -> str:
        return f"{self.name or self.id} is in flight"


@dataclass(frozen=True, kw_only=True)
class WorkOver(Event):
    """Work is in flight no more; `dropped` if its end never came, but its turn's or stream's did."""

    id: str
    name: str
    elapsed: float
    outcome: WorkOutcome

    def text(self) -> str:
        return f"{self.name or self.id} {self.outcome} after {in_words(self.elapsed)}"


@dataclass(frozen=True, kw_only=True)
class HoldBegan(Event):
    """`idle` is paused; by itself it goes on at `until`. Said again if that has moved."""

    id: str
    reason: str
    until: float

    def text(self) -> str:
        return f"held ({self.reason}), for at most {in_words(self.until - self.at)}"


@dataclass(frozen=True, kw_only=True)
class HoldOver(Event):
    """The hold is released, has lapsed, or its stream has ended."""

    id: str
    reason: str

    def text(self) -> str:
        return f"held no more ({self.reason})"


@dataclass(frozen=True, kw_only=True)
class TurnOver(Event):
    """The backend ended its turn. `is_empty`: with success, and it did nothing."""

    outcome: Outcome
    is_empty: bool = False

    def text(self) -> str:
        return f"turn ended: {self.outcome}{', and did nothing' if self.is_empty else ''}"


@dataclass(frozen=True, kw_only=True)
class Concern(Event):
    """Base of warnings: a person may want to look, while the stream still goes on. `on_warn=` gets these."""

    level = logging.WARNING
    limit: Limit
    vitals: Vitals | None = None


@dataclass(frozen=True, kw_only=True)
class HalfTime(Concern):
    """Half of a silence's window is gone. `vitals`: how the backend's processes are, if they are known."""

    level = logging.INFO
    window: float

    def text(self) -> str:
        return f"half of {self.limit}={self.window:g} has passed in silence{_with(self.vitals)}"


@dataclass(frozen=True, kw_only=True)
class WorkQuiet(Concern):
    """A piece of work that had spoken for itself is silent, though others may talk. Once per silence."""

    id: str
    name: str
    window: float
    elapsed: float

    def text(self) -> str:
        who = self.name or self.id
        return f"nothing was heard of {who} for {in_words(self.elapsed)} (limit {self.limit}={self.window:g})"


@dataclass(frozen=True, kw_only=True)
class WorkRepeated(Concern):
    """The same work with the same input had the same outcome so many `times`, or a cycle of `period` did.

    `names`: of the works in one round. `error`: whether they failed. Once per row of repetitions.
    """

    names: tuple[str, ...]
    times: int
    period: int
    error: bool

    def text(self) -> str:
        what = ", ".join(self.names)
        failing = "failed in the same way" if self.error else "had the same outcome"
        return f"{what} {failing} {self.times} times in a row (limit {self.limit})"


@dataclass(frozen=True, kw_only=True)
class CeilingPassed(Concern):
    """More tokens, cost or calls of the model than the ceiling says. Once per ceiling."""

    ceiling: float
    spent: float

    def text(self) -> str:
        return f"{self.spent:g} {self.limit} used up (limit {self.limit}={self.ceiling:g})"


@dataclass(frozen=True, kw_only=True)
class HollowEnd(Concern):
    """A success in name: its turn did nothing (`empty`), or work was left open in the background (`abandoned`)."""

    work: tuple[str, ...] = ()

    def text(self) -> str:
        if self.limit == "empty":
            return "the turn ended with success and did nothing: no work was done, no answer came"
        return f"the stream ended while work was open in the background: {', '.join(self.work)}"


@dataclass(frozen=True, kw_only=True)
class LoopStalled(Event):
    """A deadline was noticed late: the event loop did not run, so the limit was extended."""

    level = logging.WARNING
    limit: Limit
    lateness: float
    extended_by: float

    def text(self) -> str:
        return (
            f"the event loop did not run for {in_words(self.lateness)}, so silence is not "
            f"proven: limit {self.limit} extended by {in_words(self.extended_by)}"
        )


@dataclass(frozen=True, kw_only=True)
class MachineWoke(Event):
    """This machine had slept for so many seconds. `window`: how long the backend has to show itself.

    None: its usual limits hold, since work of this machine's own is in flight, or a hold is in force.
    """

    level = logging.INFO
    slept: float
    window: float | None

    def text(self) -> str:
        what = f"this machine had slept for {in_words(self.slept)}"
        if self.window is None:
            return f"{what}: what is at work goes on"
        return f"{what}: unless something comes within {in_words(self.window)}, it is lost"


@dataclass(frozen=True, kw_only=True)
class UnknownMessage(Event):
    """A message type that no reader knows; it counts as Progress. Once for each of a stream's first 64 types."""

    type_name: str

    def text(self) -> str:
        return f"no reader knows the type {self.type_name}: it counts as progress"


@dataclass(frozen=True, kw_only=True)
class ReaderFailed(Event):
    """The reader raised; the message counts as Progress. Once per stream."""

    level = logging.WARNING
    type_name: str
    error: BaseException

    def text(self) -> str:
        if isinstance(self.error, NotASignalError):
            return f"for a message of type {self.type_name} {self.error}. It counts as progress"
        return (
            f"the reader raised {where_raised(self.error, first=1)} on a message of type "
            f"{self.type_name}, which counts as progress"
        )


@dataclass(frozen=True, kw_only=True)
class WindowCollides(Event):
    """A window fires before the backend's own recovery. Once per backend and process."""

    level = logging.WARNING
    limit: Limit
    window: float
    advice: str

    def text(self) -> str:
        return self.advice


@dataclass(frozen=True, kw_only=True)
class CutWithdrawn(Event):
    """The cancelled pull still yielded a message, so the verdict was taken back."""

    level = logging.INFO
    verdict: Verdict

    def text(self) -> str:
        return "a message came at the last instant: nothing is ended"


@dataclass(frozen=True, kw_only=True)
class TimedOut(Event):
    """A verdict is final. `enforced` is False in mode `warn`."""

    level = logging.WARNING
    verdict: Verdict
    enforced: bool

    def text(self) -> str:
        if not self.enforced:  # no error will say it
            return f"would end (mode warn): {self.verdict.reason}{_with(self.verdict.vitals)}"
        return f"ending: {self.verdict.summary}{_with(self.verdict.vitals)}"


@dataclass(frozen=True, kw_only=True)
class PullDeaf(Event):
    """The cancelled pull has not unwound; teardown starts without it."""

    level = logging.WARNING
    verdict: Verdict

    def text(self) -> str:
        return "the stream does not react to its cancellation: ending the backend all the same"


@dataclass(frozen=True, kw_only=True)
class Interrupting(Event):
    """The backend is asked to end its turn by itself, before anything is torn down."""

    level = logging.INFO
    verdict: Verdict
    bound: float

    def text(self) -> str:
        return f"asking the backend to end its turn by itself, for at most {in_words(self.bound)}"


@dataclass(frozen=True, kw_only=True)
class InterruptFailed(Event):
    """An interrupt callback raised."""

    level = logging.WARNING
    error: BaseException

    def text(self) -> str:
        return f"interrupt raised {self.error!r}: ending the backend"


@dataclass(frozen=True, kw_only=True)
class DisconnectFailed(Event):
    """A disconnect callback raised."""

    level = logging.WARNING
    error: BaseException

    def text(self) -> str:
        return f"disconnect raised {self.error!r}"


@dataclass(frozen=True, kw_only=True)
class DisconnectAbandoned(Event):
    """A disconnect callback outlived its bound; it goes on in its own task, unheeded."""

    level = logging.ERROR
    bound: float

    def text(self) -> str:
        return (
            f"disconnect still hung after {in_words(self.bound)} and was abandoned; "
            "the backend may be alive"
        )


@dataclass(frozen=True, kw_only=True)
class ProcessAdopted(Event):
    """The backend's process is known, and by what: from here on it is watched."""

    pid: int
    proof: str

    def text(self) -> str:
        return f"process {self.pid} is the backend's ({self.proof})"


@dataclass(frozen=True, kw_only=True)
class ProcessUnknown(Event):
    """`process=` raised, or gave None to the end: only the disconnect can end the backend."""

    level = logging.WARNING
    error: BaseException | None

    def text(self) -> str:
        why = "gave None" if self.error is None else f"raised {self.error!r}"
        return f"process= {why}, so no process can be watched or ended: disconnect is all there is"


@dataclass(frozen=True, kw_only=True)
class ProcessExited(Event):
    """The backend's process itself is dead, by whatever cause. What it started may live."""

    level = logging.INFO
    pid: int
    exit: int | None

    def text(self) -> str:
        status = "unknown" if self.exit is None else self.exit
        return f"process {self.pid} has ended, exit status {status}"


@dataclass(frozen=True, kw_only=True)
class ProcessKilled(Event):
    """The process tree had to be ended by `signals`."""

    level = logging.WARNING
    pid: int
    signals: tuple[str, ...]
    exit: int | None
    elapsed: float

    def text(self) -> str:
        return (
            f"ended process {self.pid} and what it had started: {', '.join(self.signals)}, "
            f"in {in_words(self.elapsed)}"
        )


@dataclass(frozen=True, kw_only=True)
class ProcessSurvived(Event):
    """The budget is spent, and these of the process tree are alive. Without any, some may be."""

    level = logging.ERROR
    pid: int
    survivors: tuple[int, ...]

    def text(self) -> str:
        what = f"process {self.pid} and what it had started"
        if not self.survivors:
            return f"whether {what} are gone could not be seen"
        return f"STILL ALIVE of {what}: {', '.join(map(str, self.survivors))}"


@dataclass(frozen=True, kw_only=True)
class TornDown(Event):
    """Teardown is over."""

    loudest = logging.ERROR
    verdict: Verdict
    teardown: Teardown

    @property
    def level(self) -> int:  # type: ignore[override]
        return logging.INFO if self.teardown.confirmed else logging.ERROR

    def text(self) -> str:
        if self.teardown.confirmed:
            return str(self.teardown)
        spent = in_words(self.teardown.elapsed)
        return f"after {spent} the backend's end is NOT confirmed: it may be alive"


@dataclass(frozen=True, kw_only=True)
class RecordingFailed(Event):
    """Some of the evidence could not be written: `what`, where, and `why`. Once per recorder and why.

    The stream goes on as if nothing had happened; `Recorder.failures` counts.
    """

    level = logging.ERROR
    what: str
    path: str | None
    why: str

    def text(self) -> str:
        where = f" ({self.path})" if self.path else ""
        return f"evidence is missing: {self.what}{where}: {self.why}"


@dataclass(frozen=True, kw_only=True)
class ScopeTimedOut(ScopeEvent):
    """A time scope's verdict is final: time is up, or too little was left to begin."""


@dataclass(frozen=True, kw_only=True)
class CleanupCut(ScopeEvent):
    """A cleanup outlived its budget and was cut; some of its work may be undone."""


def _with(vitals: Vitals | None) -> str:
    """The vitals, as the end of a line."""
    return "" if vitals is None else f" [{vitals}]"
