"""What operators say, as one value: the knobs that were written, merged and validated.

A plan is immutable and bound to no stream. Every operator is a plan; operators piped one after
another merge their plans, which is why six cost what one costs (O2) and order cannot matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import repeat
from operator import is_
from types import MethodType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from streamguard._base.durations import said_twice
from streamguard._base.numbers import Default
from streamguard._base.warning import warn
from streamguard._guard.knobs import (
    CEILINGS,
    DEFAULT_AFTER_SLEEP,
    DEFAULT_DISCONNECT_TIMEOUT,
    DEFAULT_KILL_GRACE,
    DEFAULT_TOOLS,
    LIMITS,
    Derived,
    Disconnect,
    is_guess,
)
from streamguard._watch.watch import Limits
from streamguard.errors import ConfigError

if TYPE_CHECKING:
    from streamguard._base.spending import Ceiling
    from streamguard._guard.modes import Mode
    from streamguard._guard.supervision import Process
    from streamguard.activity import Activity
    from streamguard.backends import Backend
    from streamguard.errors import Guard, Limit
    from streamguard.events.teller import Observer, OnWarn
    from streamguard.sessions.resume_settings import KeepAlive, Reconnecting

Stamp: TypeAlias = "tuple[Callable[[Activity], object], float]"

# Of each pair the left one is pointless unless it is the smaller; `turn` may equal `total`,
# since a stream of one turn is often given the same for both.
CONTRADICTIONS: Final = (
    *((inner, outer) for inner in ("idle", "first", "liveness") for outer in ("turn", "total")),
    ("turn", "total"),
)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Knobs by name. A missing one was not written; None was written and means off."""

    limits: Mapping[str, float | None] = field(default_factory=dict[str, "float | None"])
    # How often, and how much: `repeats` and the ceilings.
    counts: Mapping[str, float | None] = field(default_factory=dict[str, "float | None"])
    gate: bool = False
    tools: Mapping[str, float | None] = field(default_factory=lambda: {"*": DEFAULT_TOOLS})
    quiet: Mapping[str, float | None] = field(default_factory=lambda: {"*": None})
    end_on: frozenset[Limit] = frozenset()
    disconnects: tuple[Disconnect, ...] = ()
    disconnect_timeout: float = DEFAULT_DISCONNECT_TIMEOUT
    interrupts: tuple[Disconnect, ...] = ()
    # Whether a turn that an interrupt has ended leaves the client as good as it was (D1).
    outlives_interrupt: bool = False
    process: Process | None = None
    kill_grace: float = DEFAULT_KILL_GRACE
    activity: Activity | None = None
    stamps: tuple[Stamp, ...] = ()
    observers: tuple[Observer, ...] = ()
    on_warn: tuple[OnWarn, ...] = ()
    backend: Backend | None = None
    # Whose client it is: of its own stream, an end without any message means what it does there (T10).
    expected: Backend | None = None
    mode: Mode | None = None
    # These want a task of their own for the stream: such a plan makes a session of its source.
    reconnecting: Reconnecting | None = None
    keep_alive: KeepAlive | None = None
    # What is left of it beside operators that set limits, where its own are those of the configuration.
    beside: Plan | None = None
    # Whose verdicts they are.
    guard: Guard = "idle_guard"
    # The contradictions that were warned of: each once, however often the plan is handed on.
    told: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    def __post_init__(self) -> None:
        found = [text for text in self._contradictions() if text not in self.told]
        object.__setattr__(self, "told", self.told.union(found))
        for text in found:
            warn(text)

    def merged(self, other: Plan) -> Plan:
        """Both plans in one: the tightest of each knob; callbacks add up (T12)."""
        if self.beside is not None and other.sets_limits:
            return self.beside.merged(other)
        if other.beside is not None and self.sets_limits:
            return self.merged(other.beside)
        beside = None
        if self.beside is not None or other.beside is not None:
            beside = (self.beside or self).merged(other.beside or other)
        return Plan(
            limits=_tightest_of(self.limits, other.limits),
            counts=_tightest_of(self.counts, other.counts),
            gate=self.gate or other.gate,
            tools=_tightest_of(self.tools, other.tools),
            quiet=_tightest_of(self.quiet, other.quiet),
            end_on=self.end_on | other.end_on,
            disconnects=_added(self.disconnects, other.disconnects),
            disconnect_timeout=_tighter(self.disconnect_timeout, other.disconnect_timeout),
            interrupts=_written(_added(self.interrupts, other.interrupts)),
            outlives_interrupt=self.outlives_interrupt or other.outlives_interrupt,
            process=_process(self.process, other.process),
            kill_grace=_tighter(self.kill_grace, other.kill_grace),
            activity=_only("activity", self.activity, other.activity),
            stamps=self.stamps + other.stamps,
            observers=_added(self.observers, other.observers),
            on_warn=_added(self.on_warn, other.on_warn),
            backend=_only("read", self.backend, other.backend),
            expected=self.expected or other.expected,
            mode=_weaker(self.mode, other.mode),
            reconnecting=_only("reconnecting_resume", self.reconnecting, other.reconnecting),
            keep_alive=_only("keep_alive", self.keep_alive, other.keep_alive),
            beside=beside,
            guard=other.guard if self.guard == "idle_guard" else self.guard,
            told=self.told | other.told,
        )

    def anew(self, fields: dict[str, Any], *, is_other_client: bool) -> Plan:
        """This plan with `fields` in the place of its own, and without an old client's handles."""
        if self.beside is not None:
            is_aside = fields.keys() <= {"observers", "on_warn"}
            fields = {**fields, "beside": replace(self.beside, **fields) if is_aside else None}
        if not is_other_client:
            return replace(self, **fields)
        interrupts = tuple(each for each in self.interrupts if not isinstance(each, Derived))
        process = None if isinstance(self.process, Derived) else self.process
        kept = {"interrupts": interrupts, "process": process}
        set_anew = {
            name: value
            for name, value in fields.items()
            if not (kept.get(name) and _is_derived(value))
        }
        return replace(self, **{**kept, **set_anew})

    @property
    def sets_limits(self) -> bool:
        """Whether somebody wrote a limit, or that there is none."""
        return self.beside is None and bool(self.limits)

    @property
    def written(self) -> frozenset[str]:
        """The knobs that a preset says nothing of any more, because somebody wrote them."""
        numbers: dict[str, float | None] = {
            "kill_grace": self.kill_grace,
            "disconnect_timeout": self.disconnect_timeout,
            **self.limits,
            **self.counts,
        }
        if self.gate:
            numbers |= {"tools": None if len(self.tools) > 1 else self.tools["*"]}
        return frozenset(name for name, value in numbers.items() if not isinstance(value, Default))

    @property
    def bound(self) -> tuple[object, ...]:
        """What can serve one stream at a time only (O1)."""
        single = (thing for thing in (self.process, self.activity) if thing is not None)
        return (*self.disconnects, *self.interrupts, *single)

    @property
    def listeners(self) -> tuple[Observer, ...]:
        """Who is told: the observers, and of warnings whoever asked for these alone."""
        if not self.on_warn:
            return self.observers
        from streamguard.events.teller import Warned

        return (*self.observers, *map(Warned, self.on_warn))

    def watch_limits(self) -> Limits:
        """The limits as the watch wants them."""
        by_name = dict(self.tools)
        others = by_name.pop("*")
        quiet_by_name = dict(self.quiet)
        quiet = quiet_by_name.pop("*")
        windows: dict[str, Any] = {name: self.limits.get(name) for name in LIMITS}
        windows["after_sleep"] = self.limits.get("after_sleep", DEFAULT_AFTER_SLEEP)
        repeats = self.counts.get("repeats")
        ceilings: dict[Ceiling, float] = {}
        for name in CEILINGS:
            if (most := self.counts.get(name)) is not None:
                ceilings[name] = most
        return Limits(
            **windows,
            gate=self.gate,
            tools=others,
            tools_by_name=by_name,
            quiet=quiet,
            quiet_by_name=quiet_by_name,
            repeats=None if repeats is None else int(repeats),
            ceilings=ceilings,
            end_on=self.end_on,
            half_time=bool(self.observers or self.on_warn),
        )

    def _contradictions(self) -> list[str]:
        said: list[str] = []
        written = {k: v for k, v in self.limits.items() if not isinstance(v, Default)}
        if (twice := said_twice(written.get("first"), written.get("idle"))) is not None:
            said.append(twice)
        for inner, outer in CONTRADICTIONS:
            a, b = written.get(inner), written.get(outer)
            if a is None or b is None:
                continue
            if a > b or (a == b and inner != "turn"):
                said.append(f"{inner}={a:g} can never be reached: {outer}={b:g} comes first")
        return said


