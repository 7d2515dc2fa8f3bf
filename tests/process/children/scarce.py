"""An application that is out of file descriptors when it ends its first tree; `scarce.py LOOP`.

It says what became of the tree. Its loop is started as most do it, so not through anyio.
"""

import asyncio
import os
import resource
import subprocess
import sys
from contextlib import suppress

from streamguard.process import ProcessTree


async def main():
    backend = subprocess.Popen(["sleep", "600"])
    with ProcessTree.adopt(backend) as tree:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
        taken = []
        with suppress(OSError):
            while True:
                taken.append(os.dup(0))
        try:
            ended = await tree.terminate(grace=0.1, budget=0.5)
        finally:
            backend.kill()
        for fd in taken:
            os.close(fd)
    sys.stdout.write(f"{ended.cause} {backend.wait()}\n")


if sys.argv[1] == "asyncio":
    asyncio.run(main())
elif sys.argv[1] == "uvloop":
    import uvloop

    uvloop.run(main())
else:
    import trio

    trio.run(main)
