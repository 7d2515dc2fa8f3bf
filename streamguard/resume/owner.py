"""`Owner`: the one task that opens a connection, iterates it and closes it (R2).

What a connection holds open (task groups, scopes, sockets) is entered, used and left in this task,
whatever becomes of the consumer. Opening is part of the first pull: a backend that does not let us
in keeps us waiting, and every limit sees it. An owner ends

- when its consumer leaves: its pull is cut, and everything is closed;
- with a verdict or an error: the same, and the consumer learns of it when the owner has ended, since
  only then may the session be resumed (D5);
- or not at all, if the upstream is deaf. Then its *warden* disconnects what can be disconnected, and
  leaves it behind: the consumer is released, and the end counts as not confirmed (O6).

It is detached, for an upstream that never ends must not hold up whoever waits for a task group. The
session that has started it waits for it, as long as there is hope. Knows attempts, sources and
teardown; nothing of retries or turns.
"""

from __future__ import annotations

import inspect
from collections.abc import Generator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

import anyio

from streamguard import events, loops
from streamguard.attempt import Attempt
from streamguard.errors import StreamGuardError, StreamInterruptedError, StreamTruncatedError
from streamguard.guarded import GuardedIterator
from streamguard.loops import Cut, by_hand
from streamguard.resume.ledger import Noted
from streamguard.resume.points import Connection
from streamguard.resume.slot import Slot
from streamguard.sources import Source
from streamguard.teardown import UNWINDING, Bounded, TearingDown

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from streamguard.events import AttemptOutcome
    from streamguard.loops import Loop
    from streamguard.plan import Plan
    from streamguard.process import ProcessTree
    from streamguard.resume.hosting import Hosting
    from streamguard.resume.ledger import Ledger
    from streamguard.resume.points import Opener, ResumePoint

T = TypeVar("T")

# Between looks at a pull that cannot be cut yet.
_LOOK: Final = 0.1


