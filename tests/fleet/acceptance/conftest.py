"""A yard on each store; on each loop, too, with STREAMGUARD_FLEET_FULL=1."""

from __future__ import annotations

import pytest

from tests.fleet.acceptance.yard import FULL, Yard
from tests.fleet.places import ServerPlace

PAIRS = [("sqlite", "asyncio"), ("postgresql", "trio")]
if FULL:
    PAIRS += [("sqlite", "trio"), ("postgresql", "asyncio")]


def made(request, tmp_path, store: str, loop: str) -> Yard:
    if store == "sqlite":
        return Yard(store, str(tmp_path / "fleet.db"), tmp_path, loop)
    place = ServerPlace(request.getfixturevalue("server"), stands_still=False)
    request.addfinalizer(place.close)
    return Yard(store, place.address, tmp_path, loop, place.server.socket)


@pytest.fixture(params=PAIRS, ids="-".join)
def yard(request, tmp_path):
    yard = made(request, tmp_path, *request.param)
    yield yard
    yard.close()


@pytest.fixture(params=["asyncio", "trio"] if FULL else ["asyncio"])
def served_yard(request, tmp_path):
    """One on PostgreSQL, for what needs a network."""
    yard = made(request, tmp_path, "postgresql", request.param)
    yield yard
    yard.close()


@pytest.fixture(params=["asyncio", "trio"] if FULL else ["trio"])
def file_yard(request, tmp_path):
    """One with a file."""
    yard = made(request, tmp_path, "sqlite", request.param)
    yield yard
    yard.close()
