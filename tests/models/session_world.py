"""What a session's schedule happens in: a scripted backend, a consumer, and witnesses of both.

A schedule is a value that JSON can keep. `World` plays it: it opens connections as the schedule's
attempts say, walks the consumer through its acts, and writes down with its instant what either of
them saw. It judges only what it sees itself go wrong at that moment (two owners); everything else
is judged afterwards, in `sessions`.

Knows streamguard's public names, anyio and the two loops; nothing of how the library works.
"""

from __future__ import annotations

import asyncio
import json
import weakref
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import anyio
import trio

from streamguard import (
    Connection,
    ResumePoint,
    idle_guard,
    keep_alive,
    reconnecting_resume,
    session,
)
from streamguard.retry import Backoff, RetryPolicy
from streamguard.signals import (
    Failed,
    Liveness,
    Progress,
    SessionOpened,
    TurnEnded,
    WorkFinished,
    WorkStarted,
)

Schedule = dict[str, Any]

GIVEN = "Go on."  # what a resumed session is asked
BEYOND = 5_000.0  # seconds; a consumer that is not free by then hangs
AFTER = 3.0  # seconds the consumer sleeps after its session, and must not be cancelled in


class LeftError(Exception):
    """What a consumer raises in its own body."""


class StatusError(Exception):
    """An error with an HTTP status, as SDKs have it."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status_code = status


class LostPullError(Exception):
    """A pull in a task of its own was cancelled, and nobody had cancelled it."""


class Witness:
    """Lives in the consumer's frame, and should die with it."""


class BrokenObserverError(Exception):
    """What an observer raises."""


ERRORS: dict[str, Callable[[], BaseException]] = {
    "network": lambda: ConnectionError("reset"),
    "server": lambda: StatusError(503),
    "auth": lambda: StatusError(401),
    "limit": lambda: StatusError(429),
    "validation": lambda: StatusError(400),
    "unknown": lambda: RuntimeError("what?"),
    "timeout": lambda: TimeoutError("its own"),
    "exit": GeneratorExit,
}


def read(message: dict[str, Any]) -> Any:
    """What a message of the scripted backend says."""
    return [_signal(word) for word in message["says"]]


def _signal(word: str) -> Any:
    kind, _, rest = word.partition(":")
    match kind:
        case "progress":
            return Progress()
        case "ping":
            return Liveness()
        case "token":
            return SessionOpened(rest)
        case "lost":
            return SessionOpened("lost", resumable=False)
        case "work":
            return WorkStarted(rest, name=rest)
        case "worked":
            return WorkFinished(rest)
        case "done":
            return TurnEnded(rest)  # type: ignore[arg-type]
        case "failed":
            return Failed(rest)
        case "unknown":
            return Failed("validation", session_unknown=True)
        case "limit":
            return Failed("rate_limit", retry_after=float(rest))
        case _:
            raise AssertionError(word)


@dataclass(eq=False)
class Connected:
    """One connection, from the call of `open` to its end."""

    number: int
    session: int
    turn: int
    point: dict[str, Any]
    entered: bool = False
    left: bool = False
    left_badly: bool = False
    disconnects: int = 0
    disconnected: int = 0
    streams: int = 0  # that are iterated and not closed
    task: Any = None
    turns: int = 0
    replayed: int = 0

    @property
    def is_gone(self) -> bool:
        """Whether nobody of it is left: what "confirmed" means of a thing without a process."""
        return self.left and not self.streams and self.disconnects == self.disconnected


