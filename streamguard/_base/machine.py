"""State machines as tables: what each event does in each state, to be read and enumerated.

A machine is a table and the state that its owner is in. The owner looks up the row of state and event,
moves to the row's next state, and does what the row says. A pair that has no row is `impossible`.
Knows nothing of what is decided with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import TypeAlias, TypeVar

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