class Owner(Generic[T]):
    """One attempt: a connection, and the task that has it.

    `failure`: what ended it, when the slot is closed; None after a turn that just ended.
    `confirmed`: whether its backend is certainly gone, when it is `released`.
    `failed_to_close`: whether nothing had failed before it was closed.
    `ended_at`: when it began to end, on the loop's clock.
    """

    def __init__(
        self, hosting: Hosting, plan: Plan, opener: Opener[T], point: ResumePoint
    ) -> None:
        self.point = point
        self.slot = Slot[T](hosting.loop)
        self.failure: BaseException | None = None
        self.confirmed = True
        self.is_abandoned = False
        self.failed_to_close = False
        self.is_pulling = False
        self.is_ending = False
        self.ended_at = 0.0
        self.attempt: Attempt | None = None
        # It has ended, or was left behind: nobody need wait any more. Then its warden ends, too.
        self.released = anyio.Event()
        self.seen_off = anyio.Event()
        self._hosting = hosting
        self._plan = replace(plan, observers=(*plan.observers, self._on_event))
        self._opener = opener
        self._loop: Loop = hosting.loop
        self._manager: AbstractAsyncContextManager[Any] | None = None
        self._connection: Connection[T] | None = None
        self._messages: GuardedIterator[T] | None = None
        self._noted: Noted | None = None
        self._tree: ProcessTree | None = None
        self._turn = anyio.Event()
        self._is_stopping = False
        self._was_left_by_error = False
        self._has_turn_ended = False
        self._is_between_turns = False
        # The pull is over, and what is left is closing.
        self.unwound = anyio.Event()

    # -- the consumer's side ---------------------------------------------------------------

    @property
    def can_serve(self) -> bool:
        """Whether another prompt can be sent over the same connection."""
        return (
            self._is_between_turns
            and not self.is_ending
            and self._connection is not None
            and not hasattr(type(self._connection.source), "__aiter__")
        )

    def begin(self, prompt: str | None, ledger: Ledger) -> None:
        """One more turn: its messages come through the slot."""
        now = self._loop.clock()
        attempt = Attempt(self._plan, self._hosting.limits, self._hosting.mode)
        attempt.lease()  # said to the consumer at once, since another attempt would not help
        attempt.reading = self._noted = Noted(self._plan.backend, ledger, self._loop.clock)
        # `total` has run since the session's block was entered, and a prompt opens a turn.
        attempt.watch.started = self._hosting.started
        attempt.watch.mark_prompt(now)
        ledger.begin(attempt, now)
        is_first = self.attempt is None
        self.failure = None
        self.attempt = attempt
        self._messages = GuardedIterator(_Feed(self, prompt), attempt)
        self._has_turn_ended = False
        self.unwound = anyio.Event()
        if is_first:
            self._loop.spawn(self._run, name="owner")
        else:
            self._is_between_turns = False
            self.slot.is_closed = False
            self._turn.set()

    def left_waiting(self) -> None:
        """The consumer does not wait any more, though the pull goes on: no silence counts (T1)."""
        if self._keeps_waiting and self.attempt is not None:
            self.attempt.answered()

    def waits_again(self) -> None:
        """The consumer is back."""
        if self._keeps_waiting and self.attempt is not None:
            self.attempt.asked()

    @property
    def _keeps_waiting(self) -> bool:
        attempt = self.attempt
        return (
            self.is_pulling
            and attempt is not None
            and attempt.loop is not None
            and not attempt.is_over
            and attempt.verdict is None
        )

    def stop(self, *, by_error: bool = False) -> None:
        """The consumer leaves. Returns at once; `released` tells when it is done."""
        if self._is_stopping:
            return
        self._is_stopping = True
        self._was_left_by_error = by_error
        if self.attempt is None:
            self.released.set()
            self.seen_off.set()
            return
        self.slot.close()
        self._turn.set()
        self._begin_ending()

    # -- the task --------------------------------------------------------------------------

    async def _run(self) -> None:
        failure: BaseException | None = None
        try:
            await self._play()
            while not self._is_done:
                await self._wait_for_turn()
                await self._play()
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001 - it is the consumer's, when all is closed
            failure = None if self._is_of_our_cut(error) else error
        self.is_pulling = False
        self.unwound.set()
        self._begin_ending()
        confirmed = False
        try:
            failure, confirmed = await self._leave(failure)
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001 - it is the consumer's, too
            failure = self._worse(failure, error)
        self._release(failure, confirmed=confirmed)

    async def _play(self) -> None:
        """One turn, message by message."""
        assert self._messages is not None
        assert self._noted is not None
        slot, noted, ask = self.slot, self._noted, self._messages.__anext__
        while await slot.asked() or self._is_spent:  # a verdict is concluded by one more pull
            self.is_pulling = True
            try:
                message = await ask()
            except StopAsyncIteration:
                self._has_turn_ended = True
                break
            except StreamGuardError as error:
                if not self._is_spared:
                    raise
                self.failure = error  # and the connection is as good as it was
                break
            self.is_pulling = False
            if not noted.is_replayed:
                slot.put(message)
        self.is_pulling = False

    async def _wait_for_turn(self) -> None:
        self._turn = anyio.Event()
        self._is_between_turns = True
        self.slot.close()
        await self._turn.wait()

    @property
    def _is_done(self) -> bool:
        return self._is_stopping or self._is_spent

    @property
    def _is_spent(self) -> bool:
        """Whether the turn's normal end was made by disconnecting."""
        return (
            self.attempt is not None
            and self.attempt.verdict is not None
            and not self.attempt.is_spared
        )

    @property
    def _is_spared(self) -> bool:
        """Whether the turn's verdict leaves the connection alone."""
        return self.attempt is not None and self.attempt.is_spared and not self._is_stopping

    def _is_of_our_cut(self, error: BaseException) -> bool:
        return self._is_stopping and loops.consists_of(error, self._loop.cancelled)

    # -- opening -----------------------------------------------------------------------------

    async def source_of(self, prompt: str | None) -> Source:
        """The source of a turn, in the connection that is opened for it if there is none."""
        if self._connection is None:
            await self._connect()
        assert self._connection is not None
        origin: Any = self._connection.source
        if not hasattr(cast("object", type(origin)), "__aiter__"):
            if prompt is None:
                raise TypeError(
                    "there is no prompt to send: give one to session(open, prompt=...), or ask it "
                    "with chat.ask(...) instead of iterating the chat itself"
                )
            origin = origin(prompt)
            if inspect.isawaitable(origin):
                origin = await origin
        return Source(origin, aiter(origin))

    async def _connect(self) -> None:
        manager: Any = self._opener(self.point)
        if not hasattr(cast("object", type(manager)), "__aenter__"):
            if inspect.iscoroutine(manager):
                manager.close()
            raise TypeError(
                f"open(point) gave {manager!r}, which is no async context manager: write "
                "@contextlib.asynccontextmanager over `async def open(point)`, and yield the stream "
                "or the Connection"
            )
        opened: Any = await manager.__aenter__()
        self._manager = manager
        is_packed = isinstance(opened, Connection)
        self._connection = cast("Connection[T]", opened) if is_packed else Connection(opened)
        plan = self._connection.over(self._plan)
        if plan.process is not None:
            plan = replace(plan, process=partial(self._named, plan.process))
        self._plan = plan
        assert self.attempt is not None
        self.attempt.connected(plan)
        self._hosting.on_open(self.point)

    def _named(self, process: Any) -> ProcessTree | None:
        """The tree of the connection's process: adopted once, for all of its turns."""
        if self._tree is None:
            from streamguard.process import ProcessTree

            is_function = callable(process) and not hasattr(process, "pid")
            target: Any = process() if is_function else process
            if target is not None:
                is_theirs = isinstance(target, ProcessTree)
                self._tree = target if is_theirs else ProcessTree.adopt(target)
        return self._tree

    # -- closing -----------------------------------------------------------------------------

    async def _leave(self, failure: BaseException | None) -> tuple[BaseException | None, bool]:
        """Close the turn's source, then the connection: what ended it, and whether it is gone."""
        closed = True
        if self._messages is not None:
            try:
                closed = await self._messages.close()
            except Exception as error:  # noqa: BLE001 - what came before it goes first
                failure, closed = self._worse(failure, error), False
        if self._manager is not None:
            failure, left = await self._leave_connection(self._manager, failure)
            closed = closed and left
        confirmed = await self._is_gone(failure, closed=closed)
        if self.attempt is not None:
            self.attempt.end(failure)
        return failure, confirmed

    async def _leave_connection(
        self, manager: AbstractAsyncContextManager[Any], failure: BaseException | None
    ) -> tuple[BaseException | None, bool]:
        """Leave what `open` gave, as an `async with` around the loop would."""
        seen = failure or (self._interruption() if self._was_left_by_error else None)
        swallowed: list[object] = []
        closing = Bounded(self._loop, self._plan.disconnect_timeout)

        async def leave() -> None:
            exit_ = type(manager).__aexit__
            traceback = seen.__traceback__ if seen is not None else None
            swallowed.append(await exit_(manager, type(seen) if seen else None, seen, traceback))

        is_cancel = loops.consists_of(failure, self._loop.cancelled)
        try:
            await closing.run(leave())
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001 - it is the consumer's, or was before
            if _is_of(error, seen):
                pass
            elif loops.consists_of(error, self._loop.cancelled) and not closing.is_overruled:
                pass  # it took too long
            elif is_cancel:
                return error, True  # what had cancelled us from within
            elif error.__cause__ is seen is not None:
                return self._translated(failure, error), True
            else:
                return self._worse(failure, error), False
        else:
            if is_cancel and swallowed[0]:
                return StreamTruncatedError(
                    "the stream was cut by a scope that open() holds around it, and that let it "
                    "end in silence: what it had yet to say is missing",
                    activity=self._plan.activity,
                ), True
        return failure, not closing.was_cut

    def _translated(
        self, failure: BaseException | None, error: BaseException
    ) -> BaseException | None:
        """`open` says what ended it in its own words; a verdict keeps its type."""
        return failure if isinstance(failure, StreamGuardError) or failure is None else error

    def _interruption(self) -> StreamInterruptedError:
        return StreamInterruptedError(
            "the session's block was left by an error or a cancellation",
            activity=self._plan.activity,
        )

    def _worse(self, failure: BaseException | None, error: BaseException) -> BaseException:
        """What is raised of the two; the other one is reported."""
        if failure is None:
            self.failed_to_close = True
            return error
        self._hosting.tell(events.CloseFailed, attempt=self.point.attempt, error=error)
        return failure

    async def _is_gone(self, failure: BaseException | None, *, closed: bool) -> bool:
        """Whether the backend has certainly ended (D5)."""
        verdict_error = failure if isinstance(failure, StreamGuardError) else None
        teardown = verdict_error.teardown if verdict_error is not None else None
        tree = self._tree
        try:
            if teardown is not None and verdict_error is not None:
                if teardown.tree is None and not closed:
                    teardown = verdict_error.teardown = replace(teardown, confirmed=False)
                return teardown.confirmed
            if tree is None or failure is None:
                return closed
            ended = await tree.terminate(self._plan.kill_grace)
            return ended.confirmed
        finally:
            if tree is not None:
                tree.close()

    def _release(self, failure: BaseException | None, *, confirmed: bool) -> None:
        if self.released.is_set():
            return  # it was left behind, and ended after all
        self.failure, self.confirmed = failure, confirmed
        outcome: AttemptOutcome = "completed"
        if failure is not None:
            outcome = "failed"
        elif self._is_stopping and not self._has_turn_ended:
            outcome = "left"
        self._hosting.tell(
            events.AttemptEnded,
            attempt=self.point.attempt,
            outcome=outcome,
            error=failure,
            confirmed=confirmed,
        )
        self.slot.close()
        self.released.set()
        if not self.is_abandoned:  # what was open must not live on with an error's traceback
            self._messages = self._connection = self._manager = self._noted = None

    # -- the warden --------------------------------------------------------------------------

    def _on_event(self, event: events.Event) -> None:
        match event:
            case events.PullDeaf():
                self._begin_ending(is_deaf=True)
            case events.TimedOut(enforced=True) if not self._is_spared:
                self._begin_ending()
            case _:
                pass

    def _begin_ending(self, *, is_deaf: bool = False) -> None:
        if not self.is_ending:
            self.is_ending, self.ended_at = True, self._loop.clock()
            self._loop.spawn(partial(self._see_off, is_deaf=is_deaf), name="warden")

    async def _see_off(self, *, is_deaf: bool) -> None:
        """See that the owner ends; leave it behind if it does not."""
        try:
            await self._see_that_it_ends(is_deaf=is_deaf)
        finally:
            self.seen_off.set()

    async def _see_that_it_ends(self, *, is_deaf: bool) -> None:
        attempt = self.attempt
        assert attempt is not None
        if self.is_pulling and attempt.verdict is None:
            await self._cut_pull(attempt)
        if is_deaf or not await self._within(UNWINDING, self.unwound):
            await self._tear_down(attempt)
            if not await self._within(UNWINDING, self.unwound):
                self._abandon(attempt)
                return
        # The source, then the connection; both are cut when they take too long.
        bound = 3 * self._plan.disconnect_timeout + 4 * (self._plan.kill_grace + UNWINDING)
        if not await self._within(bound, self.released):
            self._abandon(attempt)

    async def _cut_pull(self, attempt: Attempt) -> None:
        """Cancel the pull, as soon as that loses nothing; for as long as unwinding may take."""
        with anyio.move_on_after(UNWINDING):
            while not self.unwound.is_set() and attempt.verdict is None:
                if attempt.pull is not None and attempt.pull.cut() is Cut.SENT:
                    return
                await self._within(_LOOK, self.unwound)

    async def _tear_down(self, attempt: Attempt) -> None:
        """What ends a deaf stream (O6)."""
        if attempt.verdict is not None:
            await attempt.torn_down()
            return
        tearing_down = TearingDown(
            attempt,
            self._loop,
            disconnects=self._plan.disconnects,
            disconnect_timeout=self._plan.disconnect_timeout,
            supervision=attempt._supervision,
            kill_grace=self._plan.kill_grace,
        )
        tearing_down.start(self._loop.spawn)
        await tearing_down.finish()

    async def _within(self, bound: float, event: anyio.Event) -> bool:
        with anyio.move_on_after(bound):
            await event.wait()
        return event.is_set()

    def _abandon(self, attempt: Attempt) -> None:
        if self.released.is_set():
            return
        self.is_abandoned = True
        self._hosting.tell(events.OwnerAbandoned, attempt=self.point.attempt)
        if attempt.loop is not None:
            attempt.answered()  # nobody waits for it
        failure: BaseException | None = None
        if attempt.verdict is not None:
            failure = attempt.conclude(closed=False, cause=None)
        else:
            attempt.end()
        teardown = failure.teardown if isinstance(failure, StreamGuardError) else None
        self._release(failure, confirmed=teardown is not None and teardown.confirmed)


