"""Retry and the circuit breaker as users type them (P1 to P3, R3). Checked, never run.

Lines marked with two ignores must be errors, for mypy and for pyright each.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Literal, TypeVar, assert_never, assert_type

from streamguard import (
    Backoff,
    CircuitBreaker,
    CircuitEscalatedError,
    CircuitOpenError,
    ErrorClass,
    RetryPolicy,
    classify,
)
from streamguard.breaker import (
    Circuit,
    CircuitChanged,
    CircuitEvent,
    CircuitStore,
    MemoryStore,
    Permit,
    Snapshot,
    Status,
)
from streamguard.retry import GiveUp, Restart, Resume, State, Tally, decide, retry_after
from streamguard.signals import Failed

T = TypeVar("T")


# --- what an error is


def errors_have_classes(error: BaseException) -> None:
    assert_type(classify(error), ErrorClass)
    assert_type(classify(error, failed=Failed("server")), ErrorClass)
    assert_type(retry_after(error), float | None)
    assert_type(classify(error).is_transient, bool)


def every_class_can_be_matched(error_class: ErrorClass) -> str:
    match error_class:
        case ErrorClass.NEVER | ErrorClass.AUTH | ErrorClass.PERMANENT | ErrorClass.VALIDATION:
            return "give up"
        case ErrorClass.RATE_LIMIT | ErrorClass.SERVER | ErrorClass.NETWORK:
            return "retry"
        case ErrorClass.IDLE | ErrorClass.UNKNOWN:
            return "it depends"
        case _:
            assert_never(error_class)


# --- what may be spent


def mine(error: BaseException) -> ErrorClass | None:
    return ErrorClass.NETWORK if isinstance(error, LookupError) else None


def policies() -> None:
    policy = RetryPolicy(idle=Backoff(3, (0, 10, 30.5)), cap=60, classifier=mine)
    assert_type(replace(policy, network=Backoff(5, [1, 2], jitter=0.5)), RetryPolicy)
    assert_type(policy.classify(ValueError()), ErrorClass)
    assert_type(policy.backoff(ErrorClass.IDLE).delay(0), float)


# --- decisions


def decisions(error: Exception, policy: RetryPolicy) -> str:
    state = State(
        error_class=policy.classify(error),
        retry_after=retry_after(error),
        tally=Tally(),
        token="session",
        tool_calls=1,
        remaining=None,
    )
    decision = decide(state, policy)
    match decision:
        case Resume():
            assert_type(decision.token, str)
            assert_type(decision.tally, Tally)
        case Restart():
            assert_type(decision.delay, float)
        case GiveUp():
            assert_type(
                decision.reason, Literal["retries", "unsafe", "deadline", "circuit", "class"]
            )
        case _:
            assert_never(decision)
    return decision.why


# --- the breaker


async def attempts(breaker: CircuitBreaker) -> None:
    with await breaker.acquire(within=30, on_open="wait") as permit:
        assert_type(permit, Permit)
        permit.progressed()
    permit = breaker.try_acquire()
    permit.failed(ErrorClass.RATE_LIMIT, retry_after=7.5)
    permit.ended(TimeoutError())
    permit.ended(None)


def what_a_breaker_tells(breaker: CircuitBreaker) -> None:
    assert_type(breaker.status, Status)
    assert_type(breaker.failures, int)
    assert_type(breaker.retry_after, float)
    assert_type(breaker.pause_left, float)
    assert_type(breaker.flush(), bool)
    assert_type(Circuit.from_json(breaker.circuit.as_json()), Circuit)
    assert_type(breaker.circuit, Circuit)
    snapshot = breaker.snapshot()
    assert_type(snapshot, Snapshot)
    breaker.restore(snapshot)
    breaker.restore(json.loads(json.dumps(snapshot)))


def observer(event: CircuitEvent) -> None:
    if isinstance(event, CircuitChanged):
        assert_type(event.after, Status)


class FarStore:
    """What another machine can see, too."""

    blocks = True

    def update(self, key: str, change: Callable[[Circuit, float], tuple[Circuit, T]], /) -> T:
        return change(Circuit(), 0.0)[1]

    def listen(self, key: str, changed: Callable[[], None], /) -> Callable[[], None]:
        return changed


def stores_and_observers() -> None:
    store: CircuitStore = FarStore()
    store = MemoryStore()
    CircuitBreaker("key", store=store, observer=observer, on_open="wait", escalate_after=None)


def errors_say_when_to_come_back(error: CircuitEscalatedError) -> None:
    refused: CircuitOpenError = error
    assert_type(refused.retry_after, float)
    assert_type(refused.key, str)


def times_as_everywhere() -> None:
    Backoff(3, "5s")
    Backoff(3, ("1s", timedelta(seconds=5)), jitter_cap="500ms")
    RetryPolicy(cap="5m", wait_for_limit="6h", productive_span=timedelta(minutes=1))
    CircuitBreaker("api", pause="30s", probe_lease="5m", longest_pause=timedelta(minutes=10))
    assert_type(Backoff(3, "5s").jitter_cap, float)
    assert_type(RetryPolicy(cap="5m").cap, float)


# --- what must not type


class NoStore:
    """It cannot tell of changes."""

    blocks = False

    def update(self, key: str, change: Callable[[Circuit, float], tuple[Circuit, T]], /) -> T:
        return change(Circuit(), 0.0)[1]


def mistakes(breaker: CircuitBreaker) -> None:
    RetryPolicy(idle=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    RetryPolicy(Backoff(3))  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    RetryPolicy().cap = 3  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    Backoff("3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    State()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    CircuitBreaker(on_open="sleep")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    CircuitBreaker(store=NoStore())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    breaker.status = "closed"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    breaker.try_acquire().failed("idle")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
