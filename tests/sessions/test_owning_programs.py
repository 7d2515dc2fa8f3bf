"""D5 across programs: of one session, one owner at a time, whoever of them dies, stops or forks.

In real time, with real programs.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from streamguard import ResumePoint, SessionHeldError, session
from streamguard._base.filelock import FileLock, peek
from streamguard.activity import Activity
from streamguard.process.holder import Holder, Record, end_left
from streamguard.process.members import TreeFacts
from streamguard.process.procfs import read_stat
from streamguard.sessions import exclusive
from streamguard.sessions.exclusive import Exclusive
from tests.process.backends import Backends, comes_true, is_dead, is_stopped
from tests.sizes import size

OWNING = Path(__file__).parent / "children/owning.py"
# Deaf, with a child that is deaf in a session of its own.
TREE = ["child", "ignore", "detach", "ready", "hang", ";", "ignore", "ready", "hang"]
TOKEN = "a-token-that-nobody-may-read"


class Program:
    """One of them (children/owning.py)."""

    def __init__(self, backends, room, loop="asyncio", watched=()):
        env = {**os.environ, "WATCHED": " ".join(map(str, watched))}
        command = [sys.executable, OWNING, room, loop]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = backends.popen(command, env=env, **pipes)
        assert self.hear() == ["ready"]

    @property
    def pid(self):
        return self.process.pid

    def ask(self, *words):
        self.process.stdin.write(" ".join(map(str, words)).encode() + b"\n")
        self.process.stdin.flush()

    def hear(self):
        return self.process.stdout.readline().decode().split()

    def do(self, *words):
        self.ask(*words)
        return self.hear()

    def kill(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def backends():
    backends = Backends()
    yield backends
    backends.clear()


@pytest.fixture
def room(tmp_path, monkeypatch):
    monkeypatch.setattr(exclusive, "_ROOM", tmp_path)
    return tmp_path


@pytest.fixture
def program(backends, room):
    return lambda *args, **options: Program(backends, room, *args, **options)


def files_in(room):
    return sorted((room / f"streamguard-{os.getuid()}/sessions").iterdir())


# --- races


def race(racers, kind):
    """One of them: what they said, and how many have it."""
    at = time.monotonic() + 0.002
    for racer in racers:
        racer.ask("race", at, TOKEN, kind)
    said = [racer.hear() for racer in racers]
    winners = [racer for racer, words in zip(racers, said, strict=True) if words[0] == "opened"]
    for winner in winners:
        assert winner.do("leave") == ["left"]
    return said, winners


def test_of_many_races_each_has_one_winner(program, room):
    """D5: the other one is told who that is. Nothing is left of it. A thousand of them in CI."""
    racers = [program("asyncio"), program("trio")]
    wins = {racer.pid: 0 for racer in racers}
    for _ in range(size(dev=200, ci=1_000)):
        said, winners = race(racers, "exclusive")
        (winner,) = winners
        assert ["held", str(winner.pid)] in said
        wins[winner.pid] += 1
    assert all(wins.values())  # they do race
    assert files_in(room) == []


def test_the_control_without_it_both_start(program):
    racers = [program(), program()]
    assert all(len(race(racers, "careless")[1]) == 2 for _ in range(20))


# --- one that dies, stops, forks


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_one_that_was_killed_frees_it_when_its_backend_is_dead(program, backends, room, loop):
    """D5: its tree, deaf and detached, is ended by the next, before that opens anything."""
    holder = program(loop)
    word, _, root = holder.do("hold", TOKEN, "exclusive", *TREE)
    assert word == "opened"
    tree = backends.living() - {holder.pid}
    assert int(root) in tree
    assert len(tree) == 2
    next_one = program(loop, watched=tree)
    assert next_one.do("hold", TOKEN, "exclusive") == ["held", str(holder.pid)]
    holder.kill()
    assert not any(map(is_dead, tree))  # nobody else ends it: there is no sentinel here
    began = time.monotonic()
    assert next_one.do("hold", TOKEN, "exclusive") == ["opened", "0"]
    assert time.monotonic() - began < 10
    assert next_one.do("leave") == ["left"]
    assert files_in(room) == []


def test_one_that_was_stopped_keeps_it(program):
    """D5: nobody knows when it goes on."""
    holder, next_one = program(), program()
    assert holder.do("hold", TOKEN, "exclusive")[0] == "opened"
    holder.process.send_signal(signal.SIGSTOP)
    assert comes_true(lambda: is_stopped(holder.pid))
    assert next_one.do("hold", TOKEN, "exclusive") == ["held", str(holder.pid)]
    holder.process.send_signal(signal.SIGCONT)
    assert holder.do("leave") == ["left"]
    assert next_one.do("hold", TOKEN, "exclusive")[0] == "opened"


def test_a_fork_neither_keeps_it_nor_lets_go_of_it(program):
    """D5: it is its program's alone."""
    holder, next_one = program(), program()
    assert holder.do("hold", TOKEN, "exclusive")[0] == "opened"
    _, first = holder.do("fork")
    os.kill(int(first), signal.SIGKILL)
    assert comes_true(lambda: is_dead(int(first)))
    assert next_one.do("hold", TOKEN, "exclusive") == ["held", str(holder.pid)]
    _, second = holder.do("fork")
    holder.kill()
    assert next_one.do("hold", TOKEN, "exclusive")[0] == "opened"
    assert not is_dead(int(second))


