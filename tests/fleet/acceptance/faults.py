"""Faults that a worker can be started with: each takes one cure away, so that its test is seen to fail without it.

Patches of the library, made in the worker's own process by the names of the cures.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from streamguard.fleet import lease as leases
from streamguard.fleet import local_engine
from streamguard.fleet.calls import Calls
from streamguard.fleet.holding import Holding
from streamguard.fleet.lease import Lease
from streamguard.process.sentinel import sentinel
from streamguard.sessions.turns import Conversation, Turn


def _nothing(*_: Any, **__: Any) -> None:
    pass


def no_fence() -> None:
    """A lease is good until somebody says that it is not."""
    leases.FENCE = 1e6  # type: ignore[misc]
    Holding._mind = _nothing  # type: ignore[method-assign]


def no_deadline() -> None:
    """A backend ends with its worker, but not at the end of the lease."""
    hold = sentinel.hold
    sentinel.hold = lambda tree, grace, until=None: hold(tree, grace)
    sentinel.renew_all = _nothing


def plain_cancel() -> None:
    """The lease's end is a cancellation of the handler, as any scope could do it."""
    Lease.is_over = property(lambda self: False)  # type: ignore[assignment, method-assign]
    Lease.term = lambda self, now: (now, math.inf)  # type: ignore[assignment, method-assign]

    def mind(self: Any) -> None:
        import anyio

        lease = self.lease
        self._scope.deadline = anyio.current_time() - lease._clock() + lease.until

    Holding._mind = mind  # type: ignore[method-assign]


def no_checkpoints() -> None:
    """Nobody writes down where a session stands."""
    Lease._take_snapshot = _nothing  # type: ignore[method-assign]


def at_hand() -> None:
    """What is checkpointed is what the consumer has got, be it done with that or not."""
    Conversation.settled_point = Conversation.latest_point  # type: ignore[method-assign]


def begins_again() -> None:
    """What cannot be resumed is begun again."""
    Turn._refuse_what_is_unsafe = _nothing  # type: ignore[method-assign]


def no_shutdown() -> None:
    """A connection that is given up is only forgotten."""
    from streamguard.fleet.postgres_database import PostgresLink

    PostgresLink.end_wait = _nothing  # type: ignore[method-assign]


def on_the_loop() -> None:
    """The store is called where the sessions run."""

    async def call(self: Any, call: Callable[[], Any], *, urgent: bool = False) -> Any:
        return call()

    Calls.__call__ = call  # type: ignore[assignment, method-assign]


def eager() -> None:
    """No fault: it looks for sessions all the time."""
    local_engine._IDLE = 0.005  # type: ignore[misc]


FAULTS: dict[str, Callable[[], None]] = {
    each.__name__: each
    for each in (
        no_fence,
        no_deadline,
        plain_cancel,
        no_checkpoints,
        at_hand,
        begins_again,
        no_shutdown,
        on_the_loop,
        eager,
    )
}
