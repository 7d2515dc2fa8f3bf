"""A coding agent's command line that hangs: what `streamguard demo` runs, as a process of its own.

It speaks stream-json. At first it runs a slow tool, starts a server in a session of its own, and
falls silent, deaf to TERM. Resumed with `--resume SESSION`, it finishes. Standard library only.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

SESSION = "demo-5e55"
SLOW = 3.0  # seconds that its tool takes: longer than the demo's silence may last


def main() -> None:
    """Play one attempt."""
    sys.stdin.read()  # the prompt
    resumed = "--resume" in sys.argv
    _say({"type": "system", "subtype": "init"})
    if resumed:
        _go_on()
        return
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _text("I run the tests first. They take a while.")
    _tool("toolu_1", "Bash", {"command": "pytest"})
    time.sleep(SLOW)
    _result_of("toolu_1", "1 failed: test_login")
    server = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True
    )
    _text(f"Now I try it against a server, process {server.pid}.")
    time.sleep(3600)


def _go_on() -> None:
    time.sleep(0.3)
    _text("Back again: I know what I had found. The login test needs a new fixture.")
    _tool("toolu_2", "Edit", {"file_path": "tests/conftest.py"})
    time.sleep(0.5)
    _result_of("toolu_2", "done")
    _text("All tests pass.")
    _say({"type": "result", "subtype": "success", "is_error": False, "num_turns": 2, "usage": {}})


def _text(text: str) -> None:
    _assistant({"type": "text", "text": text})


def _tool(id_: str, name: str, given: Mapping[str, str]) -> None:
    _assistant({"type": "tool_use", "id": id_, "name": name, "input": given})


def _result_of(id_: str, text: str) -> None:
    block = {"type": "tool_result", "tool_use_id": id_, "content": text}
    _say({"type": "user", "message": {"role": "user", "content": [block]}})


def _assistant(block: Mapping[str, Any]) -> None:
    _say({"type": "assistant", "message": {"role": "assistant", "content": [block]}})


def _say(line: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps({**line, "session_id": SESSION}) + "\n")
    sys.stdout.flush()
    time.sleep(0.2)


if __name__ == "__main__":
    main()
