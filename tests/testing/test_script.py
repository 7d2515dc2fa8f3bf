"""A script says what a backend does; each iteration plays it anew."""

from __future__ import annotations

import math

import anyio
import pytest

from streamguard import signals as s
from streamguard.testing import (
    Script,
    block,
    call,
    done,
    fail,
    failed,
    hang,
    message,
    opened,
    ping,
    pings,
    repeat,
    run_virtual,
    say,
    silence,
    tool,
    tool_end,
    tool_progress,
    tool_start,
    usage,
    wait_ended,
    waiting,
)
from streamguard.testing.messages import Message, Pinged, Said, ToolDone, ToolUsed

both = pytest.mark.parametrize("backend", ["asyncio", "trio"])


async def timed(source, until=math.inf):
    """Every message with its time since the start, up to the time `until`."""
    began = anyio.current_time()
    seen = []
    with anyio.move_on_after(until):
        async for each in source:
            seen.append((anyio.current_time() - began, each))
    return seen


@both
def test_a_script_plays_its_steps_in_time(backend):
    script = Script(say("x"), tool("Bash", 3600, id="t1"), silence(200), ping(), say("y"))
    assert run_virtual(timed, script, backend=backend) == [
        (0, Said("x")),
        (0, ToolUsed("t1", "Bash")),
        (3600, ToolDone("t1")),
        (3800, Pinged()),
        (3800, Said("y")),
    ]


@both
def test_each_iteration_starts_anew(backend):
    script = Script(say("x"), silence(1), say("y"))

    async def main():
        return await timed(script), await timed(script)

    first, second = run_virtual(main, backend=backend)
    assert first == second == [(0, Said("x")), (1, Said("y"))]


@both
def test_a_hang_lasts_for_ever(backend):
    seen = run_virtual(timed, Script(say("x"), hang(), say("never")), 1e9, backend=backend)
    assert seen == [(0, Said("x"))]


@both
def test_pings_without_a_number_never_end(backend):
    times = [at for at, _ in run_virtual(timed, Script(pings(30)), 3000, backend=backend)]
    assert times[:3] == [30, 60, 90]
    assert len(times) >= 99


@both
def test_pings_and_repetitions_can_be_counted(backend):
    script = Script(pings(10, 2), repeat(say("a"), repeat(say("b"), times=2), times=2))
    seen = [type(each).__name__ for _, each in run_virtual(timed, script, backend=backend)]
    assert seen == ["Pinged", "Pinged", *["Said"] * 6]


@both
@pytest.mark.parametrize("error", [LookupError("gone"), LookupError])
def test_a_failure_is_raised_in_the_stream(backend, error):
    async def main():
        seen = []
        with pytest.raises(LookupError):
            async for each in Script(say("x"), fail(error), say("never")):
                seen.append(each)
        return seen

    assert run_virtual(main, backend=backend) == [Said("x")]


@both
def test_a_call_runs_where_it_stands_sync_or_async(backend):
    calls = []

    async def later():
        await anyio.sleep(5)
        calls.append(("async", anyio.current_time()))

    async def main():
        began = anyio.current_time()
        script = Script(call(lambda: calls.append("sync")), say("x"), call(later), say("y"))
        seen = await timed(script)
        return seen, [calls[0], (calls[1][0], calls[1][1] - began)]

    seen, called = run_virtual(main, backend=backend)
    assert seen == [(0, Said("x")), (5, Said("y"))]
    assert called == ["sync", ("async", 5)]


@both
def test_a_block_lets_time_pass_and_nobody_run(backend):
    ticks = []

    async def tick():
        while True:
            await anyio.sleep(1)
            ticks.append(anyio.current_time())

    async def main():
        async with anyio.create_task_group() as tg:
            tg.start_soon(tick)
            seen = await timed(Script(block(60), say("x")))
            during = list(ticks)
            tg.cancel_scope.cancel()
        return seen, during

    assert run_virtual(main, backend=backend) == ([(60, Said("x"))], [])


@both
def test_any_object_can_be_a_message(backend):
    anything = {"type": "result"}
    assert run_virtual(timed, Script(message(anything)), backend=backend) == [(0, anything)]


