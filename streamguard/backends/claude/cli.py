"""`claude -p --output-format stream-json` as a session, where the SDK is not wanted.

Each prompt is a process of its own, resumed by its session's id. What the SDK's session can do beyond
that (interrupt a turn and go on with the same client, hold for a permission) needs the SDK.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Final

from streamguard.backends._cli import OpenCli, words_of

if TYPE_CHECKING:
    from streamguard._lines.output import Message
    from streamguard.sessions.points import ResumePoint
    from streamguard.sessions.session import Session

_LINES: Final = ("-p", "--output-format", "stream-json", "--verbose")


def cli_session(
    *options: str,
    prompt: str | None = None,
    point: ResumePoint | None = None,
    command: str | Sequence[str] = "claude",
    cwd: str | PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
) -> Session[Message]:
    """A session of `claude -p`: each prompt a process, each one resumed by the session's id.

    Args:
        options: For the CLI, such as `"--permission-mode", "acceptEdits"`.

        prompt: What is asked first.

        point: Where an earlier session stood (`chat.point`), to go on from there.

        command: The executable, or the words that start it.

        cwd: The folder to work in.

        env: Its whole environment, this process's own if there is none.
    """
    return open_cli(*options, command=command, cwd=cwd, env=env).session(prompt, point)


def open_cli(
    *options: str,
    command: str | Sequence[str] = "claude",
    cwd: str | PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
) -> OpenCli:
    """`open` for `streamguard.session` and `reconnecting_resume`; see `cli_session`."""

    def words(token: str | None) -> list[str]:
        resumed = ["--resume", token] if token else []
        return [*words_of(command), *_LINES, *options, *resumed]

    return OpenCli(words, cwd, env)
