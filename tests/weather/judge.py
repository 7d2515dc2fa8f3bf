"""What was seen against what really happened."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.weather.plans import IDLE
from tests.weather.sessions import Seen

# What may lie between a message that is written and the task that hears of it.
_ON_THE_WAY: Final = 0.3
# A process that was killed may be looked for a moment too soon.
_LAST_BREATH: Final = 5.0


def truth_of(log: Path) -> list[dict[str, Any]]:
    """What the agents of a session did, in its order; a line that a death has torn is none."""
    lines = []
    if log.exists():
        for line in log.read_bytes().split(b"\n"):
            try:
                lines.append(json.loads(line))
            except ValueError:
                continue
    return lines


def complaints(seen: Seen) -> Iterator[str]:
    truth = truth_of(seen.log)
    if seen.hung:
        yield f"a hang was missed: it did not end within {seen.took:.0f} s"
    yield from _of_messages(seen)
    yield from _of_the_end(seen)
    for limit, told in seen.verdicts:
        yield from _of_a_verdict(limit, told, truth)
    yield from _of_processes(truth)


def _of_messages(seen: Seen) -> Iterator[str]:
    got = seen.got
    if len(set(got)) < len(got):
        yield f"doubled: {got}"
    if sorted(got) != got:
        yield f"out of order: {got}"
    missing = set(range(1, max(got, default=0) + 1)) - set(got)
    if missing:
        yield f"lost: {sorted(missing)} of {got}"


def _of_the_end(seen: Seen) -> Iterator[str]:
    if seen.error:
        yield f"failed: {seen.error}"
    elif seen.ended and len(seen.got) != seen.plan.messages and not seen.left:
        yield f"ended well without all of its messages: {seen.got} of {seen.plan.messages}"
    elif not (seen.ended or seen.failed or seen.left or seen.hung):
        yield "it ended in silence: with no end of its turn, and no error"


def _of_a_verdict(limit: str, told: float, truth: list[dict[str, Any]]) -> Iterator[str]:
    """A silence is one if nothing was written for as long as its limit is."""
    if limit not in ("idle", "first", "liveness"):
        return
    written = [
        line["at"]
        for line in truth
        if line["did"] in ("began", "greeted", "said", "worked", *_pings(limit))
        and line["at"] < told
    ]
    latest = max((at for at in written if at < told - _ON_THE_WAY), default=None)
    if latest is not None and told - latest < IDLE - 0.01:
        yield f"a false verdict: {limit}, {told - latest:.3f} s after the agent wrote"


def _pings(limit: str) -> tuple[str, ...]:
    return ("pinged",) if limit == "liveness" else ()


def _of_processes(truth: list[dict[str, Any]]) -> Iterator[str]:
    pids = {line["pid"] for line in truth} | {line["child"] for line in truth if "child" in line}
    until = time.monotonic() + _LAST_BREATH
    while living := [pid for pid in pids if is_alive(pid, truth)]:
        if time.monotonic() > until:
            yield f"processes live on: {living}"
            return
        time.sleep(0.05)


def is_alive(pid: int, truth: list[dict[str, Any]]) -> bool:
    """Whether it is the one of that session, and lives."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    is_ours = b"backend.py" in b" ".join(words) or words[:2] == [b"/bin/sleep", b"600"]
    return is_ours and state not in "ZX" and bool(truth)
