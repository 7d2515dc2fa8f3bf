"""State machines as tables: what each event does in each state, to be read and enumerated.

A machine here is a table and the state it is in. `on(event)` looks up the row, moves to the row's
next state and gives what is to be done; whoever asks does it. A pair of state and event that has no
row is impossible, and an `ImpossibleError` says so. Knows nothing of what is decided with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Generic, TypeAlias, TypeVar

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)
D = TypeVar("D", bound=Enum)


class Word(Enum):
    """A state, an event or what is done: compared, and so hashed, by identity."""

    __hash__ = object.__hash__  # the hash of an Enum costs more than the rest of a step


# By state and event: the next state, and what is done on the way to it.
Table: TypeAlias = Mapping[S, Mapping[E, tuple[S, D]]]


class ImpossibleError(AssertionError):
    """An event in a state in which it cannot happen: a fault of this library."""


class Machine(Generic[S, E, D]):
    """A table, and the state it is in."""

    __slots__ = ("_table", "state")

    def __init__(self, table: Table[S, E, D], state: S) -> None:
        self._table = table
        self.state = state

    def on(self, event: E) -> D:
        """Move on; what is to be done."""
        try:
            self.state, does = self._table[self.state][event]
        except KeyError:
            raise impossible(self.state, event) from None
        return does


def impossible(state: Enum, event: Enum) -> ImpossibleError:
    """What to raise for a pair that has no row."""
    return ImpossibleError(
        f"{event.name} while {state.name}: this is a fault in streamguard, please report it"
    )


def arrows(table: Table[S, E, D]) -> Iterator[tuple[S, E, S, D]]:
    """Every row as (state, event, next state, what is done), for diagrams and tests."""
    for state, rows in table.items():
        for event, (then, does) in rows.items():
            yield state, event, then, does


def missing(
    table: Table[S, E, D], states: Iterable[S], events: Iterable[E]
) -> Iterator[tuple[S, E]]:
    """Every pair that has no row."""
    expected = list(events)
    for state in states:
        rows = table.get(state, {})
        yield from ((state, event) for event in expected if event not in rows)
