"""Disconnect, bounded and shielded, in a task of its own; the result is a value (section 6).

A teardown is started once, by whoever first knows that the verdict is final: the consumer, when its
pull has unwound, or the timekeeper, when it does not. The consumer then waits for its end. Knows
callbacks, bounds and the loop; nothing of limits, streams or resume.
"""

from __future__ import annotations

import contextvars
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, runtime_checkable

import anyio

from streamguard.loops import Cut, consists_of, steps_of

if TYPE_CHECKING:
    from streamguard.errors import DisconnectOutcome
    from streamguard.knobs import Disconnect
    from streamguard.loops import Loop
    from streamguard.loops.timekeeper import Entry

# How long a cancelled pull may take to unwind before teardown starts without it (O6).
UNWINDING: Final = 5.0
_LOOKS: Final = 100

# Starts a coroutine function in a task: detached, or in the monitor's task group.
Spawn: TypeAlias = Callable[[Callable[[], Coroutine[Any, Any, None]]], object]


@runtime_checkable
class SupportsDisconnect(Protocol):
    """A client that can end its backend: what `idle_guard(client=...)` takes."""

    async def disconnect(self) -> None:
        """End the backend."""
        ...


class Reporter(Protocol):
    """Where a teardown says what went wrong; reports reach events, never the consumer (D3)."""

    def disconnect_failed(self, error: BaseException) -> None:
        """A disconnect raised."""
        ...

    def disconnect_abandoned(self, bound: float) -> None:
        """A disconnect did not return within its bound."""
        ...


class Disconnecting:
    """The run of all disconnect callbacks, in the order in which they were written (D2)."""

    def __init__(
        self,
        disconnects: tuple[Disconnect, ...],
        bound: float,
        reporter: Reporter,
        loop: Loop,
    ) -> None:
        self._disconnects = disconnects
        self._bound = bound
        self._reporter = reporter
        self._loop = loop
        self._returned = anyio.Event()
        self._over = anyio.Event()
        self._host: anyio.CancelScope | None = None
        self._deadline = loop.clock() + bound
        self._all_returned = False

    def start(self, spawn: Spawn) -> None:
        """Begin, in a task of `spawn`. Returns at once."""
        if self._disconnects:
            # The callbacks run in a task of their own because only a task can be left behind: a
            # raw `wait_for` around a shielded close leaves the child alive, and no scope binds it.
            self._loop.spawn(self._call_all)
            spawn(self._bind)
        else:
            self._over.set()

    async def finish(self, cancellation: BaseException | None = None) -> None:
        """Wait until it is over, through one cancellation of the caller (D6).

        That one (`cancellation`, if it has come already) is raised afterwards. A second one
        (asyncio only) leaves the teardown running on its own.
        """
        if self._over.is_set() and cancellation is None:
            return
        try:
            await outlast(self._over, cancellation)
        except self._loop.cancelled:
            self._let_go()
            raise

    @property
    def outcome(self) -> DisconnectOutcome:
        """What became of the callbacks, as far as anybody waited for them."""
        if not self._disconnects:
            return "none"
        if not self._returned.is_set():
            return "abandoned"
        return "returned" if self._all_returned else "raised"

    async def _bind(self) -> None:
        """See that it is over by its deadline."""
        left = self._deadline - self._loop.clock()
        self._host = anyio.CancelScope(shield=True)
        with self._host, anyio.move_on_after(max(0.0, left)):
            await self._returned.wait()
        if self._host.cancelled_caught:
            self._loop.spawn(self._bind)
            return
        if not self._returned.is_set():
            self._reporter.disconnect_abandoned(self._bound)
        self._over.set()

    def _let_go(self) -> None:
        """Leave the caller's task group, if we are in one, and go on detached (D6)."""
        if self._host is not None and not self._over.is_set():
            self._host.cancel()

    async def _call_all(self) -> None:
        try:
            returned = [await self._call(disconnect) for disconnect in self._disconnects]
            self._all_returned = all(returned)
        finally:
            self._returned.set()

    async def _call(self, disconnect: Disconnect) -> bool:
        try:
            result = disconnect()
            if inspect.isawaitable(result):
                await result
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            if consists_of(error, self._loop.cancelled) and self._loop.is_cancelling():
                raise  # the loop is closing
            # It must not hide the verdict (D3), not even a stray CancelledError: a close that
            # awaits a task which it has cancelled itself often ends like that.
            self._reporter.disconnect_failed(error)
            return False
        return True


async def outlast(event: anyio.Event, kept: BaseException | None = None) -> None:
    """Wait for `event` through one cancellation of the caller, which is raised afterwards.

    Scopes of anyio and trio are shielded off and raise at the next checkpoint. Native asyncio
    cancels come through: the first is kept until the event, a second one ends the wait.
    """
    cancelled = anyio.get_cancelled_exc_class()
    with anyio.CancelScope(shield=True):
        while not event.is_set():
            try:
                await event.wait()
            except cancelled as error:
                if kept is not None:
                    raise
                kept = error
    if kept is not None:
        raise kept


class Bounded:
    """A step of the caller's own task that is cut when it takes too long.

    For a source's close, which must run in the task that iterated. A scope or a timeout around
    it would nest inside scopes that the source still has open (O4).
    """

    def __init__(self, loop: Loop, bound: float) -> None:
        self.entry: Entry | None = None
        self.context = contextvars.copy_context()
        self._loop = loop
        self._bound = bound
        self._parking = loop.parking()
        self._looks = 0
        self.was_cut = False

    async def run(self, awaitable: Awaitable[object]) -> None:
        """Await `awaitable`. When cut, whatever it then raises comes out: see `was_cut`."""
        try:
            await self._parking.take(lambda: steps_of(awaitable), self._begin)
        finally:
            self._loop.timekeeper.drop(self)
            self._parking.release()

    @property
    def is_overruled(self) -> bool:
        """Whether a cancellation that came out must go on: it was not ours alone."""
        return not self.was_cut or self._parking.is_overruled

    def _begin(self) -> None:
        self._loop.timekeeper.put(self, self._loop.clock() + self._bound)

    def on_time(self, now: float) -> bool:  # noqa: ARG002 - a sleeper's method
        return True

    def on_confirmed(self, now: float) -> None:
        self._looks += 1
        if self._parking.cut() is Cut.SENT:
            self.was_cut = True
        elif self._looks < _LOOKS:
            self._loop.timekeeper.put(self, now + UNWINDING / _LOOKS)


async def close_bounded(
    closers: Iterable[Callable[[], Awaitable[object] | object]], loop: Loop, bound: float
) -> bool:
    """Close a source in the caller's task; False if a close hung past its bound.

    What a close raises comes out, but for the GeneratorExit that a task group held open by a
    generator wraps and raises again: that is how such a generator closes (D6).
    """
    is_closed = True
    failure: Exception | None = None
    for closer in closers:
        close = Bounded(loop, bound)
        try:
            result = closer()
            if inspect.isawaitable(result):
                await close.run(result)
        except Exception as error:  # noqa: BLE001 - raised when the others had their turn
            failure = failure or error
        except BaseException as error:
            is_our_cut = consists_of(error, loop.cancelled) and not close.is_overruled
            is_closing = consists_of(error, GeneratorExit) and not isinstance(error, GeneratorExit)
            if not is_our_cut and not is_closing:
                raise
        is_closed = is_closed and not close.was_cut
    if failure is not None:
        raise failure
    return is_closed
