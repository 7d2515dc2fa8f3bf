"""What a client of claude-agent-sdk can be ended with, and which versions of the SDK will do.

The client itself is asked, by duck typing: nothing here imports the SDK. Its pid is taken from what
the CLI said when it was greeted, which is public, and found as any client's where that does not do.
What cannot be found out is None, never an error: a guard must not fail for it.
"""

from __future__ import annotations

import re
from functools import cache, partial
from typing import Any, Final, cast

from streamguard.backends import _processes
from streamguard.backends.registry import Client
from streamguard.errors import ConfigError

# The first whose close is shielded. Before it a cancellation may leave the CLI alive, and before
# 0.1.51 a disconnect() from another task raises, hangs or cancels the task that connected.
OLDEST: Final = (0, 2, 111)


def of_client(client: Any) -> Client | None:
    """The handles of a `ClaudeSDKClient`; None for anything else.

    ConfigError if its SDK is too old to be ended from another task.
    """
    disconnect, interrupt = (getattr(client, name, None) for name in ("disconnect", "interrupt"))
    if isinstance(client, type) or not (callable(disconnect) and callable(interrupt)):
        return None
    check_version("client=")
    return Client(
        disconnect=disconnect,
        interrupt=interrupt,
        process=partial(process_of, client),
        outlives_interrupt=True,
    )


def process_of(client: Any) -> Any:
    """The CLI behind `client`: its process object or its pid; None while there is none to be known.

    What the CLI calls its pid may be a number of another machine or container, where the CLI is
    started by a wrapper. So it counts only if that process is one that we, or ours, have started.
    """
    process = _processes.process_of(client)
    pid = _said_pid(client)
    if pid is None or isinstance(process, int) or _processes.number_of(process) == pid:
        return process
    from streamguard.process.table import descends_from_us

    return pid if descends_from_us(pid) else process


def _said_pid(client: Any) -> int | None:
    """The pid that the CLI gave when it was greeted."""
    info = _processes.given_at_once(getattr(client, "get_server_info", None))
    pid = cast("dict[str, Any]", info).get("pid") if isinstance(info, dict) else None
    return pid if isinstance(pid, int) and not isinstance(pid, bool) and pid > 1 else None


def check_version(what: str) -> None:
    """A ConfigError if the SDK that is installed is older than `what` needs."""
    version = installed()
    if version is not None and version < OLDEST:
        raise ConfigError(
            f"{what} needs claude-agent-sdk {_dotted(OLDEST)} or later, and {_dotted(version)} is "
            "installed: its disconnect() may leave the CLI alive, or never return, when a guard "
            "calls it. Upgrade it: pip install -U claude-agent-sdk"
        )


@cache
def installed() -> tuple[int, ...] | None:
    """The version of the SDK that is installed; None if that cannot be known."""
    from importlib import metadata

    try:
        said = metadata.version("claude-agent-sdk")
    except metadata.PackageNotFoundError:  # it may be vendored
        return None
    found = re.match(r"\d{1,9}(\.\d{1,9})*", said)
    return tuple(map(int, found[0].split("."))) if found else None


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
