"""`streamguard fleet`: real processes over real stores; what is wrong is one clear line."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from streamguard.cli import main
from streamguard.cli.fleet.looking import SESSIONS
from streamguard.cli.fleet.where import holds_password, own_file
from streamguard.fleet import Beat, store_at
from tests.process.backends import PATIENCE, is_dead

PARTS = ("submit", "serve", "list", "show", "log", "cancel", "release", "init", "migrate", "demo")
HANDLERS = Path(__file__).with_name("handlers.py")


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    """A user with nothing, in a folder with handlers."""
    monkeypatch.delenv("STREAMGUARD_FLEET", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    shutil.copy(HANDLERS, tmp_path / "handlers.py")


@pytest.fixture
def fleet(capsys):
    """Runs `streamguard fleet WORDS` in this process."""

    def run(*words, command="fleet"):
        try:
            code = main([command, *words])
        except SystemExit as ended:
            code = ended.code
        told = capsys.readouterr()
        return SimpleNamespace(code=code, out=told.out, err=told.err)

    return run


@pytest.fixture
def worker():
    """Starts `streamguard fleet serve WORDS`."""
    started = []

    def start(*words, **options):
        command = [sys.executable, "-m", "streamguard", "fleet", "serve", *words]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
            **options,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def ended(process):
    out, err = process.communicate(timeout=PATIENCE)
    return SimpleNamespace(code=process.returncode, out=out, err=err)


def one_line(told, *words):
    """It is refused, in one line of standard error that says so much."""
    assert (told.code, told.out) == (2, "")
    assert told.err.count("\n") == 1, told.err
    assert told.err.startswith("streamguard ")
    for word in words:
        assert word in told.err


# --- the queue ------------------------------------------------------------------------------


def test_a_session_is_queued_once(fleet):
    assert fleet("submit", "k", "--prompt", "Fix it").out == "queued: k\n"
    again = fleet("submit", "k", "--prompt", "Fix it twice")
    assert (again.code, again.out) == (1, "")
    assert "'k' is known already" in again.err
    [row] = json.loads(fleet("list", "--json").out)
    assert (row["key"], row["status"], row["attempt"]) == ("k", "waiting", 0)


def test_a_spec_comes_from_words_a_file_or_standard_input(fleet, monkeypatch, worker):
    """What comes from a file or a pipe is in nobody's `ps`."""
    Path("spec.json").write_text('{"from": "file"}')
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b'{"from": "pipe"}')))
    fleet("submit", "piped", "--spec", "-")
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO("über\n".encode())))
    fleet("submit", "asked", "--prompt", "-")
    fleet("submit", "filed", "--spec", "@spec.json")
    fleet("submit", "said", "--spec", '{"from": "words"}')
    fleet("submit", "bare")
    assert ended(worker("handlers:note", "--until-idle")).code == 0
    seen = dict(line.split(" ", 1) for line in Path("seen").read_text("utf-8").splitlines())
    assert {key: text.rpartition(" ")[0] for key, text in seen.items()} == {
        "piped": "{'from': 'pipe'}",
        "asked": "{'prompt': 'über'}",
        "filed": "{'from': 'file'}",
        "said": "{'from': 'words'}",
        "bare": "{}",
    }


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--spec", "{secret"), "--spec is no JSON (line 1)"),
        (("--spec", "[1]"), "use a JSON object"),
        (("--spec", '{"a": NaN}'), "--spec is no JSON"),
        (("--spec", "[" * 100_000), "--spec is no JSON"),
        (("--spec", "@nowhere"), "nowhere cannot be read: No such file"),
        (("--spec", "@/"), "cannot be read: it is a folder"),
        (("--spec", "@latin"), "no text in UTF-8"),
    ],
)
def test_what_is_no_spec_is_refused(fleet, words, says):
    Path("latin").write_bytes(b"\xff")
    told = fleet("submit", "k", *words)
    one_line(told, says)
    assert "secret" not in told.err
    assert not Path(own_file()).exists()


def test_a_key_is_a_short_text(fleet):
    one_line(fleet("submit", ""), "1 to 500 characters")
    one_line(fleet("submit", "k" * 501), "1 to 500 characters")


