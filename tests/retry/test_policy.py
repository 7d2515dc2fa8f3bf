"""P2, R4, R5, R9: what may be spent, and the delays. And what clears the counts."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamguard import Backoff, ConfigError, ErrorClass, RetryPolicy
from streamguard.retry import GiveUp, State, Tally, decide, retry_after
from streamguard.signals import Failed
from tests.retry.shapes import anthropic

ALWAYS = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
CLASSES = [*ErrorClass]
RETRIED = [ErrorClass.IDLE, ErrorClass.NETWORK, ErrorClass.SERVER, ErrorClass.UNKNOWN]


def delays_of(policy, error_class, number, random=0.0, **known):
    """The delays before the first so many retries of one class."""
    policy = replace(policy, random=lambda: random)
    bases = [policy.base_delay(error_class, retry, **known) for retry in range(number)]
    return [policy.jittered(error_class, base) for base in bases]


# -- the defaults --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error_class", "retries"),
    [
        *(("never", 0), ("auth", 0), ("permanent", 0), ("validation", 0), ("rate_limit", 5)),
        *(("server", 3), ("network", 3), ("idle", 2), ("unknown", 3)),
    ],
)
def test_the_retries_of_each_class(error_class, retries):
    """P2, R4"""
    assert RetryPolicy().backoff(ErrorClass(error_class)).retries == retries


@pytest.mark.parametrize("error_class", ["network", "server", "unknown"])
def test_network_and_server_wait_1_2_4_seconds_and_half_as_much_again_at_most(error_class):
    """P2: 1, 2, 4 s + U(0, 0.5 base)."""
    found = ErrorClass(error_class)
    assert delays_of(RetryPolicy(), found, 3) == [1, 2, 4]
    assert delays_of(RetryPolicy(), found, 3, random=0.5) == [1.25, 2.5, 5]
    assert delays_of(RetryPolicy(), found, 3, random=1.0) == [1.5, 3, 6]


def test_idle_waits_0_5_15_seconds_and_the_last_repeats():
    """R4: exactly, as seed 000 has it."""
    for random in (0.0, 0.999):
        assert delays_of(RetryPolicy(), ErrorClass.IDLE, 5, random) == [0, 5, 15, 15, 15]


def test_a_rate_limit_waits_as_long_as_it_is_asked_to_and_a_minute_unasked():
    """P2: never earlier; at most a tenth and five seconds later."""
    limited = ErrorClass.RATE_LIMIT
    assert delays_of(RetryPolicy(), limited, 5) == [60] * 5
    assert delays_of(RetryPolicy(), limited, 5, random=1.0) == [65] * 5
    assert delays_of(RetryPolicy(), limited, 2, retry_after=2.0) == [2, 2]
    assert delays_of(RetryPolicy(), limited, 2, random=1.0, retry_after=2.0) == [2.2, 2.2]
    assert delays_of(RetryPolicy(), limited, 1, random=1.0, retry_after=171.0) == [176]


def test_the_cap_bounds_all_of_it():
    """P2: 300 s, jitter included."""
    limited = ErrorClass.RATE_LIMIT
    assert delays_of(RetryPolicy(), limited, 1, random=1.0, retry_after=4000.0) == [300]
    assert delays_of(RetryPolicy(), limited, 1, random=1.0, retry_after=298.0) == [300]
    low = RetryPolicy(cap=60)
    assert delays_of(low, limited, 1, random=1.0, retry_after=59.0) == [60]


def test_the_jitter_is_spread_over_the_room_there_is():
    """P2, R8: cut to the cap or to the time left, not piled up at its end."""
    limited = ErrorClass.RATE_LIMIT
    assert delays_of(RetryPolicy(), limited, 1, random=0.5, retry_after=298.0) == [299]
    policy = RetryPolicy(random=lambda: 0.5)
    assert policy.jittered(ErrorClass.SERVER, 2.0, room=2.5) == 2.25


@pytest.mark.parametrize("error_class", RETRIED)
def test_any_error_may_ask_for_more_time_and_none_for_less(error_class):
    """P2: a 503 may carry Retry-After, too."""
    policy = RetryPolicy()
    assert policy.base_delay(error_class, 2, retry_after=40.0) == 40
    own = policy.base_delay(error_class, 2)
    assert policy.base_delay(error_class, 2, retry_after=0.1) == own


@pytest.mark.parametrize("error_class", [*RETRIED, ErrorClass.RATE_LIMIT])
def test_failures_that_come_at_once_wait_1_2_4_8_seconds_at_least(error_class):
    """R9: also where the rule itself has no delay."""
    policy = RetryPolicy(**{error_class.value: Backoff(9, (0,))})
    waits = [policy.base_delay(error_class, 0, instant=n, retry_after=None) for n in range(12)]
    assert waits == [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    assert policy.base_delay(error_class, 0, instant=10**6) == 300


# -- values --------------------------------------------------------------------------------------


def test_a_policy_is_a_value():
    """O1: immutable, copied with a change, equal to its like, and fit to be sent elsewhere."""
    policy = RetryPolicy()
    with pytest.raises(AttributeError):
        policy.cap = 3
    with pytest.raises(AttributeError):
        policy.idle.retries = 3
    patient = replace(policy, idle=Backoff(5, [0, 10]))
    assert patient.idle == Backoff(5, (0, 10))
    assert policy.idle == Backoff(2, (0, 5, 15))
    assert RetryPolicy() == policy != patient
    assert {RetryPolicy(), policy} == {policy}
    assert pickle.loads(pickle.dumps(patient)) == patient == copy.deepcopy(patient)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Backoff(-1), "retries=-1: use a whole number, 0 or more"),
        (lambda: Backoff(1.5), "retries=1.5: use a whole number, 0 or more"),
        (lambda: Backoff(True), "retries=True: use a whole number, 0 or more"),
        (lambda: Backoff(1, ()), "delays=(): give at least one, such as (0,) for none"),
        (lambda: Backoff(1, (0, -5)), "delays=-5: use a number of seconds, 0 or more"),
        (lambda: Backoff(1, (math.nan,)), "delays=nan: use a number of seconds, 0 or more"),
        (lambda: Backoff(1, (math.inf,)), "delays=inf: use a number of seconds, 0 or more"),
        (lambda: Backoff(1, ("5 min",)), "delays='5 min': write \"5m\""),
        (lambda: Backoff(1, jitter=-0.5), "jitter=-0.5: use a number, 0 or more"),
        (
            lambda: Backoff(1, jitter_cap=math.nan),
            "jitter_cap=nan: use a number of seconds, 0 or more",
        ),
        (lambda: RetryPolicy(cap=-1), "cap=-1: use a number of seconds, 0 or more"),
        (lambda: RetryPolicy(cap=math.inf), "cap=inf: use a number of seconds, 0 or more"),
        (lambda: RetryPolicy(instant=-1), "instant=-1: use a number of seconds, 0 or more"),
        (
            lambda: RetryPolicy(min_attempt=-1),
            "min_attempt=-1: use a number of seconds, 0 or more",
        ),
        (lambda: RetryPolicy(max_in_a_row=-1), "max_in_a_row=-1: use a whole number, 0 or more"),
        (lambda: RetryPolicy(max_reconnects=2.0), "max_reconnects=2.0: use a whole number, 0 or"),
        (
            lambda: RetryPolicy(productive_span=None),
            "productive_span=None: use seconds, a timedelta, or a text",
        ),
        (
            lambda: RetryPolicy(network=Backoff(3, (1, 600))),
            "network: a delay of 600 s can never be kept, since cap=300 bounds all of them",
        ),
    ],
)
def test_what_cannot_be_used_is_refused_where_it_is_written(make, text):
    """T12: by its name, with what to write instead."""
    with pytest.raises(ConfigError) as refused:
        make()
    assert str(refused.value).startswith(text)


def test_times_are_written_as_everywhere():
    """Seconds, a timedelta, a text; one delay needs no list. What is kept is seconds."""
    backoff = Backoff(3, ("1s", timedelta(seconds=5), 15), jitter_cap="500ms")
    assert backoff == Backoff(3, (1, 5, 15), jitter_cap=0.5)
    assert Backoff(3, "5s") == Backoff(3, 5) == Backoff(3, (5,))
    policy = RetryPolicy(cap="1h30m", productive_span="2m", instant=0, wait_for_limit="6h")
    assert policy == RetryPolicy(
        cap=5400, productive_span=120, instant=0, wait_for_limit=timedelta(hours=6)
    )
    assert RetryPolicy(wait_for_limit=0) == RetryPolicy(wait_for_limit="off") == RetryPolicy()


def test_a_low_cap_bounds_the_delays_that_nobody_wrote():
    """T12: defaults never contradict what was written."""
    policy = RetryPolicy(cap=3)
    assert delays_of(policy, ErrorClass.RATE_LIMIT, 1, random=1.0) == [3]
    assert delays_of(policy, ErrorClass.IDLE, 3) == [0, 3, 3]
    assert delays_of(policy, ErrorClass.NETWORK, 3, random=1.0) == [1.5, 3, 3]


def test_edges_that_can_be_used():
    """T12: none of these is a mistake."""
    assert Backoff(0).delay(7) == 0
    assert RetryPolicy(idle=Backoff(1, (300,))).base_delay(ErrorClass.IDLE, 0) == 300
    assert RetryPolicy(productive_span=math.inf, min_attempt=0, max_reconnects=0, instant=0)


# -- the user's own classes ----------------------------------------------------------------------


def test_a_classifier_goes_first_and_may_leave_it_to_us():
    """P2: per cause, by the user."""

    def mine(error):
        return ErrorClass.NETWORK if "flaky" in str(error) else None

    policy = RetryPolicy(classifier=mine)
    assert policy.classify(ValueError("flaky")) is ErrorClass.NETWORK
    assert policy.classify(ValueError("x")) is ErrorClass.VALIDATION
    assert policy.classify(anthropic(429)) is ErrorClass.RATE_LIMIT
    assert policy.classify(TimeoutError("x"), failed=Failed("auth")) is ErrorClass.AUTH
    assert RetryPolicy().classify(ValueError("flaky")) is ErrorClass.VALIDATION


@pytest.mark.parametrize(
    ("error", "failed"),
    [
        (anthropic(429), None),
        (anthropic(429, {"retry-after": "7"}), None),
        (TimeoutError("x"), Failed("rate_limit", retry_after=9)),
        (ValueError("flaky"), None),
        (KeyboardInterrupt(), None),
    ],
    ids=["a 429", "a 429 with a number", "what the backend said", "the user's", "a cancellation"],
)
def test_to_assess_is_to_class_and_to_hear_the_server(error, failed):
    """P2: one look says both, as the two say alone; a classifier changes the class alone."""
    for policy in (RetryPolicy(cap=100), RetryPolicy(classifier=lambda _: ErrorClass.NETWORK)):
        pause = retry_after(error, failed=failed, cap=policy.cap)
        assert policy.assess(error, failed=failed) == (
            policy.classify(error, failed=failed),
            pause,
        )


def test_nobody_is_asked_about_a_cancellation():
    """P1: a catch-all must not swallow the caller's own cancel."""
    policy = RetryPolicy(classifier=lambda _error: ErrorClass.NETWORK)
    assert policy.classify(KeyboardInterrupt()) is ErrorClass.NEVER
    assert policy.classify(GeneratorExit()) is ErrorClass.NEVER


