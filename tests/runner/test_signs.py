"""Signs of life: what systemd and probes are told of a run, and when they are told nothing."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from streamguard._base import defaults
from streamguard.runner import notify
from streamguard.runner.heartbeat import Heartbeat
from streamguard.runner.notify import Manager
from streamguard.runner.options import Settings
from streamguard.runner.pulse import Pulse
from tests.process.backends import PATIENCE, comes_true
from tests.runner.commands import INIT, OURS, TEXT, TOOL, says, sh

LONG = "600"
SILENCE = ["--first", LONG, "--idle", "0.3"]
# Long enough that no busy machine makes it look dead, short enough that some beats come soon.
WATCHDOG = 500_000


class Systemd:
    """What a service manager would hear."""

    def __init__(self, address):
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self._socket.settimeout(PATIENCE)
        self.heard = []

    def hear(self):
        """The next datagram."""
        self.heard.append(self._socket.recv(4096).decode())
        return self.heard[-1]

    def hear_until(self, words):
        while words not in self.hear():
            pass
        return self.heard[-1]

    def hear_all(self):
        """All that has come until now."""
        self._socket.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                self.hear()
        self._socket.settimeout(PATIENCE)
        return self.heard

    def close(self):
        self._socket.close()

    def environment(self, **more):
        return {**os.environ, notify.SOCKET: self.address, **more}


@pytest.fixture(params=["a path", "an abstract name"])
def systemd(request, tmp_path):
    path = f"{tmp_path}/notify"
    manager = Systemd(path if request.param == "a path" else f"@streamguard{os.getpid()}/{path}")
    yield manager
    manager.close()


def test_it_is_ready_goes_on_and_stops(commands, systemd):
    script = f"echo ready; {says(INIT, TEXT, TOOL)}; read line"
    words = ["--idle", LONG, "--notify-systemd", "--", *sh(script), "secret"]
    process = commands.start(*OURS, "run", *words, stdin=-1, env=systemd.environment())
    assert systemd.hear() == "READY=1"
    told = systemd.hear_until("in flight")
    assert told.startswith("STATUS=working; last output 20")
    assert told.endswith("in flight: Bash")
    assert commands.wait(process, b"\n").code == 0
    assert systemd.hear_all()[-1].startswith("STOPPING=1\nEXTEND_TIMEOUT_USEC=")
    said = "\n".join(systemd.heard)
    assert (said.count("READY=1"), said.count("STOPPING=1"), said.count("WATCHDOG")) == (1, 1, 0)
    assert "secret" not in said
    assert "Looking" not in said


def test_a_command_that_cannot_be_run_was_never_ready(commands, systemd):
    words = ["--idle", LONG, "--notify-systemd", "--", "no_such_command"]
    assert commands.guarded(*words, env=systemd.environment()).code == 127
    said = "\n".join(systemd.hear_all())
    assert "READY" not in said
    assert "STATUS=cannot run 'no_such_command'" in said


def test_a_verdict_is_the_status_that_stays(commands, systemd):
    words = [*SILENCE, "--notify-systemd", "--", *sh("echo out; exec sleep 600")]
    assert commands.guarded(*words, env=systemd.environment()).code == 124
    told = [each for each in systemd.hear_all() if each.startswith("STATUS=")]
    assert told[-1].startswith("STATUS='sh' idle for ")


def test_a_name_from_elsewhere_says_nothing_for_us(commands, systemd):
    """Text from elsewhere is quoted: a newline would be a word of ours to systemd."""
    tool = {
        "type": "assistant",
        "message": {
            "content": [
                {"type": "tool_use", "id": "t", "name": "x\nMAINPID=1"},
                *({"type": "tool_use", "id": f"t{n}", "name": "y" * 99} for n in range(9)),
            ]
        },
    }
    said = commands.folder / "said"
    said.write_text(f"{json.dumps(INIT)}\n{json.dumps(tool)}\n")
    words = ["--idle", LONG, "--notify-systemd", "--", *sh(f"cat {said}; read line")]
    process = commands.start(*OURS, "run", *words, stdin=-1, env=systemd.environment())
    told = systemd.hear_until("in flight")
    assert r"x\nMAINPID=1" in told
    assert told.count("\n") == 0
    assert len(told) < 320
    assert told.endswith("and 5 more")
    commands.wait(process, b"\n")


def test_attempts_are_one_service(commands, systemd):
    words = [*SILENCE, "--retries", "1", "--backoff", "0", "--resume-cmd"]
    resume = "echo again {session_id}"
    words += [resume, "--notify-systemd", "--", *sh(f"{says(INIT, TEXT)}; exec sleep 600")]
    assert commands.guarded(*words, env=systemd.environment()).code == 0
    said = systemd.hear_all()
    assert any("attempt 1 of 2" in each for each in said)
    assert sum("READY=1" in each for each in said) == 1
    (at,) = (number for number, each in enumerate(said) if each.startswith("STOPPING=1"))
    assert not any(each.startswith("READY") for each in said[at:])


def test_a_signal_is_the_end_and_systemds_bound_is_not_before_ours(commands, systemd):
    deaf = sh("trap '' TERM; echo ready; while :; do sleep 0.05; done")
    words = ["--idle", LONG, "--kill-after", "0.5", "--notify-systemd", "--", *deaf]
    process = commands.start(*OURS, "run", *words, env=systemd.environment())
    commands.ready(process)
    systemd.hear_until("READY=1")
    process.terminate()
    told = systemd.hear_until("STOPPING=1")
    assert process.poll() is None  # said at its beginning
    assert "STATUS=ending: TERM" in systemd.heard
    assert int(told.partition("EXTEND_TIMEOUT_USEC=")[2]) > 12_000_000
    assert commands.wait(process).code == 137


def test_the_variables_are_ours_alone(commands, systemd):
    """Who has them could answer for us. Control: without the option they are the command's."""
    names = sh("env | grep -E '^(NOTIFY|WATCHDOG)' | cut -d= -f1 | sort")
    env = systemd.environment(WATCHDOG_USEC="60000000", WATCHDOG_PID="1")
    words = ["--idle", LONG, "--notify-systemd", "--", *names]
    assert commands.guarded(*words, env=env).out == b""
    there = commands.guarded("--idle", LONG, "--", *names, env=env).out
    assert there == b"NOTIFY_SOCKET\nWATCHDOG_PID\nWATCHDOG_USEC\n"