def test_cancel_and_release(fleet):
    fleet("submit", "k")
    assert "is waiting, and only what is parked" in fleet("release", "k").err
    with store_at(own_file()) as store:
        [claimed] = store.claim("w", 100, 1)
        store.park(Beat(key="k", token=claimed.token, owner="w"), "look at \x1b[2J it")
    shown = fleet("show", "k")
    assert r"why:              look at \x1b[2J it" in shown.out.splitlines()
    assert fleet("release", "k").out == "released: k\n"
    assert fleet("cancel", "k", "--why", "no need").out == "cancelled: k (it is over)\n"
    assert fleet("cancel", "k").code == 1
    [row] = json.loads(fleet("list", "--all", "--json").out)
    assert (row["status"], row["why"]) == ("cancelled", "no need")
    assert fleet("list").out.endswith("or all are over: see --all.\n")
    for command in ("cancel", "release", "show"):
        told = fleet(command, "nobody")
        assert (told.code, told.out) == (1, "")
        assert "no session 'nobody' in the store" in told.err


def test_a_running_session_is_told(fleet):
    fleet("submit", "k")
    with store_at(own_file()) as store:
        store.claim("w", 100, 1)
    assert "with its next beat" in fleet("cancel", "k").out
    assert "running, to be cancelled" in fleet("list").out


def test_keys_and_reasons_command_no_terminal(fleet):
    key = "\x1b[2J\u202ek\n"
    for told in (
        fleet("submit", key),
        fleet("submit", key),
        fleet("list"),
        fleet("show", key),
        fleet("release", key),
        fleet("cancel", key, "--why", key),
        fleet("list", "--all"),
        fleet("list", "--all", "--json"),
        fleet("show", f"{key}x"),
    ):
        assert all(line.isprintable() for line in (told.out + told.err).splitlines())


# --- a worker -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loop", "seen"), [("asyncio", "asyncio"), ("uvloop", "uvloop"), ("trio", "trio")]
)
def test_a_worker_serves_on_the_loop_that_is_asked_for(fleet, worker, loop, seen):
    fleet("submit", "k", "--spec", '{"a": 1}')
    told = ended(worker("handlers:Handlers.inner", "--until-idle", "--loop", loop))
    assert (told.code, told.out) == (0, "")
    assert Path("seen").read_text() == f"k {{'a': 1}} {seen}\n"
    assert "serves up to 50 sessions" in told.err
    assert told.err.rstrip().endswith("has stopped, and holds no session")
    [row] = json.loads(fleet("list", "--all", "--json").out)
    assert row["status"] == "done"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_a_signal_drains_a_worker(fleet, worker, number, loop):
    fleet("submit", "k")
    process = worker("handlers:wait", "--loop", loop)
    assert process.stdout.readline() == "running\n"
    process.send_signal(number)
    told = ended(process)
    assert told.code == 0
    assert f"{number.name}: handing over what runs" in told.err
    assert "Traceback" not in told.err
    [row] = json.loads(fleet("list", "--json").out)
    assert (row["status"], row["attempt"]) == ("waiting", 0)


def test_a_second_signal_ends_it_at_once(fleet, worker):
    """Also where the handler keeps the loop from knowing of the first."""
    fleet("submit", "k")
    process = worker("handlers:deaf")
    assert process.stdout.readline() == "running\n"
    process.send_signal(signal.SIGTERM)
    while "a second signal ends it at once" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert ended(process).code == -signal.SIGINT


def test_a_backend_ends_with_a_killed_worker(fleet, worker):
    fleet("submit", "k")
    process = worker("handlers:start")
    backend = int(process.stdout.readline())
    process.kill()
    ended(process)
    deadline = time.monotonic() + PATIENCE
    while not is_dead(backend) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert is_dead(backend)


def test_a_hang_is_in_the_log(fleet, worker, capsys):
    fleet("submit", "k")
    assert ended(worker("handlers:hanging", "--until-idle")).code == 0
    [line] = map(json.loads, fleet("log", "--json").out.splitlines())
    assert (line["session"], line["limit"], line["attempt"]) == ("k", "idle", 1)
    assert "k, attempt 1 on " in fleet("log").out
    assert fleet("log", "--key", "other").out == ""
    assert fleet("log", "--since", "1h").out == fleet("log").out


