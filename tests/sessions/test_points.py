"""R3, R4, R6 from one process to the next: a kept point, its JSON, and what is done from there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamguard import (
    CircuitBreaker,
    CircuitOpenError,
    ConfigError,
    EarlierError,
    IdleTimeoutError,
    ResumePoint,
    StreamGuardError,
    idle_guard,
    reconnecting_resume,
    session,
)
from streamguard.events import GaveUp
from streamguard.testing import Script, done, hang, opened, pings, say, tool_end, tool_start
from tests.sessions.backend import Backend
from tests.support import Events


async def texts(messages):
    return [message.text async for message in messages if hasattr(message, "text")]


def elsewhere(point):
    """The point as another process has it."""
    return ResumePoint.from_json(json.dumps(point.as_json()))


async def _point_after(script, seconds=None, **knobs):
    """Where a session stands that is left after so many seconds, as another process has it."""
    backend = Backend([script])
    resume = reconnecting_resume(retries=0, **knobs)
    async with session(backend.open, prompt="go") | idle_guard(600, tools=900) | resume as chat:
        with anyio.move_on_after(seconds):
            with suppress(StreamGuardError):
                await texts(chat)
        kept = chat.point
    return elsewhere(kept)


# -- its JSON -------------------------------------------------------------------------------------


COUNT = st.integers(0, 10**6)


@given(
    st.builds(
        ResumePoint,
        attempt=st.integers(1, 10**6),
        prompt=st.none() | st.text(),
        token=st.none() | st.text(),
        cursor=st.none() | st.integers() | st.text(),
        reason=st.none() | st.builds(EarlierError, st.text(), st.text()),
        tools_run=COUNT,
        delivered=COUNT,
        committed=COUNT,
        heard=st.booleans(),
        completed=st.booleans(),
    )
)
def test_a_point_survives_the_way_through_json(point):
    assert elsewhere(point) == point
    assert ResumePoint.from_json(point.as_json()) == point
    assert elsewhere(point).as_json() == point.as_json()


def test_of_an_error_its_name_and_text_survive():
    """No pickle, and no end of text: it may quote all that a backend has said."""
    point = elsewhere(ResumePoint(reason=IdleTimeoutError("idle for 60 s")))
    assert isinstance(point.reason, EarlierError)
    assert (point.reason.type_name, point.reason.text) == ("IdleTimeoutError", "idle for 60 s")
    assert str(point.reason) == "IdleTimeoutError: idle for 60 s"
    assert len(elsewhere(ResumePoint(reason=ValueError("x" * 9999))).reason.text) == 1000


@pytest.mark.parametrize("cursor", [1.5, ("a", 1), True, b"x"])
def test_a_cursor_that_cannot_be_written(cursor):
    with pytest.raises(ConfigError, match="cannot be written"):
        ResumePoint(cursor=cursor).as_json()


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"version": 2}, "version is 2"),
        ({"version": None}, "version is None"),
        ({"version": True}, "version is True"),
        ({"more": 1}, "unknown: more"),
        ({"attempt": 0}, "attempt is 0"),
        ({"attempt": True}, "attempt is True"),
        ({"attempt": 1.0}, "attempt is 1.0"),
        ({"prompt": 7}, "prompt is 7"),
        ({"token": []}, "token is"),
        ({"cursor": 1.5}, "cursor is 1.5"),
        ({"tools_run": -1}, "tools_run is -1"),
        ({"delivered": "3"}, "delivered is '3'"),
        ({"completed": 1}, "completed is 1"),
        ({"reason": "x"}, "reason is 'x'"),
        ({"reason": {"type": "X"}}, "reason is"),
        ({"reason": {"type": "X", "text": 1}}, "reason is"),
    ],
)
def test_garbage_is_refused(change, match):
    said = {**ResumePoint().as_json(), **change}
    with pytest.raises(ConfigError, match=match):
        ResumePoint.from_json(said)


@pytest.mark.parametrize("said", ["", "{", "[]", "7", "null", b"\xff", None, [], "{}"])
def test_what_is_no_point_at_all(said):
    with pytest.raises(ConfigError, match="no ResumePoint"):
        ResumePoint.from_json(said)


@pytest.mark.parametrize("name", ResumePoint().as_json())
def test_nothing_may_be_missing(name):
    said = ResumePoint().as_json()
    del said[name]
    with pytest.raises(ConfigError, match=name):
        ResumePoint.from_json(said)


# -- what it counts --------------------------------------------------------------------------------


async def test_a_good_end_is_no_failure(loop):
    """The attempts that were made are counted, and nothing is left of the hang before."""
    backend = Backend([Script(opened("s"), hang()), Script(say("a"), say("b"), done())])
    async with session(backend.open, prompt="go") | idle_guard(60) | reconnecting_resume() as c:
        await texts(c)
        point = c.point
    assert (point.attempt, point.reason, point.completed) == (2, None, True)
    assert (point.prompt, point.token) == (None, "s")
    assert (point.delivered, point.committed) == (4, 3)


async def test_what_it_says_of_a_failure(loop):
    """And of one that was given up: what ended the last attempt."""
    script = Script(opened("s"), say("a"), tool_start("t"), tool_end("t"), hang())
    point = await _point_after(script)
    assert (point.attempt, point.completed, point.heard) == (2, False, True)
    assert point.reason.type_name == "IdleTimeoutError"
    assert (point.tools_run, point.delivered, point.committed) == (1, 4, 3)


@pytest.mark.parametrize("dedupes", [True, False])
async def test_a_message_that_nobody_got_is_not_counted(loop, dedupes):
    """It waits in the slot, and dies with the process: the backend must say it again."""
    stream = Script(say("0"), pings(5, 1), say("1"), say("2"), done())

    @asynccontextmanager
    async def open_(_point):
        yield stream

    def key_of(each):
        return int(each.text) if hasattr(each, "text") else None

    resume = reconnecting_resume(dedupe_by=key_of if dedupes else None)
    async with session(open_, prompt="go") | idle_guard(60) | resume as chat:
        turn, seen = aiter(chat), []
        for _ in range(2):
            await anext(turn)
            seen.append((turn.cursor, chat.point.delivered, chat.point.committed))
        # The pull goes on without its consumer, and what comes then is not taken.
        pull = chat._conversation.owner.slot
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tg:

                async def leave():
                    while not pull.is_full:
                        await anyio.sleep(0)
                    scope.cancel()

                tg.start_soon(leave)
                await anyio.sleep(0)
                pull.is_waited_for = True
                pull._asked.ring()
                await anyio.sleep(10)
        assert pull.is_full
        seen.append((turn.cursor, chat.point.delivered, chat.point.committed))
        assert not chat.point.completed
        await anext(turn)
        seen.append((turn.cursor, chat.point.delivered, chat.point.committed))
    cursors = [0, 0, 0, 1] if dedupes else [None] * 4
    assert seen == [
        (at, *n) for at, n in zip(cursors, [(1, 1), (2, 1), (2, 1), (3, 2)], strict=True)
    ]


async def test_a_turn_that_is_left_at_its_last_message_is_completed(loop):
    """As most consumers leave: with the result in hand."""
    backend = Backend([Script(opened("s"), say("a"), done())])
    async with session(backend.open, prompt="go") | idle_guard(60) as chat:
        turn = aiter(chat)
        for completed in (False, False, True):
            await anext(turn)
            assert chat.point.completed is completed


# -- what is done from there -------------------------------------------------------------------------


async def test_a_completed_turn_asks_nothing_again(loop):
    """Iterating gives nothing; the next prompt goes on with the session."""
    first = Backend([Script(opened("s"), say("a"), done())])
    async with session(first.open, prompt="one") | idle_guard(60) as chat:
        await texts(chat)
        kept = elsewhere(chat.point)
    backend = Backend([Script(say("b"), done())])
    async with session(backend.open, point=kept) | idle_guard(60) as chat:
        assert chat.point == kept
        assert await texts(chat) == []
        assert backend.points == []
        assert await texts(chat.ask("two")) == ["b"]
    assert backend.prompts == ["two"]
    assert [(each.attempt, each.token) for each in backend.points] == [(2, "s")]


@pytest.mark.parametrize("resumes", [True, False])
async def test_a_resumed_turn_is_asked_to_continue(loop, resumes):
    """R4: the backend has the prompt, and has begun to work on it."""
    kept = await _point_after(Script(opened("s"), tool_start("t"), hang()), 5)
    assert kept.prompt == "go"
    backend = Backend([Script(say("b"), done())])
    value = session(backend.open, point=kept) | idle_guard(60)
    if resumes:
        value = value | reconnecting_resume(prompt="Go on, after {tools_run}.")
    async with value as chat:
        assert await texts(chat) == ["b"]
    assert backend.prompts == ["Go on, after 1." if resumes else "Continue."]
    [point] = backend.points
    assert (point.attempt, point.token, point.tools_run) == (2, "s", 1)


async def test_a_prompt_that_was_never_answered_is_asked_whole(loop):
    """R4: it may not have come through."""
    kept = await _point_after(Script(hang()), 5)
    backend = Backend([Script(say("b"), done())])
    async with session(backend.open, point=kept) | idle_guard(60) | reconnecting_resume() as chat:
        assert await texts(chat) == ["b"]
    assert backend.prompts == ["go"]


async def test_a_prompt_of_ones_own_is_asked_as_it_is(loop):
    kept = await _point_after(Script(opened("s"), say("a"), hang()), 5)
    backend = Backend([Script(say("b"), done())])
    resume = reconnecting_resume()
    async with session(backend.open, prompt="Mine.", point=kept) | idle_guard(60) | resume as c:
        assert await texts(c) == ["b"]
    assert backend.prompts == ["Mine."]


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ((tool_start("t"), tool_end("t")), "1 tool call occurred"),
        ((say("a"), say("b")), "2 messages had been delivered"),
        ((pings(1, 3),), None),  # nothing that a consumer could act on
    ],
)
@pytest.mark.parametrize("how", ["iterates", "asks", "with a prompt"])
async def test_what_cannot_be_taken_back_is_not_begun_again(loop, steps, said, how):
    """R3: without a token, on this machine or another."""
    kept = await _point_after(Script(*steps, hang()), 50)
    events, backend = Events(), Backend([Script(say("b"), done())])
    prompt = "again" if how == "with a prompt" else None
    value = session(backend.open, prompt=prompt, point=kept) | idle_guard(60, observer=events)
    async with value | reconnecting_resume() as chat:
        turn = chat.ask("next") if how == "asks" else aiter(chat)
        if said is None:
            assert await texts(turn) == ["b"]
            return
        for _ in range(2):
            with pytest.raises(StreamGuardError, match=said) as caught:
                await texts(turn)
        assert caught.value.gave_up == "unsafe"
        assert "without point=" in str(caught.value)
    assert [each.escalate for each in events.of(GaveUp)] == [True]
    assert backend.points == []


async def test_the_counts_go_on(loop):
    """R3: a session that was resumed elsewhere, and loses its token there, is not begun again."""
    kept = await _point_after(Script(opened("s"), tool_start("t"), tool_end("t"), hang()), 5)
    backend = Backend([Script(opened("s", resumable=False), hang())])
    async with session(backend.open, point=kept) | idle_guard(60) | reconnecting_resume() as chat:
        with pytest.raises(IdleTimeoutError) as caught:
            await texts(chat)
        assert (chat.point.tools_run, chat.point.delivered) == (1, 4)
    assert caught.value.gave_up == "unsafe"


@pytest.mark.parametrize("key_of", [int, str])
async def test_a_cursor_goes_on_if_it_has_an_order(loop, key_of):
    """R6: what is not beyond it is dropped; of one without an order, nobody could tell."""

    def key(each):
        return key_of(each.text) if hasattr(each, "text") else None

    resume = reconnecting_resume(dedupe_by=key)
    backend = Backend([Script(say("0"), say("1"), hang())])
    async with session(backend.open, prompt="go") | idle_guard(60) | resume as chat:
        with anyio.move_on_after(5):
            await texts(chat)
        kept = elsewhere(chat.point)
    backend = Backend([Script(say("0"), say("1"), say("2"), done())])
    value = session(backend.open, point=kept) | idle_guard(60) | resume
    if key_of is str:
        with pytest.raises(ConfigError, match="has no order"):
            async with value:
                pass
    else:
        async with value as chat:
            assert await texts(chat) == ["2"]
            assert chat.point.cursor == 2


# -- and really in another process --------------------------------------------------------------------

PROGRAM = """
import asyncio, json, sys
from contextlib import asynccontextmanager

