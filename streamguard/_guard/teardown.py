"""Interrupt, disconnect, then reap: bounded, shielded, in tasks of their own.

A teardown is started once, by whoever first knows that the verdict is final: the consumer, when its
pull has unwound, or the timekeeper, when it does not. The consumer then waits for its end. Knows
callbacks, a process to be ended, bounds and the loop; nothing of limits, streams or resume.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, runtime_checkable

import anyio
from anyio import lowlevel

from streamguard import events
from streamguard._base.tracebacks import Raised
from streamguard._loops import Cut, consists_of, steps_of, taken
from streamguard._watch.watch import LATE, STALL_EXTENSION
from streamguard.errors import Teardown

if TYPE_CHECKING:
    from streamguard._guard.knobs import Disconnect
    from streamguard._guard.supervision import Supervision
    from streamguard._loops import Detached, Loop, Parking
    from streamguard._loops.timekeeper import Entry
    from streamguard.errors import DisconnectOutcome
    from streamguard.events.teller import Teller
    from streamguard.process import ProcessTree, Termination

# How long a cancelled pull may take to unwind before teardown starts without it (O6).
UNWINDING: Final = 5.0
# How long an interrupt may take to bring the turn's end.
INTERRUPTING: Final = 5.0
# How long a source may take to close when its consumer leaves early.
LEAVING: Final = 5.0
# Between the cancels of a close that is past its bound and has swallowed one (O6).
_AGAIN: Final = 1.0
# How long an abandoned disconnect may take to return once the process is dead.
_LATE_RETURN: Final = 1.0
_LOOKS: Final = 100

# Starts a coroutine function in a task: detached, or in the monitor's task group.
Spawn: TypeAlias = Callable[[Callable[[], Coroutine[Any, Any, None]]], object]


@runtime_checkable
class SupportsDisconnect(Protocol):
    """A client that can end its backend: what `idle_guard(client=...)` takes."""

    async def disconnect(self) -> None:
        """End the backend."""
        ...


class InterruptRun:
    """One run of the interrupts, in a task of its own, while the pull is still pending (D1).

    How long it may take is its owner's to say: `stop` cancels what a cancel can reach. `failed` is
    held weakly: a stream that was abandoned meanwhile must go, and this with it (O7).
    """

    def __init__(
        self,
        interrupts: tuple[Disconnect, ...],
        loop: Loop,
        failed: Callable[[BaseException], None],
    ) -> None:
        self._interrupts = interrupts
        self._failed = weakref.WeakMethod(failed)
        self._loop = loop
        self._task: Detached | None = loop.spawn(self._run, name="interrupt")

    def stop(self) -> None:
        """It is over, or has taken too long: what it comes to does not matter any more."""
        if self._task is not None:
            task, self._task = self._task, None
            task.cancel()

    async def _run(self) -> None:
        await (
            lowlevel.checkpoint()
        )  # an eager task would fail before anybody has heard of this run
        for interrupt in self._interrupts:
            error = await _failure_of(interrupt, self._loop)
            failed = self._failed()
            if error is not None and self._task is not None and failed is not None:
                failed(error)
                return


class TearingDown:
    """One run of it: the disconnects, in the order in which they were written, then the tree.

    `disconnect_timeout` bounds all disconnects together (D2), `kill_grace` is the tree's (D4).
    """

    def __init__(
        self,
        teller: Teller,
        loop: Loop,
        supervision: Supervision | None,
        *,
        disconnects: tuple[Disconnect, ...],
        disconnect_timeout: float,
        kill_grace: float,
        evidence: tuple[Callable[[], Awaitable[object]], ...] = (),
    ) -> None:
        self.termination: Termination | None = None
        self._disconnects = disconnects
        self._bound = disconnect_timeout
        self._supervision = supervision
        self._kill_grace = kill_grace
        self._evidence = evidence
        self._tell = teller.tell
        self._loop = loop
        self.began = loop.clock()
        self._host: anyio.CancelScope | None = None
        self._deadline: float | None = None
        self._tree_ended: anyio.Event | None = None
        self._give_back_tree: Callable[[], object] = _nothing
        self._has_looked: anyio.Event | None = anyio.Event() if supervision is not None else None
        self._then: list[Callable[[], object]] = []
        self._all_returned = False
        self.raised: list[Raised] = []  # by the disconnects
        self._is_abandoned = False
        if self._disconnects or supervision is not None or evidence:
            self._returned = anyio.Event()
            self._over: anyio.Event | None = anyio.Event()
        else:
            self._over = None  # nothing to do, and so nothing that it costs

    def start(self, spawn: Spawn, then: Callable[[], object] | None = None) -> None:
        """Begin, in a task of `spawn`. Returns at once; calls `then` at its end."""
        if self._over is not None:
            self._then += [then] if then is not None else []
            self._keep_tree()
            spawn(self._run)
        elif then is not None:
            then()

    async def finish(self, cancellation: BaseException | None = None) -> None:
        """Wait until it is over, through one cancellation of the caller (D6).

        That one (`cancellation`, if it has come already) is raised afterwards. A second one
        (asyncio only) leaves the teardown running on its own.
        """
        if self._over is None or self._over.is_set():
            if cancellation is not None:
                raise cancellation
            return
        try:
            await outlast(self._over, cancellation)
        except BaseException:  # KeyboardInterrupt, too: nobody waits any more
            self._let_go()
            raise

    async def before_closing(self, cancellation: BaseException | None) -> BaseException | None:
        """Wait until it is known who belongs to the process; the caller's cancellation meanwhile.

        A process may end as its source is closed, and children that left its group are then
        nobody's.
        """
        if self._has_looked is not None:
            try:
                await outlast(self._has_looked, cancellation)
            except self._loop.cancelled as error:
                return error
        return cancellation

    def when_over(self, then: Callable[[], object]) -> None:
        """Call `then` at its end; now, if that was reached."""
        if self._over is None or self._over.is_set():
            then()
        else:
            self._then.append(then)

    @property
    def outcome(self) -> DisconnectOutcome:
        """What became of the disconnects, as far as anybody waited for them."""
        if not self._disconnects:
            return "none"
        if self._is_abandoned or not self._returned.is_set():
            return "abandoned"  # also if the tree's end let it return after all
        return "returned" if self._all_returned else "raised"

    @property
    def tree(self) -> ProcessTree | None:
        """The process that is to be ended, if there is one."""
        return self._supervision.tree if self._supervision is not None else None

    def result(self, *, closed: bool, was_forced: bool) -> Teardown:
        """What was done, and whether the backend's end is certain (D5).

        `closed`: the source was. `was_forced`: its pull had to be cancelled again.
        """
        outcome, elapsed = self.outcome, self._loop.clock() - self.began
        raised = ", ".join(each.what for each in self.raised)
        if (ended := self.termination) is not None:
            return Teardown(
                confirmed=ended.confirmed,  # which alone suffices
                disconnect=outcome,
                disconnect_error=raised,
                elapsed=elapsed,
                signals=ended.signals,
                exit=ended.exit,
                survivors=ended.survivors,
                tree=ended.cause,
            )
        was_left = self._supervision is not None and self.tree is not None  # cancelled twice (D6)
        # Without a disconnect, all depends on a source that has ended when it was asked to.
        returned = outcome == "returned" or (outcome == "none" and not was_forced)
        return Teardown(
            confirmed=closed and returned and not was_left,
            disconnect=outcome,
            disconnect_error=raised,
            elapsed=elapsed,
            tree="unproven" if was_left else None,
        )

    async def _run(self) -> None:
        """See all of it through; in a task that may have to be left (D6)."""
        self._host = anyio.CancelScope(shield=True)
        try:
            with self._host:
                await self._disconnect()
                if self._supervision is not None and (tree := self.tree) is not None:
                    await self._end_tree(tree)
                if self._is_abandoned and self.termination is not None:
                    # What it hung on may just have ended: its client must not be met in mid-close.
                    with anyio.move_on_after(_LATE_RETURN):
                        await self._returned.wait()
                # Evidence comes before the error does (D1); it has a bound of its own.
                evidence, self._evidence = self._evidence, ()
                for written in evidence:
                    await written()
        except self._loop.cancelled:  # the loop ends first
            if (tree := self.tree) is not None and self.termination is None:
                tree.kill()
            raise
        finally:
            if self._host.cancelled_caught:
                self._loop.spawn(self._run)  # which goes on where this one was
            else:  # also when the program exits: nobody may wait for this for ever
                assert self._over is not None
                self._over.set()
                self._let_close()
                self._give_back_tree()
                for then in self._then:
                    then()

    def _keep_tree(self) -> None:
        """Hold it until we are done: its session may end, and close it, meanwhile."""
        if (tree := self.tree) is not None:
            give_back, self._give_back_tree = self._give_back_tree, tree.keep()
            give_back()

    def _let_close(self) -> None:
        if self._has_looked is not None:
            self._has_looked.set()

    def _let_go(self) -> None:
        """Leave the caller's task group, if we are in one, and go on detached (D6)."""
        if self._host is not None and self._over is not None and not self._over.is_set():
            self._host.cancel()

    async def _disconnect(self) -> None:
        if self._deadline is None:
            if self._supervision is not None:
                await self._supervision.look()
                self._keep_tree()  # it may have been found just now
                self._let_close()
            # In a task of their own, because only a task can be left behind: a raw `wait_for`
            # around a shielded close leaves the child alive, and no scope binds it.
            self._deadline = self._loop.clock() + self._bound
            self._loop.spawn(self._call_all, name="disconnect")
        with anyio.move_on_after(max(0.0, self._deadline - self._loop.clock())):
            await self._returned.wait()
        if self._returned.is_set() or self._is_abandoned:
            return
        if self._loop.clock() - self._deadline > LATE:
            # The loop was blocked, and what only waited for it has had no time (T4).
            with anyio.move_on_after(min(self._bound, STALL_EXTENSION)):
                await self._returned.wait()
        if not self._returned.is_set():
            self._is_abandoned = True
            self._tell(events.DisconnectAbandoned, bound=self._bound)

    async def _end_tree(self, tree: ProcessTree) -> None:
        if self._tree_ended is None:
            self._tree_ended = anyio.Event()
            # It shields off what would leave this task, so it has one of its own, too.
            self._loop.spawn(partial(self._terminate, tree, self._tree_ended), name="tree's end")
        await self._tree_ended.wait()

    async def _terminate(self, tree: ProcessTree, over: anyio.Event) -> None:
        try:
            self.termination = ended = await tree.terminate(self._kill_grace)
            if ended.signals:
                self._tell(
                    events.ProcessKilled,
                    pid=tree.pid,
                    signals=ended.signals,
                    exit=ended.exit,
                    elapsed=ended.elapsed,
                )
            if not ended.confirmed:
                self._tell(events.ProcessSurvived, pid=tree.pid, survivors=ended.survivors)
        finally:
            over.set()

    async def _call_all(self) -> None:
        try:
            errors: list[BaseException] = []
            for call in self._disconnects:
                error = await _failure_of(call, self._loop)
                errors += [] if error is None else [error]
            self.raised = [Raised.by("disconnect", error) for error in errors]
            self._all_returned = not errors
            for error in errors:
                self._tell(events.DisconnectFailed, error=error)
        finally:
            self._returned.set()