def test_what_a_handler_raises_commands_no_terminal(fleet, worker):
    fleet("submit", "k")
    told = ended(worker("handlers:fails", "--until-idle"))
    assert told.code == 0
    assert r"\x1b[2Jsecret" in told.err
    assert "Traceback" in told.err  # it is the worker's own log
    assert "\x1b" not in told.err
    shown = fleet("show", "k").out
    assert "KeyError" in shown
    assert "secret" not in shown


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        ("handlers", "write MODULE:HANDLER"),
        (":note", "write MODULE:HANDLER"),
        ("nowhere:note", "there is no module nowhere"),
        ("nowhere.inner:note", "there is no module nowhere.inner"),
        ("handlers:nothing", "there is no 'nothing' in handlers"),
        ("handlers:plain", "handlers:plain is a plain function"),
        ("handlers:stream", "is an async generator"),
        ("handlers:Handlers", "is a class"),
        ("handlers:HANDLER", "is an object of type int"),
        ("broken:note", "broken cannot be imported: ZeroDivisionError: division by zero"),
        ("wants:note", "wants cannot be imported: ModuleNotFoundError: No module named 'nobody'"),
        ("wrong:note", "wrong cannot be imported: SyntaxError"),
    ],
)
def test_what_is_no_handler_is_refused(worker, handler, says):
    Path("broken.py").write_text("1 / 0\n")
    Path("wants.py").write_text("import nobody\n")
    Path("wrong.py").write_text("def (\n")
    one_line(ended(worker(handler)), says)


def test_limits_that_cannot_be_are_refused(worker, fleet):
    one_line(ended(worker("handlers:note", "--flush", "9")), "flush=9, ttl=15")
    told = fleet("serve", "handlers:note", "--ttl", "0")
    assert told.code == 2
    assert "argument --ttl: '0': use a duration" in told.err


# --- where the store is ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://u:p@h/d",
        "postgresql://u:p%40@h:5432/d",
        "postgres://u:@h/d",
        "postgresql://u:p@ss@h/d",
        "postgresql://u:p/ss@h/d",
        "postgresql://h/d?password=p",
        "postgresql://h/d?user=u&PASSWORD=p",
        "postgresql://h/d?pass%77ord=p",
        "postgresql://h/d?sslpassword=p",
        "host=h password=p",
        "password = p host=h",
        "host=h\nsslpassword=p",
        "u:p@h/d",
    ],
)
def test_a_password_on_the_command_line_is_refused(fleet, address):
    """Everybody sees it there."""
    assert holds_password(address)
    told = fleet("list", "--store", address)
    one_line(told, "--store: this address holds a password", "STREAMGUARD_FLEET", "@FILE")
    assert address not in told.err


@pytest.mark.parametrize(
    "address",
    [
        "fleet.db",
        "/var/lib/pass:word@home/fleet.db",
        "sqlite:////var/password=x/fleet.db",
        "postgresql://h/d",
        "postgresql://u@h:5432/d?sslmode=verify-full",
        "postgresql://h1:5432,h2:5433/d?application_name=a@b",
        "postgresql://u@/d?host=/run/postgresql",
        "host=h passfile=/home/u/.pgpass",
        "service=fleet",
    ],
)
def test_an_address_without_one_is_not(address):
    assert not holds_password(address)


def test_the_variable_says_where_unless_the_option_does(fleet, monkeypatch):
    monkeypatch.setenv("STREAMGUARD_FLEET", "one.db")
    fleet("submit", "in one")
    fleet("submit", "in two", "--store", "two.db")
    assert "in one" in fleet("list").out
    assert "in two" in fleet("list", "--store", "two.db").out
    assert "in two" in fleet("list", "--store", "sqlite:///two.db").out
    assert not Path(own_file()).exists()


def test_a_file_may_hold_the_address(fleet, monkeypatch):
    Path("address").write_text("one.db\n")
    fleet("submit", "k", "--store", "@address")
    monkeypatch.setenv("STREAMGUARD_FLEET", "@address")
    assert "k" in fleet("list").out
    assert Path("one.db").exists()


