"""Who has something, as a text that another program can read later; and what is left of one that died.

A record names a program (its pid, start time, boot and pid namespace, so that nobody else is ever taken
for it) and the process trees that it has at work. Its reader can tell whether that program lives, and end
what a dead one has left: by start times and marks, so that no pid that was given to another is hit. What
cannot be looked at from here proves nothing, and is said so.
Knows processes; nothing of locks, files or sessions. All of it may block.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Self, cast

from streamguard.process import blocking, procfs
from streamguard.process.identity import StatHandle, open_again
from streamguard.process.members import Members, TreeFacts
from streamguard.process.sentinel.forest import Forest
from streamguard.process.table import untouchable

_VERSION: Final = 1
# A program whose files the kernel has closed is all but dead; what is killed dies in an instant. In seconds.
_DYING: Final = 2.0
_ENDING: Final = 5.0


class Holder(NamedTuple):
    """One program. `boot` and `space` say where and when its pid means it; "" where nothing tells."""

    pid: int
    started: float
    boot: str
    space: str
    host: str
    program: str
    since: float

    @classmethod
    def of_this_program(cls) -> Self:
        """This one, from now on."""
        stat = procfs.read_stat(os.getpid())
        return cls(
            pid=os.getpid(),
            started=0.0 if stat is None else stat.started,
            boot=_boot(),
            space=_space(),
            host=os.uname().nodename,
            program=_program(),
            since=time.time(),
        )

    @property
    def was_before_boot(self) -> bool:
        """Whether the machine was started anew since: nothing of it can be left."""
        boot = _boot()
        return bool(self.boot and boot) and boot != self.boot

    @property
    def is_in_sight(self) -> bool:
        """Whether its pids mean the same here, and can be proven."""
        return procfs.is_there() and (self.boot, self.space) == (_boot(), _space())

    def is_alive(self, bound: float = 0.0) -> bool:
        """Whether it is known to live, and does so for that many seconds."""
        if not self.is_in_sight or self.started <= 0:
            return False
        handle = open_again(self.pid, self.started)
        if handle is None:
            return False
        try:
            handle.outwait(bound)
            return not handle.is_dead
        finally:
            handle.close()


class Record(NamedTuple):
    """Who has it, and the trees that it has at work, or has undertaken to end."""

    holder: Holder
    trees: tuple[TreeFacts, ...] = ()

    def as_text(self) -> str:
        """One line, for `from_text`."""
        told = {"version": _VERSION, "holder": self.holder._asdict(), "trees": self.trees}
        return json.dumps(told)

    @classmethod
    def from_text(cls, text: str) -> Self | None:
        """The same again; None for anything else."""
        try:
            said = json.loads(text)
            holder = _holder(said["holder"])
            trees = tuple(_facts(each) for each in said["trees"])
        except (ValueError, TypeError, KeyError, RecursionError):
            return None
        return cls(holder, trees)


class Left(NamedTuple):
    """What became of what a program had left. `why_not`: why it is not proven dead; "" if it is."""

    said: str
    why_not: str = ""


def end_left(record: Record) -> Left:
    """End what a program has left that has let go of what it had, and say whether that is proven.

    Blocks for some seconds at most.
    """
    holder, trees = record
    if holder.was_before_boot:
        return Left("the machine was started anew since")
    if holder.is_alive(_DYING):
        return Left("", "that program lives")
    pids = ", ".join(str(facts.pid) for facts in trees)
    if not trees:
        return Left("it had no process at work")
    if not holder.is_in_sight or any(facts.started <= 0 for facts in trees):
        return Left("", f"whether its process {pids} has ended cannot be seen from here")
    if untouchable() & {facts.pid for facts in trees}:
        return Left("", f"its process {pids} has started this program")
    forest = Forest(map(_members, trees))
    try:
        ended = blocking.end(forest, 0, _ENDING)
    finally:
        forest.close()
    said = f"its process {pids}: {ended}"
    return Left(said, "" if ended.confirmed else said)


def _members(facts: TreeFacts) -> Members:
    # One that is gone still says whose group its number was.
    root = open_again(facts.pid, facts.started) or StatHandle(facts.pid, facts.started)
    return Members.from_facts(facts, root)


def _facts(said: Sequence[Any]) -> TreeFacts:
    pid, started, session, mark = said
    if not _is_pid(pid) or not _is_number(started):
        raise ValueError("no process")
    if not (session is None or _is_pid(session)) or not (mark is None or isinstance(mark, str)):
        raise ValueError("no process tree")
    return TreeFacts(pid, float(started), session, mark)


def _holder(said: dict[str, Any]) -> Holder:
    texts = [said[name] for name in ("boot", "space", "host", "program")]
    numbers = [said[name] for name in ("started", "since")]
    if not (all(isinstance(text, str) for text in texts) and all(map(_is_number, numbers))):
        raise ValueError("no holder")
    if not _is_pid(said["pid"]):
        raise ValueError("no process")
    return Holder(**{name: said[name] for name in Holder._fields})


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and 0 <= cast("float", value) < 1e15


def _is_pid(value: object) -> bool:
    return type(value) is int and 0 < value <= procfs.LARGEST_PID


def _boot() -> str:
    return _line("/proc/sys/kernel/random/boot_id")


def _space() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - asked often
    except OSError:
        return ""


def _line(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:  # noqa: PTH123
            return file.readline().strip()
    except OSError:
        return ""


def _program() -> str:
    """What it is called, without its arguments, which may be secret."""
    argv = sys.argv[0] if sys.argv and sys.argv[0] else ""
    name = os.path.basename(argv)  # noqa: PTH119
    if name == "__main__.py":
        name = os.path.basename(os.path.dirname(argv))  # noqa: PTH119, PTH120
    return name if name not in ("", "-c", "-") else os.path.basename(sys.executable)  # noqa: PTH119
