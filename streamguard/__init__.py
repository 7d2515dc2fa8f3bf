"""A liveness layer for agent streams: `stream | idle_guard(180)`.

The public names, imported when first used (PEP 562), so that `import streamguard` stays cheap.
"""

from __future__ import annotations

from streamguard._base.lazy import lazy
from streamguard._version import __version__

# By its name alone, checkers know it: `typing` itself is a third of a command's start.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from streamguard._base.done import Done
    from streamguard._base.vitals import Vitals
    from streamguard._base.warning import StreamGuardWarning
    from streamguard._guard.guarded import Guarded, GuardedIterator
    from streamguard._guard.monitor import Monitor
    from streamguard._guard.operator import Operator
    from streamguard._guard.teardown import SupportsDisconnect
    from streamguard._lines.output import json_lines, lines
    from streamguard._scopes.scopes import Scope
    from streamguard.activity import Activity, live
    from streamguard.breaker.breaker import CircuitBreaker
    from streamguard.configuration import Configuration, from_config, from_env
    from streamguard.errors import (
        AbandonedWorkError,
        CeilingExceededError,
        CircuitEscalatedError,
        CircuitOpenError,
        ConfigError,
        DeadlineExceededError,
        EarlierError,
        EmptyTurnError,
        FirstMessageTimeoutError,
        IdleTimeoutError,
        InvalidLineError,
        LeaseLostError,
        LineError,
        LineTooLongError,
        LivenessTimeoutError,
        NoProgressError,
        NotASignalError,
        ProcessExitedError,
        QuietWorkError,
        RepeatedWorkError,
        ResumeDivergedError,
        SessionHeldError,
        SessionHolder,
        StoreError,
        StreamGuardError,
        StreamInterruptedError,
        StreamTimeoutError,
        StreamTruncatedError,
        Teardown,
        ToolTimeoutError,
        TurnTimeoutError,
        Verdict,
        exit_code_for,
    )
    from streamguard.evidence.recorder import Recorder, record_with
    from streamguard.evidence.resuming import ResumePlan, plan_resume, resume_from
    from streamguard.limits import scope
    from streamguard.operators import (
        activity_stamp,
        derived_idle,
        idle_guard,
        idle_timeout,
        inflight_tool_gate,
    )
    from streamguard.process.sentinel.sentinel import Sentinel, sentinel
    from streamguard.retry.classes import ErrorClass
    from streamguard.retry.classification import classify
    from streamguard.retry.policy import Backoff, RetryPolicy
    from streamguard.sessions.hosting_operators import keep_alive, reconnecting_resume
    from streamguard.sessions.points import Connection, ResumePoint
    from streamguard.sessions.session import Chat, Session, session
    from streamguard.sessions.turns import Turn
    from streamguard.single_call import guarded_call
    from streamguard.top.publisher import publishing

_HOMES = {
    "activity": ("Activity", "live"),
    "breaker.breaker": ("CircuitBreaker",),
    "single_call": ("guarded_call",),
    "configuration.configuration": ("Configuration", "from_config", "from_env"),
    "_base.done": ("Done",),
    "_base.vitals": ("Vitals",),
    "errors": (
        "AbandonedWorkError",
        "CeilingExceededError",
        "CircuitEscalatedError",
        "CircuitOpenError",
        "ConfigError",
        "DeadlineExceededError",
        "EarlierError",
        "EmptyTurnError",
        "FirstMessageTimeoutError",
        "IdleTimeoutError",
        "InvalidLineError",
        "LeaseLostError",
        "LineError",
        "LineTooLongError",
        "LivenessTimeoutError",
        "NoProgressError",
        "NotASignalError",
        "ProcessExitedError",
        "QuietWorkError",
        "RepeatedWorkError",
        "ResumeDivergedError",
        "SessionHeldError",
        "SessionHolder",
        "StoreError",
        "StreamGuardError",
        "StreamInterruptedError",
        "StreamTimeoutError",
        "StreamTruncatedError",
        "Teardown",
        "ToolTimeoutError",
        "TurnTimeoutError",
        "Verdict",
        "exit_code_for",
    ),
    "evidence.recorder": ("Recorder", "record_with"),
    "evidence.resuming": ("ResumePlan", "plan_resume", "resume_from"),
    "_guard.guarded": ("Guarded", "GuardedIterator"),
    "limits": ("scope",),
    "_guard.monitor": ("Monitor",),
    "_guard.operator": ("Operator",),
    "operators": (
        "activity_stamp",
        "derived_idle",
        "idle_guard",
        "idle_timeout",
        "inflight_tool_gate",
    ),
    "_lines.output": ("json_lines", "lines"),
    "_base.warning": ("StreamGuardWarning",),
    "process.sentinel.sentinel": ("Sentinel", "sentinel"),
    "top.publisher": ("publishing",),
    "sessions.hosting_operators": ("keep_alive", "reconnecting_resume"),
    "sessions.points": ("Connection", "ResumePoint"),
    "sessions.session": ("Chat", "Session", "session"),
    "sessions.turns": ("Turn",),
    "retry.classes": ("ErrorClass",),
    "retry.classification": ("classify",),
    "retry.policy": ("Backoff", "RetryPolicy"),
    "_scopes.scopes": ("Scope",),
    "_guard.teardown": ("SupportsDisconnect",),
}
__all__ = [
    "AbandonedWorkError",
    "Activity",
    "Backoff",
    "CeilingExceededError",
    "Chat",
    "CircuitBreaker",
    "CircuitEscalatedError",
    "CircuitOpenError",
    "ConfigError",
    "Configuration",
    "Connection",
    "DeadlineExceededError",
    "Done",
    "EarlierError",
    "EmptyTurnError",
    "ErrorClass",
    "FirstMessageTimeoutError",
    "Guarded",
    "GuardedIterator",
    "IdleTimeoutError",
    "InvalidLineError",
    "LeaseLostError",
    "LineError",
    "LineTooLongError",
    "LivenessTimeoutError",
    "Monitor",
    "NoProgressError",
    "NotASignalError",
    "Operator",
    "ProcessExitedError",
    "QuietWorkError",
    "Recorder",
    "RepeatedWorkError",
    "ResumeDivergedError",
    "ResumePlan",
    "ResumePoint",
    "RetryPolicy",
    "Scope",
    "Sentinel",
    "Session",
    "SessionHeldError",
    "SessionHolder",
    "StoreError",
    "StreamGuardError",
    "StreamGuardWarning",
    "StreamInterruptedError",
    "StreamTimeoutError",
    "StreamTruncatedError",
    "SupportsDisconnect",
    "Teardown",
    "ToolTimeoutError",
    "Turn",
    "TurnTimeoutError",
    "Verdict",
    "Vitals",
    "__version__",
    "activity_stamp",
    "classify",
    "derived_idle",
    "exit_code_for",
    "from_config",
    "from_env",
    "guarded_call",
    "idle_guard",
    "idle_timeout",
    "inflight_tool_gate",
    "json_lines",
    "keep_alive",
    "lines",
    "live",
    "plan_resume",
    "publishing",
    "reconnecting_resume",
    "record_with",
    "resume_from",
    "scope",
    "sentinel",
    "session",
]

__getattr__, __dir__ = lazy(__name__, _HOMES)
