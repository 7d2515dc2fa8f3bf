"""P2, R3, R8: a usage limit is waited out where that was said, and an unknown session is begun afresh."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from datetime import time as time_of_day

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamguard import Backoff, ConfigError, ErrorClass, RetryPolicy
from streamguard.retry import GiveUp, Restart, Resume, State, Tally, decide
from streamguard.retry.failure_said import FailureSaid
from streamguard.retry.pushback import resets_at
from streamguard.signals import (
    Failed,
    Progress,
    SessionOpened,
    TurnEnded,
    WaitEnded,
    Waiting,
)
from tests.retry.shapes import anthropic
from tests.sizes import size

HOUR = 3600.0
NOW = 1_800_000_000.0
WAITING = RetryPolicy(random=lambda: 0.0, wait_for_limit=6 * HOUR)
LIMITED = State(
    error_class=ErrorClass.RATE_LIMIT,
    token="session-1234",
    limit_over_in=2 * HOUR + 600,
    limit_over_at="14:00",
)
FORGOTTEN = State(
    error_class=ErrorClass.VALIDATION,
    token="session-1234",
    is_unknown=True,
    fresh_if_unknown=True,
)
PLAIN = RetryPolicy(random=lambda: 0.0)


def over_at(error=None, failed=None, **more):
    return resets_at(error, failed=failed, now=lambda: NOW, **more)


# -- when it is over -----------------------------------------------------------------------------


def test_what_the_backend_says_of_a_reset_goes_first():
    """P2"""
    error = anthropic(429, headers={"retry-after": "7200"})
    assert over_at(error) == NOW + 7200
    assert over_at(error, Failed("rate_limit", resets_at=NOW + 60)) == NOW + 60
    assert over_at(failed=Failed("permanent", resets_at=NOW + 60)) == NOW + 60
    assert over_at(failed=Failed("rate_limit", retry_after=7200.0)) == NOW + 7200


@pytest.mark.parametrize("seconds", ["300", "60", "1", "0", "-7200", "soon"])
def test_a_pause_that_a_retry_waits_out_is_no_usage_limit(seconds):
    """P2: the cap is what divides them, and a 429 without a number tells of no reset."""
    assert over_at(anthropic(429, headers={"retry-after": seconds})) is None
    assert over_at(anthropic(429)) is None
    assert over_at(anthropic(429), cap=5.0) is None
    assert over_at(failed=Failed("rate_limit")) is None


def test_a_moment_in_each_of_its_forms():
    """P2: an epoch, a moment with its zone, one of this machine's, and one of its day."""
    moment = datetime.fromtimestamp(NOW + 90, UTC)
    local = moment.astimezone().replace(tzinfo=None)
    for said in (NOW + 90, moment, moment.astimezone(), local, local.time()):
        assert over_at(failed=Failed("rate_limit", resets_at=said)) == NOW + 90
    passed = (local - timedelta(minutes=5)).time()
    if passed < local.time():
        assert over_at(failed=Failed("rate_limit", resets_at=passed)) == NOW - 210
    late = time_of_day(23, 59, 59)
    assert over_at(failed=Failed("rate_limit", resets_at=late)) > NOW


def test_what_no_clock_can_say_is_not_told():
    """S2"""
    assert over_at(failed=Failed("rate_limit", resets_at=datetime.min)) is None  # noqa: DTZ901
    for nonsense in (math.inf, -math.inf, math.nan):
        with pytest.raises(ValueError, match="finite"):
            Failed("rate_limit", resets_at=nonsense)


LIMIT = Waiting("rate_limit", "rate_limit", NOW)
ONE = Failed("rate_limit")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ([LIMIT, ONE], NOW),
        ([LIMIT, SessionOpened("s"), ONE, TurnEnded("error")], NOW),
        ([Failed("rate_limit", resets_at=NOW), ONE], NOW),
        ([Failed("rate_limit", resets_at=NOW), Failed("rate_limit", resets_at=NOW + 1)], NOW + 1),
        ([ONE], None),
        ([LIMIT, WaitEnded("rate_limit"), ONE], None),
        ([LIMIT, WaitEnded("another"), ONE], NOW),
        ([LIMIT, Progress(), ONE], None),  # the backend got over it
        ([Waiting("h", "human", NOW), ONE], None),
        ([LIMIT, Failed("server")], None),
        ([Failed("server", resets_at=NOW), ONE], None),
    ],
)
def test_a_limit_and_its_end_may_be_told_apart(said, expected):
    """P2: in a message before the error, or in the first of two that tell of the error."""
    failure = FailureSaid()
    for signal in said:
        failure.take(signal)
    assert failure.failed is not None
    assert failure.failed.resets_at == expected


@pytest.mark.parametrize("end", [Progress(), TurnEnded("success")])
def test_what_the_backend_got_over_is_no_failure(end):
    """P1"""
    failure = FailureSaid()
    failure.take(Failed("server"))
    failure.take(end)
    assert failure.failed is None


