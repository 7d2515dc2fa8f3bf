"""Nested time limits: a flow around steps around calls, each with its own, the inner capped.

    async with scope("flow", "deploy"):
        async with scope("step", "build") as build:
            async with scope("llm_call"):
                ...
            build.remaining()

How long a scope may take is settled here: what the code says, else what the flow's spec says, else
the table. What happens when time is up is the business of `scopes`; how a spec is read, of `specs`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, cast

from streamguard._base.calling import checked
from streamguard._base.near import near
from streamguard._base.numbers import limit_or_default
from streamguard._scopes.scopes import (
    CLEANUP,
    MIN_ATTEMPT,
    Cleanup,
    Scope,
    current,
    path,
    remaining,
)
from streamguard.errors import ConfigError, ScopeKind, ScopeName
from streamguard.presets import PRESETS

if TYPE_CHECKING:
    from streamguard._base.numbers import Seconds


class Budget(NamedTuple):
    """How long a scope may take (`timeout`), and the most that may be written for it (`hard`), in seconds."""

    timeout: float
    hard: float


class Override(NamedTuple):
    """The written parts of a budget (`timeout`, `hard`), in seconds; None for a part that was not written."""

    timeout: float | None = None
    hard: float | None = None


class Spec(Protocol):
    """Where a flow's own limits are written (`specs.FlowSpec`)."""

    def overrides(self, kind: ScopeKind, name: str) -> Iterable[Override]:
        """What is written for such a scope, the most specific first."""
        ...


BUDGETS: Final[Mapping[ScopeKind, Budget]] = MappingProxyType(
    {kind: Budget(*limits) for kind, limits in PRESETS["flow"].scopes.items()}
)


@checked
def scope(
    kind: ScopeKind, name: str = "", *, timeout: Seconds | None = None, hard: Seconds | None = None
) -> Scope:
    """Limit the time of an `async with` block, capped by the scopes around it.

    `kind` is "flow", "step", "llm_call" or "tool", and `name` which one of them, for errors and specs.
    `timeout` and `hard` are durations: 600, "10m", a timedelta. Without them the spec of the flow in force
    decides, if there is one. The defaults are: `flow` 30
    minutes (hard limit 45), `step` 10 (15), `llm_call` 2 (3), `tool` 5 (10). A limit past its hard
    limit is a ConfigError.
    When time is up, the block is cancelled and raises TotalTimeoutError.
    """
    innermost = current()
    return scope_under(innermost.spec if innermost else None, kind, name, timeout, hard)


def scope_under(
    spec: Spec | None, kind: ScopeKind, name: str, timeout: Seconds | None, hard: Seconds | None
) -> Scope:
    """A scope under `spec`, its limits checked."""
    check_kind(kind)
    written = Override(limit_or_default(timeout, "timeout"), limit_or_default(hard, "hard"))
    specified = spec.overrides(kind, name) if spec is not None else ()
    budget = budget_of(kind, (written, *specified))
    if not isinstance(cast("object", name), str):
        raise ConfigError(
            f"scope({kind!r}, {name!r}): the second value is a name; for a limit write "
            f"scope({kind!r}, timeout={name!r})"
        )
    label = ScopeName(kind, name)
    if budget.timeout > budget.hard:
        raise ConfigError(
            f"{label}: timeout={budget.timeout:g} is past the hard limit of {budget.hard:g} s. "
            "Choose a shorter one, or raise the limit with hard="
        )
    return Scope(label, budget.timeout, budget.hard, spec)


def check_kind(kind: str, where: str = "") -> None:
    """A ConfigError unless scopes of that kind exist."""
    if kind not in BUDGETS:
        raise ConfigError(f"{where}there is no scope {kind!r}: {near(kind, BUDGETS)}")


def budget_of(kind: ScopeKind, written: Iterable[Override]) -> Budget:
    """The most specific of the written values. A default gives way to a lower hard limit."""
    written, default = tuple(written), BUDGETS[kind]
    hard = next((each.hard for each in written if each.hard is not None), default.hard)
    fallback = min(default.timeout, hard)
    timeout = next((each.timeout for each in written if each.timeout is not None), fallback)
    return Budget(timeout, hard)


__all__ = [
    "BUDGETS",
    "CLEANUP",
    "MIN_ATTEMPT",
    "Budget",
    "Cleanup",
    "Override",
    "Scope",
    "Spec",
    "budget_of",
    "check_kind",
    "current",
    "path",
    "remaining",
    "scope",
    "scope_under",
]
