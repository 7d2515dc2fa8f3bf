"""What the environment says: `STREAMGUARD_MODE` and `STREAMGUARD_IDLE`. Files: `configuration`.

Read when first needed. A limit that cannot be used is an error there, with the variable's name. The
kill switch never is: who reaches for it must not break what runs. Imports errors, durations, and
quoting; events when there is something to log.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final, Literal, TypeAlias, get_args

from streamguard._base import durations
from streamguard._base.quoting import quoted
from streamguard._base.variables import IDLE, MODE
from streamguard.errors import ConfigError

Mode: TypeAlias = Literal["enforce", "warn", "off"]
_MODES: Final[tuple[Mode, ...]] = get_args(Mode)  # from strong to weak
_OFF_TOO: Final = ("0", "false", "no")
_ON_TOO: Final = ("", "1", "true", "yes", "on")


_said: Final[set[str]] = set()


def environment_mode(variable: str = MODE) -> Mode:
    """What the kill switch says: `enforce` if it is not set. Any word but those for less is on."""
    word = _mode_word(variable)
    if word in _OFF_TOO:
        return "off"
    for mode in _MODES:
        if word == mode:
            return mode
    return "enforce"


def doubtful_mode(variable: str = MODE) -> str | None:
    """What to say of a kill switch that is on by a word which may have meant something else."""
    word = _mode_word(variable)
    if word in (*_MODES, *_OFF_TOO, *_ON_TOO):
        return None
    from difflib import get_close_matches

    near = get_close_matches(word, (*_MODES, *_OFF_TOO), n=1)
    guess = f" (did you mean {near[0]!r}?)" if near else ""
    return quoted(
        f"environment variable {variable}={os.environ.get(variable)!r} is read as enforce{guess}: the "
        f"words for less are warn, and off (or {', '.join(_OFF_TOO)})"
    )


def mode_in_force(written: Mode | None, tell: Callable[[str], object] | None = None) -> Mode:
    """Of what the code says and what the environment says, the weaker (T11).

    `tell` hears of a doubtful word in the environment; by default the log does, once.
    """
    if (doubt := doubtful_mode()) is not None:
        (tell or log_once)(doubt)
    return weaker(written or "enforce", environment_mode())


def weaker(*modes: Mode) -> Mode:
    """Of several modes, the one that does least."""
    return max(modes, key=_MODES.index)


def environment_idle() -> float | None:
    """The idle limit for `idle_guard()`; None if `STREAMGUARD_IDLE=0`, or `off`, switches it off."""
    value = os.environ.get(IDLE)
    if not value:
        raise ConfigError(
            f"idle_guard() was given no limit and nothing is configured: write idle_guard(180), "
            f"set {IDLE} to a duration such as 180 or 5m (0 = off), or write `idle = 180` below "
            "[guard] in streamguard.toml"
        )
    try:
        number = durations.limit(value)
    except ValueError:
        number = float("inf")
    if number == float("inf"):
        raise ConfigError(
            f"environment variable {IDLE}={value!r}: use a duration such as 180, 90s, 1.5m or 2h "
            "(0 = off)"
        )
    return number


def _mode_word(variable: str) -> str:
    return os.environ.get(variable, "").strip().lower()


def log_once(doubt: str) -> None:
    """Tell the log of something doubtful, if it was not told of it yet."""
    if doubt not in _said:
        _said.add(doubt)
        from streamguard.events.teller import logger

        logger.warning("%s", doubt)
