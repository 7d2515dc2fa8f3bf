"""What was used up: tokens, cost and calls of the model, added up without counting anything twice (B4).

A backend tells its counts for one call, for the turn so far, or for all since its process or its session
began. What is told of more takes the place of what was added for its parts. Imports signals alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

if TYPE_CHECKING:
    from streamguard.signals import Usage, UsageSpan

Ceiling: TypeAlias = Literal["tokens", "cost", "calls"]
CEILINGS: Final[tuple[Ceiling, ...]] = get_args(Ceiling)
_PARTS: Final = ("input", "output")
_TOLD: Final = (*CEILINGS, *_PARTS)

_INPUT: Final = ("input_tokens", "prompt_tokens")
_OUTPUT: Final = ("output_tokens", "completion_tokens")
# Where these are told, the input's count is without them.
_CACHED: Final = ("cache_creation_input_tokens", "cache_read_input_tokens")
_COST: Final = ("total_cost_usd", "cost_usd")
# Calls are told again soon after they were told first, if at all.
_CALLS_KEPT: Final = 16


def _first_of(names: tuple[str, ...], counts: Mapping[str, float]) -> float | None:
    for name in names:
        if name in counts:
            return counts[name]
    return None


def tokens_in(
    counts: Mapping[str, float],
) -> tuple[float | None, float | None, float | None]:
    """All tokens that the counts tell of; those the model has read, from a cache or not; and those it has written.

    None of what they do not tell of.
    """
    cached = _plus(counts.get(_CACHED[0]), counts.get(_CACHED[1]))
    read, written = _plus(_first_of(_INPUT, counts), cached), _first_of(_OUTPUT, counts)
    total = counts["total_tokens"] if "total_tokens" in counts else _plus(read, written)
    return total, read, written


def _plus(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return one if other is None else other
    return one + other


class _Cumulative:
    """A count that goes on growing: what it was when it was told last, and the whole at that time."""

    __slots__ = ("last", "whole")

    def __init__(self, whole: float = 0.0) -> None:
        self.last = 0.0
        self.whole = whole

    def advance(self, value: float) -> float:
        """The whole, now that `value` is told."""
        # It is less than before where it has begun anew without our knowing.
        self.whole += value - self.last if value >= self.last else value
        self.last = value
        return self.whole


class _Sum:
    """One of the three, added up."""

    __slots__ = ("_before", "_calls", "_process", "_session", "_settled", "_turn")

    def __init__(self, settled: float = 0.0) -> None:
        self._settled = settled  # of what is over, or in a total that goes beyond the turn
        self._before = settled  # … when the turn began
        self._turn = 0.0  # of the turn so far
        self._calls: dict[str, float] = {}
        self._process = _Cumulative(settled)
        self._session = _Cumulative()  # all that was settled is the session's

    @property
    def whole(self) -> float:
        return self._settled + self._turn

    def add(self, span: UsageSpan, call: str, value: float) -> None:
        match span:
            case "call":
                self._turn += value - self._calls.pop(call, 0.0)
                if call:
                    self._calls[call] = value
                    if len(self._calls) > _CALLS_KEPT:
                        self._calls.pop(next(iter(self._calls)))
            case "turn":
                # A total that was told in the turn has some of it already.
                self._turn = max(value - (self._settled - self._before), 0.0)
                self._calls.clear()
            case "process":
                self._settle(self._process.advance(value))
            case "session":
                # Of a process that was killed a session may forget what it has not written down.
                whole = max(self.whole, self._session.advance(value))
                self._session.whole = whole
                self._settle(whole)

    def _settle(self, whole: float) -> None:
        self._settled, self._turn = whole, 0.0
        self._calls.clear()

    def end_turn(self) -> None:
        self._settle(self.whole)
        self._before = self._settled

    def begin_process(self, *, is_resumed: bool) -> None:
        self.end_turn()
        self._process = _Cumulative(self.whole)
        if not is_resumed:
            self._session = _Cumulative(self.whole)


class Spending:
    """Tokens, cost and calls of the model, over all attempts at all prompts of a session."""

    __slots__ = ("_sums", "told")

    def __init__(self, spent: Mapping[str, float] = MappingProxyType({})) -> None:
        # Of those that are told. `spent`: what the same session has used up before, elsewhere.
        self._sums: dict[str, _Sum] = {
            name: _Sum(spent[name]) for name in CEILINGS if name in spent
        }
        self.told: frozenset[str] = frozenset()  # the ceilings that were told to be passed

    @property
    def whole(self) -> dict[str, float]:
        """So much of each was used up; of what the backend does not tell there is none."""
        return self._told(CEILINGS)

    @property
    def tokens(self) -> dict[str, float]:
        """Those of the tokens that are known to have been read ("input") and written ("output")."""
        return self._told(_PARTS)

    def _told(self, names: tuple[str, ...]) -> dict[str, float]:
        return {name: self._sums[name].whole for name in names if name in self._sums}

    def note(self, usage: Usage) -> None:
        """The backend has told what it used."""
        counts, span, call = usage.counts, usage.span, usage.call
        tokens, read, written = tokens_in(counts)
        calls = 1.0 if span == "call" else counts.get("calls")
        told = tokens, _first_of(_COST, counts), calls, read, written
        sums = self._sums
        for name, value in zip(_TOLD, told, strict=True):
            if value is not None:
                if (known := sums.get(name)) is None:
                    known = sums[name] = _Sum()
                known.add(span, call, value)

    def spent(self, name: Ceiling) -> float:
        """So much of it was used up."""
        return 0.0 if (known := self._sums.get(name)) is None else known.whole

    def end_turn(self) -> None:
        """What is told of a turn from here on is of another one."""
        for each in self._sums.values():
            each.end_turn()

    def begin_process(self, *, is_resumed: bool) -> None:
        """Another process, or connection, begins to count; with its session's counts, if it goes on with that."""
        for each in self._sums.values():
            each.begin_process(is_resumed=is_resumed)
