"""A duration as it is written: on the command line, in the environment, in a file.

`parsed` takes what GNU `timeout` takes: `90`, `1.5m`, `2h`, `0x1p3`, `1e-3d`; 0 is off. `parsed_loosely`
takes the same for variables and files, where people also write blanks, and milliseconds (`250 ms`).
There a limit may be switched off by a word, too (`says_off`).
Imports nothing when it is loaded: the command's start pays for it.
"""

from __future__ import annotations

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_OFF = ("off", "no", "false", "none")
# What a number too small for a float becomes: short, but not off.
_SHORTEST = 1e-9


def parsed(text: str) -> float:
    """How many seconds `text` says, `inf` for more than a float holds; ValueError if it says none."""
    return _seconds(*_split(text))


def _seconds(number: str, unit: float) -> float:
    value = _number(number) * unit
    if value < 0 or value != value:  # noqa: PLR0124 - a NaN
        raise ValueError(number)
    if value == 0 and not _is_zero(number):
        if number.lstrip().startswith("-"):
            raise ValueError(number)
        return _SHORTEST
    return value


def parsed_loosely(text: str) -> float:
    """As `parsed`, with blanks around the number, and with `ms` for milliseconds."""
    text = text.strip()
    if text.endswith("ms"):
        return _seconds(text[:-2].rstrip(), 0.001)
    return parsed(f"{text[:-1].rstrip()}{text[-1]}" if is_with_unit(text) else text)


def says_off(text: str) -> bool:
    """Whether `text` is a word for no limit. 0 is none, too, and is a number."""
    return text.strip().lower() in _OFF


def is_with_unit(text: str) -> bool:
    """Whether a duration says what it counts in."""
    return _split(text.strip())[1] != 1.0 or text.rstrip().endswith("s")


def _split(text: str) -> tuple[str, float]:
    """The number and what it is to be multiplied by."""
    last = text[-1:]
    # In a hexadecimal number `d` is a digit, unless an exponent came before it.
    if last not in UNITS or (last == "d" and _is_hexadecimal(text) and "p" not in text.lower()):
        return text, 1.0
    return text[:-1], UNITS[last]


def _number(text: str) -> float:
    # Python takes more for a number than C does.
    if not text.isascii() or "_" in text or not text or text[-1].isspace():
        raise ValueError(text)
    if _is_hexadecimal(text):
        try:
            return float.fromhex(text)
        except OverflowError:
            return float("inf")
    return float(text)


def _is_hexadecimal(text: str) -> bool:
    return text.lstrip().lstrip("+-").lower().startswith("0x")


def _is_zero(number: str) -> bool:
    """Whether its digits say so, whatever a float makes of them."""
    digits = number.lower().lstrip().lstrip("+-")
    digits = digits[2:].partition("p")[0] if digits.startswith("0x") else digits.partition("e")[0]
    return set(digits) <= {"0", "."}


def said_twice(first: float | None, idle: float | None) -> str | None:
    """What to say of a `first` that changes nothing; None if it may."""
    if first is None or first != idle:
        return None
    return (
        f"first={first:g} changes nothing: idle={idle:g} is as long. Leave it out, or give a first "
        "message longer"
    )


def typed(value: float) -> str:
    """A duration as a person would write it on a command line: `90`, `15m`, `2h`."""
    for unit in ("h", "m"):
        if value and value % UNITS[unit] == 0:
            return f"{value / UNITS[unit]:g}{unit}"
    return f"{value:g}"


def in_words(value: float) -> str:
    """A duration as a person writes it: `7,200 s`, `0.5 s`, `12.3 ms`, `0.52 ms`."""
    if value >= 10:
        return f"{value:,.1f}".removesuffix(".0") + " s"
    if value >= 0.1 or not value:
        return f"{value:.3g} s"
    milliseconds = value * 1000
    return f"{milliseconds:.3g} ms" if milliseconds >= 1 else f"{milliseconds:.2g} ms"


def in_hours(value: float) -> str:
    """A long duration as a person says it: `2 h 10 min`, `45 min`; below a minute as `in_words`."""
    minutes = round(value / 60)
    if value < 60:
        return in_words(value)
    hours, minutes = divmod(minutes, 60)
    parts = (f"{hours:,} h" if hours else "", f"{minutes} min" if minutes else "")
    return " ".join(filter(None, parts))


def on_the_clock(epoch: float, now: float) -> str:
    """An instant on this machine's clock, as a person says it `now`: `14:00`, `2026-03-07 14:00`."""
    from time import localtime, strftime

    try:
        then, today = localtime(epoch), localtime(now)
    except (OverflowError, ValueError, OSError):  # no clock goes so far
        return f"{epoch:g}"
    is_today = (then.tm_year, then.tm_yday) == (today.tm_year, today.tm_yday)
    return strftime("%H:%M" if is_today else "%Y-%m-%d %H:%M", then)
