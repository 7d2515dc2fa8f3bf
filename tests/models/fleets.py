"""The explorer of fleets: workers over one store, and all that can happen to them.

Stores that are away, networks that lose what is asked or what is answered, programs that are stopped, sessions that
somebody else takes, drains, cancels, releases; and handlers that fail, hang, are slow or are done. No model says when
what happens. It is judged, from what consumers and backends have seen alone, by what must hold: nothing is delivered or
opened past the fence, or for an owner that was overtaken; what is not dealt with is delivered again, and nothing else
twice but what no beat could tell of; each session comes to an end, for a reason; nothing is held or left behind.
"""

from __future__ import annotations

import math
import random as common
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

import anyio

from streamguard import Backoff, Connection, RetryPolicy, idle_guard, reconnecting_resume, session
from streamguard import _loops as loops
from streamguard.errors import StoreError
from streamguard.fleet.lease import Lease
from streamguard.fleet.local_engine import LocalEngine
from streamguard.signals import Progress, SessionOpened, TurnEnded, WorkFinished, WorkStarted
from streamguard.testing import block_loop
from tests.fleet.memory_store import MemoryCheckpoints
from tests.models.explorer import Complaint, Schedule, Witness

IDLE = 5.0
FENCE = 0.7
# After the last event all is well, and so long may it take until all is done.
PATIENCE = 5000.0
EVENTS = ("away", "up", "down", "stop", "steal", "cancel", "release", "drain", "leave")


@dataclass(eq=False)
class Run:
    """One attempt at a session, as its consumer and its backend have seen it."""

    key: str
    token: int
    worker: int
    began: float
    lease_until: Callable[[float], float]
    first: int = 0
    delivered: list[tuple[int, float]] = field(default_factory=list)
    done: dict[int, float] = field(default_factory=dict)
    pulls: list[tuple[float, float]] = field(default_factory=list)
    opened: list[float] = field(default_factory=list)
    closed: list[float] = field(default_factory=list)
    ended: float = math.inf
    pulling_since: float | None = None


@dataclass(eq=False)
class Claim:
    """What the wire has seen of one claim: when beats that were heard were sent, and which were applied."""

    heard: list[tuple[float, float]] = field(default_factory=list)  # (answered, sent)
    applied: list[float] = field(default_factory=list)
    refused_at: float = math.inf


class World:
    """A store, its clock, and all that was seen."""

    def __init__(self, plan: Schedule) -> None:
        self.plan = plan
        self.now = loops.current().clock
        self.started = self.now()
        self.store = MemoryCheckpoints(self.now)
        self.runs: list[Run] = []
        self.claims: dict[tuple[str, int], Claim] = {}
        self.cuts: dict[int, tuple[str, float]] = {}
        self.stolen: dict[tuple[str, int], float] = {}  # the token that took it, and when
        self.released: dict[str, int] = {}  # the token it had then
        self.engines: dict[int, LocalEngine] = {}
        self.scopes: dict[int, anyio.CancelScope] = {}
        self.wrong: list[Complaint] = []
        self.is_over = False

    def claim(self, key: str, token: int) -> Claim:
        return self.claims.setdefault((key, token), Claim())

    def complain(self, kind: str, detail: str) -> None:
        self.wrong.append(Complaint(kind, detail))

    def spec(self, key: str) -> dict[str, Any]:
        return self.plan["sessions"][int(key[1:])]


class Wire:
    """In place of an engine's calls: a network that takes its time, and loses what goes over it."""

    def __init__(self, world: World, worker: int, bound: float) -> None:
        self._world, self._worker, self._bound = world, worker, bound

    async def __call__(self, call: Callable[[], Any], *, urgent: bool = False) -> Any:
        world, latency = self._world, self._world.plan["latency"]
        sent = world.now()
        mode, until = world.cuts.get(self._worker, ("", 0.0))
        if until <= sent:
            mode = ""
        if mode != "up":
            if latency:
                await anyio.sleep(latency / 2)
            answer = call()
            self._note_applied(call, answer)
            if latency:
                await anyio.sleep(latency / 2)
            if not mode:
                self._note_heard(call, answer, sent)
                return answer
        await anyio.sleep(max(0.0, sent + self._bound - world.now()))
        raise StoreError("no answer")

    def _note_applied(self, call: Any, answer: Any) -> None:
        name = call.func.__name__
        beats = list(call.args[0]) if name == "beat" else [*call.args[:1]]
        if name in {"beat", "finish", "give_back", "park"}:
            for beat in beats:
                if answer is True or (name == "beat" and beat.key in answer):
                    claim = self._world.claim(beat.key, beat.token)
                    claim.applied.append(self._world.now())

    def _note_heard(self, call: Any, answer: Any, sent: float) -> None:
        now = self._world.now()
        name = call.func.__name__
        if name == "claim":
            for each in answer:
                self._world.claim(each.key, each.token).heard.append((now, sent))
        elif name == "beat":
            for beat in call.args[0]:
                claim = self._world.claim(beat.key, beat.token)
                if beat.key in answer:
                    claim.heard.append((now, sent))
                else:
                    claim.refused_at = min(claim.refused_at, now)


