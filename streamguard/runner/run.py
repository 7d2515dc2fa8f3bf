"""A run: what all attempts share, and whether there is another one.

A further attempt is made after a limit only, when nobody has seen anything of the one before, or
when the agent's own session can be taken up again; never while anything of the one before lives.
"""

from __future__ import annotations

import os
import select
import time

from streamguard.runner import aside, kernel
from streamguard.runner.attempt import Attempt
from streamguard.runner.child import CannotRunError, become, reserve_standard
from streamguard.runner.outcome import (
    OUR_FAILURE,
    described,
    exit_code,
    explain,
    leave,
    say,
    write_status,
)
from streamguard.runner.output import Sink
from streamguard.runner.stdin import Stdin
from streamguard.runner.wakeups import STOPPING, Wakeups

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Never

    from streamguard.published import Published
    from streamguard.runner.child import Child
    from streamguard.runner.evidence import Evidence
    from streamguard.runner.judge import Judge
    from streamguard.runner.outcome import Outcome
    from streamguard.runner.sentinel import Sentinel
    from streamguard.runner.settings import Settings
    from streamguard.runner.terminal import Terminal

# After these another attempt can come to something; `total` and `exit_grace` are the end.
_RETRIED = ("idle", "first", "first_json", "tools", "turn", "liveness")


