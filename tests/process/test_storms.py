"""Forking storms: nobody is left, which the end of a pipe proves that each of them holds."""

from __future__ import annotations

import os

import pytest

from streamguard.process import ProcessTree, marked_env
from tests.process.backends import comes_true

# Seconds after which a storm dies down by itself, should all else fail.
LIMIT = 20


def has_ended(pipe):
    """Whether nobody holds the other end any more: no walk can miss a process so."""
    os.set_blocking(pipe.fileno(), False)
    return comes_true(lambda: pipe.read() == b"")


@pytest.mark.parametrize("life", [0.05, 0.003], ids=["50 ms", "3 ms"])
@pytest.mark.parametrize("found_by", ["group", "mark"])
def test_a_storm_ends(loop, backends, found_by, life):
    """D4: repeated until nothing is left. Each of them forks at once, lives a moment, and ends.

    By the group that is their own; and, in a session of their own each, by the mark.
    """
    kind = "group" if found_by == "group" else "session"
    storm = backends.run(
        "storm.py",
        kind,
        life,
        LIMIT,
        env=marked_env() if found_by == "mark" else None,
        start_new_session=found_by == "group",
    )
    assert storm.stdout.readline() == b"ready\n"

    async def main():
        with ProcessTree.adopt(storm) as tree:
            return await tree.terminate(grace=0.1, budget=LIMIT / 2)

    ended = loop.run(main)
    assert ended.cause == "killed", ended
    assert has_ended(storm.stdout)
    assert backends.living() == set()


def test_one_that_forks_on_and_on_ends(loop, backends):
    """D4: a runaway whose children stay, in sessions of their own, unmarked: it is stopped first."""
    code = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "os.write(1, b'ready\\n')\n"
        "for _ in range(3000):\n"
        "    if not os.fork():\n"
        "        os.setsid()\n"
        f"        time.sleep({LIMIT})\n"
        "        os._exit(0)\n"
        "    time.sleep(.003)\n"
    )
    import sys

    storm = backends.popen([sys.executable, "-Sc", code], stdout=-1)
    storm.stdout.readline()

    async def main():
        with ProcessTree.adopt(storm) as tree:
            return await tree.terminate(grace=0.2)

    assert loop.run(main).cause == "killed"
    assert has_ended(storm.stdout)
    assert backends.living() == set()