@pytest.mark.parametrize(
    ("step", "signal"),
    [
        (say("x"), s.Progress()),
        (ping(), s.Liveness()),
        (opened("tok"), s.SessionOpened("tok")),
        (opened("tok", resumable=False), s.SessionOpened("tok", resumable=False)),
        (tool_start("t", "Bash"), s.WorkStarted("t", "Bash")),
        (tool_start("t", background=True), s.WorkStarted("t", "t", background=True)),
        (tool_start("t", parent="a"), s.WorkStarted("t", "t", parent="a")),
        (tool_progress("t"), s.WorkProgressed("t")),
        (tool_end("t"), s.WorkFinished("t")),
        (tool_end("t", error=True), s.WorkFinished("t", error=True)),
        (waiting("w", "hook", until=5.0), s.Waiting("w", "hook", 5.0)),
        (wait_ended("w"), s.WaitEnded("w")),
        (usage(tokens=3), s.Usage({"tokens": 3})),
        (usage(tokens=3, span="turn"), s.Usage({"tokens": 3}, "turn")),
        (usage(tokens=3, call="m-1"), s.Usage({"tokens": 3}, "call", "m-1")),
        (failed("auth", retry_after=2.0, detail="no"), s.Failed("auth", 2.0, "no")),
        (done(), s.TurnEnded()),
        (done(answered=False), s.TurnEnded(answered=False)),
        (
            done("error", subtype="max_turns", retriable=True, more_expected=True),
            s.TurnEnded("error", "max_turns", retriable=True, more_expected=True),
        ),
    ],
)
def test_every_message_carries_its_signals(step, signal):
    """S1: the automatic reader asks a message of this package for them."""
    assert isinstance(step.message, Message)
    assert step.message.signals == (signal,)
    assert type(step.message).__module__.split(".")[0] == "streamguard"


def test_a_tool_in_the_background_says_so():
    start, _, _ = tool("Bash", 60, background=True).steps
    assert start.message.signals == (s.WorkStarted("Bash", "Bash", background=True),)


def test_a_tool_says_what_it_was_asked_and_what_came_of_it():
    """The very objects, which need be no keys: neither makes one message differ from another."""
    asked, gave = {"command": "ls"}, ["a", "b"]
    start, _, end = tool("Bash", 60, input=asked, outcome=gave).steps
    (started,), (finished,) = start.message.signals, end.message.signals
    assert started.input is asked
    assert finished.outcome is gave
    assert (start, end) == (tool_start("Bash"), tool_end("Bash"))


def test_scripts_are_values():
    one = Script(say("x"), tool("Bash", 1))
    assert one == Script(say("x")) + tool("Bash", 1) == Script(say("x"), Script(tool("Bash", 1)))
    assert len({one, Script(say("x"), tool("Bash", 1))}) == 1
    assert repr(Script(silence(200), hang())) == "Script(Silence(seconds=200), Hang())"
    with pytest.raises(AttributeError):
        one.steps = ()


@pytest.mark.parametrize("make", [silence, block, lambda n: tool("x", n), pings])
@pytest.mark.parametrize("nonsense", [-1, math.nan])
def test_nonsense_durations_are_refused_where_they_are_written(make, nonsense):
    with pytest.raises(ValueError, match="seconds="):
        make(nonsense)


@pytest.mark.parametrize(
    "backend",
    [("asyncio", {}), ("asyncio", {"use_uvloop": True}), ("trio", {})],
    ids=["asyncio", "uvloop", "trio"],
)
def test_a_script_plays_in_real_time_too(backend):
    name, options = backend
    script = Script(say("x"), silence(0.01), block(0.01), say("y"))
    seen = anyio.run(timed, script, backend=name, backend_options=options)
    assert [each for _, each in seen] == [Said("x"), Said("y")]
    assert seen[1][0] > 0.017  # uvloop counts whole milliseconds


@pytest.mark.parametrize(
    ("part", "said"), [(hang, r"call it, hang\(\)"), ("a", r"say\('...'\) makes a message")]
)
def test_what_is_no_step_is_refused_where_it_is_written(part, said):
    with pytest.raises(TypeError, match=said):
        Script(say("x"), part)
    with pytest.raises(TypeError, match=said):
        Script() + part
