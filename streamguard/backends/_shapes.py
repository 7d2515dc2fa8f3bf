"""What gives away a dict or a tuple: whose JSON line, whose event, whose pair (S1).

Such a message has no type of its own, so it is known by keys and values that the look-alikes lack.
One recogniser per kind of line, asked in the order of the table: the first that is sure wins, and
one that is not sure says no, since a wrong guess is worse than Progress. Recognisers are total over
any garbage and cheap (they see every line of a stream). Knows the backends' names, nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

from streamguard.backends._langgraph_shapes import is_dict_of_theirs, is_tuple_of_theirs

Line: TypeAlias = Mapping[object, object]


def _has_its_keys(line: Line, keys: Mapping[str, tuple[str, ...]], kind: str = "type") -> bool:
    """Whether a line of such a kind has all keys that come with it."""
    needed = keys.get(said) if isinstance(said := line.get(kind), str) else None
    return needed is not None and all(name in line for name in needed)


# --- claude -------------------------------------------------------------------------------

# A line of `claude -p --output-format stream-json` has a `session_id` and, by its `type`,
# one key that the look-alikes lack: Gemini's CLI also ends with a `result`, API streams also
# send a `ping` or a `message`. `keep_alive` has no other key, so it never decides.
_CLAUDE_LINES = {
    "system": ("subtype",),
    "assistant": ("message",),
    "user": ("message",),
    "result": ("subtype",),
    "stream_event": ("event",),
    "rate_limit_event": ("rate_limit_info",),
    "conversation_reset": ("new_conversation_id",),
    "tool_progress": ("tool_use_id",),
    "auth_status": ("isAuthenticating",),
}


def _is_claude_line(line: Line) -> bool:
    return _has_its_keys(line, _CLAUDE_LINES) and isinstance(line.get("session_id"), str)


# --- qwen ---------------------------------------------------------------------------------

# Qwen Code writes Claude's lines, and its first names its version. Of the others these have something
# that Claude's lack: a message that is named like its line, what the system has to say in `data`,
# a result without a cost. A stream's first line says whose the others are.


def _is_qwen_line(line: Line) -> bool:
    if not isinstance(line.get("session_id"), str):
        return False
    match line.get("type"):
        case "system":
            return "qwen_code_version" in line or (
                "parent_tool_use_id" in line and isinstance(line.get("data"), dict)
            )
        case "assistant":
            message, id_ = line.get("message"), line.get("uuid")
            is_named = isinstance(message, dict) and isinstance(id_, str)
            return is_named and cast("Line", message).get("id") == id_
        case "stream_event":
            event = line.get("event")
            return isinstance(event, dict) and "goal_state" in event
        case "result":
            return "permission_denials" in line and "total_cost_usd" not in line
        case _:
            return False


# --- codex --------------------------------------------------------------------------------

# `codex exec --json`: the type, and the one key that comes with it. An `error` has nothing of its
# own, so it never decides. The app-server's JSON-RPC has no `jsonrpc` key, but a thread's id.
_CODEX_LINES = {
    "thread.started": ("thread_id",),
    "turn.started": ("type",),
    "turn.completed": ("usage",),
    "turn.failed": ("error",),
    "item.started": ("item",),
    "item.updated": ("item",),
    "item.completed": ("item",),
}
_CODEX_METHODS = ("thread/", "turn/", "item/")


def _is_codex_line(line: Line) -> bool:
    if isinstance(line.get("type"), str):
        return _has_its_keys(line, _CODEX_LINES)
    method, params = line.get("method"), line.get("params")
    return (
        isinstance(method, str)
        and method.startswith(_CODEX_METHODS)
        and isinstance(params, dict)
        and ("threadId" in params or "thread" in params)
    )


# --- gemini -------------------------------------------------------------------------------

# A line of `gemini --output-format stream-json` has a `timestamp` and, by its type, two keys that
# others do not have together.
_GEMINI_LINES = {
    "init": ("session_id", "model"),
    "message": ("role", "content"),
    "tool_use": ("tool_id", "tool_name"),
    "tool_result": ("tool_id", "status"),
    "error": ("severity", "message"),
    "result": ("status", "stats"),
}


def _is_gemini_line(line: Line) -> bool:
    return _has_its_keys(line, _GEMINI_LINES) and isinstance(line.get("timestamp"), str)


# --- opencode -----------------------------------------------------------------------------

# A line of `opencode run --format json` has a `sessionID`, spelled like that, and by its type one key
# more. The tap's lines have a type that nobody else has.
_OPENCODE_LINES = {
    "step_start": ("part",),
    "step_finish": ("part",),
    "text": ("part",),
    "reasoning": ("part",),
    "tool_use": ("part",),
    "error": ("error",),
}


def _is_opencode_line(line: Line) -> bool:
    if not isinstance(line.get("sessionID"), str):
        return False
    kind = line.get("type")
    return isinstance(kind, str) and (
        kind.startswith("tap.") or _has_its_keys(line, _OPENCODE_LINES)
    )


# --- copilot ------------------------------------------------------------------------------

# A line of `copilot --output-format json` has a type of two words and `data`, and nearly all have a
# `parentId`; its `result` has an exit code. `session.start` is also said by our own session.
_COPILOT_KINDS = (
    *("assistant.", "hook.", "model.", "permission.", "session.", "skill.", "subagent."),
    *("system.", "tool.", "user."),
)


def _is_copilot_line(line: Line) -> bool:
    kind = line.get("type")
    if not isinstance(kind, str):
        return False
    if kind == "result":
        return "exitCode" in line and isinstance(line.get("sessionId"), str)
    data = line.get("data")
    if not kind.startswith(_COPILOT_KINDS) or not isinstance(data, dict):
        return False
    return "parentId" in line or (kind == "session.start" and "sessionId" in data)


# --- kimi ---------------------------------------------------------------------------------

# The lines of `kimi -p --output-format stream-json` are chat messages, which may be anybody's; what
# the CLI says itself is not, and it speaks first.


def _is_kimi_line(line: Line) -> bool:
    return line.get("role") == "meta" and isinstance(line.get("type"), str)


# --- acp ----------------------------------------------------------------------------------


def _is_acp_message(line: Line) -> bool:
    method = line.get("method")
    if isinstance(method, str):
        return line.get("jsonrpc") == "2.0" and method in ("session/update", "session/prompt")
    return isinstance(line.get("sessionUpdate"), str) or (
        isinstance(line.get("sessionId"), str) and isinstance(line.get("update"), dict)
    )


# --- openai -------------------------------------------------------------------------------


def _is_openai_event(line: Line) -> bool:
    # The Realtime API has events of the same names, without numbers.
    kind = line.get("type")
    if isinstance(kind, str) and kind.startswith("response."):
        return type(line.get("sequence_number")) is int
    return line.get("object") == "chat.completion.chunk" and isinstance(line.get("choices"), list)


# --- anthropic ----------------------------------------------------------------------------

# `ping`, `error`, `message_stop` and `content_block_stop` have nothing that others lack.
_ANTHROPIC_EVENTS = {
    "message_start": ("message",),
    "content_block_start": ("content_block", "index"),
    "content_block_delta": ("delta", "index"),
    "message_delta": ("delta", "usage"),
}


def _is_anthropic_event(line: Line) -> bool:
    if not _has_its_keys(line, _ANTHROPIC_EVENTS):
        return False
    kind = cast("str", line["type"])
    what = line[_ANTHROPIC_EVENTS[kind][0]]
    if not isinstance(what, dict) or kind != "message_start":
        return isinstance(what, dict)
    message = cast("Line", what)
    return (message.get("type"), message.get("role")) == ("message", "assistant")


# --- google -------------------------------------------------------------------------------

# A line of Gemini's API, `streamGenerateContent?alt=sse`, spelled as JSON or as Python does; and
# an event of ADK's server, whose `author` and invocation come together nowhere else.


def _is_genai_chunk(line: Line) -> bool:
    has_answer = isinstance(line.get("candidates"), list) or "promptFeedback" in line
    return has_answer and any(name in line for name in _GENAI_KEYS)


_GENAI_KEYS = (
    *("usageMetadata", "modelVersion", "responseId"),
    *("usage_metadata", "model_version", "response_id"),
)


def _is_adk_event(line: Line) -> bool:
    invocation = line.get("invocationId", line.get("invocation_id"))
    return isinstance(invocation, str) and isinstance(line.get("author"), str) and "id" in line


# --- pydantic-ai --------------------------------------------------------------------------

_PYDANTIC_AI_EVENTS = {
    "part_start": ("part",),
    "part_delta": ("delta",),
    "part_end": ("part",),
    "final_result": ("tool_name",),
    "function_tool_call": ("part",),
    "function_tool_result": ("part",),
    "output_tool_call": ("part",),
    "output_tool_result": ("part",),
    "deferred_tool_requests": ("requests",),
    "deferred_tool_results": ("results",),
    "agent_run_result": ("result",),
}


def _is_pydantic_ai_event(line: Line) -> bool:
    return _has_its_keys(line, _PYDANTIC_AI_EVENTS, "event_kind")


# --- the table ----------------------------------------------------------------------------

_DICTS: tuple[tuple[Callable[[Line], bool], str], ...] = (
    (_is_qwen_line, "qwen"),  # before the one that it imitates
    (_is_claude_line, "claude"),
    (_is_codex_line, "codex"),
    (_is_gemini_line, "gemini"),
    (_is_opencode_line, "opencode"),
    (_is_copilot_line, "copilot"),
    (_is_kimi_line, "kimi"),
    (_is_acp_message, "acp"),
    (_is_openai_event, "openai"),
    (_is_anthropic_event, "anthropic"),
    (_is_genai_chunk, "google_genai"),
    (_is_adk_event, "google_adk"),
    (_is_pydantic_ai_event, "pydantic_ai"),
    (is_dict_of_theirs, "langgraph"),
)
NAMES_BY_SHAPE = frozenset(name for _, name in _DICTS)


def name_by_shape(message: object) -> str | None:
    """The name of the backend that wrote `message`; None if it is no dict or tuple of theirs."""
    if isinstance(message, dict):
        line = cast("Line", message)
        for is_its, name in _DICTS:
            if is_its(line):
                return name
    elif isinstance(message, tuple):
        chunk = cast("tuple[Any, ...]", cast("object", message))
        return "langgraph" if is_tuple_of_theirs(chunk) else None
    return None
