"""What is drawn of each session: lanes of plain values, the same for the page and for the SVG.

A lane has a strip of attempts, the density of its messages, rows of work in flight, and over all of
it what paused or ended it. Here is decided what is seen and in which row; where it comes to lie on
paper is for those who draw.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from streamguard.evidence.report.folder import WARNING, RecordedSession, RecordedSpan
from streamguard.evidence.report.states import SAID
from streamguard.evidence.report.story import Story, lasted_of
from streamguard.evidence.report.wording import duration, several

ROWS: Final = 3
PINGS: Final = "Liveness"
# What is drawn over the whole height of a lane, and what lies in a row.
_BANDS: Final = ("idle", "hold", "teardown", "backoff", "scope")
# What happened and is worth a line of its own in the picture; the table has the rest.
_CONCERNS: Final = ("WorkQuiet", "WorkRepeated", "CeilingPassed", "HollowEnd")
_SHOWN: Final = ("TimedOut", "ScopeTimedOut", "GaveUp", "Reconnected", "TurnOver", "ProcessExited")


@dataclass(frozen=True, slots=True)
class Shape:
    """Something that lasted. `row` counts the rows of work; `is_open`: its end is not recorded."""

    of: str
    start: float
    end: float
    name: str
    text: str
    row: int = 0
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class Point:
    """Something that happened."""

    of: str
    at: float
    text: str


@dataclass(slots=True)
class DrawnLane:
    """One session as it is drawn. Of messages and pings: `(how many, from, to)`."""

    name: str
    state: str
    summary: str
    start: float
    end: float
    rows: int = 0
    messages: list[tuple[int, float, float]] = field(
        default_factory=list["tuple[int, float, float]"]
    )
    pings: list[tuple[int, float, float]] = field(default_factory=list["tuple[int, float, float]"])
    shapes: list[Shape] = field(default_factory=list[Shape])
    points: list[Point] = field(default_factory=list[Point])


def lanes(stories: list[Story]) -> list[DrawnLane]:
    """The lanes of a run, in the order of its stories."""
    return [_lane(story) for story in stories]


def _lane(story: Story) -> DrawnLane:
    session = story.session
    lane = DrawnLane(session.name, story.state, summary(story), session.start, session.end)
    for stretch in session.stretches:
        if stretch.of == "message":
            counted = lane.pings if stretch.name == PINGS else lane.messages
            counted.append((stretch.n, stretch.start, stretch.end))
    _put_shapes(lane, session)
    for mark in session.marks:
        if mark.of in _SHOWN or mark.level >= WARNING:
            of = "trouble" if mark.level >= WARNING else "news"
            if mark.of in ("TimedOut", "ScopeTimedOut"):
                of = "verdict"
            if mark.of == "TurnOver":
                of = "turn"
            if mark.of in _CONCERNS:
                of = "concern"
            lane.points.append(Point(of, mark.at, mark.text))
    return lane


def summary(story: Story) -> str:
    """A session in one sentence."""
    if story.summary:
        return story.summary
    session = story.session
    parts = [SAID[story.state], several(session.counted("message"), "message")]
    if (tools := len(session.of("work")) + session.counted("work")) > 0:
        parts.append(several(tools, "tool call"))
    if (attempts := len(session.of("attempt"))) > 1:
        parts.append(several(attempts, "attempt"))
    parts.append(f"in {duration(lasted_of(session))}")
    return ", ".join(parts)


def _put_shapes(lane: DrawnLane, session: RecordedSession) -> None:
    free = [0.0] * ROWS  # when each row of work is free again
    has_attempts = bool(session.of("attempt"))
    for span in session.spans:
        if span.of == "stream" and has_attempts:
            continue  # the attempts say the same, and more
        start, end = span.start, end_of(span, session.recorded_until)
        row = 0
        if span.of == "work":
            row = min(
                range(ROWS),
                key=lambda row: (free[row] > start, row if free[row] <= start else free[row]),
            )
            free[row] = max(free[row], end)
            lane.rows = max(lane.rows, row + 1)
        lane.shapes.append(
            Shape(span.of, start, end, _name_of(span), text_of(span, end), row, span.end is None)
        )
    for stretch in session.stretches:
        if stretch.of in ("work", *_BANDS):
            if stretch.of == "work":
                lane.rows = max(lane.rows, 1)
            text = f"{stretch.n} of {stretch.name}, {duration(stretch.busy)} in all"
            lane.shapes.append(
                Shape(f"{stretch.of}s", stretch.start, stretch.end, stretch.name, text)
            )
    lane.shapes.sort(key=lambda shape: shape.start)


def end_of(span: RecordedSpan, last: float) -> float:
    """Its end, or how far it is known to have lasted."""
    if span.end is not None:
        return span.end
    until = span.facts.get("until_at")
    known = min(last, until) if isinstance(until, int | float) else last
    return max(span.start, known)


def _name_of(span: RecordedSpan) -> str:
    if span.of == "attempt" and span.facts.get("opened") == "resumed":
        return f"{span.name}, resumed"
    return span.name


_ENDED: Final = {
    "abandoned": "with work left open in the background",
    "empty": "and nothing was done",
    "left": "left by its consumer",
    "dropped": "its end was never told",
}
_CALLED: Final = {
    "attempt": "attempt",
    "backoff": "pause before a retry:",
    "hold": "held:",
    "scope": "time scope",
    "teardown": "teardown after the limit",
}


def text_of(span: RecordedSpan, end: float) -> str:
    """What a span was, how long it lasted and how it ended."""
    lasted = duration(end - span.start)
    if span.of == "stream":
        what = f"open for {lasted}"
    elif span.of == "idle":
        what = f"silence (limit {span.name}), {lasted}"
    else:
        what = f"{_CALLED.get(span.of, '')} {_name_of(span)}".strip() + f", {lasted}"
    if span.end is None:
        return f"{what} when the record ends"
    how = span.facts.get("how")
    how = _ENDED.get(str(how), how)
    return f"{what}, {how}" if how not in (None, "finished", "verdict", "ended") else what
