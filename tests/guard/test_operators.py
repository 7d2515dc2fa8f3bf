"""Operators as values: piping, merging, what they refuse, and what is bound to them (O1, O2, T12)."""

from __future__ import annotations

import contextlib
import functools
import itertools
import operator as python_operators
import sys
import warnings
from collections.abc import AsyncIterator
from datetime import timedelta

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamguard import (
    Activity,
    ConfigError,
    DeadlineExceededError,
    Guarded,
    IdleTimeoutError,
    Operator,
    Session,
    StreamGuardWarning,
    ToolTimeoutError,
    activity_stamp,
    derived_idle,
    idle_guard,
    idle_timeout,
    inflight_tool_gate,
    keep_alive,
)
from streamguard.errors import StreamTimeoutError
from streamguard.events import TimedOut
from streamguard.testing import FakeClient, Script, done, hang, run_virtual, say, silence, tool
from tests.growth import MOST, growth_of
from tests.support import Disconnect, Events, take


async def numbers() -> AsyncIterator[int]:
    for i in range(3):
        yield i


class Frames:
    """A source that notes, at each pull, which functions of the package lie above it."""

    def __init__(self) -> None:
        self.seen: list[list[str]] = []

    def __aiter__(self) -> Frames:
        return self

    async def __anext__(self) -> int:
        frame, ours = sys._getframe(1), []
        while frame is not None:
            if frame.f_globals.get("__name__", "").startswith("streamguard."):
                ours.append(frame.f_code.co_qualname)
            frame = frame.f_back
        self.seen.append([name for name in ours if "Virtual" not in name and "run" not in name])
        if len(self.seen) == 4:
            raise StopAsyncIteration
        return len(self.seen)


# --- a value, used on any number of streams (O1)


def test_one_operator_guards_a_thousand_streams_at_once(loop):
    """O1: an operator made once is bound to no stream; each has its own time and its own end."""
    guard = idle_guard(180)

    async def main():
        results = {}

        async def consume(i):
            script = Script(say("x"), silence(60), say("y"), done() if i % 2 else hang())
            results[i] = await take(script | guard)

        async with anyio.create_task_group() as tasks:
            for i in range(1000):
                tasks.start_soon(consume, i)
        return results

    results = loop.run(main)
    assert {i % 2: type(result.error) for i, result in results.items()} == {
        0: IdleTimeoutError,
        1: type(None),
    }
    assert {type(results[i].error) for i in range(0, 1000, 2)} == {IdleTimeoutError}
    assert all(results[i].error is None for i in range(1, 1000, 2))
    assert len({id(results[i].error.activity) for i in range(0, 1000, 2)}) == 500


def test_using_an_operator_changes_nothing_in_it():
    """O1: piping, replacing and guarding give new values and leave the old one as it was."""
    guard = idle_guard(180)
    before = (guard.plan, guard.limits, repr(guard))
    piped, replaced = guard | idle_timeout(60), guard.replace(idle=10)
    assert isinstance(numbers() | guard, Guarded)
    assert (guard.plan, guard.limits, repr(guard)) == before
    assert (piped.limits.idle, replaced.limits.idle) == (60, 10)


def test_a_pipe_and_a_call_are_the_same(loop, form):
    """O1: `source | op`, `op(source)`, `source | (op | op)` and `source | op | op` do the same."""
    gate, idle = inflight_tool_gate(), idle_timeout(60)
    script = Script(say("a"), tool("Bash", 100), hang())
    ways = [
        lambda: script | gate | idle,
        lambda: script | (gate | idle),
        lambda: idle(gate(script)),
        lambda: (idle | gate)(script),
        lambda: gate(script) | idle,
    ]
    for way in ways:
        taken = loop.run(take, way(), form)
        assert isinstance(taken.error, IdleTimeoutError)
        assert loop.took(taken.elapsed, 160)
        assert len(taken.messages) == 3


async def test_every_async_iterable_can_be_piped(loop):
    """O1: `__ror__` takes whatever has `__aiter__`, even where the class knows other pipes."""

    class Own:
        async def __aiter__(self):
            yield 1

        def __or__(self, other):
            return NotImplemented

    guard = idle_guard(180)
    assert [m async for m in Own() | guard] == [1]
    assert [m async for m in numbers() | guard] == [0, 1, 2]
    assert [m async for m in aiter(Script(say("x"))) | guard] != []