SECRET = "postgresql://u:geheim@127.0.0.1:1/d"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o666])
def test_a_file_that_others_may_read_holds_no_password(fleet, mode):
    Path("address").write_text(SECRET)
    Path("address").chmod(mode)
    told = fleet("list", "--store", "@address")
    one_line(told, "holds a password, and others may read it: chmod 600 address")
    assert "geheim" not in told.err


def test_a_file_of_ones_own_may(fleet, monkeypatch):
    pytest.importorskip("psycopg")
    Path("address").write_text(SECRET)
    Path("address").chmod(0o600)
    monkeypatch.setenv("STREAMGUARD_FLEET", "@address")
    told = fleet("list")
    one_line(told, "the PostgreSQL store 127.0.0.1:1/d")
    assert "geheim" not in told.err
    monkeypatch.setenv("STREAMGUARD_FLEET", SECRET)
    one_line(fleet("list"), "the PostgreSQL store 127.0.0.1:1/d")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot be read: No such file"),
        (b"", "should hold the address of a store, in one line"),
        (b"one.db\ntwo.db\n", "in one line"),
        (b"@other", "names another file"),
        (b"\xff", "is no text"),
    ],
)
def test_a_file_that_holds_none_is_refused(fleet, content, says):
    if content is not None:
        Path("address").write_bytes(content)
    one_line(fleet("list", "--store", "@address"), says)


def test_who_looks_makes_no_file(fleet):
    for command in (("list",), ("show", "k"), ("log",), ("cancel", "k"), ("release", "k")):
        one_line(fleet(*command, "--store", "fleet.bd"), "there is no store at", "fleet.bd")
    one_line(fleet("--fleet", "--store", "fleet.bd", command="top"), "there is no store at")
    assert not Path("fleet.bd").exists()


def test_ones_own_store_is_for_oneself_alone(fleet):
    fleet("submit", "k", "--prompt", "private")
    file = Path(own_file())
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700


def test_what_is_no_store_is_one_line(fleet, worker):
    pytest.importorskip("psycopg")
    Path("text").write_text("no database " * 1000)
    one_line(fleet("list", "--store", "text"), "is no SQLite database")
    one_line(fleet("list", "--store", "mysql://h/d"), "is a path, sqlite:///path or postgresql://")
    one_line(fleet("list", "--store", ""), "name a file, or an address")
    one_line(fleet("list", "--store", "postgresql://h:x/y"), "cannot be")
    one_line(ended(worker("handlers:note", "--store", "text")), "is no SQLite database")


def test_a_store_of_another_version_is_one_line(fleet):
    fleet("submit", "k")
    for version, says in ((99, "upgrade streamguard"), (0, "streamguard fleet migrate")):
        with sqlite3.connect(own_file()) as connection:
            connection.execute("UPDATE streamguard_version SET version = ?", (version,))
        connection.close()
        one_line(fleet("list"), f"is of version {version}", says)


# --- a server -------------------------------------------------------------------------------


def test_a_server_is_made_a_store_and_served(fleet, worker, server, monkeypatch):
    """All of it with the address in a file, which may hold a password."""
    name = f"cli_{os.getpid()}"
    server.execute(f"CREATE SCHEMA {name}")
    Path("address").write_text(server.address(options=f"-c search_path={name}"))
    monkeypatch.setenv("STREAMGUARD_FLEET", "@address")
    one_line(fleet("submit", "k"), "holds no store yet: run `streamguard fleet init`")
    assert fleet("init").out.startswith("ready: the PostgreSQL store ")
    assert "nothing to do" in fleet("migrate").out
    assert fleet("submit", "k").out == "queued: k\n"
    assert ended(worker("handlers:note", "--until-idle")).code == 0
    assert Path("seen").read_text().startswith("k {}")
    [row] = json.loads(fleet("list", "--all", "--json").out)
    assert row["status"] == "done"
    server.execute(f"UPDATE {name}.streamguard_version SET version = 99")
    one_line(fleet("list"), "is of version 99")


