"""The fenced blocks of README, CONTRIBUTING and docs, with the comment above each that says how it is run.

    <!-- block: not run, REASON -->     it is compiled, and its names are looked up
    <!-- block: raises NAME -->         that is how it ends

The comment stands in the line above the fence.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
FENCE = re.compile(
    r"(?:^ *<!-- block: (?P<marker>[^\n]+?) -->\n)?"
    r"^(?P<indent> *)```(?P<language>\w+)[^\n]*\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
MARKER = re.compile(r"not run, (?P<why>.+)|raises (?P<error>\w+)")


class Block(NamedTuple):
    page: str
    line: int  # of its first line, from 1
    language: str
    text: str
    why_not: str = ""  # it is not run
    raises: str = ""

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(page: Path, *languages: str) -> Iterator[Block]:
    text = page.read_text("utf-8")
    for found in FENCE.finditer(text):
        if found["language"] not in languages:
            continue
        marker = MARKER.fullmatch(found["marker"] or "raises nothing")
        name = page.relative_to(ROOT).as_posix()
        line = text.count("\n", 0, found.start("text")) + 1
        assert marker, (
            f"{name}:{line}: <!-- block: {found['marker']} --> is no marker; see {__name__}"
        )
        raises = marker["error"] if found["marker"] else ""
        yield Block(
            name,
            line,
            found["language"],
            textwrap.dedent(found["text"]),
            marker["why"] or "",
            raises or "",
        )


def all_blocks(*languages: str) -> list[Block]:
    return [block for page in PAGES for block in blocks_of(page, *languages)]
