"""What may be written in a configuration: for each key a converter, with a clear error for the rest.

A converter takes a value as TOML has it and gives the knob's; it raises ValueError with what to write
instead, to which the caller adds file, line and key. Knows the names of knobs and how durations are written,
nothing of files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias, cast, get_args

from streamguard._base import durations
from streamguard._base.numbers import Converted, is_off
from streamguard._guard.knobs import ENDABLE
from streamguard._guard.modes import Mode
from streamguard.presets import named

Converter: TypeAlias = Callable[[Any], Any]

_PACES: Final = ("tokens", "messages", "command")  # presets that are an idle limit, too
_SUCH_AS: Final = f"write seconds, or a text with a unit, such as {durations.SUCH_AS}"


def duration(value: Any) -> float:
    """Seconds. A number so large that it must be milliseconds needs a unit."""
    number = _seconds(value)
    if not 0 < number < float("inf"):
        raise ValueError(f"{_SUCH_AS}, and more than 0")
    return number


def _seconds(value: Any) -> float:
    """As `duration`, with 0."""
    number: float
    has_unit = False
    if isinstance(value, str):
        try:
            number = durations.parsed(value)
        except ValueError:
            better = durations.meant(value)
            raise ValueError(f'write "{better}"' if better else _SUCH_AS) from None
        has_unit = durations.has_unit(value)
    elif not _is_number(value):
        raise ValueError(_SUCH_AS)
    else:
        number = _as_float(value)
    if not has_unit and (doubtful := durations.doubt(number)) is not None:
        raise ValueError(f'that is {doubtful}, else say it with a unit: "{number / 3600:g}h"')
    return Converted(number)


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number may be of any size
        return float("inf") if value > 0 else -float("inf")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def limit_is_off(value: Any) -> bool:
    """Whether no limit is meant: 0, "off", or false, since a file has no None."""
    return value is False or (value is not None and is_off(value))


def limit(value: Any) -> float | None:
    """As `duration`, with 0, false and "off" for no limit."""
    if limit_is_off(value):
        return None
    try:
        return duration(value)
    except ValueError as error:
        raise ValueError(f'{error} (0, false or "off" for no limit)') from None


def grace(value: Any) -> float:
    """As `duration`; 0 is at once."""
    number = _seconds(value)
    return number if number == 0 else duration(value)


def idle(value: Any) -> float | str | None:
    """A limit, or how finely a backend talks."""
    if value in _PACES:
        return str(value)
    try:
        return limit(value)
    except ValueError as error:
        raise ValueError(f"{error}, or one of {', '.join(_PACES)}") from None


def preset(value: Any) -> str:
    """The name of a preset."""
    named(value)
    return str(value)


def tools(value: Any) -> float | dict[str, float | None] | None:
    """A limit for all tools, or a table of limits by name."""
    if not isinstance(value, Mapping):
        return limit(value)
    by_name: dict[str, float | None] = {}
    for name, allowance in cast("Mapping[str, Any]", value).items():
        try:
            by_name[name] = limit(allowance)
        except ValueError as error:
            raise ValueError(f"{name} = {allowance!r}: {error}") from None
    return by_name


def delays(value: Any) -> tuple[float, ...]:
    """A list of durations, or one; 0 is at once."""
    written = cast("list[object]", value) if isinstance(value, list) else [value]
    if not written:
        raise ValueError("write a delay, or a list of delays, such as [0, 5, 15]")
    return tuple(map(grace, written))


def count(value: Any) -> int:
    """A whole number from 0."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("write a whole number, from 0")
    return value


def count_or_never(value: Any) -> int | None:
    """A whole number, or false for never."""
    return None if value is False else count(value)


def share(value: Any) -> float:
    """A part of something, from 0 up."""
    if not _is_number(value) or not 0 <= (number := _as_float(value)) < float("inf"):
        raise ValueError("write a number from 0, such as 0.5")
    return number


