"""Runs as a recorder leaves them, scripted: what happens at which second, without waiting for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from streamguard import Activity, Teardown, events
from streamguard.errors import Verdict
from streamguard.evidence.report import read_run
from streamguard.evidence.report.folder import Run
from streamguard.evidence.stream_names import stream_of
from streamguard.evidence.timeline import Timeline

WALL = 1763435564.0  # 2025-11-18 03:12:44 UTC
AT = 5000.0  # what the loop's clock says then


class Tape:
    """What one recorder writes. Seconds count from its beginning."""

    def __init__(self, folder: Path, *, writer: str = "w", wall: float = WALL) -> None:
        self.folder = folder
        self.timeline = Timeline()
        self.writer = writer
        header = {
            "version": 1,
            "run_id": "17",
            "flow": "build",
            "step": "implement",
            "agent": "coder",
        }
        self.lines = [{"kind": "writer", **header, "pid": 4211, "at": AT, "wall": wall}]

    def stream(self, name: str) -> Stream:
        return Stream(self, name)

    def take(self, *, last: bool = False) -> None:
        self.lines += self.timeline.take(last=last)

    def write(self, *, torn: str = "") -> None:
        """All that was taken so far, as a crash would leave it, with the beginning of a line."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "timeline.jsonl").open("a") as file:
            for line in self.lines:
                file.write(json.dumps({"writer": self.writer, **line}) + "\n")
            file.write(torn)

    def run(self) -> Run:
        """The run as it is read, ended in order."""
        self.take(last=True)
        self.write()
        return read_run(self.folder)


class Stream:
    """One stream on a tape."""

    def __init__(self, tape: Tape, name: str) -> None:
        self.tape = tape
        self.activity = Activity(name)
        self.messages = 0
        self.works = 0

    def tell(self, kind: type[events.Event], at: float, **facts: Any) -> None:
        self.tape.timeline.event(kind(activity=self.activity, at=AT + at, **facts))

    def says(self, *at: float, kind: str = "Progress", n: int = 1) -> None:
        for second in at:
            self.messages += n
            self.tape.timeline.message(stream_of(self.activity), kind, AT + second, n)

    def chatters(self, begin: float, end: float, every: float = 0.2) -> None:
        self.says(*(begin + i * every for i in range(int((end - begin) / every))))

    def begins(self, at: float) -> None:
        self.tell(events.StreamStarted, at)

    def ends(self, at: float, error: Exception | None = None) -> None:
        self.tell(events.StreamEnded, at, error=error)

    def works_on(self, name: str, begin: float, end: float | None, how: str = "finished") -> None:
        self.works += 1
        work = {"id": f"t{self.works}", "name": name}
        self.tell(events.WorkBegan, begin, **work, background=False)
        if end is not None:
            self.tell(events.WorkOver, end, **work, elapsed=end - begin, outcome=how)

    def holds(self, reason: str, begin: float, end: float | None, lasts: float = 3600) -> None:
        hold = {"id": reason, "reason": reason}
        self.tell(events.HoldBegan, begin, **hold, until=AT + begin + lasts)
        if end is not None:
            self.tell(events.HoldOver, end, **hold)

    def is_half_silent(self, at: float, limit: str = "idle", window: float = 180.0) -> None:
        self.tell(events.HalfTime, at, limit=limit, window=window)

    def is_judged(
        self, at: float, limit: str = "idle", elapsed: float = 180.0, **known: Any
    ) -> Verdict:
        enforced = known.pop("enforced", True)
        seen = {
            "messages": self.messages,
            "last_signal": "Progress" if self.messages else None,
            "last_message_age": elapsed if self.messages else None,
        }
        verdict = Verdict(
            limit=limit,
            window=elapsed,
            elapsed=elapsed,
            at=AT + at,
            name=self.activity.name,
            **seen | known,
        )
        self.tell(events.TimedOut, at, verdict=verdict, enforced=enforced)
        return verdict

    def is_torn_down(self, at: float, verdict: Verdict, **how: Any) -> None:
        known = {"confirmed": True, "disconnect": "returned", "elapsed": AT + at - verdict.at}
        self.tell(events.TornDown, at, verdict=verdict, teardown=Teardown(**known | how))

    def hangs(self, since: float, **how: Any) -> None:
        """Silent for 180 s, then cut."""
        self.is_half_silent(since + 90)
        verdict = self.is_judged(since + 180)
        self.is_torn_down(since + 183, verdict, **how)
        self.ends(since + 183, TimeoutError())


