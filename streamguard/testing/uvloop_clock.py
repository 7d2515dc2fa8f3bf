"""uvloop in virtual time, found by looking: libuv cannot be asked whether it would sleep.

A *look* goes first in each pass of the loop, where libuv runs timers: after the outside was
asked, before what is ready. When `QUIET` looks in a row find that nothing is ready, and that no
socket, pipe or process has anything to say, time jumps to the next timer. Timers are kept here,
exact, not in libuv, which knows whole milliseconds only. Where there is no timer to jump to, no
look is queued either, and libuv sleeps in earnest until the outside wakes it.

Imports uvloop, so it is imported only for a run on uvloop.
"""

from __future__ import annotations

import asyncio
import math
import select
from collections.abc import Callable
from contextvars import Context
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final, TypeVarTuple, cast

import uvloop

from streamguard.testing import clocks
from streamguard.testing.jumping import JumpingLoop

Args = TypeVarTuple("Args")

# Some steps of a transport (a close that is handed on) take a pass and are seen by nobody.
QUIET: Final = 5
# Whoever has called one of these may wait for the outside, and is never taken for deadlocked:
# what uvloop still holds open it does not tell.
OUTSIDE: Final = (
    "add_reader",
    "add_writer",
    "connect_accepted_socket",
    "connect_read_pipe",
    "connect_write_pipe",
    "create_connection",
    "create_datagram_endpoint",
    "create_server",
    "create_unix_connection",
    "create_unix_server",
    "sock_accept",
    "sock_connect",
    "sock_recv",
    "sock_recv_into",
    "sock_sendall",
    "subprocess_exec",
    "subprocess_shell",
)


class VirtualUvloop(JumpingLoop, uvloop.Loop):  # type: ignore[misc]  # pyright: ignore[reportIncompatibleMethodOverride]
    """A uvloop event loop in virtual time, to be given wherever a loop factory is asked for."""

    def __init__(self, start: float = clocks.START, *, io_grace: float = 0.0) -> None:
        super().__init__()
        self._now = start
        self._io_grace = io_grace
        self._timers_to_come: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = count()
        # What libuv asks the outside with can be asked itself whether there is an answer.
        self._outside = select.poll()
        self._outside.register(cast("Any", self)._get_backend_id(), select.POLLIN)
        self._context = Context()  # a look is nobody's
        self._is_looking = False
        self._is_stirred = False  # something was scheduled since the last look
        self._quiet = 0
        self._had_grace = False
        self._went_outside = False
        self._alarm: asyncio.TimerHandle | None = None
        self._deadlock = ""

    def call_soon(
        self, callback: Callable[[*Args], object], *args: *Args, context: Context | None = None
    ) -> asyncio.Handle:
        self._look_on()
        self._is_stirred = True
        return super().call_soon(callback, *args, context=context)

    def call_soon_threadsafe(
        self, callback: Callable[[*Args], object], *args: *Args, context: Context | None = None
    ) -> asyncio.Handle:
        # No look from here: it is another thread. What the callback schedules brings it.
        self._is_stirred = True
        return super().call_soon_threadsafe(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Args], object],
        *args: *Args,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Args], object],
        *args: *Args,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heappush(self._timers_to_come, (when, next(self._numbers), timer))
        self._look_on()
        return timer

    def run_forever(self) -> None:
        self._look_on()
        super().run_forever()
        if self._deadlock:
            # Not from where it is found: uvloop hands what a callback raises to a handler.
            finding, self._deadlock = self._deadlock, ""
            raise clocks.DeadlockError(finding)

    async def getaddrinfo(self, *args: Any, **kwargs: Any) -> Any:
        """As ever, but the clock stands still meanwhile: it is a job in a thread of libuv's."""
        with self._held():
            return await super().getaddrinfo(*args, **kwargs)

    async def getnameinfo(self, *args: Any, **kwargs: Any) -> Any:
        """As ever, but the clock stands still meanwhile: it is a job in a thread of libuv's."""
        with self._held():
            return await super().getnameinfo(*args, **kwargs)

    def close(self) -> None:
        super().close()
        self._timers_to_come.clear()

    def _timer_handle_cancelled(self, timer: asyncio.TimerHandle) -> None:
        """A cancelled one, which this handle of asyncio's tells, is dropped when its time comes."""

    def _look_on(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if not self._is_looking:
            self._is_looking = True
            super().call_soon(self._look, context=self._context)

    def _look(self) -> None:
        self._is_looking = False
        if self._is_stirred or self._outside.poll(0):
            self._is_stirred = self._had_grace = False
            self._quiet = 0
        else:
            self._quiet += 1
        if self._quiet >= QUIET and not self._pass_time():
            return
        self._look_on()
        due_by = self._now
        while self._next_timer() <= due_by:
            self._quiet = 0
            heappop(self._timers_to_come)[2]._run()

    def _pass_time(self) -> bool:
        """Nothing can run now: whether something has changed. Else the outside is waited for."""
        if self._is_held():
            self._set_alarm(clocks.WORKER_LOOK, self._look_on)
        elif self._outside.poll(0):  # from a thread that has ended since the loop looked
            self._quiet = 0
            return True
        elif (due := self._next_timer()) < math.inf:
            if not (self._went_outside and self._io_grace) or self._had_grace:
                self._set_time(max(self._now, due))
                return True
            self._had_grace = True
            self._set_alarm(self._io_grace, self._look_on)
        elif not self._went_outside:
            self._set_alarm(clocks.UNANNOUNCED_THREADS, self._give_up)
        return False

    def _set_alarm(self, seconds: float, wake: Callable[[], None]) -> None:
        self._alarm = super().call_later(seconds, wake, context=self._context)

    def _give_up(self) -> None:
        self._deadlock = clocks.deadlock(self._now, map(repr, asyncio.all_tasks(self)))
        self.stop()

    def _next_timer(self) -> float:
        while self._timers_to_come and self._timers_to_come[0][2].cancelled():
            heappop(self._timers_to_come)
        return self._timers_to_come[0][0] if self._timers_to_come else math.inf


def _noting(method: Callable[..., Any]) -> Callable[..., Any]:
    def noted(self: VirtualUvloop, *args: Any, **kwargs: Any) -> Any:
        self._went_outside = True
        return method(self, *args, **kwargs)

    return noted


for _name in OUTSIDE:
    setattr(VirtualUvloop, _name, _noting(getattr(uvloop.Loop, _name)))
