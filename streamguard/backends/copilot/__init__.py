"""GitHub Copilot's command line: the lines of `copilot --output-format json`, and its session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamguard._base.lazy import lazy
from streamguard.backends.copilot.reading import ALWAYS_ENDS_TURNS, read

if TYPE_CHECKING:
    from streamguard.backends.copilot.sessions import open_cli, session

__all__ = ["ALWAYS_ENDS_TURNS", "open_cli", "read", "session"]

__getattr__, __dir__ = lazy(__name__, {"sessions": ("open_cli", "session")})
