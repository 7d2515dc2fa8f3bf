"""P3: the circuit breaker as its users meet it: rule by rule, waiting, threads, stores, words."""

from __future__ import annotations

import asyncio
import functools
import gc
import json
import logging
import math
import pickle
import re
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from streamguard import (
    CircuitBreaker,
    CircuitEscalatedError,
    CircuitOpenError,
    ConfigError,
    ErrorClass,
    IdleTimeoutError,
    StreamGuardError,
)
from streamguard import _loops as loops
from streamguard.breaker import (
    Circuit,
    CircuitChanged,
    CircuitRefused,
    CircuitReported,
    CircuitStoreFailed,
    CircuitThrottled,
    MemoryStore,
    Outcome,
)
from tests.retry.shapes import anthropic, httpx


class Clock:
    """A clock that stands still."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def fail(breaker, times=1, error_class=ErrorClass.IDLE):
    for _ in range(times):
        breaker.try_acquire().failed(error_class)


def opened(clock, **knobs):
    """A breaker that has just opened."""
    breaker = CircuitBreaker("anthropic", clock=clock, **knobs)
    fail(breaker, 3)
    assert breaker.status == "open"
    return breaker


def half_open(clock, **knobs):
    """A breaker whose probe is under way, and that probe."""
    breaker = opened(clock, **knobs)
    clock.now += 30
    return breaker, breaker.try_acquire()


def refused(breaker) -> CircuitOpenError:
    with pytest.raises(CircuitOpenError) as raised:
        breaker.try_acquire()
    return raised.value


# -- the rules -----------------------------------------------------------------------------------


def test_a_walk_through_all_its_states(clock):
    """P3: 30, 60, 120 and 240 s of pause, and then a person has to look: after 7.5 minutes."""
    breaker = CircuitBreaker(clock=clock)
    start, statuses = clock.now, []
    for at in (0, 1, 3, 33, 93, 213, 453):
        clock.now = start + at
        fail(breaker)
        statuses.append((breaker.status, breaker.failures, breaker.retry_after))
    assert statuses == [
        *(("closed", 1, 0), ("closed", 2, 0), ("open", 3, 30), ("open", 4, 60)),
        *(("open", 5, 120), ("open", 6, 240), ("escalated", 7, math.inf)),
    ]
    clock.now += 1e9
    assert isinstance(refused(breaker), CircuitEscalatedError)


def test_open_means_nobody_for_30_seconds_and_then_exactly_one(clock):
    """P3 (6.1.1): `>=`, where the seed had `>`."""
    breaker = opened(clock)
    clock.now += 29.999
    assert refused(breaker).retry_after == pytest.approx(0.001)
    clock.now = 1030.0
    assert breaker.try_acquire().is_probe
    assert refused(breaker).retry_after == 300
    assert breaker.status == "half_open"


def test_a_success_closes_and_zeroes(clock):
    """P3 (6.1.3)"""
    breaker, probe = half_open(clock)
    probe.succeeded()
    assert (breaker.status, breaker.failures) == ("closed", 0)
    fail(breaker, 2)
    breaker.try_acquire().succeeded()
    assert breaker.failures == 0


def test_the_failures_must_be_consecutive(clock):
    """P3: a success between two failures begins the count anew."""
    breaker = CircuitBreaker(clock=clock)
    for _ in range(10):
        fail(breaker, 2)
        breaker.try_acquire().succeeded()
    assert breaker.status == "closed"


def test_five_that_die_of_one_outage_open_it_once(clock):
    """P3 (6.1.4): with the seed's code one blip escalated at once."""
    breaker = CircuitBreaker(clock=clock)
    for permit in [breaker.try_acquire() for _ in range(5)]:
        permit.failed(ErrorClass.NETWORK)
    assert (breaker.status, breaker.failures) == ("open", 3)


def test_a_late_success_closes_nothing(clock):
    """P3 (6.1.4): with the seed's code it did."""
    breaker = CircuitBreaker(clock=clock)
    late = breaker.try_acquire()
    fail(breaker, 3)
    late.succeeded()
    assert (breaker.status, breaker.failures) == ("open", 3)


def test_the_first_progress_of_a_probe_lets_others_in_on_probation(clock):
    """P3 (6.1.5): the count is kept, so that the next failure opens it again."""
    breaker, probe = half_open(clock)
    probe.progressed()
    assert (breaker.status, breaker.failures) == ("closed", 3)
    other = breaker.try_acquire()
    other.failed(ErrorClass.SERVER)
    assert (breaker.status, breaker.failures) == ("open", 4)
    probe.succeeded()
    assert (breaker.status, breaker.failures) == ("open", 4)


@pytest.mark.parametrize(
    ("how", "status", "failures"), [("succeeded", "closed", 0), ("failed", "open", 4)]
)
def test_a_probe_that_made_progress_still_says_how_it_ended(clock, how, status, failures):
    """P3 (6.1.5): it moves on with the circuit, into its new generation."""
    breaker, probe = half_open(clock)
    generation = probe.generation
    probe.progressed()
    probe.progressed()
    assert probe.generation == breaker.circuit.generation == generation + 1
    getattr(probe, how)()
    assert (breaker.status, breaker.failures) == (status, failures)


