"""The part of `signal` that is written in C, and what signals are called.

The module's own enumerations would cost 3 ms at the start.
"""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    import signal
else:
    import _signal as signal

__all__ = ["name_of", "names", "signal", "signal_number"]


# Linux has two names for each of these.
_SECOND_NAMES = ("CLD", "IO", "IOT")
_WORD = 0x7FFFFFFF


def names() -> dict[str, int]:
    """The numbers of all signals, by their names without `SIG`."""
    return {
        name[3:]: int(value)
        for name, value in vars(signal).items()
        if name.startswith("SIG") and name[3:].isalnum()
    }


def name_of(number: int) -> str:
    """`TERM` for 15; as GNU has it, `EXIT` for 0; the number where there is no name.

    `process.ending.signal_name` says the same of what it has sent: by `signal`'s enumerations, which this
    module is there to do without.
    """
    if number == 0:
        return "EXIT"
    known = (name for name, value in names().items() if value == number)
    return next((name for name in known if name not in _SECOND_NAMES), str(number))


def signal_number(text: str) -> int:
    """`TERM`, `SIGTERM`, `term`, 15, and 143 (as `$?` says it) are all 15; ValueError for none.

    As GNU has it: `RTMIN+1` and `RTMAX-1` count from there, and a number may be a status that a
    command was ended with, 128 more (ksh: 256 more) than the signal.
    """
    known = {"EXIT": 0, **names()}
    word = text.upper()
    number = -1
    if word.isascii() and word.isdigit():
        status = _whole(word)
        number = status & (0xFF if status >= 0xFF else 0x7F) if status <= _WORD else -1
    elif (word := word.removeprefix("SIG")) in known:
        number = known[word]
    elif word.isascii() and word.isdigit():
        number = _whole(word)
    elif word.startswith(("RTMIN", "RTMAX")) and word[:5] in known:
        number = _counted(known[word[:5]], word[5:].lstrip(" \t\n\v\f\r"))
        if not known["RTMIN"] <= number <= known["RTMAX"]:
            number = -1
    is_real_time = known.get("RTMIN", 1) <= number <= known.get("RTMAX", 0)
    if number not in known.values() and not is_real_time:
        raise ValueError("there is no such signal")
    return number


def _counted(start: int, further: str) -> int:
    digits = further[1:] if further[:1] in ("+", "-") else further
    if not (digits.isascii() and digits.isdigit()):
        return -1
    return start - _whole(digits) if further[0] == "-" else start + _whole(digits)


def _whole(digits: str) -> int:
    """As a number, or one that is too large for anything here."""
    return int(digits.lstrip("0")[:12] or "0")
