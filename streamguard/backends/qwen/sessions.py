"""`qwen --output-format stream-json` as a session. The command keeps its sessions by folder."""

from __future__ import annotations

from typing import Final

from streamguard.backends.command_line import CommandLine

_QWEN: Final = CommandLine("qwen", "--output-format", "stream-json")

session = _QWEN.session
open_cli = _QWEN.open
