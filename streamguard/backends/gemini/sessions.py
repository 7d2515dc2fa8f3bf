"""`gemini --output-format stream-json` as a session. The command keeps its sessions by folder."""

from __future__ import annotations

from typing import Final

from streamguard.backends.command_line import CommandLine

_GEMINI: Final = CommandLine("gemini", "--output-format", "stream-json")

session = _GEMINI.session
open_cli = _GEMINI.open
