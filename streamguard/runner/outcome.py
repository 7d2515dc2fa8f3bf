"""How a run ended: which code it gives, what is said of it, and in which file.

| code | meaning |
|---|---|
| the command's own, or its signal sent to ourselves | it ended by itself, or by a signal passed on |
| 124 | a limit was reached |
| 137 | a limit was reached or a signal passed on, and KILL was needed |
| 125 | wrong usage, or a failure of ours |
| 126, 127 | the command cannot be run; was not found |

Imports the standard library; knows nothing of how it came about.
"""

from __future__ import annotations

import os

from streamguard.runner._signal import name_of, signal

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, Never

    from streamguard.errors import Verdict
    from streamguard.runner.settings import Settings
    from streamguard.windows import Due

TIMED_OUT = 124
OUR_FAILURE = 125
KILLED = 137
_BY_SIGNAL = 128
_UNCATCHABLE = (signal.SIGKILL, signal.SIGSTOP)


class Fired:
    """The limit that was reached, decided once."""

    def __init__(
        self,
        limit: str,
        window: float | None,
        elapsed: float,
        reason: str,
        *,
        due: Due | None = None,
        verdict: Verdict | None = None,
    ) -> None:
        self.limit = limit
        self.window = window
        self.elapsed = elapsed
        self.reason = reason
        self.due = due
        self.verdict = verdict


class Outcome:
    """All that is known at the end of one attempt."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.status: int | None = None  # of the command, as `os.waitpid` gives it
        self.fired: Fired | None = None
        self.passed_on: int | None = None  # the first signal that asked it to end
        self.is_interrupted = False  # by a second Ctrl-C
        self.signals: list[str] = []  # sent by us, in the order of their first use
        self.survivors: tuple[int, ...] = ()
        self.is_unproven = False  # nobody could say who is left of its tree
        self.ending_took = 0.0
        self.passed = 0
        self.messages = 0
        self.result: str | None = None  # how its last turn ended, if it said so
        self.token: str | None = None

    @property
    def was_killed(self) -> bool:
        return "KILL" in self.signals

    @property
    def is_ended_for_certain(self) -> bool:
        """Whether a session may go on in another process (D5)."""
        return not self.survivors


def exit_code(outcome: Outcome, settings: Settings) -> int:
    """The exit code; a negative one is a signal that we are to die by ourselves."""
    own = os.waitstatus_to_exitcode(outcome.status or 0)
    shell = own if own >= 0 else _BY_SIGNAL - own
    if outcome.fired is not None:
        if outcome.fired.limit == "exit_grace":
            return 0 if outcome.result == "success" else 1
        if settings.preserve_status:
            return shell
        return KILLED if outcome.was_killed else TIMED_OUT
    if outcome.was_killed:
        is_ctrl_c = outcome.is_interrupted or outcome.passed_on == signal.SIGINT
        return -int(signal.SIGINT) if is_ctrl_c else KILLED
    return own


def leave(code: int) -> Never:
    """End this process, by a signal if that is how the command ended: a shell can tell."""
    if code < 0:
        from streamguard.runner import kernel

        kernel.leave_no_core()
        if -code not in _UNCATCHABLE:
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {-code})
        os.kill(os.getpid(), -code)
        code = _BY_SIGNAL - code
    os._exit(code)  # nothing of ours is open, and the interpreter's farewell takes time


def say(line: str) -> None:
    """One line on standard error, whatever that is by now."""
    try:
        os.write(2, f"{line}\n".encode(errors="replace"))
    except OSError:
        pass


def described(outcome: Outcome, settings: Settings, attempt: int, code: int) -> dict[str, Any]:
    """The run's end as `--status-file` and `--errors json` give it."""
    fired = outcome.fired
    own = None if outcome.status is None else os.waitstatus_to_exitcode(outcome.status)
    verdict = None if fired is None else fired.verdict
    return {
        "limit": None if fired is None else fired.limit,
        "window": None if fired is None else fired.window,
        "elapsed": None if fired is None else round(fired.elapsed, 6),
        "reason": None if fired is None else fired.reason,
        "exit_code": code if code >= 0 else _BY_SIGNAL - code,
        "command": settings.command[0],
        "pid": outcome.pid,
        "command_exit": own,
        "signal": None if outcome.passed_on is None else name_of(outcome.passed_on),
        "signals_sent": outcome.signals,
        "survivors": list(outcome.survivors),
        "attempts": attempt,
        "messages": outcome.messages,
        "bytes": outcome.passed,
        "in_flight": [] if verdict is None else list(verdict.in_flight),
        "result": outcome.result,
        "session_id": outcome.token,
    }


def explain(outcome: Outcome, settings: Settings) -> str:
    """One line for the person who reads the log."""
    assert outcome.fired is not None
    sent = f"; sent {', '.join(outcome.signals)}" if outcome.signals else ""
    left = ""
    if outcome.survivors:
        left = f"; STILL ALIVE: {', '.join(map(str, outcome.survivors))}"
    return f"{settings.program}: {outcome.fired.reason}{sent}{left}"


def write_status(path: str, told: dict[str, Any]) -> None:
    """Whole or not at all, where that is a file; /dev/fd/3 and pipes are written to.

    A link leads to the file that is meant: /dev/stderr would be one no more if it were replaced.
    """
    import json

    text = (json.dumps(told) + "\n").encode()
    is_ours = os.path.abspath(path).startswith(("/dev/", "/proc/"))
    path = path if is_ours else os.path.realpath(path)
    if is_ours or (os.path.exists(path) and not os.path.isfile(path)):
        with open(path, "ab", buffering=0) as file:
            file.write(text)
        return
    beside = f"{path}.{os.getpid()}"
    with open(beside, "wb") as file:
        file.write(text)
    os.replace(beside, path)
