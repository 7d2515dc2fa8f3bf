"""The picture of a report that README shows: `python -m tests.report.showcase` draws it anew.

A night with three agents, scripted: one works, one falls silent and goes on in a second attempt, and one hangs for good.
In light colours whatever the reader's are, since it stands in a page that is not ours.
"""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path

from streamguard import events
from streamguard.evidence.report import drawing, read_run
from tests.report.support import Stream, Tape

FILE = Path(__file__).parents[2] / "docs" / "images" / "report.svg"
TOKEN = "0e3f6a0e-5c1d-4b57-9d6d-2f1c7a9e4b10"


def works(tape: Tape) -> None:
    """Well, all the time."""
    stream = tape.stream("upgrade-deps")
    stream.begins(10)
    talks(stream, 10, 60)
    stream.works_on("Bash", 60, 230)
    talks(stream, 230, 290)
    stream.works_on("WebSearch", 290, 330)
    stream.holds("permission", 330, 420)
    talks(stream, 420, 540)
    stream.works_on("Bash", 545, 760)
    talks(stream, 762, 800)
    stream.tell(events.TurnOver, 801, outcome="success")
    stream.ends(802)


def goes_on(tape: Tape) -> None:
    """After a hang, in a second attempt."""
    stream = tape.stream("write-docs")
    attempt(stream, 20, 1)
    talks(stream, 20, 110)
    stream.works_on("Edit", 110, 140)
    talks(stream, 140, 190)
    falls_silent(stream, 190, "Progress")
    again(stream, 373, 1, "at once", 0.0)
    attempt(stream, 373, 2)
    talks(stream, 376, 520)
    stream.works_on("Bash", 520, 585)
    talks(stream, 585, 660)
    stream.tell(events.TurnOver, 660, outcome="success")
    stream.ends(661)
    stream.tell(
        events.AttemptEnded, 661, attempt=2, outcome="completed", error=None, confirmed=True
    )


def hangs(tape: Tape) -> None:
    """Three times, each with a tool's result as its last message."""
    stream = tape.stream("fix-login")
    attempt(stream, 0, 1)
    talks(stream, 0, 80)
    stream.works_on("Bash", 80, 140)
    stream.says(140, kind="WorkFinished")
    falls_silent(stream, 140)
    again(stream, 323, 1, "at once", 0.0)
    attempt(stream, 323, 2)
    talks(stream, 325, 350)
    stream.works_on("Bash", 350, 395)
    stream.says(395, kind="WorkFinished")
    falls_silent(stream, 395)
    again(stream, 578, 2, "in 30 s", 30.0)
    attempt(stream, 608, 3)
    talks(stream, 610, 640)
    stream.works_on("Bash", 640, 702)
    stream.says(702, kind="WorkFinished")
    reason = falls_silent(stream, 702)
    why = "IdleTimeoutError (class idle): its 2 retries made no difference"
    facts = {"reason": "retries", "why": why, "error": TimeoutError(), "escalate": True}
    stream.tell(events.AttemptEnded, 885, attempt=3, outcome="failed", error=None, confirmed=True)
    stream.tell(events.GaveUp, 885, **facts)
    folder = tape.folder / "nightly" / "receipts"
    folder.mkdir(parents=True)
    receipt = {
        "status": "timeout",
        "flow_key": "nightly",
        "step_id": "fix-login",
        "timeout_event": {
            "stream": "fix-login",
            "reason": reason,
            "timestamp": "2025-11-18T03:27:26Z",
        },
        "context_for_resume": {
            "uncommitted_changes": ["src/login.py", "tests/test_login.py"],
            "session_token": TOKEN,
            "backend": "claude",
            "work_dir": "/srv/agents/shop",
            "backend_ended": True,
        },
    }
    (folder / "fix-login-timeout.json").write_text(json.dumps(receipt))


def talks(stream: Stream, begin: float, end: float) -> None:
    """In bursts, as models do; the same each time."""
    chance = random.Random(begin)
    at = begin
    while at < end:
        rate = chance.choice((2, 5, 20, 60))
        for _ in range(chance.randrange(5, 40)):
            at += chance.random() * 2 / rate
            if at < end:
                stream.says(round(at, 3))


def attempt(stream: Stream, at: float, number: int) -> None:
    stream.tell(events.AttemptStarted, at, attempt=number, resumes=number > 1)
    stream.begins(at)


def falls_silent(stream: Stream, since: float, last: str = "WorkFinished") -> str:
    """For 180 s; what the verdict says."""
    stream.is_half_silent(since + 90)
    verdict = stream.is_judged(since + 180, last_signal=last)
    how = {"signals": ("TERM", "KILL"), "tree": "killed", "elapsed": 3.0}
    stream.is_torn_down(since + 183, verdict, **how)
    stream.ends(since + 183, TimeoutError())
    return verdict.reason


def again(stream: Stream, at: float, retry: int, when: str, delay: float) -> None:
    ended = {"outcome": "failed", "error": None, "confirmed": True}
    stream.tell(events.AttemptEnded, at, attempt=retry, **ended)
    why = f"IdleTimeoutError (class idle): retry {retry} of 2 {when}, resuming session {TOKEN[:8]}"
    facts = {"error_class": "idle", "retry": retry, "delay": delay, "why": why}
    stream.tell(events.RetryScheduled, at, **facts)


def showcase() -> str:
    """The picture."""
    with tempfile.TemporaryDirectory() as folder:
        tape = Tape(Path(folder) / "night-shift")
        tape.lines[0] |= {"flow": "nightly", "step": "", "agent": None}
        for play in (hangs, goes_on, works):
            play(tape)
        tape.run()
        return drawing(read_run(tape.folder), is_light=True)


if __name__ == "__main__":
    FILE.write_text(showcase(), "utf-8")
