"""Which class an error is of (P1): evidence weighed in one order, through groups and causes.

Of one error, the first that says anything counts:

1. it is nobody's failure: a cancellation, the consumer's own end, our own deadline;
2. the server's verdict in so many words (`x-should-retry`, a gRPC pushback below zero);
3. the type or code in the error's body, since an error inside a stream has status 200;
4. the HTTP status;
5. what the backend said in a message (`signals.Failed`);
6. the exception's type: our own, Python's, or another library's by the names in its MRO.

Where nothing says anything, its cause is asked, or the error it was raised in the wake of. Of
a group the most severe member counts. Imports no SDK and never raises.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from typing import Final

from streamguard.errors import (
    CeilingExceededError,
    CircuitOpenError,
    ConfigError,
    LeaseLostError,
    NoProgressError,
    ProcessExitedError,
    ResumeDivergedError,
    SessionHeldError,
    StreamInterruptedError,
    StreamTimeoutError,
    StreamTruncatedError,
    TotalTimeoutError,
)
from streamguard.retry import foreign
from streamguard.retry.classes import (
    ErrorClass,
    class_named,
    class_of_code,
    class_of_name,
    class_of_status,
    class_of_word,
)
from streamguard.retry.links import nearest
from streamguard.signals import Failed


def classify(error: BaseException, *, failed: Failed | None = None) -> ErrorClass:
    """The class of `error`, given what the backend said before it (`failed`), if anything.

    Without `failed`, the one on the error's verdict or activity is used, if there is one.
    """

    def ask(link: BaseException, is_cause: bool) -> ErrorClass | None:
        # A cancellation among the causes tells how the error came about (every TimeoutError of
        # asyncio's has one), not that somebody cancels us.
        if is_cause and _is_cancellation(link):
            return None
        found = _of_one(link, failed or failed_of(link))
        return None if found is ErrorClass.UNKNOWN else found

    return nearest(error, ask, _most_severe) or ErrorClass.UNKNOWN


def failed_of(error: BaseException) -> Failed | None:
    """What the backend had said about the failure when this error was raised."""
    for place in ("verdict", "activity"):
        with suppress(Exception):  # a foreign property may raise anything
            failed = getattr(getattr(error, place, None), "failed", None)
            if isinstance(failed, Failed):
                return failed
    return None


def _of_one(error: BaseException, failed: Failed | None) -> ErrorClass:
    """What `error` itself says, its causes aside."""
    if _is_cancellation(error) or _is_our_own_end(error):
        return ErrorClass.NEVER
    if not foreign.carries_nothing(error):
        found = _of_body_and_status(error)
        if (may_retry := _servers_verdict(error)) is not None:
            return _obeying(found, may_retry=may_retry)
        if found is not None:
            return found
    said = class_named(failed.error_class) if failed else ErrorClass.UNKNOWN
    return _of_type(error) if said is ErrorClass.UNKNOWN else said


def _is_cancellation(error: BaseException) -> bool:
    # By name: concurrent.futures has one that is an Exception, and SDKs derive from asyncio's.
    names = [cls.__name__ for cls in type(error).__mro__]
    return not isinstance(error, Exception) or "CancelledError" in names


def _is_our_own_end(error: BaseException) -> bool:
    """Whether it is no failure of the backend's: the consumer's doing, or the time for it all."""
    if isinstance(error, TotalTimeoutError):
        scope = error.verdict.effective if error.verdict else None
        return scope is None or scope.kind not in _PART_OF_AN_ATTEMPT
    return isinstance(error, _OUR_OWN_ENDS)


def _servers_verdict(error: BaseException) -> bool | None:
    """Whether the server said, in so many words, that this request may be sent again."""
    headers = foreign.headers_of(error)
    said = headers.get("x-should-retry", "").strip().lower()
    if said in {"true", "false"}:
        return said == "true"
    pushback = headers.get("grpc-retry-pushback-ms")
    if pushback is None:
        return None
    return pushback.strip().isascii() and pushback.strip().isdigit()


def _obeying(found: ErrorClass | None, *, may_retry: bool) -> ErrorClass:
    """The class of an error about which the server has said whether to try again."""
    if found is not None and found.is_transient == may_retry:
        return found
    return ErrorClass.SERVER if may_retry else ErrorClass.VALIDATION


def _of_body_and_status(error: BaseException) -> ErrorClass | None:
    said = next(filter(None, map(class_of_word, foreign.words_of(error))), None)
    status = next(filter(None, map(class_of_status, foreign.statuses_of(error))), None)
    if said is None:
        return status or next(filter(None, map(class_of_code, foreign.codes_of(error))), None)
    # "invalid request" with a 401 is a missing key: the more severe of two refusals.
    if said is ErrorClass.VALIDATION and status is not None and status.severity < said.severity:
        return status
    return said


def _of_type(error: BaseException) -> ErrorClass:
    for ours, found in _OURS:
        if isinstance(error, ours):
            return found
    for cls in type(error).__mro__:
        if cls.__module__ != "builtins":
            named = class_of_name(cls.__name__)
        elif cls is OSError and isinstance(error, OSError):
            named = ErrorClass.NETWORK if error.errno in _ERRNOS_OF_A_NETWORK else None
        else:
            named = next((found for kinds, found in _BUILTINS.items() if cls in kinds), None)
        if named is not None:
            return named
    return ErrorClass.UNKNOWN


def _most_severe(classes: list[ErrorClass]) -> ErrorClass:
    return min(classes, key=lambda each: each.severity)


# A time scope of these is cancelled, and retried or not; a step or a flow is over with its own.
_PART_OF_AN_ATTEMPT: Final = ("llm_call", "tool")
_OUR_OWN_ENDS: Final = (
    *(StreamInterruptedError, CircuitOpenError, LeaseLostError, SessionHeldError),
    CeilingExceededError,  # another attempt would cost more
)
_OURS: Final = (
    (TotalTimeoutError, ErrorClass.NETWORK),  # of an inner scope, as any TimeoutError
    (StreamTimeoutError, ErrorClass.IDLE),  # whichever limit it was, the backend hangs
    (NoProgressError, ErrorClass.IDLE),  # it may get further another time, as after a hang
    (StreamTruncatedError, ErrorClass.NETWORK),
    (ProcessExitedError, ErrorClass.NETWORK),
    (ResumeDivergedError, ErrorClass.VALIDATION),
    (ConfigError, ErrorClass.VALIDATION),
)
_BUILTINS: Final = {
    (ConnectionError, TimeoutError, EOFError): ErrorClass.NETWORK,
    # What the program does wrong, or what is not installed.
    (
        *(TypeError, ValueError, AttributeError, NameError, LookupError, ArithmeticError),
        *(AssertionError, ImportError, SyntaxError, NotImplementedError, RecursionError),
        *(FileNotFoundError, PermissionError, NotADirectoryError, IsADirectoryError),
    ): ErrorClass.VALIDATION,
    # A ValueError, but the backend's: bytes that are no text.
    (UnicodeError,): ErrorClass.UNKNOWN,
}
_ERRNOS_OF_A_NETWORK: Final = {
    *(errno.ECONNRESET, errno.ECONNREFUSED, errno.ECONNABORTED, errno.EPIPE, errno.ETIMEDOUT),
    *(errno.ENETDOWN, errno.ENETUNREACH, errno.ENETRESET, errno.EHOSTUNREACH, errno.EHOSTDOWN),
    *(errno.ENOTCONN, errno.ESHUTDOWN, errno.EADDRNOTAVAIL),
}
