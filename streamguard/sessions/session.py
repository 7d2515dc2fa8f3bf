"""`session()`, `Session` and `Chat`: a stream that may take several attempts, and several prompts.

A `Session` is a value, piped through operators as a stream is. Entered, it gives a `Chat`: iterate
it for the first prompt's messages, `ask` it for each further one. Because it owns connections and
their tasks it wants an `async with`, at whose end none of them is left.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, TypeVar, cast, overload

from streamguard import _loops as loops
from streamguard import events
from streamguard._base.calling import factory, refusing
from streamguard._guard.attempt import NO_LIMITS
from streamguard._guard.modes import mode_in_force
from streamguard._guard.operator import Operator, Pipeable
from streamguard._guard.plan import Plan
from streamguard._guard.teardown import outlast
from streamguard.activity import Activity
from streamguard.errors import ConfigError
from streamguard.events import recorders as recording
from streamguard.events.teller import Teller
from streamguard.sessions.block_clock import BlockClock
from streamguard.sessions.hosting import Hosting
from streamguard.sessions.points import ResumePoint, check_opener
from streamguard.sessions.replay import is_ordered
from streamguard.sessions.turns import Conversation, Turn

if TYPE_CHECKING:
    from streamguard._guard.modes import Mode
    from streamguard.sessions.exclusive import Exclusive
    from streamguard.sessions.hosting_operators import HostingOperator
    from streamguard.sessions.points import Opener

T = TypeVar("T")
U = TypeVar("U")

NOTHING: Final = Operator(Plan(), "")


@factory("session(open_client, prompt=...) | idle_guard(180)")
def session(
    open: Opener[T],  # noqa: A002 - the word that users write
    /,
    *,
    prompt: str | None = None,
    point: ResumePoint | None = None,
    exclusive: str | None = None,
) -> Session[T]:
    """Make a source that opens its own stream, and opens it again. Pipe it through operators.

    Args:
        open: Called with a `ResumePoint` for each attempt; gives an async context manager of a
            stream, or of a `Connection` to a client that takes prompts and can be ended.

        prompt: What is asked first.

        point: Where an earlier session stood (`chat.point`), to go on from there. A prompt that was
            answered is not asked again, and work that cannot be taken back is not begun again.

        exclusive: The backend's name, such as "claude", if a session's history is on this machine.
            Then two programs of this user cannot be in one session at once: the second gets a
            `SessionHeldError` that names the first. Ready sessions of such backends set it themselves.
    """
    check_opener(open, "session")
    _check_prompt(prompt)
    start = point or ResumePoint()
    if not isinstance(cast("object", start), ResumePoint):
        raise TypeError(
            f"session(point={point!r}): pass a ResumePoint, such as chat.point, or "
            "ResumePoint(token=...)"
        )
    if exclusive is not None and (not isinstance(cast("object", exclusive), str) or not exclusive):
        raise TypeError(f"session(exclusive={exclusive!r}): name the backend, such as 'claude'")
    start = start if prompt is None else start.asking(prompt)
    return Session(_Opening(open=open, start=start, exclusive=exclusive))


def _check_prompt(prompt: object) -> None:
    if prompt is not None and not isinstance(prompt, str):
        raise TypeError(f"session(prompt={prompt!r}): a prompt is a string")


def session_of(stream: AsyncIterable[T], operator: Operator) -> Session[T]:
    """A session that begins with an open stream: its operator wants a task of its own for it."""
    return Session(_Opening(open=None, start=ResumePoint(), stream=stream), operator)


class _Opening(Generic[T]):
    """Where a session's streams come from: a function, or one open stream and then a function."""

    def __init__(
        self,
        *,
        open: Opener[T] | None,  # noqa: A002
        start: ResumePoint,
        stream: AsyncIterable[T] | None = None,
        exclusive: str | None = None,
    ) -> None:
        self.exclusive = exclusive
        self.open = open
        self.start = start
        self.stream = stream

    def opener(self, attempt: int, later: Opener[T] | None) -> Opener[T]:
        """What opens that attempt. `later`: what `reconnecting_resume` was given."""
        if self.stream is not None and attempt == self.start.attempt:
            return _as_it_is(self.stream)
        if (open_ := self.open or later) is None:
            raise TypeError(
                f"{self.stream!r} was piped as it is, so there is no second turn to open: write "
                "session(open) | ... to ask more than once"
            )
        return open_

    def plan(self, plan: Plan, attempt: int) -> Plan:
        """Handles that were written beside an open stream end that one, and no later one."""
        if self.stream is None or attempt == self.start.attempt:
            return plan
        return replace(plan, disconnects=(), interrupts=(), process=None)


def _as_it_is(stream: AsyncIterable[T]) -> Opener[T]:
    @asynccontextmanager
    async def opened(point: ResumePoint) -> AsyncGenerator[AsyncIterable[T], None]:
        if point.prompt is not None:
            raise TypeError(
                f"{stream!r} was piped as it is, and would never see the prompt {point.prompt!r}: "
                "iterate the chat itself to the end of that stream, then ask"
            )
        yield stream

    return opened


