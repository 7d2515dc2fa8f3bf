"""`copilot --output-format json` as a session. Each has an id from its start, which this gives it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamguard.backends.command_line import CommandLine

if TYPE_CHECKING:
    from streamguard._lines.output import Message


def _begins(token: str) -> Message:
    """The line with which Copilot's own record of a session begins; its output leaves it out."""
    return {"type": "session.start", "data": {"sessionId": token}}


_COPILOT: Final = CommandLine(
    "copilot", "--output-format", "json", resume="--session-id", begins=_begins
)

session = _COPILOT.session
open_cli = _COPILOT.open
