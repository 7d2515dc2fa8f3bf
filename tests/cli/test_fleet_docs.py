"""docs/how-to/fleet.md stays true: its commands are run as they stand, its blocks of Python over scripted backends."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sqlite3
import subprocess
import sys
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from streamguard import Backoff, RetryPolicy
from streamguard import _loops as loops
from streamguard.cli import main
from streamguard.fleet import Beat, LocalEngine, store_at
from streamguard.testing import Script, fail, message, run_virtual
from tests.fleet.memory_store import MemoryCheckpoints
from tests.process.backends import PATIENCE

pytest.importorskip("temporalio")  # the page has it beside the other engine

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "how-to" / "fleet.md").read_text("utf-8")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", TEXT, re.DOTALL | re.MULTILINE))
FILE, SERVER = "One machine: a file", "Many machines: PostgreSQL"
ADDRESS = "postgresql://fleet@db.example/fleet?sslmode=verify-full"
CLAUDE = """\
import json, sys
prompt = sys.stdin.read()
for line in (
    {"type": "system", "subtype": "init"},
    {"type": "assistant", "message": {"role": "assistant", "content": [{"type": "text", "text": prompt}]}},
    {"type": "result", "subtype": "success", "is_error": False},
):
    print(json.dumps({**line, "session_id": "s"}), flush=True)
"""


def blocks(language, text=TEXT):
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


@pytest.fixture
def shell(tmp_path, monkeypatch):
    """Runs lines of a shell in a folder with workers.py, where `streamguard` is ours and `claude` is scripted."""
    home = tmp_path / "home"
    bin_ = tmp_path / "bin"
    home.mkdir()
    bin_.mkdir()
    ours = f'#!/bin/sh\nexec "{sys.executable}" -m streamguard "$@"\n'
    scripted = f"#!{sys.executable}\n{CLAUDE}"
    for name, text in (("streamguard", ours), ("claude", scripted)):
        (bin_ / name).write_text(text)
        (bin_ / name).chmod(0o755)
    (home / "workers.py").write_text(blocks("python", SECTIONS[FILE])[0])
    env = {
        **{name: value for name, value in os.environ.items() if name != "STREAMGUARD_FLEET"},
        "HOME": str(home),
        "XDG_STATE_HOME": "",
        "PATH": f"{bin_}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(sys.path),
        "TMPDIR": str(tmp_path),
    }

    def run(lines):
        return subprocess.run(
            ["bash", "-e", "-c", lines],
            check=False,
            cwd=home,
            env=env,
            capture_output=True,
            text=True,
            timeout=PATIENCE * 4,
        )

    return run


def test_the_first_five_minutes(shell):
    """The demo, and then a handler of one's own on a file: word for word."""
    assert blocks("sh")[0] == "streamguard fleet demo\n"
    [lines] = blocks("sh", SECTIONS[FILE])
    told = shell(lines)
    assert told.returncode == 0, told.stderr
    assert "queued: issue-7\n" in told.stdout
    assert "issue-7 system\nissue-7 assistant\nissue-7 result\n" in told.stdout
    assert re.search(r"^issue-7 +done", told.stdout, re.MULTILINE)


def test_on_a_server(shell, server, tmp_path):
    """Word for word, but for the server's address."""
    name = f"docs_{os.getpid()}"
    server.execute(f"CREATE SCHEMA {name}")
    [lines] = blocks("sh", SECTIONS[SERVER])
    assert ADDRESS in lines
    told = shell(lines.replace(ADDRESS, server.address(options=f"-c search_path={name}")))
    assert told.returncode == 0, told.stderr
    assert "ready: the PostgreSQL store" in told.stdout
    assert "issue-8 assistant" in told.stdout
    assert server.execute(f"SELECT key, status FROM {name}.streamguard_sessions") == [
        ("issue-8", "done")
    ]


