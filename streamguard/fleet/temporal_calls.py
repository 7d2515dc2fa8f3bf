"""Calls of Temporal's server: each within a bound, and its refusals as errors that say what to do.

`bounded` lets through two refusals that its callers know what to make of: that an activity is not there (any more), and
that there is one already. Imports temporalio, which takes 0.3 s, only where it was imported already: by whoever has made
the client.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final, TypeVar

import anyio

from streamguard._base import quoting
from streamguard.errors import ConfigError, StoreError, StreamGuardError

if TYPE_CHECKING:
    from temporalio.service import RPCError

T = TypeVar("T")

NEEDED: Final = (
    "Standalone Activities, which a fleet's sessions are, need Temporal Server 1.32 or newer, with "
    "activity.enableStandalone on in the namespace"
)
_AWAY: Final = (
    "see whether the server runs, and whether the client's address is right. It is asked again"
)


class NotThereError(Exception):
    """Temporal knows no such activity, or the attempt that asks is over. Private to the engine."""


async def bounded(call: Awaitable[T], bound: float) -> T:
    """What `call` gives. NotThereError; else StoreError or ConfigError, with what Temporal says."""
    from temporalio.service import RPCError

    try:
        # The client's own retries keep no bound.
        with anyio.fail_after(bound):
            return await call
    except RPCError as error:
        refused = error
    except RuntimeError as error:  # of a client that connects when it is first used
        if "client connect" not in str(error):
            raise
        raise StoreError(f"Temporal cannot be reached ({quoting.name(error)}): {_AWAY}") from None
    except TimeoutError:
        raise StoreError(f"Temporal has not answered within {bound:g} s: {_AWAY}") from None
    raise _meaning(refused) from None


def _meaning(error: RPCError) -> NotThereError | StreamGuardError:
    from temporalio.service import RPCStatusCode as Status

    said = quoting.name(error.message)
    match error.status:
        case Status.NOT_FOUND if _names_namespace(error):
            return StoreError(
                f"Temporal: {said}: create that namespace (temporal operator namespace create), or connect the client with "
                "one that is there"
            )
        # A closed activity cannot be cancelled: it is told as a failed precondition.
        case Status.NOT_FOUND | Status.FAILED_PRECONDITION:
            return NotThereError(said)
        case Status.UNIMPLEMENTED:
            return StoreError(f"Temporal: {said}: {NEEDED}")
        case Status.UNAVAILABLE | Status.DEADLINE_EXCEEDED | Status.CANCELLED:
            return StoreError(f"Temporal cannot be reached ({said}): {_AWAY}")
        case Status.PERMISSION_DENIED | Status.UNAUTHENTICATED:
            return StoreError(
                f"Temporal refuses us ({said}): see the client's API key or certificate, and its namespace"
            )
        case Status.INVALID_ARGUMENT:
            return ConfigError(f"Temporal does not take that: {said}")
        case _:
            return StoreError(f"Temporal: {error.status.name.lower()}: {said}")


def _names_namespace(error: RPCError) -> bool:
    return error.message.startswith("Namespace ")
