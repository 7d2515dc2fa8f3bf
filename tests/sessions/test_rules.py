"""R1 to R9, one by one, over three loops in virtual time."""

from __future__ import annotations

from contextlib import asynccontextmanager
from itertools import pairwise

import anyio
import pytest

from streamguard import (
    Activity,
    Backoff,
    CircuitBreaker,
    CircuitOpenError,
    ConfigError,
    Connection,
    DeadlineExceededError,
    IdleTimeoutError,
    ProcessExitedError,
    ResumePoint,
    RetryPolicy,
    StreamTruncatedError,
    ToolTimeoutError,
    idle_guard,
    idle_timeout,
    reconnecting_resume,
    scope,
    session,
)
from streamguard.events import (
    AttemptEnded,
    AttemptStarted,
    CloseFailed,
    GaveUp,
    Reconnected,
    RetryRecovered,
    RetryScheduled,
    StreamStarted,
)
from streamguard.testing import (
    Script,
    done,
    fail,
    failed,
    hang,
    holds_scope,
    holds_task_group,
    opened,
    pings,
    repeat,
    say,
    silence,
    tool_end,
    tool_start,
)
from tests.sessions.backend import Backend
from tests.support import Events, Leftovers

LOST = ConnectionError("reset by peer")


async def texts(messages):
    return [message.text async for message in messages if hasattr(message, "text")]


def steady_policy(**options):
    """The defaults without chance."""
    return RetryPolicy(random=lambda: 0.0, **options)


# -- R1: what a session is -----------------------------------------------------------------------


@pytest.mark.parametrize("takes_prompts", [True, False])
async def test_every_prompt_is_a_turn(loop, takes_prompts):
    """R1: over one connection if it takes prompts, else over one for each, with the token."""
    turns = (Script(opened("s-1"), say("a"), done()), Script(say("b"), done()))
    scripts = [turns] if takes_prompts else list(turns)
    backend = Backend(scripts, takes_prompts=takes_prompts)
    left = Leftovers()
    async with session(backend.open, prompt="one") | idle_guard(60) as chat:
        assert await texts(chat) == ["a"]
        assert await texts(chat.ask("two")) == ["b"]
    assert backend.prompts == ["one", "two"]
    assert backend.tokens == ([None] if takes_prompts else [None, "s-1"])
    backend.check()
    left.check()


async def test_a_bare_stream_may_be_opened(loop):
    """R1: no Connection is needed where there is nothing to say about it."""
    points = []

    @asynccontextmanager
    async def open_(point):
        points.append(point)
        yield Script(say("a"), fail(LOST)) if point.attempt == 1 else Script(say("b"), done())

    policy = steady_policy(unknown=Backoff(0))
    async with session(open_) | reconnecting_resume(policy=policy) as chat:
        with pytest.raises(ConnectionError):
            await texts(chat)
    assert len(points) == 1  # something was delivered, and there is no token


async def test_an_open_stream_reconnects_by_open(loop):
    """R1, O1: what is written beside it ends the first stream, and no later one."""
    disconnects = []
    backend = Backend([Script(opened("s-1"), hang()), Script(say("b"), done())], hands=False)
    first = Script(opened("s-1"), say("a"), hang())
    guard = idle_guard(60, disconnect=lambda: disconnects.append(anyio.current_time()))
    async with first | guard | reconnecting_resume(backend.open) as chat:
        assert await texts(chat) == ["a", "b"]
    assert backend.tokens == ["s-1", "s-1"]
    assert [point.attempt for point in backend.points] == [2, 3]
    assert len(disconnects) == 1
    backend.check()


def test_bare_iteration_is_a_type_error_that_says_so():
    """R1: a session owns clients."""
    backend = Backend([Script()])
    with pytest.raises(TypeError, match="async with"):
        aiter(session(backend.open) | idle_guard(60))


def test_nobody_knows_how_to_open_a_plain_stream_again():
    """R1"""
    with pytest.raises(TypeError, match=r"reconnecting_resume\(open\)"):
        Script() | idle_guard(60) | reconnecting_resume()


def test_a_session_has_one_open():
    """R1: two would be one too many."""
    backend = Backend([Script()])
    with pytest.raises(ConfigError, match="one of the two"):
        session(backend.open) | reconnecting_resume(backend.open)


