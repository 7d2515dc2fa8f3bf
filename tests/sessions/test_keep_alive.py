"""O11: something to say in a silence, without disturbing the pull that waits."""

from __future__ import annotations

import random
from contextlib import suppress

import anyio
import pytest

from streamguard import (
    ConfigError,
    IdleTimeoutError,
    idle_guard,
    keep_alive,
    reconnecting_resume,
    session,
)
from streamguard.testing import Script, done, hang, opened, say, silence
from tests.sessions.backend import Backend
from tests.support import Leftovers

PING = b": ping\n\n"


def ping():
    return PING


async def said(messages):
    return [each if each is PING else getattr(each, "text", "") async for each in messages]


async def test_it_speaks_into_each_silence(loop):
    """O11: every so many seconds, and never where a message comes in time."""
    stream = Script(say("a"), silence(14), say("b"), silence(31), say("c"))
    left = Leftovers()
    start = anyio.current_time()
    async with stream | keep_alive(15, ping) as messages:
        assert await said(messages) == ["a", "b", PING, PING, "c"]
    assert loop.took(anyio.current_time() - start, 45)
    left.check()


async def test_a_message_at_the_very_moment_is_not_lost(loop):
    """T3, O11: the message wins, or comes right after."""
    steps = [step for i in range(50) for step in (silence(15), say(str(i)))]
    async with Script(*steps) | keep_alive(15, ping) as messages:
        got = await said(messages)
    assert [each for each in got if each is not PING] == [str(i) for i in range(50)]


@pytest.mark.parametrize("seed", range(20))
async def test_however_pulls_pings_and_messages_fall_together(loop, seed):
    """R2, T3: pulls that are given up, pings and messages at the same instants; nothing is lost."""
    chance = random.Random(seed)

    async def source():
        for i in range(60):
            await anyio.sleep(chance.choice([0, 1, 1, 2, 3]))
            yield i

    every = chance.choice([1, 2, 3])
    async with source() | idle_guard(60) | keep_alive(every, ping) as chat:
        got = []
        messages = aiter(chat)
        with suppress(StopAsyncIteration):
            while True:
                with anyio.move_on_after(chance.choice([0, 1, 2, 5])):
                    got.append(await anext(messages))
                await anyio.sleep(chance.choice([0, 0, 0, 1, 2]))
    assert [each for each in got if each is not PING] == list(range(60))


async def test_it_is_no_sign_of_life(loop):
    """T1: it is ours, so the silence goes on."""
    start = anyio.current_time()
    async with Script(say("a"), hang()) | idle_guard(60) | keep_alive(25, ping) as messages:
        got = []
        with pytest.raises(IdleTimeoutError):
            async for each in messages:
                got.append(each)
    assert got[1:] == [PING, PING]
    assert loop.took(anyio.current_time() - start, 60)


async def test_what_the_consumer_does_with_it_is_not_the_backends_time(loop):
    """T1: a browser that takes its time for each ping does not make the backend idle."""
    stream = Script(silence(100), say("a"))
    async with stream | idle_guard(60) | keep_alive(20, ping) as messages:
        got = []
        async for each in messages:
            got.append(each)
            if each is PING:
                await anyio.sleep(30)
    assert got[0] is PING
    assert got[-1].text == "a"


async def test_it_goes_on_through_teardown_backoff_and_reconnect(loop):
    """O11: with reconnecting, silence is silence, whatever it is for."""
    backend = Backend(
        [Script(opened("s"), hang()), Script(silence(32), say("b"), done())],
        client_options={"disconnect_delay": 20},
    )
    resume = reconnecting_resume(backoff=[40])
    guard = idle_guard(60)
    async with session(backend.open, prompt="go") | guard | resume | keep_alive(15, ping) as c:
        got = await said(c)
    assert got[0] == ""  # the session's opening
    assert got[1:-2] == [PING] * 10  # 60 s idle, 20 s teardown, 40 s backoff, 32 s of work
    assert got[-2:] == ["b", ""]
    backend.check()


async def test_leaving_in_the_midst_of_a_silence(loop):
    """O7: the pull that was kept is cut, and nothing stays."""
    left = Leftovers()
    async with Script(hang()) | keep_alive(15, ping) as messages:
        async for _ in messages:
            break
    left.check()


def test_it_needs_a_task_of_its_own_and_says_so():
    """O11"""
    with pytest.raises(TypeError, match="async with"):
        aiter(Script() | keep_alive(15, ping))


@pytest.mark.parametrize(("every", "make"), [(0, ping), (-1, ping), (15, b"ping"), ("off", ping)])
def test_what_cannot_be_used(every, make):
    """T12"""
    with pytest.raises(ConfigError):
        keep_alive(every, make)


async def test_a_second_turn_of_a_stream_that_was_open(loop):
    """R1: there is nothing to open it with."""
    async with Script(say("a")) | keep_alive(15, ping) as chat:
        assert await said(chat) == ["a"]
        with pytest.raises(TypeError, match="no second turn"):
            await said(chat.ask("more"))


def test_what_it_makes_is_awaited_by_nobody():
    """O11, T12: refused where it is written."""

    async def make():
        return "ping"

    with pytest.raises(ConfigError, match="give it a plain function"):
        keep_alive(15, make)
