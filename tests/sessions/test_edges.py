"""What is written wrongly, and what else can come of an attempt."""

from __future__ import annotations

from contextlib import asynccontextmanager

import anyio
import pytest

from streamguard import (
    Activity,
    Backoff,
    CircuitBreaker,
    ConfigError,
    Connection,
    IdleTimeoutError,
    RetryPolicy,
    idle_guard,
    keep_alive,
    reconnecting_resume,
    session,
)
from streamguard.events import GaveUp, OwnerAbandoned
from streamguard.testing import Script, done, fail, hang, opened, say, silence
from tests.sessions.backend import Backend
from tests.support import Events

LOST = ConnectionError("reset")


async def texts(messages):
    return [message.text async for message in messages if hasattr(message, "text")]


# -- written wrongly --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("knobs", "match"),
    [
        ({"retries": -1}, "retries"),
        ({"backoff": ()}, "delays"),
        ({"max_reconnects": 1.5}, "max_reconnects"),
        ({"prompt": 7}, "prompt"),
        ({"dedupe_by": "uuid"}, "dedupe_by"),
        ({"policy": RetryPolicy(), "retries": 3}, "policy="),
        ({"policy": RetryPolicy(), "backoff": (1,)}, "policy="),
    ],
)
def test_knobs_that_cannot_be_used(knobs, match):
    """T12: said where they are written."""
    with pytest.raises(ConfigError, match=match):
        reconnecting_resume(**knobs)


def test_a_policy_and_a_lifetime_cap_go_together():
    """R5: the cap is the session's, whatever the policy."""
    policy = RetryPolicy(idle=Backoff(7))
    settings = reconnecting_resume(policy=policy, max_reconnects=9).plan.reconnecting
    assert settings.policy.idle == Backoff(7)
    assert settings.policy.max_reconnects == 9


@pytest.mark.parametrize(
    ("write", "error", "match"),
    [
        (lambda: session(Script()), TypeError, "piped as it is"),
        (lambda: reconnecting_resume(Script()), TypeError, "function of one ResumePoint"),
        (lambda: session(_open) | 3, TypeError, "unsupported operand"),
        (lambda: session(_open) | (lambda stream: stream), TypeError, "unsupported operand"),
        (lambda: Connection(7), TypeError, "give a stream"),
        (lambda: Connection(Script(), client=7), ConfigError, r"no disconnect\(\)"),
        (lambda: Connection(Script(), process=1), ConfigError, "pid 1"),
        (
            lambda: session(_open) | reconnecting_resume() | reconnecting_resume(retries=3),
            ConfigError,
            "written twice",
        ),
        (
            lambda: Script() | keep_alive(5, str) | reconnecting_resume(),
            TypeError,
            "open it again",
        ),
    ],
)
def test_what_is_no_session(write, error, match):
    """O1, R1"""
    with pytest.raises(error, match=match):
        write()


@asynccontextmanager
async def _open(_point):
    yield Script(say("a"), done())


async def test_operators_in_any_order_and_called(loop):
    """O2: before or after, in one value or in several, by pipe or by call."""
    resume, guard = reconnecting_resume(), idle_guard(60)
    ways = [
        session(_open) | guard | resume,
        session(_open) | resume | guard,
        session(_open) | (guard | resume),
        resume(guard(session(_open))),
        (guard | reconnecting_resume(_open))(Script(say("a"), done())),
        guard(Script(say("a"), done())) | reconnecting_resume(_open),
    ]
    for way in ways:
        async with way as chat:
            assert await texts(chat) == ["a"]


def test_how_they_look():
    """O1: a repr is what one would write."""
    value = session(_open) | idle_guard(60) | reconnecting_resume(retries=3, prompt="Go on.")
    ending = "idle_guard(60) | reconnecting_resume(retries=3, prompt='Go on.')"
    assert repr(value) == f"session({_open!r}) | {ending}"
    assert repr(session(_open)) == f"session({_open!r})"
    assert repr(Script() | keep_alive(5, str)) == f"Script() | keep_alive(5, {str!r})"


async def test_blocks_and_turns_used_wrongly(loop):
    """R1"""
    value = session(_open) | idle_guard(60)
    async with value as chat:
        with pytest.raises(RuntimeError, match="in a block already"):
            async with value:
                pass
        with pytest.raises(TypeError, match="a prompt is a string"):
            chat.ask(7)
        assert (repr(aiter(chat)), repr(chat.ask("x"))) == ("<Turn not begun>",) * 2
        await anext(aiter(chat))
        assert repr(aiter(chat)) == "<Turn under way>"
        await texts(chat)
        assert repr(aiter(chat)) == "<Turn over>"
        assert await texts(chat) == []  # iterated again, it is still over
    async with value as chat:  # one after the other it may be entered
        assert await texts(chat) == ["a"]


# -- prompts ----------------------------------------------------------------------------------------


async def test_a_prompt_function_that_raises(loop):
    """R4: it is the user's, and comes out as it is; the next prompt can be asked."""
    backend = Backend([Script(opened("s"), hang()), Script(say("b"), done())])

    def prompt(point):
        raise KeyError(point.attempt)

    resume = reconnecting_resume(prompt=prompt)
    async with session(backend.open, prompt="go") | idle_guard(60) | resume as chat:
        with pytest.raises(KeyError):
            await texts(chat)
        assert await texts(chat.ask("again")) == ["b"]
    backend.check()


