"""Our own end without a goodbye: a fork of ours that ends the command's tree then (D7).

The kernel sends the command itself a signal when we are killed; what the command has started
would live on. The sentinel has no descriptor but the end of a pipe, no terminal and nothing to do
until that pipe closes. A goodbye is a KILL: then it has seen nothing.
"""

from __future__ import annotations

import os

from streamguard.runner._signal import signal

TYPE_CHECKING = False

if TYPE_CHECKING:
    from streamguard.runner.child import Child

# What is sent to sessions and groups, or by hand to all that has our name.
_NOT_FOR_US = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGTSTP)


class Sentinel:
    """On duty from now on, for the tree of `child`."""

    def __init__(self, child: Child, *, mark: str, leads_session: bool, grace: float) -> None:
        reading, self._writing = os.pipe()
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(self._writing)
                _stand_guard(reading, child, mark, grace, leads_session=leads_session)
            finally:
                os._exit(0)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(reading)

    def spare(self) -> None:
        """It is our child, but no orphan of the command's."""
        from streamguard.process import procfs
        from streamguard.process.table import spared

        if (stat := procfs.read_stat(self.pid)) is not None:
            spared[self.pid] = stat.started

    def dismiss(self) -> None:
        """Nobody needs it any more."""
        os.kill(self.pid, signal.SIGKILL)  # our own child, not reaped: the pid is its own
        os.waitpid(self.pid, 0)
        self.close()

    def close(self) -> None:
        """It has ended."""
        os.close(self._writing)


def _stand_guard(
    reading: int, child: Child, mark: str, grace: float, *, leads_session: bool
) -> None:
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in _NOT_FOR_US:
        signal.signal(number, signal.SIG_IGN)
    kept = {reading, child.pidfd}
    for fd in _descriptors():
        if fd not in kept:
            _close(fd)
    for _ in range(3):
        os.open(os.devnull, os.O_RDWR)
    from streamguard.process import blocking
    from streamguard.runner.tree import Tree

    tree = Tree(child, mark=mark, leads_session=leads_session, adopts_orphans=False)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.chdir("/")
    os.read(reading, 1)
    blocking.end(tree.members, grace, 2 * grace + 5)


def _descriptors() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        return list(range(256))


def _close(fd: int) -> None:
    try:
        os.close(fd)
    except OSError:
        pass  # the one that read the folder
