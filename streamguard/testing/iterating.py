"""One helper that everything here shares: iterate a source and close it afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator


class iterating:  # noqa: N801 - used like contextlib.aclosing
    """`async with iterating(source) as iterator`: closed at the end, if it can be closed."""

    def __init__(self, source: AsyncIterable[Any]) -> None:
        self._source = source

    async def __aenter__(self) -> AsyncIterator[Any]:
        self._iterator = aiter(self._source)
        return self._iterator

    async def __aexit__(self, *_: object) -> None:
        await close(self._iterator)


async def close(iterator: object) -> None:
    """Close `iterator` if it can be closed: generators can, plain iterators cannot."""
    if aclose := getattr(iterator, "aclose", None):
        await aclose()
