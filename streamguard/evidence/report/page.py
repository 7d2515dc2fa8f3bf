"""`page`: a run as one HTML file that asks for nothing else.

The look and the script are files beside this one and go into the page as they are; its content
security policy names their hashes, so that nothing which a tool or a model has called something can
ever run. Data goes in as JSON that cannot end its element.
"""

from __future__ import annotations

import json
from string import Template
from typing import TYPE_CHECKING, Any, Final

from streamguard._base.quoting import quoted
from streamguard._version import __version__
from streamguard.evidence.report.folder import clean
from streamguard.evidence.report.hyperlinks import absolute_base_of, base_of, encoded
from streamguard.evidence.report.legend import HATCHES, LEGEND, hash_of, packaged
from streamguard.evidence.report.picture import DrawnLane, lanes
from streamguard.evidence.report.states import SAID, tone_of
from streamguard.evidence.report.story import (
    Story,
    answers,
    headline,
    is_alarm,
    shown_in_full,
    stories,
)
from streamguard.evidence.report.tables import tables
from streamguard.evidence.report.wording import (
    clock_of,
    duration,
    escape,
    instant,
    is_brief,
    several,
)

if TYPE_CHECKING:
    from pathlib import Path

    from streamguard.evidence.report.folder import Run, RunFile
    from streamguard.evidence.report.next_step import NextStep

_MOST_STORIES: Final = 3


def page(run: Run, file: Path | None = None, *, absolute_links: bool = False) -> str:
    """The whole report of `run`.

    `file`: where it is going to be, since its links lead from there; left out, in the run's own folder.
    `absolute_links`: for a page whose place is not known.
    """
    told = stories(run)
    base = absolute_base_of(run.folder) if absolute_links else base_of(run.folder, file)
    return page_of(run, told, tables(run, told), base)


def page_of(run: Run, told: list[Story], tabled: str, base: str = "") -> str:
    """The page that tells that of `run`, with those tables. Its links begin with `base`."""
    style, script = packaged("colours.css") + packaged("page.css"), packaged("page.js")
    said = headline(told)
    return Template(packaged("page.html")).substitute(
        version=escape(__version__),
        title=escape(f"{said}: {run.kind} {run.name}"),
        kicker=kicker(run),
        headline=escape(said),
        tone=tone_of(story.state for story in told),
        stories=_stories(told, base),
        legend="".join(f"<li><svg>{shape}</svg>{name}</li>" for shape, name in LEGEND),
        tables=tabled,
        defs=HATCHES,
        style=style,
        style_hash=hash_of(style),
        script=script,
        script_hash=hash_of(script),
        data=_data(run, told),
    )


def kicker(run: Run) -> str:
    """Which run it is, as HTML."""
    parts = [f"streamguard report of {run.kind} <b>{escape(run.name)}</b>"]
    flows = sorted({session.writer.flow for session in run.sessions} - {""})
    if flows:
        parts.append(f"flow {escape(', '.join(flows))}")
    if run.sessions:
        lasted = run.end - run.start
        until = clock_of(run.start, run.end)(run.end)
        began = instant(run.start, exactly=is_brief(lasted))
        parts.append(f"{began} to {until} ({duration(lasted)})")
        if run.has_messages:
            parts.append(several(sum(s.counted("message") for s in run.sessions), "message"))
    if run.unreadable:
        parts.append(f"{several(run.unreadable, 'line')} could not be read")
    if run.is_beheaded:
        parts.append("what was before has been rotated away")
    return " · ".join(parts)


def _stories(told: list[Story], base: str) -> str:
    troubled = shown_in_full(told)
    shown = "".join(_story(story, base) for story in troubled[:_MOST_STORIES])
    if len(troubled) > _MOST_STORIES:
        left = len(troubled) - _MOST_STORIES
        shown += f'<p class="note">{several(left, "more session")} in trouble: see the table.</p>'
    return shown


def _story(story: Story, base: str) -> str:
    facts = "".join(
        f"<dt>{term}</dt><dd>{''.join(_line(line, term) for line in lines)}</dd>"
        for term, lines in answers(story).items()
    )
    if story.records:
        links = " · ".join(_link(record, base) for record in story.records)
        facts += f"<dt>Records</dt><dd><p>{links}</p></dd>"
    if story.next_steps:
        facts += f'<dt>Next</dt><dd class="next">{"".join(map(_step, story.next_steps))}</dd>'
    return (
        f'<article class="story {story.state}"><h2>{escape(story.session.name)}: '
        f"{SAID[story.state]}</h2><p>{escape(story.what)}</p><dl>{facts}</dl></article>"
    )


def _link(record: RunFile, base: str) -> str:
    link = escape(base + encoded(record.path))
    return f'<a href="{link}" title="{escape(clean(record.path))}">{escape(record.what)}</a>'


def _step(step: NextStep) -> str:
    shown = "\n".join(map(escape, step.lines.splitlines()))
    lines = f'<pre tabindex="0"><code>{shown}</code></pre>' if shown else ""
    return f"<p>{escape(step.says)}</p>{lines}"


def _line(text: str, term: str) -> str:
    kind = ' class="alarm"' if term == "Left" and is_alarm(text) else ""
    return f"<p{kind}>{escape(text)}</p>"


def _data(run: Run, told: list[Story]) -> str:
    start = run.start
    drawn = [_drawn(lane, story, start) for lane, story in zip(lanes(told), told, strict=True)]
    text = json.dumps({"start": start, "end": run.end, "lanes": drawn}, separators=(",", ":"))
    # Nothing in it can end the element, nor begin a comment.
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _drawn(lane: DrawnLane, story: Story, start: float) -> dict[str, Any]:
    def since(at: float) -> float:
        return round(at - start, 3)

    return {
        "name": quoted(lane.name),
        "state": lane.state,
        "label": quoted(lane.summary),
        "since": None if story.since is None else since(story.since),
        "rows": lane.rows,
        "m": [value for n, a, b in lane.messages for value in (n, since(a), since(b))],
        "p": [value for n, a, b in lane.pings for value in (n, since(a), since(b))],
        "s": [
            [
                s.of,
                since(s.start),
                since(s.end),
                s.row,
                int(s.is_open),
                quoted(s.name),
                quoted(s.text),
            ]
            for s in lane.shapes
        ],
        "e": [[point.of, since(point.at), quoted(point.text)] for point in lane.points],
    }
