"""Claude: claude-agent-sdk, and the lines of `claude -p --output-format stream-json`.

    reading     what messages say, pure; objects and lines alike
    outcome     how a turn ended, and of which class its errors are
    command     `cli_session()`: the command line without the SDK
    client      what a client of the SDK can be ended with, and which SDKs will do
    taps        `tap()`: what the SDK hides of the CLI's lines, for the guard
    sessions    `session()`: connect, interrupt, disconnect, resume

The SDK is imported by what makes clients and transports of it, and by nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamguard._base.lazy import lazy
from streamguard.backends.claude.reading import ALWAYS_ENDS_TURNS, read

if TYPE_CHECKING:
    from streamguard.backends.claude.client import of_client
    from streamguard.backends.claude.command import cli_session, open_cli
    from streamguard.backends.claude.sessions import session
    from streamguard.backends.claude.taps import tap

__all__ = ["ALWAYS_ENDS_TURNS", "cli_session", "of_client", "open_cli", "read", "session", "tap"]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "client": ("of_client",),
        "command": ("cli_session", "open_cli"),
        "sessions": ("session",),
        "taps": ("tap",),
    },
)
