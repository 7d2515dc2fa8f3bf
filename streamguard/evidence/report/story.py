"""What became of each session, and what the person on call has to know first.

What hung, since when, what was in flight, what was tried, what was left: each answer is taken from
one place, the last verdict that was enforced and what followed it.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from streamguard.evidence.report.folder import (
    WARNING,
    Json,
    Mark,
    RecordedSession,
    Run,
    as_dict,
    as_list,
)
from streamguard.evidence.report.wording import clock, duration, instant, listed, several

# By a verdict's reason, and its stream; None for a time scope that was cut without one.
Receipts: TypeAlias = dict[tuple[str, str | None], Json]
State: TypeAlias = Literal["hung", "failed", "stopped", "open", "hollow", "recovered", "finished"]

# How the states are said, the worst first.
SAID: Final[dict[State, str]] = {
    "hung": "hung",
    "failed": "failed",
    "stopped": "stopped",
    "open": "end not recorded",
    "hollow": "finished in name only",
    "recovered": "hung, recovered",
    "finished": "finished",
}
IN_TROUBLE: Final = frozenset(SAID) - {"recovered", "finished"}
_RANK: Final = {state: rank for rank, state in enumerate(SAID)}
# What says what was tried after a verdict, or for it.
_TRIED: Final = (
    "Interrupting",
    "InterruptFailed",
    "DisconnectFailed",
    "DisconnectAbandoned",
    "TornDown",
    "RetryScheduled",
    "RetryRecovered",
    "Reconnected",
    "GaveUp",
)
# Ends that are well for the stream; the last two only in name.
_WELL: Final = frozenset({"ended", "completed", "cancelled", "left", "empty", "abandoned"})
_HOLLOW: Final = {
    "empty": "the turn ended with success and did nothing",
    "abandoned": "work was left open in the background",
}
# What a stream came to whose limit was none on silence or time: it did not hang.
_STOPPED: Final[dict[str, State]] = {
    **dict.fromkeys(("repeats", "tokens", "cost", "calls"), "stopped"),
    **dict.fromkeys(_HOLLOW, "hollow"),
}
_MOST: Final = 8
_ALARMS: Final = ("STILL ALIVE", "the backend's end is NOT", "the teardown's end is not")
_OWN_NAME: Final = re.compile(r"""^stream (?:'[^']*' |"[^"]*" )?""")


@dataclass(frozen=True, slots=True)
class Story:
    """One session's answers."""

    session: RecordedSession
    state: State
    what: str
    since: float | None = None
    decided: float | None = None
    in_flight: str = ""
    vitals: str = ""
    tried: list[str] = field(default_factory=list[str])
    left: list[str] = field(default_factory=list[str])
    summary: str = ""  # where it is not to be counted

    @property
    def is_trouble(self) -> bool:
        """Whether somebody should read it first."""
        return self.state in IN_TROUBLE

    @property
    def is_alarming(self) -> bool:
        """Whether something may be alive that should not be."""
        return any(is_alarm(line) for line in self.left)


def stories(run: Run) -> list[Story]:
    """Each session's story: the ones in trouble first, of these who left something alive."""
    receipts = _by_verdict(run)
    return ranked([_story(session, receipts) for session in run.sessions])


def ranked(told: list[Story]) -> list[Story]:
    """The ones in trouble first, of these who left something alive."""
    return sorted(told, key=lambda story: (_RANK[story.state], not story.is_alarming))


