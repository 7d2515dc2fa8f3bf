"""The figures as pictures: bars with their values and a line where one must hold; and curves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure
from benchmarks.tables import Run

_GUARD = "#1b6ca8"
_OTHER = "#b8b8b8"
_HELD = "#c0392b"
_LOOPS = ("asyncio", "uvloop", "trio")
_STYLES = (("-", "full"), ("--", "dashed"), (":", "dotted"))


def draw(runs: Sequence[Run], folder: Path) -> list[Path]:
    """The costs on the latest Python, and how they grow on each; what was written."""
    if not runs:
        return []
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "streamguard"
    mpl.rcParams["svg.fonttype"] = "none"  # text stays text
    from matplotlib import pyplot as plt

    pictures = {"costs": _all_costs(plt, runs[-1]), "growth": _growth(plt, runs)}
    paths: list[Path] = []
    for name, picture in pictures.items():
        paths.append(folder / f"{name}.svg")
        picture.savefig(paths[-1], metadata={"Date": None})
        plt.close(picture)
    return paths


def _all_costs(plt: Any, run: Run) -> Any:
    rows = list(run.figures.values())
    figure, axes = plt.subplots(5, 3, figsize=(16, 19), layout="constrained", sharex="row")
    for column, loop in enumerate(_LOOPS):
        mine = [row for row in rows if row.loop == loop]
        _costs(axes[0][column], f"{loop}: ready message, ns added", "ready", mine)
        _costs(axes[1][column], f"{loop}: awaited message, ns added", "waited for", mine)
        _lateness(axes[2][column], loop, mine)
        _memory(axes[3][column], f"{loop}: bytes of an idle stream, above a bare one", mine)
        trees = [row for row in mine if row.group == "tree ended"]
        _bars(axes[4][column], trees, f"{loop}: until a tree of processes is proven dead, ms")
    figure.suptitle(
        f"{_where(run)}\nblue: streamguard; grey: the stream alone or other tools; "
        "red line: what `decided` and `guarded` must hold",
        fontsize=12,
    )
    return figure


def _where(run: Run) -> str:
    machine = run.machine
    return (
        f"streamguard {machine['streamguard']} on {machine['python']}, {machine['cpu']}, "
        f"{machine['cores']} cores, {machine['date']}"
    )


# -- growth ----------------------------------------------------------------------------------


def _growth(plt: Any, runs: Sequence[Run]) -> Any:
    """What one costs, by how much there is: flat is linear in all, and constant for each."""
    things = list(dict.fromkeys(_thing(row) for run in runs for row in _curves(run)))
    columns = 3
    lines = max(1, -(-len(things) // columns))
    figure, axes = plt.subplots(
        lines, columns, figsize=(16, 4 * lines), layout="constrained", squeeze=False
    )
    for axis, thing in zip_longest(axes.flat, things):
        if thing is None:
            axis.set_axis_off()
            continue
        for run, style in zip(runs, _STYLES, strict=False):
            _lines(axis, run, style, [row for row in _curves(run) if _thing(row) == thing])
        axis.set(xscale="log", yscale="log", ylabel="us for one")
        axis.set_title(thing, fontsize=10)
        axis.set_ylim(*_decades(axis.get_ylim()))
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(fontsize=8, frameon=False)
    styles = ", ".join(
        f"{run.python} {name}" for run, (_, name) in zip(runs, _STYLES, strict=False)
    )
    figure.suptitle(
        f"What one costs, the more there are. Flat is what must be. {styles}", fontsize=12
    )
    return figure


def _curves(run: Run) -> list[Figure]:
    return [row for row in run.figures.values() if row.curve]


def _thing(row: Figure) -> str:
    return f"{row.what.partition(',')[0]} ({row.loop})"


def _lines(axis: Any, run: Run, style: tuple[str, str], rows: Sequence[Figure]) -> None:
    for number, row in enumerate(rows):
        label = row.what.partition(": ")[2] if style is _STYLES[0] else None
        sizes, costs = zip(*row.curve, strict=True)
        colour = _HELD if row.holds is False else f"C{number}"
        axis.plot(sizes, costs, style[0], marker="o", markersize=3, color=colour, label=label)


def _decades(limits: tuple[float, float]) -> tuple[float, float]:
    """At least three, or noise would look like a slope."""
    low, high = limits
    middle = math.sqrt(low * high)
    return min(low, middle / 10**1.5), max(high, middle * 10**1.5)


# -- bars ------------------------------------------------------------------------------------


def _costs(axis: Any, title: str, kind: str, rows: Sequence[Figure]) -> None:
    chosen = [
        row
        for row in rows
        if row.group == f"per message, {kind}"
        and row.unit == "ns added"
        and "Claude" not in row.what
        and "callback" not in row.what
    ]
    # What is ours first, then the others.
    _bars(axis, sorted(chosen, key=lambda row: _is_other(row.what)), title)


def _lateness(axis: Any, loop: str, rows: Sequence[Figure]) -> None:
    chosen = [row for row in rows if row.group.startswith("lateness") and "together" in row.group]
    group = chosen[0].group.partition(", ")[2] if chosen else ""
    _bars(axis, chosen, f"{loop}: lateness of {group}, p99, ms")
    for row in chosen:
        if row.hold is not None:
            axis.axvline(row.hold, color=_HELD, linewidth=1)


def _memory(axis: Any, title: str, rows: Sequence[Figure]) -> None:
    mine = [row for row in rows if row.group == "memory" and row.what.endswith("above bare")]
    _bars(axis, [row for row in mine if row.unit == "bytes"], title)
    for row in mine:
        if row.hold is not None and row.unit == "bytes":
            axis.axvline(row.hold, color=_HELD, linewidth=1)


def _bars(axis: Any, rows: Sequence[Figure], title: str) -> None:
    names = [row.what.removesuffix(", p99").removesuffix(", above bare") for row in rows]
    colours = [_OTHER if _is_other(row.what) else _GUARD for row in rows]
    bars = axis.barh(names, [row.value for row in rows], color=colours)
    axis.bar_label(bars, labels=[f"{row.value:,.0f}" for row in rows], padding=3, fontsize=9)
    axis.invert_yaxis()
    axis.margins(x=0.15)
    axis.set_title(title, fontsize=10)
    axis.spines[["top", "right"]].set_visible(False)


def _is_other(what: str) -> bool:
    return what.startswith(("asyncio.", "anyio.", "trio.", "aiostream", "one bare hop", "bare"))
