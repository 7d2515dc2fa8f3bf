"""What to write in the place of a word that is not known: the nearest one that is, or all of them.

Imports nothing when it is loaded: only who has made a mistake pays for it.
"""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterable


def near(word: object, known: Iterable[str], otherwise: str | None = None) -> str:
    """`did you mean 'idle'?`, or `otherwise`: by default `use one of idle, first, ...`."""
    from difflib import get_close_matches

    names = list(known)
    # What is written large, or with other dashes, is the same word.
    by_look = {_look(name): name for name in names}
    found = get_close_matches(_look(str(word)), by_look, n=1)
    if found:
        return f"did you mean {by_look[found[0]]!r}?"
    if otherwise is not None:
        return otherwise
    return f"use {names[0]!r}" if len(names) == 1 else f"use one of {', '.join(names)}"


def _look(word: str) -> str:
    return word.lower().replace("-", "_").replace(" ", "_")
