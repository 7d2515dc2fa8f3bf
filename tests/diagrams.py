"""A state machine's table as a Mermaid state diagram, and whether a page still shows it.

The diagrams in the docs are drawn from the tables. When a test says that a page does not show its
table, put what it prints in the place of what is there.
"""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path

from streamguard._base.machine import Table, arrows

DOCS = Path(__file__).parent.parent / "docs"


def mermaid(table: Table, start: Enum, ends: tuple[Enum, ...] = ()) -> str:
    """The table as a diagram: an arrow for all that leads from one state to the next and does the same.

    Rows that stay where they are, and do nothing, are left out. What is done is what its enum's
    value says, behind a slash; an empty one does nothing.
    """
    ways: dict[tuple[Enum, Enum, Enum], list[str]] = {}
    for state, event, then, does in arrows(table):
        if then is not state or does.value:
            ways.setdefault((state, then, does), []).append(_words(event.name))
    lines = ["stateDiagram-v2", f"    [*] --> {_id(start)}"]
    lines += [
        f"    {_id(state)} --> {_id(then)}: {' or '.join(on)}"
        + (f" / {does.value}" if does.value else "")
        for (state, then, does), on in ways.items()
    ]
    lines += [f"    {_id(state)} --> [*]" for state in ends]
    return "\n".join(lines)


def shown_in(page: str, heading: str) -> str:
    """The diagram that a page of the docs shows under a heading."""
    _, _, below = (DOCS / page).read_text().partition(f"{heading}\n")
    found = re.search(r"```mermaid\n(.*?)\n```", below, re.DOTALL)
    assert found is not None, f"{page} shows no diagram under {heading!r}"
    return found[1]


def _id(state: Enum) -> str:
    return state.name.lower()


def _words(name: str) -> str:
    return name.lower().replace("_", " ")
