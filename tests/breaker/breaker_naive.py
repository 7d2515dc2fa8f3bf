"""The rules of the circuit breaker, P3, told the slow way: an oracle.

It keeps every fact with its instant, and for each question lives the whole history again. There
are no generations and no leases kept: an *era* is an object that begins with each transition, a
permit belongs to one, and who holds a probe's place is looked up among the permits. Nothing is
shared with the package, its vocabulary included.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False)
class Era:
    """From one transition to the next."""

    status: str
    since: float


@dataclass(eq=False)
class Ticket:
    """A permit: given when and in which era, and whether its outcome came."""

    era: Era
    at: float
    is_probe: bool
    done: bool = False


@dataclass
class World:
    """What is the case after all facts up to now."""

    now: float
    era: Era
    pause: float
    failures: int = 0
    openings: int = 0
    successes: int = 0
    throttled_until: float = -math.inf
    tickets: dict[int, Ticket] = field(default_factory=dict)
    eras: list[str] = field(default_factory=list)
    counted: bool | None = None
    kept: dict[str, Any] = field(default_factory=dict)

    def turn(self, status: str) -> None:
        self.era = Era(status, self.now)
        self.eras.append(status)


@dataclass
class Naive:
    """The knobs, and the history: (instant, what happened, to whom or how much)."""

    open_after: int = 3
    pause: float = 30.0
    escalate_after: float = 5
    reset_after: int = 1
    probes: int = 1
    probe_lease: float = 300.0
    pause_growth: float = 2.0
    longest_pause: float = 300.0
    history: list[tuple[float, str, Any]] = field(default_factory=list)

    def happened(self, at: float, what: str, whom: Any = None) -> None:
        self.history.append((at, what, whom))

    def live(self, now: float) -> World:
        """The whole history again."""
        world = World(now=-math.inf, era=Era("closed", -math.inf), pause=self.pause)
        for at, what, whom in self.history:
            world.now, world.counted = at, None
            getattr(self, f"_{what}")(world, whom)
        world.now = now
        return world

    # -- questions -------------------------------------------------------------------------

    def wait(self, world: World) -> float:
        """6.1.1: how long nobody may try."""
        if world.era.status in ("escalated", "isolated"):
            return math.inf
        waits = [0.0, world.throttled_until - world.now]
        if world.era.status == "open":
            waits.append(world.era.since + world.pause - world.now)
        if world.era.status == "half_open":
            ends = sorted(self._lease(ticket) for ticket in self._probing(world))
            if len(ends) >= self.probes:
                waits.append(ends[0] - world.now)
        return max(waits)

    def _probing(self, world: World) -> list[Ticket]:
        """6.1.6: a probe that does not report frees its place when its lease is over."""
        return [
            ticket
            for ticket in world.tickets.values()
            if ticket.era is world.era
            and ticket.is_probe
            and not ticket.done
            and self._lease(ticket) > world.now
        ]

    def _lease(self, ticket: Ticket) -> float:
        return ticket.at + max(self.probe_lease, self.pause)

    # -- facts -----------------------------------------------------------------------------

    def _asked(self, world: World, number: int) -> None:
        if self.wait(world) > 0:
            return
        if world.era.status == "open":
            world.turn("half_open")
            world.successes = 0
        is_probe = world.era.status == "half_open"
        world.tickets[number] = Ticket(world.era, world.now, is_probe)

    def _progress(self, world: World, number: int) -> None:
        """6.1.5: the probe's first progress lets others in; the count stays."""
        ticket = world.tickets[number]
        if ticket.done or ticket.era is not world.era or world.era.status != "half_open":
            return
        if self.reset_after == 1:
            world.turn("closed")
            ticket.era = world.era

    def _first_report(self, world: World, number: int) -> bool:
        """6.1.2: exactly one outcome; 6.1.4: one of an older era changes nothing."""
        ticket = world.tickets[number]
        if ticket.done:
            return False
        ticket.done = True
        world.counted = ticket.era is world.era
        return world.counted

    def _success(self, world: World, number: int) -> None:
        if not self._first_report(world, number):
            return
        if world.era.status == "half_open":
            world.successes += 1
            if world.successes < self.reset_after:
                return
            world.turn("closed")
        world.failures = world.openings = 0

    def _failure(self, world: World, number: int) -> None:
        if not self._first_report(world, number):
            return
        world.failures += 1
        if world.failures < self.open_after and world.era.status != "half_open":
            return
        # P3: each failure beyond opens it once more, and each time for longer.
        world.openings += 1
        if world.openings >= self.escalate_after:
            world.turn("escalated")
        else:
            world.turn("open")
            grown = [self.pause]
            while len(grown) < world.openings:
                grown.append(grown[-1] * self.pause_growth)
            world.pause = min(grown[-1], max(self.pause, self.longest_pause))

    def _neutral(self, world: World, number: int) -> None:
        self._first_report(world, number)

    def _refusal(self, world: World, number: int) -> None:
        """6.1.7: refused credentials escalate at once, and the count is unchanged."""
        if self._first_report(world, number):
            world.turn("escalated")

    def _limited(self, world: World, whom: tuple[int, float]) -> None:
        """6.1.7: a 429 is not counted, and everybody waits."""
        number, seconds = whom
        if not world.tickets[number].done:
            self._throttle(world, seconds)
        self._first_report(world, number)

    def _throttle(self, world: World, seconds: float) -> None:
        world.throttled_until = max(world.throttled_until, world.now + seconds)

    def _isolate(self, world: World, _: None) -> None:
        world.turn("isolated")

    def _reset(self, world: World, _: None) -> None:
        world.turn("closed")
        world.failures = world.openings = 0
        world.throttled_until = -math.inf

    def _keep(self, world: World, _: None) -> None:
        """6.1.10: what is left of times; half open as open."""
        was_open = world.era.status == "open"
        left = world.era.since + world.pause - world.now if was_open else 0.0
        world.kept = {
            "status": {"half_open": "open"}.get(world.era.status, world.era.status),
            "failures": world.failures,
            "pause_left": max(0.0, left),
            "throttle_left": max(0.0, world.throttled_until - world.now),
        }

    def _restore(self, world: World, kept: dict[str, Any]) -> None:
        world.turn(kept["status"])
        world.failures = kept["failures"]
        world.openings = max(0, kept["failures"] - self.open_after + 1)
        world.pause = kept["pause_left"]
        left = kept["throttle_left"]
        world.throttled_until = world.now + left if left else -math.inf
