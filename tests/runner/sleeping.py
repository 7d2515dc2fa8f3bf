"""`python -m tests.runner.sleeping PIPE WORDS...`: our command on a machine that sleeps when it is told to.

A line in the named pipe PIPE is a wake: so many seconds had been slept.
"""

from __future__ import annotations

import os
import sys

from streamguard._base import waking


class Wake:
    """In the place of the timer: readable when the machine has woken."""

    slept = 0.0

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def fileno(self) -> int:
        return self._fd

    def read(self) -> None:
        Wake.slept += sum(map(float, os.read(self._fd, 4096).split()))

    def close(self) -> None:
        os.close(self._fd)


if __name__ == "__main__":
    path = sys.argv.pop(1)
    waking.slept = lambda: Wake.slept
    waking.wake_timer = lambda: Wake(path)
    from streamguard.cli import main

    sys.exit(main())
