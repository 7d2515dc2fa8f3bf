"""`opencode run --format json` as a session, with the tap."""

from __future__ import annotations

from typing import Final

from streamguard.backends.command_line import CommandLine
from streamguard.backends.opencode.tap_plugin import tapped

_OPENCODE: Final = CommandLine(
    "opencode", "run", "--format", "json", resume="--session", environment=tapped
)

session = _OPENCODE.session
open_run = _OPENCODE.open
