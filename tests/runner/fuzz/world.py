"""One random run, in real time: started, read or not, sent its signals, and what is left of it.

One loop does all of it: what comes is read as the scenario's reader would, signals are sent when
they are due, until `run` has ended. Who lives is looked for at that instant, and for a `run` that
was killed by SIGKILL after the patience that its keeper may take. Judges nothing.
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from tests.runner import traces
from tests.runner.commands import OURS, ROOT
from tests.runner.fuzz.draws import Scenario

# The longest that any run may take: a total of 0.9 s, two graces, 5 s of killing, 5 s for a reader, 2 s
# for what is said, and the rest for a machine that is busy.
PATIENCE = 30.0
_CHILD = Path(__file__).parent / "child.py"
_SMALL = 20_000
_F_SETPIPE_SZ = 1031


class Seen(NamedTuple):
    """What came of a run."""

    code: int | None  # None: it did not end
    out: bytes | None  # None: nobody can tell
    err: bytes | None
    told: dict[str, Any] | None  # the status file
    journal: list[list[Any]]
    sent: list[str]  # the signals that it was sent while it ran
    left: list[str]  # who lives at its end, by words
    ours: list[str]  # … who of them is our own program, and stays
    strangers: bool  # whether all of them live
    terminal: bool  # whether it is as before
    seconds: float


class World:
    """Where a worker's runs are made, one after the other."""

    def __init__(self, program: list[str] | None = None) -> None:
        self._program = program or [*OURS, "run"]
        self.folder = Path(tempfile.mkdtemp(prefix="streamguard-fuzz-"))
        self._stranger = _sleeping()
        self._runs = 0

    def close(self) -> None:
        for process in (self._stranger,):
            process.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, scenario: Scenario, patience: float = PATIENCE) -> Seen:
        self._runs += 1
        folder = self.folder / str(self._runs)
        folder.mkdir()
        one = _Run(self._program, scenario, folder)
        try:
            one.go(patience)
            return one.seen(self._stranger)
        finally:
            one.close()
            shutil.rmtree(folder, ignore_errors=True)


def _sleeping(**options: Any) -> subprocess.Popen[bytes]:
    env = {**os.environ, traces.MARK: "a stranger"}
    return subprocess.Popen(["sleep", "100000"], env=env, stdin=subprocess.DEVNULL, **options)


