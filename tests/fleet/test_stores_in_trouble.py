"""Stores that are away, stuck, cut, forked, closed or not what they seem: clear errors, and no thread is lost."""

from __future__ import annotations

import builtins
import os
import shutil
import sqlite3
import stat
import sys
import tempfile
import threading
import time
import traceback
import warnings
from pathlib import Path

import pytest

from streamguard import ConfigError
from streamguard.errors import StoreError
from streamguard.fleet.addresses import store_at
from streamguard.fleet.sql_store import SqlStore
from streamguard.fleet.sqlite_database import SqliteDatabase
from streamguard.fleet.store import Beat
from tests.fleet.places import ServerPlace
from tests.fleet.silent_proxy import SilentProxy

PATIENCE = 30.0
TTL = 15.0


class Call(threading.Thread):
    """A call that may hang, in a thread. `ended()` gives its result, or what it raised."""

    def __init__(self, call, *args) -> None:
        super().__init__(daemon=True)
        self._call = call, args
        self.start()

    def run(self) -> None:
        call, args = self._call
        try:
            self._outcome = call(*args)
        except BaseException as error:
            self._outcome = error

    def ended(self):
        self.join(PATIENCE)
        assert not self.is_alive(), "the call hangs"
        return self._outcome


def is_stuck(call: Call) -> bool:
    call.join(0.3)
    return call.is_alive()


@pytest.fixture
def served(server):
    """A place on the server in real time."""
    place = ServerPlace(server, stands_still=False)
    yield place
    place.close()


@pytest.fixture
def proxy(server):
    proxy = SilentProxy(server.socket)
    yield proxy
    proxy.close()


def through(proxy, served, **settings):
    """A store whose way to the server leads through the proxy."""
    from streamguard.fleet.postgres_database import PostgresDatabase

    host = f"host='{served.server.home}'"
    address = served.address.replace(host, f"host=127.0.0.1 port={proxy.port}")
    return SqlStore(PostgresDatabase(f"{address} connect_timeout=2", **settings))


# -- stuck ----------------------------------------------------------------------------------


def test_an_interrupt_frees_who_waits_in_a_black_network(served, proxy):
    with through(proxy, served) as store:
        store.submit("s", {})
        store.live()
        proxy.is_black = True
        calls = [Call(store.live)]
        assert proxy.swallowed.wait(PATIENCE)
        calls += [Call(store.submit, "t", {}), Call(store.claim, "anna", TTL, 1)]
        assert is_stuck(calls[0])
        store.interrupt()
        outcomes = [call.ended() for call in calls]
        assert [type(outcome) for outcome in outcomes] == [StoreError] * 3
        assert "interrupted" in str(outcomes[0])
        proxy.is_black = False
        assert {row.key for row in store.live()} >= {"s"}


def test_without_a_cut_it_would_hang(served, proxy, monkeypatch):
    """The control: closing nothing, as timeouts of a client do, frees nobody."""
    from streamguard.fleet.postgres_database import PostgresLink

    with through(proxy, served) as store:
        store.live()
        proxy.is_black = True
        call = Call(store.live)
        assert proxy.swallowed.wait(PATIENCE)
        with monkeypatch.context() as patched:
            patched.setattr(PostgresLink, "end_wait", lambda link: None)
            store.interrupt()
            assert is_stuck(call)
        store.interrupt()
        assert isinstance(call.ended(), StoreError)


def test_patience_has_an_end_in_a_black_network_too(served, proxy):
    with through(proxy, served, patience=0.5) as store:
        store.submit("s", {})
        store.live()
        proxy.is_black = True
        assert "not answered for 0.5 s" in str(Call(store.live).ended())
        proxy.is_black = False
        assert [row.key for row in store.live()] == ["s"]


def test_a_connection_that_cannot_be_made_is_given_up(served, proxy):
    proxy.is_black = True
    with through(proxy, served) as store:
        error = Call(store.live).ended()
    assert isinstance(error, StoreError)
    assert "does not answer" in str(error)