class Fleets:
    """Several `LocalEngine`s, some sessions."""

    name = "fleet"
    limit = 100_000.0
    simplest: Mapping[str, Any] = {"workers": 1, "latency": 0, "flush": 1, "ttl": 9, "limit": 5}

    def draw(self, random: Random) -> Schedule:
        """A schedule."""
        return {
            "seed": random.randint(1, 1_000_000),
            "workers": random.randint(1, 3),
            "latency": random.choice((0, 0, 0.0625, 0.5)),
            "ttl": random.choice((6, 9, 15)),
            "flush": random.choice((0.5, 1, 2)),
            "limit": random.choice((1, 2, 5)),
            "sessions": [_session(random) for _ in range(random.randint(1, 4))],
            "events": sorted(
                (_event(random) for _ in range(random.randint(0, 7))), key=lambda each: each[0]
            ),
        }

    def is_valid(self, schedule: Schedule) -> bool:
        """Whether it can be run."""
        return bool(
            schedule.get("sessions")
            and all(
                schedule.get(name) for name in ("workers", "ttl", "flush", "limit", "sessions")
            )
            and schedule["flush"] <= schedule["ttl"] / 3
            and all(set(each) == set(_session(Random(1))) for each in schedule["sessions"])
            and all(each["attempts"] for each in schedule["sessions"])
            and all(len(each) == 4 and each[1] in EVENTS for each in schedule.get("events", ()))
        )

    async def run(self, schedule: Schedule) -> list[Complaint]:
        """Play it, and judge."""
        plan = {"seed": 1, "sessions": [dict(_PLAIN)], "events": [], **schedule}
        common.seed(plan["seed"])  # when workers look for sessions
        world = World(plan)
        for number in range(len(plan["sessions"])):
            world.store.submit(f"s{number}", {"prompt": "go"})
        async with anyio.create_task_group() as group:
            for number in range(plan["workers"]):
                group.start_soon(_work, world, number)
            for event in plan["events"]:
                wait = world.started + event[0] - world.now()
                await anyio.sleep(max(0.0, wait))
                await _happens(world, *event[1:])
            world.cuts.clear()
            world.store.is_away = False
            await _until_all_is_over(world)
            world.is_over = True
            for engine in world.engines.values():
                engine.drain()
        return [*world.wrong, *_judge(world)]


_PLAIN: dict[str, Any] = {
    "messages": 2,
    "gap": 1,
    "busy": 0,
    "token": True,
    "tools": False,
    "close": 0,
    "impatient": False,
    "retries": False,
    "attempts": [[0, "none"]],
}


def _session(random: Random) -> dict[str, Any]:
    some = random.random
    return {
        "messages": random.randint(1, 9),
        "gap": random.choice((0, 0.25, 1, 1, 3, 4)),
        "busy": random.choice((0, 0, 0.5, 1, 3, 12)),
        "token": some() < 0.8,
        "tools": some() < 0.2,
        "close": random.choice((0, 0, 0, 0.5, 1, 4)),
        "impatient": some() < 0.2,
        "retries": some() < 0.3,
        "attempts": [
            [random.randint(0, 4), random.choice(("none", "none", "reset", "hang", "bug"))]
            for _ in range(random.randint(1, 4))
        ],
    }


