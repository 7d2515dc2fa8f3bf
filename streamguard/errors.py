"""Every exception of the package, and the three values they carry.

    StreamGuardError                 .verdict .activity .teardown .gave_up
    ├── ConfigError                  a limit, a knob or a variable is wrong (also ValueError)
    ├── StreamTimeoutError           a limit was reached (also TimeoutError)
    │   ├── IdleTimeoutError         idle:     silence, with nothing in flight
    │   │   └── FirstMessageTimeoutError  first: silence before the turn's first progress
    │   ├── LivenessTimeoutError     liveness: not even pings came any more
    │   ├── ToolTimeoutError         tools:    one piece of work outlived its allowance
    │   ├── TurnTimeoutError         turn:     the turn as a whole took too long
    │   └── TotalTimeoutError        total:    the whole thing took too long, or a time scope did
    ├── NoProgressError              the backend was busy, and got nowhere: only where `end_on` asks for it
    │   ├── QuietWorkError           quiet:    a sub-agent that had spoken fell silent
    │   ├── RepeatedWorkError        repeats:  the same work again and again, with the same outcome
    │   ├── EmptyTurnError           empty:    the turn ended with success and did nothing
    │   └── AbandonedWorkError       abandoned: the stream ended while background work was open
    ├── CeilingExceededError         tokens, cost, calls: more was used up than was allowed; only with `end_on`
    ├── StreamTruncatedError         the stream ended before its turn did
    ├── LeaseLostError               lease:    this worker may not act for the session any more
    ├── StreamInterruptedError       it ended after the consumer had cancelled a pull
    ├── NotASignalError              a reader returned something else (also TypeError); reported only
    ├── ProcessExitedError           the backend's process died under the stream
    ├── ResumeDivergedError          a backend played again what it had said, but otherwise
    ├── SessionHeldError             another program has the session; .holder
    ├── EarlierError                 what ended an attempt in another process, by name and text
    ├── StoreError                   a fleet's store is away, or cannot be used as it is
    ├── LineError                    a line of a process cannot be given; .number .tail
    │   ├── LineTooLongError         it is longer than max_line
    │   └── InvalidLineError         it is no JSON object (also ValueError)
    └── CircuitOpenError             the circuit breaker lets nobody try now; .retry_after says when
        └── CircuitEscalatedError    … nor later: a person must look, and call reset()

A `Verdict` says what was decided and why; a `Teardown` says what was done about it; a `Tail` is the
last that a process wrote; `Done` is what the session has done. All are decided once and travel on the
error. An error's text is one line, whatever it names. Imports what `_base` has for texts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from streamguard._base import quoting, signal_words
from streamguard._base.done import NOTHING_DONE, Done
from streamguard._base.durations import in_words
from streamguard._base.quoting import quoted

if TYPE_CHECKING:
    from streamguard._base.vitals import Vitals
    from streamguard.activity import Activity

ScopeKind: TypeAlias = Literal["flow", "step", "llm_call", "tool"]
Limit: TypeAlias = Literal[
    "idle",
    "first",
    "first_json",
    "liveness",
    "tools",
    "turn",
    "exit_grace",
    "total",
    "lease",
    "quiet",
    "repeats",
    "tokens",
    "cost",
    "calls",
    "empty",
    "abandoned",
    "after_sleep",
    "truncated",
    "exited",
    "cleanup",
    ScopeKind,
]
# Whose verdict it is: an operator's, or that of a `SubprocessWatchdog`.
Guard: TypeAlias = Literal["idle_guard", "watchdog"]
DisconnectOutcome: TypeAlias = Literal["none", "returned", "raised", "abandoned"]
Cause: TypeAlias = Literal["exited", "terminated", "killed", "survived", "unproven"]

# What goes on up from wherever it is raised: all else that a callback raises is reported.
ENDS_THE_PROGRAM: Final = (KeyboardInterrupt, SystemExit)


class ScopeName(NamedTuple):
    """A time scope as errors name it: `step 'build'`, or only its kind."""

    kind: ScopeKind | Literal["cleanup"]
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {quoting.name(repr(self.name))}" if self.name else self.kind


def spelled(path: tuple[ScopeName, ...]) -> str:
    """The scopes of a path, from the outermost inwards: `flow 'deploy' > step 'build'`."""
    return " > ".join(map(str, path))


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Which limit ended an attempt, and what was known at that moment.

    `limit`: its name, as the knob has it. `window`: how long it is, and `elapsed`: how long it had lasted,
    in seconds. `lateness`: how long after the deadline that was noticed.
    `messages`: how many had come; `first_seen`: whether the turn had made progress; `last_signal` and
    `last_message_age`: what came last, and how long ago. `in_flight`: work that was open. `token` resumes the
    session. `exit`: of the backend's process, if that had ended. `done`: what was done by then. `labels`: those of
    the stream's activity.

    `name` is the stream's, as its `Activity` was given it; `stream` is what it is called, with or without one.
    Times called `at` are on the loop's monotonic clock; `when` is the wall clock beside it.
    `scope` is the path of time scopes in force, from the outermost inwards. In a time scope's
    own verdict, `fired` is the scope that ran out of time first; None if too little was left to
    begin. `effective` is the outermost scope that has none left, and decides what to do next.
    `amount` is how often work was repeated, or how much of a ceiling is used up. `vitals` is how the
    backend's processes were at that moment, if they are known and an observer is told of it.
    `guard` is the guard that decided: a `SubprocessWatchdog` ("watchdog"), or any other guard.
    """

    limit: Limit
    window: float | None
    elapsed: float
    lateness: float = 0.0
    at: float = 0.0
    when: datetime | None = None
    name: str = ""
    stream: str = ""
    scope: tuple[ScopeName, ...] = ()
    fired: ScopeName | None = None
    effective: ScopeName | None = None
    messages: int = 0
    first_seen: bool = False
    last_signal: str | None = None
    last_message_age: float | None = None
    in_flight: tuple[str, ...] = ()
    work: str | None = None
    amount: float | None = None
    token: str | None = None
    exit: int | None = None
    done: Done = NOTHING_DONE
    vitals: Vitals | None = None
    labels: dict[str, Any] = field(default_factory=dict[str, Any], hash=False)
    guard: Guard = "idle_guard"

    @property
    def reason(self) -> str:
        """What happened, in one sentence, for the person on call."""
        if self.effective is not None:
            return f"{spelled(self.scope)} {self._what_the_scope_came_to(self.effective)}"
        who = f"stream {quoting.name(repr(self.name))}" if self.name else self.stream or "stream"
        where = f" ({spelled(self.scope)})" if self.scope else ""
        return f"{who}{where} {self._what_happened()}; {self._what_was_seen()}"

    @property
    def summary(self) -> str:
        """The same in a few words, for a line that names the stream, and of which the error says the rest."""
        if self.effective is None:
            return self._what_happened()
        if self.fired is None:
            return f"too little time was left to begin {spelled(self.scope)}"
        return f"time is up for {spelled(self.scope)}"

    def _what_happened(self) -> str:  # noqa: C901, PLR0912 - a table
        spent = in_words(self.elapsed)
        limit = "" if self.window is None else f" (limit {self.limit}={self.window:g})"
        match self.limit:
            case "idle":
                return f"idle for {spent}{limit}"
            case "first":
                return f"gave no first message in {spent}{limit}"
            case "first_json":
                return f"gave no JSON line in {spent}{limit}"
            case "liveness":
                return f"showed no sign of life for {spent}, not even a ping{limit}"
            case "tools" if self.work is None:
                return f"idle for {spent}, and does not say which tools it runs{limit}"
            case "tools":
                return f"waited {spent} for {quoting.name(self.work)} to finish{limit}"
            case "turn":
                return f"did not end its turn in {spent}{limit}"
            case "total" | "flow" | "step" | "llm_call" | "tool" | "cleanup":
                return f"was not done in {spent}{limit}"
            case "lease":
                return f"lost its lease {spent} after that was last renewed{limit}"
            case "exit_grace":
                return f"stayed open {spent} after its turn had ended{limit}"
            case "quiet":
                return f"heard nothing of {quoting.name(self.work or '')} for {spent}{limit}"
            case "repeats":
                times = f"{self.amount or 0:g} times"
                return f"got nowhere: {quoting.name(self.work or '')} {times} with the same outcome{limit}"
            case "tokens" | "calls":
                return f"has used {self.amount or 0:g} {self.limit}{limit}"
            case "cost":
                return f"has cost {self.amount or 0:g}{limit}"
            case "empty":
                return "ended its turn with success and did nothing"
            case "abandoned":
                return "ended while work was open in the background"
            case "after_sleep":
                return f"gave nothing for {spent} after this machine had slept{limit}"
            case "truncated":
                return "ended before its turn did: no terminal message came"
            case "exited":
                status = "" if self.exit is None else f" (exit status {self.exit})"
                return f"lost its process{status} before its turn ended"

    def _what_the_scope_came_to(self, effective: ScopeName) -> str:
        if self.fired is None:
            left = in_words(max(0.0, (self.window or 0.0) - self.elapsed))
            limit = "" if self.window is None else f" (limit {self.limit}={self.window:g})"
            return f"was not begun: only {left} left of {effective}{limit}"
        cut = "" if self.fired == effective else f"was cut with {effective}, which "
        return cut + self._what_happened()

    def _what_was_seen(self) -> str:
        if self.messages:
            seen = f"{self.messages} message{'s' * (self.messages != 1)} seen"
            if self.last_message_age is not None:
                what = quoting.name(signal_words.in_words(self.last_signal or "message"))
                seen += f", the last ({what}) {in_words(self.last_message_age)} ago"
        elif self.first_seen:
            seen = "no message was seen, but it was at work"
        else:
            seen = "no message was ever seen"
        work = ", ".join(map(quoting.name, self.in_flight))
        return quoted(f"{seen}, in flight: {work}" if work else seen)


