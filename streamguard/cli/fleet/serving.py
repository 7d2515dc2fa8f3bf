"""`streamguard fleet serve MODULE:HANDLER`: this process as a worker, until it is told to leave.

The first SIGTERM or SIGINT drains it: what it runs is handed on. The second one ends it at once, by the
kernel, whatever the handler does then. Its backends end with it, however it ends: a process beside it sees to that.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from streamguard._base import quoting
from streamguard._base.distribution import install
from streamguard._base.quoting import quoted
from streamguard.cli import EXIT_OK
from streamguard.cli.fleet import where
from streamguard.errors import ConfigError

if TYPE_CHECKING:
    import argparse

    from streamguard.fleet.engine import Handler
    from streamguard.fleet.local_engine import LocalEngine

_ENDING: Final = (signal.SIGTERM, signal.SIGINT)
_LOOPS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "asyncio": ("asyncio", {}),
    "uvloop": ("asyncio", {"use_uvloop": True}),
    "trio": ("trio", {}),
}
LOOPS: Final = tuple(_LOOPS)


def serve(asked: argparse.Namespace) -> int:
    """Be a worker. 0 when it has left in order."""
    _let_signals_end_us()
    _check_loop(asked.loop)
    handler = handler_of(asked.handler)
    _log_to_stderr()
    from streamguard.process.sentinel.sentinel import sentinel

    backends = sentinel()  # without a goodbye: what is still alive when we end ends with us
    import anyio

    backend, options = _LOOPS[asked.loop]
    with where.opened(asked.store) as store:
        store.live()  # what is wrong with the store is said at once, and not for ever
        anyio.run(partial(_work, store, handler, asked), backend=backend, backend_options=options)
    del backends
    return EXIT_OK


async def _work(store: Any, handler: Handler, asked: argparse.Namespace) -> None:
    import anyio

    from streamguard.fleet.local_engine import LocalEngine

    knobs = {name: value for name in _KNOBS if (value := getattr(asked, name)) is not None}
    engine = LocalEngine(store, **knobs)
    async with anyio.create_task_group() as beside:
        await beside.start(_drain_at_signal, engine)
        await engine.serve(handler, until_idle=asked.until_idle)
        beside.cancel_scope.cancel()
    logger.info("fleet: worker %s has stopped, and holds no session", engine.owner)


async def _drain_at_signal(engine: LocalEngine, *, task_status: Any) -> None:
    import anyio

    is_first = True
    with anyio.open_signal_receiver(*_ENDING) as received:
        task_status.started()
        async for number in received:
            _let_signals_end_us()  # from now on by the kernel, without us
            if not is_first:  # it had come before that
                os.kill(os.getpid(), number)
            is_first = False
            logger.info(
                "fleet: %s: handing over what runs; a second signal ends it at once", number.name
            )
            engine.drain()


def _let_signals_end_us() -> None:
    for number in _ENDING:
        signal.signal(number, signal.SIG_DFL)


def _check_loop(name: str) -> None:
    if name != "asyncio":
        try:
            importlib.import_module(name)
        except ImportError:
            raise ConfigError(f"--loop {name}: {name} is not installed: {install(name)}") from None


# --- the handler ------------------------------------------------------------------------------


def handler_of(said: str) -> Handler:
    """The coroutine function that `MODULE:NAME` means; the current folder is looked through first."""
    name, colon, path = said.partition(":")
    if not (colon and name and path):
        raise ConfigError(
            f"{quoting.name(said)!r}: write MODULE:HANDLER, such as workers:handle for the function handle in workers.py"
        )
    found: object = _module(name)
    for part in path.split("."):
        if not hasattr(found, part):
            raise ConfigError(
                f"{quoting.name(said)}: there is no {quoting.name(part)!r} in {quoting.name(name)}"
            )
        found = getattr(found, part)
    if not _is_coroutine_function(found):
        raise ConfigError(
            f"{quoting.name(said)} is {_kind(found)}: a handler is an `async def` that takes a lease"
        )
    return cast("Handler", found)


def _module(name: str) -> object:
    if (here := _here()) not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigError(
                f"there is no module {quoting.name(name)}, neither in this folder ({quoting.name(here)}) nor installed"
            ) from None
        raise ConfigError(_failed(name, error)) from None
    except Exception as error:  # noqa: BLE001 - whatever a module does when it is imported
        raise ConfigError(_failed(name, error)) from None


def _here() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return ""


def _failed(name: str, error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    at = f", {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    if isinstance(error, SyntaxError):
        at = f", {error.filename}:{error.lineno}"
    what = f"{type(error).__name__}: {error.msg if isinstance(error, SyntaxError) else error}"
    return f"{quoting.name(name)} cannot be imported: {quoted(what, 400)}{quoted(at)}"


def _is_coroutine_function(found: object) -> bool:
    call = cast("Callable[..., object] | None", getattr(found, "__call__", None))  # noqa: B004 - what it does
    return inspect.iscoroutinefunction(found) or (
        not inspect.isclass(found) and inspect.iscoroutinefunction(call)
    )


def _kind(found: object) -> str:
    if inspect.isclass(found):
        return "a class"
    if inspect.isasyncgenfunction(found):
        return "an async generator"
    if inspect.isfunction(found):
        return "a plain function"
    return f"an object of type {quoting.name(type(found).__name__)}"


# --- the log ----------------------------------------------------------------------------------

logger: Final = logging.getLogger("streamguard")


def _log_to_stderr() -> None:
    """Unless the handler's module has set up logging itself."""
    if logging.getLogger().handlers or logger.handlers:
        return
    to_stderr = logging.StreamHandler(sys.stderr)
    to_stderr.setFormatter(_QuotedLines("%(asctime)s %(levelname)s %(message)s"))
    logging.getLogger().addHandler(to_stderr)
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO)


class _QuotedLines(logging.Formatter):
    """Lines that command no terminal, whatever an error of a backend says."""

    def format(self, record: logging.LogRecord) -> str:
        return "\n".join(quoted(line) for line in super().format(record).split("\n"))


_KNOBS: Final = ("ttl", "flush", "limit", "claim", "attempts_without_progress")
