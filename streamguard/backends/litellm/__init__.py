"""litellm: chunks and events of its completions and responses."""

from __future__ import annotations

from streamguard.backends.litellm.reading import ALWAYS_ENDS_TURNS, adapted, is_message, read

__all__ = ["ALWAYS_ENDS_TURNS", "adapted", "is_message", "read"]
