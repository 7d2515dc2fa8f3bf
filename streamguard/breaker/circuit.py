"""The circuit of one backend, as a state machine without clock, lock or wait (P3).

                        failures reach `open_after`
            ┌──────────────────────────────────────────────┐
            │                                               ▼
         closed ◄── first progress, or success ── half_open ── failure ──► open
            ▲                                        ▲                      │
            │                                        └── `pause` is over ───┘
         reset()
            │
        escalated (opened `escalate_after` times in a row, or the credentials are refused), isolated

A *circuit* is an immutable value, and each method of `Rules` makes the next one from it, given
the time. Whoever keeps circuits (`circuit_store.CircuitStore`) has only to replace one value by another
atomically.

**Generations.** Each transition begins a new generation. A permit carries the generation it was
given in, and what it reports counts in that one alone: five streams that die of one outage open
the circuit once and do not escalate it, and a stream that ends well an hour late does not close
it. A generation never comes back, so it can be handed on as a fencing token.

**Probation.** The first progress of a probe closes the circuit for others too, but keeps the
count of failures: the next one opens it again. A turn that was completed zeroes the count.

**Pauses.** The first pause is `pause`, and each opening that follows without a completed turn in
between is `pause_growth` times as long as the one before, up to `longest_pause`. How often the
circuit has opened in a row is told from the count of failures: it opens at `open_after`, and each
failure that counts after that opens it once more. So it takes a lasting outage to escalate, and
never the many streams that die of a short one.

**Leases.** A probe that never reports holds its place for `probe_lease` seconds and no longer, so
that no circuit stays half open for ever. Late is not too late: while the generation is the same,
its report counts.

Imports errors and checks.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, Final, Literal, TypeAlias, TypedDict, cast, get_args

from streamguard._base.numbers import check_count, check_number, seconds
from streamguard.errors import ConfigError

Status: TypeAlias = Literal["closed", "open", "half_open", "escalated", "isolated"]


class Outcome(StrEnum):
    """How an attempt ended, as far as the circuit is concerned."""

    SUCCESS = "success"  # a turn was completed
    FAILURE = "failure"  # the backend failed
    NEUTRAL = "neutral"  # it says nothing about the backend: cancelled, throttled, a bad request
    ESCALATE = "escalate"  # the backend refuses the credentials or the account


@dataclass(frozen=True, slots=True)
class Circuit:
    """All that is remembered of one backend. Times are on the clock of its store."""

    status: Status = "closed"
    failures: int = 0
    generation: int = 0
    opened_at: float = 0.0
    not_before: float = -math.inf
    # Successful probes in a row, of `reset_after`; the probes under way, and until when.
    successes: int = 0
    leases: tuple[tuple[str, float], ...] = ()
    # Why the status is what it is, for people.
    cause: str = ""

    def as_json(self) -> dict[str, Any]:
        """All of it as JSON has it, for a store that keeps circuits in a database."""
        told: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        told["not_before"] = None if self.not_before == -math.inf else self.not_before
        told["leases"] = [[holder, until] for holder, until in self.leases]
        return told

    @classmethod
    def from_json(cls, told: object) -> Circuit:
        """The circuit that `as_json` gave. A ConfigError for anything else."""
        return _read_circuit(told)


@dataclass(frozen=True, slots=True)
class Admitted:
    """An attempt may be made. Its outcome counts in `generation`."""

    generation: int
    is_probe: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """No attempt may be made for `retry_after` seconds; infinite if only `reset()` helps.

    `at_least`: the part of it that nothing shortens. A probe that is under way may end sooner.
    """

    retry_after: float
    at_least: float


class Snapshot(TypedDict):
    """A circuit to keep, as JSON has it: times are what is left of them."""

    status: Status
    failures: int
    pause_left: float
    throttle_left: float


@dataclass(frozen=True, kw_only=True)
class Rules:
    """When a circuit opens, for how long, and what closes it again: see `CircuitBreaker`."""

    open_after: int
    pause: float
    escalate_after: int | None
    reset_after: int
    probes: int
    probe_lease: float
    pause_growth: float = 2.0
    longest_pause: float = 300.0

    def __post_init__(self) -> None:
        for name in ("open_after", "reset_after", "probes"):
            check_count(name, getattr(self, name), least=1)
        if self.escalate_after is not None:
            check_count("escalate_after", self.escalate_after, least=1)
        for name in ("pause", "probe_lease", "longest_pause"):
            object.__setattr__(self, name, seconds(getattr(self, name), name))
        check_number("pause_growth", self.pause_growth, positive=True)
        if self.pause_growth < 1:
            raise ConfigError(
                f"pause_growth={self.pause_growth!r}: use 1 or more (1 = all pauses alike)"
            )

    # -- openings in a row -----------------------------------------------------------------

    def openings(self, failures: int) -> int:
        """How often the circuit has opened in a row, with so many failures counted."""
        return max(0, failures - self.open_after + 1)

    def pause_after(self, failures: int) -> float:
        """How long it stays open with so many failures counted."""
        longest = max(self.pause, self.longest_pause)
        pause = self.pause
        # Step by step: a power of so many openings would overflow.
        for _ in range(self.openings(failures) - 1):
            if pause >= longest or self.pause_growth == 1:
                break
            pause *= self.pause_growth
        return min(pause, longest)

    # -- permits ---------------------------------------------------------------------------

    def admit(
        self, circuit: Circuit, now: float, holder: str
    ) -> tuple[Circuit, Admitted | Refused]:
        """Let `holder` make an attempt, or say how long it has to wait."""
        wait = self.wait(circuit, now)
        if wait > 0:
            return circuit, Refused(wait, self.pause_left(circuit, now))
        if circuit.status == "closed":
            return circuit, Admitted(circuit.generation, is_probe=False)
        if circuit.status == "open":
            circuit = _moved(circuit, "half_open", "the pause is over")
        lease = (holder, now + max(self.probe_lease, self.pause))
        leases = (*_alive(circuit, now), lease)
        return replace(circuit, leases=leases), Admitted(circuit.generation, is_probe=True)

    def wait(self, circuit: Circuit, now: float) -> float:
        """The seconds until an attempt may be made: 0 for now, infinite for not by itself."""
        ends = [end for _, end in _alive(circuit, now)]
        lease_left = min(ends) - now if len(ends) >= self.probes else 0.0
        return max(self.pause_left(circuit, now), lease_left)

    def pause_left(self, circuit: Circuit, now: float) -> float:
        """As `wait`, but without the leases of probes: those may end at any time."""
        if circuit.status in {"escalated", "isolated"}:
            return math.inf
        until = circuit.not_before
        if circuit.status == "open":
            until = max(until, circuit.opened_at + self.pause_after(circuit.failures))
        return max(0.0, until - now)

    # -- reports ---------------------------------------------------------------------------

    def progressed(self, circuit: Circuit, generation: int) -> tuple[Circuit, int]:
        """A probe of `generation` brought its first progress. Also gives its new generation."""
        is_probation = circuit.status == "half_open" and self.reset_after == 1
        if not self._counts(circuit, generation) or not is_probation:
            return circuit, generation
        circuit = _moved(circuit, "closed", "a probe made progress")
        return circuit, circuit.generation

    def ended(
        self, circuit: Circuit, now: float, holder: str, generation: int, outcome: Outcome
    ) -> tuple[Circuit, bool]:
        """An attempt of `generation` is over. Also says whether its outcome counted."""
        if not self._counts(circuit, generation):
            return circuit, False
        leases = tuple(lease for lease in circuit.leases if lease[0] != holder)
        circuit = replace(circuit, leases=leases)
        match outcome:
            case Outcome.SUCCESS:
                return self._succeeded(circuit), True
            case Outcome.FAILURE:
                return self._failed(circuit, now), True
            case Outcome.ESCALATE:
                cause = "the backend refuses the credentials or the account"
                return _moved(circuit, "escalated", cause), True
            case Outcome.NEUTRAL:
                return circuit, True

    def _counts(self, circuit: Circuit, generation: int) -> bool:
        return generation == circuit.generation

    def _succeeded(self, circuit: Circuit) -> Circuit:
        if circuit.status == "closed":
            return replace(circuit, failures=0)
        successes = circuit.successes + 1
        if successes < self.reset_after:
            return replace(circuit, successes=successes)
        return replace(_moved(circuit, "closed", "a probe succeeded"), failures=0)

    def _failed(self, circuit: Circuit, now: float) -> Circuit:
        circuit = replace(circuit, failures=circuit.failures + 1)
        cause = f"{circuit.failures} failure{'s' * (circuit.failures != 1)} in a row"
        openings = self.openings(circuit.failures)
        if self.escalate_after is not None and openings >= self.escalate_after:
            return _moved(circuit, "escalated", cause)
        if openings or circuit.status == "half_open":
            return replace(_moved(circuit, "open", cause), opened_at=now)
        return circuit

    # -- orders ----------------------------------------------------------------------------

    def throttled(self, circuit: Circuit, now: float, retry_after: float) -> Circuit:
        """The backend asked to be left alone for a while, by everybody."""
        return replace(circuit, not_before=max(circuit.not_before, now + retry_after))

    def isolated(self, circuit: Circuit) -> Circuit:
        """Allow no attempt until `reset`."""
        return _moved(circuit, "isolated", "by hand")

    def reset(self, circuit: Circuit) -> Circuit:
        """As new, except the generation: reports of attempts that are still under way do not count."""
        return Circuit(generation=circuit.generation + 1, cause="reset by hand")

    # -- safekeeping -----------------------------------------------------------------------

    def snapshot(self, circuit: Circuit, now: float) -> Snapshot:
        """The circuit as it would be after a restart: without permits, a probe's included."""
        is_half_open = circuit.status == "half_open"
        opened_until = circuit.opened_at + self.pause_after(circuit.failures)
        pause_left = opened_until - now if circuit.status == "open" else 0.0
        return {
            "status": "open" if is_half_open else circuit.status,
            "failures": circuit.failures,
            "pause_left": max(0.0, pause_left),
            "throttle_left": max(0.0, circuit.not_before - now),
        }

    def restored(self, circuit: Circuit, now: float, snapshot: Snapshot) -> Circuit:
        """The circuit that `snapshot` tells of; permits given so far report in vain."""
        return Circuit(
            status=snapshot["status"],
            failures=snapshot["failures"],
            generation=circuit.generation + 1,
            opened_at=now - self.pause_after(snapshot["failures"]) + snapshot["pause_left"],
            not_before=now + snapshot["throttle_left"],
            cause="restored from a snapshot",
        )