def test_a_worker_needs_no_more_rights_than_are_said(server):
    name = f"rights_{os.getpid()}"
    words = {"options": f"-c search_path={name}"}
    server.execute(f"CREATE SCHEMA {name}", "CREATE ROLE fleet_worker LOGIN")
    with store_at(server.address(**words)) as store:
        store.initialise()
    [grants] = blocks("sql")
    server.execute(f"GRANT USAGE ON SCHEMA {name} TO fleet_worker", *grants.split(";\n"), **words)
    with store_at(server.address(user="fleet_worker", **words)) as store:
        assert store.submit("k", {})
        [claimed] = store.claim("w", 10, 1)
        beat = Beat(key="k", token=claimed.token, owner="w")
        assert store.beat([beat], 10) == {"k": "kept"}
        assert store.log_timeout(beat, {"limit": "idle"})
        store.circuits.update("c", lambda circuit, _: (replace(circuit, failures=1), None))
        assert store.give_back(beat, 0)
        assert store.cancel("k", "")
        assert list(store.timeouts())
        assert store.live(all=True)


def test_the_other_commands_are_there(shell):
    told = shell(blocks("sh", SECTIONS["The commands"])[0])
    assert (told.returncode, told.stderr) == (0, "")


def test_every_command_and_option_that_is_named_is_there(capsys):
    def help_of(*words):
        with pytest.raises(SystemExit):
            main([*words, "--help"])
        return capsys.readouterr().out

    parts = set(re.findall(r"streamguard fleet ([a-z]+)", TEXT))
    parts |= set(re.findall(r"^\| `(\w+)", SECTIONS["The commands"], re.MULTILINE))
    known = help_of("fleet")
    assert {part for part in parts if f"\n    {part} " not in known} == set()
    helps = "".join(help_of("fleet", part) for part in sorted(parts))
    helps += help_of("top") + help_of("report") + known
    assert {option for option in re.findall(r"--[a-z][a-z-]*", TEXT) if option not in helps} == {
        "--after",
        "--resume",
    }  # an agent's own


# --- the blocks of Python -------------------------------------------------------------------

STEPS = 6


def says(kind, **more):
    return message({"type": kind, "session_id": "s", **more})


class Agent:
    """Numbers its messages and fails in the midst of its first attempts."""

    def __init__(self, *fails_after):
        self.fails_after = list(fails_after)
        self.points = []

    @asynccontextmanager
    async def open(self, point):
        self.points.append(point)
        end = self.fails_after.pop(0) if self.fails_after else STEPS
        steps = [says("assistant", step=step, message={}) for step in range(1, end + 1)]
        good = says("result", subtype="success", is_error=False)
        last = good if end == STEPS else fail(ConnectionError("reset"))
        yield Script(says("system", subtype="init"), *steps, last)


@pytest.fixture
def page(tmp_path, monkeypatch):
    """What the page's blocks define, over an agent."""
    monkeypatch.chdir(tmp_path)
    names = {"agent": Agent()}
    for block in blocks("python"):
        exec(compile(block, "docs/how-to/fleet.md", "exec"), names)
    names["open_documented"], names["open_agent"] = names["open_agent"], names["agent"].open
    yield names
    names["results"].close()
    names["store"].close()


AGENT = """\
import json, sys, time
words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
say = lambda **said: print(json.dumps(said), flush=True)
say(type="hello", session=words.get("--resume", "abc"))
say(type="did", what=words["--prompt"], resumed="--resume" in words)
if "--resume" not in words:
    sys.exit(3)
say(type="done")
"""


def test_an_agent_of_ones_own(page, tmp_path, monkeypatch, capsys):
    """The page's own `open`, over a real process that dies once."""
    program = tmp_path / "my-agent"
    program.write_text(f"#!{sys.executable}\n{AGENT}")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    page["open_agent"] = page["open_documented"]

    async def work():
        with store_at(str(tmp_path / "own.db")) as store:
            engine = LocalEngine(store, policy=RetryPolicy(network=Backoff(3, (0.0,))))
            await engine.submit("k", {"prompt": "go"})
            await engine.serve(page["work"], until_idle=True)
            [row] = store.live(all=True)
            return row

    row = anyio.run(work)
    assert (row.status, row.attempt) == ("done", 2)
    assert capsys.readouterr().out.split() == ["k", "hello", "k", "did"] * 2 + ["k", "done"]


