"""Tables and headings as Markdown has them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

MADE = "<!-- Made of the code: `python -m tests.docs.make` writes it anew. -->"


def cell(text: object) -> str:
    """What may stand in a cell: one line, and no bar of its own."""
    return " ".join(str(text).split()).replace("|", "\\|")


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(map(cell, row))} |" for row in rows]
    return "\n".join(lines)


def page(title: str, *parts: str) -> str:
    return "\n\n".join((f"# {title}", MADE, *parts)) + "\n"


def code(text: object) -> str:
    """In backticks; nothing for nothing."""
    said = " ".join(str(text).split())
    if not said:
        return ""
    return f"`` {said} ``" if "`" in said else f"`{said}`"


def paragraph(text: str) -> str:
    """A docstring's lines as one."""
    return " ".join(text.split())
