"""A backend as a process: says a number on each line, and writes down what it does, as an agent works on its files.

    python -I -S backend.py LOG SESSION TOKEN FIRST LAST EVERY deaf|polite

That nobody reads what it says any more does not end it; nor, of a deaf one, does SIGTERM. Standard library alone, and nothing of the tests: what it
does is to depend on nobody.
"""

import contextlib
import json
import os
import signal
import sys
import time

log, session, token, first, last, every, manners = sys.argv[1:]
signal.signal(signal.SIGPIPE, signal.SIG_IGN)
if manners == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.set_blocking(1, False)
file = os.open(log, os.O_WRONLY | os.O_APPEND)
for seq in range(int(first), int(last) + 1):
    line = {
        "what": "emitted",
        "session": session,
        "token": int(token),
        "seq": seq,
        "pid": os.getpid(),
        "at": time.clock_gettime(time.CLOCK_BOOTTIME),
    }
    os.write(file, json.dumps(line).encode() + b"\n")
    with contextlib.suppress(OSError):
        os.write(1, b"%d\n" % seq)
    time.sleep(float(every))
