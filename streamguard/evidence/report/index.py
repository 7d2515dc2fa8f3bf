"""`index`: the runs of one folder, the ones in trouble first, each with a link to its report."""

from __future__ import annotations

from dataclasses import dataclass
from string import Template
from typing import TYPE_CHECKING

from streamguard._version import __version__
from streamguard.evidence.report.hyperlinks import encoded
from streamguard.evidence.report.legend import hash_of, packaged
from streamguard.evidence.report.states import RANK, SAID, State, counted, tone_of
from streamguard.evidence.report.story import headline, stories
from streamguard.evidence.report.tables import row, table
from streamguard.evidence.report.wording import duration, escape, instant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamguard.evidence.report.folder import Run

HEAD = (
    ("Run", ""),
    ("State", ""),
    ("What happened", ""),
    ("Began", ""),
    ("Lasted", "number"),
    ("Sessions", "number"),
    ("Messages", "number"),
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One run in a line, and where its report is, from the index."""

    link: str
    name: str
    state: State
    headline: str
    began: float
    lasted: float
    sessions: int
    messages: int


def entry(run: Run, link: str) -> Entry:
    """What the index says of `run`."""
    told = stories(run)
    return Entry(
        link=link,
        name=run.name,
        state=told[0].state if told else "finished",
        headline=headline(told),
        began=run.start,
        lasted=run.end - run.start,
        sessions=len(told),
        messages=sum(session.counted("message") for session in run.sessions),
    )


def index(folder: str, entries: Sequence[Entry]) -> str:
    """The page for `folder`."""
    shown = sorted(entries, key=lambda entry: (RANK[entry.state], -entry.began))
    states: list[State] = [entry.state for entry in shown]
    said = counted(states, "run")
    style = packaged("colours.css") + packaged("page.css")
    return Template(packaged("index.html")).substitute(
        version=escape(__version__),
        title=escape(f"{said}: {folder}"),
        kicker=f"streamguard report of the runs in <b>{escape(folder)}</b>",
        headline=escape(said),
        tone=tone_of(states),
        style=style,
        style_hash=hash_of(style),
        runs=table(
            "runs",
            "Runs",
            "The runs, those in trouble first, then the latest. All times are UTC.",
            HEAD,
            "".join(map(_row, shown)),
        ),
    )


def _row(entry: Entry) -> str:
    cells = (
        ("state", SAID[entry.state]),
        ("text", entry.headline),
        ("when", instant(entry.began).removesuffix(" UTC") if entry.sessions else "never"),
        ("number", duration(entry.lasted)),
        ("number", f"{entry.sessions:,}"),
        ("number", f"{entry.messages:,}"),
    )
    link = escape(encoded(entry.link))
    return row(entry.state, f'<a href="{link}">{escape(entry.name)}</a>', cells)
