"""What the readers make of lines that the real command lines wrote (record.py makes them anew).

In the words below: `+` is begun, `-` is ended work; a line each. These need none of the CLIs.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from textwrap import dedent

import pytest

from streamguard.backends import find
from streamguard.signals import (
    SIGNALS,
    Failed,
    Liveness,
    Progress,
    SessionOpened,
    TurnEnded,
    Usage,
    Waiting,
    WorkFinished,
    WorkProgressed,
    WorkStarted,
)
from tests.backends.reading import asked, came, empty_ends
from tests.backends.reading import said as said_by

RECORDED = Path(__file__).parent / "recorded"

EXPECTED = {
    "claude-text": """
        session
        session, usage of msg_1, progress
        session, usage of the session, turn: success with an answer
    """,
    "claude-tool": """
        session
        session, usage of msg_1, progress
        session, usage of msg_1, +tool toolu_1_1
        -toolu_1_1
        session, usage of msg_2, progress
        session, usage of the session, turn: success with an answer
    """,
    "claude-failing-tool": """
        session
        session, usage of msg_1, +tool toolu_1_0
        -toolu_1_0 failed
        session, usage of msg_2, progress
        session, usage of the session, turn: success with an answer
    """,
    # A tool of more than 3 s is a task in the foreground, and heartbeats come every 30 s.
    "claude-long-tool": """
        session
        session, usage of msg_1, +tool toolu_1_0
        progress
        ping
        -task:task_id-1
        -toolu_1_0
        session, usage of msg_2, progress
        session, usage of the session, turn: success with an answer
    """,
    # The tool is over at once, its work is not: its end begins another turn.
    "claude-background": """
        session
        session, usage of msg_1, +tool toolu_1_0
        nothing
        +task task:task_id-1 in the background
        -toolu_1_0
        session, usage of msg_2, progress
        session, usage of the session, turn: success with an answer
        -task:task_id-1
        -task:task_id-1
        nothing
        session
        session, usage of msg_3, progress
        session, usage of the session, turn: success with an answer
    """,
    # A sub-agent is such work. Both turns' results come when it has ended.
    "claude-subagent": """
        session
        session, usage of msg_1, +tool toolu_1_0
        nothing
        +task task:task_id-1 in the background
        -toolu_1_0
        session, usage of msg_2, progress
        toolu_1_0 goes on, task:task_id-1 goes on, usage of msg_3, +tool toolu_3_0 of toolu_1_0
        task:task_id-1 goes on, toolu_1_0 goes on
        toolu_1_0 goes on, task:task_id-1 goes on, -toolu_3_0
        toolu_1_0 goes on, task:task_id-1 goes on, usage of msg_4
        -task:task_id-1
        -task:task_id-1
        nothing
        session
        session, usage of msg_5, progress
        session, usage of the session, turn: success with an answer
        session, usage of the session, turn: success with an answer
    """,
    # One that its call waits for, which stays open.
    "claude-subagent-waited-for": """
        session
        session, usage of msg_1, +tool toolu_1_0
        progress
        toolu_1_0 goes on, task:task_id-1 goes on
        task:task_id-1 goes on, toolu_1_0 goes on
        toolu_1_0 goes on, task:task_id-1 goes on, usage of msg_2, +tool toolu_2_0 of toolu_1_0
        toolu_1_0 goes on, task:task_id-1 goes on, -toolu_2_0
        -task:task_id-1
        -task:task_id-1
        -toolu_1_0
        session, usage of msg_4, progress
        session, usage of the session, turn: success with an answer
    """,
    # Asked once more, and nothing again.
    "claude-empty": """
        session
        progress
        session, usage of the session, turn: success without one
    """,
    "claude-partials": """
        session
        nothing
        progress
        progress
        progress
        progress
        session, usage of msg_1, progress
        progress
        usage of msg_1, progress
        progress
        session, usage of the session, turn: success with an answer
    """,
    # … then SIGINT.
    "claude-pings": """
        session
        nothing
        progress
        progress
        progress
        ping
        session, usage of msg_1, progress
        progress
        progress
        usage of msg_1, progress
        progress
        session, usage of the session, turn: cancelled
    """,
    "claude-interrupted": """
        session
        session, usage of msg_1, +tool toolu_1_0
        -toolu_1_0 failed
        progress
        session, usage of the session, turn: cancelled
    """,
    "claude-retry": """
        session
        failed: server
        session, usage of msg_2, progress
        session, usage of the session, turn: success with an answer
    """,
    # subtype "success", which is none.
    "claude-overloaded": """
        session
        failed: server
        session, failed: server
        usage of the turn, usage of the session, failed: server, turn: error
    """,
    "claude-refused": """
        session
        session, failed: unknown
        usage of the turn, usage of the session, failed: validation, turn: error
    """,
    "codex-text": """
        session
        nothing
        nothing
        progress
        usage of the session, turn: success
    """,
    "codex-tool": """
        session
        nothing
        nothing
        progress
        +tool item_2
        -item_2
        progress
        usage of the session, turn: success
    """,
    "codex-empty": """
        session
        nothing
        nothing
        nothing
        usage of the session, turn: success
    """,
    "codex-failing-tool": """
        session
        nothing
        nothing
        +tool item_1
        -item_1 failed
        progress
        usage of the session, turn: success
    """,
    # S4: its end is never told.
    "codex-background": """
        session
        nothing
        nothing
        +tool item_1
        progress
        usage of the session, turn: success
    """,
    "codex-interrupted": """
        session
        nothing
        nothing
        +tool item_1
    """,
    # An HTTP error is retried in silence …
    "codex-retry": """
        session
        nothing
        nothing
        progress
        usage of the session, turn: success
    """,
    # … a broken stream is told.
    "codex-reconnecting": """
        session
        nothing
        nothing
        failed: network
        progress
        usage of the session, turn: success
    """,
    "codex-overloaded": """
        session
        nothing
        nothing
        failed: server
        failed: server
        failed: server
        failed: server
        failed: server
        failed: server
        failed: server, turn: error
    """,
    "codex-refused": """
        session
        nothing
        nothing
        failed: validation
        failed: validation, turn: error
    """,
    "gemini-text": """
        session
        nothing
        progress
        progress
        usage of the process, turn: success
    """,
    "gemini-tool": """
        session
        nothing
        progress
        +tool run_shell_command__call_1_1
        -run_shell_command__call_1_1
        progress
        usage of the process, turn: success
    """,
    # A command that fails is a tool that has worked.
    "gemini-failing-tool": """
        session
        nothing
        +tool run_shell_command__call_1_0
        -run_shell_command__call_1_0
        progress
        usage of the process, turn: success
    """,
    "gemini-killed": """
        session
        nothing
        +tool run_shell_command__call_1_0
    """,
    # Retried in silence.
    "gemini-retry": """
        session
        nothing
        progress
        usage of the process, turn: success
    """,
    # Asked four times, and each time the beginning is said anew.
    "gemini-overloaded": """
        session
        nothing
        progress
        progress
        progress
        progress
        failed: server
        usage of the process, turn: error
    """,
    "gemini-refused": """
        session
        nothing
        usage of the process, failed: validation, turn: error
    """,
    # That a tool failed is told in words alone.
    "kimi-failing-tool": """
        nothing
        +tool call_3_0
        -call_3_0
        progress
        session, turn: success
    """,
    "kimi-reconnecting": """
        nothing
        failed: network
        progress
        session, turn: success
    """,
    # What is wrong stands on stderr.
    "kimi-refused": """
        nothing
    """,
    "kimi-retry": """
        nothing
        failed: server
        progress
        session, turn: success
    """,
    "kimi-subagent": """
        nothing
        +subagent call_3_0
        -call_3_0
        progress
        session, turn: success
    """,
    "kimi-text": """
        nothing
        progress
        session, turn: success
    """,
    # The tool and its end come together, and the session is told at the end.
    "kimi-tool": """
        nothing
        +tool call_3_1
        -call_3_1
        progress
        session, turn: success
    """,
    # A second tool is told when the first has ended.
    "kimi-two-tools": """
        nothing
        +tool call_3_0, +tool call_3_1
        -call_3_0
        -call_3_1
        progress
        session, turn: success
    """,
    # Who may not be asked refuses; that ends its turn, and its process with 0.
    "opencode-denied": """
        session
        +tool call_2_0
        session
        +tool call_2_0, -call_2_0 failed, turn: incomplete
        usage of prt_3
    """,
    # The model has said nothing at all.
    "opencode-empty": """
        session
        session
        usage of prt_2, turn: success
    """,
    "opencode-failing-tool": """
        session
        +tool call_2_0
        session
        call_2_0 goes on
        +tool call_2_0, -call_2_0 failed
        usage of prt_3
        progress
        session
        progress
        usage of prt_6, turn: success
    """,
    "opencode-interrupted": """
        session
        +tool call_2_0
        session
        call_2_0 goes on
    """,
    "opencode-killed": """
        session
        +tool call_2_0
        session
        call_2_0 goes on
    """,
    # Asked again, and again: another wait of the same retry is no progress.
    "opencode-overloaded": """
        session
        progress
        failed: server, waits: retry
        session
        waits: retry
        progress
        session
        progress
        usage of prt_4, turn: success
    """,
    "opencode-reconnecting": """
        session
        failed: network, waits: retry
        progress
        session
        progress
        usage of prt_3, turn: success
    """,
    "opencode-refused": """
        session
        session, failed: validation, turn: error
    """,
    "opencode-retry": """
        session
        failed: server, waits: retry
        progress
        session
        progress
        usage of prt_3, turn: success
    """,
    "opencode-subagent": """
        session
        +subagent call_2_0
        call_2_0 goes on
        session
        +tool ses_2/call_3_0 of call_2_0
        ses_2/call_3_0 goes on, call_2_0 goes on
        -ses_2/call_3_0, call_2_0 goes on
        usage of prt_2, call_2_0 goes on
        call_2_0 goes on
        usage of prt_3, call_2_0 goes on
        +subagent call_2_0, -call_2_0
        usage of prt_5
        progress
        session
        progress
        usage of prt_8, turn: success
    """,
    # By itself a line for what is whole; in between the tap says that it is at it.
    "opencode-text": """
        session
        progress
        session
        progress
        usage of prt_3, turn: success
    """,
    "opencode-tool": """
        session
        progress
        +tool call_1_1
        session
        progress
        call_1_1 goes on
        +tool call_1_1, -call_1_1
        usage of prt_4
        progress
        session
        progress
        usage of prt_7, turn: success
    """,
    # A tool is told when it has ended, and nothing before.
    "opencode-untapped": """
        session
        progress
        +tool call_2_1, -call_2_1
        usage of prt_4
        session
        progress
        usage of prt_7, turn: success
    """,
    # A shell that goes on after its tool has ended: it waits for that, and the model is told.
    "copilot-background": """
        progress
        progress, usage of 00000000-0000-4000-8000-000000000013
        progress
        +tool call_1_0
        +task shell:one in the background, -call_1_0
        progress
        progress
        progress, usage of 00000000-0000-4000-8000-000000000035
        progress
        progress
        progress
        call_1_0 goes on
        call_1_0 goes on
        -shell:one
        progress
        +tool 00000000-0000-4000-8000-000000000055
        -00000000-0000-4000-8000-000000000055
        progress
        progress, usage of 00000000-0000-4000-8000-000000000065
        progress
        progress
        session, usage of the process, turn: success
    """,
    # An answer with nothing in it is an error to it.
    "copilot-empty": """
        progress, usage of 00000000-0000-4000-8000-000000000012
        progress
        progress
        failed: unknown, turn: error
        session, usage of the process, turn: error
    """,
    "copilot-failing-tool": """
        progress
        progress, usage of 00000000-0000-4000-8000-000000000013
        progress
        +tool call_1_0
        progress
        call_1_0 goes on
        call_1_0 goes on
        -call_1_0 failed
        progress
        progress
        progress, usage of 00000000-0000-4000-8000-000000000044
        progress
        progress
        session, usage of the process, turn: success
    """,
    "copilot-killed": """
        progress
        progress, usage of 00000000-0000-4000-8000-000000000013
        progress
        +tool call_1_0
    """,
    "copilot-overloaded": """
        progress
        failed: server
        failed: server
        progress
        progress, usage of 00000000-0000-4000-8000-000000000028
        progress
        progress
        session, usage of the process, turn: success
    """,
    "copilot-reconnecting": """
        progress
        failed: network
        progress
        progress, usage of 00000000-0000-4000-8000-000000000023
        progress
        progress
        session, usage of the process, turn: success
    """,
    "copilot-refused": """
        failed: validation
        progress
        failed: validation, turn: error
        session, usage of the process, turn: error
    """,
    "copilot-retry": """
        failed: server
        progress
        progress, usage of 00000000-0000-4000-8000-000000000020
        progress
        progress
        session, usage of the process, turn: success
    """,
    # In the foreground a sub-agent is the call that began it ...
    "copilot-subagent": """
        progress
        progress, usage of 00000000-0000-4000-8000-000000000013
        progress
        +subagent call_1_0
        agent:00000000-0000-4000-8000-000000000019 goes on
        agent:00000000-0000-4000-8000-000000000019 goes on
        agent:00000000-0000-4000-8000-000000000019 goes on
        agent:00000000-0000-4000-8000-000000000019 goes on, call_1_0 goes on
        agent:00000000-0000-4000-8000-000000000019 goes on, call_1_0 goes on
        agent:00000000-0000-4000-8000-000000000019 goes on
        usage of 00000000-0000-4000-8000-000000000035, agent:00000000-0000-4000-8000-000000000019 goes on
        agent:00000000-0000-4000-8000-000000000019 goes on, call_1_0 goes on
        +tool call_2_0 of call_1_0, agent:00000000-0000-4000-8000-000000000019 goes on, call_1_0 goes on
        agent:00000000-0000-4000-8000-000000000019 goes on
        agent:00000000-0000-4000-8000-000000000019 goes on
        call_2_0 goes on, agent:00000000-0000-4000-8000-000000000019 goes on
        call_2_0 goes on, agent:00000000-0000-4000-8000-000000000019 goes on
        -call_2_0, agent:00000000-0000-4000-8000-000000000019 goes on, call_1_0 goes on
        agent:00000000-0000-4000-8000-000000000019 goes on, call_1_0 goes on
        agent:00000000-0000-4000-8000-000000000019 goes on, call_1_0 goes on
        agent:00000000-0000-4000-8000-000000000019 goes on, call_1_0 goes on
        agent:00000000-0000-4000-8000-000000000019 goes on
        agent:00000000-0000-4000-8000-000000000019 goes on, call_1_0 goes on
        usage of 00000000-0000-4000-8000-000000000064, agent:00000000-0000-4000-8000-000000000019 goes on
        agent:00000000-0000-4000-8000-000000000019 goes on, call_1_0 goes on
        agent:00000000-0000-4000-8000-000000000019 goes on
        agent:00000000-0000-4000-8000-000000000019 goes on, call_1_0 goes on
        -call_1_0
        -agent:00000000-0000-4000-8000-000000000019
        progress
        progress
        progress, usage of 00000000-0000-4000-8000-000000000081
        progress
        progress
        session, usage of the process, turn: success
    """,
    # ... in the background that has ended at once.
    "copilot-subagent-background": """
        progress
        progress, usage of 00000000-0000-4000-8000-000000000013
        progress
        +subagent call_1_0
        +subagent agent:00000000-0000-4000-8000-000000000019 in the background
        -call_1_0
        progress
        progress
        progress, usage of 00000000-0000-4000-8000-000000000029
        progress
        progress
        agent:00000000-0000-4000-8000-000000000019 goes on
        agent:00000000-0000-4000-8000-000000000019 goes on
        agent:00000000-0000-4000-8000-000000000019 goes on, call_1_0 goes on
        agent:00000000-0000-4000-8000-000000000019 goes on, call_1_0 goes on
        agent:00000000-0000-4000-8000-000000000019 goes on
        usage of 00000000-0000-4000-8000-000000000049, agent:00000000-0000-4000-8000-000000000019 goes on
        agent:00000000-0000-4000-8000-000000000019 goes on, call_1_0 goes on
        +tool call_3_0 of call_1_0, agent:00000000-0000-4000-8000-000000000019 goes on, call_1_0 goes on
        agent:00000000-0000-4000-8000-000000000019 goes on
        agent:00000000-0000-4000-8000-000000000019 goes on
        call_3_0 goes on, agent:00000000-0000-4000-8000-000000000019 goes on
        call_3_0 goes on, agent:00000000-0000-4000-8000-000000000019 goes on
        -call_3_0, agent:00000000-0000-4000-8000-000000000019 goes on, call_1_0 goes on
        agent:00000000-0000-4000-8000-000000000019 goes on, call_1_0 goes on
        agent:00000000-0000-4000-8000-000000000019 goes on, call_1_0 goes on
        agent:00000000-0000-4000-8000-000000000019 goes on, call_1_0 goes on
        agent:00000000-0000-4000-8000-000000000019 goes on
        agent:00000000-0000-4000-8000-000000000019 goes on, call_1_0 goes on
        usage of 00000000-0000-4000-8000-000000000077, agent:00000000-0000-4000-8000-000000000019 goes on
        agent:00000000-0000-4000-8000-000000000019 goes on, call_1_0 goes on
        agent:00000000-0000-4000-8000-000000000019 goes on
        agent:00000000-0000-4000-8000-000000000019 goes on, call_1_0 goes on
        -agent:00000000-0000-4000-8000-000000000019
        progress
        progress
        +tool 00000000-0000-4000-8000-000000000091
        -00000000-0000-4000-8000-000000000091
        progress
        progress, usage of 00000000-0000-4000-8000-000000000101
        progress
        progress
        session, usage of the process, turn: success
    """,
    "copilot-text": """
        progress
        progress
        progress, usage of 00000000-0000-4000-8000-000000000016
        progress
        progress
        session, usage of the process, turn: success
    """,
    "copilot-tool": """
        progress
        progress
        progress, usage of 00000000-0000-4000-8000-000000000016
        progress
        +tool call_1_1
        progress
        call_1_1 goes on
        call_1_1 goes on
        -call_1_1
        progress
        progress
        progress, usage of 00000000-0000-4000-8000-000000000045
        progress
        progress
        session, usage of the process, turn: success
    """,
    # It takes that for something that passes, twice.
    "copilot-unauthorized": """
        failed: auth
        failed: auth
        failed: auth
        progress
        failed: auth, turn: error
        session, usage of the process, turn: error
    """,
    # The command goes on behind the result, and its end is not told.
    "qwen-background": """
        session
        nothing
        +tool call_1_0, usage of 00000000-0000-4000-8000-000000000003
        -call_1_0
        progress, usage of 00000000-0000-4000-8000-000000000005
        usage of the session, turn: success with an answer
    """,
    "qwen-denied": """
        session
        nothing
        progress
        usage of the session, failed: auth, turn: error
    """,
    "qwen-failing-tool": """
        session
        nothing
        +tool call_1_0, usage of 00000000-0000-4000-8000-000000000003
        -call_1_0 failed
        progress, usage of 00000000-0000-4000-8000-000000000005
        usage of the session, turn: success with an answer
    """,
    "qwen-killed": """
        session
        nothing
        +tool call_1_0, usage of 00000000-0000-4000-8000-000000000003
    """,
    # With partial messages: a heartbeat every 10 s.
    "qwen-long-tool": """
        session
        nothing
        progress
        progress
        progress
        progress
        +tool call_1_0, usage of 00000000-0000-4000-8000-000000000004
        progress
        ping
        -call_1_0
        progress
        progress
        progress
        progress
        progress, usage of 00000000-0000-4000-8000-000000000012
        progress
        usage of the session, turn: success with an answer
    """,
    # Its own guard against loops.
    "qwen-loop": """
        session
        nothing
        +tool call_1_0, usage of 00000000-0000-4000-8000-000000000003
        -call_1_0
        +tool call_2_0, usage of 00000000-0000-4000-8000-000000000005
        -call_2_0
        +tool call_3_0, usage of 00000000-0000-4000-8000-000000000007
        -call_3_0
        +tool call_4_0, usage of 00000000-0000-4000-8000-000000000009
        -call_4_0
        usage of the session, failed: permanent, turn: incomplete
    """,
    "qwen-partials": """
        session
        nothing
        progress
        progress
        progress
        progress
        progress
        progress, usage of 00000000-0000-4000-8000-000000000004
        progress
        usage of the session, turn: success with an answer
    """,
    # … a broken stream is told.
    "qwen-reconnecting": """
        session
        nothing
        failed: server
        progress, usage of 00000000-0000-4000-8000-000000000004
        usage of the session, turn: success with an answer
    """,
    "qwen-refused": """
        session
        nothing
        progress
        usage of the session, failed: validation, turn: error
    """,
    # An HTTP error is retried in silence …
    "qwen-retry": """
        session
        nothing
        progress, usage of 00000000-0000-4000-8000-000000000003
        usage of the session, turn: success with an answer
    """,
    # In the background it says nothing until it has ended, and the result waits for it.
    "qwen-subagent-behind": """
        session
        nothing
        +subagent call_1_0, usage of 00000000-0000-4000-8000-000000000003
        call_1_0 goes on
        +subagent task:task_id-1 in the background
        -call_1_0
        progress, usage of 00000000-0000-4000-8000-000000000007
        progress
        -task:task_id-1
        progress, usage of 00000000-0000-4000-8000-000000000010
        usage of the session, turn: success with an answer
    """,
    # A sub-agent speaks by lines whose parent it is; at its end it is a tool like others.
    "qwen-subagent": """
        session
        nothing
        +subagent call_1_0, usage of 00000000-0000-4000-8000-000000000003
        call_1_0 goes on
        call_1_0 goes on, +tool call_2_1 of call_1_0
        call_1_0 goes on, -call_2_1
        -call_1_0
        progress, usage of 00000000-0000-4000-8000-000000000008
        usage of the session, turn: success with an answer
    """,
    "qwen-text": """
        session
        nothing
        progress, usage of 00000000-0000-4000-8000-000000000003
        usage of the session, turn: success with an answer
    """,
    "qwen-tool": """
        session
        nothing
        progress
        +tool call_1_1, usage of 00000000-0000-4000-8000-000000000004
        -call_1_1
        progress, usage of 00000000-0000-4000-8000-000000000006
        usage of the session, turn: success with an answer
    """,
}


THE_SESSIONS = re.compile(r"(session_)?00000000-0000-4000-8000-\d{12}|ses_1")


def in_words(signal):
    match signal:
        case SessionOpened(token, resumable=True) if THE_SESSIONS.fullmatch(token):
            return "session"
        case Progress():
            return "progress"
        case Liveness():
            return "ping"
        case WorkStarted(id_, _, scope, parent, background):
            of = "" if parent is None or background else f" of {parent}"
            return f"+{scope} {id_}{of}{' in the background' * background}"
        case WorkProgressed(id_):
            return f"{id_} goes on"
        case WorkFinished(id_, error):
            return f"-{id_}{' failed' * bool(error)}"
        case Waiting(_, reason):
            return f"waits: {reason}"
        case Failed(class_):
            return f"failed: {class_}"
        case TurnEnded(outcome, answered=answered):
            how = {True: " with an answer", False: " without one", None: ""}[answered]
            return f"turn: {outcome}{how}"
        case Usage(span="call", call=call):
            return f"usage of {call}"
        case Usage(span=span):
            return f"usage of the {span}"
        case _:
            return repr(signal)


def said(messages):
    """What a stream's lines say, each in words, by the reader that the first of them finds."""
    backend = find(messages[0])
    for message in messages:
        signals = backend.read(message)
        if signals is None:
            yield "progress"
        elif isinstance(signals, SIGNALS):
            yield in_words(signals)
        else:
            yield ", ".join(map(in_words, signals)) or "nothing"


