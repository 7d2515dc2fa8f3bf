"""The explorer of sessions that are held on a lease, which is renewed, runs out or is taken away.

Up to the lease's end a session is what it is without one, and the model says what that is. From there on: nothing is opened, sent or
handed over; whoever uses the session is told within the teardown's bounds; and whether every backend is gone is said
as it is. At each pull, and at its end, the session can say how far its consumer is, and is right.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import replace
from random import Random
from typing import Any, ClassVar

import trio

from streamguard import ResumePoint
from tests.models.explorer import Complaint, Schedule
from tests.models.session_world import World
from tests.models.sessions import BUDGET, GRID, Sessions, turns_of

ENDS = (0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 8, 13)


class Lease:
    """As a schedule has it: good until an instant, which renewals move, unless it is taken away before."""

    def __init__(self, world: World, plan: dict[str, Any]) -> None:
        self._world = world
        self._clock = asyncio.get_running_loop().time if world.native else trio.current_time
        self._start = self._clock()
        self.until: float = plan["until"]
        self.since = 0.0
        self._renewals = [tuple(each) for each in plan["renewals"]]
        self._taken: float | None = plan["taken"]
        self._sessions: list[Any] = []
        self._alarm: Any = None

    def _wake_at(self, at: float) -> None:
        if self._world.native:
            loop = asyncio.get_running_loop()
            self._alarm = loop.call_at(self._start + at, self._tell)
            return

        async def wait() -> None:
            with scope:
                await trio.sleep_until(self._start + at)
                self._tell()

        self._alarm = scope = trio.CancelScope()
        trio.lowlevel.spawn_system_task(wait)

    def _tell(self) -> None:
        for each in self._sessions:
            each.look()

    @property
    def end(self) -> float:
        """When it ends, as far as is known by now."""
        now = self._clock() - self._start
        while self._renewals and self._renewals[0][0] <= now:
            at, until = self._renewals.pop(0)
            if at < self.until:
                self.since, self.until = at, max(self.until, until)
        if self._taken is not None and self._taken <= now:
            self.until = min(self.until, self._taken)
        return self.until

    @property
    def is_over(self) -> bool:
        end = self.end
        return self._clock() - self._start >= end

    def term(self, now: float) -> tuple[float, float]:
        end = self.end
        return self._start + self.since, self._start + end

    def begin(self, session: Any) -> None:
        self._sessions.append(session)
        if self._taken is not None:
            self._wake_at(self._taken)

    def asked(self) -> None:
        self._compare(is_known=True)

    def keep(self, tree: Any) -> Any:
        raise AssertionError(tree)

    def end_of(self) -> float:
        """When it ended, or will."""
        until: float = self._world.plan["lease"]["until"]
        for at, to in self._world.plan["lease"]["renewals"]:
            until = max(until, to) if at < until else until
        taken = self._world.plan["lease"]["taken"]
        return until if taken is None else min(until, taken)

    def finish(self, *, is_gone: bool) -> None:
        self._compare(is_known=False)
        self._sessions.pop()
        if self._alarm is not None:
            self._alarm.cancel()
        world = self._world
        mine = world.session_of_consumer  # what another one has left is said by that
        left = [
            each
            for each in world.connections
            if each.session == mine
            and not each.is_gone
            # What leaves by GeneratorExit, cut by somebody else, cannot say whether it has closed.
            and (world.script(each.number)["close"] or {}).get("end") != "exit"
        ]
        if is_gone and left and not world.is_after:
            world.wrong.append(
                f"all is said to be gone, and {left[0].number} is there at {world.now}"
            )

    def _compare(self, *, is_known: bool) -> None:
        world, point = self._world, self._sessions[-1].settled_point()
        if point is None:
            if is_known:
                world.wrong.append(
                    f"a pull at {world.now}, and it is not known how far its consumer is"
                )
            return
        got = sum(entry[1] == "got" for entry in turns_of(world)[-1])
        ask = sum(entry[1] == "ask" for entry in turns_of(world)[-1])
        if world.session_of_consumer:
            return  # it goes on with the turn of the one before
        # A turn is begun by its first pull; until then the session stands where the last one has left it.
        if got and point.delivered != got and not ask:
            world.wrong.append(
                f"{got} messages were got by {world.now}, and its point says {point.delivered}"
            )


class _Held:
    """A lease by the names that sessions know."""

    key = ""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self.term, self.begin, self.asked, self.keep = (
            lease.term,
            lease.begin,
            lease.asked,
            lease.keep,
        )
        self.end = lease.finish

    @property
    def is_over(self) -> bool:
        return self._lease.is_over


class LeasedWorld(World):
    """A world whose sessions have a lease, all the same one."""

    lease: Lease | None = None

    def begins(self, point: ResumePoint | None) -> ResumePoint:
        if self.lease is None:
            self.lease = Lease(self, self.plan["lease"])
            self.sure_until = self.lease.end_of()
        return replace(super().begins(point), custody=_Held(self.lease))


class Leased(Sessions):
    """Sessions on a lease."""

    name = "lease"
    simplest: ClassVar[Mapping[str, Any]] = {
        **Sessions.simplest,
        "lease": {"until": 2, "renewals": [], "taken": None},
    }

    def draw(self, random: Random) -> Schedule:
        schedule = super().draw(random)
        some = random.random
        until = random.choice(ENDS)
        renewals: list[list[float]] = []
        while some() < 0.4:
            at = random.choice(ENDS)
            renewals.append([at, at + random.choice((1, 2, 3, 5))])
        taken = random.choice(ENDS) if some() < 0.25 else None
        schedule["lease"] = {"until": until, "renewals": sorted(renewals), "taken": taken}
        return schedule

    def is_valid(self, schedule: Schedule) -> bool:
        return super().is_valid(schedule) and bool(schedule.get("lease"))

    def world_of(self, plan: Schedule, native: bool) -> World:
        return LeasedWorld(plan, native)

    def judge_more(self, world: World) -> list[Complaint]:
        assert isinstance(world, LeasedWorld)
        if world.lease is None:
            return []
        return [Complaint("lease", each) for each in _lease(world, world.lease.end_of())]


def _lease(world: World, end: float) -> Iterator[str]:
    """F2: past its end nothing happens, and everybody is told."""
    for entry in world.log:
        if entry[0] >= end and entry[1] in ("open", "got", "sent"):
            yield f"{entry[1]} at {entry[0]}, and its lease was over at {end}"
        if entry[1] in ("failed", "error") and entry[2] == "LeaseLostError" and entry[0] < end:
            yield f"LeaseLostError at {entry[0]}, and its lease is good until {end}"
    own = sum(
        act[1] for acts in world.plan["sessions"] for act in acts if act[0] in ("sleep", "within")
    )
    own += sum(act[2] for acts in world.plan["sessions"] for act in acts if act[0] == "take")
    left = world.block_left_at
    if left is not None and left > max(end, 0) + BUDGET + own + max(GRID):
        yield f"its lease was over at {end}, and its block was left at {left}"


SUBJECTS = (Leased(),)
