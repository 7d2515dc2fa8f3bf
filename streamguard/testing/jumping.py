"""What the virtual loops of asyncio and uvloop share: a clock that jumps, and what holds it.

A job in a worker thread that somebody awaits holds the clock until it ends. Knows asyncio, and
nothing of how a loop finds out that it has nothing to do.
"""

from __future__ import annotations

import asyncio
import math
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from concurrent.futures import Executor

T = TypeVar("T")
Args = TypeVarTuple("Args")


class JumpingLoop(asyncio.AbstractEventLoop):
    """An event loop whose time moves only when it is told to."""

    _now: float
    _jobs: int = 0

    def time(self) -> float:
        """The virtual time in seconds."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass without running anything: what a blocked event loop looks like."""
        if not 0 <= seconds < math.inf:
            raise ValueError(f"cannot advance by {seconds!r} seconds")
        self._set_time(self._now + seconds)

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Args], T], *args: *Args
    ) -> asyncio.Future[T]:
        """As ever, but the clock stands still until the job is done or given up."""
        job = super().run_in_executor(executor, func, *args)  # pyright: ignore[reportAbstractUsage]
        self._jobs += 1
        job.add_done_callback(self._job_done)
        return job

    async def shutdown_default_executor(self, *args: Any, **kwargs: Any) -> None:
        """As ever, but its time limit (3.12 and later) does not pass while threads end."""
        with self._held():
            await super().shutdown_default_executor(*args, **kwargs)  # pyright: ignore[reportAbstractUsage]

    def _set_time(self, now: float) -> None:
        self._now = now

    @contextmanager
    def _held(self) -> Generator[None, None, None]:
        self._jobs += 1
        try:
            yield
        finally:
            self._jobs -= 1

    def _is_held(self) -> bool:
        return bool(self._jobs) or self._anyio_worker_busy()

    def _job_done(self, _: asyncio.Future[Any]) -> None:
        self._jobs -= 1

    def _anyio_worker_busy(self) -> bool:
        # anyio's worker threads bypass run_in_executor, but each says whose it is and has a
        # queue that counts what is not done.
        for thread in threading.enumerate():
            if getattr(thread, "loop", None) is self:
                queue = getattr(thread, "queue", None)
                if getattr(queue, "unfinished_tasks", 0):
                    return True
        return False
