"""The few lines that differ between event loops, behind one narrow interface.

What is here knows tasks, timers and scopes, and nothing of limits, signals or teardown. trio is
imported only when its loop is the one that runs. Everything above is written once.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Coroutine
from enum import Enum
from typing import Any, Protocol, cast

from streamguard._loops.steps import Steps, Suspended, by_hand, stepped, steps_of, suspend, taken
from streamguard._loops.timekeeper import Timekeeper


class Cut(Enum):
    """What became of an attempt to cancel a parked step."""

    SENT = "sent"
    NOT_PARKED = "something it awaits is done: its message would be lost"
    FOREIGN = "somebody else is cancelling it already"
    NOBODY = "nobody waits there"


class Parking(Protocol):
    """Where a pull waits, so that it alone can be cancelled. One for each stream, used again.

    `task` and `cancels`: who waited last, and the task's cancel count then.
    """

    task: Any
    cancels: int

    def arrive(self) -> bool:
        """Note who waits, before it is parked; False if that is not on this parking's loop."""
        ...

    def park(self) -> None:
        """What has just suspended is handed to the loop: from here on it can be cut."""
        ...

    def unpark(self) -> None:
        """It was answered, and is stepped on; or it is over. Does no harm if said again."""
        ...

    def cut(self, *, force: bool = False) -> Cut:
        """Cancel what waits here, unless that could lose a message, or somebody else does.

        `force`: even then, and again: an earlier one, whoever's it was, may have been swallowed.
        """
        ...

    def release(self) -> None:
        """Undo our cancels, as many as were sent."""
        ...

    @property
    def is_overruled(self) -> bool:
        """After `release`, in the task that waited: whether a native cancel must go on (T9)."""
        ...

    @property
    def is_cancelled(self) -> bool:
        """The same of any cancel, a scope's included: whether somebody else cancels the task."""
        ...


class Host(Protocol):
    """The task that has entered a block, and what was around it then."""

    def pulled(self, parking: Parking) -> None:
        """The latest pull: a cancel that had been counted before it was swallowed long ago."""
        ...

    def arrive(self) -> None:
        """The same where nothing is pulled: what is counted now was swallowed, if this task asks."""
        ...

    @property
    def is_being_cancelled(self) -> bool:
        """Whether somebody cancels it or a scope around it; from anywhere on the loop."""
        ...

    @property
    def is_overruled(self) -> bool:
        """In that task, with the block left: whether a native cancel must go on (T9)."""
        ...


class Bell(Protocol):
    """Wakes the one task that waits here. A ring that nobody waits for is forgotten."""

    def wait(self) -> Awaitable[None]:
        """The next ring, to be awaited at once."""
        ...

    def ring(self) -> None:
        """Wake who waits; from its loop's thread."""
        ...


class Detached(Protocol):
    """A task that nobody waits for."""

    def cancel(self) -> object:
        """End it soon; from its loop's thread."""
        ...


class Loop(Protocol):
    """What a running event loop gives us."""

    timekeeper: Timekeeper
    cancelled: type[BaseException]
    # Whether what a timer raises to end the program does so; on trio it would be a crash.
    timers_may_exit: bool

    @property
    def clock(self) -> Callable[[], float]:
        """The loop's monotonic time, cheap enough for every wait (T13)."""
        ...

    def current_task(self) -> object:
        """The task that runs the caller."""
        ...

    def parking(self) -> Parking:
        """A fresh `Parking` for one stream."""
        ...

    def bell(self) -> Bell:
        """A fresh `Bell`: what an event is, cheap enough for every message."""
        ...

    def host(self) -> Host:
        """The current task, as the host of a block that is about to be entered."""
        ...

    def spawn(
        self, function: Callable[[], Coroutine[Any, Any, None]], *, name: str = "teardown"
    ) -> Detached:
        """Run `function` in a task that nobody waits for. It must not raise."""
        ...

    def submit(self, function: Callable[[], object]) -> None:
        """Call `function` on this loop soon; from any thread."""
        ...

    def is_cancelling(self) -> bool:
        """Whether a cancellation that reaches the current task was meant for it."""
        ...

    def is_running_here(self) -> bool:
        """Whether the caller is on this loop's thread, inside this loop."""
        ...


def current() -> Loop:
    """The loop that runs the caller. RuntimeError if none does."""
    trio = sys.modules.get("trio")
    # trio first: in guest mode a trio task runs inside a callback of an asyncio loop.
    if trio is not None and trio.lowlevel.in_trio_task():
        from streamguard._loops import _trio

        return _trio.current()
    from streamguard._loops import _asyncio

    return _asyncio.current()


def current_or_none() -> Loop | None:
    """The loop that runs the caller, or None outside of any."""
    try:
        return current()
    except RuntimeError:
        return None


def consists_of(error: BaseException | None, kind: type[BaseException]) -> bool:
    """Whether `error` is of that kind (the loop's cancellation), or a group of nothing else."""
    if isinstance(error, BaseExceptionGroup):
        return cast("BaseExceptionGroup[BaseException]", error).split(kind)[1] is None
    return isinstance(error, kind)


def is_exit(error: BaseException | None, cancelled: type[BaseException]) -> bool:
    """Whether `error` is, or has in it, what ends a program: KeyboardInterrupt, SystemExit."""
    harmless = (Exception, cancelled, GeneratorExit)
    if isinstance(error, BaseExceptionGroup):
        return cast("BaseExceptionGroup[BaseException]", error).split(harmless)[1] is not None
    return error is not None and not isinstance(error, harmless)


__all__ = [
    "Cut",
    "Detached",
    "Host",
    "Loop",
    "Parking",
    "Steps",
    "Suspended",
    "Timekeeper",
    "by_hand",
    "consists_of",
    "current",
    "current_or_none",
    "is_exit",
    "stepped",
    "steps_of",
    "suspend",
    "taken",
]
