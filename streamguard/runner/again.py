"""Whether there is another attempt, as the library's sessions decide it (`retry.decide`).

What a command has already said cannot be taken back, so a further attempt either takes up the agent's
session or finds nobody who has seen anything; and never while something of the one before may live.
A session that the agent does not know, and a usage limit that it met, are no hangs: they are overcome where that was
asked for, and are no retry. Loaded when an attempt was ended for a limit and `--retries` was said, or has
ended and one of these two was.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, NamedTuple

from streamguard._base.durations import on_the_clock
from streamguard.backends.unknown_sessions import is_said_in
from streamguard.retry.classes import ErrorClass, class_named
from streamguard.retry.decision import GiveUp, Restart, State, decide
from streamguard.retry.policy import Backoff, RetryPolicy, Tally
from streamguard.runner.result import left_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from streamguard.retry.decision import Resume
    from streamguard.runner.options import Settings
    from streamguard.runner.result import Result

# After these another attempt can come to something; `total` and `exit_grace` are the end.
_RETRIED = (
    *("idle", "first", "first_json", "tools", "turn", "liveness", "after_sleep"),
    *("quiet", "repeats", "empty", "abandoned"),  # as in a session
)
# What can be part of a command line and of no trick: what agents call their sessions.
_OF_A_TOKEN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:-")
_LONGEST_TOKEN = 256
# What may follow one another in a run that is no retry: attempts after a usage limit, a fresh start.
_NO_RETRIES = 50


class Again(NamedTuple):
    """A further attempt: what to run, and after how long.

    `why`: what to say of it, where it is no retry after a hang. `until`: when a usage limit is over that is
    waited for, on the clock.
    """

    command: Sequence[str]
    delay: float
    why: str | None = None
    until: str | None = None


class Attempts:
    """What a run has spent on attempts, and may still spend."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        delays = settings.backoff or (0.0,)
        self._policy = RetryPolicy(
            idle=Backoff(settings.retries, delays),
            cap=max(*delays, 1.0),
            max_in_a_row=max(settings.retries, 1),
            max_reconnects=max(settings.retries, 1) + _NO_RETRIES,
            wait_for_limit=settings.wait_for_limit,
            productive_span=math.inf,
            instant=0.0,
            min_attempt=0.0,
        )
        self._tally = Tally()
        # Over all attempts: the session, what the latest attempt was to resume, and the bytes passed on.
        self._token: str | None = None
        self._resumed: str | None = None
        self._passed = 0

    def after(self, outcome: Result, left: float, *, replays: bool) -> Again | str | None:
        """A further attempt; or why there is none; or None where that needs no word.

        `left` seconds are left of `total`; `replays`: the input can be given again.
        """
        fired = outcome.fired
        self._remember(outcome)
        if outcome.passed_on is not None or (fired is not None and fired.limit == "total"):
            return None
        overcome = self._to_overcome(outcome)
        if not overcome and (fired is None or fired.limit not in _RETRIED):
            return None
        settings, token = self._settings, self._token
        if settings.resume_command is None:
            token = None
        elif token is not None and not _is_a_token(token):
            return "its session id cannot be part of a command line"
        facts: dict[str, Any] = {"error_class": ErrorClass.IDLE, **overcome}
        decision = decide(
            State(
                tally=self._tally,
                token=token,
                delivered=self._passed,
                teardown_confirmed=outcome.is_ended_for_certain,
                remaining=None if left == math.inf else left,
                **facts,
            ),
            self._policy,
        )
        if isinstance(decision, GiveUp):
            return self._why(decision, outcome, is_retry=not overcome)
        if isinstance(decision, Restart):
            token = None
            if not replays:
                return "its input was too much to be kept"
        self._tally, self._resumed = decision.tally, token
        why = self._said_of(decision) if overcome else None
        if isinstance(decision, Restart) and decision.forgets:
            self._token = None
        if token is None or settings.resume_command is None:
            command = settings.command
        else:
            command = _resuming(settings.resume_command, token)
        return Again(command, decision.delay, why, overcome.get("limit_over_at"))

    def _remember(self, outcome: Result) -> None:
        """What an attempt that says nothing must not make forgotten: a session, and that much was said."""
        self._passed += outcome.passed
        if outcome.token is not None or outcome.has_lost_session:
            self._token = outcome.token

    def _to_overcome(self, outcome: Result) -> dict[str, Any]:
        """What a decision must know of what the user has asked to be overcome; empty if it is not that."""
        failed = outcome.failed
        if self._settings.fresh_if_unknown and self._is_unknown(outcome):
            done = outcome.done or {}
            return {
                "error_class": ErrorClass.VALIDATION,
                "is_unknown": True,
                "fresh_if_unknown": True,
                "tools_in_session": done.get("tools_run", 0),
            }
        now = time.time()
        over_at = None if failed is None else self._policy.limit_over_at(None, now, failed=failed)
        if failed is None or over_at is None or outcome.result == "success":
            return {}
        return {
            "error_class": class_named(failed.error_class),
            "limit_over_in": over_at - now,
            "limit_over_at": on_the_clock(over_at, now),
        }

    def _is_unknown(self, outcome: Result) -> bool:
        """Whether it is certain that the agent does not know the session that it was to resume."""
        if self._resumed is None:
            return False
        if outcome.failed is not None and outcome.failed.session_unknown:
            return True
        return not outcome.has_progressed and is_said_in(outcome.complaints, self._resumed)

    def _said_of(self, decision: Resume | Restart) -> str:
        if isinstance(decision, Restart) and decision.forgets:
            session = (self._token or "")[:8]
            return f"the agent does not know session {session}: beginning afresh, without what was said before"
        return decision.why.partition(": ")[2]  # without the class

    def _why(self, decision: GiveUp, outcome: Result, *, is_retry: bool) -> str | None:
        if not outcome.is_ended_for_certain:
            return left_of(outcome).removeprefix("; ")
        if is_retry and decision.reason == "retries":
            return None
        if is_retry and decision.reason == "deadline":
            return "total leaves no time for it"
        if not is_retry and (self._token is not None or decision.reason != "unsafe"):
            return decision.why.partition(": ")[2]
        if self._settings.resume_command is None:
            return "some of its output was passed on already (--resume-cmd says how to go on with a session)"
        return "it named no session that could be resumed"


def _is_a_token(text: str) -> bool:
    is_one = 0 < len(text) <= _LONGEST_TOKEN and _OF_A_TOKEN.issuperset(text)
    return is_one and not text.startswith("-")


def _resuming(template: str, token: str) -> tuple[str, ...]:
    """The words of `--resume-cmd`, the session's id in place."""
    import shlex

    return tuple(word.replace("{session_id}", token) for word in shlex.split(template))
