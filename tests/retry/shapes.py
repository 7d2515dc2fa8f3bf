"""Errors as other libraries raise them, by shape: none of those libraries has to be installed.

What the real ones carry was looked up in anthropic 2.10, openai 3.51, google-genai 3.3,
google-api-core 2.44, grpcio 1.85, botocore 1.44, aiohttp 3.14, requests 2.34, httpx2 2.16,
pydantic-ai 2.66, websockets 16.1 and claude-agent-sdk 0.2; `test_classify_real` asks those that
are there.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


class Headers(dict):
    """Headers that ignore case, as every HTTP library has them."""

    def __init__(self, headers: dict[str, str] | None = None) -> None:
        super().__init__({name.title(): value for name, value in (headers or {}).items()})


def named(path: str, *bases: type[BaseException], **attributes: Any) -> Any:
    """An instance of a class with the last name of `path`, whose base classes have the others.

    `named("APIError.APITimeoutError")` is an APITimeoutError that is an APIError.
    """
    cls: type[BaseException] = bases[0] if bases else Exception
    for name in path.split("."):
        cls = type(name, (cls, *bases[1:]), {"__module__": "some_sdk"})
    error = cls("message")
    for name, value in attributes.items():
        setattr(error, name, value)
    return error


def response(status: int, headers: dict[str, str] | None = None) -> SimpleNamespace:
    return SimpleNamespace(status_code=status, headers=Headers(headers))


def anthropic(
    status: int, kind: str = "", headers: dict[str, str] | None = None, **more: Any
) -> Any:
    """An APIStatusError: also what an `error` event inside a stream becomes, with status 200."""
    body = {"type": "error", "error": {"type": kind, "message": "m", **more}} if kind else None
    return named(
        "AnthropicError.APIError.APIStatusError",
        status_code=status,
        response=response(status, headers),
        body=body,
        type=kind or None,
    )


def openai(
    status: int | None, kind: str | None, code: str | None = None, headers: Any = None
) -> Any:
    """An APIStatusError; without a status the APIError that an event inside a stream becomes."""
    more = {"status_code": status, "response": response(status, headers)} if status else {}
    body = {"type": kind, "code": code, "message": "m", "param": None}
    return named(
        "OpenAIError.APIError" + ".APIStatusError" * bool(status),
        body=body,
        type=kind,
        code=code,
        **more,
    )


def google(code: int, status: str, *details: Any) -> Any:
    """google-genai's APIError: `code` is a number and `status` a word."""
    body = {"error": {"code": code, "status": status, "message": "m", "details": [*details]}}
    return named("APIError.ClientError", code=code, status=status, details=body, response=None)


RETRY_INFO = "type.googleapis.com/google.rpc.RetryInfo"


def retry_info(delay: Any) -> dict[str, Any]:
    return {"@type": RETRY_INFO, "retryDelay": delay}


def google_core(code: int, status: str, *details: Any) -> Any:
    """google-api-core's GoogleAPICallError, with a gRPC status and protobuf details."""
    return named(
        "GoogleAPICallError.ClientError",
        code=code,
        grpc_status_code=SimpleNamespace(name=status, value=(8, "")),
        details=[*details],
        errors=[],
        response=None,
    )


class GrpcMetadata(list):
    """grpc.aio's Metadata: pairs when iterated, and lists of values in `items()`."""

    def items(self) -> Any:
        return [(name, [value]) for name, value in self]


def grpc(status: str, metadata: Any = ()) -> Any:
    """grpc's RpcError: everything is a method."""
    return named(
        "RpcError.AioRpcError",
        code=lambda: SimpleNamespace(name=status, value=(0, "")),
        details=lambda: "details",
        trailing_metadata=lambda: metadata,
    )


def botocore(code: str, status: int | None = None, headers: dict[str, str] | None = None) -> Any:
    """botocore's ClientError: `response` is a dict, without metadata inside an event stream."""
    fields: dict[str, Any] = {"Error": {"Code": code, "Message": "m"}}
    if status is not None:
        fields["ResponseMetadata"] = {"HTTPStatusCode": status, "HTTPHeaders": headers or {}}
    return named("ClientError", response=fields, operation_name="ConverseStream")


class AiohttpError(Exception):
    """aiohttp's ClientResponseError, whose `code` warns of being deprecated."""

    def __init__(self, status: int, headers: dict[str, str] | None = None) -> None:
        super().__init__(status)
        self.status = status
        self.headers = Headers(headers)

    @property
    def code(self) -> int:
        raise DeprecationWarning("code property is deprecated, use status instead")


def httpx(status: int, headers: dict[str, str] | None = None) -> Any:
    """httpx' (and httpx2's, and requests') HTTPStatusError."""
    return named("HTTPError.HTTPStatusError", response=response(status, headers))


def urllib(status: int, headers: dict[str, str] | None = None) -> Any:
    """urllib's HTTPError is an OSError, and its own response."""
    return named(
        "URLError.HTTPError", OSError, code=status, status=status, headers=Headers(headers)
    )


def pydantic_ai(status: int, body: Any = None, **more: Any) -> Any:
    """pydantic-ai's ModelHTTPError."""
    path = "AgentRunError.ModelAPIError.ModelHTTPError"
    return named(path, RuntimeError, status_code=status, body=body, **more)


def claude_result(**data: Any) -> Any:
    """claude-agent-sdk's ResultError."""
    names = ("subtype", "api_error_status", "terminal_reason", "session_id")
    more = {name: data.get(name) for name in names}
    return named("ClaudeSDKError.ProcessError.ResultError", data=data, exit_code=1, **more)


def mcp(code: int) -> Any:
    """MCP's error, with a JSON-RPC code."""
    return named("MCPError", error=SimpleNamespace(code=code, message="m", data=None), code=code)
