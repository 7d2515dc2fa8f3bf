"""Finds trio runs on a virtual clock in which nothing can ever happen again.

trio's own clock spins for ever there. Imports trio, so it is imported only for a run on trio.
"""

from __future__ import annotations

import math
import time
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from streamguard.testing import clocks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from trio.testing import MockClock

T = TypeVar("T")
OWN_WAKEUP = 1  # trio's run loop itself waits to read from its wakeup socket


def run_on_trio(clock: MockClock, async_fn: Callable[..., Awaitable[T]], *args: Any) -> T:
    """`trio.run` with DeadlockError. Not by `anyio.run`: old ones forget their trio options."""
    return trio.run(partial(raising_deadlocks, async_fn, *args), clock=clock)


async def raising_deadlocks(async_fn: Callable[..., Awaitable[T]], *args: Any) -> T:
    """What `async_fn(*args)` gives, or DeadlockError when it can give nothing any more."""
    scope = trio.CancelScope()
    watch = _Watch(scope)
    with scope:
        trio.lowlevel.add_instrument(watch)
        try:
            return await async_fn(*args)
        finally:
            trio.lowlevel.remove_instrument(watch)
    raise clocks.DeadlockError(watch.finding)


class _Watch(trio.abc.Instrument):
    def __init__(self, scope: trio.CancelScope) -> None:
        self.finding = ""
        self._scope = scope
        self._idle_since: float | None = None

    def before_task_step(self, task: trio.lowlevel.Task) -> None:  # noqa: ARG002 - trio calls it so
        self._idle_since = None

    def before_io_wait(self, timeout: float) -> None:  # noqa: ARG002 - trio calls it so
        now = time.monotonic()
        if self._idle_since is None:
            self._idle_since = now
        elif now - self._idle_since > clocks.UNANNOUNCED_THREADS and _nothing_can_wake():
            self.finding = clocks.deadlock(trio.current_time(), map(repr, _waiting()))
            self._scope.cancel()
            self._idle_since = math.inf  # said once; a task that ignores it is not told again


def _nothing_can_wake() -> bool:
    state = trio.lowlevel.current_statistics()
    # Only epoll counts who waits for input and output; elsewhere nobody is taken for waiting.
    readers = getattr(state.io_statistics, "tasks_waiting_read", OWN_WAKEUP)
    writers = getattr(state.io_statistics, "tasks_waiting_write", 0)
    return (
        state.tasks_runnable == 0
        and state.seconds_to_next_deadline == math.inf
        and readers + writers <= OWN_WAKEUP
        and trio.to_thread.current_default_thread_limiter().borrowed_tokens == 0
    )


def _waiting() -> Iterator[trio.lowlevel.Task]:
    """Every task that waits without children of its own to wait for."""
    todo = [root] if (root := trio.lowlevel.current_root_task()) else []
    while todo:
        task = todo.pop()
        children = [child for nursery in task.child_nurseries for child in nursery.child_tasks]
        todo += children
        if not children:
            yield task