def checked(snapshot: Any) -> Snapshot:
    """`snapshot` if it can be one; a ConfigError for what a file may have made of it."""
    try:
        read: Snapshot = {
            "status": snapshot["status"],
            "failures": snapshot["failures"],
            "pause_left": snapshot["pause_left"],
            "throttle_left": snapshot["throttle_left"],
        }
    except (TypeError, KeyError, IndexError) as error:
        raise ConfigError(f"{snapshot!r} is no snapshot of a circuit: {error!r}") from error
    if read["status"] not in _KEPT:
        raise ConfigError(f"status={read['status']!r}: a snapshot has one of {', '.join(_KEPT)}")
    check_count("failures", read["failures"])
    check_number("pause_left", read["pause_left"])
    check_number("throttle_left", read["throttle_left"])
    return read


def _read_circuit(told: object) -> Circuit:
    names = [field.name for field in fields(Circuit)]
    if not isinstance(told, Mapping) or set(cast("Mapping[object, object]", told)) != set(names):
        raise ConfigError(f"{told!r} is no circuit: it has {', '.join(names)}, and nothing else")
    read = dict(cast("Mapping[str, Any]", told))
    if read["status"] not in get_args(Status):
        raise ConfigError(f"status={read['status']!r}: use one of {', '.join(get_args(Status))}")
    for name in ("failures", "generation", "successes"):
        check_count(name, read[name])
    _check_time("opened_at", read["opened_at"])
    if read["not_before"] is None:
        read["not_before"] = -math.inf
    else:
        _check_time("not_before", read["not_before"])
    if not isinstance(read["cause"], str):
        raise ConfigError(f"cause={read['cause']!r}: use a text")
    read["leases"] = _read_leases(read["leases"])
    return Circuit(**read)


def _read_leases(told: object) -> tuple[tuple[str, float], ...]:
    leases: list[tuple[str, float]] = []
    for lease in cast("list[Any]", told) if isinstance(told, list | tuple) else [None]:
        match lease:
            case [str() as holder, until]:
                _check_time("leases", until)
                leases.append((holder, until))
            case _:
                raise ConfigError(f"leases={told!r}: use pairs of a holder and a time")
    if len({holder for holder, _ in leases}) < len(leases):
        raise ConfigError(f"leases={told!r}: a holder has one lease")
    return tuple(leases)


def _check_time(name: str, value: object) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not abs(cast("float", value)) <= sys.float_info.max:
        raise ConfigError(f"{name}={value!r}: use a time in seconds")


def _moved(circuit: Circuit, status: Status, cause: str) -> Circuit:
    """A transition: a new generation, in which nobody has a permit yet."""
    generation = circuit.generation + 1
    return replace(
        circuit, status=status, cause=cause, generation=generation, successes=0, leases=()
    )


def _alive(circuit: Circuit, now: float) -> tuple[tuple[str, float], ...]:
    return tuple(lease for lease in circuit.leases if lease[1] > now)


_KEPT: Final = tuple(status for status in get_args(Status) if status != "half_open")
