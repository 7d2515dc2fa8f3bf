"""The mutants that no test notices, each with why: `accounted.toml`, the one file that says so.

    [[equivalent]]
    mutants = ["_watch/windows Windows.next boundary: a < b -> (a <= b)"]
    reason = "both are the same instant then, and either is told"

`equivalent`: no behaviour differs, so none can be tested. `open`: one differs, and no test shows it yet; `reason` says
what harm that could do.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

FILE: Final = Path(__file__).with_name("accounted.toml")


@dataclass(frozen=True)
class Accounted:
    equivalent: dict[str, str] = field(default_factory=dict)  # a mutant's name, and the reason
    open: dict[str, str] = field(default_factory=dict)

    def __contains__(self, name: str) -> bool:
        return name in self.equivalent or name in self.open


def read(file: Path = FILE) -> Accounted:
    tables = tomllib.loads(file.read_text("utf-8"))
    found: dict[str, dict[str, str]] = {"equivalent": {}, "open": {}}
    for kind, rows in tables.items():
        for row in rows:
            for name in row["mutants"]:
                found[kind][name] = row["reason"]
    return Accounted(**found)
