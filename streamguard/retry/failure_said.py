"""`FailureSaid`: what a backend's messages have said of a failure that may end the attempt.

Several messages may tell of one failure, and each of them a part: when a usage limit is over comes before the
error, or with its first mention alone. What the backend got over is none. Imports signals.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from streamguard.retry.classes import ErrorClass
from streamguard.signals import (
    Failed,
    Progress,
    Signal,
    TurnEnded,
    WaitEnded,
    Waiting,
    WorkFinished,
    WorkProgressed,
    WorkStarted,
)


class FailureSaid:
    """The latest failure, put together; `failed` is None if there is none."""

    __slots__ = ("_limit", "failed")

    def __init__(self) -> None:
        self.failed: Failed | None = None
        self._limit: tuple[str, datetime | float] | None = None  # a wait, and its end

    def take(self, signal: Signal) -> None:
        """A new message said that."""
        match signal:
            case Failed():
                self.failed = self._whole(signal)
            case Progress() | WorkStarted() | WorkProgressed() | WorkFinished():
                self.failed = self._limit = None  # whatever it was, the backend got over it
            case TurnEnded(outcome="success"):
                self.failed = None
            case Waiting(id_, "rate_limit", until) if until is not None:
                self._limit = id_, until
            case WaitEnded(id_) if self._limit is not None and self._limit[0] == id_:
                self._limit = None
            case _:
                pass

    def _whole(self, failed: Failed) -> Failed:
        """`failed`, and when its limit is over, if it was told before."""
        if failed.resets_at is not None or failed.error_class != ErrorClass.RATE_LIMIT:
            return failed
        if self._limit is not None:
            return replace(failed, resets_at=self._limit[1])
        earlier = self.failed
        if earlier is not None and earlier.error_class == failed.error_class:
            return replace(failed, resets_at=earlier.resets_at)
        return failed
