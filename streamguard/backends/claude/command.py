"""`claude -p --output-format stream-json` as a session, where the SDK is not wanted.

What the SDK's session can do beyond that (interrupt a turn and go on with the same client, hold for
a permission) needs the SDK.
"""

from __future__ import annotations

from typing import Final

from streamguard.backends.command_line import CommandLine

_CLAUDE: Final = CommandLine("claude", "-p", "--output-format", "stream-json", "--verbose")

cli_session = _CLAUDE.session
open_cli = _CLAUDE.open
