"""The explorers of the breaker: stores that fail, block or are slow, and outages of the backend.

A store in trouble must cost nothing (P3): a session with such a breaker, whose circuit never
opens, does what the model says of a session with none. Of outages, what P3 promises is judged:
those of some minutes are survived without a person, a lasting one escalates, and whoever comes
when all is well again is let in.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import anyio

from streamguard import CircuitBreaker, idle_guard, reconnecting_resume, session
from streamguard.breaker import MemoryStore
from streamguard.retry import RetryPolicy
from streamguard.signals import Progress, TurnEnded
from tests.models import sessions
from tests.models.explorer import Complaint, Schedule
from tests.models.session_world import StatusError, World

# -- a store in trouble -------------------------------------------------------------------------


class TroubledStore(MemoryStore):
    """Fails at some of its calls, and tells who has called it where."""

    def __init__(self, plan: dict[str, Any], clock: Callable[[], float], *, blocks: bool) -> None:
        super().__init__(clock)
        self.blocks = blocks
        self.calls = 0
        self.on_loop = 0
        self._plan = plan
        self._thread = threading.get_ident()

    def update(self, key: str, change: Any, /) -> Any:
        """Apply the change, unless this call is one that fails."""
        self.calls += 1
        if self.blocks:
            self.on_loop += threading.get_ident() == self._thread
            if self._plan["takes"]:
                time.sleep(self._plan["takes"])
        if self._fails(self.calls):
            raise OSError("the store is down")
        answer = super().update(key, change)
        if self._fails(-self.calls):  # written, and the answer was lost
            raise OSError("the store did not answer")
        return answer

    def listen(self, key: str, changed: Callable[[], None], /) -> Callable[[], None]:
        """As it is, unless the store is down."""
        if self._plan["listen"]:
            raise OSError("the store is down")
        return super().listen(key, changed)

    def _fails(self, call: int) -> bool:
        first = self._plan["from"]
        return call in self._plan["at"] or (first is not None and call >= first)


class Stores(sessions.Sessions):
    """Sessions with a breaker whose store is in trouble, and whose circuit never opens."""

    name = "store"

    def __init__(self) -> None:
        self.simplest = {
            **sessions.Sessions.simplest,
            "retry": {"retries": 2, "backoff": [0], "in_a_row": 10, "reconnects": 50},
        }

    def draw(self, random: Random) -> Schedule:
        """A session's schedule without what concerns the circuit itself, and a store."""
        plan = sessions.draw(random)
        if plan["retry"] is None:
            plan["retry"] = self.simplest["retry"]
        for attempt in plan["attempts"]:
            for part in (attempt["open"], attempt["close"]):
                if part.get("end") in ("auth", "limit", "validation"):
                    part["end"] = "network"
            for turn in attempt["turns"]:
                for step in turn:
                    if step[0] == "raise" and step[1] in ("auth", "limit", "validation"):
                        step[1] = "server"
        plan["store"] = {
            "blocks": random.random() < 0.3,
            "takes": 0.0005 if random.random() < 0.1 else 0,
            "at": [
                random.choice((1, -1)) * random.randint(1, 12) for _ in range(random.randint(0, 4))
            ],
            "from": random.choice((None, None, 1, 2, 3, 5)),
            "listen": random.random() < 0.1,
            "on_open": random.choice(("raise", "wait")),
        }
        return plan

    def is_valid(self, schedule: Schedule) -> bool:
        """As a session's; there is always a breaker to be asked."""
        return schedule["retry"] is not None and super().is_valid(schedule)

    def prepare(self, world: World) -> None:
        """The breaker, and its store."""
        plan = world.plan["store"]
        # trio's virtual clock runs on while a thread works.
        blocks = plan["blocks"] and world.native
        clock = asyncio.get_running_loop().time if world.native else anyio.current_time
        self.store = TroubledStore(plan, clock, blocks=blocks)
        world.breaker = CircuitBreaker(
            "backend",
            open_after=10_000,
            escalate_after=None,
            on_open=plan["on_open"],
            store=self.store,
        )
        repr(world.operator())
        self.by_repr = self.store.calls

    async def run(self, schedule: Schedule) -> list[Complaint]:
        """As a session's."""
        complaints = await super().run(schedule)
        if self.store.on_loop:
            complaints.append(
                Complaint(
                    "stalls",
                    f"a store that blocks was called {self.store.on_loop} times on the loop",
                )
            )
        return complaints


# -- outages ------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """How one of many sessions ended."""

    number: int
    began: float
    ended: float = 0.0
    error: str | None = None
    gave_up: str | None = None
    opens: int = 0
    got: int = 0