def test_the_repr_is_what_was_written():
    """O1: an operator shows what was written, defaults left out."""
    assert repr(idle_guard(180)) == "idle_guard(180)"
    assert repr(idle_guard(None, turn=60)) == "idle_guard(None, turn=60)"
    assert repr(idle_guard("tokens", mode="warn")) == "idle_guard('tokens', mode='warn')"
    assert repr(idle_guard(180, tools={"Bash": 5})) == "idle_guard(180, tools={'Bash': 5})"
    assert repr(idle_guard(180, read="claude")) == "idle_guard(180, read='claude')"
    assert (
        repr(idle_timeout(60) | inflight_tool_gate()) == "idle_timeout(60) | inflight_tool_gate()"
    )
    assert repr(idle_guard(180).replace(idle=60)) == "idle_guard(180).replace(idle=60)"
    assert repr(idle_guard(180).replace(turn=900)) == "idle_guard(180).replace(turn=900)"
    assert repr(activity_stamp(print, every=5)) == f"activity_stamp({print!r}, every=5)"
    assert repr(Script(say("x")) | idle_timeout(1)) == f"{Script(say('x'))!r} | idle_timeout(1)"


def test_the_repr_of_what_the_environment_says(monkeypatch):
    """O9: what is in force is shown, whoever said it."""
    monkeypatch.setenv("STREAMGUARD_IDLE", "42")
    assert repr(idle_guard()) == "idle_guard(42.0)"
    assert idle_guard().limits.idle == 42


# --- what is refused, and what it says (O1)


class ASource:
    async def __aiter__(self):
        yield 1


class AManager:
    async def __aenter__(self):
        return numbers()

    async def __aexit__(self, *_):
        return None


async def eventually_a_stream():
    return numbers()


class Awaitable:
    def __await__(self):
        yield

    def __iter__(self):
        return iter(())


FORGOTTEN = {
    "number": (lambda: 3, "pipe what you would write after `async for ... in`"),
    "nothing": (lambda: None, "pipe what you would write after `async for ... in`"),
    "generator function": (
        lambda: numbers,
        "it was not called: write numbers() | idle_guard(180)",
    ),
    "method": (
        lambda: FakeClient().receive_response,
        "it was not called: write client.receive_response() | idle_guard(180)",
    ),
    "partial": (lambda: functools.partial(numbers), "it was not called: write source() | "),
    "coroutine function": (
        lambda: eventually_a_stream,
        "call and await it first, (await eventually_a_stream()) | idle_guard(180)",
    ),
    "lambda": (lambda: lambda *_: numbers(), "it was not called: write source() | "),
    "class": (
        lambda: ASource,
        "it is a class: pipe an object of it, ASource(...) | idle_guard(180)",
    ),
    "coroutine": (eventually_a_stream, "await it first, (await ...) | idle_guard(180)"),
    "awaitable": (Awaitable, "await it first, (await ...) | idle_guard(180)"),
    "list": (lambda: [1, 2], "it is iterated with plain `for`"),
    "sync generator": (lambda: (i for i in range(3)), "it is iterated with plain `for`"),
    "client": (FakeClient, "it is a client: pipe its stream, client.receive_response() | "),
    "context manager": (AManager, "enter it first, async with ... as stream"),
    "sync context manager": (contextlib.nullcontext, "enter it first, "),
    "async context manager": (
        contextlib.asynccontextmanager(numbers),
        "enter it first, async with ... as stream",
    ),
}


@pytest.mark.parametrize(("make", "hint"), FORGOTTEN.values(), ids=FORGOTTEN)
@pytest.mark.parametrize("through", ["pipe", "call"])
def test_what_is_no_stream_is_refused_with_what_was_forgotten(make, hint, through):
    """O1: a TypeError at the pipe, naming both sides and the step that was left out."""
    thing, guard = make(), idle_guard(180)
    with pytest.raises(TypeError) as caught:
        _ = thing | guard if through == "pipe" else guard(thing)
    assert hint in str(caught.value)
    assert "| idle_guard(180): the left side is not an async iterable" in str(caught.value)


