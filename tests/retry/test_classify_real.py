"""P1: the real errors of the SDKs that are installed; the others are skipped.

`pip install anthropic openai google-genai google-api-core grpcio botocore aiohttp requests` and
whatever else is named here, to ask all of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from streamguard import ErrorClass, classify
from streamguard.retry import retry_after


def sdk(name: str):
    """The package, or a skip. Some warn when they are imported, and that is not our business."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(name, exc_type=ImportError)


def expect(error: BaseException, expected: str, seconds: float | None = None) -> None:
    assert classify(error) is ErrorClass(expected), repr(error)
    assert retry_after(error) == (60 if seconds is None and expected == "rate_limit" else seconds)


def http_response(status: int, body: object = None, headers: dict[str, str] | None = None):
    httpx = sdk("httpx2")
    request = httpx.Request("POST", "https://localhost/v1")
    return httpx.Response(status, json=body, headers=headers or {}, request=request)


def test_anthropic():
    anthropic = sdk("anthropic")
    with anthropic.Anthropic(api_key="k") as client:
        make: Callable = client._make_status_error_from_response

        def error(status, kind, headers=None, **more):
            body = {"type": "error", "error": {"type": kind, "message": "m", **more}}
            return make(http_response(status, body, headers))

        expect(error(400, "invalid_request_error"), "validation")
        expect(error(401, "authentication_error"), "auth")
        expect(error(402, "billing_error"), "permanent")
        expect(error(403, "permission_error"), "auth")
        expect(error(404, "not_found_error"), "validation")
        expect(error(413, "request_too_large"), "validation")
        expect(error(429, "rate_limit_error", {"retry-after": "7"}), "rate_limit", 7)
        expect(error(500, "api_error"), "server")
        expect(error(529, "overloaded_error"), "server")
        expect(error(200, "overloaded_error"), "server")
        expect(error(429, "rate_limit_error", {"x-should-retry": "false"}), "validation")
        details = {"error_code": "enforced_spend_limit_reached"}
        expect(error(429, "rate_limit_error", details=details), "permanent")
    request = http_response(200).request
    expect(anthropic.APIConnectionError(request=request), "network")
    expect(anthropic.APITimeoutError(request=request), "network")


def test_openai():
    openai = sdk("openai")
    with openai.OpenAI(api_key="k") as client:
        make: Callable = client._make_status_error_from_response

        def error(status, kind, code=None, headers=None):
            body = {"error": {"type": kind, "code": code, "message": "m", "param": None}}
            return make(http_response(status, body, headers))

        expect(error(429, "insufficient_quota", "insufficient_quota"), "permanent")
        expect(error(429, "tokens", "rate_limit_exceeded"), "rate_limit")
        limited = error(429, "requests", "rate_limit_exceeded", {"retry-after-ms": "1500"})
        expect(limited, "rate_limit", 1.5)
        expect(error(401, "invalid_request_error", "invalid_api_key"), "auth")
        expect(error(401, "invalid_request_error"), "auth")
        expect(error(404, "invalid_request_error", "model_not_found"), "validation")
        expect(error(503, "server_error"), "server")
    request = http_response(200).request
    body = {"type": "server_error", "code": "server_error", "message": "m"}
    expect(openai.APIError("in the stream", request=request, body=body), "server")
    expect(openai.APIConnectionError(request=request), "network")


