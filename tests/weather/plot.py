"""The gauges over time, as a picture: a small SVG of its own, readable in light and dark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tests.weather.gauges import Reading

_WIDTH: Final = 760
_HEIGHT: Final = 92
_LEFT: Final = 130
_GAUGES: Final = (
    ("memory", "memory, MB"),
    ("descriptors", "descriptors"),
    ("tasks", "tasks"),
    ("threads", "threads"),
    ("processes", "processes"),
    ("sessions", "sessions that are over"),
)
_COLOURS: Final = {"asyncio": "#3b82f6", "uvloop": "#f59e0b", "trio": "#10b981"}


def drawn(readings: Mapping[str, Sequence[Reading]]) -> str:
    longest = max((taken[-1].at for taken in readings.values() if taken), default=1.0) or 1.0
    rows = "".join(
        _row(name, label, number, readings, longest)
        for number, (name, label) in enumerate(_GAUGES)
    )
    height = len(_GAUGES) * _HEIGHT + 40
    legend = "".join(
        f'<text x="{_LEFT + 90 * at}" y="16" fill="{_COLOURS[loop]}">{loop}</text>'
        for at, loop in enumerate(readings)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        'font-family="sans-serif" font-size="12"><title>What each process has, over time</title>'
        f'<rect width="100%" height="100%" fill="#fff"/>{legend}{rows}'
        f'<text x="{_WIDTH - 10}" y="{height - 8}" text-anchor="end" fill="#555">'
        f"{longest / 60:.0f} minutes</text></svg>\n"
    )


def _row(
    name: str, label: str, number: int, readings: Mapping[str, Sequence[Reading]], longest: float
) -> str:
    top = 28 + number * _HEIGHT
    most = (
        max((getattr(each, name) for taken in readings.values() for each in taken), default=1) or 1
    )
    base = top + _HEIGHT - 22
    lines = "".join(
        f'<polyline fill="none" stroke="{_COLOURS[loop]}" points="'
        + " ".join(
            f"{_LEFT + each.at / longest * (_WIDTH - _LEFT - 10):.1f},"
            f"{base - getattr(each, name) / most * (_HEIGHT - 30):.1f}"
            for each in taken
        )
        + '"/>'
        for loop, taken in readings.items()
    )
    return (
        f'<text x="4" y="{base}" fill="#111">{label}</text>'
        f'<text x="{_LEFT - 6}" y="{top + 10}" text-anchor="end" fill="#555">{most:g}</text>'
        f'<line x1="{_LEFT}" x2="{_WIDTH - 10}" y1="{base}" y2="{base}" stroke="#ccc"/>{lines}'
    )
