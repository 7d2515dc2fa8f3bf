"""An application that has joined the group which its own backend leads, as in a shell's pipeline.

It ends its backend's tree and says what became of it; it must live to do so, and so must another
process of its group, which was started while it looked who is in the tree.
"""

import os
import subprocess
import sys

import anyio

from streamguard.process import ProcessTree
from streamguard.process.table import read_table


async def main():
    backend = subprocess.Popen(["sleep", "600"], process_group=0)
    os.setpgid(0, backend.pid)
    with ProcessTree.adopt(backend) as tree:
        walked = read_table()
        bystander = subprocess.Popen(["sleep", "600"])
        tree._members.update(walked)
        ended = await tree.terminate(grace=0)
    backend.wait()
    spared = bystander.poll() is None
    bystander.kill()
    bystander.wait()
    sys.stdout.write(f"{ended.cause} {ended.confirmed} {spared}\n")


anyio.run(main)
