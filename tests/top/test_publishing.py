"""The library's opt-in to `streamguard top`."""

from __future__ import annotations

import re
import threading
from contextlib import aclosing, asynccontextmanager

import anyio
import pytest

from streamguard import (
    Activity,
    ConfigError,
    idle_guard,
    publishing,
    reconnecting_resume,
    session,
)
from streamguard.process import procfs
from streamguard.testing import Script, done, hang, opened, say, silence, tool, tool_start, usage
from streamguard.top import publisher
from streamguard.top.published import Published, read_all
from streamguard.top.publisher import _Board


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / "streamguard"


async def test_a_stream_is_shown_while_it_is_live(loop):
    board, seen = _Board(), []
    script = Script(opened("s-1"), say("a"), tool_start("t", "Bash"), silence(30), done())
    activity = Activity("coder")
    async with anyio.create_task_group() as tasks:

        async def look():
            await anyio.sleep(10)
            board.look()
            seen.extend(read_all())

        tasks.start_soon(look)
        async for _ in script | idle_guard(60, activity=activity):
            pass
    board.look()
    assert read_all() == []
    (told,) = seen
    assert told["kind"] == "stream"
    assert told["name"] == "coder"
    assert told["state"] == "working"
    assert told["in_flight"] == ["Bash"]
    assert told["messages"] == 3
    assert told["session_id"] == "s-1"
    assert told["limits"] == {"idle": 60, "tools": 7200}
    assert loop.took(told["age"], 10)
    assert loop.took(told["last_message_age"], 10)


async def test_a_file_is_written_again_when_there_is_news(loop, monkeypatch):
    """Of thousands that are silent, nothing is written: who reads it knows how to count on."""
    board, written = _Board(), []

    def write(_file, *, name, messages, **_others):
        if name == "coder":
            written.append(messages)

    monkeypatch.setattr(Published, "write", write)
    activity = Activity("coder")
    stream = aiter(
        Script(say("a"), say("b"), silence(30), done()) | idle_guard(60, activity=activity)
    )
    for _ in range(2):
        await anext(stream)
        for _ in range(5):
            board.look()
    assert written == [1, 2]
    with activity.hold("asked"):
        board.look()
    assert written == [1, 2, 2]
    monkeypatch.setattr(publisher, "_AGAIN", 0.0)
    board.look()  # the hold is over
    board.look()  # somebody may have removed it
    assert written == [1, 2, 2, 2, 2]
    await stream.aclose()


async def test_a_program_is_looked_for_once_however_many_streams_it_has(loop, monkeypatch):
    board, asked, real = _Board(), [], procfs.read_stat
    streams = [aiter(Script(say("a"), hang()) | idle_guard(60)) for _ in range(20)]
    for stream in streams:
        await anext(stream)
    board.look()
    monkeypatch.setattr(procfs, "read_stat", lambda pid: asked.append(pid) or real(pid))
    assert len(read_all()) == 20
    assert len(asked) == 1
    for stream in streams:
        await stream.aclose()


async def test_a_concern_is_shown_while_its_stream_is_live(loop):
    """B2, B4: the latest, by its limit."""
    board, seen = _Board(), []
    calls = (tool("Bash", 1, input="make", outcome="no"), say("a")) * 3
    script = Script(opened("s-1"), *calls, silence(30), usage(input_tokens=9), silence(30), done())
    async with anyio.create_task_group() as tasks:

        async def look():
            for _ in range(3):
                board.look()
                seen.extend(read_all())
                await anyio.sleep(20)

        tasks.start_soon(look)
        async for _ in script | idle_guard(60, repeats=3, tokens=5):
            pass
    assert [told["concern"] for told in seen] == [None, "repeats", "tokens"]


async def test_streams_without_a_name_are_told_apart(loop):
    board = _Board()

    async def one():
        async for _ in Script(say("a"), silence(30), done()) | idle_guard(60):
            pass

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one)
        tasks.start_soon(one)
        await anyio.sleep(10)
        board.look()
        names = {told["name"] for told in read_all()}
        assert len(names) == 2
        assert all(re.fullmatch(r"\w+-\d+", name) for name in names)


async def test_the_attempt_of_a_session_is_shown(loop):
    board, seen = _Board(), []

    @asynccontextmanager
    async def open_it(point):
        board.look()  # as it is between two attempts
        yield Script(opened("s-1"), hang() if point.attempt < 3 else done())

    activity = Activity("coder")
    guard = idle_guard(60, activity=activity) | reconnecting_resume(backoff=(0,))
    async with session(open_it, prompt="go") | guard as chat:
        async for _ in chat:
            board.look()
            seen.extend(told["attempt"] for told in read_all())
    assert activity.attempt == 3
    assert seen == [1, 2, 3, 3]  # the last attempt has a message more: its end


def test_a_block_publishes_and_leaves_nothing(folder):
    """The thread looks at once, and takes its files and itself away."""
    written = threading.Event()

    async def main():
        activity = Activity("coder")

        async def source():
            yield 1
            await anyio.to_thread.run_sync(written.wait)

        async for _ in source() | idle_guard(60, activity=activity):
            with publishing(0.01):
                while not read_all():
                    await anyio.sleep(0.01)
            assert read_all() == []
            written.set()

    anyio.run(main)
    assert list(folder.iterdir()) == []
    assert "streamguard-publishing" not in {thread.name for thread in threading.enumerate()}


def test_once_is_enough():
    with publishing(), pytest.raises(ConfigError, match="in force already"), publishing():
        pass
    with publishing():
        pass


def test_no_interval_is_an_error():
    with pytest.raises(ConfigError, match="every=0"), publishing(0):
        pass


async def test_a_stream_without_a_name_has_its_backends_and_a_number(loop):
    async def claude():
        yield {"type": "system", "subtype": "init", "session_id": "s"}
        await anyio.sleep(60)

    board = _Board()
    async with aclosing(aiter(claude() | idle_guard(60, read="claude"))) as stream:
        await anext(stream)
        board.look()
        (told,) = read_all()
    assert told["backend"] == "claude"
    assert re.fullmatch(r"claude-\d+", told["name"])
