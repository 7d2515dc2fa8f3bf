"""A duration as it is written in code, in a file, in the environment, in a flag: one grammar.

    90   1.5m   15m   2h   1d   500ms   1h30m   "5 m"   0x1p3   1e-3d

A number without a unit is seconds. What 0 means depends on what is written, and nowhere on where:

- Of a *limit* (`idle`, `total`, `tools`, `wait_for_limit`, ...) 0 is off, as are `off` and its like
  (`limit`); in code None is, too. Some limits cannot be off, such as the time of a scope or of a
  hold, the lease of a worker, `disconnect_timeout`: there 0 is refused.
- Of a *wait* (`backoff`, `kill_grace`, `every=` of a stamp, ...) 0 is none: at once.

`streamguard timeout` takes what GNU `timeout` takes, and no more (`as_gnu`). Milliseconds without a
unit are in the specs of flows alone (`specs`). What is said of a wrong value in code, and which types
may be written, is in `numbers`. Imports nothing when it is loaded: the command's start pays for it.
"""

from __future__ import annotations

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
SUCH_AS = '"90s", "15m" or "1h30m"'
_ALL_UNITS = {**UNITS, "ms": 0.001}
_OFF = ("off", "no", "false", "none")
_A_DAY = 86400.0
# What a number too small for a float becomes: short, but not off.
_SHORTEST = 1e-9
# Above it a float does not know each second any more.
_EXACT = 2.0**53


def parsed(text: str) -> float:
    """How many seconds `text` says, `inf` for more than a float holds; ValueError if it says none."""
    text = text.strip()
    try:
        if text.endswith("ms"):
            return _seconds(text[:-2].rstrip(), _ALL_UNITS["ms"])
        number, unit = _split(text)
        return _seconds(number.rstrip(), unit)
    except ValueError:
        return _sum(text)


def limit(text: str) -> float | None:
    """As `parsed`, where a limit is written: None for 0 and for `off`."""
    return None if says_off(text) else parsed(text) or None


def as_gnu(text: str) -> float:
    """As `parsed`, but no more than GNU `timeout` takes: one number, and s, m, h or d."""
    return _seconds(*_split(text))


def says_off(text: str) -> bool:
    """Whether `text` is a word for no limit. 0 is none, too, and is a number."""
    return text.strip().lower() in _OFF


def is_meant(text: str) -> bool:
    """Whether `text` is to be a duration, right or wrong, and no name: it begins with a number."""
    return text.strip().lstrip("+-.")[:1].isdigit()


def has_unit(text: str) -> bool:
    """Whether a duration says what it counts in."""
    return _split(text.strip())[1] != 1.0 or text.rstrip().endswith("s")


def doubt(value: float) -> str | None:
    """What to say of seconds, written without a unit, that may be milliseconds; None if they are not."""
    if not _A_DAY < value < float("inf"):
        return None
    return f"{value / 3600:,.0f} hours; if milliseconds are meant, write {value / 1000:g}"


def meant(text: str) -> str | None:
    """How to write what `text` says in another way: `15m` for "15 min"; None if that is not clear."""
    words = text.lower().replace(",", ".").removeprefix("pt").replace(" and ", " ")
    found = ""
    try:
        for number, word in _parts(words):
            unit = next((unit for unit, names in _NAMES.items() if word in names), word)
            found += f"{number}{unit}"
        parsed(found)
    except ValueError:
        return None
    return found if has_unit(found) else None


_NAMES = {
    "d": ("day", "days"),
    "h": ("hr", "hrs", "hour", "hours"),
    "m": ("min", "mins", "minute", "minutes"),
    "s": ("sec", "secs", "second", "seconds"),
    "ms": ("msec", "msecs", "milli", "millis", "millisecond", "milliseconds"),
}


def _sum(text: str) -> float:
    """`1h30m`: several, each with its unit, from the largest to the smallest."""
    total, before = 0.0, float("inf")
    parts = _parts(text)
    for number, name in parts:
        unit = _ALL_UNITS.get(name, before)
        if unit >= before:
            raise ValueError(text)
        total, before = total + _seconds(number, unit), unit
    if not parts:
        raise ValueError(text)
    return total


def _parts(text: str) -> list[tuple[str, str]]:
    """`1h 30m` as ("1", "h"), ("30", "m")."""
    parts: list[tuple[str, str]] = []
    while text := text.lstrip():
        after = text.lstrip("0123456789.")
        number = text[: len(text) - len(after)]
        after = after.lstrip()
        length = next((i for i, each in enumerate(after) if not each.isalpha()), len(after))
        if not number:
            raise ValueError(text)
        parts.append((number, after[:length]))
        text = after[length:]
    return parts


def _seconds(number: str, unit: float) -> float:
    # 0.001 is no float: a division is exact where that can be.
    value = _number(number) / 1000 if unit < 1 else _number(number) * unit
    if value < 0 or value != value:  # noqa: PLR0124 - a NaN
        raise ValueError(number)
    if value == 0 and not _is_zero(number):
        if number.lstrip().startswith("-"):
            raise ValueError(number)
        return _SHORTEST
    return value


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
    """A duration as a person would write it on a command line, to the last digit: `90`, `15m`, `1h30m`."""
    if 0 < value < _EXACT and value % 60 == 0:
        hours, minutes = divmod(int(value) // 60, 60)
        return (f"{hours}h" if hours else "") + (f"{minutes}m" if minutes else "")
    return repr(float(value)).removesuffix(".0")


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
