"""A yard on each store; with STREAMGUARD_FLEET_FULL=1 on each loop, too, and with the controls on both stores."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fleet.acceptance.yard import FULL, Yard
from tests.fleet.places import ServerPlace

HERE = Path(__file__).parent
PAIRS = [("sqlite", "asyncio"), ("postgresql", "trio")]
if FULL:
    PAIRS += [("sqlite", "trio"), ("postgresql", "asyncio")]


def pytest_collection_modifyitems(config, items) -> None:
    """Without minutes to spend, what must fail is seen to fail on one store."""
    if not FULL:
        twice = [each for each in items if HERE in each.path.parents and _is_second_control(each)]
        config.hook.pytest_deselected(items=twice)
        items[:] = [each for each in items if each not in twice]


def _is_second_control(item) -> bool:
    return "control" in item.name and "-".join(PAIRS[1]) in item.name


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
