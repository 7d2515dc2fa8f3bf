"""What becomes of a session when its handler has ended: decided in one place, for every engine.

    it returned                              done
    it was cancelled, as somebody had asked  cancelled
    its worker drains                        given back at once; it counts nothing
    the lease was lost                       nothing is to be written: somebody else may have it
    its backend may still be alive           parked: a second owner would corrupt the session (F4)
    tools ran, and no token to go on with    parked
    a usage limit that the policy waits for  given back for when it is over; it counts nothing
    an error that no retry helps             parked
    a hang, or another error that passes     given back, with the policy's delay (F5)
    … for the n-th time without progress     parked: it would fail for ever
    so many workers were lost with it        parked, before it is begun once more
    no breaker lets it begin                 given back until one does; it counts nothing

Values only. Knows errors and the retry policy; neither stores nor engines.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, cast

from streamguard.errors import CircuitOpenError, LeaseLostError, StreamGuardError
from streamguard.retry.classes import ErrorClass

if TYPE_CHECKING:
    from streamguard.evidence.receipts import FinalAction
    from streamguard.retry.policy import RetryPolicy

E = TypeVar("E", bound=BaseException)


@dataclass(frozen=True, kw_only=True)
class Finished:
    """It is finished."""


@dataclass(frozen=True, kw_only=True)
class Cancelled:
    """It has ended, as somebody had asked."""


@dataclass(frozen=True, kw_only=True)
class Back:
    """Somebody is to go on with it after `delay` seconds. `counts`: as an attempt without progress, too."""

    delay: float
    counts: bool
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Parked:
    """A person must look."""

    why: str


@dataclass(frozen=True, kw_only=True)
class Lost:
    """It is not ours any more."""


Fate: TypeAlias = Finished | Cancelled | Back | Parked | Lost


def action_of(fate: Fate) -> FinalAction:
    """What a verdict on the session has come to, for the log."""
    match fate:
        case Parked():
            return "escalate"
        case Back() | Lost():
            return "retry"
        case Finished() | Cancelled():
            return "fail"


NOT_GONE: Final = (
    "unsafe: its backend may still be alive on {owner}; see that it ends, then release it"
)


def fate_before(fruitless: int, limit: int) -> Parked | None:
    """What becomes of a session that was claimed, before it is begun; None: it may begin.

    `fruitless`: attempts in a row without progress that are over. Who fails says so itself, so the last of them was lost.
    """
    if fruitless < limit:
        return None
    return Parked(
        why=f"poison: {fruitless} attempts in a row came to no progress, and the last one's worker was lost; see what "
        "became of it"
    )


def fate_of(
    error: BaseException | None,
    policy: RetryPolicy,
    *,
    owner: str,
    is_gone: bool,
    fruitless: int,
    limit: int,
) -> Fate:
    """What becomes of a session whose handler has ended with `error`, or has returned.

    `is_gone`: every backend that it had is certainly gone. `fruitless`: attempts in a row without progress,
    this one included; parked at `limit`.
    """
    if _within(error, LeaseLostError) is not None:
        return Lost()
    if error is None:
        return Finished() if is_gone else Parked(why="done, but " + NOT_GONE.format(owner=owner))
    if not is_gone:
        return Parked(why=NOT_GONE.format(owner=owner))
    what = type(error).__name__
    given_up = _within(error, StreamGuardError)
    if given_up is not None and given_up.gave_up == "unsafe":
        return Parked(
            why=f"unsafe ({what}): tools ran, and there is no session to go on with; see what was done and undo it, "
            "then submit it anew under another key"
        )
    refused = _within(error, CircuitOpenError)
    if refused is not None and refused.retry_after != math.inf:
        return Back(delay=refused.retry_after, counts=False, why=what)
    if (wait := _wait_for_limit(error, policy)) is not None:
        return Back(delay=wait, counts=False, why=f"{what}: usage limit")
    found, pause = policy.assess(error)
    if not found.is_transient:
        return Parked(
            why=f"{_CLASSES.get(found, found.value)} ({what}): the worker's log has it; release it to try again"
        )
    if fruitless >= limit:
        return Parked(
            why=f"poison: {fruitless} attempts in a row came to no progress, the last by {what}; the workers' logs have it"
        )
    delay = policy.jittered(
        found, policy.base_delay(found, max(0, fruitless - 1), retry_after=pause)
    )
    return Back(delay=delay, counts=True, why=what)


def _wait_for_limit(error: BaseException, policy: RetryPolicy) -> float | None:
    """How long a usage limit is waited for that `error` tells of; None: there is none, or that is too long."""
    now = time.time()
    over_at = policy.limit_over_at(error, now)
    return None if over_at is None else policy.limit_wait(over_at - now)


def _within(error: BaseException | None, kind: type[E]) -> E | None:
    """`error`, or what a task group of the handler's has wrapped."""
    if isinstance(error, kind):
        return error
    if isinstance(error, BaseExceptionGroup):
        parts = cast("BaseExceptionGroup[BaseException]", error).exceptions
        return next(filter(None, (_within(part, kind) for part in parts)), None)
    return None


_CLASSES: Final = {
    ErrorClass.NEVER: "over",
    ErrorClass.VALIDATION: "a mistake that no retry mends",
    ErrorClass.AUTH: "the backend refuses the credentials",
}
