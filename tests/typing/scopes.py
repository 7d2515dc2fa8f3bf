"""Time scopes as users write them. Checked, never run.

Lines marked with two ignores must be errors, for mypy and for pyright each.
"""

from __future__ import annotations

from datetime import timedelta
from typing import assert_type

from streamguard import DeadlineExceededError, Scope, scope
from streamguard.errors import ScopeKind, ScopeName
from streamguard.events import CleanupCut, ScopeEvent, ScopeTimedOut, observing_scopes
from streamguard.limits import Cleanup, current, path, remaining
from streamguard.specs import FlowSpec


async def answer() -> int:
    """A scope never swallows: what is returned inside is all that can be returned."""
    async with scope("llm_call", "ask", timeout=90):
        return 1


async def nested() -> None:
    async with scope("flow", "deploy", timeout=timedelta(minutes=40)) as flow:
        assert_type(flow, Scope)
        assert_type(flow.remaining(), float)
        assert_type(flow.kind, ScopeKind)
        assert_type(flow.path, tuple[ScopeName, ...])
        async with scope("step", "build", timeout=1200, hard=1800) as step:
            try:
                ...
            finally:
                async with step.cleanup(5) as cleanup:
                    assert_type(cleanup, Cleanup)
                assert_type(cleanup.was_cut, bool)


def anywhere() -> None:
    assert_type(remaining(), float)
    assert_type(path(), tuple[ScopeName, ...])
    assert_type(current(), Scope | Cleanup | None)


def who(error: DeadlineExceededError) -> str:
    assert error.verdict is not None
    assert_type(error.verdict.scope, tuple[ScopeName, ...])
    assert_type(error.verdict.fired, ScopeName | None)
    assert_type(error.verdict.effective, ScopeName | None)
    return error.verdict.effective.kind if error.verdict.effective else ""


async def specs() -> None:
    assert_type(FlowSpec.load("flow.yaml"), FlowSpec)
    spec = FlowSpec.of({"timeouts": {"step": 900_000}}, source="flow.json")
    async with spec.scope(name="deploy") as flow:
        assert_type(flow, Scope)
    async with spec.scope("step", "heavy-analysis", timeout=60):
        pass


def observers(events: list[ScopeEvent]) -> None:
    with observing_scopes(events.append):
        pass


def seen(event: ScopeEvent) -> str:
    match event:
        case ScopeTimedOut() | CleanupCut():
            return event.verdict.reason
        case _:
            return ""


def mistakes() -> None:
    scope("stage")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    scope()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    scope("step", "x", 60)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    scope("step", timeout=["10m"])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with scope("step"):  # type: ignore[attr-defined]  # pyright: ignore[reportGeneralTypeIssues]
        pass
    FlowSpec.of([])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
