"""`--record DIR`, as the run sees it: a clerk in a process of its own, and a pipe to it.

A disk may take seconds, or for ever, and a watchdog may not wait for it. So nothing is written here, nor
made ready to be written: what happens goes as small frames into a pipe that does not block. What
does not fit waits in memory, within a bound. Before that is reached the command's output is left in its pipe
(`holds`), so that a slow disk slows the command; where a disk stands still, it goes on, and what is beyond the
bound is dropped and counted, messages first. What the clerk makes of it is in `clerk`. It answers with lines: what it could not write, and
how much it is done with.

Forked before the command is started, since there may be no process left to be had later. Nothing here
raises. Imports the standard library.
"""

from __future__ import annotations

import marshal
import mmap
import os
import select
import time

from streamguard.runner import aside
from streamguard.runner.outbox import forget

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from streamguard.errors import Verdict
    from streamguard.runner.result import Result
    from streamguard.signals import Signal

# Frames of messages that may wait in memory, in bytes; and how many messages the clerk may be behind, so
# that it can be done with them in time. What the run itself does is never dropped.
_ROOM = 2 * 1024 * 1024
_MOST_BEHIND = 50_000
# The command is kept waiting from half of that on, as long as the clerk gets on: for so long, in seconds, it may not.
_STANDSTILL = 1.0
_PIPE = 1024 * 1024
_F_SETPIPE_SZ = 1031
_PORTION = 64 * 1024
# What is longer than that is not looked at by the clerk, but for its head.
_LONGEST = 1024 * 1024
_HEAD = 9 * 1024
# What the clerk may take for what is left, in seconds; and of that, for what the command said.
CLOSING = 5.0
_OF_MESSAGES = 2.0
LENGTH = 4
RECEIPT = b"="  # how an answer begins that says where a receipt is

# What of a verdict is the same for all runs, or made by the clerk.
_NOT_OF_RUN = {"when", "scope", "fired", "effective", "done", "labels", "guard", "vitals"}


