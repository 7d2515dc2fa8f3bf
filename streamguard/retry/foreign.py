"""What an error of another library carries, read by its shape: words, status, headers, details.

    anthropic, openai   .status_code .response.headers .body .type .code
    google-genai        .code .status .details
    google-api-core     .code .grpc_status_code .details .response
    grpc                .code() .trailing_metadata()
    botocore            .response = {"Error": …, "ResponseMetadata": …}
    aiohttp, urllib     .status .headers
    httpx, requests     .response.status_code .response.headers
    pydantic-ai         .status_code .body .provider_error_code .retry_after
    claude-agent-sdk    .api_error_status .terminal_reason
    MCP, ACP            .error.code

Every function is total: a foreign property may raise, and a response may be half read. Imports
nothing of the package.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, TypeAlias, cast

Fields: TypeAlias = Mapping[str, Any]

_NO_FIELDS: Final[Fields] = {}
_SPECIFIC_FIRST: Final = ("error_code", "code", "status", "type")
_ATTRIBUTES: Final = (
    *("error_code", "provider_error_code", "terminal_reason", "type"),
    "provider_error_type",
)


# All that is read here of an error itself.
_READ: Final = frozenset(_SPECIFIC_FIRST).union(
    _ATTRIBUTES,
    ("body", "details", "error", "response", "headers", "trailing_metadata", "retry_after"),
    ("status_code", "http_status", "api_error_status", "grpc_status_code"),
)


def carries_nothing(error: BaseException) -> bool:
    """Whether nothing of what is read here is there to be read: of most errors, ours among them."""
    kind = type(error)
    with suppress(Exception):
        is_plain = kind.__dir__ is object.__dir__ and not hasattr(kind, "__getattr__")
        is_plain = is_plain and kind.__getattribute__ is BaseException.__getattribute__
        return is_plain and _READ.isdisjoint(dir(error))
    return False


def attribute(thing: object, name: str) -> Any:
    """`thing.name`, or None: a foreign property may raise anything."""
    with suppress(Exception):
        return getattr(thing, name, None)
    return None


def words_of(error: BaseException) -> Iterator[str]:
    """The words that the server, or the SDK for it, has for the error; the most specific first."""
    for body in bodies_of(error):
        for fields in (_fields(body.get("details")), body):
            yield from _texts(fields.get(name) for name in (*_SPECIFIC_FIRST, "Code"))
    yield from _texts(_code_of(error))
    yield from _texts(attribute(error, name) for name in (*_ATTRIBUTES, "status"))


def codes_of(error: BaseException) -> Iterator[int]:
    """Numbers that the error carries as `code`, of whatever protocol."""
    for thing in (error, attribute(error, "error")):
        code = attribute(thing, "code") if not _is_number(attribute(thing, "status")) else None
        if (number := _number(code)) is not None:
            yield number


def statuses_of(error: BaseException) -> Iterator[int]:
    """HTTP statuses, wherever the error keeps one."""
    response = attribute(error, "response")
    metadata = _fields(_fields(response).get("ResponseMetadata"))
    for value in (
        attribute(error, "status_code"),
        attribute(response, "status_code"),
        attribute(error, "status"),
        attribute(response, "status"),
        attribute(error, "http_status"),
        attribute(error, "api_error_status"),
        metadata.get("HTTPStatusCode"),
    ):
        if (number := _number(value)) is not None:
            yield number
    yield from codes_of(error)


def bodies_of(error: BaseException) -> Iterator[Fields]:
    """The error bodies that came with the error, the inner before the outer."""
    candidates = ("body", "details", "response", "error")
    for found in (attribute(error, name) for name in candidates):
        for body in cast("list[object]", found) if isinstance(found, list) else [found]:
            fields = _fields(body)
            for inner in (fields.get("error"), fields.get("Error")):
                if isinstance(inner, dict):
                    yield cast("Fields", inner)
            if fields:
                yield fields


def details_of(error: BaseException) -> Iterator[object]:
    """What a body lists as `details`, and what google's SDK gives as such."""
    for body in bodies_of(error):
        listed = body.get("details")
        if isinstance(listed, list):
            yield from cast("list[object]", listed)
    listed = attribute(error, "details")
    if isinstance(listed, list | tuple):
        yield from cast("Iterable[object]", listed)


def headers_of(error: BaseException) -> Mapping[str, str]:
    """The response's headers, or gRPC's trailing metadata, by names in lower case."""
    headers: dict[str, str] = {}
    response = attribute(error, "response")
    metadata = _fields(_fields(response).get("ResponseMetadata"))
    for found in (
        attribute(response, "headers"),
        attribute(error, "headers"),
        metadata.get("HTTPHeaders"),
        _called(error, "trailing_metadata"),
        _called(response, "trailing_metadata"),
    ):
        for name, value in _pairs(found):
            headers.setdefault(name.lower(), value)
    return headers


def _pairs(headers: object) -> list[tuple[str, str]]:
    """Headers as pairs of texts, from a mapping or from pairs, of texts or of bytes."""
    items = attribute(headers, "items")
    with suppress(Exception):
        pairs = items() if callable(items) else headers
        return [(_text(name), _text(value)) for name, value in cast("Any", pairs or ())]
    return []


def _code_of(error: BaseException) -> list[object]:
    """`code` as a text, or as gRPC has it: a method that gives an enum."""
    if _is_number(attribute(error, "status")):  # then `code` is deprecated or says the same
        return []
    code = attribute(error, "code")
    if callable(code) and not isinstance(code, type):
        code = _called(error, "code")
    grpc = attribute(error, "grpc_status_code")
    return [code, attribute(code, "name"), attribute(grpc, "name")]


def _called(thing: object, name: str) -> Any:
    method = attribute(thing, name)
    with suppress(Exception):
        return method() if callable(method) else None
    return None


def _fields(thing: object) -> Fields:
    return cast("Fields", thing) if isinstance(thing, dict) else _NO_FIELDS


def _texts(values: Iterable[object]) -> Iterator[str]:
    return (value for value in values if isinstance(value, str))


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, list):  # grpc.aio has a list for each name
        return next(map(_text, cast("list[object]", value)), "")
    return str(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: object) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) == 3:
        return int(value)
    return int(value) if isinstance(value, int) and _is_number(value) else None