def _event(random: Random) -> list[Any]:
    """When, what, to whom, and for how long."""
    return [
        random.choice((0, 0.5, 1, 2, 3, 4.2, 6, 6.3, 9, 12, 15, 20, 30)),
        random.choice(EVENTS),
        random.randint(0, 3),
        random.choice((0.5, 1, 2, 4.2, 5, 6, 6.3, 9, 10, 15, 20)),
    ]


# -- what happens -----------------------------------------------------------------------------


async def _happens(world: World, what: str, who: int, seconds: float) -> None:
    worker, key = who % world.plan["workers"], f"s{who % len(world.plan['sessions'])}"
    until = world.now() + seconds
    match what:
        case "away":
            for each in range(world.plan["workers"]):
                world.cuts[each] = "up", until
        case "up" | "down":
            world.cuts[worker] = what, until
        case "stop":
            _stop(world, seconds)
        case "steal":
            _steal(world, key, seconds)
        case "cancel":
            world.store.cancel(key, "not wanted")
        case "release":
            if world.store.release(key):
                world.released[key] = world.store.entries[key].token
        case "drain":
            if worker in world.engines:
                world.engines[worker].drain()
        case "leave":
            if worker in world.scopes:
                world.scopes[worker].cancel()


def _stop(world: World, seconds: float) -> None:
    """All of this program stands still, and what its leases cover is claimed by somebody who does nothing with it."""
    until = world.now() + seconds
    while world.now() < until:
        block_loop(min(0.25, until - world.now()))
        for each in world.store.claim("elsewhere", 3.0, 9):
            world.runs.append(Run(each.key, each.token, -1, world.now(), lambda _: math.inf))


def _steal(world: World, key: str, seconds: float) -> None:
    """As after a store that has lost its last moments: another has it, though its lease is good."""
    entry = world.store.entries[key]
    if entry.status == "running":
        entry.token, entry.owner = entry.token + 1, "thief"
        entry.attempt += 1
        entry.expires = world.now() + world.plan["ttl"] + seconds
        world.stolen[key, entry.token] = world.now()
        world.runs.append(Run(key, entry.token, -1, world.now(), lambda _: math.inf))


async def _until_all_is_over(world: World) -> None:
    with anyio.move_on_after(PATIENCE):
        while any(each.status in ("waiting", "running") for each in world.store.entries.values()):
            await anyio.sleep(1)


async def _work(world: World, number: int) -> None:
    """A worker that is started again whenever it has ended."""
    plan = world.plan
    policy = RetryPolicy(idle=Backoff(3, (0, 3)), network=Backoff(3, (1,)), random=lambda: 0.0)
    while not world.is_over:
        engine = LocalEngine(
            world.store,
            ttl=plan["ttl"],
            flush=plan["flush"],
            limit=plan["limit"],
            policy=policy,
            clock=world.now,
        )
        engine._calls = Wire(world, number, plan["ttl"] / 3)  # type: ignore[assignment]
        world.engines[number] = engine
        with anyio.CancelScope() as scope:
            world.scopes[number] = scope
            await engine.serve(partial(_handle, world, number))
        if engine._held:
            world.complain(
                "held", f"worker {number} has left with {sorted(map(str, engine._held))}"
            )
        await anyio.sleep(1)


# -- a session --------------------------------------------------------------------------------


async def _handle(world: World, worker: int, lease: Lease) -> None:
    witness = Witness()
    claim = world.claim(lease.key, lease.token)

    def until(now: float) -> float:
        sent = [sent for answered, sent in claim.heard if answered <= now]
        return max(sent, default=-math.inf) + FENCE * world.plan["ttl"]

    run = Run(lease.key, lease.token, worker, world.now(), until)
    world.runs.append(run)
    spec = world.spec(lease.key)
    point = lease.resume_point()
    run.first = point.delivered
    if lease.state.get("n", 0) != point.delivered:
        world.complain(
            "state", f"{lease.key} goes on at {point.delivered}, with a state of {lease.state}"
        )
    backend = Backend(world, run, spec, lease.attempt - 1)
    pipe: Any = session(backend.open, point=point) | idle_guard(IDLE, exit_grace=1, read=_says)
    if spec["retries"]:
        pipe = pipe | reconnecting_resume(
            policy=RetryPolicy(idle=Backoff(1, (2,)), network=Backoff(1, (2,)), random=lambda: 0.0)
        )
    try:
        async with pipe as chat:
            turn = aiter(chat)
            while (message := await _pulled(world, run, turn, spec)) is not None:
                run.delivered.append((message[0], world.now()))
                await anyio.sleep(spec["busy"])
                run.done[message[0]] = world.now()
                lease.state["n"] = message[0] + 1
    finally:
        run.ended = world.now()
        del witness


