"""Numbers as users write them: what is wrong gives a ConfigError that names the parameter.

`seconds` for limits, which are positive, and of which None may be off; `check_count` and
`check_number` for what may be 0.
"""

from __future__ import annotations

import math
import sys
from datetime import timedelta
from typing import TypeAlias, cast

from streamguard.errors import ConfigError

Seconds: TypeAlias = float | timedelta


class Default(float):
    """A number that was not written: it gives way to any written one."""

    __slots__ = ()


def seconds(value: Seconds, name: str, *, none: str = "") -> float:
    """`value` in seconds; a ConfigError that names the knob unless it is a positive number.

    `none` is what None means, where it may be written.
    """
    otherwise = f" (None = {none})" if none else ""
    number = value.total_seconds() if isinstance(value, timedelta) else value
    # bool is an int, and idle=True is a mistake.
    if isinstance(number, bool) or not isinstance(cast("object", number), int | float):
        raise ConfigError(
            f"{name}={value!r}: use seconds or a timedelta, such as {name}=180{otherwise}"
        )
    if not 0 < number <= sys.float_info.max:  # NaN is neither; an int may be beyond
        raise ConfigError(f"{name}={value!r}: use a positive number of seconds{otherwise}")
    return number


def optional_seconds(value: Seconds | None, name: str) -> float | None:
    """As `seconds`, with None for off."""
    return None if value is None else seconds(value, name, none="off")


def seconds_or_default(value: Seconds | None, name: str) -> float | None:
    """As `seconds`, with None for what was not written."""
    return None if value is None else seconds(value, name, none="the default")


def check_count(name: str, value: object, *, least: int = 0) -> None:
    """A ConfigError unless `value` is a whole number from `least` on."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{name}={value!r}: use a whole number, {least} or more")


def check_number(
    name: str, value: object, *, positive: bool = False, infinite: bool = False
) -> None:
    """A ConfigError unless `value` is a number: 0 or more, `positive` ones only, also `inf`."""
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    is_in_range = number > 0 if positive else number >= 0
    if not is_in_range or (number == math.inf and not infinite):
        least = "more than 0" if positive else "0 or more"
        raise ConfigError(f"{name}={value!r}: use a number, {least}")
