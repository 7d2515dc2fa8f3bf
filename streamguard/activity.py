"""`Activity`: the live state of one guarded stream, and the hands by which others reach it.

It can be made before client and stream exist, so that a callback which the client needs at
construction can hold it. What it shows is read from the watch of the attempt it is bound to; what it
says (`hold`, `touch`, `mark_prompt`) goes to that watch, by way of the loop if it comes from another
thread (T6). Knows the watch and the loop, not operators or streams.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import math
import sys
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, TypeVar, cast

from streamguard import _loops as loops
from streamguard._base import defaults
from streamguard._base.calling import checked, refusing
from streamguard._base.done import NOTHING_DONE, Done
from streamguard._base.numbers import Default, Seconds, seconds
from streamguard.errors import ConfigError
from streamguard.signals import SIGNALS, Signal

if TYPE_CHECKING:
    from streamguard._loops import Loop
    from streamguard._watch.watch import Watch

_NONE: Mapping[str, object] = MappingProxyType({})
_making: Final = threading.RLock()  # the collector may run at any line, and what it ends may hold
# What those are called that nobody has named. Not kept in them: of most nothing is ever told.
_numbers: Final = itertools.count(1)
_called: Final[weakref.WeakKeyDictionary[Activity, str]] = weakref.WeakKeyDictionary()
_FAR: Final = 366 * 86400.0
_DEFAULT_ALLOWANCE: Final = Default(defaults.HOLD)

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
Status: TypeAlias = Literal[
    "new", "streaming", "waiting", "working", "held", "between turns", "ended"
]


class Bound(Protocol):
    """What an activity needs of the attempt that it shows."""

    watch: Watch
    loop: Loop | None
    reading: Any  # of its messages; knows whose they are

    @property
    def activity(self) -> Activity:
        """What shows it."""
        ...

    def heard(self) -> None:
        """The watch was told something: its deadline may have moved, and there may be news."""
        ...


@dataclass(frozen=True, slots=True)
class _Instant:
    """When something was said: by the clock of the loop that ran then, and by the machine's.

    What is said before the stream exists may be said on another loop, or on none.
    """

    loop: Loop | None
    at: float
    on_machine: float

    @classmethod
    def now(cls, loop: Loop | None) -> _Instant:
        return cls(loop, loop.clock() if loop is not None else 0.0, time.monotonic())

    def on(self, loop: Loop | None, now: float) -> float:
        """The same instant on `loop`, whose clock says `now`."""
        if self.loop is loop:
            return self.at
        return now - (time.monotonic() - self.on_machine)


@dataclass(frozen=True, slots=True)
class _Held:
    """A hold in force: since when, and for how long at most."""

    reason: str
    since: _Instant
    allowance: float


class Activity:
    """What one guarded stream is doing: read it at any time, from anywhere.

    Times are on the loop's monotonic clock. With one activity on several streams, turn after turn,
    counts go on and the rest shows the latest. `name` is what it is called in errors, logs and `streamguard
    top`; `labels` are yours, for observers and the evidence: `Activity("coder", issue=7)`.
    """

    __slots__ = (
        "__weakref__",
        "_attempt",
        "_before",
        "_holds",
        "_is_bound",
        "_prompted",
        "_token",
        "_vain_pulls",
        "_watch",
        "_weak_bound",
        "labels",
        "name",
    )

    def __init__(self, name: str = "", **labels: object) -> None:
        if not isinstance(cast("object", name), str):
            raise ConfigError(f"Activity({name!r}): give it a name that people will read")
        self.name = name
        self.labels: Mapping[str, object] = MappingProxyType(labels) if labels else _NONE
        self._weak_bound: weakref.ref[Bound] | None = None
        self._is_bound = False
        self._watch: Watch | None = None
        self._before = 0
        self._attempt = 1
        self._vain_pulls = 0
        self._prompted: _Instant | None = None
        self._token: str | None = None
        # Made by the first hold, and then changed in place only: other threads hold, too, and single
        # dict operations are atomic.
        self._holds: dict[object, _Held] | None = None

    @property
    def display_name(self) -> str:
        """What people read of it under: its `name`, or its backend and a number, such as `claude-1`.

        A number is given when it is first asked for, and then stays; metrics count by backend instead.
        """
        return self.name or _called.get(self) or self._call_it_something()

    def _call_it_something(self) -> str:
        backend = self._backend
        kind = "stream" if backend is None or not backend.is_known else backend.name
        with _making:
            return _called.setdefault(self, f"{kind}-{next(_numbers)}")

    def __repr__(self) -> str:
        name = f"{self.name!r}, " if self.name else ""
        return f"<Activity {name}{self.status}, {self.messages} messages>"

    # -- what others read ----------------------------------------------------------------

    @property
    def status(self) -> Status:
        """What is happening, in a word or two."""
        watch, bound = self._watch, self._bound
        if watch is None:
            return "new"
        if bound is None or bound.loop is None:
            return "ended"
        # A hold lapses by itself, and nobody tells the watch (T6).
        if watch.is_held(bound.loop.clock()):
            return "held"
        if watch.completed:
            return "between turns"
        if watch.work:
            return "working"
        return "streaming" if watch.waiting_since is None else "waiting"

    @property
    def started(self) -> float | None:
        """When the first pull was made, or the block was entered."""
        return self._watch.started if self._watch else None

    @property
    def attempt(self) -> int:
        """Which attempt of its session it is; 1 for a stream that has no other."""
        return self._attempt

    @property
    def messages(self) -> int:
        """How many messages came."""
        return self._before + (self._watch.messages if self._watch else 0)

    @property
    def pulls(self) -> int:
        """How many messages were asked for."""
        waits = self._watch is not None and self._watch.waiting_since is not None
        return self.messages + self._vain_pulls + waits

    @property
    def last_message(self) -> float | None:
        """When the last message came."""
        return self._watch.last_message if self._watch else None

    @property
    def last_progress(self) -> float | None:
        """When the backend last did something: pings do not count, `touch()` does."""
        return self._watch.last_progress if self._watch else None

    @property
    def waiting_since(self) -> float | None:
        """Since when the backend keeps us waiting; None while it does not."""
        return self._watch.waiting_since if self._watch else None

    @property
    def in_flight(self) -> Mapping[str, str]:
        """Work in flight: names by id."""
        if self._watch is None:
            return {}
        return {id_: entry.name for id_, entry in dict(self._watch.work).items()}

    @property
    def token(self) -> str | None:
        """The latest resume token."""
        return (self._watch.token if self._watch else None) or self._token

    @property
    def backend(self) -> str | None:
        """The backend that the messages come from, by its name for `read=`; None as long as it is unknown."""
        return None if self._backend is None else str(self._backend.name)

    @property
    def _backend(self) -> Any:
        return getattr(getattr(self._latest, "reading", None), "backend", None)

    @property
    def usage(self) -> Mapping[str, float]:
        """The latest token and cost counts."""
        return self.done.usage

    @property
    def done(self) -> Done:
        """What was done so far: tool calls, token counts, attempts, the backend's folder."""
        return self._watch.done(self._attempt) if self._watch else NOTHING_DONE

    @property
    def _bound(self) -> Bound | None:
        return self._latest if self._is_bound else None

    @property
    def _latest(self) -> Bound | None:
        """What is bound, or was: a stream whose pull was cancelled may go on, with the same watch."""
        # Weakly: an abandoned stream must go at once, without waiting for the collector (O7).
        return self._weak_bound() if self._weak_bound is not None else None

    # -- what others say -----------------------------------------------------------------

    def touch(self) -> None:
        """Count something seen elsewhere (stderr, a growing file) as progress. Any thread."""
        self._tell(lambda bound, now: bound.watch.touch(now))

    def hear(self, *signals: Signal) -> None:
        """Take in what the backend says beside its stream (a tap, stderr), as signals. Any thread.

        They mean the same as in a message, though none was delivered. Without a guarded stream they have
        no effect.
        """
        for signal in signals:
            if not isinstance(cast("object", signal), SIGNALS):
                raise TypeError(f"hear({signal!r}): pass signals, such as Liveness()")
        self._tell(lambda bound, now: bound.watch.hear(signals, now, time.time()))

    def mark_prompt(self) -> None:
        """Say that a prompt was sent: a new turn, and its clocks, begin now."""
        if self._bound is None:
            # Passed on when a stream is bound: its turn began here (T1).
            self._prompted = _Instant.now(loops.current_or_none())
        else:
            self._tell(lambda bound, now: bound.watch.mark_prompt(now))

    @checked
    def hold(
        self,
        reason: str = "held",
        *,
        allowance: Seconds = _DEFAULT_ALLOWANCE,
        until: datetime | float | None = None,
    ) -> Hold:
        """Pause `idle` while something outside the stream is waited for.

        A context manager, and a decorator for sync and async callbacks. It ends by itself after
        `allowance`, or at the wall-clock time `until` (an aware datetime or an epoch); if both
        are written, at whichever comes first.
        """
        if not isinstance(cast("object", reason), str):
            raise ConfigError(
                f"hold({reason!r}): the reason is a string that people will read; as a decorator, "
                '@activity.hold("permission")'
            )
        longest = seconds(allowance, "allowance")
        if until is None:
            return Hold(self, reason, longest)
        if isinstance(allowance, Default):
            longest = math.inf  # a default never competes
        return Hold(self, reason, longest, _epoch(until))

    def _begin_hold(self, key: object, reason: str, allowance: float) -> None:
        bound = self._bound
        loop = bound.loop if bound is not None else loops.current_or_none()
        held = _Held(reason, _Instant.now(loop), allowance)
        holds: dict[object, _Held] = {}
        with _making:
            if self._holds is None:
                self._holds = holds
        self._holds[key] = held
        self._tell(lambda bound, now: self._pass_on(key, held, bound, now))

    def _pass_on(self, key: object, held: _Held, bound: Bound, now: float) -> None:
        if self._holds and key in self._holds:  # or it was over before the loop heard of it
            bound.watch.hold(key, held.since.on(bound.loop, now) + held.allowance, now)

    def _tell(self, action: Callable[[Bound, float], object]) -> None:
        """Do `action` on the watch, on its loop: from another thread, soon (T6).

        Also while it is not pulled: if the same stream goes on, it has missed nothing.
        """
        bound = self._latest
        if bound is None or bound.loop is None:
            return

        def act(bound: Bound = bound, loop: Loop = bound.loop) -> None:
            action(bound, loop.clock())
            bound.heard()

        if bound.loop.is_running_here():
            act()
            return
        with suppress(RuntimeError):  # that loop is closed: nobody waits any more
            bound.loop.submit(act)

    # -- for the attempt -----------------------------------------------------------------

    def bind(self, bound: Bound, now: float) -> None:
        """Show `bound` from here on, and give it the holds and the prompt that came before."""
        is_known = self._watch is bound.watch
        if self._watch is not None and not is_known:
            self._before = self.messages
            self._token = self.token
        self.show(bound, is_live=True)
        prompted, self._prompted = self._prompted, None
        if prompted is not None:
            bound.watch.mark_prompt(prompted.on(bound.loop, now))
        if not is_known:  # said again, a hold that has lapsed would begin a fresh window
            for key, held in list((self._holds or {}).items()):
                self._pass_on(key, held, bound, now)

    def show(self, bound: Bound, *, is_live: bool) -> None:
        """Show `bound` from here on, which is live or was."""
        if self._weak_bound is not None:
            _live.pop(self._weak_bound, None)
        self._weak_bound, self._watch = weakref.ref(bound), bound.watch
        self._is_bound = is_live
        if is_live:
            _live[self._weak_bound] = None

    def unbind(self, bound: Bound) -> None:
        """That attempt is over, unless a later one is shown already. What it was stays readable."""
        if not self._is_bound or self._weak_bound is None:
            return
        if self._weak_bound() in (
            bound,
            None,
        ):  # the collector clears references before it ends a stream
            self._is_bound = False
            _live.pop(self._weak_bound, None)

    def count_attempt(self, attempt: int) -> None:
        """A session begins that attempt."""
        self._attempt = attempt

    def count_vain_pull(self) -> None:
        """A pull ended without a message."""
        self._vain_pulls += 1


