"""trio: the timekeeper task, a scope around each suspension, detached system tasks."""

from __future__ import annotations

import contextvars
import math
from collections.abc import Callable, Coroutine
from typing import Any

import trio

from streamguard._base.waking import WakeTimer, wake_timer
from streamguard._loops import Bell, Cut, Detached, Host, Parking
from streamguard._loops.timekeeper import PASSES, Timekeeper

_RealClock = trio._core._run.SystemClock  # trio gives it no public name
_ours: trio.lowlevel.RunVar[TrioLoop] = trio.lowlevel.RunVar("streamguard")


def current() -> TrioLoop:
    """The running trio run; made once for each run."""
    try:
        return _ours.get()
    except LookupError:
        ours = TrioLoop()
        _ours.set(ours)
        return ours


class TrioTimekeeper(Timekeeper):
    """One system task for each run that has sleepers (T4).

    trio's own scope deadlines can neither wait for what has arrived nor only warn.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(clock)
        self._alarm: float | None = None
        self._nap: trio.CancelScope | None = None
        self._runs = False
        self._confirmations: list[Callable[[], None]] = []
        self._wake_timer: WakeTimer | None = None
        # The time of a virtual clock knows no sleep.
        self._may_sleep = isinstance(trio.lowlevel.current_clock(), _RealClock)

    def heed_sleep(self) -> None:
        is_news = self._sleeps is None
        super().heed_sleep()
        if is_news and self._nap is not None:
            self._nap.cancel()  # the next one hears of it

    def set_alarm(self, when: float | None) -> None:
        self._alarm = when
        if self._nap is not None:
            self._nap.deadline = -float("inf") if when is None else when
        elif not self._runs and when is not None:
            self._runs = True
            trio.lowlevel.spawn_system_task(self._run, name="streamguard timekeeper")

    async def _run(self) -> None:
        try:
            while self._alarm is not None:
                if self._sleeps is not None and self._may_sleep and self._wake_timer is None:
                    self._wake_timer = wake_timer()
                    self._may_sleep = self._wake_timer is not None
                with trio.CancelScope(deadline=self._alarm) as self._nap:
                    await self._sleep()
                self._nap = None
                await self._ring_if_due()
        finally:
            self._nap = None
            self._runs = False
            if self._wake_timer is not None:
                self._wake_timer.close()
                self._wake_timer = None

    async def _sleep(self) -> None:
        """Until the alarm, which cancels it, or until the machine has slept."""
        if self._wake_timer is not None:
            await trio.lowlevel.wait_readable(self._wake_timer)
            self._wake_timer.read()
            self.look_for_sleep()
        else:
            await trio.sleep_forever()

    async def _ring_if_due(self) -> None:
        # The alarm may have been put off, or off altogether, during the nap.
        if self._alarm is None or self._clock() < self._alarm:
            return
        self.ring()
        confirmations, self._confirmations = self._confirmations, []
        if confirmations:
            for _ in range(PASSES):
                await trio.lowlevel.checkpoint()
            for function in confirmations:
                function()

    def after_passes(self, function: Callable[[], None]) -> None:
        self._confirmations.append(function)


class TrioParking:
    """A suspended awaitable under a scope that surrounds each suspension and nothing else.

    A scope around the whole await would nest inside scopes that the upstream already has open,
    and kill the run (O4). A suspension that has its answer already is not cancelled by trio
    and is not taken for cancelled here: the next one may hang on (T9).
    """

    __slots__ = ("_scope", "_token", "cancels", "task")

    def __init__(self, token: trio.lowlevel.TrioToken) -> None:
        self._token = token
        self._scope: trio.CancelScope | None = None
        self.task: Any = None
        self.cancels = 0

    def arrive(self) -> bool:
        try:
            task = trio.lowlevel.current_task()
        except RuntimeError:
            return False
        if task is not self.task:
            # A task of another run, maybe in another thread: its clock and its scopes are others.
            if trio.lowlevel.current_trio_token() is not self._token:
                return False
            self.task = task
        return True

    def park(self) -> None:
        # A new one for each suspension, entered and left while the steps stand still. Between two of
        # them the source may open and close scopes of its own; one of ours around that would be left
        # out of order, and trio ends the whole run for it.
        self._scope = trio.CancelScope()
        self._scope.__enter__()

    def unpark(self) -> None:
        # Before the steps go on: trio tells of a cancel when what it has sent is looked into, which
        # is the source's own code, so `Cancelled` is raised in there, past our scope. And before
        # they are closed, inside out: the source leaves its own scopes then, and trio refuses to
        # leave one that still has another one within.
        # When a pull is collected, the run, or the task, is another or none: then the scope is gone
        # with the rest, and trio would only complain.
        if (scope := self._scope) is None:
            return
        self._scope = None
        is_here = trio.lowlevel.in_trio_task() and trio.lowlevel.current_task() is self.task
        if is_here:
            scope.__exit__(None, None, None)

    def cut(self, *, force: bool = False) -> Cut:
        if self._scope is None:
            return Cut.NOBODY
        # An outer scope was first, even if a shield keeps it off just now. Cut as well, the pull
        # would raise our verdict where its consumer's own scope had ended it.
        if not force and _is_being_cancelled(self._scope._cancel_status):
            return Cut.FOREIGN
        # A task that is scheduled to go on has no abort function. Its scope, cancelled now, would
        # be left without having cancelled anything, and we would wait for a cut that nobody has
        # felt.
        if not force and self.task._abort_func is None:
            return Cut.NOT_PARKED  # it has its answer: trio would not cancel it either
        self._scope.cancel()
        return Cut.SENT

    def release(self) -> None:
        """Nothing to undo: the scope is gone."""

    @property
    def is_overruled(self) -> bool:
        # Against an outer scope the first one wins: had it been first, there was no cut.
        return False

    @property
    def is_cancelled(self) -> bool:
        return trio.current_effective_deadline() == -math.inf


class TrioBell:
    """The task that waits, rescheduled."""

    __slots__ = ("_task",)

    def __init__(self) -> None:
        self._task: trio.lowlevel.Task | None = None

    async def wait(self) -> None:
        self._task = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._abort)

    def _abort(self, _raise_cancel: object) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED

    def ring(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            trio.lowlevel.reschedule(task)


class TrioHost:
    """What is around a block: scopes that may be cancelled before the block's own."""

    def __init__(self) -> None:
        self._status: Any = trio.lowlevel.current_task()._cancel_status

    def pulled(self, parking: Parking) -> None:
        """Scopes keep no count that could be left over."""

    def arrive(self) -> None:
        """Nor here."""

    @property
    def is_being_cancelled(self) -> bool:
        return _is_being_cancelled(self._status)

    @property
    def is_overruled(self) -> bool:
        return False  # trio has only scopes, and among them the first one wins


