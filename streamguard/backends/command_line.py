"""A command line that writes JSON lines, as a session: one process for each prompt.

    open   start it, hand it the prompt over stdin, read its lines
    leave  give it the time to exit by itself where its turn or its output has ended; else end its tree

Where a turn fails, the guard ends the process with all that it started before anything is opened
again: two owners of one session corrupt it (D5). The prompt goes over stdin, since an argument is
bounded in length, seen by everybody on the machine, and taken for an option if it begins with a dash.
What is said of a backend here is its command; everything else is the same for all of them.
"""

from __future__ import annotations

import subprocess
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from os import PathLike
from typing import Final, TypeAlias
from uuid import uuid4

import anyio

from streamguard._base import defaults
from streamguard._base.calling import checked
from streamguard._lines.output import LineSource, Message, json_lines
from streamguard.process import ProcessTree, marked_env
from streamguard.sessions.points import Connection, ResumePoint
from streamguard.sessions.session import Session, session

Environ: TypeAlias = Mapping[str, str] | None

# A CLI whose turn is over has only its own farewells to do.
LEAVING: Final = 5.0


class CommandLine:
    """An agent's command: `words` that make it write JSON lines, `resume` that takes up a session.

    `last` ends the words: that the prompt is on stdin, for a command that wants to be told.
    `environment` adds to its variables. `begins` is for one that does not say a session's id before
    its end, and takes one for a new session, too: that gets an id from here, and this line says so.
    """

    def __init__(
        self,
        command: str,
        *words: str,
        resume: str = "--resume",
        last: tuple[str, ...] = (),
        environment: Callable[[Environ], Environ] = lambda env: env,
        begins: Callable[[str], Message] | None = None,
    ) -> None:
        self._command = command
        self._words = words
        self._resume = resume
        self._last = last
        self._environment = environment
        self._begins = begins

    @checked
    def session(
        self,
        *options: str,
        prompt: str | None = None,
        point: ResumePoint | None = None,
        command: str | Sequence[str] | None = None,
        cwd: str | PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        exclusive: bool = True,
    ) -> Session[Message]:
        """A session of this command line: each prompt a process, each one resumed by the session's id.

        Args:
            options: For the command, such as `"--model", "..."`.

            prompt: What is asked first.

            point: Where an earlier session stood (`chat.point`), to go on from there.

            command: The executable, or the words that start it; its usual name if left out.

            cwd: The folder to work in. Some agents keep their sessions by folder.

            env: Its whole environment, this process's own if there is none.

            exclusive: Whether no two programs may be in one session at once (`SessionHeldError`).
        """
        opening = self.open(*options, command=command, cwd=cwd, env=env)
        name = self._command if exclusive else None
        return session(opening, prompt=prompt, point=point, exclusive=name)

    @checked
    def open(
        self,
        *options: str,
        command: str | Sequence[str] | None = None,
        cwd: str | PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> OpenCli:
        """`open` for `streamguard.session` and `reconnecting_resume`; arguments as for `session`."""
        command = self._command if command is None else command
        # A text is one executable, never a line for a shell.
        started = (command,) if isinstance(command, str) else tuple(command)

        def words(token: str | None) -> Sequence[str]:
            resumed = (self._resume, token) if token else ()
            return (*started, *self._words, *options, *resumed, *self._last)

        return OpenCli(words, cwd, self._environment(env), self._begins)


@dataclass(frozen=True)
class OpenCli:
    """`open` for a session of a command line: called with a point, it gives a `Connection`."""

    words: Callable[[str | None], Sequence[str]]
    cwd: str | PathLike[str] | None = None
    env: Mapping[str, str] | None = None
    begins: Callable[[str], Message] | None = None

    def __call__(self, point: ResumePoint) -> AbstractAsyncContextManager[Connection[Message]]:
        """The process of one attempt, with its prompt handed over."""
        if point.prompt is None:
            raise TypeError(
                "a command line wants a prompt: give one with session(prompt=...), or ask it with "
                "chat.ask(...) instead of iterating the chat itself"
            )
        if self.begins is None or point.token is not None:
            return self._running(self.words(point.token), point.prompt, point)
        token = str(uuid4())
        return self._running(self.words(token), point.prompt, point, self.begins(token))

    @asynccontextmanager
    async def _running(
        self, words: Sequence[str], prompt: str, point: ResumePoint, begin: Message | None = None
    ) -> AsyncGenerator[Connection[Message], None]:
        process = await anyio.open_process(
            [str(word) for word in words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.cwd,
            env=marked_env(self.env),
        )
        with ProcessTree.adopt(process) as tree:
            lines = json_lines(process)
            has_ended = False
            try:
                assert process.stdin is not None
                # It may be gone before it has read: its exit status says more than this would.
                with suppress(
                    anyio.BrokenResourceError, OSError
                ):  # anyio 4.8 lets asyncio's own out
                    await process.stdin.send(prompt.encode())
                    await process.stdin.aclose()
                source = lines if begin is None else _Begun(begin, lines)
                yield Connection(source, process=tree)
                # Who has got the turn's last message may leave before its output has ended.
                activity = point.activity
                is_between_turns = activity is not None and activity.status == "between turns"
                has_ended = lines.is_at_end or is_between_turns
            finally:
                with anyio.CancelScope(shield=True):
                    await lines.aclose()
                    with anyio.move_on_after(LEAVING if has_ended else 0):
                        await tree.wait_dead()
                    if not tree.is_dead:
                        await tree.terminate(defaults.KILL_GRACE)
                    await process.aclose()


class _Begun(AsyncIterator[Message]):
    """`lines`, after the line that they leave out."""

    def __init__(self, begin: Message, lines: LineSource[Message]) -> None:
        self._begin: Message | None = begin
        self._lines = lines

    async def __anext__(self) -> Message:
        if (begin := self._begin) is not None:
            self._begin = None
            return begin
        return await self._lines.__anext__()

    async def aclose(self) -> None:
        await self._lines.aclose()
