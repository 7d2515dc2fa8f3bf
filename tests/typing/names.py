"""Names from where users take them: types, modules as attributes, and old names. Checked, never run."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from datetime import timedelta
from typing import assert_type

import streamguard
from streamguard import (
    DeadlineExceededError,
    StreamTimeoutError,
    TotalTimeoutError,
    activity_stamp,
    derived_idle,
    guarded_call,
    idle_for_total,
    idle_guard,
    keep_alive,
    live,
    live_streams,
    publish_to_top,
    publishing,
    reconnecting_resume,
    scope,
    sentinel,
)
from streamguard.breaker import CircuitEvent
from streamguard.events import Event, observing_scopes
from streamguard.types import (
    Guarded,
    HostingOperator,
    IdleLimit,
    Observer,
    Operator,
    Seconds,
    Session,
    Verdict,
)


def guarded(stream: AsyncIterable[int], idle: Seconds, observers: list[Observer]) -> Guarded[int]:
    return stream | idle_guard(idle) | idle_guard(observer=observers)


def limits(limit: IdleLimit) -> Operator:
    return idle_guard(limit)


def a_type_is_the_same_in_both_places(verdict: Verdict, operator: Operator) -> None:
    assert_type(verdict, streamguard.Verdict)
    assert_type(operator, streamguard.Operator)


def a_hosting_operator_makes_a_session(stream: AsyncIterator[int]) -> Session[int]:
    operator = reconnecting_resume(backoff=("1s", timedelta(seconds=5), 15), wait_for_limit="6h")
    assert isinstance(operator, HostingOperator)
    return stream | keep_alive("15s", lambda: 0)


async def durations_as_texts() -> None:
    async with scope("step", timeout="10m", hard="1h30m"):
        pass
    activity_stamp(print, every="500ms")
    sentinel(kill_grace="2s")
    assert_type(idle_for_total("1h"), float)


async def a_call(value: int) -> int:
    return await guarded_call(a_call(value), "90s", total="5m")


def modules_are_attributes() -> None:
    policy = streamguard.retry.RetryPolicy(cap="5m")
    assert_type(policy, streamguard.RetryPolicy)
    streamguard.testing.Script(streamguard.testing.hang())
    streamguard.CircuitBreaker("api", observer=[hears, hears])
    with streamguard.events.observing_scopes([print]):
        pass
    error: streamguard.errors.StreamTimeoutError = TotalTimeoutError()
    assert_type(error.verdict, streamguard.types.Verdict | None)


def hears(event: CircuitEvent) -> None: ...
def observes(event: Event) -> None: ...


def observers_are_one_or_several() -> None:
    idle_guard(180, observer=[observes, print])
    idle_guard(180, observer=(observes,), on_warn=[print])
    idle_guard(observer=(each for each in (observes, print)))
    idle_guard(180, observer=[3])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    observing_scopes("log")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def old_names() -> None:
    assert_type(DeadlineExceededError(), TotalTimeoutError)
    handled: StreamTimeoutError = DeadlineExceededError()
    assert_type(handled.verdict, streamguard.Verdict | None)
    assert_type(live(), list[streamguard.Activity])
    assert_type(live_streams(), list[streamguard.Activity])
    derived_idle(3600)
    with publishing(), publish_to_top("2s"):
        pass
