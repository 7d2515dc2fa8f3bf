"""Host death: real applications die in every way, with a sentinel and without (D7)."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
from contextlib import suppress
from math import inf
from pathlib import Path

import pytest

from streamguard import ConfigError, StreamGuardError, sentinel
from streamguard.process import ProcessTree, marked_env, procfs
from streamguard.process.members import TreeFacts
from streamguard.process.sentinel import client as link
from streamguard.process.sentinel import wire
from streamguard.process.sentinel.helper import Helper
from streamguard.process.sentinel.sentinel import _in_force, _link, adopted
from tests.process.backends import CHILDREN, comes_true, is_dead, settled_fds

LOOPS = ["none", "asyncio", "uvloop", "trio"]
# Deaf, with a child that is deaf in a session of its own: neither TERM nor a group reaches it all.
TREE = ["child", "ignore", "detach", "ready", "hang", ";", "ignore", "ready", "hang"]


class Host:
    """An application (children/host.py), and the pids that it has told."""

    def __init__(self, backends, loop="none", **options):
        self.process = backends.popen(
            [sys.executable, CHILDREN / "host.py", loop],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            **options,
        )

    def do(self, *words, answers=1):
        """Have it do that, and wait until it has (or its fork, too: two answers)."""
        self.ask(*words)
        while answers:
            line = self.process.stdout.readline().split()
            assert line, f"the host died over {words}"
            answers -= line[0] == b"done"
            setattr(self, line[0].decode(), int(line[1]))
        return self

    def ask(self, *words):
        self.process.stdin.write(" ".join(words).encode() + b"\n")
        self.process.stdin.flush()

    def die(self, way="kill"):
        """Have it die that way; its exit status."""
        self.ask(way)
        return self.process.wait()


@pytest.fixture(autouse=True)
def none_in_force():
    """A test that fails in a sentinel's block leaves it in force: not for the next one."""
    yield
    for guard in tuple(_in_force):
        guard.close()


@pytest.fixture
def host(backends):
    return lambda *args, **options: Host(backends, *args, **options)


@pytest.fixture
def guard(backends):
    """A sentinel of this very process, closed afterwards."""
    guard = sentinel(kill_grace=0.2)
    yield guard
    guard.close()
    assert guard.pid is None


def descriptors_of(pid):
    """What they stand for; of a helper: /dev/null three times, pidfds, and its end of a socket."""
    return sorted(str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir())


def adopted_by(guard):
    """How many the helper has adopted, once it has taken all that it was told."""

    def has_taken_all():
        is_read = fcntl.ioctl(_link._fd, termios.TIOCOUTQ, bytes(4)) == bytes(4)
        return is_read and procfs.read_stat(guard.pid).state == "S"

    assert comes_true(has_taken_all)
    return len(descriptors_of(guard.pid)) - 5


# --- the ways to die

DEATHS = {"kill": -9, "exit": 0, "crash": -11, "raise": 1, "return": 0}


@pytest.mark.parametrize("way", [*DEATHS, "SIGTERM", "SIGINT"])
def test_what_was_adopted_ends_with_the_program(host, backends, way):
    """D7: however it ends. The control: without a sentinel the same backend lives on."""
    control = host().do("start", "backend", *TREE)
    guarded = host(stderr=subprocess.DEVNULL).do("sentinel", "0.2").do("start", "backend", *TREE)
    guarded.do("adopt", "backend")
    for one in (control, guarded):
        if way in DEATHS:
            assert one.die(way) == DEATHS[way]
        else:
            one.process.send_signal(signal.Signals[way])
            assert one.process.wait() != 0
    assert comes_true(lambda: is_dead(guarded.helper))
    assert not is_dead(control.backend)
    assert len(backends.living()) == 2  # the control's


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("way", ["kill", "exit"])
def test_on_every_loop(host, backends, loop, way):
    """D7: nothing of it needs a loop, and no loop is in its way."""
    application = host(loop).do("sentinel", "0.2").do("start", "backend", *TREE)
    application.do("adopt", "backend").die(way)
    assert comes_true(lambda: backends.living() == set())


