"""One pytest that has collected its tests; for each mutant it is forked, and the fork runs them with the fault put in.

A fork has a process and a mount namespace of its own, in which the mutated file lies over the real one: what it starts
gets the mutant, too, and ends with it; on the disk nothing changes. Functions that are loaded get the mutated code, so
that nothing is imported twice. What runs at import (constants, defaults, class bodies) needs a pytest of its own.
"""

from __future__ import annotations

import ctypes
import gc
import json
import mmap
import os
import signal
import struct
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Final, Literal

import pytest

from tests.mutation.mutants import ROOT, Mutant, file_of

Outcome = Literal["survived", "failed", "hung", "broken"]

_SELECTION: Final = "STREAMGUARD_MUTATION_SELECTION"
_PROGRESS: Final = "STREAMGUARD_MUTATION_PROGRESS"
_NEW_MOUNTS, _NEW_PIDS = 0x00020000, 0x20000000
_BIND, _PRIVATE = 4096, 16384 | 1 << 18
_DIE_WITH_PARENT: Final = 1
_NO_TEST_RAN: Final = 5


@dataclass(frozen=True)
class Seen:
    """What came of showing a mutant to tests, and which test was the last."""

    outcome: Outcome
    test: str | None
    took: float

    @property
    def noticed(self) -> bool:
        return self.outcome in {"failed", "hung"}


# -- namespaces --------------------------------------------------------------------------------

_libc = ctypes.CDLL(None, use_errno=True)