async def test_a_function_that_sends_may_be_a_coroutine_function(loop):
    """R1: as SDKs have it, whose `create(stream=True)` is awaited."""

    async def create(prompt):
        await anyio.sleep(1)
        return Script(say(prompt), done())

    @asynccontextmanager
    async def open_(_point):
        yield Connection(create)

    async with session(open_, prompt="one") | idle_guard(60) as chat:
        assert await texts(chat) == ["one"]
        assert await texts(chat.ask("two")) == ["two"]


# -- the breaker, once more -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "failures"), [("success", 0), ("error", 2), ("cancelled", 1), ("incomplete", 1)]
)
async def test_how_a_turn_ended_is_what_the_breaker_hears(loop, outcome, failures):
    """P3: a turn that the backend calls an error is a failure; what says nothing changes nothing."""
    breaker = CircuitBreaker(clock=anyio.current_time)
    breaker.try_acquire().failed()
    backend = Backend([Script(opened("s"), say("a"), done(outcome))])
    resume = reconnecting_resume(breaker=breaker)
    async with session(backend.open, prompt="go") | resume as chat:
        assert await texts(chat) == ["a"]
    assert breaker.failures == failures
    backend.check()


async def test_a_circuit_that_another_stream_opens_in_our_backoff(loop):
    """P3, R3: the original error is raised, and says so."""
    events = Events()
    breaker = CircuitBreaker(clock=anyio.current_time)
    backend = Backend([Script(opened("s"), hang())])
    resume = reconnecting_resume(backoff=[20], breaker=breaker)
    guard = idle_guard(60, observer=events)
    async with session(backend.open, prompt="go") | guard | resume as chat:
        with anyio.move_on_after(70):
            await texts(chat)
        breaker.isolate()
        with pytest.raises(IdleTimeoutError) as caught:
            await texts(chat)
    assert caught.value.gave_up == "circuit"
    assert [event.reason for event in events.of(GaveUp)] == ["circuit"]
    backend.check()


async def test_a_cancelled_pull_in_the_backoff_goes_on_with_the_next(loop):
    """R2: the delay is not begun anew."""
    backend = Backend([Script(opened("s"), hang()), Script(say("b"), done())])
    resume = reconnecting_resume(backoff=[40])
    start = anyio.current_time()
    async with session(backend.open, prompt="go") | idle_guard(60) | resume as chat:
        got = []
        messages = aiter(chat)
        while not got or hasattr(got[-1], "token"):
            with anyio.move_on_after(7):
                got.append(await anext(messages))
    assert got[-1].text == "b"
    assert loop.took(anyio.current_time() - start, 100)
    backend.check()


# -- deaf in closing --------------------------------------------------------------------------------


class _Deaf:
    """Ignores every cancellation until it is let go."""

    def __init__(self):
        self.released = anyio.Event()

    async def wait(self):
        while not self.released.is_set():
            try:
                with anyio.CancelScope(shield=True):
                    await self.released.wait()
            except anyio.get_cancelled_exc_class():
                pass


@pytest.mark.parametrize("where", ["source", "connection"])
async def test_a_close_that_never_ends_lets_the_consumer_go(loop, where):
    """O6, D5: past all bounds; it is reported, and the session is not resumed."""
    events, deaf = Events(), _Deaf()

    async def stream():
        try:
            async for each in (script := aiter(Script(opened("s"), hang()))):
                yield each
        finally:
            await script.aclose()
            if where == "source":
                await deaf.wait()

    @asynccontextmanager
    async def open_(_point):
        try:
            yield stream()
        finally:
            if where == "connection":
                await deaf.wait()

    start = anyio.current_time()
    guard = idle_guard(60, disconnect_timeout=10, observer=events)
    async with session(open_) | guard | reconnecting_resume() as chat:
        with pytest.raises(IdleTimeoutError) as caught:
            await texts(chat)
    assert anyio.current_time() - start <= 60 + 75
    assert caught.value.gave_up == "unsafe"
    assert len(events.of(OwnerAbandoned)) == 1
    deaf.released.set()
    await anyio.sleep(1)


async def test_a_live_state_over_all_attempts(loop):
    """O8: one activity, whose counts go on."""
    activity = Activity("issue-7")
    backend = Backend([Script(opened("s"), say("a"), hang()), Script(say("b"), done())])
    guard = idle_guard(60, activity=activity)
    async with session(backend.open, prompt="go") | guard | reconnecting_resume() as chat:
        assert chat.activity is activity
        assert repr(chat).startswith("<Chat <Activity 'issue-7'")
        await texts(chat)
    assert (activity.messages, activity.token, activity.status) == (4, "s", "ended")


async def test_a_message_that_came_with_the_consumers_leave_is_not_lost(loop):
    """R2: it waits in the slot for the next pull, over any number of turns of the clock."""
    async with Script(silence(5), say("a"), fail(LOST)) | keep_alive(1000, str) as chat:
        messages = aiter(chat)
        with anyio.move_on_after(5):
            await anext(messages)
        await anyio.sleep(100)
        got = await anext(messages)
        assert got.text == "a"
        with pytest.raises(ConnectionError):
            await anext(messages)
