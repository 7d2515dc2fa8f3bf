"""Configuration, observers, and what is shown to `streamguard top`, as users write them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import assert_type

from streamguard import (
    CircuitBreaker,
    Configuration,
    Guarded,
    Operator,
    RetryPolicy,
    from_config,
    idle_guard,
    publishing,
)
from streamguard.events import observing_scopes
from streamguard.observers import OpenTelemetryObserver, PrometheusObserver, StructlogObserver
from streamguard.specs import FlowSpec


def configuration(numbers: AsyncIterator[int]) -> None:
    config = from_config()
    assert_type(config, Configuration)
    assert_type(from_config(Path("other.toml")), Configuration)
    assert_type(config.guard(), Operator)
    assert_type(numbers | config.guard("coder", total=60), Guarded[int])
    assert_type(config.retry_policy, RetryPolicy)
    assert_type(config.breaker("api"), CircuitBreaker)
    assert_type(config.flow, FlowSpec)
    assert_type(config.explain(), str)
    assert_type(config.path, Path | None)
    config.guard(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def observers(numbers: AsyncIterator[int]) -> None:
    metrics = PrometheusObserver(streams=["coder"], tools=["Bash"], circuits=["api"])
    traces, entries = OpenTelemetryObserver(provider="anthropic"), StructlogObserver()
    for observer in (metrics, traces, entries):
        assert_type(numbers | idle_guard(180, observer=observer), Guarded[int])
    CircuitBreaker("api", observer=metrics)
    with observing_scopes(traces):
        pass
    PrometheusObserver(streams=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def top() -> None:
    with publishing(), publishing(every=0.5):
        pass
    publishing(["often"])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