@pytest.mark.parametrize(
    "right", [3, None, numbers, Script(say("x")), print], ids=lambda right: type(right).__name__
)
def test_an_operator_pipes_into_operators_only(right):
    """O1: `op | 3`, and the stream on the wrong side, say where the source belongs."""
    with pytest.raises(TypeError, match="Write the source first: stream \\| idle_guard"):
        _ = idle_guard(180) | right


def test_a_refused_coroutine_is_not_also_reported_as_never_awaited(recwarn):
    """O1: one mistake, one message."""
    with pytest.raises(TypeError):
        _ = eventually_a_stream() | idle_guard(180)
    assert not recwarn.list


def test_what_nobody_can_call_is_refused_after_the_stream():
    """O3: a Guarded goes on into any callable, and into nothing else."""
    guarded = numbers() | idle_guard(180)
    assert (guarded | id) == id(guarded)
    with pytest.raises(TypeError, match="unsupported operand"):
        _ = guarded | 3


def test_a_stamp_goes_into_an_activity_or_a_function():
    """O8: anything else is refused where it is written."""
    with pytest.raises(ConfigError, match=r"activity_stamp\(3\): give it an Activity"):
        activity_stamp(3)
    with pytest.raises(ConfigError, match="every=-1"):
        activity_stamp(print, every=-1)


# --- fusion: one hop, and no wrong order (O2)


def test_six_operators_cost_one_hop(loop, form):
    """O2: between the consumer and the source lies exactly what lies there for one operator."""
    one, six = Frames(), Frames()
    seen = []
    chain = (
        idle_timeout(180)
        | inflight_tool_gate()
        | activity_stamp(seen.append, every=1)
        | idle_guard(170, turn=3600)
    )
    guarded = six | chain | idle_timeout(100) | inflight_tool_gate(60)
    stamped = one | activity_stamp(seen.append, every=1) | idle_guard(100)
    assert loop.run(take, stamped, form).messages == [1, 2, 3]
    assert loop.run(take, guarded, form).messages == [1, 2, 3]
    assert six.seen == one.seen
    for frames in six.seen:
        assert [name for name in frames if name.endswith("__anext__")] == [
            "GuardedIterator.__anext__"
        ]


@pytest.mark.parametrize("form", ["bare"])
def test_an_operator_called_on_a_guarded_stream_fuses_too(loop, form):
    """O2: `op(op(source))` is the same pipe written differently, so one hop again."""
    source = Frames()
    outer = idle_timeout(100)(inflight_tool_gate()(idle_guard(180)(source)))
    assert loop.run(take, outer, form).messages == [1, 2, 3]
    assert {sum(name.endswith("__anext__") for name in frames) for frames in source.seen} == {1}


def some_seconds():
    return st.integers(1, 9).map(float)


def some_tools():
    return st.one_of(
        some_seconds(),
        st.none(),
        st.dictionaries(st.sampled_from(["*", "Bash", "Task"]), st.none() | some_seconds()),
    )


def one_callback():
    return None


def another_callback(*_):
    return None


SHARED = Activity("shared")

OPERATORS = st.one_of(
    st.builds(idle_timeout, st.none() | some_seconds()),
    st.builds(inflight_tool_gate, some_tools()),
    st.just(inflight_tool_gate()),
    st.just(activity_stamp(SHARED)),
    st.builds(
        idle_guard,
        st.one_of(st.none(), some_seconds(), st.sampled_from(["tokens", "messages", "command"])),
        first=st.none() | some_seconds(),
        turn=st.none() | some_seconds(),
        exit_grace=st.none() | some_seconds(),
        liveness=st.none() | some_seconds(),
        total=st.none() | some_seconds(),
        tools=some_tools(),
        mode=st.sampled_from([None, "warn", "off", "enforce"]),
        disconnect=st.sampled_from([None, one_callback, another_callback]),
        disconnect_timeout=some_seconds(),
        observer=st.sampled_from([None, another_callback]),
        activity=st.sampled_from([None, SHARED]),
    ),
)


def meaning(operator: Operator) -> tuple[object, ...]:
    """All that an operator says, but the order in which its callbacks were written."""
    plan = operator.plan
    return (
        operator.limits,
        plan.mode,
        plan.disconnect_timeout,
        plan.activity,
        set(plan.disconnects),
        set(plan.observers),
        len(plan.disconnects),
        len(plan.observers),
    )


def piped(operators):
    return functools.reduce(python_operators.or_, operators)


