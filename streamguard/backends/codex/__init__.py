"""Codex: the lines of `codex exec --json`, the app-server's notifications, sessions of both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamguard._base.lazy import lazy
from streamguard.backends.codex.reading import ALWAYS_ENDS_TURNS, read

if TYPE_CHECKING:
    from streamguard.backends.codex.client import of_client
    from streamguard.backends.codex.sessions import client_session, open_client, open_exec, session

__all__ = [
    "ALWAYS_ENDS_TURNS",
    "client_session",
    "of_client",
    "open_client",
    "open_exec",
    "read",
    "session",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "client": ("of_client",),
        "sessions": ("client_session", "open_client", "open_exec", "session"),
    },
)
