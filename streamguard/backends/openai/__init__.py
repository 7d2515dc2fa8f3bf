"""OpenAI: the streams of the SDK, and responses that outlive their connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamguard._base.lazy import lazy
from streamguard.backends.openai.reading import ALWAYS_ENDS_TURNS, is_message, read

if TYPE_CHECKING:
    from streamguard.backends.openai.sessions import session

__all__ = ["ALWAYS_ENDS_TURNS", "is_message", "read", "session"]

__getattr__, __dir__ = lazy(__name__, {"sessions": ("session",)})
