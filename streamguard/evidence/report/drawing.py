"""`drawing`: a run as one SVG, for mails and tickets: what happened, in words and as a picture.

It shows what the page shows at first sight and is drawn with the same colours, but it cannot be
zoomed, so of many sessions only the first are in it. Legible at 1,000 px.
"""

from __future__ import annotations

import math
import re
import textwrap
import unicodedata
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from streamguard.evidence.report.legend import HATCHES, LEGEND, packaged
from streamguard.evidence.report.picture import DrawnLane, Shape, lanes
from streamguard.evidence.report.states import tone_of
from streamguard.evidence.report.story import (
    Story,
    answers,
    headline,
    is_alarm,
    shown_in_full,
    stories,
)
from streamguard.evidence.report.wording import duration, escape, instant, several

if TYPE_CHECKING:
    from streamguard.evidence.report.folder import Run

WIDTH: Final = 1000
LANES: Final = 40
_STORIES: Final = 3
_MOST: Final = 3  # of each answer
_ANSWERS: Final = 120
_NAMES: Final = 170
_RIGHT: Final = 16
_PLOT: Final = WIDTH - _NAMES - _RIGHT
_BAR: Final = 3
_BARS: Final = 26
_ROW: Final = 17
_STRIP: Final = 13
_FULL: Final = 100  # messages per second that fill a lane's height
_CELLS: Final = 200
_WIDTHS: Final = (("ijl", 0.45), ("frt .,:;'|()[]/-", 0.6), ("MWm%…@", 1.6), ("w", 1.3))
# How many n have room in a line, in a name, in a state; and how wide one is in small text.
_HEAD: Final = 61
_BOLD: Final = 111
_PLAIN: Final = 114
_NAME: Final = 17.4
_STATE: Final = 21.5
_SMALL: Final = 6.97
_STEPS: Final = (
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200),
    *(86400, 172800, 604800, 2592000, 31536000),
)
_DARK: Final = re.compile(r"@media \(prefers-color-scheme: dark\) \{.*?\n\}\n", re.DOTALL)
_BANDS: Final = ("backoff", "idle", "hold", "scope", "teardown")
_TEXT: Final = (
    'text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;'
    " font-size: 12px; fill: var(--ink); } .small { font-size: 11px; } .soft { fill: var(--soft); }"
    " .head { font-size: 22px; font-weight: 700; } .who { font-weight: 600; }"
    ' .code { font: 11.5px ui-monospace, Menlo, "DejaVu Sans Mono", monospace; }'
    " .bad { fill: var(--bad); } .warn { fill: var(--warn); }"
    " .alarm { fill: var(--bad); font-weight: 600; } .paper { fill: var(--sheet); }"
    " .state-hung, .state-failed { fill: var(--bad); }"
    " .state-stopped, .state-hollow, .state-open, .state-recovered { fill: var(--warn); }"
)


def drawing(run: Run, *, is_light: bool = False) -> str:
    """The SVG of `run`; `is_light`: in light colours, whatever the reader's preference is."""
    return drawing_of(run, stories(run), is_light=is_light)


def drawing_of(run: Run, told: list[Story], *, is_light: bool = False) -> str:
    """The SVG that tells that of `run`."""
    drawn = lanes(told[:LANES])
    body: list[str] = []
    y = _words(run, told, body)
    if drawn:
        y = _Picture(run).draw(drawn, y + 14, body)
        if len(told) > LANES:
            y += 20
            body.append(
                _text(16, y, f"… and {several(len(told) - LANES, 'more session')}", "soft")
            )
        y = _legend(y + 26, body)
    said, height = headline(told), round(y + 14)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}"'
        f' viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="title desc">'
        f'<title id="title">{escape(said)}</title><desc id="desc">{escape(_described(told))}</desc>'
        f"<style>{_colours(is_light=is_light)}{_TEXT}</style>{HATCHES}"
        f'<rect class="paper" width="{WIDTH}" height="{height}"/>{"".join(body)}</svg>\n'
    )


def _colours(*, is_light: bool) -> str:
    colours = packaged("colours.css")
    if not is_light:
        return colours
    return _DARK.sub("", colours).replace("color-scheme: light dark;", "color-scheme: light;")


def _described(told: list[Story]) -> str:
    """The same in words, for who does not see it."""
    said = [f"{story.session.name}: {'; '.join(_answers(story))}." for story in told[:_STORIES]]
    return " ".join(said) or "No session was recorded."


def _answers(story: Story) -> Iterator[str]:
    yield story.what
    if story.since is not None:
        yield f"since {instant(story.since, exactly=story.is_brief)}"
    if story.in_flight:
        yield f"in flight: {story.in_flight}"
    yield from story.left


