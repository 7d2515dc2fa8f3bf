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
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import anyio

from streamguard import events, loops
from streamguard.attempt import Attempt
from streamguard.errors import StreamGuardError
from streamguard.guarded import GuardedIterator
from streamguard.loops import by_hand
from streamguard.resume.ledger import Noted
from streamguard.resume.link import Link, raisable
from streamguard.resume.slot import Slot
from streamguard.resume.warden import Warden

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from streamguard.events import AttemptOutcome
    from streamguard.loops import Loop
    from streamguard.plan import Plan
    from streamguard.resume.hosting import Hosting
    from streamguard.resume.ledger import Ledger
    from streamguard.resume.points import Opener, ResumePoint
    from streamguard.sources import Source

T = TypeVar("T")


class Owner(Generic[T]):
    """One attempt: a connection, and the task that has it.

    `failure`: what ended it, when the slot is closed; None after a turn that just ended.
    `confirmed`: whether its backend is certainly gone, when it is `released`.
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
        self.is_pulling = False
        self.is_ending = False
        self.ended_at = 0.0
        self.attempt: Attempt | None = None
        # It has ended, or was left behind: nobody need wait any more. Then its warden ends, too.
        self.released = anyio.Event()
        self.seen_off = anyio.Event()
        self._hosting = hosting
        observed = replace(plan, observers=(*plan.observers, self._on_event))
        self.link = Link(hosting, observed, opener, point)
        self._loop: Loop = hosting.loop
        self._messages: GuardedIterator[T] | None = None
        self._noted: Noted | None = None
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
        return self._is_between_turns and not self.is_ending and self.link.takes_prompts

    def begin(self, prompt: str | None, ledger: Ledger) -> None:
        """One more turn: its messages come through the slot."""
        now = self._loop.clock()
        attempt = Attempt(self.link.plan, self._hosting.limits, self._hosting.mode)
        attempt.lease()  # said to the consumer at once, since another attempt would not help
        attempt.reading = self._noted = Noted(self.link.plan, ledger, self._loop.clock)
        # `total` has run since the session's block was entered, and a prompt opens a turn.
        attempt.watch.started = self._hosting.started
        attempt.watch.mark_prompt(now)
        ledger.begin(attempt, now)
        is_first = self.attempt is None
        self.failure = None
        self.attempt = attempt
        self._messages = GuardedIterator(_Feed(self, prompt), attempt, is_hosted=True)
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
        except BaseException as error:
            if self._is_collected(error):
                raise
            failure = None if self._is_of_our_cut(error) else raisable(error)
        confirmed = False
        try:
            self.is_pulling = False
            self.unwound.set()
            self._begin_ending()
            failure, confirmed = await self._leave(failure)
        except BaseException as error:
            if self._is_collected(error):
                raise
            failure = self.link.worse(failure, raisable(error))
        self._release(failure, confirmed=confirmed)

    def _is_collected(self, error: BaseException) -> bool:
        """Whether this task is being thrown away, after its loop: then nothing can be done."""
        return isinstance(error, GeneratorExit) and not self._loop.is_running_here()

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

    async def _leave(self, failure: BaseException | None) -> tuple[BaseException | None, bool]:
        """Close the turn's source, then the connection: what ended it, and whether it is gone."""
        closed = True
        if self._messages is not None:
            try:
                closed = await self._messages.close()
            except BaseException as error:
                if self._is_collected(error):
                    raise
                failure, closed = self.link.worse(failure, raisable(error)), False
        failure, left = await self.link.leave(failure, was_left_by_error=self._was_left_by_error)
        confirmed = await self.link.is_gone(failure, closed=closed and left)
        if self.attempt is not None:
            self.attempt.end(failure)
        return failure, confirmed

    def _release(self, failure: BaseException | None, *, confirmed: bool) -> None:
        if self.released.is_set():
            return  # it was left behind, and ended after all
        self.failure, self.confirmed = failure, confirmed
        outcome: AttemptOutcome = "completed"
        if failure is not None:
            outcome = "failed"
        elif self._is_stopping and not self._has_turn_ended:
            outcome = "left"
        try:
            self._hosting.tell(
                events.AttemptEnded,
                attempt=self.point.attempt,
                outcome=outcome,
                error=failure,
                confirmed=confirmed,
            )
        except BaseException as error:  # noqa: BLE001 - an observer ends the program, by its consumer
            self.failure = self.link.worse(failure, error)
        self.slot.close()
        self.released.set()
        if not self.is_abandoned:  # what was open must not live on with an error's traceback
            self._messages = self._noted = None
            self.link.forget()

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
            assert self.attempt is not None
            warden = Warden(self, self.attempt, self._loop, is_deaf=is_deaf)
            self._loop.spawn(warden.see_off, name="warden")

    def abandon(self) -> None:
        """Leave the task behind; whoever waits for it is free."""
        attempt = self.attempt
        if attempt is None or self.released.is_set():
            return
        self.is_abandoned = True
        failure: BaseException | None = None
        confirmed: bool | None = False
        try:
            self._hosting.tell(events.OwnerAbandoned, attempt=self.point.attempt)
            if attempt.loop is not None:
                attempt.answered()  # nobody waits for it
            if attempt.verdict is not None:
                failure = attempt.conclude(closed=False, cause=None)
            else:
                attempt.end()
            confirmed = self.link.is_confirmed(failure, closed=False)
        except BaseException as error:  # noqa: BLE001 - an observer ends the program, by its consumer
            failure = self.link.worse(failure, error)
        self._release(failure, confirmed=bool(confirmed))


class _Feed:
    """One turn of a connection as a source. Its first pull opens what is not open yet."""

    __slots__ = ("_owner", "_prompt", "_source")

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
                self._source = yield from self._open().__await__()
            message = yield from self._source.ask()
        except BaseException:
            self._owner.unwound.set()
            raise
        if self._owner.is_ending:
            self._owner.unwound.set()
        return message

    async def _open(self) -> Source:
        attempt = self._owner.attempt
        assert attempt is not None
        return await self._owner.link.source_of(self._prompt, attempt)

    async def aclose(self) -> None:
        if self._source is None:
            return
        for close in self._source.closers():
            result = close()
            if inspect.isawaitable(result):
                await result
