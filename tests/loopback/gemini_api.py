"""The Gemini API of Google: `generateContent`, its streaming twin, `countTokens`."""

from __future__ import annotations

import json
import re

from tests.loopback.script import Text
from tests.loopback.sse import COMMENT, event

PING = COMMENT
_PATH = re.compile(r"/v1(beta)?/models/(?P<model>[^/:]+):(?P<verb>\w+)")
_VERBS = {"generateContent": "model", "streamGenerateContent": "model", "countTokens": "count"}
_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
}
_USAGE = {"promptTokenCount": 10, "candidatesTokenCount": 1, "totalTokenCount": 11}


def kind_of(method, path):
    found = _PATH.fullmatch(path)
    return _VERBS.get(found["verb"]) if found and method == "POST" else None


def wants_stream(request):
    return request.path.endswith(":streamGenerateContent")


def count(request):
    return {"totalTokens": 10}


def _parts(reply, number):
    for index, part in enumerate(reply.parts):
        if isinstance(part, Text):
            yield from ({"text": piece} for piece in part.pieces)
        else:
            id_ = part.id or f"call_{number}_{index}"
            yield {"functionCall": {"id": id_, "name": part.name, "args": part.input}}


def _answer(request, parts, *, ended):
    candidate = {"index": 0, "content": {"role": "model", "parts": parts}}
    if ended:
        candidate["finishReason"] = "STOP"
    return {
        "candidates": [candidate],
        "usageMetadata": _USAGE,
        "modelVersion": _PATH.fullmatch(request.path)["model"],
        "responseId": f"resp_{request.number}",
    }


def whole(reply, request):
    return _answer(request, list(_parts(reply, request.number)), ended=True)


def events(reply, request):
    """An event for each part; the last says why the model has stopped."""
    parts = list(_parts(reply, request.number)) or [{"text": ""}]
    last = len(parts) - 1
    return [event(_answer(request, [part], ended=i == last)) for i, part in enumerate(parts)]


def error_body(status, kind=None):
    name = kind or _STATUS.get(status, "UNAVAILABLE")
    return {"error": {"code": status, "message": f"scripted: {name}", "status": name}}


def error_event(kind, request):
    return event(error_body(503, kind))


def history(body):
    return [
        (each.get("role", "user"), " ".join(map(_said, each["parts"])))
        for each in body.get("contents", [])
    ]


def _said(part):
    if call := part.get("functionCall"):
        return f"[call {call.get('id')} {call['name']} {json.dumps(call.get('args'))}]"
    if result := part.get("functionResponse"):
        return f"[result {result.get('id')} {json.dumps(result.get('response'))}]"
    return part.get("text", "[part]")