def _words(run: Run, told: list[Story], body: list[str]) -> float:
    """The header; where it ends."""
    when = f", {instant(run.start)}, {duration(run.end - run.start)}" if told else ""
    body.append(_text(16, 24, f"streamguard report of {run.kind} {run.name}{when}", "soft"))
    tone = tone_of(story.state for story in told)
    body.append(_text(16, 52, _cut(headline(told), _HEAD), f"head {tone}".rstrip()))
    y = 58.0
    for story in shown_in_full(told)[:_STORIES]:
        y += 20
        body.append(_text(16, y, _cut(f"{story.session.name}: {story.what}", _BOLD), "who"))
        before = ""
        for term, line, kind in _lines(story):
            for part in _wrapped(line, _PLAIN):
                y += 17
                if term != before:
                    body.append(_text(30, y, term, "soft"))
                    before = term
                body.append(_text(_ANSWERS, y, part, kind))
        y += 4
    return y


def _lines(story: Story) -> Iterator[tuple[str, str, str]]:
    """Question, answer and how that is written; of each so many that the picture stays small."""
    known = answers(story)
    for term in ("Since", "In flight", "Last message", "Tried", "Left"):
        for line in known.get(term, [])[:_MOST]:
            yield term, line, "alarm" * (term == "Left" and is_alarm(line))
    for step in story.next_steps:
        if not step.is_code:
            yield "Next", step.says, ""
            yield "Next", step.lines, "code"


def _legend(y: float, body: list[str]) -> float:
    x = 16.0
    for shape, name in LEGEND:
        wide = 28 + sum(map(_width, name)) * _SMALL
        if x + wide > WIDTH:
            x, y = 16.0, y + 20
        body.append(f'<g transform="translate({x} {y - 11})">{shape}</g>')
        body.append(_text(x + 28, y, name, "small soft"))
        x += wide + 14
    return y


