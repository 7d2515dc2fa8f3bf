"""What a turn comes to: what was said of its failure, who hears of it, and leaving it early."""

from __future__ import annotations

from contextlib import asynccontextmanager

import anyio
import pytest

from streamguard import (
    Backoff,
    CircuitBreaker,
    ConfigError,
    Connection,
    ErrorClass,
    IdleTimeoutError,
    ResumeDivergedError,
    ResumePoint,
    RetryPolicy,
    StreamTruncatedError,
    idle_guard,
    reconnecting_resume,
    session,
)
from streamguard.testing import Script, done, fail, failed, hang, opened, say, tool_end, tool_start
from tests.sessions.backend import Backend
from tests.support import Leftovers

LOST = ConnectionError("reset")


async def texts(messages):
    return [message.text async for message in messages if hasattr(message, "text")]


def breaker_now(**options):
    return CircuitBreaker("claude", clock=anyio.current_time, **options)


# -- what is said of nothing ------------------------------------------------------------------------


def claudes(*messages):
    """A turn of claude's, which then hangs unless it has ended."""
    init = {"type": "system", "subtype": "init", "session_id": "s", "cwd": "/", "tools": []}

    async def turn():
        for message in messages:
            if message == "hang":
                await anyio.sleep_forever()
            yield init if message == "init" else {"type": "result", "subtype": message}

    return turn()


async def test_an_attempt_that_says_nothing_has_not_ended_well(loop):
    """T10: its backend ends each of its turns, as the attempt before has shown."""
    turns = [("init", "hang"), (), (), (), ()]
    backend = iter([claudes(*said) for said in turns])

    @asynccontextmanager
    async def open_(point):
        yield next(backend)

    pipe = idle_guard(600) | reconnecting_resume(backoff=(0,))
    async with session(open_, prompt="go") | pipe as chat:
        with pytest.raises(StreamTruncatedError) as caught:
            async for _ in chat:
                pass
    assert caught.value.gave_up == "retries"
    assert not chat.point.completed


async def test_a_second_turn_that_says_nothing_has_not_ended_well(loop):
    said = iter([claudes("init", "success"), claudes()])

    @asynccontextmanager
    async def open_(point):
        yield Connection(lambda prompt: next(said))

    async with session(open_) | idle_guard(600) as chat:
        assert len([message async for message in chat.ask("one")]) == 2
        with pytest.raises(StreamTruncatedError):
            async for _ in chat.ask("two"):
                pass


# -- what was said of a failure ----------------------------------------------------------------------


async def test_a_turn_that_failed_with_a_word_of_the_readers_own(loop):
    """P1, P3: it is of the class unknown, and the turn is over as any other."""
    breaker = breaker_now()
    backend = Backend([Script(opened("s"), failed("gremlins"), done("error"))])
    async with session(backend.open, prompt="go") | reconnecting_resume(breaker=breaker) as c:
        assert await texts(c) == []
    assert breaker.failures == 1
    backend.check()


@pytest.mark.parametrize(("said", "pause"), [(20, 20), (None, 60), (4000, 300)])
async def test_a_rate_limit_that_came_as_a_result(loop, said, pause):
    """P2, P3: nobody may try before the time that the server has named."""
    breaker = breaker_now()
    backend = Backend([Script(opened("s"), failed("rate_limit", retry_after=said), done("error"))])
    async with session(backend.open, prompt="go") | reconnecting_resume(breaker=breaker) as c:
        await texts(c)
    assert breaker.failures == 0
    assert breaker.retry_after == pytest.approx(pause)


async def test_the_policys_classifier_is_asked_of_a_failure_that_nothing_can_follow(loop):
    """P1, P3: the breaker hears what the user says that it is."""
    breaker = breaker_now()
    said = iter([["a", "b"], ["a", "x"]])

    def opener():
        return Backend([Script(*map(say, words), fail(LOST)) for words in said])

    policy = RetryPolicy(
        network=Backoff(1),
        classifier=lambda error: (
            ErrorClass.SERVER if isinstance(error, ResumeDivergedError) else None
        ),
    )
    resume = reconnecting_resume(policy=policy, breaker=breaker, dedupe_by=lambda m: m.text)
    async with session(opener().open, prompt="go") | resume as chat:
        with pytest.raises(ResumeDivergedError):
            await texts(chat)
    assert breaker.failures == 2  # the connection's, and this one


@pytest.mark.parametrize(
    "progress",
    [say("a"), Script(tool_start("t"), tool_end("t"))],
    ids=["text", "tool"],
)
async def test_a_trouble_that_was_got_over_does_not_class_what_comes_later(loop, progress):
    """S0, P1: a backend that says "unauthorized", tries again, works and then hangs, hangs."""
    backend = Backend([Script(opened("s"), failed("auth"), progress, hang()), Script(done())])
    async with session(backend.open, prompt="go") | idle_guard(60) | reconnecting_resume() as chat:
        await texts(chat)
    assert isinstance(backend.points[1].reason, IdleTimeoutError)
    backend.check()


