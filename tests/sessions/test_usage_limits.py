"""P2, R8: a usage limit is waited out, for as long as the user has said, with nothing held open."""

from __future__ import annotations

import time
from types import SimpleNamespace

import anyio
import pytest

from streamguard import (
    CircuitBreaker,
    ConfigError,
    RetryPolicy,
    idle_guard,
    reconnecting_resume,
    session,
)
from streamguard.events import GaveUp, RetryRecovered, RetryScheduled
from streamguard.sessions import turns
from streamguard.testing import (
    Script,
    done,
    fail,
    failed,
    opened,
    say,
    tool_end,
    tool_start,
    waiting,
)
from tests.sessions.backend import Backend
from tests.support import Events

HOUR = 3600.0
POLICY = RetryPolicy(random=lambda: 0.0)
NEAR = 30.0  # what the wall clock may go on meanwhile, which is not virtual


class RateLimitedError(Exception):
    """As SDKs raise it."""

    status_code = 429

    def __init__(self, seconds):
        super().__init__("rate limited")
        self.retry_after = seconds


async def texts(messages):
    return [message.text async for message in messages if hasattr(message, "text")]


def patient(seconds=6 * HOUR, **options):
    return reconnecting_resume(policy=POLICY, wait_for_limit=seconds, **options)


def limit(seconds, error_class="rate_limit"):
    """What a command line says of a limit, and ends the turn."""
    return failed(error_class, resets_at=time.time() + seconds)


AGAIN = Script(say("b"), done())


def ways(seconds):
    """How a backend tells of a limit that is over in `seconds`."""
    until = time.time() + seconds
    return {
        "a message": Script(opened("s-1"), limit(seconds), done("error")),
        "the event before it": Script(
            opened("s-1"),
            waiting("rate_limit", "rate_limit", until=until),
            failed("rate_limit"),
            done("error"),
        ),
        "an error": Script(opened("s-1"), fail(RateLimitedError(seconds))),
        "an account's": Script(opened("s-1"), limit(seconds, "permanent"), done("error")),
    }


@pytest.mark.parametrize("way", ways(1))
async def test_a_limit_is_waited_out_and_the_session_goes_on(loop, way):
    """P2: until it is over, beyond every cap, and `idle` is not for it."""
    events = Events()
    backend = Backend([ways(2 * HOUR)[way], AGAIN])
    guard = idle_guard(60, observer=events)
    start = anyio.current_time()
    async with session(backend.open, prompt="go") | guard | patient() as chat:
        assert await texts(chat) == ["b"]
    assert abs(anyio.current_time() - start - 2 * HOUR) < NEAR
    assert backend.tokens == [None, "s-1"]
    assert backend.prompts == ["go", "Continue."]
    [told] = events.of(RetryScheduled)
    assert told.delay_source == "usage_limit"
    assert abs(told.delay - 2 * HOUR) < NEAR
    assert "usage limit: waiting until " in told.text()
    assert len(events.of(RetryRecovered)) == 1
    backend.check()


@pytest.mark.parametrize("way", ["a message", "an error"])
async def test_nothing_is_held_open_meanwhile(loop, way):
    """P2: also not a client that would take another prompt."""
    backend = Backend([ways(2 * HOUR)[way], AGAIN])
    seen = []

    async def look():
        await anyio.sleep(HOUR)
        seen.append((backend.owners, backend.opened - backend.closed, chat.point.completed))

    async with session(backend.open, prompt="go") | idle_guard(60) | patient() as chat:
        async with anyio.create_task_group() as group:
            group.start_soon(look)
            assert await texts(chat) == ["b"]
    assert seen == [(0, 0, False)]
    backend.check()


async def test_without_the_word_nothing_has_changed(loop):
    """P2: five retries at 300 s each, or a turn that has ended with an error."""
    backend = Backend([Script(opened("s"), fail(RateLimitedError(2 * HOUR)))])
    start = anyio.current_time()
    resume = reconnecting_resume(policy=POLICY)
    async with session(backend.open, prompt="go") | idle_guard(60) | resume as chat:
        with pytest.raises(RateLimitedError) as caught:
            await texts(chat)
    assert caught.value.gave_up == "retries"
    assert loop.took(anyio.current_time() - start, 5 * 300)

    backend = Backend([ways(2 * HOUR)["a message"]])
    async with session(backend.open, prompt="go") | idle_guard(60) | resume as chat:
        assert await texts(chat) == []
    assert len(backend.points) == 1
    backend.check()


async def test_a_limit_that_lasts_too_long_is_given_up_at_once(loop):
    """R8: the original error, and it says until when."""
    backend = Backend([Script(opened("s"), fail(RateLimitedError(2 * HOUR)))])
    start = anyio.current_time()
    async with session(backend.open, prompt="go") | idle_guard(60) | patient(HOUR) as chat:
        with pytest.raises(RateLimitedError) as caught:
            await texts(chat)
    assert loop.took(anyio.current_time() - start, 0)
    assert caught.value.gave_up == "deadline"
    assert "(2 h): longer than wait_for_limit=1 h allows" in caught.value.__notes__[0]
    backend.check()


async def test_one_that_was_said_in_a_message_ends_the_turn_as_it_has(loop):
    """R8: told, and not raised: its consumer has got the message."""
    events = Events()
    backend = Backend([ways(2 * HOUR)["a message"]])
    guard = idle_guard(60, observer=events)
    async with session(backend.open, prompt="go") | guard | patient(HOUR) as chat:
        assert await texts(chat) == []
        assert chat.point.completed
    [told] = events.of(GaveUp)
    assert (told.reason, told.escalate) == ("deadline", True)
    assert "wait_for_limit=1 h" in told.text()
    backend.check()


