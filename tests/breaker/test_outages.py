"""P3: outages, short and long, as many sessions with one breaker go through them."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import asynccontextmanager, nullcontext

import anyio
import pytest

from streamguard import (
    Backoff,
    CircuitBreaker,
    CircuitOpenError,
    Connection,
    RetryPolicy,
    idle_guard,
    reconnecting_resume,
    session,
)
from streamguard.signals import Progress, SessionOpened, TurnEnded

ROUNDS, EACH, GAP = 20, 5, 20.0
AFTER = 15.0


class Backend:
    """Answers in three seconds; from `AFTER` on it is down for `outage` seconds."""

    def __init__(self, outage: float, *, hangs: bool) -> None:
        self.begins = anyio.current_time() + AFTER
        self.ends = self.begins + outage
        self.hangs = hangs
        self.opened = 0

    async def works(self) -> None:
        if self.begins <= anyio.current_time() < self.ends:
            if self.hangs:
                await anyio.sleep_forever()
            raise ConnectionError("the backend is down")

    @asynccontextmanager
    async def open(self, _point):
        self.opened += 1
        await self.works()
        yield Connection(self.answer)

    async def answer(self, _prompt):
        yield SessionOpened(token="s", resumable=True)
        for _ in range(3):
            await anyio.sleep(1)
            await self.works()
            yield Progress()
        yield TurnEnded(outcome="success")


async def outcome(backend, breaker, policy=None) -> str:
    """How one session ends, with nothing said but the breaker, unless there is a `policy`."""
    guard = idle_guard(180, read=lambda message: message)
    resume = reconnecting_resume(breaker=breaker, policy=policy)
    try:
        async with session(backend.open, prompt="go") | guard | resume as chat:
            async for _ in chat:
                pass
    except Exception as error:
        return f"{type(error).__name__} ({error.gave_up})"
    return "completed"


async def rounds(backend, breaker, *, spread: float = 0.0) -> Counter[str]:
    outcomes: Counter[str] = Counter()
    chance = random.Random(1)

    async def one():
        outcomes[await outcome(backend, breaker)] += 1

    async with anyio.create_task_group() as tasks:
        for _ in range(ROUNDS):
            for _ in range(EACH):
                tasks.start_soon(one)
                await anyio.sleep(chance.random() * spread)
            await anyio.sleep(GAP)
    return outcomes


@pytest.mark.parametrize(
    ("outage", "spread", "hangs"),
    [
        *((outage, spread, False) for outage in (10, 60, 100, 120, 300) for spread in (0, 4)),
        *((outage, 0, True) for outage in (100, 300)),
    ],
)
async def test_an_outage_of_minutes_is_survived_by_all(loop, outage, spread, hangs):
    """P3: 20 rounds of 5 sessions, and nobody has to call `reset()`."""
    breaker = CircuitBreaker("k", clock=anyio.current_time)
    backend = Backend(outage, hangs=hangs)
    assert await rounds(backend, breaker, spread=spread) == {"completed": 100}
    assert (breaker.status, breaker.failures) == ("closed", 0)


@pytest.mark.parametrize(
    ("retries", "outage", "survives"),
    [(3, 30, True), (3, 60, False), (5, 120, True), (5, 300, False), (6, 300, True)],
)
async def test_who_is_alone_has_its_own_retries_only(loop, retries, outage, survives):
    """P2, P3: nobody else probes for it; each attempt of its own costs a retry."""
    breaker = CircuitBreaker("k", clock=anyio.current_time)
    backend = Backend(outage, hangs=False)
    await anyio.sleep(AFTER)
    policy = RetryPolicy(network=Backoff(retries, (1, 2, 4), jitter=0.5))
    said = await outcome(backend, breaker, policy)
    assert said == ("completed" if survives else "ConnectionError (retries)")


@pytest.mark.parametrize("outage", [10, 60, 100, 120, 300])
async def test_raising_is_for_who_has_not_begun(loop, outage):
    """P3: whose attempt has failed waits for the probe; the breaker gets over it by itself."""
    breaker = CircuitBreaker("k", clock=anyio.current_time, on_open="raise")
    outcomes = await rounds(Backend(outage, hangs=False), breaker)
    assert set(outcomes) <= {"completed", "CircuitOpenError (circuit)"}
    await anyio.sleep(breaker.pause_left)
    assert await outcome(Backend(0, hangs=False), breaker) == "completed"
    assert (breaker.status, breaker.failures) == ("closed", 0)


async def test_a_lasting_outage_escalates(loop):
    """P3: 7.5 minutes after it has opened, by four probes; then nobody waits any more."""
    at = []

    def observer(event):
        if getattr(event, "after", "") in {"open", "escalated"}:
            at.append((event.after, event.at - backend.begins))

    breaker = CircuitBreaker("k", clock=anyio.current_time, on_open="wait", observer=observer)
    backend = Backend(3600, hangs=False)
    outcomes = await rounds(backend, breaker)
    assert outcomes["completed"] == EACH  # those before it
    assert (
        outcomes["CircuitEscalatedError (circuit)"]
        + EACH
        + sum(count for name, count in outcomes.items() if name.startswith("ConnectionError"))
        == len(range(ROUNDS)) * EACH
    )
    assert breaker.status == "escalated"
    began = at[0][1]
    assert [(status, round(when - began)) for status, when in at] == [
        *(("open", 0), ("open", 30), ("open", 90), ("open", 210), ("escalated", 450)),
    ]


async def test_who_has_retries_left_waits_for_the_probe_of_another(loop):
    """P3: six sessions, of which one probes; the probe's lease keeps nobody from following."""
    breaker = CircuitBreaker("k", clock=anyio.current_time, open_after=3, pause=1)
    backend, start = Backend(3, hangs=False), anyio.current_time()
    outcomes = Counter()

    async def one():
        outcomes[await outcome(backend, breaker)] += 1

    await anyio.sleep(AFTER)
    async with anyio.create_task_group() as tasks:
        for _ in range(6):
            tasks.start_soon(one)
    assert outcomes == {"completed": 6}
    # All at 0, one probe at 1 s and a bit (down), and all from 3 s on: the first is the probe.
    assert backend.opened == 6 + 1 + 6
    assert anyio.current_time() - start < AFTER + 3 + 2 * 1.5 + 3 + 3


async def test_time_that_is_too_short_for_a_lease_is_waited_for_all_the_same(loop):
    """R8, P3: a probe may end at any time, so its lease is no reason to give up at once."""
    breaker = CircuitBreaker("k", clock=anyio.current_time, open_after=1, on_open="wait")
    breaker.try_acquire().failed()
    await anyio.sleep(30)
    probe, began = breaker.try_acquire(), anyio.current_time()
    async with anyio.create_task_group() as tasks:

        async def has_time(within, how):
            with how:
                await breaker.acquire(within=within)
            assert loop.took(anyio.current_time() - began, min(within, 20))

        tasks.start_soon(has_time, 10, pytest.raises(CircuitOpenError))
        tasks.start_soon(has_time, 100, nullcontext())
        await anyio.sleep(20)
        probe.progressed()
