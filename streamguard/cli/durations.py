"""A duration as GNU `timeout` takes it: `90`, `1.5m`, `2h`, `0x1p3`, `1e-3d`; 0 is off.

Imports nothing: the command's start pays for it.
"""

from __future__ import annotations

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
# What a number too small for a float becomes: short, but not off.
_SHORTEST = 1e-9


def seconds(text: str) -> float:
    """How many seconds `text` says, `inf` for more than a float holds; ValueError if it says none."""
    number, unit = _split(text)
    value = _number(number) * unit
    if value < 0 or value != value:  # noqa: PLR0124 - a NaN
        raise ValueError(text)
    if value == 0 and not _is_zero(number):
        if number.lstrip().startswith("-"):
            raise ValueError(text)
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


def written(value: float) -> str:
    """A duration as a person would write it on a command line: `90`, `15m`, `2h`."""
    for unit in ("h", "m"):
        if value and value % UNITS[unit] == 0:
            return f"{value / UNITS[unit]:g}{unit}"
    return f"{value:g}"
