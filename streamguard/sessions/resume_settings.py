"""What `reconnecting_resume` and `keep_alive` say, as immutable values of a plan."""

from __future__ import annotations

import string
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from streamguard.errors import ConfigError
from streamguard.retry.decision import DEFAULT_POLICY
from streamguard.sessions.points import ResumePoint

if TYPE_CHECKING:
    from streamguard.breaker.breaker import CircuitBreaker
    from streamguard.retry.policy import RetryPolicy
    from streamguard.sessions.points import Opener

ResumePrompt: TypeAlias = str | Callable[[ResumePoint], str]
DedupeBy: TypeAlias = Callable[[Any], Hashable | None]

CONTINUE = "Continue."


@dataclass(frozen=True, kw_only=True)
class Reconnecting:
    """Whether and how a session goes on after a failure."""

    open: Opener[Any] | None = None
    policy: RetryPolicy = DEFAULT_POLICY
    breaker: CircuitBreaker | None = None
    prompt: ResumePrompt = CONTINUE
    dedupe_by: DedupeBy | None = None
    resume_after_unconfirmed_teardown: bool = False
    fresh_if_unknown: bool = False

    def prompt_for(self, point: ResumePoint, labels: Mapping[str, object]) -> str:
        """What to ask a session that is resumed at `point`.

        Of a template, the fields are the labels of the session's activity, and those of `point`.
        """
        if callable(self.prompt):
            return self.prompt(point)
        fields = {**vars(point), **labels}
        try:
            return string.Formatter().vformat(self.prompt, (), fields)
        except (LookupError, ValueError, AttributeError) as error:
            raise ConfigError(
                f"reconnecting_resume(prompt={self.prompt!r}) cannot be filled in: {error!r}. Its "
                f"fields are {', '.join(fields)}; give others as labels of the activity, such as "
                "Activity('issue-7', issue_id=7), and write {{ and }} for braces"
            ) from None


@dataclass(frozen=True)
class KeepAlive:
    """What is said to the consumer while there is nothing to say."""

    every: float
    make: Callable[[], Any]