def serve(handler, *, run=run_virtual, **spec):
    """Runs one session with that handler, in no time; how it ended."""

    async def work():
        clock = loops.current().clock
        store = MemoryCheckpoints(clock)
        engine = LocalEngine(store, clock=clock)
        await engine.submit("k", spec)
        await engine.serve(handler, until_idle=True)
        [row] = store.live(all=True)
        return row

    return run(work)


def test_every_block_is_tried_here():
    with_blocks = [name for name, body in SECTIONS.items() if blocks("python", body)]
    assert with_blocks == [
        FILE,
        "An agent of your own",
        "Temporal",
        "At least once",
        "What you want to keep: `lease.state`",
        "Side effects: `lease.token`",
        "A breaker for all workers",
    ]


def test_the_engine_in_a_program(page, monkeypatch):
    played = []

    async def instead(lease):
        played.append((lease.key, lease.resume_point().prompt))

    monkeypatch.setitem(page, "handle", instead)
    anyio.run(page["main"])
    assert played == [("issue-7", "Fix issue 7")]


def test_the_engine_on_temporal(page, monkeypatch, temporal):
    """Both blocks: what the second one connects, with a codec, does for the first."""
    from tests.fleet.sealed import Sealed

    asked, played = [], []

    class Instead:
        @staticmethod
        async def connect(address, *, namespace="default", **options):
            asked.append((address, namespace))
            return await temporal.client(**options)

    async def instead(lease):
        played.append((lease.key, lease.resume_point().prompt))
        os.kill(os.getpid(), signal.SIGTERM)

    async def both():
        client = await page["connect"](Sealed(b"key"))
        assert client.data_converter.payload_codec is not None
        await page["serve_from_temporal"]()

    monkeypatch.setitem(page, "Client", Instead)
    monkeypatch.setitem(page, "handle", instead)
    asyncio.run(both())
    assert asked[1] == ("temporal.example:7233", "agents")
    assert played == [("issue-7", "Fix issue 7")]


def test_what_is_kept_under_key_and_cursor_is_kept_once(page):
    """Though the agent plays from the beginning each time, and fails for one worker and then for another."""
    page["agent"].fails_after = [2, 2, 3, 3, 4]
    row = serve(page["keep_once"], prompt="go")
    assert (row.status, row.attempt) == ("done", 2)
    rows = page["results"].execute("SELECT key, cursor FROM results ORDER BY cursor").fetchall()
    assert rows == [("k", step) for step in range(1, STEPS + 1)]
    assert [point.cursor for point in page["agent"].points] == [None, 2, 2, 3, 3, 4]


def test_state_is_there_for_the_next_attempt(page):
    page["agent"].fails_after = [STEPS, 3]
    row = serve(page["step_by_step"], tasks=["one", "two", "three"])
    assert (row.status, row.attempt) == ("done", 2)
    assert [point.prompt for point in page["agent"].points] == ["one", "two", "two", "three"]


def test_a_stale_token_is_refused(page):
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE deploys (key PRIMARY KEY, token, version)")

    class Held:
        key, token = "k", 1

    stale, present = Held(), Held()
    present.token = 2
    assert page["deploy"](database, stale, "a")
    assert page["deploy"](database, present, "b")
    assert not page["deploy"](database, stale, "c")
    assert page["deploy"](database, present, "d")
    assert database.execute("SELECT version FROM deploys").fetchall() == [("d",)]
    database.close()


def test_breakers_with_one_store_are_one(page):
    row = serve(page["spared"], run=anyio.run, prompt="go")  # its store is called in threads
    assert row.status == "done"
    page["breaker"].flush()
    with store_at("fleet.db") as again:
        seen = []
        again.circuits.update(
            "anthropic/team-7", lambda circuit, _: (circuit, seen.append(circuit))
        )
    assert seen[0].generation >= 0


def test_the_defaults_that_are_said_are_so():
    import inspect

    knobs = inspect.signature(LocalEngine.__init__).parameters
    assert (knobs["ttl"].default, knobs["flush"].default) == (15.0, 1.0)
    assert knobs["attempts_without_progress"].default == 3
    from streamguard.fleet.lease import FENCE, KILL

    assert f"{FENCE:g} `ttl`" in TEXT
    assert f"{(KILL - FENCE) * 15:g} s of 15" in TEXT
    assert f"{KILL:g} `ttl`" in TEXT
