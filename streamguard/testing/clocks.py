"""Virtual clocks: hours of silence in milliseconds, exact to the last bit.

`VirtualLoop` is an asyncio event loop whose time stands still while anything can run and jumps
to the next timer when nothing can; `virtual_clock()` is the same for trio, and `run_virtual()`
runs one async function on either. Both clocks start at `START`, so that code which takes the
time 0.0 for "none" shows, and whole seconds and binary fractions (0.25) add up exactly.

What virtual time cannot know. A job in a worker thread that somebody awaits holds asyncio's
clock until it ends (`run_in_executor`, `to_thread`, anyio's worker threads); on trio it does
not. Sockets and processes are asked before each jump, and what they say in that instant is
served first, but their silence does not hold the clock: give `io_grace` real seconds, or test
such code in real time. Where nothing can ever run again, `VirtualLoop` and `run_virtual`
raise `DeadlockError`; a bare `trio.run` with the virtual clock spins for ever.

Imports anyio; trio only when it is asked for.
"""

from __future__ import annotations

import asyncio
import math
import selectors
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, TypeVarTuple

import anyio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from concurrent.futures import Executor

    from trio.testing import MockClock

T = TypeVar("T")
Args = TypeVarTuple("Args")
Backend: TypeAlias = Literal["asyncio", "trio"]
Ready: TypeAlias = list[tuple[selectors.SelectorKey, int]]

START = 1000.0
# Real seconds. How long a silent loop may still be woken by a thread that nobody announced,
# before its silence counts as a deadlock; and how long one look at a working thread lasts.
UNANNOUNCED_THREADS = 1.0
WORKER_LOOK = 0.01


class DeadlockError(RuntimeError):
    """Nothing can ever run again: no timer, no input or output, no worker thread is left."""


def deadlock(now: float, tasks: Iterable[str]) -> str:
    """What a DeadlockError says."""
    listed = "".join(f"\n  {task}" for task in sorted(tasks))
    return (
        "deadlock in virtual time: every task waits, and no timer, no input or output and "
        f"no worker thread is left that could wake one. Waiting at {now:g}:{listed}"
    )


class VirtualLoop(asyncio.SelectorEventLoop):
    """An asyncio event loop in virtual time, to be given wherever a loop factory is asked for.

    `asyncio.Runner(loop_factory=VirtualLoop)`, pytest-asyncio's loop factories, or
    `anyio.run(main, backend_options={"loop_factory": VirtualLoop})`.
    """

    def __init__(self, start: float = START, *, io_grace: float = 0.0) -> None:
        self._selector_in_real_time = _AskingSelector(self._pass_time)
        self._io_grace = io_grace
        self._jobs = 0
        self._processes: set[asyncio.SubprocessTransport] = set()
        super().__init__(self._selector_in_real_time)
        self._set_time(start)

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
        job = super().run_in_executor(executor, func, *args)
        self._jobs += 1
        job.add_done_callback(self._job_done)
        return job

    async def shutdown_default_executor(self, *args: Any, **kwargs: Any) -> None:
        """As ever, but its time limit (3.12 and later) does not pass while threads end."""
        self._jobs += 1
        try:
            await super().shutdown_default_executor(*args, **kwargs)
        finally:
            self._jobs -= 1

    async def subprocess_exec(self, *args: Any, **kwargs: Any) -> Any:
        """As ever, but a living process is no deadlock."""
        return self._started(await super().subprocess_exec(*args, **kwargs))

    async def subprocess_shell(self, *args: Any, **kwargs: Any) -> Any:
        """As ever, but a living process is no deadlock."""
        return self._started(await super().subprocess_shell(*args, **kwargs))

    def _started(self, process: tuple[asyncio.SubprocessTransport, Any]) -> Any:
        self._processes.add(process[0])
        return process

    def _job_done(self, _: asyncio.Future[Any]) -> None:
        self._jobs -= 1

    def _set_time(self, now: float) -> None:
        self._now = now
        # asyncio runs timers up to one clock resolution early. One unit in the last place
        # makes that "never early", and keeps far times from rounding it away (a busy loop).
        self._clock_resolution = math.ulp(now)

    def _pass_time(self, poll: Callable[[float | None], Ready]) -> Ready:
        """Nothing can run now: wait for threads, else jump, else wait for the outside."""
        if self._jobs or self._anyio_worker_busy():
            return poll(WORKER_LOOK)
        outside = self._outside()
        if (due := self._next_timer()) < math.inf:
            if outside and self._io_grace and (ready := poll(self._io_grace)):
                return ready
            self._set_time(max(self._now, due))
            return []
        if outside:
            return poll(None)
        if ready := poll(UNANNOUNCED_THREADS):
            return ready
        raise DeadlockError(deadlock(self._now, map(repr, asyncio.all_tasks(self))))

    def _next_timer(self) -> float:
        # asyncio's own heap: a live timer is at its head, since a pass drops cancelled ones
        # before it asks the selector. The selector's timeout would be a rounded difference.
        timers: list[asyncio.TimerHandle] = vars(self)["_scheduled"]
        return timers[0].when() if timers else math.inf

    def _outside(self) -> bool:
        self._processes = {p for p in self._processes if p.get_returncode() is None}
        own_wakeup = 1
        return len(self._selector_in_real_time.get_map()) > own_wakeup or bool(self._processes)

    def _anyio_worker_busy(self) -> bool:
        # anyio's worker threads bypass run_in_executor, but each says whose it is and has a
        # queue that counts what is not done.
        for thread in threading.enumerate():
            if getattr(thread, "loop", None) is self:
                queue = getattr(thread, "queue", None)
                if getattr(queue, "unfinished_tasks", 0):
                    return True
        return False


