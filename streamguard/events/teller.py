"""Who tells the log and the observers what happens.

An observer is any callable that takes one event. Observers never disturb the stream: one
that raises is logged and the rest are still called (E6). Lines are quoted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from streamguard._base import quoting
from streamguard._base.callbacks import several
from streamguard._base.quoting import quoted
from streamguard.errors import ENDS_THE_PROGRAM
from streamguard.events.event import Event, ScopeEvent
from streamguard.events.kinds import Concern, ReaderFailed, UnknownMessage

if TYPE_CHECKING:
    from streamguard.activity import Activity

logger = logging.getLogger("streamguard")


Observer: TypeAlias = Callable[[Event], None]
OnWarn: TypeAlias = Callable[[Concern], object]
ScopeObserver: TypeAlias = Callable[[ScopeEvent], None]
_E = TypeVar("_E")
scope_observers: ContextVar[tuple[ScopeObserver, ...]] = ContextVar(
    "streamguard_scope_observers", default=()
)


@dataclass(frozen=True)
class Warned:
    """An observer that hears of nothing but warnings: what `on_warn=` is."""

    on_warn: OnWarn

    def __call__(self, event: Event) -> None:
        if isinstance(event, Concern):
            self.on_warn(event)


class Teller:
    """Tells the log and the observers what happens to one stream, or to one session.

    It can be held where the stream must not be, and holds none itself.
    """

    __slots__ = ("__weakref__", "activity", "clock", "observers")

    def __init__(
        self,
        activity: Activity,
        observers: tuple[Observer, ...],
        clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.activity = activity
        self.observers = observers
        self.clock = clock

    @property
    def is_heard(self) -> bool:
        """Whether anybody is told of a verdict: an observer, a recorder, or the log."""
        return bool(self.observers) or logger.isEnabledFor(logging.WARNING)

    def tell(self, kind: type[Event], **facts: Any) -> None:
        """An event of that kind has happened: now, if the facts do not say when (`at`).

        One that nobody listens to is not even made.
        """
        may_be_logged = logger.isEnabledFor(kind.loudest)
        if not may_be_logged and not any(_hears(each, kind) for each in self.observers):
            return
        if "at" not in facts:
            facts["at"] = self.clock()
        event = kind(activity=self.activity, **facts)
        tell((log, *self.observers) if may_be_logged else self.observers, event)

    # What a reading notices.
    def unknown_message(self, kind: type) -> None:
        self.tell(UnknownMessage, type_name=f"{kind.__module__}.{kind.__qualname__}")

    def reader_failed(self, kind: type, error: BaseException) -> None:
        self.tell(ReaderFailed, type_name=kind.__qualname__, error=error)


def _hears(observer: Observer, kind: type[Event]) -> bool:
    return not isinstance(observer, Warned) or issubclass(kind, Concern)


def tell(observers: Iterable[Callable[[_E], None]], event: _E) -> None:
    """Give `event` to every observer; one that raises is logged, never propagated."""
    for observer in observers:
        try:
            observer(event)
        except ENDS_THE_PROGRAM:
            raise
        except BaseException:  # nothing is awaited here, so a cancellation is nobody's
            logger.exception("observer %r raised on %r", observer, type(event).__name__)


def log(event: Event) -> None:
    """The default observer: the events a person on call needs, as log lines.

    A line's record carries the same facts as `record.streamguard`, a flat dict, for handlers
    that write JSON.
    """
    level = event.level
    if not logger.isEnabledFor(level):
        return
    from streamguard.events.flat import fields_of

    text, told = quoted(event.text()), {"streamguard": fields_of(event)}
    if event.names_itself:
        logger.log(level, "%s", text, extra=told)
    else:
        logger.log(level, "%s: %s", quoting.name(event.activity.display_name), text, extra=told)


def described(event: Event) -> tuple[int, str]:
    """An event's level, as `logging` has it, and the words for a person: one line."""
    return event.level, quoted(event.text())


@contextmanager
def observing_scopes(
    observer: ScopeObserver | Iterable[ScopeObserver],
) -> Generator[None, None, None]:
    """Tell `observer`, one or several, of every time scope in the block, and in tasks that begin in it."""
    added = several("observer", observer, "event")
    token = scope_observers.set((*scope_observers.get(), *added))
    try:
        yield
    finally:
        scope_observers.reset(token)


def tell_of_scope(event: ScopeEvent) -> None:
    """Log `event` and give it to every observer of scopes in force."""
    tell((_log_scope, *scope_observers.get()), event)


def _log_scope(event: ScopeEvent) -> None:
    if logger.isEnabledFor(logging.WARNING):
        from streamguard.events.flat import fields_of

        told = {"streamguard": fields_of(event)}
        logger.warning("%s", quoted(event.verdict.summary), extra=told)
