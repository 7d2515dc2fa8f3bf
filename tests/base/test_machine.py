"""State machines as tables, and how they are drawn."""

from __future__ import annotations

from enum import Enum

from streamguard._base.machine import ImpossibleError, arrows, impossible, missing
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


def test_what_has_no_row_is_impossible():
    error = impossible(Door.OPEN, Hand.LOCK)
    assert isinstance(error, ImpossibleError)
    assert "LOCK while OPEN" in str(error)


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
