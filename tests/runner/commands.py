"""Starting our command line, and saying what came of it."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import streamguard
from tests.evidence.support import check
from tests.process.backends import PATIENCE, comes_true

ROOT = Path(streamguard.__file__).parents[1]
OURS = [sys.executable, "-m", "streamguard"]
# A command that would not end by itself within any test.
ENDLESS = ["sleep", "600"]


class Done(NamedTuple):
    """A command that has ended: `code` is negative for a signal, as in `Popen.returncode`."""

    code: int
    out: bytes
    err: str

    @property
    def shell(self) -> int:
        """What `$?` is in a shell."""
        return self.code if self.code >= 0 else 128 - self.code


class Commands:
    """The commands of one test."""

    def __init__(self, backends, folder):
        self.backends = backends
        self.folder = folder

    def start(self, *words, env=None, **options):
        """Any command, with pipes at its standard output and error."""
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        options.setdefault("stdin", subprocess.DEVNULL)
        env = {
            **(os.environ if env is None else env),
            "PYTHONPATH": str(ROOT),
            "LC_ALL": "C",
            "GITHUB_ACTIONS": "",  # as at home, also in CI
            "XDG_RUNTIME_DIR": str(self.folder),
        }
        return self.backends.popen(list(words), env=env, **options)

    def run(self, *words, stdin=None, **options):
        """Any command, to its end."""
        if stdin is not None:
            options["stdin"] = subprocess.PIPE
        return self.wait(self.start(*words, **options), stdin)

    def wait(self, process, stdin=None):
        out, err = process.communicate(stdin, timeout=PATIENCE * 2)
        return Done(process.returncode, out or b"", (err or b"").decode(errors="replace"))

    def guarded(self, *words, **options):
        """`streamguard run`, to its end."""
        return self.run(*OURS, "run", *words, **options)

    def status(self, *words, **options):
        """The same, and what its status file says."""
        path = self.folder / "status.json"
        done = self.guarded("--status-file", str(path), *words, **options)
        told = json.loads(path.read_text())
        check("status", told)
        return done, told

    def living(self):
        return self.backends.living()

    def all_gone(self):
        """Whether everything that was started here has ended, or does at last."""
        return comes_true(lambda: not self.backends.living())

    def ready(self, process):
        """Wait until the command under `process` says so."""
        assert process.stdout.readline() == b"ready\n"
        return process


def gnu_timeout():
    """The installed GNU `timeout` and its version; None if there is another or none."""
    path = shutil.which("timeout")
    if path is None:
        return None
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    found = re.match(r"timeout \(GNU coreutils\) (\d+)\.(\d+)", said.stdout)
    return None if found is None else (path, (int(found[1]), int(found[2])))


def sh(script):
    """A shell that runs that script."""
    return ["sh", "-c", script]


def says(*messages):
    """Shell words that write those messages, one JSON line for each."""
    return "; ".join(f"echo {shlex.quote(json.dumps(message))}" for message in messages)


SESSION = "0b7e4e7e-5a0f-4d3f-9d55-6a1f7f8f0001"
INIT = {"type": "system", "subtype": "init", "session_id": SESSION}
TEXT = {
    "type": "assistant",
    "session_id": SESSION,
    "message": {"content": [{"type": "text", "text": "Looking."}]},
}
TOOL = {
    "type": "assistant",
    "session_id": SESSION,
    "message": {"content": [{"type": "tool_use", "id": "t1", "name": "Bash"}]},
}
TOOL_DONE = {
    "type": "user",
    "session_id": SESSION,
    "message": {"content": [{"type": "tool_result", "tool_use_id": "t1"}]},
}
RESULT = {"type": "result", "subtype": "success", "is_error": False, "session_id": SESSION}
FAILED = {
    "type": "result",
    "subtype": "error_during_execution",
    "is_error": True,
    "session_id": SESSION,
}


def with_signals(disposition, *names):
    """Words that set signals and then become the words behind them."""
    numbers = [int(getattr(signal, name)) for name in names]
    code = {
        "blocked": f"signal.pthread_sigmask(signal.SIG_BLOCK, {numbers})",
        "ignored": f"[signal.signal(n, signal.SIG_IGN) for n in {numbers}]",
    }[disposition]
    program = f"import os, signal, sys; {code}; os.execvp(sys.argv[1], sys.argv[1:])"
    return [sys.executable, "-S", "-c", program]


def await_words(process, words):
    """Read what it says on its standard error until `words` are in it."""
    while words not in (line := process.stderr.readline()):
        assert line, f"it never said {words}"


def fill(pipe):
    """Write to it until it takes no more."""
    os.set_blocking(pipe, False)
    with suppress(BlockingIOError):
        while True:
            os.write(pipe, bytes(4096))
    os.set_blocking(pipe, True)
