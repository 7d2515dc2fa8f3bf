"""The idle retry (S0), over three loops: by `reconnecting_resume`, and written by hand.

Its tests with its own names and doubles are in `test_agent_session_runner`.
"""

from __future__ import annotations

from itertools import pairwise

import anyio
import pytest

from streamguard import Activity, IdleTimeoutError, idle_guard, reconnecting_resume, session
from streamguard.testing import (
    ClientFactory,
    FakeClient,
    Script,
    done,
    hang,
    opened,
    say,
    tool_end,
    tool_start,
)
from tests.sessions.backend import Backend
from tests.support import Leftovers, take

WINDOW = 50.0


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


async def test_idle_timeout_retries_and_recovers(loop):
    """S0-31.1: the first client reveals a session and hangs; the second goes on with it."""
    backend = Backend([Script(opened("s-1"), hang()), Script(say("done"), done())])
    left = Leftovers()
    async with chat_with(backend) as chat:
        assert await texts(chat) == ["done"]
    assert backend.clients[0].disconnected
    assert backend.tokens == [None, "s-1"]
    assert backend.prompts == ["Fix it.", "Continue on issue 7."]
    backend.check()
    left.check()


async def test_idle_timeout_gives_up_after_max_retries(loop):
    """S0-31.2: three attempts, every client disconnected, and the original error."""
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


async def test_idle_timeout_always_disconnects_even_on_final_failure(loop):
    """S0-31.3, S0-06: with no retries allowed, too."""
    backend = Backend([Script(hang())])
    async with chat_with(backend, retries=0) as chat:
        with pytest.raises(IdleTimeoutError) as caught:
            await texts(chat)
    assert caught.value.gave_up == "retries"
    assert [client.disconnect_called for client in backend.clients] == [True]
    backend.check()


async def test_idle_timeout_first_turn_no_side_effects_starts_fresh(loop):
    """S0-31.4, S0-16: nothing was said, so the first prompt is sent again."""
    backend = Backend([Script(hang()), Script(say("done"), done())])
    async with chat_with(backend) as chat:
        assert await texts(chat) == ["done"]
    assert backend.tokens == [None, None]
    assert backend.prompts == ["Fix it.", "Fix it."]
    backend.check()


async def test_idle_timeout_first_turn_with_tool_calls_fails_fast(loop):
    """S0-31.5, S0-17: a tool ran, and nobody could go on from there."""
    backend = Backend([Script(tool_start("t-1", "Bash"), tool_end("t-1"), hang())])
    async with chat_with(backend) as chat:
        with pytest.raises(IdleTimeoutError) as caught:
            await texts(chat)
    assert caught.value.gave_up == "unsafe"
    assert "1 tool call occurred without session context" in str(caught.value.__notes__)
    assert len(backend.clients) == 1
    backend.check()


async def test_idle_timeout_non_query_phases_skip_query_block(loop):
    """S0-31.6, S0-21 to S0-23: between turns nothing is opened and nothing sent."""
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


async def test_idle_timeout_backoff_delays(loop):
    """S0-31.7: at once, then after 5 s; the last delay repeats."""
    times = []

    async def opening(point):
        times.append(anyio.current_time())

    backend = Backend([Script(opened("s-1"), hang())], opening=opening)
    async with chat_with(backend, retries=4) as chat:
        with pytest.raises(IdleTimeoutError):
            await texts(chat)
    waits = [after - before for before, after in pairwise(times)]
    assert waits == pytest.approx([180 + delay for delay in (0, 5, 15, 15)], abs=0.01)


# -- S0-31: detection and disconnect, as a session would write its retries by hand ---------------


async def ask(factory, guard_of, attempts):
    """What users wrote before there was `reconnecting_resume`: a client for each attempt."""
    errors = []
    for attempt in range(attempts):
        client = factory()
        async with client:
            await client.query(f"attempt {attempt}")
            try:
                stream = client.receive_response() | guard_of(client)
                return [message async for message in stream], errors
            except IdleTimeoutError as error:
                errors.append(error)
    return None, errors


def guarding(**knobs):
    return lambda client: idle_guard(WINDOW, client=client, **knobs)


async def test_a_hang_is_detected_and_a_new_client_recovers(loop):
    """S0-08, S0-31: the hanging one was disconnected first."""
    hanging = FakeClient(Script(opened("s"), say("a"), hang()))
    well = FakeClient(Script(say("b"), done()))
    factory = ClientFactory(hanging, well)
    messages, errors = await ask(factory, guarding(), attempts=3)
    assert len(messages) == 2
    assert len(factory.create_calls) == 2
    assert hanging.disconnected
    [error] = errors
    assert error.teardown.confirmed
    assert error.verdict.token == "s"


async def test_every_attempt_is_disconnected_the_last_one_too(loop):
    """S0-06, S0-31: before anybody looks at a retry limit."""
    clients = [FakeClient(Script(hang())) for _ in range(3)]
    messages, errors = await ask(ClientFactory(*clients), guarding(), attempts=3)
    assert messages is None
    assert [client.calls.count("disconnect") for client in clients] == [1, 1, 1]
    assert all(error.teardown.disconnect == "returned" for error in errors)


async def test_a_disconnect_that_raises_hides_nothing(loop):
    """S0-10: the next attempt may follow, and knows that the end is not certain."""
    broken = FakeClient(Script(hang()), disconnect_error=OSError("already gone"))
    well = FakeClient(Script(done()))
    messages, errors = await ask(ClientFactory(broken, well), guarding(), attempts=2)
    assert len(messages) == 1
    assert errors[0].teardown.disconnect == "raised"
    assert not errors[0].teardown.confirmed


@pytest.mark.parametrize("shielded", [False, True])
async def test_a_disconnect_that_hangs_is_bounded(loop, shielded):
    """S0-09, S0-33: abandoned at its bound, which is said, rather than waited for."""
    stuck = FakeClient(Script(hang()), disconnect_delay=500, disconnect_shielded=shielded)
    guard = guarding(disconnect_timeout=20)(stuck)
    await stuck.connect("go")
    taken = await take(stuck.receive_response() | guard)
    assert type(taken.error) is IdleTimeoutError
    assert loop.took(taken.elapsed, WINDOW + 20)
    assert taken.error.teardown.disconnect == "abandoned"
    assert not taken.error.teardown.confirmed


async def test_a_slow_disconnect_is_waited_for(loop, form):
    """D2: an SDK's own close may take 20 s to escalate."""
    slow = FakeClient(Script(hang()), disconnect_delay=20, disconnect_shielded=True)
    await slow.connect("go")
    guard = idle_guard(WINDOW, client=slow, disconnect_timeout=300)
    taken = await take(slow.receive_response() | guard, form)
    assert loop.took(taken.elapsed, WINDOW + 20)
    assert slow.disconnected
    assert taken.error.teardown.confirmed
