"""The figures of docs/explanation/benchmarks.md, made of the saved results: `python -m benchmarks.page`.

What stands between two markers is made here; all else is written by hand. A marker names groups of figures, each a table, or
one of the names in `SPECIAL`. Whoever edits a figure by hand is found by a test.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks import plot, tables
from benchmarks.report import RESULTS
from benchmarks.tables import Run

PAGE: Final = Path(__file__).parents[1] / "docs" / "explanation" / "benchmarks.md"
SPECIAL: Final[Mapping[str, Callable[[Sequence[Run]], str]]] = {
    "machines": tables.machines,
    "what does not hold": tables.missed,
}
_PART: Final = re.compile(r"(<!-- figures: (.*?) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(page: str, runs: Sequence[Run]) -> str:
    """The page with the figures of `runs`. ValueError if it forgets a group, or has one that there is not."""
    known = tables.groups(runs)
    asked = [name for _, names, _ in _PART.findall(page) for name in names.split("; ")]
    forgotten = [group for group in known if asked.count(group) != 1]
    if forgotten:
        raise ValueError(f"these groups must be named once, each: {', '.join(forgotten)}")

    def part(found: re.Match[str]) -> str:
        made = (
            SPECIAL[name](runs) if name in SPECIAL else tables.table(name, runs)
            for name in found[2].split("; ")
            if name in SPECIAL or name in known
        )
        return "".join((found[1], "\n\n".join(made), "\n", found[3]))

    return _PART.sub(part, page)


def main() -> None:
    runs = tables.read(RESULTS)
    PAGE.write_text(filled(PAGE.read_text(), runs))
    print(f"wrote {PAGE.name}, of {', '.join(run.python for run in runs)}")
    for path in plot.draw(runs, RESULTS):
        print(f"drew {path.name}")


if __name__ == "__main__":
    main()