@pytest.mark.parametrize(
    ("open_", "match"),
    [
        (lambda point: Script(), "no async context manager"),
        (lambda point: _coroutine(), "no async context manager"),
        (lambda point: _Yielding(7), "yielded 7, which is no stream"),
    ],
)
async def test_an_open_that_is_none(loop, open_, match):
    """R1: what was forgotten is said, and nothing is tried again."""
    async with session(open_) | idle_guard(60) | reconnecting_resume() as chat:
        with pytest.raises(TypeError, match=match) as caught:
            await texts(chat)
    assert caught.value.gave_up == "class"


async def _coroutine():
    raise AssertionError  # it is never awaited


class _Yielding:
    def __init__(self, value):
        self.value = value

    async def __aenter__(self):
        return self.value

    async def __aexit__(self, *_):
        pass


async def test_no_prompt_to_send(loop):
    """R1, S0-21: iterating a chat without a first prompt is a mistake."""
    backend = Backend([(Script(say("a"), done()),)])
    async with session(backend.open) | reconnecting_resume() as chat:
        with pytest.raises(TypeError, match="no prompt to send"):
            await texts(chat)
    async with session(backend.open) | reconnecting_resume() as chat:
        assert await texts(chat.ask("go")) == ["a"]
    backend.check()


async def test_a_session_begins_where_another_ended(loop):
    """R1: `chat.point` is all that must be kept."""
    backend = Backend([Script(opened("s-1"), say("a"), done()), Script(say("b"), done())])
    async with session(backend.open, prompt="one") as chat:
        await texts(chat)
        kept = chat.point
    assert (kept.token, kept.attempt, kept.delivered) == ("s-1", 1, 3)
    async with session(backend.open, prompt="two", point=kept) as chat:
        assert await texts(chat) == ["b"]
    assert backend.points[1] == ResumePoint(attempt=2, prompt="two", token="s-1")
    backend.check()


async def test_a_turn_left_before_its_end(loop):
    """R1: its connection is closed, and the next prompt gets one of its own, with the token."""
    turn = Script(opened("s-1"), say("a"), say("b"), hang())
    backend = Backend([turn, Script(say("c"), done())])
    async with session(backend.open, prompt="one") | idle_guard(60) as chat:
        first = aiter(chat)
        await anext(first)
        await anext(first)
        assert await texts(chat.ask("two")) == ["c"]
        with pytest.raises(RuntimeError, match="left before its end"):
            await anext(first)
    assert backend.tokens == [None, "s-1"]
    backend.check()


# -- R2: one task for one attempt ------------------------------------------------------------------


@pytest.mark.parametrize("holds", [holds_scope, holds_task_group])
async def test_what_must_run_in_one_task_does(loop, holds):
    """R2: scopes and task groups held open by `open` and by the stream, over resumes."""
    left = Leftovers()
    attempts = []

    @asynccontextmanager
    async def open_(point):
        attempts.append(anyio.get_current_task().id)
        async with anyio.create_task_group() as tg:
            tg.start_soon(anyio.sleep_forever)
            with anyio.CancelScope():
                script = Script(opened("s-1"), say("a"), hang())
                last = Script(say("b"), done())
                yield aiter(holds(script if len(attempts) < 3 else last))
            tg.cancel_scope.cancel()

    async with session(open_) | idle_guard(60) | reconnecting_resume() as chat:
        assert await texts(chat) == ["a", "a", "b"]
    assert len(attempts) == 3
    left.check()


async def test_what_kills_a_connection_from_within_is_the_failure(loop):
    """R2, T7: a task that `open` started fails, and cancels what it hosts."""
    attempts = []

    async def lose():
        await anyio.sleep(10)
        raise LOST

    @asynccontextmanager
    async def open_(point):
        attempts.append(point)
        async with anyio.create_task_group() as tg:
            if point.attempt == 1:
                tg.start_soon(lose)
                yield Script(opened("s-1"), say("a"), hang())
            else:
                yield Script(say("b"), done())

    async with session(open_) | idle_guard(60) | reconnecting_resume() as chat:
        assert await texts(chat) == ["a", "b"]
    assert attempts[1].reason.exceptions == (LOST,)


async def test_a_cancelled_pull_loses_nothing(loop):
    """R2, T8: the item stays in the slot, whatever the source is."""
    steps = [step for i in range(20) for step in (silence(3), say(str(i)))]
    async with session(lambda p: _Yielding(Script(*steps, done()))) | idle_guard(60) as chat:
        got = []
        messages = aiter(chat)
        while len(got) < 20:
            with anyio.move_on_after(2):
                got.append((await anext(messages)).text)
    assert got == [str(i) for i in range(20)]