@dataclass(eq=False)
class World:
    """One run of one schedule."""

    plan: Schedule
    native: bool
    log: list[tuple[Any, ...]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    connections: list[Connected] = field(default_factory=list)
    # Of each event its name, attempt, outcome and error's name: an error would keep frames.
    events: list[tuple[Any, ...]] = field(default_factory=list)
    points: list[Any] = field(default_factory=list)
    sent: list[dict[str, Any]] = field(default_factory=list)  # new messages, of the turn
    started: float = 0.0
    ended: str | None = None  # how; an error would keep frames
    ended_at: float | None = None
    block_left_at: float | None = None
    cancels_left: int = 0
    native_cancels: int = 0
    hung: bool = False
    cursor: int = 0
    witness: Any = None
    breaker: Any = None
    is_after: bool = False
    sure_until: float = float("inf")  # the model knows nothing of what is there from then on

    def __post_init__(self) -> None:
        self.over = anyio.Event()
        self.finished = anyio.Event()
        self.turn_of_consumer = 0
        self.session_of_consumer = 0

    # -- time and log ----------------------------------------------------------------------

    @property
    def now(self) -> float:
        return round(anyio.current_time() - self.started, 6)

    def note(self, *what: Any) -> None:
        if not self.over.is_set():
            self.log.append((self.now, *what))

    # -- the backend -----------------------------------------------------------------------

    def open(self, point: ResumePoint) -> _Opened:
        return _Opened(self, point)

    def script(self, number: int) -> dict[str, Any]:
        attempts = self.plan["attempts"]
        return attempts[min(number, len(attempts) - 1)]

    async def nap(self, seconds: float | None, manner: dict[str, Any]) -> None:
        """Sleep (for ever: None), as deaf to cancellation as the schedule says."""
        cancelled = anyio.get_cancelled_exc_class()
        until = None if seconds is None else anyio.current_time() + seconds

        async def wait() -> None:
            if until is None:
                await self.over.wait()
            else:
                await anyio.sleep_until(until)

        match manner.get("kind", "plain"):
            case "deaf":
                with anyio.CancelScope(shield=True):
                    while not self.over.is_set():
                        try:
                            await wait()
                        except cancelled:
                            continue
                        return
            case "swallow":
                while True:
                    try:
                        await wait()
                    except cancelled:
                        if manner["times"] <= 0 or self.over.is_set():
                            raise
                        manner["times"] -= 1
                        continue
                    return
            case "slow":
                try:
                    await wait()
                except cancelled:
                    with anyio.CancelScope(shield=True):
                        await anyio.sleep(manner["takes"])
                    raise
            case _:
                await wait()

    async def stream(
        self, connection: Connected, prompt: str | None
    ) -> AsyncIterator[dict[str, Any]]:
        """One turn of a connection, as its script has it."""
        script = self.script(connection.number)
        turns = script["turns"]
        steps = turns[min(connection.turns, len(turns) - 1)]
        connection.turns += 1
        manner = dict(script.get("manner") or {})
        flushed = manner.get("says", ["progress"])
        began = anyio.current_time()
        # What was opened for one turn speaks in it, though the consumer may be elsewhere by now.
        turn = connection.turn if connection.turns == 1 else self.turn_of_consumer
        self.note("sent", connection.number, prompt, turn)
        connection.streams += 1
        cancelled = anyio.get_cancelled_exc_class()
        try:
            for old in self.replay(connection):
                yield old
            for number, step in enumerate(steps):
                match step:
                    case ["wait" | "at" | "hang" as how, *seconds]:
                        nap = seconds[0] if seconds else None
                        if how == "at":
                            nap = max(0.0, began + nap - anyio.current_time())
                        try:
                            await self.nap(nap, manner)
                        except cancelled:
                            if manner.get("kind") == "flush":
                                yield self.message(connection, turn, number, flushed)
                            raise
                    case ["say", *words]:
                        yield self.message(connection, turn, number, words)
                    case ["raise", kind]:
                        self.note("raised", connection.number, kind, turn)
                        raise ERRORS[kind]()  # noqa: RSE102 - some are functions
            self.note("ran out", connection.number, turn)
        finally:
            connection.streams -= 1

    def message(
        self, connection: Connected, turn: int, number: int, words: list[str]
    ) -> dict[str, Any]:
        keys = self.plan.get("keys")
        key: Any = None
        if keys is not None:
            kinds = keys["values"]
            self.cursor += 1
            key = self.cursor if not kinds else kinds[len(self.sent) % len(kinds)]
        message = {
            "id": f"{connection.number}.{connection.turns}.{number}",
            "says": words,
            "key": key,
        }
        if turn == self.turn_of_consumer:
            self.sent.append(message)
        self.note("said", message["id"], tuple(words), turn)
        return message

    def replay(self, connection: Connected) -> list[dict[str, Any]]:
        """What a replaying backend plays again: all of the turn, or the end of it."""
        keys = self.plan.get("keys")
        if keys is None or connection.turns > 1:
            return []
        start = max(0, len(self.sent) - keys["again"]) if keys["again"] is not None else 0
        return list(self.sent[start:])

    # -- the consumer ----------------------------------------------------------------------

    def begins(self, point: ResumePoint | None) -> ResumePoint:
        """Where the next session begins, after one that has come to `point`."""
        return ResumePoint(prompt="go") if point is None else point

    def operator(self) -> Any:
        plan = self.plan
        limits = {name: plan[name] for name in LIMITS if plan.get(name) is not None}
        operator: Any = idle_guard(
            plan["idle"],
            **limits,
            read=read,
            observer=self.observe,
            disconnect_timeout=plan["disconnect_timeout"],
            kill_grace=1,
        )
        if (retry := plan.get("retry")) is not None:
            keys = plan.get("keys")
            operator = operator | reconnecting_resume(
                policy=RetryPolicy(
                    idle=Backoff(retry["retries"], tuple(retry["backoff"])),
                    max_in_a_row=retry.get("in_a_row", 10),
                    max_reconnects=retry.get("reconnects", 50),
                    random=lambda: 0.0,
                ),
                prompt=GIVEN,
                breaker=self.breaker,
                dedupe_by=None if keys is None else lambda message: message["key"],
            )
        if (every := plan.get("keep_alive")) is not None:
            operator = operator | keep_alive(every, lambda: None)
        return operator

    def observe(self, event: Any) -> None:
        error = getattr(event, "error", None)
        self.events.append(
            (
                type(event).__name__,
                getattr(event, "attempt", None),
                # Before there was an outcome, counters took an end without an error for a success.
                getattr(event, "outcome", "completed" if error is None else "failed"),
                None if error is None else type(error).__name__,
            )
        )
        if self.plan.get("observer") == len(self.events):
            raise BrokenObserverError

    async def consume(self) -> None:
        """The consumer's whole life, and what is seen of it from outside."""
        self.started = anyio.current_time()
        try:
            await self._within_scope()
        except BaseException as error:
            is_cancel = _is_cancel(error)
            self.ended = "cancelled" if is_cancel else repr(error)
            if is_cancel:
                raise
        finally:
            self.ended_at = self.now
            if self.native:
                task = asyncio.current_task()
                assert task is not None
                self.cancels_left = task.cancelling()
            self.finished.set()

    async def _within_scope(self) -> None:
        outer = self.plan.get("outer") or {"kind": None}
        match outer["kind"]:
            case "scope":
                with anyio.move_on_after(outer["at"]) as scope:
                    await self._sessions()
                if scope.cancelled_caught:
                    self.note("moved on")
                    await anyio.sleep(AFTER)
            case "timeout":
                try:
                    if self.native:
                        async with asyncio.timeout(outer["at"]):
                            await self._sessions()
                    else:
                        with trio.fail_after(outer["at"]):
                            await self._sessions()
                except (TimeoutError, trio.TooSlowError) as error:
                    if "its own" in str(error) or hasattr(error, "verdict"):
                        raise
                    self.note("timed out")
                    await anyio.sleep(AFTER)
            case _:
                await self._sessions()

    async def _sessions(self) -> None:
        point = None
        try:
            for number, acts in enumerate(self.plan["sessions"]):
                self.session_of_consumer = number
                self.note("session", number)
                self.turn_of_consumer += number > 0
                if point is not None and hasattr(point, "as_json"):
                    point = ResumePoint.from_json(json.dumps(point.as_json()))
                point = await self._session(acts, point, number)
        except Exception as error:
            self.block_left_at = self.now
            self.note(
                "error", type(error).__name__, getattr(error, "gave_up", None), _limit_of(error)
            )
        else:
            self.block_left_at = self.now
            self.note("left")
        self.is_after = True
        await anyio.sleep(AFTER)

    async def _session(self, acts: list[Any], point: Any, number: int) -> Any:
        witness = Witness()
        self.witness = weakref.ref(witness)
        stream = session(self.open, point=self.begins(point)) | self.operator()
        async with stream as chat:
            turn = aiter(chat)
            chat_ = chat
            for act in acts:
                match act:
                    case ["take", most, work, *how]:
                        try:
                            if most is None and "hand" not in how:
                                async for message in turn:
                                    self.got(message, chat)
                                    if work:
                                        await anyio.sleep(work)
                                self.ended_turn(chat)
                            else:
                                taken = 0
                                while most is None or taken < most:
                                    pull = self._by_hand if "hand" in how else anext
                                    try:
                                        message = await pull(turn)
                                    except StopAsyncIteration:
                                        self.ended_turn(chat)
                                        break
                                    taken += 1
                                    self.got(message, chat)
                                    if work:
                                        await anyio.sleep(work)
                        except Exception as error:
                            self.note(
                                "failed",
                                type(error).__name__,
                                getattr(error, "gave_up", None),
                                _limit_of(error),
                            )
                            self.look(chat)
                            if "catch" not in how:
                                raise
                            self.note("caught", type(error).__name__)
                    case ["within", seconds]:
                        try:
                            with anyio.move_on_after(seconds) as scope:
                                message = await anext(turn)
                                self.got(message, chat)
                        except StopAsyncIteration:
                            self.ended_turn(chat)
                        except Exception as error:
                            self.note(
                                "failed",
                                type(error).__name__,
                                getattr(error, "gave_up", None),
                                _limit_of(error),
                            )
                            raise
                        if scope.cancelled_caught:
                            self.note("gave in")
                    case ["ask", prompt]:
                        self.note("ask", prompt)
                        turn = chat.ask(prompt)
                        self.turn_of_consumer += 1
                        self.sent = []
                    case ["aclose"]:
                        await turn.aclose()
                        self.note("closed")
                    case ["sleep", seconds]:
                        await anyio.sleep(seconds)
                    case ["raise"]:
                        raise LeftError
                    case _:
                        raise AssertionError(act)
            self.look(chat)
            kept = chat_.point
        del witness
        return kept

    async def _by_hand(self, turn: Any) -> Any:
        """A pull in a task of its own."""
        box: list[Any] = []

        async def pull() -> None:
            try:
                box.append((await anext(turn), None))
            except (Exception, StopAsyncIteration) as error:
                box.append((None, error))

        if self.native:
            task = asyncio.create_task(pull())
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError:
                task.cancel()
                await asyncio.wait({task})
                raise
        else:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(pull)
        if not box:
            raise LostPullError
        message, error = box.pop()
        try:
            if error is not None:
                raise error
            return message
        finally:
            del error

    def got(self, message: Any, chat: Any) -> None:
        if message is None:
            self.note("kept alive")
        else:
            self.note("got", message["id"], tuple(message["says"]))
        self.look(chat)

    def ended_turn(self, chat: Any) -> None:
        self.note("end")
        self.look(chat)

    def look(self, chat: Any) -> None:
        """What the point says at this instant."""
        point = chat.point
        self.points.append(
            (
                len(self.log),
                {
                    "attempt": point.attempt,
                    "prompt": point.prompt,
                    "token": point.token,
                    "tools_run": point.tools_run,
                    "done": chat.activity.done.tools_run,
                    "delivered": point.delivered,
                    "reason": type(point.reason).__name__ if point.reason is not None else None,
                },
            )
        )


LIMITS = ("first", "tools", "turn", "exit_grace", "total")


def _is_cancel(error: BaseException) -> bool:
    """Whether it is a cancellation, or a nursery's group of nothing else."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_cancel, error.exceptions))
    return isinstance(error, anyio.get_cancelled_exc_class())


def _limit_of(error: BaseException) -> str | None:
    verdict = getattr(error, "verdict", None)
    return None if verdict is None else verdict.limit


class _Opened:
    """What `open` gives: entered and left as the schedule says."""

    def __init__(self, world: World, point: ResumePoint) -> None:
        self.world = world
        self.given = point
        number = len(world.connections)
        self.connection = Connected(
            number=number,
            session=world.session_of_consumer,
            turn=world.turn_of_consumer,
            point={
                "attempt": point.attempt,
                "prompt": point.prompt,
                "token": point.token,
                "tools_run": point.tools_run,
            },
        )
        for earlier in world.connections:
            # A new session is its user's own decision.
            if earlier.session == world.session_of_consumer and not earlier.is_gone:
                world.wrong.append(
                    f"two owners: connection {number} is opened while {earlier.number} is there"
                )
        world.connections.append(self.connection)
        world.note("open", number, point.attempt, point.prompt, point.token)

    async def __aenter__(self) -> Any:
        script = self.world.script(self.connection.number)
        opening = script.get("open") or {}
        connection = self.connection
        connection.task = anyio.get_current_task().id
        try:
            await anyio.lowlevel.checkpoint()
            if opening.get("takes"):
                await self.world.nap(opening["takes"], dict(script.get("manner") or {}))
            match opening.get("end", "ok"):
                case "ok":
                    pass
                case "hang":
                    await self.world.nap(None, dict(script.get("manner") or {}))
                case kind:
                    raise ERRORS[kind]()  # noqa: RSE102 - some are functions
        except BaseException:
            connection.left = True
            raise
        connection.entered = True
        world = self.world
        source: Any
        if world.plan.get("reuses"):

            def source(prompt: str) -> Any:
                return world.stream(connection, prompt)
        else:
            source = world.stream(connection, self.given.prompt)
        if script.get("disconnect") is None:
            return Connection(source)
        return Connection(source, disconnect=self.disconnect)

    async def disconnect(self) -> None:
        how = self.world.script(self.connection.number)["disconnect"]
        self.connection.disconnects += 1
        if how.get("takes"):
            await anyio.sleep(how["takes"])
        match how.get("end", "ok"):
            case "hang":
                await self.world.over.wait()
            case "raise":
                raise ConnectionError("it was gone already")
        self.connection.disconnected += 1

    async def __aexit__(self, *exc: object) -> None:
        connection = self.connection
        if anyio.get_current_task().id != connection.task:
            self.world.wrong.append(f"connection {connection.number} is left in another task")
        if connection.left:
            self.world.wrong.append(f"connection {connection.number} is left twice")
        closing = self.world.script(connection.number).get("close") or {}
        try:
            if closing.get("takes"):
                await anyio.sleep(closing["takes"])
            match closing.get("end", "ok"):
                case "ok":
                    pass
                case "hang":
                    await self.world.over.wait()
                case "deaf":
                    await self.world.nap(None, {"kind": "deaf"})
                case kind:
                    raise ERRORS[kind]()  # noqa: RSE102 - some are functions
        except anyio.get_cancelled_exc_class():
            connection.left_badly = True
            raise
        connection.left = True