# -- what was spent ------------------------------------------------------------------------------


def test_a_tally_counts_by_class():
    """R5: pure values, each made from the one before."""
    tally = Tally()
    tally = tally.failed(instantly=True).retried(ErrorClass.IDLE)
    tally = tally.failed(instantly=True).retried(ErrorClass.SERVER)
    tally = tally.failed(instantly=False).retried(ErrorClass.IDLE)
    assert tally == Tally((ErrorClass.IDLE, ErrorClass.SERVER, ErrorClass.IDLE), 0, 3)
    assert [tally.of(each) for each in ErrorClass] == [0, 0, 0, 0, 0, 1, 0, 2, 0]
    assert tally.reset() == Tally(reconnects=3)


# -- properties ----------------------------------------------------------------------------------

backoffs = st.builds(
    Backoff,
    st.integers(0, 20),
    st.lists(st.floats(0, 300), min_size=1, max_size=5),
    jitter=st.floats(0, 3),
    jitter_cap=st.floats(0, math.inf),
)
dice = st.floats(0, 1, exclude_max=True)


@ALWAYS
@given(
    backoff=backoffs,
    error_class=st.sampled_from([*RETRIED, ErrorClass.RATE_LIMIT]),
    cap=st.floats(300, 3000),
    retry=st.integers(0, 30),
    retry_after=st.none() | st.floats(0, 1e6),
    instant=st.integers(0, 100),
    roll=dice,
    room=st.floats(0, 4000) | st.just(math.inf),
)
def test_a_delay_is_never_below_the_rule_and_never_above_the_cap(
    *, backoff, error_class, cap, retry, retry_after, instant, roll, room
):
    """P2, R8, R9: and the jitter never makes one too long that would have fitted."""
    policy = RetryPolicy(**{error_class.value: backoff}, cap=cap, random=lambda: roll)
    base = policy.base_delay(error_class, retry, retry_after=retry_after, instant=instant)
    delay = policy.jittered(error_class, base, room)
    own = backoff.delays[min(retry, len(backoff.delays) - 1)]
    assert base <= delay <= cap
    assert delay <= base + min(backoff.jitter * base, backoff.jitter_cap) + 1e-9
    if error_class is not ErrorClass.RATE_LIMIT or retry_after is None:
        assert delay >= own
    if retry_after is not None:
        assert delay >= min(retry_after, cap)
    if instant:
        assert delay >= min(2 ** min(instant - 1, 15), cap)
    if base <= room:
        assert delay <= room