class Run:
    """Everything that outlives an attempt."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.closed = reserve_standard()
        self.began = time.monotonic()
        self.wakeups = Wakeups(job_control=not settings.foreground)
        self.sink = Sink(1)
        self.stdin = Stdin(replays=settings.retries > 0, closed=0 in self.closed)
        self.adopts_orphans = not settings.group_only and _adopt_orphans()
        self.attempt = 0
        self.is_resumed = False
        self.evidence: Evidence | None = None
        self._terminal: Terminal | None = None
        self._sentinel: Sentinel | None = None
        self._published: Published | None = None
        if not settings.group_only and any(map(os.isatty, (0, 1, 2))):
            from streamguard.runner.terminal import Terminal

            self._terminal = Terminal()

    def go(self) -> int:
        """The exit code of all attempts together; negative: the signal to die by."""
        command: Sequence[str] = self.settings.command
        while True:
            self.attempt += 1
            outcome = self._attempt(command)
            if (again := self._next(outcome)) is None:
                break
            self.is_resumed = again is not self.settings.command
            command = again
            number = self._wait(self._delay())
            if number is not None:
                outcome.passed_on = number
                return self._finish(outcome, -number)
        return self._finish(outcome, exit_code(outcome, self.settings))

    # -- what an attempt needs -----------------------------------------------------------

    def open_output(self) -> tuple[int | None, int | None, int | None]:
        """Our end, the command's, and the command's again if it is a terminal."""
        settings = self.settings
        if 1 in self.closed:
            return None, None, None
        if settings.pty:
            self.sink.open()
            if self._terminal is None:
                from streamguard.runner.terminal import Terminal

                self._terminal = Terminal()
            ours, theirs = self._terminal.open_for_command()
            self._terminal.pass_keys_on()
            return ours, theirs, theirs
        if not (settings.watches_output or settings.retries):
            return None, None, None
        self.sink.open()
        return (*os.pipe(), None)

    def stderr_for(self, terminal: int | None) -> int | None:
        """The command's terminal, if ours goes to one: a file gets its errors as before."""
        return terminal if terminal is not None and os.isatty(2) else None

    def stdin_for(self, terminal: int | None) -> int | None:
        """The command's terminal, if somebody types at ours."""
        is_typed_at = self._terminal is not None and self._terminal.is_typed_at
        return terminal if is_typed_at else None

    def output_has_ended(self) -> None:
        """The command has closed its output, or our reader has gone."""
        if self.settings.pty:
            self.stdin.detach()
        if self._retries_left() <= 0:
            self.sink.close()

    def copy_size(self, terminal: int | None) -> bool:
        """Our window has another size; whether the command's terminal has it now."""
        if not self.settings.pty or self._terminal is None or terminal is None:
            return False
        self._terminal.copy_size(terminal)
        return True

    def terminal_as_before(self) -> None:
        """While we are stopped, it is the shell's."""
        if self._terminal is not None:
            self._terminal.restore(if_changed_by_us=True)

    def terminal_for_command(self) -> None:
        """We go on."""
        if self._terminal is not None:
            self._terminal.resume()

    def guard(self, child: Child, mark: str) -> None:
        """Have the tree end also if we are killed."""
        from streamguard.runner.sentinel import Sentinel

        settings = self.settings
        try:
            self._sentinel = Sentinel(
                child,
                mark=mark,
                leads_session=not settings.foreground,
                grace=settings.kill_after or 0.0,
            )
        except OSError as error:  # no more processes, or descriptors
            self.chat(f"nobody ends the command's tree if we are killed: {error.strerror}")

    def spare_sentinel(self) -> None:
        """It is no part of any tree; nor is any other process of ours."""
        from streamguard.process import procfs
        from streamguard.process.table import spared

        if self._sentinel is not None:
            self._sentinel.spare()
        for pid in aside.running:
            if (stat := procfs.read_stat(pid)) is not None:
                spared[pid] = stat.started

    def has_reaped(self, pid: int) -> None:
        """Somebody ended the sentinel, or an orphan has ended."""
        if self._sentinel is not None and self._sentinel.pid == pid:
            self._sentinel.close()
            self._sentinel = None

    def dismiss_sentinel(self) -> None:
        """Nothing is left that it could end."""
        if self._sentinel is not None:
            self._sentinel.dismiss()
            self._sentinel = None

    def chat(self, text: str) -> None:
        """What only a person wants to know who asked for it."""
        if self.settings.verbose:
            say(f"{self.settings.program}: {text}")

    def publish(self, judge: Judge, outcome: Outcome, *, is_stopping: bool, now: float) -> None:
        """Tell others on this machine how it goes."""
        from streamguard.published import Published

        if self._published is None:
            self._published = Published.for_this_process()
        watch = judge.watch
        state = "stopping" if is_stopping else "working" if watch.turn_open else "between turns"
        self._published.write(
            kind="run",
            name=self.settings.command[0].rpartition("/")[2],
            state=state,
            child=outcome.pid,
            attempt=self.attempt,
            messages=watch.messages,
            age=now - self.began,
            last_message_age=None if watch.last_message is None else now - watch.last_message,
            last_signal=watch.last_signal,
            in_flight=[entry.name or key for key, entry in watch.work.items()],
            limits=_limits_in_force(self.settings),
            session_id=judge.token,
        )

    # -- attempts ------------------------------------------------------------------------

    @property
    def wants_all(self) -> bool:
        """Whether even of a command that ended at once it matters what it said."""
        return self.evidence is not None or self.settings.resume_command is not None

    def _attempt(self, command: Sequence[str]) -> Outcome:
        if self.settings.record is not None and self.evidence is None:
            from streamguard.runner.evidence import Evidence

            name = self.settings.command[0].rpartition("/")[2]
            self.evidence = Evidence(self.settings.record, name, self._complain)
        return Attempt(self, command).go()

    def _complain(self, text: str) -> None:
        say(f"{self.settings.program}: {text}")

    def _retries_left(self) -> int:
        return self.settings.retries + 1 - self.attempt

    def _next(self, outcome: Outcome) -> Sequence[str] | None:
        """The command of a further attempt; None if there shall be none."""
        settings = self.settings
        fired = outcome.fired
        if fired is None or fired.limit not in _RETRIED or outcome.passed_on is not None:
            return None
        if self._retries_left() <= 0:
            return None
        again, why = self._again(outcome)
        if why is None and self._time_left() <= self._delay():
            why = "total leaves no time for it"
        if why is not None:
            say(f"{settings.program}: not tried again: {why}")
            return None
        delay = self._delay()
        say(f"{explain(outcome, settings)}; {_trying(self.attempt, settings.retries, delay)}")
        if self.evidence is not None:
            self.evidence.again(outcome, delay, time.monotonic())
        return again

    def _again(self, outcome: Outcome) -> tuple[Sequence[str], str | None]:
        """What to run now, and why that cannot be."""
        settings = self.settings
        if not outcome.is_ended_for_certain:
            return (), "something of it is still alive"
        if settings.resume_command is not None and outcome.token is not None:
            again = _resuming(settings.resume_command, outcome.token)
            return again, None if again else "its session id cannot be part of a command line"
        if outcome.passed:
            if settings.resume_command is None:
                return (), "some of its output was passed on already"
            return (), "it named no session that could be resumed"
        if not self.stdin.can_be_replayed:
            return (), "its input was too much to be kept"
        return settings.command, None

    def _delay(self) -> float:
        delays = self.settings.backoff
        return delays[min(self.attempt, len(delays)) - 1] if delays else 0.0

    def _time_left(self) -> float:
        total = self.settings.total
        return float("inf") if total is None else self.began + total - time.monotonic()

    def _wait(self, delay: float) -> int | None:
        """Between two attempts. The signal that ended it, if one did."""
        until = time.monotonic() + delay
        poll = select.poll()
        poll.register(self.wakeups.fd, select.POLLIN)
        if self.evidence is not None:
            self.evidence.attach(poll)
        while (left := until - time.monotonic()) > 0:
            for fd, _ in poll.poll(left * 1e3):
                if self.evidence is not None:
                    self.evidence.handle(fd)
            for number in self.wakeups.read():
                if number in STOPPING:
                    return number
        return None

    def _finish(self, outcome: Outcome, code: int) -> int:
        settings = self.settings
        if self._terminal is not None:
            self._terminal.restore(if_changed_by_us=outcome.fired is None and not outcome.signals)
        told = described(outcome, settings, self.attempt, code)
        if self.evidence is not None:
            self.evidence.ended(outcome, code, time.monotonic())
            told["not_recorded"] = self.evidence.close()
        if outcome.fired is not None and not settings.group_only:
            if settings.errors_as_json:
                import json

                say(json.dumps({"error": "timeout", **told}))
            else:
                say(explain(outcome, settings))
        elif outcome.survivors:
            say(f"{settings.program}: still alive: {', '.join(map(str, outcome.survivors))}")
        if settings.status_file is not None:
            try:
                write_status(settings.status_file, told)
            except OSError as error:
                say(f"{settings.program}: --status-file {settings.status_file}: {error.strerror}")
        return code

    def close(self) -> None:
        """Leave nothing behind that is for the time of a run only."""
        self.terminal_as_before()
        if self.evidence is not None:
            self.evidence.close()
        if self._published is not None:
            self._published.remove()


