"""An event as a name and flat fields: what log records and observers are made of.

Values are texts, numbers, booleans, or tuples of texts and numbers. No payloads (E3): of an error its
type, of a verdict its numbers and names. Knows events, errors and nothing that must be installed.
"""

from __future__ import annotations

import re
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, TypeAlias, cast

from streamguard._base.vitals import Vitals
from streamguard.activity import Activity
from streamguard.errors import Teardown, Verdict, spelled

if TYPE_CHECKING:
    from streamguard.breaker.circuit_events import CircuitEvent
    from streamguard.events.event import Event, ScopeEvent

    AnyEvent: TypeAlias = Event | ScopeEvent | CircuitEvent

Field: TypeAlias = str | int | float | bool | tuple[str | int, ...]

_VERDICT = (
    "limit",
    "guard",
    "window",
    "elapsed",
    "lateness",
    "messages",
    "last_signal",
    "last_message_age",
    "in_flight",
    "work",
    "amount",
    "token",
    "exit",
)
_TEARDOWN = ("confirmed", "disconnect", "signals", "elapsed", "exit", "survivors", "tree")


def name_of(event: AnyEvent) -> str:
    """The event's name in snake case: `timed_out` for `TimedOut`; or what its type is told as."""
    kind = type(event)
    return str(getattr(kind, "told_as", "")) or _snake(kind.__name__)


def fields_of(event: AnyEvent) -> dict[str, Field]:
    """`event` as flat fields: its name is `event`, its stream's `stream`. What is None is left out."""
    told: dict[str, Field] = {"event": name_of(event)}
    # A type is hashable; mypy looks for that at its instances.
    for name in _names(type(event)):  # type: ignore[arg-type]
        value: object = getattr(event, name)
        if isinstance(value, Activity):
            _add(told, "stream", value.display_name)
        elif isinstance(value, Verdict):
            _add_verdict(told, value)
        elif isinstance(value, Teardown):
            _add_teardown(told, value)
        elif isinstance(value, Vitals):
            _add_vitals(told, value)
        elif isinstance(value, BaseException):
            told[name] = type(value).__name__
        else:
            _add(told, name, value)
    return told


def _add_verdict(told: dict[str, Field], verdict: Verdict) -> None:
    _add(told, "stream", verdict.name or verdict.stream)
    for name in _VERDICT:
        _add(told, name, getattr(verdict, name))
    if verdict.scope:
        told["scope"] = spelled(verdict.scope)
    if verdict.effective is not None:
        told["effective_scope"] = str(verdict.effective)
    if verdict.when is not None:
        told["when"] = verdict.when.isoformat()
    if verdict.vitals is not None:
        _add_vitals(told, verdict.vitals)
    for label, value in verdict.labels.items():
        _add(told, f"label.{label}", value)


def _add_vitals(told: dict[str, Field], vitals: Vitals) -> None:
    for field in fields(vitals):
        _add(told, f"vitals.{field.name}", getattr(vitals, field.name))
    for name in ("sockets", "parked"):
        if rows := getattr(vitals, name):
            told[f"vitals.{name}"] = tuple(map(str, rows))


def _add_teardown(told: dict[str, Field], teardown: Teardown) -> None:
    for name in _TEARDOWN:
        _add(told, f"teardown.{name}", getattr(teardown, name))


def _add(told: dict[str, Field], name: str, value: object) -> None:
    match value:
        case None | "" | ():
            pass
        case str() | bool() | int() | float():
            told[name] = value
        case tuple():
            parts = cast("tuple[object, ...]", value)
            told[name] = tuple(part if isinstance(part, int) else str(part) for part in parts)
        case _:
            told[name] = type(value).__name__  # whatever it is, it may quote the conversation


@cache
def _names(kind: type[AnyEvent]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


@cache
def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
