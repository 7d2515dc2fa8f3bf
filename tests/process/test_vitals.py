"""B6: what a look at a process tree tells, how long it may take, and what it never tells."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import types
from pathlib import Path

import anyio
import pytest

from streamguard import IdleTimeoutError, idle_guard
from streamguard._base.vitals import Sockets, Vitals, Waiters
from streamguard.events import HalfTime, TimedOut
from streamguard.events.flat import fields_of
from streamguard.process import look as vitals
from streamguard.process import procfs
from streamguard.process.look import Look
from tests.process.backends import comes_true
from tests.process.test_guard import says, take
from tests.support import Events

CONNECTED = """
import socket, subprocess, sys
peer = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
pair = socket.socketpair()
child = subprocess.Popen(["sleep", "600"])
print("ready", flush=True)
sys.stdin.buffer.read(1)
"""
SPINNING = "print('ready', flush=True)\nwhile True: pass"
IDLE = 0.4


@pytest.fixture(autouse=True)
def fresh_share(monkeypatch):
    """What other tests have used of this second is not this test's."""
    monkeypatch.setattr(vitals, "_share", vitals._Share())
    monkeypatch.setattr(vitals, "LONGEST", 2.0)  # on a busy machine, too, all is seen
    monkeypatch.setattr(vitals, "SHARE", 1e9)


@pytest.fixture
def connected(backends):
    """A backend that reads its standard input, with a child, a connection and a pair of unix sockets."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        process = backends.popen(
            [sys.executable, "-c", CONNECTED, str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        peer, _ = server.accept()
        with peer:
            peer.sendall(b"never read")
            assert process.stdout.readline() == b"ready\n"
            yield process, port


def spinning(backends):
    process = backends.popen([sys.executable, "-c", SPINNING], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    return process


def seen(process):
    found = Look(process.pid).take(time.monotonic())
    assert found is not None
    return found


def test_b6_a_look_tells_what_the_tree_holds_and_waits_in(connected):
    process, port = connected
    assert comes_true(lambda: parked(process) == {("read of a pipe", 1), ("sleep", 1)})
    found = seen(process)
    assert found.processes == 2
    assert not found.is_partial
    assert found.rss is not None
    assert found.rss > 1_000_000
    assert found.sockets == (Sockets("ESTABLISHED", "loopback", port, 1, 0, len(b"never read")),)
    assert found.unix == 2
    assert found.pipes == 2


def parked(process):
    return {tuple(each) for each in seen(process).parked or ()}


def test_b6_cpu_is_what_was_used_since_the_look_before(backends):
    process = spinning(backends)
    look = Look(process.pid)
    assert look.take(1000.0).cpu is None  # since when, nobody knows
    before = cpu_of(process)
    assert comes_true(lambda: cpu_of(process) > before + 0.3)
    busy = look.take(1090.0)
    assert busy.cpu >= 0.2
    assert busy.over == 90.0
    process.send_signal(signal.SIGSTOP)
    assert comes_true(lambda: seen(process).parked == (Waiters("stopped", 1),))
    look.note(2000.0)
    assert look.take(2090.0).cpu == 0.0


def cpu_of(process):
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_b6_what_a_child_has_used_and_ended_with_counts(backends):
    """Else a tool that has just ended would seem to have done nothing."""
    script = (
        "import subprocess, sys\nprint('ready', flush=True)\nsys.stdin.readline()\n"
        "subprocess.run([sys.executable, '-c', 'import time\\nwhile time.process_time() < 0.3: pass'])\n"
        "print('done', flush=True)\nsys.stdin.readline()"
    )
    process = backends.popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout.readline() == b"ready\n"
    look = Look(process.pid)
    look.note(0.0)
    process.stdin.write(b"\n")
    process.stdin.flush()
    assert process.stdout.readline() == b"done\n"
    assert look.take(1.0).cpu >= 0.25


def test_b6_a_look_at_the_dead_or_the_hidden_is_none(backends, monkeypatch):
    process = backends.popen(["sleep", "600"])
    look = Look(process.pid)
    with monkeypatch.context() as hidden:  # hidepid: it is there, and not shown
        hidden.setattr(vitals, "_text", lambda path: None)
        assert look.take(0.0) is None
    with monkeypatch.context() as starved:

        def no_descriptor(*_, **__):
            raise OSError(24, "Too many open files")

        starved.setattr(os, "open", no_descriptor)
        assert look.take(0.0) is None
        look.note(0.0)
    with monkeypatch.context() as without:  # neither /proc nor psutil
        without.setattr(procfs, "is_there", lambda: False)
        without.setattr(vitals, "psutil_or_none", lambda: None)
        assert look.take(0.0) is None
    assert look.take(0.0) is not None
    process.kill()
    process.wait()
    assert look.take(0.0) is None


def test_b6_what_is_not_shown_of_it_is_left_out(connected, monkeypatch):
    """Another user's process: `stat` is shown, what it holds and waits in is not."""
    process, _ = connected
    assert comes_true(lambda: "read of a pipe" in str(seen(process)))  # and is not running
    text, scandir = vitals._text, os.scandir

    def hides(path):
        return None if path.endswith(("syscall", "wchan")) else text(path)

    def refuses(path):
        if str(path).endswith("/fd"):
            raise PermissionError
        return scandir(path)

    with monkeypatch.context() as hidden:
        hidden.setattr(vitals, "_text", hides)
        hidden.setattr(os, "scandir", refuses)
        found = seen(process)
    assert found.processes == 2
    assert (found.sockets, found.unix, found.pipes, found.parked) == (None,) * 4