def test_a_beat_waits_behind_no_other_work(served, server):
    """Four writes are stuck behind somebody's lock, and the beat of another session is through."""
    import psycopg

    with served.store() as store:
        store.submit("locked", {})
        store.submit("free", {})
        claims = {claimed.key: claimed for claimed in store.claim("anna", TTL, 2)}
        with psycopg.connect(served.address) as somebody:
            somebody.execute("SELECT 1 FROM streamguard_sessions WHERE key = 'locked' FOR UPDATE")
            calls = [Call(store.cancel, "locked", "why") for _ in range(4)]
            assert is_stuck(calls[0])
            beat = Beat(key="free", token=claims["free"].token, owner="anna")
            assert Call(store.beat, [beat], TTL).ended() == {"free": "kept"}
            store.interrupt()
            assert [type(call.ended()) for call in calls] == [StoreError] * 4
        assert store.beat([beat], TTL) == {"free": "kept"}


def test_an_interrupt_frees_who_waits_for_a_locked_file(tmp_path):
    store = store_at(tmp_path / "fleet.db")
    store.submit("s", {})
    somebody = sqlite3.connect(tmp_path / "fleet.db", isolation_level=None)
    somebody.execute("BEGIN IMMEDIATE")
    calls = [Call(store.submit, str(n), {}) for n in range(3)]
    assert is_stuck(calls[0])
    assert Call(store.live).ended() != []  # who reads, waits for nobody
    deadline = time.monotonic() + PATIENCE
    while any(call.is_alive() for call in calls) and time.monotonic() < deadline:
        store.interrupt()  # each of them in its turn
        time.sleep(0.01)
    assert [type(call.ended()) for call in calls] == [StoreError] * 3
    somebody.execute("ROLLBACK")
    somebody.close()
    assert store.submit("t", {})
    store.close()


def test_a_file_that_others_lock_is_given_up(tmp_path):
    store = SqlStore(SqliteDatabase(tmp_path / "fleet.db", patience=0.2))
    store.submit("s", {})
    somebody = sqlite3.connect(tmp_path / "fleet.db", isolation_level=None)
    somebody.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="locked by another process"):
        store.submit("t", {})
    somebody.close()
    assert store.submit("t", {})
    store.close()


# -- a server that dies ---------------------------------------------------------------------


def test_a_server_may_be_killed_and_come_back(served, server):
    with served.store() as store:
        store.submit("s", {})
        [claimed] = store.claim("anna", 1000, 1)
        beat = Beat(key="s", token=claimed.token, owner="anna")
        server.stop()
        try:
            for call in (store.live, lambda: store.beat([beat], TTL), lambda: store.finish(beat)):
                with pytest.raises(StoreError, match=r"cannot be reached|connection was lost"):
                    call()
        finally:
            server.start()
        assert store.beat([beat], TTL) == {"s": "kept"}
        assert store.finish(beat)


def test_a_connection_that_died_while_it_was_idle_is_not_lent(served, server):
    with served.store() as store:
        store.submit("s", {})
        server.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE application_name = 'streamguard'"
        )
        assert store.submit("t", {})


# -- closed, forked -------------------------------------------------------------------------


def test_a_closed_store_says_so(place):
    store = place.store()
    store.submit("s", {})
    store.close()
    store.close()
    store.interrupt()
    for call in (store.live, lambda: store.submit("t", {}), lambda: list(store.timeouts())):
        with pytest.raises(StoreError, match="was closed: make a new store"):
            call()


def test_closing_frees_who_waits(served, server):
    import psycopg

    store = served.store()
    store.submit("s", {})
    with psycopg.connect(served.address) as somebody:
        somebody.execute("LOCK TABLE streamguard_sessions")
        call = Call(store.live)
        assert is_stuck(call)
        store.close()
        assert isinstance(call.ended(), StoreError)


@pytest.mark.skipif(sys.platform == "darwin", reason="forks with threads are not safe there")
def test_a_fork_is_told_to_make_its_own(place):
    store = place.store()
    store.submit("s", {})
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork with threads
        child = os.fork()
    if not child:
        try:
            store.live()
            told = "no error"
        except StoreError as error:
            told = str(error)
        store.interrupt()
        store.close()
        os.write(writer, told.encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    told = os.read(reader, 10_000).decode()
    os.close(reader)
    assert f"opened by process {os.getpid()}" in told
    assert "make a store in each process" in told
    assert [row.key for row in store.live()] == ["s"]


# -- not what it seems ----------------------------------------------------------------------


def test_a_file_is_made_for_its_owner_alone(tmp_path):
    before = os.umask(0)
    try:
        store = store_at(tmp_path / "a" / "b" / "fleet.db")
        store.submit("s", {})
    finally:
        os.umask(before)
    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode)
        for path in [tmp_path / "a", *(tmp_path / "a").rglob("*")]
    }
    assert modes == {
        **dict.fromkeys(("a", "b"), 0o700),
        **dict.fromkeys(("fleet.db", "fleet.db-wal", "fleet.db-shm"), 0o600),
    }
    store.close()


