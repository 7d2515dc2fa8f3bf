"""Forking storms: nobody is left, which the end of a pipe proves that each of them holds."""

from __future__ import annotations

import os

import pytest

from streamguard.process import ProcessTree, marked_env


@pytest.mark.parametrize("kind", ["group", "session", "brood"])
def test_a_storm_ends(loop, backends, kind):
    """D4: repeated until nothing is left.

    Lines in the group that is theirs; lines in a session of their own at each step, found by the
    mark; and one that forks on and on, whose unmarked children stay, found through it.
    """
    env = marked_env() if kind == "session" else None
    storm = backends.run("storm.py", kind, env=env, start_new_session=kind == "group")
    assert storm.stdout.readline() == b"ready\n"

    async def main():
        with ProcessTree.adopt(storm) as tree:
            return await tree.terminate(grace=0.1, budget=25)

    ended = loop.run(main)
    assert ended.cause == "killed", ended
    os.set_blocking(storm.stdout.fileno(), False)
    # The end, which nobody keeps back; and not the word of a storm that died out by itself.
    assert storm.stdout.read() == b""
