"""The Python client of Codex's app-server: what it can be ended with.

The package `openai_codex` is not imported here: a client that exists is asked by duck
typing. Its streams cannot be cancelled: a thread waits in them until the app-server is closed, and
`close()` ends that. asyncio alone, as the package itself.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from streamguard.backends import _processes
from streamguard.backends.registry import Client


def of_client(client: Any) -> Client | None:
    """The handles of an `AsyncCodex`, of its threads, and of an `AsyncTurnHandle`; else None.

    A turn's handle can be interrupted; `close()` ends the app-server and with it every turn.
    """
    if isinstance(client, type):
        return None
    codex = getattr(client, "_codex", client)
    close, interrupt = getattr(codex, "close", None), getattr(client, "interrupt", None)
    if not callable(close):
        return None
    return Client(
        disconnect=close,
        interrupt=interrupt if callable(interrupt) else None,
        process=partial(_processes.process_of, client),
        outlives_interrupt=True,
    )