def _tighter(a: float | None, b: float | None) -> float:
    """The smaller of two written values; a default gives way, None is the widest."""
    if isinstance(a, Default) != isinstance(b, Default):
        a, b = (b, b) if isinstance(a, Default) else (a, a)
    return min(a if a is not None else math.inf, b if b is not None else math.inf)


def _tightest_of(
    a: Mapping[str, float | None], b: Mapping[str, float | None]
) -> Mapping[str, float | None]:
    merged = {**a, **b}
    for name in a.keys() & b.keys():
        tightest = _tighter(a[name], b[name])
        merged[name] = None if tightest == math.inf else tightest
    return merged


def _added(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    """Both, without repeating what is in both: the same callback runs once."""
    return a + tuple(item for item in b if not _is_among(item, a))


def _is_among(item: object, others: tuple[object, ...]) -> bool:
    # Of a bound method there is a new object each time; equal ones have the same owner.
    if isinstance(item, MethodType | Derived):
        return item in others
    # By identity: two observers that are lists are equal as long as both are empty.
    return any(map(is_, others, repeat(item)))


def _is_derived(value: object) -> bool:
    """Whether a client has it, or each of them, and nobody wrote it."""
    several = cast("tuple[object, ...]", value) if isinstance(value, tuple) else (value,)
    return all(isinstance(each, Derived) for each in several)


def _written(handles: tuple[Any, ...]) -> tuple[Any, ...]:
    """Those that were written, if any was."""
    return tuple(each for each in handles if not isinstance(each, Derived)) or handles


def _process(a: Any, b: Any) -> Any:
    """The one that was written, or the one that the client has."""
    if a is None or b is None:
        return b if a is None else a
    if _certainty_of(a) != _certainty_of(b):
        return max(a, b, key=_certainty_of)
    if is_guess(a):
        return a if a == b else None  # of two clients, neither's process is all there is
    return _only("client" if _is_derived(a) else "process", a, b)


def _certainty_of(process: object) -> int:
    """What is written goes before what a client is known to have, and that before a guess."""
    return (not _is_derived(process)) + (not is_guess(process))


def _only(knob: str, a: Any, b: Any) -> Any:
    """The one that was written, of a knob of which no two can be in force (O2)."""
    if a is not None and b is not None and a != b:
        raise ConfigError(
            f"{knob}= was written twice in one pipe, as {a!r} and {b!r}, and a stream has only "
            "one: write it once, or the same in both operators"
        )
    return a if a is not None else b


def _weaker(a: Mode | None, b: Mode | None) -> Mode | None:
    modes: tuple[Mode, ...] = ("off", "warn", "enforce")
    return next((mode for mode in modes if mode in (a, b)), None)