@dataclass(frozen=True, kw_only=True)
class Teardown:
    """What was done to end the backend, and whether its end is certain.

    `confirmed`: the pull unwound, the source closed and every disconnect returned. If the
    process was known, the process and its tree are proven dead, which alone is enough.
    Only then may a session be resumed without risking two owners. `disconnect`: how the disconnects
    ended; `disconnect_error` and `interrupt_error` say what your functions raised, if they did.
    `elapsed`: how long all of it took, in seconds. `tree` is how the process
    and what it had started ended, None if no process was known; `signals`, `exit` (as
    `Popen.returncode`) and `survivors` (pids) are the tree's, too. `out_of_reach` says where a
    command that works in another place (`docker exec`, `ssh`) may live on unseen.
    """

    confirmed: bool
    disconnect: DisconnectOutcome = "none"
    disconnect_error: str = ""
    interrupt_error: str = ""
    signals: tuple[str, ...] = ()
    elapsed: float = 0.0
    exit: int | None = None
    survivors: tuple[int, ...] = ()
    tree: Cause | None = None
    out_of_reach: str = ""

    def __str__(self) -> str:
        how = {
            "none": f"the source {'was' if self.confirmed else 'was NOT'} closed, no disconnect given",
            "returned": "disconnect returned",
            "raised": f"disconnect raised {self.disconnect_error}".rstrip(),
            "abandoned": "disconnect hung and was abandoned",
        }[self.disconnect]
        state = "confirmed" if self.confirmed else "NOT confirmed"
        if self.interrupt_error:
            how = f"interrupt raised {self.interrupt_error}, {how}"
        said = quoted(f"teardown {state} after {in_words(self.elapsed)}: {how}")
        if self.tree is None:
            return said
        sent = f" ({', '.join(self.signals)})" if self.signals else ""
        status = "" if self.exit is None else f" with exit status {self.exit}"
        left = f", STILL ALIVE: {', '.join(map(str, self.survivors))}" if self.survivors else ""
        where = f"; {quoted(self.out_of_reach)}" if self.out_of_reach else ""
        return f"{said}, process tree {self.tree}{sent}{status}{left}{where}"


