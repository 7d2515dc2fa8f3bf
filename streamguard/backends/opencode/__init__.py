"""opencode's command line: the lines of `opencode run --format json`, the tap, and its session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamguard._base.lazy import lazy
from streamguard.backends.opencode.reading import ALWAYS_ENDS_TURNS, read

if TYPE_CHECKING:
    from streamguard.backends.opencode.sessions import open_run, session
    from streamguard.backends.opencode.tap_plugin import tapped

__all__ = ["ALWAYS_ENDS_TURNS", "open_run", "read", "session", "tapped"]

__getattr__, __dir__ = lazy(
    __name__, {"sessions": ("open_run", "session"), "tap_plugin": ("tapped",)}
)