async def test_a_trouble_that_was_not_got_over_does(loop):
    """S0, P1: the same without the work in between."""
    backend = Backend([Script(opened("s"), say("a"), failed("auth"), hang())])
    async with session(backend.open, prompt="go") | idle_guard(60) | reconnecting_resume() as chat:
        with pytest.raises(IdleTimeoutError) as caught:
            await texts(chat)
    assert caught.value.gave_up == "class"


# -- written wrongly ----------------------------------------------------------------------------------


def test_a_prompt_that_is_none_is_refused_where_it_is_written():
    """R1"""
    with pytest.raises(TypeError, match=r"session\(prompt=3\): a prompt is a string"):
        session(Backend([Script()]).open, prompt=3)
    with pytest.raises(TypeError, match="ResumePoint"):
        session(Backend([Script()]).open, point="token")


async def test_a_prompt_that_an_open_stream_would_never_see(loop):
    """R1: it speaks unasked, so what is asked first would be lost without a word."""
    backend = Backend([Script(say("b"), done())])
    async with Script(opened("s"), say("a"), done()) | reconnecting_resume(backend.open) as c:
        with pytest.raises(TypeError, match="would never see the prompt 'x'"):
            await texts(c.ask("x"))
    async with Script(opened("s"), say("a"), done()) | reconnecting_resume(backend.open) as c:
        assert await texts(c) == ["a"]
        assert await texts(c.ask("x")) == ["b"]
    assert backend.prompts == ["x"]
    assert backend.tokens == ["s"]


async def test_a_process_that_would_have_to_be_awaited(loop):
    """D4: said at once, also for one that a connection brings."""

    async def pid():
        return 7

    def process():
        return pid()

    backend = Backend([Script(done())])

    def open_(point):
        return _with_process(backend.open(point), process)

    async with session(open_, prompt="go") | idle_guard(60) as chat:
        with pytest.raises(ConfigError, match="gave a coroutine"):
            await texts(chat)
    backend.check()


class _with_process:  # noqa: N801 - it is used as a function
    def __init__(self, opened, process):
        self._opened, self._process = opened, process

    async def __aenter__(self):
        connection = await self._opened.__aenter__()
        return Connection(connection.source, client=connection.client, process=self._process)

    async def __aexit__(self, *reason):
        return await self._opened.__aexit__(*reason)


# -- leaving a turn -----------------------------------------------------------------------------------


async def test_a_turn_can_be_closed(loop):
    """R2: its connection goes with it, and the next prompt resumes the session."""
    left = Leftovers()
    backend = Backend([Script(opened("s-1"), say("a"), hang()), Script(say("b"), done())])
    async with session(backend.open, prompt="one") | idle_guard(60) as chat:
        turn = aiter(chat)
        await anext(turn)
        await turn.aclose()
        assert backend.owners == 0
        assert backend.closed == 1
        with pytest.raises(StopAsyncIteration):
            await anext(turn)
        await turn.aclose()
        assert await texts(chat.ask("two")) == ["b"]
    assert backend.tokens == [None, "s-1"]
    backend.check()
    left.check()


async def test_closing_a_turn_that_is_none_to_be_left(loop):
    """R2: one that has not begun, is over, or was left for another one closes nothing."""
    backend = Backend([tuple(Script(opened("s"), say(word), done()) for word in "abc")])
    async with session(backend.open, prompt="one") | idle_guard(60) as chat:
        unasked = chat.ask("never")
        await unasked.aclose()
        first = aiter(chat)
        assert await texts(first) == ["a"]
        await first.aclose()
        second, third = chat.ask("two"), chat.ask("three")
        assert await texts(second) == ["b"]
        await anext(third)
        await second.aclose()
        assert await texts(third) == ["c"]
        assert await texts(unasked) == []
    assert backend.prompts == ["one", "two", "three"]
    assert backend.opened == 1
    backend.check()


async def test_a_turn_that_is_being_pulled_is_not_closed(loop):
    """R2: as with any generator."""
    backend = Backend([Script(opened("s"), hang())])
    async with session(backend.open, prompt="one") | idle_guard(60) as chat:
        turn = aiter(chat)
        await anext(turn)
        async with anyio.create_task_group() as group:
            group.start_soon(texts, turn)
            await anyio.wait_all_tasks_blocked()
            assert turn.ag_running
            with pytest.raises(RuntimeError, match="a pull is under way"):
                await turn.aclose()
            group.cancel_scope.cancel()
    backend.check()


async def test_a_kept_point_goes_on(loop):
    """R1: by its token alone."""
    backend = Backend([Script(say("a"), done())])
    async with session(backend.open, prompt="go", point=ResumePoint(token="t")) as chat:
        assert await texts(chat) == ["a"]
    assert backend.tokens == ["t"]