def test_b6_without_syscall_the_kernels_function_says_where_it_waits(connected, monkeypatch):
    process, _ = connected
    text = vitals._text
    monkeypatch.setattr(vitals, "_text", lambda p: None if p.endswith("syscall") else text(p))
    assert comes_true(lambda: "read of a pipe" in str(seen(process)))


@pytest.mark.parametrize("limit", [3, 10, 40])
def test_b6_a_look_ends_when_its_time_is_over(backends, monkeypatch, limit):
    """A tree of many is looked at in part. Here the clock moves by one at each question."""
    script = (
        "import os, time\nfor _ in range(60):\n    if os.fork() == 0: time.sleep(600)\n"
        "print('ready', flush=True)\ntime.sleep(600)"
    )
    process = backends.popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    assert comes_true(lambda: seen(process).processes == 61)
    ticks = iter(range(10**9))
    monkeypatch.setattr(vitals, "LONGEST", float(limit))
    monkeypatch.setattr(
        vitals, "time", types.SimpleNamespace(perf_counter=lambda: float(next(ticks)))
    )
    look = Look(process.pid)
    look.note(0.0)
    found = look.take(1.0)
    assert found.is_partial
    assert 1 <= found.processes <= limit
    assert found.cpu is None  # of some is of none
    assert "there is more" in str(found)


def test_b6_of_many_descriptors_so_many_are_looked_at(backends, monkeypatch):
    monkeypatch.setattr(vitals, "_MOST_DESCRIPTORS", 100)
    script = "import os, time\nfor _ in range(500): os.pipe()\nprint('ready', flush=True)\ntime.sleep(600)"
    process = backends.popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    found = seen(process)
    assert found.is_partial
    assert found.pipes <= 100


def test_b6_a_thousand_looks_at_once_take_a_share_of_the_second(backends, monkeypatch):
    process = backends.popen(["sleep", "600"])
    share = vitals._Share()
    monkeypatch.setattr(vitals, "_share", share)
    monkeypatch.setattr(vitals, "SHARE", 0.05)
    clock = iter(range(10**9))  # each question takes a thousandth
    monkeypatch.setattr(
        vitals, "time", types.SimpleNamespace(perf_counter=lambda: 5.0 + next(clock) / 1e4)
    )
    looks = [Look(process.pid).take(0.0) for _ in range(1000)]
    assert looks[0] is not None
    assert looks[-1] is None
    share._second = 0  # another second
    assert Look(process.pid).take(0.0) is not None


def test_b6_no_name_path_or_address_gets_in(connected):
    """E3: only numbers, and the kernel's own words."""
    process, _ = connected
    found = seen(process)
    told = json.dumps(found.as_json()) + str(found)
    for secret in (
        "127.0.0.1",
        "0100007F",
        "python",
        "sleep 600",
        "CONNECTED",
        "/dev",
        "socket:[",
    ):
        assert secret not in told
    assert Vitals.from_json(json.loads(json.dumps(found.as_json()))).sockets == found.sockets


@pytest.mark.parametrize(
    ("address", "peer"),
    [
        ("0100007F", "loopback"),
        ("0101A8C0", "private"),
        ("08080808", "public"),
        ("00000000000000000000000001000000", "loopback"),
        ("0000000000000000FFFF00000101A8C0", "private"),
        ("000080FE000000000000000001000000", "private"),
        ("60480120604800000000000088880000", "public"),
    ],
)
def test_b6_of_an_address_its_class_is_told(address, peer):
    if sys.byteorder == "little":
        assert vitals._class_of(address) == peer


