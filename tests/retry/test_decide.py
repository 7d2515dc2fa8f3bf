"""R3, R4, R8, R9, P2: resume, start afresh, or give up, and in which order that is asked."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamguard import Backoff, ErrorClass, IdleTimeoutError, RetryPolicy
from streamguard.retry import GiveUp, Restart, Resume, State, Tally, decide, retry_after
from tests.retry.shapes import anthropic
from tests.sizes import size

IDLE = State(error_class=ErrorClass.IDLE)
NO_DICE = RetryPolicy(random=lambda: 0.0)
ALL_DICE = RetryPolicy(random=lambda: math.nextafter(1.0, 0.0))


def spent(*names, reconnects=None):
    classes = tuple(map(ErrorClass, names))
    return Tally(classes, reconnects=len(classes) if reconnects is None else reconnects)


def outcome(state, policy=NO_DICE):
    """The decision in short: what is done and after how long, or why not."""
    decision = decide(state, policy)
    match decision:
        case GiveUp():
            return decision.reason
        case _:
            return type(decision).__name__.lower(), decision.delay


# -- the ways ------------------------------------------------------------------------------------


def test_with_a_token_the_session_is_resumed():
    """R3: whatever it has done."""
    state = replace(IDLE, token="session-1234", tool_calls=3, delivered=7)
    decision = decide(state, NO_DICE)
    assert decision == Resume(
        delay=0,
        delay_source="policy",
        error_class=ErrorClass.IDLE,
        retry=1,
        tally=Tally((ErrorClass.IDLE,), reconnects=1),
        why="idle: retry 1 of 2 at once, resuming session session-",
        token="session-1234",
    )


def test_without_a_token_and_with_nothing_done_it_starts_afresh():
    """R3"""
    decision = decide(replace(IDLE, tally=spent("idle")), NO_DICE)
    assert decision == Restart(
        delay=5,
        delay_source="policy",
        error_class=ErrorClass.IDLE,
        retry=2,
        tally=spent("idle", "idle"),
        why=(
            "idle: retry 2 of 2 in 5 s, started afresh: nothing has happened that this could repeat"
        ),
    )


@pytest.mark.parametrize(
    ("known", "delay", "source"),
    [
        ({}, 1, "policy"),
        ({"retry_after": 30.0}, 30, "retry_after"),
        ({"retry_after": 0.5}, 1, "policy"),  # it does not ask for more than is done anyway
        ({"circuit": 0.5}, 1, "policy"),
        ({"circuit": 9.0, "circuit_waits": True}, 9, "circuit"),
    ],
)
def test_who_wanted_the_delay_is_said(known, delay, source):
    """R3, E6"""
    state = State(error_class=ErrorClass.SERVER, token="s", **known)
    decision = decide(state, NO_DICE)
    assert (decision.delay, decision.delay_source) == (delay, source)


@pytest.mark.parametrize(
    ("done", "text"),
    [
        (
            {"tool_calls": 3},
            "3 tool calls occurred without session context, and a fresh start would repeat that",
        ),
        (
            {"tool_calls": 1, "delivered": 2},
            "1 tool call occurred without session context, and a fresh start would repeat that",
        ),
        (
            {"delivered": 2},
            "2 messages had been delivered without session context, and a fresh start would repeat that",
        ),
        (
            {"delivered": 1},
            "1 message had been delivered without session context, and a fresh start would repeat that",
        ),
    ],
)
def test_without_a_token_what_was_done_is_not_done_twice(done, text):
    """R3: in the words of seed 000."""
    decision = decide(replace(IDLE, **done), NO_DICE)
    assert decision == GiveUp(reason="unsafe", why=f"idle: {text}", error_class=ErrorClass.IDLE)


def test_no_second_owner_of_a_session():
    """R3, D5: an unconfirmed teardown forbids both ways, unless the user says so."""
    unsure = replace(IDLE, teardown_confirmed=False)
    for state in (unsure, replace(unsure, token="t")):
        decision = decide(state, NO_DICE)
        assert decision.reason == "unsafe"
        assert "the old backend may still be alive" in decision.why
        assert not isinstance(decide(replace(state, unconfirmed_allowed=True)), GiveUp)


# -- retries -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error_class", "delays"),
    [
        ("idle", [0, 5]),
        ("network", [1, 2, 4]),
        ("server", [1, 2, 4]),
        ("unknown", [1, 2, 4]),
        ("rate_limit", [60] * 5),
        ("auth", []),
        ("permanent", []),
        ("validation", []),
        ("never", []),
    ],
)
def test_each_class_has_its_retries_and_then_gives_up(error_class, delays):
    """P2, R4"""
    state, taken = State(error_class=ErrorClass(error_class)), []
    while not isinstance(decision := decide(state, NO_DICE), GiveUp):
        taken.append(decision.delay)
        assert decision.retry == len(taken)
        state = replace(state, tally=decision.tally)
    assert taken == delays
    assert decision.reason == ("retries" if delays else "class")
    assert decision.escalate == (error_class in {"rate_limit", "auth", "permanent"})


@pytest.mark.parametrize(
    ("error_class", "why"),
    [
        ("never", "never: it is no failure of the backend's"),
        ("auth", "auth: the backend refuses the credentials: renew them"),
        ("permanent", "permanent: the backend refuses the account: look at billing and limits"),
        ("validation", "validation: the same request would fail again"),
    ],
)
def test_giving_up_on_a_class_says_what_to_do(error_class, why):
    """R3: words for the log."""
    assert decide(State(error_class=ErrorClass(error_class))).why == why


def test_a_class_that_the_user_has_switched_off():
    """S0-11: 0 is the lever to switch it off."""
    decision = decide(IDLE, RetryPolicy(idle=Backoff(0)))
    assert (decision.reason, decision.why) == ("retries", "idle: the policy has no retry for it")


def test_a_class_that_the_user_has_switched_on():
    """P2: credentials that renew themselves."""
    policy = RetryPolicy(auth=Backoff(1, (2,)))
    assert outcome(State(error_class=ErrorClass.AUTH), policy) == ("restart", 2)


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ({}, ("restart", 1)),
        ({"token": "t"}, ("resume", 1)),
        ({"token": "t", "tool_calls": 1}, "class"),
        ({"token": "t", "delivered": 1}, "class"),
        ({"tool_calls": 1}, "class"),
    ],
)
def test_what_nobody_knows_is_retried_only_before_anything_ran(known, expected):
    """P2: unknown, 3 before anything ran, 0 after."""
    assert outcome(State(error_class=ErrorClass.UNKNOWN, **known)) == expected


def test_the_counts_are_by_class():
    """P2: two hangs do not use up what a drop may cost."""
    tally = spent("idle", "idle", "server", "server", "server")
    assert outcome(State(error_class=ErrorClass.NETWORK, tally=tally)) == ("restart", 1)
    assert outcome(State(error_class=ErrorClass.IDLE, tally=tally)) == "retries"


def test_all_classes_together_have_a_bound_in_a_row():
    """P2: a backend that fails in ever new ways is given up all the same."""
    tally = spent(*["rate_limit"] * 4, *["server"] * 3, *["network"] * 2, "idle")
    decision = decide(replace(IDLE, tally=tally))
    assert decision.why == "idle: 10 retries in a row made no difference (max_in_a_row=10)"
    assert outcome(replace(IDLE, tally=tally), RetryPolicy(max_in_a_row=11)) == ("restart", 5)


def test_a_session_has_a_bound_for_life():
    """R5: it is never reset, also not by a productive attempt."""
    state = replace(IDLE, tally=Tally(reconnects=50), productive=10_000.0)
    decision = decide(state)
    assert decision.reason == "retries"
    assert decision.why == "idle: the session has had 50 reconnects (max_reconnects=50)"
    assert outcome(state, RetryPolicy(max_reconnects=51)) == ("restart", 0)


@pytest.mark.parametrize(
    ("productive", "expected"), [(0, "retries"), (59.9, "retries"), (60, ("restart", 0))]
)
def test_a_productive_attempt_clears_the_counts(productive, expected):
    """R5: 60 s between the first and the last new progress."""
    state = replace(IDLE, tally=spent("idle", "idle"), productive=productive)
    assert outcome(state) == expected


def test_a_productive_attempt_clears_what_is_counted_from_then_on():
    """R5: this retry is the first of its class again, and one more of the session's."""
    state = replace(IDLE, tally=spent("idle", "server"), productive=60.0)
    assert decide(state).tally == Tally((ErrorClass.IDLE,), reconnects=3)


