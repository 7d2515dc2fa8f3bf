"""Every behaviour runs over asyncio, uvloop and trio by the fixture `loop`, in virtual time.

180 s take milliseconds there and are exact. What uvloop does in real time is in
`loops/test_uvloop_in_real_time.py`. An `async def` test runs on the loop that it asks for.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import itertools
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import pytest

from streamguard import activity
from streamguard.backends import facts
from streamguard.evidence import stream_names as streams
from streamguard.sessions import exclusive
from streamguard.testing import VirtualLoop, run_virtual
from tests import sizes  # noqa: F401 - before anybody asks hypothesis for examples

# What is told once in a process would be in the log of whichever test comes first.
facts._told.update(facts.FACTS)

LOOPS = ("loop", "native", "ground")  # the fixtures that run an async test by their `run`

# Real processes, sockets and threads, in real time; all the rest is virtual: `pytest -m "not real"`.
HERE = Path(__file__).parent
REAL = [
    *("ci", "cli", "lines", "loopback", "process", "real", "report", "runner"),
    *(
        "compat/test_subprocess_watchdog.py",
        "backends/test_cli_sessions.py",
        "base/test_windows.py",
        "evidence/test_crashes.py",
        "evidence/test_worktree.py",
    ),
    *("fleet/acceptance", "fleet/test_stores_in_trouble.py", "fleet/test_stores_together.py"),
    *("fleet/test_temporal_engine.py", "fleet/test_temporal_in_trouble.py"),
    *("loops/test_uvloop_in_real_time.py", "sessions/test_processes.py", "sessions/test_web.py"),
    *("docs/test_tutorial.py", "sessions/test_owning_programs.py"),
    *("test_packaging.py", "test_typing.py", "typing"),
]
# Some of them, for a look at all that is real within a minute: `pytest -m "not real or sample"`.
SAMPLE = [
    *("ci", "cli/test_cli.py", "cli/test_demo.py", "lines", "loopback"),
    *("process/test_death.py", "process/test_example.py", "process/test_handles.py"),
    *("runner/test_progress.py", "runner/test_terminal.py", "report/test_report.py"),
]
QUICK, PLAIN = "not real", "not real or sample"
MORE = """\
what needs more than the extra `test` was left out. To have it, too:
    .ci/tools                                  a browser, database servers, agents' command lines; it asks first
    .venv/bin/pip install -e '.[test-all]'     other packages, checkers of types
    .venv/bin/python -m pytest -n 4            all tests, also those in real time"""


@functools.cache
def is_real(path: Path) -> bool:
    return any(path.is_relative_to(HERE / real) for real in REAL)


@functools.cache
def is_sample(path: Path) -> bool:
    return any(path.is_relative_to(HERE / sample) for sample in SAMPLE)


def has_samples(path: Path) -> bool:
    return is_sample(path) or any((HERE / sample).is_relative_to(path) for sample in SAMPLE)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "real: takes real time, as processes, sockets and threads do"
    )
    config.addinivalue_line("markers", "sample: one of those that are real, for a look at them")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """What is not wanted is not even imported."""
    wanted = config.option.markexpr
    if wanted not in (QUICK, PLAIN) or not is_real(collection_path):
        return None
    return True if wanted == QUICK or not has_samples(collection_path) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if is_real(item.path):
            item.add_marker("real")
        if is_sample(item.path):
            item.add_marker("sample")


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if config.option.markexpr == PLAIN:
        terminalreporter.section("more tests")
        terminalreporter.write_line(MORE)


def pytest_collection_finish() -> None:
    """Tests that ask what is left collect garbage, and need not look through all tests for it."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    """Make an async test that asks for a loop a plain one, which pytest then calls as ever."""
    if not any(name in pyfuncitem.fixturenames for name in LOOPS):
        return
    test = pyfuncitem.obj
    if hypothesis := getattr(test, "hypothesis", None):
        if inspect.iscoroutinefunction(hypothesis.inner_test):
            hypothesis.inner_test = _on_its_loop(hypothesis.inner_test)
    elif inspect.iscoroutinefunction(test):
        pyfuncitem.obj = _on_its_loop(test)


def _on_its_loop(test: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
    @functools.wraps(test)
    def run(*args: Any, **fixtures: Any) -> Any:
        loop = next(fixtures[name] for name in LOOPS if name in fixtures)
        return loop.run(functools.partial(test, *args, **fixtures))

    return run


@pytest.fixture(scope="session", autouse=True)
def _signals_are_not_ignored() -> None:
    """What is begun by `nohup`, or in the background, ignores signals, and so would all that it starts.

    What has a handler here is reset there. This process still cares for none but Ctrl-C.
    """
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) == signal.SIG_IGN:
            ctrl_c = number == signal.SIGINT
            signal.signal(number, signal.default_int_handler if ctrl_c else lambda *_: None)


@pytest.fixture(autouse=True)
def _names_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that an earlier test has left to the collector has a name, too."""
    monkeypatch.setattr(activity, "_numbers", itertools.count(1))
    monkeypatch.setattr(streams, "_holders", WeakValueDictionary())


_rooms = itertools.count()


@pytest.fixture(autouse=True)
def _locks_of_its_own(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many tests call their session the same, in many programs at once; and some never let go of it."""
    room = tmp_path_factory.getbasetemp() / f"locks-{next(_rooms)}"
    room.mkdir()
    monkeypatch.setattr(exclusive, "_ROOM", room)


class Loop:
    """One of the event loops. `run` runs an async function on it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def run(self, main: Callable[..., Coroutine[Any, Any, Any]], *args: Any) -> Any:
        if self.name == "asyncio":
            # As most programs do it. `anyio.run`, as the others have it, sets what `asyncio.run`
            # does not, and what is called from a timer would not miss it.
            with asyncio.Runner(loop_factory=VirtualLoop) as runner:
                return runner.run(main(*args))
        return run_virtual(main, *args, backend=self.name)

    def took(self, elapsed: float, seconds: float, *, slack: float = 0.0) -> bool:
        """Whether `elapsed` is `seconds`: never early, and `slack` late where it says so.

        `slack` allows for looks at a pull that is not parked.
        """
        return seconds - 1e-6 <= elapsed <= seconds + slack + 1e-6


@pytest.fixture(params=["asyncio", "uvloop", "trio"])
def loop(request: pytest.FixtureRequest) -> Loop:
    return Loop(request.param)


@pytest.fixture(params=["asyncio", "uvloop"])
def native(request: pytest.FixtureRequest) -> Loop:
    """asyncio's loops only: for what trio does not have, such as a native cancel."""
    return Loop(request.param)


@pytest.fixture(params=["bare", "hosted"])
def form(request: pytest.FixtureRequest) -> str:
    """Both ways to iterate: as it is, and in a block."""
    return str(request.param)
