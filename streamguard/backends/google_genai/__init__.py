"""Gemini's API: the chunks of google-genai."""

from __future__ import annotations

from streamguard.backends.google_genai.reading import (
    ALWAYS_ENDS_TURNS,
    is_message,
    read,
    read_automatic_functions,
)

__all__ = ["ALWAYS_ENDS_TURNS", "is_message", "read", "read_automatic_functions"]
