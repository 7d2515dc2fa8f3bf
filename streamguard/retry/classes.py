"""The classes of errors (P1), and the words, statuses and codes that name them.

Every backend has its own names for the same few troubles. What they write into error bodies and
what they call their exceptions is read with one table: `RateLimitError`, `rate_limit_error` and
`RATE_LIMIT` are one word. Imports nothing of the package.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class ErrorClass(StrEnum):
    """What kind of trouble an error is, the most severe first.

    Its values are the words of `signals.Failed.error_class`.
    """

    NEVER = "never"  # nobody's failure: cancellation, the consumer's own end, our own deadline
    AUTH = "auth"  # credentials: somebody must renew them
    PERMANENT = "permanent"  # the account: somebody must pay, or ask
    VALIDATION = "validation"  # the request or the program is wrong, and stays wrong
    RATE_LIMIT = "rate_limit"
    SERVER = "server"
    NETWORK = "network"
    IDLE = "idle"  # a limit of streamguard's: the backend hangs
    UNKNOWN = "unknown"

    @property
    def severity(self) -> int:
        """0 is the most severe: of several errors at once, the smallest number counts."""
        return _SEVERITY[self]

    @property
    def is_transient(self) -> bool:
        """Whether the same request may go better later."""
        return _SEVERITY[self] >= _SEVERITY[ErrorClass.RATE_LIMIT]

    @property
    def needs_a_person(self) -> bool:
        """Whether a person should hear that it was given up: it does not get better by itself."""
        return self in {ErrorClass.AUTH, ErrorClass.PERMANENT, ErrorClass.RATE_LIMIT}


_SEVERITY: Final = {each: number for number, each in enumerate(ErrorClass)}
_NAMED: Final = {each.value: each for each in ErrorClass}


def class_named(word: str) -> ErrorClass:
    """The class with that name; `UNKNOWN` for any other word."""
    return _NAMED.get(word, ErrorClass.UNKNOWN)


def class_of_status(status: int) -> ErrorClass | None:
    """The class of an HTTP status; None if the status is no error's.

    An error that came inside a stream has the status of the stream: 200.
    """
    if 400 <= status < 600:
        return _STATUSES.get(status, ErrorClass.SERVER if status >= 500 else ErrorClass.VALIDATION)
    return None


def class_of_code(code: int) -> ErrorClass | None:
    """The class of a JSON-RPC error code, as MCP and ACP use them."""
    if code in {-32700, -32600, -32601, -32602}:
        return ErrorClass.VALIDATION
    return ErrorClass.SERVER if code == -32603 else None


def class_of_word(word: str) -> ErrorClass | None:
    """The class of an error body's type or code: `overloaded_error`, `ThrottlingException`."""
    return _class_of_ending(word, _BODY_WORDS)


def class_of_name(name: str) -> ErrorClass | None:
    """The class that the name of an exception's type tells: `APITimeoutError`, `ReadError`."""
    return _class_of_ending(name, _TYPE_NAMES)


def _class_of_ending(name: str, table: Mapping[str, ErrorClass]) -> ErrorClass | None:
    """By `name` in snake case without its "error", then by ever fewer of its last words.

    The longest ending that is known says most: "not found" of "cli not found".
    """
    words = [word.lower() for word in _WORD.findall(name[:200])]
    if words and words[-1] in {"error", "exception"}:
        words.pop()
    for first in range(len(words)):
        ending = "_".join(words[first:])
        if (found := _WORDS.get(ending) or table.get(ending)) is not None:
            return found
    return None


# Three kinds of words: "API" before "Timeout", "Timeout" or "timeout", "TIMEOUT".
_WORD: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z0-9]+|[A-Z]+[0-9]*")

_STATUSES: Final = {
    401: ErrorClass.AUTH,
    402: ErrorClass.PERMANENT,
    403: ErrorClass.AUTH,
    407: ErrorClass.AUTH,
    408: ErrorClass.NETWORK,
    409: ErrorClass.NETWORK,
    425: ErrorClass.NETWORK,
    429: ErrorClass.RATE_LIMIT,
}


def _table(words: Mapping[ErrorClass, str]) -> Mapping[str, ErrorClass]:
    return MappingProxyType({word: each for each, text in words.items() for word in text.split()})


# In bodies and in exceptions' names alike.
_WORDS: Final = _table(
    {
        ErrorClass.NEVER: "cancelled canceled",
        ErrorClass.AUTH: """
            auth authentication authentication_failed unauthenticated unauthorized permission
            permission_denied forbidden access_denied invalid_api_key api_key_invalid
            expired_token token_expired unrecognized_client invalid_signature
            signature_does_not_match invalid_client_token_id missing_authentication_token
            credentials credential_retrieval token_retrieval token_load unauthorized_sso_token
            login_refresh_required
        """,
        ErrorClass.PERMANENT: """
            billing billing_not_active billing_hard_limit_reached spend_limit_reached
            insufficient_quota quota_exceeded payment_required account_deactivated
            account_suspended on_hold
        """,
        ErrorClass.VALIDATION: """
            validation invalid_request bad_request not_found too_large unprocessable_entity
            invalid_argument invalid_prompt failed_precondition out_of_range already_exists
            unimplemented context_length_exceeded context_window_exceeded prompt_too_long
            string_above_max_length content_filter content_policy_violation finish_reason
            max_turns max_turns_exceeded usage_limit_exceeded tripwire_triggered
        """,
        ErrorClass.RATE_LIMIT: """
            rate_limit rate_limited rate_limit_exceeded too_many_requests throttling throttled
            request_limit_exceeded concurrency_limit_exceeded ramp_limit_exceeded
            throughput_exceeded resource_exhausted slow_down
        """,
        ErrorClass.SERVER: """
            overloaded server internal internal_failure unavailable bad_gateway data_loss
            model_error model_stream_error model_not_ready retryable
        """,
        ErrorClass.NETWORK: """
            timeout timed_out deadline_exceeded aborted conflict connection connection_closed
            network transport
        """,
        ErrorClass.IDLE: "idle_timeout",
    }
)
# As an exception's name it says nothing: it is the base of all that an SDK raises.
_BODY_WORDS: Final = _table({ErrorClass.SERVER: "api"})
# These say something as the name of an exception's type alone.
_TYPE_NAMES: Final = _table(
    {
        ErrorClass.AUTH: "refresh",
        ErrorClass.VALIDATION: """
            certificate cert_verification fingerprint_mismatch local_protocol
            unsupported_protocol invalid_url invalid_uri missing_schema invalid_schema
            too_many_redirects not_read stream_consumed busy_resource user
        """,
        ErrorClass.NETWORK: """
            connect read write close proxy protocol remote_protocol sse ssl
            url connection_closed_ok connection_failed disconnected client_os client_payload
            chunked_encoding incomplete_read max_retry name_resolution http_client
            response_streaming broken_resource closed_resource transport_closed end_of_stream
            eof_stream timeout_expired too_slow bad_status_line gaierror process
        """,
        # The SDK's end of a failed run: what failed is said elsewhere, if at all. And a line
        # that is no JSON, which is a ValueError, but the backend's, and may be torn.
        ErrorClass.UNKNOWN: "result json_decode",
    }
)
