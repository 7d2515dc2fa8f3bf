"""A command whose agent is started by somebody else, in a pid namespace below ours or on another machine.

D4, D5: it is ended by its mark, or said to be out of reach.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from streamguard._base.variables import MARK
from streamguard.cli import elsewhere
from streamguard.process import ProcessTree, blocking, marked_env
from tests.process.backends import comes_true, is_dead
from tests.runner.commands import OURS
from tests.runner.engine import Engine, why_not

HANGS = ["sh", "-c", "echo working; trap '' HUP; sleep 600 & wait"]
SILENCE = ["--first", "600", "--idle", "0.5", "--kill-after", "1"]


@pytest.fixture(params=["docker", "our own client"])
def client(request):
    if reason := why_not():
        pytest.skip(reason)
    if request.param == "docker" and shutil.which("docker") is None:
        pytest.skip("no docker here")
    return request.param


@pytest.fixture
def engine(client, commands, tmp_path):
    engine = Engine(tmp_path, commands.backends)
    yield engine
    commands.backends.kill()
    engine.stop()


def agents(engine):
    """What lives in the container beside its first process."""
    inside = namespace(engine.init())
    there = [pid for pid in engine.backends.living() if namespace(pid) == inside]
    return set(there) - {engine.init()}


def namespace(pid):
    try:
        return Path(f"/proc/{pid}/ns/pid").readlink()
    except OSError:
        return None


def guarded(commands, engine, client, *words, exec_words=()):
    """The agent in the container, under `run`, and the path of its status file."""
    status = commands.folder / "status.json"
    asked = ["docker", "exec", *exec_words, "c", *HANGS]
    words = [*OURS, "run", "--status-file", str(status), *SILENCE, *words, "--", *asked]
    return commands.start(*words, env=engine.environment(client)), status


def test_its_mark_ends_it_in_there(commands, engine, client):
    process, status = guarded(commands, engine, client, exec_words=["-e", MARK])
    assert comes_true(lambda: len(agents(engine)) == 2)
    assert all(parent_of(pid) != process.pid for pid in agents(engine))
    done = commands.wait(process)
    assert (done.code, done.out) == (124, b"working\n")
    assert agents(engine) == set()
    told = json.loads(status.read_text())
    assert (told["survivors"], told["unproven"], told["out_of_reach"]) == ([], False, None)
    assert "PROVEN" not in done.err
    assert "warning" not in done.err
    assert not is_dead(engine.init())  # the container is not ours to end


def test_without_it_it_lives_on_and_that_is_said(commands, engine, client):
    """The control: all that is different is the mark."""
    process, status = guarded(commands, engine, client, "--retries", "2")
    assert comes_true(lambda: len(agents(engine)) == 2)
    done = commands.wait(process)
    assert done.code == 124
    assert len(agents(engine)) == 2
    told = json.loads(status.read_text())
    assert (told["survivors"], told["unproven"], told["attempts"]) == ([], True, 1)
    assert told["out_of_reach"].startswith("'docker exec' runs its command in a container, where")
    first, *_, last = done.err.splitlines()
    assert first == (
        "streamguard run: warning: 'docker exec' runs its command in a container, which is not ended "
        f"with 'docker': add -e {MARK} behind 'exec', and it is"
    )
    assert "NOT PROVEN to have ended: 'docker exec' runs its command in a container" in done.err
    assert last.startswith("streamguard run: not tried again: NOT PROVEN to have ended")


def test_a_signal_that_is_passed_on_ends_it_too(commands, engine, client):
    words = ["--idle", "600"]
    process, _ = guarded(commands, engine, client, *words, exec_words=["-e", MARK])
    assert comes_true(lambda: len(agents(engine)) == 2)
    process.terminate()
    commands.wait(process)
    assert agents(engine) == set()


def test_killed_ourselves_we_still_end_it(commands, engine, client):
    """D7."""
    words = ["--idle", "600"]
    process, _ = guarded(commands, engine, client, *words, exec_words=["-e", MARK])
    assert comes_true(lambda: len(agents(engine)) == 2)
    process.kill()
    assert comes_true(lambda: agents(engine) == set())


def test_a_deaf_one_is_killed_in_there(commands, engine, client):
    deaf = ["sh", "-c", "trap '' TERM; echo working; while :; do sleep 0.1; done"]
    status = commands.folder / "status.json"
    words = [*OURS, "run", "--status-file", str(status), *SILENCE, "--idle", "0.5", "--"]
    words += ["docker", "exec", "-e", MARK, "c", *deaf]
    done = commands.run(*words, env=engine.environment(client))
    assert done.code == 137
    assert agents(engine) == set()
    assert json.loads(status.read_text())["signals_sent"][-1] == "KILL"


def test_evidence_says_that_it_is_out_of_reach(commands, engine, client):
    folder = commands.folder / "evidence"
    process, _ = guarded(commands, engine, client, "--record", str(folder))
    commands.wait(process)
    (line,) = (folder / "run/timeouts.jsonl").read_text().splitlines()
    receipts = list(folder.rglob("*.json"))
    told = [json.loads(path.read_text()) for path in receipts]
    (teardown,) = [each["teardown"] for each in told if each.get("teardown")]
    assert (teardown["confirmed"], teardown["tree"]) == (False, "unproven")
    assert teardown["out_of_reach"].startswith("'docker exec' runs its command in a container")
    assert json.loads(line)


def test_the_librarys_mark_ends_it_as_well(commands, engine, client):
    """D4: `marked_env`, and the name of the variable on the client's command line."""
    env = marked_env(engine.environment(client))
    words = ["docker", "exec", "-e", MARK, "c", *HANGS]
    process = commands.start(*words, env=env)
    assert comes_true(lambda: len(agents(engine)) == 2)
    with ProcessTree.adopt(process) as tree:
        ended = blocking.end(tree._members, 1, 15)
    assert ended.cause in ("terminated", "killed")
    assert agents(engine) == set()
    process.communicate()


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


