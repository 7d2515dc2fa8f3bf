"""LangGraph: the chunks of a graph's stream, and a thread as a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamguard._base.lazy import lazy
from streamguard.backends.langgraph.reading import ALWAYS_ENDS_TURNS, read, reader

if TYPE_CHECKING:
    from streamguard.backends.langgraph.sessions import session

__all__ = ["ALWAYS_ENDS_TURNS", "read", "reader", "session"]

__getattr__, __dir__ = lazy(__name__, {"sessions": ("session",)})