def test_progress_of_no_probe_changes_nothing(clock):
    """P3 (6.1.5)"""
    breaker = CircuitBreaker(clock=clock)
    early = breaker.try_acquire()
    fail(breaker, 3)
    clock.now += 30
    breaker.try_acquire()
    early.progressed()
    assert breaker.status == "half_open"


def test_progress_of_a_probe_of_an_earlier_time_changes_nothing(clock):
    """P3 (6.1.4, 6.1.5): another one is under way now, and has to show it itself."""
    breaker, lost = half_open(clock)
    clock.now += 300
    breaker.try_acquire().failed()
    clock.now += 60
    assert breaker.try_acquire().is_probe
    lost.progressed()
    assert (breaker.status, breaker.failures) == ("half_open", 4)


def test_progress_asks_the_store_once(clock):
    """P3 (6.1.5): it may be called for each message, and those come by the thousand."""
    updates = []

    class Counting(MemoryStore):
        def update(self, key, change, /):
            updates.append(key)
            return super().update(key, change)

    breaker = CircuitBreaker("k", store=Counting(clock), open_after=1)
    plain = breaker.try_acquire()
    fail(breaker)
    clock.now += 30
    probe = breaker.try_acquire()
    before = len(updates)
    for _ in range(1000):
        plain.progressed()
        probe.progressed()
    assert len(updates) == before + 1


def test_an_outcome_that_says_nothing_frees_the_place_and_no_more(clock):
    """P3 (6.1.3): it never closes, as it does with Polly, Failsafe and cockatiel."""
    breaker, probe = half_open(clock)
    probe.released()
    assert (breaker.status, breaker.failures) == ("half_open", 3)
    assert breaker.try_acquire().is_probe


def test_a_probe_that_never_reports_holds_its_place_for_a_while_only(clock):
    """P3 (6.1.6): no circuit stays half open for ever; late is not too late."""
    breaker, lost = half_open(clock, probe_lease=120)
    clock.now += 119
    assert refused(breaker).retry_after == 1
    clock.now += 1
    second = breaker.try_acquire()
    assert second.is_probe
    lost.succeeded()
    assert breaker.status == "closed"


def test_a_lease_is_never_shorter_than_the_pause(clock):
    """P3 (6.1.6)"""
    breaker, _ = half_open(clock, probe_lease=1)
    assert refused(breaker).retry_after == 30


def test_an_abandoned_probe_is_no_leak(clock):
    """P3: a permit that is simply dropped, as abandoned generators do."""
    breaker, _ = half_open(clock)
    del _
    gc.collect()
    clock.now += 300
    assert breaker.try_acquire().is_probe


def test_as_many_probes_as_wanted(clock):
    """P3 (6.1.1)"""
    breaker, _first = half_open(clock, probes=2)
    assert breaker.try_acquire().is_probe
    clock.now += 1
    assert refused(breaker).retry_after == 299


def test_more_than_one_success_to_close(clock):
    """P3 (6.1.5): then progress does not close, and a failure starts over."""
    breaker, probe = half_open(clock, reset_after=2)
    probe.progressed()
    assert breaker.status == "half_open"
    probe.succeeded()
    assert breaker.status == "half_open"
    breaker.try_acquire().succeeded()
    assert (breaker.status, breaker.failures) == ("closed", 0)


def test_a_second_report_is_ignored(clock):
    """P3 (6.1.2): exactly one outcome for each permit."""
    breaker = CircuitBreaker(clock=clock)
    permit = breaker.try_acquire()
    permit.failed()
    permit.failed()
    permit.succeeded()
    permit.failed(ErrorClass.RATE_LIMIT, retry_after=100)
    permit.failed(ErrorClass.AUTH)
    permit.released()
    assert (breaker.status, breaker.failures, breaker.retry_after) == ("closed", 1, 0)


# -- classes of errors ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error_class", "status", "failures"),
    [
        *(("server", "closed", 1), ("network", "closed", 1), ("idle", "closed", 1)),
        *(("unknown", "closed", 1), ("rate_limit", "closed", 0), ("validation", "closed", 0)),
        *(("never", "closed", 0), ("auth", "escalated", 0), ("permanent", "escalated", 0)),
    ],
)
def test_what_each_class_of_errors_means_for_the_circuit(clock, error_class, status, failures):
    """P3 (6.1.2, 6.1.7): only what the backend does wrong counts."""
    breaker = CircuitBreaker(clock=clock)
    fail(breaker, 1, ErrorClass(error_class))
    assert (breaker.status, breaker.failures) == (status, failures)


def test_a_rate_limit_stops_everybody_and_counts_for_nothing(clock):
    """P3 (6.1.7): a shared not-before, the longest that was asked for."""
    breaker = CircuitBreaker(clock=clock)
    first, second = breaker.try_acquire(), breaker.try_acquire()
    first.failed(ErrorClass.RATE_LIMIT, retry_after=60)
    second.failed(ErrorClass.RATE_LIMIT, retry_after=20)
    assert (breaker.status, breaker.failures) == ("closed", 0)
    assert refused(breaker).retry_after == 60
    clock.now += 60
    assert not breaker.try_acquire().is_probe