def test_what_was_done_stays_done_after_a_productive_attempt():
    """R3: decided before anything is reset."""
    assert outcome(replace(IDLE, productive=600.0, tool_calls=1)) == "unsafe"


# -- failures at once (R9) -----------------------------------------------------------------------


def test_failures_at_once_are_not_burnt_through():
    """R9: growing delays, where the rule would have had none."""
    policy = RetryPolicy(network=Backoff(6, (0,)))
    state = State(error_class=ErrorClass.NETWORK, lived=0.01)
    delays = []
    while not isinstance(decision := decide(state, policy), GiveUp):
        delays.append(decision.delay)
        state = replace(state, tally=decision.tally)
    assert delays == [1, 2, 4, 8, 16, 32]


@pytest.mark.parametrize(
    ("known", "delay"),
    [
        ({"lived": 0.99}, 8),
        ({"lived": 1.0}, 0),
        ({"lived": 0.01, "messages": 1}, 0),
        ({}, 0),
    ],
)
def test_at_once_means_before_any_message_and_within_a_second(known, delay):
    """R9"""
    policy = RetryPolicy(network=Backoff(6, (0,)))
    tally = Tally(instant=3)
    state = State(error_class=ErrorClass.NETWORK, tally=tally, **known)
    decision = decide(state, policy)
    assert (decision.delay, decision.tally.instant) == (delay, 4 if delay else 0)


