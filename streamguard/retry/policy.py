"""What may be spent on a failing backend: retries and delays by class, and what was spent.

Both are immutable values. A `RetryPolicy` says what is allowed; a `Tally` counts one session's
retries and goes from one decision to the next. The only thing here that is not a pure function is
the policy's source of random numbers, and that is the caller's to give.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from streamguard._base import defaults
from streamguard._base.calling import checked_class
from streamguard._base.numbers import Seconds, check_count, check_number, limit, wait, waits
from streamguard.errors import ConfigError
from streamguard.retry.classes import ErrorClass
from streamguard.retry.classification import classify
from streamguard.retry.pushback import CAP, MISSING, resets_at, retry_after

if TYPE_CHECKING:
    from streamguard.signals import Failed


@checked_class
@dataclass(frozen=True)
class Backoff:
    """How often one class of errors is retried in a row, and how long each retry waits.

    `retries`: how often; 0 is never. `delays`: the waits before them, of which the last repeats. Up to `jitter` times the delay is added to it at random, and
    never more than `jitter_cap` seconds, so that many streams do not come back as one.
    """

    retries: int
    delays: Sequence[float] = (0.0,)
    jitter: float = 0.0
    jitter_cap: float = math.inf

    if TYPE_CHECKING:  # more may be written than is kept

        def __init__(
            self,
            retries: int,
            delays: Seconds | Iterable[Seconds] = (0.0,),
            jitter: float = 0.0,
            jitter_cap: Seconds = math.inf,
        ) -> None: ...

    def __post_init__(self) -> None:
        check_count("retries", self.retries)
        object.__setattr__(self, "delays", waits(self.delays, "delays"))
        if not self.delays:
            raise ConfigError("delays=(): give at least one, such as (0,) for none")
        check_number("jitter", self.jitter)
        object.__setattr__(self, "jitter_cap", wait(self.jitter_cap, "jitter_cap", infinite=True))

    def delay(self, retry: int) -> float:
        """The delay before retry number `retry` (from 0), without jitter."""
        return self.delays[min(retry, len(self.delays) - 1)]


NO_RETRY: Final = Backoff(0)
# Nothing that failed so early can have been cured by waiting less than a second.
_GROWING: Final = tuple(float(2**n) for n in range(16))


@checked_class
@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """Which failures are retried, how often and after how long.

    `idle`, `network`, `server`, `rate_limit`, `unknown`, `auth`, `permanent`, `validation`: the `Backoff` of each class
    of errors, as `classify` finds it; see `ErrorClass`.

    `cap` bounds every delay, jitter and `Retry-After` included. `max_in_a_row` bounds the retries
    of all classes together until something goes well, `max_reconnects` those of a whole session.
    An attempt that brought new progress for `productive_span` seconds clears the counts; one that
    failed within `instant` seconds and before any message makes the delays grow. No attempt is
    begun with less than `min_attempt` seconds left.

    `wait_for_limit`: how many seconds to wait for the end of a usage limit, if the backend says when
    that is. All waits count together until something goes well. None is not at all. It is no retry of
    any class, and `cap` is not for it.

    `classifier` may name the class of an error, or return None and leave it to `classify`.
    `random` gives numbers from 0 up to 1.
    """

    idle: Backoff = Backoff(defaults.RETRIES, defaults.BACKOFF)
    network: Backoff = Backoff(3, (1.0, 2.0, 4.0), jitter=0.5)
    server: Backoff = Backoff(3, (1.0, 2.0, 4.0), jitter=0.5)
    rate_limit: Backoff = Backoff(5, (MISSING,), jitter=0.1, jitter_cap=5.0)
    unknown: Backoff = Backoff(3, (1.0, 2.0, 4.0), jitter=0.5)
    auth: Backoff = NO_RETRY
    permanent: Backoff = NO_RETRY
    validation: Backoff = NO_RETRY
    cap: float = CAP
    max_in_a_row: int = 10
    max_reconnects: int = 50
    productive_span: float = 60.0
    instant: float = 1.0
    min_attempt: float = 1.0
    wait_for_limit: float | None = None
    classifier: Callable[[BaseException], ErrorClass | None] | None = None
    random: Callable[[], float] = field(default=random.random, repr=False, compare=False)

    if TYPE_CHECKING:  # more may be written than is kept

        def __init__(
            self,
            *,
            idle: Backoff = ...,
            network: Backoff = ...,
            server: Backoff = ...,
            rate_limit: Backoff = ...,
            unknown: Backoff = ...,
            auth: Backoff = ...,
            permanent: Backoff = ...,
            validation: Backoff = ...,
            cap: Seconds = ...,
            max_in_a_row: int = ...,
            max_reconnects: int = ...,
            productive_span: Seconds = ...,
            instant: Seconds = ...,
            min_attempt: Seconds = ...,
            wait_for_limit: Seconds | None = ...,
            classifier: Callable[[BaseException], ErrorClass | None] | None = ...,
            random: Callable[[], float] = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        for name in ("cap", "productive_span", "instant", "min_attempt"):
            waited = wait(getattr(self, name), name, infinite=name == "productive_span")
            object.__setattr__(self, name, waited)
        object.__setattr__(self, "wait_for_limit", limit(self.wait_for_limit, "wait_for_limit"))
        for name in ("max_in_a_row", "max_reconnects"):
            check_count(name, getattr(self, name))
        for name in ("classifier", "random"):
            function = getattr(self, name)
            if function is not None and not callable(function):
                raise ConfigError(
                    f"{name}={function!r} cannot be called: pass the function itself"
                )
        for name in ErrorClass:
            backoff = self.backoff(name)
            _check_backoff(name, backoff)
            # What was not written contradicts nothing: a low cap simply bounds it (T12).
            is_default = backoff is getattr(RetryPolicy, name, NO_RETRY)
            if not is_default and (longest := max(backoff.delays)) > self.cap:
                raise ConfigError(
                    f"{name}: a delay of {longest:g} s can never be kept, since "
                    f"cap={self.cap:g} bounds all of them: raise cap, or shorten the delay"
                )

    def backoff(self, error_class: ErrorClass) -> Backoff:
        """The retries and delays of one class."""
        # The field that is called as the class; `never` has none.
        backoff: Backoff = getattr(self, error_class, NO_RETRY)
        return backoff

    def classify(self, error: BaseException, *, failed: Failed | None = None) -> ErrorClass:
        """As `classify`, but `classifier` decides first.

        A cancellation is never retried, whatever `classifier` says.
        """
        return self._named(error, classify(error, failed=failed))

    def _named(self, error: BaseException, found: ErrorClass) -> ErrorClass:
        if found is ErrorClass.NEVER or self.classifier is None:
            return found
        return self.classifier(error) or found

    def assess(
        self, error: BaseException, *, failed: Failed | None = None
    ) -> tuple[ErrorClass, float | None]:
        """An error's class, and the seconds that the server asks to be left alone for."""
        found = classify(error, failed=failed)
        pause = retry_after(error, failed=failed, cap=self.cap, found=found)
        return self._named(error, found), pause

    def limit_over_at(
        self, error: BaseException | None, now: float, *, failed: Failed | None = None
    ) -> float | None:
        """When the usage limit that `error` tells of is over, as an epoch, if such are waited for."""
        if self.wait_for_limit is None:
            return None
        return resets_at(error, failed=failed, cap=self.cap, now=lambda: now)

    def limit_wait(self, left: float, waited: float = 0.0, room: float = math.inf) -> float | None:
        """The seconds to wait for a usage limit that is over in `left`; None if that is too long.

        `waited` were spent on such waits before. One that should be over by now, and is not, is given a
        minute; to all of them a little is added at random, within `room`.
        """
        base = left if left > 0 else MISSING
        most = (self.wait_for_limit or 0.0) - waited
        if base > most:
            return None
        jitter = min(self.rate_limit.jitter * base, self.rate_limit.jitter_cap)
        return base + max(0.0, min(jitter * self.random(), most - base, room - base))

    def base_delay(
        self,
        error_class: ErrorClass,
        retry: int,
        *,
        retry_after: float | None = None,
        instant: int = 0,
    ) -> float:
        """The least time to wait before retry number `retry` (from 0) of that class.

        A rate limit is waited for as long as the server asks, any other error never shorter than
        that. After `instant` failures in a row that came at once, 1, 2, 4, … s are the least.
        """
        delay = self.backoff(error_class).delay(retry)
        if retry_after is not None:
            is_limited = error_class is ErrorClass.RATE_LIMIT
            delay = retry_after if is_limited else max(delay, retry_after)
        if instant:
            delay = max(delay, _GROWING[min(instant, len(_GROWING)) - 1])
        return min(delay, self.cap)

    def jittered(self, error_class: ErrorClass, base: float, room: float = math.inf) -> float:
        """`base` and some of the class's jitter: within `cap`, and within `room` if `base` is."""
        backoff = self.backoff(error_class)
        most = min(backoff.jitter * base, backoff.jitter_cap, self.cap - base, room - base)
        # Rounding may carry the sum past what it was cut to.
        return max(base, min(base + max(0.0, most) * self.random(), self.cap, max(room, base)))


