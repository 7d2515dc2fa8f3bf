"""Sources that do what real ones do at their worst: each wraps another and is named after it.

    slow_cleanup(swallows_cancel(Script(say("x"), hang()), then="end"), 3)

They wrap any async iterable, one another too, can be iterated again and again, and run on
asyncio, uvloop and trio. Imports anyio, iterating and messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import anyio

from streamguard.testing.iterating import iterating
from streamguard.testing.messages import Said

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, Callable

AfterCancel: TypeAlias = Literal["hang", "yield", "end"]
AFTER_THE_CANCEL = Said("after the cancel")


@dataclass(frozen=True)
class MisbehavingSource:
    """An async iterable that plays anew for everyone who asks."""

    name: str
    play: Callable[[], AsyncGenerator[Any, None]]

    def __aiter__(self) -> AsyncGenerator[Any, None]:  # noqa: PYI058 - callers may close it
        return self.play()

    def __repr__(self) -> str:
        return f"<{self.name}>"


class DeafSource:
    """What `swallows_cancel` gives. `release()` ends one that hangs: its only end."""

    def __init__(self, source: AsyncIterable[Any], then: AfterCancel, message: object) -> None:
        self.cancels = 0
        self._source = source
        self._then = then
        self._message = message
        self._released = anyio.Event()

    def release(self) -> None:
        """End the hanging stream normally; fits as a `disconnect`."""
        self._released.set()

    async def __aiter__(self) -> AsyncGenerator[Any, None]:
        async with iterating(self._source) as inner:
            while True:
                try:
                    message = await anext(inner)
                except StopAsyncIteration:
                    return
                except anyio.get_cancelled_exc_class():
                    self.cancels += 1
                    break
                yield message
        if self._then == "yield":
            yield self._message
        while self._then == "hang" and not self._released.is_set():
            try:
                # The shield keeps anyio and trio away, the loop a raw cancel of asyncio.
                with anyio.CancelScope(shield=True):
                    await self._released.wait()
            except anyio.get_cancelled_exc_class():
                self.cancels += 1


def swallows_cancel(
    source: AsyncIterable[Any], then: AfterCancel = "hang", *, message: object = AFTER_THE_CANCEL
) -> DeafSource:
    """Deaf: it catches the cancellation of a pull, and then hangs on, yields or just ends.

    `then="yield"` gives `message` and ends. `.cancels` counts what was swallowed; a source
    that hangs can only be ended by its `release()`.
    """
    return DeafSource(source, then, message)


def slow_cleanup(
    source: AsyncIterable[Any], seconds: float, *, shielded: bool = False
) -> MisbehavingSource:
    """`source`, which takes `seconds` to unwind, however it ends; `shielded` even against cancellation."""

    async def play() -> AsyncGenerator[Any, None]:
        try:
            async with iterating(source) as inner:
                async for message in inner:
                    yield message
        finally:
            with anyio.CancelScope(shield=shielded):
                await anyio.sleep(seconds)

    return MisbehavingSource(f"slow_cleanup({source!r}, {seconds!r})", play)


def holds_task_group(source: AsyncIterable[Any]) -> MisbehavingSource:
    """`source`, with a task group and a living child in it held open while it yields."""

    async def play() -> AsyncGenerator[Any, None]:
        async with anyio.create_task_group() as tg, iterating(source) as inner:
            tg.start_soon(anyio.sleep_forever)
            async for message in inner:
                yield message
            tg.cancel_scope.cancel()

    return MisbehavingSource(f"holds_task_group({source!r})", play)


def holds_scope(source: AsyncIterable[Any], seconds: float | None = None) -> MisbehavingSource:
    """`source`, with a cancel scope held open while it yields; with `seconds` it is a `fail_after`."""

    async def play() -> AsyncGenerator[Any, None]:
        async with iterating(source) as inner:
            with anyio.fail_after(seconds):
                async for message in inner:
                    yield message

    return MisbehavingSource(f"holds_scope({source!r}, {seconds!r})", play)


def own_fail_after(source: AsyncIterable[Any], seconds: float) -> MisbehavingSource:
    """`source`, with a time limit of its own of `seconds` in every pull, and its own `TimeoutError`."""

    async def play() -> AsyncGenerator[Any, None]:
        async with iterating(source) as inner:
            while True:
                try:
                    with anyio.fail_after(seconds):
                        message = await anext(inner)
                except StopAsyncIteration:
                    return
                yield message

    return MisbehavingSource(f"own_fail_after({source!r}, {seconds!r})", play)
