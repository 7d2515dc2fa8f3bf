"""`Operator`: an immutable, pipeable value. It is a plan, and piping operators merges plans (O1, O2).

An operator is bound to no stream: made once, it guards any number. What a knob means is in
`_watch`; what may be written for it, in `knobs`.
"""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from streamguard._base.calling import Factory, checked, refusing
from streamguard._base.numbers import Default
from streamguard._guard.knobs import (
    CONFIGURED,
    DEFAULT_QUIET,
    DEFAULT_TOOLS,
    Configured,
    IdleLimit,
    fields_of,
    with_limit,
)
from streamguard._guard.plan import Plan

if TYPE_CHECKING:
    from streamguard._guard.guarded import Guarded
    from streamguard._guard.monitor import Monitor
    from streamguard._watch.watch import Limits
    from streamguard.sessions.hosting_operators import HostingOperator
    from streamguard.sessions.session import Session

T = TypeVar("T")
U = TypeVar("U")


class Pipeable(ABC):
    """What takes an operator up itself: a guarded stream, a session."""

    __slots__ = ()

    @abstractmethod
    def __or__(self, other: Any, /) -> Any: ...


class Operator:
    """What to guard a stream with. `source | operator` gives a `Guarded`; nothing runs yet."""

    def __init__(self, plan: Plan, written: str) -> None:
        self._plan = plan
        self._written = written

    @property
    def plan(self) -> Plan:
        """The knobs, merged."""
        return self._plan

    @functools.cached_property
    def limits(self) -> Limits:
        """The limits as the watch wants them."""
        return self._plan.watch_limits()

    def __repr__(self) -> str:
        return self._written

    if TYPE_CHECKING:

        @overload
        def __call__(self, source: Session[T], /) -> Session[T]: ...
        @overload
        def __call__(self, source: AsyncIterable[T], /) -> Guarded[T]: ...

    def __call__(self, source: Any, /) -> Any:
        if isinstance(source, Pipeable):
            return source | self  # fused, and so of any order, when called, too (O2)
        if not hasattr(cast("object", type(source)), "__aiter__"):
            raise TypeError(
                f"{source!r} | {self!r}: the left side is not an async iterable; "
                f"{_what_was_forgotten(source, repr(self))}"
            )
        return self._guarding(cast("AsyncIterable[Any]", source))

    def _guarding(self, source: AsyncIterable[Any]) -> Pipeable:
        from streamguard._guard.guarded import Guarded

        return Guarded(source, self)

    if TYPE_CHECKING:

        @overload
        def __ror__(self, source: Session[T], /) -> Session[T]: ...
        @overload
        def __ror__(self, source: AsyncIterable[T], /) -> Guarded[T]: ...

    def __ror__(self, source: Any, /) -> Any:
        return self(cast("AsyncIterable[Any]", source))

    if TYPE_CHECKING:

        @overload
        def __or__(self, other: HostingOperator[U], /) -> HostingOperator[U]: ...
        @overload
        def __or__(self, other: Operator, /) -> Operator: ...

    def __or__(self, other: Any, /) -> Any:
        if not isinstance(cast("object", other), Operator):
            if isinstance(other, Factory):
                other.refuse()
            raise TypeError(
                f"{self!r} | {other!r}: the right side is not an operator. Write the source first: "
                "stream | idle_guard(180) | ..., so that what follows gets a stream"
            )
        kind = type(other) if isinstance(other, type(self)) else type(self)
        return kind(self._plan.merged(other.plan), f"{self!r} | {other!r}")

    if not TYPE_CHECKING:  # so that a checker, too, says what is wrong
        _PIPE_FIRST = "an operator is piped onto a stream: "
        __await__ = refusing(f"{_PIPE_FIRST}async for message in stream | ...")
        __getitem__ = refusing(f"{_PIPE_FIRST}async for message in stream | ...")
        __enter__ = __exit__ = refusing(f"{_PIPE_FIRST}async with stream | ... as messages")
        __aenter__ = __aexit__ = refusing(
            f"{_PIPE_FIRST}async with stream | ... as messages; for a loop that cannot be piped, "
            "async with operator.monitor() as monitor"
        )

    @checked
    def replace(self, limit: IdleLimit = CONFIGURED, /, **knobs: Any) -> Operator:
        """This operator with `knobs` set anew, whatever was written for them before.

        `limit`: as for `idle_guard`; left out, `idle` stays as it is unless it is in `knobs`.
        """
        written = as_written(limit, knobs)
        knobs = with_limit(limit, knobs)
        fields = fields_of(knobs, before=self._plan.written)
        for numbers in ("limits", "counts"):
            if numbers in fields:
                fields[numbers] = {**getattr(self._plan, numbers), **fields[numbers]}
        for name, default in (("tools", DEFAULT_TOOLS), ("quiet", DEFAULT_QUIET)):
            others = getattr(self._plan, name)["*"]
            if fields.get(name, {}).get("*") is default and isinstance(others, Default):
                fields[name] = {**fields[name], "*": others}
        plan = self._plan.anew(fields, is_other_client="client" in knobs)
        return type(self)(plan, f"{self!r}.replace({written})")

    def monitor(self) -> Monitor:
        """The same as an object, for loops that cannot be wrapped."""
        from streamguard._guard.monitor import Monitor

        return Monitor(self._plan, self.limits)


