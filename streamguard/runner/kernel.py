"""What only `prctl` can do. Elsewhere than on Linux each is simply not done, and says so."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

_DEATH_SIGNAL = 1
_DUMPABLE = 4
_NAME = 15
_CHILD_SUBREAPER = 36
_SIGSET = 128  # bytes


def die_with_parent(number: int) -> bool:
    """Have this process sent that signal when the thread that forked it is gone."""
    return _prctl(_DEATH_SIGNAL, number)


def adopt_orphans() -> bool:
    """Become the parent of whatever descends from us and loses its own."""
    return _prctl(_CHILD_SUBREAPER, 1)


def leave_no_core() -> bool:
    """A signal that we send ourselves is a message: it must not write a core file."""
    return _prctl(_DUMPABLE, 0)


def be_called(name: str) -> None:
    """Let this process be shown under that name, with nothing of the command line that it was born with."""
    called = name.encode()
    if not _prctl(_NAME, called):
        return
    try:
        with open("/proc/self/stat", "rb", buffering=0) as file:
            pid, _, told = file.read(4096).partition(b" ")
        fields = told.rpartition(b")")[2].split()
        begin, end = int(fields[45]), int(fields[46])  # where the words of the command line are
        if int(pid) == os.getpid() and 0 < begin < end:
            with open("/proc/self/mem", "r+b", buffering=0) as memory:
                memory.seek(begin)
                memory.write(called[: end - begin - 1].ljust(end - begin, b"\0"))
    except (OSError, IndexError):
        pass


def hear_of_blocked(number: int) -> int | None:
    """A descriptor that is readable as long as that signal, which is blocked, waits for us."""
    if sys.platform != "linux":
        return None
    mask = (1 << number - 1).to_bytes(_SIGSET, sys.byteorder)
    try:
        fd = _call("signalfd", -1, mask, os.O_CLOEXEC)
    except (ImportError, OSError):
        return None
    return fd if fd >= 0 else None


def give_back_memory() -> None:
    """To the system, what was needed for a moment: importing leaves a quarter of a megabyte behind."""
    try:
        _call("malloc_trim", 0)
    except (ImportError, OSError):
        pass  # another C library than glibc


def _prctl(option: int, value: int | bytes) -> bool:
    if sys.platform != "linux":
        return False
    try:
        return _call("prctl", option, value, 0, 0, 0) == 0
    except ImportError:  # a Python that was built without it
        return False


def _call(name: str, *arguments: int | bytes) -> int:
    # What `ctypes` is made of: all of it would be a quarter of what a start takes.
    import _ctypes

    ourselves: Any = None
    address = _ctypes.dlsym(_ctypes.dlopen(ourselves, 0), name)
    result: int = _ctypes.call_function(address, arguments)
    return result