def test_a_worker_whose_store_is_away_does_not_begin(worker, monkeypatch):
    pytest.importorskip("psycopg")
    monkeypatch.setenv("STREAMGUARD_FLEET", "postgresql://127.0.0.1:1/d")
    one_line(ended(worker("handlers:note")), "cannot be reached")


def test_without_psycopg_it_says_what_to_install(fleet, monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    one_line(
        fleet("list", "--store", "postgresql://h/d"), "pip install 'agent-streamguard[postgres]'"
    )


def test_without_a_loop_it_says_what_to_install(fleet, monkeypatch):
    monkeypatch.setitem(sys.modules, "trio", None)
    told = fleet("serve", "handlers:note", "--loop", "trio")
    one_line(told, "pip install 'agent-streamguard[trio]'")


# --- the live table -------------------------------------------------------------------------


def test_the_live_table_once(fleet):
    for key in ("b", "a", "c"):
        fleet("submit", key)
    with store_at(own_file()) as store:
        _, second = store.claim("w", 100, 2)
        store.park(Beat(key=second.key, token=second.token, owner="w"), "why not")
    head, *lines = fleet("--fleet", "--once", command="top").out.splitlines()
    assert head.split() == [column.name for column in SESSIONS.columns]
    shown = [line.split() for line in lines]
    assert [[*each[:2], each[3]] for each in shown] == [
        ["a", "parked", "-"],
        ["b", "running", "w"],
        ["c", "waiting", "-"],
    ]
    assert "  why not  " in lines[0]
    rows = json.loads(fleet("--fleet", "--json", command="top").out)
    assert rows == [
        {**row, "silent": now["silent"], "wait": now["wait"], "age": now["age"]}
        for row, now in zip(json.loads(fleet("list", "--json").out), rows, strict=True)
    ]


def test_a_store_that_goes_away_leaves_the_last_look(fleet):
    from streamguard.cli.fleet.looking import _View
    from streamguard.errors import StoreError

    fleet("submit", "k")
    with store_at(own_file()) as store:
        view = _View(store)
        assert [row.cells[0] for row in view.look()[0]] == ["k"]

    class Away:
        def live(self):
            raise StoreError("gone\x1b")

    view._store = Away()
    rows, wrong = view.look()
    assert [row.cells[0] for row in rows] == ["k"]
    assert wrong == r"NOT UP TO DATE: gone\x1b"


def test_help_names_every_part(fleet):
    told = fleet("--help")
    assert told.code == 0
    for part in PARTS:
        assert re.search(rf"^    {part} ", told.out, re.MULTILINE)
        assert fleet(part, "--help").code == 0


# --- the report -----------------------------------------------------------------------------


def test_the_report_of_a_store_and_of_exported_lines(fleet, worker, monkeypatch):
    fleet("submit", "hung-once")
    assert ended(worker("handlers:hanging", "--until-idle")).code == 0
    told = fleet("--fleet", command="report")
    assert (told.code, told.out) == (0, "fleet-report.html\n")
    assert "hung-once recovered after a hang: the fleet in the store" in Path(
        "fleet-report.html"
    ).read_text("utf-8")
    assert fleet("--fleet", "--svg", command="report").out == "fleet-report.svg\n"
    lines = fleet("log", "--json").out
    Path("lines.jsonl").write_text(f"{lines}torn {{")
    assert fleet("--fleet", "lines.jsonl", "-o", "exported.html", command="report").code == 0
    page = Path("exported.html").read_text("utf-8")
    assert "hung-once hung: the fleet in lines.jsonl" in page
    assert "1 line could not be read" in page
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(lines.encode())))
    assert fleet("--fleet", "-", "-o", "piped.html", command="report").code == 0
    assert "hung-once hung: the fleet in" in Path("piped.html").read_text("utf-8")


def test_a_report_of_nothing_is_one_line(fleet):
    one_line(fleet("--fleet", "nowhere", command="report"), "nowhere cannot be read")
    one_line(fleet("--store", "nowhere", command="report"), "there is no store at")
    one_line(fleet("--store", "x", "lines", command="report"), "name one of them")
    assert "which run?" in fleet(command="report").err