async def test_nothing_is_read_ahead_and_only_waiting_counts(loop):
    """R2, T1: the backend is asked when the consumer asks; an hour's work is no silence."""
    asked = []

    async def source():
        for i in range(3):
            asked.append(anyio.current_time())
            yield i

    async with session(lambda p: _Yielding(source())) | idle_guard(60) as chat:
        start = anyio.current_time()
        async for _ in chat:
            await anyio.sleep(3600)
    assert [at - start for at in asked] == pytest.approx([0, 3600, 7200])


async def test_a_pull_that_the_consumer_left_is_no_silence(loop):
    """T1: the pull goes on without it; what counts is the time in which somebody waits."""
    async with session(lambda p: _Yielding(Script(hang()))) | idle_guard(60) as chat:
        messages = aiter(chat)
        with anyio.move_on_after(40):
            await anext(messages)
        await anyio.sleep(3600)
        start = anyio.current_time()
        with pytest.raises(IdleTimeoutError):
            await anext(messages)
        assert loop.took(anyio.current_time() - start, 20)


async def test_opening_is_waiting(loop):
    """R2: a backend that does not let us in keeps us waiting, and every limit sees it."""

    async def opening(point):
        if point.attempt == 1:
            await anyio.sleep_forever()

    backend = Backend([Script(opened("s-1"), say("a"), done())], opening=opening)
    start = anyio.current_time()
    async with session(backend.open, prompt="go") | idle_guard(60) | reconnecting_resume() as c:
        assert await texts(c) == ["a"]
    assert loop.took(anyio.current_time() - start, 60)
    assert backend.prompts == ["go"]
    backend.check()


async def test_two_pulls_at_once(loop):
    """T8"""
    async with session(lambda p: _Yielding(Script(silence(5), done()))) as chat:
        messages = aiter(chat)
        async with anyio.create_task_group() as tg:
            tg.start_soon(anext, messages)
            await anyio.sleep(1)
            with pytest.raises(RuntimeError, match="two pulls"):
                await anext(messages)


# -- R3: what is decided, in which order -------------------------------------------------------------


async def test_giving_up_raises_the_original_error(loop):
    """R3: with what was decided, and all attempts; the class of the error stays."""
    errors = [ConnectionError(str(i)) for i in range(4)]
    backend = Backend([Script(opened("s-1"), fail(error)) for error in errors])
    async with session(backend.open, prompt="go") | reconnecting_resume() as chat:
        with pytest.raises(ConnectionError) as caught:
            await texts(chat)
    assert caught.value is errors[3]
    assert caught.value.gave_up == "retries"
    assert [a.error_class for a in caught.value.attempts] == ["network"] * 4
    assert "streamguard gave up (retries)" in caught.value.__notes__[0]
    backend.check()


async def test_giving_up_is_told_by_the_name_of_what_ended_the_attempt(loop):
    """R3: a tool that took too long is retried as a silence is, but is told as what it was."""
    events, backend = Events(), Backend([Script(tool_start("t"), hang())])
    guard = idle_guard(60, tools=90, observer=events)
    async with session(backend.open, prompt="go") | guard | reconnecting_resume() as chat:
        with pytest.raises(ToolTimeoutError) as caught:
            await texts(chat)
    [told] = events.of(GaveUp)
    assert caught.value.gave_up == "unsafe"
    assert "ToolTimeoutError" in told.text()
    assert "IdleTimeout" not in told.text()


async def test_nothing_is_resumed_before_the_teardown_is_confirmed(loop):
    """R3, D5: a disconnect that hangs leaves the old backend alive, for all we know."""
    scripts = [Script(opened("s-1"), hang()), Script(say("b"), done())]
    for allowed in (False, True):
        backend = Backend(scripts)

        async def hangs():
            await anyio.sleep(600)

        @asynccontextmanager
        async def open_(point, backend=backend, hangs=hangs):
            async with backend.open(point) as connection:
                disconnect = hangs if point.attempt == 1 else None
                yield Connection(connection.source, disconnect=disconnect)

        resume = reconnecting_resume(resume_after_unconfirmed_teardown=allowed)
        async with session(open_, prompt="go") | idle_guard(60) | resume as chat:
            if allowed:
                assert await texts(chat) == ["b"]
            else:
                with pytest.raises(IdleTimeoutError) as caught:
                    await texts(chat)
                assert caught.value.gave_up == "unsafe"
        assert len(backend.points) == 1 + allowed


