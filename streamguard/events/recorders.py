"""What a recorder is to streams and scopes: told of everything, and waited for at a verdict.

Which recorders are in force is inherited as context variables are. What they write, and where, is
`evidence`'s business, which nothing in the core imports. Knows events and plans.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias

from streamguard.events.teller import scope_observers

if TYPE_CHECKING:
    from streamguard._guard.attempt import Attempt
    from streamguard._guard.plan import Plan
    from streamguard.activity import Activity
    from streamguard.errors import ScopeName
    from streamguard.events.event import Event, ScopeEvent
    from streamguard.signals import Signal

# Called with a message, and what it says, before it is delivered. It must not raise.
Tap: TypeAlias = "Callable[[object, tuple[Signal, ...]], None]"


class Recording(ABC):
    """An observer of streams and of scopes that wants their messages, too.

    `reads_all`: whether it must see each one; else those that are plain progress may only be counted
    by the watch, which costs nothing.
    """

    reads_all: bool

    @abstractmethod
    def __call__(self, event: Event | ScopeEvent, /) -> None:
        """Something happened."""

    @abstractmethod
    def tap(self, attempt: Attempt) -> Tap:
        """An attempt begins: gives the function to call with its messages."""

    @abstractmethod
    def await_decision(self, activity: Activity) -> None:
        """Of that session's failures it will be decided, and told, what follows."""

    @abstractmethod
    def session_over(self, activity: Activity) -> None:
        """That session's block is left: it decides nothing more."""

    @abstractmethod
    def scope_began(self, path: tuple[ScopeName, ...], scope: object) -> None:
        """A time scope begins."""

    @abstractmethod
    def scope_over(
        self, path: tuple[ScopeName, ...], scope: object, *, came_through: bool
    ) -> None:
        """That scope is left. `came_through`: no error ended it."""

    @abstractmethod
    async def written(self) -> None:
        """Wait until the evidence is on disk, but not for longer than that is worth."""


_in_force: Final[ContextVar[tuple[Recording, ...]]] = ContextVar(
    "streamguard_recordings", default=()
)


def enter(recording: Recording) -> None:
    """From here on, and in the tasks begun from here on, `recording` is in force."""
    _in_force.set((*_in_force.get(), recording))
    observers = scope_observers.get()
    if recording not in observers:
        scope_observers.set((*observers, recording))


def leave(recording: Recording) -> None:
    """It is in force no more, unless it was entered more than once."""
    # Without tokens: tasks that share a recorder may enter and leave it in any order.
    before = list(_in_force.get())
    if recording in before:
        before.remove(recording)
    _in_force.set(tuple(before))
    if recording not in before:
        observers = scope_observers.get()
        scope_observers.set(tuple(o for o in observers if o is not recording))


def in_force() -> tuple[Recording, ...]:
    """Those that are in force here, each once."""
    return tuple(dict.fromkeys(_in_force.get()))


def joined(plan: Plan) -> Plan:
    """`plan`, observed by the recorders in force, too."""
    new = [r for r in in_force() if r not in plan.observers]
    return replace(plan, observers=(*plan.observers, *new)) if new else plan


def among(observers: Iterable[object]) -> tuple[Recording, ...]:
    """Those observers that record."""
    return tuple(o for o in observers if isinstance(o, Recording))


def tap_of(attempt: Attempt) -> Tap | None:
    """What is to be called with the messages of `attempt`, if any recorder wants them."""
    taps = [recording.tap(attempt) for recording in among(attempt.plan.observers)]
    if len(taps) <= 1:
        return taps[0] if taps else None

    def all_of_them(message: object, signals: tuple[Signal, ...]) -> None:
        for tap in taps:
            tap(message, signals)

    return all_of_them
