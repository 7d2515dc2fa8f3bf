"""An application that has joined the group which its own backend leads, as in a shell's pipeline.

It ends its backend's tree and says what became of it; it must live to do so.
"""

import os
import subprocess
import sys

import anyio

from streamguard.process import ProcessTree


async def main():
    backend = subprocess.Popen(["sleep", "600"], process_group=0)
    os.setpgid(0, backend.pid)
    with ProcessTree.adopt(backend) as tree:
        ended = await tree.terminate(grace=0)
    backend.wait()
    sys.stdout.write(f"{ended.cause} {ended.confirmed}\n")


anyio.run(main)