def test_the_last_words_are_heard(host, backends):
    """D7: what was adopted in the last instant counts, and so does what was released."""
    application = host().do("sentinel", "0.2")
    application.do("start", "released", "ready", "hang").do("adopt", "released")
    application.do("start", "adopted", "ready", "hang")
    os.kill(application.helper, signal.SIGSTOP)  # it hears nothing of these until it is too late
    application.do("release", "released").do("adopt", "adopted").die()
    os.kill(application.helper, signal.SIGCONT)
    assert comes_true(lambda: is_dead(application.helper))
    assert backends.living() == {application.released}


ORPHAN = ["marked", "child", "detach", "orphan", "ready", "hang", ";", "ready"]


@pytest.mark.parametrize("backend_is", ["alive", "dead", "reaped"])
def test_an_orphan_is_found_by_its_mark(host, backends, backend_is):
    """D4: in a session of its own, its parent gone; also if the backend died before us."""
    last = ["hang"] if backend_is == "alive" else ["stop", "exit", "0"]
    application = host().do("sentinel", "0.2").do("start", "backend", *ORPHAN, *last)
    application.do("adopt", "backend")
    if backend_is != "alive":
        os.kill(application.backend, signal.SIGCONT)
        assert comes_true(lambda: is_dead(application.backend))
    if backend_is == "reaped":
        application.do("reap", "backend")
    application.die()
    assert comes_true(lambda: backends.living() == set())


def test_what_hears_has_its_grace(backends):
    """D4: also if it was adopted twice, and beside its parent."""
    code = (
        "import os, signal\n"
        "signal.signal(signal.SIGTERM, lambda *_: os.write(1, b'%d\\n' % os.getpid()))\n"
        "child = os.fork()\n"
        "if child: os.write(1, b'%d\\n' % child)\n"
        "while True: signal.pause()\n"
    )
    read, write = os.pipe()
    parent = backends.popen([sys.executable, "-Sc", code], stdout=write)
    os.close(write)
    with os.fdopen(read) as told:
        child = int(told.readline())
        script = (
            "import os\n"
            "from streamguard import sentinel\n"
            f"for pid, grace in ({parent.pid}, 0), ({child}, 0.5), ({child}, 0.1):\n"
            "    sentinel(kill_grace=grace).adopt(pid)\n"
            "os.kill(os.getpid(), 9)\n"
        )
        backends.popen([sys.executable, "-c", script]).wait()
        assert sorted(map(int, told)) == sorted([parent.pid, child])  # up to the end of both
    assert parent.wait() == -9


def test_all_end_together(host, backends):
    """D7: one grace for all, not one after another."""
    grace, count = 2, 12
    application = host().do("sentinel", str(grace))
    for name in range(count):
        application.do("start", f"b{name}", "ignore", "ready", "hang").do("adopt", f"b{name}")
    began = time.monotonic()
    application.die()
    assert comes_true(lambda: backends.living() == set())
    assert time.monotonic() - began < grace * count


# --- what lives on


def test_what_was_released_lives_on(host, backends):
    """D7: beside what was not."""
    application = host().do("sentinel", "0.2")
    for name in ("kept", "released"):
        application.do("start", name, "ready", "hang").do("adopt", name)
    application.do("release", "released").die()
    assert comes_true(lambda: is_dead(application.helper))
    assert backends.living() == {application.released}


