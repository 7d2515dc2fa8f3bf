"""What the environment says: `STREAMGUARD_MODE` and `STREAMGUARD_IDLE`. Files: `configuration`.

Read when first needed, so that a value is found wrong where it is used, with the variable's
name in the error. Imports only errors.
"""

from __future__ import annotations

import math
import os
from typing import Final, Literal, TypeAlias, get_args

from streamguard.errors import ConfigError

Mode: TypeAlias = Literal["enforce", "warn", "off"]
_MODES: Final[tuple[Mode, ...]] = get_args(Mode)  # from strong to weak
_OFF_TOO: Final = ("0", "false", "no")

MODE: Final = "STREAMGUARD_MODE"
IDLE: Final = "STREAMGUARD_IDLE"


def environment_mode() -> Mode:
    """What the kill switch says: `enforce` if it is not set."""
    value = os.environ.get(MODE)
    if not value:
        return "enforce"
    word = value.strip().lower()
    if word in _OFF_TOO:
        return "off"
    for mode in _MODES:
        if word == mode:
            return mode
    raise ConfigError(
        f"environment variable {MODE}={value!r}: use one of enforce, warn, off (or 0, false, no)"
    )


def mode_in_force(written: Mode | None) -> Mode:
    """Of what the code says and what the environment says, the weaker (T11)."""
    said: tuple[Mode, Mode] = (written or "enforce", environment_mode())
    return max(said, key=_MODES.index)


def environment_idle() -> float | None:
    """The idle limit for `idle_guard()`; None if `STREAMGUARD_IDLE=0` switches it off."""
    value = os.environ.get(IDLE)
    if not value:
        raise ConfigError(
            f"idle_guard() was given no limit and nothing is configured: write idle_guard(180), "
            f"set {IDLE} to a number of seconds (0 = off), or write `idle = 180` below [guard] in "
            "streamguard.toml"
        )
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or number < 0:
        raise ConfigError(
            f"environment variable {IDLE}={value!r}: use a number of seconds, such as 180 (0 = off)"
        )
    return number or None
