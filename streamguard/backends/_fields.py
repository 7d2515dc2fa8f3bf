"""Values of unknown making: what every reader needs so that no garbage makes it raise (S2).

Total functions over whatever a backend sent, and what readers say with. Imports the names of error
classes, and signals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

from streamguard.retry import classes
from streamguard.signals import (
    Liveness,
    Progress,
    SessionOpened,
    Signal,
    Usage,
    UsageSpan,
    WorkFinished,
    WorkProgressed,
    WorkScope,
    WorkStarted,
)

Fields: TypeAlias = Mapping[str, Any]
# What a message says; None is Progress.
Said: TypeAlias = Signal | Iterable[Signal] | None
Handler: TypeAlias = Callable[[Fields], Said]

NOTHING: tuple[Signal, ...] = ()
PROGRESS = Progress()
LIVENESS = Liveness()
# Readers that look deep into objects first have a glance, for speed: straight at where nearly all have their
# text, by Python's names, in one `try`. What raises one of these, or is not plain, is read with care.
NOT_AT_A_GLANCE = (AttributeError, LookupError, TypeError, ValueError)
# Classes of errors after which the same turn may do better.
RETRIABLE = {"rate_limit", "server", "network"}

_NO_FIELDS: Fields = {}
_NUMBERS = (int, float)  # `int | float` would be made anew for each count


def fields_of(thing: object) -> Fields:
    """`thing` as a mapping: a dict itself, an object's attributes, empty for all else."""
    # No `cast` in here: a call costs as much as all the rest.
    if thing is None:  # as what is asked for most often is
        return _NO_FIELDS
    if isinstance(thing, dict):
        return thing  # pyright: ignore[reportUnknownVariableType]
    attributes: object = getattr(thing, "__dict__", None)
    return attributes if isinstance(attributes, dict) else _NO_FIELDS  # pyright: ignore[reportUnknownVariableType]


def all_fields_of(thing: Any) -> Fields:
    """As `fields_of`, and with what a pydantic model holds that its class does not declare."""
    fields = fields_of(thing)
    extras: Any = None if fields is thing else getattr(thing, "__pydantic_extra__", None)
    if extras is None:
        return fields
    return {**fields, **extras} if isinstance(extras, dict) and extras else fields


def text_in(value: object) -> str | None:
    """`value` if it is a text with something in it."""
    return value if isinstance(value, str) and value else None


def number_in(value: object) -> float | None:
    """`value` if it is a finite number."""
    if isinstance(value, bool) or not isinstance(value, _NUMBERS):
        return None
    try:
        return value if math.isfinite(value) else None
    except OverflowError:  # an int beyond every float
        return None


@lru_cache(maxsize=256)  # the names are a reader's own, a few dozen
def camel_case(name: str) -> str:
    """`thread_id` as the wire has it: `threadId`."""
    head, *rest = name.split("_")
    return head + "".join(word.title() for word in rest)


def either(fields: Fields, name: str) -> Any:
    """A field by its Python name, or by the one it has on the wire, in camel case."""
    return fields[name] if name in fields else fields.get(camel_case(name))


def numbers_in(fields: object) -> dict[str, float]:
    """The numbers among a thing's fields, by their names."""
    named = ((name, number_in(value)) for name, value in fields_of(fields).items())
    return {str(name): number for name, number in named if number is not None}


def class_of_status(status: float) -> str:
    """The error class (P1) of an HTTP status."""
    return classes.class_of_status(int(status)) or "unknown"


def class_of_words(*words: object) -> str:
    """The error class (P1) of an error body's code or type, whichever is known first."""
    found = (classes.class_of_word(word) for word in words if isinstance(word, str))
    return next((each.value for each in found if each is not None), "unknown")


def is_blank(text: object) -> bool:
    """Whether nothing is said: no text at all, or one of white space alone."""
    return text is None or (isinstance(text, str) and not text.strip())


def usage_in(counts: object, span: UsageSpan = "call", call: object = None) -> tuple[Usage, ...]:
    """The counts of a usage object, if it has any; details that are objects are left out.

    `call`: the id under which one call of the model may be told of several times.
    """
    numbers = numbers_in(counts)
    return (Usage(numbers, span, text_in(call) or ""),) if numbers else ()


def summed(numbers: Fields, *names: str) -> float | None:
    """The sum of those of the numbers that are there; None if none is."""
    found = [numbers[name] for name in names if name in numbers]
    return sum(found) if found else None


@lru_cache(maxsize=256)  # a token comes with each message of its session, or with several
def opened(token: str, *, resumable: bool = True) -> SessionOpened:
    """The session of that token."""
    return SessionOpened(token, resumable)


@lru_cache(maxsize=256)
def opened_and_progress(token: str) -> tuple[Signal, ...]:
    """The same session again, and progress in it: what most messages say."""
    return (SessionOpened(token), PROGRESS)


def started(
    id_: object,
    name: object,
    scope: WorkScope = "tool",
    *,
    parent: object = None,
    input: object = None,  # noqa: A002 - the signal's own word
) -> WorkStarted | None:
    """The start of the work that has this id; None without one, as its end could not be told."""
    if (known := text_in(id_)) is None:
        return None
    return WorkStarted(known, text_in(name) or "", scope, text_in(parent), input=input)


def finished(id_: object, error: object = False, outcome: object = None) -> WorkFinished | None:
    """The end of the work that has this id; None without one."""
    known = text_in(id_)
    return WorkFinished(known, bool(error), outcome) if known else None


def progressed(id_: object) -> WorkProgressed | None:
    """A sign of life of the work that has this id; None without one."""
    known = text_in(id_)
    return WorkProgressed(known) if known else None


def said_by_type(handlers: Mapping[str, Handler], message: object) -> Said:
    """What a line says, by the handler for its type; None, which is Progress, where there is none."""
    line = fields_of(message)
    kind = line.get("type")
    handle = handlers.get(kind) if isinstance(kind, str) else None
    return None if handle is None else handle(line)


def always(said: Said) -> Handler:
    """A handler for messages whose kind says it all."""
    return lambda _fields: said
