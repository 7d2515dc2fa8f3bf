"""An application that has backends and dies: it does as each line of its stdin says.

host.py LOOP    none, asyncio, uvloop or trio; it answers each line with what it has to tell, and `done`

sentinel SECONDS  have a sentinel, with that kill_grace; tells `helper PID`
start NAME [marked|group] WORDS...   start a backend that follows the words; tells `NAME PID`
adopt NAME [UNTIL]    have the sentinel end it with us, and at that time
renew NAME UNTIL  have the sentinel end it then
hold NAME UNTIL   as one that holds a lease does, without a sentinel of ours
release NAME      have it live on
reap NAME         wait for its end
close             say goodbye to the sentinel
fails WORDS...    leave the sentinel's block by an exception that is caught
fork WORDS...     fork without exec: the child does as the words say, up to `then`; tells `child PID`
leak              start a process that has a copy of our end of the helper's socket
old               know no pidfds, as before Linux 5.3
join NAME         join its process group
subreaper         be who adopts the orphans below
childless         fail unless there is no child of ours, dead or alive
reaping HOW       have others reap our children: `handler` (SIGCHLD, waitpid(-1)) or `ignore`
kill, exit, crash, raise, return, exec   die: SIGKILL, os._exit, segfault, an exception, as it
                  should, or to be a `sleep`
"""

import ctypes
import faulthandler
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

BACKEND = Path(__file__).parent / "backend.py"
backends = {}
guards = []


def tell(what, pid):
    os.write(1, f"{what} {pid}\n".encode())


def start(name, *words):
    options = {}
    if words[0] == "marked":
        from streamguard.process import marked_env

        options["env"] = marked_env()
    elif words[0] == "group":
        options["process_group"] = 0
    words = words[1:] if options else words
    backends[name] = backend = subprocess.Popen(
        [sys.executable, "-S", BACKEND, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        **options,
    )
    for _ in range(words.count("ready")):
        assert backend.stdout.readline() == b"ready\n"
    tell(name, backend.pid)


def have_sentinel(seconds):
    from streamguard import sentinel

    guards.append(sentinel(kill_grace=float(seconds)))
    tell("helper", guards[-1].pid)


def hold(name, until):
    from streamguard.process import ProcessTree
    from streamguard.process.sentinel import sentinel as module

    with ProcessTree.adopt(backends[name]) as tree:
        module.hold(tree, 60, float(until))
    tell("helper", module._link.pid)


def fail():
    try:
        with guards[-1]:
            raise ZeroDivisionError
    except ZeroDivisionError:
        pass


def fork(*words):
    if os.fork():
        return
    tell("child", os.getpid())
    while words:
        then = words.index("then") if "then" in words else len(words)
        do(*words[:then])
        words = words[then + 1 :]
    tell("done", 0)
    time.sleep(600)


def leak():
    from streamguard.process.sentinel.sentinel import _link

    subprocess.Popen(["sleep", "600"], pass_fds=[_link._fd])


def be_childless():
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return
    raise AssertionError(f"a child: {pid}, {status}")


def reap_all(*_):
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        pass


def crash():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler._sigsegv()


def do(word, *words):
    match word:
        case "sentinel":
            have_sentinel(*words)
        case "start":
            start(*words)
        case "adopt":
            guards[-1].adopt(backends[words[0]], until=float(words[1]) if words[1:] else None)
        case "renew":
            guards[-1].renew(backends[words[0]], float(words[1]))
        case "hold":
            hold(*words)
        case "release":
            guards[-1].release(backends[words[0]])
        case "reap":
            backends[words[0]].wait()
        case "close":
            guards.pop().close()
        case "fails":
            fail()
        case "fork":
            fork(*words)
        case "leak":
            leak()
        case "old":
            del os.pidfd_open
        case "join":
            os.setpgid(0, backends[words[0]].pid)
        case "subreaper":
            assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0
        case "childless":
            be_childless()
        case "reaping":
            signal.signal(signal.SIGCHLD, reap_all if words[0] == "handler" else signal.SIG_IGN)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exit":
            os._exit(0)
        case "crash":
            crash()
        case "raise":
            raise ZeroDivisionError
        case "return":
            sys.exit(0)
        case "exec":
            os.execv("/bin/sleep", ["sleep", "600"])


def follow():
    for line in iter(sys.stdin.readline, ""):
        do(*line.split())
        tell("done", 0)
    time.sleep(600)


def main(loop):
    if loop == "none":
        follow()
        return
    import anyio

    async def on_loop():
        await anyio.sleep(0)
        follow()

    options = {"use_uvloop": True} if loop == "uvloop" else {}
    anyio.run(on_loop, backend="asyncio" if loop == "uvloop" else loop, backend_options=options)


main(sys.argv[1])
