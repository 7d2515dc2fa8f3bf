"""What became of each session, and what the person on call has to know first.

What hung, since when, what was in flight, what was tried, what was left: each answer is taken from
one place, the last verdict that was enforced and what followed it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from streamguard._base import signal_words
from streamguard.evidence.report.folder import (
    WARNING,
    Json,
    Mark,
    Receipt,
    RecordedSession,
    Run,
    RunFile,
    as_dict,
    as_list,
)
from streamguard.evidence.report.next_step import (
    NextStep,
    after_a_timeout,
    where_the_record_ends,
)
from streamguard.evidence.report.states import (
    IN_TROUBLE,
    RANK,
    State,
    counted,
    ended_by,
    said_of_one,
)
from streamguard.evidence.report.tried import what_was_tried
from streamguard.evidence.report.wording import (
    clock,
    duration,
    instant,
    is_brief,
    listed,
    several,
)

# By a verdict's reason, and its stream; None for a time scope that was cut without one.
Receipts: TypeAlias = dict[tuple[str, str | None], Receipt]

# Ends that are well for the stream; the last two only in name.
_WELL: Final = frozenset({"ended", "completed", "cancelled", "left", "empty", "abandoned"})
_HOLLOW: Final = {
    "empty": "the turn ended with success and did nothing",
    "abandoned": "work was left open in the background",
}
_MOST: Final = 8
_ALARMS: Final = ("STILL ALIVE", "the backend's end is NOT", "the teardown's end is not")
# Of a verdict's reason: whose it is, and what had been seen. Both stand elsewhere in a report.
_OWN_NAME: Final = re.compile(r"""^(?:stream (?:'[^']*' |"[^"]*" )?|[a-z_]+-\d+ )""")
_SEEN: Final = re.compile(r"; (?:\d+ messages? seen|no message was ).*$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Story:
    """One session's answers."""

    session: RecordedSession
    state: State
    what: str
    since: float | None = None
    decided: float | None = None
    in_flight: str = ""
    last_message: str = ""
    vitals: str = ""
    tried: list[str] = field(default_factory=list[str])
    left: list[str] = field(default_factory=list[str])
    records: tuple[RunFile, ...] = ()
    next_steps: list[NextStep] = field(default_factory=list[NextStep])
    summary: str = ""  # where it is not to be counted

    @property
    def is_trouble(self) -> bool:
        """Whether somebody should read it first."""
        return self.state in IN_TROUBLE

    @property
    def is_brief(self) -> bool:
        """Whether its milliseconds matter."""
        if self.since is None or self.decided is None:
            return is_brief(lasted_of(self.session))
        return is_brief(self.decided - self.since)

    @property
    def is_alarming(self) -> bool:
        """Whether something may be alive that should not be."""
        return any(is_alarm(line) for line in self.left)


def stories(run: Run) -> list[Story]:
    """Each session's story: the ones in trouble first, of these who left something alive."""
    known = _Known(run)
    return ranked([_story(session, known) for session in run.sessions])


def shown_in_full(told: list[Story]) -> list[Story]:
    """Those whose card is read first: the ones in trouble, or else who has got over a hang."""
    return [story for story in told if story.is_trouble] or [
        story for story in told if story.state == "recovered"
    ]


def ranked(told: list[Story]) -> list[Story]:
    """The ones in trouble first, of these who left something alive."""
    return sorted(told, key=lambda story: (RANK[story.state], not story.is_alarming))


def answers(story: Story) -> dict[str, list[str]]:
    """What the person on call asks, and what is known of it."""
    exactly = story.is_brief
    since = [] if story.since is None else [instant(story.since, exactly=exactly)]
    if story.since is not None and story.decided is not None:
        spent, until = duration(story.decided - story.since), clock(story.decided, exactly=exactly)
        since = [f"{since[0]}, for {spent}: the limit was reached at {until}"]
    asked = {
        "Since": since,
        "In flight": [story.in_flight] if story.in_flight else [],
        "Last message": [story.last_message] if story.last_message else [],
        "Process": [story.vitals] if story.vitals else [],
        # Without a verdict nothing was: then it is what was said meanwhile.
        "Warnings" if story.decided is None else "Tried": story.tried,
        "Left": story.left,
    }
    return {term: lines for term, lines in asked.items() if lines}


def is_alarm(line: str) -> bool:
    """Whether a line tells of a backend that may be alive."""
    return line.startswith(_ALARMS)  # and not if only a file's name says so


def headline(told: list[Story]) -> str:
    """The run in one line."""
    if not told:
        return "Nothing was recorded"
    if len(told) == 1:
        return f"{told[0].session.name} {said_of_one(told[0].state)}"
    return counted([story.state for story in told], "session")


def _story(session: RecordedSession, known: _Known) -> Story:
    verdict = _last_verdict(session)
    state = _state(session, verdict)
    if verdict is None:
        return _without_verdict(session, state)
    facts = verdict.facts
    since = facts.get("since_at")
    of_stream, of_scope = (verdict.text, session.stream), (verdict.text, None)
    receipt = known.receipts.get(of_stream) or known.receipts.get(of_scope) or Receipt({})
    alive = _left_alive(session, verdict)
    ended = as_dict(receipt.said.get("context_for_resume")).get("backend_ended")
    may_live = any(map(is_alarm, alive)) or (not alive and ended is False)
    told = Story(
        session,
        state,
        what=what_happened(verdict.text),
        since=since if isinstance(since, float) else None,
        decided=verdict.at,
        in_flight=listed([str(name) for name in as_list(facts.get("in_flight"))]) or "nothing",
        last_message=_last_message(facts),
        vitals=str(facts.get("vitals") or ""),
        tried=what_was_tried(session, verdict),
        left=[
            *alive,
            *_left_to_people(session, verdict),
            *_left_behind(receipt.said),
            *_record_ends(session),
        ],
        records=receipt.records,
    )
    if told.is_trouble:
        steps = (
            where_the_record_ends(session)
            if state == "open"
            else after_a_timeout(
                session, receipt.said, may_live=may_live, planned=known.planned(receipt)
            )
        )
        told.next_steps.extend(steps)
    return told


def what_happened(reason: str) -> str:
    """A verdict's reason, where the session's name and what was seen of it stand beside it."""
    return without_its_name(_SEEN.sub("", reason))


def without_its_name(text: str) -> str:
    """A verdict's reason, where the session's name stands beside it."""
    rest = _OWN_NAME.sub("", text)
    return f"{rest[:1].upper()}{rest[1:]}"


def _last_verdict(session: RecordedSession) -> Mark | None:
    """The last enforced one; a stream that was only slow to leave had been successful (T14)."""
    verdicts = [
        mark
        for mark in (*session.marked("TimedOut"), *session.marked("ScopeTimedOut"))
        if mark.facts.get("enforced", True) and mark.facts.get("limit") != "exit_grace"
    ]
    return max(verdicts, key=lambda mark: mark.at, default=None)


def _state(session: RecordedSession, verdict: Mark | None) -> State:
    ends = session.of("attempt") or session.of("stream")
    last = ends[-1] if ends else None
    is_well = last is None or last.facts.get("how") in _WELL
    is_open = last is not None and last.end is None
    finished: State = "hollow" if _hollow(session) else "finished"
    if verdict is not None:
        is_later = last is not None and (last.end is None or last.end > verdict.at)
        came_after = any(
            stretch.end > verdict.at for stretch in session.stretches if stretch.of == "message"
        )
        if is_later and came_after and (is_well or is_open):
            return "open" if is_open else "hollow" if finished == "hollow" else "recovered"
        return ended_by(verdict.facts.get("limit"))
    if is_open:
        return "open"
    return finished if is_well else "failed"


def _hollow(session: RecordedSession) -> str:
    """What its last stream did not do, though it ended well; a session's attempt does not say that."""
    streams = session.of("stream")
    return _HOLLOW.get(str(streams[-1].facts.get("how")), "") if streams else ""


def lasted_of(session: RecordedSession) -> float:
    """How long it is known to have lasted."""
    return _last_instant(session) - session.start


def _last_instant(session: RecordedSession) -> float:
    lives = any(span.end is None for span in (*session.of("stream"), *session.of("attempt")))
    return session.recorded_until if lives else session.end


def _without_verdict(session: RecordedSession, state: State) -> Story:
    seen = several(session.counted("message"), "message")
    lasted = duration(lasted_of(session))
    silence = [span for span in session.of("idle") if span.end is None]
    if state == "open":
        flight = [span.name for span in session.of("work") if span.end is None]
        return Story(
            session,
            state,
            what=f"{seen} in {lasted}; then the record ends",
            since=silence[-1].start if silence else None,
            in_flight=listed(flight) or "nothing",
            left=_record_ends(session),
            next_steps=where_the_record_ends(session),
        )
    last = session.of("attempt") or session.of("stream")
    exactly = is_brief(lasted_of(session))
    troubles = [
        f"{clock(mark.at, exactly=exactly)} {mark.text}"
        for mark in session.marks
        if mark.level >= WARNING
    ]
    how = last[-1].facts.get("how") if last else ""
    said = {"failed": f", {how}", "hollow": f"; {_hollow(session)}"}.get(state, "")
    return Story(session, state, what=f"{seen} in {lasted}{said}", tried=troubles[-_MOST:])


def _last_message(facts: Json) -> str:
    kind, age = facts.get("last_signal"), facts.get("last_message_age")
    if not facts.get("messages"):
        return "no message was ever seen"
    if not kind or not isinstance(age, int | float):
        return ""
    return f"{signal_words.in_words(str(kind))}, {duration(age)} before the limit was reached"


def _left_alive(session: RecordedSession, verdict: Mark) -> list[str]:
    torn = [mark for mark in session.marked("TornDown") if mark.at >= verdict.at]
    if verdict.of == "ScopeTimedOut":
        return []
    if not torn:
        return ["the teardown's end is not recorded: the backend may be alive"]
    if survivors := as_list(torn[-1].facts.get("survivors")):
        pids = listed([str(pid) for pid in survivors])
        return [f"STILL ALIVE: {several(len(survivors), 'process', 'processes')} ({pids})"]
    if not torn[-1].facts.get("confirmed"):
        return ["the backend's end is NOT confirmed: it may be alive"]
    return ["the backend is gone"]


def _left_to_people(session: RecordedSession, verdict: Mark) -> list[str]:
    gave_up = [mark for mark in session.marked("GaveUp") if mark.at >= verdict.at]
    if not any(mark.facts.get("escalate") for mark in gave_up):
        return []
    return ["it will not be tried again, and a person should look"]


def _left_behind(receipt: Json) -> list[str]:
    known = as_dict(receipt.get("context_for_resume"))
    said: list[str] = []
    for artifact in map(as_dict, as_list(receipt.get("partial_artifacts"))):
        whole = "complete" if artifact.get("complete") else "partial"
        written = artifact.get("bytes_written")
        size = f", {several(written, 'byte')}" if isinstance(written, int) else ""
        said.append(f"artifact {artifact.get('path')} ({whole}{size})")
    said = said[:_MOST]
    if changes := as_list(known.get("uncommitted_changes")):
        said.append(f"uncommitted changes: {listed([str(change) for change in changes])}")
    if checkpoint := known.get("last_successful_checkpoint"):
        said.append(f"last checkpoint: {checkpoint}")
    return said


def _record_ends(session: RecordedSession) -> list[str]:
    if not any(span.end is None for span in (*session.of("stream"), *session.of("attempt"))):
        return []
    at = clock(session.recorded_until, exactly=is_brief(lasted_of(session)))
    return [
        f"the record ends at {at}, before this session: if it does not go on, its program died"
    ]


class _Known:
    """The receipts of a run, to be found by what their verdicts say, and the latest of each flow.

    Of a verdict there is none if a later one took its place.
    """

    def __init__(self, run: Run) -> None:
        self.receipts: Receipts = {}
        self._folder = run.folder
        self._latest: dict[str, tuple[str, Receipt]] = {}
        for receipt in run.receipts:
            event = as_dict(receipt.said.get("timeout_event"))
            stream = event.get("stream")
            key = str(event.get("reason")), None if stream is None else str(stream)
            self.receipts.setdefault(key, receipt)
            flow, when = str(receipt.said.get("flow_key")), str(event.get("timestamp"))
            is_open = receipt.said.get("recovered") is not True
            if is_open and (flow not in self._latest or when > self._latest[flow][0]):
                self._latest[flow] = when, receipt

    def planned(self, receipt: Receipt) -> str | None:
        """The folder in which `plan_resume` finds this one, if it would be this one of its flow."""
        _, latest = self._latest.get(str(receipt.said.get("flow_key")), ("", None))
        return str(self._folder) if latest is receipt and self._folder is not None else None
