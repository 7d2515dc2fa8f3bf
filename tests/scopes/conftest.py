"""Time scopes on all loops."""

from __future__ import annotations

import pytest

from streamguard import scopes
from tests.conftest import Loop


@pytest.fixture(autouse=True)
def _on_the_scale_of_the_loop(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "loop" in request.fixturenames:
        loop: Loop = request.getfixturevalue("loop")
        monkeypatch.setattr(scopes, "MIN_ATTEMPT", loop.s(scopes.MIN_ATTEMPT))


@pytest.fixture
def exact(loop: Loop) -> Loop:
    """A loop on which an instant is one: what is left to the millisecond, who is first of two."""
    if not loop.is_virtual:
        pytest.skip("an instant needs virtual time")
    return loop
