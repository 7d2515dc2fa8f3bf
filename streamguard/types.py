"""Types for annotations: what functions take and give, and what nobody makes by hand.

    from streamguard.types import Guarded, Observer, Operator, Seconds

    def guarded(stream: AsyncIterable[Message], idle: Seconds, observer: Observer) -> Guarded[Message]: ...

Each is imported from its home when it is first used; those that are classes can be imported from `streamguard`, too.
"""

from __future__ import annotations

from streamguard._base.lazy import lazy

TYPE_CHECKING = False

if TYPE_CHECKING:
    from streamguard._base.done import Done
    from streamguard._base.numbers import Seconds
    from streamguard._base.vitals import Vitals
    from streamguard._guard.guarded import Guarded, GuardedIterator
    from streamguard._guard.knobs import Disconnect, Endable, IdleLimit, PresetName
    from streamguard._guard.modes import Mode
    from streamguard._guard.monitor import Monitor
    from streamguard._guard.operator import Operator
    from streamguard._guard.teardown import SupportsDisconnect
    from streamguard._scopes.scopes import Scope
    from streamguard.activity import Hold
    from streamguard.backends.registry import Readable
    from streamguard.breaker.breaker import OnOpen, Permit
    from streamguard.configuration.configuration import Configuration
    from streamguard.errors import EarlierError, Limit, ScopeKind, SessionHolder, Teardown, Verdict
    from streamguard.events.teller import Observer, OnWarn
    from streamguard.evidence.resuming import ResumePlan
    from streamguard.process import Adoptable
    from streamguard.process.sentinel.sentinel import Sentinel
    from streamguard.retry.classes import ErrorClass
    from streamguard.sessions.hosting_operators import HostingOperator
    from streamguard.sessions.points import Opener
    from streamguard.sessions.resume_settings import DedupeBy, ResumePrompt
    from streamguard.sessions.session import Chat, Session
    from streamguard.sessions.turns import Turn
    from streamguard.signals import Reader, Signal

_HOMES = {
    "_base.done": ("Done",),
    "_base.numbers": ("Seconds",),
    "_base.vitals": ("Vitals",),
    "_guard.guarded": ("Guarded", "GuardedIterator"),
    "_guard.knobs": ("Disconnect", "Endable", "IdleLimit", "PresetName"),
    "_guard.modes": ("Mode",),
    "_guard.monitor": ("Monitor",),
    "_guard.operator": ("Operator",),
    "_guard.teardown": ("SupportsDisconnect",),
    "_scopes.scopes": ("Scope",),
    "activity": ("Hold",),
    "backends.registry": ("Readable",),
    "breaker.breaker": ("OnOpen", "Permit"),
    "configuration.configuration": ("Configuration",),
    "errors": ("EarlierError", "Limit", "ScopeKind", "SessionHolder", "Teardown", "Verdict"),
    "events.teller": ("Observer", "OnWarn"),
    "evidence.resuming": ("ResumePlan",),
    "process": ("Adoptable",),
    "process.sentinel.sentinel": ("Sentinel",),
    "retry.classes": ("ErrorClass",),
    "sessions.hosting_operators": ("HostingOperator",),
    "sessions.points": ("Opener",),
    "sessions.resume_settings": ("DedupeBy", "ResumePrompt"),
    "sessions.session": ("Chat", "Session"),
    "sessions.turns": ("Turn",),
    "signals": ("Reader", "Signal"),
}
__all__ = [
    "Adoptable",
    "Chat",
    "Configuration",
    "DedupeBy",
    "Disconnect",
    "Done",
    "EarlierError",
    "Endable",
    "ErrorClass",
    "Guarded",
    "GuardedIterator",
    "Hold",
    "HostingOperator",
    "IdleLimit",
    "Limit",
    "Mode",
    "Monitor",
    "Observer",
    "OnOpen",
    "OnWarn",
    "Opener",
    "Operator",
    "Permit",
    "PresetName",
    "Readable",
    "Reader",
    "ResumePlan",
    "ResumePrompt",
    "Scope",
    "ScopeKind",
    "Seconds",
    "Sentinel",
    "Session",
    "SessionHolder",
    "Signal",
    "SupportsDisconnect",
    "Teardown",
    "Turn",
    "Verdict",
    "Vitals",
]

__getattr__, __dir__ = lazy(__name__, _HOMES, root="streamguard")