@dataclass(frozen=True, slots=True)
class Tail:
    """The last of what a process wrote, as far as it was read."""

    stdout: str = ""
    stderr: str = ""


@dataclass(frozen=True, kw_only=True)
class Attempted:
    """One failed attempt of a session: its number, and how it failed.

    `error_class` is the word for its class; `lived` and `messages` tell how far it came.
    """

    attempt: int
    error: str
    error_class: str
    lived: float
    messages: int

    def __str__(self) -> str:
        came = f"{self.messages} message{'s' * (self.messages != 1)} in {in_words(self.lived)}"
        return quoted(f"attempt {self.attempt} ({came}): {self.error_class}: {self.error}")


class StreamGuardError(Exception):
    """Base of everything that streamguard raises on purpose.

    `gave_up` says why a session made no further attempt ("retries", "unsafe", "deadline",
    "circuit" or "class"), and `attempts` which ones it made for this prompt: see
    `reconnecting_resume`. `tail` is the last of what the process wrote, if the stream was
    `lines` or `json_lines`; it is never part of the text. `done` is what the session had done when
    it ended, if that is known.
    """

    verdict: Verdict | None = None
    activity: Activity | None = None
    teardown: Teardown | None = None
    gave_up: str | None = None
    attempts: tuple[Attempted, ...] = ()
    tail: Tail | None = None
    done: Done | None = None

    def __init__(
        self,
        message: str = "",
        *,
        verdict: Verdict | None = None,
        activity: Activity | None = None,
    ) -> None:
        super().__init__(quoted(message or (verdict.reason if verdict else "")))
        self.verdict = verdict
        self.activity = activity
        if verdict is not None:
            self.done = verdict.done
        elif activity is not None:
            self.done = activity.done

    def __str__(self) -> str:
        said = super().__str__()
        return f"{said}. T{str(self.teardown)[1:]}" if self.teardown else said

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled and copied without the activity: that is live, and belongs to this process."""
        return type(self), self.args, {**self.__dict__, "activity": None}


class ConfigError(StreamGuardError, ValueError):
    """A limit, a keyword or an environment variable has a value that cannot be used."""


class NotASignalError(StreamGuardError, TypeError):
    """A reader returned something else. Reported, never raised into the stream."""


class StreamTimeoutError(StreamGuardError, TimeoutError):
    """A limit was reached. `.verdict.limit` names the knob."""


class IdleTimeoutError(StreamTimeoutError):
    """The backend kept us waiting for `idle` seconds with nothing in flight."""


class FirstMessageTimeoutError(IdleTimeoutError):
    """A turn gave no first progress within `first` seconds."""


class LivenessTimeoutError(StreamTimeoutError):
    """A backend that sends pings stopped sending anything for `liveness` seconds."""


class ToolTimeoutError(StreamTimeoutError):
    """A piece of work in flight outlived its allowance (`tools`)."""


class TurnTimeoutError(StreamTimeoutError):
    """A turn did not end within `turn` seconds."""


class TotalTimeoutError(StreamTimeoutError):
    """The whole thing, backoff and teardown included, took longer than `total` seconds.

    Or a time scope did: see `.verdict.fired` and `.verdict.effective` (`streamguard.limits`).
    """


DeadlineExceededError = TotalTimeoutError  # its old name


class NoProgressError(StreamGuardError):
    """The backend was busy and got nowhere. Raised only if `end_on` asks for it."""


class QuietWorkError(NoProgressError):
    """A piece of work that had spoken for itself fell silent for `quiet` seconds."""


class RepeatedWorkError(NoProgressError):
    """The same work was done `repeats` times, or in a cycle, and nothing else came of it."""


class EmptyTurnError(NoProgressError):
    """The turn ended with success: no work was done in it, and no answer came."""


class AbandonedWorkError(NoProgressError):
    """The stream ended while work was open in the background. `.verdict.in_flight` names it."""


class CeilingExceededError(StreamGuardError):
    """More `tokens`, `cost` or `calls` of the model were used up than allowed."""


class StreamTruncatedError(StreamGuardError):
    """The stream ended without the terminal message that this backend always sends."""


class LeaseLostError(StreamGuardError):
    """This worker must not act for the session any more: another one may have it by now.

    The session did nothing wrong, and you need to do nothing here: it goes on with another worker.
    """


class StreamInterruptedError(StreamGuardError):
    """The stream ended after a pull that the consumer's own scope had cancelled.

    The cancel finished the source (any async generator), so its end is not the backend's.
    """


class ProcessExitedError(StreamGuardError):
    """The backend's process ended while its stream was still being read."""


