"""Sees what is done to a source: pulls, cancellations, closing, and in which task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio

from streamguard.testing.iterating import close

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator


class Tap:
    """Passes `source` on unchanged and records over all its iterations.

    `pulls`, `cancelled` and `closed` count, `delivered` holds the messages, `ended` says
    whether the source ended by itself, `pulled_in` and `closed_in` hold the tasks' ids.
    """

    def __init__(self, source: AsyncIterable[Any]) -> None:
        self.source = source
        self.pulls = 0
        self.cancelled = 0
        self.closed = 0
        self.ended = False
        self.delivered: list[Any] = []
        self.pulled_in: set[int] = set()
        self.closed_in: set[int] = set()

    def __aiter__(self) -> _Tapped:
        return _Tapped(self, aiter(self.source))


class _Tapped:
    def __init__(self, tap: Tap, inner: AsyncIterator[Any]) -> None:
        self._tap = tap
        self._inner = inner

    def __aiter__(self) -> _Tapped:
        return self

    async def __anext__(self) -> Any:
        tap = self._tap
        tap.pulls += 1
        tap.pulled_in.add(anyio.get_current_task().id)
        try:
            message = await anext(self._inner)
        except StopAsyncIteration:
            tap.ended = True
            raise
        except anyio.get_cancelled_exc_class():
            tap.cancelled += 1
            raise
        tap.delivered.append(message)
        return message

    async def aclose(self) -> None:
        self._tap.closed += 1
        self._tap.closed_in.add(anyio.get_current_task().id)
        await close(self._inner)
