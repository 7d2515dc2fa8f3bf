"""ACP, the agent client protocol: an agent's updates, its pushes as a stream, its session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamguard._base.lazy import lazy
from streamguard.backends.acp.reading import ALWAYS_ENDS_TURNS, permission_id, read

if TYPE_CHECKING:
    from streamguard.backends.acp.bridge import Bridge, PermissionAnswered, PermissionAsked, Turn
    from streamguard.backends.acp.client import of_client
    from streamguard.backends.acp.sessions import open_agent, session

__all__ = [
    "ALWAYS_ENDS_TURNS",
    "Bridge",
    "PermissionAnswered",
    "PermissionAsked",
    "Turn",
    "of_client",
    "open_agent",
    "permission_id",
    "read",
    "session",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "bridge": ("Bridge", "PermissionAnswered", "PermissionAsked", "Turn"),
        "client": ("of_client",),
        "sessions": ("open_agent", "session"),
    },
)
