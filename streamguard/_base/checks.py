"""Counts and times as users write them: a ConfigError that names the parameter, or nothing.

For parameters of which 0 may be a value. The limits of a stream, where None is off, are the
business of `knobs`. Imports errors alone.
"""

from __future__ import annotations

import math

from streamguard.errors import ConfigError


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
