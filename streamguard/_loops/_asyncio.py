"""asyncio and uvloop: timers, the safe cancel of a parked task, detached tasks."""

from __future__ import annotations

import asyncio
import contextvars
import math
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, cast

import anyio

from streamguard._base.waking import WakeTimer, wake_timer
from streamguard._loops import Bell, Cut, Detached, Host, Parking
from streamguard._loops.timekeeper import PASSES, Timekeeper

# A coroutine that is stepped by hand has no task; this one equals no current one.
_NO_TASK: Final = object()
_ATTRIBUTE: Final = "_streamguard"
# asyncio only holds tasks weakly; a detached one must not be collected in mid-flight.
_detached: set[asyncio.Task[None]] = set()


def current() -> AsyncioLoop:
    """The running asyncio loop; made once and kept on the loop itself."""
    loop = asyncio.get_running_loop()
    ours: AsyncioLoop | None = getattr(loop, _ATTRIBUTE, None)
    if ours is None:
        ours = AsyncioLoop(loop)
        setattr(loop, _ATTRIBUTE, ours)
    return ours


def _clock_of(loop: asyncio.AbstractEventLoop) -> Callable[[], float]:
    """The loop's clock without its detours.

    uvloop's `time()` stands still within a pass, and a wait that began after slow work would
    seem older than it is. A loop that overrides `time` (a virtual one) is asked itself.
    """
    is_plain = type(loop).time is asyncio.BaseEventLoop.time
    is_uvloop = type(loop).__module__.partition(".")[0] == "uvloop"
    return time.monotonic if is_plain or is_uvloop else loop.time


_running: dict[object, Any] = vars(asyncio.tasks).get("_current_tasks", {})


if sys.version_info >= (3, 12):

    def _surely_current_task(_loop: asyncio.AbstractEventLoop) -> Any:
        """`asyncio.current_task`; None if in doubt."""
        try:
            return asyncio.current_task()
        except RuntimeError:
            return None

else:

    def _surely_current_task(loop: asyncio.AbstractEventLoop) -> Any:
        """`asyncio.current_task`, the cheap way; None if in doubt.

        On 3.11 that would be a system call. The table that is read here does not say which thread
        asks, so it tells nothing while there is more than one loop in it.
        """
        return _running.get(loop) if len(_running) == 1 else None


class AsyncioTimekeeper(Timekeeper):
    """One `call_later` for all."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(_clock_of(loop))
        self._loop = loop
        self._resolution = 1e-3 if type(loop).__module__.startswith("uvloop") else 0.0
        self._alarm: asyncio.TimerHandle | None = None
        # A handle keeps the context it was made in: not that of whoever came first.
        self._context = contextvars.Context()
        self._wake_timer: WakeTimer | None = None
        # The time of a virtual loop knows no sleep.
        self._may_sleep = self._clock is time.monotonic

    def _attend(self, is_waited: bool) -> None:
        """Hear of the machine's sleep as long as somebody waits, and no longer: it is a descriptor."""
        timer = self._wake_timer
        if is_waited and timer is None:
            timer = wake_timer()
            self._may_sleep = timer is not None
            if timer is None:
                return
            try:  # the handle keeps the context it is made in
                contextvars.Context().run(self._loop.add_reader, timer, self._woke)
            except (NotImplementedError, OSError, RuntimeError):
                self._may_sleep = False
                timer.close()
            else:
                self._wake_timer = timer
        elif timer is not None and not is_waited:
            self._wake_timer = None
            with suppress(Exception):  # the loop may be closed
                self._loop.remove_reader(timer)
            timer.close()

    def _woke(self) -> None:
        if self._wake_timer is not None:
            self._wake_timer.read()
        self.look_for_sleep()

    def set_alarm(self, when: float | None) -> None:
        if self._may_sleep and self._sleeps is not None:
            self._attend(when is not None)
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if when is None:
            return
        if self._resolution:
            # uvloop rounds to whole milliseconds, half of the time down: never early (T2).
            ticks = math.ceil(max(0.0, when - self._clock()) / self._resolution)
            delay = ticks * self._resolution
            self._alarm = self._loop.call_later(delay, self._ring, context=self._context)
        else:
            self._alarm = self._loop.call_at(when, self._ring, context=self._context)

    def _ring(self) -> None:
        self._alarm = None
        self.ring()

    def after_passes(self, function: Callable[[], None]) -> None:
        self._loop.call_soon(self._pass, PASSES - 1, function, context=self._context)

    def _pass(self, left: int, function: Callable[[], None]) -> None:
        if left:
            self._loop.call_soon(self._pass, left - 1, function, context=self._context)
        else:
            function()


