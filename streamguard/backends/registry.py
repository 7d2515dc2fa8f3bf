"""Whose message is this? Finds the backend that wrote a message, importing no SDK (S1).

One package per backend beside this module. Its `reading` has `read(message)`, the pure reader, and
`ALWAYS_ENDS_TURNS`; where not all that its SDK yields is a message, `is_message(kind)`; where
its client's streams must be set right, in how they end or in how they are left, `adapted(stream)`.
It may import `signals` and `errors`, knows no other backend, and is imported only when its SDK
or one of its messages was seen or when it was asked for. What gives a backend away *before*
that is kept here (its root package) and in `_shapes` (the shape of a dict or a tuple).

Where an SDK has clients, `client` says what such a client can be ended with: `of_client(client)`.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import import_module
from types import ModuleType
from typing import Any, Final, TypeAlias, TypeVar, cast

from streamguard._base.near import near
from streamguard.backends._shapes import NAMES_BY_SHAPE, name_by_shape
from streamguard.errors import ConfigError
from streamguard.signals import SIGNALS, Reader, Signal

S = TypeVar("S")
_ROOM = __name__.rpartition(".")[0]


@dataclass(frozen=True, slots=True)
class Backend:
    """One kind of stream: how its messages are read, and what its end means.

    `always_ends_turns`: an end without `TurnEnded` is a truncation, not an end.
    """

    name: str
    read: Reader
    always_ends_turns: bool = False

    @property
    def is_known(self) -> bool:
        """Whether it is one that `read=` can name, or a single call, and no reader of the user's."""
        return self.name in NAMES or self.name == CALL


@dataclass(frozen=True, kw_only=True, slots=True)
class Client:
    """What can end a client, as its backend knows it. A field is None if the client does not have it.

    `disconnect`, `interrupt`: functions of no arguments, sync or async.
    `process`: a plain function that gives the process, or None as long as there is none.
    `outlives_interrupt`: the client still works after `interrupt` has ended a turn.
    """

    disconnect: Callable[[], Any]
    interrupt: Callable[[], Any] | None = None
    process: Callable[[], Any] | None = None
    outlives_interrupt: bool = False


Readable: TypeAlias = str | Reader | ModuleType | Backend

_BY_ROOT_PACKAGE = {
    "acp": "acp",
    "agents": "openai_agents",
    "anthropic": "anthropic",
    "claude_agent_sdk": "claude",
    "google.adk": "google_adk",
    "google.genai": "google_genai",
    "langgraph_sdk": "langgraph",
    "litellm": "litellm",
    "openai": "openai",
    "openai_codex": "codex",
    "pydantic_ai": "pydantic_ai",
}

_ADAPTED = {"agents": "openai_agents", "litellm": "litellm"}
_WITH_CLIENTS = {"acp", "claude", "codex"}
NAMES = frozenset(_BY_ROOT_PACKAGE.values()) | NAMES_BY_SHAPE
"""What `read=` can name."""
CALL: Final = "call"
"""What `guarded_call` awaits."""


def find(message: object) -> Backend | None:
    """The backend that wrote `message`, or None if it is unknown.

    For anything but dicts and tuples the answer depends on `type(message)` alone, so callers
    may keep it per type. A dict or a tuple has no type of its own: ask again for each one
    until one is recognised, since an unknown line says nothing about the next.
    """
    if (name := name_by_shape(message)) is not None:
        return _by_name(name)
    # A type is hashable; mypy looks for that at its instances.
    return _by_type(type(message))  # type: ignore[arg-type]


def adapted(source: S) -> S:
    """Give `source` in the form in which a guard iterates it.

    A client's stream may tell its own end wrongly, or leave a run behind when it is closed.
    """
    name = _ADAPTED.get(_home_of(source).partition(".")[0])
    return source if name is None else cast("S", _part(name, "reading").adapted(source))


def resolve(read: Readable) -> Backend | None:
    """The Backend that `read=` names; None for "auto", which asks `find` per stream.

    Accepts a backend's name, its module, its reader, any function of one message, or a
    Backend. Anything else raises ConfigError.
    """
    match read:
        case "auto":
            return None
        case Backend():
            return read
        case str():
            return _by_name(read)
        case ModuleType():
            return _of_module(read)
        case _ if callable(read):
            return _of_callable(read)
        case _:
            raise ConfigError(f"read={read!r} is not a reader; {_ACCEPTED}")