def _nothing() -> None:
    pass


async def _failure_of(callback: Disconnect, loop: Loop) -> BaseException | None:
    """Call and await `callback`; what it raised, which must not hide the verdict (D3)."""
    try:
        result = callback()
        if inspect.isawaitable(result):
            await result
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if consists_of(error, loop.cancelled) and loop.is_cancelling():
            raise  # the loop is closing
        if isinstance(error, GeneratorExit) and not loop.is_running_here():
            raise  # this is being collected, after the loop
        # Not even a stray CancelledError goes on: a close that awaits a task which it has
        # cancelled itself often ends like that.
        return error
    return None


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
    it would nest inside scopes that the source still has open (O4). What swallows the cut is cut
    again, each second, for nothing that it could still do counts (O6).
    """

    def __init__(self, loop: Loop, bound: float) -> None:
        self.entry: Entry | None = None
        self._loop = loop
        self._bound = bound
        self._parking: Parking | None = None  # most closes do not wait
        self._looks = 0
        self._is_past = False  # cancelled already, by us or somebody else
        self.was_cut = False

    async def run(self, awaitable: Awaitable[object]) -> None:
        """Await `awaitable`. When cut, whatever it then raises comes out: see `was_cut`."""
        try:
            await taken(steps_of(awaitable), self._wait)
        finally:
            if self._parking is not None:
                self._loop.timekeeper.drop(self)
                self._parking.release()

    @property
    def is_overruled(self) -> bool:
        """Whether a cancellation that came out must go on: it was not ours alone."""
        return not self.was_cut or self._parking is None or self._parking.is_overruled

    def _wait(self) -> Parking:
        self._parking = parking = self._loop.parking()
        parking.arrive()
        self._loop.timekeeper.put(self, self._loop.clock() + self._bound)
        return parking

    def on_time(self, now: float) -> bool:  # noqa: ARG002 - a sleeper's method
        return True

    def on_confirmed(self, now: float) -> None:
        assert self._parking is not None
        self._looks += 1
        # What is never found parked awaits too often to be caught waiting.
        cut = self._parking.cut(force=self._is_past or self._looks > _LOOKS)
        self.was_cut = self.was_cut or cut is Cut.SENT
        # Somebody else's cancel may have come, and been kept out by a shield within the close.
        self._is_past = cut is not Cut.NOT_PARKED
        self._loop.timekeeper.put(self, now + (_AGAIN if cut is Cut.SENT else UNWINDING / _LOOKS))


async def close_bounded(
    closers: Sequence[Callable[[], Awaitable[object] | object]], loop: Loop, bound: float
) -> bool:
    """Close a source in the caller's task; False if a close hung past its share of the bound.

    What a close raises comes out, but for the GeneratorExit that a task group held open by a
    generator wraps and raises again: that is how such a generator closes (D6).
    """
    is_closed = True
    failure: Exception | None = None
    for closer in closers:
        close = Bounded(loop, bound / len(closers))
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