def test_b6_a_line_for_a_person():
    sockets = (Sockets("ESTABLISHED", "public", 443, 1, 0, 0),)
    found = Vitals(
        cpu=0.0,
        over=90.0,
        rss=212_000_000,
        processes=4,
        sockets=sockets,
        unix=1,
        pipes=3,
        parked=(Waiters("epoll_wait", 1), Waiters("futex", 3)),
    )
    assert str(found) == (
        "cpu 0.0 s in the last 90 s, 212 MB, 3 children; sockets: 1 ESTABLISHED public:443 "
        "(0 to send, 0 to read); parked on epoll_wait, 3 x futex"
    )


def test_b6_where_there_is_no_proc_psutil_says_what_it_can(connected, monkeypatch):
    psutil = pytest.importorskip("psutil")
    monkeypatch.setattr(procfs, "is_there", lambda: False)
    monkeypatch.setattr(vitals, "psutil_or_none", lambda: psutil)
    found = seen(connected[0])
    assert found.processes == 2
    assert found.rss > 1_000_000
    assert found.sockets is None


# -- of a guarded stream -------------------------------------------------------------------------


def test_b6_no_processor_time_resets_idle(loop, backends):
    """B6: a backend that spins is as silent as one that sleeps; what it used is told, and no more."""
    process = spinning(backends)
    told = Events()
    guard = idle_guard(IDLE, process=process, kill_grace=0, observer=told)

    async def main():
        began = anyio.current_time()
        messages, error = await take(says("one") | guard)
        assert messages == ["one"]
        assert isinstance(error, IdleTimeoutError)
        assert error.verdict.elapsed < 20
        assert anyio.current_time() - began < 30
        return error.verdict

    verdict = loop.run(main)
    half = told.of(HalfTime)[0]
    assert half.vitals is not None
    assert half.vitals.cpu is not None
    assert verdict.vitals is not None
    assert verdict.vitals.cpu > 0
    assert verdict.vitals.over <= verdict.elapsed
    assert told.of(TimedOut)[0].verdict.vitals is verdict.vitals
    assert "cpu" in told.of(TimedOut)[0].text()
    assert "cpu" not in str(error_of(verdict))  # an error's text stays short
    flat = fields_of(told.of(TimedOut)[0])
    assert flat["vitals.processes"] == 1
    assert flat["vitals.parked"] == ("running",)


def error_of(verdict):
    return IdleTimeoutError(verdict=verdict)


def test_b6_it_is_taken_before_anything_is_ended(loop, backends):
    process = backends.popen(["sleep", "600"])
    assert comes_true(lambda: parked(process) == {("sleep", 1)})
    guard = idle_guard(0.05, process=process, kill_grace=0, observer=Events())
    _, error = loop.run(lambda: take(says() | guard))
    assert error.verdict.vitals.parked == (Waiters("sleep", 1),)


@pytest.mark.parametrize("is_heard", [True, False])
def test_b6_where_nobody_is_told_nothing_is_read(loop, backends, monkeypatch, caplog, is_heard):
    """`is_heard` is the control."""
    looks = []
    monkeypatch.setattr(Look, "take", lambda self, now: looks.append(now))
    monkeypatch.setattr(Look, "note", lambda self, now: looks.append(now))
    caplog.set_level("WARNING" if is_heard else "CRITICAL", logger="streamguard")
    process = backends.popen(["sleep", "600"])
    loop.run(lambda: take(says() | idle_guard(0.05, process=process, kill_grace=0)))
    assert bool(looks) == is_heard


def test_b6_without_a_process_there_are_no_vitals(loop):
    told = Events()
    _, error = loop.run(lambda: take(says() | idle_guard(0.05, observer=told)))
    assert error.verdict.vitals is None
    assert told.of(HalfTime)[0].vitals is None


def test_b6_mode_warn_tells_them_too(loop, backends):
    process = backends.popen(["sleep", "600"])
    told = Events()

    async def main():
        guard = idle_guard(0.05, process=process, mode="warn", observer=told)
        with anyio.move_on_after(0.5):
            async for _ in says() | guard:
                pass

    loop.run(main)
    assert told.of(TimedOut)[0].verdict.vitals.processes == 1
