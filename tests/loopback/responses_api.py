"""The Responses API of OpenAI: what its client, openai-agents and codex use.

A response that is asked for with `background` (or `store`) can be fetched again:
`GET /v1/responses/ID?stream=true&starting_after=N` streams what comes after event N.
"""

from __future__ import annotations

import json
import re

from tests.loopback.script import Text
from tests.loopback.sse import COMMENT, event

PING = COMMENT
_PATH = re.compile(r"/v1/responses/(?P<id>resp_\w+)(?P<cancel>/cancel)?")


def kind_of(method, path):
    if method == "POST" and path == "/v1/responses":
        return "model"
    if method == "POST" and path == "/v1/responses/input_tokens":
        return "count"
    if found := _PATH.fullmatch(path):
        if method == "GET" and not found["cancel"]:
            return "retrieve"
        if method == "POST" and found["cancel"]:
            return "cancel"
    return None


def wants_stream(request):
    return request.body.get("stream") is True or request.query.get("stream") == "true"


def count(request):
    return {"object": "response.input_tokens", "input_tokens": 10}


def id_in(path):
    """The id of the stored response that a path names."""
    return _PATH.fullmatch(path)["id"]


def starting_after(request):
    """How many events the client has had, by the number of the last one."""
    return int(request.query.get("starting_after", -1)) + 1


def whole(reply, request, status="completed"):
    body = request.body
    return {
        "id": f"resp_{request.number}",
        "object": "response",
        "created_at": 1_700_000_000,
        "status": status,
        "background": body.get("background") is True,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": body.get("model", "m"),
        "output": list(_items(reply, request.number)) if status == "completed" else [],
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": _USAGE if status == "completed" else None,
    }


_USAGE = {
    "input_tokens": 10,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 1,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 11,
}


def _items(reply, number):
    for index, part in enumerate(reply.parts):
        if isinstance(part, Text):
            content = [{"type": "output_text", "text": part.whole, "annotations": []}]
            yield {
                "type": "message",
                "id": f"msg_{number}_{index}",
                "status": "completed",
                "role": "assistant",
                "content": content,
            }
        else:
            yield {
                "type": "function_call",
                "id": f"fc_{number}_{index}",
                "call_id": part.id or f"call_{number}_{index}",
                "name": part.name,
                "arguments": json.dumps(part.input),
                "status": "completed",
            }


def events(reply, request):
    said = []

    def say(kind, **more):
        said.append(event({"type": kind, **more, "sequence_number": len(said)}, name=kind))

    begun = whole(reply, request, "in_progress")
    say("response.created", response=begun)
    say("response.in_progress", response=begun)
    for index, (part, item) in enumerate(
        zip(reply.parts, _items(reply, request.number), strict=True)
    ):
        where = {"item_id": item["id"], "output_index": index}
        if isinstance(part, Text):
            empty = {**item, "status": "in_progress", "content": []}
            content = item["content"][0]
            say("response.output_item.added", output_index=index, item=empty)
            where["content_index"] = 0
            say("response.content_part.added", **where, part={**content, "text": ""})
            for piece in part.pieces:
                say("response.output_text.delta", **where, delta=piece, logprobs=[])
            say("response.output_text.done", **where, text=part.whole, logprobs=[])
            say("response.content_part.done", **where, part=content)
        else:
            arguments = item["arguments"]
            empty = {**item, "status": "in_progress", "arguments": ""}
            say("response.output_item.added", output_index=index, item=empty)
            say("response.function_call_arguments.delta", **where, delta=arguments)
            name = {"name": item["name"], "arguments": arguments}
            say("response.function_call_arguments.done", **where, **name)
        say("response.output_item.done", output_index=index, item=item)
    say("response.completed", response=whole(reply, request))
    return said


_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_exceeded",
}


def error_body(status, kind=None):
    name = kind or _ERRORS.get(status, "server_error")
    return {"error": {"type": name, "code": name, "message": f"scripted: {name}", "param": None}}


def error_event(kind, request):
    failed = whole(None, request, "failed")
    failed["error"] = {"code": kind, "message": f"scripted: {kind}"}
    data = {"type": "response.failed", "response": failed, "sequence_number": LATE}
    return event(data, name="response.failed")


LATE = 900_000  # of an event that stands in the place of others


def history(body):
    asked = body.get("input", [])
    if isinstance(asked, str):
        return [("user", asked)]
    return [_said(item) for item in asked]


def _said(item):
    match item.get("type", "message"):
        case "message":
            content = item["content"]
            if not isinstance(content, str):
                content = " ".join(part.get("text", f"[{part['type']}]") for part in content)
            return item["role"], content
        case "function_call":
            return "assistant", f"[call {item['call_id']} {item['name']} {item['arguments']}]"
        case "function_call_output":
            return "user", f"[result {item['call_id']} {item['output']}]"
        case other:
            return "assistant", f"[{other}]"
