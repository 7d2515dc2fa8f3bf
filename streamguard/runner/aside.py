"""Processes of our own beside the command: forked, not executed, so nothing is loaded for them.

What can block is done in one of these: it is spoken to through a pipe that does not block, waited for
within bounds, and killed. Each holds the descriptors that it was given and no other: the end of a
pipe that two hold would tell nobody of a death. Imports the standard library.
"""

from __future__ import annotations

import os
import select
import time

from streamguard.runner import kernel
from streamguard.runner._signal import signal
from streamguard.runner.child import reserve_standard
from streamguard.runner.outbox import is_ready

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# What is typed at a terminal, ends sessions, or is sent to all that has our name: we end with the
# run, and the run hears of these itself.
_NOT_FOR_US = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGTSTP,
    signal.SIGTTIN,
    signal.SIGTTOU,
    signal.SIGPIPE,
)
# The kernel closes what is not open without a cost, but for who has no `close_range`.
_MOST_DESCRIPTORS = 1 << 16

_PORTION = 1 << 17
# What was ours to say or write may take so long when we are gone.
_OUTLIVES = 2.0

# Those that run now, ours to reap: none of them is part of any command's tree.
running: set[int] = set()
# Descriptors that all of them hold.
everywhere: set[int] = set()


def fork(
    work: Callable[[], object],
    keep: Iterable[int] | None,
    *,
    own_session: bool = True,
    outlives: float | None = _OUTLIVES,
    before: Callable[[], Iterable[int]] | None = None,
) -> int:
    """The pid of a process that does `work` and ends. OSError if there can be none.

    It ignores what asks a program to end, works in `/`, and holds none of our descriptors but `keep`
    (None: all of them). Should we be killed, it has `outlives` seconds left (None: as long as it
    likes). `before` is done as the process that we were, with all signals blocked; what it gives is
    kept, too.
    """
    parent = os.getpid()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                _leave(own_session=own_session)
                more = () if before is None else before()
                _withdraw(None if keep is None else {*keep, *more, *everywhere})
                if outlives is not None:
                    _die_with(parent, outlives)
                work()
                code = 0
            finally:
                os._exit(code)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    running.add(pid)
    return pid


def _leave(*, own_session: bool) -> None:
    """In the new process: what is typed at our terminal is not for it."""
    running.clear()
    if own_session:
        os.setsid()
    else:
        os.setpgid(0, 0)


def _withdraw(keep: Iterable[int] | None) -> None:
    """Be nobody's business, and hold nothing that is somebody else's."""
    signal.set_wakeup_fd(-1)
    for number in _NOT_FOR_US:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if keep is not None:
        _close_all_but(keep)
    try:
        reserve_standard()  # what is said there is said to nobody
        os.chdir("/")
    except OSError:
        pass


def _die_with(parent: int, outlives: float) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)

    def end_soon(*_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, outlives)

    signal.signal(signal.SIGUSR1, end_soon)
    kernel.die_with_parent(signal.SIGUSR1)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGUSR1)


def _close_all_but(keep: Iterable[int]) -> None:
    """Close every descriptor but those."""
    low = 0
    for fd in sorted(keep):
        if low < fd:  # an empty range from 0 would be all of them
            os.closerange(low, fd)
        low = fd + 1
    os.closerange(low, _MOST_DESCRIPTORS)


def asked(work: Callable[[], bytes], bound: float, keep: Iterable[int] | None = ()) -> bytes:
    """What `work` gives, done by a process that may not come back; nothing if that takes longer.

    OSError if there can be none. `keep` as for `fork`.
    """
    reading, writing = os.pipe()
    try:
        pid = fork(lambda: os.write(writing, work()), None if keep is None else (*keep, writing))
    except OSError:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    came = b""
    deadline = time.monotonic() + bound
    try:
        while is_ready(reading, select.POLLIN, deadline - time.monotonic()):
            if not (portion := os.read(reading, _PORTION)):
                return came
            came += portion
        return b""
    finally:
        os.close(reading)
        dismiss(pid, 0.1 if came else 0.0)


def outwait(pid: int, bound: float) -> bool:
    """Whether that process of ours has ended, within `bound` seconds; then it is reaped."""
    deadline = time.monotonic() + bound
    pause = 0.0005
    while True:
        if has_ended(pid):
            return True
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        select.poll().poll(min(pause, left) * 1e3)
        pause = min(2 * pause, 0.02)


def has_ended(pid: int) -> bool:
    """Whether it has; then it is reaped. One that somebody else has reaped has ended, too."""
    if pid not in running:
        return True
    try:
        gone, _ = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        gone = pid
    if gone:
        running.discard(pid)
    return bool(gone)


def dismiss(pid: int, bound: float) -> bool:
    """Wait for its end; kill it after `bound` seconds, and wait no longer. Whether it ended by itself."""
    if outwait(pid, bound):
        return True
    os.kill(pid, signal.SIGKILL)  # our own child, not reaped: the pid is its own
    outwait(pid, 0.1)  # one that waits for a disk dies when that answers
    return False
