"""`Engine`: what runs a fleet's sessions. The same handler runs on each, unchanged (F6).

`LocalEngine` brings its own workers, over a store; `TemporalEngine` has Temporal's. Interfaces only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeAlias

from streamguard.fleet.lease import Lease

if TYPE_CHECKING:
    from streamguard.fleet.store import JSON, Row

Handler: TypeAlias = Callable[[Lease], Awaitable[None]]


class Engine(Protocol):
    """Queues sessions, has workers run them, and shows what becomes of them."""

    async def submit(self, key: str, spec: Mapping[str, JSON]) -> bool:
        """Queue a session; False if the key is known already."""
        ...

    async def serve(self, handler: Handler) -> None:
        """Be a worker: run sessions until `drain` is called, or this is cancelled."""
        ...

    def drain(self) -> None:
        """Take no further session, hand on those that run, and let `serve` return."""
        ...

    async def cancel(self, key: str, why: str = "") -> bool:
        """End a session, on whichever worker it is. False if there is none to end."""
        ...

    async def release(self, key: str) -> bool:
        """Let a parked session go on. False if it is not parked."""
        ...

    async def sessions(self) -> list[Row]:
        """What is not over yet."""
        ...

    async def show(self, key: str) -> Row | None:
        """One session, also one that is over; None if the key is not known."""
        ...