def _is_being_cancelled(status: Any) -> bool:
    """Whether the scope of `status` or one around it was cancelled, even through a shield.

    trio tells a task of its effective deadline only, which a shield hides, and only the task
    itself; so this reads what trio keeps to itself, as `_asyncio` does for the same question.
    """
    while status is not None:
        if status._scope.cancel_called:
            return True
        status = status.parent
    return False


class TrioLoop:
    """The interface of `streamguard._loops.Loop` over one trio run."""

    cancelled: type[BaseException] = trio.Cancelled
    timers_may_exit = False

    def __init__(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self.clock = trio.lowlevel.current_clock().current_time
        self.timekeeper: Timekeeper = TrioTimekeeper(self.clock)

    def current_task(self) -> object:
        return trio.lowlevel.current_task()

    def parking(self) -> Parking:
        return TrioParking(self._token)

    def bell(self) -> Bell:
        return TrioBell()

    def host(self) -> Host:
        return TrioHost()

    def spawn(
        self, function: Callable[[], Coroutine[Any, Any, None]], *, name: str = "teardown"
    ) -> Detached:
        scope = trio.CancelScope()

        async def run() -> None:
            with scope:
                if not scope.cancel_called:  # a task of asyncio's would not begin either
                    await function()

        trio.lowlevel.spawn_system_task(
            run, name=f"streamguard {name}", context=contextvars.copy_context()
        )
        return scope

    def submit(self, function: Callable[[], object]) -> None:
        self._token.run_sync_soon(function)

    def is_cancelling(self) -> bool:
        return True  # trio delivers Cancelled to nobody else

    def is_running_here(self) -> bool:
        try:
            return trio.lowlevel.current_trio_token() is self._token
        except RuntimeError:
            return False
