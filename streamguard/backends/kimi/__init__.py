"""Kimi Code's command line: the lines of `kimi -p ... --output-format stream-json`.

They tell a tool only once it has ended, and a session only at its end; so sessions are opened over the
agent client protocol instead (`acp.session(client, "kimi", "acp")`).
"""

from __future__ import annotations

from streamguard.backends.kimi.reading import ALWAYS_ENDS_TURNS, read

__all__ = ["ALWAYS_ENDS_TURNS", "read"]