@pytest.mark.parametrize(
    ("steps", "gave_up"),
    [
        ((), None),
        ((pings(1, 3),), None),  # said nothing that a consumer could act on
        ((say("a"),), "unsafe"),
        ((tool_start("t"), tool_end("t")), "unsafe"),
        ((opened("s"), tool_start("t")), None),
        ((opened("s", resumable=False), say("a")), "unsafe"),
    ],
)
async def test_without_a_token_only_what_did_nothing_starts_afresh(loop, steps, gave_up):
    """R3"""
    backend = Backend([Script(*steps, hang()), Script(say("b"), done())])
    guard = idle_guard(60, tools=600)
    async with session(backend.open, prompt="go") | guard | reconnecting_resume() as chat:
        if gave_up is None:
            assert (await texts(chat))[-1] == "b"
        else:
            with pytest.raises(IdleTimeoutError) as caught:
                await texts(chat)
            assert caught.value.gave_up == gave_up
    backend.check()


async def test_what_earlier_turns_did_over_the_connection_would_be_lost_with_it(loop):
    """R3: without a token a second turn cannot be begun afresh: the first one is its context."""
    backend = Backend([(Script(say("a"), done()), Script(hang()))])
    async with session(backend.open, prompt="one") | idle_guard(60) | reconnecting_resume() as c:
        await texts(c)
        with pytest.raises(IdleTimeoutError) as caught:
            await texts(c.ask("two"))
    assert caught.value.gave_up == "unsafe"
    backend.check()


async def test_decided_before_anything_is_reset(loop):
    """R3, R7: the error shows what was known when it was decided."""
    events = Events()
    backend = Backend([Script(opened("s-1"), tool_start("t", "Bash"), hang())])
    guard = idle_guard(60, tools=600, observer=events)
    async with session(backend.open, prompt="go") | guard | reconnecting_resume() as chat:
        with pytest.raises(Exception) as caught:
            await texts(chat)
    assert type(caught.value).__name__ == "ToolTimeoutError"
    assert caught.value.verdict.in_flight == ("Bash",)
    assert caught.value.verdict.token == "s-1"
    [gave_up] = events.of(GaveUp)
    assert gave_up.error is caught.value
    backend.check()


# -- R4: prompts ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "asked"),
    [
        ("Continue.", "Continue."),
        ("Go on with {issue}, attempt {attempt}.", "Go on with 7, attempt 2."),
        (lambda point: f"{point.tools_run} tools, {point.delivered} seen", "1 tools, 3 seen"),
    ],
)
async def test_the_resume_prompt(loop, prompt, asked):
    """R4: a text, a template with the labels and the point's fields, or a function of the point."""
    steps = (opened("s-1"), tool_start("t"), tool_end("t"), hang())
    backend = Backend([Script(*steps), Script(done())])
    guard = idle_guard(60, activity=Activity(issue=7))
    resume = reconnecting_resume(prompt=prompt)
    async with session(backend.open, prompt="go") | guard | resume as chat:
        await texts(chat)
    assert backend.prompts == ["go", asked]


@pytest.mark.parametrize("prompt", ["{nobody}", "{", "{0}"])
async def test_a_prompt_that_cannot_be_filled_in_is_said_at_once(loop, prompt):
    """R4, T12: not after the first hang."""
    backend = Backend([Script(done())])
    value = session(backend.open) | reconnecting_resume(prompt=prompt)
    for _ in range(2):
        with pytest.raises(ConfigError, match="labels of the activity"):
            async with value:
                pass


async def test_a_dead_connection_is_noticed_at_the_next_ask(loop):
    """R4, S0-22: nothing is opened between turns, and the prompt that never got through is sent."""
    turns = (Script(opened("s-1"), say("a"), done()), Script(fail(LOST)))
    backend = Backend([turns, Script(say("b"), done())])
    async with session(backend.open, prompt="one") | idle_guard(60) | reconnecting_resume() as c:
        await texts(c)
        await anyio.sleep(3600)
        assert len(backend.points) == 1
        assert await texts(c.ask("two")) == ["b"]
    assert backend.prompts == ["one", "two", "two"]
    assert backend.tokens == [None, "s-1"]
    backend.check()