def test_nothing_is_opened_before_it_is_used(tmp_path):
    store_at(tmp_path / "fleet.db").close()
    assert list(tmp_path.iterdir()) == []


def made(path, *statements):
    connection = sqlite3.connect(path)
    with connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def test_a_file_that_is_no_store_is_refused(tmp_path):
    path = tmp_path / "fleet.db"
    path.write_text("Dear diary, " * 200)
    with pytest.raises(StoreError, match=r"fleet\.db is no SQLite database: name another file"):
        store_at(path).live()
    assert path.read_text().startswith("Dear diary")


def test_a_database_of_something_else_is_refused_and_left_as_it_is(tmp_path):
    path = tmp_path / "fleet.db"
    made(path, "CREATE TABLE invoices (id)")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="a database of something else"):
        store_at(path).submit("s", {})
    assert path.read_bytes() == before


def test_a_folder_is_no_store(tmp_path):
    with pytest.raises(StoreError, match="cannot be opened: see that it is a file"):
        store_at(tmp_path).live()


def test_a_path_that_leads_through_a_file_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be made"):
        store_at(tmp_path / "file" / "fleet.db").live()


@pytest.fixture
def as_nobody():
    """A folder that anybody may enter, and a way to be nobody for a while: root may write to everything."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o755)
    was = os.geteuid()
    if was == 0:
        yield folder, lambda: os.seteuid(65534)
        os.seteuid(was)
    else:
        yield folder, lambda: folder.chmod(0o555)
        folder.chmod(0o755)
    shutil.rmtree(folder)


def test_a_file_that_may_not_be_written_to_is_refused(as_nobody):
    folder, become = as_nobody
    path = folder / "fleet.db"
    with store_at(path) as store:
        store.submit("s", {})
    path.chmod(0o444)
    become()
    with pytest.raises(StoreError, match="may not be written to: give this user the right"):
        store_at(path).submit("t", {})


def test_a_folder_that_may_not_be_written_to_is_refused(as_nobody):
    folder, become = as_nobody
    become()
    with pytest.raises(StoreError, match="cannot be made: Permission denied"):
        store_at(folder / "fleet.db").submit("t", {})


# -- addresses ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("fleet.db", "fleet.db"),
        ("sqlite:///fleet.db", "fleet.db"),
        ("sqlite:////var/lib/fleet.db", "/var/lib/fleet.db"),
        ("a=b/fleet.db", "a=b/fleet.db"),
        ("postgresql", "postgresql"),
    ],
)
def test_an_address_may_be_a_path(address, path):
    store = store_at(address)
    assert repr(store) == f"<SqlStore: the store {Path(path).absolute()}>"


@pytest.mark.parametrize(
    "address", ["", ":memory:", "sqlite:///", "sqlite://fleet.db", "mysql://x/y"]
)
def test_what_is_no_place_is_refused(address):
    with pytest.raises(ConfigError):
        store_at(address)


def test_an_address_may_be_a_servers(served, server):
    home = str(server.home).replace("/", "%2F")
    for address in (
        served.address,
        f"postgresql://admin@{home}/postgres",
        f"postgres:///postgres?host={home}&user=admin",
    ):
        with store_at(address) as store:
            assert repr(store) == f"<SqlStore: the PostgreSQL store {server.home}/postgres>"
            if address == served.address:
                assert store.submit("s", {})


def test_what_is_asked_of_tls_is_passed_on(served, proxy):
    with through(proxy, served) as store:
        store.live()
    for mode in ("require", "verify-full"):
        address = f"host=127.0.0.1 port={proxy.port} user=admin dbname=postgres sslmode={mode}"
        if mode == "verify-full":
            address += " sslrootcert=/nowhere/at/all.pem"
        with store_at(address) as store, pytest.raises(StoreError, match=r"TLS|nowhere/at/all"):
            store.live()


def test_without_psycopg_the_extra_is_named(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **more):
        if name == "psycopg":
            raise ImportError("no pq wrapper available")
        return real(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(StoreError, match=r"pip install 'agent-streamguard\[postgres\]'"):
        store_at("postgresql://localhost/db")


# -- what a server refuses ------------------------------------------------------------------


@pytest.fixture
def locked(server):
    """A role that wants a password, and may do nothing."""
    server.execute("DROP ROLE IF EXISTS locked", "CREATE ROLE locked LOGIN PASSWORD 'right'")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"user": "locked", "password": "hunter2"}, "refuses this user or password"),
        ({"user": "locked"}, "wants a password"),
        ({"dbname": "nothing"}, "has no such database: make it"),
        ({"host": "/nowhere"}, "cannot be reached"),
        ({"host": "127.0.0.1", "port": "1"}, "cannot be reached"),
        ({"host": "no.such.host.invalid"}, "cannot be reached"),
    ],
)
def test_who_is_refused_is_told_why(server, locked, words, said):
    with (
        store_at(server.address(**words)) as store,
        pytest.raises(StoreError, match=said) as caught,
    ):
        store.live()
    assert "\n" not in str(caught.value)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


def test_who_has_no_rights_is_told_so(served, server, locked):
    server.execute(f"GRANT USAGE ON SCHEMA {served.schema} TO locked")
    address = served.address.replace("'admin'", "locked password=right")
    with store_at(address) as store:
        with pytest.raises(StoreError, match="does not let this user do that: grant it"):
            store.live()
        with pytest.raises(StoreError, match="does not let this user do that: grant it"):
            store.submit("s", {})


def test_a_read_only_server_is_told(served):
    address = served.address.replace(
        "search_path", "default_transaction_read_only=on -c search_path"
    )
    with store_at(address) as store:
        assert store.live() == []
        with pytest.raises(StoreError, match="is read-only, such as a standby"):
            store.submit("s", {})


def test_an_old_server_is_told(served, monkeypatch):
    from streamguard.fleet import postgres_database

    monkeypatch.setattr(postgres_database, "_OLDEST", 99)
    with served.store() as store, pytest.raises(StoreError, match="a store needs 99 or newer"):
        store.live()


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://u:hunter2@127.0.0.1:1/db",
        "postgresql://u:hunter%32@127.0.0.1:1/db",
        "postgresql://u:a@hunter2@127.0.0.1:1/db",
        "postgresql://u:hunter2@a@127.0.0.1:1/db",
        "postgresql://u:a/hunter2@127.0.0.1:1/db",
        "postgresql://u:hunter2/a@127.0.0.1:1/db",
        "postgresql://u:hunter2?a@127.0.0.1:1/db",
        "postgresql://u:a:hunter2@127.0.0.1:1/db",
        "postgresql://u:a#hunter2@127.0.0.1:1/db",
        "postgresql://u:hunter2%zz@127.0.0.1:1/db",
        "postgresql://127.0.0.1:1/db?password=hunter2",
        "postgresql://127.0.0.1:1/db?sslpassword=hunter2&sslmode=disable",
        "host=127.0.0.1 port=1 password=hunter2",
        "host=127.0.0.1 port=1 password='hunter2",
        "host=127.0.0.1 port=1 password=a hunter2",
        "host=127.0.0.1 port=1 hunter2=x",
    ],
)
def test_no_error_shows_a_password(address):
    shown = []
    with pytest.raises(StoreError) as caught, store_at(address) as store:
        shown += [repr(store), repr(store.circuits), repr(store._database)]
        store.live()
    shown += [str(caught.value), str(caught.value.__cause__)]
    shown += traceback.format_exception(caught.value, limit=0)
    assert "hunter2" not in "".join(shown)
    assert "\n" not in str(caught.value)


def test_no_error_shows_what_was_to_be_written(served, server):
    served.execute("ALTER TABLE streamguard_sessions ADD CHECK (length(spec) < 5)")
    with served.store() as store, pytest.raises(StoreError, match="violates check") as caught:
        store.submit("s", {"prompt": "hunter2"})
    assert "hunter2" not in "".join(traceback.format_exception(caught.value, limit=0))