# -- whether it is waited for --------------------------------------------------------------------


def test_without_the_word_a_limit_is_as_any_other():
    """P2: the default."""
    assert RetryPolicy().wait_for_limit is None
    error = anthropic(429, headers={"retry-after": "7200"})
    assert RetryPolicy().limit_over_at(error, NOW) is None
    assert WAITING.limit_over_at(error, NOW) == NOW + 7200


def test_a_limit_is_waited_out():
    """P2: as long as it lasts, beyond the cap; it says until when."""
    decision = decide(LIMITED, WAITING)
    assert decision == Resume(
        delay=7800,
        delay_source="usage_limit",
        error_class=ErrorClass.RATE_LIMIT,
        retry=1,
        tally=Tally(waited=7800, reconnects=1),
        why="rate_limit: usage limit: waiting until 14:00 (2 h 10 min), then resuming session session-",
        token="session-1234",
    )


def test_it_is_no_retry_of_its_class():
    """P2: five 429s before it, and none of it is counted among them."""
    spent = Tally((ErrorClass.RATE_LIMIT,) * 5, reconnects=5)
    decision = decide(replace(LIMITED, tally=spent), WAITING)
    assert isinstance(decision, Resume)
    assert decision.tally == replace(spent, waited=7800, reconnects=6)


def test_also_of_a_class_that_is_not_retried():
    """P2: an account's allowance is `permanent`, until it is there again."""
    state = replace(LIMITED, error_class=ErrorClass.PERMANENT)
    assert isinstance(decide(state, WAITING), Resume)


def test_one_that_lasts_too_long_is_given_up_at_once_and_says_until_when():
    """R8"""
    decision = decide(LIMITED, replace(WAITING, wait_for_limit=HOUR))
    assert decision == GiveUp(
        reason="deadline",
        why="rate_limit: usage limit until 14:00 (2 h 10 min): longer than wait_for_limit=1 h allows",
        error_class=ErrorClass.RATE_LIMIT,
        escalate=True,
    )


def test_the_bound_is_for_all_waits_until_something_goes_well():
    """P2, R5: a limit that is told again and again is not waited for for ever."""
    state, delays = LIMITED, []
    while not isinstance(decision := decide(state, WAITING), GiveUp):
        delays.append(decision.delay)
        state = replace(state, tally=decision.tally)
    assert delays == [7800, 7800]
    assert decision.reason == "deadline"
    assert decision.why.endswith(
        "longer than wait_for_limit=6 h allows of which 4 h 20 min were spent"
    )
    for done in (
        replace(state, tally=state.tally.reset()),
        replace(state, productive=60.0),
    ):
        assert isinstance(decide(done, WAITING), Resume)


def test_one_that_should_be_over_is_given_a_minute():
    """P2: clocks differ."""
    for left in (0.0, -5.0, -1e9):
        assert decide(replace(LIMITED, limit_over_in=left), WAITING).delay == 60


@pytest.mark.parametrize(
    ("remaining", "expected"),
    [(None, 7800), (7801.0, 7800), (7800.9, "deadline"), (0.0, "deadline")],
)
def test_total_bounds_it(remaining, expected):
    """R8: given up now, not slept out."""
    decision = decide(replace(LIMITED, remaining=remaining), WAITING)
    assert getattr(decision, "reason", None) == expected or decision.delay == expected


@pytest.mark.parametrize(
    ("known", "reason"),
    [
        ({"teardown_confirmed": False}, "unsafe"),
        ({"token": None, "tool_calls": 1}, "unsafe"),
        ({"token": None, "delivered": 1}, "unsafe"),
        ({"tally": Tally(reconnects=50)}, "retries"),
        ({"circuit": math.inf}, "circuit"),
        ({"circuit": 7801.0}, "circuit"),
    ],
)
def test_nothing_else_is_risked_for_it(known, reason):
    """R3, P3, D5"""
    assert decide(replace(LIMITED, **known), WAITING).reason == reason


def test_without_a_session_it_begins_afresh_if_nothing_was_done():
    """R3"""
    decision = decide(replace(LIMITED, token=None), WAITING)
    assert isinstance(decision, Restart)
    assert not decision.forgets
    assert decision.why.endswith("(2 h 10 min), then starting afresh")


def test_who_comes_back_does_not_come_at_once_with_all_others():
    """P2: a little jitter, at most 5 s, within the bound."""
    policy = replace(WAITING, random=lambda: math.nextafter(1.0, 0.0))
    assert 7804.9 < decide(LIMITED, policy).delay <= 7805
    bounded = replace(policy, wait_for_limit=7801.0)
    assert decide(LIMITED, bounded).delay <= 7801
    assert decide(replace(LIMITED, remaining=7803.0), policy).delay <= 7802


@pytest.mark.parametrize("value", [-1, math.nan, math.inf, True, "soon"])
def test_a_bound_is_a_number(value):
    """T12"""
    with pytest.raises(ConfigError, match="wait_for_limit"):
        RetryPolicy(wait_for_limit=value)