def text(value: Any) -> str:
    """A text with something in it."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError("write a text")
    return value


def file_name(value: Any) -> str:
    """Where a file may be."""
    if "\0" in text(value):
        raise ValueError("no file can have a NUL in its name; write a path")
    return text(value)


def switch(value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise ValueError("write true or false")  # noqa: TRY004 - the caller adds the key
    return value


def one_of(*words: str) -> Converter:
    """One of `words`."""

    def convert(value: Any) -> str:
        if value not in words:
            raise ValueError(f"write one of {', '.join(map(repr, words))}")
        return str(value)

    return convert


def repeats(value: Any) -> int | None:
    """How often, from 2; 0, false and "off" for never."""
    if limit_is_off(value):
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 2:
        raise ValueError('write a whole number, from 2 (0, false or "off" for never)')
    return value


def ceiling(value: Any) -> float | None:
    """How much; 0, false and "off" for no ceiling."""
    if limit_is_off(value):
        return None
    if not _is_number(value) or not 0 < (number := _as_float(value)) < float("inf"):
        raise ValueError('write a number, more than 0 (0, false or "off" for no ceiling)')
    return number


def endable(value: Any) -> frozenset[str]:
    """A list of what ends the stream, or one of it."""
    wanted = cast("list[object]", value) if isinstance(value, list) else [value]
    for each in wanted:
        if each not in ENDABLE:
            raise ValueError(f"write some of {', '.join(ENDABLE)}")
    return frozenset(map(str, wanted))


Section: TypeAlias = Mapping[str, Converter]

GUARD: Final[Section] = MappingProxyType(
    {
        "idle": idle,
        "first": limit,
        "liveness": limit,
        "tools": tools,
        "turn": limit,
        "exit_grace": limit,
        "after_sleep": limit,
        "total": limit,
        "quiet": tools,
        "repeats": repeats,
        "tokens": ceiling,
        "cost": ceiling,
        "calls": ceiling,
        "end_on": endable,
        "disconnect_timeout": duration,
        "kill_grace": grace,
        "mode": one_of(*get_args(Mode)),
        "preset": preset,
    }
)
BACKOFF: Final[Section] = MappingProxyType(
    {"retries": count, "delays": delays, "jitter": share, "jitter_cap": duration}
)
RETRY_CLASSES: Final = (
    "idle",
    "network",
    "server",
    "rate_limit",
    "unknown",
    "auth",
    "permanent",
    "validation",
)
RETRY: Final[Section] = MappingProxyType(
    {
        "cap": duration,
        "max_in_a_row": count,
        "max_reconnects": count,
        "productive_span": duration,
        "instant": duration,
        "min_attempt": duration,
        "wait_for_limit": limit,
    }
)
RESUME: Final[Section] = MappingProxyType(
    {"prompt": text, "resume_after_unconfirmed_teardown": switch, "fresh_if_unknown": switch}
)
BREAKER: Final[Section] = MappingProxyType(
    {
        "open_after": count,
        "pause": duration,
        "escalate_after": count_or_never,
        "reset_after": count,
        "probes": count,
        "probe_lease": duration,
        "pause_growth": share,
        "longest_pause": duration,
        "on_open": one_of("raise", "wait"),
    }
)
# The command's own; what it shares with a guard is taken from there if it is not written here.
RUN: Final[Section] = MappingProxyType(
    {
        **{
            name: GUARD[name]
            for name in ("first", "liveness", "turn", "exit_grace", "total", "after_sleep")
        },
        **{name: GUARD[name] for name in ("repeats", "tokens", "cost", "calls", "end_on")},
        "quiet": limit,
        "preset": preset,
        "idle": limit,
        "first_json": limit,
        "tools": limit,
        "kill_after": limit,
        "signal": text,
        "preserve_status": switch,
        "stdin": one_of("inherit", "null"),
        "lock": file_name,
        "pty": switch,
        "reap": switch,
        "retries": count,
        "backoff": delays,
        "fresh_if_unknown": switch,
        "wait_for_limit": limit,
        "transcript": file_name,
        "record": file_name,
        "status_file": file_name,
        "notify_systemd": switch,
        "heartbeat": file_name,
        "github": switch,
        "errors": one_of("text", "json"),
        "verbose": switch,
    }
)
FLOW: Final = ("timeouts", "hard_limits", "steps")