def operator(
    name: str,
    knobs: dict[str, Any],
    limit: IdleLimit = CONFIGURED,
) -> Operator:
    """The operator `name` with these knobs, as they were written."""
    fields = fields_of(with_limit(limit, knobs))
    return Operator(Plan(**fields), f"{name}({as_written(limit, knobs)})")


def beside_others(alone: Operator, knobs: Mapping[str, Any]) -> Operator:
    """`alone`, of which `knobs` are all that counts beside operators that set limits."""
    return Operator(replace(alone.plan, beside=Plan(**fields_of(knobs))), repr(alone))


def as_written(limit: IdleLimit, knobs: Mapping[str, Any]) -> str:
    """The arguments of an operator in its `repr`."""
    first = [] if isinstance(limit, Configured) else [repr(limit)]
    others = [f"{k}={v!r}" for k, v in knobs.items() if not isinstance(v, Default)]
    return ", ".join((*first, *others))


def _what_was_forgotten(source: object, operator: str) -> str:
    """The call, the await, the method: what would make a stream of `source` (O1)."""
    if inspect.iscoroutine(source):
        source.close()  # or Python would also warn that it was never awaited
        return f"it is a coroutine: await it first, (await ...) | {operator}"
    if isinstance(source, type):
        return f"it is a class: pipe an object of it, {source.__name__}(...) | {operator}"
    if hasattr(source, "receive_response"):
        return f"it is a client: pipe its stream, client.receive_response() | {operator}"
    if hasattr(source, "__await__"):
        return f"it is awaitable: await it first, (await ...) | {operator}"
    if hasattr(source, "__aenter__"):
        return "it is a context manager: enter it first, async with ... as stream, and pipe that"
    if hasattr(source, "__enter__"):
        return "it is a context manager: enter it first, with ... as stream, and pipe that"
    if callable(source):
        return _what_to_call(source, operator)
    if hasattr(source, "__iter__"):
        return (
            "it is iterated with plain `for`, and never keeps anybody waiting: it needs no guard. In a test, "
            "yield its items in an `async def`"
        )
    return "pipe what you would write after `async for ... in`"


def _what_to_call(function: Callable[..., Any], operator: str) -> str:
    owner = getattr(function, "__self__", None)
    is_method = owner is not None and not inspect.ismodule(owner)
    name = getattr(function, "__name__", "")
    called = f"{'client.' * is_method}{name if name.isidentifier() else 'source'}()"
    if inspect.iscoroutinefunction(function):
        return (
            f"it is a coroutine function: call and await it first, (await {called}) | {operator}"
        )
    return f"it was not called: write {called} | {operator}"
