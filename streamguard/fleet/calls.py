"""`Calls`: a store's methods, from an event loop: in worker threads, and each within a bound.

A store may block for as long as a dead network likes, and then its thread does, too. Past the bound its connection is shut
from outside, which frees the thread; the caller gets a `StoreError` and may try again over a new one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

import anyio
import anyio.to_thread

from streamguard.errors import StoreError

if TYPE_CHECKING:
    from streamguard.fleet.store import Blocking

T = TypeVar("T")
# Beats, claims, ends of sessions, lines of the log: more at once wait.
_THREADS: Final = 16


class Calls:
    """The calls of one engine. To be made in its loop."""

    def __init__(self, store: Blocking, bound: float) -> None:
        self._store = store
        self._bound = bound
        self._threads = anyio.CapacityLimiter(_THREADS)
        # Beats never wait for a thread that others have.
        self._urgent = anyio.CapacityLimiter(2)

    async def __call__(self, call: Callable[[], T], *, urgent: bool = False) -> T:
        """What `call` gives. StoreError if it takes longer than the bound."""
        if not self._store.blocks:
            return call()
        with anyio.move_on_after(self._bound):
            return await anyio.to_thread.run_sync(
                call,
                abandon_on_cancel=True,
                limiter=self._urgent if urgent else self._threads,
            )
        self._store.interrupt()
        raise StoreError(
            f"the fleet's store has not answered within {self._bound:g} s: see whether its server can be reached and is not "
            "overloaded. It is asked again over a new connection"
        )
