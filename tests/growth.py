"""Growth, counted and never timed: calls that are made for so many of something, and for twice as many."""

from __future__ import annotations

import sys
from collections.abc import Callable

# What is linear makes twice as many calls, and less with what is done once; a square makes four times as many.
MOST = 2.2


def calls_of(work: Callable[[], object]) -> int:
    """How many functions it calls, of Python's and of C's; each step of a generator is one."""
    calls = 0

    def note(_frame: object, event: str, _about: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


def growth_of(work: Callable[[int], Callable[[], object]], n: int) -> float:
    """How many times as many calls are made for 2n as for n. What `work` does itself is not counted."""
    work(2)()  # imports, caches
    return calls_of(work(2 * n)) / calls_of(work(n))