def test_a_backend_that_its_program_did_not_end_is_ended_by_the_next(program, backends):
    """D5: the program has come to its end as it should; what it adopted has not."""
    holder = program()
    _, _, root = holder.do("hold", TOKEN, "exclusive", *TREE)
    holder.process.send_signal(signal.SIGTERM)
    holder.process.wait()
    assert not is_dead(int(root))
    next_one = program(watched=[root])
    assert next_one.do("hold", TOKEN, "exclusive") == ["opened", "0"]
    assert backends.living() == {next_one.pid}


# --- what the dead have left


def left_in(room, record):
    """A record that nobody holds."""
    path = Exclusive("test", Activity())._path(TOKEN)
    lock = FileLock.take(path)
    lock.write(record if isinstance(record, str) else record.as_text())
    lock.release(keep_file=True)
    return Path(path)


def a_dead_one(**changes):
    """A program of this machine that is gone."""
    with subprocess.Popen(["true"]) as gone:
        pass
    me = Holder.of_this_program()
    return me._replace(pid=gone.pid, started=1.0, program="gone.py", **changes)


def facts_of(process, **changes):
    stat = read_stat(process.pid)
    return TreeFacts(process.pid, stat.started, None, None)._replace(**changes)


def opens(loop="asyncio"):
    """Whether the session can be opened here; the refusal if not."""

    async def main():
        @asynccontextmanager
        async def opened(point):
            async def stream():
                yield 1

            yield stream()

        async with session(opened, point=ResumePoint(token=TOKEN), exclusive="test") as chat:
            return [each async for each in chat] == [1]

    try:
        return anyio.run(main, backend=loop)
    except SessionHeldError as refused:
        return refused


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_a_pid_that_was_given_to_another_is_not_signalled(backends, room, loop):
    """D4: its number is a bystander's, which has another start time."""
    bystander = backends.start("ready", "hang")
    left_in(room, Record(a_dead_one(), (facts_of(bystander, started=1.0),)))
    assert opens(loop) is True
    assert not is_dead(bystander.pid)


def test_who_is_left_of_a_dead_root_is_found_by_its_group(backends, room):
    """D4: the root was reaped long ago; its child bears no mark."""
    root = backends.start(*("detach", "child", "ready", "hang", ";", "ready", "stop", "exit", "0"))
    facts = facts_of(root, session=root.pid)
    os.kill(root.pid, signal.SIGCONT)
    root.wait()
    assert len(backends.living()) == 1
    left_in(room, Record(a_dead_one(), (facts,)))
    assert opens() is True
    assert backends.living() == set()


def test_a_machine_that_was_started_anew_has_left_nothing(backends, room):
    """D5: so its pids are other people's, whatever their start times."""
    bystander = backends.start("ready", "hang")
    left_in(room, Record(a_dead_one(boot="another"), (facts_of(bystander),)))
    assert opens() is True
    assert not is_dead(bystander.pid)