def _must(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def can_isolate() -> bool:
    """Whether this user may make namespaces: root may."""
    return _waited(_isolated(lambda: 0, None)) == 0


def _isolated(main: Callable[[], int], over: tuple[str, str] | None) -> int:
    """Fork; in namespaces of its own, with a file put over another, call `main`. The fork's pid."""
    outer = os.fork()
    if outer:
        return outer
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _must(_libc.unshare(_NEW_MOUNTS | _NEW_PIDS), "unshare")
        _must(_libc.mount(b"none", b"/", None, _PRIVATE, None), "private mounts")
        if over is not None:
            _must(_libc.mount(over[0].encode(), over[1].encode(), None, _BIND, None), "bind")
        first = os.fork()
        if first == 0:
            _act_as_init(main)
        os._exit(_waited(first) % 256)
    except BaseException as error:  # the fork must never go on as its parent
        os.write(2, f"mutation: {error!r}\n".encode())
        os._exit(98)


def _act_as_init(main: Callable[[], int]) -> None:
    """All below ends with us, and we with our parent."""
    _must(_libc.prctl(_DIE_WITH_PARENT, signal.SIGKILL), "prctl")
    _must(_libc.mount(b"proc", b"/proc", b"proc", 0, None), "proc")
    worker = os.fork()
    if worker == 0:
        os.setsid()
        code = 97
        try:
            code = main()
        finally:
            os._exit(code)
    while True:
        pid, status = os.wait()
        if pid == worker:
            os._exit(os.waitstatus_to_exitcode(status) % 256)


def _waited(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


# -- the fork of a mutant ----------------------------------------------------------------------


class Forks:
    """Lives inside a pytest that has collected."""

    def __init__(self, session: pytest.Session, modules: Sequence[str]) -> None:
        self._session = session
        self._items = {item.nodeid: item for item in session.items}
        self._live = _live_functions({str(file_of(module)) for module in modules})
        gc.collect()
        gc.freeze()  # else each collection in a fork would copy all of this

    @property
    def tests(self) -> list[str]:
        return list(self._items)

    def show(
        self, mutant: Mutant | None, tests: Sequence[str], patience: Callable[[str], float]
    ) -> Seen:
        """Run these, in this order, until one fails, with the mutant in place."""
        patches = [] if mutant is None else self._patches(mutant)
        if mutant is None:
            return self._watched(tests, patience, None, patches)
        with tempfile.NamedTemporaryFile("w", suffix=".py", encoding="utf-8") as file:
            file.write(mutant.text)
            file.flush()
            Path(file.name).chmod(0o644)
            return self._watched(tests, patience, (file.name, str(mutant.file)), patches)

    def _watched(
        self,
        tests: Sequence[str],
        patience: Callable[[str], float],
        over: tuple[str, str] | None,
        patches: list[tuple[FunctionType, CodeType]] | None,
    ) -> Seen:
        began = time.monotonic()
        progress = _Progress()
        if patches is None:
            pid = _isolated(lambda: _run_afresh(tests, progress), over)
        else:
            pid = _isolated(lambda: self._run_here(tests, patches, progress), over)
        at, since, nap = -1, began, 0.002
        while True:
            done, status = os.waitpid(pid, os.WNOHANG)
            number, failed = progress.read()
            test = tests[number - 1] if 0 < number <= len(tests) else None
            if done:
                break
            if number != at:
                at, since = number, time.monotonic()
            if time.monotonic() - since > (patience(test) if test else 90):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return Seen("hung", test, time.monotonic() - began)
            time.sleep(nap)
            nap = min(nap * 1.3, 0.05)
        code = os.waitstatus_to_exitcode(status)
        outcome: Outcome = "survived" if code in {0, _NO_TEST_RAN} else "broken"
        if failed or (patches is None and code in {1, 2, 3, 4}):  # … or what cannot be imported
            outcome = "failed"
        return Seen(outcome, test, time.monotonic() - began)

    def _run_here(
        self,
        tests: Sequence[str],
        patches: list[tuple[FunctionType, CodeType]],
        progress: _Progress,
    ) -> int:
        for function, code in patches:
            function.__code__ = code
        session = self._session
        session.items = items = [self._items[test] for test in tests]
        session.config.pluginmanager.register(_StopAtFailure(progress))
        for number, item in enumerate(items):
            progress.at(number + 1)
            following = items[number + 1] if number + 1 < len(items) else None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        return 0

    def _patches(self, mutant: Mutant) -> list[tuple[FunctionType, CodeType]] | None:
        """What to give which function; None if a fresh pytest is needed."""
        if not mutant.in_function:
            return None
        path = str(mutant.file)
        old = _codes(compile(mutant.file.read_text("utf-8"), path, "exec"))
        new = _codes(compile(mutant.text, path, "exec"))
        changed: list[tuple[FunctionType, CodeType]] = []
        for name, codes in new.items():
            if "<locals>" in name:
                continue  # made anew by what it stands in
            if len(old[name]) != len(codes):
                return None
            for was, now in zip(old[name], codes, strict=True):
                if _same(was, now):
                    continue
                live = self._live[path, name, was.co_firstlineno]
                if not live or was.co_freevars != now.co_freevars:
                    return None
                for function in live:
                    flags = now.co_flags ^ was.co_flags ^ function.__code__.co_flags
                    changed.append((function, now.replace(co_flags=flags)))
        return changed or None


class _Progress:
    """Told by the fork, in memory that both have: the test that runs, and whether it failed."""

    def __init__(self, descriptor: int | None = None) -> None:
        self.descriptor = os.memfd_create("progress") if descriptor is None else descriptor
        if descriptor is None:
            os.ftruncate(self.descriptor, 8)
        self._memory = mmap.mmap(self.descriptor, 8)

    def __del__(self) -> None:
        os.close(self.descriptor)

    def read(self) -> tuple[int, bool]:
        number, failed = struct.unpack("ii", self._memory[:8])
        return number, bool(failed)

    def at(self, number: int) -> None:
        self._memory[:4] = struct.pack("i", number)

    def fail(self) -> None:
        self._memory[4:8] = struct.pack("i", 1)


class _StopAtFailure:
    def __init__(self, progress: _Progress) -> None:
        self._progress = progress

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: Any, call: Any) -> None:
        """Before anything is made of the traceback, which takes its time."""
        if call.excinfo is None or item.get_closest_marker("xfail"):
            return
        if not isinstance(call.excinfo.value, pytest.skip.Exception):
            self._stop()

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self._stop()

    def _stop(self) -> None:
        self._progress.fail()
        os._exit(1)


def _live_functions(files: set[str]) -> dict[tuple[str, str, int], list[FunctionType]]:
    found: dict[tuple[str, str, int], list[FunctionType]] = defaultdict(list)
    for thing in gc.get_objects():
        if isinstance(thing, FunctionType) and thing.__code__.co_filename in files:
            code = thing.__code__
            found[code.co_filename, code.co_qualname, code.co_firstlineno].append(thing)
    return found


def _codes(code: CodeType) -> dict[str, list[CodeType]]:
    found: dict[str, list[CodeType]] = defaultdict(list)
    below = [code]
    while below:
        for constant in below.pop().co_consts:
            if isinstance(constant, CodeType):
                found[constant.co_qualname].append(constant)
                below.append(constant)
    return found


def _same(one: CodeType, other: CodeType) -> bool:
    if (one.co_code, one.co_names, one.co_varnames) != (
        other.co_code,
        other.co_names,
        other.co_varnames,
    ) or len(one.co_consts) != len(other.co_consts):
        return False
    return all(
        _same(a, b)
        if isinstance(a, CodeType) and isinstance(b, CodeType)
        else (type(a), repr(a)) == (type(b), repr(b))
        for a, b in zip(one.co_consts, other.co_consts, strict=True)
    )


# -- a pytest of its own -----------------------------------------------------------------------


def _run_afresh(tests: Sequence[str], progress: _Progress) -> int:
    with tempfile.NamedTemporaryFile("w", prefix="selection", delete=False) as file:
        json.dump(list(tests), file)
    os.set_inheritable(progress.descriptor, True)
    environment = {
        **os.environ,
        _SELECTION: file.name,
        _PROGRESS: str(progress.descriptor),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
    words = ["-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "tests.mutation.forks"]
    os.chdir(ROOT)
    os.execve(sys.executable, [sys.executable, *words, *files], environment)


if _SELECTION in os.environ:
    _tests: list[str] = json.loads(Path(os.environ[_SELECTION]).read_text())
    _progress = _Progress(int(os.environ[_PROGRESS]))

    def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
        known = {item.nodeid: item for item in items}
        items[:] = [known[test] for test in _tests if test in known]

    def pytest_runtest_logstart(nodeid: str) -> None:
        if nodeid in _tests:
            _progress.at(_tests.index(nodeid) + 1)

    def pytest_runtest_logreport(report: Any) -> None:
        if report.failed:
            _progress.fail()
