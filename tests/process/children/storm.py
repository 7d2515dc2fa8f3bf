"""A forking storm: each process has children, who soon have children, and then it ends.

`storm.py KIND LIFE LIMIT`: KIND `group` stays in its group, `session` takes a session of its own
at each step. Each lives LIFE seconds. It dies down by itself after LIMIT seconds, so that a test
which fails leaves no storm behind.
"""

import os
import signal
import sys
import time

kind, life, limit = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
over = time.monotonic() + limit
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits, nobody stays a zombie
os.write(1, b"ready\n")
is_root = True
width = 3
while time.monotonic() < over:
    for _ in range(width):
        if os.fork() == 0:
            if kind == "session":
                os.setsid()
            is_root = False
            width = 1  # three lines that go on for ever, each a new process at every step
            break
    else:
        if not is_root:
            time.sleep(life)
            os._exit(0)
        time.sleep(limit)
