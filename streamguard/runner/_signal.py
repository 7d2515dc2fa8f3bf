"""The part of `signal` that is written in C: the module's enumerations cost 3 ms at the start."""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    import signal
else:
    import _signal as signal

__all__ = ["name_of", "names", "signal"]


# Linux has two names for each of these.
_SECOND_NAMES = ("CLD", "IO", "IOT")


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
