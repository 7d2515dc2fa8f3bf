"""One value as it was said somewhere, and what a preset says in its place.

Imports presets alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, cast

from streamguard.presets import named


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
    return laid_over(given, settings)


def with_pace(settings: Mapping[str, Setting]) -> dict[str, Setting]:
    """`settings`, with what goes with an `idle` that is a word, such as "tokens", in seconds."""
    idle = settings.get("idle")
    if idle is None or not isinstance(idle.value, str):
        return dict(settings)
    origin = f"{idle.origin}, preset {idle.value}"
    said = named(idle.value).knobs()
    paced = {k: Setting(v, origin, idle.value) for k, v in said.items() if v is not None}
    return {**paced, **settings, "idle": paced["idle"]}


# Limits that may be a table: of tools, and other work, by name.
BY_NAME: Final = ("tools", "quiet")


def laid_over(below: Mapping[str, Setting], above: Mapping[str, Setting]) -> dict[str, Setting]:
    """Both, where what is said in `above` goes before.

    A table of tools that has no number for the others (`*`) leaves them what is said `below`.
    """
    both = {**below, **above}
    for key in BY_NAME:
        if key in below and key in above:
            value = named_over(below[key].value, above[key].value)
            both[key] = above[key]._replace(value=value)
    return both


def named_over(below: Any, above: Any) -> Any:
    """The limits by name `above`, and for those that these do not name, the one `below`."""
    if not isinstance(above, Mapping) or "*" in above:
        return cast("Any", above)
    others: Mapping[str, Any] = {"*": below}
    if isinstance(below, Mapping):
        others = {k: v for k, v in cast("Mapping[str, Any]", below).items() if k == "*"}
    return {**others, **cast("Mapping[str, Any]", above)}
