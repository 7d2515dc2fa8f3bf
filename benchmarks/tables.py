"""Tables in Markdown, of the saved results: one for each group of figures, and one of what does not hold.

A row is a figure, its columns are loops, and a cell has its value on each Python: what is ours and what peers need stand
below each other, as they were measured in one run. Bold is what does not hold. Pure: values in, text out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from benchmarks.figures import Figure

PYTHONS = ("3.11", "3.12", "3.13")
BETWEEN = " · "
_NOT_MEASURED = "–"  # noqa: RUF001 - a dash, for people

Key = tuple[str, str, str, str]  # group, loop, what, unit


@dataclass(frozen=True)
class Run:
    """What was measured on one Python."""

    python: str
    machine: dict[str, str]
    figures: dict[Key, Figure]

    @classmethod
    def of(cls, python: str, machine: dict[str, str], figures: Iterable[Figure]) -> Self:
        return cls(python, machine, {(f.group, f.loop, f.what, f.unit): f for f in figures})


def read(folder: Path) -> list[Run]:
    """The latest results of each Python that has any."""
    runs: list[Run] = []
    for python in PYTHONS:
        if paths := sorted(folder.glob(f"{python}-*.json")):
            said = json.loads(paths[-1].read_text())
            runs.append(Run.of(python, said["machine"], map(Figure.from_json, said["figures"])))
    return runs


def groups(runs: Iterable[Run]) -> list[str]:
    """All groups, as they were measured."""
    return list(dict.fromkeys(key[0] for run in runs for key in run.figures))


def table(group: str, runs: Sequence[Run]) -> str:
    """All figures of `group`."""
    keys = list(dict.fromkeys(key for run in runs for key in run.figures if key[0] == group))
    loops = list(dict.fromkeys(loop for _, loop, _, _ in keys))
    heads = ["" if loop == "-" else loop for loop in loops]
    lines = [
        _row([group, "unit", "must hold", *heads]),
        "|---|---|---|" + "---:|" * len(loops),
    ]
    for what, unit in dict.fromkeys((what, unit) for _, _, what, unit in keys):
        found = [[run.figures.get((group, loop, what, unit)) for run in runs] for loop in loops]
        cells = [_cell(values) for values in found]
        lines.append(_row([what, unit, _held([f for values in found for f in values]), *cells]))
    return "\n".join(lines)


def missed(runs: Sequence[Run]) -> str:
    """What does not hold, and of how many figures."""
    held = [(run, f) for run in runs for f in run.figures.values() if f.hold is not None]
    rows: dict[tuple[str, str, str], list[str]] = {}
    for run, figure in held:
        if not figure.holds and figure.hold is not None:
            name = f"{figure.group}: {figure.what}", figure.loop, figure.unit
            value, hold = _number(figure.value), _number(figure.hold)
            rows.setdefault(name, []).append(f"{run.python}: {value} > {hold}")
    many = sum(not figure.holds for _, figure in held)
    lines = [f"{len(held) - many:,} of {len(held):,} figures hold."]
    if rows:
        lines += ["", _row(["does not hold", "loop", "unit", "where"]), "|---|---|---|---|"]
        lines += [_row([*name, BETWEEN.join(where)]) for name, where in rows.items()]
    return "\n".join(lines)


def machines(runs: Sequence[Run]) -> str:
    """What they were measured on, and how quiet that was."""
    names = list(dict.fromkeys(name for run in runs for name in run.machine))
    lines = [_row(["", *(run.python for run in runs)]), "|---" * (len(runs) + 1) + "|"]
    lines += [_row([name, *(run.machine.get(name, "") for run in runs)]) for name in names]
    return "\n".join(lines)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '+') for cell in cells)} |"


def _cell(values: Sequence[Figure | None]) -> str:
    if not any(values):
        return ""
    return BETWEEN.join(_NOT_MEASURED if value is None else _value(value) for value in values)


def _value(figure: Figure) -> str:
    text = _number(figure.value)
    return f"**{text}**" if figure.holds is False else text


def _held(figures: Iterable[Figure | None]) -> str:
    holds = dict.fromkeys(_number(f.hold) for f in figures if f and f.hold is not None)
    return f"≤ {' / '.join(holds)}" if holds else ""


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