class Evidence:
    """What one run leaves in `folder`. `say` is told, once for each reason, what it could not."""

    def __init__(self, folder: str, name: str, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._say = say
        self._pid: int | None = None
        self._frames = self._answers = -1
        self._poll: select.poll | None = None
        self._pending = bytearray()
        self._awaits_room = False
        self._heard = b""
        self._told = 0  # how much the clerk was told, and how much of that it is done with
        self._done = 0
        self._got_on = 0.0  # when it was last done with anything, or was given something to do
        self._dropped = 0  # since the clerk was last told of it
        self._lost = 0
        self._is_late = mmap.mmap(-1, 1)  # shared: the clerk is to pass messages over
        self.receipt: str | None = None  # where the latest verdict's is
        self._line = 0  # so much came of a line of text that has no end yet
        try:
            self._engage(name)
        except OSError as error:
            self._complain(str(error.strerror))

    # -- what happens ----------------------------------------------------------------------

    def began(self, attempt: int, pid: int, at: float, *, resumes: bool) -> None:
        """An attempt runs."""
        self._tell("began", at, attempt, pid, resumes)
        self.flush()

    def message(
        self, line: bytes, signals: Iterable[Signal] | None, at: float, *, is_object: bool
    ) -> None:
        """A line came, and that is what it says; None: that it goes on."""
        said = None if signals is None else [_plain(signal) for signal in signals]
        length = len(line)
        head = line if length <= _LONGEST else line[:_HEAD]
        if not self._is_behind:
            self._tell("message", at, said, head, length, is_object)
        elif said is None or len(self._pending) > 2 * _ROOM:
            self._drop(1)
        else:
            self._tell("message", at, said, None, 0, is_object)

    def text(self, chunk: bytes, at: float) -> None:
        """Output came that says nothing to anybody."""
        count = chunk.count(b"\n")
        self._line = 0 if count else self._line + len(chunk)
        if self._line - len(chunk) > _LONGEST:
            return  # of so long a line it has enough
        if self._is_behind:
            self._drop(max(count, 1))
        else:
            self._tell("text", at, chunk, weight=count)

    def event(self, kind: str, at: float, **facts: object) -> None:
        """Something else happened: an event by its name."""
        self._tell("event", at, kind, facts)

    def verdict(self, verdict: Verdict, *, enforced: bool, backend: str | None) -> None:
        """A limit was reached; if it is `enforced`, the attempt is being ended. `backend`: whose lines came."""
        names: Iterable[str] = verdict.__dataclass_fields__.keys() - _NOT_OF_RUN
        told = {name: getattr(verdict, name) for name in names}
        told["vitals"] = None if verdict.vitals is None else verdict.vitals.as_json()
        self._tell("verdict", verdict.at, told, enforced, backend)
        self.flush()

    def again(self, outcome: Result, delay: float, at: float, why: str | None = None) -> None:
        """The attempt is over, and there will be another one; `why`, where it was no hang."""
        hang = "" if outcome.fired is None else outcome.fired.reason
        error_class = "idle"
        if why is not None:
            error_class = "validation" if outcome.failed is None else outcome.failed.error_class
        self._tell("again", at, _end_of(outcome), delay, why or hang, error_class)
        self.flush()

    def ended(self, outcome: Result, code: int, at: float) -> None:
        """The run is over, and `code` is how it ends."""
        self._tell("ended", at, _end_of(outcome), code)
        self.flush()

    def holds(self, now: float) -> float | None:
        """Until when the command's output is to be left where it is, if nothing is written; None: it is not."""
        is_much = len(self._pending) > _ROOM // 2 or self._told - self._done > _MOST_BEHIND // 2
        until = self._got_on + _STANDSTILL
        return until if is_much and self._frames >= 0 and now < until else None

    # -- the pipe --------------------------------------------------------------------------

    def attach(self, poll: select.poll) -> None:
        """From here on it is that `poll` which says when `handle` has something to do."""
        self._poll = poll
        self._awaits_room = False
        if self._answers >= 0:
            poll.register(self._answers, select.POLLIN)
        self._watch_for_room()

    def handle(self, fd: int) -> bool:
        """Whether it is ours that is ready; then it is seen to."""
        if fd == self._answers >= 0:
            self._hear()
        elif fd == self._frames >= 0:
            self.flush()
        else:
            return False
        return True

    def flush(self) -> None:
        """Give the clerk what it takes now."""
        pending = self._pending
        try:
            while pending and self._frames >= 0:
                del pending[: os.write(self._frames, pending[:_PORTION])]
        except BlockingIOError:
            pass
        except OSError:
            self._is_gone()
        self._watch_for_room()

    def close(self, bound: float = CLOSING) -> int:
        """See that what there is gets written, for `bound` seconds; how much of it was not.

        Counted in messages and events. Nothing is told any more after that.
        """
        deadline = time.monotonic() + bound
        if self._pid is not None:
            self._note_dropped()
            self._hand_over(deadline)
            aside.dismiss(self._pid, max(0.0, deadline - time.monotonic()))
            self._pid = None
            self._let_go()
            if unfinished := self._told - self._done:
                self._lost += unfinished
                self._complain("not all was written in time")
        return self._lost

    def _engage(self, name: str) -> None:
        """Have somebody write."""
        work_dir, pid = os.getcwd(), os.getpid()
        folder = os.path.join(work_dir, self._folder)
        frames, self._frames = os.pipe()
        try:
            self._answers, answers = os.pipe()
        except OSError:
            os.close(frames)
            self._let_go()
            raise

        def write() -> None:
            from streamguard.runner.clerk import work

            is_late = self._is_late
            work(frames, answers, is_late, folder=folder, work_dir=work_dir, name=name, pid=pid)

        try:
            self._pid = aside.fork(write, (frames, answers))
        except OSError:
            self._let_go()
            raise
        finally:
            os.close(frames)
            os.close(answers)
        os.set_blocking(self._frames, False)
        os.set_blocking(self._answers, False)
        _enlarge(self._frames)

    @property
    def _is_behind(self) -> bool:
        """Whether the clerk has so much to do that no more messages are for it."""
        return len(self._pending) > _ROOM or self._told - self._done > _MOST_BEHIND

    def _tell(self, what: str, *facts: Any, weight: int = 1) -> None:
        if self._frames < 0:
            self._drop(weight)
            return
        self._note_dropped()
        self._put(what, facts, weight)
        if len(self._pending) >= _PORTION and not self._awaits_room:
            self.flush()

    def _note_dropped(self) -> None:
        dropped, self._dropped = self._dropped, 0
        if dropped and self._frames >= 0:
            self._put("dropped", (time.monotonic(), dropped), 0)

    def _put(self, what: str, facts: tuple[Any, ...], weight: int) -> None:
        try:
            frame = marshal.dumps((weight, what, facts))
        except ValueError:  # a reader has named something by what is no plain value
            self._drop(weight)
            return
        if self._told == self._done:
            self._got_on = time.monotonic()
        self._pending += len(frame).to_bytes(LENGTH, "little")
        self._pending += frame
        self._told += weight

    def _drop(self, count: int) -> None:
        self._dropped += count
        self._lost += count

    def _watch_for_room(self) -> None:
        is_wanted = bool(self._pending) and self._frames >= 0
        if self._poll is None or is_wanted is self._awaits_room:
            return
        self._awaits_room = is_wanted
        if is_wanted:
            self._poll.register(self._frames, select.POLLOUT)
        else:
            forget(self._poll, self._frames)

    def _hand_over(self, deadline: float) -> None:
        """Wait until the clerk has taken all, and has said that it is done.

        Most of that time is for what the run itself did.
        """
        late_at = time.monotonic() + _OF_MESSAGES
        poll = select.poll()
        self._poll = None  # whoever's that was: nobody asks it any more
        if self._answers >= 0:
            poll.register(self._answers, select.POLLIN)
        self.flush()
        if self._pending and self._frames >= 0:
            poll.register(self._frames, select.POLLOUT)
        while self._answers >= 0 and (left := deadline - time.monotonic()) > 0:
            if not self._pending and self._frames >= 0:
                forget(poll, self._frames)
                os.close(self._frames)
                self._frames = -1
            self._is_late[0] = time.monotonic() >= late_at
            left = left if self._is_late[0] else late_at - time.monotonic()
            for fd, _ in poll.poll(max(left, 0.0) * 1e3):
                self.handle(fd)

    def _hear(self) -> None:
        """Take what the clerk has said: a number is how much it is done with."""
        try:
            came = os.read(self._answers, _PORTION)
        except BlockingIOError:
            return
        except OSError:
            came = b""
        *lines, self._heard = (self._heard + came).split(b"\n")
        for line in lines:
            if line.isdigit():
                self._done, self._got_on = int(line), time.monotonic()
            elif line.startswith(RECEIPT):
                self.receipt = os.fsdecode(line.removeprefix(RECEIPT))
            else:
                self._complain(line.decode(errors="replace"))
        if not came:
            self._is_gone()

    def _is_gone(self) -> None:
        """The clerk reads and says nothing any more."""
        is_early = self._frames >= 0
        self._let_go()
        if is_early:
            unfinished, self._told = self._told - self._done, self._done
            self._lost += unfinished
            self._complain("the process that writes has ended; nothing more is recorded")

    def _let_go(self) -> None:
        for fd in (self._frames, self._answers):
            if fd >= 0:
                if self._poll is not None:
                    forget(self._poll, fd)
                os.close(fd)
        self._frames = self._answers = -1
        self._awaits_room = False
        self._pending = bytearray()

    def _complain(self, text: str) -> None:
        self._say(f"--record {self._folder}: {text}")


def _plain(signal: Signal) -> tuple[Any, ...]:
    """A signal as values that can be told: its name, and its fields."""
    names: Iterable[str] = signal.__slots__
    values = [getattr(signal, name) for name in names]
    return (type(signal).__name__, *map(_plain_value, values))


def _plain_value(value: Any) -> Any:
    if hasattr(value, "timestamp"):
        return value.timestamp()
    if isinstance(value, str):
        return str.__str__(value)  # also of a member of an enumeration
    return dict(value) if hasattr(value, "keys") else value


def _end_of(outcome: Result) -> dict[str, Any]:
    """How an attempt ended, as values that can be told."""
    fired, status = outcome.fired, outcome.status
    return {
        "limit": None if fired is None else fired.limit,
        "is_passed_on": outcome.passed_on is not None,
        "signals": tuple(outcome.signals),
        "elapsed": outcome.ending_took,
        "exit": None if status is None else os.waitstatus_to_exitcode(status),
        "survivors": tuple(outcome.survivors),
        "is_unproven": outcome.is_unproven,
        "out_of_reach": outcome.out_of_reach,
        "is_killed": outcome.was_killed,
    }


def _enlarge(pipe: int) -> None:
    """Have it hold more, where that can be: what is in it is not our memory."""
    try:
        import fcntl

        fcntl.fcntl(pipe, _F_SETPIPE_SZ, _PIPE)
    except (ImportError, OSError):
        pass
