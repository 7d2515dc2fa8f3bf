"""A process's pipes, made to look the same: read when asked, drained, remembered, closed.

anyio, asyncio, trio and `subprocess` each give a process's output in a form of their own. Here
each becomes a `Pipe` with two promises that the rest builds on. A `receive` that is cancelled
loses nothing: the bytes stay where the next one finds them. After `aclose` the descriptor is
gone, so that a writer gets SIGPIPE (or on uvloop, whose pipes are sockets, perhaps
ECONNRESET) and nobody waits for a grandchild that holds the other end.
Knows nothing of lines; may import `errors` and `_loops`.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

import anyio

from streamguard import _loops as loops
from streamguard.errors import ConfigError

# What a Linux pipe holds: one read empties it.
CHUNK: Final = 65536
# UTF-8 bytes that begin no character.
_CONTINUATIONS: Final = bytes(range(0x80, 0xC0))


class Pipe(Protocol):
    """The reading end of a pipe."""

    async def receive(self) -> bytes:
        """Some bytes, as soon as there are any; none at the end, or once it was closed."""
        ...

    async def aclose(self) -> None:
        """Close the descriptor; a `receive` that waits returns. Waits for nobody outside."""
        ...


def pipe_of(stream: Any, name: str) -> Pipe:
    """The process's `stream` as a Pipe. ConfigError if it is none that we know."""
    # Told apart by what they can do: a wrapper that can the same is as good.
    if hasattr(stream, "receive_some"):
        return _TrioPipe(stream)
    if hasattr(stream, "receive"):
        return _AnyioPipe(stream)
    if isinstance(stream, asyncio.StreamReader):
        return _AsyncioPipe(stream)
    if hasattr(stream, "fileno"):
        return _FilePipe(stream)
    if stream is None:
        raise ConfigError(f"the process's {name} is no pipe: start it with {name}=PIPE")
    raise ConfigError(
        f"the process's {name} is a {type(stream).__qualname__}, which streamguard cannot read: "
        "it takes processes of anyio, asyncio, trio and subprocess.Popen"
    )


async def close_writer(stream: Any) -> None:
    """Close a process's stdin, of whichever make. That its reader is gone already is no error."""
    close: Callable[[], Awaitable[object] | object]
    close = stream.aclose if hasattr(stream, "aclose") else stream.close
    with contextlib.suppress(OSError):
        result = close()
        if inspect.isawaitable(result):
            await result


class _AsyncioPipe:
    """A StreamReader. It reads ahead by its own bound (`limit=`, 64 KiB, twice), not further."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    async def receive(self) -> bytes:
        return await self._reader.read(CHUNK)

    async def aclose(self) -> None:
        _close_transport(self._reader)


class _AnyioPipe:
    """What anyio makes of a StreamReader, or of a trio stream."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def receive(self) -> bytes:
        try:
            data: bytes = await self._stream.receive(CHUNK)
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            return b""
        return data

    async def aclose(self) -> None:
        # First, because a native cancel may end the next line; on asyncio anyio itself leaves
        # the descriptor open until the whole process is closed.
        _close_transport(getattr(self._stream, "_stream", None))
        await self._stream.aclose()


def _close_transport(reader: Any) -> None:
    """Close what feeds a StreamReader, which has no public way to it. Its pull then ends."""
    transport = getattr(reader, "_transport", None)
    if transport is not None:
        transport.close()


class _TrioPipe:
    """A trio ReceiveStream."""

    def __init__(self, stream: Any) -> None:
        import trio

        self._stream = stream
        self._closed_error = trio.ClosedResourceError

    async def receive(self) -> bytes:
        try:
            data: bytes = await self._stream.receive_some(CHUNK)
        except self._closed_error:
            return b""
        return data

    async def aclose(self) -> None:
        await self._stream.aclose()


class _FilePipe:
    """A file object of subprocess.Popen, read past its buffer, without a thread.

    Through a descriptor of our own, made non-blocking: a loop must not wait on one that its
    owner may close meanwhile (uvloop then aborts the whole program). The child's end is
    another open file, and stays as it is.
    """

    def __init__(self, file: Any) -> None:
        self._file = file
        self._fd: int | None = None
        self._is_closed = False
        self._waiting: anyio.CancelScope | None = None
        self._left: anyio.Event | None = None

    async def receive(self) -> bytes:
        if self._fd is None:
            if self._is_closed or self._file.closed:
                return b""
            self._fd = os.dup(self._file.fileno())
            os.set_blocking(self._fd, False)
        while await self._readable(self._fd):
            with contextlib.suppress(BlockingIOError):  # woken for nothing
                return os.read(self._fd, CHUNK)
        return b""

    async def _readable(self, fd: int) -> bool:
        """Wait until there is something to read. False if it was closed meanwhile."""
        left = anyio.Event()
        try:
            with anyio.CancelScope() as waiting:
                self._waiting, self._left = waiting, left
                await anyio.wait_readable(fd)
            return not self._is_closed
        finally:
            self._waiting = None
            left.set()

    async def aclose(self) -> None:
        self._is_closed = True
        try:
            if self._waiting is not None and self._left is not None:
                self._waiting.cancel()
                await self._left.wait()
        finally:
            self._close_ours()
            self._file.close()

    def __del__(self) -> None:
        self._close_ours()

    def _close_ours(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


class Remembered:
    """The last bytes that came, up to a limit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._data = bytearray()
        self._is_cut = False

    def add(self, chunk: bytes) -> None:
        """Remember `chunk`, and forget what is now too old."""
        self._data += chunk
        if (excess := len(self._data) - self._limit) > 0:
            del self._data[:excess]
            self._is_cut = True

    def text(self) -> str:
        """What is remembered, beginning with a whole character."""
        data = self._data.lstrip(_CONTINUATIONS) if self._is_cut else self._data
        return data.decode(errors="replace")


class Drain:
    """Empties a pipe in a task of its own, so that its writer never blocks on it.

    The task belongs to the loop, not to whoever asks first: a scope that cancels a pull must not
    end it. It knows nothing of the source that it works for, so that can be collected (O7).
    """

    def __init__(self, pipe: Pipe, into: Remembered) -> None:
        self._pipe = pipe
        self._into = into
        self._loop: loops.Loop | None = None
        self._scope: anyio.CancelScope
        self._over: anyio.Event

    def start(self) -> None:
        """Begin, on the loop that runs now. Returns at once."""
        self._scope = anyio.CancelScope()
        self._over = anyio.Event()
        self._loop = loops.current()
        self._loop.spawn(self._run)

    async def _run(self) -> None:
        try:
            with self._scope:
                while chunk := await self._pipe.receive():
                    self._into.add(chunk)
        except Exception as error:  # noqa: BLE001 - nobody waits for this task; the tail says it
            self._into.add(f"\n[streamguard could read no further: {error!r}]\n".encode())
        finally:
            self._over.set()

    async def settle(self, seconds: float) -> None:
        """Wait until all has been read, but no longer than `seconds`."""
        if self._loop is not None:
            with anyio.move_on_after(seconds):
                await self._over.wait()

    async def aclose(self) -> None:
        """End the task and close the pipe."""
        try:
            if self._loop is not None:
                self._scope.cancel()
                await self._over.wait()
        finally:
            await self._pipe.aclose()

    def abandon(self) -> None:
        """End the task soon; for a finaliser, so from any thread, and with the loop gone."""
        if self._loop is not None and not self._over.is_set():
            with contextlib.suppress(RuntimeError):
                self._loop.submit(self._scope.cancel)