def finished(tape: Tape, name: str = "issue-7", begin: float = 0.0) -> Stream:
    """A stream that works for a while, and ends well."""
    stream = tape.stream(name)
    stream.begins(begin)
    stream.chatters(begin, begin + 30)
    stream.works_on("Bash", begin + 30, begin + 50)
    stream.chatters(begin + 50, begin + 60)
    stream.tell(events.TurnOver, begin + 60, outcome="success")
    stream.ends(begin + 61)
    return stream


def resumed_and_lost(tape: Tape, name: str = "issue-7") -> Stream:
    """A session with everything in it: held, hung, resumed, and lost with its backend alive."""
    stream = tape.stream(name)
    stream.tell(events.AttemptStarted, 0, attempt=1, resumes=False)
    stream.begins(0)
    stream.chatters(0, 70)
    stream.works_on("Bash", 70, 131)
    stream.holds("permission", 170, 205)
    stream.chatters(205, 300)
    stream.works_on("Task", 230, 290)
    stream.works_on("WebSearch", 240, 262)
    stream.says(318)
    stream.is_half_silent(408)
    verdict = stream.is_judged(498)
    stream.is_torn_down(505, verdict, signals=("TERM", "KILL"), tree="killed")
    stream.ends(505, TimeoutError())
    stream.tell(events.AttemptEnded, 505, attempt=1, outcome="failed", error=None, confirmed=True)
    why = "idle: retry 1 of 2, in 5 s, resuming the session"
    stream.tell(events.RetryScheduled, 505, error_class="idle", retry=1, delay=5.0, why=why)
    stream.tell(events.AttemptStarted, 510, attempt=2, resumes=True)
    stream.begins(510)
    stream.tell(events.Reconnected, 512, attempt=2, resumes=True)
    stream.chatters(512, 560)
    stream.works_on("Bash", 560, None)
    verdict = stream.is_judged(760, "tools", 200.0, in_flight=("Bash",), work="Bash")
    stream.tell(events.DisconnectAbandoned, 790, bound=30.0)
    lost = {"confirmed": False, "disconnect": "abandoned", "survivors": (4990, 5012)}
    stream.is_torn_down(801, verdict, **lost, signals=("TERM", "KILL"), tree="survived")
    stream.ends(801, TimeoutError())
    stream.tell(events.AttemptEnded, 801, attempt=2, outcome="failed", error=None, confirmed=False)
    why = "the backend's end is not confirmed: two owners would corrupt the session"
    gave_up = {"reason": "unsafe", "why": why, "error": TimeoutError(), "escalate": True}
    stream.tell(events.GaveUp, 801, **gave_up)
    return stream


def hundred(tape: Tape) -> None:
    """A hundred sessions of 10,000 messages and a hundred tool calls each; three of them hang."""
    for i in range(100):
        stream = tape.stream(f"issue-{i}")
        begin = i * 7.0
        stream.begins(begin)
        for call in range(100):
            at = begin + call * 72.0
            stream.says(*(at + j * 4.0 for j in range(10)), n=10)
            stream.works_on("Bash" if call % 3 else "Task", at, at + 31.0)
        if i in (17, 42, 77):
            stream.hangs(begin + 7200, confirmed=i != 77)
        else:
            stream.ends(begin + 7200)
        if i % 10 == 9:
            tape.take()