@given(st.data())
def test_order_and_grouping_do_not_matter(data):
    """O2: any permutation and any grouping of our operators says the same."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StreamGuardWarning)
        operators = data.draw(st.lists(OPERATORS, min_size=2, max_size=5))
        shuffled = data.draw(st.permutations(operators))
        cut = data.draw(st.integers(1, len(operators) - 1))
        assert meaning(piped(shuffled)) == meaning(piped(operators))
        grouped = piped(operators[:cut]) | piped(operators[cut:])
        assert meaning(grouped) == meaning(piped(operators))
        assert meaning(piped([*operators, *operators])) == meaning(piped(operators))


def test_every_order_gives_its_verdict_at_the_same_time(loop):
    """O2: what the permutations say is also what they do."""
    parts = [
        idle_timeout(60),
        idle_guard(90, total=500),
        inflight_tool_gate(300),
    ]
    script = Script(say("a"), tool("Bash", 100), hang())
    for order in itertools.permutations(parts):
        taken = loop.run(take, functools.reduce(python_operators.or_, order, script))
        assert isinstance(taken.error, IdleTimeoutError)
        assert taken.error.verdict.window == 60
        assert loop.took(taken.elapsed, 160)


def test_two_readers_in_one_pipe_are_refused():
    """O2: there is no tightest reader, so order would matter: two different ones are an error."""
    with pytest.raises(ConfigError, match="read"):
        _ = idle_guard(180, read=lambda _: None) | idle_guard(60, read=lambda _: [])


# --- knobs written twice (T12)


def test_of_a_knob_written_twice_the_tightest_wins(loop, form):
    """T12: 60 s and 180 s are 60 s, in whatever order they were written."""
    for stream in (
        Script(hang()) | idle_guard(180) | idle_timeout(60),
        Script(hang()) | idle_timeout(60) | idle_guard(180),
    ):
        taken = loop.run(take, stream, form)
        assert isinstance(taken.error, IdleTimeoutError)
        assert loop.took(taken.elapsed, 60)


def test_a_default_never_competes():
    """T12: the gate's default of 7200 s gives way to 10,000 s that were written."""
    script = Script(tool("Bash", 9000), done())
    assert run_virtual(take, script | idle_guard(180) | inflight_tool_gate(10_000)).error is None
    assert isinstance(run_virtual(take, script | idle_guard(180)).error, ToolTimeoutError)
    assert idle_guard(180).limits.tools == 7200
    assert (idle_guard(180) | inflight_tool_gate(10_000)).limits.tools == 10_000
    assert (idle_guard(180) | inflight_tool_gate(None)).limits.tools is None
    assert (idle_guard(180, tools=600) | inflight_tool_gate()).limits.tools == 600
    assert (idle_guard(180) | idle_guard(180, disconnect_timeout=99)).plan.disconnect_timeout == 99


def test_off_is_the_widest_value():
    """T12: `None` was written too, and any number is tighter."""
    assert (idle_guard(None) | idle_timeout(60)).limits.idle == 60
    assert (idle_timeout(60) | idle_guard(None)).limits.idle == 60
    assert (idle_guard(None) | idle_timeout(None)).limits.idle is None


def test_tools_merge_by_name():
    """T12: each tool's allowance is a knob of its own."""
    merged = inflight_tool_gate({"Bash": 600, "Task": None}) | inflight_tool_gate(
        {"Bash": 900, "Web": 5}
    )
    assert dict(merged.limits.tools_by_name) == {"Bash": 600, "Task": None, "Web": 5}
    assert merged.limits.tools == 7200
    assert (merged | inflight_tool_gate(60)).limits.allowance("Other") == 60
    assert (merged | inflight_tool_gate(60)).limits.allowance("Bash") == 600


def test_a_written_tool_allowance_is_enforced(loop):
    """T12: `idle_timeout | inflight_tool_gate(300)` ends a tool after 300 s, and says which."""
    stream = Script(tool("Bash", 900)) | idle_timeout(60) | inflight_tool_gate({"Bash": 300})
    taken = loop.run(take, stream)
    assert isinstance(taken.error, ToolTimeoutError)
    assert taken.error.verdict.work == "Bash"
    assert loop.took(taken.elapsed, 300)


