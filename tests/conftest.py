"""Every behaviour runs over asyncio, uvloop and trio by the fixture `loop`.

asyncio and trio run in virtual time, where 180 s take milliseconds and are exact. uvloop has no
virtual time, so there a second lasts `unit` real seconds, and times are checked within bounds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from streamguard import attempt, teardown
from streamguard.testing import run_virtual


class Loop:
    """One of the event loops. `run` runs an async function on it; `s(180)` is 180 seconds."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_virtual = name != "uvloop"
        self.unit = 1.0 if self.is_virtual else 0.001

    def run(self, main: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        if self.name == "uvloop":
            options = {"use_uvloop": True}
            return anyio.run(main, *args, backend="asyncio", backend_options=options)
        return run_virtual(main, *args, backend=self.name)

    def s(self, seconds: float) -> float:
        """`seconds` on this loop's scale."""
        return seconds * self.unit

    def took(self, elapsed: float, seconds: float, *, slack: float = 0.0) -> bool:
        """Whether `elapsed` is `seconds` on this loop: exactly in virtual time.

        `slack` (in seconds of this loop's scale) allows for looks at a pull that is not parked.
        In real time never early, and late by what a busy machine may take.
        """
        if self.is_virtual:
            return seconds - 1e-6 <= elapsed <= seconds + slack + 1e-6
        return self.s(seconds) - 0.002 <= elapsed <= self.s(seconds + slack) + 2.0


# A second is a millisecond there, and a busy machine may lose some: one that fails is asked again.
UVLOOP = pytest.param("uvloop", marks=pytest.mark.flaky(reruns=3))


@pytest.fixture(params=["asyncio", UVLOOP, "trio"])
def loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Loop:
    loop = Loop(request.param)
    if not loop.is_virtual:
        # Real time: short enough for a test, long enough for a pull on a busy machine.
        monkeypatch.setattr(attempt, "UNWINDING", 0.5)
        monkeypatch.setattr(teardown, "UNWINDING", 0.5)
    return loop


@pytest.fixture(params=["bare", "hosted"])
def form(request: pytest.FixtureRequest) -> str:
    """Both ways to iterate: as it is, and in a block."""
    return str(request.param)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Real processes, by the hundred, beside other tests: a machine may be too busy for once."""
    for item in items:
        if "/tests/process/" in item.path.as_posix():
            item.add_marker(pytest.mark.flaky(reruns=3, reruns_delay=1))
