"""A source as the guard sees it: how it is asked for the next message, and how it is closed.

Sources come in many makes: generators, channels, SDK streams with `close()`, aiostream streamers that
must be entered. Here each is made to look the same; nothing here knows of limits.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from types import AsyncGeneratorType
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from streamguard._guard.operator import Pipeable
from streamguard._loops import steps_of

if TYPE_CHECKING:
    from streamguard._loops import Steps

# The steps of an iterator's next message.
Ask: TypeAlias = "Callable[[AsyncIterator[Any]], Steps]"
Close: TypeAlias = Callable[[], Awaitable[object] | object]


class Source:
    """One iteration of a source."""

    __slots__ = ("_closed", "_entered", "_origin", "ask", "iterator")

    def __init__(self, origin: AsyncIterable[Any], iterator: AsyncIterator[Any]) -> None:
        self._origin = origin
        self.iterator = iterator
        self._entered = False
        self._closed = False
        self.ask: Ask = asking(iterator) or self._enter_and_ask

    @property
    def is_repeatable(self) -> bool:
        """Whether its owner can be iterated anew: a generator or a channel cannot."""
        return self._origin is not self.iterator

    @property
    def is_entered(self) -> bool:
        """Whether `ask` will stay what it is."""
        return self.ask != self._enter_and_ask

    def closers(self, *, is_finished: bool = False) -> list[Close]:
        """What ends this iteration: to be called, and awaited if it gives something to await.

        Nothing the second time: the verdict, the block and `aclose()` may all want it closed. One
        that `is_finished`, by its own end, leaves its owner open if that can be iterated anew.
        """
        if self._closed:
            return []
        self._closed = True
        if getattr(self._origin, "ag_frame", self) is None:
            return []  # a generator that has raised, as most have when they were cut: it is closed
        close = _leaving(self.iterator) if self._entered else _closer(self.iterator)
        closers = [] if close is None else [close]
        # An SDK's stream keeps the connection itself and iterates through a generator.
        is_one_stream = hasattr(self._origin, "__anext__") and not isinstance(
            self._origin, Pipeable
        )
        if self._origin is not self.iterator and (is_one_stream or not is_finished):
            close = _closer(self._origin)
            closers += [] if close is None else [close]
        return closers

    def _enter_and_ask(self, iterator: AsyncIterator[Any]) -> Steps:
        # Whoever kept this from before the entering must not enter again.
        return self.ask(iterator) if self.is_entered else steps_of(self._enter_first())

    async def _enter_first(self) -> Any:
        try:
            await cast("AbstractAsyncContextManager[Any]", self.iterator).__aenter__()
        except RuntimeError:
            # One that was given to us may have been entered by its owner, who will leave it.
            if self.is_repeatable:
                raise
        else:
            self._entered = True
        self.ask = _asking_entered(self.iterator)
        return await anext(self.iterator)


def _wants_entering(iterator: object) -> bool:
    # Asked of the type, as `async with` does; None is how a class says that it cannot be entered.
    kind = type(iterator)
    return all(callable(getattr(kind, name, None)) for name in ("__aenter__", "__aexit__"))


def asking(iterator: AsyncIterator[Any]) -> Ask | None:
    """How to get the steps of its next message; None for one that must be entered before."""
    return None if _wants_entering(iterator) else _asking_entered(iterator)


def _asking_entered(iterator: AsyncIterator[Any]) -> Ask:
    # One function for all of a kind, without a detour where none is needed.
    if isinstance(iterator, AsyncGeneratorType):
        return cast("Ask", anext)  # what it gives to await is its own steps
    return _of_coroutine if inspect.iscoroutinefunction(iterator.__anext__) else _of_awaitable


def _of_coroutine(iterator: AsyncIterator[Any]) -> Steps:
    return iterator.__anext__().__await__()


def _of_awaitable(iterator: AsyncIterator[Any]) -> Steps:
    return steps_of(iterator.__anext__())


def _leaving(entered: Any) -> Close:
    return lambda: entered.__aexit__(None, None, None)


def _closer(source: object) -> Close | None:
    for name in ("aclose", "close"):
        if callable(closer := getattr(source, name, None)):
            return cast("Close", closer)
    return None
