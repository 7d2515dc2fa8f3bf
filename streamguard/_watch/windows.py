"""What a watch is given and what it answers: windows in, judgements out.

Values only. Imports only errors, signals and the standard library.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from streamguard._base import defaults

if TYPE_CHECKING:
    from streamguard._base.spending import Ceiling
    from streamguard.errors import Limit


_NO_NAMES: Final[Mapping[str, float | None]] = MappingProxyType({})
_NO_CEILINGS: Final[Mapping[Ceiling, float]] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The windows of one attempt, in seconds; None is off. `gate`: work in flight pauses idle."""

    idle: float | None = None
    first: float | None = None
    liveness: float | None = None
    gate: bool = False
    tools: float | None = defaults.TOOLS
    tools_by_name: Mapping[str, float | None] = field(default_factory=lambda: _NO_NAMES)
    turn: float | None = None
    exit_grace: float | None = None
    total: float | None = None
    # In the place of a silence's own window, if that is longer, once this machine has slept.
    after_sleep: float | None = None
    # Beyond silence: what is told, and only with `end_on` ends anything.
    quiet: float | None = None
    quiet_by_name: Mapping[str, float | None] = field(default_factory=lambda: _NO_NAMES)
    repeats: int | None = None
    ceilings: Mapping[Ceiling, float] = field(default_factory=lambda: _NO_CEILINGS)
    end_on: frozenset[Limit] = frozenset()
    # When the lease was last renewed, and when it ends; it moves with each renewal.
    lease: Callable[[], tuple[float, float]] | None = None
    # Half of a silence's window is an instant to wake at only if somebody wants to be told.
    half_time: bool = True

    @property
    def heeds_sleep(self) -> bool:
        """Whether it matters that this machine has slept."""
        silences = (self.idle, self.first, self.liveness)
        return self.after_sleep is not None and any(each is not None for each in silences)

    @cached_property
    def horizon(self) -> float:
        """How soon, at the earliest, a silence that starts now can want a decision."""
        silences = [window for window in (self.idle, self.first) if window is not None]
        soonest = min(silences, default=math.inf)
        return min(soonest / 2 if self.half_time else soonest, self.liveness or math.inf)

    def allowance(self, name: str) -> float | None:
        """How long work called `name` may be in flight."""
        return self.tools_by_name.get(name, self.tools)

    def quiet_for(self, name: str) -> tuple[float | None, bool]:
        """How long work called `name` may say nothing of itself; and whether it was named for that.

        Of what was named it is expected to speak; all other work is listened for once it has spoken.
        """
        for pattern, window in self.quiet_by_name.items():
            if fnmatchcase(name, pattern):
                return window, True
        return self.quiet, False


class Due(NamedTuple):
    """A limit whose clock runs, or, as a judgement, one that has been reached."""

    limit: Limit
    deadline: float
    window: float
    since: float
    work: str | None = None
    key: str = ""  # of that work: it has a clock of its own
    amount: float | None = None  # how often, or how much, where no time is measured


class Found(NamedTuple):
    """Something that a person may want to know, while nothing is ended for it."""

    limit: Limit
    window: float = 0.0
    amount: float = 0.0
    names: tuple[str, ...] = ()
    key: str = ""
    is_error: bool = False

    def told(self) -> tuple[str, dict[str, Any]]:
        """It as an event: the name of its kind, and its facts."""
        facts: dict[str, Any] = {"limit": self.limit}
        match self.limit:
            case "quiet":
                facts |= {"id": self.key, "name": self.names[0]}
                return "WorkQuiet", {**facts, "window": self.window, "elapsed": self.amount}
            case "repeats":
                facts |= {"names": self.names, "times": int(self.amount)}
                return "WorkRepeated", {**facts, "period": len(self.names), "error": self.is_error}
            case "empty" | "abandoned":
                return "HollowEnd", {**facts, "work": self.names}
            case _:
                return "CeilingPassed", {**facts, "ceiling": self.window, "spent": self.amount}


@dataclass(frozen=True, slots=True)
class Half:
    """Half of a silence's window is gone."""

    limit: Limit
    window: float


@dataclass(frozen=True, slots=True)
class Stalled:
    """The deadline was noticed so late that silence is not proven; it was moved (T4)."""

    limit: Limit
    lateness: float
    extended_by: float


Judgement: TypeAlias = Due | Half | Stalled | Found | None


@dataclass(frozen=True, slots=True)
class Noticed:
    """A clock that was found to be over: until when it was moved, and how often in a row (T4)."""

    stalls: int
    until: float = -math.inf


class Changed:
    """What has begun, moved or ended since somebody looked: work by its ids, holds by their keys."""

    __slots__ = ("holds", "work")

    def __init__(self, work: Iterable[str], holds: Iterable[object]) -> None:
        self.work = dict.fromkeys(work)
        self.holds = dict.fromkeys(holds)


def end_of(window: float, since: float) -> float:
    """When `window` is over: rounded up, for floats may round a sum down (T2)."""
    end = since + window
    return end if end - since >= window else math.nextafter(end, math.inf)