@ALWAYS
@given(st.sampled_from([*RETRIED, ErrorClass.RATE_LIMIT]), st.integers(0, 40), st.integers(0, 40))
def test_the_default_delays_never_shrink(error_class, first, second):
    """P2"""
    policy = RetryPolicy()
    delays = [policy.base_delay(error_class, retry) for retry in sorted((first, second))]
    assert delays == sorted(delays)


# -- what clears the counts: who gives up on a hang, and who lets a long job live ------

DAY = 24 * 3600.0
JOB = 8 * 3600.0
IDLE = 180.0


@dataclass(frozen=True)
class Lived:
    """One attempt, in seconds from its begin: when messages came, and when and how it ended."""

    ended: float
    messages: tuple[float, ...] = ()
    progress: tuple[float, ...] = ()
    new: tuple[float, ...] = ()
    error_class: ErrorClass = ErrorClass.IDLE
    completed: bool = False


def silent_after(*times: float, progress=(), new=()) -> Lived:
    """An attempt that hangs after its last message, and is ended after the idle limit."""
    return Lived((times[-1] if times else 0.0) + IDLE, times, progress, new)


def half_hours(done: float, ended: Callable[[float], Lived]) -> Lived:
    """A healthy job that is disturbed every 30 minutes, until its eight hours are full."""
    if JOB - done <= 1800:
        return Lived(JOB - done, (1.0,), (1.0,), (1.0, JOB - done), completed=True)
    return ended(1800.0)


