"""Events as structlog entries: the event's name, and its fields as key-value pairs.

    idle_guard(180, observer=StructlogObserver())

Knows events, their fields, and structlog, which it imports when an observer is made.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from streamguard._base.calling import checked_class
from streamguard._base.distribution import install
from streamguard._base.quoting import quoted
from streamguard.breaker.circuit_events import CircuitChanged, CircuitEvent, CircuitRefused
from streamguard.errors import ConfigError
from streamguard.events.event import Event, ScopeEvent
from streamguard.events.flat import fields_of
from streamguard.events.teller import described

if TYPE_CHECKING:
    from streamguard.events.flat import AnyEvent

__all__ = ["StructlogObserver"]


class _Logger(Protocol):
    def log(self, level: int, event: str, /, **fields: object) -> object: ...


@checked_class
class StructlogObserver:
    """Writes each event to `logger`, by default structlog's own logger named `streamguard`.

    The words for a person are under `message`; an error is named by its type, never quoted.

    Raises:
        ConfigError: structlog is not installed.
    """

    def __init__(self, logger: _Logger | None = None) -> None:
        if logger is None:
            try:
                import structlog
            except ImportError as error:
                raise ConfigError(
                    f"StructlogObserver needs structlog: {install('structlog')}"
                ) from error
            made: _Logger = structlog.get_logger("streamguard")
            logger = made
        self._logger = logger

    def __call__(self, event: AnyEvent) -> None:
        """Log `event`."""
        fields: dict[str, object] = dict(fields_of(event))
        level, text = _described(event)
        name = str(fields.pop("event"))
        self._logger.log(level, name, **fields, **({"message": quoted(text)} if text else {}))


def _described(event: AnyEvent) -> tuple[int, object]:
    match event:
        case Event():
            return described(event)
        case ScopeEvent():
            return logging.WARNING, event.verdict.reason
        case CircuitChanged() if event.after in {"open", "escalated"}:
            return logging.WARNING, f"circuit {event.key!r} is {event.after}: {event.cause}"
        case CircuitRefused():
            return logging.WARNING, f"circuit {event.key!r} is {event.status}: refused"
        case CircuitEvent():
            return logging.DEBUG, ""