def test_a_limit_of_ours_is_no_failure_at_once_however_short_it_is():
    """R9, S0-32: the seed's tests use an idle limit of 10 ms and back off by 0 and 5 s."""
    state = replace(IDLE, lived=0.01)
    assert outcome(state) == ("restart", 0)
    assert outcome(replace(state, tally=spent("idle"))) == ("restart", 5)


# -- the server's wish -----------------------------------------------------------------------------


def test_a_rate_limit_is_waited_out():
    """P2: from the error to the delay."""
    error = anthropic(429, headers={"retry-after": "171"})
    policy = NO_DICE
    state = State(error_class=policy.classify(error), retry_after=retry_after(error))
    assert outcome(state) == ("restart", 171)


# -- time (R8) -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("remaining", "expected"),
    [
        (None, ("restart", 5)),
        (1000.0, ("restart", 5)),
        (6.0, ("restart", 5)),
        (5.9, "deadline"),
        (5.0, "deadline"),
        (1.0, "deadline"),
        (0.0, "deadline"),
        (-3.0, "deadline"),
    ],
)
def test_a_delay_that_does_not_fit_is_given_up_at_once(remaining, expected):
    """R8: with a second left for the attempt itself."""
    state = replace(IDLE, tally=spent("idle"), remaining=remaining)
    assert outcome(state) == expected


def test_giving_up_for_lack_of_time_says_how_much_there_is():
    """R8"""
    state = replace(IDLE, tally=spent("idle"), remaining=3.25)
    assert decide(state).why == (
        "idle: the next attempt may begin in 5 s, and only 3.25 s are left"
    )
    assert decide(replace(state, remaining=0.0)).why == "idle: no time is left"


def test_without_a_minimum_an_attempt_needs_some_time_all_the_same():
    """R8: `delay >= remaining` gives up."""
    policy = RetryPolicy(min_attempt=0)
    state = replace(IDLE, tally=spent("idle"), remaining=5.0)
    assert outcome(state, policy) == "deadline"
    assert outcome(replace(state, remaining=5.1), policy) == ("restart", 5)


def test_the_jitter_is_cut_to_the_time_there_is():
    """R8: whether it is given up is not for the dice to say."""
    state = State(error_class=ErrorClass.SERVER, tally=spent("server"), remaining=3.5)
    assert outcome(state, NO_DICE) == ("restart", 2)
    kind, delay = outcome(state, ALL_DICE)
    assert kind == "restart"
    assert 2.4999 < delay <= 2.5


# -- the circuit ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("circuit", "waits", "remaining", "expected"),
    [
        (0.0, False, None, ("restart", 5)),
        (5.0, False, None, ("restart", 5)),
        (27.0, False, None, "circuit"),
        (27.0, True, None, ("restart", 27)),
        (27.0, True, 28.0, ("restart", 27)),
        (27.0, True, 27.0, "deadline"),
        (math.inf, True, None, "circuit"),
        (math.inf, False, None, "circuit"),
    ],
)
def test_an_open_circuit_is_waited_for_or_given_up(circuit, waits, remaining, expected):
    """P3, R8"""
    state = replace(
        IDLE, tally=spent("idle"), circuit=circuit, circuit_waits=waits, remaining=remaining
    )
    assert outcome(state) == expected


def test_the_wait_for_a_circuit_has_no_jitter_of_its_own():
    """P2, P3: the breaker lets one through at a time anyway."""
    state = State(error_class=ErrorClass.SERVER, circuit=30.0, circuit_waits=True)
    assert outcome(state, ALL_DICE) == ("restart", 30)


def test_giving_up_for_the_circuit_says_when_it_opens():
    """P3"""
    state = replace(IDLE, circuit=27.0)
    assert decide(state).why == "idle: the circuit breaker is open for another 27 s"
    assert not decide(state).escalate
    shut = decide(replace(IDLE, circuit=math.inf, circuit_waits=True))
    assert shut.why == "idle: the circuit breaker stays open until reset() is called"
    assert shut.escalate


# -- the order (R3) ------------------------------------------------------------------------------


