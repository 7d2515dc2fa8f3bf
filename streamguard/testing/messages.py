"""What a scripted backend says: small messages that carry their own signals.

Every message has `signals`, so that streamguard's automatic reader understands it without
being told how. Imports the vocabulary of signals, nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streamguard.signals import (
    Failed,
    Liveness,
    Outcome,
    Progress,
    SessionOpened,
    Signal,
    TurnEnded,
    Usage,
    UsageSpan,
    WaitEnded,
    Waiting,
    WaitReason,
    WorkFinished,
    WorkProgressed,
    WorkStarted,
)

if TYPE_CHECKING:
    from datetime import datetime, time


@dataclass(frozen=True, slots=True)
class Message:
    """Base of what a script yields; on its own it is progress."""

    @property
    def signals(self) -> tuple[Signal, ...]:
        """What this message says, in streamguard's neutral words."""
        return (Progress(),)


@dataclass(frozen=True, slots=True)
class Said(Message):
    """Some text from the model."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolUsed(Message):
    """A tool starts to run."""

    id: str
    name: str = ""
    background: bool = False
    parent: str | None = None
    input: object = field(default=None, compare=False)

    @property
    def signals(self) -> tuple[Signal, ...]:
        """The work starts."""
        work = WorkStarted(
            self.id, self.name, parent=self.parent, background=self.background, input=self.input
        )
        return (work,)


@dataclass(frozen=True, slots=True)
class ToolGoesOn(Message):
    """A tool, or the sub-agent that it is, shows itself that it gets on."""

    id: str

    @property
    def signals(self) -> tuple[Signal, ...]:
        """The work's own sign of life."""
        return (WorkProgressed(self.id),)


@dataclass(frozen=True, slots=True)
class ToolDone(Message):
    """A tool has its result."""

    id: str
    error: bool = False
    outcome: object = field(default=None, compare=False)

    @property
    def signals(self) -> tuple[Signal, ...]:
        """The work is done."""
        return (WorkFinished(self.id, self.error, outcome=self.outcome),)


@dataclass(frozen=True, slots=True)
class Pinged(Message):
    """A keep-alive: the transport lives, the work may not."""

    @property
    def signals(self) -> tuple[Signal, ...]:
        """A sign of life, no progress."""
        return (Liveness(),)


@dataclass(frozen=True, slots=True)
class Opened(Message):
    """The session exists and `token` resumes it."""

    token: str
    resumable: bool = True
    work_dir: str | None = None

    @property
    def signals(self) -> tuple[Signal, ...]:
        """The session's token."""
        return (SessionOpened(self.token, self.resumable, self.work_dir),)


@dataclass(frozen=True, slots=True)
class WaitsFor(Message):
    """The backend announces that it waits for something outside itself."""

    id: str
    reason: WaitReason = "human"
    until: datetime | float | None = None

    @property
    def signals(self) -> tuple[Signal, ...]:
        """The announced wait."""
        return (Waiting(self.id, self.reason, self.until),)


@dataclass(frozen=True, slots=True)
class WaitOver(Message):
    """An announced wait is over."""

    id: str

    @property
    def signals(self) -> tuple[Signal, ...]:
        """The end of the wait."""
        return (WaitEnded(self.id),)


@dataclass(frozen=True, slots=True)
class Counted(Message):
    """Token or cost counts, as pairs, and what they are the counts of."""

    counts: tuple[tuple[str, float], ...]
    span: UsageSpan = "call"
    call: str = ""

    @property
    def signals(self) -> tuple[Signal, ...]:
        """The usage."""
        return (Usage(dict(self.counts), self.span, self.call),)


@dataclass(frozen=True, slots=True)
class ErrorSaid(Message):
    """An error that comes as a message and raises nothing."""

    error_class: str = "unknown"
    retry_after: float | None = None
    detail: str = ""
    session_unknown: bool = False
    resets_at: datetime | time | float | None = None

    @property
    def signals(self) -> tuple[Signal, ...]:
        """The failure, classified."""
        return (
            Failed(
                self.error_class,
                self.retry_after,
                self.detail,
                self.session_unknown,
                self.resets_at,
            ),
        )


@dataclass(frozen=True, slots=True)
class Ended(Message):
    """The turn is over."""

    outcome: Outcome = "success"
    subtype: str = ""
    retriable: bool = False
    more_expected: bool = False
    answered: bool | None = None

    @property
    def signals(self) -> tuple[Signal, ...]:
        """The turn's end."""
        ended = TurnEnded(
            self.outcome, self.subtype, self.retriable, self.more_expected, self.answered
        )
        return (ended,)


def ends_turn(message: object) -> bool:
    """Whether `message` is a scripted one that ends its turn."""
    return isinstance(message, Ended)
