"""A liveness layer for agent streams: `stream | idle_guard(180)`.

The public names, imported when first used (PEP 562), so that `import streamguard` stays cheap. `dir()` has
those that most programs need. All errors are here, too; what is written in annotations alone is in `types`,
what belongs to one subject in its module, and each module is an attribute: `streamguard.retry.decide`.
"""

from __future__ import annotations

from streamguard._base.lazy import lazy
from streamguard._version import __version__

# By its name alone, checkers know it: `typing` itself is a third of a command's start.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from streamguard import activity as activity
    from streamguard import backends as backends
    from streamguard import breaker as breaker
    from streamguard import compat as compat
    from streamguard import configuration as configuration
    from streamguard import errors as errors
    from streamguard import events as events
    from streamguard import evidence as evidence
    from streamguard import fleet as fleet
    from streamguard import limits as limits
    from streamguard import observers as observers
    from streamguard import presets as presets
    from streamguard import process as process
    from streamguard import retry as retry
    from streamguard import sessions as sessions
    from streamguard import signals as signals
    from streamguard import specs as specs
    from streamguard import testing as testing
    from streamguard import top as top
    from streamguard import types as types
    from streamguard._base.done import Done as Done
    from streamguard._base.vitals import Vitals as Vitals
    from streamguard._base.warning import StreamGuardWarning
    from streamguard._guard.guarded import Guarded as Guarded
    from streamguard._guard.guarded import GuardedIterator as GuardedIterator
    from streamguard._guard.monitor import Monitor as Monitor
    from streamguard._guard.operator import Operator as Operator
    from streamguard._guard.teardown import SupportsDisconnect as SupportsDisconnect
    from streamguard._lines.output import json_lines, lines
    from streamguard._scopes.scopes import Scope as Scope
    from streamguard.activity import Activity, live_streams
    from streamguard.activity import live as live
    from streamguard.breaker.breaker import CircuitBreaker
    from streamguard.configuration.configuration import Configuration as Configuration
    from streamguard.configuration.configuration import from_config, from_env
    from streamguard.errors import (
        AbandonedWorkError,
        CeilingExceededError,
        CircuitEscalatedError,
        CircuitOpenError,
        ConfigError,
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
        StoreError,
        StreamGuardError,
        StreamInterruptedError,
        StreamTimeoutError,
        StreamTruncatedError,
        ToolTimeoutError,
        TotalTimeoutError,
        TurnTimeoutError,
        exit_code_for,
    )
    from streamguard.errors import DeadlineExceededError as DeadlineExceededError
    from streamguard.errors import EarlierError as EarlierError
    from streamguard.errors import SessionHolder as SessionHolder
    from streamguard.errors import Teardown as Teardown
    from streamguard.errors import Verdict as Verdict
    from streamguard.evidence.recorder import Recorder, record_with
    from streamguard.evidence.resuming import ResumePlan as ResumePlan
    from streamguard.evidence.resuming import plan_resume, resume_from
    from streamguard.limits import scope
    from streamguard.operators import (
        activity_stamp,
        idle_for_total,
        idle_guard,
        idle_timeout,
        inflight_tool_gate,
    )
    from streamguard.operators import derived_idle as derived_idle
    from streamguard.process.sentinel.sentinel import Sentinel as Sentinel
    from streamguard.process.sentinel.sentinel import sentinel
    from streamguard.retry.classes import ErrorClass as ErrorClass
    from streamguard.retry.classification import classify
    from streamguard.retry.policy import Backoff, RetryPolicy
    from streamguard.sessions.hosting_operators import keep_alive, reconnecting_resume
    from streamguard.sessions.points import Connection, ResumePoint
    from streamguard.sessions.session import Chat as Chat
    from streamguard.sessions.session import Session as Session
    from streamguard.sessions.session import session
    from streamguard.sessions.turns import Turn as Turn
    from streamguard.single_call import guarded_call
    from streamguard.top.publisher import publish_to_top
    from streamguard.top.publisher import publishing as publishing

_MODULES = (
    "activity",
    "backends",
    "breaker",
    "compat",
    "configuration",
    "errors",
    "events",
    "evidence",
    "fleet",
    "limits",
    "observers",
    "presets",
    "process",
    "retry",
    "sessions",
    "signals",
    "specs",
    "testing",
    "top",
    "types",
)
_HOMES = {
    "activity": ("Activity", "live", "live_streams"),
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
        "TotalTimeoutError",
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
        "idle_for_total",
        "idle_guard",
        "idle_timeout",
        "inflight_tool_gate",
    ),
    "_lines.output": ("json_lines", "lines"),
    "_base.warning": ("StreamGuardWarning",),
    "process.sentinel.sentinel": ("Sentinel", "sentinel"),
    "top.publisher": ("publish_to_top", "publishing"),
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
    "CircuitBreaker",
    "CircuitEscalatedError",
    "CircuitOpenError",
    "ConfigError",
    "Connection",
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
    "Recorder",
    "RepeatedWorkError",
    "ResumeDivergedError",
    "ResumePoint",
    "RetryPolicy",
    "SessionHeldError",
    "StoreError",
    "StreamGuardError",
    "StreamGuardWarning",
    "StreamInterruptedError",
    "StreamTimeoutError",
    "StreamTruncatedError",
    "ToolTimeoutError",
    "TotalTimeoutError",
    "TurnTimeoutError",
    "__version__",
    "activity_stamp",
    "classify",
    "exit_code_for",
    "from_config",
    "from_env",
    "guarded_call",
    "idle_for_total",
    "idle_guard",
    "idle_timeout",
    "inflight_tool_gate",
    "json_lines",
    "keep_alive",
    "lines",
    "live_streams",
    "plan_resume",
    "publish_to_top",
    "reconnecting_resume",
    "record_with",
    "resume_from",
    "scope",
    "sentinel",
    "session",
]
# What `dir()` has: short enough to read.
_MAIN = [
    "Activity",
    "Backoff",
    "CircuitBreaker",
    "ConfigError",
    "Connection",
    "IdleTimeoutError",
    "Recorder",
    "ResumePoint",
    "RetryPolicy",
    "StreamGuardError",
    "StreamTimeoutError",
    "TotalTimeoutError",
    "__version__",
    "activity_stamp",
    "backends",
    "breaker",
    "errors",
    "events",
    "evidence",
    "fleet",
    "from_config",
    "from_env",
    "guarded_call",
    "idle_guard",
    "idle_timeout",
    "inflight_tool_gate",
    "json_lines",
    "keep_alive",
    "lines",
    "live_streams",
    "observers",
    "plan_resume",
    "process",
    "publish_to_top",
    "reconnecting_resume",
    "record_with",
    "resume_from",
    "retry",
    "scope",
    "sentinel",
    "session",
    "signals",
    "specs",
    "testing",
    "types",
]

__getattr__, __dir__ = lazy(__name__, _HOMES, modules=_MODULES, shown=_MAIN)
