"""What happened in a session, or to a `SubprocessWatchdog`, as events."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from streamguard.events.event import Event, where_raised

if TYPE_CHECKING:
    from streamguard.events.kinds import StreamOutcome

AttemptOutcome: TypeAlias = "StreamOutcome"


@dataclass(frozen=True, kw_only=True)
class AttemptStarted(Event):
    """A session begins attempt number `attempt`; if `resumes`, it goes on with what is there."""

    attempt: int
    resumes: bool

    def text(self) -> str:
        how = "resuming" if self.resumes else "afresh"
        return f"attempt {self.attempt} begins, {how}"


@dataclass(frozen=True, kw_only=True)
class AttemptEnded(Event):
    """A session's attempt is over, and its backend gone if `confirmed`."""

    attempt: int
    outcome: AttemptOutcome
    error: BaseException | None
    confirmed: bool

    def text(self) -> str:
        state = "" if self.confirmed else ", its backend's end NOT confirmed"
        by = f" by {where_raised(self.error)}" if self.error else ""
        return f"attempt {self.attempt} {self.outcome}{by}{state}"


@dataclass(frozen=True, kw_only=True)
class RetryScheduled(Event):
    """There will be another attempt, in `delay` seconds: retry number `retry` of its class.

    `delay_source` says where the delay comes from: the policy, the server (`Retry-After`), or the
    circuit breaker.
    """

    level = logging.WARNING
    error_class: str
    retry: int
    delay: float
    why: str
    delay_source: str = "policy"

    def text(self) -> str:
        return self.why


@dataclass(frozen=True, kw_only=True)
class RetryRecovered(Event):
    """A turn that had to be retried so many times has ended well."""

    level = logging.INFO
    retries: int

    def text(self) -> str:
        times = f"{self.retries} retr{'y' if self.retries == 1 else 'ies'}"
        return f"the turn ended well after {times}"


@dataclass(frozen=True, kw_only=True)
class Reconnected(Event):
    """Another attempt is connected: whatever you keep of the stream before it is void."""

    level = logging.INFO
    attempt: int
    resumes: bool

    def text(self) -> str:
        how = "the session goes on" if self.resumes else "a fresh session"
        return f"connected again in attempt {self.attempt}: {how}"


@dataclass(frozen=True, kw_only=True)
class ReplayDropped(Event):
    """After a reconnect so many messages came again, and were not delivered again."""

    attempt: int
    messages: int

    def text(self) -> str:
        return f"attempt {self.attempt} played {self.messages} messages again, now dropped"


@dataclass(frozen=True, kw_only=True)
class KeysRepeated(Event):
    """`dedupe_by` gave one key to several messages of one attempt: a replay would look like new messages."""

    level = logging.WARNING
    attempt: int

    def text(self) -> str:
        return (
            f"dedupe_by gave one key to several messages of attempt {self.attempt}: keys must be "
            "unique, or a replay cannot be told from new messages, and the turn is not retried"
        )


@dataclass(frozen=True, kw_only=True)
class GaveUp(Event):
    """No further attempt: `reason` is the error's `gave_up`. `escalate`: a person should know."""

    level = logging.ERROR
    reason: str
    why: str
    error: BaseException
    escalate: bool

    def text(self) -> str:
        return f"gave up ({self.reason}): {self.why}"


@dataclass(frozen=True, kw_only=True)
class SessionOver(Event):
    """A session's block is left: what was begun in it is over, also a pause before a retry."""

    def text(self) -> str:
        return "the session is over"


@dataclass(frozen=True, kw_only=True)
class OwnerAbandoned(Event):
    """The task that owns an attempt does not end, whatever is done: it was left behind."""

    level = logging.ERROR
    attempt: int

    def text(self) -> str:
        return (
            f"the task of attempt {self.attempt} does not end and was left behind; "
            "the backend may be alive"
        )


@dataclass(frozen=True, kw_only=True)
class CloseFailed(Event):
    """Closing an attempt's connection raised `error`, after the attempt had ended."""

    level = logging.WARNING
    attempt: int
    error: BaseException

    def text(self) -> str:
        return (
            f"closing the connection of attempt {self.attempt} raised {where_raised(self.error)}"
        )


@dataclass(frozen=True, kw_only=True)
class WatchdogEvent(Event):
    """Base of what a `SubprocessWatchdog` tells; `pid` is None if it only has a disconnect.

    Its types are told under the names that a watchdog's events have: `told_as`.
    """

    names_itself = True
    told_as = "watchdog"

    pid: int | None

    @property
    def _who(self) -> str:
        return "the backend" if self.pid is None else f"subprocess {self.pid}"


@dataclass(frozen=True, kw_only=True)
class WatchdogStarted(WatchdogEvent):
    """It watches, with this configuration."""

    level = logging.INFO
    told_as = "watchdog.started"

    timeout_seconds: float
    poll_interval_seconds: float
    kill_grace_seconds: float

    def text(self) -> str:
        whom = "a backend without a PID" if self.pid is None else f"PID {self.pid}"
        return f"Watchdog started for {whom}, timeout={self.timeout_seconds}s"


@dataclass(frozen=True, kw_only=True)
class WatchdogActivity(WatchdogEvent):
    """It was told of activity. In the log only, at the level of debugging."""

    told_as = "watchdog.activity"

    def text(self) -> str:
        return f"Watchdog was told of activity of {self._who}"


@dataclass(frozen=True, kw_only=True)
class WatchdogTimeout(WatchdogEvent):
    """The process was idle for too long. `enforced` is False in mode `warn`: nothing is ended."""

    level = logging.WARNING
    told_as = "watchdog.timeout"

    idle_seconds: float
    timeout_seconds: float
    enforced: bool

    def text(self) -> str:
        verb = "disconnecting" if self.pid is None else "killing"
        after = f"{self._who} after {self.timeout_seconds}s idle"
        if not self.enforced:
            return f"Watchdog would be {verb} {after} (mode warn)"
        return f"Watchdog {verb} {after}"


@dataclass(frozen=True, kw_only=True)
class WatchdogKilled(WatchdogEvent):
    """The process is dead. `signals`: what was sent to it and to what it had started."""

    told_as = "watchdog.killed"
    loudest = logging.WARNING

    signals: tuple[str, ...]
    exit: int | None
    elapsed: float

    @property
    def level(self) -> int:  # type: ignore[override]
        return logging.WARNING if "KILL" in self.signals else logging.INFO

    def text(self) -> str:
        if "KILL" in self.signals:
            return f"Subprocess {self.pid} required SIGKILL"
        if self.signals:
            return f"Subprocess {self.pid} terminated gracefully"
        return f"Subprocess {self.pid} has ended without a signal"
