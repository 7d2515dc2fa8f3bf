"""`streamguard run` is killed by SIGKILL at random instants: nobody of its command may be left (D7).

    python -m tests.runner.killed --kills 1000            survivors: none are right
    python -m tests.runner.killed --kills 200 --control   survivors: many are right

An instant is drawn uniformly from the first second after the command's first act, a byte into a
FIFO; of one kill in four it is from the first 0.15 s after `run` was started, so before that, or from
the 20 ms after the first act. Many runs are under way at once, and who is left is looked for at
the end: what is judged is who lives, never how long something took.

The control kills at the same instant also every fork of `run` that is still `run` by its words: its
keeper, its sentinel, whoever it has. Then nobody is left who could end the orphans, and the same
count must find them. Every command here leaves orphans at once, so none goes without survivors then,
if the instant was late enough for it to have started them.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.runner import traces
from tests.runner.commands import OURS, ROOT

# How long who is to be ended may live on. A grace of 0.2 s, twice, and 5 s are the promise; the rest
# is for a machine that is busy.
PATIENCE = 25.0
AT_ONCE = 8
GRACE = "0.2"
# The first act of each.
_HERE = 'echo >"$HERE"; '
# `SLEEP` is a sleep that bears the token in its words.
COMMANDS = {
    "quiet": "SLEEP & (SLEEP &) ; exec SLEEP",
    "quiet, in a session of its own": "(setsid SLEEP &) ; setsid SLEEP & exec SLEEP",
    "quiet, with an environment that was cleared": "(env -i setsid SLEEP &) ; exec env -i SLEEP",
    "deaf": "trap '' TERM INT HUP; (setsid SLEEP &) ; (env -i setsid SLEEP &) ; exec SLEEP",
    "writing": "(setsid SLEEP &) ; while :; do echo TOKEN; done",
    "writing much": "(setsid SLEEP &) ; (env -i setsid SLEEP &) ; exec yes TOKEN",
    "writing, in a session of its own": "(setsid sh -c 'while :; do echo TOKEN; done' &) ; exec SLEEP",
    "forking": "while :; do (setsid SLEEP &) ; sleep 0.02; done",
    "stopped": "(setsid sh -c 'kill -STOP $$; SLEEP' &) ; kill -STOP $$",
}
LIMITS = {
    "idle": ["--first", "600", "--idle", "600"],
    "total": ["--total", "600"],
    "none": [],
    "pty": ["--pty", "--idle", "600"],
    "foreground": ["--foreground", "--idle", "600"],
    "retries": ["--retries", "1", "--first", "600"],
}


class Kill(NamedTuple):
    """One run, and when it is killed: seconds after its start (`early`) or the command's first act."""

    command: str
    limits: str
    is_early: bool
    instant: float

    @classmethod
    def draw(cls, source: random.Random) -> Kill:
        kind = source.random()
        instant = source.uniform(0, 0.15 if kind < 0.25 else 0.02 if kind < 0.35 else 1.0)
        return cls(source.choice([*COMMANDS]), source.choice([*LIMITS]), kind < 0.25, instant)

    def __str__(self) -> str:
        since = "the start" if self.is_early else "the command's first act"
        return f"{self.command}; limits: {self.limits}; {self.instant:.3f} s after {since}"


class _Running:
    """A run that waits for its kill."""

    def __init__(self, kill: Kill, folder: Path) -> None:
        self.kill = kill
        self.token = traces.new_token()
        self._fifo = folder / self.token
        os.mkfifo(self._fifo)
        self.here = os.open(self._fifo, os.O_RDWR | os.O_NONBLOCK)
        script = _HERE + COMMANDS[kill.command].replace("SLEEP", f"sleep 1000.{self.token}")
        script = script.replace("TOKEN", self.token)
        words = [
            *OURS,
            "run",
            "--kill-after",
            GRACE,
            *LIMITS[kill.limits],
            "--",
            "sh",
            "-c",
            script,
        ]
        env = {**os.environ, "PYTHONPATH": str(ROOT), traces.MARK: self.token}
        env |= {"HERE": str(self._fifo), "XDG_RUNTIME_DIR": str(folder)}
        self.process = subprocess.Popen(
            words,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.due = time.monotonic() + kill.instant if kill.is_early else None

    def is_due(self) -> bool:
        """Whether it is time; the first act is looked for here."""
        now = time.monotonic()
        if self.due is None:
            if self.process.poll() is not None:
                return True  # it has failed before there was a command
            with suppress(BlockingIOError):
                if os.read(self.here, 1):
                    self.due = now + self.kill.instant
        return self.due is not None and now >= self.due

    def end(self, *, is_control: bool) -> None:
        if is_control:
            self.process.send_signal(signal.SIGSTOP)  # it could replace them
            for pid in traces.forks(self.process.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()
        os.close(self.here)
        self._fifo.unlink()


class Count(NamedTuple):
    """What came of many kills."""

    kills: Counter[str]
    # Of each that left somebody: what it was, and what those run.
    survived: list[tuple[Kill, list[str]]]

    def __str__(self) -> str:
        total, left = sum(self.kills.values()), Counter(kill.command for kill, _ in self.survived)
        lines = [f"{total} kills, {len(self.survived)} of them left survivors"]
        lines += [
            f"  {name:45} {count:6} kills {left[name]:6} left survivors"
            for name, count in sorted(self.kills.items())
        ]
        for kill, who in self.survived[:10]:
            lines += [f"  {kill}", *(f"      {each}" for each in who)]
        return "\n".join(lines)


def kill_many(
    kills: int, seed: str = "1", *, is_control: bool = False, patience: float = PATIENCE
) -> Count:
    """So many runs, each killed at its instant; who is left is killed when it has been counted."""
    source = random.Random(seed)
    drawn = [Kill.draw(source) for _ in range(kills)]
    folder = Path(tempfile.mkdtemp(prefix="streamguard-killed-"))
    running: list[_Running] = []
    judged: dict[str, Kill] = {}
    count = Count(Counter(kill.command for kill in drawn), [])
    waiting = drawn[::-1]
    try:
        while waiting or running:
            while waiting and len(running) < AT_ONCE:
                running.append(_Running(waiting.pop(), folder))
            for each in [each for each in running if each.is_due()]:
                each.end(is_control=is_control)
                running.remove(each)
                judged[each.token] = each.kill
            if len(judged) >= 50 or not (waiting or running):
                _judge(judged, count, patience=2.0 if is_control else patience)
                judged.clear()
            time.sleep(0.001)
    finally:
        for each in running:
            each.end(is_control=False)
        traces.end([*judged, *(each.token for each in running)])
        shutil.rmtree(folder, ignore_errors=True)
    return count


def _judge(judged: dict[str, Kill], count: Count, patience: float) -> None:
    for token, pids in traces.gone(judged, patience).items():
        said = [traces.words(pid).replace(b"\0", b" ").decode()[-100:] for pid in pids]
        count.survived.append((judged[token], said))
    traces.end(judged)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.runner.killed", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--control", action="store_true")
    given = parser.parse_args(arguments)
    began = time.monotonic()
    count = kill_many(given.kills, given.seed, is_control=given.control)
    took = time.monotonic() - began
    sys.stdout.write(f"{count}\n{took:.0f} s, {took / given.kills:.2f} s for each\n")
    return int(bool(count.survived) != given.control)


if __name__ == "__main__":
    sys.exit(main())
