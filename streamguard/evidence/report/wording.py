"""Text, instants, durations and numbers as a report writes them: in UTC, and as people say them."""

from __future__ import annotations

import html
from collections.abc import Callable
from datetime import UTC, datetime

from streamguard._base.quoting import quoted


def escape(text: object) -> str:
    """`text` for a place in HTML or SVG, whoever has chosen it."""
    return html.escape(quoted(text))


def clock(at: float) -> str:
    """`03:12:44`."""
    return _moment(at).strftime("%H:%M:%S")


def clock_of(start: float, end: float) -> Callable[[float], str]:
    """`clock`, or with the day before it where there are several: `11-18 03:12:44`."""
    if instant(start)[:10] == instant(end)[:10]:
        return clock
    return lambda at: instant(at)[5:19]


def instant(at: float) -> str:
    """`2026-11-18 03:12:44 UTC`."""
    return _moment(at).strftime("%Y-%m-%d %H:%M:%S UTC")


def duration(seconds: float) -> str:
    """`0.25 s`, `12.4 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`.

    To be read at a glance. What a log says (`durations.in_words`) stays in seconds, to be compared with a
    limit; what `top` shows is a clock that runs.
    """
    if seconds < 1:
        return f"{seconds:.2g} s"
    if seconds < 60:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    for unit, size, smaller, part in (("d", 86400, "h", 3600), ("h", 3600, "min", 60)):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {unit}" + (f" {rest} {smaller}" if rest else "")
    rest = whole % 60
    return f"{whole // 60} min" + (f" {rest} s" if rest else "")


def several(n: int, what: str, plural: str = "") -> str:
    """`1 message`, `1,200 messages`."""
    return f"{n:,} {what if n == 1 else plural or what + 's'}"


def listed(words: list[str], most: int = 5) -> str:
    """`Bash, Edit and 3 more`."""
    if len(words) <= most:
        return ", ".join(words)
    return f"{', '.join(words[:most])} and {len(words) - most} more"


def _moment(at: float) -> datetime:
    try:
        return datetime.fromtimestamp(at, UTC)
    except (OverflowError, ValueError, OSError):  # a line that somebody made up
        return datetime.fromtimestamp(0, UTC)
