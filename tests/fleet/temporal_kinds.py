"""Workers on Temporal as they are, and as they must not be: each of the others lacks one thing that keeps a session's owner alone.

What they deliver goes to one file, which is only ever appended to, by all processes: the truth of who did what when.
"""

from __future__ import annotations

import os
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from streamguard import idle_guard, session
from streamguard.fleet import TemporalEngine
from streamguard.testing import Script, done, opened, say, silence


class Unproven(TemporalEngine):
    """Begins with what it was sent, whenever that was."""

    async def _first_beat(self, task, holding):
        return True


class Cursory(TemporalEngine):
    """Beats as Temporal's own heartbeats do: it takes them for kept, until Temporal's library says otherwise."""

    async def _beat(self, holding):
        from temporalio import activity

        beat, sent = holding.beat(), self._clock()
        activity.heartbeat(self._tasks[holding].record.beaten(beat).as_json())
        self._heard(holding, beat, sent, None if activity.cancellation_details() else "kept")


class Forgetful(TemporalEngine):
    """Keeps no checkpoint."""

    async def _beat(self, holding):
        await self._tasks[holding].beat(holding.bare_beat)
        holding.lease.renewed(self._clock())


class Unfenced(TemporalEngine):
    """Takes its leases to be good for ever."""

    def _ttl_of(self, info):
        return 10_000.0


KINDS = {
    "sound": TemporalEngine,
    "unfenced": Unfenced,
    "unproven": Unproven,
    "cursory": Cursory,
    "forgetful": Forgetful,
}


@dataclass(frozen=True)
class Line:
    """One message that was delivered, or with `number` -1 a handler that has begun."""

    at: float
    key: str
    number: int
    who: str
    token: int


class Truth:
    """The file. Each line is written at once."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_APPEND | os.O_CREAT | os.O_RDWR, 0o600)
        self._path = path

    def write(self, key: str, number: int, who: str, token: int) -> None:
        os.write(self._file, f"{time.monotonic()} {key} {number} {who} {token}\n".encode())

    def lines(self) -> list[Line]:
        words = [line.split() for line in self._path.read_text().splitlines()]
        return [Line(float(a), k, int(n), w, int(t)) for a, k, n, w, t in words]

    def handler(self, who: str, count: int = 300, pace: float = 0.1, token: str = "any"):
        """Delivers `count` messages, from the checkpoint on, one each `pace` seconds."""

        async def handle(lease):
            self.write(lease.key, -1, who, lease.token)

            @asynccontextmanager
            async def connect(point):
                numbers = range(lease.state.get("next", 0), count)
                steps = (step for n in numbers for step in (silence(pace), say(str(n))))
                yield Script(opened(f"token-{token}"), *steps, done())

            async with session(connect, point=lease.resume_point()) | idle_guard(60) as chat:
                async for message in chat:
                    if text := getattr(message, "text", ""):
                        self.write(lease.key, int(text), who, lease.token)
                        lease.state["next"] = int(text) + 1

        return handle

    def delivered(self, key: str, *, by: str = "") -> list[Line]:
        return [
            line
            for line in self.lines()
            if line.key == key and line.number >= 0 and by in ("", line.who)
        ]

    def begun(self, by: str) -> dict[str, float]:
        """When a worker has begun each of its sessions first."""
        return {
            line.key: line.at
            for line in reversed(self.lines())
            if line.number == -1 and line.who == by
        }