async def test_a_turn_that_had_ended_is_not_done_again(loop):
    """R4, T3: its connection is lost after the turn's end; the next prompt opens another one."""
    backend = Backend(
        [Script(opened("s"), say("a"), done(), fail(LOST)), Script(say("b"), done())]
    )
    async with session(backend.open, prompt="one") | idle_guard(60) | reconnecting_resume() as c:
        assert await texts(c) == ["a"]
        assert await texts(c.ask("two")) == ["b"]
    assert backend.prompts == ["one", "two"]
    assert backend.tokens == [None, "s"]
    backend.check()


async def test_other_classes_follow_the_policy(loop):
    """R4, P2: a rate limit is waited for as the backend asks, and a refusal is not retried."""
    limited = Script(opened("s"), failed("rate_limit", retry_after=30), fail(RuntimeError()))
    times = []

    async def opening(_point):
        times.append(anyio.current_time())

    backend = Backend([limited, Script(opened("s"), failed("auth"), fail(RuntimeError()))])
    backend.opening = opening
    resume = reconnecting_resume(policy=steady_policy())
    async with session(backend.open, prompt="go") | idle_guard(60) | resume as chat:
        with pytest.raises(RuntimeError) as caught:
            await texts(chat)
    assert caught.value.gave_up == "class"
    assert [b - a for a, b in pairwise(times)] == [pytest.approx(30)]
    backend.check()


@pytest.mark.parametrize(
    "kind", [StreamTruncatedError, ProcessExitedError, ConnectionResetError, EOFError]
)
async def test_an_end_that_is_none_is_resumed(loop, kind):
    """R4, T10: what the network or the process does."""
    backend = Backend([Script(opened("s"), fail(kind())), Script(say("b"), done())])
    async with session(backend.open, prompt="go") | idle_guard(60) | reconnecting_resume() as c:
        assert await texts(c) == ["b"]
    backend.check()


# -- R5: what resets the counts ------------------------------------------------------------------


async def test_a_completed_turn_resets_the_counts(loop):
    """R5, S0-13: each prompt has its two retries."""
    hangs = Script(opened("s"), hang())
    backend = Backend(
        [hangs, hangs, (Script(say("a"), done()), hangs), hangs, Script(say("b"), done())]
    )
    async with session(backend.open, prompt="one") | idle_guard(60) | reconnecting_resume() as c:
        assert await texts(c) == ["a"]
        assert await texts(c.ask("two")) == ["b"]
    assert len(backend.points) == 5
    backend.check()


@pytest.mark.parametrize(
    ("works", "attempts"),
    [
        ((say("x"),), 3),  # a first message proves nothing
        ((repeat(say("x"), silence(50), times=2),), 3),  # 50 s of progress are too few
        (
            (repeat(say("x"), silence(50), times=3),),
            6,
        ),  # 100 s count: only the lifetime cap ends it
        ((say("x"), pings(50, 4)), 3),  # pings are no progress
    ],
)
async def test_only_a_productive_span_resets_the_counts(loop, works, attempts):
    """R5: an attempt that hangs has been up for the whole window, so uptime cannot count."""
    backend = Backend([Script(opened("s"), *works, hang())])
    resume = reconnecting_resume(max_reconnects=5)
    async with session(backend.open, prompt="one") | idle_guard(300) | resume as chat:
        with pytest.raises(IdleTimeoutError) as caught:
            await texts(chat)
    assert len(backend.points) == attempts
    assert caught.value.gave_up == "retries"
    backend.check()


# -- R7, R8, R9 ------------------------------------------------------------------------------------


async def test_the_gate_belongs_to_one_attempt(loop):
    """R7, S3: a tool that was in flight when the connection died holds up no later attempt."""
    events = Events()
    backend = Backend(
        [Script(opened("s"), tool_start("t"), fail(LOST)), Script(hang()), Script(done())]
    )
    guard = idle_guard(60, observer=events)
    resume = reconnecting_resume(policy=steady_policy())
    start = anyio.current_time()
    async with session(backend.open, prompt="go") | guard | resume as chat:
        async for _ in chat:
            pass
    assert loop.took(anyio.current_time() - start, 61)  # 1 s of backoff, 60 s of idle
    assert [event.attempt for event in events.of(Reconnected)] == [2, 3]
    backend.check()


