"""A state machine's table as a Mermaid state diagram, and whether a page still shows it.

The diagrams in the docs are drawn from the tables. When a test says that a page does not show its
table, put what it prints in the place of what is there.
"""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path

from streamguard.machine import Table, arrows

DOCS = Path(__file__).parent.parent / "docs"


def mermaid(table: Table, start: Enum, ends: tuple[Enum, ...] = ()) -> str:
    """The table as a diagram: one arrow for each pair of states, with all that leads along it.

    Rows that stay where they are, and do nothing, are left out. What is done is what its enum's
    value says; an empty one does nothing.
    """
    ways: dict[tuple[Enum, Enum], dict[str, list[str]]] = {}
    for state, event, then, does in arrows(table):
        done = _words(does.value) if does.value else ""
        if then is not state or done:
            ways.setdefault((state, then), {}).setdefault(done, []).append(_words(event.name))
    lines = ["stateDiagram-v2", f"    [*] --> {_id(start)}"]
    lines += [
        f"    {_id(state)} --> {_id(then)}: {_label(labels)}"
        for (state, then), labels in ways.items()
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


def _label(labels: dict[str, list[str]]) -> str:
    return "; ".join(
        " or ".join(events) + (f", {done}" if done else "") for done, events in labels.items()
    )


def _words(name: object) -> str:
    return str(name).lower().replace("_", " ")