class AsyncioParking:
    """The task that waits, and its cancel count when it began to (T9)."""

    __slots__ = ("_cuts", "_loop", "_waits", "cancels", "task")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waits = False
        self._cuts = 0
        # Both are read at each wait: an aiostream operator steps us in fresh tasks.
        self.task: Any = _NO_TASK
        self.cancels = 0

    def arrive(self) -> bool:
        task: Any = _surely_current_task(self._loop)
        # Nearly always the task of the last wait. Any other one is looked at closely: on another
        # loop, maybe in another thread, nothing here may be touched.
        if task is None or task is not self.task:
            if asyncio._get_running_loop() is not self._loop:
                return False
            self.task = task = asyncio.current_task(self._loop) or _NO_TASK
        # At each wait: a cancel that the consumer has swallowed stays in the count for good. With
        # the count of an earlier wait it would seem to be on its way still, and nothing would be
        # cut.
        self.cancels = 0 if task is _NO_TASK else task.cancelling()
        return True

    def park(self) -> None:
        self._waits = True

    def unpark(self) -> None:
        self._waits = False

    def cut(self, *, force: bool = False) -> Cut:
        task = self.task
        if not self._waits:
            return Cut.NOBODY
        if task is _NO_TASK:
            return Cut.NOT_PARKED
        # More than were counted when the wait began, and than we have sent: somebody cancels this
        # task. With ours on top, what comes out could be either, and the outer scope might never
        # get its own.
        if not force and task.cancelling() > self.cancels + self._cuts:
            return Cut.FOREIGN
        # What is answered is about to be delivered, and a cancel would throw it away (T9). The
        # caller looks again soon; by then it is here, or is really waited for.
        if not force and not _is_parked(task):
            return Cut.NOT_PARKED
        self._cuts += 1
        task.cancel("streamguard: a limit was reached")
        return Cut.SENT

    def release(self) -> None:
        # As often as it was sent: a pull that swallows cancels gets one each second.
        # `task.uncancel` takes one off the count, and what stays there reads as a cancel by
        # somebody else.
        while self._cuts:
            self._cuts -= 1
            self.task.uncancel()

    @property
    def is_overruled(self) -> bool:
        if self.task is _NO_TASK:
            return True
        return self.task.cancelling() > self.cancels and _is_overruled(self.task, self.cancels)

    @property
    def is_cancelled(self) -> bool:
        if self.task is _NO_TASK or self.task.cancelling() > self.cancels:
            return True
        return anyio.current_effective_deadline() == -math.inf


class AsyncioBell:
    """A future for each wait."""

    __slots__ = ("_loop", "_waiter")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiter: asyncio.Future[None] | None = None

    def wait(self) -> asyncio.Future[None]:
        self._waiter = waiter = self._loop.create_future()
        return waiter

    def ring(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class AsyncioHost:
    """A block's task, and its cancel count before the block."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._task = asyncio.current_task(loop)
        self._cancels = self._task.cancelling() if self._task is not None else 0

    def pulled(self, parking: Parking) -> None:
        # The pull has read the count later than the block's entry did. What was added in between,
        # the body has swallowed; as a cancel on its way it would keep `total` from striking. A
        # pull in another task says nothing of the host's.
        if parking.task is self._task:
            self._cancels = parking.cancels

    def arrive(self) -> None:
        # Whoever is at work here has survived all cancels so far. In another task, `saw` proves
        # nothing.
        if self._task is not None and asyncio.current_task() is self._task:
            self._cancels = self._task.cancelling()

    @property
    def is_being_cancelled(self) -> bool:
        return self._task is not None and self._task.cancelling() > self._cancels

    @property
    def is_overruled(self) -> bool:
        return self._task is not None and _is_overruled(self._task, self._cancels)


def _is_overruled(task: asyncio.Task[Any], cancels: int) -> bool:
    """Whether somebody cancelled the current task natively, when it had been so often before.

    An anyio scope counts its cancels in the same place, but sees to them itself: against such
    a one, what was first wins.
    """
    return task.cancelling() > cancels and anyio.current_effective_deadline() > -math.inf


# What `asyncio.gather` returns: of all futures, the one that hands a cancel on to several.
_Gathering: Final[type[Any]] = vars(asyncio.tasks)["_GatheringFuture"]


def _is_parked(future: asyncio.Future[Any]) -> bool:
    """Whether a cancel sent to `future` can reach only futures that nothing has answered.

    A raw cancel that hits a task whose awaited future is already done loses the message in it
    (measured: 100 of 100 when forced). `_fut_waiter` is what anyio reads for the same reason.
    """
    if future.done():
        return False
    if isinstance(future, asyncio.Task):
        waiter: asyncio.Future[Any] | None = cast("Any", future)._fut_waiter
        return waiter is not None and _is_parked(waiter)
    if isinstance(future, _Gathering):  # parked if what is still open is, and something is
        children = cast("list[asyncio.Future[Any]]", cast("Any", future)._children)
        unfinished = [child for child in children if not child.done()]
        return bool(unfinished) and all(_is_parked(child) for child in unfinished)
    return True


class AsyncioLoop:
    """The interface of `streamguard._loops.Loop` over one asyncio loop."""

    cancelled: type[BaseException] = asyncio.CancelledError
    timers_may_exit = True

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.clock = _clock_of(loop)
        self.timekeeper: Timekeeper = AsyncioTimekeeper(loop)

    def current_task(self) -> object:
        return asyncio.current_task(self._loop)

    def parking(self) -> Parking:
        return AsyncioParking(self._loop)

    def bell(self) -> Bell:
        return AsyncioBell(self._loop)

    def host(self) -> Host:
        return AsyncioHost(self._loop)

    def spawn(
        self, function: Callable[[], Coroutine[Any, Any, None]], *, name: str = "teardown"
    ) -> Detached:
        task = self._loop.create_task(
            function(), name=f"streamguard {name}", context=contextvars.copy_context()
        )
        _detached.add(task)
        task.add_done_callback(_detached.discard)
        return task

    def submit(self, function: Callable[[], object]) -> None:
        self._loop.call_soon_threadsafe(function)

    def is_cancelling(self) -> bool:
        task = asyncio.current_task(self._loop)
        return task is not None and task.cancelling() > 0

    def is_running_here(self) -> bool:
        return asyncio._get_running_loop() is self._loop