def test_callbacks_accumulate_and_run_once_each(loop, form):
    """T12: of two operators' disconnects and observers all are called, the same one once."""
    first, second, events, more = Disconnect(), Disconnect(), Events(), Events()
    stream = (
        Script(hang())
        | idle_guard(180, disconnect=first, observer=events)
        | idle_guard(180, disconnect=second, observer=more)
        | idle_guard(180, disconnect=first, observer=events)
    )
    taken = loop.run(take, stream, form)
    assert isinstance(taken.error, IdleTimeoutError)
    assert (first.finished, second.finished) == (1, 1)
    assert len(events.of(TimedOut)) == len(more.of(TimedOut)) == 1


async def test_a_client_given_twice_is_disconnected_once(loop, form):
    """T12: `client=c` and `disconnect=c.disconnect` are the same callback."""
    client = FakeClient(Script(hang()))
    stream = (
        client.receive_response()
        | idle_guard(180, client=client)
        | idle_guard(180, disconnect=client.disconnect)
    )
    taken = await take(stream, form)
    assert isinstance(taken.error, IdleTimeoutError)
    assert client.calls.count("disconnect") == 1


async def test_client_and_disconnect_on_one_operator_are_both_called(loop):
    """T12: neither keyword replaces the other."""
    client, extra = FakeClient(Script(hang())), Disconnect()
    guard = idle_guard(180, client=client, disconnect=extra)
    taken = await take(client.receive_response() | guard)
    assert isinstance(taken.error, IdleTimeoutError)
    assert client.disconnected
    assert extra.finished == 1


def test_replace_overrides_what_merging_would_keep(loop):
    """T12: `replace` sets a knob anew, up as well as down, and touches no other."""
    guard = idle_guard(60, turn=900, tools={"Bash": 5})
    assert guard.replace(idle=180).limits.idle == 180
    assert guard.replace(idle=None).limits.idle is None
    assert guard.replace(idle=180).limits.turn == 900
    assert guard.replace(turn=None).limits.turn is None
    assert guard.replace(tools=7).limits.allowance("Bash") == 7
    assert (guard.replace(idle=180) | idle_timeout(120)).limits.idle == 120
    assert guard.replace(mode="warn").plan.mode == "warn"
    taken = loop.run(take, Script(hang()) | idle_guard(60).replace(idle=180))
    assert loop.took(taken.elapsed, 180)


@pytest.mark.parametrize(
    ("knobs", "hint"),
    [
        ({"idel": 3}, "did you mean 'idle'"),
        ({"idle": -1}, "idle=-1: use a positive number"),
        ({"turn": float("nan")}, "turn=nan"),
        ({"total": -1}, "total=-1"),
        ({"first": "soon"}, "first='soon': use seconds, a timedelta, or a text"),
        ({"mode": "strict"}, "use 'enforce', 'warn' or 'off'"),
        ({"client": FakeClient}, "is a class: pass an object of it"),
        ({"disconnect": 3}, "pass the function itself"),
        ({"activity": "issue-7"}, "pass an Activity"),
    ],
)
def test_replace_validates_as_the_operators_do(knobs, hint):
    """T12: a value is refused where it is written, by whatever it is written with."""
    with pytest.raises(ConfigError) as caught:
        idle_guard(180).replace(**knobs)
    assert hint in str(caught.value)


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), True, "18x", timedelta(-1)])
@pytest.mark.parametrize("write", [idle_timeout, idle_guard, inflight_tool_gate, derived_idle])
def test_a_window_is_a_positive_number_of_seconds(write, value):
    """T12: nonsense raises at the line that says it, and names the knob."""
    with pytest.raises(ConfigError, match=r"(idle|tools|total)="):
        write(value)


def test_what_an_operator_refuses_is_a_value_error_too():
    """T12: code that knows nothing of streamguard can catch it."""
    with pytest.raises(ValueError, match="idle"):
        idle_timeout(-1)


def test_two_activities_in_one_pipe_are_refused():
    """T12: a stream has one live state; naming both says which to drop."""
    with pytest.raises(ConfigError, match=r"activity= was written twice .*'a'.*'b'"):
        _ = activity_stamp(Activity("a")) | idle_guard(180, activity=Activity("b"))
    same = Activity("a")
    assert (activity_stamp(same) | idle_guard(180, activity=same)).plan.activity is same


