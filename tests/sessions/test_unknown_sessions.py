"""R3: a session that its backend does not know is begun afresh, where the user has said so."""

from __future__ import annotations

from contextlib import asynccontextmanager

import anyio
import pytest

from streamguard import (
    CircuitBreaker,
    ConfigError,
    ResumePoint,
    RetryPolicy,
    StreamGuardError,
    idle_guard,
    reconnecting_resume,
    session,
)
from streamguard.events import AttemptStarted, GaveUp, Reconnected, RetryScheduled
from streamguard.signals import Failed
from streamguard.testing import (
    Script,
    done,
    fail,
    failed,
    hang,
    opened,
    say,
    tool_end,
    tool_start,
)
from tests.sessions.backend import Backend
from tests.support import Events

UNKNOWN = Script(failed("validation", session_unknown=True), done("error"))
RAISED = "Claude Code returned an error result: No conversation found with session ID: {} (exit code: 1)"
ELSEWHERE = ResumePoint(prompt="go", token="s-0")


async def texts(messages):
    return [message.text async for message in messages if hasattr(message, "text")]


def fresh(**options):
    return reconnecting_resume(fresh_if_unknown=True, **options)


def refused(token):
    return Script(fail(ConnectionError(RAISED.format(token))))


@pytest.mark.parametrize("unknown", [UNKNOWN, refused("s-0")])
async def test_a_session_of_another_program_is_begun_afresh(loop, unknown):
    """R3: said by a message or by an error; at once, with the prompt, and it is told."""
    events = Events()
    backend = Backend([unknown, Script(opened("s-1"), say("a"), done())])
    guard = idle_guard(60, observer=events)
    start = anyio.current_time()
    async with session(backend.open, point=ELSEWHERE) | guard | fresh() as chat:
        assert await texts(chat) == ["a"]
        assert chat.point.token == "s-1"
    assert loop.took(anyio.current_time() - start, 0)
    assert backend.tokens == ["s-0", None]
    assert backend.prompts == ["go", "go"]
    [told] = events.of(RetryScheduled)
    assert "does not know session s-0: started afresh with the first prompt" in told.text()
    assert [each.resumes for each in events.of(AttemptStarted)] == [True, False]
    assert [each.resumes for each in events.of(Reconnected)] == [False]
    backend.check()


async def test_one_that_was_lost_in_a_hang_is_begun_afresh(loop):
    """R3: a command line that was killed may not have written its history yet."""
    backend = Backend(
        [
            Script(opened("s-1"), say("I begin."), hang()),
            refused("s-1"),
            Script(opened("s-2"), say("a"), done()),
        ]
    )
    async with session(backend.open, prompt="go") | idle_guard(60) | fresh(backoff=[0]) as chat:
        assert await texts(chat) == ["I begin.", "a"]
    assert backend.tokens == [None, "s-1", None]
    assert backend.prompts == ["go", "Continue.", "go"]
    backend.check()


async def test_without_the_word_it_is_given_up_and_not_tried_again(loop):
    """R3: whatever its end looks like, another attempt would end the same way."""
    backend = Backend([refused("s-0")])
    async with session(backend.open, point=ELSEWHERE) | reconnecting_resume() as chat:
        with pytest.raises(ConnectionError) as caught:
            await texts(chat)
    assert caught.value.gave_up == "class"
    assert "fresh_if_unknown=True would start afresh" in caught.value.__notes__[0]
    assert len(backend.points) == 1
    backend.check()


async def test_without_the_word_a_turn_that_ended_with_an_error_has_ended(loop):
    """R3, T14: its consumer has got the message that says so."""
    for resume in (reconnecting_resume(), idle_guard(50)):
        backend = Backend([UNKNOWN])
        async with session(backend.open, point=ELSEWHERE) | idle_guard(60) | resume as chat:
            assert await texts(chat) == []
        assert len(backend.points) == 1
        backend.check()


@pytest.mark.parametrize(
    "script",
    [
        refused("s-01"),  # another session
        refused("another"),
        Script(say("a"), fail(ConnectionError(RAISED.format("s-0")))),  # it was there
        Script(failed("validation"), done("error")),
    ],
)
async def test_nothing_else_is_taken_for_it(loop, script):
    """R3: a control for each condition."""
    backend = Backend([script, Script(opened("s-0"), say("b"), done())])
    resume = fresh(policy=RetryPolicy(random=lambda: 0.0))
    async with session(backend.open, point=ELSEWHERE) | idle_guard(60) | resume as chat:
        await texts(chat)
    assert None not in backend.tokens
    backend.check()


TOOLS = (tool_start("t"), tool_end("t"))


