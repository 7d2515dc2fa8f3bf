"""P4: one scope and its nested ones: when time is up, who is named, what is not begun."""

from __future__ import annotations

import copy
import math
import pickle
from datetime import timedelta

import anyio
import pytest

from streamguard import (
    ConfigError,
    DeadlineExceededError,
    Scope,
    StreamTimeoutError,
    exit_code_for,
    scope,
)
from streamguard import limits as limits_module
from streamguard.events import ScopeTimedOut
from streamguard.limits import BUDGETS, current, path, remaining
from streamguard.testing import block_loop, run_virtual
from tests.conftest import Loop
from tests.growth import MOST, growth_of
from tests.scopes.support import names, verdict_of, witnessed

MINUTE = 60.0


# -- the table ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "timeout", "hard"),
    [("flow", 30, 45), ("step", 10, 15), ("llm_call", 2, 3), ("tool", 5, 10)],
)
def test_the_defaults_and_the_hard_limits(kind, timeout, hard):
    """S2-01, S2-02: the table of the policy."""
    made = scope(kind)
    assert (made.kind, made.timeout, made.hard) == (kind, timeout * MINUTE, hard * MINUTE)
    assert BUDGETS[kind] == (made.timeout, made.hard)


def test_a_scope_takes_seconds_or_a_timedelta():
    assert scope("step", timeout=90).timeout == 90
    assert scope("step", timeout=timedelta(minutes=3)).timeout == 180
    assert scope("step", timeout=1200, hard=timedelta(minutes=30)).hard == 1800


def test_past_the_hard_limit_is_an_error_unless_that_is_raised():
    """P4: the soft limit is what cuts, the hard one bounds what may be written."""
    assert scope("step", timeout=900).timeout == 900
    with pytest.raises(ConfigError, match=r"step 'x': timeout=901 .* hard limit of 900 s.*hard="):
        scope("step", "x", timeout=901)
    assert scope("step", timeout=1200, hard=1200).timeout == 1200


def test_a_default_gives_way_to_a_lower_hard_limit():
    assert scope("step", hard=300).timeout == 300


@pytest.mark.parametrize("value", [0, "off", -1, math.nan, math.inf, True, "long", [60]])
@pytest.mark.parametrize("knob", ["timeout", "hard"])
def test_what_is_no_time_is_refused(knob, value):
    """T12: where it is written, by the name it is written with."""
    with pytest.raises(ConfigError, match=rf"{knob}=.*None = the default"):
        scope("step", **{knob: value})


def test_its_time_is_written_as_everywhere():
    made = scope("step", timeout="1m30s", hard=timedelta(minutes=2))
    assert (made.timeout, made.hard) == (90, 120)


def test_an_unknown_kind_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match="there is no scope 'setp': did you mean 'step'"):
        scope("setp")
    with pytest.raises(ConfigError, match="use one of flow, step, llm_call, tool"):
        scope("xyzzy")


# -- time is up ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["flow", "step", "llm_call", "tool"])
async def test_a_scope_ends_what_outlives_it(loop: Loop, kind):
    """P4, T7: at its time, with the limit, the window and the names in the error."""
    started = anyio.current_time()
    with witnessed() as told, pytest.raises(DeadlineExceededError) as raised:
        async with scope(kind, "x", timeout=60):
            await anyio.sleep(1000)
    assert loop.took(anyio.current_time() - started, 60)
    error, verdict = raised.value, verdict_of(raised.value)
    assert isinstance(error, StreamTimeoutError)
    assert isinstance(error, TimeoutError)
    assert exit_code_for(error) == 124
    assert (verdict.limit, verdict.window, verdict.name) == (kind, 60, "x")
    assert loop.took(verdict.elapsed, 60)
    assert verdict.when is not None
    assert names(error) == (f"{kind} 'x'",) * 3
    assert (error.__cause__, error.__suppress_context__) == (None, True)  # our own cut is no news
    assert [note.partition("\n")[0] for note in error.__notes__] == ["It was waiting here:"]
    assert told == [ScopeTimedOut(verdict=verdict)]


async def test_what_is_done_in_time_is_left_alone(loop: Loop):
    with witnessed() as told:
        async with scope("step", timeout=60):
            await anyio.sleep(59)
        await anyio.sleep(60)  # and nothing of it is left to strike here
        with pytest.raises(KeyError):
            async with scope("step", timeout=60):
                raise KeyError
    assert told == []


async def test_a_limit_is_reached_at_its_very_instant(loop: Loop):
    """T2: `>=`. Who still waits at the deadline is cut."""
    with pytest.raises(DeadlineExceededError):
        async with scope("step", timeout=60):
            await anyio.Event().wait()
    assert anyio.current_time() == 1060