class _Picture:
    """Axis and lanes: instants to pixels."""

    def __init__(self, run: Run) -> None:
        margin = max(run.end - run.start, 1.0) * 0.012
        self._start = run.start - margin
        self._seconds = max(run.end - run.start, 1.0) + 2 * margin

    def draw(self, drawn: list[DrawnLane], y: float, body: list[str]) -> float:
        """Everything, from `y` on; where it ends."""
        body.extend(self._axis(y))
        y += 24
        for lane in drawn:
            strip = _STRIP if any(shape.of == "attempt" for shape in lane.shapes) else 0
            height = max(8 + strip + _BARS + (3 + lane.rows * _ROW if lane.rows else 0), 42)
            body.append(f'<line class="grid" x1="0" x2="{WIDTH}" y1="{y}" y2="{y}"/>')
            body.append(_text(16, y + 17, _cut(lane.name, _NAME), "who"))
            state = lane.summary.split(", ")
            body.append(
                _text(16, y + 33, _cut(", ".join(state[:2]), _STATE), f"small state-{lane.state}")
            )
            body.append(
                f'<g transform="translate({_NAMES} {y})">{"".join(self._lane(lane, strip, height))}</g>'
            )
            y += height
        return y

    def _x(self, at: float) -> float:
        return (at - self._start) / self._seconds * _PLOT

    def _axis(self, y: float) -> Iterator[str]:
        every = next((step for step in _STEPS if step / self._seconds * _PLOT >= 84), _STEPS[-1])
        at = math.ceil(self._start / every) * float(every)
        while at <= self._start + self._seconds:
            x = _NAMES + self._x(at)
            yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{y + 16}" y2="{y + 24}"/>'
            anchor = "end" if x > WIDTH - 40 else "middle"
            yield _text(x, y + 12, _tick(at, every), "tick small", anchor)
            at += every

    def _lane(self, lane: DrawnLane, strip: int, height: float) -> Iterator[str]:
        top, base = 4 + strip, 4 + strip + _BARS
        lives = [shape for shape in lane.shapes if shape.of in ("stream", "attempt")]
        until = -math.inf
        for shape in lives:
            x1, x2, kind = self._x(shape.start), self._x(shape.end), " open" * shape.is_open
            if x2 < until:
                continue
            until = x1 + _PLOT / _CELLS
            yield f'<line class="base{kind}" x1="{x1:.1f}" x2="{x2:.1f}" y1="{base}.5" y2="{base}.5"/>'
        for band in _BANDS:
            of_band = [shape for shape in lane.shapes if shape.of in (band, f"{band}s")]
            yield from self._boxes(of_band, top, height - top - 4, band)
        attempts = [shape for shape in lane.shapes if shape.of == "attempt"]
        yield from self._boxes(attempts, 2, _STRIP - 1, "attempt")
        yield self._bars(lane.pings, base, "pings")
        yield self._bars(lane.messages, base, "messages")
        for row in range(lane.rows):
            y = base + 3 + row * _ROW
            if row == 0:
                sums = [shape for shape in lane.shapes if shape.of == "works"]
                yield from self._boxes(sums, y, _ROW - 2, "works")
            work = [shape for shape in lane.shapes if shape.of == "work" and shape.row == row]
            yield from self._boxes(work, y, _ROW - 2, "work")
        yield from self._points(lane, base, height)

    def _bars(self, counts: Iterable[tuple[int, float, float]], base: int, kind: str) -> str:
        bins = [0.0] * (_PLOT // _BAR + 1)
        for n, start, end in counts:
            first, last = self._x(start) / _BAR, self._x(max(end, start + 1e-6)) / _BAR
            for i in range(max(0, int(first)), min(len(bins), int(last) + 1)):
                bins[i] += n * (min(last, i + 1) - max(first, i)) / max(last - first, 1e-12)
        seconds = self._seconds / _PLOT * _BAR
        path = ""
        for i, count in enumerate(bins):
            if count > 1e-9:
                share = math.log1p(count / seconds * 10) / math.log1p(_FULL * 10)
                high = max(2.0, min(1.0, share) * _BARS)
                path += f"M{i * _BAR} {base}v{-high:.1f}h{_BAR - 0.6}v{high:.1f}"
        return f'<path class="{kind}" d="{path}"/>' if path else ""

    def _boxes(self, shapes: list[Shape], y: float, height: float, kind: str) -> Iterator[str]:
        """Boxes of one row; what is too small to be told apart is merged."""
        cell, until = _PLOT / _CELLS, -math.inf
        for shape in shapes:
            left = self._x(shape.start)
            right = max(self._x(shape.end), left + 1.5)
            is_small = right - left < cell
            if is_small and left < until:
                continue  # it is in the box before it, a cell wide
            until = left + cell if is_small else -math.inf
            wide = cell if is_small and kind == "works" else right - left
            name = f"{shape.of} open" if shape.is_open else shape.of
            rounded = ' rx="2"' if kind == "work" else ""
            yield (
                f'<rect class="{name}" x="{left:.1f}" y="{y}" width="{wide:.1f}"'
                f' height="{height}"{rounded}><title>{escape(shape.text)}</title></rect>'
            )
            middle = y + height / 2 + 3.7 if kind in ("work", "attempt") else y + 11
            yield _label(shape, kind, left, right, middle)

    def _points(self, lane: DrawnLane, base: int, height: float) -> Iterator[str]:
        last: dict[str, float] = {}
        for point in lane.points:
            x = self._x(point.at)
            if x - last.get(point.of, -99.0) < 5:
                continue
            last[point.of] = x
            y1, y2 = (base - 6, base + 3.0) if point.of == "turn" else (2, height - 2)
            yield (
                f'<line class="{point.of}" x1="{x:.1f}" x2="{x:.1f}" y1="{y1}" y2="{y2}">'
                f"<title>{escape(point.text)}</title></line>"
            )
            if point.of == "verdict":
                yield f'<path class="flag" d="M{x:.1f} 1h9l-3 4 3 4h-9z"/>'


def _label(shape: Shape, kind: str, left: float, right: float, y: float) -> str:
    words = {
        "work": shape.name,
        "attempt": f"attempt {shape.name}",
        "idle": f"silent {duration(shape.end - shape.start)}",
        "hold": f"held: {shape.name}",
        "teardown": "teardown",
        "backoff": "pause",
        "scope": shape.name,
    }
    most = (right - left - 6) / _SMALL
    text = words.get(kind, "")
    text = _cut(text, most) if most >= 4 else ""
    return _text(left + 4, y, text, f"small {kind}-name") if text else ""


def _tick(at: float, every: float) -> str:
    when = datetime.fromtimestamp(at, UTC)
    if every >= 86400 or (when.hour, when.minute, when.second) == (0, 0, 0):
        return when.strftime("%m-%d")
    return when.strftime("%H:%M" if every >= 60 else "%H:%M:%S")


def _cut(text: str, most: float) -> str:
    """As much of `text` as has the room of `most` n."""
    room = most
    for i, letter in enumerate(text):
        room -= _width(letter)
        if room < 0:
            return f"{text[: max(0, i - 2)]}…"
    return text


def _wrapped(text: str, most: float) -> list[str]:
    """Two lines of it at most."""
    letters = int(most * len(text) / max(sum(map(_width, text)), 1))
    return [_cut(line, most) for line in textwrap.wrap(text, max(letters, 20))[:2]]


def _width(letter: str) -> float:
    """What a letter takes, where an n takes 1: as in DejaVu, the widest font that is asked for."""
    for letters, width in _WIDTHS:
        if letter in letters:
            return width
    if unicodedata.east_asian_width(letter) in "WF":
        return 1.6
    return 1.15 if letter.isupper() else 1.0


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    turned = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}"{turned}>{escape(text)}</text>'
