"""What a process writes, as a stream: `lines(process)` and `json_lines(process)`.

A source for guards, for those who start a command line themselves: its stdout, line by line, on
every loop and for every kind of process object. Lines are bounded, stderr is emptied meanwhile, the
end of both is remembered for the error. stdout is read only when a line is asked for, so a slow
consumer slows the process. The process itself stays its owner's: it is neither waited for nor
ended here; a guard around the stream supervises it.
May import `pipes`, `splitter` and `errors`; knows nothing of limits in time.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar, cast

import anyio

from streamguard._base.calling import checked
from streamguard._base.defaults import LONGEST_LINE
from streamguard._lines.pipes import Drain, Pipe, Remembered, close_writer, pipe_of
from streamguard._lines.splitter import Splitter
from streamguard.errors import ConfigError, InvalidLineError, LineTooLongError, Tail

T = TypeVar("T")
Message: TypeAlias = dict[str, Any]
OnInvalid: TypeAlias = Literal["skip", "raise"] | Callable[[str], Message | None]

# An image of 5 MB in a tool's result is a line of 6.7 MB; the 1 MiB that SDKs allow is met in
# practice. What is longer still is more likely a process gone wild than a message.
TAIL: Final = 8 * 1024
# How long the end waits for stderr's: what a dying process says there comes with its stdout's
# end, but a grandchild may hold stderr for ever.
_STDERR_GRACE: Final = 0.25


class HasPipes(Protocol):
    """A process of anyio, asyncio, trio or `subprocess.Popen`, stdout a pipe nobody read yet."""

    @property
    def pid(self) -> int: ...
    @property
    def stdin(self) -> Any: ...
    @property
    def stdout(self) -> Any: ...
    @property
    def stderr(self) -> Any: ...


@checked
def lines(
    process: HasPipes,
    *,
    max_line: int = LONGEST_LINE,
    tail: int = TAIL,
    close_stdin: bool = False,
    errors: str = "replace",
) -> LineSource[str]:
    r"""The lines that `process` writes to stdout, each without its `\n` or `\r\n`.

    Blank lines are lines; so is what comes after the last newline, unless it is nothing. Bytes
    that are no UTF-8 are decoded as `errors` says (`"surrogateescape"` keeps them). stderr, if
    it is a pipe, is emptied from the first pull on. `tail` bytes of each are remembered.
    `close_stdin` closes stdin at the first pull: some command lines read it although they were
    given a prompt, and wait for its end.

    A line of more than `max_line` bytes raises LineTooLongError, as soon as it is too long.
    """
    return _TextLines(process, max_line, tail, errors, close_stdin=close_stdin)


@checked
def json_lines(
    process: HasPipes,
    *,
    on_invalid: OnInvalid = "skip",
    max_line: int = LONGEST_LINE,
    tail: int = TAIL,
    close_stdin: bool = False,
) -> LineSource[Message]:
    """The JSON objects that `process` writes to stdout, one on each line.

    Command lines also print notices there, so by default any other line is skipped. It is counted
    (`skipped`), it stays in the `tail`, and it is no progress for a guard. `on_invalid="raise"`
    raises InvalidLineError for it; a function is called with it, and gives a message in its
    place or None. Blank lines are nothing. Bytes that are no UTF-8 become U+FFFD. `max_line`, `tail` and
    `close_stdin` are as in `lines`.
    """
    return _JsonLines(process, max_line, tail, on_invalid, close_stdin=close_stdin)


class LineSource(AsyncIterator[T]):
    """What `lines` and `json_lines` give: iterate it, pipe it into a guard, close it.

    A pull that is cancelled loses nothing: half a line stays here, and the next pull goes on. So
    it does after a LineError. `aclose` closes stdout and stderr, and waits for nobody.
    """

    skipped: int
    """How many lines were passed over as invalid."""

    def __init__(self, process: HasPipes, max_line: int, tail: int, *, close_stdin: bool) -> None:
        if not hasattr(process, "pid"):
            raise ConfigError(
                f"{process!r} is no process: start it first, with stdout=PIPE, and pass the "
                "process object itself, of asyncio, anyio, trio or subprocess"
            )
        _check_size("max_line", max_line, 1)
        _check_size("tail", tail, 0)
        self._process = process  # asyncio kills one that nobody holds
        # The pid alone: a process's own repr has its arguments, and so the prompt (E3).
        self._name = f"process {process.pid}"
        self._written, self._complaints = Remembered(tail), Remembered(tail)
        self._splitter = Splitter(max_line)
        self._stdout: Pipe = pipe_of(process.stdout, "stdout")
        self._drain: Drain | None = None
        if process.stderr is not None:
            self._drain = Drain(pipe_of(process.stderr, "stderr"), self._complaints)
        self._stdin = process.stdin if close_stdin else None
        self._number = 0
        self.skipped = 0
        self._has_begun = False
        self._is_at_end = self._has_ended = False
        self._is_settled = False
        self._is_closed = False

    @abstractmethod
    def _message(self, line: bytes) -> T | None:
        """What the consumer gets for `line`; None is nothing."""

    @property
    def guarded_process(self) -> HasPipes:
        """The process: what a guard watches, and ends on a verdict, unless it is given another."""
        return self._process

    @property
    def is_at_end(self) -> bool:
        """Whether stdout has ended, by itself."""
        return self._has_ended

    @property
    def tail(self) -> Tail:
        """The last of what the process wrote to stdout and stderr, as far as it was read."""
        return Tail(self._written.text(), self._complaints.text())

    def __repr__(self) -> str:
        return f"<{type(self).__name__.strip('_')} of {self._name}>"

    async def __anext__(self) -> T:
        ready = self._splitter.ready
        while True:
            while not ready:
                await self._fill()
            line = ready.popleft()
            self._number += 1
            if line is None:
                raise LineTooLongError(
                    f"line {self._number:,} of {self._name} is longer than "
                    f"{self._splitter.max_line:,} bytes (max_line); "
                    "the next pull continues after it",
                    number=self._number,
                    tail=self.tail,
                )
            if (message := self._message(line)) is not None:
                return message

    async def _fill(self) -> None:
        """Read once. Nothing may be awaited between bytes that came and their being kept."""
        if not self._has_begun:
            self._has_begun = True
            if not self._is_closed:
                if self._drain is not None:
                    self._drain.start()
                await self._close_stdin()
        if self._is_at_end:
            # Let the tail have stderr's end as well.
            if self._drain is not None and not self._is_settled:
                await self._drain.settle(_STDERR_GRACE)
            self._is_settled = True
            raise StopAsyncIteration
        chunk = await self._stdout.receive()
        if self._is_closed:
            raise StopAsyncIteration
        if chunk:
            self._written.add(chunk)
            self._splitter.feed(chunk)
        else:
            self._is_at_end = self._has_ended = True
            self._splitter.end()

    async def _close_stdin(self) -> None:
        stdin, self._stdin = self._stdin, None
        if stdin is not None:
            await close_writer(stdin)

    async def aclose(self) -> None:
        """Close the process's stdout and stderr; a pull under way ends. The process is yours."""
        if self._is_closed:
            return
        self._is_closed = self._is_at_end = self._is_settled = True
        self._splitter.ready.clear()
        # The stack, because a native cancel comes through the shield: all are closed even then.
        with anyio.CancelScope(shield=True):
            async with AsyncExitStack() as closing:
                closing.push_async_callback(self._close_stdin)
                if self._drain is not None:
                    closing.push_async_callback(self._drain.aclose)
                closing.push_async_callback(self._stdout.aclose)

    def __del__(self) -> None:
        # After a bare `break` nobody closes us, but the drain must not stay (O7).
        if (drain := getattr(self, "_drain", None)) is not None:
            drain.abandon()