class Session(Pipeable, Generic[T]):
    """A session that you enter: `async with session(...) | idle_guard(180) as chat:`."""

    def __init__(self, opening: _Opening[T], operator: Operator = NOTHING) -> None:
        _check(opening, operator)
        self._opening = opening
        self._operator = operator
        self._block: _Block[T] | None = None

    def __repr__(self) -> str:
        stream, open_ = self._opening.stream, self._opening.open
        source = f"session({open_!r})" if stream is None else repr(stream)
        return source if self._operator is NOTHING else f"{source} | {self._operator!r}"

    if TYPE_CHECKING:

        @overload
        def __or__(self, other: HostingOperator[U], /) -> Session[T | U]: ...
        @overload
        def __or__(self, other: Operator, /) -> Session[T]: ...

    def __or__(self, other: Any, /) -> Any:
        if not isinstance(other, Operator):
            return NotImplemented
        mine = self._operator
        return Session(self._opening, other if mine is NOTHING else mine | other)

    if not TYPE_CHECKING:  # so that a checker, too, says what is wrong

        def __aiter__(self) -> NoReturn:
            raise TypeError(
                f"{self!r} owns clients and tasks, and must know when you are done with them. "
                "Write: async with ... as chat: async for message in chat: ..."
            )

        __anext__ = __aiter__
        __getitem__ = refusing(
            "a session is iterated with `async for`, in its block: async with ... as chat: async for "
            "message in chat: ..."
        )
        __ror__ = refusing("a session opens its own stream, and stands first: session(open) | ...")
        __enter__ = __exit__ = refusing(
            "a session is entered with `async with`: async with session(...) | idle_guard(180) as chat"
        )

        def __getattr__(self, name: str) -> NoReturn:
            hint = ""
            if not name.startswith("_") and hasattr(Chat, name):
                hint = f". Its chat has it: async with ... as chat, then chat.{name}"
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}")

    async def __aenter__(self) -> Chat[T]:
        if self._block is not None:
            raise RuntimeError("this session is in a block already: make another one")
        block = _Block(self._opening, self._operator)
        chat = block.enter()
        self._block = block
        return chat

    async def __aexit__(self, _kind: object, exc: BaseException | None, _trace: object, /) -> bool:
        assert self._block is not None
        block, self._block = self._block, None
        return await block.leave(exc)


def _check_cursor(start: ResumePoint, plan: Plan) -> None:
    """A cursor without an order is known only where all that was delivered before it is."""
    settings, cursor = plan.reconnecting, start.cursor
    if settings is None or settings.dedupe_by is None or cursor is None or is_ordered(cursor):
        return
    raise ConfigError(
        f"session(point=...): its cursor {cursor!r} has no order, so a replayed message cannot be told from a new "
        "one. Let dedupe_by give an int that grows; or, if the backend replays nothing, continue from "
        "dataclasses.replace(point, cursor=None)"
    )


def _check(opening: _Opening[Any], operator: Operator) -> None:
    settings = operator.plan.reconnecting
    if settings is None:
        return
    if opening.open is None and settings.open is None:
        raise TypeError(
            f"{opening.stream!r} | {operator!r}: the stream is open already, and there is no way "
            "to open it again. Write reconnecting_resume(open), or session(open) | ..."
        )
    if opening.open is not None and settings.open is not None:
        raise ConfigError(
            f"{operator!r}: session(open) has an open of its own, for all attempts: give one of "
            "the two"
        )


class Chat(AsyncIterable[T]):
    """An entered session: iterate it for the first prompt, `ask` it for each further one."""

    def __init__(self, conversation: Conversation[T]) -> None:
        self._conversation = conversation
        self._first = Turn(conversation, conversation.point.prompt, given=conversation.point)

    def __repr__(self) -> str:
        return f"<Chat {self._conversation.hosting.teller.activity!r}>"

    def __aiter__(self) -> Turn[T]:
        return self._first

    if not TYPE_CHECKING:
        __getitem__ = refusing("it is iterated with `async for`: async for message in chat")
        __anext__ = refusing(
            "write messages = aiter(chat) once, then await anext(messages); or async for message in chat"
        )

    def ask(self, prompt: str, /) -> Turn[T]:
        """The messages of one more turn. The prompt is sent when the first one is asked for."""
        if not isinstance(cast("object", prompt), str):
            raise TypeError(f"ask({prompt!r}): a prompt is a string")
        return Turn(self._conversation, prompt)

    @property
    def activity(self) -> Activity:
        """The live state of the session, over all its attempts."""
        return self._conversation.hosting.teller.activity

    @property
    def point(self) -> ResumePoint:
        """Where the session stands. Keep it, and another session can go on from here.

        It counts what the consumer has got, the message at hand included. So keep it when you are done
        with that message.
        """
        return self._conversation.latest_point()


