"""Signals as something that can be polled, and their state as it was before, for the command.

Every signal that would end us is caught, so that it can be passed on. One that is ignored when we
start stays so, for the command too (a background job's Ctrl-C). CPython itself overwrites SIGPIPE
and SIGXFSZ before any code of ours runs; the command gets their default. Imports the standard library.
"""

from __future__ import annotations

import os

from streamguard.runner import kernel
from streamguard.runner._signal import signal

TYPE_CHECKING = False

if TYPE_CHECKING:
    from types import FrameType

# What ends a process unless it is caught. Each name where this system has it.
_PASSED_ON = (
    "SIGHUP",
    "SIGINT",
    "SIGQUIT",
    "SIGTERM",
    "SIGUSR1",
    "SIGUSR2",
    "SIGALRM",
    "SIGVTALRM",
    "SIGPROF",
    "SIGPOLL",
    "SIGPWR",
    "SIGSTKFLT",
    "SIGXCPU",
)
# These ask a command to end; the others only tell it something.
STOPPING = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM})
_OURS = ("SIGCHLD", "SIGWINCH", "SIGCONT", "SIGTSTP")
_ALL = 1 << 16  # what a pipe holds
_BACKGROUND = ("SIGTTIN", "SIGTTOU")  # we write to a terminal from wherever we are
_OVERWRITTEN = ("SIGPIPE", "SIGXFSZ")


class Wakeups:
    """The signals that came, from a descriptor; in force until the process ends."""

    def __init__(self, *, job_control: bool) -> None:
        self.fd = wakeup_pipe()
        self._caught: list[int] = []
        self._ignored: list[int] = []
        for name in (*_PASSED_ON, *_OURS):
            number = getattr(signal, name, None)
            if number is None or (name == "SIGTSTP" and not job_control):
                continue
            # An ignored SIGCHLD would lose the command's status.
            if signal.getsignal(number) == signal.SIG_IGN and name != "SIGCHLD":
                continue
            signal.signal(number, note)
            self._caught.append(number)
        for name in _BACKGROUND:
            number = getattr(signal, name)
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, signal.SIG_IGN)
                self._ignored.append(number)
        self._mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD, signal.SIGALRM})
        self.stop_fd: int | None = None  # readable when we are to stop
        if signal.SIGTSTP in self._caught:
            self.stop_fd = kernel.hear_of_blocked(signal.SIGTSTP)
        if self.stop_fd is not None:
            # It waits until we are ready for it; and whoever takes it back by a CONT takes it from
            # there, which a stop of our own making could only miss.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTSTP})
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)

    def read(self) -> list[int]:
        """The numbers of the signals that came since the last time.

        Of a storm each once, as of a process that is slow to look, so that none finds the pipe full; but
        a second request to end is another thing than the first.
        """
        try:
            came = os.read(self.fd, _ALL)
        except BlockingIOError:
            return []
        numbers: list[int] = []
        for number in came:
            if numbers.count(number) < (2 if number in STOPPING else 1):
                numbers.append(number)
        return numbers

    def stop(self) -> None:
        """Stop, if that was not taken back meanwhile, until we are told to go on."""
        if self.stop_fd is None:
            os.kill(os.getpid(), signal.SIGSTOP)
            return
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTSTP})
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTSTP})

    def as_before(self) -> None:
        """In the child: every signal as it was when we started, CPython's own changes excepted."""
        for number in (*self._caught, *self._ignored):
            signal.signal(number, signal.SIG_DFL)
        restore_overwritten()
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)


def wakeup_pipe() -> int:
    """A descriptor that brings the number of every signal that is caught."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    return reading


def restore_overwritten() -> None:
    """What CPython ignores by its own decision is for a command to decide."""
    for name in _OVERWRITTEN:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)


def note(number: int, frame: FrameType | None) -> None:
    """Nothing: that it came is in the descriptor."""
