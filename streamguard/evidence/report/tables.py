"""The tables under the picture: the same facts, for those who read and for those who listen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from streamguard.evidence.report.picture import end_of, text_of
from streamguard.evidence.report.states import SAID
from streamguard.evidence.report.story import Story, headline, lasted_of
from streamguard.evidence.report.wording import clock_of, duration, escape, several

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streamguard.evidence.report.folder import RecordedSession, Run

ROWS: Final = 2000
# What an event is called here; one that is not named is its type's name in words.
_CALLED: Final = {
    "TimedOut": "limit reached",
    "ScopeTimedOut": "limit reached",
    "CutWithdrawn": "limit withdrawn",
    "WindowCollides": "short limit",
    "TornDown": "backend ended",
    "PullDeaf": "does not stop",
    "Interrupting": "asked to stop",
    "InterruptFailed": "asking failed",
    "DisconnectAbandoned": "disconnect hung",
    "ProcessAdopted": "process found",
    "ProcessUnknown": "process not known",
    "ProcessKilled": "process ended",
    "ProcessSurvived": "process still alive",
    "HalfTime": "half of the limit",
    "WorkQuiet": "tool silent",
    "WorkRepeated": "tool repeats itself",
    "HollowEnd": "finished in name only",
    "LoopStalled": "event loop stalled",
    "RecordingFailed": "evidence missing",
    "RetryScheduled": "retry",
    "RetryRecovered": "recovered",
    "Reconnected": "connected again",
    "ReplayDropped": "repetition dropped",
    "OwnerAbandoned": "task left behind",
    "TurnOver": "turn ended",
    # What lasts.
    "work": "tool",
    "backoff": "pause",
    "idle": "silence",
    "hold": "held",
    "stream": "stream open",
    "scope": "time scope",
}
_FIRST: Final = " Those in trouble come first."
_QUIET: Final = ("stream", "work")  # left out first, where there is too much


@dataclass(frozen=True, slots=True)
class Happening:
    """One thing that happened."""

    at: float
    session: str
    what: str
    text: str
    weight: int


def tables(run: Run, told: list[Story]) -> str:
    """Both tables, as HTML."""
    return _sessions(run, told) + events(run)


def _sessions(run: Run, told: list[Story]) -> str:
    head = (
        ("Session", ""),
        ("Flow, step", ""),
        ("State", ""),
        ("Began", ""),
        ("Lasted", "number"),
        ("Messages", "number"),
        ("Tool calls", "number"),
        ("Attempts", "number"),
        ("Longest silence", "number"),
        ("What happened", ""),
    )
    when = clock_of(run.start, run.end)
    rows = "".join(_session(story, when(story.session.start)) for story in told)
    return table(
        "sessions",
        "Sessions",
        f"{headline(told)}.{_FIRST if len(told) > 1 else ''}",
        head,
        rows,
    )


def _session(story: Story, began: str) -> str:
    session = story.session
    tools = len(session.of("work")) + session.counted("work")
    attempts = len(session.of("attempt")) + session.counted("attempt")
    silences = [end_of(span, session.recorded_until) - span.start for span in session.of("idle")]
    writer = session.writer
    cells = (
        ("where", ", ".join(word for word in (writer.flow, writer.step) if word) or "none"),
        ("state", SAID[story.state]),
        ("when", began),
        ("number", duration(lasted_of(session))),
        ("number", f"{session.counted('message'):,}"),
        ("number", f"{tools:,}"),
        ("number", f"{max(attempts, 1):,}"),  # a stream without a session is tried once
        ("number", duration(max(silences)) if silences else "none"),
        ("text", story.what),
    )
    return row(story.state, escape(session.name), cells)


def row(state: str, head: str, cells: Iterable[tuple[str, str]]) -> str:
    """A row of a table: its head as HTML, its cells as kind and text."""
    shown = "".join(f'<td class="{kind}">{escape(text)}</td>' for kind, text in cells)
    return f'<tr class="{state}"><th scope="row">{head}</th>{shown}</tr>'


def events(run: Run) -> str:
    """What happened, in order, as HTML."""
    rows = [row for session in run.sessions for row in _rows(session)]
    rows.sort(key=lambda row: (-row.weight, row.at))
    shown, left = sorted(rows[:ROWS], key=lambda row: row.at), len(rows) - ROWS
    said = "Everything that was told one by one, in order."
    if run.has_messages:
        said += " Messages and what was too short to be seen are counted above."
    if left > 0:
        said += f" {several(left, 'lesser one')} left out."
    several_sessions = len(run.sessions) > 1
    whose = (("Session", ""),) if several_sessions else ()
    head = (("Time (UTC)", ""), *whose, ("What", ""), ("Details", ""))
    when = clock_of(run.start, run.end)
    body = "".join(
        f'<tr class="{"verdict" if row.what == _CALLED["TimedOut"] else ""}"><td class="when">{when(row.at)}</td>'
        f"{_whose(row) if several_sessions else ''}<td>{row.what}</td>"
        f'<td class="text">{escape(row.text)}</td></tr>'
        for row in shown
    )
    return table("events", "Events", said, head, body)


def _whose(row: Happening) -> str:
    return f'<th scope="row">{escape(row.session)}</th>'


def _rows(session: RecordedSession) -> list[Happening]:
    rows = [
        Happening(
            mark.at, session.name, _said_of(mark.of, mark.facts), mark.text, 1 + mark.level // 10
        )
        for mark in session.marks
    ]
    for span in session.spans:
        text = text_of(span, end_of(span, session.recorded_until))
        what = _CALLED.get(span.of, span.of)
        rows.append(
            Happening(span.start, session.name, escape(what), text, 0 if span.of in _QUIET else 3)
        )
    return rows


def _said_of(of: str, facts: dict[str, object]) -> str:
    """What a mark is called, as HTML; a limit's end in mode `warn` is a warning."""
    if of == "TimedOut" and not facts.get("enforced", True):
        return "warning"
    spaced = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in of)
    return escape(_CALLED.get(of, spaced.strip()))


def table(key: str, title: str, caption: str, head: tuple[tuple[str, str], ...], rows: str) -> str:
    """A table of one section, with its heading as its name."""
    cells = "".join(f'<th scope="col" class="{kind}">{name}</th>' for name, kind in head)
    return (
        f'<section aria-labelledby="{key}"><h2 id="{key}">{title}</h2>'
        f'<div class="scroll" role="region" tabindex="0" aria-labelledby="{key}"><table>'
        f"<caption><span>{escape(caption)}</span></caption><thead><tr>{cells}</tr></thead>"
        f"<tbody>{rows}</tbody></table></div></section>"
    )