def test_a_rate_limited_probe_frees_its_place_for_later(clock):
    """P3 (6.1.7)"""
    breaker, probe = half_open(clock)
    probe.failed(ErrorClass.RATE_LIMIT, retry_after=50)
    assert (breaker.status, refused(breaker).retry_after) == ("half_open", 50)
    clock.now += 50
    assert breaker.try_acquire().is_probe


def test_a_pause_that_was_asked_for_outlasts_the_circuits_own(clock):
    """P3 (6.1.1): whichever is longer."""
    breaker = opened(clock)
    breaker.throttle(100)
    assert refused(breaker).retry_after == 100
    clock.now += 100
    assert breaker.try_acquire().is_probe


def test_a_late_refusal_of_the_credentials_is_not_the_new_ones(clock):
    """P3 (6.1.4): after a reset, what began before says nothing."""
    breaker = CircuitBreaker(clock=clock)
    old = breaker.try_acquire()
    breaker.reset()
    old.failed(ErrorClass.AUTH)
    assert breaker.status == "closed"


# -- a permit as a context manager ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "status", "failures", "wait"),
    [
        (IdleTimeoutError("x"), "closed", 2, 0),
        (httpx(503), "closed", 2, 0),
        (httpx(400), "closed", 1, 0),
        (httpx(401), "escalated", 1, math.inf),
        (anthropic(429, headers={"retry-after": "7"}), "closed", 1, 7),
        (anthropic(429), "closed", 1, 60),
        (KeyboardInterrupt(), "closed", 1, 0),
        (GeneratorExit(), "closed", 1, 0),
        (asyncio.CancelledError(), "closed", 1, 0),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_a_permit_reports_by_how_its_block_is_left(clock, error, status, failures, wait):
    """P1, P3: the error goes on, and its class counts."""
    breaker = CircuitBreaker(clock=clock)
    fail(breaker)
    with pytest.raises(type(error)), breaker.try_acquire():
        raise error
    assert (breaker.status, breaker.failures, breaker.retry_after) == (status, failures, wait)


def test_a_block_that_ends_is_a_success(clock):
    """P3"""
    breaker = CircuitBreaker(clock=clock)
    fail(breaker)
    with breaker.try_acquire() as permit:
        permit.progressed()
    assert breaker.failures == 0


def test_what_a_block_reports_itself_goes_first(clock):
    """P3 (6.1.2)"""
    breaker = CircuitBreaker(clock=clock)
    fail(breaker)
    with breaker.try_acquire() as permit:
        permit.released()
    assert breaker.failures == 1


# -- by hand -------------------------------------------------------------------------------------


def test_isolated_by_hand_until_reset(clock):
    """P3 (6.1.10)"""
    breaker = CircuitBreaker("k", clock=clock)
    permit = breaker.try_acquire()
    breaker.isolate()
    error = refused(breaker)
    assert not isinstance(error, CircuitEscalatedError)
    assert error.retry_after == math.inf
    permit.succeeded()
    clock.now += 1e9
    assert breaker.status == "isolated"
    breaker.reset()
    assert breaker.try_acquire()


def test_reset_is_as_new(clock):
    """P3 (6.1.10): a throttle is gone, too: a person has seen to it."""
    breaker = CircuitBreaker(clock=clock)
    fail(breaker, 1, ErrorClass.AUTH)
    breaker.throttle(100)
    breaker.reset()
    assert (breaker.status, breaker.failures, breaker.retry_after) == ("closed", 0, 0)


# -- safekeeping ---------------------------------------------------------------------------------


def kept(breaker):
    """As it comes back from a file."""
    return json.loads(json.dumps(breaker.snapshot()))


@pytest.mark.parametrize(("elapsed", "left"), [(0, 30), (10, 20), (30, 0), (1000, 0)])
def test_a_snapshot_keeps_what_is_left_of_a_pause(clock, elapsed, left):
    """P3 (6.1.10): clocks of two processes have nothing in common."""
    breaker = opened(clock)
    clock.now += elapsed
    snapshot = kept(breaker)
    assert snapshot == {"status": "open", "failures": 3, "pause_left": left, "throttle_left": 0}
    elsewhere = Clock()
    elsewhere.now = 5.0
    restored = CircuitBreaker(clock=elsewhere)
    restored.restore(snapshot)
    assert (restored.status, restored.failures, restored.retry_after) == ("open", 3, left)
    elsewhere.now += left
    assert restored.try_acquire().is_probe


def test_half_open_is_kept_as_open(clock):
    """P3 (6.1.10): the probe is gone with its process, and another may try at once."""
    breaker, _ = half_open(clock)
    breaker.throttle(7)
    snapshot = kept(breaker)
    assert snapshot == {"status": "open", "failures": 3, "pause_left": 0, "throttle_left": 7}
    restored = CircuitBreaker(clock=clock)
    restored.restore(snapshot)
    clock.now += 7
    assert restored.try_acquire().is_probe


def test_escalated_stays_escalated_over_a_restart(clock):
    """P3 (6.1.10): else a crash loop would be a reset."""
    breaker = CircuitBreaker(clock=clock, open_after=1, escalate_after=1)
    fail(breaker)
    restored = CircuitBreaker(clock=clock)
    restored.restore(kept(breaker))
    assert isinstance(refused(restored), CircuitEscalatedError)


def test_permits_from_before_a_restore_report_in_vain(clock):
    """P3 (6.1.4)"""
    breaker = CircuitBreaker(clock=clock)
    permit = breaker.try_acquire()
    breaker.restore(kept(breaker))
    permit.failed()
    assert breaker.failures == 0


@pytest.mark.parametrize(
    "broken",
    [
        None,
        "text",
        [],
        {},
        {"status": "ajar", "failures": 0, "pause_left": 0, "throttle_left": 0},
        {"status": "half_open", "failures": 0, "pause_left": 0, "throttle_left": 0},
        {"status": "open", "failures": -1, "pause_left": 0, "throttle_left": 0},
        {"status": "open", "failures": 1, "pause_left": math.nan, "throttle_left": 0},
        {"status": "open", "failures": 1, "pause_left": 0, "throttle_left": math.inf},
        {"status": ["open"], "failures": 1, "pause_left": 0, "throttle_left": 0},
    ],
)
def test_what_is_no_snapshot_is_refused(clock, broken):
    """T12: a file may hold anything; the circuit stays as it was."""
    breaker = opened(clock)
    with pytest.raises(ConfigError):
        breaker.restore(broken)
    assert breaker.status == "open"


# -- the knobs -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("knobs", "text"),
    [
        ({"open_after": 0}, "open_after=0: use a whole number, 1 or more"),
        ({"open_after": True}, "open_after=True: use a whole number, 1 or more"),
        ({"probes": 0}, "probes=0: use a whole number, 1 or more"),
        ({"reset_after": 1.5}, "reset_after=1.5: use a whole number, 1 or more"),
        ({"pause": 0}, "pause=0: it cannot be off; use a positive number of seconds"),
        ({"pause": math.inf}, "pause=inf: use a positive number of seconds"),
        ({"pause": math.nan}, "pause=nan: use a positive number of seconds"),
        ({"probe_lease": -1}, "probe_lease=-1: use a positive number of seconds"),
        ({"escalate_after": 0}, "escalate_after=0: use a whole number, 1 or more"),
        ({"escalate_after": "5"}, "escalate_after='5': use a whole number, 1 or more"),
        ({"pause_growth": 0.5}, "pause_growth=0.5: use 1 or more (1 = all pauses alike)"),
        (
            {"longest_pause": "soon"},
            'longest_pause=\'soon\': use seconds, a timedelta, or a text such as "90s", "15m" or "1h30m"',
        ),
        ({"on_open": "sleep"}, "on_open='sleep': use 'raise' or 'wait'"),
        (
            {"clock": time.monotonic, "store": MemoryStore()},
            "clock= belongs to the store: give it there, or leave store= out",
        ),
    ],
)
def test_a_knob_that_cannot_be_used_is_refused(knobs, text):
    """T12: where it is written, by its name."""
    with pytest.raises(ConfigError) as raised:
        CircuitBreaker(**knobs)
    assert str(raised.value) == text