SCENARIOS: dict[str, Callable[[float], Lived]] = {
    "dead, no message": lambda _: silent_after(),
    "init message, hang": lambda _: silent_after(1.0),
    "partial delta, hang": lambda _: silent_after(3.0),
    "1 replayed progress, hang": lambda _: silent_after(21.0, progress=(21.0,)),
    "instant crash": lambda _: Lived(0.0, error_class=ErrorClass.NETWORK),
    "healthy 8 h, drop each 30 min": lambda done: half_hours(
        done, lambda at: Lived(at, (1.0, at), (1.0, at), (1.0, at), ErrorClass.NETWORK)
    ),
    "healthy 8 h, hang each 30 min": lambda done: half_hours(
        done, lambda at: Lived(at + IDLE, (1.0, at), (1.0, at), (1.0, at))
    ),
}


@dataclass
class Fate:
    """What became of a session: gave up, done, or still at it after a day."""

    how: str
    seconds: float
    reconnects: int


def live_with(policy: RetryPolicy, scenario: Callable[[float], Lived]) -> Fate:
    """A day with the real policy, in simulated time. The session can always be resumed."""
    now, tally, done = 0.0, Tally(), 0.0
    while now < DAY:
        lived = scenario(done)
        now += lived.ended
        if lived.completed:
            return Fate("done", now, tally.reconnects)
        productive = lived.new[-1] - lived.new[0] if lived.new else 0.0
        done += lived.new[-1] if lived.new else 0.0
        state = State(
            error_class=lived.error_class,
            tally=tally,
            token="session",
            messages=len(lived.messages),
            lived=lived.ended,
            productive=productive,
        )
        decision = decide(state, policy)
        if isinstance(decision, GiveUp):
            return Fate("gave up", now, tally.reconnects)
        now, tally = now + decision.delay, decision.tally
    return Fate("never", now, tally.reconnects)


# Without jitter, and with the lifetime cap out of the way: it is another rule's net.
EXACT = RetryPolicy(random=lambda: 0.0, max_reconnects=10**9)
SEEDS = replace(EXACT, network=EXACT.idle)


