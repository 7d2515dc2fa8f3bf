"""`reconnecting_resume` and `keep_alive`: operators that want a task of their own for the stream."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Never, TypeVar, overload

from streamguard._base import defaults
from streamguard._base.calling import factory
from streamguard._base.numbers import Seconds, limit, seconds, waits
from streamguard._guard.operator import Operator, Pipeable
from streamguard._guard.plan import Plan
from streamguard.errors import ConfigError
from streamguard.retry.policy import Backoff, RetryPolicy
from streamguard.sessions.points import check_opener
from streamguard.sessions.resume_settings import CONTINUE, KeepAlive, Reconnecting

if TYPE_CHECKING:
    from collections.abc import AsyncIterable

    from streamguard._guard.knobs import CONFIGURED, IdleLimit
    from streamguard.breaker.breaker import CircuitBreaker
    from streamguard.sessions.points import Opener
    from streamguard.sessions.resume_settings import DedupeBy, ResumePrompt
    from streamguard.sessions.session import Session

T = TypeVar("T")
U_co = TypeVar("U_co", covariant=True)
V = TypeVar("V")


class HostingOperator(Operator, Generic[U_co]):
    """An operator that makes a session of its source. It adds `U` to what the stream yields."""

    if TYPE_CHECKING:
        # What comes of it is another thing than what comes of an operator in general.
        @overload  # type: ignore[override]
        def __call__(self, source: Session[T], /) -> Session[T | U_co]: ...
        @overload
        def __call__(self, source: AsyncIterable[T], /) -> Session[T | U_co]: ...
        def __call__(self, source: Any, /) -> Any: ...  # pyright: ignore[reportIncompatibleMethodOverride]

        @overload  # type: ignore[override]
        def __ror__(self, source: Session[T], /) -> Session[T | U_co]: ...
        @overload
        def __ror__(self, source: AsyncIterable[T], /) -> Session[T | U_co]: ...
        def __ror__(self, source: Any, /) -> Any: ...  # pyright: ignore[reportIncompatibleMethodOverride]

        @overload  # type: ignore[override]
        def __or__(self, other: HostingOperator[V], /) -> HostingOperator[U_co | V]: ...
        @overload
        def __or__(self, other: Operator, /) -> HostingOperator[U_co]: ...
        def __or__(self, other: Any, /) -> Any: ...

        def replace(
            self, limit: IdleLimit = CONFIGURED, /, **knobs: Any
        ) -> HostingOperator[U_co]: ...

    def _guarding(self, source: AsyncIterable[Any]) -> Pipeable:
        from streamguard.sessions.session import session_of

        return session_of(source, self)


@factory("session(open_client, prompt=...) | idle_guard(180) | reconnecting_resume()")
def reconnecting_resume(
    open: Opener[Any] | None = None,  # noqa: A002 - the word that users write
    /,
    *,
    retries: int = defaults.RETRIES,
    backoff: Seconds | Sequence[Seconds] = defaults.BACKOFF,
    policy: RetryPolicy | None = None,
    breaker: CircuitBreaker | None = None,
    prompt: ResumePrompt = CONTINUE,
    max_reconnects: int = defaults.MAX_RECONNECTS,
    dedupe_by: DedupeBy | None = None,
    resume_after_unconfirmed_teardown: bool = False,
    fresh_if_unknown: bool = False,
    wait_for_limit: Seconds | None = None,
) -> HostingOperator[Never]:
    """Open the stream again after a failure, when that is safe, and go on with the session.

    It decides in this order. Is the failure worth a retry, and is one left? Is the old backend
    certainly gone? Is there a token to resume with, or was nothing done that a fresh start
    would do again? If not, it raises the *original* error, with `gave_up` and `attempts`.

    Args:
        open: Opens the later attempts of a stream that is piped as it is; a `session` has its own.

        retries, backoff: How often a hang is retried in a row, and the seconds before each retry.
            Other classes of failures follow the policy's defaults.

        policy: Retries and delays of all classes, in place of these two.

        breaker: Asked before each attempt, and told how it ended.

        prompt: What a resumed session is asked: a text, a template with the activity's labels and
            the fields of the `ResumePoint`, or a function of that.

        max_reconnects: How many retries a session may have in its whole life.

        dedupe_by: For backends that play their messages again: the key of a message. An int is a
            cursor, which grows; None is never dropped. See docs/how-to/sessions.md.

        resume_after_unconfirmed_teardown: Go on even if the old backend may still be alive: two
            owners of one session corrupt it.

        fresh_if_unknown: If the backend does not know the session any more, begin once
            more with the prompt, without what was said before. Once in a session, and not if tools ran
            in it, as far as is known here.

        wait_for_limit: How many seconds to wait for the end of a usage limit, if the backend says when
            that is. Nothing is open meanwhile.

    Raises:
        ConfigError: If a value cannot be used.
    """
    if open is not None:
        check_opener(open, "reconnecting_resume")
    if not (isinstance(prompt, str) or callable(prompt)):
        raise ConfigError(f"prompt={prompt!r}: use a text, or a function of a ResumePoint")
    if dedupe_by is not None and not callable(dedupe_by):
        raise ConfigError(f"dedupe_by={dedupe_by!r}: use a function that gives a message's key")
    if fresh_if_unknown and dedupe_by is not None:
        raise ConfigError(
            "fresh_if_unknown=True and dedupe_by: a fresh session replays nothing, and its messages could be taken "
            "for a replay; leave one of the two out"
        )
    if policy is not None:
        _check_policy(policy)
    if breaker is not None:
        _check_breaker(breaker)
    usual: dict[str, Any] = {
        "retries": defaults.RETRIES,
        "backoff": defaults.BACKOFF,
        "max_reconnects": defaults.MAX_RECONNECTS,
        "wait_for_limit": None,
    }
    numbers: dict[str, Any] = {
        "retries": retries,
        "backoff": waits(backoff, "backoff"),
        "max_reconnects": max_reconnects,
        "wait_for_limit": limit(wait_for_limit, "wait_for_limit"),
    }
    written = {name: value for name, value in numbers.items() if value != usual[name]}
    settings = Reconnecting(
        open=open,
        policy=_policy(policy, written, numbers),
        breaker=breaker,
        prompt=prompt,
        dedupe_by=dedupe_by,
        resume_after_unconfirmed_teardown=resume_after_unconfirmed_teardown,
        fresh_if_unknown=fresh_if_unknown,
    )
    shown = {
        "policy": policy,
        "breaker": breaker,
        "prompt": None if prompt == CONTINUE else prompt,
        "dedupe_by": dedupe_by,
        "resume_after_unconfirmed_teardown": resume_after_unconfirmed_teardown or None,
        "fresh_if_unknown": fresh_if_unknown or None,
    }
    said = {**written, **{name: value for name, value in shown.items() if value is not None}}
    text = [
        *([repr(open)] if open else []),
        *(f"{name}={value!r}" for name, value in said.items()),
    ]
    return HostingOperator(Plan(reconnecting=settings), f"reconnecting_resume({', '.join(text)})")


def _check_policy(policy: object) -> None:
    if isinstance(policy, RetryPolicy):
        return
    such_as = (
        f"RetryPolicy(idle={policy!r})" if isinstance(policy, Backoff) else "RetryPolicy(...)"
    )
    if isinstance(policy, int):
        such_as = f"{such_as}, or retries={policy!r}"
    raise ConfigError(f"policy={policy!r}: pass a RetryPolicy, such as policy={such_as}")


def _check_breaker(breaker: object) -> None:
    if callable(getattr(breaker, "acquire", None)) and not isinstance(breaker, type):
        return
    key = breaker if isinstance(breaker, str) else "anthropic"
    raise ConfigError(
        f"breaker={breaker!r}: pass a CircuitBreaker, which all sessions of a backend share: "
        f"breaker = CircuitBreaker({key!r}), once, and breaker=breaker"
    )


def _policy(
    policy: RetryPolicy | None, written: dict[str, Any], numbers: dict[str, Any]
) -> RetryPolicy:
    if policy is None:
        idle = Backoff(numbers["retries"], numbers["backoff"])
        rest = {name: numbers[name] for name in ("max_reconnects", "wait_for_limit")}
        return RetryPolicy(idle=idle, **rest)
    if "retries" in written or "backoff" in written:
        raise ConfigError(
            "policy= says how often hangs are retried, too: write it as "
            "RetryPolicy(idle=Backoff(retries, delays)), and leave retries= and backoff= out"
        )
    return replace(policy, **written)


@factory("stream | keep_alive(15, make_a_ping)")
def keep_alive(every: Seconds, make: Callable[[], V], /) -> HostingOperator[V]:
    """Yield `make()` each time the stream was silent for `every` seconds.

    The pull that waits is not disturbed, so the stream needs a task of its own and the result an
    `async with`. These messages are not the backend's, and count for no limit.
    """
    interval = seconds(every, "every")
    if not callable(make):
        raise ConfigError(f"keep_alive({every!r}, {make!r}): give it a function of no arguments")
    if inspect.iscoroutinefunction(make):
        raise ConfigError(
            f"keep_alive({every!r}, {make!r}): it is called where nothing is awaited, so what it "
            "makes would be a coroutine; give it a plain function"
        )
    return HostingOperator(
        Plan(keep_alive=KeepAlive(interval, make)), f"keep_alive({every!r}, {make!r})"
    )