async def test_a_machine_that_slept_goes_on_when_it_wakes(loop, monkeypatch):
    """B5, P2: the limit is over at a time of the day, whatever a monotonic clock has seen of it."""
    slept = []

    def now():
        return time.time() + (3 * HOUR if slept else 0.0)

    async def sleep():
        await anyio.sleep(600)
        slept.append(True)

    backend = Backend([ways(2 * HOUR)["an error"], AGAIN])
    monkeypatch.setattr(turns, "time", SimpleNamespace(time=now))
    start = anyio.current_time()
    async with session(backend.open, prompt="go") | idle_guard(60) | patient() as chat:
        async with anyio.create_task_group() as group:
            group.start_soon(sleep)
            assert await texts(chat) == ["b"]
    assert 600 <= anyio.current_time() - start <= 600 + 60
    backend.check()


async def test_a_turn_that_had_ended_well_is_not_asked_again(loop):
    """T3: whatever the backend says after it."""
    backend = Backend([Script(opened("s"), say("a"), done(), limit(600), done("error"))])
    async with session(backend.open, prompt="go") | idle_guard(60) | patient() as chat:
        assert await texts(chat) == ["a"]
    assert len(backend.points) == 1
    backend.check()


async def test_total_bounds_it(loop):
    """R8: a wait that does not fit is given up now."""
    backend = Backend([Script(opened("s"), fail(RateLimitedError(2 * HOUR)))])
    start = anyio.current_time()
    guard = idle_guard(60, total=HOUR)
    async with session(backend.open, prompt="go") | guard | patient() as chat:
        with pytest.raises(RateLimitedError) as caught:
            await texts(chat)
    assert loop.took(anyio.current_time() - start, 0)
    assert caught.value.gave_up == "deadline"
    backend.check()


async def test_it_costs_no_retry(loop):
    """P2: more limits than there are retries, and a hang after them has its two."""
    scripts = [Script(opened("s-1"), fail(RateLimitedError(600)))] * 8
    backend = Backend([*scripts, AGAIN])
    start = anyio.current_time()
    async with session(backend.open, prompt="go") | idle_guard(60) | patient() as chat:
        assert await texts(chat) == ["b"]
    assert abs(anyio.current_time() - start - 8 * 600) < NEAR
    backend.check()


async def test_waits_add_up_until_something_goes_well(loop):
    """P2, R5"""
    script = Script(opened("s-1"), fail(RateLimitedError(2 * HOUR)))
    backend = Backend([script])
    async with session(backend.open, prompt="go") | idle_guard(60) | patient(5 * HOUR) as chat:
        with pytest.raises(RateLimitedError) as caught:
            await texts(chat)
    assert "of which 4 h were spent" in caught.value.__notes__[0]
    assert len(backend.points) == 3

    backend = Backend([script, AGAIN, script, AGAIN, script, AGAIN], takes_prompts=False)
    async with session(backend.open, prompt="go") | idle_guard(60) | patient(3 * HOUR) as chat:
        for prompt in ("two", "three"):
            assert await texts(chat.ask(prompt)) == ["b"]
    backend.check()


async def test_tools_that_ran_are_not_run_again(loop):
    """R3: without a session there is nothing that could go on."""
    ran = (tool_start("t"), tool_end("t"))
    backend = Backend([Script(*ran, fail(RateLimitedError(2 * HOUR)))])
    async with session(backend.open, prompt="go") | idle_guard(60) | patient() as chat:
        with pytest.raises(RateLimitedError) as caught:
            await texts(chat)
    assert caught.value.gave_up == "unsafe"
    backend.check()


async def test_a_breaker_keeps_others_off_for_its_own_bound_alone(loop):
    """P3: who has not said that it waits for hours is not made to; who has waits for itself."""
    breaker = CircuitBreaker("a", clock=anyio.current_time)
    backend = Backend([Script(opened("s-1"), fail(RateLimitedError(2 * HOUR))), AGAIN])
    left = []

    async def look():
        await anyio.sleep(1)
        left.append(breaker.pause_left)

    start = anyio.current_time()
    resume = patient(breaker=breaker)
    async with session(backend.open, prompt="go") | idle_guard(60) | resume as chat:
        async with anyio.create_task_group() as group:
            group.start_soon(look)
            assert await texts(chat) == ["b"]
    assert abs(anyio.current_time() - start - 2 * HOUR) < NEAR
    assert 290 < left[0] <= 300
    assert breaker.status == "closed"
    backend.check()


async def test_who_leaves_meanwhile_is_free_at_once(loop):
    """O7: a wait is the consumer's own."""
    backend = Backend([ways(2 * HOUR)["a message"], AGAIN])
    start = anyio.current_time()
    with anyio.move_on_after(100) as scope:
        async with session(backend.open, prompt="go") | idle_guard(60) | patient() as chat:
            await texts(chat)
    assert scope.cancelled_caught
    assert loop.took(anyio.current_time() - start, 100)
    backend.check()


def test_the_policy_may_say_it():
    """P2: the same word, and it goes over the policy's."""
    policy = RetryPolicy(wait_for_limit=HOUR)
    assert reconnecting_resume(policy=policy).plan.reconnecting.policy.wait_for_limit == HOUR
    both = reconnecting_resume(policy=policy, wait_for_limit=60)
    assert both.plan.reconnecting.policy.wait_for_limit == 60
    for wrong in (-1, "6 parsecs", True, float("inf")):
        with pytest.raises(ConfigError, match="wait_for_limit"):
            reconnecting_resume(wait_for_limit=wrong)