class ResumeDivergedError(StreamGuardError):
    """After a reconnect the backend repeated what it had said before, but with differences."""


@dataclass(frozen=True, kw_only=True)
class SessionHolder:
    """Which program has a session, and since when.

    `pid`: its process, on the machine `host`. `program`: its name, without its arguments.
    """

    pid: int
    program: str
    host: str
    since: datetime


class SessionHeldError(StreamGuardError):
    """Another owner has the session, or has left work that may go on. Nothing was opened.

    `holder` says which program that is; None if it did not leave its name.
    """

    gave_up: str | None = "unsafe"
    holder: SessionHolder | None = None


class EarlierError(StreamGuardError):
    """What ended an attempt in another process: its type's name, and its text, are all that is left.

    It is the `reason` of a `ResumePoint` that was read from JSON. It is never raised.
    """

    def __init__(self, type_name: str, text: str = "") -> None:
        super().__init__(f"{type_name}: {text}" if text else type_name)
        self.type_name = type_name
        self.text = text

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EarlierError):
            return NotImplemented
        return (self.type_name, self.text) == (other.type_name, other.text)

    def __hash__(self) -> int:
        return hash((self.type_name, self.text))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.type_name, self.text)


class StoreError(StreamGuardError):
    """A fleet's store cannot be reached, is of another version, or refuses us. Says what to do."""


