"""One plain message of each backend, as its package makes it and as JSON; no package is needed.

They look as readers see them: a root package, a class's name, fields. What is wrapped in models is
wrapped here; a pydantic model has its declared fields in `__dict__` and the others in a slot.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from streamguard import backends


class _Model:
    __slots__ = ("__dict__", "__pydantic_extra__")

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)
        self.__pydantic_extra__: dict[str, Any] | None = None


class _Extras(_Model):
    """A model that declares nothing, as litellm has them."""

    def __init__(self, **fields: Any) -> None:
        super().__init__()
        self.__pydantic_extra__ = fields


def _made_by(package: str, name: str, base: type = SimpleNamespace) -> Any:
    return type(name, (base,), {"__module__": package})


def _model(package: str, name: str, **fields: Any) -> Any:
    return _made_by(package, name, _Model)(**fields)


TEXT = "And so it goes on."

_EVENT = {
    "type": "response.output_text.delta",
    "sequence_number": 7,
    "item_id": "msg_1",
    "output_index": 0,
    "content_index": 0,
    "delta": TEXT,
    "logprobs": [],
}
_CHOICE = {"index": 0, "delta": {"content": TEXT}, "logprobs": None, "finish_reason": None}
_CHUNK = {
    "id": "chatcmpl-1",
    "object": "chat.completion.chunk",
    "created": 1,
    "model": "m",
    "choices": [_CHOICE],
}
_BLOCK_DELTA = {
    "type": "content_block_delta",
    "index": 0,
    "delta": {"type": "text_delta", "text": TEXT},
}
_CLAUDE = {
    "type": "assistant",
    "message": {"id": "msg_1", "content": [{"type": "text", "text": TEXT}]},
    "session_id": "s",
}
_CODEX = {"type": "item.updated", "item": {"id": "item_1", "type": "todo_list", "items": []}}
_GEMINI = {
    "type": "message",
    "timestamp": "2026-11-18T00:00:00Z",
    "role": "assistant",
    "content": TEXT,
    "delta": True,
}
_OPENCODE = {
    "type": "text",
    "timestamp": 1_763_424_000_000,
    "sessionID": "ses_1",
    "part": {"id": "prt_1", "sessionID": "ses_1", "type": "text", "text": TEXT},
}
_COPILOT = {
    "type": "assistant.message_delta",
    "data": {"messageId": "m", "deltaContent": TEXT},
    "id": "e",
    "timestamp": "2026-11-18T00:00:00Z",
    "parentId": "d",
}
_ACP = {
    "sessionId": "s",
    "update": {
        "sessionUpdate": "agent_message_chunk",
        "content": {"type": "text", "text": TEXT},
    },
}

_TOKEN = _model(
    "langchain_core.messages",
    "AIMessageChunk",
    content=TEXT,
    type="AIMessageChunk",
    tool_calls=[],
    tool_call_chunks=[],
    usage_metadata=None,
)
_CONTENT = {"parts": [{"text": TEXT}], "role": "model"}
_ADK = {"invocation_id": "e-1", "author": "a", "id": "1", "partial": True, "content": _CONTENT}

_QWEN = {
    "type": "assistant",
    "uuid": "u-1",
    "session_id": "s-1",
    "parent_tool_use_id": None,
    "message": {"id": "u-1", "role": "assistant", "content": [{"type": "text", "text": TEXT}]},
}

DICTS: dict[str, Any] = {
    "claude, a line": _CLAUDE,
    "codex, a line": _CODEX,
    "gemini, a line": _GEMINI,
    "opencode, a line": _OPENCODE,
    "copilot, a line": _COPILOT,
    "kimi, a line": {"role": "meta", "type": "turn.notice", "content": TEXT},
    "qwen, a line": _QWEN,
    "acp, an update": _ACP,
    "openai, an event": _EVENT,
    "openai, a chunk": _CHUNK,
    "anthropic, an event": _BLOCK_DELTA,
    "langgraph, a token": ("messages", (_TOKEN, {"langgraph_node": "agent"})),
}


def _chunk_model(package: str, name: str, inner: type[_Model]) -> Any:
    delta = inner(content=TEXT, role=None, tool_calls=None)
    choice = inner(index=0, delta=delta, finish_reason=None)
    return _model(package, name, **{**_CHUNK, "choices": [choice]}, usage=None)


OBJECTS: dict[str, Any] = {
    "claude, a message": _made_by("claude_agent_sdk.types", "AssistantMessage")(
        content=[_made_by("claude_agent_sdk.types", "TextBlock")(text=TEXT)],
        model="m",
        parent_tool_use_id=None,
        error=None,
    ),
    "codex, a notification": _made_by("openai_codex.models", "Notification")(
        method="item/agentMessage/delta",
        payload=_model("openai_codex", "AgentMessageDelta", delta=TEXT),
    ),
    "acp, an update": _model(
        "acp.schema", "AgentMessageChunk", session_update="agent_message_chunk", content=TEXT
    ),
    "openai, an event": _model("openai.types.responses", "ResponseTextDeltaEvent", **_EVENT),
    "openai, a chunk": _chunk_model("openai.types.chat", "ChatCompletionChunk", _Model),
    "openai_agents, an event": _made_by("agents.stream_events", "RawResponsesStreamEvent")(
        data=_Model(**_EVENT), type="raw_response_event"
    ),
    "anthropic, an event": _model(
        "anthropic.types",
        "RawContentBlockDeltaEvent",
        **{**_BLOCK_DELTA, "delta": _Model(type="text_delta", text=TEXT)},
    ),
    "google_genai, a chunk": _model(
        "google.genai.types",
        "GenerateContentResponse",
        candidates=[_Model(content=_Model(parts=[_Model(text=TEXT)]), finish_reason=None)],
        usage_metadata=None,
        prompt_feedback=None,
    ),
    "google_adk, an event": _model(
        "google.adk.events.event",
        "Event",
        **{**_ADK, "content": _Model(parts=[_Model(text=TEXT, function_call=None)], role="model")},
        usage_metadata=None,
        error_code=None,
        turn_complete=None,
    ),
    "pydantic_ai, an event": _made_by("pydantic_ai.messages", "PartDeltaEvent")(
        index=0,
        delta=SimpleNamespace(content_delta=TEXT, part_delta_kind="text"),
        event_kind="part_delta",
    ),
    "litellm, a chunk": _chunk_model("litellm.types.utils", "ModelResponseStream", _Extras),
}


def name_of(what: str) -> str:
    """The backend's name in a name of the tables."""
    return what.partition(",")[0]


def missing() -> set[str]:
    """The backends of which there is no message here."""
    return set(backends.NAMES) - {name_of(what) for what in (*DICTS, *OBJECTS)}