def test_it_need_not_escalate(clock):
    """T12: None is off."""
    breaker = CircuitBreaker(clock=clock, escalate_after=None)
    for _ in range(50):
        fail(breaker)
        clock.now += 300
    assert (breaker.status, breaker.failures, breaker.circuit.opened_at) == (
        *("open", 50, clock.now - 300),
    )
    assert breaker._rules.pause_after(10**9) == 300


@pytest.mark.parametrize("value", [-1, math.nan, math.inf, "soon", True])
def test_a_pause_that_is_no_number_is_refused(clock, value):
    """T12"""
    with pytest.raises(ConfigError, match="retry_after="):
        CircuitBreaker(clock=clock).throttle(value)
    with pytest.raises(ConfigError, match="retry_after="):
        CircuitBreaker(clock=clock).try_acquire().failed(ErrorClass.RATE_LIMIT, retry_after=value)


# -- what it says --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "name"), [("anthropic", "circuit 'anthropic'"), ("", "the circuit")]
)
def test_an_error_says_what_happened_when_to_come_back_and_what_to_do(clock, key, name):
    """P3: what, why, and the next step."""
    breaker = CircuitBreaker(key, clock=clock)
    then = "wait so long, as on_open='wait' does, or find out why the backend fails"
    breaker.throttle(12.5)
    assert str(refused(breaker)) == (
        f"{name} is closed, but the backend asked for a pause; "
        f"the next attempt may be made in 12.5 s: {then}"
    )
    clock.now += 12.5
    fail(breaker, 3)
    assert str(refused(breaker)) == (
        f"{name} is open (3 failures in a row); the next probe may be made in 30 s: {then}"
    )
    clock.now += 30
    probe = breaker.try_acquire()
    assert str(refused(breaker)) == (
        f"{name} is half open and its probe is under way; another may be made in 300 s: {then}"
    )
    probe.failed(ErrorClass.AUTH)
    assert str(refused(breaker)) == (
        f"{name} is escalated (the backend refuses the credentials or the account): nobody may "
        "try until a person has looked at the backend and calls reset() on its breaker"
    )
    breaker.isolate()
    assert "is isolated (by hand): nobody may try" in str(refused(breaker))