class Hold:
    """A pause of `idle`: `with activity.hold(...)`, or a decorator. Nestable and reusable."""

    def __init__(
        self, activity: Activity, reason: str, allowance: float, epoch: float = math.inf
    ) -> None:
        self._activity = activity
        self._reason = reason
        self._allowance = allowance
        self._epoch = epoch
        self._keys: list[object] = []

    def __enter__(self) -> None:
        key = object()
        self._keys.append(key)
        # Converted once: a wall clock that is set later does not move the hold.
        left = max(0.0, self._epoch - time.time())
        self._activity._begin_hold(key, self._reason, min(self._allowance, left))

    def __exit__(self, _kind: object, _error: object, _trace: object, /) -> None:
        key = self._keys.pop()
        if self._activity._holds:
            self._activity._holds.pop(key, None)
        self._activity._tell(lambda bound, now: bound.watch.release(key, now))

    if not TYPE_CHECKING:  # so that a checker, too, says what is wrong
        __aenter__ = __aexit__ = refusing(
            "a hold is entered with plain `with`: with activity.hold(...)"
        )

    def __repr__(self) -> str:
        return f"hold({self._reason!r})"

    def __call__(self, callback: F, /) -> F:
        """`callback`, holding while it runs; a coroutine function stays one."""
        if not callable(cast("object", callback)):
            raise TypeError(f"hold cannot decorate {callback!r}: it is no function")
        if inspect.isgeneratorfunction(callback) or inspect.isasyncgenfunction(callback):
            raise TypeError(
                f"hold cannot decorate {callback!r}: a generator does its work when it is "
                "iterated, not when it is called. Write `with activity.hold(...)` inside of it"
            )
        if inspect.iscoroutinefunction(callback):

            @functools.wraps(callback)
            async def held_async(*args: Any, **kwargs: Any) -> Any:
                with self._afresh():
                    return await callback(*args, **kwargs)

            return cast("F", held_async)

        @functools.wraps(callback)
        def held(*args: Any, **kwargs: Any) -> Any:
            with self._afresh():
                result = callback(*args, **kwargs)
            # A lambda around a coroutine function, or an object with an async `__call__`.
            return self._held_until(result) if inspect.isawaitable(result) else result

        return cast("F", held)

    def _afresh(self) -> Hold:
        """A hold for one call: concurrent calls end in any order."""
        return Hold(self._activity, self._reason, self._allowance, self._epoch)

    async def _held_until(self, result: Awaitable[Any]) -> Any:
        with self._afresh():
            return await result