class _Run:
    def __init__(self, program: list[str], scenario: Scenario, folder: Path) -> None:
        self._scenario = scenario
        self._folder = folder
        self._token = traces.new_token()
        self._journal = folder / "journal"
        self._journal.touch()
        self._ours: list[int] = []  # descriptors
        self._out = b""
        self._err = b""
        self._company: subprocess.Popen[bytes] | None = None
        self._slave: int | None = None
        self._seconds = 0.0
        self._sent: list[str] = []
        self._left: list[str] = []
        self._stays: list[str] = []
        self._start(program)

    # -- starting ------------------------------------------------------------------------

    def _start(self, program: list[str]) -> None:
        out_theirs, self._reads_out = self._open_out()
        err_theirs, self._reads_err = self._open_err(out_theirs)
        status, kept = self._status()
        self._put_transcript()
        words = [*program, *status, *_option_words(self._scenario["options"]), "--"]
        words += [sys.executable, "-I", "-S", str(_CHILD), self._token, str(self._journal)]
        words += ["root", json.dumps(self._scenario["steps"])]
        env = {name: v for name, v in os.environ.items() if not name.startswith("STREAMGUARD_")}
        env |= {"PYTHONPATH": str(ROOT), traces.MARK: self._token, "LC_ALL": "C"}
        env |= {"XDG_RUNTIME_DIR": str(self._folder)}
        kind, is_terminal = self._scenario["out"], self._scenario["out"] == "terminal"
        closes = [1] * (kind == "closed") + [2] * (self._scenario["err"] == "closed")

        def prepare() -> None:
            if is_terminal:
                os.setsid()
                fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            if kind == "small":
                resource.setrlimit(resource.RLIMIT_FSIZE, (_SMALL, _SMALL))
            for fd in closes:
                os.close(fd)

        if self._scenario["company"] and not is_terminal:
            self._company = _sleeping(process_group=0)
        self._began = time.monotonic()
        self.process = subprocess.Popen(
            words,
            env=env,
            cwd=self._folder,
            stdin=self._slave if is_terminal else subprocess.DEVNULL,
            stdout=out_theirs,
            stderr=err_theirs,
            pass_fds=kept,
            process_group=None if self._company is None else self._company.pid,
            preexec_fn=prepare,  # noqa: PLW1509 - a worker has one thread
        )
        for fd in {out_theirs, err_theirs, *kept} - {self._slave, subprocess.DEVNULL}:
            os.close(fd)
        self._pidfd = self._keep(os.pidfd_open(self.process.pid))

    def _keep(self, fd: int) -> int:
        self._ours.append(fd)
        return fd

    def _open_out(self) -> tuple[int, int | None]:
        kind = self._scenario["out"]
        flags = os.O_WRONLY | os.O_CREAT
        if kind in ("file", "small", "append"):
            flags |= os.O_APPEND if kind == "append" else 0
            return os.open(self._folder / "out", flags), None
        if kind in ("full", "closed"):
            return os.open("/dev/full" if kind == "full" else os.devnull, os.O_WRONLY), None
        if kind == "socket":
            import socket

            ours, theirs = socket.socketpair()
            reading, writing = ours.detach(), theirs.detach()
        elif kind in ("pty", "terminal"):
            reading, writing = os.openpty()
            attributes = termios.tcgetattr(writing)
            attributes[1] &= ~termios.OPOST
            termios.tcsetattr(writing, termios.TCSANOW, attributes)
            self._slave = self._keep(writing)
            self._before = termios.tcgetattr(writing)
        else:
            reading, writing = os.pipe()
        os.set_blocking(reading, False)
        return writing, self._keep(reading)

    def _open_err(self, out: int) -> tuple[int, int | None]:
        kind = self._scenario["err"]
        if kind in ("same", "terminal"):
            return out, None
        if kind == "file":
            return os.open(self._folder / "err", os.O_WRONLY | os.O_CREAT), None
        if kind == "closed":
            return os.open(os.devnull, os.O_WRONLY), None
        reading, writing = os.pipe()
        if kind == "never":
            self._keep(reading)
            _fill(writing)
            return writing, None
        os.set_blocking(reading, False)
        return writing, self._keep(reading)

    def _status(self) -> tuple[list[str], list[int]]:
        kind = self._scenario["status"]
        path = self._folder / ("none/status" if kind == "nowhere" else "status")
        if kind is None:
            return [], []
        if kind == "fifo":
            os.mkfifo(path)
        elif kind == "link":
            path.symlink_to("status itself")
        elif kind == "descriptor":
            reading, writing = os.pipe()
            self._keep(reading)
            _fill(writing)
            return ["--status-file", f"/dev/fd/{writing}"], [writing]
        return ["--status-file", str(path)], []

    def _put_transcript(self) -> None:
        path = self._folder / "transcript"
        match self._scenario["options"].get("transcript"):
            case "begun":
                path.write_text('{"earlier": 1}\n{"torn": ')
            case "fifo":
                os.mkfifo(path)
            case "folder":
                path.mkdir()
            case _:
                pass

    # -- while it runs -------------------------------------------------------------------

    def go(self, patience: float) -> None:
        due = [(self._began + ms / 1e3, name) for ms, name in self._scenario["signals"]]
        deadline = self._began + patience
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        if self._reads_err is not None:
            poll.register(self._reads_err, select.POLLIN)
        kind, reading = self._scenario["out"], self._reads_out
        if reading is not None and kind not in ("late", "slow"):
            poll.register(reading, select.POLLIN)
        while (now := time.monotonic()) < deadline:
            until = min([deadline, *(at for at, _ in due[:1])])
            if kind == "slow":
                until = min(until, now + 0.01)
            ready = dict(poll.poll(max(until - now, 0.0) * 1e3))
            if self._pidfd in ready:
                break
            for fd in ready:
                if not self._read(fd):
                    poll.unregister(fd)
            if kind == "slow" and reading is not None:
                self._read(reading, 3000)
            if kind == "gone" and reading in ready and len(self._out) > 700:
                poll.unregister(reading)
                os.close(reading)
                self._ours.remove(reading)
                self._reads_out = reading = None
            while due and time.monotonic() >= due[0][0]:
                self._send(due.pop(0)[1])
        self._is_over(deadline)

    def _send(self, name: str) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(getattr(signal, f"SIG{name}"))
            self._sent.append(name)

    def _read(self, fd: int, most: int = 1 << 16) -> bool:
        try:
            came = os.read(fd, most)
        except BlockingIOError:
            return True
        except OSError:
            came = b""
        if fd == self._reads_out:
            self._out += came
        else:
            self._err += came
        return bool(came)

    def _is_over(self, deadline: float) -> None:
        """It has ended, or will not."""
        self._seconds = time.monotonic() - self._began
        alive = traces.living(self._token)
        if time.monotonic() < deadline:
            self.process.wait()
            if self.process.returncode == -signal.SIGKILL and "KILL" in self._sent:
                alive = traces.gone([self._token], PATIENCE).get(self._token, set())
        alive.discard(self.process.pid)
        said = {pid: traces.words(pid) for pid in alive}
        ours = [pid for pid, words in said.items() if traces.is_ours(words)]
        if ours and self.process.returncode is not None:  # who is on its way out may take a moment
            until = time.monotonic() + PATIENCE
            while (
                ours := [p for p in ours if not traces.is_dead(p)]
            ) and time.monotonic() < until:
                time.sleep(0.005)
        self._stays = [_short(said[pid]) for pid in ours]
        # Ours are counted by themselves; and a child that is still to become one has our words.
        others = [pid for pid in said if not traces.is_ours(said[pid])]
        self._left = [_short(said[pid]) for pid in others]

    # -- afterwards ----------------------------------------------------------------------

    def seen(self, stranger: subprocess.Popen[bytes]) -> Seen:
        kind = self._scenario["out"]
        is_readable = kind not in ("full", "closed")
        strangers = [stranger, *([self._company] if self._company else [])]
        for fd in (self._reads_out, self._reads_err):
            while fd is not None and self._has_more(fd):
                pass
        if kind in ("file", "append", "small"):
            self._out = (self._folder / "out").read_bytes()
        err = (
            None if self._scenario["err"] in ("same", "terminal", "never", "closed") else self._err
        )
        if self._scenario["err"] == "file":
            err = (self._folder / "err").read_bytes()
        is_as_before = True
        if kind == "terminal" and self._slave is not None:
            is_as_before = termios.tcgetattr(self._slave)[:4] == self._before[:4]
        return Seen(
            code=self.process.returncode,
            out=self._out if is_readable else None,
            err=err,
            told=self._told(),
            journal=_lines(self._journal),
            sent=self._sent,
            left=self._left,
            ours=self._stays,
            strangers=all(each.poll() is None for each in strangers),
            terminal=is_as_before,
            seconds=self._seconds,
        )

    def _has_more(self, fd: int) -> bool:
        before = len(self._out), len(self._err)
        self._read(fd)
        return (len(self._out), len(self._err)) != before

    def _told(self) -> dict[str, Any] | None:
        try:
            path = self._folder / "status"
            return None if path.is_fifo() else json.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValueError as error:
            return {"broken": str(error)}

    def close(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
            self.process.wait()
        if self._company is not None:
            self._company.kill()
            self._company.wait()
        for fd in self._ours:
            os.close(fd)
        traces.end([self._token])


def _fill(writing: int) -> None:
    with suppress(OSError):
        fcntl.fcntl(writing, _F_SETPIPE_SZ, 4096)
    os.set_blocking(writing, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writing, bytes(4096))
    os.set_blocking(writing, True)


def _option_words(options: dict[str, Any]) -> list[str]:
    words: list[str] = []
    for name, value in options.items():
        said = "transcript" if name == "transcript" else str(value)
        words += [f"--{name}"] if value is True else [f"--{name}", said]
    return words


def _lines(path: Path) -> list[list[Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _short(words: bytes) -> str:
    return words.replace(b"\0", b" ").decode(errors="replace")[-120:]
