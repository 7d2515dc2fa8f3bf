"""The neutral vocabulary: what one message of a backend says.

A *reader* is a pure function `message -> Signal | Iterable[Signal] | None`; `None` means
`Progress`. Everything after the reader (the watch, events, evidence) knows only these
classes and never a backend's own. So what they could stumble over, such as an id that is no key, is
an error where the signal is made. Imports what says the nearest word.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, time
from typing import Any, Final, Literal, TypeAlias, cast, get_args

from streamguard._base.near import near

LONGEST_NAME: Final = 200

# What a `Usage` tells of: one call of the model, the turn so far, or all since the session or the
# process began.
UsageSpan: TypeAlias = Literal["call", "turn", "process", "session"]
WorkScope: TypeAlias = Literal["tool", "task", "subagent", "server", "hook"]
WaitReason: TypeAlias = Literal["human", "hook", "retry", "rate_limit", "auth", "compaction"]
Outcome: TypeAlias = Literal["success", "error", "cancelled", "incomplete", "paused"]
_SPANS: Final = frozenset(get_args(UsageSpan))
_SCOPES: Final = frozenset(get_args(WorkScope))
_REASONS: Final = frozenset(get_args(WaitReason))
_OUTCOMES: Final = frozenset(get_args(Outcome))


def _unknown(where: str, word: object, kind: Any) -> ValueError:
    return ValueError(f"{where} cannot be {word!r}; {near(word, get_args(kind))}")


@dataclass(frozen=True, slots=True)
class Progress:
    """The backend did something. The default for every unknown message."""


@dataclass(frozen=True, slots=True)
class Liveness:
    """A ping, keep-alive or heartbeat: the transport lives, the work may not."""


@dataclass(frozen=True, slots=True)
class SessionOpened:
    """A session exists, and `token` resumes it. The latest token wins.

    `resumable=False`: the backend says that this one cannot be resumed. `work_dir`: the folder it works in, where the backend says so: many can only be resumed there.
    """

    token: str
    resumable: bool = True
    work_dir: str | None = None


@dataclass(frozen=True, slots=True)
class WorkStarted:
    """Work began that may be silent for long: opens the gate's entry `id`.

    `name` is the tool's, for limits by name and for logs. `scope` is "tool", or else "task", "subagent", "server" or "hook".
    `background` work outlives the turn that started it. Work without an id (`id=""`) is in flight until
    any end without an id, or the turn's. `parent` is the work that began it, which shows thereby that
    it is alive. `input` is what it was asked, as the message has it (None: not told): it is compared with
    what was asked before and never kept. A start that is told once more may bring it.
    """

    id: str
    name: str = ""
    scope: WorkScope = "tool"
    parent: str | None = None
    background: bool = False
    input: object = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        hash((self.id, self.name))
        if self.scope not in _SCOPES:
            raise _unknown("WorkStarted.scope", self.scope, WorkScope)
        name = cast("object", self.name)
        if isinstance(name, str) and len(name) > LONGEST_NAME:  # errors, logs and files hold it
            object.__setattr__(self, "name", name[:LONGEST_NAME] + "...")


@dataclass(frozen=True, slots=True)
class WorkProgressed:
    """The piece of work `id` itself did something: a sub-agent's message, its own note of progress.

    Progress of the stream, too, but it opens no turn. Never for a timer that runs beside the work: that
    is `Liveness`, since it goes on when the work is dead.
    """

    id: str

    def __post_init__(self) -> None:
        hash(self.id)


@dataclass(frozen=True, slots=True)
class WorkFinished:
    """Work ended: closes the gate's entry `id`. An unknown id changes nothing.

    `error`: whether it failed.
    `outcome` is what came of it, as the message has it (None: not told): it is compared with what came of
    the same work before, and never kept.
    """

    id: str
    error: bool = False
    outcome: object = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        hash(self.id)


@dataclass(frozen=True, slots=True)
class Waiting:
    """The backend announced that it waits for something outside itself.

    `id` is what its `WaitEnded` names, `reason` what it waits for: "human", "hook", "retry", "rate_limit", "auth" or "compaction". `until` is wall-clock time (an aware datetime or an epoch in seconds). Without it and
    without a `WaitEnded` the hold lapses after its allowance.
    """

    id: str
    reason: WaitReason
    until: datetime | float | None = None

    def __post_init__(self) -> None:
        hash(self.id)
        if self.reason not in _REASONS:
            raise _unknown("Waiting.reason", self.reason, WaitReason)
        if isinstance(self.until, datetime):
            if self.until.utcoffset() is None:
                raise ValueError(f"Waiting.until must be an aware datetime, got {self.until!r}")
        elif self.until is not None and not math.isfinite(self.until):
            raise ValueError(f"Waiting.until must be a finite epoch, got {self.until!r}")


@dataclass(frozen=True, slots=True)
class WaitEnded:
    """The announced wait `id` is over."""

    id: str

    def __post_init__(self) -> None:
        hash(self.id)


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """The turn is over: terminal for this turn, not always for the stream.

    `outcome`: "success", "error", "cancelled", "incomplete" or "paused"; `subtype`: the backend's own word for that. `retriable`: whether the
    backend says that another try may do better. `more_expected`: it announced further turns (background work will wake it). `answered`: whether
    its message holds an answer; None where the message does not tell.
    """

    outcome: Outcome = "success"
    subtype: str = ""
    retriable: bool = False
    more_expected: bool = False
    answered: bool | None = None

    def __post_init__(self) -> None:
        if self.outcome not in _OUTCOMES:
            raise _unknown("TurnEnded.outcome", self.outcome, Outcome)


@dataclass(frozen=True, slots=True)
class Failed:
    """An error that came as a message. It classifies the error that may end the attempt.

    `error_class`: a value of `ErrorClass`. `retry_after`: the seconds to wait, if it says so. `detail`: its own short
    word for it, such as a code. `session_unknown`: the backend says that it does not know the session it was to resume. `resets_at`: when
    the usage limit that it met is over: an epoch in seconds or a datetime (one without a zone is this
    machine's local time), or a time of the day, which is today's.
    """

    error_class: str = "unknown"
    retry_after: float | None = None
    detail: str = ""
    session_unknown: bool = False
    resets_at: datetime | time | float | None = None

    def __post_init__(self) -> None:
        at = self.resets_at
        if isinstance(at, int | float) and not math.isfinite(at):
            raise ValueError(f"Failed.resets_at must be a finite epoch, got {at!r}")


@dataclass(frozen=True, slots=True)
class Usage:
    """Token or cost counts, carried into events and evidence, and added up for ceilings.

    `span`: what they are the counts of, so that nothing is added twice. Those of one "call" of the model
    are added to the others'; told again under the same `call` id they take the place of the earlier.
    Those of the "turn" so far, or of all since the "process" or the "session" began (resumes included),
    take the place of all that was added since then.
    """

    counts: Mapping[str, float]
    span: UsageSpan = "call"
    call: str = ""

    def __post_init__(self) -> None:
        if not isinstance(cast("object", self.counts), Mapping):
            raise TypeError(f"Usage.counts must be a mapping, got {type(self.counts).__name__}")
        if self.span not in _SPANS:
            raise _unknown("Usage.span", self.span, UsageSpan)


Signal: TypeAlias = (
    Progress
    | Liveness
    | SessionOpened
    | WorkStarted
    | WorkProgressed
    | WorkFinished
    | Waiting
    | WaitEnded
    | TurnEnded
    | Failed
    | Usage
)
SIGNALS = (
    Progress,
    Liveness,
    SessionOpened,
    WorkStarted,
    WorkProgressed,
    WorkFinished,
    Waiting,
    WaitEnded,
    TurnEnded,
    Failed,
    Usage,
)

# A message is whatever a backend yields, so its type can only be Any here.
Reader: TypeAlias = Callable[[Any], Signal | Iterable[Signal] | None]