class _TextLines(LineSource[str]):
    def __init__(
        self, process: HasPipes, max_line: int, tail: int, errors: str, *, close_stdin: bool
    ) -> None:
        super().__init__(process, max_line, tail, close_stdin=close_stdin)
        self._errors = errors

    def _message(self, line: bytes) -> str:
        return line.decode(errors=self._errors)


class _JsonLines(LineSource[Message]):
    def __init__(
        self,
        process: HasPipes,
        max_line: int,
        tail: int,
        on_invalid: OnInvalid,
        *,
        close_stdin: bool,
    ) -> None:
        if on_invalid not in ("skip", "raise") and not callable(on_invalid):
            raise ConfigError(
                f'on_invalid={on_invalid!r}: it is "skip", "raise", or a function of the line'
            )
        super().__init__(process, max_line, tail, close_stdin=close_stdin)
        self._on_invalid = on_invalid

    def _message(self, line: bytes) -> Message | None:
        text = line.decode(errors="replace")
        try:
            message = json.loads(text)
        except (ValueError, RecursionError) as error:
            return self._instead_of(text, error)
        if isinstance(message, dict):
            return cast("Message", message)
        return self._instead_of(text, TypeError(f"it is a {type(message).__name__}"))

    def _instead_of(self, text: str, reason: Exception) -> Message | None:
        if not text or text.isspace():
            return None
        if callable(self._on_invalid):
            return self._on_invalid(text)
        if self._on_invalid == "raise":
            raise InvalidLineError(
                f"line {self._number:,} of {self._name} is no JSON object: {reason}",
                number=self._number,
                tail=self.tail,
            ) from reason
        self.skipped += 1
        return None


def _check_size(name: str, value: int, least: int) -> None:
    # Bytes are whole; True is an int, but no size.
    if type(value) is not int or value < least:
        raise ConfigError(f"{name}={value!r}: it is a number of bytes, {least} or more")
