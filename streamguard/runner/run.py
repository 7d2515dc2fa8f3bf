"""A run: what all attempts share, and whether there is another one.

A further attempt is made after a limit only, when nobody has seen anything of the one before, or
when the agent's own session can be taken up again; never while anything of the one before lives.
"""

from __future__ import annotations

import gc
import os
import select
import time

from streamguard._base.quoting import in_shell
from streamguard.runner import keeper, kernel
from streamguard.runner._signal import signal
from streamguard.runner.child import CannotRunError, NotBegunError, become, reserve_standard
from streamguard.runner.conduit import Outlet
from streamguard.runner.poll_loop import LONGEST_POLL, PollLoop
from streamguard.runner.result import (
    OUR_FAILURE,
    Result,
    described,
    exit_code,
    explain,
    leave,
    left_of,
    what_a_signal_took,
    what_was_lost,
)
from streamguard.runner.stdin import Stdin
from streamguard.runner.wakeups import STOPPING, Wakeups
from streamguard.runner.words import PATIENCE, Words

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Never

    from streamguard._base.done import Deeds
    from streamguard.runner.again import Again, Attempts
    from streamguard.runner.complaints import Complaints
    from streamguard.runner.judge import Judge
    from streamguard.runner.lock import RunLock
    from streamguard.runner.notices import Notices
    from streamguard.runner.options import Settings
    from streamguard.runner.pulse import Pulse
    from streamguard.runner.record import Evidence
    from streamguard.runner.terminal import Terminal
    from streamguard.runner.transcript import Transcript
    from streamguard.top.published import Published

# What may be taken by who writes the status file, in seconds.
_STATUS = 2.0
# How often the clock on the wall is looked at, in seconds.
_LOOK_AT_CLOCK = 60.0
# What is bounded after the last attempt: evidence, words and the status file, each by itself.
_FINISHING = 15.0


