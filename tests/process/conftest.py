"""Processes live in real time: here the fixture `loop` has no virtual one."""

from __future__ import annotations

import anyio.lowlevel
import pytest

from tests.process.backends import Backends, open_fds


class RealLoop:
    """One of the event loops, in real time."""

    def __init__(self, name):
        self.name = name
        self.is_asyncio = name != "trio"

    def run(self, main, *args):
        if self.name == "uvloop":
            options = {"use_uvloop": True}
            return anyio.run(main, *args, backend="asyncio", backend_options=options)
        return anyio.run(main, *args, backend=self.name)


@pytest.fixture(scope="package", autouse=True)
def warm():
    """uvloop opens two descriptors at its first run in a process, and keeps them."""
    RealLoop("uvloop").run(anyio.lowlevel.checkpoint)


@pytest.fixture(params=["asyncio", "uvloop", "trio"])
def loop(request):
    return RealLoop(request.param)


@pytest.fixture
def backends():
    """Backends for one test. It must leave no descriptor open; what it leaves alive is ended."""
    before = open_fds()
    backends = Backends()
    yield backends
    backends.clear()
    assert open_fds() <= before
