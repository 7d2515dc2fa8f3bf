"""examples/web_stream.py behind a real ASGI server, with a browser that goes away in the middle.

In real time, since the server is a real one; nothing here depends on how much of it passes.
"""

from __future__ import annotations

import importlib.util
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from streamguard import ConfigError
from streamguard.testing import Script, done, fail, hang, opened, say
from tests.sessions.backend import Backend
from tests.support import living_tasks

pytest.importorskip("starlette")
uvicorn = pytest.importorskip("uvicorn")

PATH = Path(__file__).parents[2] / "examples" / "web_stream.py"
PATIENCE = 30.0


@pytest.fixture
def example(monkeypatch):
    spec = importlib.util.spec_from_file_location("web_stream", PATH)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "web_stream", module)
    spec.loader.exec_module(module)
    return module


@asynccontextmanager
async def serving(app) -> AsyncIterator[int]:
    """The app behind uvicorn, in a task of this loop; gives its port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(app, log_level="warning", lifespan="off", loop="none")
        server = uvicorn.Server(config)
        async with anyio.create_task_group() as tg:
            tg.start_soon(server._serve, [listening])
            with anyio.fail_after(PATIENCE):
                while not server.started:
                    await anyio.sleep(0.01)
            try:
                yield listening.getsockname()[1]
            finally:
                server.should_exit = True


@asynccontextmanager
async def request(port: int):
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        await stream.send(b"GET /?prompt=hello HTTP/1.1\r\nHost: localhost\r\n\r\n")
        yield stream


async def until(stream, text: bytes) -> bytes:
    """What comes, up to and with `text`."""
    got = b""
    with anyio.fail_after(PATIENCE):
        while text not in got:
            got += await stream.receive()
    return got


async def eventually(condition) -> None:
    with anyio.fail_after(PATIENCE):
        while not condition():
            await anyio.sleep(0.01)


def test_a_browser_that_reads_to_the_end(example):
    """O11: messages and pings, over a reconnect, and a proper end."""

    async def main():
        lost = Script(opened("s"), say("a"), fail(ConnectionError("reset")))
        backend = Backend([lost, Script(say("b"), done())])
        async with serving(example.app_with(backend.open, every=0.05)) as port:
            async with request(port) as stream:
                got = await until(stream, b"\r\n0\r\n\r\n")
        assert b"200 OK" in got
        # The backoff is a second at least, which is a silence.
        assert b"'a'" in got.partition(b": ping")[0]
        assert b"'b'" in got.partition(b": ping")[2]
        assert backend.prompts == ["hello", "Continue."]
        backend.check()

    anyio.run(main)


@pytest.mark.parametrize("when", ["in a silence", "in the midst of messages"])
def test_a_browser_that_goes_away_in_the_middle(example, when):
    """O7, O11: the session is closed, its client disconnected, and no task is left."""

    async def main():
        steps = [say("x" * 1000)] * 100_000 if when != "in a silence" else [hang()]
        backend = Backend([Script(opened("s"), say("a"), *steps)])
        async with serving(example.app_with(backend.open, every=0.05)) as port:
            before = living_tasks()
            async with request(port) as stream:
                await until(stream, b"'a'")
                assert backend.owners == 1
            await eventually(lambda: backend.closed == 1)
            await eventually(lambda: living_tasks() <= before)
        assert backend.clients[0].disconnect_called
        backend.check()

    anyio.run(main)


def test_an_error_becomes_an_event(example):
    """O11: the status was sent long ago."""

    async def main():
        backend = Backend([Script(opened("s"), fail(ConfigError("no more")))])
        async with serving(example.app_with(backend.open, every=5)) as port:
            async with request(port) as stream:
                got = await until(stream, b"event: error")
        assert b"200 OK" in got
        backend.check()

    anyio.run(main)


def test_the_backends_own_error_becomes_an_event_and_its_text_stays_here(example):
    """O11: a browser is told that it failed, and nothing that may be private."""

    async def main():
        backend = Backend([Script(opened("s"), fail(TypeError("private")))])
        async with serving(example.app_with(backend.open, every=5)) as port:
            async with request(port) as stream:
                got = await until(stream, b"\r\n0\r\n\r\n")
        assert b'event: error\ndata: "the agent failed"' in got
        assert b"private" not in got
        backend.check()

    anyio.run(main)
