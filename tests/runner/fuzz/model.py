"""What may have come of a random run: a naive model, from the documentation alone.

It knows no time. From the journal it knows what the command did for certain and may have done, from the
scenario who could have ended it, and from both which ends are possible. Where two things
happened at nearly the same instant, each order is right.
"""

from __future__ import annotations

import signal
from collections.abc import Generator
from typing import Any, NamedTuple

from tests.runner.fuzz.child_lines import line_of
from tests.runner.fuzz.draws import Scenario, every_step, is_refused
from tests.runner.fuzz.world import Seen

LIMITS = ("idle", "first", "first-json", "total", "tools", "turn", "exit-grace")
ASKING = ("TERM", "INT", "HUP", "QUIT")
# What they are to somebody who does not handle them.
_DEADLY = (*ASKING, "USR1")
LOSING = ("full", "small", "gone", "closed")
_SIGPIPE = (-13, 141)


class Complaint(NamedTuple):
    """What is wrong, as a word that shrinking holds on to, and in full."""

    kind: str
    detail: str


class Facts:
    """What is certain of a run."""

    def __init__(self, scenario: Scenario, seen: Seen) -> None:
        self.scenario = scenario
        self.seen = seen
        self.options = scenario["options"]
        roots = [entry for entry in seen.journal if entry[0] == "root"]
        pids = list(dict.fromkeys(entry[1] for entry in roots))
        self.attempts = len(pids)
        # Of the last attempt.
        self.did = [entry[2:] for entry in roots if entry[1] == pids[-1]] if pids else []
        ends = [entry[1] for entry in self.did if entry[0] == "ends"]
        self.own: int | None = ends[0] if ends else None
        self.sent = set(seen.sent)
        self.was_killed = "KILL" in self.sent and seen.code == -signal.SIGKILL
        self.has_limit = any(name in self.options for name in LIMITS)
        told = seen.told
        self.limit = None if told is None else told.get("limit")
        watches = {
            "idle",
            "first",
            "first-json",
            "tools",
            "turn",
            "exit-grace",
            "record",
            "pty",
            "retries",
        }
        # Otherwise the command has our own standard output, and nobody counts.
        self.is_piped = bool(watches & set(self.options)) and scenario["out"] != "closed"

    def by_itself(self) -> bool:
        """Whether the command ended, or may have ended, without anybody's doing."""
        code, own = self.seen.code, self.own
        if own is not None and code in (own, 128 - own if own < 0 else own):
            return True
        if own == 0 and code == 125 and self.scenario["out"] in LOSING:
            return True
        if code in (*_SIGPIPE, -signal.SIGHUP) and self.scenario["out"] in LOSING:
            return True
        return "USR1" in self.sent and code == -signal.SIGUSR1

    def possible(self) -> set[int]:
        """Every exit code that can be explained."""
        codes: set[int] = set()
        if is_refused(self.scenario):
            codes.add(125)
            if self.attempts:
                codes.clear()  # it must not even begin
                return codes
        if self.own is not None:
            codes.add(self.own)
        if self.scenario["out"] in LOSING:
            codes |= {*_SIGPIPE, 125} if self.own in (0, None) else {*_SIGPIPE}
            if "pty" in self.options:  # the command's terminal ends as a pipe would
                codes.add(-signal.SIGHUP)
        if self.has_limit:
            codes |= {124, 137}
            if "preserve-status" in self.options:
                codes |= {128 + number for number in (1, 2, 3, 9, 10, 13, 15)}
                codes |= {self.own or 0}
                if not self.own:  # whose output a slow reader has not taken by then
                    codes.add(125)
            if any(step[0] == "say" for step in every_step(self.scenario["steps"])):
                codes |= {0, 1}  # exit_grace
            # It had ended by itself before the signal, and no more is waited for a slow reader.
            if self.sent and self.own == 0 and self.scenario["out"] in ("late", "slow"):
                codes.add(125)
        for name in self.sent & {*_DEADLY}:
            codes.add(-getattr(signal, f"SIG{name}"))
        if self.sent & {*ASKING}:
            codes.add(137)
        if "INT" in self.sent:
            codes.add(130)
            if not self.attempts:  # nothing but Python's own start has run
                codes.add(1)
        if "KILL" in self.sent:
            codes.add(-9)
        return codes