# -- on another machine ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "there"),
    [
        (["ssh", "box", "agent"], "ssh HOST streamguard run ..."),
        (["kubectl", "exec", "pod", "--", "agent"], "kubectl exec POD -- streamguard run ..."),
    ],
)
def test_on_another_machine_it_is_out_of_reach_and_said_to_be_so(commands, words, there):
    fake = commands.folder / words[0]
    fake.write_text("#!/bin/sh\necho working; exec sleep 600\n")
    fake.chmod(0o755)
    env = {**os.environ, "PATH": f"{commands.folder}:{os.environ['PATH']}"}
    done, told = commands.status(*SILENCE, "--retries", "1", "--", *words, env=env)
    assert (done.code, told["attempts"], told["unproven"]) == (124, 1, True)
    first = done.err.splitlines()[0]
    assert "on another machine, which no limit here reaches: run streamguard there" in first
    assert "NOT PROVEN to have ended" in done.err
    assert there in first
    assert commands.living() == set()


def test_one_that_ends_by_itself_is_believed(commands):
    fake = commands.folder / "ssh"
    fake.write_text("#!/bin/sh\necho done; exit 3\n")
    fake.chmod(0o755)
    done, told = commands.status("--idle", "600", "--", str(fake), "box", "agent")
    assert (done.code, done.out, told["unproven"]) == (3, b"done\n", False)
    assert "PROVEN" not in done.err


# -- what is recognised ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("docker exec c agent", "docker exec"),
        ("/usr/bin/docker --context far exec -it c agent", "docker exec"),
        ("docker -H tcp://x container exec c agent", "docker container exec"),
        ("docker run --rm image agent", "docker run"),
        ("docker compose -f a.yml run web agent", "docker compose run"),
        ("docker-compose exec web agent", "docker-compose exec"),
        ("sudo -n -u me docker exec c agent", "docker exec"),
        ("podman exec c agent", "podman exec"),
        ("nerdctl -n k8s.io exec c agent", "nerdctl exec"),
        ("kubectl -n prod exec deploy/x -- agent", "kubectl exec"),
        ("oc exec pod -- agent", "oc exec"),
        ("lxc exec box -- agent", "lxc exec"),
        ("ssh -tt host agent", "ssh"),
        ("ssh -oCheckHostIP=No host agent", "ssh"),
    ],
)
def test_who_has_it_done_elsewhere_is_known_by_the_words(line, said):
    words = line.split()
    assert elsewhere.unseen(words).startswith(f"'{said}' runs its command ")
    assert elsewhere.advice(words) is not None


@pytest.mark.parametrize(
    "line",
    [
        "docker ps",
        "docker build .",
        "docker",
        "docker --context",
        "sudo -u",
        "kubectl get pods",
        "kubectl -n exec get pods",
        "ssh -fN -L 1:x:2 host",
        "sh -c 'docker exec c agent'",
        "claude -p docker exec",
        "nsenter -t 1 agent",
    ],
)
def test_who_does_it_himself_is_not(line):
    words = line.split()
    assert elsewhere.unseen(words) is None
    assert elsewhere.advice(words) is None


def test_who_passes_the_mark_on_needs_no_advice():
    for option in (f"-e {MARK}", f"--env={MARK}", f"-e{MARK}", f"--env {MARK}=1"):
        words = f"docker exec {option} c agent".split()
        assert elsewhere.advice(words) is None
        assert "none of it was seen" in elsewhere.unseen(words)


def test_without_the_mark_in_reach_a_namespace_below_ours_is_ended_all_the_same(commands):
    """`unshare` and `nsenter` start their command themselves."""
    if reason := why_not():
        pytest.skip(reason)
    words = ["unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", "echo working; sleep 600"]
    done, told = commands.status(*SILENCE, "--", *words)
    assert (done.code in (124, 137), told["unproven"], told["survivors"]) == (True, False, [])
    assert commands.living() == set()