def test_an_error_is_one_of_ours_and_can_be_sent_elsewhere(clock):
    """O8, T12"""
    error = refused(opened(clock))
    assert isinstance(error, StreamGuardError)
    assert (error.key, error.retry_after, error.gave_up) == ("anthropic", 30, None)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.__dict__) == (type(error), str(error), error.__dict__)
    assert CircuitOpenError("x").retry_after == math.inf


def test_reprs(clock):
    """P3: what a log shows of them."""
    breaker, probe = half_open(clock)
    assert repr(breaker) == "<CircuitBreaker 'anthropic' half_open, 3 failures>"
    assert repr(probe) == "<Permit for probe of 'anthropic', generation 2, under way>"
    probe.progressed()
    probe.succeeded()
    assert repr(probe) == "<Permit for probe of 'anthropic', generation 3, reported>"


def test_an_observer_hears_of_everything(clock):
    """E6: transitions, refusals, outcomes that counted or not, and throttles."""
    events = []
    breaker = CircuitBreaker("k", clock=clock, open_after=1, observer=events.append)
    late, permit = breaker.try_acquire(), breaker.try_acquire()
    permit.failed()
    late.failed(ErrorClass.RATE_LIMIT, retry_after=5)
    refused(breaker)
    at = {"key": "k", "at": 1000.0}
    assert events == [
        CircuitChanged(
            **at,
            before="closed",
            after="open",
            cause="1 failure in a row",
            failures=1,
            generation=1,
        ),
        CircuitReported(**at, outcome=Outcome.FAILURE, counted=True, is_probe=False),
        CircuitReported(**at, outcome=Outcome.NEUTRAL, counted=False, is_probe=False),
        CircuitThrottled(**at, retry_after=5),
        CircuitRefused(**at, status="open", retry_after=30),
    ]


def test_escalation_is_told_once(clock):
    """P3 (6.1.3)"""
    events = []
    breaker = CircuitBreaker(clock=clock, open_after=1, escalate_after=1, observer=events.append)
    permits = [breaker.try_acquire() for _ in range(5)]
    for permit in permits:
        permit.failed()
    assert [event.after for event in events if isinstance(event, CircuitChanged)] == ["escalated"]


def test_an_observer_that_raises_disturbs_nothing(clock, caplog):
    """E6"""

    def observer(_event):
        raise RuntimeError("observer's own")

    breaker = opened(clock, observer=observer)
    assert refused(breaker).retry_after == 30
    assert "observer" in caplog.text


def test_an_observer_may_use_the_breaker_and_the_permit(clock):
    """E6: no lock is held that it would need."""
    seen = []

    def observer(event):
        seen.append((type(event).__name__, breaker.status))
        permit.failed()
        if isinstance(event, CircuitChanged) and event.after == "open":
            breaker.isolate()

    breaker = CircuitBreaker(clock=clock, open_after=1, observer=observer)
    permit = breaker.try_acquire()
    permit.failed()
    assert breaker.status == "isolated"
    assert ("CircuitReported", "isolated") in seen


@pytest.mark.parametrize(
    ("after", "level"), [("open", "WARNING"), ("escalated", "ERROR"), ("closed", "INFO")]
)
def test_transitions_are_logged_for_the_person_on_call(clock, caplog, after, level):
    """E6"""
    caplog.set_level(logging.INFO, "streamguard")
    breaker = CircuitBreaker("k", clock=clock, open_after=1, escalate_after=2)
    fail(breaker)
    clock.now += 30
    if after == "escalated":
        fail(breaker)
    if after == "closed":
        breaker.try_acquire().succeeded()
    record = caplog.records[-1 if after != "open" else 0]
    assert record.levelname == level
    assert record.getMessage().startswith(f"circuit 'k' is {after}: ")


# -- waiting (three loops) -----------------------------------------------------------------------


def waiting(**knobs):
    """A breaker that waits, on the loop's clock, and has just opened."""
    return opened(anyio.current_time, on_open="wait", **knobs)


async def soon():
    """Let every other task run until it waits; no time passes."""
    for _ in range(10):
        await anyio.lowlevel.checkpoint()


async def test_it_waits_until_it_is_the_probe(loop):
    """P3 (6.1.8): exactly as long as it has to."""
    breaker, began = waiting(), anyio.current_time()
    permit = await breaker.acquire()
    assert permit.is_probe
    assert loop.took(anyio.current_time() - began, 30)


async def test_raising_is_the_default_also_in_coroutines(loop):
    """P3 (6.1.8)"""
    breaker = opened(anyio.current_time)
    with pytest.raises(CircuitOpenError) as raised:
        await breaker.acquire()
    assert raised.value.retry_after == 30
    breaker.reset()
    assert (await breaker.acquire()).generation == breaker.circuit.generation


