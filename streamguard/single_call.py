"""`guarded_call`: the same limits, teardown and errors for a single await (B7).

    result = await guarded_call(mcp.call_tool("search", query), 60, disconnect=mcp.close)

An awaitable is a stream of one message, which is also its turn's end; so nothing here decides anything.
Knows operators and the pull.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from streamguard._guard.guarded import GuardedIterator
from streamguard._guard.knobs import CONFIGURED
from streamguard._guard.operator import Operator
from streamguard.backends.registry import CALL, Backend
from streamguard.errors import ConfigError
from streamguard.operators import idle_guard
from streamguard.signals import TurnEnded

if TYPE_CHECKING:
    from streamguard._guard.knobs import IdleLimit

T = TypeVar("T")
_RETURNED = TurnEnded("success", answered=True)


async def guarded_call(
    awaitable: Awaitable[T], guard: Operator | IdleLimit = CONFIGURED, /, **knobs: Any
) -> T:
    """Await `awaitable` under the limits of a guard.

    If a limit is reached first, it is cancelled and torn down, and an error is raised.

    Args:
        awaitable: A coroutine, a task, a future: what you would write behind `await`.

        guard: Seconds or a preset, as for `idle_guard`, or an operator.

        **knobs: As for `idle_guard`. `idle` is how long it may take without a sign of progress:
            `activity.touch()`, from a progress notification for instance, begins it anew, and
            `activity.hold(...)` pauses it. `total` is how long it may take in any case.

    Raises:
        StreamTimeoutError: A limit was reached: IdleTimeoutError, TotalTimeoutError, ...
        ConfigError: If a value cannot be used.
    """
    if not inspect.isawaitable(cast("object", awaitable)):
        raise TypeError(
            f"{awaitable!r} cannot be awaited: call the function, and pass what it gives"
        )
    try:
        if "read" in knobs:
            raise ConfigError("guarded_call reads no messages: leave read= out")  # noqa: TRY301
        operator = _operator(guard, knobs)
    except BaseException:
        if inspect.iscoroutine(awaitable):
            awaitable.close()  # or Python would also warn that it was never awaited
        raise
    pulled = aiter(operator(_Once(awaitable)))
    result = await anext(pulled)
    if isinstance(pulled, GuardedIterator):  # off, it is the source itself
        pulled.attempt.end()
        await pulled.aclose()
    return result


def _operator(guard: Operator | IdleLimit, knobs: dict[str, Any]) -> Operator:
    if not isinstance(guard, Operator):
        return idle_guard(guard, read=_CALL, **knobs)
    return guard.replace(read=_CALL, **knobs)


def _read(_result: object) -> TurnEnded:
    return _RETURNED


_CALL = Backend(CALL, _read)


class _Once(AsyncIterator[T]):
    """A stream of what one awaitable gives."""

    def __init__(self, awaitable: Awaitable[T]) -> None:
        self._awaitable: Awaitable[T] | None = awaitable

    async def __anext__(self) -> T:
        awaitable, self._awaitable = self._awaitable, None
        if awaitable is None:
            raise StopAsyncIteration
        return await awaitable
