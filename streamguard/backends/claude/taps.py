"""A tap on the CLI's lines: what the SDK keeps to itself, for the guard.

    line                            what the SDK does with it      what the guard hears
    ──────────────────────────────  ─────────────────────────────  ───────────────────────────────
    tool_progress, keep_alive       drops it                       Liveness
    auth_status                     drops it                       Waiting, or WaitEnded
    session_state_changed           keeps it, if it asked for it   requires_action: Waiting
    control_request                 answers it: permission, hook   a hold, until it is answered
    server tools and their results  drops the results              WorkStarted, WorkFinished
    messages of a sub-agent         drops the name of its task     WorkProgressed

Everything else comes with the messages. Whatever happens here, the lines go their way.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from functools import cache
from typing import TYPE_CHECKING, Any, Final, cast

from streamguard.activity import Activity, Hold
from streamguard.backends._fields import Fields, fields_of
from streamguard.backends.claude.client import check_version
from streamguard.backends.claude.reading import read
from streamguard.errors import ConfigError
from streamguard.signals import SIGNALS, Signal, WorkFinished, WorkProgressed, WorkStarted

if TYPE_CHECKING:
    from claude_agent_sdk import ClaudeAgentOptions, Transport

    Lines = AsyncIterator[dict[str, Any]]

_log = logging.getLogger("streamguard")
_HIDDEN: Final = ("tool_progress", "keep_alive", "auth_status")
# Not held: in-process MCP tools. Their call is in flight, which is what pauses `idle`.
_REASONS: Final = {"can_use_tool": "permission", "hook_callback": "hook", "mcp_message": None}


def tap(options: ClaudeAgentOptions | None, activity: Activity) -> Transport:
    """A transport for one `ClaudeSDKClient(options, transport=...)`, heard by `activity`'s guard.

        activity = Activity("issue-7")
        client = ClaudeSDKClient(options, transport=claude.tap(options, activity))
        ...
        client.receive_response() | idle_guard(180, client=client, activity=activity)

    Raises:
        ConfigError: If the SDK is too old, or `options` has a `session_store`, which the SDK does
            not use with a transport that it is given.
    """
    if not isinstance(cast("object", activity), Activity):
        raise ConfigError(f"tap(options, {activity!r}): pass the Activity of the guard")
    check_version("claude.tap()")
    check_tappable(options)
    transport: Transport = _tapped_transport()(options, LineTap(activity))
    return transport


def check_tappable(options: ClaudeAgentOptions | None) -> None:
    """A ConfigError for options that the SDK does not apply to a transport that it is given."""
    if getattr(options, "session_store", None) is not None:
        raise ConfigError(
            "options.session_store: the SDK does not read it with a transport that it is given, so "
            "a session would begin without its history. Leave it out, or the tap"
        )


class LineTap:
    """What hears the lines of one CLI, and the SDK's answers."""

    def __init__(self, activity: Activity) -> None:
        self._activity = activity
        self._asked: dict[str, Hold] = {}

    def came(self, line: Fields) -> None:
        """The CLI has said `line`, which goes its way whatever comes of it here."""
        try:
            kind = line.get("type")
            if kind == "control_request":
                self._begin(line)
            elif kind == "control_cancel_request":
                self._answered(line.get("request_id"))
            elif signals := _hidden_in(line):
                self._activity.hear(*signals)
        except Exception:  # noqa: BLE001 - the session would end with the SDK's reader
            _log.exception(
                "the tap could not read one of Claude's lines; the line was passed on unchanged"
            )

    def _begin(self, line: Fields) -> None:
        asked = fields_of(line.get("request")).get("subtype")
        reason = _REASONS.get(asked, "permission") if isinstance(asked, str) else None
        id_ = line.get("request_id")
        if reason is None or not isinstance(id_, str) or id_ in self._asked:
            return
        self._asked[id_] = hold = self._activity.hold(reason)
        hold.__enter__()

    def went(self, data: str) -> None:
        """The SDK is about to write `data`: an answer, maybe."""
        if self._asked and '"control_response"' in data:
            try:
                line = fields_of(json.loads(data))
            except (ValueError, RecursionError):  # not for us to say
                return
            self._answered(fields_of(line.get("response")).get("request_id"))

    def over(self) -> None:
        """No line comes any more, and no answer is waited for."""
        for id_ in list(self._asked):
            self._answered(id_)

    def _answered(self, id_: object) -> None:
        hold = self._asked.pop(id_, None) if isinstance(id_, str) else None
        if hold is not None:
            hold.__exit__(None, None, None)


class _Heard:
    """Lines that a tap hears first. No generator: the SDK leaves its own to the collector."""

    def __init__(self, lines: Lines, tap: LineTap) -> None:
        self._lines = lines
        self._tap = tap

    def __aiter__(self) -> Lines:
        return self

    async def __anext__(self) -> dict[str, Any]:
        try:
            line = await anext(self._lines)
        except BaseException:
            self._tap.over()
            raise
        self._tap.came(line)
        return line


def _hidden_in(line: Fields) -> tuple[Signal, ...]:
    """What `line` says that no message of the SDK's will say."""
    kind = line.get("type")
    is_state = line.get("subtype") == "session_state_changed" and line.get("sdk_host_only") is True
    is_whole = kind in _HIDDEN or is_state
    if not is_whole and kind != "assistant" and line.get("agent_id") is None:
        return ()
    said = read(line)
    signals = (said,) if isinstance(said, SIGNALS) else tuple(said or ())
    is_models = kind == "assistant"
    return signals if is_whole else tuple(s for s in signals if _is_hidden(s, is_models=is_models))


def _is_hidden(signal: Signal, *, is_models: bool) -> bool:
    match signal:
        case WorkProgressed():  # a sub-agent in the background, whose task the message will not name
            return signal.id.startswith("task:")
        # Of the API's own tools both ends are in the model's messages; of all others, the start alone.
        case WorkFinished() | WorkStarted(scope="server"):
            return is_models
        case _:
            return False


@cache
def _tapped_transport() -> Any:
    try:
        from claude_agent_sdk._internal.transport.subprocess_cli import SubprocessCLITransport
    except ImportError as error:
        raise ConfigError(
            "the tap needs claude-agent-sdk, with the transport that it has for its CLI, and it "
            f"cannot be imported ({error}): pip install -U claude-agent-sdk"
        ) from error

    class TappedTransport(SubprocessCLITransport):
        def __init__(self, options: ClaudeAgentOptions | None, tap: LineTap) -> None:
            # The client sends what is asked.
            super().__init__(prompt="", options=_for_the_cli(options))
            self._tap = tap

        def read_messages(self) -> Lines:
            return _Heard(super().read_messages(), self._tap)

        async def write(self, data: str) -> None:
            self._tap.went(data)  # before: a CLI that does not read keeps us waiting
            await super().write(data)

        async def close(self) -> None:
            self._tap.over()
            await super().close()

    return TappedTransport


def _for_the_cli(options: ClaudeAgentOptions | None) -> ClaudeAgentOptions:
    """`options` as the SDK gives them to a transport of its own."""
    from dataclasses import replace

    from claude_agent_sdk import ClaudeAgentOptions

    options = options or ClaudeAgentOptions()
    if options.can_use_tool and not options.permission_prompt_tool_name:
        return replace(options, permission_prompt_tool_name="stdio")
    return options
