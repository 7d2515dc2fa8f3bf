"""A store's tables: made once, brought up to date one version at a time, refused if they are of another."""

from __future__ import annotations

import pytest

from streamguard.errors import StoreError
from streamguard.fleet.schema import MIGRATIONS, Migration
from streamguard.fleet.sql_store import SqlStore
from streamguard.fleet.sqlite_database import SqliteDatabase

SECOND = Migration(
    what="colours",
    only={
        "postgresql": ("CREATE FUNCTION red() RETURNS TEXT LANGUAGE sql AS 'SELECT ''red'''",),
        "sqlite": ("CREATE TABLE only_here (id {id})",),
    },
    statements=(
        "ALTER TABLE streamguard_sessions ADD COLUMN colour TEXT",
        "CREATE TABLE colours (id {id}, name TEXT)",
    ),
)
NEWER = (*MIGRATIONS, SECOND)
BROKEN = (*MIGRATIONS, Migration(what="nonsense", statements=(*SECOND.statements, "NONSENSE")))


def version(place) -> int:
    [(found,)] = place.execute("SELECT version FROM streamguard_version")
    return found


def of_version(place, migrations):
    """A store by a streamguard that knows these versions."""
    database = place._database()
    store = SqlStore(type(database)(place.address, migrations=migrations))
    place._stores.append(store)
    return store


def test_a_store_says_its_version(place, store):
    store.initialise()
    store.initialise()
    assert version(place) == len(MIGRATIONS) == 1
    assert store.migrate() == []


def test_an_older_store_is_refused_until_it_is_migrated(place, store):
    store.initialise()
    store.submit("s", {"kept": True})
    newer = of_version(place, NEWER)
    for call in (newer.live, newer.initialise):
        with pytest.raises(
            StoreError, match=r"is of version 1, .* wants version 2: .*`streamguard fleet migrate`"
        ):
            call()
    assert newer.migrate() == ["colours"]
    assert newer.migrate() == []
    assert version(place) == 2
    place.execute("INSERT INTO colours (name) VALUES ('red')")
    assert newer.claim("anna", 15, 1)[0].spec == {"kept": True}


def test_a_newer_store_is_refused(place):
    of_version(place, NEWER).migrate()
    store = of_version(place, MIGRATIONS)
    for call in (store.live, store.initialise, store.migrate):
        with pytest.raises(StoreError, match=r"is of version \d, .*: upgrade streamguard$"):
            call()


def test_a_migration_that_fails_changes_nothing(place, store):
    store.initialise()
    with pytest.raises(StoreError, match=r"failed: .*NONSENSE"):
        of_version(place, BROKEN).migrate()
    assert version(place) == 1
    assert store.submit("s", {})
    assert of_version(place, NEWER).migrate() == ["colours"]


def test_a_version_that_somebody_has_changed_is_refused(place, store):
    store.initialise()
    place.execute("DELETE FROM streamguard_version")
    with pytest.raises(StoreError, match="has 0 rows instead of one"):
        place.store().live()


def test_a_file_is_made_when_it_is_first_used(tmp_path):
    with SqlStore(SqliteDatabase(tmp_path / "a.db")) as store:
        assert store.live() == []
    with SqlStore(SqliteDatabase(tmp_path / "b.db")) as store:
        assert store.migrate() == [MIGRATIONS[0].what]
        assert store.submit("s", {})


@pytest.mark.real
def test_on_a_server_it_is_made_by_whoever_says_so(server):
    from streamguard.fleet.addresses import store_at

    server.execute("DROP SCHEMA IF EXISTS empty CASCADE", "CREATE SCHEMA empty")
    with store_at(server.address(options="-c search_path=empty")) as store:
        with pytest.raises(StoreError, match="holds no store yet: run `streamguard fleet init`"):
            store.live()
        store.initialise()
        assert store.submit("s", {})
        server.execute("DROP SCHEMA empty CASCADE")
        with pytest.raises(StoreError, match="holds no store"):
            store.live()


@pytest.mark.real
def test_a_database_that_cannot_hold_every_text_is_refused(server):
    from streamguard.fleet.addresses import store_at

    server.execute(
        "DROP DATABASE IF EXISTS latin",
        "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'",
    )
    with (
        store_at(server.address(dbname="latin")) as store,
        pytest.raises(StoreError, match=r"has the encoding LATIN1, .*ENCODING 'UTF8'"),
    ):
        store.initialise()
