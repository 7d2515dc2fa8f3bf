"""`Scope` and `Cleanup`: real cancel scopes that know each other, and to whom a timeout belongs.

A deadline is fixed when a scope is entered, and capped by the scopes around it. When time is up,
two questions are settled here: which scope *fired* (whose time was up first, the innermost of several),
and which is *effective* (the outermost whose time is up; what to do next follows from that one).
Scopes are inherited as context variables are: by the tasks of a group, and by bare asyncio tasks,
which no cancel scope reaches but whose own scopes are capped all the same.
Knows loops, errors, events and who records; how long a scope may take is said elsewhere (`limits`).
"""

from __future__ import annotations

import math
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from itertools import takewhile
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, cast

import anyio
import anyio.lowlevel

from streamguard import _loops as loops
from streamguard import events
from streamguard._base.calling import refusing
from streamguard._base.durations import in_words
from streamguard._base.numbers import limit_or_default
from streamguard._base.tracebacks import blame, trim
from streamguard.errors import (
    ConfigError,
    ScopeKind,
    ScopeName,
    StreamGuardError,
    TotalTimeoutError,
    Verdict,
    spelled,
)
from streamguard.events import recorders as recording
from streamguard.events.teller import tell_of_scope

if TYPE_CHECKING:
    from streamguard._base.numbers import Seconds
    from streamguard.activity import Activity
    from streamguard.limits import Spec

# With less left than this, nothing is begun: it could only be cut (seconds).
MIN_ATTEMPT: Final = 1.0
# How long a cleanup may take unless it says so itself (seconds).
CLEANUP: Final = 10.0

# A single model invocation holds at most the tools that run during it. A tool may be a subagent
# with steps of its own; a flow is a whole, and is part of nothing but another flow.
_MAY_HOLD: Final[Mapping[ScopeKind, tuple[ScopeKind, ...]]] = MappingProxyType(
    {
        "flow": ("flow", "step", "llm_call", "tool"),
        "step": ("step", "llm_call", "tool"),
        "tool": ("step", "llm_call", "tool"),
        "llm_call": ("tool",),
    }
)

_innermost: ContextVar[Scope | Cleanup | None] = ContextVar("streamguard_scope", default=None)


def current() -> Scope | Cleanup | None:
    """The innermost scope that the caller is in. None outside of any, and when all were left."""
    innermost = _innermost.get()
    while innermost is not None and innermost.is_left:
        innermost = innermost.outer
    return innermost


def path() -> tuple[ScopeName, ...]:
    """The scopes that the caller is in, from the outermost inwards."""
    if _innermost.get() is None:  # as for most
        return ()
    innermost = current()
    return innermost.path if innermost is not None else ()


def begins(activity: Activity) -> None:
    """A stream is pulled here: what it stood at is part of a scope's verdict."""
    for place in _outwards(current()):
        place._stream = weakref.ref(activity)


def _outwards(place: Scope | Cleanup | None) -> Iterator[Scope | Cleanup]:
    while place is not None:
        yield place
        place = place.outer


def _is_in_cleanup(place: Scope | Cleanup) -> bool:
    return any(isinstance(each, Cleanup) for each in _outwards(place))


def remaining() -> float:
    """How many seconds are left of the scope that the caller is in; infinity outside of any."""
    innermost = current()
    return innermost.remaining() if innermost is not None else math.inf


