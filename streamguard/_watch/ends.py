"""Which of many ends comes first, and which last, without a look at all of them.

Work in flight, the silences of work that speaks, and holds are each a line of ends by key. A sorted list is
all that takes: to begin or end one of ten thousand is a search of fourteen steps and one move of pointers.
Pure; imports the standard library alone.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Final, Generic, TypeAlias, TypeVar

_K = TypeVar("_K")

# When it ends, its number, its key. No two have one number, so keys are never compared.
Entry: TypeAlias = tuple[float, int, _K]

# What ends at the same instant goes in the order in which it began.
next_number: Final = count().__next__


class EndsByKey(Generic[_K]):
    """Ends by key, in their order."""

    __slots__ = ("_known", "_line")

    def __init__(self) -> None:
        self._known: dict[_K, Entry[_K]] = {}
        self._line: list[Entry[_K]] = []

    def __len__(self) -> int:
        return len(self._line)

    def __iter__(self) -> Iterator[Entry[_K]]:
        return iter(self._line)

    def __contains__(self, key: object) -> bool:
        return key in self._known

    def get(self, key: _K) -> Entry[_K] | None:
        """What is known of it."""
        return self._known.get(key)

    @property
    def first(self) -> Entry[_K] | None:
        """The earliest of them."""
        return self._line[0] if self._line else None

    @property
    def last(self) -> float:
        """When the latest of them ends; -inf without any. May be asked from any thread."""
        try:
            return self._line[-1][0]
        except IndexError:
            return -math.inf

    def put(self, key: _K, end: float, number: int) -> None:
        """It ends at `end`, and not when it did."""
        before = self._known.get(key)
        self._known[key] = entry = end, number, key
        insort(self._line, entry)  # first: nobody may find neither
        if before is not None:
            del self._line[bisect_left(self._line, before)]

    def drop(self, key: _K) -> None:
        """It is no more, if it ever was."""
        if (entry := self._known.pop(key, None)) is not None:
            del self._line[bisect_left(self._line, entry)]

    def over(self, at: float) -> list[_K]:
        """Those whose end has come `at` that instant: they are dropped."""
        if not self._line or self._line[0][0] > at:
            return []
        after = bisect_right(self._line, (at, math.inf))
        keys = [key for _, _, key in self._line[:after]]
        del self._line[:after]
        for key in keys:
            del self._known[key]
        return keys

    def together(self, key: _K) -> list[_K]:
        """Those that end when it does, itself among them."""
        end = self._known[key][0]
        line, at = self._line, bisect_left(self._line, (end,))
        return [each for _, _, each in line[at : bisect_right(line, (end, math.inf))]]


@dataclass(frozen=True, slots=True)
class Announced:
    """The key of a hold that the backend announced itself: it belongs to the turn."""

    id: str


class Holds(EndsByKey[object]):
    """Holds in force, by their keys."""

    __slots__ = ("_announced",)

    def __init__(self) -> None:
        super().__init__()
        self._announced: dict[object, None] = {}

    @property
    def announced(self) -> list[object]:
        """The keys of those that a turn's end ends."""
        return list(self._announced)

    def put(self, key: object, end: float, number: int) -> None:
        if isinstance(key, Announced):
            self._announced[key] = None
        super().put(key, end, number)

    def drop(self, key: object) -> None:
        self._announced.pop(key, None)
        super().drop(key)

    def over(self, at: float) -> list[object]:
        keys = super().over(at)
        for key in keys:
            self._announced.pop(key, None)
        return keys
