"""Anthropic: the events of the Messages API."""

from __future__ import annotations

from streamguard.backends.anthropic.reading import ALWAYS_ENDS_TURNS, is_message, read

__all__ = ["ALWAYS_ENDS_TURNS", "is_message", "read"]
