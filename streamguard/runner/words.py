"""What we say on standard error, said by a process of its own.

Nobody may read it, its disk may stand still, its terminal may be stopped by Ctrl-S: none of that may
hold up a verdict. So words go into a pipe that does not block, and are written by whom nobody waits
for, but for a moment at the very end. What could not be said is counted. Standard library only.
"""

from __future__ import annotations

import os
import select
import time

from streamguard._base.quoting import quoted
from streamguard.runner import aside
from streamguard.runner.outbox import is_ready, write_all

# A frame is written whole or not at all: more than that may be split.
_MOST = select.PIPE_BUF
_WAITING = 1 << 20
# How long the end of a run waits for who reads its words, in seconds.
PATIENCE = 2.0


class Words:
    """Standard error, as far as it is ours."""

    def __init__(self) -> None:
        self._pid: int | None = None
        self._waiting = bytearray()
        self._given = 0
        self._heard = 0
        self._was_in_vain = False

    def say(self, line: str) -> None:
        """One line of ours, at some time soon: what is not printable in it is quoted."""
        self.say_as_it_is(quoted(line))

    def say_as_it_is(self, line: str) -> None:
        """The same of a line that is for a program."""
        self._given += 1
        text = f"{line}\n".encode(errors="replace")
        if self._pid is None and not self._start():
            self._heard += _say_at_once(text)
            return
        if len(self._waiting) + len(text) > _WAITING:
            return
        self._waiting += len(text).to_bytes(4, "little") + text
        self._flush()

    def finish(self, bound: float) -> int:
        """Wait until all is said, for `bound` seconds at most; how many lines are not."""
        deadline = time.monotonic() + (0.0 if self._was_in_vain else bound)
        if self._pid is None:
            return self._given - self._heard
        poll = select.poll()
        poll.register(self._acks, select.POLLIN)
        while self._heard < self._given:
            self._flush()
            poll.register(self._pipe, select.POLLOUT if self._waiting else 0)
            if not poll.poll(max(0.0, deadline - time.monotonic()) * 1e3):
                self._was_in_vain = True  # whoever took nothing for so long has had his time
                break
            try:
                acks = os.read(self._acks, 4096)
            except BlockingIOError:
                continue
            if not acks:
                break  # it is gone
            self._heard += len(acks)
        return self._given - self._heard

    def close(self) -> None:
        """Nothing more will be said; whoever still tries is killed."""
        if self._pid is not None:
            os.close(self._pipe)
            aside.dismiss(self._pid, 0.0 if self._heard < self._given else 0.5)
            os.close(self._acks)
            self._pid = None

    def _start(self) -> bool:
        ends: list[int] = []
        try:
            ends += os.pipe()
            ends += os.pipe()
            reading, self._pipe, self._acks, telling = ends
            self._pid = aside.fork(lambda: _relay(reading, telling), (2, reading, telling))
        except OSError:  # no process, or no descriptor, is left
            for fd in ends:
                os.close(fd)
            return False
        os.close(reading)
        os.close(telling)
        os.set_blocking(self._pipe, False)
        os.set_blocking(self._acks, False)
        return True

    def _flush(self) -> None:
        while self._waiting:
            try:
                count = os.write(self._pipe, self._waiting[:_MOST])
            except OSError:
                return
            del self._waiting[:count]


def say(*lines: str) -> None:
    """Say that, where nothing runs yet, and wait for a moment until it is said."""
    words = Words()
    for line in lines:
        words.say(line)
    words.finish(PATIENCE)
    words.close()


def _say_at_once(text: bytes) -> bool:
    """Where there can be no other process: if there is room for it now."""
    try:
        return is_ready(2, select.POLLOUT) and os.write(2, text[:_MOST]) == len(text)
    except OSError:
        return False


def _relay(reading: int, telling: int) -> None:
    """Say what comes, and tell of each that it was said."""
    with open(reading, "rb") as words:
        while len(head := words.read(4)) == 4:
            text = words.read(int.from_bytes(head, "little"))
            write_all(2, text)
            os.write(telling, b".")
