"""Limits by name: what programs that met hanging agents chose, and how finely backends talk.

    idle_guard("claude-print")            in code
    preset = "claude-print"               below [guard] or [run] in streamguard.toml
    STREAMGUARD_PRESET=claude-print       in the environment
    streamguard run --preset claude-print -- ...

What is written beside a preset goes over it. This is the one home of the numbers, in seconds.
`PRESETS` has them by name; what no guard takes is for who has a use for it:

    RetryPolicy(idle=Backoff(*PRESETS["mala-retry"].retry))
    PRESETS["flow"].scopes["step"]        (600, 900): a time scope's limit, and its hard limit

Imports nothing: the start of `streamguard run` pays for it, if a preset is asked for.
"""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Final

    from streamguard.errors import ScopeKind

__all__ = ["PRESETS", "Preset", "idle_for", "named"]

_MINUTE = 60.0
_HOUR = 3600.0


class Preset:
    """A set of limits.

    `guard`: what `idle_guard` takes, by the names of its knobs; None is off. `first_json`: for
    `streamguard run` alone. `retry`: how often, and after which delays. `scopes`: by kind, a limit
    and its hard limit. `idle_follows_total`: unless `idle` is written, it is derived from `total`.
    """

    def __init__(
        self,
        source: str,
        guard: Mapping[str, float | None],
        *,
        first_json: float | None = None,
        retry: tuple[int, tuple[float, ...]] | None = None,
        scopes: Mapping[ScopeKind, tuple[float, float]] | None = None,
        idle_follows_total: bool = False,
    ) -> None:
        self.source = source  # where the numbers are from
        self.guard = guard
        self.first_json = first_json
        self.retry = retry
        self.scopes: Mapping[ScopeKind, tuple[float, float]] = scopes or {}
        self._idle_follows_total = idle_follows_total

    def knobs(self, total: float | None = None) -> dict[str, float | None]:
        """Its knobs for a guard, if `total` was written so (None: it was not written)."""
        knobs = dict(self.guard)
        if self._idle_follows_total and total is not None:
            knobs["idle"] = idle_for(total)
        return knobs

    def for_run(self, total: float | None = None) -> dict[str, Any]:
        """The same for `streamguard run`, by the names of its settings."""
        values: dict[str, Any] = self.knobs(total)
        if "kill_grace" in values:
            values["kill_after"] = values.pop("kill_grace")
        values.pop("disconnect_timeout", None)  # a command has none
        if self.first_json is not None:
            values["first_json"] = self.first_json
        if self.retry is not None:
            values["retries"], values["backoff"] = self.retry
        return values


def idle_for(total: float) -> float:
    """An idle limit for a job of `total` seconds: a fifth of it, between 5 and 15 minutes."""
    return min(max(total / 5, 5 * _MINUTE), 15 * _MINUTE)


PRESETS: Final[Mapping[str, Preset]] = {
    "tokens": Preset("a backend that streams tokens", {"idle": 120.0, "first": 300.0}),
    "messages": Preset("a backend that streams whole messages", {"idle": 900.0}),
    "command": Preset("a command that speaks when it is done", {"idle": 1800.0}),
    "mala-retry": Preset(
        "mala: idle timeout with retry",
        {"idle": idle_for(_HOUR), "total": _HOUR, "disconnect_timeout": 10.0},
        retry=(2, (0.0, 5.0, 15.0)),
        idle_follows_total=True,
    ),
    "mala-watchdog": Preset("mala: subprocess watchdog", {"idle": 180.0, "kill_grace": 5.0}),
    "flow": Preset(
        "a policy of nested timeouts",
        # Of one stream: the model alone is a call, what it runs a tool, its turn a step.
        {
            "idle": 2 * _MINUTE,
            "tools": 5 * _MINUTE,
            "turn": 10 * _MINUTE,
            "total": 30 * _MINUTE,
        },
        scopes={
            "flow": (30 * _MINUTE, 45 * _MINUTE),
            "step": (10 * _MINUTE, 15 * _MINUTE),
            "llm_call": (2 * _MINUTE, 3 * _MINUTE),
            "tool": (5 * _MINUTE, 10 * _MINUTE),
        },
    ),
    "claude-print": Preset(
        "claude-print: four timeouts",
        {"idle": None, "first": 90.0, "turn": 120.0, "total": _HOUR, "kill_grace": 2.0},
        first_json=90.0,
    ),
    "multica": Preset("multica: idle watchdog", {"idle": 5 * _MINUTE, "tools": 2 * _HOUR}),
}


def named(name: object) -> Preset:
    """The preset of that name. ValueError, with the names, if there is none."""
    if isinstance(name, str) and name in PRESETS:
        return PRESETS[name]
    raise ValueError(f"there is no such preset; there are {', '.join(PRESETS)}")