class _Feed:
    """One turn of a connection as a source. Its first pull opens what is not open yet."""

    __slots__ = ("_ask", "_owner", "_prompt", "_source")

    def __init__(self, owner: Owner[Any], prompt: str | None) -> None:
        self._owner = owner
        self._prompt = prompt
        self._source: Source | None = None

    def __aiter__(self) -> AsyncIterator[Any]:
        return cast("AsyncIterator[Any]", self)

    @by_hand
    def __anext__(self) -> Generator[Any, Any, Any]:
        try:
            if self._source is None:
                self._source = yield from self._owner.source_of(self._prompt).__await__()
            message = yield from self._source.ask()
        except BaseException:
            self._owner.unwound.set()
            raise
        if self._owner.is_ending:
            self._owner.unwound.set()
        return message

    async def aclose(self) -> None:
        if self._source is None:
            return
        for close in self._source.closers():
            result = close()
            if inspect.isawaitable(result):
                await result


def _is_of(error: BaseException, seen: BaseException | None) -> bool:
    """Whether `error` is `seen`, or only wraps it, as a task group does."""
    if seen is None:
        return False
    if isinstance(error, BaseExceptionGroup):
        parts = cast("BaseExceptionGroup[BaseException]", error).exceptions
        return all(_is_of(part, seen) for part in parts)
    return error is seen
