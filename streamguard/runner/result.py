"""How a run ended: which code it gives, what is said of it, and in which file.

`EXIT_CODES` is the table of them.
Imports the standard library; knows nothing of how it came about.
"""

from __future__ import annotations

import errno
import os
import time

from streamguard.runner._signal import name_of, signal

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, Never

    from streamguard._watch.windows import Due
    from streamguard.errors import Verdict
    from streamguard.runner.options import Settings
    from streamguard.signals import Failed

TIMED_OUT = 124
OUR_FAILURE = 125
LOCKED = 75  # as sysexits.h has it: a failure that is over at another time
CANNOT_RUN = 126
NOT_FOUND = 127
KILLED = 137
_BY_SIGNAL = 128
# What each exit code of a run means: help and reference pages are made of it.
EXIT_CODES = (
    (
        "COMMAND's",
        "it ended by itself; if a signal ended it, we die of the same one (a shell shows 128 + its number)",
    ),
    ("75", "another run has the --lock; nothing was started"),
    ("124", "a limit was reached, and COMMAND was ended"),
    (
        "125",
        "wrong usage, or a failure of streamguard; also where output of a COMMAND that ended well was lost",
    ),
    ("126", "COMMAND cannot be run"),
    ("127", "COMMAND was not found"),
    ("130", "Ctrl-C, also where KILL was needed"),
    ("137", "a limit was reached or a signal passed on, and KILL was needed"),
    ("141", "the reader of our output had left (SIGPIPE)"),
)
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
        self.when = time.time()
        self.limit = limit
        self.window = window
        self.elapsed = elapsed
        self.reason = reason
        self.due = due
        self.verdict = verdict


class Result:
    """All that is known at the end of one attempt."""

    def __init__(self) -> None:
        self.pid = 0  # 0: it did not come to be
        self.is_dead = False
        self.status: int | None = None  # of the command, as `os.waitpid` gives it
        self.why_not: str | None = None  # it could not be run
        self.fired: Fired | None = None
        self.passed_on: int | None = None  # the first signal that asked it to end
        self.is_interrupted = False  # by a second Ctrl-C
        self.is_between = False  # it was passed on to nobody: another attempt was to come
        self.signals: list[str] = []  # sent by us, in the order of their first use
        self.survivors: tuple[int, ...] = ()
        self.is_unproven = False  # nobody is known to be left, and nothing proves it
        self.elsewhere = 0  # how many bore its mark who were started by somebody else
        self.out_of_reach = ""  # why it may live on where we see nothing
        self.ending_took = 0.0
        self.is_seen = False  # its output goes through us
        self.passed = 0  # bytes of its output
        self.lost = 0  # of these: not passed on
        self.failure: OSError | None = None  # why
        self.messages = 0
        self.has_progressed = False  # it has said more than a greeting
        self.result: str | None = None  # how its last turn ended, if it said so
        self.token: str | None = None
        self.has_lost_session = False  # it said that its session cannot be resumed any more
        self.failed: Failed | None = None  # what it said of a failure that it did not get over
        self.complaints = ""  # the last of its standard error, where that goes through us
        self.done: dict[str, Any] | None = (
            None  # tools, tokens, attempts and folder, as JSON has it
        )

    @property
    def was_killed(self) -> bool:
        return "KILL" in self.signals

    @property
    def is_ended_for_certain(self) -> bool:
        """Whether a session may go on in another process (D5)."""
        return not self.survivors and not self.is_unproven


def exit_code(outcome: Result, settings: Settings) -> int:
    """The exit code; a negative one is a signal that we are to die by ourselves."""
    code = _code_of(outcome, settings)
    if code or not outcome.lost:
        return code
    return -int(signal.SIGPIPE) if has_reader_left(outcome) else OUR_FAILURE


def _code_of(outcome: Result, settings: Settings) -> int:
    if outcome.status is None:  # it lives, or whoever knew its end was killed
        if outcome.fired is None:
            return OUR_FAILURE
        return KILLED if outcome.was_killed else TIMED_OUT
    own = os.waitstatus_to_exitcode(outcome.status)
    if outcome.fired is not None:
        if outcome.fired.limit == "exit_grace" and outcome.result is not None:
            return 0 if outcome.result == "success" else 1
        if outcome.was_killed and settings.group_only and not settings.foreground:
            return -int(signal.SIGKILL)  # GNU's is in the group that it kills
        if settings.preserve_status:
            return own if own >= 0 else _BY_SIGNAL - own
        return KILLED if outcome.was_killed else TIMED_OUT
    is_asked = outcome.passed_on is not None or outcome.is_interrupted
    is_reaped = settings.reap and not is_asked  # and only what it had left behind was killed
    if outcome.was_killed and not is_reaped:
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


