"""The figures of one run as a table on the terminal, and as JSON with the machine they were measured on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path

from benchmarks.figures import Figure

RESULTS = Path(__file__).parent / "results"


def table(figures: Iterable[Figure]) -> str:
    """One line for each figure, grouped; what must hold says whether it does."""
    lines: list[str] = []
    for group, rows in groupby(figures, key=lambda figure: figure.group):
        lines.append(f"\n{group}")
        lines += [_line(figure) for figure in rows]
    return "\n".join(lines)


def _line(figure: Figure) -> str:
    median = "" if figure.median is None else f"(median {_number(figure.median)})"
    line = (
        f"  {figure.loop:8}{figure.what:58}{_number(figure.value):>9} {figure.unit:17}{median:18}"
    )
    if figure.hold is not None:
        line += f" hold <= {_number(figure.hold):6}  {'OK' if figure.holds else 'MISSED'}"
    return line.rstrip()


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def summary(figures: Iterable[Figure]) -> str:
    held = [figure for figure in figures if figure.holds is not None]
    missed = sum(not figure.holds for figure in held)
    return f"{len(held) - missed} of {len(held)} figures hold"


def save(
    machine: Mapping[str, str],
    settings: Mapping[str, int],
    figures: Iterable[Figure],
    folder: Path = RESULTS,
) -> Path:
    """One file for each Python and day; those of the same Python's earlier days make way."""
    python = ".".join(machine["python"].split()[1].split(".")[:2])
    for earlier in folder.glob(f"{python}-*.json"):
        earlier.unlink()
    path = folder / f"{python}-{machine['date']}.json"
    content = {
        "machine": dict(machine),
        "settings": dict(settings),
        "figures": [figure.as_json() for figure in figures],
    }
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path
