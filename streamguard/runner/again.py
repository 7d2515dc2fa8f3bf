"""Whether there is another attempt, as the library's sessions decide it (`retry.decide`).

What a command has already said cannot be taken back, so a further attempt either takes up the agent's
session or finds nobody who has seen anything; and never while something of the one before may live.
Loaded when an attempt was ended for a limit and `--retries` was said.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from streamguard.retry.classes import ErrorClass
from streamguard.retry.decision import GiveUp, State, decide
from streamguard.retry.policy import Backoff, RetryPolicy, Tally
from streamguard.runner.result import left_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamguard.runner.options import Settings
    from streamguard.runner.result import Result

# After these another attempt can come to something; `total` and `exit_grace` are the end.
_RETRIED = ("idle", "first", "first_json", "tools", "turn", "liveness", "after_sleep")
# What can be part of a command line and of no trick: what agents call their sessions.
_OF_A_TOKEN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:-")
_LONGEST_TOKEN = 256


class Again(NamedTuple):
    """A further attempt: what to run, and after how long."""

    command: Sequence[str]
    delay: float


class Attempts:
    """What a run has spent on attempts, and may still spend."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        delays = settings.backoff or (0.0,)
        self._policy = RetryPolicy(
            idle=Backoff(settings.retries, delays),
            cap=max(*delays, 1.0),
            max_in_a_row=max(settings.retries, 1),
            max_reconnects=max(settings.retries, 1),
            productive_span=math.inf,
            instant=0.0,
            min_attempt=0.0,
        )
        self._tally = Tally()

    def after(self, outcome: Result, left: float, *, replays: bool) -> Again | str | None:
        """A further attempt; or why there is none; or None where that needs no word.

        `left` seconds are left of `total`; `replays`: the input can be given again.
        """
        fired = outcome.fired
        if fired is None or fired.limit not in _RETRIED or outcome.passed_on is not None:
            return None
        settings = self._settings
        command, token = settings.command, None
        if settings.resume_command is not None and outcome.token is not None:
            if not _is_a_token(outcome.token):
                return "its session id cannot be part of a command line"
            token, command = outcome.token, _resuming(settings.resume_command, outcome.token)
        decision = decide(
            State(
                error_class=ErrorClass.IDLE,
                tally=self._tally,
                token=token,
                delivered=outcome.passed,
                teardown_confirmed=outcome.is_ended_for_certain,
                remaining=None if left == math.inf else left,
            ),
            self._policy,
        )
        if isinstance(decision, GiveUp):
            return self._why(decision, outcome)
        if token is None and not replays:
            return "its input was too much to be kept"
        self._tally = decision.tally
        return Again(command, decision.delay)

    def _why(self, decision: GiveUp, outcome: Result) -> str | None:
        if decision.reason == "retries":
            return None
        if decision.reason == "deadline":
            return "total leaves no time for it"
        if not outcome.is_ended_for_certain:
            return left_of(outcome).removeprefix("; ")
        if self._settings.resume_command is None:
            return "some of its output was passed on already"
        return "it named no session that could be resumed"


def _is_a_token(text: str) -> bool:
    is_one = 0 < len(text) <= _LONGEST_TOKEN and _OF_A_TOKEN.issuperset(text)
    return is_one and not text.startswith("-")


def _resuming(template: str, token: str) -> tuple[str, ...]:
    """The words of `--resume-cmd`, the session's id in place."""
    import shlex

    return tuple(word.replace("{session_id}", token) for word in shlex.split(template))
