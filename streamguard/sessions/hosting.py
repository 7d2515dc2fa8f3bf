"""`Hosting`: what all attempts of one session share, and how what happens to them is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from streamguard import events
from streamguard._watch.windows import end_of
from streamguard.errors import LeaseLostError, Verdict

if TYPE_CHECKING:
    from streamguard._guard.modes import Mode
    from streamguard._loops import Loop
    from streamguard._watch.watch import Limits
    from streamguard.events.teller import Teller
    from streamguard.sessions.custody import Custody
    from streamguard.sessions.exclusive import Exclusive
    from streamguard.sessions.points import ResumePoint


@dataclass(frozen=True, kw_only=True)
class Hosting:
    """The surroundings of a session's attempts. `started`: when its block was entered."""

    loop: Loop
    teller: Teller
    limits: Limits
    mode: Mode
    started: float
    custody: Custody | None = None
    exclusive: Exclusive | None = None

    def on_attempt(self, point: ResumePoint) -> None:
        """An attempt begins."""
        self.teller.activity.count_attempt(point.attempt)
        self.teller.tell(events.AttemptStarted, attempt=point.attempt, resumes=point.is_resumed)

    def on_open(self, point: ResumePoint) -> None:
        """A connection is open."""
        if point.reason is not None:
            self.teller.tell(events.Reconnected, attempt=point.attempt, resumes=point.is_resumed)

    @property
    def is_lost(self) -> bool:
        """Whether somebody else may act for the session by now."""
        return self.custody is not None and self.custody.is_over

    def verdict_on(self, limit: Literal["lease", "total"], now: float) -> Verdict:
        """The verdict on that limit where no attempt is under way. It is to be told."""
        since, until = self.started, self.total_deadline
        if limit == "lease" and self.limits.lease is not None:
            since, until = self.limits.lease()
        activity = self.teller.activity
        return Verdict(
            limit=limit,
            window=until - since if limit == "lease" else self.limits.total,
            elapsed=now - since,
            at=now,
            name=activity.name,
            stream=activity.display_name,
            labels=dict(activity.labels),
            messages=activity.messages,
            token=activity.token,
            done=activity.done,
        )

    def lost_between_attempts(self) -> LeaseLostError:
        """What is raised where there is no attempt on which it could be a verdict; it is told here."""
        if self.limits.lease is None:  # limits are off, and a lease binds all the same
            return self.lost()
        now = self.loop.clock()
        verdict = self.verdict_on("lease", now)
        self.teller.tell(events.TimedOut, at=now, verdict=verdict, enforced=True)
        return LeaseLostError(verdict=verdict, activity=self.teller.activity)

    def lost(self) -> LeaseLostError:
        """What is raised then, where the verdict is somebody else's to tell."""
        name = self.teller.activity.name
        return LeaseLostError(
            f"the lease on this session{f' ({name})' if name else ''} is over: another worker may have it by now. "
            "Nothing is to be done: it goes on there",
            activity=self.teller.activity,
        )

    @property
    def total_deadline(self) -> float:
        """When `total` is spent, as an attempt's watch has it, to the last bit; infinite without it."""
        if self.limits.total is None:
            return float("inf")
        return end_of(self.limits.total, self.started)

    @property
    def total_left(self) -> float:
        """Seconds until `total` is spent; infinite without it."""
        return self.total_deadline - self.loop.clock()
