"""What can become of a session, how that is said, and how many there are of each: for headline, tables and index."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from streamguard.evidence.report.wording import joined

if TYPE_CHECKING:
    from collections.abc import Iterable

State: TypeAlias = Literal["hung", "failed", "stopped", "open", "hollow", "recovered", "finished"]

# How the states are said in a table, the worst first.
SAID: Final[dict[State, str]] = {
    "hung": "hung",
    "failed": "failed",
    "stopped": "stopped",
    "open": "end not recorded",
    "hollow": "finished in name only",
    "recovered": "recovered after a hang",
    "finished": "finished",
}
# … and in a sentence, of one and of several, where that is different.
_OF_ONE: Final[dict[State, str]] = {
    "stopped": "was stopped",
    "open": "was going on when the record ends",
}
_OF_SEVERAL: Final[dict[State, str]] = {
    "stopped": "were stopped",
    "open": "were going on when the record ends",
}
IN_TROUBLE: Final = frozenset(SAID) - {"recovered", "finished"}
RANK: Final = {state: rank for rank, state in enumerate(SAID)}
# What a stream came to whose limit was none on silence or time: it did not hang.
_STOPPED: Final[dict[str, State]] = {
    **dict.fromkeys(("repeats", "tokens", "cost", "calls"), "stopped"),
    **dict.fromkeys(("empty", "abandoned"), "hollow"),
}


def ended_by(limit: object) -> State:
    """What a session came to that this limit has ended."""
    return _STOPPED.get(str(limit), "hung")


def said_of_one(state: State) -> str:
    """`was stopped`."""
    return _OF_ONE.get(state, SAID[state])


def counted(states: Iterable[State], of: str) -> str:
    """`Of 7 sessions, 2 hung, 1 was stopped and 4 finished`: whatever there is, each of them once."""
    counts = Counter(states)
    total = counts.total()
    said = [
        (counts[state], said_of_one(state) if counts[state] == 1 else _said_of_several(state))
        for state in SAID
        if counts[state]
    ]
    if len(said) == 1:
        [(_, words)] = said
        if total == 1:
            return f"The {of} {words}"
        return f"Both {of}s {words}" if total == 2 else f"All {total:,} {of}s {words}"
    return f"Of {total:,} {of}s, {joined([f'{n:,} {words}' for n, words in said])}"


def tone_of(states: Iterable[State]) -> str:
    """How loud the headline is."""
    found = set(states)
    if found & {"hung", "failed"}:
        return "bad"
    return "warn" if found & IN_TROUBLE else ""


def _said_of_several(state: State) -> str:
    return _OF_SEVERAL.get(state, SAID[state])