async def test_what_is_told_of_a_resume(loop):
    """R7, E6: in this order."""
    events = Events()
    backend = Backend([Script(opened("s"), hang()), Script(say("b"), done())])
    guard = idle_guard(60, observer=events)
    async with session(backend.open, prompt="go") | guard | reconnecting_resume() as chat:
        await texts(chat)
    kinds = (AttemptStarted, AttemptEnded, RetryScheduled, Reconnected, StreamStarted)
    told = [(type(e).__name__, getattr(e, "attempt", None)) for e in events if type(e) in kinds]
    assert told == [
        ("AttemptStarted", 1),
        ("StreamStarted", None),
        ("AttemptEnded", 1),
        ("RetryScheduled", None),
        ("AttemptStarted", 2),
        ("StreamStarted", None),
        ("Reconnected", 2),
        ("AttemptEnded", 2),
    ]
    outcomes = [(e.outcome, e.confirmed) for e in events.of(AttemptEnded)]
    assert outcomes == [("failed", True), ("completed", True)]
    [scheduled] = events.of(RetryScheduled)
    assert (scheduled.error_class, scheduled.retry, scheduled.delay) == ("idle", 1, 0)
    assert scheduled.delay_source == "policy"
    [recovered] = events.of(RetryRecovered)
    assert recovered.retries == 1


async def test_backoff_pauses_idle(loop):
    """R8: an idle limit shorter than the delay does not strike in it."""
    backend = Backend([Script(opened("s"), hang()), Script(silence(9), say("b"), done())])
    resume = reconnecting_resume(backoff=[50])
    start = anyio.current_time()
    async with session(backend.open, prompt="go") | idle_timeout(10) | resume as chat:
        assert await texts(chat) == ["b"]
    assert loop.took(anyio.current_time() - start, 69)


@pytest.mark.parametrize("by", ["total", "scope"])
async def test_a_delay_that_does_not_fit_gives_up_now(loop, by):
    """R8: the backoff consumes `total`, and any time scope of ours around it."""
    backend = Backend([Script(opened("s"), hang())])
    resume = reconnecting_resume(backoff=[50])
    guard = idle_guard(60, total=100 if by == "total" else None)
    start = anyio.current_time()
    async with scope("step", timeout=100 if by == "scope" else 500):
        async with session(backend.open, prompt="go") | guard | resume as chat:
            with pytest.raises(IdleTimeoutError) as caught:
                await texts(chat)
    assert caught.value.gave_up == "deadline"
    assert loop.took(anyio.current_time() - start, 60)
    backend.check()


async def test_total_is_the_sessions(loop):
    """R8, T1: over all attempts and turns; a pull gets it as itself, with nothing tried again."""
    backend = Backend([Script(opened("s"), hang())])
    guard = idle_guard(60, total=150)
    start = anyio.current_time()
    resume = reconnecting_resume(backoff=[0])
    async with session(backend.open, prompt="go") | guard | resume as chat:
        with pytest.raises(DeadlineExceededError) as caught:
            await texts(chat)
    assert loop.took(anyio.current_time() - start, 150)
    assert caught.value.verdict.elapsed == pytest.approx(150)
    assert caught.value.gave_up == "deadline"
    assert [client.disconnect_called for client in backend.clients] == [True] * 3
    backend.check()


@pytest.mark.parametrize("when", ["in a turn", "between turns", "before the first"])
async def test_total_strikes_while_the_consumer_works(loop, when):
    """O5: it cancels the block, and surfaces at the `async with`; the backend is disconnected."""
    left = Leftovers()
    backend = Backend([Script(opened("s"), say("a"), say("b"), done())])
    guard = idle_guard(60, total=150)
    start = anyio.current_time()
    with pytest.raises(DeadlineExceededError) as caught:
        async with session(backend.open, prompt="go") | guard | reconnecting_resume() as chat:
            if when != "before the first":
                async for _ in chat:
                    if when == "in a turn":
                        await anyio.sleep(1000)
            await anyio.sleep(1000)
    assert loop.took(anyio.current_time() - start, 150)
    assert caught.value.verdict.limit == "total"
    if when == "in a turn":
        assert caught.value.teardown.disconnect == "returned"
        assert backend.clients[0].calls.count("disconnect") == 1
    backend.check()
    left.check()


async def test_instant_failures_wait_longer_and_longer(loop):
    """R9: a backend that refuses at once is not asked five times in a second."""
    times = []

    async def opening(point):
        times.append(anyio.current_time())
        raise ConnectionRefusedError

    backend = Backend([Script()], opening=opening)
    policy = steady_policy(network=Backoff(4, (0.0,)))
    async with session(backend.open, prompt="go") | reconnecting_resume(policy=policy) as chat:
        with pytest.raises(ConnectionRefusedError) as caught:
            await texts(chat)
    assert caught.value.gave_up == "retries"
    assert [b - a for a, b in pairwise(times)] == pytest.approx([1, 2, 4, 8])


