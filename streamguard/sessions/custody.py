"""`Custody`: who may act for a session, and until when. What a fleet gives a session with its point.

Of one session there must never be two owners, also where the other one is on another machine. So who acts for it has
a lease, and past its end nothing is delivered, opened or left at work. The session asks for it at each pull, at each message
before it is handed over, and before it opens a connection; the watch ends what is under way (limit
`lease`). In return it tells how far its consumer is. Interfaces only: a session without custody has none of this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamguard.process import ProcessTree
    from streamguard.sessions.points import ResumePoint


class Entrusted(Protocol):
    """A session, for whoever has its custody. To be called in its loop's thread."""

    def settled_point(self) -> ResumePoint | None:
        """Where it stands; None while its consumer is at work on a message."""
        ...

    @property
    def delivered(self) -> int:
        """How many messages its consumer is done with by then, or has at hand."""
        ...

    @property
    def has_progressed(self) -> bool:
        """Whether its backend has done anything: a greeting is none, nor what is played again."""
        ...

    def look(self) -> None:
        """The lease has ended before its time: see to it now."""
        ...


class Custody(Protocol):
    """Who may act for a session, and until when. `key`: what the session is called there."""

    @property
    def key(self) -> str: ...

    @property
    def is_over(self) -> bool:
        """Whether nothing may be delivered or opened any more."""
        ...

    def term(self, now: float) -> tuple[float, float]:
        """When it was last renewed, and when it ends: on the loop's clock, which shows `now`."""
        ...

    def begin(self, session: Entrusted) -> None:
        """That session acts from here on. RuntimeError if another one does."""
        ...

    def asked(self) -> None:
        """Its consumer pulls: it is done with all that came before."""
        ...

    def keep(self, tree: ProcessTree) -> Callable[[], None]:
        """See that `tree` is dead when the lease ends, even if this program cannot act then. Call the result when it has ended."""
        ...

    def end(self, *, is_gone: bool) -> None:
        """The session's block was left. `is_gone`: its backend has certainly ended."""
        ...
