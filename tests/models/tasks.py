"""The explorer of sessions that several tasks ask, and of a block that one of them leaves.

Who asks last has the session: the turns before are over, wherever they were. No model says when
what happens; it is judged by what must hold: never two owners, no attempt begun for a turn that was
overtaken or a block that was left, no cut turn that ends as if it were complete, nothing left behind.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import anyio

from streamguard import (
    Backoff,
    Connection,
    RetryPolicy,
    StreamGuardError,
    idle_guard,
    reconnecting_resume,
    session,
)
from streamguard.signals import Progress, SessionOpened, TurnEnded
from tests.models.explorer import Complaint, Schedule

NAPS = (0, 0.5, 1, 2, 3)
_SAID = {"progress": Progress(), "done": TurnEnded("success"), "token": SessionOpened("s")}


@dataclass(eq=False)
class Backend:
    """Opens connections by the schedule, and notes what came of them."""

    plan: Schedule
    wrong: list[str] = field(default_factory=list)
    is_open: dict[int, bool] = field(default_factory=dict)
    disconnecting: int = 0
    ended: set[str | None] = field(default_factory=set)  # prompts whose streams came to their end
    events: list[tuple[str, int | None]] = field(default_factory=list)
    is_left: bool = False

    @asynccontextmanager
    async def open(self, point: Any) -> AsyncIterator[Any]:
        """One connection."""
        number = len(self.is_open)
        script = self.plan["attempts"][min(number, len(self.plan["attempts"]) - 1)]
        if others := [each for each, is_open in self.is_open.items() if is_open]:
            self.wrong.append(f"two owners: {number} is opened, and {others} are there")
        if self.disconnecting:
            self.wrong.append(f"{number} is opened while a disconnect is at work")
        if self.is_left:
            self.wrong.append(f"{number} is opened, and the block was left")
        self.is_open[number] = True
        ended = anyio.Event()

        async def disconnect() -> None:
            self.disconnecting += 1
            ended.set()
            await anyio.sleep(script["disconnect"])
            self.disconnecting -= 1  # one that is abandoned stays at work

        def turn(prompt: str | None) -> AsyncIterator[Any]:
            return self._stream(script, prompt, point.prompt, ended)

        try:
            await anyio.sleep(script["open"])
            if script["fails"]:
                raise ConnectionError("not today")
            source = turn if self.plan["reuses"] else turn(point.prompt)
            gives = None if script["disconnect"] is None else disconnect
            yield Connection(source, disconnect=gives)
        finally:
            try:
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(script["close"])
            finally:
                self.is_open[number] = False

    async def _stream(
        self, script: dict[str, Any], sent: str | None, asked: str | None, ended: anyio.Event
    ) -> AsyncIterator[Any]:
        for word in script["says"]:
            if isinstance(word, str):
                if word == "done":  # what follows is its grace
                    self.ended |= {sent, asked}
                yield word
            else:
                await anyio.sleep(word)
        if script["then"] == "raise":
            raise ConnectionError("reset")
        if script["then"] != "end":
            is_deaf = script["then"] == "deaf" and script["disconnect"] is not None
            while True:
                try:
                    with anyio.CancelScope(shield=is_deaf):
                        await ended.wait()
                    break
                except anyio.get_cancelled_exc_class():
                    if script["then"] == "flush":
                        yield "progress"
                    if not is_deaf:
                        raise
        self.ended |= {sent, asked}

    def observe(self, event: Any) -> None:
        """Notes which attempts began and ended."""
        self.events.append((type(event).__name__, getattr(event, "attempt", None)))


class Tasks:
    """`session(open) | idle_guard(...) | reconnecting_resume(...)`, asked by several tasks."""

    name = "tasks"
    limit = 5000.0
    simplest: Mapping[str, Any] = {"reuses": False, "leaves": None, "idle": 2}

    def draw(self, random: Random) -> Schedule:
        """A schedule."""
        return {
            "idle": random.choice((2, 4)),
            "reuses": random.random() < 0.5,
            "leaves": random.choice((None, None, 1, 2, 3.5, 5, 9)),
            "attempts": [_attempt(random) for _ in range(random.randint(1, 4))],
            "tasks": [_acts(random) for _ in range(random.randint(1, 3))],
        }

    def is_valid(self, schedule: Schedule) -> bool:
        """Whether it can be run."""
        wanted = {"open", "close", "disconnect", "fails", "says", "then"}
        return bool(
            schedule["attempts"]
            and schedule["idle"]
            and all(wanted <= set(attempt) for attempt in schedule["attempts"])
            and all(len(act) == 2 for acts in schedule["tasks"] for act in acts)
        )

    async def run(self, schedule: Schedule) -> list[Complaint]:
        """Play it, and judge."""
        backend = Backend(schedule)
        operator = idle_guard(
            schedule["idle"],
            exit_grace=1,
            disconnect_timeout=4,
            read=_SAID.get,
            observer=backend.observe,
        ) | reconnecting_resume(
            policy=RetryPolicy(idle=Backoff(2, (0, 3)), random=lambda: 0.0), prompt="go on"
        )
        async with anyio.create_task_group() as tasks:
            async with session(backend.open, prompt="first") | operator as chat:
                async with anyio.create_task_group() as within:
                    host = within if schedule["leaves"] is None else tasks
                    for number, acts in enumerate(schedule["tasks"]):
                        host.start_soon(_act, backend, chat, number, acts)
                if schedule["leaves"] is not None:
                    await anyio.sleep(schedule["leaves"])
            backend.is_left = True
        await anyio.sleep(100)  # what is left behind goes on, and is to end all the same
        return [Complaint("tasks", each) for each in (*backend.wrong, *_judge(backend))]


def _attempt(random: Random) -> dict[str, Any]:
    some = random.random
    says: list[Any] = ["token"] if some() < 0.5 else []
    for _ in range(random.randint(0, 3)):
        says += [random.choice(NAPS)] if some() < 0.6 else []
        says.append("progress")
    if some() < 0.5:
        says.append("done")
    return {
        "open": random.choice((0, 0, 0.5, 2)),
        "fails": some() < 0.2,
        "says": says,
        "then": random.choice(("end", "end", "hang", "hang", "raise", "deaf", "flush")),
        "close": random.choice((0, 0, 1, 3)),
        "disconnect": random.choice((None, 0, 1, 3, 6)),
    }


def _acts(random: Random) -> list[list[Any]]:
    acts: list[list[Any]] = []
    for _ in range(random.randint(1, 3)):
        acts.append(["sleep", random.choice(NAPS)])
        acts.append(["ask", random.choice((None, None, 1, 2))])
        if random.random() < 0.2:
            acts.append(["aclose", None])
    return acts


async def _act(backend: Backend, chat: Any, number: int, acts: list[list[Any]]) -> None:
    turn = aiter(chat) if number == 0 else chat.ask(f"{number}")
    prompt = "first" if number == 0 else f"{number}"
    for step, (kind, value) in enumerate(acts):
        match kind:
            case "sleep":
                await anyio.sleep(value)
                continue
            case "aclose":
                await turn.aclose()  # the turn that was begun last
                continue
            case _:
                pass
        if step > 1:
            prompt = f"{number}.{step}"
            turn = chat.ask(prompt)
        await _take(backend, turn, prompt, value)


async def _take(backend: Backend, turn: Any, prompt: str, most: int | None) -> None:
    got = 0
    while most is None or got < most:
        try:
            await anext(turn)
        except StopAsyncIteration:
            # An end of a retried turn's stream counts as its prompt's: `asked` is the point's.
            if prompt not in backend.ended and "go on" not in backend.ended:
                backend.wrong.append(f"{prompt!r} ended well, and its stream did not")
            return
        except (RuntimeError, ConnectionError, StreamGuardError) as error:
            try:
                await anext(turn)
            except type(error) as again:
                if str(again) != str(error):
                    backend.wrong.append(f"{error!r}, then {again!r}")
            else:
                backend.wrong.append(f"a message after {error!r}")
            return
        got += 1


def _judge(backend: Backend) -> Iterator[str]:
    if left := [number for number, is_open in backend.is_open.items() if is_open]:
        yield f"connections {left} are open for ever"
    began = sorted(number for kind, number in backend.events if kind == "AttemptStarted")
    ended = sorted(number for kind, number in backend.events if kind == "AttemptEnded")
    if began != ended:
        yield f"attempts {began} began, {ended} ended"


SUBJECTS = (Tasks(),)
