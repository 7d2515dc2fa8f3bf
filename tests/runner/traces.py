"""What a test's processes are found by, whatever they do to their environment, group or parents.

A *token* is a number that no other process has in its words: eighteen digits, so that `sleep 1000.TOKEN`
bears it as well. Who was forked by a bearer bears it too, in its words or in its environment.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from random import SystemRandom

from streamguard.process.procfs import read_stat

# For those who look the environment over, too; the same as other tests' marks.
MARK = "STREAMGUARD_TEST"

_random = SystemRandom()


def new_token() -> str:
    return str(_random.randrange(10**17, 10**18))


def bearers(tokens: Collection[str], *, zombies: bool = False) -> dict[str, set[int]]:
    """Who lives and bears which of the tokens, in its words or in its environment."""
    found: dict[str, set[int]] = {token: set() for token in tokens}
    wanted = [(token, token.encode()) for token in tokens]
    ourselves = os.getpid()
    for name in os.listdir("/proc"):  # noqa: PTH208 - called hundreds of times
        if not name.isdigit() or int(name) == ourselves:
            continue
        said = words(int(name)) + b"\0" + _read(f"/proc/{name}/environ")
        for token, text in wanted:
            if text in said and (zombies or not is_dead(int(name))):
                found[token].add(int(name))
    return found


def keepers(run: int) -> set[int]:
    """Of what `streamguard run` has forked, those that keep its command, once they know whom to end."""
    return {pid for pid in forks(run) if words(pid).startswith(b"sguard-keeper")}


def living(token: str) -> set[int]:
    return bearers([token])[token]


def gone(tokens: Collection[str], patience: float) -> dict[str, set[int]]:
    """Wait until none of their bearers lives; who still does after `patience` seconds."""
    deadline = time.monotonic() + patience
    left = set(tokens)
    while True:
        found = {token: pids for token, pids in bearers(left).items() if pids}
        if not found or time.monotonic() > deadline:
            return found
        left = set(found)
        time.sleep(0.01)


def end(tokens: Iterable[str], patience: float = 30.0) -> None:
    """Kill whoever bears them."""
    tokens = list(tokens)
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        pids = set().union(*bearers(tokens).values())
        if not pids:
            return
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def words(pid: int) -> bytes:
    """Its words, each ended by a zero byte; none for who is dead."""
    return _read(f"/proc/{pid}/cmdline")


def is_dead(pid: int) -> bool:
    stat = read_stat(pid)
    return stat is None or stat.is_dead


def children(pid: int) -> set[int]:
    """Who lives and has that parent."""
    stats = [read_stat(int(name)) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208
    return {stat.pid for stat in stats if stat and stat.parent == pid and not stat.is_dead}


def is_ours(said: bytes) -> bool:
    """Whether those are the words of `run`, or the name of somebody that it has beside the command."""
    return b"\0streamguard\0run\0" in said or said.startswith(b"sguard-")


def forks(pid: int) -> set[int]:
    """Who was forked by that process, or by a fork of it, and is not (yet) another program."""
    same, found, waiting = words(pid), set[int](), [pid]
    while waiting:
        for child in children(waiting.pop()) - found:
            said = words(child)
            if said and (said == same or said.startswith(b"sguard-")):
                found.add(child)
                waiting.append(child)
    return found


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""
