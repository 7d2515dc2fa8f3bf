"""openai-agents: the events of a streamed run."""

from __future__ import annotations

from streamguard.backends.openai_agents.reading import ALWAYS_ENDS_TURNS, adapted, is_message, read

__all__ = ["ALWAYS_ENDS_TURNS", "adapted", "is_message", "read"]
