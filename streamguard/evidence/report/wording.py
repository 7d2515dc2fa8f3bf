"""Text, instants, durations and numbers as a report writes them: in UTC, and as people say them."""

from __future__ import annotations

import html
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from streamguard._base.quoting import quoted

_BRIEF: Final = 120.0  # seconds


def escape(text: object) -> str:
    """`text` for a place in HTML or SVG, whoever has chosen it."""
    return html.escape(quoted(text))


def clock(at: float, *, exactly: bool = False) -> str:
    """`03:12:44`, or `03:12:44.320`."""
    return _moment(at).strftime("%H:%M:%S") + (_milliseconds(at) if exactly else "")


def clock_of(start: float, end: float) -> Callable[[float], str]:
    """`clock`, as exact as what happened between the two wants it, with the day where there are several."""
    exactly = is_brief(end - start)
    if instant(start)[:10] == instant(end)[:10]:
        return lambda at: clock(at, exactly=exactly)
    return lambda at: f"{_moment(at):%m-%d} {clock(at, exactly=exactly)}"


def instant(at: float, *, exactly: bool = False) -> str:
    """`2026-11-18 03:12:44 UTC`."""
    return f"{_moment(at):%Y-%m-%d} {clock(at, exactly=exactly)} UTC"


def is_brief(seconds: float) -> bool:
    """Whether a person asks for the milliseconds of what lasted so long."""
    return seconds < _BRIEF


def duration(seconds: float) -> str:
    """`320 ms`, `12.4 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`.

    To be read at a glance. What a log says (`durations.in_words`) stays in seconds, to be compared with a
    limit; what `top` shows is a clock that runs.
    """
    if 0 < seconds < 1:
        milliseconds = float(f"{seconds * 1000:.3g}")
        return f"{milliseconds:g} ms" if milliseconds < 1000 else "1 s"
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


def joined(words: list[str]) -> str:
    """`2 hung, 1 failed and 4 finished`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def listed(words: list[str], most: int = 5) -> str:
    """`Bash, Edit and 3 more`."""
    if len(words) <= most:
        return ", ".join(words)
    return f"{', '.join(words[:most])} and {len(words) - most} more"


def _milliseconds(at: float) -> str:
    return f".{_moment(at).microsecond // 1000:03}"


def _moment(at: float) -> datetime:
    try:
        return datetime.fromtimestamp(at, UTC)
    except (OverflowError, ValueError, OSError):  # a line that somebody made up
        return datetime.fromtimestamp(0, UTC)