def test_contradictions_warn_once_where_they_were_written():
    """T12: two written values that cannot both matter are named; defaults never warn."""
    with pytest.warns(StreamGuardWarning, match=r"idle=60 .* turn=60") as caught:
        contradiction = idle_guard(60, turn=60)
    assert [record.filename for record in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _ = contradiction | inflight_tool_gate()
        idle_guard("tokens", turn=200)  # `first` of the preset is a default
    with pytest.warns(StreamGuardWarning, match=r"turn=90 .* total=80") as caught:
        _ = idle_guard(60, turn=90) | idle_guard(None, total=80)
    assert [record.filename for record in caught] == [__file__]


# --- idle_guard is the sum of its parts (O9)


def test_idle_guard_is_gate_and_idle():
    """O9: `idle_guard(180)` says what `idle_timeout(180) | inflight_tool_gate()` says, and listens for what gets nowhere."""
    parts = idle_timeout(180) | inflight_tool_gate()
    assert meaning(idle_guard(180, quiet=None, repeats=None)) == meaning(parts)
    limits = idle_guard(180).limits
    assert (limits.quiet, limits.repeats, limits.ceilings, limits.end_on) == (900, 20, {}, set())


@pytest.mark.parametrize(
    ("pace", "idle", "first"),
    [("tokens", 120, 300), ("messages", 900, None), ("command", 1800, None)],
)
def test_paces(pace, idle, first):
    """O9: a preset by how finely the backend talks; what is written beside it wins."""
    limits = idle_guard(pace).limits
    assert (limits.idle, limits.first) == (idle, first)
    assert idle_guard(pace, first=7).limits.first == 7
    assert idle_guard(pace).replace(idle=50).limits.idle == 50
    assert (idle_guard(pace) | idle_guard(None, first=1000)).limits.first == 1000


def test_a_pace_that_nobody_knows():
    """O9: the presets are listed."""
    with pytest.raises(ConfigError, match="'tokens', 'messages', 'command'"):
        idle_guard("fast")


def test_no_idle_limit_is_a_passthrough_but_for_the_rest(loop, form):
    """O9: `idle_guard(None)` waits for ever; a `total` beside it still ends the stream."""
    script = Script(say("a"), silence(400), say("b"))
    assert len(loop.run(take, script | idle_guard(None), form).messages) == 2
    taken = loop.run(take, Script(hang()) | idle_guard(None, total=600), form)
    assert isinstance(taken.error, DeadlineExceededError)
    assert loop.took(taken.elapsed, 600)


def test_no_limit_anywhere_is_a_config_error(monkeypatch):
    """O9: `idle_guard()` is what configuration says, and an error if it says nothing."""
    monkeypatch.delenv("STREAMGUARD_IDLE", raising=False)
    with pytest.raises(ConfigError, match="STREAMGUARD_IDLE"):
        idle_guard()
    monkeypatch.setenv("STREAMGUARD_IDLE", "0")
    assert idle_guard().limits.idle is None


def test_a_timedelta_is_as_good_as_seconds():
    """T12: both are written by users."""
    assert meaning(idle_guard(timedelta(minutes=3))) == meaning(idle_guard(180))
    assert derived_idle(timedelta(hours=1)) == derived_idle(3600) == 720


@pytest.mark.parametrize(("total", "idle"), [(60, 300), (1500, 300), (3600, 720), (9000, 900)])
def test_an_idle_limit_derived_from_a_job(total, idle):
    """O9: a fifth of the job, between five and fifteen minutes."""
    assert derived_idle(total) == idle


# --- what is bound serves one stream at a time (O1)


def bound_operator(kind):
    match kind:
        case "client":
            return idle_guard(180, client=FakeClient(ends_stream=False))
        case "disconnect":
            return idle_guard(180, disconnect=Disconnect())
        case "activity":
            return idle_guard(180, activity=Activity("issue-7"))
        case _:
            return idle_timeout(180) | activity_stamp(Activity("issue-7"))


BOUND = pytest.mark.parametrize("kind", ["client", "disconnect", "activity", "stamp"])


@BOUND
async def test_what_is_bound_is_refused_on_a_second_stream_at_once(loop, form, kind):
    """O1: a stream that is being waited for has what is bound; a second one is told so."""
    guard = bound_operator(kind)
    results = []

    async def consume():
        results.append(await take(Script(say("a"), hang()) | guard, form))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(consume)
        await anyio.wait_all_tasks_blocked()
        second = await take(Script(say("b")) | guard, form)
    assert type(second.error) is RuntimeError
    assert "serves one stream at a time" in str(second.error)
    assert second.messages == []
    (first,) = results
    assert isinstance(first.error, IdleTimeoutError)  # undisturbed
    assert loop.took(first.elapsed, 180)


async def test_an_open_block_has_what_is_bound_though_nobody_pulls(loop):
    """O1: in the hosted form the block is the use, whatever its consumer is doing."""
    guard = idle_guard(180, disconnect=Disconnect())
    async with Script(say("a"), say("b")) | guard as messages:
        assert await anext(messages)
        refused = await take(Script(say("c")) | guard)
    assert isinstance(refused.error, RuntimeError)
    assert len((await take(Script(say("c")) | guard)).messages) == 1


@BOUND
@pytest.mark.parametrize("end", ["normal", "break", "verdict", "error"])
async def test_what_is_bound_serves_turn_after_turn(loop, form, kind, end):
    """O1: however the last turn ended, the next one may have what is bound."""
    guard = bound_operator(kind)
    for turn in range(3):
        stream = turn_of(end) | guard
        if end == "break":
            await first_message(stream, form)
        else:
            taken = await take(stream, form)
            assert len(taken.messages) == 1, turn
            expected = {"normal": type(None), "verdict": IdleTimeoutError, "error": OSError}
            assert type(taken.error) is expected[end]


def turn_of(end):
    async def play():
        yield "message"
        if end == "verdict":
            await anyio.sleep_forever()
        if end == "error":
            raise OSError("connection lost")

    return play()


async def first_message(stream, form):
    if form == "bare":
        try:
            async for _ in stream:
                break
        finally:
            await stream.aclose()
    else:
        async with stream as messages:
            async for _ in messages:
                break


async def test_what_was_refused_can_be_tried_again(loop):
    """O1: the refusal is about now; once the other stream is over, the same pipe works."""
    guard = idle_guard(180, disconnect=Disconnect())
    second = Script(say("b")) | guard
    async with Script(say("a")) | guard:
        with pytest.raises(RuntimeError, match="one stream at a time"):
            await second.__aenter__()
    async with second as messages:
        assert len([m async for m in messages]) == 1


def test_observers_and_stamping_functions_are_not_bound(loop):
    """O1: they only listen, so any number of streams may share them."""
    events, seen = Events(), []
    guard = idle_guard(180, observer=events) | activity_stamp(seen.append)

    async def main():
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(take, Script(say("a"), hang()) | guard)

    loop.run(main)
    assert len(events.of(TimedOut)) == 3
    assert len({id(activity) for activity in seen}) == 3
    assert all(issubclass(type(e.activity), Activity) for e in events)
    assert issubclass(IdleTimeoutError, StreamTimeoutError)


@pytest.mark.parametrize(
    "operator",
    [
        idle_guard(9) | keep_alive(1, object),
        keep_alive(1, object) | idle_guard(9),
        (idle_guard(9) | keep_alive(1, object)).replace(9, total=20),
        idle_guard(9) | (keep_alive(1, object) | inflight_tool_gate()),
    ],
    ids=["last", "first", "replaced", "grouped"],
)
def test_what_wants_a_session_makes_one_wherever_it_stands(operator):
    """O2, O11: in whatever order, piped, called, or laid over a stream that is guarded already."""
    for made in (
        Script(say("x")) | operator,
        operator(Script(say("x"))),
        (Script(say("x")) | idle_timeout(5)) | operator,
        operator(Script(say("x")) | idle_timeout(5)),
    ):
        assert isinstance(made, Session)
    assert not isinstance(Script(say("x")) | idle_guard(9), Session)


@pytest.mark.parametrize("knob", ["disconnect", "observer"])
def test_one_more_operator_costs_as_much_as_the_first(knob):
    """O2: what each of them has of its own is not held against all that the others have."""

    def piped(n):
        made = [idle_guard(180, **{knob: lambda *_, number=number: number}) for number in range(n)]
        return lambda: functools.reduce(python_operators.or_, made)

    assert growth_of(piped, 100) <= MOST