def described(
    outcome: Result, settings: Settings, attempt: int, code: int, unsaid: int = 0
) -> dict[str, Any]:
    """The run's end as `--status-file` and `--errors json` give it."""
    fired = outcome.fired
    own = None if outcome.status is None else os.waitstatus_to_exitcode(outcome.status)
    verdict = None if fired is None else fired.verdict
    return {
        "limit": None if fired is None else fired.limit,
        "window": None if fired is None else fired.window,
        "elapsed": None if fired is None else round(fired.elapsed, 6),
        "reason": (outcome.why_not or what_was_lost(outcome)) if fired is None else fired.reason,
        "exit_code": code if code >= 0 else _BY_SIGNAL - code,
        "command": settings.command[0],
        "pid": outcome.pid or None,
        "command_exit": own,
        "signal": None if outcome.passed_on is None else name_of(outcome.passed_on),
        "signals_sent": outcome.signals,
        "survivors": list(outcome.survivors),
        "unproven": outcome.is_unproven,
        "out_of_reach": outcome.out_of_reach or None,
        "attempts": attempt,
        "messages": outcome.messages,
        "bytes": outcome.passed - outcome.lost if outcome.is_seen else None,
        "bytes_lost": outcome.lost,
        "unsaid": unsaid,
        "vitals": None if verdict is None or verdict.vitals is None else verdict.vitals.as_json(),
        "in_flight": [] if verdict is None else list(verdict.in_flight),
        "result": outcome.result,
        "session_id": outcome.token,
        "done": outcome.done,
    }


def explain(outcome: Result, settings: Settings) -> str:
    """One line for the person who reads the log."""
    assert outcome.fired is not None
    sent = f"; sent {', '.join(outcome.signals)}" if outcome.signals else ""
    return f"{settings.program}: {outcome.fired.reason}{sent}{left_of(outcome)}{_how_it_was(outcome, settings)}"


def _how_it_was(outcome: Result, settings: Settings) -> str:
    """The command's vitals at the verdict, as the end of a line of --verbose."""
    assert outcome.fired is not None
    verdict = outcome.fired.verdict
    if not settings.verbose or verdict is None or verdict.vitals is None:
        return ""
    return f" [{verdict.vitals}]"


def what_a_signal_took(outcome: Result, settings: Settings) -> str | None:
    """Of a signal that we passed on, for the person who reads the log; None: it was enough."""
    if outcome.passed_on is None or settings.group_only:
        return None
    name = name_of(outcome.passed_on)
    if outcome.is_between:
        return f"ended by {name} before another attempt"
    if outcome.was_killed and not outcome.is_interrupted:
        command = os.path.basename(settings.command[0])
        grace = "" if settings.kill_after is None else f" in {settings.kill_after:g} s"
        return f"'{command}' did not end by {name}{grace}; sent KILL"
    return None


def left_of(outcome: Result) -> str:
    """What is still there, or may be, as the end of a line."""
    if outcome.survivors:
        return f"; STILL ALIVE: {', '.join(map(str, outcome.survivors))}"
    if outcome.out_of_reach:
        return f"; NOT PROVEN to have ended: {outcome.out_of_reach}"
    if outcome.is_unproven:
        return "; it is NOT PROVEN that all of it has ended"
    return ""


def has_reader_left(outcome: Result) -> bool:
    """Whether nobody reads its output any more: then it, or we in its place, end by SIGPIPE."""
    return outcome.failure is not None and outcome.failure.errno == errno.EPIPE


def what_was_lost(outcome: Result) -> str | None:
    """Of its output, for the person who reads the log; None if nothing was."""
    if not outcome.lost or has_reader_left(outcome):  # who left has no need to be told
        return None
    lost = f"{outcome.lost} bytes of the command's output are lost"
    return lost if outcome.failure is None else f"write error: {outcome.failure.strerror}; {lost}"