class _AskingSelector(selectors.DefaultSelector):
    """Serves what is ready; where asyncio would sleep, it asks how to pass the time."""

    def __init__(self, pass_time: Callable[[Callable[[float | None], Ready]], Ready]) -> None:
        super().__init__()
        self._pass_time = pass_time

    def select(self, timeout: float | None = None) -> Ready:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        return self._pass_time(super().select)


def virtual_clock() -> MockClock:
    """A clock for `trio.run(main, clock=...)` that jumps whenever every task waits."""
    from trio.testing import MockClock

    clock = MockClock(autojump_threshold=0)
    clock.jump(START)
    return clock


def virtual_options(backend: Backend = "asyncio") -> dict[str, Any]:
    """The `backend_options` that make `anyio.run` (or anyio's pytest plugin) run virtually.

    Fresh ones for each run: a trio clock goes on from where it was. The oldest supported
    anyio forgets trio's options in `anyio.run`; `run_virtual` does not depend on it.
    """
    if backend == "trio":
        return {"clock": virtual_clock()}
    if backend == "asyncio":
        return {"loop_factory": VirtualLoop}
    raise ValueError(f"no virtual time for backend {backend!r}: give 'asyncio' or 'trio'")


def run_virtual(
    async_fn: Callable[[*Args], Awaitable[T]],
    *args: *Args,
    backend: Backend = "asyncio",
) -> T:
    """Run `async_fn(*args)` in virtual time and give what it returns.

    Raises DeadlockError when nothing can ever run again.
    """
    if backend == "trio":
        from streamguard.testing.trio_deadlock import run_on_trio

        return run_on_trio(virtual_clock(), async_fn, *args)
    return anyio.run(async_fn, *args, backend=backend, backend_options=virtual_options(backend))


def block_loop(seconds: float) -> None:
    """Keep the running event loop from running for so long.

    In virtual time the clock moves on and nothing else happens; in real time this sleeps.
    """
    if trio := running_trio():
        clock = trio.lowlevel.current_clock()
        if hasattr(clock, "jump"):
            clock.jump(seconds)
            return
    elif isinstance(loop := asyncio.get_running_loop(), VirtualLoop):
        loop.advance(seconds)
        return
    time.sleep(seconds)


def virtual_now() -> float:
    """The time of the running event loop, which must be a virtual one."""
    if trio := running_trio():
        virtual = hasattr(trio.lowlevel.current_clock(), "jump")
    else:
        virtual = isinstance(asyncio.get_running_loop(), VirtualLoop)
    if not virtual:
        raise RuntimeError(
            "this code runs in real time: either nothing asked for virtual time before the "
            "event loop was made (a wider async fixture makes it), or the plugin that runs "
            "this test cannot be given a loop; `virtual_time.run(...)` in a sync test always works"
        )
    return anyio.current_time()


def running_trio() -> Any:
    """The module `trio` while it runs the caller, else None; never imports it."""
    if trio := sys.modules.get("trio"):
        with suppress(RuntimeError):
            trio.lowlevel.current_task()
            return trio
    return None