def _epoch(until: datetime | float) -> float:
    """`until` in seconds since the epoch; a ConfigError for what is no certain instant."""
    if isinstance(until, datetime):
        if until.tzinfo is None:
            raise ConfigError(
                f"hold(until={until!r}): a naive datetime has no certain instant; "
                "pass an aware one, such as datetime.now(timezone.utc) + timedelta(minutes=5)"
            )
        epoch = until.timestamp()
    else:
        is_number = isinstance(cast("object", until), int | float) and not isinstance(until, bool)
        if not is_number or not abs(until) <= sys.float_info.max:  # NaN is not; nor a vast int
            raise ConfigError(
                f"hold(until={until!r}): use an aware datetime or the seconds since the epoch "
                "(or allowance= for how long)"
            )
        epoch = until
    if abs(epoch - time.time()) > _FAR:
        raise ConfigError(
            f"hold(until={until!r}) is more than a year from now: use seconds since the epoch, not "
            "milliseconds and not a duration (allowance= says for how long)"
        )
    return epoch


# By the attempts, whose weak references there are anyway. One that is collected says so
# (`Attempt.forgotten`); of a block that was never left nobody does, and its reference is dead.
_live: dict[weakref.ref[Any], None] = {}  # smaller than a set


def appears(bound: T) -> weakref.ref[T]:
    """`bound` is live. The reference, to be kept: once the collector has cleared it there is no other like it."""
    shown_as = weakref.ref(bound)
    _live[shown_as] = None
    return shown_as


def disappears(shown_as: weakref.ref[Any] | None) -> None:
    """It is not live any more."""
    if shown_as is not None:
        _live.pop(shown_as, None)


def live_streams() -> list[Activity]:
    """Every activity of this process whose stream has started and not ended."""
    activities: list[Activity] = []
    for ref in list(_live):  # copied in one step, whatever other threads begin or end meanwhile
        if (bound := ref()) is None:
            _live.pop(ref, None)
        elif bound.activity._is_bound:
            activities.append(bound.activity)
    return activities


live = live_streams  # its old name
