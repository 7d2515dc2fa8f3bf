"""What was tried after a timeout, in words: interrupts, further attempts, and how the backend was ended."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

from streamguard.evidence.report.folder import as_list
from streamguard.evidence.report.states import ended_by, said_of_one
from streamguard.evidence.report.wording import duration, joined, listed, several

if TYPE_CHECKING:
    from streamguard.evidence.report.folder import Mark, RecordedSession, RecordedSpan

_SHOWN: Final = ("InterruptFailed", "DisconnectFailed", "DisconnectAbandoned")
_MOST: Final = 5
_WELL: Final = frozenset({"completed", "ended"})


def what_was_tried(session: RecordedSession, verdict: Mark) -> list[str]:
    """A line for each thing; what nobody has asked for is not there."""
    first = min(
        (mark.at for mark in session.marked("TimedOut") if mark.facts.get("enforced", True)),
        default=verdict.at,
    )
    since = [mark for mark in session.marks if mark.at >= first - 10]
    lines: list[str] = []
    if asked := [mark for mark in since if mark.of == "Interrupting"]:
        times = "" if len(asked) == 1 else f" ({len(asked)} times)"
        lines.append(f"asked the backend to end its turn by itself{times}")
    lines += _attempts(session, first)
    lines += dict.fromkeys(mark.text for mark in since if mark.of in _SHOWN)
    torn = [mark for mark in since if mark.of == "TornDown" and mark.at >= verdict.at]
    lines += [_ending(mark) for mark in torn[-1:]]
    lines += [mark.text for mark in since if mark.of == "GaveUp"][-1:]
    return lines or ["nothing that was recorded"]


def _ending(torn: Mark) -> str:
    """How the backend was ended."""
    facts = torn.facts
    lasted = facts.get("elapsed")
    if not isinstance(lasted, int | float) or not facts.get("confirmed"):
        return torn.text  # an older record's, or one of which every word matters
    signals = ", ".join(map(str, as_list(facts.get("signals"))))
    if facts.get("tree"):
        how = (
            f"ended the backend's processes with {signals}" if signals else "the process had ended"
        )
    elif facts.get("disconnect") == "returned":
        how = "disconnected from the backend"
    else:
        how = "closed the stream"
    return f"{how}, in {duration(lasted)}"


def _attempts(session: RecordedSession, first: float) -> list[str]:
    """`tried 2 more times, at once and after 5 s: both hung`."""
    attempts = session.of("attempt")
    further = [after for before, after in pairwise(attempts) if (before.end or 0) >= first]
    if not further:
        return []
    pauses = {pause.end: pause for pause in session.of("backoff")}
    delays = [_delay(before, after, pauses) for before, after in pairwise(attempts)]
    when = joined(_shortened(delays[-len(further) :]))
    ends = [_end_of(session, attempt) for attempt in further]
    if len(further) == 1:
        return [f"tried once more, {when}: it {ends[0]}"]
    return [f"tried {several(len(further), 'more time')}, {when}: {_together(ends)}"]


def _delay(
    before: RecordedSpan, after: RecordedSpan, pauses: dict[float | None, RecordedSpan]
) -> str:
    pause = pauses.get(after.start)
    meant = None if pause is None else pause.facts.get("delay")
    seconds = (
        meant if isinstance(meant, int | float) else after.start - (before.end or before.start)
    )
    return "at once" if seconds < 0.05 else f"after {duration(seconds)}"


def _shortened(delays: list[str]) -> list[str]:
    if len(set(delays)) == 1 and len(delays) > 1:
        return [f"each time {delays[0]}"]
    return delays if len(delays) <= _MOST else [*delays[: _MOST - 1], "so on"]


def _end_of(session: RecordedSession, attempt: RecordedSpan) -> str:
    until = session.recorded_until if attempt.end is None else attempt.end
    cut = [
        mark
        for mark in session.marked("TimedOut")
        if attempt.start <= mark.at <= until and mark.facts.get("enforced", True)
    ]
    if cut:
        return said_of_one(ended_by(cut[-1].facts.get("limit")))
    if attempt.end is None:
        return "was going on when the record ends"
    return "ended well" if attempt.facts.get("how") in _WELL else "failed"


def _together(ends: list[str]) -> str:
    if len(set(ends)) == 1:
        return f"{'both' if len(ends) == 2 else f'all {len(ends)}'} {ends[0]}"
    return listed([f"the {_ordinal(n)} {end}" for n, end in enumerate(ends, 1)], _MOST)


def _ordinal(n: int) -> str:
    ending = "th" if 10 <= n % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{ending}"