# -- the watchdog ----------------------------------------------------------------------------------


def watched(systemd, *words):
    """The words of a run whose watchdog is for that process itself, and its environment."""
    line = shlex.join([*OURS, "run", "--notify-systemd", *words])
    environment = systemd.environment(WATCHDOG_USEC=str(WATCHDOG))
    return sh(f"WATCHDOG_PID=$$ exec {line}"), environment


def test_the_watchdog_hears_of_a_silent_run(commands, systemd):
    words, env = watched(systemd, "--idle", LONG, "--", *sh("read line"))
    process = commands.start(*words, env=env, stdin=-1)
    for _ in range(5):
        systemd.hear_until("WATCHDOG=1")
    assert commands.wait(process, b"\n").code == 0


def test_it_hears_nothing_where_our_loop_does_not_run(commands, systemd):
    words, env = watched(systemd, "--idle", LONG, "--", *sh("read line"))
    process = commands.start(*words, env=env, stdin=-1)
    systemd.hear_until("WATCHDOG=1")
    os.kill(process.pid, signal.SIGSTOP)
    assert comes_true(lambda: state_of(process.pid) == "T")
    heard = len(systemd.hear_all())
    time.sleep(4 * WATCHDOG / 1e6)
    assert systemd.hear_all()[heard:] == []
    os.kill(process.pid, signal.SIGCONT)
    systemd.hear_until("WATCHDOG=1")
    assert commands.wait(process, b"\n").code == 0


# Ends that are never over: each keeper that is to see to one is stopped, and all bounds are short.
HELD_UP = """
import os, signal, sys
from streamguard.runner import keeper, keeper_link, poll_loop
from streamguard.cli import main
keeper_link._ENDING, keeper_link._MOST_KEEPERS, poll_loop._READER = 0.5, 10**6, 0.5
ask = keeper.Keeper._ask
keeper.Keeper._ask = lambda self, *said, **more: None if IS_HELD else ask(self, *said, **more)
sys.exit(main())
"""


