"""`session()`: a conversation with Claude that outlives its clients.

The ladder, rung by rung, is the session's own (`streamguard.resume`): interrupt, and go on with the
same client; else disconnect, end the CLI with all that it started, and resume the session in a new
client. Here is only what is Claude's: how a client is made, connected and asked, and which result
is the answer.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

from streamguard._base.calling import checked
from streamguard._base.distribution import install
from streamguard.backends.claude.client import check_version
from streamguard.backends.claude.taps import check_tappable
from streamguard.backends.claude.taps import tap as tapped
from streamguard.errors import ConfigError
from streamguard.sessions.points import Connection, ResumePoint
from streamguard.sessions.session import session as session_of

if TYPE_CHECKING:
    from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, Message

    from streamguard.activity import Activity
    from streamguard.sessions.session import Session


@checked
def session(
    options: ClaudeAgentOptions | None = None,
    /,
    *,
    prompt: str | None = None,
    point: ResumePoint | None = None,
    tap: bool = False,
    exclusive: bool = True,
) -> Session[Message]:
    """A session with Claude, by claude-agent-sdk: pipe it through `idle_guard` and the like.

    A turn that hangs is interrupted, and the same client goes on; if that does not end it, the
    client is disconnected, its processes are ended, and another one resumes the session. What
    waits in `can_use_tool` or in a hook waits for you, and is no hang.

    Args:
        options: As for a client. `resume` and its like are the first attempt's.

        prompt: What is asked first.

        point: Where an earlier session stood; `ResumePoint(token=...)` is enough.

        tap: Whether the guard also hears what the SDK keeps to itself (see `tap`).

        exclusive: Whether no two programs may be in one session at once (`SessionHeldError`).

    Raises:
        ConfigError: If the SDK is not installed, too old, or cannot do what is asked.
    """
    check_version("claude.session()")
    try:
        import claude_agent_sdk as sdk
    except ImportError as error:
        raise ConfigError(
            f"claude.session() needs claude-agent-sdk, and it cannot be imported ({error}): "
            f"{install('claude')}"
        ) from error
    given = sdk.ClaudeAgentOptions() if options is None else options
    if not isinstance(cast("object", given), sdk.ClaudeAgentOptions):
        raise ConfigError(f"claude.session({options!r}): pass ClaudeAgentOptions")
    if tap:
        check_tappable(given)
    begun = _begun(given) if point is None else None

    @asynccontextmanager
    async def opened(point: ResumePoint) -> AsyncGenerator[Connection[Message], None]:
        activity = point.activity
        assert activity is not None
        its_own = _holding(_of_attempt(given, point.token, begun), activity)
        transport = tapped(its_own, activity) if tap else None
        client: ClaudeSDKClient = sdk.ClaudeSDKClient(its_own, transport=transport)
        is_connected = False

        async def ask(prompt: str) -> AsyncGenerator[Message, None]:
            # Connects when it is asked first: so a CLI that hangs at its start keeps a pull
            # waiting, and what there is of it can be ended.
            nonlocal is_connected
            if not is_connected:
                await client.connect()
                is_connected = True
            uuid = str(uuid4())
            await client.query(_only(prompt, uuid))
            messages = cast("AsyncGenerator[Message, None]", client.receive_messages())
            async with aclosing(messages):
                async for message in messages:
                    yield message
                    if isinstance(message, sdk.ResultMessage):
                        if _answers(message, uuid):
                            return
                        # The end of a turn that background work had begun, before ours or in
                        # its way.
                        activity.mark_prompt()

        try:
            yield Connection(ask, client=client)
        finally:
            await client.disconnect()

    name = "claude" if exclusive else None
    return session_of(opened, prompt=prompt, point=point or begun, exclusive=name)


def _begun(options: ClaudeAgentOptions) -> ResumePoint | None:
    """What `resume` names is the session from the start, not only when the CLI says so."""
    if options.resume is None or _going_on(options, options.resume) != options:
        return None  # none, or another one that only begins with that
    return ResumePoint(token=options.resume)


def _of_attempt(
    options: ClaudeAgentOptions, token: str | None, begun: ResumePoint | None
) -> ClaudeAgentOptions:
    """`options` for a client; `begun`: the session that they alone have named."""
    if token is None and begun is not None:
        return replace(options, resume=None)  # the CLI did not know it, and it is begun afresh
    return _going_on(options, token)


async def _only(prompt: str, uuid: str) -> AsyncIterator[dict[str, Any]]:
    yield {
        "type": "user",
        "message": {"role": "user", "content": prompt},
        "parent_tool_use_id": None,
        "uuid": uuid,
    }


def _answers(result: Any, uuid: str) -> bool:
    """Whether `result` ends the turn that took in the prompt with that `uuid`.

    CLIs that do not say which prompts a turn took in may still say that it was nobody's.
    """
    said = getattr(result, "user_message_uuid", None)
    several = getattr(result, "user_message_uuids", None)
    if said or several:
        return uuid == said or uuid in (several or ())
    origin = getattr(result, "origin", None)
    return not isinstance(origin, dict) or cast("dict[str, Any]", origin).get("kind") == "human"


def _going_on(options: ClaudeAgentOptions, token: str | None) -> ClaudeAgentOptions:
    """`options` for a client that goes on with the session `token`, if there is one."""
    if token is None:
        return options
    # Never query(session_id=...), which begins a session of its own.
    first_attempts: dict[str, Any] = {
        "continue_conversation": False,
        "fork_session": False,
        "session_id": None,
        "resume_session_at": None,
        "resume_drops_turn": None,
    }
    known = {name: off for name, off in first_attempts.items() if hasattr(options, name)}
    return replace(options, resume=token, **known)


def _holding(options: ClaudeAgentOptions, activity: Activity) -> ClaudeAgentOptions:
    """`options` whose callbacks hold `activity` while they run."""
    if options.can_use_tool is not None:
        permission = activity.hold("permission")
        options = replace(options, can_use_tool=permission(options.can_use_tool))
    if options.hooks:
        hook = activity.hold("hook")
        hooks = {
            event: [replace(each, hooks=[hook(call) for call in each.hooks]) for each in matchers]
            for event, matchers in options.hooks.items()
        }
        options = replace(options, hooks=hooks)
    return options
