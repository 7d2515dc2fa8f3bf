"""State machines as tables, and how they are drawn."""

from __future__ import annotations

from enum import Enum

import pytest

from streamguard._base.machine import ImpossibleError, Machine, arrows, missing
from tests.diagrams import mermaid


class Door(Enum):
    OPEN = "open"
    SHUT = "shut"


class Hand(Enum):
    PUSH = "push"
    LOOK_AT = "look at"
    LOCK = "lock"


class Does(Enum):
    NOTHING = ""
    CREAK = "it creaks"


TABLE = {
    Door.OPEN: {
        Hand.PUSH: (Door.SHUT, Does.CREAK),
        Hand.LOOK_AT: (Door.OPEN, Does.NOTHING),
    },
    Door.SHUT: {
        Hand.PUSH: (Door.OPEN, Does.CREAK),
        Hand.LOOK_AT: (Door.OPEN, Does.NOTHING),
        Hand.LOCK: (Door.SHUT, Does.NOTHING),
    },
}


def test_it_moves_by_the_table():
    machine = Machine(TABLE, Door.OPEN)
    assert machine.on(Hand.PUSH) is Does.CREAK
    assert machine.state is Door.SHUT


def test_what_has_no_row_is_impossible_and_changes_nothing():
    machine = Machine(TABLE, Door.OPEN)
    with pytest.raises(ImpossibleError, match="LOCK while OPEN"):
        machine.on(Hand.LOCK)
    assert machine.state is Door.OPEN


def test_its_rows_and_what_is_missing():
    assert len(list(arrows(TABLE))) == 5
    assert list(missing(TABLE, Door, Hand)) == [(Door.OPEN, Hand.LOCK)]


def test_how_it_is_drawn():
    """One arrow for each pair of states; what neither moves nor does anything is left out."""
    assert mermaid(TABLE, Door.OPEN, (Door.SHUT,)).splitlines() == [
        "stateDiagram-v2",
        "    [*] --> open",
        "    open --> shut: push / it creaks",
        "    shut --> open: push / it creaks",
        "    shut --> open: look at",
        "    shut --> [*]",
    ]
