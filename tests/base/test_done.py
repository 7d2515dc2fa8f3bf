"""What a session has done, from one counter: on the activity, errors, receipts, and resume points."""

from __future__ import annotations

import copy
import json
import pickle
from contextlib import asynccontextmanager
from dataclasses import asdict, replace

import pytest

from streamguard import (
    Activity,
    IdleTimeoutError,
    ResumePoint,
    idle_guard,
    reconnecting_resume,
    session,
)
from streamguard._base.done import Deeds, Done
from streamguard.signals import SessionOpened, TurnEnded, Usage, WorkFinished, WorkStarted
from streamguard.testing import Script, done, hang, opened, say, tool, usage
from tests.evidence.support import Run, ending, hanging, said
from tests.support import take

BUSY = (
    SessionOpened("tok-1", work_dir="/home/me/project"),
    WorkStarted("t1", "Bash"),
    WorkFinished("t1"),
    WorkStarted("t1", "Bash"),
    WorkStarted("h1", "Stop", "hook"),
    Usage({"output_tokens": 5.0}),
)
ONCE = Done(
    tools_run=1,
    usage={"output_tokens": 5.0},
    work_dir="/home/me/project",
    spent={"tokens": 5.0, "calls": 1.0},
    tokens={"output": 5.0},
)


def test_a_count_is_a_value():
    deeds = Deeds()
    for signal in BUSY:
        deeds.note(signal)
    count = deeds.so_far()
    assert count == ONCE
    assert hash(count) == hash(ONCE)
    assert pickle.loads(pickle.dumps(count)) == copy.deepcopy(count) == count
    deeds.note(Usage({"output_tokens": 9.0}))
    assert count.usage == {"output_tokens": 5.0}


async def test_an_error_says_what_was_done(loop, form):
    """S0-19, S3-15, S4-14: with the error of the verdict, and still when it has been handed on."""
    activity = Activity()
    source = Script(
        opened("tok-1", work_dir="/home/me/project"),
        *(tool("Bash", 1), tool("Bash", 1), tool("Edit", 1), usage(output_tokens=5)),
        hang(),
    )
    taken = await take(source | idle_guard(60, activity=activity), form)
    assert isinstance(taken.error, IdleTimeoutError)
    error = taken.error
    count = Done(
        tools_run=2,
        usage={"output_tokens": 5},
        work_dir="/home/me/project",
        spent={"tokens": 5.0, "calls": 1.0},
    )
    assert error.done == error.verdict.done == activity.done == count
    assert pickle.loads(pickle.dumps(error)).done == count


async def test_tools_without_an_id_count_each(loop, form):
    """S4-06: whether they are the same nobody can tell, and a retry must not repeat what was done."""
    activity = Activity()
    source = Script(tool("Bash", 1, id=""), tool("Bash", 1, id=""), done())
    await take(source | idle_guard(60, activity=activity), form)
    assert activity.done.tools_run == 2


async def test_a_tool_without_an_id_is_not_cut_in_the_middle(loop, form):
    """S4-06: the watchdog that this came from needs no ids."""
    source = Script(say("x"), tool("Bash", 200, id=""), done())
    assert (await take(source | idle_guard(50), form)).error is None


def opener(*attempts, points):
    attempts = iter(attempts)

    @asynccontextmanager
    async def open_(point):
        points.append(point)
        yield next(attempts)

    return open_


