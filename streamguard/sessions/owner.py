"""`Owner`: the one task that opens a connection, iterates it and closes it (R2).

What a connection holds open (task groups, scopes, sockets) is entered, used and left in this task,
whatever becomes of the consumer. Opening is part of the first pull: a backend that does not let us
in keeps us waiting, and every limit sees it. An owner ends

- when its consumer leaves: its pull is cut, and everything is closed;
- with a verdict or an error: the same, and the consumer learns of it when the owner has ended, since
  only then may the session be resumed (D5);
- or not at all, if the upstream is deaf. Then its *warden* disconnects what can be disconnected, and
  leaves it behind: the consumer is released, and the end counts as not confirmed (O6).

Where an owner is, and what each event does there, is `tenure`'s table; here it is done.

It is detached, for an upstream that never ends must not hold up whoever waits for a task group. The
session that has started it waits for it, as long as there is hope. Knows attempts, sources and
teardown; nothing of retries or turns.
"""

from __future__ import annotations

import inspect
from collections.abc import Generator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

import anyio

from streamguard import _loops as loops
from streamguard import events
from streamguard._base.machine import impossible
from streamguard._guard.attempt import Attempt
from streamguard._guard.guarded import GuardedIterator
from streamguard._loops import by_hand
from streamguard.errors import StreamGuardError
from streamguard.sessions.ledger import Ledger, Noted
from streamguard.sessions.opened import OpenedConnection, raisable
from streamguard.sessions.slot import Slot
from streamguard.sessions.tenure import IS_ENDING, IS_PULLING, MAY_PULL, TABLE, Does
from streamguard.sessions.tenure import TenureEvent as Event
from streamguard.sessions.tenure import TenureState as State
from streamguard.sessions.warden import Warden

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from streamguard._guard.plan import Plan
    from streamguard._guard.sources import Source
    from streamguard._guard.teardown import TearingDown
    from streamguard._loops import Loop, Parking
    from streamguard.events.session_events import AttemptOutcome
    from streamguard.sessions.hosting import Hosting
    from streamguard.sessions.points import Opener, ResumePoint

T = TypeVar("T")

_PULLING: Final = State.PULLING  # once, not for each message