def _check_backoff(name: str, backoff: object) -> None:
    if isinstance(backoff, Backoff):
        return
    retries = backoff if isinstance(backoff, int) and not isinstance(backoff, bool) else 2
    such_as = f"Backoff({retries}, (0, 5, 15))" if retries else "Backoff(0)"
    raise ConfigError(
        f"{name}={backoff!r}: use a Backoff, which says how often and after which delays: "
        f"{name}={such_as}"
    )


@dataclass(frozen=True)
class Tally:
    """What one session has spent on retries.

    `spent`: the class of each retry since things last went well, in order. `instant`: how many
    attempts in a row failed at once. `reconnects`: all retries ever. `waited`: seconds for usage limits,
    since things last went well. `forgotten`: whether it was begun afresh since its backend did not know it.
    """

    spent: tuple[ErrorClass, ...] = ()
    instant: int = 0
    reconnects: int = 0
    waited: float = 0.0
    forgotten: bool = False

    def of(self, error_class: ErrorClass) -> int:
        """How many retries of that class were spent."""
        return self.spent.count(error_class)

    def reset(self) -> Tally:
        """Things went well: a turn was completed. The count of all retries stays."""
        return Tally(reconnects=self.reconnects, forgotten=self.forgotten)

    def failed(self, *, instantly: bool) -> Tally:
        """One more attempt has failed."""
        return replace(self, instant=self.instant + 1 if instantly else 0)

    def retried(self, error_class: ErrorClass) -> Tally:
        """One more attempt is made because of an error of that class."""
        return replace(self, spent=(*self.spent, error_class), reconnects=self.reconnects + 1)

    def waits(self, delay: float) -> Tally:
        """One more attempt is made after a usage limit."""
        return replace(self, waited=self.waited + delay, reconnects=self.reconnects + 1)

    def begins_afresh(self) -> Tally:
        """One more attempt is made, without the session that the backend does not know."""
        return replace(self, forgotten=True, reconnects=self.reconnects + 1)