@pytest.mark.parametrize("is_held", [True, False])
def test_it_hears_nothing_of_a_run_that_should_have_ended(commands, systemd, is_held, tmp_path):
    """Control: of one that ends in time all is said until its end."""
    program = HELD_UP.replace("IS_HELD", str(is_held))
    alive = tmp_path / "alive"
    words = ["--kill-after", "0.2", "--idle", "0.3", "--retries", "1", "--backoff", "0"]
    words += ["--heartbeat", str(alive), "--notify-systemd", "--", "sleep", LONG]
    line = shlex.join([sys.executable, "-c", program, "run", *words])
    env = systemd.environment(WATCHDOG_USEC=str(WATCHDOG))
    process = commands.start(*sh(f"exec {line}"), env=env)
    if not is_held:
        assert commands.wait(process).code == 124
        assert sum("WATCHDOG=1" in each for each in systemd.hear_all()) > 1
        return
    assert said_on_stderr(process, "it should have ended by now")
    systemd.hear_all()
    heard, before = len(systemd.heard), alive.stat().st_mtime_ns
    time.sleep(4 * WATCHDOG / 1e6)
    assert "WATCHDOG=1" not in systemd.hear_all()[heard:]
    assert alive.stat().st_mtime_ns == before
    process.kill()


def said_on_stderr(process, words):
    while (line := process.stderr.readline().decode()) and words not in line:
        pass
    return words in line


def state_of(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize(
    ("environment", "every"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 12.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 12.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "-5"}, None),
        ({"WATCHDOG_USEC": "9" * 40}, None),
        ({}, None),
    ],
)
def test_a_watchdog_is_heard_of_at_under_half_of_its_time(environment, every):
    assert notify._interval(environment) == pytest.approx(every)


# -- nobody is waited for --------------------------------------------------------------------------


def test_a_manager_that_takes_nothing_holds_nobody_up(commands, systemd):
    ours = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.setblocking(False)
    address = systemd.address
    with suppress(BlockingIOError):
        while True:
            ours.sendto(b"full", "\0" + address[1:] if address[0] == "@" else address)
    ours.close()
    words = ["--idle", LONG, "--notify-systemd", "--", *sh("echo out; exit 3")]
    assert commands.guarded(*words, env=systemd.environment()) == (3, b"out\n", "")


def test_what_had_no_room_is_said_when_there_is(systemd, monkeypatch):
    complaints = []
    monkeypatch.setenv(notify.SOCKET, systemd.address)
    manager = Manager.of_environment(complaints.append)
    with suppress(BlockingIOError):
        while True:
            manager._socket.sendto(b"full", manager._address)
    manager.status("lost")
    manager.ready()
    manager.stopping(1.0)
    assert manager.again_at < float("inf")
    assert set(systemd.hear_all()) == {"full"}
    manager.flush(time.monotonic() - 9.0)
    assert set(systemd.hear_all()) == {"full"}
    manager.flush(time.monotonic() + 9.0)
    said = [each for each in systemd.hear_all() if each != "full"]
    assert said == ["READY=1", "STOPPING=1\nEXTEND_TIMEOUT_USEC=1000000"]
    assert manager.again_at == float("inf")
    manager.status("lost")
    assert systemd.hear() == "STATUS=lost"
    manager.close()
    assert complaints == []


@pytest.mark.parametrize(
    ("named", "why"),
    [
        ("", "$NOTIFY_SOCKET is not set, so nobody is told"),
        ("vsock:2:1234", "$NOTIFY_SOCKET is neither a path nor an @ and a name"),
        ("/no/such/socket", "systemd is not told: No such file or directory"),
        ("/" + "x" * 300, "systemd is not told: AF_UNIX path too long"),
    ],
)
def test_who_cannot_be_told_is_named_once_and_the_command_runs(commands, named, why):
    env = {**os.environ, notify.SOCKET: named}
    done = commands.guarded("--idle", LONG, "--notify-systemd", "--", *sh("exit 3"), env=env)
    assert done.code == 3
    (line,) = done.err.splitlines()
    assert line.endswith(why)