def judge(scenario: Scenario, seen: Seen) -> list[Complaint]:
    """What is wrong with it."""
    facts = Facts(scenario, seen)
    if seen.code is None:
        if "INT" in seen.sent and not facts.attempts and scenario["err"] == "never":
            return []  # the interpreter itself, before any code of ours, wants to say a traceback
        return [Complaint("hung", f"not over after {seen.seconds:.0f} s; {seen.left}")]
    complaints = [*_code(facts), *_who_is_left(facts), *_what_came(facts), *_status(facts)]
    if seen.err is not None and b"Traceback" in seen.err and b"KeyboardInterrupt" not in seen.err:
        complaints.append(Complaint("traceback", seen.err.decode(errors="replace")[-600:]))
    if not seen.strangers:
        complaints.append(Complaint("stranger", "somebody else was ended"))
    if not seen.terminal and not facts.was_killed:
        spoiled = any(step[0] == "tty" for step in every_step(scenario["steps"]))
        is_limit = facts.limit is not None or (seen.code == 124 and facts.own != 124)
        if not spoiled or is_limit:
            complaints.append(Complaint("terminal", "it is not as it was"))
    return complaints


def _code(facts: Facts) -> Generator[Complaint, None, None]:
    possible = facts.possible()
    if facts.seen.code not in possible:
        yield Complaint("code", f"{facts.seen.code}, not one of {sorted(possible)}")


def _who_is_left(facts: Facts) -> Generator[Complaint, None, None]:
    seen = facts.seen
    if seen.ours:
        yield Complaint("ours", f"of our own there are left: {seen.ours}")
    if not seen.left:
        return
    if facts.by_itself() and ("reap" not in facts.options or facts.was_killed):
        return  # what it left in the background stays
    has_ended = facts.own is not None or facts.scenario["out"] in LOSING  # or by SIGPIPE, before
    if facts.was_killed and has_ended:
        return
    kind = "orphans" if facts.was_killed else "survivors"
    yield Complaint(kind, f"code {seen.code}, limit {facts.limit}: {seen.left}")


# -- output ----------------------------------------------------------------------------------


def _what_came(facts: Facts) -> Generator[Complaint, None, None]:
    scenario, out = facts.scenario, facts.seen.out
    if out is None:
        # It has gone nowhere: no success, if there was any.
        if scenario["out"] == "full" and facts.seen.code == 0 and _certain(facts) > 0:
            yield Complaint("lost", "a full disk, and code 0")
        return
    if scenario["err"] in ("same", "terminal"):
        if any(step[0] == "err" for step in every_step(scenario["steps"])):
            return
        if b"streamguard" in out or b'{"error"' in out or scenario["err"] == "same":
            return
    writers = {name: b"".join(said) for name, said in _expected(scenario["steps"])}
    if "pty" in facts.options and sum(map(bool, writers.values())) > 1:
        return  # who is killed leaves half a line in a terminal, where others go on
    came = _parted(out, writers)
    for name, expected in writers.items():
        if not expected.startswith(came.get(name, b"")):
            at = next(
                i
                for i, (a, b) in enumerate(zip(came[name], expected + b"?", strict=False))
                if a != b
            )
            yield Complaint("bytes", f"of {name}, from {at}: {came[name][at : at + 60]!r}")
    if unknown := set(came) - set(writers):
        yield Complaint("bytes", f"of nobody: {unknown}")
    yield from _enough_came(facts, len(came.get("root", b"")))


def _enough_came(facts: Facts, came: int) -> Generator[Complaint, None, None]:
    certain, code = _certain(facts), facts.seen.code
    if came >= certain or facts.was_killed:
        return
    out = facts.scenario["out"]
    if code == 0 and out != "gone":
        yield Complaint("lost", f"{came} of {certain} bytes, and code 0")
    elif out in ("eager", "file", "append", "socket", "pty", "terminal"):
        yield Complaint("lost", f"{came} of {certain} bytes, code {code}, limit {facts.limit}")


def _certain(facts: Facts) -> int:
    """How many bytes the command wrote to its output for certain, in its last attempt."""
    sizes = {"out": lambda n: 500 * n, "raw": lambda n: n, "say": lambda text: len(text) + 1}
    done = [entry[1:] for entry in facts.did if entry[0] == "did" and entry[1] in sizes]
    return sum(sizes[what](value) for what, value in done)


