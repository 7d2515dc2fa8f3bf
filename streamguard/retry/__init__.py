"""Whether to try again, when, and how: error classes, delays, budgets, decisions.

    error ──> classify ──> ErrorClass ─┐
          ──> retry_after ──> seconds ─┤
                                       ├──> State ──> decide ──> Resume | Restart | GiveUp
    Tally (what was spent) ────────────┤
    RetryPolicy (what may be spent) ───┘

Nothing here waits, reads a loop's clock or knows a stream: `sessions` acts on what is decided
here. Errors of other libraries are read by their shape; no SDK is imported.
"""

from typing import TYPE_CHECKING

from streamguard._base.lazy import lazy

if TYPE_CHECKING:
    from streamguard.retry.classes import ErrorClass
    from streamguard.retry.classification import classify
    from streamguard.retry.decision import Decision, GaveUp, GiveUp, Restart, Resume, State, decide
    from streamguard.retry.policy import Backoff, RetryPolicy, Tally
    from streamguard.retry.pushback import retry_after

__all__ = [
    "Backoff",
    "Decision",
    "ErrorClass",
    "GaveUp",
    "GiveUp",
    "Restart",
    "Resume",
    "RetryPolicy",
    "State",
    "Tally",
    "classify",
    "decide",
    "retry_after",
]

# A reader needs the classes alone: the rest is imported when it is asked for.
__getattr__, __dir__ = lazy(
    __name__,
    {
        "classes": ("ErrorClass",),
        "classification": ("classify",),
        "decision": ("Decision", "GaveUp", "GiveUp", "Restart", "Resume", "State", "decide"),
        "policy": ("Backoff", "RetryPolicy", "Tally"),
        "pushback": ("retry_after",),
    },
)
