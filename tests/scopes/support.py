"""What the tests of scopes share: names as strings, and a witness of what is told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from streamguard import DeadlineExceededError
from streamguard.errors import Verdict
from streamguard.events import ScopeEvent, observing_scopes


def names(error: DeadlineExceededError) -> tuple[str, str, str]:
    """Which scope fired, which is effective, and the path, as a person reads them."""
    verdict = verdict_of(error)
    return str(verdict.fired), str(verdict.effective), " > ".join(map(str, verdict.scope))


def verdict_of(error: DeadlineExceededError) -> Verdict:
    assert error.verdict is not None
    return error.verdict


@contextmanager
def witnessed() -> Iterator[list[ScopeEvent]]:
    told: list[ScopeEvent] = []
    with observing_scopes(told.append):
        yield told