# -- the circuit breaker ----------------------------------------------------------------------------


async def test_a_breaker_is_asked_before_each_attempt_and_told_how_it_ended(loop):
    """P3: failures of attempts open it; then the original error is raised."""
    breaker = CircuitBreaker("claude", clock=anyio.current_time, on_open="raise")
    backend = Backend([Script(opened("s"), fail(LOST))])
    resume = reconnecting_resume(policy=steady_policy(), breaker=breaker)
    async with session(backend.open, prompt="go") | resume as chat:
        with pytest.raises(ConnectionError) as caught:
            await texts(chat)
    assert caught.value.gave_up == "retries"  # who has one left waits, and makes the probe
    assert (breaker.status, breaker.failures, len(backend.points)) == ("open", 4, 4)
    async with session(backend.open, prompt="go") | resume as chat:
        with pytest.raises(CircuitOpenError) as refused:
            await texts(chat)
    assert refused.value.gave_up == "circuit"
    assert len(backend.points) == 4
    backend.check()


async def test_a_breaker_that_waits_is_waited_for(loop):
    """P3: its probe's completed turn closes it."""
    breaker = CircuitBreaker("claude", clock=anyio.current_time, on_open="wait")
    lost = Script(opened("s"), fail(LOST))
    backend = Backend([lost, lost, lost, Script(say("b"), done())])
    resume = reconnecting_resume(policy=steady_policy(), breaker=breaker)
    start = anyio.current_time()
    async with session(backend.open, prompt="go") | resume as chat:
        assert await texts(chat) == ["b"]
    assert loop.took(anyio.current_time() - start, 1 + 2 + 30)
    assert (breaker.status, breaker.failures) == ("closed", 0)
    backend.check()


async def test_a_consumer_that_leaves_says_nothing_about_the_backend(loop):
    """P3: neither a failure nor a success; a probe gives its place back."""
    breaker = CircuitBreaker("claude", clock=anyio.current_time, open_after=1)
    backend = Backend([Script(fail(LOST)), Script(opened("s"), hang())])
    resume = reconnecting_resume(breaker=breaker, policy=steady_policy(network=Backoff(0)))
    async with session(backend.open, prompt="go") | resume as chat:
        with pytest.raises(ConnectionError):
            await texts(chat)
    await anyio.sleep(30)
    async with session(backend.open, prompt="go") | resume as chat:
        with anyio.move_on_after(5):
            await texts(chat)
        assert breaker.status == "half_open"
    assert breaker.retry_after == 0  # the next one may try
    backend.check()


# -- the interrupt, which spares the client ---------------------------------------------------------


@pytest.mark.parametrize("outlives", [True, False])
async def test_a_turn_that_an_interrupt_ended(loop, outlives):
    """D1: the same client goes on, where it says that it can; else it is disconnected as ever."""
    events = Events()
    left = Leftovers()
    rest = (Script(opened("s"), say("a"), hang()), Script(say("b"), done()))
    scripts = [rest, Script(say("b"), done())]
    backend = Backend(scripts, client_options={"on_interrupt": Script(done("error"))})

    @asynccontextmanager
    async def open_(point):
        async with backend.open(point) as connection:
            client = backend.clients[-1]
            yield Connection(
                connection.source,
                client=client,
                interrupt=client.interrupt,
                outlives_interrupt=outlives,
            )

    guard = idle_guard(60, observer=events)
    start = anyio.current_time()
    async with session(open_, prompt="go") | guard | reconnecting_resume() as chat:
        assert await texts(chat) == ["a", "b"]
        assert backend.clients[0].disconnect_called is not outlives
        assert await texts(chat.ask("more")) == ["b"]
    assert loop.took(anyio.current_time() - start, 60)
    assert len(backend.clients) == (1 if outlives else 2)
    assert backend.prompts == ["go", "Continue.", "more"]
    assert [event.attempt for event in events.of(Reconnected)] == [1 if outlives else 2]
    backend.check()
    left.check()


# -- around it ------------------------------------------------------------------------------------