@pytest.mark.parametrize(
    ("end", "waited"),
    [("progressed", 40), ("succeeded", 40), ("released", 40), ("failed", 100), ("nothing", 330)],
)
async def test_of_many_that_wait_one_probes_and_the_rest_follow_its_outcome(loop, end, waited):
    """P3 (6.1.8): waiters wake on the transition, and one becomes the probe."""
    breaker = waiting(escalate_after=None)
    began, admitted = anyio.current_time(), []

    async def attempt():
        permit = await breaker.acquire()
        admitted.append(anyio.current_time() - began)
        if len(admitted) == 1:
            await anyio.sleep(10)
            if end != "nothing":
                getattr(permit, end)()
        else:
            permit.succeeded()

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(attempt)
    assert [loop.took(admitted[0], 30), len(admitted)] == [True, 5]
    assert all(loop.took(at, waited) for at in admitted[1:])


async def test_who_waits_hears_at_once_that_it_is_in_vain(loop):
    """P3: escalation, isolation."""
    for shut in ("isolate", "escalate"):
        breaker, errors = waiting(), []

        async def wait(breaker=breaker, errors=errors):
            with pytest.raises(CircuitOpenError) as raised:
                await breaker.acquire()
            errors.append((type(raised.value), anyio.current_time()))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await soon()
            at = anyio.current_time()
            if shut == "isolate":
                breaker.isolate()
                kind = CircuitOpenError
            else:
                breaker.restore({**breaker.snapshot(), "status": "escalated"})
                kind = CircuitEscalatedError
        assert errors == [(kind, at)]


async def test_a_reset_wakes_all(loop):
    """P3: a person need not wait for the pause."""
    breaker, permits = waiting(), []

    async def wait():
        permits.append(await breaker.acquire())

    began = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(wait)
        await soon()
        breaker.reset()
    assert (len(permits), anyio.current_time()) == (3, began)


@pytest.mark.parametrize("limit", ["within", "scope"])
async def test_a_wait_that_would_be_too_long_is_not_begun(loop, limit):
    """P3 (6.1.8), R8: if it is as long as the time that is left, raise now."""
    breaker, began = waiting(), anyio.current_time()
    within = 30 if limit == "within" else math.inf
    with (
        anyio.move_on_after(30 if limit == "scope" else math.inf),
        pytest.raises(CircuitOpenError) as raised,
    ):
        await breaker.acquire(within=within)
    assert raised.value.retry_after == 30
    assert anyio.current_time() == began
    within = 31 if limit == "within" else math.inf
    with anyio.fail_after(31 if limit == "scope" else math.inf):
        assert await breaker.acquire(within=within)


async def test_time_that_was_waited_counts_against_the_time_there_is(loop):
    """R8: a second wait begins with what the first has left."""
    breaker = waiting(escalate_after=None)
    first = await breaker.acquire()
    began = anyio.current_time()
    async with anyio.create_task_group() as tasks:

        async def wait():
            with pytest.raises(CircuitOpenError) as raised:
                await breaker.acquire(within=310)
            assert raised.value.retry_after == 60
            assert loop.took(anyio.current_time() - began, 290)

        tasks.start_soon(wait)
        await anyio.sleep(290)
        first.failed()


class _Key(str):
    """A key that counts how often it is held against another."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        _Key.compared += 1
        return super().__eq__(other)

    __hash__ = str.__hash__


def test_a_change_is_told_to_its_own_waiters_alone():
    """P3: an outage of as many backends as there are waiters asks nobody whose that is."""
    store, told, keys = MemoryStore(), [], [_Key(number) for number in range(100)]
    for key in keys:
        store.listen(key, functools.partial(told.append, key))
    for key in keys:
        store.update(key, lambda circuit, _now: (replace(circuit, failures=1), None))
    assert told == keys
    assert _Key.compared <= 3 * len(keys)


async def test_a_cancelled_wait_leaves_nothing_behind(loop):
    """O7: no listener, no lease, no probe."""
    store = MemoryStore(anyio.current_time)
    breaker = CircuitBreaker("k", store=store, on_open="wait")
    fail(breaker, 3)
    for _ in range(10):
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(breaker.acquire)
            await soon()
            assert len(store._listeners) == 3
            tasks.cancel_scope.cancel()
    assert not store._listeners
    assert breaker.status == "open"
    await anyio.sleep(30)
    assert (await breaker.acquire()).is_probe


async def test_asking_is_a_checkpoint(loop):
    """anyio's rule: a cancelled scope is noticed also where nothing has to be waited for."""
    breaker = CircuitBreaker(clock=anyio.current_time)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await breaker.acquire()
    assert scope.cancelled_caught


async def test_clocks_that_round_make_no_endless_wait(loop):
    """T2: the last instant of a wait is too short to move the clock."""
    start = anyio.current_time()

    def clock():  # a hair behind the loop's
        return anyio.current_time() - 1e-9 if anyio.current_time() > start else start

    breaker = opened(clock, on_open="wait")
    assert (await breaker.acquire()).is_probe
    assert loop.took(anyio.current_time() - start, 30, slack=0.01)