def test_it_imports_no_loop_and_not_all_of_socket(commands, systemd):
    program = (
        "import sys; from streamguard.runner import run; from streamguard.cli import main; "
        "run.leave = lambda _: open('loaded', 'w').write(' '.join(sys.modules)); main()"
    )
    words = ["run", "--idle", LONG, "--notify-systemd", "--heartbeat", "alive", "true"]
    words = [sys.executable, "-c", program, *words]
    commands.run(*words, env=systemd.environment(), cwd=commands.folder)
    loaded = set((commands.folder / "loaded").read_text().split())
    assert "streamguard.runner.notify" in loaded
    assert not loaded & {"asyncio", "anyio", "socket", "selectors", "logging", "json"}


# -- the file --------------------------------------------------------------------------------------


def test_the_file_is_renewed_while_the_run_lasts_and_gone_with_it(commands, tmp_path):
    alive = tmp_path / "alive"
    words = ["--idle", LONG, "--heartbeat", "alive", "--", *sh("read line")]
    process = commands.start(*OURS, "run", *words, stdin=-1, cwd=tmp_path)
    assert comes_true(alive.exists)
    before = alive.stat()
    assert alive.read_text() == f"{process.pid}\n"
    assert comes_true(lambda: alive.stat().st_ino != before.st_ino)
    assert alive.stat().st_mtime_ns > before.st_mtime_ns
    assert commands.wait(process, b"\n") == (0, b"", "")
    assert [path for path in tmp_path.iterdir() if path.name.startswith("alive")] == []


def test_of_a_run_that_was_killed_no_file_is_left(commands, tmp_path):
    alive = tmp_path / "alive"
    words = ["--idle", LONG, "--heartbeat", str(alive), "--", "sleep", LONG]
    process = commands.start(*OURS, "run", *words)
    assert comes_true(alive.exists)
    process.kill()
    assert comes_true(lambda: not alive.exists())
    assert commands.all_gone()


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/no/such/folder/alive", "No such file or directory"),
        ("/proc/alive", "No such file or directory"),
        ("/dev/null", "it exists, and is not a file"),
        ("/", "it exists, and is not a file"),
    ],
)
def test_a_file_that_cannot_be_is_told_of_once(commands, path, why):
    words = ["--idle", LONG, "--heartbeat", path, "--", *sh("sleep 1.5; exit 3")]
    done = commands.guarded(*words)
    assert done == (3, b"", f"streamguard run: --heartbeat {path}: {why}\n")


def test_a_file_that_cannot_be_is_told_of_by_a_short_run_as_well(commands):
    words = ["--idle", LONG, "--heartbeat", "/", "--", *sh("exit 3")]
    said = "streamguard run: --heartbeat /: it exists, and is not a file\n"
    assert commands.guarded(*words) == (3, b"", said)


def test_a_full_disk_lets_no_run_look_dead(commands, tmp_path):
    alive = tmp_path / "alive"
    alive.write_text("of the run before\n")
    os.utime(alive, (0, 0))
    line = shlex.join([*OURS, "run", "--idle", LONG, "--heartbeat", str(alive), "cat"])
    process = commands.start(*sh(f"ulimit -f 0; exec {line}"), stdin=-1)
    assert comes_true(lambda: alive.stat().st_mtime > 0)
    assert said_on_stderr(process, f"--heartbeat {alive}: File too large")
    assert alive.read_text() == "of the run before\n"
    commands.wait(process, b"")
    assert [path.name for path in tmp_path.iterdir() if path.name != "streamguard"] == []


def test_a_disk_that_stands_still_holds_nobody_up(commands, tmp_path):
    """Nor does it lie: the file grows old."""
    alive = tmp_path / "alive"
    words = ["--idle", LONG, "--heartbeat", str(alive), "--", *sh("read line; exit 3")]
    process = commands.start(*OURS, "run", *words, stdin=-1)
    assert comes_true(alive.exists)
    for pid in children_of(process.pid):
        if "keeper" not in Path(f"/proc/{pid}/comm").read_text():
            os.kill(pid, signal.SIGSTOP)
    assert commands.wait(process, b"\n").code == 3
    assert commands.all_gone()


def test_who_writes_it_may_be_killed(tmp_path):
    complaints = []
    heartbeat = Heartbeat(f"{tmp_path}/alive", complaints.append)
    heartbeat.beat()
    first = heartbeat._pid
    os.kill(first, signal.SIGKILL)
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
    heartbeat.beat()  # which notices
    (tmp_path / "alive").unlink(missing_ok=True)
    heartbeat.beat()
    assert heartbeat._pid not in (None, first)
    assert comes_true((tmp_path / "alive").exists)
    heartbeat.close()
    assert not (tmp_path / "alive").exists()
    assert complaints == []