def lines_of(name):
    return [json.loads(line) for line in (RECORDED / f"{name}.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("name", EXPECTED)
def test_real_lines_are_read(name):
    """S1, S3"""
    words = list(said(lines_of(name)))
    if name.startswith("copilot-"):  # half of its lines are about its own affairs
        words = [each for each in words if each != "nothing"]
    assert words == dedent(EXPECTED[name]).split("\n")[1:-1]


EMPTY = {"claude-empty", "codex-empty", "opencode-empty"}


@pytest.mark.parametrize("name", EXPECTED)
def test_no_real_success_is_empty(name):
    """One that is, is told; these all have answered, or worked, but for the one that has not."""
    lines = lines_of(name)
    assert any(empty_ends(find(lines[0]), lines)) == (name in EMPTY)


BEHIND = ("shell:", "agent:")  # of copilot


@pytest.mark.parametrize("name", EXPECTED)
def test_of_real_work_it_is_told_what_it_was_asked_and_what_came_of_it(name):
    lines = lines_of(name)
    signals = [signal for line in lines for signal in said_by(find(lines[0]), line)]
    begun, over = asked(signals), came(signals)
    # What is behind a tool was asked by that, and what came of it is told to the model.
    assert (
        None not in {id_: it for id_, it in begun.items() if not id_.startswith(BEHIND)}.values()
    )
    tools = {id_: it for id_, it in over.items() if not id_.startswith(("task:", *BEHIND))}
    assert None not in tools.values()


def test_no_recording_is_forgotten():
    assert {path.stem for path in RECORDED.glob("*.jsonl")} == set(EXPECTED)