def answers(story: Story) -> dict[str, list[str]]:
    """What the person on call asks, and what is known of it."""
    since = [] if story.since is None else [instant(story.since)]
    if story.since is not None and story.decided is not None:
        spent = duration(story.decided - story.since)
        since = [f"{since[0]}, {spent} before the verdict at {clock(story.decided)}"]
    flight = [story.in_flight] if story.in_flight else []
    vitals = [story.vitals] if story.vitals else []
    asked = {
        "Since": since,
        "In flight": flight,
        "Process": vitals,
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
        return _headline_of_one(told[0])
    counts = Counter[str](story.state for story in told)
    said = [
        f"{counts[state]} {words}"
        for state, words in (
            ("hung", "hung"),
            ("failed", "failed"),
            ("stopped", "stopped"),
            ("hollow", "finished in name only"),
            (
                "open",
                "was going on when the record ends"
                if counts["open"] == 1
                else "were going on when the record ends",
            ),
        )
        if counts[state]
    ]
    if said:
        return f"Of {len(told)} sessions, {_joined(said)}"
    after = f", {counts['recovered']} of them after a hang" if counts["recovered"] else ""
    return f"All {len(told)} sessions finished{after}"


def _headline_of_one(story: Story) -> str:
    name = story.session.name
    match story.state:
        case "hung":
            return f"{name} hung"
        case "failed":
            return f"{name} failed"
        case "stopped":
            return f"{name} was stopped"
        case "hollow":
            return f"{name} finished in name only"
        case "open":
            return f"{name} was going on when the record ends"
        case "recovered":
            return f"{name} hung and recovered"
        case "finished":
            return f"{name} finished"


def _joined(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _story(session: RecordedSession, receipts: Receipts) -> Story:
    verdict = _last_verdict(session)
    state = _state(session, verdict)
    if verdict is None:
        return _without_verdict(session, state)
    facts = verdict.facts
    since = facts.get("since_at")
    of_stream, of_scope = (verdict.text, session.stream), (verdict.text, None)
    receipt = receipts.get(of_stream) or receipts.get(of_scope) or {}
    return Story(
        session,
        state,
        what=without_its_name(verdict.text),
        since=since if isinstance(since, float) else None,
        decided=verdict.at,
        in_flight=_in_flight(facts),
        vitals=str(facts.get("vitals") or ""),
        tried=_tried(session, verdict),
        left=[
            *_left_alive(session, verdict),
            *_left_to_people(session, verdict),
            *_left_behind(receipt),
            *_record_ends(session),
        ],
    )


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


def ended_by(limit: object) -> State:
    """What a session came to that this limit has ended."""
    return _STOPPED.get(str(limit), "hung")


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
        )
    last = session.of("attempt") or session.of("stream")
    troubles = [f"{clock(mark.at)} {mark.text}" for mark in session.marks if mark.level >= WARNING]
    how = last[-1].facts.get("how") if last else ""
    said = {"failed": f", {how}", "hollow": f"; {_hollow(session)}"}.get(state, "")
    return Story(session, state, what=f"{seen} in {lasted}{said}", tried=troubles[-_MOST:])


def _in_flight(facts: Json) -> str:
    names = [str(name) for name in as_list(facts.get("in_flight"))]
    last, age = facts.get("last_signal"), facts.get("last_message_age")
    said = listed(names) or "nothing"
    if not facts.get("messages"):
        return f"{said}; no message was ever seen"
    if last and isinstance(age, int | float):
        said += f"; the last message ({last}) had come {duration(age)} before the verdict"
    return said


def _tried(session: RecordedSession, verdict: Mark) -> list[str]:
    first = min(
        (mark.at for mark in session.marked("TimedOut") if mark.facts.get("enforced", True)),
        default=verdict.at,
    )
    tried = [
        f"{clock(mark.at)} {mark.text}"
        for mark in session.marks
        if mark.of in _TRIED and mark.at >= first - 10
    ]
    if len(tried) > _MOST:
        half = _MOST // 2
        tried = [*tried[:half], f"… {len(tried) - _MOST} more, see below", *tried[-half:]]
    return tried or ["nothing that was recorded"]


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
    if transcript := known.get("transcript_path"):
        said.append(f"transcript: {transcript}")
    if "path" in receipt:
        said.append(f"receipt: {receipt['path']}")
    return said


def _record_ends(session: RecordedSession) -> list[str]:
    if not any(span.end is None for span in (*session.of("stream"), *session.of("attempt"))):
        return []
    at = clock(session.recorded_until)
    return [
        f"the record ends at {at}, before this session: if it does not go on, its program died"
    ]


def _by_verdict(run: Run) -> Receipts:
    """The receipts by what their verdicts say: of a verdict there is none if a later one took its place."""
    found: Receipts = {}
    for receipt in run.receipts:
        event = as_dict(receipt.get("timeout_event"))
        stream = event.get("stream")
        key = str(event.get("reason")), None if stream is None else str(stream)
        found.setdefault(key, receipt)
    return found