def test_what_cannot_be_seen_is_not_proven_dead(backends, room):
    """D5: pids of another container mean others here. Its record stays for who can see them."""
    bystander = backends.start("ready", "hang")
    path = left_in(room, Record(a_dead_one(space="pid:[1]"), (facts_of(bystander),)))
    before = Record.from_text(peek(path))
    for _ in range(2):
        refused = opens()
        assert isinstance(refused, SessionHeldError)
        assert refused.gave_up == "unsafe"
        assert "cannot be seen from here" in str(refused)
        assert str(bystander.pid) in str(refused)
        assert TOKEN not in str(refused)
        assert Record.from_text(peek(path)) == before
    assert not is_dead(bystander.pid)
    left_in(room, Record(a_dead_one(space="pid:[1]")))  # which had nothing at work
    assert opens() is True


def test_what_survives_is_not_proven_dead(backends, room, monkeypatch):
    """D5: it belongs to another user, say. When it has ended, the next one may."""
    survivor = backends.start("ready", "hang")
    left_in(room, Record(a_dead_one(), (facts_of(survivor),)))
    with monkeypatch.context() as patch:
        patch.setattr("streamguard.process.identity.PidfdHandle.send", lambda *_: False)
        refused = opens()
    assert f"still alive: {survivor.pid}" in str(refused)
    assert opens() is True
    assert is_dead(survivor.pid)


def test_who_ends_what_is_left_has_it_on_record_meanwhile(backends, room, monkeypatch):
    """D5: it may die over it, and whoever comes then must find both."""
    left = backends.start("ready", "hang")
    record = Record(a_dead_one(), (facts_of(left),))
    path = left_in(room, record)
    seen = []

    def look(before):
        seen.append(Record.from_text(peek(path)))
        return end_left(before)

    monkeypatch.setattr(exclusive, "end_left", look)
    assert opens() is True
    (meanwhile,) = seen
    assert meanwhile.holder.pid == os.getpid()
    assert meanwhile.trees == record.trees


def test_one_that_lives_without_its_lock_is_no_dead_one(backends, room):
    """D5: a program may close all its descriptors. Its backend is at work, and is left alone."""
    holder, backend = backends.start("ready", "hang"), backends.start("ready", "hang")
    facts = facts_of(holder)
    lives = Holder.of_this_program()._replace(pid=facts.pid, started=facts.started)
    left_in(room, Record(lives, (facts_of(backend),)))
    refused = opens()
    assert "that program lives" in str(refused)
    assert refused.holder.pid == holder.pid
    assert not is_dead(backend.pid)


def test_who_was_started_by_what_is_left_does_not_end_it(room):
    """D4: an agent's tool that resumes its own session would end itself."""
    parent = read_stat(os.getppid())
    record = Record(a_dead_one(), (TreeFacts(parent.pid, parent.started, None, None),))
    assert "has started this program" in end_left(record).why_not


@pytest.mark.parametrize(
    "text", ["", "{}", "no JSON", '{"holder": {}, "trees": []}', "[" * 50_000]
)
def test_a_text_that_says_nothing_holds_nobody_up(room, text, caplog):
    """A machine that crashed may leave anything."""
    left_in(room, text)
    assert opens() is True
    assert ("cannot be read" in caplog.text) == bool(text)


@pytest.mark.parametrize(
    "change",
    [
        {"pid": 0}, {"pid": -1}, {"pid": "1"}, {"pid": 2**31}, {"pid": True}, {"pid": 1.5},
        {"started": -1}, {"started": "1"}, {"since": 1e400}, {"host": None}, {"boot": 1},
    ],
)  # fmt: skip
def test_a_record_of_other_types_is_none(change):
    text = Record(a_dead_one(), (TreeFacts(1, 2.0, None, None),)).as_text()
    assert Record.from_text(text).trees == (TreeFacts(1, 2.0, None, None),)
    said = json.loads(text)
    said["holder"].update(change)
    assert Record.from_text(json.dumps(said)) is None


@pytest.mark.parametrize(
    "tree", [[0, 1.0, None, None], [1, "1", None, None], [1, 1.0, 0, None], [1, 1.0, 1, 1], [1], 7]
)
def test_a_tree_of_other_types_is_none(tree):
    said = json.loads(Record(a_dead_one()).as_text())
    assert Record.from_text(json.dumps({**said, "trees": [tree]})) is None
