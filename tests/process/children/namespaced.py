"""The first process of a pid namespace that shows another's /proc; `namespaced.py ROOT CHILD HOW`.

There, the process ROOT has a child CHILD. Here both numbers are given to processes that are not related,
and the first of them is ended with its tree. It says as JSON what became of all.
"""

import json
import subprocess
import sys
from pathlib import Path

import anyio

from streamguard.process import ProcessTree, blocking, identity, procfs
from streamguard.process.members import Members, TreeFacts

ROOT, CHILD, HOW = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]


def start(pid):
    """A process with that number."""
    Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
    process = subprocess.Popen(["sleep", "600"])
    assert process.pid == pid
    return process


async def terminated(root):
    with ProcessTree.adopt(root) as tree:
        return await tree.terminate(grace=0.1)


def ended(root):
    if HOW == "blocking":  # as the sentinel's helper does it
        facts = TreeFacts(root.pid, 0.0, None, None)
        return blocking.end(Members.from_facts(facts, identity.open_handle(root.pid)), 0.1, 5)
    if HOW in ("StatHandle", "PsutilHandle", "SignalHandle"):
        names = [way.__name__ for way in identity.WAYS]
        identity.WAYS = identity.WAYS[names.index(HOW) :]
    return anyio.run(terminated, root)


first, stranger = sorted((ROOT, CHILD))
given = {pid: start(pid) for pid in (first, stranger)}
said = ended(given[ROOT])
told = {
    "is_there": procfs.is_there(),
    "cause": said.cause,
    "confirmed": said.confirmed,
    "survivors": said.survivors,
    "root": given[ROOT].poll(),
    "stranger": given[CHILD].poll(),
}
sys.stdout.write(json.dumps(told))
sys.stdout.flush()
given[CHILD].kill()
given[ROOT].kill()
