"""`--lock FILE`: one run at a time, for who is started by a clock.

The lock is the library's (`_base/filelock`), and so is what it says of who has it (`process/holder`). The keeper
has it, too: so it lasts until nothing of the command is left, also where the run is killed. Where run and keeper are
killed at one moment, the command's tree is in the file, and the next run ends what is left of it first.

What may take long (a disk, what is imported for it) is done by a process of ours once the command runs.
"""

from __future__ import annotations

import os
import time

from streamguard._base.filelock import FileLock, peek
from streamguard.runner import aside
from streamguard.runner.child import NotBegunError
from streamguard.runner.result import LOCKED, OUR_FAILURE

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# Who has it says so soon after it has begun, which takes longer on a busy machine; and so long a disk may
# take, in seconds.
_INTRODUCED = 5.0
_DISK = 2.0
_PAUSE = 0.02


class RunLock:
    """The lock, taken. NotBegunError if another run has it, or if it cannot be had."""

    def __init__(self, path: str, complain: Callable[[str], None]) -> None:
        self._path = os.path.abspath(path)
        self._named = f"--lock {path}"
        self._writer: int | None = None
        self._since = time.time()
        try:
            lock = FileLock.take(self._path)
            if lock is None:
                raise NotBegunError(f"{self._named}: {_who_has(self._path)}; not started", LOCKED)
            self._lock = lock
            self._take_over(complain)
            self.fd = lock.share()
        except OSError as error:
            why = f"{self._named}: no lock can be had there: {error.strerror}"
            raise NotBegunError(why, OUR_FAILURE) from None

    def note(self, tree: tuple[Any, ...] | None) -> None:
        """We have it, and that is the command's tree, for who finds the lock free and us dead."""
        self._await_writer()
        run, since = os.getpid(), self._since

        def write() -> None:
            from streamguard.process import procfs
            from streamguard.process.holder import Holder, Record
            from streamguard.process.members import TreeFacts

            stat = procfs.read_stat(run)
            started = 0.0 if stat is None else stat.started
            holder = Holder.of_this_program()._replace(pid=run, started=started, since=since)
            trees = () if tree is None else (TreeFacts(*tree),)
            FileLock(self._path, self.fd).write(Record(holder, trees).as_text())

        try:
            self._writer = aside.fork(write, (self.fd,))
        except OSError:
            pass  # then a next run cannot be told

    def release(self, *, is_all_gone: bool) -> None:
        """Let go of it; where something of the command is left, the next run is to find it."""
        self._await_writer()

        def let_go() -> bytes:
            FileLock(self._path, self.fd).release(keep_file=not is_all_gone)
            return b"."

        try:
            aside.asked(let_go, _DISK, (self.fd,))
        except OSError:
            pass  # it ends with us

    def pass_on(self) -> None:
        """It is the command's, which we become."""
        self.note(None)
        self._await_writer()
        os.set_inheritable(self.fd, True)

    def _await_writer(self) -> None:
        if self._writer is not None:
            aside.dismiss(self._writer, _DISK)
            self._writer = None

    def _take_over(self, complain: Callable[[str], None]) -> None:
        """End what a run has left that was killed; NotBegunError if that is not proven."""
        text = self._lock.read()
        if text == "":
            return
        from streamguard.process.holder import Record, end_left

        record = None if text is None else Record.from_text(text)
        if record is None:
            why = f"{self._named}: something else is in it: name a file for nothing but the lock"
            raise NotBegunError(why, OUR_FAILURE)
        left = end_left(record)
        if left.why_not:
            why = f"what process {record.holder.pid} has left is not ended: {left.why_not}"
            raise NotBegunError(f"{self._named}: {why}; not started", LOCKED)
        if record.trees:
            whose = f"process {record.holder.pid} could not see to its end"
            complain(f"{self._named}: {whose}; {left.said}")
        self._lock.write("")


def _who_has(path: str) -> str:
    """Who has it, as far as that is said in time."""
    from streamguard.process.holder import Record

    until = time.monotonic() + _INTRODUCED
    while not (text := peek(path)) and time.monotonic() < until:
        time.sleep(_PAUSE)
    record = Record.from_text(text) if text else None
    if record is None:
        return "another program has it"
    holder = record.holder
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(holder.since))
    if holder.is_in_sight and not holder.is_alive():
        return f"what process {holder.pid} started at {since} is being ended"
    return f"process {holder.pid} has it since {since}"
