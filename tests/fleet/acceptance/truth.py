"""What really happened: a file to which every worker and every backend adds a line for all that it does.

It belongs to no store and no worker, so that none of them has to be believed. A line is one write at the end of
the file; its time is the machine's, which all processes share. Read by the tests, written by their children.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

Line = dict[str, Any]


def boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Pen:
    """Writes to the file, from one process."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._pid = os.getpid()

    def __call__(self, what: str, **more: Any) -> None:
        line = {"what": what, "pid": self._pid, "at": boottime(), **more}
        os.write(self._file, json.dumps(line).encode() + b"\n")


class Reader:
    """Reads what is new in the file."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._lines: list[Line] = []
        self._rest = b""

    def read(self) -> Truth:
        *whole, self._rest = (self._rest + self._file.read()).split(b"\n")
        self._lines += map(json.loads, whole)
        return Truth(list(self._lines))

    def close(self) -> None:
        self._file.close()


class Truth:
    """What was in the file when it was read."""

    def __init__(self, lines: list[Line]) -> None:
        self.lines = lines

    def of(self, what: str, **more: Any) -> list[Line]:
        return [
            line
            for line in self.lines
            if line["what"] == what and all(line.get(name) == more[name] for name in more)
        ]

    def sessions(self, what: str, **more: Any) -> set[str]:
        """Of which sessions there is such a line."""
        return {line["session"] for line in self.of(what, **more)}

    def stale(self, what: str) -> Counter[str]:
        """By session, how often that was done for an owner after a later one had begun."""
        begun = defaultdict(list)
        for line in self.of("began"):
            begun[line["session"]].append((line["token"], line["at"]))
        return Counter(
            line["session"]
            for line in self.of(what)
            if any(
                token > line["token"] and at < line["at"] for token, at in begun[line["session"]]
            )
        )

    def numbers(self, session: str) -> Counter[int]:
        """How often each message of a session was delivered."""
        return Counter(line["seq"] for line in self.of("delivered", session=session))

    def doubles(self) -> int:
        """How many deliveries were not the first of their message."""
        sessions = self.sessions("delivered")
        return sum(self.numbers(each).total() - len(self.numbers(each)) for each in sessions)

    def handed_over(self, before: Callable[[Line], bool] = lambda _: True) -> dict[str, float]:
        """By session, when its second owner began."""
        found: dict[str, float] = {}
        for line in self.of("began"):
            if line["token"] > 1 and before(line):
                found.setdefault(line["session"], line["at"])
        return found
