"""The seven tests of seed 000, over three loops in virtual time; its waits, not its mocks."""

from __future__ import annotations

from itertools import pairwise

import anyio
import pytest

from streamguard import Activity, IdleTimeoutError, idle_guard, reconnecting_resume, session
from streamguard.testing import Script, done, hang, opened, say, tool_end, tool_start
from tests.resume.backend import Backend
from tests.support import Leftovers


def chat_with(backend, **options):
    activity = Activity("issue-7", issue_id="7")
    guard = idle_guard(180, activity=activity)
    resume = reconnecting_resume(
        prompt="Continue on issue {issue_id}.",
        **{"backoff": (0, 5, 15), **options},
    )
    return session(backend.open, prompt="Fix it.") | guard | resume


async def texts(messages):
    return [message.text async for message in messages if hasattr(message, "text")]


def test_idle_timeout_retries_and_recovers(loop):
    """S0-31.1: the first client reveals a session and hangs; the second goes on with it."""

    async def main():
        backend = Backend([Script(opened("s-1"), hang()), Script(say("done"), done())])
        left = Leftovers()
        async with chat_with(backend) as chat:
            assert await texts(chat) == ["done"]
        assert backend.clients[0].disconnected
        assert backend.tokens == [None, "s-1"]
        assert backend.prompts == ["Fix it.", "Continue on issue 7."]
        backend.check()
        left.check()

    loop.run(main)


def test_idle_timeout_gives_up_after_max_retries(loop):
    """S0-31.2: three attempts, every client disconnected, and the original error."""

    async def main():
        backend = Backend([Script(opened("s-1"), hang())])
        left = Leftovers()
        async with chat_with(backend) as chat:
            with pytest.raises(IdleTimeoutError) as caught:
                await texts(chat)
        assert caught.value.gave_up == "retries"
        assert [attempted.attempt for attempted in caught.value.attempts] == [1, 2, 3]
        assert caught.value.teardown.confirmed
        assert len(backend.clients) == 3
        assert all(client.disconnect_called for client in backend.clients)
        backend.check()
        left.check()

    loop.run(main)


def test_idle_timeout_always_disconnects_even_on_final_failure(loop):
    """S0-31.3, S0-06: with no retries allowed, too."""

    async def main():
        backend = Backend([Script(hang())])
        async with chat_with(backend, retries=0) as chat:
            with pytest.raises(IdleTimeoutError) as caught:
                await texts(chat)
        assert caught.value.gave_up == "retries"
        assert [client.disconnect_called for client in backend.clients] == [True]
        backend.check()

    loop.run(main)


def test_idle_timeout_first_turn_no_side_effects_starts_fresh(loop):
    """S0-31.4, S0-16: nothing was said, so the first prompt is sent again."""

    async def main():
        backend = Backend([Script(hang()), Script(say("done"), done())])
        async with chat_with(backend) as chat:
            assert await texts(chat) == ["done"]
        assert backend.tokens == [None, None]
        assert backend.prompts == ["Fix it.", "Fix it."]
        backend.check()

    loop.run(main)


def test_idle_timeout_first_turn_with_tool_calls_fails_fast(loop):
    """S0-31.5, S0-17: a tool ran, and nobody could go on from there."""

    async def main():
        backend = Backend([Script(tool_start("t-1", "Bash"), tool_end("t-1"), hang())])
        async with chat_with(backend) as chat:
            with pytest.raises(IdleTimeoutError) as caught:
                await texts(chat)
        assert caught.value.gave_up == "unsafe"
        assert "1 tool call occurred without session context" in str(caught.value.__notes__)
        assert len(backend.clients) == 1
        backend.check()

    loop.run(main)


def test_idle_timeout_non_query_phases_skip_query_block(loop):
    """S0-31.6, S0-21 to S0-23: between turns nothing is opened and nothing sent."""

    async def main():
        backend = Backend([(Script(opened("s-1"), done()), Script(say("again"), done()))])
        async with chat_with(backend) as chat:
            await anyio.sleep(1000)  # nobody asked yet
            assert backend.points == []
            await texts(chat)
            await anyio.sleep(1000)  # the gate runs
            assert backend.prompts == ["Fix it."]
            assert await texts(chat.ask("The gate says no.")) == ["again"]
        assert backend.prompts == ["Fix it.", "The gate says no."]
        assert len(backend.clients) == 1
        backend.check()

    loop.run(main)


def test_idle_timeout_backoff_delays(loop):
    """S0-31.7: at once, then after 5 s; the last delay repeats."""

    async def main():
        times = []

        async def opening(point):
            times.append(anyio.current_time())

        backend = Backend([Script(opened("s-1"), hang())], opening=opening)
        async with chat_with(backend, retries=4) as chat:
            with pytest.raises(IdleTimeoutError):
                await texts(chat)
        waits = [after - before for before, after in pairwise(times)]
        assert waits == pytest.approx([180 + delay for delay in (0, 5, 15, 15)], abs=0.01)

    loop.run(main)
