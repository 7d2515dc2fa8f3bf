"""What the blocks of the pages find: scripted backends under the names that pages use, and nothing real.

A name that a page uses and does not define is in `names()`. A backend's ready session is a scripted one that takes
the words of the real one; Claude's client is a FakeClient.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
import time
from collections.abc import Callable
from contextlib import asynccontextmanager
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any, Self

import aiostream
import anyio
import claude_agent_sdk
import pytest

import streamguard
from streamguard import Connection, session
from streamguard.backends import NAMES
from streamguard.testing import FakeClient, Script, done, message, opened, say
from tests.docs.recorded import record


class Scripted:
    """Whatever one asks of it, it is there: any attribute, called or not, awaited, entered, or a stream."""

    def __init__(self, *, messages: Callable[[], Any] | None = None) -> None:
        self._messages = messages or (lambda: Script(opened("s"), say("a"), done()))

    def __getattr__(self, name: str) -> Scripted:
        if name.startswith("_"):
            raise AttributeError(name)
        return Scripted(messages=self._messages)

    def __call__(self, *_: Any, **__: Any) -> Scripted:
        return Scripted(messages=self._messages)

    def __aiter__(self) -> Any:
        return aiter(self._messages())

    def __or__(self, operator: Any) -> Any:
        return self._messages() | operator

    def __iter__(self) -> Any:
        return iter((self, self))

    def __await__(self) -> Any:
        yield from anyio.lowlevel.checkpoint().__await__()
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await anyio.lowlevel.checkpoint()


class Client(FakeClient):
    """Claude's client, and the streams of others."""

    messages = responses = aio = Scripted()

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__(Script(opened("s"), say("a"), done()))


@asynccontextmanager
async def open_scripted(_point: Any) -> Any:
    def turn(prompt: str | None = None) -> Any:
        return Script(opened("s"), say("a"), done())

    yield Connection(turn)


@asynccontextmanager
async def open_lines(_point: Any) -> Any:
    """As a command line that writes JSON."""

    def turn(prompt: str | None = None) -> Any:
        return Script(message({"type": "assistant"}), message({"type": "result"}))

    yield Connection(turn)


@asynccontextmanager
async def open_pairs(_point: Any) -> Any:
    """As LangGraph with several modes."""

    def turn(prompt: str | None = None) -> Any:
        return Script(message(("updates", {})))

    yield Connection(turn)


# Of these packages, whatever a page imports is scripted; one of them may be installed.
ABSENT = ("acp", "agents", "aiohttp", "fastapi", "httpx", "litellm")


class Notification:
    """As Codex's app server sends them."""

    method = "turn/completed"


@asynccontextmanager
async def open_notifications(_point: Any) -> Any:
    def turn(prompt: str | None = None) -> Any:
        return Script(message(Notification()))

    yield Connection(turn)


OPENERS = {"langgraph": open_pairs, "codex.client_session": open_notifications} | dict.fromkeys(
    ("codex", "copilot", "gemini", "opencode", "qwen"), open_lines
)


def scripted_session(backend: str, real: Callable[..., Any]) -> Callable[..., Any]:
    """In place of a backend's `session`: takes its words alone."""
    signature = inspect.signature(real)

    @wraps(real)
    def made(*words: Any, **more: Any) -> Any:
        bound = signature.bind(*words, **more)
        prompt = bound.arguments.get("prompt")
        opener = OPENERS.get(f"{backend}.{real.__name__}", OPENERS.get(backend, open_scripted))
        return session(opener, prompt=prompt)

    return made


def install(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Nothing real is started, and files are written to `folder`."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MYAPP_IDLE", "5m")
    for backend in NAMES:
        module = import_module(f"streamguard.backends.{backend}")
        for name in ("session", "client_session"):
            if (real := getattr(module, name, None)) is not None:
                monkeypatch.setattr(module, name, scripted_session(backend, real))
    monkeypatch.setattr(claude_agent_sdk, "ClaudeSDKClient", Client)
    for module in ABSENT:
        monkeypatch.setitem(sys.modules, module, Scripted())
    of_httpx = Scripted(messages=lambda: Script(message('data: {"type": "done"}')))
    monkeypatch.setitem(sys.modules, "httpx", of_httpx)
    of_aiohttp = Scripted(messages=lambda: Script(message(b'data: {"type": "done"}\n')))
    monkeypatch.setitem(sys.modules, "aiohttp", of_aiohttp)
    notified = Scripted(messages=lambda: Script(message(Notification())))
    monkeypatch.setitem(sys.modules, "openai_codex", notified)
    (folder / "flows").mkdir()
    (folder / "flows/build.yaml").write_text("timeouts: {step: 900000}\nsteps: []\n")
    record(folder / "runs/17")


class Backend:
    """Somebody's own; it has no process yet."""

    process = None

    def messages(self, _prompt: str) -> Any:
        return Script(opened("s"), say("a"), done())

    async def cancel(self) -> None:
        pass


class Queue:
    """One message, and then nothing for ever."""

    def __init__(self) -> None:
        self._left = ["a"]

    async def get(self) -> Any:
        return self._left.pop() if self._left else await anyio.sleep_forever()


async def generator() -> Any:
    yield "a"


async def ask(*_: Any) -> str:
    await anyio.sleep(1)
    return "answer"


def nothing(*_: Any, **__: Any) -> None:
    pass


async def gate() -> str | None:
    return None


async def close() -> None:
    pass


def names() -> dict[str, Any]:
    """The names for one page: the public ones, and what pages call their own."""
    own = {
        "open_claude": open_scripted,
        "open_agent": open_scripted,
        "open_backend": open_scripted,
        "open": open_scripted,
        "stream": Script(opened("s"), say("a"), done()),
        "client": Client(),
        "Client": Client,
        "aiostream": aiostream,
        "aiostream_stream": aiostream.stream.just("a"),
        "asyncio": asyncio,
        "backend": Backend(),
        "ClaudeAgentOptions": claude_agent_sdk.ClaudeAgentOptions,
        "ClaudeSDKClient": Client,
        "generator": generator,
        "options": claude_agent_sdk.ClaudeAgentOptions(),
        "ask": ask,
        "git": ask,
        "done": 3,
        "queue": Queue(),
        "pid": 4711,
        "url": "http://127.0.0.1:9/",
        "resets_at": time.time() + 600,
        "record": logging.makeLogRecord(
            {"msg": "coder: ending", "streamguard": {"limit": "idle"}}
        ),
        "close": close,
        "gate": gate,
        "time": time,
        "prompt": "Fix issue 7",
        "issue_id": "7",
        "task_id": "7",
        "query": "cats",
        "model": "gpt-5",
        "messages": [],
        "contents": [],
        "inputs": {},
        "config": {},
        "files": [],
    }
    own |= dict.fromkeys(("handle", "report", "notify", "page", "make_ping"), nothing)
    for name in (
        "agent",
        "container",
        "observer",
        "span",
        "deps",
        "graph",
        "mcp",
        "message",
        "runner",
    ):
        own[name] = Scripted()
    public = {name: getattr(streamguard, name) for name in streamguard.__all__}
    return {**public, **own, "__name__": "page"}
