"""`Block` and `Monitor`: a watch hosted by a TaskGroup, in an `async with` of the user's.

A block's scope is what `total` cancels, since it may strike while the consumer works; the group
hosts the teardown. `Monitor` is the same for loops that cannot be wrapped: there every limit cancels
the scope (O10). Verdicts surface at the `async with`, as themselves and never in a group of one (O5).
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, Self, cast

import anyio

from streamguard import _loops as loops
from streamguard._base.calling import refusing
from streamguard._base.tracebacks import trim
from streamguard._guard.attempt import Attempt
from streamguard._guard.modes import mode_in_force
from streamguard._loops import Cut, Host, Parking
from streamguard.errors import StreamGuardError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    from anyio.abc import TaskGroup

    from streamguard._guard.plan import Plan
    from streamguard._watch.watch import Limits
    from streamguard.activity import Activity
    from streamguard.events.kinds import StreamOutcome


class Closable(Protocol):
    """The source of a block, as far as leaving it goes."""

    @property
    def is_finished(self) -> bool:
        """Whether it came to its end by itself."""
        ...

    @property
    def has_failed(self) -> bool:
        """Whether it has raised an error of its own, and nothing came after that."""
        ...

    async def close(self) -> bool:
        """Close it; False if it did not close in time."""
        ...


class Block:
    """The task group and scope of one `async with`."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._group: TaskGroup | None = None
        self._host: Host | None = None
        self._cancelled: type[BaseException] = BaseException
        # What came out of a monitor's wait: the transport's, not the body's own.
        self.came_out: BaseException | None = None

    async def enter(self) -> None:
        """Open the group; the attempt begins here."""
        attempt = self._attempt
        if attempt.mode == "off":
            return
        loop = loops.current()
        self._host, self._cancelled = loop.host(), loop.cancelled
        self._group = anyio.create_task_group()
        await self._group.__aenter__()
        attempt.block, attempt.spawn = self, self._spawn
        try:
            if not attempt.is_begun:
                attempt.begin()
        except BaseException as error:
            attempt.block = attempt.spawn = None
            await self._leave_group(error)
            raise

    def _spawn(self, function: Callable[[], Coroutine[Any, Any, None]]) -> None:
        # By way of a task: under a plain `asyncio.run`, anyio knows its loop only inside of one,
        # and a deaf pull's teardown is started by a timer.
        loops.current().spawn(partial(self._start, function))

    async def _start(self, function: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self._group is not None:
            self._group.start_soon(function)
        else:
            await function()  # the block was left meanwhile

    def cut(self, *, force: bool = False) -> Cut:
        """Cancel the block. anyio and trio never cancel what has been answered (T9)."""
        assert self._group is not None
        # A body that unwinds for somebody else is left alone. Struck as well, it would raise our
        # verdict where the outer scope was first.
        if self._known_host().is_being_cancelled and not force:
            return Cut.FOREIGN
        self._group.cancel_scope.cancel()
        return Cut.SENT

    @property
    def _was_cut(self) -> bool:
        """Whether the block was cancelled: from then on its own scope's cancels are counted, too."""
        return self._group is not None and self._group.cancel_scope.cancel_called

    def used(self) -> None:
        """The host is at work, in a monitor, and waits for nothing."""
        # Not once the block was cut: its scope's own cancels are in the count from then on, and a
        # native cancel that comes just after it would be counted in with them, and forgotten.
        if self._host is not None and not self._was_cut:
            self._host.arrive()

    def _known_host(self) -> Host:
        """The host, knowing of the latest pull."""
        assert self._host is not None
        pull = self._attempt.pull
        # A native cancel that the body has swallowed stays in the task's count. The latest pull
        # has seen the count after that; measured from the block's entry, `total` could strike no
        # more.
        if pull is not None and pull is not self and not self._was_cut:  # as in `used`
            self._host.pulled(cast("Parking", pull))
        return self._host

    async def leave(self, exc: BaseException | None, source: Closable) -> bool:
        """Close the source, wait for the teardown, leave the group; raise the block's verdict.

        The source goes first: it may hold scopes open, and they lie within the group's.
        """
        attempt = self._attempt
        if self._group is None:
            await source.close()
            return False
        host = self._known_host()
        # Also an error that the body has raised while our cancel unwound it: it comes of the
        # verdict, and becomes its cause. Asked of `exc` alone, it would come out in the verdict's
        # place.
        is_cancelled = exc is not None and _stems_from(exc, self._cancelled)
        surfaces = attempt.leave(is_cancelled=is_cancelled)
        if is_cancelled and attempt.verdict is not None:
            # A pull may have concluded it meanwhile, and then the table is past "surfacing"; but a
            # cancel of ours is the verdict (T3). Without this the block would end in silence.
            surfaces = surfaces or self._was_cut
        # A verdict that a pull has raised is on its way through the body. A native cancel that
        # comes while the group is left must still be seen, and only the way of a verdict looks for
        # one.
        surfaces = surfaces or (exc is not None and exc is attempt.error)
        ended = _end_of(source, exc)
        closed, outcome = await self._end_all(exc, source)
        # From here on nothing may strike the block or be started in it: the group is being left.
        # And what is bound to the operator counts as in use for as long as the attempt has a
        # block.
        attempt.block = attempt.spawn = None
        try:
            swallowed = await self._leave_group(outcome)
        except BaseException as error:
            self._settle(error, ended, closed=closed)
            raise
        # What an observer has raised to end the program, where a timer could not raise it.
        if attempt.exit is not None:
            attempt.end(attempt.exit)
            raise attempt.exit
        if surfaces:
            return self._raise_verdict(exc, outcome, host, closed=closed)
        self._settle(exc, ended, closed=closed)
        if outcome is None or outcome is exc:  # nothing came on the way out: the group has its say
            return swallowed
        if not swallowed:  # the source's close has raised, and that is not our own cancel
            raise outcome
        # Our own cancel has cut the source's close short; what the body raised goes on all the
        # same. `swallowed` is about that cancel: returned, it would swallow the body's error.
        return exc is None or loops.consists_of(exc, self._cancelled)

    async def _end_all(
        self, exc: BaseException | None, source: Closable
    ) -> tuple[bool, BaseException | None]:
        """Close the source, and wait for the teardown: whether it closed, and what is raised."""
        closed, outcome = False, exc
        try:
            closed = await source.close()
        except BaseException as error:  # noqa: BLE001 - it is raised when all is left
            # What a close raises does not hide what the body did; a cancellation, or the end of
            # the program, goes before both.
            outcome = error if exc is None or not isinstance(error, Exception) else exc
        # The group hosts the teardown, and the group of a struck block is cancelled: left before
        # this, it would take the teardown with it, and no disconnect would ever be called.
        tearing_down = self._attempt.tearing_down
        if tearing_down is not None and not self._attempt.is_over:
            try:
                await tearing_down.finish()
            except BaseException as error:  # noqa: BLE001 - it is raised when all is left
                outcome = error
        return closed, outcome

    def _settle(
        self, exc: BaseException | None, ended: StreamOutcome | None, *, closed: bool
    ) -> None:
        """The attempt is over, and its verdict, if it has one, is not what the block raises."""
        if self._attempt.verdict is None:
            is_cancelled = exc is not None and loops.consists_of(exc, self._cancelled)
            self._attempt.end(exc, outcome=ended or ("cancelled" if is_cancelled else "left"))
        else:
            self._attempt.conclude(closed=closed, cause=exc)  # nobody asked any more (T3)

    def _raise_verdict(
        self, exc: BaseException | None, outcome: BaseException | None, host: Host, *, closed: bool
    ) -> bool:
        attempt = self._attempt
        verdict_error = attempt.conclude(closed=closed, cause=exc)
        if host.is_overruled or loops.is_exit(outcome, self._cancelled):
            # A native cancel, and the end of the program, outrank the verdict (T9). Asked only
            # now: the group has been left, and with it the cancels that its own scope has counted.
            if outcome is verdict_error and outcome is not None:
                # Its pull could not tell whose cancel it got, or had raised it before that came.
                # The task would end with a verdict though it was cancelled, and whoever cancelled
                # it would never hear.
                raise self._cancelled from outcome
            if outcome is exc:
                return False  # Python raises it, with its own traceback
            assert outcome is not None
            raise outcome
        if verdict_error is None:  # a normal end, but for an error of the body's own
            # What a monitor's wait gave to our cancel (`came_out`) is none: the turn ended well,
            # and a transport that complains of being closed fails it no more.
            return exc is None or exc is self.came_out or loops.consists_of(exc, self._cancelled)
        if (
            verdict_error is exc
        ):  # raised by a pull already: `from exc` would make it its own cause
            return False
        # Said anew: it may have been decided before the body raised what it now comes of.
        cause = verdict_error.__cause__
        if exc is not None and not loops.consists_of(exc, self._cancelled):
            cause = exc
        elif exc is not None:
            attempt.blame(verdict_error, exc)
        raise verdict_error from cause

    async def _leave_group(self, exc: BaseException | None) -> bool:
        """Leave the group; False if `exc`, or the cancellation that it is, must go on."""
        assert self._group is not None
        group, self._group = self._group, None  # it takes no more tasks: see `_start`
        was_cancelled = loops.consists_of(exc, self._cancelled)
        try:
            traceback = exc.__traceback__ if exc else None
            return bool(await group.__aexit__(type(exc) if exc else None, exc, traceback))
        except BaseException as raised:
            # anyio wraps whatever leaves a group, were it one error alone. That one comes out as
            # itself (O5): as a group it would pass every `except` that the user wrote for it.
            only = _only_one_of(raised)
            # trio copies a group that it has to look into, so the body's own is not known by
            # identity.
            is_copy = isinstance(exc, BaseExceptionGroup) and isinstance(only, BaseExceptionGroup)
            if exc is not None and (raised is exc or only is exc or is_copy):
                return False  # Python raises `exc` itself
            # Somebody else's cancellation, in a group: bare, as the scope that it is for expects
            # it.
            if was_cancelled and loops.consists_of(raised, self._cancelled):
                return False
            raise


def _end_of(source: Closable, exc: BaseException | None) -> StreamOutcome | None:
    """How a stream has ended by itself; None if its consumer left, with `exc`, before that."""
    if source.is_finished:
        return "completed"
    return "failed" if source.has_failed and isinstance(exc, Exception) else None


def _only_one_of(error: BaseException) -> BaseException | None:
    parts = _parts_of(error)
    return parts[0] if len(parts) == 1 else None


def _parts_of(error: BaseException) -> tuple[BaseException, ...]:
    if not isinstance(error, BaseExceptionGroup):
        return ()
    return cast("BaseExceptionGroup[BaseException]", error).exceptions


def _stems_from(error: BaseException | None, cancelled: type[BaseException]) -> bool:
    """Whether `error` is a cancellation, or was raised while one was being handled."""
    while error is not None:
        if isinstance(error, cancelled):
            return True
        if any(_stems_from(part, cancelled) for part in _parts_of(error)):
            return True
        error = error.__context__
    return False


class Monitor:
    """The guard as an object, for loops that cannot be wrapped.

    Tell it of each message with `saw(message)`, and of each wait with `with monitor.waiting():`.
    Until `waiting` is first used, all time between two messages counts as waiting.
    """

    def __init__(self, plan: Plan, limits: Limits, *, waits_since_prompt: bool = False) -> None:
        self._attempt = Attempt(plan, limits, mode_in_force(plan.mode))
        self._block = Block(self._attempt)
        self._marks_waits = False
        # The activity's `mark_prompt` has said when the first wait began.
        self._waits_since_prompt = waits_since_prompt

    @property
    def activity(self) -> Activity:
        """The live state of what is monitored."""
        return self._attempt.activity

    async def __aenter__(self) -> Self:
        if self._attempt.loop is not None:
            raise RuntimeError("a monitor guards one block: make another with operator.monitor()")
        await self._block.enter()
        self._attempt.pull = self._block
        if self._is_on:
            self._attempt.asked(since_prompt=self._waits_since_prompt)
        return self

    async def __aexit__(self, _kind: object, exc: BaseException | None, _trace: object, /) -> bool:
        raised = self._block.came_out
        has_failed = isinstance(raised, Exception) and not isinstance(raised, StopAsyncIteration)
        try:
            can_close = bool(self._attempt.plan.disconnects)
            monitored = _Monitored(exc is None, has_failed, can_close)
            return await self._block.leave(exc, monitored)
        except StreamGuardError as error:
            trim(error)
            raise
        finally:
            del raised
            self._block.came_out = None  # or it and this frame keep each other (O7)

    if not TYPE_CHECKING:  # so that a checker, too, says what is wrong
        __enter__ = __exit__ = refusing(
            "a monitor is entered with `async with`: async with operator.monitor() as monitor"
        )
        __aiter__ = __getitem__ = refusing(
            "a monitor gives no messages: iterate your stream inside of its block, and tell it of each "
            "message with monitor.saw(message)"
        )

    def saw(self, message: object) -> None:
        """A message came."""
        if not self._is_on:
            return
        self._block.used()
        waits = self._attempt.watch.waiting_since is not None
        self._attempt.received(message)
        if waits:
            self._attempt.asked()

    @contextmanager
    def waiting(self) -> Generator[None, None, None]:
        """Around each wait for the backend: only this time counts for `idle`."""
        if not self._is_on:
            yield
            return
        if not self._marks_waits:
            self._marks_waits = True
            self._attempt.answered()
        self._block.used()
        self._block.came_out = None
        self._attempt.asked()
        try:
            yield
        except BaseException as error:
            self._block.came_out = error
            raise
        finally:
            self._attempt.answered()

    @property
    def _is_on(self) -> bool:
        return self._attempt.is_open


@dataclass(frozen=True)
class _Monitored:
    """What a monitor is told of, which it cannot close. Its block's end is the stream's."""

    is_finished: bool
    has_failed: bool
    can_close: bool  # by its disconnect; without one, nothing is closed

    async def close(self) -> bool:
        return self.can_close
