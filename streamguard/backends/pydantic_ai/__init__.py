"""pydantic-ai: the events of a run, and an agent's session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamguard._base.lazy import lazy
from streamguard.backends.pydantic_ai.reading import ALWAYS_ENDS_TURNS, read

if TYPE_CHECKING:
    from streamguard.backends.pydantic_ai.sessions import session

__all__ = ["ALWAYS_ENDS_TURNS", "read", "session"]

__getattr__, __dir__ = lazy(__name__, {"sessions": ("session",)})
