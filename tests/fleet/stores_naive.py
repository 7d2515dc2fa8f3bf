"""A store told the slow way, from what its interface promises alone: an oracle.

A session is its whole history of claims. Who holds it, how often it was tried in vain and when it may begin is
found anew for each question.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False)
class Tenure:
    """One claim, and what became of it: "" while it lasts, else `lost`, `counted` or `uncounted`."""

    token: int
    owner: str
    until: float
    heard: float
    progressed: bool = False
    beats: int = 0
    end: str = ""
    ended_as: tuple[str, ...] = ()


@dataclass(eq=False)
class Session:
    key: str
    spec: Any
    submitted: float
    status: str = "waiting"
    may_begin: float = 0.0
    why: str = ""
    delivered: int = 0
    kept: Any = None
    cancel_asked: str | None = None
    # Claims, and a mark wherever a person has released it.
    history: list[Tenure | None] = field(default_factory=list)

    @property
    def tenures(self) -> list[Tenure]:
        return [tenure for tenure in self.history if tenure is not None]

    @property
    def attempt(self) -> int:
        return sum(tenure.end != "uncounted" for tenure in self.tenures)

    @property
    def fruitless(self) -> int:
        """How many of its claims that count, from the last one backwards, were over and came to nothing."""
        count = 0
        for tenure in reversed(self.history):
            if tenure is None or tenure.progressed:
                break
            count += tenure.end in ("lost", "counted")
        return count

    def due(self) -> float | None:
        if self.status == "waiting":
            return self.may_begin
        return self.tenures[-1].until if self.status == "running" else None


class NaiveStore:
    def __init__(self, now: float) -> None:
        self.now = now
        self.sessions: list[Session] = []
        self.lines: list[dict] = []

    def find(self, key):
        return next((session for session in self.sessions if session.key == key), None)

    def held(self, beat):
        session = self.find(beat.key)
        if session is None or session.status != "running":
            return None
        tenure = session.tenures[-1]
        return session if (tenure.token, tenure.owner) == (beat.token, beat.owner) else None

    def submit(self, key, spec):
        if self.find(key):
            return False
        self.sessions.append(Session(key, spec, self.now, may_begin=self.now))
        return True

    def claim(self, owner, ttl, limit):
        claimed = []
        ready = [s for s in self.sessions if s.due() is not None and s.due() <= self.now]
        for session in sorted(ready, key=lambda s: (s.due(), self.sessions.index(s))):
            if len(claimed) == limit:
                break
            if session.status == "running":
                session.tenures[-1].end = "lost" if session.tenures[-1].beats else "never heard of"
                session.why = "lost"
            if session.cancel_asked is not None:
                self._cancelled(session)
                continue
            session.status = "running"
            token = len(session.tenures) + 1
            session.history.append(Tenure(token, owner, self.now + ttl, self.now))
            claimed.append((session.key, token, session.attempt, session.fruitless, session.kept))
        return claimed

    def beat(self, beats, ttl):
        answer = {}
        for beat in beats:
            if (session := self.held(beat)) is not None:
                tenure = session.tenures[-1]
                tenure.until, tenure.heard = self.now + ttl, self.now
                tenure.beats += 1
                self._write(session, beat)
                answer[beat.key] = "kept" if session.cancel_asked is None else "cancel"
        return answer

    def finish(self, beat, *, cancelled=False):
        return self._end(beat, ("cancelled" if cancelled else "done",))

    def give_back(self, beat, delay, *, counts=True, why=""):
        return self._end(beat, ("waiting", "cancelled"), delay=delay, counts=counts, why=why)

    def park(self, beat, why):
        return self._end(beat, ("parked", "cancelled"), why=why, end="parked")

    def _end(self, beat, ways, *, delay=0.0, counts=True, why="", end=""):
        session = self.held(beat)
        if session is None:
            return self._ended_so(beat, ways)
        tenure = session.tenures[-1]
        self._write(session, beat)
        asked = session.cancel_asked
        status = ways[0]
        if status == "waiting":
            tenure.end = "counted" if counts else "uncounted"
        else:
            tenure.end = end or "over"
        if asked is not None and (len(ways) > 1 or status == "cancelled"):
            status, why = "cancelled", asked
        session.status, session.why, session.cancel_asked = status, why, None
        session.may_begin = self.now + delay
        tenure.ended_as = (status,)
        return True

    def _ended_so(self, beat, ways):
        """Whether that claim, the last one, has ended in that way already."""
        session = self.find(beat.key)
        if session is None or not session.tenures or session.history[-1] is None:
            return False
        tenure = session.tenures[-1]
        is_it = (tenure.token, tenure.owner) == (beat.token, beat.owner)
        return is_it and session.status in ways and tenure.ended_as == (session.status,)

    def _write(self, session, beat):
        tenure = session.tenures[-1]
        tenure.progressed = tenure.progressed or beat.progressed
        if beat.checkpoint is not None:
            session.kept = beat.checkpoint
            session.delivered = beat.checkpoint.delivered

    def _cancelled(self, session, why=""):
        asked = session.cancel_asked
        session.why = why if asked is None else asked
        session.status, session.cancel_asked = "cancelled", None

    def release(self, key):
        session = self.find(key)
        if session is None or session.status != "parked":
            return False
        session.status, session.may_begin, session.why = "waiting", self.now, ""
        session.history.append(None)
        return True

    def cancel(self, key, why):
        session = self.find(key)
        if session is None or session.status in ("done", "cancelled"):
            return False
        if session.status == "running" and session.tenures[-1].until > self.now:
            session.cancel_asked = why if session.cancel_asked is None else session.cancel_asked
        else:
            self._cancelled(session, why)
            if session.tenures:
                session.tenures[-1].ended_as = ()
        return True

    def log_timeout(self, beat, line):
        if self.held(beat) is None:
            return False
        self.lines.append({**line, "session": beat.key, "logged": self.now})
        return True

    def rows(self):
        """All sessions, as (key, status, owner, attempt, fruitless, delivered, why, cancelling, wait, silent, age)."""
        return [
            (
                s.key,
                s.status,
                s.tenures[-1].owner if s.status == "running" else "",
                s.attempt,
                s.fruitless,
                s.delivered,
                s.why,
                s.cancel_asked is not None,
                max(0.0, s.may_begin - self.now) if s.status == "waiting" else 0.0,
                self.now - s.tenures[-1].heard if s.status == "running" else 0.0,
                self.now - s.submitted,
            )
            for s in self.sessions
        ]