def test_its_times_are_written_as_everywhere(clock):
    breaker = CircuitBreaker(
        clock=clock, pause="1m", probe_lease=timedelta(minutes=5), longest_pause="1h"
    )
    rules = breaker._rules
    assert (rules.pause, rules.probe_lease, rules.longest_pause) == (60, 300, 3600)
    breaker.throttle("1h30m")
    assert breaker.retry_after == 5400


@pytest.mark.parametrize("within", [-1, math.nan, "soon"])
async def test_a_time_to_wait_is_a_number(loop, within):
    """T12"""
    with pytest.raises(ConfigError, match="within="):
        await CircuitBreaker().acquire(within=within)


# -- threads -------------------------------------------------------------------------------------


def at_once(*functions: Callable[[], object]) -> list:
    """Call all functions in threads that start together; what each returned or raised."""
    barrier, results = threading.Barrier(len(functions)), [None] * len(functions)

    def run(number, function):
        barrier.wait(10)
        try:
            results[number] = function()
        except CircuitOpenError as error:
            results[number] = error

    threads = [
        threading.Thread(target=run, args=(number, function))
        for number, function in enumerate(functions)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return results


def test_of_many_threads_one_becomes_the_probe(clock):
    """P3: however many ask in the same instant."""
    for _ in range(30):
        breaker = opened(clock)
        clock.now += 30
        results = at_once(*[breaker.try_acquire] * 12)
        assert sum(not isinstance(result, CircuitOpenError) for result in results) == 1
        assert breaker.status == "half_open"


def test_a_permit_that_many_threads_report_on_counts_once(clock):
    """P3 (6.1.2)"""
    for _ in range(30):
        breaker = CircuitBreaker(clock=clock)
        permit = breaker.try_acquire()
        at_once(*[permit.failed] * 12)
        assert breaker.failures == 1


def test_no_count_is_lost_between_threads(clock):
    """P3: the store replaces circuits atomically."""
    breaker = CircuitBreaker(clock=clock, open_after=10_000, escalate_after=None)

    def fail_often():
        fail(breaker, 200)

    at_once(*[fail_often] * 8)
    assert breaker.failures == 1600


def test_progress_and_outcome_from_two_threads_agree(clock):
    """P3 (6.1.5): whichever comes first, the probe's success closes and zeroes."""
    for _ in range(50):
        breaker, probe = half_open(clock)
        at_once(probe.progressed, probe.succeeded)
        assert (breaker.status, breaker.failures) == ("closed", 0)


async def test_another_thread_wakes_who_waits_on_a_loop(loop):
    """P3, T6: what comes from a thread reaches the loop."""
    clock, began = loops.current().clock, anyio.current_time()  # one for any thread
    breaker = opened(clock, on_open="wait")
    async with anyio.create_task_group() as tasks:

        async def wait():
            assert await breaker.acquire()
            assert anyio.current_time() == began

        tasks.start_soon(wait)
        await soon()
        at_once(breaker.reset)  # joined at once, so that no virtual time passes


# -- stores --------------------------------------------------------------------------------------


def test_breakers_with_one_store_and_key_are_one(clock):
    """P3: the key is what counts."""
    store = MemoryStore(clock)
    one, same, other = (CircuitBreaker(key, store=store) for key in ("a", "a", "b"))
    fail(one, 2)
    fail(same, 1)
    assert (one.status, same.status, other.status) == ("open", "open", "closed")
    one.throttle(100)
    assert (same.retry_after, other.retry_after) == (100, 0)


async def test_who_waits_at_one_breaker_hears_of_the_other(loop):
    """P3: it is the store that tells."""
    store = MemoryStore(anyio.current_time)
    one, other = (CircuitBreaker("k", store=store, on_open="wait") for _ in range(2))
    fail(one, 3)
    began = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one.acquire)
        await soon()
        other.reset()
    assert anyio.current_time() == began


class SharedStore:
    """Somewhere far: compare-and-set on a version, lost half of the time to somebody else."""

    def __init__(self, blocks: bool = True) -> None:
        self.blocks = blocks
        self.now = 5.0  # its own clock
        self.kept: dict[str, tuple[int, Circuit]] = {}
        self.threads: set[int] = set()
        self.lost = 0
        self.meanwhile: Callable[[], None] | None = None

    def update(self, key, change, /):
        self.threads.add(threading.get_ident())
        while True:
            version, circuit = self.kept.get(key, (0, Circuit()))
            after, answer = change(circuit, self.now)
            if self.meanwhile is not None:
                meanwhile, self.meanwhile = self.meanwhile, None
                meanwhile()
            if self.kept.get(key, (0, None))[0] != version:
                self.lost += 1
                continue
            self.kept[key] = (version + 1, after)
            return answer

    def listen(self, _key, _changed, /):
        return lambda: None


def test_a_store_that_compares_and_sets():
    """P3: whoever was overtaken asks again, and only the kept answer counts."""
    store = SharedStore()
    breaker = CircuitBreaker("k", store=store)
    fail(breaker, 3)
    store.now += 30
    probes = []
    store.meanwhile = lambda: probes.append(breaker.try_acquire())
    assert refused(breaker).retry_after == 300
    assert (len(probes), store.lost) == (1, 1)
    assert breaker.circuit.leases == ((probes[0]._holder, 5.0 + 30 + 300),)


