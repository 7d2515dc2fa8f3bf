"""Server-sent events, as bytes."""

from __future__ import annotations

import json

COMMENT = b": keep-alive\n\n"


def event(data, name=None):
    """One event; `data` is JSON unless it is a text already."""
    line = data if isinstance(data, str) else json.dumps(data)
    return (f"event: {name}\n" if name else "").encode() + f"data: {line}\n\n".encode()