from streamguard import ResumePoint, StreamGuardError, idle_guard, reconnecting_resume, session
from streamguard.testing import Script, done, opened, say, tool_start, hang

at, token = sys.argv[1], sys.argv[2] or None
first = [*([opened(token)] if token else []), say("a"), tool_start("t"), hang()]


@asynccontextmanager
async def open_(point):
    print(json.dumps([point.attempt, point.prompt, point.token, point.tools_run]), flush=True)
    yield Script(*first) if point.attempt == 1 else Script(say("b"), done())


async def main():
    try:
        kept = ResumePoint.from_json(open(at).read())
    except FileNotFoundError:
        kept = None
    prompt = "go" if kept is None else None
    guard = idle_guard(60) | reconnecting_resume()
    async with session(open_, prompt=prompt, point=kept) | guard as chat:
        async for message in chat:
            with open(at, "w") as file:
                json.dump(chat.point.as_json(), file)
            if type(message).__name__.startswith("Tool") or "Tool" in repr(message):
                break
    print("done", flush=True)


try:
    asyncio.run(main())
except StreamGuardError as error:
    print(error.gave_up, flush=True)
"""


@pytest.mark.parametrize("token", ["s-1", ""])
def test_another_process_goes_on(tmp_path, token):
    """R3, R4: by the token, asked to continue; and without one it does not begin again."""
    program, kept = tmp_path / "program.py", tmp_path / "point.json"
    program.write_text(PROGRAM)
    home = Path(__file__).parents[2]

    def run():
        result = subprocess.run(
            [sys.executable, program, kept, token],
            env={**os.environ, "PYTHONPATH": str(home)},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        *opens, end = result.stdout.splitlines()
        return [json.loads(each) for each in opens], end

    assert run() == ([[1, "go", None, 0]], "done")
    if token:
        assert run() == ([[2, "Continue.", "s-1", 1]], "done")
        assert json.loads(kept.read_text())["completed"] is True
        assert run() == ([], "done")
    else:
        assert run() == ([], "unsafe")


async def test_a_circuit_that_is_open_when_a_kept_session_begins(loop):
    """P3: it is what the consumer hears, and not what ended the attempt in the other process."""
    kept = await _point_after(Script(opened("s"), say("a"), hang()))
    assert kept.reason.type_name == "IdleTimeoutError"
    breaker = CircuitBreaker(clock=anyio.current_time, on_open="raise")
    breaker.isolate()
    backend = Backend([Script(done())])
    resume = reconnecting_resume(breaker=breaker)
    async with session(backend.open, point=kept) | idle_guard(60) | resume as chat:
        for _ in range(2):
            with pytest.raises(CircuitOpenError):
                await texts(chat)
        assert chat.point.reason == kept.reason
    assert backend.points == []
