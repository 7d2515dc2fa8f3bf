"""Functions as users hand them over: one, or several at once, each checked where it is written.

Imports errors alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeGuard, TypeVar, cast

from streamguard.errors import ConfigError

F = TypeVar("F", bound=Callable[..., object])


def several(name: str, value: F | Iterable[F] | None, *told: str) -> tuple[F, ...]:
    """The functions that were written: None is none, and what can be called is one, though it be a list.

    ConfigError as of `check_callable`.
    """
    if value is None:
        return ()
    # A text is no list of its letters; it is no function either, and is told so.
    is_one = callable(value) or isinstance(cast("object", value), str | bytes)
    found = (cast("F", value),) if is_one or not _is_list(value) else tuple(value)
    for each in found:
        check_callable(name, each, *told)
    return found


def _is_list(value: object) -> TypeGuard[Iterable[Any]]:
    return isinstance(value, Iterable)


def check_callable(name: str, value: Any, *told: str) -> None:
    """A ConfigError unless `value` can be called, as far as it shows.

    What is `told` something is called with that, where nobody can await what it gives.
    """
    if inspect.iscoroutine(value):
        value.close()  # or Python would also warn that it was never awaited
        function = value.__qualname__.rpartition(".")[2]
        raise ConfigError(
            f"{name}={value!r} was called already: pass the function itself, without (), such as "
            f"{name}=client.{function}"
        )
    if not callable(value):
        method = getattr(value, name, None)
        such_as = f", such as {name}=client.{name}" if callable(method) else ""
        raise ConfigError(f"{name}={value!r} cannot be called: pass the function itself{such_as}")
    if told and inspect.iscoroutinefunction(value):
        raise ConfigError(
            f"{name}={value!r} is called where nothing can be awaited: no `async def`"
        )
    try:
        # A wrapper may take what the function that it wraps does not.
        signature = inspect.signature(value, follow_wrapped=False)
    except (TypeError, ValueError):
        return  # many that are written in C do not tell
    try:
        signature.bind(*told)
    except TypeError as error:
        given = f"one argument, the {told[0]}" if told else "no arguments"
        raise ConfigError(
            f"{name}={value!r} is called with {given}, and cannot be: {error}. "
            "Pass the method of an object, or bind the rest with functools.partial"
        ) from None