class _Block(Generic[T]):
    """One `async with` of a session: its clock, its conversation, and the end of both."""

    def __init__(self, opening: _Opening[T], operator: Operator) -> None:
        self._opening = opening
        self._operator = operator
        self._clock: BlockClock | None = None

    def enter(self) -> Chat[T]:
        plan = recording.joined(self._operator.plan)
        loop = loops.current()
        mode = mode_in_force(plan.mode)
        limits = self._operator.limits if mode != "off" else NO_LIMITS
        start = self._opening.start
        custody = start.custody
        activity = plan.activity or Activity("" if custody is None else custody.key)
        if custody is not None and mode == "enforce":
            limits = replace(limits, lease=lambda: custody.term(loop.clock()))
        self._hosting = hosting = Hosting(
            loop=loop,
            teller=Teller(activity, plan.listeners, loop.clock),
            limits=limits,
            mode=mode,
            started=loop.clock(),
            custody=custody,
            exclusive=self._exclusive(mode, activity),
        )
        _check_cursor(start, plan)
        if plan.reconnecting is not None and isinstance(plan.reconnecting.prompt, str):
            plan.reconnecting.prompt_for(
                start, activity.labels
            )  # said now, if it cannot be filled
        if plan.reconnecting is not None:
            for recorder in recording.among(plan.observers):
                recorder.await_decision(activity)
        later = plan.reconnecting.open if plan.reconnecting is not None else None
        attempt_plan = replace(plan, activity=activity, reconnecting=None, keep_alive=None)
        self._conversation = Conversation(
            hosting,
            start,
            plan_for=lambda attempt: self._opening.plan(attempt_plan, attempt),
            opener_for=lambda attempt: self._opening.opener(attempt, later),
            reconnecting=plan.reconnecting,
            keep_alive=plan.keep_alive,
        )
        if custody is not None:
            custody.begin(self)
        if mode == "enforce" and (limits.total is not None or limits.lease is not None):
            self._clock = BlockClock(hosting, self._conversation)
        return Chat(self._conversation)

    def _exclusive(self, mode: Mode, activity: Activity) -> Exclusive | None:
        backend = self._opening.exclusive
        # Whoever has it on a lease is the owner by that, and one that is stopped is not any more.
        if backend is None or mode != "enforce" or self._opening.start.custody is not None:
            return None
        from streamguard.sessions.exclusive import Exclusive

        return Exclusive(backend, activity)

    @property
    def _is_struck(self) -> bool:
        return self._clock is not None and self._clock.struck is not None

    # -- for its custody ---------------------------------------------------------------------

    def settled_point(self) -> ResumePoint | None:
        return self._conversation.settled_point()

    @property
    def delivered(self) -> int:
        return self._conversation.delivered

    @property
    def has_progressed(self) -> bool:
        return self._conversation.has_progressed

    def look(self) -> None:
        owner = self._conversation.owner
        if owner is not None and owner.attempt is not None:
            owner.attempt.reconsider()
        if self._clock is not None:
            self._clock.look()

    # -- leaving -----------------------------------------------------------------------------

    async def leave(self, exc: BaseException | None) -> bool:
        try:
            return await self._leave(exc)
        finally:
            if (custody := self._hosting.custody) is not None:
                owner = self._conversation.owner
                custody.end(is_gone=owner is None or (owner.released.is_set() and owner.confirmed))
            self._leave_to_others()
            self._hosting.teller.tell(events.SessionOver)
            for recorder in recording.among(self._hosting.teller.observers):
                recorder.session_over(self._hosting.teller.activity)

    def _leave_to_others(self) -> None:
        if (exclusive := self._hosting.exclusive) is None:
            return
        owner = self._conversation.owner
        if owner is not None and owner.released.is_set() and owner.confirmed:
            exclusive.gone(owner.link)
        exclusive.leave()

    async def _leave(self, exc: BaseException | None) -> bool:
        clock = self._clock
        if clock is not None:
            clock.stop()
        self._conversation.close()
        is_news = False
        try:
            is_news = await self._end_owner(exc)
        finally:
            swallowed = clock is not None and clock.leave(exc)
        owner = self._conversation.owner
        failure = owner.failure if owner is not None else None
        if clock is not None and clock.struck is not None and swallowed:
            raise clock.error(failure) from exc
        if exc is None and failure is not None and is_news:
            raise failure
        return False

    async def _end_owner(self, exc: BaseException | None) -> bool:
        """Wait for the owner's end, through one cancellation: this one, or the next (D6).

        Whether it has failed in that: what had failed before was raised, or nobody asked (T3).
        """
        owner = self._conversation.owner
        if owner is None:
            return False
        was_known = owner.released.is_set()
        loop = self._hosting.loop
        is_cancelled = loops.consists_of(exc, loop.cancelled) and not self._is_struck
        owner.stop("cancelled" if is_cancelled else "left", by_error=exc is not None)
        kept = exc if is_cancelled else None
        try:
            await outlast(owner.seen_off, kept)
        except loop.cancelled as error:
            if not owner.seen_off.is_set():
                self._hosting.teller.tell(events.OwnerAbandoned, attempt=owner.point.attempt)
            if error is not kept:
                raise
        return owner.link.failed_to_close and not was_known