async def _pulled(world: World, run: Run, turn: Any, spec: dict[str, Any]) -> Any:
    while True:
        run.pulling_since = world.now()
        try:
            with anyio.move_on_after(0.7 if spec["impatient"] else math.inf):
                return await anext(turn)
        except StopAsyncIteration:
            return None
        finally:
            run.pulls.append((run.pulling_since, world.now()))
            run.pulling_since = None


def _says(message: Any) -> Any:
    return message[1]


class Backend:
    """What a session's attempts are played by: its messages by their numbers, from where the point says."""

    def __init__(self, world: World, run: Run, spec: dict[str, Any], attempt: int) -> None:
        self._world, self._run, self._spec = world, run, spec
        self._fails_at, self._how = spec["attempts"][min(attempt, len(spec["attempts"]) - 1)]
        self._opens = 0

    @asynccontextmanager
    async def open(self, point: Any) -> AsyncIterator[Any]:
        world, run = self._world, self._run
        run.opened.append(world.now())
        self._opens += 1
        if point.token is None and point.committed:
            world.complain("unsafe", f"{run.key} is begun again after {point.committed} messages")
        try:
            yield Connection(self._stream(point), disconnect=self._disconnect)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(self._spec["close"])
            run.closed.append(world.now())

    async def _disconnect(self) -> None:
        pass

    async def _stream(self, point: Any) -> AsyncIterator[Any]:
        spec = self._spec
        # Each attempt gets some further than the one before, unless it fails at once.
        fails_at = point.delivered + self._fails_at if self._how != "none" else math.inf
        for number in range(point.delivered, spec["messages"] + 1):
            if number >= fails_at and self._opens == 1:
                if self._how == "hang":
                    await anyio.sleep_forever()
                if self._how == "bug":
                    raise ValueError("a bug")
                raise ConnectionError("reset")
            await anyio.sleep(spec["gap"])
            yield number, self._word(number)

    def _word(self, number: int) -> Any:
        spec = self._spec
        if number == 0 and spec["token"]:
            return SessionOpened("token")
        if number == spec["messages"]:
            return TurnEnded("success")
        if spec["tools"] and number == 1:
            return [WorkStarted("t"), WorkFinished("t")]
        return Progress()


# -- the judge --------------------------------------------------------------------------------


def _judge(world: World) -> Iterator[Complaint]:
    by_key: dict[str, list[Run]] = {key: [] for key in world.store.entries}
    for run in world.runs:
        by_key[run.key].append(run)
    for key, runs in by_key.items():
        for run in runs:
            yield from _past_the_fence(world, run)
        yield from _overtaken(world, runs)
        yield from _end(world, key, runs)
        yield from _doubles(world, key, [run for run in runs if run.worker >= 0])
        yield from _two_backends(world, key, runs)


def _past_the_fence(world: World, run: Run) -> Iterator[Complaint]:
    refused = world.claim(run.key, run.token).refused_at
    for what, times in (
        ("delivers", [at for _, at in run.delivered]),
        ("opens", run.opened),
    ):
        for at in times:
            if at >= run.lease_until(at) or at > refused:
                yield Complaint(
                    "fence",
                    f"{run.key} ({run.token}) {what} at {at}, and its lease is over at "
                    f"{min(run.lease_until(at), refused)}",
                )


def _overtaken(world: World, runs: list[Run]) -> Iterator[Complaint]:
    for run in runs:
        for later in runs:
            if later.token <= run.token or (later.key, later.token) in world.stolen:
                continue
            if any(at > later.began for _, at in run.delivered) or any(
                at > later.began for at in run.opened
            ):
                yield Complaint(
                    "overtaken",
                    f"{run.key}: {run.token} is at work after {later.token} began at {later.began}",
                )