class LineError(StreamGuardError):
    """A line that cannot be read. The next pull goes on behind it.

    `number` counts from 1. What the process wrote is in `tail`, never in the error's text.
    """

    tail: Tail  # always there

    def __init__(self, message: str = "", *, number: int = 0, tail: Tail | None = None) -> None:
        super().__init__(message)
        self.number = number
        self.tail = tail or Tail()  # pyright: ignore[reportIncompatibleVariableOverride]


class LineTooLongError(LineError):
    """A line is longer than `max_line` bytes; the rest of it will be skipped."""


class InvalidLineError(LineError, ValueError):
    """A line is no JSON object, and `on_invalid="raise"` was said."""


class CircuitOpenError(StreamGuardError):
    """The circuit breaker of this backend allows no attempt now.

    `retry_after` is the time until it allows one, in seconds: infinite if only `reset()` helps.
    """

    def __init__(self, message: str = "", *, key: str = "", retry_after: float = math.inf) -> None:
        super().__init__(message)
        self.key = key
        self.retry_after = retry_after


class CircuitEscalatedError(CircuitOpenError):
    """The circuit breaker has given up on this backend, until a person calls `reset()`."""


ERRORS: dict[Limit, type[StreamGuardError]] = {
    "idle": IdleTimeoutError,
    "first": FirstMessageTimeoutError,
    "first_json": FirstMessageTimeoutError,
    "liveness": LivenessTimeoutError,
    "tools": ToolTimeoutError,
    "turn": TurnTimeoutError,
    "total": TotalTimeoutError,
    "lease": LeaseLostError,
    "quiet": QuietWorkError,
    "repeats": RepeatedWorkError,
    "tokens": CeilingExceededError,
    "cost": CeilingExceededError,
    "calls": CeilingExceededError,
    "empty": EmptyTurnError,
    "abandoned": AbandonedWorkError,
    "after_sleep": IdleTimeoutError,
    "truncated": StreamTruncatedError,
    "exited": ProcessExitedError,
}


def exit_code_for(error: BaseException) -> int:
    """The exit code a command line should end with after `error`, as GNU `timeout` would choose it.

    124 after a limit, 137 if KILL was needed, 130 after Ctrl-C, 2 for a wrong configuration, else 1.
    """
    match error:
        case StreamTimeoutError():
            killed = error.teardown is not None and "KILL" in error.teardown.signals
            return 137 if killed else 124
        case KeyboardInterrupt() | StreamInterruptedError():
            return 130
        case ConfigError():
            return 2
        case _:
            return 1