async def test_what_has_arrived_at_the_deadline_is_not_lost(loop: Loop):
    """T3: a block that is done by then is done, however late the loop notices (T4: exempt)."""
    async with scope("step", timeout=60):
        block_loop(90)  # no wait: there is nothing that could be cut
        done = "all of it"
    assert done


async def test_a_stalled_loop_is_no_excuse(loop: Loop):
    """T4: limits on the whole are exempt. Time in which the loop did not run is time."""
    started = anyio.current_time()
    with pytest.raises(DeadlineExceededError) as raised:
        async with scope("step", timeout=60):
            await anyio.sleep(50)
            block_loop(30)
            await anyio.sleep(5)
    assert loop.took(anyio.current_time() - started, 80)
    assert verdict_of(raised.value).lateness >= 20 - 1e-6


# -- nesting -------------------------------------------------------------------------------------


async def test_the_inner_limit_is_reached_first(loop: Loop):
    """S2-03: the step times out, the flow goes on."""
    started = anyio.current_time()
    async with scope("flow", "deploy", timeout=600) as flow:
        with pytest.raises(DeadlineExceededError) as raised:
            async with scope("step", "build", timeout=60):
                async with scope("tool", "git", timeout=300):
                    await anyio.sleep(1000)
        assert names(raised.value) == (
            "tool 'git'",
            "step 'build'",
            "flow 'deploy' > step 'build' > tool 'git'",
        )
        assert loop.took(anyio.current_time() - started, 60)
        await anyio.sleep(30)
        assert loop.took(600 - flow.remaining(), 90)


async def test_an_inner_limit_is_capped_by_what_is_left_of_the_outer(loop: Loop):
    """S2-03: "remaining flow time 5 minutes, step timeout 10 minutes, effective 5 minutes"."""
    started = anyio.current_time()
    with pytest.raises(DeadlineExceededError) as raised:
        async with scope("flow", "deploy", timeout=30 * MINUTE):
            await anyio.sleep(25 * MINUTE)
            async with scope("step", "build", timeout=10 * MINUTE) as step:
                assert step.timeout == 10 * MINUTE
                assert step.remaining() <= 5 * MINUTE
                await anyio.sleep(20 * MINUTE)
    assert loop.took(anyio.current_time() - started, 30 * MINUTE)
    assert names(raised.value) == (
        "step 'build'",
        "flow 'deploy'",
        "flow 'deploy' > step 'build'",
    )
    assert verdict_of(raised.value).limit == "flow"
    assert verdict_of(raised.value).window == 30 * MINUTE


async def test_an_inner_scope_raises_nothing_when_the_outer_is_what_ended(loop: Loop):
    """T9: the outer outranks. What is between them sees a cancellation, not a timeout."""
    seen: list[type[BaseException]] = []
    with witnessed() as told, pytest.raises(DeadlineExceededError):
        async with scope("flow", timeout=60):
            try:
                async with scope("step", timeout=300):
                    await anyio.sleep(1000)
            except BaseException as error:
                seen.append(type(error))
                raise
    assert seen == [anyio.get_cancelled_exc_class()]
    assert len(told) == 1


async def test_of_equal_limits_the_outer_is_effective(loop: Loop):
    """P4: with equal deadlines the outermost scope catches."""
    with pytest.raises(DeadlineExceededError) as raised:
        async with scope("flow", timeout=60):
            async with scope("step", timeout=60):
                async with scope("llm_call", timeout=60):
                    await anyio.sleep(1000)
    assert names(raised.value) == ("llm_call", "flow", "flow > step > llm_call")


async def test_the_outer_ends_while_the_inner_is_still_cleaning_up(loop: Loop):
    """6.3: `fired` is the first to expire, `effective` the outermost; it surfaces as the outer."""
    with witnessed() as told, pytest.raises(DeadlineExceededError) as raised:
        async with scope("flow", timeout=65):
            async with scope("step", timeout=63):
                async with scope("llm_call", timeout=60):
                    try:
                        await anyio.sleep(1000)
                    finally:
                        with anyio.CancelScope(shield=True):
                            await anyio.sleep(10)
    assert names(raised.value) == ("llm_call", "flow", "flow > step > llm_call")
    assert [event.verdict for event in told] == [raised.value.verdict]


async def test_an_outer_whose_timer_has_yet_to_ring_outranks_all_the_same(loop: Loop):
    """T9: time decides, not the order in which the loop looks at two timers."""
    seen: list[type[BaseException]] = []
    with pytest.raises(DeadlineExceededError) as raised:
        async with scope("flow", timeout=65):
            try:
                async with scope("step", timeout=60):
                    try:
                        await anyio.sleep(1000)
                    finally:
                        block_loop(10)
            except BaseException as error:
                seen.append(type(error))
                raise
    assert seen == [anyio.get_cancelled_exc_class()]
    assert names(raised.value) == ("step", "flow", "flow > step")


