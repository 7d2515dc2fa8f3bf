"""What every event is. Log lines hold no payloads: of an error they name the type, and where it was raised (E3)."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from traceback import walk_tb
from typing import TYPE_CHECKING, Final

from streamguard.errors import NotASignalError, StreamGuardError

if TYPE_CHECKING:
    from streamguard.activity import Activity
    from streamguard.errors import Verdict

_OURS: Final = f"{__file__.rpartition('/events/')[0]}/"
_INSTALLED: Final = ("/site-packages/", "/dist-packages/")
_LIBRARY: Final = f"{os.__file__.rpartition('/')[0]}/"


@dataclass(frozen=True, kw_only=True)
class Event:
    """Base of all events: which guarded stream it is about, and the loop's time of it.

    `level`: as `logging` has it. `loudest`: the highest that it can have, where it depends on what
    happened. `names_itself`: its text says what it is about.
    """

    level = logging.DEBUG
    loudest = logging.DEBUG
    names_itself = False

    def __init_subclass__(cls) -> None:
        if isinstance(level := vars(cls).get("level"), int):
            cls.loudest = level

    activity: Activity
    at: float

    def text(self) -> str:
        """The words for a person."""
        return type(self).__name__


@dataclass(frozen=True, kw_only=True)
class ScopeEvent:
    """Base of what happens to time scopes (`limits`).

    `activity`: the stream that was pulled in it last, if any.
    """

    verdict: Verdict
    activity: Activity | None = None


def where_raised(error: BaseException, *, first: int | None = None) -> str:
    """An error's type, and where it was raised: its text may quote a message (E3).

    `first`: also where in that frame, counted from the one that caught it.
    """
    name = type(error).__name__
    if isinstance(error, NotASignalError):
        return f"{name}: {error}"  # our own words
    frames = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    if not frames:
        return name
    asked = [frames[first]] if first is not None and first < len(frames) else []
    theirs = [frame for frame in (*asked, frames[-1]) if not frame[0].startswith(_OURS)]
    if not theirs:
        return name if isinstance(error, StreamGuardError) else f"{name} (in streamguard)"
    shown = dict.fromkeys(f"{_short(path)}:{line}" for path, line in theirs)
    return f"{name} ({', in '.join(shown)})"


def _short(path: str) -> str:
    """A file without where Python and packages are installed: that is nobody's to know, and long."""
    for home in _INSTALLED:
        path = path.rpartition(home)[2]
    return path.removeprefix(_LIBRARY)
