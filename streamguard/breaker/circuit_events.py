"""What a circuit breaker tells its observer, as frozen dataclasses. Imports circuit's words alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from streamguard.breaker.circuit import Outcome, Status


@dataclass(frozen=True, kw_only=True)
class CircuitEvent:
    """Base of what a breaker tells its observer. `at` is on its store's clock.

    An observer is called in the task or thread that asked or reported. With a store that blocks, it
    is called in the thread that speaks to the store.
    """

    key: str
    at: float


@dataclass(frozen=True, kw_only=True)
class CircuitChanged(CircuitEvent):
    """A transition: the circuit went from one status to another, and `generation` began."""

    before: Status
    after: Status
    cause: str
    failures: int
    generation: int


@dataclass(frozen=True, kw_only=True)
class CircuitRefused(CircuitEvent):
    """A caller asked for a permit and got none. Waiting is no refusal."""

    status: Status
    retry_after: float


@dataclass(frozen=True, kw_only=True)
class CircuitReported(CircuitEvent):
    """An attempt is over. One of an older generation is `counted` here only."""

    outcome: Outcome
    counted: bool
    is_probe: bool


@dataclass(frozen=True, kw_only=True)
class CircuitThrottled(CircuitEvent):
    """The backend asked to be left alone for so long (429)."""

    retry_after: float


@dataclass(frozen=True, kw_only=True)
class CircuitStoreFailed(CircuitEvent):
    """The store failed, or hung, at an `operation`: `ask`, `report` or `read`.

    Streams go on: all attempts are allowed, and a report is made when the store works again.
    """

    operation: Literal["ask", "report", "read"]
    error: BaseException


CircuitObserver: TypeAlias = Callable[[CircuitEvent], None]
