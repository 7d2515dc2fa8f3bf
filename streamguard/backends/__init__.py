"""Backends: what their messages say, how their clients are ended, and sessions with them.

registry         whose message or client is this? one package per backend beside it
stream_reading   one stream's way from messages to signals
facts            versions, limits and watchdogs of the backends' own
command_line     an agent's command line as a session
_...             what several backends have in common

Of a backend, `reading` is what messages say, `client` what clients can be ended with, `sessions` what
opens them again. No SDK is imported before it is used.
"""

from streamguard.backends.registry import (
    NAMES,
    Backend,
    Client,
    Readable,
    adapted,
    find,
    is_own,
    of_client,
    resolve,
)

__all__ = [
    "NAMES",
    "Backend",
    "Client",
    "Readable",
    "adapted",
    "find",
    "is_own",
    "of_client",
    "resolve",
]