@pytest.mark.parametrize("where", ["this turn", "a turn before", "another program"])
async def test_work_that_was_begun_is_not_begun_again(loop, where):
    """R3: whichever turn it was begun in."""
    point, before = ResumePoint(prompt="go"), [opened("s-0"), *TOOLS]
    scripts = [Script(*before, hang()), refused("s-0")]
    if where == "a turn before":
        scripts = [Script(*before, done()), Script(hang()), refused("s-0")]
    if where == "another program":
        scripts, point = scripts[1:], ResumePoint(prompt="go", token="s-0", tools_run=1)
    backend = Backend(scripts, takes_prompts=False)
    resume = fresh(backoff=[0])
    async with session(backend.open, point=point) | idle_guard(60) | resume as chat:
        turn = chat
        if where == "a turn before":
            await texts(chat)
            turn = chat.ask("more")
        with pytest.raises(ConnectionError) as caught:
            await texts(turn)
    assert caught.value.gave_up == "unsafe"
    assert "1 tool call occurred" in caught.value.__notes__[0]
    backend.check()


async def test_work_of_a_turn_that_was_completed_elsewhere_counts(loop):
    """R3: the point says so."""
    point = ResumePoint(token="s-0", tools_run=2, completed=True)
    backend = Backend([refused("s-0")], takes_prompts=False)
    async with session(backend.open, point=point) | idle_guard(60) | fresh() as chat:
        with pytest.raises(ConnectionError) as caught:
            await texts(chat.ask("more"))
    assert caught.value.gave_up == "unsafe"
    backend.check()


async def test_a_turn_that_is_refused_for_that_has_ended_as_it_has(loop):
    """R3: the message that said so was delivered; it is told that no more follows."""
    events = Events()
    backend = Backend([UNKNOWN], takes_prompts=False)
    point = ResumePoint(prompt="go", token="s-0", tools_run=1)
    guard = idle_guard(60, observer=events)
    async with session(backend.open, point=point) | guard | fresh() as chat:
        assert await texts(chat) == []
    [told] = events.of(GaveUp)
    assert told.reason == "unsafe"
    assert "ended the turn with an error (validation)" in str(told.error)
    backend.check()


async def test_once_in_a_session(loop):
    """R3: also where a turn went well in between."""
    backend = Backend(
        [
            refused("s-0"),
            Script(opened("s-1"), say("a"), done()),
            refused("s-1"),
        ],
        takes_prompts=False,
    )
    async with session(backend.open, point=ELSEWHERE) | idle_guard(60) | fresh() as chat:
        assert await texts(chat) == ["a"]
        with pytest.raises(ConnectionError) as caught:
            await texts(chat.ask("more"))
    assert caught.value.gave_up == "retries"
    assert "once already" in caught.value.__notes__[0]
    assert backend.tokens == ["s-0", None, "s-1"]
    backend.check()


async def test_the_point_meanwhile_is_that_of_a_fresh_start(loop):
    """R3: another program would begin there, too."""
    points = []

    @asynccontextmanager
    async def open_(point):
        points.append((chat.point, point))
        async with backend.open(point) as connection:
            yield connection

    backend = Backend([UNKNOWN, Script(opened("s-1"), say("a"), done())])
    async with session(open_, point=ELSEWHERE) | idle_guard(60) | fresh() as chat:
        await texts(chat)
    (_, first), (at, second) = points
    assert (first.token, second.token, at.token) == ("s-0", None, None)
    assert (at.prompt, second.prompt, second.attempt) == ("go", "go", 2)
    assert not at.completed
    backend.check()


async def test_a_breaker_hears_nothing_bad_of_the_backend(loop):
    """P3: it is well, and only does not know that session."""
    breaker = CircuitBreaker("a", clock=anyio.current_time, open_after=1)
    backend = Backend([refused("s-0"), Script(opened("s-1"), say("a"), done())])
    resume = fresh(breaker=breaker)
    async with session(backend.open, point=ELSEWHERE) | idle_guard(60) | resume as chat:
        assert await texts(chat) == ["a"]
    assert breaker.status == "closed"
    backend.check()


def test_it_does_not_go_with_a_backend_that_plays_again():
    """R6: what a fresh session says is no replay."""
    with pytest.raises(ConfigError, match="fresh_if_unknown=True and dedupe_by"):
        reconnecting_resume(fresh_if_unknown=True, dedupe_by=id)


def test_it_is_shown():
    """E6"""
    operator = reconnecting_resume(fresh_if_unknown=True, wait_for_limit=60)
    assert repr(operator) == "reconnecting_resume(wait_for_limit=60, fresh_if_unknown=True)"


def test_a_reader_says_it_in_a_word():
    """S0"""
    assert Failed("validation", session_unknown=True).session_unknown
    assert not Failed().session_unknown
    assert issubclass(StreamGuardError, Exception)
