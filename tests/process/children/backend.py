"""A backend that does as it is told by its arguments, in their order.

ready             say so on stdout
ignore            ignore TERM, INT and HUP
stop              stop itself (SIGSTOP)
child WORDS...    start a child that follows the words up to the next `;`
detach            leave the group: a session of its own
orphan            let its parent go: fork, go on in the child, and end
exit N            end with that status
headless          end the first thread, and live on in another
hang              wait for ever, as a backend does that hangs (also what the last word is)
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time


def start(words):
    # By exec, so that it has what its environment gives it and nothing else.
    return subprocess.Popen([sys.executable, "-S", __file__, *words])


def main(words):
    while words:
        word = words.pop(0)
        if word == "ready":
            os.write(1, b"ready\n")
        elif word == "ignore":
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
        elif word == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif word == "child":
            end = words.index(";") if ";" in words else len(words)
            start(words[:end])
            del words[: end + 1]
        elif word == "detach":
            os.setsid()
        elif word == "orphan":
            parent = os.getpid()
            if os.fork():
                os._exit(0)
            while os.getppid() == parent:  # who says that it is one must be one
                time.sleep(0.001)
        elif word == "headless":
            threading.Thread(target=time.sleep, args=(600,)).start()
            ctypes.CDLL(None).pthread_exit(None)
        elif word == "exit":
            os._exit(int(words.pop(0)))
    while True:
        time.sleep(600)


main(sys.argv[1:])
