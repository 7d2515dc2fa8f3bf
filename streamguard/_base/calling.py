"""What is said to who calls a public name wrongly, or does not call it.

    @checked                                 idle_guard(3, idel=5): there is no keyword 'idel'; did you mean 'idle'?
    @factory("stream | idle_guard(180)")     stream | idle_guard: idle_guard was not called; write stream | idle_guard(180)
    __enter__ = refusing("use async with")   with guarded: use async with

A ConfigError comes from the line that was wrong, and not from where it was found out. Type checkers see
the function or the class as it is. Imports `near` and
`tracebacks`, and the error.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from streamguard._base.near import near
from streamguard._base.tracebacks import trim
from streamguard.errors import ConfigError

if TYPE_CHECKING:
    from types import CodeType

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)
# inspect.CO_VARARGS and CO_VARKEYWORDS, without what inspect imports.
_ANY_VALUES: Final = 0x04
_ANY_KEYWORDS: Final = 0x08

# What other libraries call it, where no knob is called alike.
_ELSEWHERE: Final = {
    "timeout": ("idle", "total"),
    "idle_timeout_seconds": ("idle",),
    "seconds": ("idle", "every"),
    "max_retries": ("retries",),
    "attempts": ("retries",),
    "delay": ("backoff", "delays"),
    "on_timeout": ("disconnect",),
    "callback": ("observer", "disconnect"),
    "reader": ("read",),
    "failure_threshold": ("open_after",),
    "recovery_timeout": ("pause",),
    "reset_timeout": ("pause",),
    "path": ("run_dir",),
}


def checked(function: F) -> F:
    """`function`, which says of a keyword that it does not have what to write instead."""
    signature = _Signature(function)

    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        signature.check(args, keywords)
        try:
            return function(*args, **keywords)
        except ConfigError as error:
            trim(error)
            raise

    return call  # type: ignore[return-value]  # pyright: ignore[reportReturnType]


def checked_class(kind: C) -> C:
    """`kind`, which says the same where an object of it is made."""
    made = vars(kind)["__init__"]
    signature = _Signature(made, kind.__name__, bound=1)

    @functools.wraps(made)
    def __init__(self: Any, /, *args: Any, **keywords: Any) -> None:  # noqa: N807
        if type(self) is kind:  # a subclass has a signature of its own
            signature.check(args, keywords)
        try:
            made(self, *args, **keywords)
        except ConfigError as error:
            trim(error)
            raise

    changed: Any = kind
    changed.__init__ = __init__
    return kind


def factory(such_as: str) -> Callable[[F], F]:
    """As `checked`, for what is written in a pipe: without its call, it says so.

    `such_as`: how it is written there.
    """
    return lambda function: Factory(function, such_as)  # type: ignore[return-value]  # pyright: ignore[reportReturnType]


class Factory:
    """A function that gives what a pipe takes. It takes no part in a pipe itself."""

    def __init__(self, function: Callable[..., Any], such_as: str) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._signature = _Signature(function)
        self._such_as = such_as

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        self._signature.check(args, keywords)
        try:
            return self._function(*args, **keywords)
        except ConfigError as error:
            trim(error)
            raise

    def __repr__(self) -> str:
        return repr(self._function)

    def __reduce__(self) -> str:
        return self._function.__qualname__  # copied and pickled by its name, as functions are

    def __or__(self, other: object) -> NoReturn:
        self.refuse()

    def __ror__(self, other: object) -> NoReturn:
        self.refuse()

    def refuse(self) -> NoReturn:
        """The error of who forgot to call it."""
        raise TypeError(f"{self._function.__name__} was not called: write {self._such_as}")


def refusing(what_to_write: str) -> Callable[..., Any]:
    """A special method that only says what to write instead: `with`, `for` and the like, where they are wrong.

    `for` is refused by `__getitem__`, of which nobody asks whether something can be iterated. `await` is
    refused only by what no program awaits if it can be awaited: a stream or a session is handed around by
    frameworks that do.
    """

    def refuse(self: object, *_: object) -> NoReturn:
        has_repr = type(self).__repr__ is not object.__repr__
        raise TypeError(f"{repr(self) if has_repr else type(self).__name__}: {what_to_write}")

    return refuse


class _Signature:
    """What may be written between the parentheses."""

    def __init__(self, function: Any, name: str = "", *, bound: int = 0) -> None:
        while hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        code: CodeType = function.__code__
        # A method's own object is in its arguments, unless somebody has taken it out of them.
        self._of_object = int(not bound and code.co_varnames[:1] == ("self",))
        bound += self._of_object
        named, only = code.co_argcount, code.co_kwonlyargcount
        self._name = name or function.__qualname__
        self._by_place = code.co_varnames[bound:named]
        self._without_name = code.co_varnames[bound : code.co_posonlyargcount]
        self._names = code.co_varnames[max(bound, code.co_posonlyargcount) : named + only]
        self._takes_any_value = bool(code.co_flags & _ANY_VALUES)
        self._takes_any_keyword = bool(code.co_flags & _ANY_KEYWORDS)

    def check(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """A TypeError that says what to write, where Python's own would not."""
        if not self._takes_any_keyword:
            for name, value in keywords.items():
                if name not in self._names:
                    raise TypeError(self._unknown(name, value))
        args = args[self._of_object :]
        if len(args) > len(self._by_place) and not self._takes_any_value:
            raise TypeError(self._too_many(args))

    def _unknown(self, name: str, value: Any) -> str:
        written = f"{self._name}({name}=...)"
        if name in self._without_name:
            return f"{written}: write it without its name, {self._name}({value!r})"
        others = [each for each in _ELSEWHERE.get(name, ()) if each in self._names]
        if others:
            return f"{written}: there is no keyword {name!r}; use {' or '.join(others)}"
        if not self._names:
            return f"{written}: it takes no keywords"
        return f"{written}: there is no keyword {name!r}; {near(name, self._names)}"

    def _too_many(self, args: tuple[Any, ...]) -> str:
        places = self._by_place
        if not self._names and not places:
            return f"{self._name}() takes nothing, and was given {len(args)} values"
        first = f"only {', '.join(places)}" if places else "nothing"
        others = ", ".join(name for name in self._names if name not in places)
        then = f"; write the others with their names: {others}" if others else ""
        count = f"{len(args)} value{'s' * (len(args) != 1)}"
        return f"{self._name}() takes {first} without a name, and was given {count}{then}"
