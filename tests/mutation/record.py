"""What became of each mutant: `.mutation/outcomes.jsonl` as it happens, `record.json` of the last whole run.

An outcome counts as long as the function that the mutant stands in has the same text. Of a record it is enough to know
who noticed which mutant: that test is asked first the next time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tests.mutation.accounted import Accounted
from tests.mutation.mapping import FOLDER
from tests.mutation.mutants import Mutant

RECORD: Final = Path(__file__).with_name("record.json")
_OUTCOMES: Final = FOLDER / "outcomes.jsonl"


@dataclass(frozen=True)
class Row:
    name: str
    key: str
    around: str
    outcome: str
    by: str | None
    tests: int  # that it was shown to
    took: float


def add(row: Row) -> None:
    FOLDER.mkdir(exist_ok=True)
    with _OUTCOMES.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(row)) + "\n")


def rows() -> Iterator[Row]:
    if _OUTCOMES.exists():
        for line in _OUTCOMES.read_text("utf-8").splitlines():
            yield Row(**json.loads(line))


def latest(mutants: Iterable[Mutant]) -> dict[str, Row]:
    """By key, of those whose text is still the same."""
    around = {mutant.key: mutant.around for mutant in mutants}
    return {row.key: row for row in rows() if around.get(row.key) == row.around}


def noticers() -> dict[str, str]:
    """By key, the test that noticed it last."""
    found: dict[str, str] = {}
    if RECORD.exists():
        record = json.loads(RECORD.read_text("utf-8"))
        for noticed in record["noticed"].values():
            found |= {key: record["tests"][number] for key, number in noticed.items()}
    return found | {row.key: row.by for row in rows() if row.by and row.outcome != "survived"}


def write(mutants: list[Mutant], accounted: Accounted, commit: str) -> dict[str, Any]:
    """Make the record of what is known now."""
    known = latest(mutants)
    tests = sorted({row.by for row in known.values() if row.by and row.outcome == "noticed"})
    numbers = {test: number for number, test in enumerate(tests)}
    noticed: dict[str, dict[str, int]] = {}
    counts: dict[str, dict[str, int]] = {}
    for mutant in mutants:
        row = known.get(mutant.key)
        kind = "unknown"
        if row is not None and row.outcome == "noticed" and row.by:
            kind = "noticed"
            noticed.setdefault(mutant.module, {})[mutant.key] = numbers[row.by]
        elif mutant.name in accounted.equivalent:
            kind = "equivalent"
        elif mutant.name in accounted.open:
            kind = "open"
        elif row is not None:
            kind = row.outcome
        of = counts.setdefault(mutant.module, {})
        of[kind] = of.get(kind, 0) + 1
    record = {"commit": commit, "counts": counts, "tests": tests, "noticed": noticed}
    RECORD.write_text(json.dumps(record, indent=0, sort_keys=True) + "\n", "utf-8")
    return record
