"""Each store is tried in a file and, where there is a PostgreSQL server, in that; Temporal, where its server is.

STREAMGUARD_REAL=1 makes a missing server a failure, 0 leaves it alone.
"""

from __future__ import annotations

import os

import pytest

from tests.fleet.places import FilePlace, ServerPlace
from tests.fleet.postgres import NoServerError, Server
from tests.fleet.temporal import DevServer, NoTemporalError

_REAL = os.environ.get("STREAMGUARD_REAL", "")


@pytest.fixture(scope="session")
def server():
    if _REAL == "0":
        pytest.skip("STREAMGUARD_REAL=0")
    try:
        import psycopg  # noqa: F401

        server = Server()
    except (NoServerError, ImportError) as missing:
        if _REAL == "1":
            pytest.fail(f"STREAMGUARD_REAL=1, but {missing}", pytrace=False)
        pytest.skip(str(missing))
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.real)])
def place(request, tmp_path):
    """A place with a clock that stands still."""
    if request.param == "sqlite":
        place = FilePlace(tmp_path)
    else:
        place = ServerPlace(request.getfixturevalue("server"))
    yield place
    place.close()


@pytest.fixture
def store(place):
    return place.store()


@pytest.fixture(scope="session")
def temporal_servers(tmp_path_factory):
    """Makes servers of Temporal's, which are gone when the tests are over."""
    if _REAL == "0":
        pytest.skip("STREAMGUARD_REAL=0")
    made = []

    def make(**options):
        try:
            server = DevServer(tmp_path_factory.mktemp("temporal"), **options)
        except NoTemporalError as missing:
            if _REAL == "1":
                pytest.fail(f"STREAMGUARD_REAL=1, but {missing}", pytrace=False)
            pytest.skip(str(missing))
        made.append(server)
        server.start()
        return server

    pytest.importorskip("temporalio")
    try:
        yield make
    finally:
        for server in made:
            server.kill()


@pytest.fixture(scope="session")
def temporal(temporal_servers):
    """One for all tests that do it no harm."""
    return temporal_servers()
