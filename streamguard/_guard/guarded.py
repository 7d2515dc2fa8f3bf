"""`Guarded`: a source and an operator, to be iterated bare or in a block.

`GuardedIterator` steps the source's awaitables by hand: a message that is ready costs neither a
timer nor a task nor a scope, and one that is not is handed to the loop's `Parking`, through which
it alone can be cancelled (O4, T9). No scope and no task group is ever open across a `yield` to the
consumer. What time and messages mean is the attempt's business; what the outcome of a pull means
to the consumer is decided here, in `_outcome`.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Generator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, TypeVar, overload

from streamguard import _loops as loops
from streamguard._base.calling import refusing
from streamguard._base.numbers import Default
from streamguard._base.tracebacks import trim
from streamguard._base.warning import warn
from streamguard._guard.attempt import NO_LIMITS, Attempt
from streamguard._guard.knobs import is_guess
from streamguard._guard.modes import mode_in_force
from streamguard._guard.monitor import Block
from streamguard._guard.operator import Operator, Pipeable
from streamguard._guard.sources import Ask, Source, asking
from streamguard._guard.teardown import LEAVING, close_bounded
from streamguard._loops import Suspended, by_hand, stepped, suspend
from streamguard.backends import adapted
from streamguard.errors import StreamGuardError, StreamInterruptedError, Verdict

if TYPE_CHECKING:
    from streamguard._loops import Loop, Parking
    from streamguard.activity import Activity
    from streamguard.events.kinds import StreamOutcome
    from streamguard.sessions.hosting_operators import HostingOperator
    from streamguard.sessions.session import Session

T = TypeVar("T")
U = TypeVar("U")
R = TypeVar("R")

# For how many messages a pull need not look around: no more than there are small integers, since a larger one
# would be made anew for each. With a bare `total`, as many come between two looks at the clock as twice those between
# the two before, if they came within a moment; but no more than some.
_STRIDE: Final = 256
_QUICK_STRIDE: Final = 64
_MOMENT: Final = 1e-3
_NOTHING: Final[Any] = None


class Guarded(Pipeable, Generic[T]):
    """A guarded stream: `async for` it as it is, or in `async with ... as messages`.

    A source that can be iterated anew (an aiostream stream) is guarded anew each time. Any other
    (a generator, a channel) has one iterator, which remembers how it ended.
    """

    __slots__ = ("__weakref__", "_block", "_is_handed_out", "_messages", "_operator", "_source")

    def __init__(self, source: AsyncIterable[T], operator: Operator) -> None:
        self._source = source
        self._operator = operator
        self._messages: GuardedIterator[T] | None = None
        self._block: Block | None = None
        self._is_handed_out = False

    def __repr__(self) -> str:
        return f"{self._source!r} | {self._operator!r}"

    @property
    def activity(self) -> Activity:
        """The live state of the latest iteration."""
        return self._latest().activity

    def __aiter__(self) -> AsyncIterator[T]:
        return aiter(self._latest() if self._block is not None else self._hand_out())

    async def __aenter__(self) -> GuardedIterator[T]:
        if self._block is not None:
            raise RuntimeError("this guarded stream is in a block already: pipe the source again")
        messages = self._hand_out()
        block = Block(messages.attempt)
        await block.enter()
        self._block = block
        return messages

    async def __aexit__(self, _kind: object, exc: BaseException | None, _trace: object, /) -> bool:
        assert self._block is not None
        block, self._block = self._block, None
        try:
            return await block.leave(exc, self._latest())
        except StreamGuardError as error:
            trim(error)
            raise

    if not TYPE_CHECKING:  # so that a checker, too, says what is wrong
        __enter__ = __exit__ = refusing(
            "it is entered with `async with`: async with stream | idle_guard(180) as messages"
        )
        __getitem__ = refusing("it is iterated with `async for`: async for message in ...")
        __anext__ = refusing(
            "it is a stream and no iterator yet: write messages = aiter(...) once, then await "
            "anext(messages); or async with ... as messages"
        )

    async def aclose(self) -> None:
        """Close the source. Bounded, as a disconnect is."""
        await self._latest().aclose()

    @overload
    def __or__(self, other: HostingOperator[U], /) -> Session[T | U]: ...  # type: ignore[overload-overlap]  # pyright: ignore[reportOverlappingOverload]
    @overload
    def __or__(self, other: Operator, /) -> Guarded[T]: ...
    @overload
    def __or__(self, other: Callable[[Guarded[T]], R], /) -> R: ...
    def __or__(self, other: Any, /) -> Any:
        if isinstance(other, Operator):
            return (self._operator | other)(self._source)  # fused: one hop (O2)
        if any("__ror__" in vars(kind) for kind in type(other).__mro__):
            return NotImplemented  # it takes streams by itself, or says why it does not
        return other(self) if callable(other) else NotImplemented

    def _hand_out(self) -> GuardedIterator[T]:
        """An iteration of its own, if the source gives one."""
        if self._is_handed_out:
            if self._latest().is_repeatable:
                self._messages = None
            elif self._latest().is_spent:
                warn(
                    f"{self!r} is iterated again after its end, or after it was closed, and gives nothing more: "
                    "its source can be read only once. Make a new stream each time"
                )
        self._is_handed_out = True
        return self._latest()

    def _latest(self) -> GuardedIterator[T]:
        if self._messages is None:
            plan = self._operator.plan
            mode = mode_in_force(plan.mode)
            # Off, and pulled by hand: still nothing is limited (T11).
            limits = self._operator.limits if mode != "off" else NO_LIMITS
            # A source that reads a process knows it: `lines`, `json_lines`.
            process = getattr(self._source, "guarded_process", None)
            if process is not None and (plan.process is None or is_guess(plan.process)):
                plan = replace(plan, process=process)
            attempt = Attempt(plan, limits, mode)
            attempt.comes_from(self._source)
            self._messages = GuardedIterator(self._source, attempt)
        return self._messages


class GuardedIterator(AsyncIterator[T]):
    """One iteration of a guarded stream: what `async for` pulls from."""

    __slots__ = (
        "__weakref__",
        "_ask",
        "_broken",
        "_clock",
        "_interrupted",
        "_is_hosted",
        "_iterator",
        "_looked",
        "_origin",
        "_over",
        "_parking",
        "_pulling",
        "_ready",
        "_source",
        "_stride",
        "_total",
        "_waited",
        "_was_left",
        "_watch",
        "attempt",
    )

    _ask: Ask
    _clock: Callable[[], float]
    _parking: Parking

    def __init__(
        self, origin: AsyncIterable[T], attempt: Attempt, *, is_hosted: bool = False
    ) -> None:
        self.attempt = attempt
        self._is_hosted = is_hosted  # somebody else ends the attempt: an owner
        source = adapted(origin) if attempt.mode == "enforce" else origin
        self._origin, self._iterator = source, aiter(source)
        self._source: Source | None = (
            None  # as what is entered and closed, when one of these is due
        )
        self._watch = attempt.watch
        self._ready = False
        self._total: float | None = None  # when a bare `total` is spent (T1)
        self._looked = 0.0  # at the clock, for that
        self._stride = 1
        self._waited = True  # a guess: the last pull found nothing ready
        self._pulling = False
        self._interrupted = False
        self._broken = False
        self._over: BaseException | None = None
        self._was_left = False  # closed before it had come to an end

    @property
    def is_repeatable(self) -> bool:
        """Whether the source gives a new iteration each time it is asked for one."""
        return self._origin is not self._iterator

    @property
    def is_finished(self) -> bool:
        """Whether the stream came to its end by itself."""
        return self.is_spent and not self._was_left

    @property
    def has_failed(self) -> bool:
        """Whether its latest pull has raised an error of the source's own."""
        return self._broken

    @property
    def is_spent(self) -> bool:
        """Whether it gives nothing more: it came to its end, or was closed before that."""
        return isinstance(self._over, StopAsyncIteration)

    def __del__(self) -> None:
        if hasattr(self, "attempt"):  # it was made at all
            self.attempt.forgotten()  # after a bare `break`, Python tells nobody else

    @property
    def activity(self) -> Activity:
        """The live state of this iteration."""
        return self.attempt.activity

    def __aiter__(self) -> AsyncIterator[T]:  # noqa: PYI034 - off, it is the source's own
        if self.attempt.mode == "off":
            return self._iterator  # it *is* the source (T11)
        return self

    if not TYPE_CHECKING:
        __getitem__ = refusing("it is iterated with `async for`: async for message in messages")

    @by_hand
    def __anext__(self) -> Generator[Any, Any, T]:  # noqa: C901, PLR0912, PLR0915 - calls are dear here
        watch = self._watch
        # In short: where nothing is new, a pull is this method and nothing else. `left` says for how
        # many messages more that is known. A wait that is still noted is another pull, under way:
        # without a look at it two tasks would be in one generator.
        left = watch.left
        if not left:
            if (
                not watch.steady
                or watch.waiting_since is not None
                or ((not self._waited or self._total is not None) and self._is_total_spent())
            ):
                yield from self._get_ready().__await__()
            left = watch.left
        try:
            # By hand, since a wait must be seen when it begins and only then: what is ready costs
            # no clock, no task and no scope. Two ways to the first step, as the last pull went.
            steps = self._ask(self._iterator)
            if left or not self._waited:
                message: T = yield from stepped(suspend, steps)
                if type(message) is watch.plain:  # so it is steady still, and `left` is true
                    watch.left = left - 1
                    return message
                trap = None
                if type(message) is Suspended:
                    self._waited = True
                    trap = message.trap  # type: ignore[attr-defined]
            else:  # it will wait again: cheaper like this, and dearer if it does not
                message = trap = _NOTHING
                try:
                    trap = steps.send(None)
                except StopIteration as ready:
                    self._waited = False
                    message = ready.value
            if self._waited:
                # As in `steps.taken`, and once more here, since a wait in a generator of its own
                # would cost each idle stream 250 bytes.
                self._begin_to_wait()
                parking = self._parking
                try:
                    while True:
                        parking.park()
                        try:
                            answer = yield trap
                        except GeneratorExit:
                            parking.unpark()
                            steps.close()
                            raise
                        except BaseException as error:  # noqa: BLE001 - for the steps to handle
                            parking.unpark()
                            trap = steps.throw(error)
                        else:
                            if answer is None:  # asyncio says nothing: all else can do without us
                                message = yield from steps
                                break
                            parking.unpark()
                            trap = steps.send(answer)
                except StopIteration as ready:
                    message = ready.value
                finally:
                    parking.unpark()
                    answer = None  # trio's has the cancel, and that has this frame (O7)
            # It may have changed while we waited: a stamp, a hold, a limit that came due, another
            # thread's `touch()`. Not asked again, those would never learn of this message.
            if type(message) is watch.plain:
                watch.upto += 1
                watch.waiting_since = None  # or the next pull takes this one for still under way
                watch.mark = self._clock()
            elif not self._came(message):
                yield from self._raise_verdict().__await__()  # it is too late (T3)
        except BaseException as error:
            # Until its teardown is over: an `aclose()` from elsewhere would close the source
            # beside it.
            self._pulling = True
            try:
                outcome = yield from self._outcome(error).__await__()
            finally:
                self._pulling = False
            if outcome is error:
                del outcome  # or it and this frame keep each other, and the stream with them (O7)
                raise
            # With its own cause, or none: our cancel, which is what the pull met, would else stand
            # in every traceback as what went wrong.
            try:
                raise outcome from outcome.__cause__
            finally:
                del outcome, self  # as above: the error has this frame, and we have the error
        return message

    async def _get_ready(self) -> None:
        """Before a pull that can take nothing for granted: the first, and where something is new."""
        if self.ag_running:
            raise RuntimeError(
                "two pulls at once on one guarded stream: a message would go to either. "
                "Give each consumer a stream of its own, or let one task pull and hand on"
            )
        if not self._ready or not self.attempt.is_undisturbed:
            self._pulling = True
            try:
                await self._prepare()
            finally:
                self._pulling = False
        if not self._parking.arrive():
            self._move()

    @property
    def ag_running(self) -> bool:
        """Whether a pull is under way, by a generator's name for it: aiostream asks before closing."""
        return self._pulling or self._watch.waiting_since is not None

    async def aclose(self) -> None:
        """Close the source. Bounded: see `close`; a pull still under way is an error."""
        if self.ag_running:
            raise RuntimeError(
                "aclose() while a pull is under way: cancel the task that pulls, or let it end"
            )
        attempt = self.attempt
        attempt.leave()
        closed = False
        try:
            closed = await self.close()
        finally:
            if attempt.verdict is None:
                attempt.end(outcome="completed" if self.is_finished else "left")
            elif not attempt.is_over:
                assert attempt.tearing_down is not None
                try:
                    await attempt.tearing_down.finish()
                finally:
                    attempt.conclude(closed=closed, cause=None)  # nobody asked any more (T3)

    async def close(self) -> bool:
        """Close the source, in the task that iterated it; False if it did not close in time.

        Leaving a stream early waits less long than a disconnect, unless you wrote a
        `disconnect_timeout`.
        """
        attempt = self.attempt
        bound = attempt.plan.disconnect_timeout
        is_left = self._over is None
        if is_left and attempt.tearing_down is None and isinstance(bound, Default):
            bound = min(bound, LEAVING)
        if is_left:
            self._was_left = True
            self._stop(StopAsyncIteration())
        loop = attempt.loop or loops.current()
        is_finished = not is_left and attempt.tearing_down is None
        closers = self._as_source().closers(is_finished=is_finished)
        return await close_bounded(closers, loop, bound)

    def _as_source(self) -> Source:
        if self._source is None:
            self._source = Source(self._origin, self._iterator)
        return self._source

    def _stop(self, over: BaseException) -> None:
        """Every pull from here on gets `over`."""
        self._over = over
        self._ready = False
        if self._watch.steady:
            self._watch.leave_steady()

    def _end_of_all(self) -> BaseException:
        """What a pull gets when all is over."""
        assert self._over is not None
        if isinstance(self._over, StopAsyncIteration):
            return StopAsyncIteration()  # one that is raised again grows with each pull
        return self._over.with_traceback(None)

    # -- one pull ------------------------------------------------------------------------

    async def _prepare(self) -> None:
        """What the first pull does, and every one that has to look at a bare `total` or finds all over."""
        attempt = self.attempt
        if self._over is not None:
            raise self._end_of_all()
        if attempt.exit is not None:
            raise attempt.exit
        if attempt.verdict is not None:
            await self._raise_verdict()  # decided while nobody asked
        if not attempt.is_begun:
            attempt.begin()
        assert attempt.loop is not None
        if attempt.pull is None:
            self._settle_in(attempt.loop)
        if (verdict := attempt.overspent()) is not None:
            raise await self._conclude(None, verdict)
        ask = asking(self._iterator)
        self._ask = ask or self._as_source().ask
        # Does `total` run without a block whose scope it could cancel?
        is_bare = attempt.block is None and attempt.watch.limits.total is not None
        if is_bare:
            if attempt.mode == "enforce" and (verdict := attempt.overdue_total()) is not None:
                raise await self._conclude(None, verdict)
            self._total = attempt.watch.total_deadline()
        is_entered = ask is not None or self._as_source().is_entered
        self._ready = is_entered and not is_bare

    def _is_total_spent(self) -> bool:
        """Whether a bare `total` is over, which no loop will say while nobody waits (T1).

        Where the loop runs at all its alarm ends all steadiness. So the clock is read for a consumer
        that never lets it run: at each pull, and ever more seldom while many come within a moment.
        """
        now = 0.0 if self._total is None else self._clock()
        is_spent = self._total is not None and now >= self._total
        if self._waited:
            return is_spent
        stride = _STRIDE
        if self._total is not None:
            is_quick = now - self._looked < _MOMENT
            self._stride = stride = min(2 * self._stride, _QUICK_STRIDE) if is_quick else 1
            self._looked = now
        self._watch.grant(stride)  # also if it is spent: in mode `warn` the stream goes on
        return is_spent

    def _begin_to_wait(self) -> None:
        """Nothing is ready: from here on the backend keeps us waiting."""
        if not self._parking.arrive():
            self._move()
        watch = self._watch
        if watch.steady:
            watch.grant(0)  # the next pull is not as short
            watch.waiting_since = watch.mark = self._clock()
        else:
            self.attempt.asked()

    def _move(self) -> None:
        """Another loop steps us than before, maybe in another thread: wait there from here on."""
        self._settle_in(loops.current())
        self._parking.arrive()

    def _came(self, message: T) -> bool:
        """A message came, and is more than plain progress or came where something is new.

        False: it is too late, since disconnect has begun (T3).
        """
        attempt, watch = self.attempt, self._watch
        if not attempt.is_undisturbed:
            self._parking.release()
            if attempt.verdict is not None:
                return False
        self._interrupted = self._broken = False
        attempt.received(message)
        if watch.steady:
            watch.plain = attempt.reading.plain
        return True

    async def _raise_verdict(self) -> NoReturn:
        raise await self._conclude(None)

    def _settle_in(self, loop: Loop) -> None:
        """Wait on `loop` from here on."""
        attempt = self.attempt
        if attempt.loop is not loop:
            attempt.moves_to(loop)
        attempt.pull = self._parking = loop.parking()
        attempt.watch.leave_steady()
        self._clock = loop.clock

    # -- what a pull came to -------------------------------------------------------------

    async def _outcome(self, error: BaseException) -> BaseException:
        """What the consumer gets for a pull that ended with `error` (T7, T8)."""
        attempt = self.attempt
        # Said already, to an earlier pull; or there was no pull, for the stream could not begin.
        if error is self._over or attempt.pull is None:
            return error
        if isinstance(error, GeneratorExit):
            self._abandoned()
            return error
        # First of all, on every way out, our cancels are taken out of the task's count. One that
        # was left there would pass for somebody else's: the consumer would be cancelled, not told
        # why.
        self._parking.release()
        waited = self._watch.waiting_since is not None
        attempt.answered()
        attempt.activity.count_vain_pull()
        if attempt.exit is not None:
            error = attempt.exit
        assert attempt.loop is not None
        cancelled = attempt.loop.cancelled
        is_cancel = isinstance(error, cancelled) or loops.consists_of(error, cancelled)
        # asyncio has one exception for all cancels, so it is told by the count whether somebody
        # has cancelled this task beside us. If so, that goes on, and the verdict is for nobody
        # (T9).
        is_ours = is_cancel and attempt.is_cut and not self._parking.is_overruled
        # A source may give a message when it is cut, and then let the cancel go on. The message
        # took the verdict back; the cancel, which nobody else has sent, brings it again (T3).
        if is_cancel and not is_ours and not self._parking.is_cancelled:
            is_ours = attempt.is_our_cut(error)
            if is_ours and attempt.is_done:
                return await self._ended(StopAsyncIteration())
        if not is_ours if is_cancel else loops.is_exit(error, cancelled):
            return await self._interrupted_by(error)
        # Many a source makes an end, or an error of its own, of the cancel of its block.
        # Only if this pull was waiting then: what had been answered before is the source's own.
        if (
            is_ours
            or attempt.ends_in_verdict
            or (waited and attempt.is_struck and self._parking.is_cancelled)
        ):
            return await self._conclude(error)
        if isinstance(error, StopAsyncIteration):
            return await self._ended(error)
        # The source's own. What is asked after it, if anything, begins anew.
        self._broken = True
        self._ready = False
        self._watch.leave_steady()
        if not attempt.is_struck:  # else it is what our cancel has become
            attempt.end(error)
        return error

    def _abandoned(self) -> None:
        """The pull itself is being closed, and with it any generator that it had reached.

        From here on nothing may be awaited. (Or the source says so itself, cut or not.)
        """
        attempt = self.attempt
        self._interrupted = True
        if attempt.loop is not None and attempt.loop.is_running_here():
            self._parking.release()
        attempt.abandoned()
        self._end_if_bare("left")

    async def _interrupted_by(self, error: BaseException) -> BaseException:
        """Somebody else's cancellation goes on, whatever we had decided."""
        self._interrupted = True
        attempt = self.attempt
        attempt.outranked()
        if attempt.verdict is not None:
            await self._conclude(None, interruption=error)  # see what has begun to its end (D6)
        else:
            is_exit = loops.is_exit(error, attempt.cancelled)
            self._end_if_bare("failed" if is_exit else "cancelled", error)
        return error

    def _end_if_bare(self, outcome: StreamOutcome, error: BaseException | None = None) -> None:
        """Where nobody else would: whoever looks sees at once that this stream is not pulled.

        The source may go on: then the next pull begins the attempt again, with what its watch
        has added up so far.
        """
        if self.attempt.block is None and not self._is_hosted:
            self._ready = False
            self._watch.leave_steady()
            self.attempt.end(error, outcome=outcome)

    async def _ended(self, end: BaseException) -> BaseException:
        """The stream ended by itself, which need not be an end."""
        attempt = self.attempt
        judged = attempt.mode == "enforce" and not attempt.is_leaving
        enforced = judged and not self._broken and self._watch.turn_open
        backend = self.attempt.reading.backend
        if enforced and self._interrupted:
            # T8: the consumer's cancel finished the source, which only looks complete.
            interrupted = StreamInterruptedError(
                "the stream ended after a pull that your own scope or timeout had cancelled: the "
                "cancel finished the source, so messages may be missing. Guard the stream inside "
                "of that scope, or start a new stream",
                activity=attempt.activity,
            )
            await self._finish(interrupted)
            return interrupted
        if enforced and (exited := await attempt.exited()) is not None:
            return await self._conclude(end, exited)
        if enforced and backend is not None and backend.always_ends_turns:
            return await self._conclude(end, attempt.truncated())
        if judged and (left_open := attempt.left_open()) is not None:
            return await self._conclude(end, left_open)
        await self._finish(end)
        return end

    async def _finish(self, end: BaseException) -> None:
        is_normal = isinstance(end, StopAsyncIteration)
        self._stop(StopAsyncIteration() if is_normal else end)  # its traceback leads back to us
        error = None if is_normal else end
        outcome: StreamOutcome = "completed" if is_normal else "cancelled"
        if self.attempt.block is not None:
            self.attempt.let_go(outcome, error)
            return  # leaving the block does the rest
        try:
            await self.close()
        finally:
            if not self._is_hosted:  # whoever hosts it knows whether anybody still wanted it
                self.attempt.end(error, outcome=outcome)

    async def _conclude(
        self,
        cause: BaseException | None,
        verdict: Verdict | None = None,
        interruption: BaseException | None = None,
    ) -> BaseException:
        """The verdict's way to its end: teardown, source closed, the error or a normal end.

        `interruption` is somebody else's cancellation that this is already delaying.
        """
        attempt = self.attempt
        attempt.decide(verdict)
        self._stop(StopAsyncIteration())
        assert attempt.tearing_down is not None
        closed = False
        try:
            interruption = await attempt.tearing_down.before_closing(interruption)
            try:
                closed = await self.close()
            except Exception as error:  # noqa: BLE001 - the verdict goes before it (T7)
                cause = cause or error
            except BaseException as error:
                if not loops.consists_of(error, attempt.cancelled):
                    raise
                interruption = interruption or error
            await attempt.tearing_down.finish(interruption)
        finally:
            over = attempt.conclude(closed=closed, cause=cause) or StopAsyncIteration()
            self._over = over
        return over
