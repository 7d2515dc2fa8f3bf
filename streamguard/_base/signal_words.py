"""What a signal is called where a person reads it. Records and `top`'s files keep its type's name. Imports nothing."""

from __future__ import annotations

_WORDS = {
    "Progress": "progress",
    "Liveness": "a ping",
    "SessionOpened": "its session began",
    "WorkStarted": "a tool began",
    "WorkProgressed": "a tool went on",
    "WorkFinished": "a tool ended",
    "Waiting": "it said that it waits",
    "WaitEnded": "a wait ended",
    "TurnEnded": "its turn ended",
    "Failed": "a failure",
    "Usage": "token counts",
}


def in_words(kind: str) -> str:
    """`a tool began` for `WorkStarted`."""
    return _WORDS.get(kind, kind)
