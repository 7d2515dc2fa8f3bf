"""Numbers as users write them in code: what is wrong gives a ConfigError that names the parameter.

How durations are written, and what 0 means where, is in `durations`. Here is what code may write in
their place (a number, a timedelta), and one function for each kind: `limit` for one that may be off,
`limit_or_default`, `seconds` for one that may not, and `wait`. `check_count` and `check_number` are for
what is no time.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from datetime import timedelta
from typing import TypeAlias, cast

from streamguard._base import durations
from streamguard._base.warning import warn
from streamguard.errors import ConfigError

Seconds: TypeAlias = float | timedelta | str


class Default(float):
    """A number that was not written: it gives way to any written one."""

    __slots__ = ()


class Converted(float):
    """Seconds that were written with a unit, or looked at already: nobody doubts them again."""

    __slots__ = ()


def limit(value: Seconds | None, name: str) -> float | None:
    """A limit that may be off: seconds, or None for None, 0 and "off"."""
    return None if is_off(value) else seconds(value, name, none="no limit")


def limit_or_default(value: Seconds | None, name: str) -> float | None:
    """A limit that cannot be off: seconds, or None for what was not written."""
    return None if value is None else seconds(value, name, none="the default")


def seconds(value: Seconds | None, name: str, *, none: str = "") -> float:
    """`value` in seconds; a ConfigError that names the knob unless it is more than 0.

    `none` is what None means, where it may be written.
    """
    if value is not None and is_off(value):
        raise ConfigError(
            f"{name}={value!r}: it cannot be off; use a positive number of seconds{_otherwise(none)}"
        )
    number = _number(value, name, none)
    if not 0 < number <= sys.float_info.max:  # NaN is neither; an int may be beyond
        raise ConfigError(f"{name}={value!r}: use a positive number of seconds{_otherwise(none)}")
    if type(value) in (int, float) and (doubtful := durations.doubt(number)) is not None:
        warn(
            f"{name}={value!r} is {doubtful}; if not, say so with a unit: "
            f'{name}="{durations.typed(number)}"'
        )
    return number


def wait(value: Seconds, name: str, *, infinite: bool = False) -> float:
    """How long to wait, in seconds; 0 is at once. A ConfigError for what is no such time."""
    number = _number(value, name, "")
    if not 0 <= number <= (math.inf if infinite else sys.float_info.max):
        raise ConfigError(f"{name}={value!r}: use a number of seconds, 0 or more (0 = at once)")
    return number


def waits(value: Seconds | Iterable[Seconds], name: str) -> tuple[float, ...]:
    """As `wait`, for several, or for one."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        return (wait(value, name),)
    return tuple(wait(each, name) for each in value)


def is_off(value: object) -> bool:
    """Whether a limit is off: None, 0 in any unit, "off"."""
    if isinstance(value, str):
        try:
            return durations.limit(value) is None
        except ValueError:
            return False
    if isinstance(value, timedelta):
        return not value
    return value is None or (_is_number(value) and value == 0)


def _number(value: Seconds | None, name: str, none: str) -> float:
    """`value` in seconds, however it is written: negative, infinite and NaN are the caller's to judge."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, str):
        return _parsed(value, name, none)
    # bool is an int, and idle=True is a mistake.
    if not _is_number(value):
        raise ConfigError(
            f"{name}={value!r}: use seconds, a timedelta, or a text such as {durations.SUCH_AS}"
            f"{_otherwise(none)}"
        )
    return cast("float", value)


def _parsed(text: str, name: str, none: str) -> float:
    try:
        return durations.parsed(text)
    except ValueError:
        if (better := durations.meant(text)) is not None:
            raise ConfigError(f'{name}={text!r}: write "{better}"') from None
        raise ConfigError(
            f"{name}={text!r}: use seconds, a timedelta, or a text such as {durations.SUCH_AS}"
            f"{_otherwise(none)}"
        ) from None


def _otherwise(none: str) -> str:
    off = "None, 0 or 'off'" if none == "no limit" else "None"
    return f" ({off} = {none})" if none else ""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


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
