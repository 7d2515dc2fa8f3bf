"""The command's tree is ended, all of it and nothing else, wherever that is hard (faults 3, 4, 5, 12, 19)."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

import streamguard
from tests.process.backends import comes_true
from tests.runner import traces
from tests.runner.commands import INIT, TEXT, says, sh

LONG = "600"
SILENCE = ["--first", LONG, "--idle", "0.3"]


# -- 3: the table of processes cannot be read ------------------------------------------------

# Each attempt counts itself, and its sleeps bear its number in their words. With few descriptors a
# shell can do none of that.
COUNTING = """
import os, signal, sys
tries = os.open("tries", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
os.write(tries, b"x\\n")
words = ["sleep", f"1000.{sys.argv[1]}0000{os.fstat(tries).st_size // 2}"]
os.close(tries)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for environment in ({}, os.environ):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execve("/bin/sleep", words, environment)
        os._exit(0)
os.execv("/bin/sleep", words)
"""


def counting(ground):
    return [ground.python, "-I", "-S", "-c", COUNTING, ground.token]


def retrying(ground):
    """Words of a run whose command is silent and deaf, at its first attempts and at the second."""
    words = ["--first", "0.6", "--kill-after", "0.3", "--retries", "2", "--backoff", "0"]
    return [*words, "--status-file", str(ground.status), "--", *counting(ground)]


def numbers_of_living_attempts(ground):
    """Of which attempts something is alive."""
    words = [traces.words(pid).split(b"\0") for pid in ground.living()]
    token = ground.token.encode()
    sleeps = [
        word for some in words if some[0].endswith(b"sleep") for word in some if token in word
    ]
    return sorted({int(word.rpartition(token)[2]) for word in sleeps})


def check_what_is_said_of_an_end_that_cannot_be_proven(ground, done):
    """Nothing is tried again over what lives, and what lives, or may live, is told."""
    assert "Traceback" not in done.err
    tries = ground.folder / "tries"
    attempts = len(tries.read_text().splitlines()) if tries.exists() else 0
    left = numbers_of_living_attempts(ground)
    assert [number for number in left if number < attempts] == []
    if attempts == 0:  # it could not start anything and says so
        assert done.code == 125
        assert done.err.startswith("streamguard run: ")
        return
    if not ground.status.exists():  # even that takes a descriptor
        assert f"--status-file {ground.status}" in done.err
        assert not left
        return
    told = ground.told()
    assert told["attempts"] == attempts
    assert told["unproven"] in (False, True)
    if left:
        assert told["survivors"] or told["unproven"]


@pytest.mark.parametrize("descriptors", [8, 9, 10, 11, 12, 13, 14, 16, 20])
def test_with_few_descriptors_nothing_is_tried_again_over_the_living(anyones, descriptors):
    line = anyones.line(*retrying(anyones))
    done = anyones.shell(f"ulimit -n {descriptors}; exec {line}")
    check_what_is_said_of_an_end_that_cannot_be_proven(anyones, done)


@pytest.mark.parametrize("has_psutil", [True, False], ids=["with psutil", "without psutil"])
def test_without_a_table_nothing_is_tried_again_over_the_living(anyones, has_psutil):
    around = anyones.unshare("--mount")
    line = anyones.line(*retrying(anyones))
    if not has_psutil:
        hide = "import sys; sys.modules['psutil'] = None; from streamguard.cli import main; main()"
        line = line.replace(" -m streamguard ", f' -c "{hide}" ', 1)
    done = anyones.shell(f"mount -t tmpfs none /proc && exec {line}", *around)
    check_what_is_said_of_an_end_that_cannot_be_proven(anyones, done)


def test_without_a_table_a_verdict_says_that_nothing_is_proven(anyones):
    around = anyones.unshare("--mount")
    words = ["--idle", "0.5", "--kill-after", "0.3", "--status-file", str(anyones.status), "--"]
    line = anyones.line(*words, *sh(f"(env -i setsid {anyones.sleep} &) ; exec {anyones.sleep}"))
    done = anyones.shell(f"mount -t tmpfs none /proc && exec {line}", *around)
    assert done.code in (124, 137)
    told = anyones.told()
    assert told["limit"] == "idle"
    if anyones.living():
        assert told["survivors"] or told["unproven"]


# -- 4: the package vanishes while the command runs ------------------------------------------


class Vanishing:
    """A copy of the package that our command line runs from."""

    def __init__(self, ground):
        self._ground = ground
        self._copy = ground.folder / "site"
        here = Path(streamguard.__file__).parent
        shutil.copytree(
            here, self._copy / "streamguard", ignore=shutil.ignore_patterns("__pycache__")
        )

    def start(self, *words, **options):
        """Run a command from the copy, and delete that once the command says so."""
        # In the words, since a test's own environment has the package's place in it.
        program = (
            f"import sys; sys.path.insert(0, {str(self._copy)!r}); sys.argv[0] = 'streamguard'"
        )
        program += "; from streamguard.cli import main; sys.exit(main())"
        process = self._ground.commands.start(
            *(self._ground.python, "-c", program, "run", *words),
            cwd=self._ground.folder,
            **options,
        )
        self._ground.commands.ready(process)
        shutil.rmtree(self._copy)
        return process


@pytest.fixture
def vanishing(ground):
    return Vanishing(ground)


def everything(ground):
    """A command that says when it runs, and leaves nobody out."""
    sleep = ground.sleep
    return f"(env -i setsid {sleep} &) ; setsid {sleep} & echo ready; exec {sleep}"


@pytest.mark.parametrize(
    "options",
    [
        ["--first", LONG, "--idle", "1"],
        ["--total", "2"],
        ["--total", "2", "--record", "evidence"],
        ["--total", "2", "--verbose", "--errors", "json"],
        ["--total", "2", "--pty"],
        ["--total", "2", "--foreground"],
    ],
    ids=" ".join,
)
def test_a_verdict_needs_no_file_of_the_package(ground, vanishing, options):
    words = [*options, "--kill-after", "1", "--status-file", str(ground.status), "--"]
    process = vanishing.start(*words, *sh(everything(ground)))
    done = ground.wait(process)
    assert done.code == 124
    assert "Traceback" not in done.err
    assert ground.living() == set()
    told = ground.told()
    assert (told["exit_code"], told["survivors"]) == (124, [])
    if "--record" in options:
        assert [*(ground.folder / "evidence").rglob("timeouts.jsonl")]


def test_a_kill_needs_no_file_of_the_package(ground, vanishing):
    script = f"trap '' TERM; {everything(ground).replace('exec ', '')}; {ground.sleep}"
    words = ["--total", "2", "--kill-after", "0.3", "--status-file", str(ground.status), "--"]
    assert ground.wait(vanishing.start(*words, *sh(script))).code == 137
    assert ground.living() == set()
    assert ground.told()["exit_code"] == 137


@pytest.mark.parametrize("limits", [["--idle", LONG], ["--total", LONG]], ids=" ".join)
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a_signal_needs_no_file_of_the_package(ground, vanishing, name, limits):
    words = [*limits, "--kill-after", "1", "--status-file", str(ground.status), "--"]
    process = vanishing.start(*words, *sh(everything(ground)))
    process.send_signal(getattr(signal, name))
    assert ground.wait(process).code == -getattr(signal, name)
    assert ground.living() == set()
    assert ground.told()["signal"] == name.removeprefix("SIG")


def test_an_end_of_its_own_needs_no_file_of_the_package(ground, vanishing):
    words = ["--idle", LONG, "--status-file", str(ground.status), "--record", "evidence", "--"]
    process = vanishing.start(*words, *sh("echo ready; read line; exit 3"), stdin=-1)
    done = ground.wait(process, b"go on\n")
    assert (done.code, done.err) == (3, "")
    assert ground.told()["exit_code"] == 3


def test_reaping_needs_no_file_of_the_package(ground, vanishing):
    script = f"(env -i setsid {ground.sleep} &) ; echo ready; read line; exit 3"
    words = ["--idle", LONG, "--reap", "--kill-after", "1", "--", *sh(script)]
    assert ground.wait(vanishing.start(*words, stdin=-1), b"go on\n").code == 3
    assert ground.living() == set()


def test_a_further_attempt_needs_no_file_of_the_package(ground, vanishing):
    resume = "sh -c 'echo again; exit 3' x {session_id}"
    words = ["--first", LONG, "--idle", "1", "--retries", "1", "--backoff", "0"]
    words += ["--resume-cmd", resume, "--status-file", str(ground.status), "--"]
    first = sh(f"echo ready; {says(INIT, TEXT)}; exec {ground.sleep}")
    done = ground.wait(vanishing.start(*words, *first))
    assert done.out.splitlines()[-1] == b"again"
    assert (done.code, ground.told()["attempts"]) == (3, 2)


@pytest.mark.parametrize("limits", [["--idle", LONG], ["--total", LONG], []], ids=" ".join)
def test_our_own_end_by_kill_needs_no_file_of_the_package(ground, vanishing, limits):
    process = vanishing.start(*limits, "--kill-after", "0.3", "--", *sh(everything(ground)))
    process.kill()
    process.wait()
    assert ground.all_gone()


# -- 5: a /proc that tells of another namespace ----------------------------------------------


def test_in_a_pid_namespace_with_the_hosts_proc_strangers_live_and_the_tree_is_ended(anyones):
    around = anyones.unshare("--pid", "--fork")
    stranger = f"2000.{traces.new_token()}"
    words = ["--idle", "1", "--kill-after", "1", "--status-file", str(anyones.status), "--"]
    line = anyones.line(
        *words, *sh(f"{anyones.sleep} & setsid {anyones.sleep} & exec {anyones.sleep}")
    )
    # Many strangers: their small numbers are those of the host's first processes.
    script = (
        f"{line} & run=$!; strangers=; "
        f'for i in 1 2 3 4 5 6 7 8 9 10; do sleep {stranger} & strangers="$strangers $!"; done; '
        f"wait $run; echo code $?; for each in $strangers; do kill -0 $each || echo KILLED; done; "
        f"echo asked; read line"
    )
    process = anyones.commands.start(
        *(*anyones.before, *around, "sh", "-c", script), cwd=anyones.folder, stdin=-1
    )
    said = []
    while (word := process.stdout.readline().split()) not in ([b"asked"], []):
        said.append(word)
    # While the namespace lives: with its first process all the others end.
    assert comes_true(lambda: not anyones.living() - {process.pid} - holders(process.pid))
    anyones.wait(process, b"go on\n")
    assert said in ([[b"code", b"124"]], [[b"code", b"137"]])
    assert anyones.told()["limit"] == "idle"


def holders(pid):
    """A process and all that came of it whose words are a script's: the namespace's own shell."""
    found, waiting = {pid}, [pid]
    while waiting:
        for child in traces.children(waiting.pop()):
            if b"strangers" in traces.words(child):
                found.add(child)
                waiting.append(child)
    return found


# -- 12: children that were there before -----------------------------------------------------


@pytest.mark.parametrize("mark", ["", "env -i "], ids=["a marked orphan", "an unmarked orphan"])
def test_orphans_are_ended_and_children_from_before_are_not(anyones, mark):
    before = f"2000.{traces.new_token()}"
    words = [*SILENCE, "--kill-after", "0.5", "--status-file", str(anyones.status), "--"]
    script = f"({mark}setsid {anyones.sleep} &) ; echo out; exec {anyones.sleep}"
    line = anyones.line(*words, *sh(script))
    done = anyones.shell(f"sleep {before} >/dev/null 2>&1 & exec {line}")
    assert (done.code, done.out) == (124, b"out\n")
    left = anyones.living()
    token = before.partition(".")[2]
    spared = traces.living(token)
    traces.end([token])
    assert left == set()
    assert len(spared) == 1


def test_orphans_of_children_from_before_are_nobodys_business(ground):
    """What such a child starts later, and what it leaves to us, is not the command's."""
    token = traces.new_token()
    later = f"(read line <go; (setsid sleep 2000.{token} &) ; exit 0) </dev/null >/dev/null 2>&1 &"
    os.mkfifo(ground.folder / "go")
    words = ["--total", "1.5", "--kill-after", "0.5", "--"]
    script = f"echo go >go; exec {ground.sleep}"
    done = ground.shell(f"{later} exec {ground.line(*words, *sh(script))}")
    spared = traces.living(token)
    traces.end([token])
    assert done.code == 124
    assert ground.living() == set()
    assert len(spared) == 1


# -- 19: somebody ends what we have beside the command ---------------------------------------


def beside(process):
    """What `run` has forked that is `run` by its words: its keeper, its sentinel, its helpers."""
    return traces.forks(process.pid)


def started(ground, *words):
    script = f"(env -i setsid {ground.sleep} &) ; echo ready; exec {ground.sleep}"
    return ground.commands.ready(ground.start(*words, "--", *sh(script)))


def test_a_keeper_that_is_killed_is_no_end_of_limits(ground):
    process = started(ground, "--first", LONG, "--idle", "2", "--kill-after", "0.5")
    assert comes_true(lambda: beside(process))
    for pid in beside(process):
        os.kill(pid, signal.SIGKILL)
    assert ground.wait(process).code in (124, 137)
    assert ground.all_gone()


def test_a_keeper_that_is_killed_is_replaced(ground):
    process = started(ground, "--idle", LONG, "--kill-after", "0.5")
    assert comes_true(lambda: beside(process))
    killed = beside(process)
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    # Either there is another one, or all of it ends now: an unguarded command is none of the two.
    # It is called by its name once it knows all that it is to end.
    assert comes_true(lambda: traces.keepers(process.pid) - killed or process.poll() is not None)
    process.kill()
    process.wait()
    assert ground.all_gone()


def lose_keeper(process):
    """Kill the keeper that it has now, once there is one."""
    assert comes_true(lambda: traces.keepers(process.pid))
    for pid in traces.keepers(process.pid):
        os.kill(pid, signal.SIGKILL)


def test_who_takes_over_takes_nobody_of_ours_for_the_commands(ground):
    words = ["--first", LONG, "--idle", "1", "--kill-after", "0.5", "--status-file"]
    process = started(ground, *words, str(ground.status))
    lose_keeper(process)
    done = ground.wait(process)
    assert done.code == 124
    assert "another takes its place" in done.err
    assert "idle for" in done.err
    assert ground.told()["unsaid"] == 0
    assert ground.all_gone()


@pytest.mark.parametrize("ended_by", ["--total", "TERM"])
def test_a_keeper_that_is_lost_when_the_command_is_dead_holds_up_no_end(ground, ended_by):
    """Its output waits for a reader, and nobody is left to answer us."""
    total = "2" if ended_by == "--total" else LONG
    words = ["--idle", LONG, "--total", total, "--kill-after", "0.3", "--"]
    process = ground.start(*words, *sh("head -c 3000000 /dev/zero; exit 0"))
    assert comes_true(lambda: traces.keepers(process.pid))
    process.stdout.read(3_000_000 - 1_500_000)
    assert comes_true(lambda: not children_of_a_keeper(process))
    lose_keeper(process)
    if ended_by == "TERM":
        process.terminate()
    assert process.wait(30) not in (0, None)


def children_of_a_keeper(process):
    return {child for pid in traces.keepers(process.pid) for child in traces.children(pid)}


def test_where_every_keeper_is_killed_that_is_no_success(ground):
    words = ["--idle", LONG, "--kill-after", "0.2", "--status-file", str(ground.status)]
    process = started(ground, *words)
    before = set()
    while process.poll() is None:
        keepers = traces.keepers(process.pid) - before
        for pid in keepers:
            os.kill(pid, signal.SIGKILL)
        before |= keepers
    done = ground.wait(process)
    assert done.code == ground.told()["exit_code"] == 137
    assert ground.told()["signals_sent"][-1] == "KILL"
    assert "nobody can take its place" in done.err
    assert ground.told()["unproven"] is True
    assert ground.all_gone()  # it has fallen to us, who can still kill


def test_a_keeper_that_the_command_has_stopped_hides_no_death(ground):
    words = ["--idle", LONG, "--kill-after", "0.2", "--"]
    done = ground.run(*words, *sh("kill -STOP $PPID; echo out; exit 3"))
    assert (done.code, done.out) == (3, b"out\n")


def test_a_keeper_that_was_stopped_sees_to_the_end_when_we_are_killed(ground):
    words = ["--idle", LONG, "--kill-after", "0.2", "--"]
    script = f"kill -STOP $PPID; echo ready; exec {ground.sleep}"
    process = ground.commands.ready(ground.start(*words, *sh(script)))
    process.kill()
    process.wait()
    assert ground.all_gone()


def test_nobody_of_ours_stays_when_the_command_has_ended(ground):
    """Background work may stay, our own processes may not."""
    words = ["--idle", LONG, "--", *sh(f"{ground.sleep} 2>/dev/null & echo out; exit 3")]
    assert ground.run(*words).code == 3
    assert comes_true(lambda: not [p for p in ground.living() if traces.is_ours(traces.words(p))])
    assert len(ground.living()) == 1


def test_an_unguarded_command_is_none_that_survives_us(ground):
    """No limit at all is no reason to leave anybody behind (D7)."""
    process = ground.commands.ready(ground.start("--", *sh(everything(ground))))
    process.kill()
    process.wait()
    assert ground.all_gone()