def of_client(client: object) -> tuple[Backend, Client] | None:
    """What the client's backend knows of it; None if the backend is unknown.

    ConfigError for a client that cannot be guarded.
    """
    # A type is hashable; mypy looks for that at its instances.
    backend = _by_type(type(client))  # type: ignore[arg-type]
    if backend is None or backend.name not in _WITH_CLIENTS:
        return None
    known: Client | None = _part(backend.name, "client").of_client(client)
    return None if known is None else (backend, known)


# Modules by the files that generators were written in.
_HOMES: Final[dict[str, str]] = {}
_MANY_HOMES: Final = 1000


def is_own(backend: Backend, stream: object) -> bool:
    """Whether `stream` is of the backend's own making, or of ours for it, and no user's."""
    root = _home_of(stream).partition(".")[0]
    return root == "streamguard" or _BY_ROOT_PACKAGE.get(root) == backend.name


def _home_of(stream: object) -> str:
    """The module that made it: of a generator the one it was written in."""
    code = getattr(stream, "ag_code", None)
    if code is None:
        return str(type(stream).__module__)
    # By its file, since a frame that was looked at stays with its generator: 150 bytes of each stream.
    file = str(code.co_filename)
    if (home := _HOMES.get(file)) is None:
        frame = cast("Any", stream).ag_frame
        if frame is None:  # it is over
            return str(type(stream).__module__)
        home = str(frame.f_globals.get("__name__"))
        if not file.startswith("<"):  # `exec` writes many modules in one "<string>"
            if len(_HOMES) >= _MANY_HOMES:
                _HOMES.clear()
            _HOMES[file] = home
    return home


_ACCEPTED = (
    'read= takes "auto", the name of a backend ("claude"), its module, or a function that '
    "takes one message and returns a signal, several, or None"
)


# --- by type ------------------------------------------------------------------------------


@lru_cache(maxsize=256)  # asked per message; bounded, as types can be made at run time
def _by_type(kind: type) -> Backend | None:
    # The mro, because a user may subclass a backend's message; the exact root package,
    # because `claude_agent_sdk_extras` is somebody else's.
    for base in kind.__mro__:
        root, _, rest = str(base.__module__).partition(".")
        if root == "google":  # packages of many makers share it: two names are the package
            root = f"{root}.{rest.partition('.')[0]}"
        if root == "streamguard":
            return _NEUTRAL
        if name := _BY_ROOT_PACKAGE.get(root):
            # An API's package yields more than turns (pages, say), and `agents` may be anybody's.
            is_message = getattr(_part(name, "reading"), "is_message", None)
            if is_message is None or is_message(base):
                return _by_name(name)
    return None


def _read_neutral(message: Any) -> Signal | Iterable[Signal] | None:
    if isinstance(message, SIGNALS):
        return message
    signals: Iterable[Signal] | None = getattr(message, "signals", None)
    return signals


# A signal that is yielded as a message speaks for itself; scripted messages carry theirs.
# Such a stream has no habits of its own, so its end is a normal end.
_NEUTRAL = Backend("neutral", _read_neutral)


# --- by name, module, function ------------------------------------------------------------


@cache
def _by_name(name: str) -> Backend:
    if name not in NAMES:
        names = sorted(NAMES)
        hint = near(name, names, "").replace("did", " Did", 1)
        raise ConfigError(
            f"read={name!r} is not a backend that is known.{hint} The backends are {', '.join(names)}; "
            f"{_ACCEPTED}"
        )
    return _of_module(_part(name, "reading"), name)


def _part(name: str, part: str) -> ModuleType:
    return import_module(f"{_ROOM}.{name}.{part}")


def _of_module(module: ModuleType, name: str = "") -> Backend:
    read = getattr(module, "read", None)
    if not callable(read):
        raise ConfigError(f"module {module.__name__} has no function read(message); {_ACCEPTED}")
    name = name or module.__name__.rpartition(".")[2]
    return Backend(name, cast("Reader", read), bool(getattr(module, "ALWAYS_ENDS_TURNS", False)))


def _of_callable(read: Callable[..., Any]) -> Backend:
    if inspect.iscoroutinefunction(read) or inspect.isasyncgenfunction(read):
        raise ConfigError(f"read={read!r} is async, but a reader is a plain function")
    if isinstance(read, type):
        raise ConfigError(f"read={read!r} is a class; {_ACCEPTED}")
    # `read=claude.read` must mean the same as `read=claude`, habits included (T10).
    module = str(getattr(read, "__module__", ""))
    for name in (module.rpartition(".")[0], module):  # a backend may be a package of several
        if getattr(sys.modules.get(name), "read", None) is read:
            return _of_module(sys.modules[name])
    return Backend(getattr(read, "__qualname__", type(read).__qualname__), read)