async def test_a_timeout_that_was_dealt_with_is_not_remembered(loop: Loop):
    """A call is retried after its timeout; later the step itself times out, by itself."""
    with pytest.raises(DeadlineExceededError) as raised:
        async with scope("step", timeout=100):
            for _ in range(2):
                with pytest.raises(DeadlineExceededError):
                    async with scope("llm_call", timeout=20):
                        await anyio.sleep(1000)
            await anyio.sleep(1000)
    assert names(raised.value) == ("step", "step", "step")


async def test_an_inner_timeout_passes_outer_scopes_as_it_is(loop: Loop):
    """T7: a verdict is decided once. The step and the flow had time left."""
    with pytest.raises(DeadlineExceededError) as raised:
        async with scope("flow", timeout=600):
            async with scope("step", timeout=300):
                async with scope("llm_call", timeout=60):
                    await anyio.sleep(1000)
    assert names(raised.value) == ("llm_call", "llm_call", "flow > step > llm_call")


# -- what is left --------------------------------------------------------------------------------


async def test_remaining_and_path_follow_the_caller(loop: Loop):
    assert (current(), path(), remaining()) == (None, (), math.inf)
    async with scope("flow", "deploy", timeout=600) as flow:
        async with scope("step", "build", timeout=300) as step:
            assert current() is step
            assert [str(each) for each in path()] == ["flow 'deploy'", "step 'build'"]
            await anyio.sleep(60)
            assert loop.took(300 - remaining(), 60)
            assert abs(step.remaining() - remaining()) < 0.1
        assert current() is flow
        assert loop.took(600 - remaining(), 60)
    assert (current(), path(), remaining()) == (None, (), math.inf)


def test_before_it_is_entered_all_of_a_scope_remains():
    assert scope("llm_call").remaining() == 120
    assert repr(scope("llm_call", "ask")) == "<llm_call 'ask', 120 s>"


async def test_remaining_is_never_negative(loop: Loop):
    with pytest.raises(DeadlineExceededError):
        async with scope("step", timeout=10) as step:
            try:
                await anyio.sleep(1000)
            finally:
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(5)
                    assert step.remaining() == 0
                    assert remaining() == 0


# -- what is not begun ---------------------------------------------------------------------------


async def test_with_too_little_left_nothing_is_begun(loop: Loop):
    """6.3: an attempt with `remaining < min_attempt` could only be cut."""
    began = False
    with witnessed() as told, pytest.raises(DeadlineExceededError) as raised:
        async with scope("flow", "deploy", timeout=60):
            async with scope("step", "build", timeout=600):
                await anyio.sleep(59.5)
                async with scope("llm_call"):
                    began = True
    assert not began
    verdict = verdict_of(raised.value)
    assert verdict.fired is None
    assert str(verdict.effective) == "flow 'deploy'"
    assert (verdict.limit, verdict.window) == ("flow", 60)
    assert verdict.elapsed < 60
    assert "flow 'deploy' > step 'build' > llm_call was not begun: only" in str(raised.value)
    assert [event.verdict for event in told] == [verdict]


async def test_of_two_that_have_little_left_the_one_with_less_is_named(loop: Loop):
    """Whatever else runs before the refusal is raised."""

    async def busy():
        block_loop(0.25)

    async with scope("flow", timeout=60.25), anyio.create_task_group() as group:
        async with scope("step", timeout=60):
            await anyio.sleep(59.5)
            group.start_soon(busy)
            with pytest.raises(DeadlineExceededError) as raised:
                async with scope("llm_call"):
                    pass
    assert names(raised.value) == ("None", "step", "flow > step > llm_call")


async def test_with_nothing_left_the_outer_scope_speaks_for_itself(loop: Loop):
    """T9: also when the loop has not looked at its timer yet."""
    with pytest.raises(DeadlineExceededError) as raised:
        async with scope("flow", timeout=60):
            block_loop(90)
            with pytest.raises(anyio.get_cancelled_exc_class()) as between:
                async with scope("step"):
                    pass
            raise between.value
    assert names(raised.value) == ("flow", "flow", "flow")


async def test_with_nothing_left_behind_a_shield_nothing_is_begun(loop: Loop):
    with pytest.raises(DeadlineExceededError) as raised:
        async with scope("flow", timeout=60):
            with anyio.CancelScope(shield=True):
                await anyio.sleep(90)
                async with scope("step"):
                    pass
    assert names(raised.value) == ("None", "flow", "flow > step")
    assert str(raised.value) == "flow > step was not begun: only 0 s left of flow (limit flow=60)"