async def test_a_new_prompt_has_retries_of_its_own(loop):
    """S0-13: after giving up on one, too."""
    backend = Backend([Script(opened("s"), hang())] * 5 + [Script(say("b"), done())])
    async with session(backend.open, prompt="one") | idle_guard(60) | reconnecting_resume() as c:
        with pytest.raises(IdleTimeoutError):
            await texts(c)
        assert len(backend.points) == 3
        assert await texts(c.ask("two")) == ["b"]
    assert backend.prompts == [
        "one",
        "Continue.",
        "Continue.",
        "two",
        "Continue.",
        "Continue.",
    ]
    backend.check()


async def test_a_chat_outside_of_its_block(loop):
    """R1: nothing is opened that nobody would close."""
    backend = Backend([Script(opened("s"), say("a"), done())])
    async with session(backend.open, prompt="one") as chat:
        await anext(aiter(chat))
    for turn in (aiter(chat), chat.ask("two")):
        with pytest.raises(RuntimeError, match="block was left"):
            await anext(turn)
    assert len(backend.points) == 1
    backend.check()


async def test_an_activity_that_is_in_use(loop):
    """O1: said at once, and not tried again."""
    guard = idle_guard(60, activity=Activity("one")) | reconnecting_resume()
    start = anyio.current_time()
    async with session(Backend([Script(hang())]).open, prompt="a") | guard as busy:
        with anyio.move_on_after(1):
            await texts(busy)
        async with anyio.create_task_group() as tg:
            tg.start_soon(texts, busy)
            await anyio.sleep(1)
            backend = Backend([Script(done())])
            async with session(backend.open, prompt="b") | guard as chat:
                with pytest.raises(RuntimeError, match="bound to an operator"):
                    await texts(chat)
            assert backend.points == []
            tg.cancel_scope.cancel()
    assert loop.took(anyio.current_time() - start, 2)


async def test_switched_off_it_still_resumes(loop):
    """T11: `off` takes away the limits."""
    steps = (opened("s"), silence(1000), fail(LOST))
    backend = Backend([Script(*steps), Script(say("b"), done())])
    guard = idle_guard(60, mode="off")
    async with session(backend.open, prompt="go") | guard | reconnecting_resume() as chat:
        assert await texts(chat) == ["b"]
    backend.check()


async def test_what_closing_raises_after_a_good_end_is_told(loop):
    """D3: nothing went before it, so it comes out; after a failure it is only reported."""
    events = Events()

    async def closing(_point):
        raise OSError("cannot close")

    backend = Backend([Script(opened("s"), say("a"), done())], closing=closing)
    with pytest.raises(OSError, match="cannot close"):
        async with session(backend.open, prompt="go") | idle_guard(60) as chat:
            await texts(chat)
    backend = Backend([Script(opened("s"), hang())], closing=closing)
    guard = idle_guard(60, observer=events)
    async with session(backend.open, prompt="go") | guard | reconnecting_resume() as chat:
        with pytest.raises(IdleTimeoutError) as caught:
            await texts(chat)
    assert caught.value.gave_up == "unsafe"  # who knows whether it is closed
    [told] = events.of(CloseFailed)
    assert str(told.error) == "cannot close"


@pytest.mark.parametrize("how", ["timeout", "silent"])
async def test_a_scope_that_open_holds_around_the_stream(loop, how):
    """R2, T7: its timeout comes out as itself; one that says nothing leaves a stream cut short."""
    attempts = []

    @asynccontextmanager
    async def open_(point):
        attempts.append(point)
        limit = 10 if point.attempt == 1 else 1000
        with anyio.fail_after(limit) if how == "timeout" else anyio.move_on_after(limit):
            yield Script(opened("s"), say("a"), silence(100), say("b"), done())

    async with session(open_) | idle_guard(600) | reconnecting_resume() as chat:
        assert await texts(chat) == ["a", "a", "b"]
    kind = TimeoutError if how == "timeout" else StreamTruncatedError
    assert type(attempts[1].reason) is kind


async def test_open_says_what_ended_it_in_its_own_words(loop):
    """R2: raised from the error it was given; a verdict stays what it is."""

    class OwnError(ConnectionError):
        pass

    reasons = []

    @asynccontextmanager
    async def open_(point):
        reasons.append(type(point.reason))
        how = [fail(LOST), hang(), done()][len(reasons) - 1]
        try:
            yield Script(opened("s"), how)
        except Exception as error:
            raise OwnError from error

    async with session(open_) | idle_guard(60) | reconnecting_resume() as chat:
        await texts(chat)
    assert reasons == [type(None), OwnError, IdleTimeoutError]
