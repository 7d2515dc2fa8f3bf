"""A figure: what was measured, in which unit, and what it must hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One row of the table. Without `hold` it is there to be read, not to be held."""

    group: str
    loop: str
    what: str
    value: float
    unit: str
    hold: float | None = None
    # The median where `value` is a minimum: how quiet the machine was.
    median: float | None = None
    # Where `value` is drawn from a curve: sizes, and microseconds for one at each.
    curve: tuple[tuple[int, float], ...] = ()

    @property
    def holds(self) -> bool | None:
        return None if self.hold is None else self.value <= self.hold

    def as_json(self) -> dict[str, Any]:
        told = {**asdict(self), "holds": self.holds}
        return {name: value for name, value in told.items() if name != "curve" or value}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Self:
        curve = tuple((size, cost) for size, cost in told.get("curve", ()))
        plain = {name: value for name, value in told.items() if name != "holds"}
        return cls(**{**plain, "curve": curve})
