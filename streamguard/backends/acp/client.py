"""What a client of the package `acp` can be ended with."""

from __future__ import annotations

from typing import Any

from streamguard.backends.registry import Client


def of_client(client: Any) -> Client | None:
    """The handle of a `ClientSideConnection`, which is its close; None for anything else.

    It serves several sessions, so an interrupt is a turn's: `interrupt=turn.interrupt`.
    """
    if isinstance(client, type) or not (hasattr(client, "prompt") and hasattr(client, "close")):
        return None
    return Client(disconnect=client.close)