def _end(world: World, key: str, runs: list[Run]) -> Iterator[Complaint]:
    entry, spec = world.store.entries[key], world.spec(key)
    if entry.status in ("waiting", "running"):
        yield Complaint("stuck", f"{key} is {entry.status} for ever")
    if entry.status == "cancelled" and not any(
        event[1] == "cancel" for event in world.plan["events"]
    ):
        yield Complaint("end", f"{key} is cancelled, and nobody asked for it")
    if entry.status == "parked":
        yield from _parked(world, key, entry.why, spec)
    if entry.status == "done":
        dealt_with = {number for run in runs for number in run.done}
        if missing := set(range(spec["messages"] + 1)) - dealt_with:
            yield Complaint("gap", f"{key} is done, and nobody dealt with {sorted(missing)}")
        if entry.checkpoint.delivered != spec["messages"] + 1:
            yield Complaint(
                "counters",
                f"{key} is done with {entry.checkpoint.delivered} of {spec['messages'] + 1}",
            )


def _parked(world: World, key: str, why: str, spec: dict[str, Any]) -> Iterator[Complaint]:
    hows = [how for _, how in spec["attempts"]]
    if why.startswith("poison"):
        tokens = {run.token for run in world.runs if run.key == key and run.worker >= 0}
        tokens |= {
            token for of, token in world.claims if of == key and world.claim(of, token).applied
        }
        tokens |= {token for of, token in world.stolen if of == key}
        tokens = {token for token in tokens if token > world.released.get(key, 0)}
        if len(tokens) < 3:
            yield Complaint("end", f"{key} is parked as poison after {len(tokens)} attempts")
    elif why.startswith("unsafe (") or "no session to go on with" in why:
        if spec["token"] and not spec["tools"]:
            yield Complaint("end", f"{key} is parked as {why}, and had a token")
    elif "mistake" in why:
        if "bug" not in hows:
            yield Complaint("end", f"{key} is parked as {why}, and made none")
    elif not (
        # Its close was cut by a stop, and so nobody saw its end.
        "may still be alive" in why
        and spec["close"]
        and any(event[1] == "stop" for event in world.plan["events"])
    ):
        yield Complaint("end", f"{key} is parked: {why}")


def _doubles(world: World, key: str, runs: list[Run]) -> Iterator[Complaint]:
    """Nothing is delivered twice but what was done after the last moment that a beat has told of."""
    flush, latency = world.plan["flush"], world.plan["latency"]
    for number, run in enumerate(runs):
        told = _told(world, run)
        for later in runs[number + 1 :]:
            again = {seq for seq, _ in later.delivered}
            for seq, at in run.done.items():
                if seq in again and at < told - 1e-9:
                    yield Complaint(
                        "doubles",
                        f"{key}: {seq} was dealt with at {at} by {run.token}, which told of {told} at the "
                        f"latest, and {later.token} got it again (flush {flush}, latency {latency})",
                    )


def _told(world: World, run: Run) -> float:
    """The last instant until which all that was dealt with is in a beat that the store has."""
    claim = world.claim(run.key, run.token)
    latency = world.plan["latency"]
    told = -math.inf
    # Beats that looked, each at some instant before it was applied. Of a tie the worse is taken.
    looks = [at - latency / 2 for at in claim.applied]
    for i, look in enumerate(looks):
        seen = [look for begin, end in run.pulls if begin < look < end]
        for earlier in looks[:i]:
            # What an earlier look could not see, as the consumer was busy, was seen at the next pull.
            if any(begin <= earlier <= end for begin, end in run.pulls):
                continue
            seen += [begin for begin, _ in run.pulls if earlier < begin < look][:1]
        told = max([told, *seen])
    return told


def _two_backends(world: World, key: str, runs: list[Run]) -> Iterator[Complaint]:
    """Nobody opens where another's is there, unless that was stopped, or closes for longer than its lease lasts."""
    spec, events = world.spec(key), [event[1] for event in world.plan["events"]]
    if "stop" in events:
        return
    is_free = "steal" not in events and spec["close"] < 0.2 * world.plan["ttl"]
    for run in runs:
        for begin, end in zip(run.opened, [*run.closed, math.inf], strict=False):
            for later in runs:
                if not is_free and later.worker != run.worker:
                    continue
                if later.token > run.token and any(begin < at < end for at in later.opened):
                    yield Complaint(
                        "two owners", f"{key}: {later.token} opens while {run.token} is there"
                    )


SUBJECTS = (Fleets(),)
