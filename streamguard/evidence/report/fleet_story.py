"""`FleetReport`: a fleet's log of timeouts drawn as a run is, as far as its lines go.

A line is one of timeouts.jsonl with the session's key, its attempt and its worker. From them come when each session fell
silent, what was decided, and on which worker; what became of it in the end is what the store says of it now, if it is
asked. Messages, tools and teardowns are in no line, so nothing is said of them. Instants are the workers' own.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from streamguard.evidence.report.drawing import drawing_of
from streamguard.evidence.report.folder import (
    WARNING,
    Json,
    Mark,
    RecordedSession,
    RecordedSpan,
    Run,
    Writer,
    clean,
)
from streamguard.evidence.report.next_step import NextStep
from streamguard.evidence.report.page import page_of
from streamguard.evidence.report.states import SAID, State, ended_by
from streamguard.evidence.report.story import Story, ranked, what_happened
from streamguard.evidence.report.tables import events, row, table
from streamguard.evidence.report.wording import clock, clock_of, escape, several

_NOBODY: Final = Writer(run_id="", flow="", step="", agent="", pid=None)
_SILENCES: Final = ("idle", "first", "liveness")
_MOST: Final = 8
_STATES: Final[Mapping[str, State]] = {
    "done": "recovered",
    "cancelled": "finished",
    "waiting": "open",
    "running": "open",
}
_ALIVE: Final = "may still be alive"
_HEAD: Final = (
    ("Session", ""),
    ("State", ""),
    ("Now", ""),
    ("Attempts", "number"),
    ("Timeouts", "number"),
    ("Delivered", "number"),
    ("Last timeout", ""),
    ("What happened", ""),
)


class FleetReport:
    """The report of a fleet's log.

    `lines`: what `streamguard fleet log --json` gives. `sessions`: how they are now, as `streamguard fleet list --all --json`
    gives it; those of which there is no line are left out.
    """

    def __init__(
        self,
        name: str,
        lines: Iterable[Mapping[str, Any]],
        sessions: Iterable[Mapping[str, Any]] = (),
    ) -> None:
        self.run = Run(clean(name), kind="the fleet in", has_messages=False)
        self._now = {clean(each["key"]): each for each in sessions}
        self._verdicts: dict[str, list[Mark]] = {}
        for line in lines:
            try:
                self._take(line)
            except (KeyError, ValueError, TypeError, OverflowError):
                self.run.unreadable += 1
        self.run.sessions = [self._session(key) for key in self._verdicts]
        self.run.sessions.sort(key=lambda session: (session.start, session.name))
        self.told = ranked([self._story(session) for session in self.run.sessions])

    def page(self) -> str:
        """As one HTML page."""
        return page_of(self.run, self.told, self._sessions() + events(self.run))

    def drawing(self) -> str:
        """As an SVG."""
        return drawing_of(self.run, self.told)

    # -- lines to values ---------------------------------------------------------------------

    def _take(self, line: Mapping[str, Any]) -> None:
        at = _instant(line)
        elapsed = max(0.0, float(line.get("elapsed_ms") or 0)) / 1000
        facts: Json = {
            "limit": clean(line["limit"]),
            "since_at": max(0.0, at - elapsed),
            "window": line.get("timeout_ms"),
            "attempt": int(line.get("attempt") or 1),
            "worker": clean(line.get("worker") or "?"),
            "reason": clean(line.get("reason") or ""),
        }
        text = f"{facts['reason']} (attempt {facts['attempt']} on {facts['worker']})"
        mark = Mark("TimedOut", at, WARNING, text, facts)
        self._verdicts.setdefault(clean(line["session"]), []).append(mark)

    def _session(self, key: str) -> RecordedSession:
        marks = sorted(self._verdicts[key], key=lambda mark: mark.at)
        session = RecordedSession(key, _NOBODY, marks=marks)
        session.spans = [
            RecordedSpan("idle", mark.facts["limit"], mark.facts["since_at"], mark.at, {"how": "verdict"})
            for mark in marks
            if mark.facts["limit"] in _SILENCES
        ]  # fmt: skip
        instants = list(session.instants())
        session.start, session.end = min(instants), max(instants)
        session.recorded_until = session.end
        return session

    def _story(self, session: RecordedSession) -> Story:
        *earlier, last = session.marks
        now = self._now.get(session.name, {})
        state = _STATES.get(str(now.get("status"))) or ended_by(last.facts["limit"])
        timeouts = several(len(session.marks), "timeout")
        return Story(
            session,
            state,
            what=what_happened(last.facts["reason"]),
            since=last.facts["since_at"],
            decided=last.at,
            tried=[_tried(mark) for mark in earlier[-_MOST:]]
            or [f"nothing before attempt {last.facts['attempt']}"],
            left=_left(now),
            next_steps=_next(session.name, now),
            summary=f"{SAID[state]}, {timeouts}",
        )

    # -- values to HTML ----------------------------------------------------------------------

    def _sessions(self) -> str:
        when = clock_of(self.run.start, self.run.end)
        return table(
            "sessions",
            "Sessions",
            "The sessions that had timeouts, those in trouble first. Times are the workers' own, in UTC.",
            _HEAD,
            "".join(self._row(story, when(story.session.marks[-1].at)) for story in self.told),
        )

    def _row(self, story: Story, last: str) -> str:
        now = self._now.get(story.session.name, {})
        attempts = [mark.facts["attempt"] for mark in story.session.marks]
        cells = (
            ("state", SAID[story.state]),
            ("text", clean(now.get("status", "not asked"))),
            ("number", str(now.get("attempt", max(attempts)))),
            ("number", str(len(attempts))),
            ("number", f"{now['delivered']:,}" if "delivered" in now else "not asked"),
            ("when", last),
            ("text", story.what),
        )
        return row(story.state, escape(story.session.name), cells)


def _tried(mark: Mark) -> str:
    facts = mark.facts
    return f"{clock(mark.at)} attempt {facts['attempt']} on {facts['worker']}: {what_happened(facts['reason'])}"


def _left(now: Mapping[str, Any]) -> list[str]:
    why, delivered = clean(now.get("why", "")), several(now.get("delivered", 0), "message")
    match now.get("status"):
        case "done":
            return [f"it is done, with {delivered} in {several(now['attempt'], 'attempt')}"]
        case "cancelled":
            return [f"it was cancelled: {why}" if why else "it was cancelled"]
        case "parked" if _ALIVE in why:
            return [f"the backend's end is NOT confirmed: it is parked, {why}"]
        case "parked":
            return [f"it is parked, for a person to look: {why}"]
        case "waiting":
            return [f"it waits for a worker, after {delivered}"]
        case "running":
            return [f"it runs on {clean(now['owner'])}, after {delivered}"]
        case _:
            return ["the store was not asked what became of it"]


def _next(key: str, now: Mapping[str, Any]) -> list[NextStep]:
    if now.get("status") != "parked":
        return []
    says = "Look at it, and see that its backend is gone. Then let another worker take it:"
    return [NextStep(says, f"streamguard fleet release {shlex.quote(key)}")]


def _instant(line: Mapping[str, Any]) -> float:
    """When its verdict fell, by its worker's clock."""
    at = datetime.fromisoformat(str(line["timestamp"]))
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
