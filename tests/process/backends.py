"""Where tests start their backends, and look for what is left of them."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from streamguard.process.procfs import read_stat

CHILDREN = Path(__file__).parent / "children"
# What should take no time may take this on a busy machine, in seconds.
PATIENCE = 30.0
_MARK = "STREAMGUARD_TEST"


class Backends:
    """One test's backends. All bear the test's own mark, by which every last one is found."""

    def __init__(self) -> None:
        self._token = uuid4().hex
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, *words, env=None, **options):
        """A backend that follows `words` (children/backend.py), when all in it are ready."""
        backend = self.run("backend.py", *words, env=env, **options)
        for _ in range(words.count("ready")):
            assert backend.stdout.readline() == b"ready\n"
        return backend

    def run(self, script, *words, env=None, **options):
        """One of the programs in children/."""
        command = [sys.executable, "-S", CHILDREN / script, *map(str, words)]
        return self.popen(command, env=env, stdout=subprocess.PIPE, **options)

    def popen(self, command, *, env=None, **options):
        """Any command."""
        process = subprocess.Popen(command, env=self.env(env), **options)
        self._started.append(process)
        return process

    def env(self, env=None):
        """An environment (default: ours) that bears the test's mark."""
        return {**(os.environ if env is None else env), _MARK: self._token}

    def living(self):
        """The pids of all that were ever started here and are not dead."""
        mine = f"{_MARK}={self._token}".encode()
        return {pid for pid in _pids() if mine in _environment(pid) and _is_alive(pid)}

    def kill(self):
        """Kill what is left."""
        for process in self._started:
            process.kill()
        deadline = time.monotonic() + PATIENCE
        while (left := self.living()) and time.monotonic() < deadline:
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, 9)

    def clear(self):
        """Kill what is left, and reap what is ours."""
        self.kill()
        for process in self._started:
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()


def is_dead(pid):
    """Whether a process has ended, reaped or not."""
    return not _is_alive(pid)


def is_stopped(pid):
    """Whether a process has been stopped by a signal."""
    return read_stat(pid).state == "T"


def comes_true(condition):
    """Wait for what another process brings about; False if it does not."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def settled_fds():
    """How many file descriptors this process has open, after what is garbage has gone."""
    gc.collect()
    return open_fds()


def open_fds():
    """How many file descriptors this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def _pids():
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _environment(pid):
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _is_alive(pid):
    stat = read_stat(pid)
    return stat is not None and not stat.is_dead
