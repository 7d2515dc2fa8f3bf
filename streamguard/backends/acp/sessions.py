"""An ACP agent that is started here, as a session. asyncio alone, as the package `acp`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from streamguard._base.calling import checked
from streamguard.backends._fields import fields_of
from streamguard.backends.acp.bridge import Bridge, acp_package
from streamguard.process import ProcessTree, marked_env
from streamguard.sessions.points import Connection, Opener, ResumePoint
from streamguard.sessions.session import Session
from streamguard.sessions.session import session as opened_by


@checked
def session(
    client: object,
    command: str,
    *words: str,
    prompt: str | None = None,
    point: ResumePoint | None = None,
    cwd: str | PathLike[str] = ".",
    env: Mapping[str, str] | None = None,
    mcp_servers: Sequence[Any] = (),
) -> Session[Any]:
    """A session of an ACP agent that is started here: cancelled, else ended, and resumed.

    On a verdict the turn is cancelled (`session/cancel`), and the same agent goes on if it obeys.
    Otherwise it is ended with all that it started, and a new one resumes or loads the session, if it
    says that it can.

    Args:
        client: Yours, with `request_permission` and whatever else the agent may ask for.

        command: The agent's executable, with its `words`.

        prompt: What is asked first.

        point: Where an earlier session stood (`chat.point`), to go on from there.

        cwd: The session's folder, and the agent's.

        env: What is added to the few variables that the package hands on (HOME, PATH, ...).

        mcp_servers: For the agent's session.
    """
    opener = open_agent(client, command, *words, cwd=cwd, env=env, mcp_servers=mcp_servers)
    return opened_by(opener, prompt=prompt, point=point)


@checked
def open_agent(
    client: object,
    command: str,
    *words: str,
    cwd: str | PathLike[str] = ".",
    env: Mapping[str, str] | None = None,
    mcp_servers: Sequence[Any] = (),
) -> Opener[Any]:
    """`open` for `streamguard.session` and `reconnecting_resume`; see `session`."""
    folder = str(Path(cwd).absolute())  # the protocol wants it so

    @asynccontextmanager
    async def opened(point: ResumePoint) -> AsyncGenerator[Connection[Any], None]:
        bridge: Any = Bridge(client)
        agent = acp_package().spawn_agent_process(
            bridge,
            command,
            *words,
            env=marked_env(env or {}),
            cwd=folder,
            transport_kwargs={"stderr": None},  # a pipe that nobody empties would stop it
        )
        async with agent as (connection, process):
            with ProcessTree.adopt(process) as tree:
                where = {"cwd": folder, "mcp_servers": list(mcp_servers)}
                session_id, resumable = await _open_session(connection, point.token, where)
                yield Connection(
                    partial(bridge.prompt, connection, session_id, resumable=resumable),
                    disconnect=connection.close,
                    interrupt=partial(connection.cancel, session_id=session_id),
                    process=tree,
                    outlives_interrupt=True,
                )

    return opened


async def _open_session(
    connection: Any, token: str | None, where: Mapping[str, Any]
) -> tuple[str, bool]:
    """A session's id, and whether it could be opened again."""
    said = await connection.initialize(protocol_version=acp_package().PROTOCOL_VERSION)
    can = fields_of(getattr(said, "agent_capabilities", None))
    can_resume = fields_of(can.get("session_capabilities")).get("resume") is not None
    can_load = can.get("load_session") is True
    if token is None:
        session_id = str((await connection.new_session(**where)).session_id)
        return session_id, can_resume or can_load
    if can_resume:
        await connection.resume_session(session_id=token, **where)
    else:  # it plays the session's updates again, which are of no turn
        await connection.load_session(session_id=token, **where)
    return token, True