def test_google_genai():
    errors = sdk("google.genai.errors")
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "39s"}
    body = {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": [info]}}
    expect(errors.ClientError(429, body), "rate_limit", 39)
    body = {"error": {"code": 503, "status": "UNAVAILABLE", "message": "m"}}
    expect(errors.ServerError(503, body), "server")


def test_google_api_core():
    exceptions = sdk("google.api_core.exceptions")
    details = sdk("google.rpc.error_details_pb2")
    duration = sdk("google.protobuf.duration_pb2").Duration(seconds=3, nanos=500_000_000)
    info = details.RetryInfo(retry_delay=duration)
    expect(exceptions.ResourceExhausted("m"), "rate_limit")
    expect(exceptions.ResourceExhausted("m", details=[info]), "rate_limit", 3.5)
    expect(exceptions.ServiceUnavailable("m"), "server")
    expect(exceptions.InvalidArgument("m"), "validation")
    expect(exceptions.PermissionDenied("m"), "auth")


def test_grpc():
    grpc = sdk("grpc")
    aio = sdk("grpc.aio")

    def error(status, *metadata):
        return aio.AioRpcError(status, aio.Metadata(), aio.Metadata(*metadata))

    expect(error(grpc.StatusCode.UNAVAILABLE), "server")
    expect(error(grpc.StatusCode.UNAUTHENTICATED), "auth")
    expect(error(grpc.StatusCode.RESOURCE_EXHAUSTED), "rate_limit")
    expect(error(grpc.StatusCode.UNAVAILABLE, ("grpc-retry-pushback-ms", "1500")), "server", 1.5)
    expect(error(grpc.StatusCode.UNAVAILABLE, ("grpc-retry-pushback-ms", "-1")), "validation")


def test_botocore():
    exceptions = sdk("botocore.exceptions")

    def error(code, status, headers):
        metadata = {"HTTPStatusCode": status, "HTTPHeaders": headers}
        fields = {"Error": {"Code": code, "Message": "m"}, "ResponseMetadata": metadata}
        return exceptions.ClientError(fields, "ConverseStream")

    expect(error("ThrottlingException", 429, {"retry-after": "3"}), "rate_limit", 3)
    expect(error("ValidationException", 400, {}), "validation")
    in_stream = {"Error": {"Code": "modelStreamErrorException", "Message": "m"}}
    expect(exceptions.EventStreamError(in_stream, "ConverseStream"), "server")
    expect(exceptions.EndpointConnectionError(endpoint_url="x"), "network")
    expect(exceptions.ReadTimeoutError(endpoint_url="x"), "network")
    expect(exceptions.NoCredentialsError(), "auth")


def test_aiohttp():
    aiohttp = sdk("aiohttp")
    multidict = sdk("multidict")
    url = sdk("yarl").URL("http://localhost")
    no_headers = multidict.CIMultiDictProxy(multidict.CIMultiDict())
    info = aiohttp.RequestInfo(url, "POST", no_headers, url)
    headers = multidict.CIMultiDict({"Retry-After": "2"})
    expect(aiohttp.ClientResponseError(info, (), status=429, headers=headers), "rate_limit", 2)
    expect(aiohttp.ServerDisconnectedError(), "network")
    expect(aiohttp.ClientPayloadError(), "network")
    expect(aiohttp.InvalidURL("x"), "validation")


@pytest.mark.parametrize("name", ["httpx", "httpx2"])
def test_httpx(name):
    httpx = sdk(name)
    request = httpx.Request("POST", "https://localhost/v1")
    response = httpx.Response(503, headers={"Retry-After": "2.5"}, request=request)
    expect(httpx.HTTPStatusError("m", request=request, response=response), "server", 2.5)
    expect(httpx.ReadError("m"), "network")
    expect(httpx.RemoteProtocolError("m"), "network")
    expect(httpx.PoolTimeout("m"), "network")
    expect(httpx.LocalProtocolError("m"), "validation")
    expect(httpx.ResponseNotRead(), "validation")


def test_requests():
    requests = sdk("requests")
    response = requests.Response()
    response.status_code = 429
    response.headers["Retry-After"] = "7"
    expect(requests.HTTPError("m", response=response), "rate_limit", 7)
    expect(requests.ConnectionError("m"), "network")
    expect(requests.exceptions.ChunkedEncodingError("m"), "network")
    expect(requests.exceptions.MissingSchema("m"), "validation")


def test_websockets():
    exceptions = sdk("websockets.exceptions")
    expect(exceptions.ConnectionClosedError(None, None), "network")
    refused = SimpleNamespace(status_code=503, headers={"Retry-After": "4"})
    expect(exceptions.InvalidStatus(refused), "server", 4)
    expect(exceptions.InvalidURI("x", "m"), "validation")


def test_pydantic_ai():
    exceptions = sdk("pydantic_ai.exceptions")
    body = {"type": "error", "error": {"type": "overloaded_error"}}
    expect(exceptions.ModelHTTPError(529, "model", body), "server")
    expect(exceptions.ModelHTTPError(429, "model"), "rate_limit")
    expect(exceptions.UserError("m"), "validation")


def test_openai_agents():
    exceptions = sdk("agents.exceptions")
    expect(exceptions.MaxTurnsExceeded("m"), "validation")
    expect(exceptions.UserError("m"), "validation")


def test_claude_agent_sdk():
    errors = sdk("claude_agent_sdk")
    expect(errors.CLINotFoundError(), "validation")
    expect(errors.CLIConnectionError("m"), "network")
    expect(errors.ProcessError("m", exit_code=-9), "network")


def test_mcp():
    error = getattr(sdk("mcp.shared.exceptions"), "MCPError", None)
    if error is None:
        pytest.skip("an older MCP")
    expect(error(-32602, "m"), "validation")
    expect(error(-32603, "m"), "server")


def test_urllib():
    from urllib.error import HTTPError, URLError

    with HTTPError("http://localhost", 503, "m", {"Retry-After": "3"}, None) as error:
        expect(error, "server", 3)
    expect(URLError("refused"), "network")