def test_a_report_that_was_overtaken_by_a_transition_is_fenced():
    """P3: its generation is over when it is written."""
    store = SharedStore()
    breaker = CircuitBreaker("k", store=store)
    late = breaker.try_acquire()
    store.meanwhile = breaker.isolate
    late.succeeded()
    assert (breaker.status, store.lost) == ("isolated", 1)


def test_two_machines_have_one_probe_between_them():
    """P3: whoever comes second sees the other's lease, on the store's clock."""
    store = SharedStore()
    here, there = (CircuitBreaker("k", store=store) for _ in range(2))
    fail(here, 2)
    fail(there, 1)
    store.now += 30
    assert here.try_acquire().is_probe
    assert refused(there).retry_after == 300


@pytest.mark.parametrize("blocks", [True, False])
async def test_a_store_that_blocks_is_asked_in_a_worker_thread(loop, blocks):
    """P3: the loop goes on while a database is slow."""
    store = SharedStore(blocks)
    breaker = CircuitBreaker("k", store=store)
    await breaker.acquire()
    assert (store.threads == {threading.get_ident()}) != blocks


async def test_who_waits_for_a_store_of_many_machines_looks_again_by_itself(loop):
    """P3: what is done elsewhere may never be told here."""
    store, began = SharedStore(), anyio.current_time()
    here, there = (CircuitBreaker("k", store=store, on_open="wait") for _ in range(2))
    there.isolate()
    there.restore({**there.snapshot(), "status": "open", "pause_left": 25})
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(here.acquire)
        await anyio.sleep(12)
        there.reset()
    assert 12 <= anyio.current_time() - began <= 17


def test_a_store_that_is_down_is_said_so(clock, caplog):
    """P3: nobody is stopped by it, and what was reported is made good when it is back."""

    class Down(MemoryStore):
        is_down = False

        def update(self, key, change, /):
            if self.is_down:
                raise ConnectionError("no database")
            return super().update(key, change)

    events, store = [], Down(clock)
    breaker = CircuitBreaker("k", store=store, observer=events.append)
    permit, late = breaker.try_acquire(), breaker.try_acquire()
    store.is_down = True
    for outcome in ("failed", "succeeded", "released", "progressed"):
        through = breaker.try_acquire()
        assert not through.is_probe
        getattr(through, outcome)()
    permit.failed()
    late.failed()
    assert (breaker.status, breaker.failures, breaker.retry_after) == ("closed", 0, 0)
    assert {type(event) for event in events} == {CircuitStoreFailed}
    assert {event.operation for event in events} == {"ask", "report", "read"}
    with pytest.raises(ConnectionError):  # a person has to know that it was in vain
        breaker.reset()
    lines = [record for record in caplog.records if "its store" in record.getMessage()]
    assert [record.levelname for record in lines] == ["WARNING"]
    events.clear()
    store.is_down = False
    assert breaker.failures == 2
    counted = [event.counted for event in events if isinstance(event, CircuitReported)]
    assert counted == [False, False, False, True, True]


# -- seed 002 ------------------------------------------------------------------------------------

DOCS = Path(__file__).parents[2] / "docs" / "how-to" / "resilience.md"


def seed_breaker():
    """`SeedBreaker` as it stands in the docs."""
    (code,) = re.findall(r"```python\n(class SeedBreaker.*?)```", DOCS.read_text(), re.DOTALL)
    names = {"CircuitBreaker": CircuitBreaker, "CircuitOpenError": CircuitOpenError}
    exec(code, names)
    return names["SeedBreaker"]


def test_the_seeds_interface_maps_onto_it_as_the_docs_say(clock):
    """S2-09, S2-10: record_failure -> RETRY, PAUSE, ESCALATE; record_success; can_proceed."""
    breaker = seed_breaker()(clock=clock)
    answers = []
    for _ in range(3):
        assert breaker.can_proceed()
        answers.append(breaker.record_failure())
    assert answers == ["RETRY", "RETRY", "PAUSE"]
    assert not breaker.can_proceed()
    clock.now += 30
    assert breaker.can_proceed()  # half open: one request
    assert breaker.record_failure() == "PAUSE"
    clock.now += 30
    assert breaker.can_proceed()
    assert breaker.record_failure() == "ESCALATE"
    clock.now += 1e6
    assert not breaker.can_proceed()  # the seed's own code said True here, for ever


def test_one_success_resets_the_seeds_interface(clock):
    """S2-09"""
    breaker = seed_breaker()(clock=clock)
    for _ in range(2):
        assert breaker.can_proceed()
        breaker.record_failure()
    assert breaker.can_proceed()
    breaker.record_success()
    for expected in ("RETRY", "RETRY", "PAUSE"):
        assert breaker.can_proceed()
        assert breaker.record_failure() == expected
    clock.now += 30
    assert breaker.can_proceed()
    assert not breaker.can_proceed()  # the seed's own code let ten of ten through
    breaker.record_success()
    assert breaker.can_proceed()
