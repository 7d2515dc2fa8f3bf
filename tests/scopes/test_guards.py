"""T7: a guard inside of scopes: its verdicts know where they were made, and neither takes the other's."""

from __future__ import annotations

from contextlib import asynccontextmanager

import anyio
import pytest

from streamguard import (
    Activity,
    DeadlineExceededError,
    IdleTimeoutError,
    idle_guard,
    scope,
    session,
)
from streamguard.errors import Verdict
from streamguard.events import TimedOut
from streamguard.testing import Script, hang, opened, say, silence, tool, tool_start
from tests.conftest import Loop
from tests.scopes.support import names
from tests.support import Disconnect, Events, take


async def test_a_guards_verdict_names_the_scopes_in_force(loop: Loop, form):
    """T7: the effective scope."""
    async with scope("flow", "deploy", timeout=600):
        async with scope("step", "build", timeout=300):
            taken = await take(Script(say("a"), hang()) | idle_guard(60), form)
    assert isinstance(taken.error, IdleTimeoutError)
    verdict = taken.error.verdict
    assert [str(each) for each in verdict.scope] == ["flow 'deploy'", "step 'build'"]
    assert (verdict.fired, verdict.effective) == (None, None)
    assert str(taken.error).startswith("stream-1 (flow 'deploy' > step 'build') idle for")


async def test_without_scopes_the_verdict_names_none(loop: Loop, form):
    taken = await take(Script(hang()) | idle_guard(60), form)
    assert taken.error.verdict.scope == ()
    assert str(taken.error).startswith("stream-1 idle")


async def test_a_scope_that_was_left_before_the_verdict_is_not_named(loop: Loop):
    """A stream begun in one step and read on in the next."""
    stream = Script(say("a"), silence(10), say("b"), hang()) | idle_guard(60)
    async with scope("flow", timeout=600):
        async with scope("step", "one", timeout=300):
            messages = aiter(stream)
            await anext(messages)
        await anext(messages)
        with pytest.raises(IdleTimeoutError) as raised:
            await anext(messages)
    assert [str(each) for each in raised.value.verdict.scope] == ["flow"]


async def test_a_scope_around_a_guarded_stream_ends_it_as_itself(loop: Loop, form):
    """T7: the scope's timeout is not the guard's. Nothing is torn down."""
    disconnect, events = Disconnect(), Events()
    guard = idle_guard(60, disconnect=disconnect, observer=events)
    with pytest.raises(DeadlineExceededError) as raised:
        async with scope("llm_call", timeout=30):
            taken = await take(Script(say("a"), hang()) | guard, form)
            pytest.fail(f"came to an end: {taken}")
    assert names(raised.value) == ("llm_call",) * 3
    assert not disconnect.calls
    assert not events.of(TimedOut)


async def test_a_scopes_verdict_says_what_its_stream_stood_at(loop: Loop, form):
    """S4-14: as the stream's own would have."""
    other = await take(Script(say("x")) | idle_guard(60), form)
    activity = Activity("issue-7", issue=7)
    source = Script(opened("t-1"), tool("Bash", 1), tool_start("2", "Edit"), hang())
    with pytest.raises(DeadlineExceededError) as caught:
        async with scope("step", "build", timeout=30):
            await take(source | idle_guard(60, activity=activity), form)
    error = caught.value
    assert other.error is None
    assert error.activity is activity
    assert error.done == error.verdict.done == activity.done
    assert error.done.tools_run == 2
    verdict = error.verdict
    assert (verdict.messages, verdict.token, verdict.in_flight) == (4, "t-1", ("Edit",))
    assert verdict.first_seen
    assert verdict.labels == {"issue": 7}


async def test_a_scope_of_a_turn_knows_the_session_that_is_pulled_in_it(loop: Loop):
    activity = Activity("issue-7")

    @asynccontextmanager
    async def open_(point):
        yield Script(tool("Bash", 1), hang())

    async with session(open_, prompt="go") | idle_guard(60, activity=activity) as chat:
        with pytest.raises(DeadlineExceededError) as caught:
            async with scope("llm_call", timeout=30):
                async for _ in chat:
                    pass
    assert caught.value.activity is activity
    assert caught.value.done.tools_run == 1


async def test_a_guards_verdict_passes_a_scope_as_it_is(loop: Loop, form):
    """T7: also when the scope's own time is up before the teardown is over."""
    disconnect = Disconnect(seconds=5)
    guard = idle_guard(60, disconnect=disconnect)
    with pytest.raises(IdleTimeoutError):
        async with scope("llm_call", timeout=90):
            taken = await take(Script(say("a"), hang()) | guard, form)
            raise taken.error


async def test_when_scope_and_guard_fall_together_the_scope_wins(loop: Loop, form):
    """T9: against an outer scope the first one wins, and the guard looks thrice."""
    disconnect = Disconnect()
    with pytest.raises(DeadlineExceededError) as raised:
        async with scope("llm_call", timeout=60):
            await take(Script(hang()) | idle_guard(60, disconnect=disconnect), form)
    assert names(raised.value) == ("llm_call",) * 3
    assert not disconnect.calls
    await anyio.sleep(100)  # nothing of the guard's is left to strike here


def test_a_verdict_may_be_made_without_scopes():
    """Who builds one by hand need not know of them."""
    assert Verdict(limit="idle", window=1, elapsed=1).reason.startswith("stream idle for 1 s")
