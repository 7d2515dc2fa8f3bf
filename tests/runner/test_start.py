"""Starting the command: whoever starts it has met it before it can do anything."""

import subprocess
import sys
import textwrap

import pytest

PROGRAM = """
    import os, sys, time
    from streamguard.runner.child import Ends, Start

    class Wakeups:
        def as_before(self):
            pass

    def start(command, met):
        made = Start(command, dict(os.environ), Wakeups(), Ends(), group=None, closed=frozenset())
        with open(made.fork(met), "rb") as told:
            return told.read()

    def words(pid):
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read()
"""


def run(body, *arguments):
    program = textwrap.dedent(PROGRAM) + textwrap.dedent(body)
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_the_command_is_not_executed_before_its_pid_is_known(tmp_path):
    done = run(
        """
        def met(pid):
            for _ in range(30):  # it would be executed, and gone, within a fraction of this
                time.sleep(0.01)
                assert b"streamguard" in words(pid)
            print("met")

        assert start(["touch", sys.argv[1]], met) == b""
        os.wait()
        """,
        str(tmp_path / "file"),
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "met\n", "")
    assert (tmp_path / "file").exists()


def test_a_command_whose_keeper_is_killed_at_its_start_is_never_executed(tmp_path):
    done = run(
        """
        reading, writing = os.pipe()
        keeper = os.fork()
        if keeper == 0:
            os.close(reading)
            start(["touch", sys.argv[1]], lambda pid: os.kill(os.getpid(), 9))
        os.close(writing)
        assert os.read(reading, 1) == b""  # nobody is left who holds the other end
        print("gone")
        """,
        str(tmp_path / "file"),
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "gone\n", "")
    assert not (tmp_path / "file").exists()


def test_a_command_that_is_killed_before_it_is_let_go_has_only_died():
    done = run(
        """
        def met(pid):
            os.kill(pid, 9)
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

        assert start(["true"], met) == b""
        print(os.wait()[1])
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "9\n", "")


def test_a_keeper_that_is_killed_before_it_has_told_the_pid_is_said_to_be(tmp_path):
    """D7: `run` ends, and nothing of the command was begun."""
    done = run(
        """
        from streamguard.cli import main
        from streamguard.runner.keeper import Keeper

        Keeper._met = lambda self, pid: os.kill(os.getpid(), 9)
        sys.argv[1:] = ["run", "--idle", "600", "--", "touch", sys.argv[1]]
        main()
        """,
        str(tmp_path / "file"),
    )
    assert (done.returncode, done.stdout) == (125, "")
    assert "was killed at the start" in done.stderr
    assert not (tmp_path / "file").exists()


# What a start may import of ours, and of the standard library beside what Python itself has; each costs some 0.1 ms.
OF_OURS = {
    "_base": "configured defaults durations lazy quoting variables",
    "cli": "agents arguments elsewhere from_configuration run",
    "runner": "_signal aside child conduit keeper keeper_link kept kernel options outbox poll_loop result run "
    "stdin wakeups words",
}
NOT_FOR_TIMEOUT = {
    "_base.configured",
    "cli.agents",
    "cli.elsewhere",
    "cli.from_configuration",
    "cli.run",
    "runner.kept",
}
OF_OTHERS = {"__future__", "_ctypes", "errno", "gc", "marshal", "select", "streamguard"}
LOADED = """
    import sys
    before = set(sys.modules)
    from streamguard.cli import main
    from streamguard.runner import run

    run.leave = lambda code: print(code, *set(sys.modules) - before, file=sys.stderr)
    main()
"""


@pytest.mark.parametrize("command", ["run --idle 600 --", "timeout 600"])
def test_a_start_imports_nothing_that_was_not_asked_for(tmp_path, command):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(LOADED), *command.split(), "true"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=tmp_path,
    )
    code, *loaded = done.stderr.split()
    rooms = OF_OURS.items()
    allowed = {
        "_version",
        *OF_OURS,
        *(f"{room}.{name}" for room, names in rooms for name in names.split()),
    }
    if command.startswith("timeout"):
        allowed = allowed - NOT_FOR_TIMEOUT | {"cli.timeout"}
    ours = {name.removeprefix("streamguard.") for name in loaded if "streamguard." in name}
    assert code == "0"
    assert ours - allowed == set()
    assert {name for name in loaded if "streamguard." not in name} - OF_OTHERS == set()


def test_a_project_that_only_depends_on_us_imports_no_more(tmp_path):
    told = []
    for name in ("anybody", "streamguard"):
        (tmp_path / "pyproject.toml").write_text(f'[project]\\ndependencies = ["{name}>=0.1"]\\n')
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(LOADED), "run", "--idle", "600", "true"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            cwd=tmp_path,
        )
        told.append(set(done.stderr.split()))
    assert "0" in told[0]
    assert told[0] == told[1]
