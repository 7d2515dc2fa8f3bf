"""What a line of output is: a JSON object, which may be a message, or text.

Imports the standard library.
"""

from __future__ import annotations

import json
from typing import Final, cast

# A long line is one text, or a few. One of 15 MB that is all brackets took 421 MB to read.
_LONG: Final = 1024 * 1024
_MOST_VALUES: Final = 100_000


def object_in(line: bytes) -> dict[str, object] | None:
    """The JSON object that a line is, or None."""
    if not line.lstrip().startswith(b"{"):
        return None
    if len(line) > _LONG and not _has_few_values(line):
        return None
    try:
        # An odd byte in a text is no reason to lose the message.
        found = json.loads(line.decode(errors="replace"))
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, object]", found) if isinstance(found, dict) else None


def _has_few_values(line: bytes) -> bool:
    if _marks_in(line) <= _MOST_VALUES:
        return True
    # What is inside of texts does not count.
    bare = line.replace(rb"\\", b"").replace(rb"\"", b"")
    if bare.count(b'"') > 2 * _MOST_VALUES:
        return False
    return sum(map(_marks_in, bare.split(b'"')[::2])) <= _MOST_VALUES


def _marks_in(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")