def children_of(pid):
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_the_kill_switch_ends_no_signs(commands, tmp_path, systemd):
    """T11: nothing is guarded, but who waits for signs would end what is well."""
    alive = tmp_path / "alive"
    words = ["--idle", "0.3", "--heartbeat", str(alive), "--notify-systemd", "--"]
    env = systemd.environment(STREAMGUARD_MODE="off")
    process = commands.start(*OURS, "run", *words, *sh("sleep 1; read line"), stdin=-1, env=env)
    assert systemd.hear() == "READY=1"
    assert comes_true(alive.exists)
    assert commands.wait(process, b"\n") == (0, b"", "")


def test_a_file_of_settings_asks_for_them_too(commands, tmp_path, systemd):
    (tmp_path / "streamguard.toml").write_text(
        '[run]\nidle = "10m"\nnotify_systemd = true\nheartbeat = "alive"\n'
    )
    words = ["--", *sh("while [ ! -e alive ]; do sleep 0.05; done")]
    done = commands.guarded(*words, env=systemd.environment(), cwd=tmp_path)
    assert done == (0, b"", "")
    assert "READY=1" in systemd.hear_all()


# -- when, in virtual time -------------------------------------------------------------------------


class Told:
    """A receiver that only counts."""

    def __init__(self, every):
        self.every, self.again_at, self.beats, self.said = every, float("inf"), 0, []

    def beat(self):
        self.beats += 1

    def ready(self):
        self.said.append("ready")

    def status(self, text):
        self.said.append(text)

    def stopping(self, within):
        self.said.append(within)

    def flush(self, now):
        self.again_at = float("inf")

    def close(self):
        self.said.append("closed")


def test_each_receiver_has_its_own_interval_and_none_is_woken_for_more():
    manager, heartbeat, complaints = Told(2.0), Told(10.0), []
    pulse = Pulse(manager, heartbeat, complaints.append)
    assert pulse.due == float("inf")  # nothing runs yet
    pulse.runs(100.0)
    pulse.runs(100.5)
    assert (manager.said, manager.beats, heartbeat.beats) == (["ready"], 1, 1)
    now, wakes = 100.0, 0
    while (now := pulse.due) < 141.0:
        pulse.beat(now, is_overdue=False)
        wakes += 1
    assert (manager.beats, heartbeat.beats, wakes) == (1 + 20, 1 + 4, 20)
    pulse.beat(now, is_overdue=True)
    pulse.beat(pulse.due, is_overdue=True)
    assert (manager.beats, heartbeat.beats) == (21, 5)
    assert len(complaints) == 1
    pulse.ends("why", 3.0)
    pulse.ends("ended", 5.0)
    pulse.goes_on("working", None, (), 1, 1)
    pulse.close()
    assert manager.said[1:] == ["why", 3.0, "ended", "closed"]


def test_without_a_receiver_there_is_no_pulse():
    assert Pulse.of(Settings(), None, print) is None


def test_no_machine_has_a_default_twice():
    assert Heartbeat.every == defaults.HEARTBEAT < defaults.HEARTBEAT_OLD / 3


# -- streamguard healthy ---------------------------------------------------------------------------


def healthy(*words):
    done = subprocess.run(
        [*OURS, "healthy", *map(str, words)], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


def test_healthy_says_whether_and_why(tmp_path):
    alive = tmp_path / "alive"
    assert healthy(alive)[:2] == (
        1,
        f"not healthy: {alive} is not there: the run has not begun, or is over\n",
    )
    alive.touch()
    code, out, _ = healthy(alive)
    assert (code, out.startswith(f"healthy: {alive} was renewed ")) == (0, True)
    before = time.time() - 75
    os.utime(alive, (before, before))
    code, out, _ = healthy(alive)
    assert (code, "was last renewed 7" in out, out.endswith("and 1m is the most\n")) == (
        1,
        True,
        True,
    )
    assert healthy("--within", "2m", alive)[0] == 0
    assert healthy(f"{alive}/x")[:2] == (1, f"not healthy: {alive}/x: Not a directory\n")
    assert healthy("--within", "soon", alive)[0] == 2
    assert healthy()[0] == 2
