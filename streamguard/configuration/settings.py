"""One value as it was said somewhere, and what a preset says in its place.

Imports presets alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from streamguard.presets import named

if TYPE_CHECKING:
    from collections.abc import Mapping


class Setting(NamedTuple):
    """A value, and where it comes from; of a preset, also its name."""

    value: Any
    origin: str
    preset: str = ""


def with_preset(settings: Mapping[str, Setting], *, for_run: bool = False) -> dict[str, Setting]:
    """`settings`, and under them what their `preset` says, which stays among them.

    A limit that a preset does not have is none that it takes away.
    """
    if (chosen := settings.get("preset")) is None:
        return dict(settings)
    total = settings["total"].value if "total" in settings else None
    preset = named(chosen.value)
    said = preset.for_run(total) if for_run else preset.knobs(total)
    origin = f"{chosen.origin}, preset {chosen.value}"
    given = {k: Setting(v, origin, chosen.value) for k, v in said.items() if v is not None}
    return {**given, **settings}
