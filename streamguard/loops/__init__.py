"""The few lines that differ between event loops, behind one narrow interface.

What is here knows tasks, timers and scopes, and nothing of limits, signals or teardown. trio is
imported only when its loop is the one that runs. Everything above is written once.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine
from enum import Enum
from typing import Any, Final, Protocol, TypeAlias, cast

from streamguard.loops.timekeeper import Timekeeper


def _running_tasks() -> dict[Any, object] | None:
    """What runs on each asyncio loop, on 3.11, where `current_task` is read from this table.

    It does not say which thread asks: while more than one loop runs a task, callers must look
    closer (T9).
    """
    if sys.version_info >= (3, 12):
        return None
    return vars(asyncio.tasks)["_current_tasks"]  # type: ignore[no-any-return]


RUNNING_TASKS: Final = _running_tasks()

# An awaitable that can also be stepped by hand: `send`, `throw`, `close`.
Steps: TypeAlias = Coroutine[Any, Any, Any]


class Cut(Enum):
    """What became of an attempt to cancel a parked step."""

    SENT = "sent"
    NOT_PARKED = "something it awaits is done: its message would be lost (T9)"
    FOREIGN = "somebody else is cancelling it already"


class Parking(Protocol):
    """Where a pull waits, so that it alone can be cancelled. One for each stream, used again.

    `task` and `cancels`: who waited last, and the task's cancel count then.
    """

    task: Any
    cancels: int

    def take(self, ask: Callable[[], Steps], asked: Callable[[], None]) -> Awaitable[Any]:
        """What `ask()` comes to; `asked()` is called when, or before, it has to wait."""
        ...

    @property
    def carry_on(self) -> Callable[[Steps, Any], Awaitable[Any]] | None:
        """Where a pull may be stepped by hand: awaits the rest, after `asked`. Else None."""
        ...

    def cut(self, *, force: bool = False) -> Cut:
        """Cancel what waits here, unless that could lose a message. `force`: even then."""
        ...

    def release(self) -> None:
        """Undo our cancel, if one was sent."""
        ...

    @property
    def is_overruled(self) -> bool:
        """After `release`, in the task that waited: whether a native cancel must go on (T9)."""
        ...


class Host(Protocol):
    """The task that has entered a block, and what was around it then."""

    def pulled(self, parking: Parking) -> None:
        """The latest pull: a cancel that had been counted before it was swallowed long ago."""
        ...

    @property
    def is_being_cancelled(self) -> bool:
        """Whether somebody cancels it or a scope around it; from anywhere on the loop."""
        ...

    @property
    def is_overruled(self) -> bool:
        """In that task, with the block left: whether a native cancel must go on (T9)."""
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
    # The current task, cheap enough for every message: another one steps us on another loop.
    current_task: Callable[[], Any]

    @property
    def clock(self) -> Callable[[], float]:
        """The loop's monotonic time, cheap enough for every message (T13)."""
        ...

    def parking(self) -> Parking:
        """A fresh `Parking` for one stream."""
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
        from streamguard.loops import _trio

        return _trio.current()
    from streamguard.loops import _asyncio

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


def steps_of(awaitable: Awaitable[Any]) -> Steps:
    """`awaitable` as something that can be stepped with `send` and `throw`."""
    if hasattr(awaitable, "send"):
        return cast("Steps", awaitable)
    return _awaiting(awaitable)


async def _awaiting(awaitable: Awaitable[Any]) -> Any:
    # Also gives `send` and `throw` to awaitables whose `__await__` is a bare iterator.
    return await awaitable


__all__ = [
    "RUNNING_TASKS",
    "Cut",
    "Detached",
    "Host",
    "Loop",
    "Parking",
    "Steps",
    "Timekeeper",
    "consists_of",
    "current",
    "current_or_none",
    "is_exit",
    "steps_of",
]