class CommandRun:
    """Everything that outlives an attempt."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.closed = reserve_standard()
        if not settings.group_only:
            from streamguard.runner import kept

            kept.keep(
                kept.TO_END,
                kept.TO_JUDGE,
                kept.TO_TRY_AGAIN if settings.may_go_on else (),
                kept.TO_LOOK if settings.transcript is not None else (),
                kept.TO_RECORD if settings.record is not None else (),
                kept.TO_LOCK if settings.lock is not None else (),
                kept.TO_SAY_HOW_IT_ENDED if settings.status_file is not None else (),
                kept.TO_TELL if settings.notifies else (),
            )
        self.words = Words()
        self.lock: RunLock | None = None
        if settings.lock is not None:
            from streamguard.runner.lock import RunLock

            self.lock = RunLock(settings.lock, self.complain)
        self.began = time.monotonic()
        self.wakeups = Wakeups(job_control=not settings.foreground)
        self.sink = Outlet(1)
        self.stdin = Stdin(
            replays=settings.may_go_on,
            closed=0 in self.closed,
            is_null=settings.stdin == "null",
        )
        self.adopts_orphans = not settings.group_only and _adopt_orphans()
        self.attempt = 0
        self.deeds: Deeds | None = (
            None  # what all attempts have done, as soon as that is looked at
        )
        self.is_resumed = False
        self.evidence: Evidence | None = None
        self._attempts: Attempts | None = None
        self._not_again: str | None = None
        # Attempts that were no retries; and what they were for.
        self._unpaid = 0
        self._waited = 0.0
        self._began_afresh = False
        self._status_file = _absolute(settings.status_file)
        self._transcript = _absolute(settings.transcript)
        self._terminal: Terminal | None = None
        self._published: Published | None = None
        self._is_all_gone: bool | None = None  # None: that is not known yet
        self._notices: Notices | None = None
        if settings.notifies:
            from streamguard.runner.notices import Notices

            self._notices = Notices(self, self._status_file)
        self.pulse: Pulse | None = None
        if settings.has_pulse:
            from streamguard.runner.pulse import Pulse

            self.pulse = Pulse.of(settings, _absolute(settings.heartbeat), self.complain)
        if not settings.group_only and any(map(os.isatty, (0, 1, 2))):
            from streamguard.runner.terminal import Terminal

            self._terminal = Terminal()

    def go(self) -> int:
        """The exit code of all attempts together; negative: the signal to die by."""
        command: Sequence[str] = self.settings.command
        for warning in self.settings.warnings:
            self.complain(f"warning: {warning}")
        outcome = Result()
        while True:
            self.attempt += 1
            try:
                outcome = self._attempt(command)
            except CannotRunError as error:
                is_its_own = isinstance(error, NotBegunError)
                of_what = "--resume-cmd: " if self.is_resumed and not is_its_own else ""
                return self._could_not_begin(outcome, f"{of_what}{error}", error.code)
            except OSError as error:  # no more processes or descriptors, for one
                self.attempt -= 1
                why = f"the system does not allow it: {error.strerror}"
                return self._could_not_begin(outcome, why, OUR_FAILURE)
            if (again := self._next(outcome)) is None:
                break
            self.is_resumed = again.command is not self.settings.command
            command = again.command
            if again.until is not None:
                self._waits_for_limit(again, outcome)
            number = self._wait(again.delay, by_the_clock=again.until is not None)
            if number is not None:
                outcome.passed_on, outcome.is_between = number, True
                return self._finish(outcome, -number)
        self._settle(outcome)
        return self._finish(outcome, exit_code(outcome, self.settings))

    def _waits_for_limit(self, again: Again, outcome: Result) -> None:
        """Tell others on this machine that it is not at work, and until when."""
        self._waited = round(self._waited + again.delay, 3)
        state = f"waiting until {again.until} (usage limit)"
        self._publish(
            time.monotonic(),
            state=state,
            backend=None,
            child=None,
            messages=outcome.messages,
            last_message_age=None,
            last_signal=None,
            in_flight=[],
            concern=None,
            session_id=outcome.token,
        )
        if self.pulse is not None:
            self.pulse.goes_on(state, None, [], self.attempt, self.attempt)

    def _could_not_begin(self, before: Result, why: str, code: int) -> int:
        """A first attempt, or one after the attempt `before`, was not possible."""
        outcome = Result()
        outcome.why_not, outcome.token, outcome.done = why, before.token, before.done
        outcome.passed, outcome.lost = before.passed, before.lost
        return self._finish(outcome, code)

    def _settle(self, outcome: Result) -> None:
        """What is with who writes on our behalf is not written any more."""
        pump = self.sink.pump
        if pump is not None and (missing := self.sink.given - pump.written) > 0:
            outcome.lost += missing
            outcome.failure = outcome.failure or pump.failure
        self.sink.finish()

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
            if settings.stdin != "null":
                self._terminal.pass_keys_on()
            return ours, theirs, theirs
        if not (settings.watches_output or settings.retries):
            return None, None, None
        self.sink.open()
        return (*os.pipe(), None)

    def transcript_from_now(self) -> Transcript | None:
        """What comes to the transcript from now on. NotBegunError if it cannot be looked at."""
        path = self._transcript
        if path is None:
            return None
        from streamguard.runner.transcript import Transcript, TranscriptError

        try:
            return Transcript(path, self.complain)
        except TranscriptError as error:
            raise NotBegunError(f"--transcript {path}: {error}", OUR_FAILURE) from None

    def stderr_for(self, terminal: int | None) -> int | None:
        """The command's terminal, if ours goes to one: a file gets its errors as before."""
        return terminal if terminal is not None and os.isatty(2) else None

    def complaints_of_resumed(self, terminal: int | None) -> Complaints | None:
        """Where an agent that is to resume a session may say that it does not know it."""
        is_wanted = self.settings.fresh_if_unknown and self.is_resumed
        if not is_wanted or terminal is not None or 2 in self.closed:
            return None
        from streamguard.runner.complaints import Complaints

        return Complaints()

    def stdin_for(self, terminal: int | None) -> int | None:
        """The command's terminal, if somebody types at ours."""
        is_typed_at = self._terminal is not None and self._terminal.is_typed_at
        return terminal if is_typed_at else None

    def output_has_ended(self) -> None:
        """The command has closed its output, or our reader has gone."""
        if self.settings.pty:
            self.stdin.detach()
        if self.is_at_last:
            self.sink.close()

    def copy_size(self, terminal: int | None) -> bool:
        """Our window has another size; whether the command's terminal has it now."""
        if not self.settings.pty or self._terminal is None or terminal is None:
            return False
        self._terminal.copy_size(terminal)
        return True

    def suspend(self) -> None:
        """Stop, until we are told to go on: meanwhile the terminal is the shell's."""
        self.terminal_as_before()
        self.wakeups.stop()
        if self._terminal is not None:
            self._terminal.resume()

    def terminal_as_before(self) -> None:
        """What we have changed of it."""
        if self._terminal is not None:
            self._terminal.restore(if_changed_by_us=True)

    def has_sent(self, name: str) -> None:
        """A signal was sent to the command, or to something of it."""
        if name not in ("CONT", "STOP"):  # what it takes to be heard, and to hold a storm
            command = self.settings.command[0]
            self.chat(f"sending signal {name} to command {command!r}")

    def complain(self, text: str) -> None:
        """What everybody should know."""
        self.words.say(f"{self.settings.program}: {text}")

    def chat(self, text: str) -> None:
        """What only a person wants to know who asked for it."""
        if self.settings.verbose:
            self.complain(text)

    def concern(self, kind: str, text: str, facts: Mapping[str, object]) -> None:
        """Something that ends nothing, for who wants to be told of it; the log is the caller's."""
        if self._notices is not None:
            self._notices.concern(kind, text, facts)

    def has_begun(self, tree: tuple[Any, ...]) -> None:
        """The command of an attempt runs; by `tree` it and all that it starts are found."""
        if self.lock is not None:
            self.lock.note(tree)

    def let_go_of_output(self) -> None:
        """Nothing more is written there: its reader need not wait for us."""
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        os.close(nothing)

    def publish(self, judge: Judge, outcome: Result, *, is_stopping: bool, now: float) -> None:
        """Tell others on this machine how it goes."""
        watch = judge.watch
        state = "stopping" if is_stopping else "working" if watch.turn_open else "between turns"
        in_flight = [entry.name or key for key, entry in watch.work.items()]
        last_message_age = None if watch.last_message is None else now - watch.last_message
        self._publish(
            now,
            state=state,
            backend=judge.backend,
            child=outcome.pid,
            messages=watch.messages,
            last_message_age=last_message_age,
            last_signal=watch.last_signal,
            in_flight=in_flight,
            concern=watch.concern,
            session_id=judge.token,
        )
        if self.pulse is not None:
            attempts = self.settings.retries + 1 + self._unpaid
            self.pulse.goes_on(state, last_message_age, in_flight, self.attempt, attempts)

    def _publish(self, now: float, **told: Any) -> None:
        from streamguard.top.published import Published

        if self._published is None:
            self._published = Published.for_this_process(keeper.started_at(os.getpid()))
        self._published.write(
            kind="run",
            name=self.settings.command[0].rpartition("/")[2],
            attempt=self.attempt,
            age=now - self.began,
            limits=_limits_in_force(self.settings),
            **told,
        )

    @property
    def signs_due(self) -> float:
        """When a sign of life is to be given; inf if never."""
        return float("inf") if self.pulse is None else self.pulse.due

    def give_signs(self, now: float, *, is_overdue: bool) -> None:
        """Tell who waits for signs of life, if it is time to."""
        if self.pulse is not None and now >= self.pulse.due:
            self.pulse.beat(now, is_overdue=is_overdue)

    def ends(self, why: str, within: float) -> None:
        """The end was asked for; unless there may be another attempt, it is the end of the run."""
        if self.pulse is not None:
            longest = 0.0 if self._notices is None else self._notices.longest
            self.pulse.ends(why, within + _FINISHING + longest)

    # -- attempts ------------------------------------------------------------------------

    @property
    def is_at_last(self) -> bool:
        """Whether no other attempt can follow the present one."""
        return self.attempt - self._unpaid > self.settings.retries and not self.settings.overcomes

    @property
    def wants_all(self) -> bool:
        """Whether even of a command that ended at once it matters what it said."""
        settings = self.settings
        needs = (settings.record, settings.resume_command, settings.status_file, settings.on_end)
        is_needed = settings.overcomes or any(each is not None for each in needs)
        return settings.watches_output and is_needed

    def _attempt(self, command: Sequence[str]) -> Result:
        if self.settings.record is not None and self.evidence is None:
            from streamguard.runner.record import Evidence

            name = self.settings.command[0].rpartition("/")[2]
            self.evidence = Evidence(self.settings.record, name, self.complain)
        return PollLoop(self, command).go()

    def _next(self, outcome: Result) -> Again | None:
        """A further attempt, if there shall be one."""
        settings = self.settings
        if not settings.may_go_on or (outcome.fired is None and not settings.overcomes):
            return None
        from streamguard.runner.again import Attempts

        if self._attempts is None:
            self._attempts = Attempts(settings)
        again = self._attempts.after(
            outcome, self._time_left(), replays=self.stdin.can_be_replayed
        )
        if again is None:
            return None
        if isinstance(again, str):
            self._not_again = again
            return None
        if again.why is not None:
            self._unpaid += 1
            text = again.why
            self.complain(text)
            self._began_afresh |= again.until is None
        else:
            when = f"in {again.delay:g} s" if again.delay else "now"
            number = self.attempt - self._unpaid
            trying = f"trying again {when} ({number} of {settings.retries})"
            text = f"{explain(outcome, settings)}; {trying}"
            self.words.say(text)
        self._tell_of_retry(text, outcome)
        if self.evidence is not None:
            self.evidence.again(outcome, again.delay, time.monotonic(), again.why)
        return again

    def _tell_of_retry(self, text: str, outcome: Result) -> None:
        facts: dict[str, object] = {"pid": outcome.pid, "session_id": outcome.token}
        if (fired := outcome.fired) is not None:
            facts |= {"limit": fired.limit, "window": fired.window, "elapsed": fired.elapsed}
        self.concern("Retry", text, facts)

    def _time_left(self) -> float:
        total = self.settings.total
        return float("inf") if total is None else self.began + total - time.monotonic()

    def _wait(self, delay: float, *, by_the_clock: bool = False) -> int | None:
        """Between two attempts. The signal that ended it, if one did.

        `by_the_clock`: it is over at a time of the day, also if this machine has slept meanwhile.
        """
        until = time.monotonic() + delay
        over_at = time.time() + delay if by_the_clock else float("inf")
        longest = _LOOK_AT_CLOCK if by_the_clock else LONGEST_POLL
        poll = select.poll()
        poll.register(self.wakeups.fd, select.POLLIN)
        if self.wakeups.stop_fd is not None:
            poll.register(self.wakeups.stop_fd, select.POLLIN)
        if self.evidence is not None:
            self.evidence.attach(poll)
        while (now := time.monotonic()) < until and time.time() < over_at:
            self.give_signs(now, is_overdue=False)
            due = min(until, self.signs_due) - now
            for fd, _ in poll.poll(min(max(due, 0.0), longest) * 1e3):
                if fd == self.wakeups.stop_fd:
                    self.suspend()
                elif self.evidence is not None:
                    self.evidence.handle(fd)
            for number in self.wakeups.read():
                if number in STOPPING:
                    return number
                if number == signal.SIGTSTP:
                    self.suspend()
        return None

    def _finish(self, outcome: Result, code: int) -> int:
        """All is decided: say so, and keep nobody waiting for who does not listen."""
        settings = self.settings
        why = outcome.why_not if outcome.fired is None else outcome.fired.reason
        self.ends(why or "ended", 0.0)
        if self._terminal is not None:
            self._terminal.restore(if_changed_by_us=outcome.fired is None and not outcome.signals)
        told = described(outcome, settings, self.attempt, code)
        told |= {"waited_for_limit": self._waited, "began_afresh": self._began_afresh}
        if self.evidence is not None:
            self.evidence.ended(outcome, code, time.monotonic())
            told["not_recorded"] = self.evidence.close()
            told["receipt"] = self.evidence.receipt
        self._speak(outcome, told)
        if self._notices is not None and outcome.fired is not None:
            self._notices.limit(outcome, told)
        told["unsaid"] = self.words.finish(PATIENCE)
        if self._status_file is not None:
            from streamguard.runner import status

            why = status.write(self._status_file, told, _STATUS)
            if why is not None:
                self.complain(f"--status-file {settings.status_file}: {why}")
                self.words.finish(PATIENCE)
        if self._notices is not None:
            self._notices.ended(outcome, told)
        self._is_all_gone = outcome.is_ended_for_certain
        return code

    def _speak(self, outcome: Result, told: dict[str, Any]) -> None:
        settings = self.settings
        if outcome.why_not is not None:
            self.complain(outcome.why_not)
        elif (taken := what_a_signal_took(outcome, settings)) is not None:
            self.complain(f"{taken}{left_of(outcome)}")
        elif outcome.fired is not None and not settings.group_only:
            if settings.errors_as_json:
                import json

                self.words.say_as_it_is(json.dumps({"error": "timeout", **told}))
            else:
                self.words.say(explain(outcome, settings))
        elif left := left_of(outcome):
            self.complain(left.removeprefix("; "))
        if self._not_again is not None:
            self.complain(f"not tried again: {self._not_again}")
        if told.get("receipt") is not None and not settings.errors_as_json:
            folder = in_shell(str(_absolute(settings.record)))
            self.complain(f"evidence: {told['receipt']}; to see it: streamguard report {folder}")
        if (lost := what_was_lost(outcome)) is not None:
            self.complain(lost)
        if outcome.pid and outcome.is_dead and outcome.status is None:
            self.complain("how the command ended is not known: its keeper was killed")

    def close(self) -> None:
        """Leave nothing behind that is for the time of a run only."""
        self.terminal_as_before()
        if self.pulse is not None:
            self.pulse.close()
            self.words.finish(PATIENCE)  # what was wrong with its signs is known only now
        self.words.close()
        if self._published is not None:
            self._published.remove()
        if self.lock is not None and self._is_all_gone is not None:
            self.lock.release(is_all_gone=self._is_all_gone)


