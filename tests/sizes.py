"""How much the tests do of what could go on for ever: random schedules, models, examples.

`STREAMGUARD_TESTS=dev`, the default, is for whoever changes the code: seconds for all of them.
`STREAMGUARD_TESTS=ci` takes minutes. What either runs is the same each time.
"""

from __future__ import annotations

import os
from typing import TypeVar

import hypothesis
import pytest

T = TypeVar("T")

NAME = os.environ.get("STREAMGUARD_TESTS") or "dev"
if NAME not in {"dev", "ci"}:
    raise pytest.UsageError(f"STREAMGUARD_TESTS is {NAME!r}, neither 'dev' nor 'ci'")


def size(*, dev: T, ci: T) -> T:
    """The one of the two that this run is for."""
    return ci if NAME == "ci" else dev


# For the tests by examples that do not say themselves how many.
# How fast examples are made says how busy the machine is, and nothing of what is tested.
hypothesis.settings.register_profile(
    "streamguard",
    max_examples=size(dev=15, ci=100),
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("streamguard")
