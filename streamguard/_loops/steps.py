"""Awaitables, stepped by hand: what is ready costs next to nothing, and a suspension is seen.

`map` gives what an iterator yields to a function, and lets through what it returns: the value in
its `StopIteration`. So `yield from stepped(suspend, steps)` is, all in C, what `await` is, as long as
`steps` has no need to suspend; where it has, this comes to a `Suspended` instead, with the rest still
to be waited for. Knows nothing of loops.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Generator, Iterator
from types import FunctionType
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeAlias, TypeVar, cast

if TYPE_CHECKING:
    from streamguard._loops import Parking

P = ParamSpec("P")
R = TypeVar("R")

# What `await` iterates over: the steps of an awaitable, with `send`, `throw` and `close`.
Steps: TypeAlias = Generator[Any, Any, Any]


class Suspended:
    """What steps come to that have to wait. `trap` is for the loop."""

    __slots__ = ("trap",)

    trap: Any


def suspend(trap: Any) -> NoReturn:
    """For `map`: come to a `Suspended` where steps would wait."""
    suspended = Suspended()
    suspended.trap = trap
    raise StopIteration(suspended)


stepped = cast("Callable[[Callable[[Any], NoReturn], Steps], Steps]", map)


def by_hand(function: Callable[P, Generator[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
    """A generator function as a coroutine function: one that may also say `yield from`.

    What `types.coroutine` makes can be awaited too, but is none that `create_task` takes.
    """
    generator = cast("FunctionType", function)
    code = generator.__code__
    flags = code.co_flags & ~inspect.CO_GENERATOR | inspect.CO_COROUTINE
    made = FunctionType(
        code.replace(co_flags=flags),
        generator.__globals__,
        argdefs=generator.__defaults__,
        closure=generator.__closure__,
    )
    made.__kwdefaults__ = generator.__kwdefaults__
    return cast("Callable[P, Coroutine[Any, Any, R]]", functools.update_wrapper(made, generator))


@by_hand
def taken(steps: Steps, parking: Callable[[], Parking]) -> Steps:
    """What `steps` comes to; if it has to wait, it does so at the `parking` that is then made."""
    result = yield from stepped(suspend, steps)
    if type(result) is not Suspended:
        return result
    trap, place = result.trap, parking()
    try:
        while True:
            place.park()
            try:
                answer = yield trap
            except GeneratorExit:
                place.unpark()
                steps.close()
                raise
            except BaseException as error:  # noqa: BLE001 - the steps' to handle, not ours
                # A cancel comes as a throw. Steps that clean up first wait for something else: that
                # is the next trap, and must reach the loop as this one did.
                place.unpark()
                trap = steps.throw(error)
            else:
                if answer is None:  # asyncio says nothing: all else can do without us
                    return (yield from steps)
                place.unpark()
                trap = steps.send(answer)
    except StopIteration as ready:
        return ready.value
    finally:
        # On every way out: a cut that comes later would hit the task wherever it is then, in the
        # consumer's work or in the close of the source.
        place.unpark()
        answer = None  # trio's has the cancel, and that has this frame


def steps_of(awaitable: Any) -> Steps:
    """The steps of `awaitable`, to be sent and thrown into whatever they are."""
    if hasattr(awaitable, "__await__"):
        steps = awaitable.__await__()
    elif inspect.isawaitable(awaitable):
        steps = cast("Any", awaitable)  # a generator-based coroutine: it is its own steps
    else:
        raise TypeError(
            "the stream's __anext__ must be `async def`, or return an awaitable: what it returned "
            f"is of the type {type(awaitable).__name__}"
        )
    return steps if hasattr(steps, "send") and hasattr(steps, "throw") else _wrapped(steps)


def _wrapped(iterator: Iterator[Any]) -> Steps:
    # `__await__` may also give a bare iterator.
    return (yield from cast("Steps", iterator))