# -- a session that the backend does not know ------------------------------------------------------


def test_an_unknown_session_is_begun_afresh():
    """R3: at once, since the user has said so."""
    assert decide(FORGOTTEN, PLAIN) == Restart(
        delay=0,
        delay_source="policy",
        error_class=ErrorClass.VALIDATION,
        retry=1,
        tally=Tally(forgotten=True, reconnects=1),
        why=(
            "validation: the backend does not know session session-: started afresh with the first "
            "prompt, without what was said before (fresh_if_unknown)"
        ),
        forgets=True,
    )


def test_without_the_word_it_is_given_up_and_says_what_the_word_is():
    """R3: the default."""
    decision = decide(replace(FORGOTTEN, fresh_if_unknown=False), PLAIN)
    assert decision == GiveUp(
        reason="class",
        why="validation: the backend does not know session session- (fresh_if_unknown=True would start afresh)",
        error_class=ErrorClass.VALIDATION,
    )


def test_messages_that_were_delivered_are_no_obstacle():
    """R3: that what was said is lost is what the user has agreed to."""
    assert isinstance(decide(replace(FORGOTTEN, delivered=7), PLAIN), Restart)


@pytest.mark.parametrize("known", [{"tool_calls": 2}, {"tools_in_session": 2}])
def test_work_that_was_begun_is_not_begun_again(known):
    """R3: in this turn or in one before it; the word is not for that."""
    decision = decide(replace(FORGOTTEN, **known), PLAIN)
    assert decision.reason == "unsafe"
    assert decision.why == (
        "validation: the backend does not know session session-, in which 2 tool calls occurred: a fresh start "
        "might do that again"
    )


def test_once_in_a_session():
    """R3: also if a turn was completed in between."""
    tally = decide(FORGOTTEN, PLAIN).tally
    for spent in (tally, tally.reset()):
        decision = decide(replace(FORGOTTEN, tally=spent), PLAIN)
        assert decision.reason == "retries"
        assert "once already" in decision.why


@pytest.mark.parametrize(
    ("known", "reason"),
    [
        ({"teardown_confirmed": False}, "unsafe"),
        ({"tally": Tally(reconnects=50)}, "retries"),
        ({"circuit": math.inf}, "circuit"),
        ({"remaining": 0.0}, "deadline"),
        ({"remaining": 0.5}, "deadline"),
    ],
)
def test_nothing_else_is_risked_for_a_fresh_start(known, reason):
    """R3, R8, P3, D5"""
    assert decide(replace(FORGOTTEN, **known), PLAIN).reason == reason


# -- whatever the state --------------------------------------------------------------------------

asked = st.builds(
    State,
    error_class=st.sampled_from([*ErrorClass]),
    tally=st.builds(
        Tally,
        st.lists(st.sampled_from([*ErrorClass]), max_size=11).map(tuple),
        st.integers(0, 20),
        st.integers(0, 60),
        st.floats(0, 8 * HOUR),
        st.booleans(),
    ),
    token=st.none() | st.just("token"),
    tool_calls=st.integers(0, 2),
    tools_in_session=st.integers(0, 2),
    delivered=st.integers(0, 2),
    teardown_confirmed=st.booleans(),
    is_unknown=st.booleans(),
    fresh_if_unknown=st.booleans(),
    limit_over_in=st.floats(-1e5, 1e5),
    remaining=st.none() | st.floats(-10, 40_000),
    circuit=st.floats(0, 400) | st.just(math.inf),
    circuit_waits=st.booleans(),
    productive=st.sampled_from([0.0, 60.0]),
)


@settings(deadline=None, derandomize=True, max_examples=size(dev=150, ci=1000))
@given(asked, st.floats(0, 1, exclude_max=True))
def test_no_such_attempt_is_ever_unsafe_too_late_or_one_too_many(state, roll):
    """R3, R5, R8, D5"""
    policy = replace(WAITING, random=lambda: roll, rate_limit=Backoff(5, (60,), jitter=0.1))
    decision = decide(state, policy)
    if isinstance(decision, GiveUp):
        assert decision == decide(state, WAITING)  # the dice have no say
        return
    spent = state.tally.reset() if state.productive else state.tally
    assert state.teardown_confirmed
    assert decision.tally.reconnects == spent.reconnects + 1 <= 50
    assert decision.tally.spent == spent.spent
    if state.remaining is not None:
        assert decision.delay <= max(state.remaining - policy.min_attempt, 0) + 1e-9
    if state.is_unknown:
        assert state.fresh_if_unknown
        assert state.tool_calls == state.tools_in_session == 0
        assert not state.tally.forgotten
        assert isinstance(decision, Restart)
        assert decision.forgets
        return
    assert state.token or not (state.tool_calls or state.delivered)
    assert isinstance(decision, Resume) == (state.token is not None)
    assert decision.delay >= state.limit_over_in
    longest = policy.wait_for_limit - spent.waited
    assert decision.delay <= max(longest, state.circuit) + 1e-9