ALL_WRONG = State(
    error_class=ErrorClass.VALIDATION,
    remaining=0.0,
    tally=spent("idle", "idle"),
    teardown_confirmed=False,
    tool_calls=2,
    circuit=math.inf,
)
MENDED = [
    ("deadline", {"remaining": 1.0}),
    ("class", {"error_class": ErrorClass.IDLE}),
    ("retries", {"tally": spent("idle")}),
    ("unsafe", {"teardown_confirmed": True}),
    ("unsafe", {"token": "t"}),
    ("circuit", {"circuit": 0.0}),
    ("deadline", {"remaining": None}),
]


def test_the_questions_are_asked_in_their_order():
    """R3: each reason shows once what comes before it is mended."""
    state, reasons = ALL_WRONG, []
    for _, mend in MENDED:
        reasons.append(outcome(state))
        state = replace(state, **mend)
    assert reasons == [reason for reason, _ in MENDED]
    assert outcome(state) == ("resume", 5)


def test_a_decision_changes_nothing_and_is_the_same_again():
    """R3: a pure function."""
    state = State(error_class=ErrorClass.SERVER, tally=spent("idle"), remaining=50.0)
    before = replace(state)
    assert decide(state, NO_DICE) == decide(state, NO_DICE)
    assert state == before


# -- whatever the state ----------------------------------------------------------------------------

states = st.builds(
    State,
    error_class=st.sampled_from([*ErrorClass]),
    retry_after=st.none() | st.floats(0.001, 300),
    tally=st.builds(
        Tally,
        st.lists(st.sampled_from([*ErrorClass]), max_size=11).map(tuple),
        st.integers(0, 20),
        st.integers(0, 60),
    ),
    token=st.none() | st.text(min_size=1),
    tool_calls=st.integers(0, 3),
    delivered=st.integers(0, 3),
    messages=st.integers(0, 3),
    lived=st.floats(0, 1e5),
    productive=st.floats(0, 200),
    teardown_confirmed=st.booleans(),
    unconfirmed_allowed=st.booleans(),
    remaining=st.none() | st.floats(-10, 400),
    circuit=st.floats(0, 400) | st.just(0.0) | st.just(math.inf),
    circuit_waits=st.booleans(),
)


@settings(
    deadline=None,
    derandomize=True,
    max_examples=size(dev=60, ci=500),
    suppress_health_check=[HealthCheck.too_slow],
)
@given(states, st.floats(0, 1, exclude_max=True))
def test_no_decision_is_ever_unsafe_or_too_late(state, roll):
    """R3, R5, R8, D5: what must hold of each attempt that is made, and of each that is not."""
    policy = RetryPolicy(random=lambda: roll)
    decision = decide(state, policy)
    assert decision.why.startswith(f"{state.error_class.value}: ")
    if isinstance(decision, GiveUp):
        assert decision.reason in {"retries", "unsafe", "deadline", "circuit", "class"}
        # The dice have no say.
        assert decision == decide(state, NO_DICE)
        return
    assert state.error_class.is_transient
    assert state.teardown_confirmed or state.unconfirmed_allowed
    assert state.token or not (state.tool_calls or state.delivered)
    assert isinstance(decision, Resume) == (state.token is not None)
    assert decision.delay >= (state.retry_after or 0)
    assert decision.delay >= state.circuit
    assert state.circuit_waits or state.circuit <= policy.cap
    assert decision.delay <= max(policy.cap, state.circuit)
    if state.remaining is not None:
        assert decision.delay <= state.remaining - policy.min_attempt + 1e-9
    assert decision.tally.reconnects == state.tally.reconnects + 1 <= 50
    assert len(decision.tally.spent) <= 10
    assert 1 <= decision.retry <= policy.backoff(state.error_class).retries
    assert decision.tally.of(state.error_class) == decision.retry


def test_the_way_from_an_error_to_a_decision():
    """P1 to P3, R3: as `resume` goes it."""
    error, policy = IdleTimeoutError("x"), RetryPolicy()
    state = State(
        error_class=policy.classify(error), retry_after=retry_after(error), token="session"
    )
    assert isinstance(decide(state, policy), Resume)


def test_what_failed_is_named():
    """3 a.m.: a tool that took too long is no "idle", though it is retried like one."""
    state = State(error_class=ErrorClass.IDLE, what="ToolTimeoutError", tool_calls=2)
    said = decide(state)
    assert said.why.startswith("ToolTimeoutError (class idle): 2 tool calls occurred")


def test_keys_that_repeat_are_not_safe():
    """R6: with or without a token, what is played again could not be told from what is new."""
    said = decide(State(error_class=ErrorClass.IDLE, token="s", keys_repeat=True))
    assert isinstance(said, GiveUp)
    assert said.reason == "unsafe"
    assert "keys that are unique" in said.why