class _TimeLimit(ABC):
    """What `Scope` and `Cleanup` share: a cancel scope with a deadline, and a place in a path."""

    def __init__(self, label: ScopeName, timeout: float, spec: Spec | None) -> None:
        self._label = label
        self._timeout = timeout
        self._spec = spec
        self._outer: Scope | Cleanup | None = None
        self._loop: loops.Loop | None = None
        self._task: object = None
        self._began = 0.0
        self._deadline = math.inf
        self._cancel_scope: anyio.CancelScope | None = None
        self._first: _TimeLimit | None = None
        self._verdict: Verdict | None = None
        self._stream: weakref.ref[Activity] | None = None

    def __repr__(self) -> str:
        return f"<{spelled(self.path)}, {in_words(self._timeout)}>"

    @property
    def name(self) -> str:
        """What it was called; may be empty."""
        return self._label.name

    @property
    def timeout(self) -> float:
        """Its own limit in seconds. The scopes around it may leave it less: see `remaining`."""
        return self._timeout

    @property
    def spec(self) -> Spec | None:
        """The flow's spec that is in force inside."""
        return self._spec

    @property
    def outer(self) -> Scope | Cleanup | None:
        """What it was entered in."""
        return self._outer

    @property
    def path(self) -> tuple[ScopeName, ...]:
        """Itself and what it lies in, from the outermost inwards."""
        return (*(self._outer.path if self._outer is not None else ()), self._label)

    @property
    def is_left(self) -> bool:
        """Whether its block is over."""
        return self._loop is not None and self._cancel_scope is None

    def remaining(self) -> float:
        """How many seconds are left until it, or one around it, is over; never negative."""
        if self._loop is None:
            return self._timeout
        return max(0.0, self._deadline - self._loop.clock())

    # -- entering and leaving --------------------------------------------------------------

    def _check_fresh(self) -> None:
        if self._loop is not None:
            raise RuntimeError(
                f"{self._label} was entered before: a scope is for one `async with`. "
                "Make another one where you enter it"
            )

    def _enter(self, loop: loops.Loop, now: float, deadline: float, *, shield: bool) -> None:
        cancel_scope = anyio.CancelScope(deadline=deadline, shield=shield)
        cancel_scope.__enter__()
        self._loop, self._task, self._cancel_scope = loop, loop.current_task(), cancel_scope
        self._began, self._deadline = now, deadline
        _innermost.set(cast("Scope | Cleanup", self))

    def _leave(self, exc: BaseException | None) -> anyio.CancelScope:
        """Give up the place in the path. The cancel scope that is to be left now."""
        loop, cancel_scope = self._loop, self._cancel_scope
        if loop is None or cancel_scope is None:
            raise RuntimeError(f"{self._label} is not entered, or was left already")
        inside = self._what_is_open_inside()
        self._cancel_scope = None
        if _innermost.get() is self:
            _innermost.set(self._outer)
        is_here = loop.is_running_here()
        if is_here and loop.current_task() is self._task and inside is None:
            return cancel_scope
        if is_here:
            cancel_scope.deadline = math.inf  # it shall not strike whoever goes on under it
        if inside is None:
            raise RuntimeError(
                f"{self._label} is left in another task than it was entered in. Most likely an "
                "async generator or a fixture yields inside of it and was closed by the event "
                "loop: enter the scope around the loop that consumes it, or close the generator "
                "where it is used (contextlib.aclosing)"
            )
        with suppress(RuntimeError):  # the loop's words for the same
            cancel_scope.__exit__(type(exc) if exc else None, exc, None)
        raise RuntimeError(
            f"{self._label} is left before {inside._label}, which was entered in it. Most likely "
            "two async generators that yield inside of their scopes are consumed in turns: enter "
            "the scopes around the loop that consumes them"
        )

    def _what_is_open_inside(self) -> Scope | Cleanup | None:
        """In the same task: what another task has open inside is its own business."""
        for place in _outwards(current()):
            if place is self:
                return None
            if place._outer is self and place._task is self._task:
                return place
        return None

    # -- whose time is up ------------------------------------------------------------------

    def _is_due(self) -> bool:
        return self._loop is not None and self._loop.clock() >= self._deadline

    def _strike(self, loop: loops.Loop) -> None:
        """Cancel it now, if its timer has yet to: two timers of one instant have no order."""
        if self._cancel_scope is not None and self._loop is loop:
            self._cancel_scope.cancel()

    def _decide(self, fired: _TimeLimit) -> Verdict:
        """The verdict on this one, whose time is up. Made once, whoever raises it first."""
        if self._verdict is None:
            activity = fired.activity or self.activity
            self._verdict = self._record(fired._label, fired.path, activity)
            self._tell(self._verdict, activity)
        return self._verdict

    @property
    def activity(self) -> Activity | None:
        """The stream that was pulled in it last."""
        return self._stream() if self._stream is not None else None

    def _record(
        self, fired: ScopeName | None, path: tuple[ScopeName, ...], of: Activity | None = None
    ) -> Verdict:
        assert self._loop is not None
        now = self._loop.clock()
        standing: dict[str, Any] = {}
        if of is not None:  # the stream that was cut with it
            last = of.last_message
            standing = {
                "messages": of.messages,
                "first_seen": of.last_progress is not None,
                "last_message_age": None if last is None else max(0.0, now - last),
                "in_flight": tuple(of.in_flight.values()),
                "token": of.token,
                "done": of.done,
                "labels": dict(of.labels),
            }
        return Verdict(
            limit=self._label.kind,
            window=self._timeout,
            elapsed=now - self._began,
            lateness=max(0.0, now - self._deadline),
            at=now,
            when=datetime.now(UTC),
            name=self._label.name,
            scope=path,
            fired=fired,
            effective=self._label,
            **standing,
        )

    @abstractmethod
    def _tell(self, verdict: Verdict, activity: Activity | None) -> None:
        """Tell of the verdict, when it is made."""


