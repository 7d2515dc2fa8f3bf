"""The figures of a run as one picture: bars with their values, and a line where one must hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure

_GUARD = "#1b6ca8"
_OTHER = "#b8b8b8"
_HELD = "#c0392b"
_LOOPS = ("asyncio", "uvloop", "trio")


def draw(machine: Mapping[str, str], figures: Iterable[Figure], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "streamguard"
    mpl.rcParams["svg.fonttype"] = "none"  # text stays text
    from matplotlib import pyplot as plt

    rows = list(figures)
    figure, axes = plt.subplots(5, 3, figsize=(16, 19), layout="constrained", sharex="row")
    for column, loop in enumerate(_LOOPS):
        mine = [row for row in rows if row.loop == loop]
        _costs(axes[0][column], f"{loop}: ready message, ns added", "ready", mine)
        _costs(axes[1][column], f"{loop}: awaited message, ns added", "waited for", mine)
        _lateness(axes[2][column], loop, mine)
        _memory(axes[3][column], f"{loop}: bytes of an idle stream and its task", mine)
        trees = [row for row in mine if row.group == "tree ended"]
        _bars(axes[4][column], trees, f"{loop}: until a tree of processes is proven dead, ms")
    figure.suptitle(
        f"streamguard {machine['streamguard']} on {machine['python']}, {machine['cpu']}, "
        f"{machine['cores']} cores, {machine['date']}\n"
        "blue: streamguard; grey: the stream alone or other tools; "
        "red line: what `decided` and `guarded` must hold",
        fontsize=12,
    )
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


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
    mine = [row for row in rows if row.group == "memory"]
    _bars(axis, [row for row in mine if row.unit.startswith("bytes")], title)
    bare = next((row.value for row in mine if row.what == "bare"), 0.0)
    for row in mine:
        if row.hold is not None:
            axis.axvline(row.hold * bare, color=_HELD, linewidth=1)


def _bars(axis: Any, rows: Sequence[Figure], title: str) -> None:
    names = [row.what.removesuffix(", p99") for row in rows]
    colours = [_OTHER if _is_other(row.what) else _GUARD for row in rows]
    bars = axis.barh(names, [row.value for row in rows], color=colours)
    axis.bar_label(bars, labels=[f"{row.value:,.0f}" for row in rows], padding=3, fontsize=9)
    axis.invert_yaxis()
    axis.margins(x=0.15)
    axis.set_title(title, fontsize=10)
    axis.spines[["top", "right"]].set_visible(False)


def _is_other(what: str) -> bool:
    return what.startswith(("asyncio.", "anyio.", "trio.", "aiostream", "one bare hop", "bare"))
