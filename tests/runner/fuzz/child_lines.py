"""The lines of `child`, for who expects them; that program imports nothing but what is built in."""

from __future__ import annotations

LINE = 500


def line_of(kind: str, name: str, number: int) -> bytes:
    head = f"{kind} {name} {number} "
    return (head + "x" * (LINE - 1 - len(head)) + "\n").encode()