async def test_a_second_is_enough_to_begin(loop: Loop):
    async with scope("step", timeout=60):
        await anyio.sleep(59)
        async with scope("llm_call") as call:
            assert call.remaining() == limits_module.MIN_ATTEMPT == 1


async def test_a_scope_that_needs_less_may_begin(loop: Loop):
    """What is short on purpose has all its time."""
    async with scope("step", timeout=60):
        await anyio.sleep(59.5)
        async with scope("tool", timeout=0.25) as tool:
            assert tool.remaining() == 0.25


async def test_a_refusal_that_was_caught_leaves_the_outer_its_own_verdict(loop: Loop):
    with pytest.raises(DeadlineExceededError) as raised:
        async with scope("step", timeout=60):
            await anyio.sleep(59.5)
            with pytest.raises(DeadlineExceededError, match="not begun"):
                async with scope("llm_call"):
                    pass
            await anyio.sleep(10)
    assert names(raised.value) == ("step", "step", "step")
    assert verdict_of(raised.value).elapsed == 60


# -- misuse --------------------------------------------------------------------------------------


async def test_a_scope_is_entered_once(loop: Loop):
    once = scope("step", "build")
    async with once:
        with pytest.raises(RuntimeError, match=r"step 'build' was entered before"):
            async with once:
                pass
    with pytest.raises(RuntimeError, match=r"step 'build' was entered before"):
        async with once:
            pass


async def test_a_scope_that_is_not_entered_cannot_be_left(loop: Loop):
    with pytest.raises(RuntimeError, match="not entered"):
        await scope("step").__aexit__(None, None, None)
    async with scope("step") as step:
        pass
    with pytest.raises(RuntimeError, match="left already"):
        await step.__aexit__(None, None, None)


def test_without_a_loop_there_is_no_scope():
    with pytest.raises(RuntimeError):
        scope("step").__aenter__().send(None)


ORDERS = {
    "flow": {"flow", "step", "llm_call", "tool"},
    "step": {"step", "llm_call", "tool"},
    "tool": {"step", "llm_call", "tool"},
    "llm_call": {"tool"},
}


@pytest.mark.parametrize("inner", ORDERS)
@pytest.mark.parametrize("outer", ORDERS)
async def test_orders_of_nesting(loop: Loop, outer, inner):
    """P4: whatever makes sense; a whole inside of its part does not."""
    async with scope(outer, "a", timeout=60):
        if inner in ORDERS[outer]:
            async with scope(inner, "b", timeout=60):
                assert len(path()) == 2
        else:
            with pytest.raises(ConfigError, match=f"{inner} 'b' cannot be part of {outer}"):
                async with scope(inner, "b", timeout=60):
                    pass
            assert len(path()) == 1


# -- the values ----------------------------------------------------------------------------------


async def test_the_error_can_be_copied_and_pickled(loop: Loop):
    with pytest.raises(DeadlineExceededError) as raised:
        async with scope("flow", "deploy", timeout=10):
            async with scope("step", timeout=60):
                await anyio.sleep(1000)
    for twin in (copy.copy(raised.value), pickle.loads(pickle.dumps(raised.value))):
        assert twin.verdict == raised.value.verdict
        assert names(twin) == ("step", "flow 'deploy'", "flow 'deploy' > step")


@pytest.mark.parametrize(
    ("nested", "text"),
    [
        (("step",), "step was not done in 60 s (limit step=60)"),
        (
            ("flow", "step"),
            "flow > step was cut with flow, which was not done in 60 s (limit flow=60)",
        ),
    ],
)
def test_the_text(nested, text):
    """Who was at work, whose limit it was, and which."""

    async def enter(kinds):
        async with scope(kinds[0], timeout=60):
            if kinds[1:]:
                await enter(kinds[1:])
            await anyio.sleep(1000)

    with pytest.raises(DeadlineExceededError) as raised:
        run_virtual(enter, nested)
    assert str(raised.value) == text


async def test_a_scope_is_a_public_value(loop: Loop):
    """`async with scope(...) as it` gives the scope itself."""
    made = scope("step", "x")
    async with made as entered:
        assert entered is made
        assert isinstance(entered, Scope)
        assert (entered.name, entered.outer, entered.is_left) == ("x", None, False)
    assert made.is_left


def test_a_scope_costs_as_much_in_a_hundred_others_as_alone():
    """P4: what they are is asked when one of them is over, and not before."""

    async def enter(depth):
        if depth:
            async with scope("flow", timeout=60):
                await enter(depth - 1)

    def nested(n):
        return lambda: anyio.run(enter, n)

    assert growth_of(nested, 100) <= MOST
