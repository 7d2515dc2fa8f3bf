"""`OpenedConnection`: what `open` gave for one attempt, entered and left in one task.

It is left as an `async with` around the loop would leave it, and within a bound. What that raises is
told from what had ended the attempt before. Knows points, sources and bounds; the task in which all
of this happens is the owner's.
"""

from __future__ import annotations

import inspect
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import anyio

from streamguard import _loops as loops
from streamguard import events
from streamguard._guard.knobs import Derived, is_guess
from streamguard._guard.sources import Source
from streamguard._guard.supervision import wants_await
from streamguard._guard.teardown import Bounded
from streamguard.backends import adapted
from streamguard.errors import StreamGuardError, StreamInterruptedError, StreamTruncatedError
from streamguard.sessions.points import Connection

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from streamguard._guard.attempt import Attempt
    from streamguard._guard.plan import Plan
    from streamguard.process import ProcessTree
    from streamguard.sessions.hosting import Hosting
    from streamguard.sessions.points import Opener, ResumePoint

T = TypeVar("T")


class OpenedConnection(Generic[T]):
    """A connection that is opened when it is first needed.

    `plan`: the attempt's, with the connection's own handles once it is open.
    `failed_to_close`: whether its closing has raised what its consumer is to know of.
    """

    def __init__(
        self, hosting: Hosting, plan: Plan, opener: Opener[T], point: ResumePoint
    ) -> None:
        self.plan = plan
        self.failed_to_close = False
        self._hosting = hosting
        self._opener = opener
        self._point = point
        self._manager: AbstractAsyncContextManager[Any] | None = None
        self._connection: Connection[T] | None = None
        self._tree: ProcessTree | None = None
        self._owns_tree = False
        self._unkeep: Callable[[], None] = _nothing

    @property
    def takes_prompts(self) -> bool:
        """Whether it is open, and another prompt can be sent over it."""
        connection = self._connection
        return connection is not None and not hasattr(type(connection.source), "__aiter__")

    def forget(self) -> ResumePoint:
        """Let go of what was open, and of why it was: the point without that."""
        self._manager = self._connection = None
        self._point = replace(self._point, reason=None)
        return self._point

    # -- opening ---------------------------------------------------------------------------

    async def source_of(self, prompt: str | None, attempt: Attempt) -> Source:
        """The source of a turn, in the connection that is opened for it if there is none."""
        if self._connection is None:
            await self._connect(attempt)
        await self._check_lease()  # it may have taken long
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
        attempt.comes_from(origin)
        source = adapted(origin) if attempt.mode == "enforce" else origin
        return Source(source, aiter(source))

    async def _connect(self, attempt: Attempt) -> None:
        await self._check_lease()
        if (exclusive := self._hosting.exclusive) is not None:
            await exclusive.take(self, self._point.token)
        point = replace(self._point, activity=self._hosting.teller.activity)
        manager: Any = self._opener(point)
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
        if not is_packed:
            _check_stream(opened)
        self._connection = cast("Connection[T]", opened) if is_packed else Connection(opened)
        plan = self._connection.over(self.plan)
        if plan.process is not None:
            named = partial(self._named, plan.process)
            if isinstance(plan.process, Derived):
                plan = replace(
                    plan, process=replace(plan.process, handle=named)
                )  # a guess stays one
            else:
                plan = replace(plan, process=named)
        self.plan = plan
        attempt.connected(plan)
        self._hosting.on_open(self._point)

    async def _check_lease(self) -> None:
        """Ask nothing more of the backend when somebody else may have the session."""
        if self._hosting.is_lost:
            if self._hosting.limits.lease is not None:
                await anyio.sleep_forever()  # the watch ends this wait, and all that is open
            raise self._hosting.lost()

    def _named(self, process: Any) -> Any:
        """The tree of the connection's process: adopted once, for all of its turns."""
        if self._tree is not None and self._tree.is_dead and is_guess(process):
            self._let_go()  # such a client may start a process for each turn
        if self._tree is None:
            from streamguard.process import ProcessTree

            is_function = callable(process) and not hasattr(process, "pid")
            target: Any = process() if is_function else process
            if wants_await(target):
                return target  # the supervision says what is wrong with it
            if target is not None:
                is_theirs = isinstance(target, ProcessTree)
                self._tree = target if is_theirs else ProcessTree.adopt(target)
                self._owns_tree = not is_theirs
                if (custody := self._hosting.custody) is not None:
                    self._unkeep = custody.keep(self._tree)
                if (exclusive := self._hosting.exclusive) is not None:
                    exclusive.keep(self, self._tree)
        return self._tree

    def _let_go(self, *, is_gone: bool = True) -> None:
        """Of its process nothing more is wanted. What may live on dies with the lease, at the latest."""
        if is_gone:
            self._unkeep()
        self._unkeep = _nothing
        if self._tree is not None and self._owns_tree:
            self._tree.close()
        self._tree = None

    # -- leaving ---------------------------------------------------------------------------

    async def look(self) -> None:
        """See who belongs to its process while that is there: its closing may end it, and no other."""
        if self._tree is not None:
            await self._tree.look()

    async def leave(
        self, failure: BaseException | None, *, was_left_by_error: bool
    ) -> tuple[BaseException | None, bool]:
        """Leave what `open` gave, as an `async with` around the loop would."""
        if (manager := self._manager) is None:
            return failure, True
        # A consumer's own error is none of the connection's, but it must not look like a good end:
        # `open` might commit what was cut short.
        seen = failure or (self._interruption() if was_left_by_error else None)
        closing = Bounded(self._hosting.loop, self.plan.disconnect_timeout)
        is_swallowed: list[object] = []

        async def leave() -> None:
            kind, traceback = (type(seen), seen.__traceback__) if seen else (None, None)
            is_swallowed.append(await type(manager).__aexit__(manager, kind, seen, traceback))

        try:
            await closing.run(leave())
        except BaseException as raised:
            if isinstance(raised, GeneratorExit) and not self._hosting.loop.is_running_here():
                raise  # the task is being thrown away, after its loop
            error = raisable(raised)
            # No news: the bound's own cancel, and what had ended it already, as it is or as a task
            # group hands it on. Anything else says more, and is weighed against that.
            is_cut = self._is_cancel(error) and not closing.is_overruled
            if not is_cut and not _is_of(error, seen):
                return self._left_by(error, failure, seen)
        # A scope within `open` has cut the stream, and takes its own cancel back: no error is
        # left, and half an answer would look like a whole one (T8).
        if self._is_cancel(failure) and any(is_swallowed):
            failure = StreamTruncatedError(
                "the stream was cut by a scope that open() holds around it, and that let it end in "
                "silence: what it had yet to say is missing",
                activity=self.plan.activity,
            )
        return failure, not closing.was_cut

    def _is_cancel(self, error: BaseException | None) -> bool:
        return loops.consists_of(error, self._hosting.loop.cancelled)

    def _left_by(
        self, error: BaseException, failure: BaseException | None, seen: BaseException | None
    ) -> tuple[BaseException | None, bool]:
        """What an error that leaving has raised makes of what had ended the attempt."""
        if self._is_cancel(failure):
            return error, True  # it is what had cancelled us, from within
        if error.__cause__ is seen is not None:  # `raise Mine(...) from error`, written in `open`
            return self._translated(failure, error), True
        return self.worse(failure, error), False

    def _translated(
        self, failure: BaseException | None, error: BaseException
    ) -> BaseException | None:
        """`open` says what ended it in its own words; a verdict keeps its type."""
        return failure if isinstance(failure, StreamGuardError) or failure is None else error

    def _interruption(self) -> StreamInterruptedError:
        return StreamInterruptedError(
            "the session's block was left by an error or a cancellation",
            activity=self.plan.activity,
        )

    def worse(self, failure: BaseException | None, error: BaseException) -> BaseException:
        """What is raised of the two; the other one is reported."""
        if failure is None or loops.is_exit(error, self._hosting.loop.cancelled):
            self.failed_to_close = True
            return error
        try:
            self._hosting.teller.tell(events.CloseFailed, attempt=self._point.attempt, error=error)
        except BaseException as exit_:  # noqa: BLE001 - an observer ends the program, by its consumer
            self.failed_to_close = True
            return exit_
        return failure

    def is_confirmed(
        self, attempt: Attempt, failure: BaseException | None, *, closed: bool
    ) -> bool | None:
        """What the teardown of a verdict says now that the rest is known; None if there is none.

        Only a process tree that is proven dead makes up for a connection that is not closed.
        """
        # That of a turn that an interrupt ended was none of the connection's.
        teardown = None if attempt.is_spared else attempt.teardown
        if isinstance(failure, StreamGuardError) and failure.teardown is not None:
            teardown = failure.teardown
        if teardown is None:
            return None
        # It was confirmed when the stream unwound. That a connection does not close came out
        # later.
        if teardown.tree is None and not closed:
            teardown = replace(teardown, confirmed=False)
            if isinstance(failure, StreamGuardError) and failure.teardown is not None:
                failure.teardown = teardown
        return teardown.confirmed

    async def is_gone(
        self, attempt: Attempt, failure: BaseException | None, *, closed: bool, is_left: bool
    ) -> bool:
        """Whether the backend has certainly ended (D5). `is_left`: in the midst of its turn.

        A connection that is closed in peace says nothing of a process that is still at work on the
        session. One that a client is known by may serve others.
        """
        tree = self._tree
        is_at_work = is_left and not isinstance(self.plan.process, Derived)
        gone = False
        try:
            if (confirmed := self.is_confirmed(attempt, failure, closed=closed)) is not None:
                gone = confirmed
            # A good end leaves a process alone, which may serve other turns. After a failure, or a
            # turn that was left half-way, it may be writing the session: it is ended, and that is
            # the proof.
            elif tree is None or (failure is None and closed and not is_at_work):
                gone = closed
            else:
                gone = (await tree.terminate(self.plan.kill_grace)).confirmed
            return gone
        finally:
            self._let_go(is_gone=gone)
            if gone and (exclusive := self._hosting.exclusive) is not None:
                exclusive.gone(self)


def _check_stream(opened: object) -> None:
    if not (callable(opened) or hasattr(cast("object", type(opened)), "__aiter__")):
        hint = ", such as client.receive_response()" if hasattr(opened, "receive_response") else ""
        raise TypeError(
            f"open(point) yielded {opened!r}, which is no stream: yield an async iterable{hint}, or a "
            "Connection of one"
        )


def _nothing() -> None:
    pass


def raisable(error: BaseException) -> BaseException:
    """`error`, in a form that its consumer can be given.

    A GeneratorExit that comes out of a stream is no closing of anything of the consumer's, and
    would end a generator of theirs in silence.
    """
    if not isinstance(error, GeneratorExit):
        return error
    said = RuntimeError(
        "the stream raised GeneratorExit, though nobody closed it here: something that it "
        "iterates was closed from elsewhere, or raises it by mistake"
    )
    said.__cause__ = error
    return said


def _is_of(error: BaseException, seen: BaseException | None) -> bool:
    """Whether `error` is `seen`, or only wraps it, as a task group does."""
    if seen is None:
        return False
    if isinstance(error, BaseExceptionGroup):
        parts = cast("BaseExceptionGroup[BaseException]", error).exceptions
        return all(_is_of(part, seen) for part in parts)
    return error is seen