def supervise(settings: Settings) -> Never:
    """Run the command of `settings`, and end as it ended, or as its limits say."""
    run: Run | None = None
    try:
        if settings.is_off:
            become(settings.command)
        run = Run(settings)
        code = run.go()
    except CannotRunError as error:
        say(f"{settings.program}: {error}")
        code = error.code
    except BaseException as error:  # noqa: BLE001 - a code of its own, whatever it is
        import traceback

        say("".join(traceback.format_exception(error)).rstrip())
        code = OUR_FAILURE  # the kernel and the sentinel end what runs
    if run is not None:
        run.close()
    leave(code)


def _adopt_orphans() -> bool:
    """Whether whoever loses its parent below us is the command's, and falls to us."""
    if not hasattr(os, "waitid"):
        return False
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return kernel.adopt_orphans()
    return False  # who executed us left children, whose orphans are none of the command's


def _resuming(template: str, token: str) -> list[str]:
    """The words of `--resume-cmd`, the session's id in place; none if that is no word to give."""
    import shlex

    if token.startswith("-") or not token.isprintable():
        return []
    return [word.replace("{session_id}", token) for word in shlex.split(template)]


def _trying(attempt: int, retries: int, delay: float) -> str:
    when = f"in {delay:g} s" if delay else "now"
    return f"trying again {when} ({attempt} of {retries})"


def _limits_in_force(settings: Settings) -> dict[str, float]:
    names = ("idle", "first", "first_json", "tools", "turn", "exit_grace", "total")
    return {name: value for name in names if (value := getattr(settings, name)) is not None}
