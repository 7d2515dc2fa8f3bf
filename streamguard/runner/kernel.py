"""What only `prctl` can do. Elsewhere than on Linux each is simply not done, and says so."""

from __future__ import annotations

import os
import sys

_DEATH_SIGNAL = 1
_DUMPABLE = 4
_NAME = 15
_CHILD_SUBREAPER = 36


def load() -> None:
    """Import now what the others need: not between a fork and an exec."""
    if sys.platform == "linux":
        from importlib import import_module

        import_module("ctypes")


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
    if sys.platform != "linux":
        return
    import ctypes

    called = name.encode()
    ctypes.CDLL(None).prctl(_NAME, ctypes.c_char_p(called), 0, 0, 0)
    try:
        with open("/proc/self/stat", "rb", buffering=0) as file:
            pid, _, told = file.read(4096).partition(b" ")
    except OSError:
        return
    fields = told.rpartition(b")")[2].split()
    if int(pid) != os.getpid() or len(fields) < 47:
        return
    begin, end = int(fields[45]), int(fields[46])  # where the words of the command line are
    if 0 < begin < end:
        ctypes.memset(begin, 0, end - begin)
        ctypes.memmove(begin, called, min(len(called), end - begin - 1))


def _prctl(option: int, value: int) -> bool:
    if sys.platform != "linux":
        return False
    import ctypes

    return bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)