@pytest.mark.parametrize(
    ("scenario", "how", "seconds", "reconnects"),
    [
        ("dead, no message", "gave up", 545, 2),
        ("init message, hang", "gave up", 548, 2),
        ("partial delta, hang", "gave up", 554, 2),
        ("1 replayed progress, hang", "gave up", 608, 2),
        ("instant crash", "gave up", 7, 3),
        ("healthy 8 h, drop each 30 min", "done", JOB + 15 * 1, 15),
        ("healthy 8 h, hang each 30 min", "done", JOB + 15 * IDLE, 15),
    ],
)
def test_all_seven_scenarios_come_out_right(scenario, how, seconds, reconnects):
    """R5: a hang is given up within minutes, and a healthy job of eight hours lives."""
    assert live_with(EXACT, SCENARIOS[scenario]) == Fate(how, seconds, reconnects)


def test_the_lifetime_cap_holds_where_no_other_count_does():
    """R5: 70 productive seconds and a hang, for ever, is what the productive span allows."""

    def flirting(_done):
        return Lived(70 + IDLE, (0.0, 70.0), (0.0, 70.0), (0.0, 70.0))

    assert live_with(EXACT, flirting).how == "never"
    fate = live_with(RetryPolicy(), flirting)
    assert (fate.how, fate.reconnects) == ("gave up", 50)


# The other rules of the table, each a function of the attempt that says whether counts are reset.
# They are here to show that this simulation can tell a good rule from a bad one.
RESETS: dict[str, Callable[[Lived], bool]] = {
    "result only": lambda _: False,
    "first message": lambda lived: bool(lived.messages),
    "first progress": lambda lived: bool(lived.progress),
    "uptime": lambda lived: lived.ended >= 60,
}
DELAYS = (0.0, 5.0, 15.0)


def live_by(rule: str, scenario: Callable[[float], Lived]) -> Fate:
    """A day with 2 retries of seed 000 and another rule for the reset."""
    now, spent, reconnects, done = 0.0, 0, 0, 0.0
    recent: list[float] = []
    while now < DAY:
        lived = scenario(done)
        now += lived.ended
        if lived.completed:
            return Fate("done", now, reconnects)
        done += lived.new[-1] if lived.new else 0.0
        if rule == "window 5/600 s":
            recent = [at for at in recent if now - at < 600]
            spent, allowed = len(recent), 5
        else:
            spent, allowed = (0 if RESETS[rule](lived) else spent), 2
        if spent >= allowed:
            return Fate("gave up", now, reconnects)
        recent.append(now)
        now += DELAYS[min(spent, 2)]
        spent, reconnects = spent + 1, reconnects + 1
    return Fate("never", now, reconnects)


WHAT_THE_FACTS_SAY = {
    "dead, no message": ["545 s", "545 s", "545 s", "never (480)", "never (444)"],
    "init message, hang": ["548 s", "never (478)", "548 s", "never", "never"],
    "partial delta, hang": ["554 s", "never (473)", "554 s", "never", "never"],
    "1 replayed progress, hang": ["608 s", "never (430)", "never (430)", "never", "never"],
    "instant crash": ["5 s", "5 s", "5 s", "5 s", "50 s"],
    "healthy 8 h, drop each 30 min": ["5405 s", "ok (15)", "ok", "ok", "ok"],
    "healthy 8 h, hang each 30 min": ["5945 s", "ok", "ok", "ok", "ok"],
}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_other_rules_fail_each_in_its_way(scenario):
    """R5: first-message and uptime resets loop for ever on a hang; a result comes too late."""
    for rule, said in zip([*RESETS, "window 5/600 s"], WHAT_THE_FACTS_SAY[scenario], strict=True):
        fate = live_by(rule, SCENARIOS[scenario])
        how = {"never": "never", "done": "ok", "gave up": f"{fate.seconds:g} s"}[fate.how]
        number = f" ({fate.reconnects})" if "(" in said else ""
        assert how + number == said, rule


def test_with_the_seeds_delays_the_table_is_exact():
    """R5: the column of the productive span, an instant crash at 5 s included."""
    policy = replace(SEEDS, instant=0.0)
    seconds = [live_with(policy, scenario).seconds for scenario in SCENARIOS.values()]
    assert seconds[:5] == [545, 548, 554, 608, 5]
