"""Bytes to begin with, of each target: whole things, as they are in life."""

from __future__ import annotations

import json
from typing import Any, Final

from streamguard import ResumePoint


def _line(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


_MESSAGES: Final = (
    _line(type="system", subtype="init", session_id="s", tools=["Bash"]),
    _line(
        type="assistant",
        session_id="s",
        parent_tool_use_id=None,
        message={
            "id": "m",
            "content": [
                {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "ls"}}
            ],
            "usage": {"input_tokens": 3, "output_tokens": 4},
        },
    ),
    _line(type="user", message={"content": [{"type": "tool_result", "tool_use_id": "t"}]}),
    _line(type="result", subtype="success", is_error=False, session_id="s", total_cost_usd=0.1),
    _line(type="thread.started", thread_id="t"),
    _line(type="item.started", item={"id": "i", "type": "command_execution", "command": "ls"}),
    _line(type="item.completed", item={"id": "i", "type": "command_execution", "exit_code": 0}),
    _line(type="turn.completed", usage={"input_tokens": 1, "output_tokens": 2}),
    _line(type="turn.failed", error={"message": "429 Too Many Requests"}),
    _line(type="tool_use", part={"callID": "c", "tool": "bash", "state": {"status": "running"}}),
    _line(
        jsonrpc="2.0", method="session/update", params={"update": {"sessionUpdate": "tool_call"}}
    ),
    _line(type="response.output_item.added", item={"type": "function_call", "id": "f"}),
    _line(type="error", error={"type": "overloaded_error", "message": "Overloaded"}),
    _line(role="assistant", content="text", tool_calls=[{"id": "c", "function": {"name": "f"}}]),
)

SEEDS: Final[dict[str, tuple[bytes, ...]]] = {
    "splitter": (b"\x03a\nb\r\nc", b"\x01" + b"x" * 70 + b"\ny\n", b"\x08\n\n\r\n"),
    "json_line": (*_MESSAGES[:3], b'  {"a": "caf\xe9"}', b"[1]", b'{"a": NaN}'),
    "readers": _MESSAGES,
    "pushback": (
        b"\n30",
        b"retry-after-ms\n1500",
        b"\nFri, 20 Nov 2026 00:01:00 GMT",
        b"x-ratelimit-reset-requests\n1m30s",
    ),
    "configuration": (
        b'[guard]\nidle = "3m"\ntools = { Bash = "1h" }\n[retry]\nidle = { retries = 2 }\n',
        b'[run]\nidle = 900\n[guards.coder]\nidle = "90s"\n[breaker]\nfailures = 3\n',
        b'[flow]\n[timeouts]\nstep = 600000\n[[steps]]\nname = "build"\n',
    ),
    "duration": (b"90", b"1h30m", b"500ms", b"0x1p3", b"inf", b"1e-3d"),
    "point": (json.dumps(ResumePoint(token="t", prompt="p").as_json()).encode(),),
    "timeline": (
        b"\n".join(
            (
                _line(kind="writer", writer="w", wall=1.8e9, at=5.0, run_id="r", pid=7),
                _line(kind="counts", writer="w", counts=[["s", "message", "Text", 1, 3, 5, 6, 1]]),
                _line(
                    kind="span", writer="w", stream="s", of="tool", id=1, name="b", from_at=5, at=6
                ),
                _line(
                    kind="mark", writer="w", stream="s", of="verdict", at=6, level=2, text="idle"
                ),
            )
        ),
    ),
    "receipt": (
        _line(
            status="timeout",
            timestamp="2026-11-20T00:00:00Z",
            timeout_event={"limit": "idle", "timeout_ms": 3000},
            last_known_state={"phase": "build", "uncommitted_changes": []},
            context_for_resume={"token": "t", "attempt": 1, "tools_run": 2, "backend_ended": True},
        ),
    ),
    "arguments": (
        b"--idle\n15m\n--\nclaude\n-p\nx",
        b"--total=1h\n--retries\n2\n--read\ncodex\n--\ntrue",
        b"--help",
        b"-k\n5s\n-v\ntrue",
    ),
}
