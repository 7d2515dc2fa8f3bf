"""A forking storm: processes that go on and on to fork others. It ignores TERM.

`storm.py group`, `storm.py session`: three lines, in each of which a process forks its successor
and ends; in the group that they have, or each in a session of its own. Each lives for a moment.
`storm.py brood`: one process forks others, in sessions of their own, that stay.

It is bounded, whatever becomes of it: after so many births a line dies out, and says so.
"""

import os
import signal
import sys
import time

LINES = 3
MOMENT = 0.01
BIRTHS = 1000

kind = sys.argv[1]
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits, and nobody stays a zombie


def fork():
    if os.fork():
        return False
    if kind != "group":
        os.setsid()
    return True


def line():
    for _ in range(BIRTHS):
        time.sleep(MOMENT)
        if not fork():
            os._exit(0)
    die_out()


def brood():
    for _ in range(BIRTHS):
        time.sleep(MOMENT)
        if fork():
            time.sleep(BIRTHS * MOMENT)
            os._exit(0)
    die_out()


def die_out():
    os.write(1, b"died out\n")
    os._exit(0)


os.write(1, b"ready\n")
if kind == "brood":
    brood()
for _ in range(LINES):
    if fork():
        line()
while True:
    signal.pause()