def test_a_mark_that_is_shared_does_not_reach_what_was_released(host, backends):
    """D4, D7: nothing is hit by a mark that two have borne."""
    env = marked_env()
    kept, released = (backends.start("ready", "hang", env=env) for _ in range(2))
    script = (
        "import os, warnings\n"
        "from streamguard import sentinel\n"
        "guard = sentinel()\n"
        f"guard.adopt({kept.pid})\n"
        f"guard.adopt({released.pid})\n"
        f"guard.release({released.pid})\n"
        "print(guard.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    application = backends.popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    helper = int(application.stdout.readline())
    assert kept.wait() == -15
    assert comes_true(lambda: is_dead(helper))
    assert backends.living() == {released.pid}


def test_a_goodbye_ends_nothing(host, backends):
    """D7: it is what `close` says, and the end of the helper."""
    application = host().do("sentinel", "0.2").do("start", "backend", "ready", "hang")
    application.do("adopt", "backend").do("close")
    assert comes_true(lambda: is_dead(application.helper))
    application.die()
    assert backends.living() == {application.backend}


def test_a_block_that_is_left_by_an_exception_has_said_no_goodbye(host, backends):
    """D7: what is adopted stays so, and nothing ends as long as the application lives."""
    application = host().do("sentinel", "0.2").do("start", "backend", "ready", "hang")
    application.do("adopt", "backend").do("fails")
    application.do("start", "later", "ready", "hang").do("adopt", "later")
    assert not is_dead(application.backend)
    application.die()
    assert comes_true(lambda: backends.living() == set())


def test_an_application_in_its_backends_own_group_is_spared(host, backends):
    """D4: here it has not died, but become another program, which has lost all that it held."""
    application = host().do("sentinel", "0.2").do("start", "backend", "group", "ready", "hang")
    application.do("adopt", "backend").do("join", "backend").ask("exec")
    assert comes_true(lambda: is_dead(application.helper))
    assert backends.living() == {application.process.pid}


@pytest.mark.parametrize("is_held", [True, False], ids=["by a pidfd", "by its start time"])
def test_a_pid_that_was_given_to_another_is_not_signalled(backends, is_held):
    """D4: what was adopted is dead, and its number a bystander's."""
    dead, bystander = backends.start("ready", "hang"), backends.start("ready", "hang")
    fd = os.pidfd_open(dead.pid)
    dead.kill()
    dead.wait()
    facts = TreeFacts(bystander.pid, 1.0, None, None)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        body = wire.pack_adopted(wire.Adopted(1, 0.1, inf, facts))
        wire.send(ours.fileno(), wire.ADOPT, body, fd if is_held else None)
        os.close(fd)
        ours.close()
        helper = Helper(theirs)
        assert not helper.listen()
        assert "exited" in helper.end_all()
    assert backends.living() == {bystander.pid}


# --- forks


def test_a_fork_without_exec_does_not_keep_the_dead_alive(host, backends):
    """D7: it closes its copy of the socket, and lives on."""
    application = host().do("sentinel", "0.2").do("start", "backend", *TREE)
    application.do("adopt", "backend").do("fork", answers=2).die()
    assert comes_true(lambda: backends.living() == {application.child})


def test_a_system_without_pidfds(host, backends):
    """D7: the socket's end tells of our death, so no fork may hold it open."""
    application = host().do("old").do("sentinel", "0.2").do("start", "backend", *TREE)
    application.do("adopt", "backend").do("fork", answers=2)
    # The backend's pidfd, which the helper has opened by itself, and none of the application.
    assert comes_true(lambda: len(descriptors_of(application.helper)) == 5)
    application.die()
    assert comes_true(lambda: backends.living() == {application.child})


def test_a_copy_of_the_socket_in_other_hands_does_not_keep_the_dead_alive(host, backends):
    """D7: the application's own pidfd tells the helper of its death."""
    application = host().do("sentinel", "0.2").do("start", "backend", "ready", "hang")
    application.do("adopt", "backend").do("leak").die()
    assert comes_true(lambda: is_dead(application.helper))
    assert len(backends.living()) == 1  # who holds it
    assert is_dead(application.backend)


def test_a_fork_may_have_backends_of_its_own(host, backends):
    """D7: they end with it, by a helper of its own; its parent's do not."""
    application = host().do("sentinel", "0.2").do("start", "backend", "ready", "hang")
    application.do("adopt", "backend")
    application.do("fork", "start", "own", "ready", "hang", "then", "adopt", "own", answers=2)
    assert len(backends.living()) == 6  # three, a backend for two, a helper for two
    os.kill(application.child, signal.SIGKILL)
    theirs = {application.process.pid, application.backend, application.helper}
    assert comes_true(lambda: backends.living() == theirs)
    application.die()
    assert comes_true(lambda: backends.living() == set())


# --- what the application notices of it: nothing


@pytest.mark.parametrize("how", ["handler", "ignore"])
def test_others_who_reap_all_children(host, backends, how):
    """D7: a SIGCHLD handler with waitpid(-1), or children that are reaped by nobody."""
    application = host().do("reaping", how).do("sentinel", "0.2").do("childless")
    application.do("start", "backend", "ready", "hang").do("adopt", "backend").die()
    assert comes_true(lambda: backends.living() == set())


def test_it_is_no_child_of_ours(host):
    """D7: whoever waits for all children does not wait for the helper."""
    application = host().do("sentinel", "0.2").do("childless")
    assert procfs.read_stat(application.helper).parent != application.process.pid


@pytest.mark.parametrize("ended", [False, True], ids=["closed", "killed by somebody"])
def test_where_orphans_fall_to_the_application_it_is_reaped(host, ended):
    """D7: as init of a container, or a subreaper."""
    application = host(stderr=subprocess.DEVNULL).do("subreaper").do("sentinel", "0.2")
    first = application.helper
    assert procfs.read_stat(first).parent == application.process.pid
    if ended:
        os.kill(first, signal.SIGKILL)
        assert comes_true(lambda: is_dead(first))
        application.do("start", "backend", "ready", "hang").do("adopt", "backend")
        assert procfs.read_stat(first) is None
        application.do("close").die()
    else:
        application.do("close").do("childless")


def test_neither_the_terminal_nor_a_signal_to_all_ends_it(guard):
    """D7: a session of its own, deaf to what ends others, and no descriptor but its own."""
    status = Path(f"/proc/{guard.pid}/status").read_text()
    ignored = int(status.split("SigIgn:")[1].split()[0], 16)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        assert ignored >> (number - 1) & 1
    assert os.getsid(guard.pid) != os.getsid(0)
    assert Path(f"/proc/{guard.pid}/cwd").readlink() == Path("/")
    assert adopted_by(guard) == 0
    *nulls, pidfd, end = descriptors_of(guard.pid)
    assert nulls == ["/dev/null"] * 3
    assert "pidfd" in pidfd
    assert end.startswith("socket:")


def test_while_all_is_well_it_does_nothing(guard, backends):
    """D7: not one wakeup in half a second, and no time on a processor."""
    guard.adopt(backends.start("ready", "hang"))
    assert adopted_by(guard) == 1

    def spent():
        used = Path(f"/proc/{guard.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        status = Path(f"/proc/{guard.pid}/status").read_text()
        return used, status.split("\nvoluntary_ctxt_switches:")[1].split()[0]

    assert comes_true(lambda: procfs.read_stat(guard.pid).state == "S")
    before = spent()
    time.sleep(0.5)  # the time that is measured
    assert spent() == before


def test_a_program_that_just_ends_says_nothing():
    """Nothing of ours is unclosed at the interpreter's end."""
    script = "from streamguard import sentinel; sentinel()"
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", script]
    assert subprocess.run(command, check=True, capture_output=True).stderr == b""


# --- the helper's own end


def test_it_does_not_outlive_its_application(host, backends):
    """D7: with nothing adopted, there is nothing to do."""
    application = host().do("sentinel", "0.2")
    application.die()
    assert comes_true(lambda: backends.living() == set())


def test_500_cycles_leave_nothing(guard, backends):
    """D7: no descriptor, neither here nor there."""
    backend = backends.start("ready", "hang")
    ours = settled_fds()
    for _ in range(500):
        guard.adopt(backend)
        guard.release(backend)
    assert settled_fds() == ours
    assert adopted_by(guard) == 0


def test_threads_adopt_and_release_at_once(guard, backends):
    """D7: each of them is told whole."""
    started = [backends.start("ready", "hang") for _ in range(4)]

    def cycle(backend):
        for _ in range(50):
            guard.adopt(backend)
            guard.release(backend)
        guard.adopt(backend)

    threads = [threading.Thread(target=cycle, args=(backend,)) for backend in started]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert adopted_by(guard) == len(started)


def test_it_leaves_nothing_of_ours(backends):
    """O7: no descriptor, no thread, no process."""
    backend = backends.start("ready", "hang")
    before = settled_fds(), threading.active_count()
    with sentinel() as guard:
        helper = guard.pid
        guard.adopt(backend)
    assert (settled_fds(), threading.active_count()) == before
    assert comes_true(lambda: is_dead(helper))


def test_one_that_was_killed_is_replaced(host, backends):
    """D7: at the next adoption; what was adopted before is so again, the dead with their mark."""
    application = host(stderr=subprocess.PIPE).do("sentinel", "0.2")
    application.do("start", "orphaned", *ORPHAN, "stop", "exit", "0").do("adopt", "orphaned")
    application.do("start", "first", *TREE).do("adopt", "first")
    os.kill(application.helper, signal.SIGKILL)
    assert comes_true(lambda: is_dead(application.helper))
    os.kill(application.orphaned, signal.SIGCONT)
    assert comes_true(lambda: is_dead(application.orphaned))
    application.do("start", "second", *TREE).do("adopt", "second").die()
    assert comes_true(lambda: backends.living() == set())
    told = application.process.stderr.read().decode()
    assert f"(process {application.helper}) was ended by somebody" in told
    assert "took over, with 3 adopted" in told


def test_one_that_was_stopped_is_replaced(guard, backends, monkeypatch, caplog):
    """D7: it takes no message, and would take a release too late."""
    monkeypatch.setattr(link, "_TAKING", 0.05)
    stopped, backend = guard.pid, backends.start("ready", "hang")
    os.kill(stopped, signal.SIGSTOP)
    for _ in range(5000):
        guard.adopt(backend)
        guard.release(backend)
        if guard.pid != stopped:
            break
    assert guard.pid != stopped
    assert comes_true(lambda: is_dead(stopped))  # it was sent KILL a moment ago
    assert "it took no message" in caplog.text
    guard.adopt(backend)
    assert adopted_by(guard) == 1


def test_one_that_cannot_hear_the_goodbye_draws_no_conclusion(backends):
    """D7: stopped, with no room for another word, and then continued."""
    backend = backends.start("ready", "hang")
    guard = sentinel()
    helper = guard.pid
    guard.adopt(backend)
    os.kill(helper, signal.SIGSTOP)
    with pytest.raises(BlockingIOError):
        while True:
            wire.send(_link._fd, wire.RELEASE, wire.pack_serial(10**9))
    guard.close()
    with suppress(ProcessLookupError):
        os.kill(helper, signal.SIGCONT)
    assert comes_true(lambda: is_dead(helper))
    assert not is_dead(backend.pid)


def test_one_that_was_killed_with_nothing_to_do_is_not_replaced(guard, backends, caplog):
    """D7: not before the next adoption."""
    backend = backends.start("ready", "hang")
    guard.adopt(backend)
    os.kill(guard.pid, signal.SIGKILL)
    killed = guard.pid
    assert comes_true(lambda: is_dead(killed))
    guard.release(backend)
    assert guard.pid is None
    assert "was ended by somebody" in caplog.text
    guard.adopt(backend)
    assert guard.pid not in (None, killed)


@pytest.mark.parametrize(
    ("executable", "says"),
    [
        ("/nowhere/python", "No such file"),
        ("/bin/false", "ended with status 1"),
        ("/bin/true", "ended with status 0"),
        ("", "does not know"),
    ],
)
def test_one_that_cannot_be_started(backends, monkeypatch, executable, says):
    """D7: it is said at once, and nothing is left of the attempt."""
    before = settled_fds()
    monkeypatch.setattr(sys, "executable", executable)
    with pytest.raises(StreamGuardError, match=says):
        sentinel()
    assert settled_fds() == before
    assert _link.pid is None


def test_one_that_is_never_ready(backends, monkeypatch, tmp_path):
    """D7: bounded; what was started is ended."""
    lazy = tmp_path / "python"
    lazy.write_text("#!/bin/sh\nexec sleep 600\n")
    lazy.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(lazy))
    monkeypatch.setattr(link, "_STARTING", 0.1)
    for name, value in backends.env().items():
        monkeypatch.setenv(name, value)
    with pytest.raises(StreamGuardError, match=r"not ready within 0\.1 s"):
        sentinel()
    assert backends.living() <= {os.getpid()}


def test_one_that_cannot_be_replaced(guard, backends, monkeypatch, caplog):
    """D7: whoever adopts is told; whoever guards a stream is not disturbed."""
    backend = backends.start("ready", "hang")
    killed = guard.pid
    os.kill(killed, signal.SIGKILL)
    assert comes_true(lambda: is_dead(killed))
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/bin/false")
        with pytest.raises(StreamGuardError, match="could not be started"):
            guard.adopt(backend)
        with ProcessTree.adopt(backend) as tree:
            adopted(tree, 5.0)()
    assert f"process {backend.pid} may outlive this program" in caplog.text
    guard.adopt(backend)
    assert adopted_by(guard) == 1


# --- the object


def test_all_sentinels_share_one_helper(backends):
    """D7: each has what it adopted; the last one's goodbye ends the helper."""
    one, other = backends.start("ready", "hang"), backends.start("ready", "hang")
    first, second = sentinel(), sentinel()
    helper = first.pid
    assert second.pid == helper
    first.adopt(one)
    second.adopt(one)
    second.adopt(other)
    assert adopted_by(first) == 3
    second.close()
    assert adopted_by(first) == 1
    first.close()
    first.close()
    assert comes_true(lambda: is_dead(helper))


def test_one_that_is_closed_says_so(backends):
    """D7: a mistake that would cost a backend's end is none to pass over."""
    guard = sentinel()
    guard.close()
    assert repr(guard) == "<Sentinel: closed, helper process None>"
    with pytest.raises(RuntimeError, match="call sentinel"):
        guard.adopt(backends.start("ready", "hang"))


def test_what_cannot_be_adopted(guard, backends):
    """D4: as for a tree. What is dead already needs no guard, and what is not adopted no release."""
    with pytest.raises(ConfigError, match="this process"):
        guard.adopt(os.getpid())
    backend = backends.start("exit", "0")
    backend.wait()
    guard.adopt(backend)
    guard.release(backend)
    guard.release(1)
    guard.adopt(backends.start("ready", "hang").pid)
    assert adopted_by(guard) == 1


@pytest.mark.parametrize("grace", [-1, float("nan"), "soon", True])
def test_a_grace_that_is_none(grace):
    """T12: validated where it is written."""
    with pytest.raises(ConfigError, match="kill_grace="):
        sentinel(kill_grace=grace)
    assert _link.pid is None


def test_a_tree_that_is_guarded_is_adopted_while_a_sentinel_is_in_force(backends):
    """D7: what `idle_guard(process=...)` calls; without one it costs nothing."""
    backend = backends.start("ready", "hang")
    with ProcessTree.adopt(backend) as tree:
        adopted(tree, 5.0)()
        assert _link.pid is None
        with sentinel() as guard:
            let_go = adopted(tree, 5.0)
            guard.adopt(tree)
            assert adopted_by(guard) == 2
            let_go()
            let_go()
            assert adopted_by(guard) == 1


# --- its parts


@pytest.mark.parametrize("mark", [None, "a", "\udcff", "x" * 4096])
@pytest.mark.parametrize("session", [None, 1])
@pytest.mark.parametrize("until", [inf, 4711.25])
def test_what_is_said_is_heard(mark, session, until):
    """What goes over the wire comes back, whatever an environment held."""
    said = wire.Adopted(2**40, 0.25, until, TreeFacts(2**22, 123456.0, session, mark))
    assert wire.unpack_adopted(wire.pack_adopted(said)) == said
    assert wire.unpack_host(wire.pack_host({1: 2.5, 2**22: 0.0})) == {1: 2.5, 2**22: 0.0}


def test_a_mark_that_is_too_long_is_none():
    """A message must be sent in one piece."""
    said = wire.Adopted(1, 0.25, inf, TreeFacts(2, 3.0, None, "x" * 5000))
    assert wire.unpack_adopted(wire.pack_adopted(said)).facts.mark is None


@pytest.mark.parametrize("log", ["takes it", "hangs"])
def test_the_systems_log_is_told(log):
    """D4: what was ended and what survived; a log that hangs does not keep the helper."""
    script = (
        "import time\n"
        "from streamguard.process.sentinel import helper\n"
        "helper._LOGGING = 1\n"
        "helper.syslog.openlog = lambda *_: None\n"
        f"tell = {'print' if log == 'takes it' else 'lambda *_: time.sleep(600)'}\n"
        "helper.syslog.syslog = lambda level, line: tell(line)\n"
        "helper._report('what became of it')\n"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    told = (0, "what became of it\n") if log == "takes it" else (-signal.SIGALRM, "")
    assert (done.returncode, done.stdout) == told