def _expected(
    steps: list[list[Any]], name: str = "root"
) -> Generator[tuple[str, list[bytes]], None, None]:
    """What each would write to its standard output, if nothing came in between."""
    said: list[bytes] = []
    others: list[tuple[str, list[bytes]]] = []
    number = 0
    is_closed = False
    waiting = [*steps]
    while waiting:
        step = waiting.pop(0)
        if step[0] in ("hang", "exit", "die"):
            break
        if step[0] == "bare":
            waiting, number = [*step[1]], 0
        elif step[0] in ("fork", "daemon"):
            others += _expected(step[2], step[1])
        elif step[0] == "close":
            is_closed = True
        elif is_closed:
            pass
        elif step[0] == "out":
            said += [line_of("o", name, number + i) for i in range(step[1])]
            number += step[1]
        elif step[0] == "raw":
            said.append(b"r" * step[1])
        elif step[0] == "say":
            said.append(step[1].encode() + b"\n")
    yield name, said
    yield from others


def _parted(out: bytes, writers: dict[str, bytes]) -> dict[str, bytes]:
    """What came of each. A line is written whole; what is left of one at the end may be anybody's."""
    if sum(bool(expected) for expected in writers.values()) <= 1:
        only = next((name for name, expected in writers.items() if expected), "root")
        return {only: out}
    came: dict[str, bytes] = {}
    for line in out.splitlines(keepends=True):
        fields = line.split(b" ", 2)
        is_childs = len(fields) == 3 and fields[0] == b"o"
        name = fields[1].decode(errors="replace") if is_childs else "root"
        if not line.endswith(b"\n") and name not in writers:
            continue
        came[name] = came.get(name, b"") + line
    return came


# -- the status file -------------------------------------------------------------------------


def _status(facts: Facts) -> Generator[Complaint, None, None]:
    scenario, seen, told = facts.scenario, facts.seen, facts.seen.told
    if scenario["status"] not in ("plain", "link"):
        return
    if told is None:
        if is_refused(scenario):
            return  # what is wrong with its words is all that is said of it
        if not facts.was_killed and (facts.attempts or not seen.sent):
            yield Complaint("status", "there is none")
        return
    for wrong in _contradictions(facts, told):
        yield Complaint("status", f"{wrong}: {told}")


def _contradictions(facts: Facts, told: dict[str, Any]) -> Generator[str, None, None]:
    scenario, seen = facts.scenario, facts.seen
    if "broken" in told:
        yield "it is no JSON"
        return
    assert seen.code is not None
    if facts.was_killed:
        return
    if told["exit_code"] != (seen.code if seen.code >= 0 else 128 - seen.code):
        yield f"the exit code was {seen.code}"
    limit = told["limit"]
    if limit is None and seen.code == 124 and facts.own != 124:
        yield "124 without a limit"
    if (
        limit is not None
        and limit.replace("_", "-") not in facts.options
        and limit != "exit_grace"
    ):
        yield "a limit that nobody asked for"
    attempts = told["attempts"]
    if not max(facts.attempts, 1) <= attempts <= 1 + facts.options.get("retries", 0):
        yield f"{facts.attempts} attempts were seen"
    is_quiet = limit is None and not told["signals_sent"] and not facts.sent & {*_DEADLY}
    if is_quiet and facts.own is not None and told["command_exit"] != facts.own:
        yield f"the command ended with {facts.own}"
    if told["survivors"] == [] and not told.get("unproven") and limit and seen.left:
        yield f"it does not tell of {seen.left}"
    is_counted = (
        facts.is_piped and seen.out is not None and scenario["err"] not in ("same", "terminal")
    )
    if is_refused(scenario):
        return  # there was no output
    if is_counted and scenario["out"] != "gone" and attempts == 1:
        if told["bytes"] != len(seen.out or b""):
            yield f"{len(seen.out or b'')} bytes came"
        if "bytes_lost" in told and told["bytes"] + told["bytes_lost"] < _certain(facts):
            yield f"{_certain(facts)} bytes were written"
    if scenario["err"] == "never" and limit is not None and not told.get("unsaid", True):
        yield "nobody can have read of the limit"
