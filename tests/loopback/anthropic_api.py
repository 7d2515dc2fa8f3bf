"""The Messages API of Anthropic, as far as clients and the Claude CLI use it."""

from __future__ import annotations

import json

from tests.loopback.script import Text
from tests.loopback.sse import event

PING = event({"type": "ping"}, name="ping")
_USAGE = {"input_tokens": 10, "output_tokens": 1}
_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def kind_of(method, path):
    """What a request asks for: "model", "count", or None if nothing is there."""
    if method != "POST":
        return None
    return {"/v1/messages": "model", "/v1/messages/count_tokens": "count"}.get(path)


def wants_stream(request):
    return request.body.get("stream") is True


def count(request):
    return {"input_tokens": 10}


def _blocks(reply, number):
    for index, part in enumerate(reply.parts):
        if isinstance(part, Text):
            yield {"type": "text", "text": part.whole}
        else:
            id_ = part.id or f"toolu_{number}_{index}"
            yield {"type": "tool_use", "id": id_, "name": part.name, "input": part.input}


def whole(reply, request):
    return {
        "id": f"msg_{request.number}",
        "type": "message",
        "role": "assistant",
        "model": request.body.get("model", "m"),
        "content": list(_blocks(reply, request.number)),
        "stop_reason": "tool_use" if reply.calls_a_tool else "end_turn",
        "stop_sequence": None,
        "usage": _USAGE,
    }


def events(reply, request):
    def say(kind, **more):
        return event({"type": kind, **more}, name=kind)

    message = whole(reply, request)
    empty = {**message, "content": [], "stop_reason": None}
    said = [say("message_start", message=empty)]
    for index, (part, block) in enumerate(zip(reply.parts, message["content"], strict=True)):
        if isinstance(part, Text):
            start = {**block, "text": ""}
            deltas = [{"type": "text_delta", "text": piece} for piece in part.pieces]
        else:
            start = {**block, "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": json.dumps(part.input)}]
        said.append(say("content_block_start", index=index, content_block=start))
        said += [say("content_block_delta", index=index, delta=delta) for delta in deltas]
        said.append(say("content_block_stop", index=index))
    stop = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    said.append(say("message_delta", delta=stop, usage=_USAGE))
    said.append(say("message_stop"))
    return said


def error_body(status, kind=None):
    name = kind or _ERRORS.get(status, "api_error")
    return {"type": "error", "error": {"type": name, "message": f"scripted: {name}"}}


def error_event(kind, request):
    return event(error_body(500, kind), name="error")


def history(body):
    """The conversation so far, as (role, text)."""
    return [(each["role"], _said(each["content"])) for each in body.get("messages", [])]


def _said(content):
    if isinstance(content, str):
        return content
    return " ".join(map(_block_said, content))


def _block_said(block):
    match block["type"]:
        case "text":
            return block["text"]
        case "tool_use":
            return f"[call {block['id']} {block['name']} {json.dumps(block['input'])}]"
        case "tool_result":
            return f"[result {block['tool_use_id']} {_said(block.get('content', ''))}]"
        case other:
            return f"[{other}]"