async def test_all_attempts_at_a_prompt_are_one_count(loop, tmp_path):
    """S0-19, S4-14, S4-18: the activity, the error, the receipt and the point say the same."""
    run, points, activity = Run(tmp_path), [], Activity("s")
    more = (SessionOpened("tok-1"), WorkStarted("t2", "Edit"), WorkFinished("t2"))
    open_ = opener(hanging(*BUSY), hanging(*more), points=points)
    stream = (
        session(open_, prompt="Fix it")
        | idle_guard(60, read=said, activity=activity)
        | reconnecting_resume(retries=1, backoff=(0,))
    )
    async with run.recorder():
        with pytest.raises(IdleTimeoutError) as caught:
            async with stream as chat:
                async for _ in chat:
                    pass
        error, point = caught.value, chat.point
    count = replace(ONCE, tools_run=2, attempts=2)
    assert error.done == activity.done == count
    assert run.receipt()["done"] == count.as_json()
    assert [(each.tools_run, each.work_dir) for each in points] == [(0, None), (1, count.work_dir)]
    assert (point.tools_run, point.work_dir) == (2, count.work_dir)
    assert ResumePoint.from_json(point.as_json()).work_dir == count.work_dir


async def test_an_error_of_the_backends_own_says_it_too(loop):
    """S0-17: what was done decides, so whoever catches the error can read it."""

    async def failing():
        yield WorkStarted("t1", "Bash")
        yield WorkFinished("t1")
        raise ConnectionResetError

    stream = (
        session(opener(failing(), points=[]), prompt="Fix it")
        | idle_guard(60, read=said)
        | reconnecting_resume()
    )
    with pytest.raises(ConnectionResetError) as caught:
        async with stream as chat:
            async for _ in chat:
                pass
    error = caught.value
    assert error.gave_up == "unsafe"
    assert error.done == Done(tools_run=1)


async def test_what_is_played_again_was_not_done_again(loop):
    """R6: also if it was begun in another process, which told no ids."""
    activity = Activity()
    again, order = ending(*BUSY[1:3], TurnEnded()), [WorkStarted, WorkFinished, TurnEnded]
    start = ResumePoint(prompt="Fix it", cursor=1, tools_run=1, delivered=1, committed=1)

    stream = (
        session(opener(again, points=[]), point=start)
        | idle_guard(60, read=said, activity=activity)
        | reconnecting_resume(dedupe_by=lambda signal: order.index(type(signal)))
    )
    async with stream as chat:
        async for _ in chat:
            pass
    assert activity.done.tools_run == 1


async def test_a_new_prompt_begins_a_new_count(loop):
    """S0-13, S0-19: but what is known of the backend stays known, also over a new connection."""
    activity, points, counts = Activity(), [], []
    again = ending(SessionOpened("tok-1"), TurnEnded())
    open_ = opener(ending(*BUSY, TurnEnded()), again, points=points)
    async with session(open_) | idle_guard(60, read=said, activity=activity) as chat:
        for prompt in ("Fix it", "And now?"):
            async for _ in chat.ask(prompt):
                pass
            counts.append((activity.done.tools_run, activity.done.work_dir))
    assert counts == [(1, ONCE.work_dir), (0, ONCE.work_dir)]
    assert points[1].work_dir == ONCE.work_dir


async def test_ids_that_begin_anew_with_each_attempt_are_other_calls(loop):
    """S0-19: a command numbers its calls from the first one again."""
    activity = Activity()
    open_ = opener(
        hanging(SessionOpened("s"), *BUSY[1:3]), ending(*BUSY[1:3], TurnEnded()), points=[]
    )
    pipe = idle_guard(60, read=said, activity=activity) | reconnecting_resume(backoff=(0,))
    async with session(open_, prompt="Fix it") | pipe as chat:
        async for _ in chat:
            pass
    assert activity.done.tools_run == 2


def test_a_count_is_plain_data(loop):
    """As people log it, also when there is nothing in it yet."""
    for count in (Done(), Activity().done, Deeds().so_far(), ONCE):
        assert json.loads(json.dumps(asdict(count))) == count.as_json()
        assert json.dumps(count.usage)


def test_a_verdict_beside_a_stream_that_says_nothing():
    assert Activity().done == Done()
    deeds = Deeds()
    deeds.carry(3)
    deeds.note(WorkStarted("", "Bash"))
    assert deeds.so_far(2) == Done(tools_run=4, attempts=2)
