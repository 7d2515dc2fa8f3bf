"""The tables of docs/benchmarks.md, from the latest results of each Python: `python -m benchmarks.tables`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
PYTHONS = ("3.11", "3.12", "3.13")

Figures = dict[tuple[str, str, str], dict[str, Any]]


def main() -> None:
    """Print them."""
    runs = [_latest(python) for python in PYTHONS]
    keys = list(dict.fromkeys(key for run in runs for key in run))
    held = [key for key in keys if any(run.get(key, {}).get("hold") is not None for run in runs)]
    print(_table(("figure", "loop", "must hold"), held, runs, _named, _held))
    for group in ("per message, ready", "per message, waited for", "memory"):
        rows = [key for key in keys if key[0] == group and key not in held]
        print(_table((group, "loop"), rows, runs, lambda key, _: (key[2], key[1]), _plain))


def _latest(python: str) -> Figures:
    path = max(RESULTS.glob(f"{python}-*.json"))
    figures = json.loads(path.read_text())["figures"]
    return {(each["group"], each["loop"], each["what"]): each for each in figures}


def _table(
    heads: tuple[str, ...],
    keys: Iterable[tuple[str, str, str]],
    runs: list[Figures],
    named: Callable[[tuple[str, str, str], list[Figures]], tuple[str, ...]],
    shown: Callable[[dict[str, Any] | None], str],
) -> str:
    lines = [f"| {' | '.join((*heads, *PYTHONS))} |"]
    lines.append("|" + "---|" * len(heads) + "---:|" * len(PYTHONS))
    for key in keys:
        cells = (*named(key, runs), *(shown(run.get(key)) for run in runs))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join((*lines, ""))


def _named(key: tuple[str, str, str], runs: list[Figures]) -> tuple[str, ...]:
    group, loop, what = key
    figures = [run[key] for run in runs if key in run]
    holds = list(dict.fromkeys(_number(f["hold"]) for f in figures if f["hold"] is not None))
    unit = figures[0]["unit"]
    suffix = "" if unit in {"x", "wakeups"} else f", {unit}"
    name = what if group == "ratios" else f"{group}: {what}"
    return f"{name}{suffix}".replace("|", "+"), loop, f"≤ {' / '.join(holds)}"


def _held(figure: dict[str, Any] | None) -> str:
    if figure is None:
        return "-"
    text = _number(figure["value"])
    return text if figure["holds"] is not False else f"**{text}**"


def _plain(figure: dict[str, Any] | None) -> str:
    return "-" if figure is None else _number(figure["value"])


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    main()