@dataclass
class Backend:
    """One backend of many sessions: out of service for a while."""

    outages: list[list[float]]
    works: float
    fails_after: float
    random: Random
    started: float = field(default_factory=anyio.current_time)
    opens: list[float] = field(default_factory=list)

    def is_out(self) -> bool:
        now = anyio.current_time() - self.started
        return any(begin <= now < end for begin, end in self.outages)

    def opener(self, outcome: Outcome) -> Callable[[Any], Any]:
        """`open` for one session."""

        async def stream() -> Any:
            if self.is_out():
                await anyio.sleep(self.fails_after)
                raise StatusError(503)
            for _ in range(2):
                await anyio.sleep(self.works / 2)
                if self.is_out():
                    raise ConnectionError("reset")
            yield Progress()
            yield TurnEnded()

        @asynccontextmanager
        async def opened(point: Any) -> Any:
            self.opens.append(anyio.current_time() - self.started)
            outcome.opens += 1
            yield stream()

        return opened


class Outages:
    """Many sessions of one breaker, while their backend is out of service."""

    name = "outage"
    limit = 1e9
    simplest: Mapping[str, Any] = {"apart": 0, "fails_after": 0, "works": 1}

    def draw(self, random: Random) -> Schedule:
        """Rounds of sessions, and one outage: of some minutes at most, or for good."""
        return {
            "sessions": random.randint(1, 6),
            "rounds": random.choice((2, 4, 20)),
            "apart": random.choice((0, 0, 0.1, 1)),
            "between": random.choice((0, 1, 30)),
            "works": random.choice((0.5, 1, 2)),
            "fails_after": random.choice((0, 0.1, 1, 5)),
            "begins": random.choice((0, 0, 1, 3)),
            "lasts": random.choice((5, 20, 60, 100, 120, 86_400)),
            "on_open": random.choice(("wait", "wait", "wait", "raise")),
            "jitter": random.randint(1, 1_000_000),
        }

    def is_valid(self, schedule: Schedule) -> bool:
        """Whether somebody does something."""
        return all(schedule[k] for k in ("sessions", "rounds", "works")) and (
            schedule["lasts"] <= 120 or schedule["lasts"] == 86_400
        )

    async def run(self, schedule: Schedule) -> list[Complaint]:
        """All rounds, one after the other; then one more session when all is well again."""
        begins, lasts = schedule["begins"], schedule["lasts"]
        backend = Backend(
            [[begins, begins + lasts]],
            schedule["works"],
            schedule["fails_after"],
            Random(schedule["jitter"]),
        )
        breaker = CircuitBreaker("backend", on_open=schedule["on_open"], clock=anyio.current_time)
        outcomes: list[Outcome] = []
        for _ in range(schedule["rounds"]):
            async with anyio.create_task_group() as tasks:
                for number in range(schedule["sessions"]):
                    outcome = Outcome(number, anyio.current_time() - backend.started)
                    outcomes.append(outcome)
                    tasks.start_soon(self._one, backend, breaker, outcome)
                    if schedule["apart"]:
                        await anyio.sleep(schedule["apart"])
            if anyio.current_time() - backend.started > begins + lasts + 3600:
                break
            await anyio.sleep(schedule["between"])
        found = list(self._judge(schedule, breaker, outcomes))
        if lasts <= 120:
            rest = begins + lasts + 600 - (anyio.current_time() - backend.started)
            await anyio.sleep(max(0.0, rest))
            late = Outcome(-1, anyio.current_time() - backend.started)
            await self._one(backend, breaker, late)
            if late.error is not None:
                found.append(f"ten minutes after the outage: {late.error}")
        return [Complaint("outage", each) for each in found]

    async def _one(self, backend: Backend, breaker: CircuitBreaker, outcome: Outcome) -> None:
        operator = idle_guard(60, read=lambda message: message)
        policy = RetryPolicy(random=backend.random.random)
        operator = operator | reconnecting_resume(breaker=breaker, policy=policy)
        try:
            async with session(backend.opener(outcome), prompt="go") | operator as chat:
                async for _ in chat:
                    outcome.got += 1
        except Exception as error:
            outcome.error = type(error).__name__
            outcome.gave_up = getattr(error, "gave_up", None)
        outcome.ended = anyio.current_time() - backend.started

    def _judge(
        self, plan: Schedule, breaker: CircuitBreaker, outcomes: list[Outcome]
    ) -> Iterator[str]:
        # A few sessions make every probe, and may spend all their retries on them.
        hit = sum(outcome.opens > 1 or outcome.error is not None for outcome in outcomes)
        errors = [
            outcome
            for outcome in outcomes
            if outcome.error is not None
            and not (hit < 5 and outcome.gave_up == "retries" and outcome.opens > 3)
        ]
        for outcome in outcomes:
            if outcome.error is None and outcome.got != 2:
                yield f"a session ended well with {outcome.got} messages"
        if plan["lasts"] > 120:
            tried = sum(outcome.opens for outcome in outcomes if outcome.error is not None)
            if plan["on_open"] == "wait" and tried >= 12 and breaker.status != "escalated":
                yield f"after a day of outage and {tried} failures it is {breaker.status}"
            return
        if breaker.status == "escalated":
            yield f"an outage of {plan['lasts']} s escalated"
        if plan["on_open"] == "wait" and errors:
            kinds = sorted({f"{each.error} ({each.gave_up})" for each in errors})
            yield f"{len(errors)} of {len(outcomes)} ended with {', '.join(kinds)}"


SUBJECTS = (Stores(), Outages())
