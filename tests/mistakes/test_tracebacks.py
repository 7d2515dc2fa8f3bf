"""What is printed of a verdict: the user's lines first and last, and nothing of our own cancellation."""

from __future__ import annotations

import contextlib
import traceback
from pathlib import Path

import anyio
import pytest

import streamguard
from streamguard import (
    IdleTimeoutError,
    StreamGuardError,
    guarded_call,
    idle_guard,
    reconnecting_resume,
    scope,
    session,
)

OURS = str(Path(streamguard.__file__).parent)


async def silent():
    yield 1
    await anyio.sleep(3600)


class Transport:
    """Makes an error of its own of a cancellation, as many a client does."""

    def __aiter__(self):
        return self

    async def __anext__(self):
        try:
            await anyio.sleep(3600)
        except BaseException:
            raise ConnectionError("the transport was closed") from None


def breaks():
    raise OSError("broken pipe")


@contextlib.asynccontextmanager
async def opened(point):
    yield silent()


@contextlib.asynccontextmanager
async def cannot_connect(point):
    raise OSError("cannot connect")
    yield silent()


@contextlib.asynccontextmanager
async def hangs_in_connecting(point):
    await anyio.sleep(3600)
    yield silent()


async def bare():
    async for _ in silent() | idle_guard(5):
        pass


async def hosted():
    async with silent() | idle_guard(5) as messages:
        async for _ in messages:
            pass


async def total_of_a_block():
    async with silent() | idle_guard(None, total=5) as messages:
        async for _ in messages:
            await anyio.sleep(3600)


async def monitored():
    async with idle_guard(5).monitor() as monitor:
        async for message in silent():
            monitor.saw(message)


async def in_a_session():
    async with session(opened, prompt="x") | idle_guard(5) as chat:
        async for _ in chat:
            pass


async def in_a_session_that_gives_up():
    async with session(opened, prompt="x") | idle_guard(5) | reconnecting_resume() as chat:
        async for _ in chat:
            pass


async def opening():
    async with session(hangs_in_connecting, prompt="x") | idle_guard(5) as chat:
        async for _ in chat:
            pass


async def in_a_scope():
    async with scope("step", "build", timeout=5):
        await anyio.sleep(3600)


# Where each waited, by the function that did.
WAITED_IN = {
    bare: "silent",
    hosted: "silent",
    total_of_a_block: "total_of_a_block",
    monitored: "silent",
    in_a_session: "silent",
    in_a_session_that_gives_up: "silent",
    opening: "hangs_in_connecting",
    in_a_scope: "in_a_scope",
}


async def failing(main):
    with pytest.raises(StreamGuardError) as caught:
        await main()
    return caught.value


@pytest.mark.parametrize("main", WAITED_IN, ids=lambda main: main.__name__)
async def test_what_is_printed_of_a_verdict(loop, main):
    """T7: our cancel is not what went wrong. Where the stream waited is; and no frame of ours ends it."""
    error = await failing(main)
    printed = "".join(traceback.format_exception(error))
    assert "Cancelled" not in printed
    assert "direct cause" not in printed
    assert "During handling" not in printed
    assert f'It was waiting here:\n  File "{__file__}", line ' in printed
    waited = printed.partition("It was waiting here:\n")[2].splitlines()
    assert [line.rpartition(" in ")[2] for line in waited if line.startswith("  File")][-1] == (
        WAITED_IN[main]
    )
    frames = traceback.extract_tb(error.__traceback__)
    assert [frame.name for frame in frames if frame.filename == __file__] == [
        "failing",
        main.__name__,
    ]
    assert sum(OURS in frame.filename for frame in frames) <= 2


async def test_a_call_that_hangs(loop):
    error = await failing(lambda: guarded_call(anyio.sleep(3600), 5))
    assert "Cancelled" not in "".join(traceback.format_exception(error))
    assert error.__cause__ is None


@pytest.mark.parametrize("form", ["bare", "hosted"])
async def test_an_error_of_the_stream_itself_stays_the_cause(loop, form):
    """T7: with its own traceback."""

    async def main():
        if form == "bare":
            async for _ in Transport() | idle_guard(5):
                pass
        else:
            async with Transport() | idle_guard(5) as messages:
                async for _ in messages:
                    pass

    error = await failing(main)
    assert str(error.__cause__) == "the transport was closed"
    frames = traceback.extract_tb(error.__cause__.__traceback__)
    assert (frames[-1].filename, frames[-1].name) == (__file__, "__anext__")


@pytest.mark.parametrize("knob", ["disconnect", "interrupt"])
async def test_what_the_users_functions_raised_is_told(loop, knob):
    """D3: it does not hide the verdict, and is not lost either."""

    async def main():
        async for _ in silent() | idle_guard(5, **{knob: breaks}):
            pass

    error = await failing(main)
    assert type(error) is IdleTimeoutError
    assert f"{knob} raised OSError('broken pipe')" in str(error)
    assert getattr(error.teardown, f"{knob}_error") == "OSError('broken pipe')"
    note = next(note for note in error.__notes__ if note.startswith(knob))
    assert note.startswith(f"{knob} raised OSError('broken pipe') here:\n  File \"{__file__}\"")
    assert note.endswith("in breaks")
    assert error.__cause__ is None


async def test_what_an_opener_raises_is_raised_with_its_own_lines(loop):
    """Without those of ours that lie between the two."""
    with pytest.raises(OSError, match="cannot connect") as caught:
        async with session(cannot_connect, prompt="x") | idle_guard(5) as chat:
            async for _ in chat:
                pass
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert [frame.name for frame in frames if frame.filename == __file__][-1] == "cannot_connect"
    assert sum(OURS in frame.filename for frame in frames) <= 3


async def test_frames_of_a_fault_of_ours_are_kept(loop, monkeypatch):
    """Who reports it has them to show."""
    from streamguard.sessions.opened import OpenedConnection

    def fault(*_):
        raise AssertionError

    monkeypatch.setattr(OpenedConnection, "source_of", fault)
    with pytest.raises(AssertionError) as caught:
        await in_a_session()
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert frames[-1].name == "fault"
