"""Virtual clocks: hours of silence in milliseconds, exact to the last bit.

`VirtualLoop` is an asyncio event loop whose time stands still while anything can run and jumps
to the next timer when nothing can. `uvloop_clock.VirtualUvloop` is the same for uvloop,
`virtual_clock()` for trio, and `run_virtual()` runs one async function on any of them. All clocks
start at `START`, so that code which takes the time 0.0 for "none" shows, and whole seconds and
binary fractions (0.25) add up exactly.

What virtual time cannot know. A job in a worker thread that somebody awaits holds the clock of
asyncio and uvloop until it ends (`run_in_executor`, `to_thread`, anyio's worker threads); on trio
it does not. Sockets and processes are asked before each jump, and what they say in that instant is
served first, but their silence does not hold the clock: give `io_grace` real seconds, or test
such code in real time. Where nothing can ever run again, the loops and `run_virtual` raise
`DeadlockError` (on uvloop only if neither a socket nor a process was ever used); a bare
`trio.run` with the virtual clock spins for ever.

Imports anyio; trio and uvloop only when they are asked for.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import selectors
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, TypeVarTuple

import anyio

from streamguard.testing.jumping import JumpingLoop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from trio.testing import MockClock

T = TypeVar("T")
Args = TypeVarTuple("Args")
Backend: TypeAlias = Literal["asyncio", "uvloop", "trio"]
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


class VirtualLoop(JumpingLoop, asyncio.SelectorEventLoop):
    """An asyncio event loop in virtual time, to be given wherever a loop factory is asked for.

    `asyncio.Runner(loop_factory=VirtualLoop)`, pytest-asyncio's loop factories, or
    `anyio.run(main, backend_options={"loop_factory": VirtualLoop})`. `start`: what its clock says at first.
    `io_grace`: for how many real seconds it waits for sockets and threads before time jumps.
    """

    def __init__(self, start: float = START, *, io_grace: float = 0.0) -> None:
        self._selector_in_real_time = _AskingSelector(self._pass_time)
        self._io_grace = io_grace
        self._processes: set[asyncio.SubprocessTransport] = set()
        super().__init__(self._selector_in_real_time)
        self._set_time(start)

    async def subprocess_exec(self, *args: Any, **kwargs: Any) -> Any:
        """As ever, but a living process is no deadlock."""
        return self._started(await super().subprocess_exec(*args, **kwargs))

    async def subprocess_shell(self, *args: Any, **kwargs: Any) -> Any:
        """As ever, but a living process is no deadlock."""
        return self._started(await super().subprocess_shell(*args, **kwargs))

    def _started(self, process: tuple[asyncio.SubprocessTransport, Any]) -> Any:
        self._processes.add(process[0])
        return process

    def _set_time(self, now: float) -> None:
        super()._set_time(now)
        # asyncio runs timers up to one clock resolution early. One unit in the last place
        # makes that "never early", and keeps far times from rounding it away (a busy loop).
        self._clock_resolution = math.ulp(now)

    def _pass_time(self, poll: Callable[[float | None], Ready]) -> Ready:
        """Nothing can run now: wait for threads, else jump, else wait for the outside."""
        if self._is_held():
            return poll(WORKER_LOOK)
        if ready := poll(0):  # from a thread that has ended since the loop looked
            return ready
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

    Those for "uvloop" go with anyio's backend "asyncio". Make fresh ones for each run: a trio clock goes
    on from where it was. The oldest supported anyio forgets trio's options in `anyio.run`;
    `run_virtual` does not depend on it.
    """
    if backend == "trio":
        return {"clock": virtual_clock()}
    if backend == "asyncio":
        return {"loop_factory": VirtualLoop}
    if backend == "uvloop":
        from streamguard.testing.uvloop_clock import VirtualUvloop

        return {"loop_factory": VirtualUvloop}
    raise ValueError(
        f"no virtual time for backend {backend!r}: give 'asyncio', 'uvloop' or 'trio'"
    )


def run_virtual(
    async_fn: Callable[[*Args], Awaitable[T]],
    *args: *Args,
    backend: Backend = "asyncio",
) -> T:
    """Run `async_fn(*args)` in virtual time and give what it returns.

    `backend`: "asyncio", "uvloop" or "trio".

    Raises DeadlockError when nothing can ever run again.
    """
    _check_startable(async_fn)
    if backend == "trio":
        from streamguard.testing.trio_deadlock import run_on_trio

        return run_on_trio(virtual_clock(), async_fn, *args)
    options = virtual_options(backend)
    return anyio.run(async_fn, *args, backend="asyncio", backend_options=options)


def _check_startable(async_fn: object) -> None:
    if inspect.iscoroutine(async_fn):
        async_fn.close()  # or Python would also warn that it was never awaited
        name = async_fn.__name__
        raise TypeError(
            f"run_virtual({name}()): pass the function itself, run_virtual({name}, ...)"
        )
    if not callable(async_fn):
        raise TypeError(f"run_virtual({async_fn!r}): pass an `async def`, without calling it")
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        raise TypeError(
            "run_virtual() makes a loop of its own, and was called where one runs already: call it from a "
            "plain test; an `async def` test names the fixture virtual_time, and awaits what it tests"
        )


def block_loop(seconds: float) -> None:
    """Keep the running event loop from running for `seconds`.

    In virtual time the clock moves on and nothing else happens; in real time this sleeps.
    """
    if trio := running_trio():
        clock = trio.lowlevel.current_clock()
        if hasattr(clock, "jump"):
            clock.jump(seconds)
            return
    elif isinstance(loop := asyncio.get_running_loop(), JumpingLoop):
        loop.advance(seconds)
        return
    time.sleep(seconds)


def virtual_now() -> float:
    """The time of the running event loop, which must be a virtual one."""
    if trio := running_trio():
        virtual = hasattr(trio.lowlevel.current_clock(), "jump")
    else:
        virtual = isinstance(asyncio.get_running_loop(), JumpingLoop)
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
