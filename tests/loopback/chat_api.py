"""The Chat Completions API of OpenAI, which many others speak as well."""

from __future__ import annotations

import json

from tests.loopback import responses_api
from tests.loopback.script import Text
from tests.loopback.sse import COMMENT, event

PING = COMMENT
error_body = responses_api.error_body
_USAGE = {"prompt_tokens": 10, "completion_tokens": 1, "total_tokens": 11}


def kind_of(method, path):
    return "model" if method == "POST" and path == "/v1/chat/completions" else None


def wants_stream(request):
    return request.body.get("stream") is True


def _calls(reply, number):
    return [
        {
            "id": part.id or f"call_{number}_{index}",
            "type": "function",
            "function": {"name": part.name, "arguments": json.dumps(part.input)},
        }
        for index, part in enumerate(reply.parts)
        if not isinstance(part, Text)
    ]


def _frame(request, kind):
    return {
        "id": f"chatcmpl-{request.number}",
        "object": kind,
        "created": 1_700_000_000,
        "model": request.body.get("model", "m"),
    }


def _finish(reply):
    return "tool_calls" if reply.calls_a_tool else "stop"


def whole(reply, request):
    message = {"role": "assistant", "content": reply.text or None}
    if calls := _calls(reply, request.number):
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(reply)}
    return {**_frame(request, "chat.completion"), "choices": [choice], "usage": _USAGE}


def events(reply, request):
    frame = _frame(request, "chat.completion.chunk")

    def say(delta, finish=None):
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return event({**frame, "choices": [choice]})

    said = [say({"role": "assistant", "content": ""})]
    for part in reply.parts:
        if isinstance(part, Text):
            said += [say({"content": piece}) for piece in part.pieces]
    for index, call in enumerate(_calls(reply, request.number)):
        function = call["function"]
        begun = {**call, "index": index, "function": {**function, "arguments": ""}}
        said.append(say({"tool_calls": [begun]}))
        filled = {"index": index, "function": {"arguments": function["arguments"]}}
        said.append(say({"tool_calls": [filled]}))
    said.append(say({}, _finish(reply)))
    if (request.body.get("stream_options") or {}).get("include_usage"):
        said.append(event({**frame, "choices": [], "usage": _USAGE}))
    said.append(event("[DONE]"))
    return said


def error_event(kind, request):
    return event(error_body(500, kind))


def history(body):
    return [(each["role"], _said(each)) for each in body.get("messages", [])]


def _said(message):
    if message["role"] == "tool":
        return f"[result {message['tool_call_id']} {message['content']}]"
    content = message.get("content") or ""
    if not isinstance(content, str):
        content = " ".join(part.get("text", "") for part in content)
    calls = [
        f"[call {call['id']} {call['function']['name']} {call['function']['arguments']}]"
        for call in message.get("tool_calls") or ()
    ]
    return " ".join(filter(None, [content, *calls]))