def supervise(settings: Settings) -> Never:
    """Run the command that `settings` name, and end as it ended, or as its limits say."""
    run: CommandRun | None = None
    words = Words()
    try:
        if settings.is_off and not settings.has_pulse:
            if settings.lock is not None:
                from streamguard.runner.lock import RunLock

                RunLock(settings.lock, words.say).pass_on()
            become(settings.command)
        run = CommandRun(settings)
        words = run.words
        gc.freeze()  # what is there stays, also in who is forked from us
        gc.enable()
        code = run.go()
    except KeyboardInterrupt:  # before there was anybody to pass it on to
        code = -int(signal.SIGINT)
    except CannotRunError as error:
        words.say(f"{settings.program}: {error}")
        code = error.code
    except OSError as error:  # no more processes or descriptors, for one
        words.say(f"{settings.program}: the system does not allow it: {error.strerror}")
        code = OUR_FAILURE
    except BaseException as error:  # noqa: BLE001 - a code of its own, whatever it is
        for line in _told_of(error):
            words.say(line)
        code = OUR_FAILURE
    words.finish(PATIENCE)
    if run is not None:
        run.close()  # what still runs is ended by its keeper
    leave(code)


def _told_of(error: BaseException) -> list[str]:
    try:
        import traceback
    except (OSError, ImportError):  # too few descriptors are often the error itself
        return [f"{type(error).__name__}: {error}"]
    return "".join(traceback.format_exception(error)).splitlines()


def _absolute(path: str | None) -> str | None:
    """Where we are now is where it is meant: who writes it works elsewhere."""
    try:
        return None if path is None else os.path.abspath(path)
    except OSError:  # the folder that we are in was removed
        return path


def _adopt_orphans() -> bool:
    """Whether whoever loses its parent below us is the command's, and falls to us."""
    if not hasattr(os, "waitid"):
        return False
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return kernel.adopt_orphans()
    return False  # who executed us left children, whose orphans are none of the command's


def _limits_in_force(settings: Settings) -> dict[str, float]:
    names = ("idle", "first", "first_json", "liveness", "tools", "turn", "exit_grace", "total")
    return {name: value for name in names if (value := getattr(settings, name)) is not None}
