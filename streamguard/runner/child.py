"""Starting the command: forked and executed by hand, so that nothing is imported for it.

It gets a session of its own, or stays in ours (`--foreground`); its signals as they were when we
started; and an end of its own should we be killed. What kept it from running comes back through a
pipe that a successful exec closes. Imports the standard library and its neighbours.
"""

from __future__ import annotations

import errno
import os

from streamguard.runner import kernel
from streamguard.runner.wakeups import restore_overwritten

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Never

    from streamguard.runner.wakeups import Wakeups

# The same name as in process.procfs, which the command's start does not import.
MARK = "STREAMGUARD_TREE"

_NOT_FOUND = 127
_CANNOT_RUN = 126
_NEXT_FOLDER = (errno.ENOENT, errno.ENOTDIR, errno.EACCES)


class CannotRunError(Exception):
    """The command could not be executed; `code` is what a shell would say."""

    def __init__(self, command: str, number: int) -> None:
        is_a_line = number == errno.ENOENT and " " in command
        hint = "; it is one word: leave out the quotes, or say sh -c '...'" if is_a_line else ""
        super().__init__(f"cannot run {command!r}: {os.strerror(number)}{hint}")
        self.code = _NOT_FOUND if number == errno.ENOENT else _CANNOT_RUN


class Ends:
    """The descriptors that become the child's 0, 1 and 2; None: it shares ours."""

    def __init__(
        self,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        terminal: int | None = None,
    ) -> None:
        self.standard = (stdin, stdout, stderr)
        self.terminal = terminal


class Child:
    """The process of the command: `status` is None until it was reaped."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.status: int | None = None  # as `os.waitpid` gives it
        self.pidfd: int | None = None
        try:
            self.pidfd = os.pidfd_open(pid)
        except (AttributeError, OSError):
            pass  # without one it is known by its start time

    @property
    def is_dead(self) -> bool:
        return self.status is not None

    def close(self) -> None:
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None


def reserve_standard() -> frozenset[int]:
    """Make sure that no pipe of ours becomes descriptor 0, 1 or 2; those that were closed."""
    closed: set[int] = set()
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        closed.add(fd)
    os.close(fd)
    return frozenset(closed)


def marked(environment: Mapping[str, str]) -> dict[str, str]:
    """With a mark by which everything that descends from the command is found again (D4)."""
    return {**environment, MARK: os.urandom(16).hex()}


def start(
    command: Sequence[str],
    environment: Mapping[str, str],
    wakeups: Wakeups,
    ends: Ends,
    *,
    own_session: bool,
    death_signal: int,
    closed: frozenset[int] = frozenset(),
) -> Child:
    """The command, running. CannotRunError if it does not."""
    told, telling = os.pipe()
    ourselves = os.getpid()
    if death_signal:
        kernel.load()
    mask = wakeups.hold_back()
    try:
        pid = os.fork()
        if pid == 0:
            number = errno.EINVAL
            try:
                _become(ends, closed, own_session=own_session)
                if death_signal:
                    kernel.die_with_parent(death_signal)
                    if os.getppid() != ourselves:
                        os._exit(_CANNOT_RUN)
                wakeups.as_before()
                number = _execute(command, environment)
            except OSError as error:
                number = error.errno or number
            finally:
                os.write(telling, str(number).encode())
                os._exit(_CANNOT_RUN)
    finally:
        wakeups.let_in(mask)
        os.close(telling)
    child = Child(pid)
    with open(told, "rb", buffering=0) as pipe:
        failure = pipe.read()
    if failure:
        os.waitpid(pid, 0)
        child.close()
        raise CannotRunError(command[0], int(failure))
    return child


def become(command: Sequence[str]) -> Never:
    """Be the command from now on. CannotRunError if that is not possible."""
    restore_overwritten()
    raise CannotRunError(command[0], _execute(command, os.environ))


def _become(ends: Ends, closed: frozenset[int], *, own_session: bool) -> None:
    if own_session:
        os.setsid()
    if ends.terminal is not None:
        import fcntl
        import termios

        fcntl.ioctl(ends.terminal, termios.TIOCSCTTY, 0)
    for number, fd in enumerate(ends.standard):
        if fd is not None:
            os.dup2(fd, number)
        elif number in closed:
            os.close(number)


def _execute(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Become the command; the error number if that is not possible."""
    name = command[0]
    if "/" in name:
        return _try(name, command, environment)
    worst = errno.ENOENT
    for folder in environment.get("PATH", os.defpath).split(os.pathsep) if name else ():
        number = _try(os.path.join(folder or ".", name), command, environment)
        if number not in _NEXT_FOLDER:
            return number
        if number == errno.EACCES:
            worst = number
    return worst


def _try(path: str, command: Sequence[str], environment: Mapping[str, str]) -> int:
    try:
        os.execve(path, list(command), environment)  # noqa: S606 - what we are for
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            return error.errno or errno.EINVAL
    try:  # a script without a first line that names its shell
        os.execve("/bin/sh", ["sh", path, *command[1:]], environment)  # noqa: S606 - as above
    except OSError as error:
        return error.errno or errno.EINVAL
