"""`Turn` and `Conversation`: one prompt's messages, over as many attempts as it takes.

A turn is pulled by the consumer, and in its pulls everything is decided: whether and when another
attempt begins, and whether it is worth one. So nothing happens between turns (S0-22), backoff is
the consumer's wait, and a pull that the consumer cancels goes on where it was with the next one.
The decisions themselves are `retry.decide`'s; what must be done in one task is the owner's.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, TypeVar, cast

import anyio

from streamguard import events
from streamguard._base.durations import on_the_clock
from streamguard._base.quoting import quoted
from streamguard._base.tracebacks import trim
from streamguard._scopes import scopes
from streamguard.backends import unknown_sessions
from streamguard.errors import (
    Attempted,
    CircuitOpenError,
    LeaseLostError,
    ResumeDivergedError,
    SessionHeldError,
    StreamGuardError,
)
from streamguard.retry.classes import ErrorClass, class_named
from streamguard.retry.decision import (
    DEFAULT_POLICY,
    GiveUp,
    Restart,
    Resume,
    State,
    decide,
    work_done,
)
from streamguard.retry.policy import RetryPolicy, Tally
from streamguard.retry.pushback import retry_after_said
from streamguard.sessions.ledger import Ledger
from streamguard.sessions.owner import Owner
from streamguard.sessions.points import ResumePoint
from streamguard.sessions.replay import Replay
from streamguard.sessions.resume_settings import Reconnecting
from streamguard.signals import Failed

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from streamguard._base.done import Done
    from streamguard._guard.plan import Plan
    from streamguard.breaker.breaker import OnOpen, Permit
    from streamguard.retry.decision import Decision
    from streamguard.sessions.custody import Custody
    from streamguard.sessions.hosting import Hosting
    from streamguard.sessions.points import Opener
    from streamguard.sessions.resume_settings import KeepAlive
    from streamguard.sessions.slot import Slot

T = TypeVar("T")
_NOWHERE: Final = ResumePoint()
# How often the clock on the wall is looked at in a long wait, in seconds.
_LOOK_AT_CLOCK: Final = 60.0
_ASKED_SINCE: Final = (
    "this turn was left before its end, and another prompt was asked since: iterate a turn to its "
    "end, or leave it for good"
)


class _Over:
    """What each further pull of a turn gets.

    A traceback grows with each `raise`, and keeps the frames of all who pulled, with their locals:
    a normal end is raised anew each time, and an error as it was when it ended the turn.
    """

    __slots__ = ("_error", "_traceback")

    def __init__(self, error: BaseException | None = None) -> None:
        self._error = error
        self._traceback = error.__traceback__ if error is not None else None

    @property
    def error(self) -> BaseException:
        if self._error is None:
            return StopAsyncIteration()
        return self._error.with_traceback(self._traceback)


class Conversation(Generic[T]):
    """What is left of a session between its turns: the connection, the token, the counts."""

    def __init__(
        self,
        hosting: Hosting,
        point: ResumePoint,
        *,
        plan_for: Callable[[int], Plan],
        opener_for: Callable[[int], Opener[T]],
        reconnecting: Reconnecting | None,
        keep_alive: KeepAlive | None,
    ) -> None:
        self.hosting = hosting
        self.reconnecting = reconnecting
        self.keep_alive = keep_alive
        self.owner: Owner[T] | None = None
        self.turn: Turn[T] | None = None
        self.tally = Tally()
        self.point = self.start = point
        self.attempts = point.attempt if point.completed else point.attempt - 1
        # What the connection's earlier turns have done, which a fresh start would not know.
        self.is_closed = False
        self._patient_until: tuple[Owner[T], float] | None = None
        self.carried: tuple[int, int] = (0, 0)
        # In turns before the present one.
        self._delivered_before = 0
        self._progressed_before = False
        self.tools_before = point.tools_run if point.completed else 0
        self._plan_for = plan_for
        self._opener_for = opener_for

    def owner_at(self, point: ResumePoint) -> Owner[T]:
        """The task of the next attempt. It begins with its first turn."""
        self.attempts += 1
        self.carried = (0, 0)
        self.point = point = replace(point, attempt=self.attempts)
        self.owner = Owner(
            self.hosting, self._plan_for(self.attempts), self._opener_for(self.attempts), point
        )
        self.hosting.on_attempt(point)
        return self.owner

    def leave_at(self, ledger: Ledger) -> None:
        """A turn ends there, or an attempt at it."""
        deeds = ledger.deeds
        self.point = replace(
            self.point, token=ledger.token, work_dir=deeds.work_dir, spent=deeds.spent
        )

    @property
    def may_resume_unconfirmed(self) -> bool:
        """Whether the user has said so."""
        settings = self.reconnecting
        return settings is not None and settings.resume_after_unconfirmed_teardown

    @property
    def is_pulled(self) -> bool:
        """Whether the consumer waits for a message now, whatever that takes."""
        return self.turn is not None and self.turn.is_pulled

    def has_told_deadline(self) -> bool:
        """Whether a pull has raised the verdict on `total`, or on the lease."""
        failure = self.turn._failure if self.turn is not None else None
        verdict = failure.verdict if isinstance(failure, StreamGuardError) else None
        return verdict is not None and verdict.limit in ("total", "lease")

    @property
    def delivered(self) -> int:
        """How many messages its consumer has got, over all turns, in this session."""
        return self._delivered_before + (self.turn.delivered if self.turn is not None else 0)

    @property
    def has_progressed(self) -> bool:
        """Whether any turn has brought something that is new, and more than a greeting."""
        return self._progressed_before or (self.turn is not None and self.turn.has_progressed)

    def settled_point(self) -> ResumePoint | None:
        """Where the session stands; None while the consumer is at work on a message, and may fail at it."""
        turn = self.turn
        if turn is None or turn.is_settled:
            return self.latest_point()
        return None

    @property
    def waits_to_begin(self) -> bool:
        """Whether the consumer waits for an attempt to begin."""
        return self.turn is not None and self.turn.waits_to_begin

    def lose(self, error: LeaseLostError) -> None:
        """The lease is over while the consumer waits for an attempt to begin: it gets this."""
        if self.turn is not None:
            self.turn.lose(error)

    def close(self) -> None:
        """The block is left: nothing is begun any more."""
        self.is_closed = True
        if self.turn is not None:
            why = "the session's block was left: iterate its turns inside of it"
            self.turn.supersede(RuntimeError(why))

    def latest_point(self) -> ResumePoint:
        """Where the session stands now."""
        return self.turn.point if self.turn is not None else self.point

    async def make_way(self) -> None:
        """See that no owner is left: of one session there is never a second (D5)."""
        owner = self.owner
        if owner is None:
            return
        owner.stop()
        await owner.released.wait()
        if not owner.confirmed:  # it was left behind, and may still be at its closing
            if self._patient_until is None or self._patient_until[0] is not owner:
                until = self.hosting.loop.clock() + owner.link.plan.disconnect_timeout
                self._patient_until = owner, until
            # However many pulls it takes: each may be cut short, and goes on where the last one was.
            with anyio.CancelScope(deadline=self._patient_until[1]):
                await owner.gone.wait()
        if not (owner.confirmed or self.may_resume_unconfirmed):
            refused = StreamGuardError(
                f"the backend of attempt {owner.point.attempt} may still be alive, and two owners "
                "would corrupt the session: see that it ends, then start a session with the "
                "token. Or say reconnecting_resume(resume_after_unconfirmed_teardown=True)",
                activity=self.hosting.teller.activity,
            )
            refused.gave_up = "unsafe"
            raise refused


class Turn(AsyncIterator[T]):
    """The messages of one prompt. Made by a chat; pulled by one task at a time."""

    def __init__(
        self, conversation: Conversation[T], prompt: str | None, given: ResumePoint = _NOWHERE
    ) -> None:
        self._conversation = conversation
        self._custody = conversation.hosting.custody
        self._prompt = prompt
        settings = conversation.reconnecting
        key_of = settings.dedupe_by if settings is not None else None
        self._given_cursor = given.cursor
        replay = Replay(key_of, given.cursor) if key_of is not None else None
        self._ledger = Ledger(replay, conversation.point)
        self._ledger.take_up(given)
        self._owner: Owner[T] | None = None
        self._has_completed = given.completed
        self._over: _Over | None = _Over() if given.completed else None
        self._taken = self._given_delivered = given.delivered
        self._has_begun = False
        self._is_at_hand = False  # its consumer has got a message, and has not come back since
        # Something has happened that the next pull must look at: the last one was cancelled, or the
        # turn was left and is to bring nothing more, though its end may still put something there.
        self._is_disturbed = False
        self.is_pulled = False
        self._failed: list[Attempted] = []
        self._failure: BaseException | None = None
        self._reason_given = given.reason
        # What the next attempt is to begin with, and when.
        self._next_point: ResumePoint | None = None
        self._not_before = -float("inf")
        self._limit_over_at: float | None = None  # the same on the clock, for a usage limit
        self._waiting: anyio.CancelScope | None = None

    def __repr__(self) -> str:
        state = "over" if self._over else "under way" if self._has_begun else "not begun"
        return f"<Turn {state}>"

    # -- leaving ---------------------------------------------------------------------------

    @property
    def ag_running(self) -> bool:
        """Whether a pull is under way, by a generator's name for it."""
        return self.is_pulled

    async def aclose(self) -> None:
        """Leave the turn. If it has not ended, its connection is closed with it.

        The next `ask` opens another one, with the session's token. Nothing happens to a turn that has
        not begun, or is over.
        """
        if self.is_pulled:
            raise RuntimeError(
                "aclose() while a pull is under way: cancel the task that pulls, or let it end"
            )
        owner, is_left = self._owner, self._over is None
        self.supersede()
        if owner is not None and is_left:
            owner.stop()
            await owner.released.wait()

    # -- pulling ---------------------------------------------------------------------------

    async def __anext__(self) -> T:
        owner, keep_alive, custody = self._owner, self._conversation.keep_alive, self._custody
        if custody is not None and not self.is_pulled:
            self._come_back(custody)
        if owner is None or keep_alive is not None or self.is_pulled or self._is_disturbed:
            return await self._next_or_kept_alive(keep_alive)
        # What `_next` comes to while messages flow, without its hops.
        self.is_pulled, self._is_at_hand = True, False
        try:
            slot = owner.slot  # it is the turn's own, and the owner may have another one by then
            if await slot.ready() and (custody is None or not custody.is_over):
                self._taken, self._is_at_hand = self._taken + 1, True
                return slot.take()
        except BaseException:
            self._left_waiting(owner)
            raise
        finally:
            self.is_pulled = False
        return await self._next()

    async def _next_or_kept_alive(self, keep_alive: KeepAlive | None) -> T:
        if keep_alive is None:
            return await self._next()
        # Whatever is being waited for goes on where it was with the next pull.
        with anyio.move_on_after(keep_alive.every):
            return await self._next()
        return cast("T", keep_alive.make())

    async def _next(self) -> T:
        if self.is_pulled:
            raise RuntimeError(
                "two pulls at once on one turn: a message would go to either. Let one task pull "
                "and hand on"
            )
        self.is_pulled, self._is_at_hand = True, False
        scopes.begins(self._conversation.hosting.teller.activity)
        try:
            while True:
                if self._over is not None:
                    raise self._over.error  # noqa: TRY301 - said before, and our frames with it
                if self._conversation.hosting.is_lost:
                    await self._be_lost()
                owner = self._owner or await self._begin_attempt()
                slot = owner.slot
                if await self._is_ready(owner, slot):
                    if self._conversation.hosting.is_lost:
                        continue  # what has come is not delivered: another worker may have had it
                    self._taken, self._is_at_hand = self._taken + 1, True
                    return slot.take()
                self._owner = None
                if self._over is None:  # else it was left, or its block was, by another task
                    self._see_end(owner)
        except Exception as error:
            trim(error)
            raise
        finally:
            self.is_pulled = False

    def _come_back(self, custody: Custody) -> None:
        """Tell that the consumer is done with what it has got, be it of the turn before."""
        self._is_at_hand = False
        if not self._has_begun and (before := self._conversation.turn) is not None:
            before._is_at_hand = False
        custody.asked()

    async def _be_lost(self) -> None:
        """Raise that the lease is over, when the backend has ended. What is in the slot stays there."""
        conversation = self._conversation
        owner = conversation.owner
        if owner is not None:
            owner.condemn()
            await owner.released.wait()
        if self._over is not None:
            return
        if (
            owner is not None
            and owner is self._owner
            and isinstance(owner.failure, LeaseLostError)
        ):
            self._see_end(owner)
        self._end_lost(conversation.hosting.lost_between_attempts())

    def _end_lost(self, error: LeaseLostError) -> NoReturn:
        """Raise that the lease is over, where no attempt has."""
        if (permit := self._take_permit()) is not None:
            permit.released()
        if self._conversation.reconnecting is None:
            self._fail(error)
        why = "another worker goes on with it"
        self._give_up(error, GiveUp(reason="class", why=why, error_class=ErrorClass.NEVER))

    @property
    def waits_to_begin(self) -> bool:
        """Whether a pull waits for the next attempt to begin."""
        return self._waiting is not None and self._over is None

    def lose(self, error: LeaseLostError) -> None:
        """As `_be_lost`, while it waits to begin."""
        assert self._waiting is not None
        self._waiting.cancel()
        with suppress(LeaseLostError):
            self._end_lost(error)

    async def _is_ready(self, owner: Owner[T], slot: Slot[T]) -> bool:
        if self._is_disturbed:
            self._is_disturbed = False
            owner.waits_again()
        try:
            return await slot.ready()
        except BaseException:
            self._left_waiting(owner)
            raise

    def _left_waiting(self, owner: Owner[T]) -> None:
        self._is_disturbed = True
        owner.left_waiting()

    @property
    def cursor(self) -> Hashable | None:
        """The key of the last message that this turn's consumer has got; None without `dedupe_by`.

        Cheap enough to read for each message.
        """
        replay = self._ledger.replay
        if replay is None:
            return self._given_cursor
        return replay.cursor_before if self._has_untaken else replay.cursor

    @property
    def _has_untaken(self) -> bool:
        """Whether a message has come that the consumer has not got: it may never get it."""
        return self._owner is not None and self._owner.slot.is_full

    @property
    def delivered(self) -> int:
        """How many messages its consumer has got here."""
        return self._taken - self._given_delivered

    @property
    def has_progressed(self) -> bool:
        """Whether it has brought something that is new, and more than a greeting."""
        return self._ledger.has_progressed

    @property
    def is_settled(self) -> bool:
        """Whether its consumer is done with all that it has got: it has come back for more, or knows the end."""
        return not self._is_at_hand

    @property
    def is_completed(self) -> bool:
        """Whether the turn has ended, and its consumer has got all of it."""
        if self._has_completed or self._owner is None or self._has_untaken:
            return self._has_completed
        attempt = self._owner.attempt
        return self._ledger.is_completed and attempt is not None and attempt.verdict is None

    @property
    def point(self) -> ResumePoint:
        """Where the turn stands: the point that a next attempt would get."""
        ledger, attempts = self._ledger, self._conversation.attempts
        is_completed = self.is_completed
        untaken = self._has_untaken and not ledger.ends_with_aside
        return ResumePoint(
            attempt=attempts if is_completed else attempts + 1,
            prompt=None if is_completed else self._prompt,
            token=ledger.token,
            cursor=self.cursor,
            reason=None if is_completed else self._failure or self._reason_given,
            tools_run=ledger.tool_calls,
            delivered=self._taken,
            committed=ledger.committed - untaken,
            heard=ledger.was_heard,
            completed=is_completed,
            work_dir=ledger.deeds.work_dir,
            spent=ledger.deeds.spent,
        )

    def supersede(self, error: BaseException | None = None) -> None:
        """Nothing more comes of this turn. If it had not ended, that says nothing of the backend."""
        if self._over is None:
            self._over = _Over(error)
        self._is_disturbed = True
        if self._waiting is not None:
            self._waiting.cancel()
        if (permit := self._take_permit()) is not None:
            permit.released()

    # -- beginning an attempt --------------------------------------------------------------

    async def _begin_attempt(self) -> Owner[T]:
        """Begin the next attempt, or go on beginning it after a pull that was cancelled."""
        conversation = self._conversation
        if not self._has_begun:
            self._take_over()
        if conversation.owner is None:
            self._refuse_what_is_unsafe()
        await self._wait_to_begin()
        if self._can_reuse():
            return self._reuse()
        point = self._next_point or self._first_point()
        return self._begun(conversation.owner_at(point), point.prompt)

    async def _wait_to_begin(self) -> None:
        """Until an attempt may begin. Raises, at once, when another task has left the turn, or the block."""
        conversation = self._conversation
        self._waiting = anyio.CancelScope()
        with self._waiting:
            try:
                if not self._can_reuse():
                    await conversation.make_way()
                await self._sleep_it_out(conversation.hosting.loop.clock)
                await self._ask_breaker()
                if not self._can_reuse():
                    await conversation.make_way()  # it may have been there when we began to wait
            except StreamGuardError as refused:
                # The first to come is what it stays with.
                self._over = self._over or _Over(refused)
            finally:
                self._waiting = None
        if self._over is not None:
            if (permit := self._take_permit()) is not None:
                permit.released()  # it came when nobody wanted it any more
            raise self._over.error

    async def _sleep_it_out(self, clock: Callable[[], float]) -> None:
        """Until the delay is over. A usage limit is at a time of the day, also if this machine has slept."""
        over_at, longest = self._limit_over_at, float("inf")
        if over_at is not None:
            longest = _LOOK_AT_CLOCK
        while (now := clock()) < self._not_before and not (over_at and time.time() >= over_at):  # noqa: ASYNC110 - of a clock there is no event
            await anyio.sleep_until(min(self._not_before, now + longest))

    def _take_over(self) -> None:
        conversation = self._conversation
        if conversation.is_closed:
            self._over = _Over(RuntimeError("the session's block was left: ask inside of it"))
            raise self._over.error
        if (left := conversation.turn) is not None and left is not self:
            conversation.leave_at(left._ledger)
            conversation._delivered_before += left.delivered
            conversation._progressed_before |= left.has_progressed
            conversation.tools_before += left._ledger.tool_calls
            self._ledger.follow(left._ledger)
            left.supersede(RuntimeError(_ASKED_SINCE))
            conversation.tally = conversation.tally.reset()  # a prompt has its own retries (S0-13)
        conversation.turn = self
        self._has_begun = True
        self._ledger.go_on_from(conversation.point)

    def _can_reuse(self) -> bool:
        owner = self._conversation.owner
        return owner is not None and owner.can_serve

    def _reuse(self) -> Owner[T]:
        """Send the prompt over the connection that is there."""
        conversation, point = self._conversation, self._next_point
        assert conversation.owner is not None
        if point is None:
            if self._ledger.token is None:
                self._ledger.carry(*conversation.carried)
            return self._begun(conversation.owner, self._prompt)
        # After an interrupt: another attempt, though by the same client.
        conversation.hosting.on_open(replace(point, attempt=conversation.owner.point.attempt))
        return self._begun(conversation.owner, point.prompt)

    def _begun(self, owner: Owner[T], prompt: str | None) -> Owner[T]:
        self._owner = owner
        owner.begin(prompt, self._ledger)
        return owner

    def _first_point(self) -> ResumePoint:
        """Where the turn begins, or goes on if it was begun in another session."""
        point = self.point
        if not (point.heard and point.is_resumed):
            return point
        settings = self._conversation.reconnecting or Reconnecting()
        return replace(point, prompt=self._resume_prompt(point, settings))

    def _refuse_what_is_unsafe(self) -> None:
        """What was begun in another session, and cannot be resumed, is not begun again (R3)."""
        conversation = self._conversation
        start, settings = conversation.start, conversation.reconnecting
        done = work_done(start.tools_run, start.committed)
        if start.is_resumed or start.completed or not done:
            return
        if settings is not None and settings.dedupe_by is not None:
            return
        why = (
            f"this session cannot go on from its point: {done} without session context (there is "
            "no token), and a fresh start would repeat that. See what was done and undo it, then start a "
            "session without point="
        )
        refused = StreamGuardError(why, activity=conversation.hosting.teller.activity)
        refused.gave_up = "unsafe"
        self._over = _Over(refused)
        conversation.hosting.teller.tell(
            events.GaveUp, reason="unsafe", why=why, error=refused, escalate=True
        )
        raise refused

    async def _ask_breaker(self) -> None:
        settings = self._conversation.reconnecting
        if settings is None or settings.breaker is None or self._ledger.permit is not None:
            return
        # Who has a retry left waits for the pause, and for whoever probes. Who has not begun may have
        # been told not to.
        on_open: OnOpen = "wait"
        if self._failure is None and settings.breaker.on_open is not None:
            on_open = settings.breaker.on_open
        try:
            self._ledger.permit = await settings.breaker.acquire(
                within=max(0.0, self._remaining()), on_open=on_open
            )
        except CircuitOpenError as refused:
            if self._failure is None:
                refused.gave_up = "circuit"
                self._over = _Over(refused)
                raise
            why = f"no attempt may begin: {refused}"
            self._give_up(
                self._failure,
                GiveUp(
                    reason="circuit",
                    why=why,
                    error_class=ErrorClass(self._failed[-1].error_class),
                    escalate=refused.retry_after == float("inf"),
                ),
            )

    # -- the end of an attempt -------------------------------------------------------------

    def _see_end(self, owner: Owner[T]) -> None:
        """The slot is closed: the turn is over, or another attempt follows."""
        conversation, ledger = self._conversation, self._ledger
        conversation.leave_at(ledger)
        self._tell_of_replay(owner)
        failure = owner.failure
        settings = conversation.reconnecting
        if failure is None or self._is_done_anyway(failure):
            failed = self._said_error() if settings is not None else None
            if failed is None or not self._goes_on_after(owner, failed, settings):
                self._complete()
            return
        if settings is None or isinstance(failure, ResumeDivergedError | SessionHeldError):
            self._fail(failure)
        else:
            self._follow_up(owner, failure, settings)

    def _is_done_anyway(self, failure: BaseException) -> bool:
        """A turn that has ended stays completed, whatever becomes of its connection (T3)."""
        # Verdicts know what had ended; one on a turn that an interrupt ended stays one.
        is_verdict = isinstance(failure, StreamGuardError) and failure.verdict is not None
        return self._ledger.is_completed and isinstance(failure, Exception) and not is_verdict

    def _said_error(self) -> StreamGuardError | None:
        """What ended a turn that its backend has ended with an error; None if it has not.

        One that had ended well is not asked again, whatever comes after it (T3).
        """
        ledger = self._ledger
        ended, failed = ledger.ended, ledger.failed
        if ended is None or ended.outcome != "error" or failed is None or ledger.turns_ended_well:
            return None
        told = ", ".join(filter(None, (failed.error_class, failed.detail)))
        return StreamGuardError(
            f"the backend ended the turn with an error ({told})",
            activity=self._conversation.hosting.teller.activity,
        )

    def _goes_on_after(
        self, owner: Owner[T], failure: StreamGuardError, settings: Reconnecting | None
    ) -> bool:
        """Whether another attempt follows a turn that the backend itself has ended with an error.

        Its consumer has got the message that says so: but for what the user has asked to be overcome,
        that is the turn's end.
        """
        assert settings is not None
        is_unknown = settings.fresh_if_unknown and self._is_unknown(owner, failure)
        failed = self._ledger.failed
        over_at = settings.policy.limit_over_at(failure, time.time(), failed=failed)
        if not is_unknown and over_at is None:
            return False
        decision = self._decide(owner, failure, settings)
        if isinstance(decision, GiveUp):
            self._tell_giving_up(failure, decision)
            return False
        owner.stop()  # nothing is held open meanwhile, and what is there would be the same again
        self._schedule(failure, decision, settings)
        return True

    def _is_unknown(self, owner: Owner[T], failure: BaseException) -> bool:
        """Whether it is certain that the backend does not know the session that was to be resumed."""
        token, ledger = owner.point.token, self._ledger
        if token is None:
            return False
        if ledger.failed is not None and ledger.failed.session_unknown:
            return True
        return not ledger.has_answered and unknown_sessions.is_told_by(failure, token)

    def _complete(self) -> None:
        ended, permit = self._ledger.ended, self._take_permit()
        went_well = ended is None or ended.outcome == "success"
        if went_well:
            self._conversation.tally = self._conversation.tally.reset()
            if self._failed:
                hosting = self._conversation.hosting
                hosting.teller.tell(events.RetryRecovered, retries=len(self._failed))
        if permit is not None:
            if went_well:
                permit.succeeded()
            elif ended is not None and ended.outcome == "error":
                failed = self._ledger.failed or Failed()
                permit.failed(
                    class_named(failed.error_class),
                    retry_after=retry_after_said(failed, cap=self._policy.cap),
                )
            else:
                permit.released()
        self._conversation.carried = (self._ledger.tool_calls, self._ledger.committed)
        self._has_completed = True
        self._over = _Over()

    @property
    def _policy(self) -> RetryPolicy:
        settings = self._conversation.reconnecting
        return settings.policy if settings is not None else DEFAULT_POLICY

    def _take_permit(self) -> Permit | None:
        permit, self._ledger.permit = self._ledger.permit, None
        return permit

    def _fail(self, failure: BaseException) -> NoReturn:
        self._over, self._failure = _Over(failure), failure
        if (permit := self._take_permit()) is not None:
            error_class, pause = self._policy.assess(failure, failed=self._ledger.failed)
            permit.failed(error_class, retry_after=pause)
        raise failure

    def _follow_up(self, owner: Owner[T], failure: BaseException, settings: Reconnecting) -> None:
        """Decide what follows a failure; raise it if nothing does (R3)."""
        decision = self._decide(owner, failure, settings)
        if isinstance(decision, GiveUp):
            self._give_up(failure, decision)
        else:
            self._schedule(failure, decision, settings)

    def _decide(self, owner: Owner[T], failure: BaseException, settings: Reconnecting) -> Decision:
        """What is to follow that failure; the breaker hears of it, too."""
        policy, ledger = settings.policy, self._ledger
        error_class, pause = policy.assess(failure, failed=ledger.failed)
        if (is_unknown := self._is_unknown(owner, failure)) and error_class.is_transient:
            error_class = ErrorClass.VALIDATION  # whatever its exit looks like
        self._failed.append(
            Attempted(
                attempt=owner.point.attempt,
                error=f"{type(failure).__name__}: {failure}",
                error_class=error_class.value,
                lived=ledger.lived(owner.ended_at),
                messages=ledger.messages,
            )
        )
        if (permit := self._take_permit()) is not None:
            permit.failed(error_class, retry_after=pause)
        state = self._state(owner, error_class, type(failure).__name__, pause, settings)
        if is_unknown:
            tools = self._conversation.tools_before + ledger.tool_calls
            state = replace(
                state,
                is_unknown=True,
                fresh_if_unknown=settings.fresh_if_unknown,
                tools_in_session=tools,
            )
        elif (
            over_at := policy.limit_over_at(failure, now := time.time(), failed=ledger.failed)
        ) is not None:
            state = replace(
                state, limit_over_in=over_at - now, limit_over_at=on_the_clock(over_at, now)
            )
        return decide(state, policy)

    def _state(
        self,
        owner: Owner[T],
        error_class: ErrorClass,
        what: str,
        pause: float | None,
        settings: Reconnecting,
    ) -> State:
        ledger, breaker = self._ledger, settings.breaker
        tally = self._conversation.tally
        replays = settings.dedupe_by is not None
        remaining = self._remaining()
        return State(
            error_class=error_class,
            what=what,
            keys_repeat=ledger.replay is not None and ledger.replay.repeats,
            retry_after=pause,
            tally=tally.reset() if ledger.turns_ended_well else tally,
            token=ledger.token,
            # What a backend plays again is not done again.
            tool_calls=0 if replays else ledger.tool_calls,
            delivered=0 if replays else ledger.committed,
            messages=ledger.messages,
            lived=ledger.lived(owner.ended_at),
            productive=ledger.productive,
            teardown_confirmed=owner.confirmed,
            unconfirmed_allowed=settings.resume_after_unconfirmed_teardown,
            remaining=None if remaining == float("inf") else remaining,
            circuit=breaker.pause_left if breaker is not None else 0.0,
            circuit_waits=breaker is not None,
        )

    def _remaining(self) -> float:
        """Seconds until `total`, or a time scope around the consumer, is over."""
        return min(self._conversation.hosting.total_left, scopes.remaining())

    def _schedule(
        self, failure: BaseException, decision: Decision, settings: Reconnecting
    ) -> None:
        """Another attempt is made; in the pulls that follow."""
        assert not isinstance(decision, GiveUp)
        conversation, ledger = self._conversation, self._ledger
        conversation.tally = decision.tally
        if isinstance(decision, Restart) and decision.forgets:
            self._forget_session()
        self._failure = failure
        self._not_before = conversation.hosting.loop.clock() + decision.delay
        is_limit = decision.delay_source == "usage_limit"
        self._limit_over_at = time.time() + decision.delay if is_limit else None
        point = self.point
        if isinstance(decision, Resume) and ledger.was_heard:
            point = replace(point, prompt=self._resume_prompt(point, settings))
        # Else the prompt may not have come through: it is sent again, whole.
        self._next_point = point
        conversation.hosting.teller.tell(
            events.RetryScheduled,
            error_class=decision.error_class.value,
            retry=decision.retry,
            delay=decision.delay,
            delay_source=decision.delay_source,
            why=decision.why,
        )

    def _forget_session(self) -> None:
        """It begins anew: nothing of the session that the backend does not know is gone on with."""
        conversation = self._conversation
        conversation.point = replace(conversation.point, token=None, work_dir=None)
        self._ledger.go_on_from(conversation.point)

    def _resume_prompt(self, point: ResumePoint, settings: Reconnecting) -> str:
        try:
            return settings.prompt_for(point, self._conversation.hosting.teller.activity.labels)
        except BaseException as error:
            self._over = _Over(error)
            raise

    def _give_up(self, failure: BaseException, decision: GiveUp) -> NoReturn:
        """Raise what ended the last attempt, as it is, and with what was decided on it."""
        self._over, self._failure = _Over(failure), failure
        if decision.error_class is not ErrorClass.NEVER or isinstance(failure, Exception):
            done = self._ledger.deeds.so_far(self._conversation.attempts)
            _mark(failure, decision, tuple(self._failed), done)
        self._tell_giving_up(failure, decision)
        raise failure

    def _tell_giving_up(self, failure: BaseException, decision: GiveUp) -> None:
        self._conversation.hosting.teller.tell(
            events.GaveUp,
            reason=decision.reason,
            why=decision.why,
            error=failure,
            escalate=decision.escalate,
        )

    def _tell_of_replay(self, owner: Owner[T]) -> None:
        replay, tell = self._ledger.replay, self._conversation.hosting.teller.tell
        if replay is not None and replay.dropped:
            tell(events.ReplayDropped, attempt=owner.point.attempt, messages=replay.dropped)
        if replay is not None and replay.repeats:
            tell(events.KeysRepeated, attempt=owner.point.attempt)


def _mark(
    failure: BaseException, decision: GiveUp, attempts: tuple[Attempted, ...], done: Done
) -> None:
    """Let an error of any make carry what was decided on it."""
    error: Any = failure
    with suppress(AttributeError, TypeError):  # one with slots
        error.gave_up = decision.reason
        error.attempts = attempts
        error.done = done
    failure.add_note(quoted(f"streamguard gave up ({decision.reason}): {decision.why}"))