class Scope(_TimeLimit):
    """One time limit, for one `async with`. Made by `scope(kind, ...)`."""

    def __init__(self, label: ScopeName, timeout: float, hard: float, spec: Spec | None) -> None:
        super().__init__(label, timeout, spec)
        self._hard = hard
        self._host: loops.Host | None = None
        self._recorders: tuple[recording.Recording, ...] = ()

    if not TYPE_CHECKING:  # so that a checker, too, says what is wrong
        __enter__ = __exit__ = refusing(
            "a time scope is entered with `async with`: async with scope(...)"
        )

    @property
    def kind(self) -> ScopeKind:
        """`flow`, `step`, `llm_call` or `tool`."""
        return cast("ScopeKind", self._label.kind)

    @property
    def hard(self) -> float:
        """The most that could have been written for its timeout, in seconds."""
        return self._hard

    def cleanup(self, timeout: Seconds | None = None) -> Cleanup:
        """Time to clean up in (10 s), even when the scope's own is up: see `Cleanup`."""
        return Cleanup(limit_or_default(timeout, "timeout") or CLEANUP, self._spec)

    async def __aenter__(self) -> Self:
        self._check_fresh()
        outer = self._outer = current()
        loop = loops.current()
        now = loop.clock()
        deadline = now + self._timeout
        if outer is not None:
            self._check_nesting(outer)
            cap = outer._deadline if outer._loop is loop else now + outer.remaining()
            if cap < deadline:
                deadline = cap
                if cap - now < MIN_ATTEMPT and not _is_in_cleanup(outer):
                    await self._refuse(outer, loop)
        self._host = loop.host()
        self._enter(loop, now, deadline, shield=False)
        self._recorders = recording.in_force()
        for recorder in self._recorders:
            recorder.scope_began(self.path, self)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        came_through = False
        try:
            self._exit(exc_type, exc, traceback)
            came_through = exc is None
        except TotalTimeoutError as error:
            trim(error)
            raise
        finally:
            for recorder in self._recorders:
                recorder.scope_over(self.path, self, came_through=came_through)

    def _exit(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        cancel_scope, loop = self._leave(exc), self._loop
        assert loop is not None
        is_cut = self._is_due() and _is_of_a_cut(exc, loop.cancelled)
        due = self._due_outers() if is_cut else []
        for outer in due:
            outer._strike(loop)
        try:
            cancel_scope.__exit__(exc_type, exc, traceback)
        except BaseExceptionGroup:  # of a cut, what else was in the group stays in `exc`
            if not is_cut:
                raise
        if not is_cut:
            return
        assert self._host is not None
        fired = self._first or self
        # A native cancel, or a scope around this one, is what goes on (T9).
        if self._host.is_overruled or anyio.current_effective_deadline() == -math.inf:
            if due:  # the next one is cut with this one, and remembers whose time was up first
                known = due[0]._first
                if known is None or fired._deadline < known._deadline:
                    due[0]._first = fired
            return
        struck = due[-1] if due else self
        verdict = struck._decide(fired)
        activity = fired.activity or struck.activity
        error = TotalTimeoutError(verdict=verdict, activity=activity)
        blame(error, exc, is_our_cancel=loops.consists_of(exc, loop.cancelled))
        raise error from error.__cause__

    def _check_nesting(self, outer: Scope | Cleanup) -> None:
        if isinstance(outer, Cleanup) or self.kind in _MAY_HOLD[outer.kind]:
            return
        holders = [kind for kind, held in _MAY_HOLD.items() if self.kind in held]
        raise ConfigError(
            f"{self._label} cannot be part of {outer._label} (in {spelled(outer.path)}): "
            f"a {self.kind} belongs into a {' or a '.join(holders)}, or stands alone. If the two "
            "are independent, begin the inner one in a task with a context of its own"
        )

    async def _refuse(self, nearest: _TimeLimit, loop: loops.Loop) -> None:
        """Too little is left to begin. An outer scope whose time is up speaks for itself."""
        for outer in self._due_outers():
            outer._strike(loop)
        await anyio.lowlevel.checkpoint()
        *_, limiting = (
            outer
            for outer in self._outers()
            if outer._loop is nearest._loop and outer._deadline <= nearest._deadline
        )
        verdict = limiting._record(None, self.path)
        self._tell(verdict, None)
        raise TotalTimeoutError(verdict=verdict)

    def _due_outers(self) -> list[_TimeLimit]:
        # A deadline is capped by every outer one: where one is not due, none beyond it is.
        return list(takewhile(_TimeLimit._is_due, self._outers()))

    def _outers(self) -> Iterator[_TimeLimit]:
        """Whatever caps it, from the inside outwards; beyond a cleanup nothing does."""
        for outer in _outwards(self._outer):
            yield outer
            if isinstance(outer, Cleanup):
                return

    def _tell(self, verdict: Verdict, activity: Activity | None) -> None:
        tell_of_scope(events.ScopeTimedOut(verdict=verdict, activity=activity))


class Cleanup(_TimeLimit):
    """Time to clean up in, for one `async with`. Made by `Scope.cleanup(...)`.

    Shielded from the scopes around it and from their time, with a limit of its own. So the sum of its
    cleanups is the most by which a scope can overrun. A cleanup that outlives its limit is cut and
    reported; the block ends as if all had been done, and `was_cut` tells.
    """

    def __init__(self, timeout: float, spec: Spec | None) -> None:
        super().__init__(ScopeName("cleanup"), timeout, spec)
        self._was_cut = False

    @property
    def kind(self) -> Literal["cleanup"]:
        """`cleanup`."""
        return "cleanup"

    @property
    def was_cut(self) -> bool:
        """Whether it took too long."""
        return self._was_cut

    async def __aenter__(self) -> Self:
        self._check_fresh()
        self._outer = current()
        loop = loops.current()
        now = loop.clock()
        self._enter(loop, now, now + self._timeout, shield=True)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> bool:
        # trio also "swallows" a normal end.
        is_cut = bool(self._leave(exc).__exit__(exc_type, exc, traceback)) and exc is not None
        if isinstance(exc, TotalTimeoutError) and exc.verdict is self._verdict:
            is_cut = True  # told by a scope inside, in a task that our cancel does not reach
        if is_cut:
            self._was_cut = True
            self._decide(self._first or self)
        return is_cut

    def _tell(self, verdict: Verdict, activity: Activity | None) -> None:
        tell_of_scope(events.CleanupCut(verdict=verdict, activity=activity))


def _is_of_a_cut(error: BaseException | None, cancelled: type[BaseException]) -> bool:
    """Whether `error` is a cancellation, or came of handling one.

    Timeouts, and whatever streamguard raises, are verdicts of their own and pass untouched (T7).
    """
    if loops.is_exit(error, cancelled):
        return False
    while error is not None:
        if isinstance(error, cancelled):
            return True
        # trio's own is no TimeoutError.
        is_verdict = isinstance(error, (TimeoutError, StreamGuardError))
        if is_verdict or type(error).__name__ == "TooSlowError":
            return False
        if isinstance(error, BaseExceptionGroup):
            parts = cast("BaseExceptionGroup[BaseException]", error).exceptions
            if any(_is_of_a_cut(part, cancelled) for part in parts):
                return True
        error = error.__cause__ or error.__context__
    return False
