"""Starting the command: forked and executed by hand, so that nothing is imported for it.

It gets a session of its own, or stays in ours (`--foreground`), and its signals as they were when
we started. What kept it from running comes back through a pipe that a successful exec closes.
Imports the standard library and its neighbours.
"""

from __future__ import annotations

import errno
import os

from streamguard._base.variables import MARK
from streamguard.runner.result import CANNOT_RUN, NOT_FOUND
from streamguard.runner.wakeups import restore_overwritten

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Never

    from streamguard.runner.wakeups import Wakeups

_NEXT_FOLDER = (errno.ENOENT, errno.ENOTDIR, errno.EACCES)
# What CPython itself may have set, and to what (PEP 538).
_LOCALE = "LC_CTYPE"
_COERCED = ("C.UTF-8", "C.utf8", "UTF-8")


class CannotRunError(Exception):
    """The command could not be executed; `code` is what a shell would say."""

    def __init__(self, command: str, number: int) -> None:
        hint = ""
        if number == errno.ENOENT and command.startswith("-"):
            hint = "; options come before the --, the command after it"
        elif number == errno.ENOENT and " " in command:
            hint = "; it is one word: leave out the quotes, or say sh -c '...'"
        elif number == errno.ENOENT and "/" not in command:
            hint = "; is it on the PATH?"
        super().__init__(f"cannot run {command!r}: {os.strerror(number)}{hint}")
        self.code = NOT_FOUND if number == errno.ENOENT else CANNOT_RUN


class NotBegunError(CannotRunError):
    """It was not even tried, because something else is wrong; the text says what."""

    def __init__(self, why: str, code: int) -> None:
        Exception.__init__(self, why)
        self.code = code


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


class Start:
    """All that it takes to start the command; `group` is joined, or None for a session of its own."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        wakeups: Wakeups,
        ends: Ends,
        *,
        group: int | None,
        closed: frozenset[int],
    ) -> None:
        self.command = command
        self.environment = environment
        self.wakeups = wakeups
        self.ends = ends
        self.group = group
        self.closed = closed

    def fork(self, met: Callable[[int], None]) -> int:
        """A descriptor that brings an error number, or its end when the command runs.

        `met` is told the pid before the command is executed: what runs may stop or kill its parent at
        once. All signals must be blocked meanwhile. OSError if there can be no further process.
        """
        told, telling = os.pipe()
        held, let_go = os.pipe()
        pid = os.fork()
        if pid == 0:
            number = errno.EINVAL
            try:
                os.close(let_go)
                if not os.read(held, 1):
                    os._exit(CANNOT_RUN)  # nobody is left who knows of us
                self._become()
                self.wakeups.as_before()
                number = _execute(self.command, self.environment)
            except OSError as error:
                number = error.errno or number
            finally:
                os.write(telling, str(number).encode())
                os._exit(CANNOT_RUN)
        os.close(telling)
        os.close(held)
        met(pid)
        try:
            os.write(let_go, b".")
        except BrokenPipeError:
            pass  # somebody has killed it already: `told` ends, and its parent will know
        os.close(let_go)
        return told

    def _become(self) -> None:
        if self.group is None:
            os.setsid()
        else:
            os.setpgid(0, self.group)
        if self.ends.terminal is not None:
            import fcntl
            import termios

            fcntl.ioctl(self.ends.terminal, termios.TIOCSCTTY, 0)
        for number, fd in enumerate(self.ends.standard):
            if fd is not None:
                os.dup2(fd, number)
            elif number in self.closed:
                os.close(number)


def reserve_standard() -> frozenset[int]:
    """Make sure that no pipe of ours becomes descriptor 0, 1 or 2; those that were closed."""
    closed: set[int] = set()
    while (fd := _nothing()) <= 2:
        closed.add(fd)
    os.close(fd)
    return frozenset(closed)


def _nothing() -> int:
    """A descriptor that nobody wants anything of."""
    try:
        return os.open(os.devnull, os.O_RDWR)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise
    reading, writing = os.pipe()  # in a bare root there is no /dev
    os.close(writing)
    return reading


def environment_given() -> dict[str, str]:
    """Our environment as it was given to us: without what CPython has put there for itself."""
    environment = dict(os.environ)
    if environment.get(_LOCALE) in _COERCED and (given := _given()):
        if _LOCALE in given:
            environment[_LOCALE] = given[_LOCALE]
        else:
            del environment[_LOCALE]
    return environment


def _given() -> dict[str, str]:
    """What the kernel says that we were started with; empty where nothing tells."""
    try:
        with open("/proc/self/environ", "rb", buffering=0) as file:
            entries = file.read(1 << 22).split(b"\0")
    except OSError:
        return {}
    pairs = (os.fsdecode(entry).partition("=") for entry in entries if entry)
    return {name: value for name, _, value in pairs}


def marked(environment: Mapping[str, str]) -> dict[str, str]:
    """With a mark by which what descends from the command is found again, should its keeper be lost.

    As `process.marked_env`, which is not imported here: the command's start would pay for its room.
    """
    return {**environment, MARK: os.urandom(16).hex()}


def become(command: Sequence[str]) -> Never:
    """Be the command from now on. CannotRunError if that is not possible."""
    restore_overwritten()
    raise CannotRunError(command[0], _execute(command, environment_given()))


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