class Owner(Generic[T]):
    """One attempt: a connection, and the task that has it. Its `tenure` says where it is.

    `failure`: what ended it, when the slot is closed; None after a turn that just ended.
    `confirmed`: whether its backend is certainly gone, when it is `released`.
    `ended_at`: when its latest turn was over, or it began to end, on the loop's clock.
    """

    def __init__(
        self, hosting: Hosting, plan: Plan, opener: Opener[T], point: ResumePoint
    ) -> None:
        self.point = point
        self.slot = Slot[T](hosting.loop)
        self.failure: BaseException | None = None
        self.confirmed = True
        self.ended_at = 0.0
        self.attempt: Attempt | None = None
        # It has ended, or was left behind: its consumer is free. Then its warden is, too. And it
        # has really ended.
        self.released = anyio.Event()
        self.seen_off = anyio.Event()
        self.gone = anyio.Event()
        self._hosting = hosting
        observed = replace(plan, observers=(*plan.observers, self._on_event))
        self.link = OpenedConnection(hosting, observed, opener, point)
        self._loop: Loop = hosting.loop
        self.state = State.NEW
        self._messages: GuardedIterator[T] | None = None
        self._noted: Noted | None = None
        self._turn = anyio.Event()
        self._outcome: AttemptOutcome = "completed"
        self._was_left_by_error = False
        # What ended its pull, whatever becomes of the closing after it.
        self._unwound_by: BaseException | None = None
        # What the warden has begun, where no verdict had.
        self.tearing_down: TearingDown | None = None
        # The pull is over, and what is left is closing.
        self.unwound = anyio.Event()

    @property
    def is_pulling(self) -> bool:
        """Whether the backend is being asked."""
        return self.state in IS_PULLING

    # -- the consumer's side ---------------------------------------------------------------

    @property
    def can_serve(self) -> bool:
        """Whether another prompt can be sent over the same connection."""
        return self.state is State.RESTING and self.link.takes_prompts

    def begin(self, prompt: str | None, ledger: Ledger) -> None:
        """One more turn: its messages come through the slot."""
        now = self._loop.clock()
        attempt = Attempt(self.link.plan, self._hosting.limits, self._hosting.mode)
        attempt.lease()  # said to the consumer at once, since another attempt would not help
        attempt.reading = self._noted = Noted(self.link.plan, ledger, self._loop.clock)
        # `total` has run since the session's block was entered, and a prompt opens a turn.
        attempt.watch.started = self._hosting.started
        attempt.watch.mark_prompt(now)
        if self.attempt is None:
            ledger.deeds.begin_process(is_resumed=self.point.is_resumed)
        ledger.begin(attempt, now)
        attempt.watch.spent_before(now)
        ledger.exclusive = self._hosting.exclusive
        self.failure = None
        self.attempt = attempt
        self._messages = GuardedIterator(_Feed(self, prompt), attempt, is_hosted=True)
        self.unwound = anyio.Event()
        # A turn's own: who still waits at an earlier one's has no part in this.
        self.slot = Slot[T](self._loop)
        self._on(Event.TURN)

    def left_waiting(self) -> None:
        """The consumer does not wait any more, though the pull goes on: no silence counts (T1)."""
        if self._keeps_waiting and self.attempt is not None:
            self.attempt.answered()

    def waits_again(self) -> None:
        """The consumer is back."""
        if self._keeps_waiting and self.attempt is not None:
            self.attempt.asked()

    def condemn(self) -> None:
        """Nothing may come of it any more, and somebody else may have the session: end it now (F2).

        `released` tells when it has ended. A pull that is under way is cut by its watch.
        """
        if self._hosting.limits.lease is None:  # limits are off, but a lease binds all the same
            self.stop("cancelled")
            return
        if self.state is State.RESTING:
            # A turn of its own, in which nothing is asked: what is open is torn down with its verdict.
            self.begin(None, Ledger(None, self.point))
        attempt = self.attempt
        if attempt is None or attempt.is_over or attempt.verdict is not None:
            return
        if self.state is State.PULLING:
            self.waits_again()
        elif self.state is State.READY:  # in all others it is ending as it is
            if attempt.loop is None:
                attempt.begin()
            if (verdict := attempt.lost()) is not None:
                attempt.decide(verdict)

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

    def stop(self, outcome: AttemptOutcome = "left", *, by_error: bool = False) -> None:
        """The consumer leaves. Returns at once; `released` tells when it is done.

        `outcome`: what it is of a turn that is under way.
        """
        # A turn that is over stays what it was, whatever its consumer does afterwards.
        if self.state in (State.READY, State.PULLING):
            self._outcome = outcome
        if self.state not in IS_ENDING:
            self._was_left_by_error = by_error
        self.slot.close()  # an owner that waits to be asked is not asked any more
        self._on(Event.LEFT)
        self._turn.set()  # one that rests waits for a turn, and would rest for ever

    # -- what the tenure's events come to --------------------------------------------------

    def _move(self, event: Event) -> Does:
        """What the table says of it, and to the next state."""
        try:
            self.state, does = TABLE[self.state][event]
        except KeyError:
            raise impossible(self.state, event) from None
        return does

    def _on(self, event: Event) -> None:
        match self._move(event):
            case Does.START:
                self._loop.spawn(self._run, name="owner")
            case Does.GO_ON:
                self._turn.set()
            case Does.REST:
                self._turn = anyio.Event()  # with the old one, which is set, the task would spin
                self.ended_at = self._loop.clock()
                self.slot.close()
            case Does.SEE_OFF | Does.SEE_OFF_DEAF as does:
                self._begin_ending(is_deaf=does is Does.SEE_OFF_DEAF)
            case Does.CONCLUDE:
                self._begin_ending()
                self.slot.hurry()
            case Does.SETTLE:
                self._settle()
            case Does.SETTLE_UNBEGUN:
                self._let_all_go()
            case Does.LEAVE_BEHIND:
                self._leave_behind()
            case Does.NOTHING:
                pass

    def _let_all_go(self) -> None:
        for settled in (self.released, self.seen_off, self.gone):
            settled.set()

    def _on_event(self, event: events.Event) -> None:
        match event:
            case events.PullDeaf():
                self._on(Event.DEAF)
            case events.TimedOut(enforced=True) if not self._is_spared:
                self._on(Event.VERDICT)
            case _:
                pass

    @property
    def _is_spared(self) -> bool:
        """Whether the turn's verdict leaves the connection alone."""
        spared = self.attempt is not None and self.attempt.is_spared
        return spared and self.state not in IS_ENDING

    def _begin_ending(self, *, is_deaf: bool = False) -> None:
        assert self.attempt is not None
        self.ended_at = self._loop.clock()
        is_left = self.state in (State.DONE, State.UNWANTED) and self._outcome != "completed"
        warden = Warden(self, self.attempt, self._loop, is_deaf=is_deaf, is_left=is_left)
        self._loop.spawn(warden.see_off, name="warden")

    # -- the task --------------------------------------------------------------------------

    async def _run(self) -> None:
        failure: BaseException | None = None
        try:
            await self._play()
            while self.state is State.RESTING:
                await self._turn.wait()
                await self._play()
        except BaseException as error:
            if self._is_collected(error):
                raise
            # A consumer that has left wants no error for the cut that its leaving was.
            self._unwound_by = failure = None if self._is_of_our_cut(error) else raisable(error)
            if self.state is State.ABANDONED and self.attempt is not None and self.attempt.pull:
                # Its attempt is over, and undoes no cancel any more.
                cast("Parking", self.attempt.pull).release()
        confirmed = False
        try:
            # The warden waits for this, and would take a pull that has long ended for a deaf one.
            # What is open is then closed in this task, whatever has happened: it was entered here
            # (R2).
            self.unwound.set()
            self._on(Event.UNWOUND)
            failure, confirmed = await self._leave(failure)
        except BaseException as error:
            if self._is_collected(error):
                raise
            failure = self.link.worse(failure, raisable(error))
        self.confirmed = confirmed
        # If it was left behind meanwhile, its consumer has been told what came of it, and that
        # stays.
        if self.state is State.CLOSING:
            self.failure = failure
        self.gone.set()
        self._on(Event.CLOSED)
        # What was open must not live on with an error's traceback, nor what had ended the attempt
        # before: that has a traceback, too, and so on to the first.
        self._messages = self._noted = self._unwound_by = None
        self.point = self.link.forget()

    def _is_collected(self, error: BaseException) -> bool:
        """Whether this task is being thrown away, after its loop: then nothing can be done."""
        return isinstance(error, GeneratorExit) and not self._loop.is_running_here()

    def _is_of_our_cut(self, error: BaseException) -> bool:
        was_left = self.state in (State.UNWANTED, State.DONE)
        return was_left and loops.consists_of(error, self._loop.cancelled)

    async def _play(self) -> None:
        """One turn, message by message."""
        assert self._messages is not None
        assert self._noted is not None
        slot, noted, ask = self.slot, self._noted, self._messages.__anext__
        moved = self._move
        ready, asked, came = State.READY, Event.ASKED, Event.CAME  # once, not for each message
        while True:
            # Nothing is read ahead: the backend is asked when the consumer asks (R2).
            if self.state is ready:
                await slot.asked()
            # Meanwhile its consumer may have left. With a verdict, one more pull is made: it
            # raises.
            if self.state is not ready and self.state not in MAY_PULL:
                return
            moved(asked)
            try:
                message = await ask()
            except StopAsyncIteration:
                if self.state is not State.UNWANTED:  # else it ended as it was cut
                    self._outcome = "completed"
                assert self.attempt is not None
                self.attempt.end(outcome=self._outcome)
                self._on(Event.TURN_OVER)
                return
            except StreamGuardError as error:
                if not self._is_spared:
                    raise
                self.failure = error  # and the connection is as good as it was
                self._on(Event.TURN_OVER)
                return
            moved(came)
            if not noted.is_replayed:  # the consumer has it already, and waits on (R6)
                slot.put(message)

    async def _leave(self, failure: BaseException | None) -> tuple[BaseException | None, bool]:
        """Close the turn's source, then the connection: what ended it, and whether it is gone."""
        closed, is_left = True, self._outcome in ("cancelled", "left")
        if is_left:
            try:
                await self.link.look()
            except BaseException as error:  # what is open is closed all the same
                if self._is_collected(error):
                    raise
                failure = self.link.worse(failure, raisable(error))
        if self._messages is not None:
            try:
                closed = await self._messages.close()
            except BaseException as error:
                if self._is_collected(error):
                    raise
                failure, closed = self.link.worse(failure, raisable(error)), False
        # After its source, which it holds; and told of what ended it, as an `async with` would be.
        failure, left = await self.link.leave(failure, was_left_by_error=self._was_left_by_error)
        attempt = self.attempt
        assert attempt is not None
        # Only now is it asked whether the backend is gone: each step before may have ended it, or
        # have shown that it could not be ended. Another owner may begin on the strength of this
        # (D5).
        returned = await self._hear_disconnect()
        confirmed = await self.link.is_gone(
            attempt,
            failure,
            closed=closed and left and returned,
            is_left=is_left,
        )
        attempt.end(failure, outcome=self._outcome_with(failure))
        return failure, confirmed

    async def _hear_disconnect(self) -> bool:
        """Wait for the disconnect that the warden has begun, if it has; False if it did not return.

        It may have ended the stream long before it returns, and still be at work on the session.
        """
        if self.tearing_down is None:
            return True
        if self.tearing_down.tree is not None:
            return False  # the tree's end proves more, and is waited for in its place
        await self.tearing_down.finish()
        return self.tearing_down.outcome in ("none", "returned")

    def _outcome_with(self, failure: BaseException | None) -> AttemptOutcome:
        if failure is not None:
            return "failed"
        # A turn that had ended, and was struck for it, stays well, whoever leaves in the meantime.
        verdict = self.attempt.verdict if self.attempt is not None else None
        was_struck = verdict is not None and verdict.limit == "exit_grace"
        return "completed" if was_struck else self._outcome

    def _settle(self) -> None:
        """What came of it is known: tell it, and let everybody go."""
        try:
            self._hosting.teller.tell(
                events.AttemptEnded,
                attempt=self.point.attempt,
                outcome=self._outcome_with(self.failure),
                error=self.failure,
                confirmed=self.confirmed,
            )
        except BaseException as error:  # noqa: BLE001 - an observer ends the program, by its consumer
            self.failure = self.link.worse(self.failure, error)
        self.slot.close()
        self.released.set()

    def abandon(self) -> None:
        """Leave the task behind; whoever waits for it is free."""
        self._on(Event.GIVEN_UP)

    def _leave_behind(self) -> None:
        attempt = self.attempt
        assert attempt is not None
        # All the bounds are spent, and the task goes on. What is not known to have ended may be at
        # work on the session, so the end is not confirmed, but for a process tree that is proven
        # dead.
        self.failure, self.confirmed = self._unwound_by, False
        try:
            self._hosting.teller.tell(events.OwnerAbandoned, attempt=self.point.attempt)
            if attempt.loop is not None:
                attempt.answered()  # nobody waits for it
            if attempt.verdict is not None:
                self.failure = attempt.conclude(closed=False, cause=self._unwound_by)
            else:
                attempt.end(self.failure, outcome=self._outcome_with(self.failure))
            self.confirmed = bool(self.link.is_confirmed(attempt, self.failure, closed=False))
        except BaseException as error:  # noqa: BLE001 - an observer ends the program, by its consumer
            self.failure = self.link.worse(self.failure, error)
        self._settle()


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
            message = yield from self._source.ask(self._source.iterator)
        except BaseException:
            # Told from in here: the iterator around this waits for the teardown first, and the
            # warden is not to wait for both.
            self._owner.unwound.set()
            raise
        if self._owner.state is not _PULLING:  # it is ending
            self._owner.unwound.set()
        return message

    async def _open(self) -> Source:
        attempt = self._owner.attempt
        assert attempt is not None
        source = await self._owner.link.source_of(self._prompt, attempt)
        attempt.is_left_open = self._owner.link.takes_prompts
        return source

    async def aclose(self) -> None:
        if self._source is None:
            return
        for close in self._source.closers():
            result = close()
            if inspect.isawaitable(result):
                await result
