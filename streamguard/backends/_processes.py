"""The process behind a client: one way to find it, whoever has made the client.

A client says its pid with a method `get_subprocess_pid()`. If it has none, or that raises or gives
None, the private attributes are read in which the clients of known SDKs keep their process. What
cannot be found is None, never an error: a guard must not fail for it.

A process object goes before its bare pid: it knows whether the process has ended already, and then
the pid may be another's. Imports nothing of an SDK; `process.table` when a pid has to be proven ours.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any, Final, cast

from streamguard.errors import ENDS_THE_PROGRAM

_PLACES: Final = (
    ("_transport", "_process"),  # claude-agent-sdk: the client
    ("_codex", "_client", "_sync", "_proc"),  # openai-codex: a thread, a turn's handle
    ("_client", "_sync", "_proc"),  # ... the client
    ("_client", "_proc"),  # ... the client that is not async
    ("_sync", "_proc"),  # ... the app-server's own
)
# Where a client that says its pid may have the process itself.
_OBJECTS: Final = ("_process", "process", "_proc", "proc")


def process_of(client: object) -> Any:
    """The process object behind `client`, or only its pid; None as long as there is none."""
    held = _held_by(client)
    said = number_of(given_at_once(_at(client, ("get_subprocess_pid",))))
    if said is None:
        return held
    objects = (held, *(_at(client, (name,)) for name in _OBJECTS))
    return next((each for each in objects if number_of(each) == said), said)


def pid_of(client: object) -> int | None:
    """The pid behind `client`; None if there is none, or its process is known to have ended."""
    process = process_of(client)
    return None if has_ended(process) else number_of(process)


def live_process_of(client: object) -> Any:
    """As `process_of`, of any client: only what lives, and what we, or ours, have started.

    A client that nobody knows may call a pid what is one of another machine or container, or keep
    the process of an earlier turn.
    """
    process = process_of(client)
    pid = number_of(process)
    if pid is None or has_ended(process) or sys.platform == "win32":
        return None
    from streamguard.process import procfs
    from streamguard.process.table import descends_from_us

    if not procfs.is_there() and hasattr(process, "returncode"):
        return process  # nothing here tells who has started whom, but this is no bare number
    stat = procfs.read_stat(pid)
    is_zombie = stat is not None and stat.is_dead
    return process if descends_from_us(pid) and not is_zombie else None


def has_ended(process: object) -> bool:
    """Whether a process object says that it has ended. A bare pid says nothing."""
    return isinstance(getattr(process, "returncode", None), int)


def number_of(process: object) -> int | None:
    """The pid of a process object, or the pid that it is."""
    pid: object = process if isinstance(process, int) else getattr(process, "pid", None)
    is_pid = isinstance(pid, int) and not isinstance(pid, bool) and pid > 0
    return cast("int", pid) if is_pid else None


def given_at_once(function: object) -> object:
    """What `function` gives, sync or async, if it has nothing to wait for; else None."""
    if not callable(function):
        return None
    try:
        given = cast("Callable[[], object]", function)()
        if not inspect.iscoroutine(given):
            return given
        try:
            given.send(None)
        except StopIteration as done:
            return cast("object", done.value)
        finally:
            given.close()
    except ENDS_THE_PROGRAM:
        raise
    except BaseException:  # noqa: BLE001, S110 - whatever an SDK's inside looks like, or a user's
        pass
    return None


def _held_by(client: object) -> Any:
    for place in _PLACES:
        process = _at(client, place)
        if number_of(process) is not None and not isinstance(process, int):
            return process
    return None


def _at(thing: Any, names: tuple[str, ...]) -> Any:
    for name in names:
        try:
            thing = getattr(thing, name, None)
        except ENDS_THE_PROGRAM:
            raise
        # A property may raise what it likes. What looks like a cancellation is some future's: none
        # is ever delivered to a plain function.
        except BaseException:  # noqa: BLE001
            return None
    return thing
