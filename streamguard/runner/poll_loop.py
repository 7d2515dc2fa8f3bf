"""One command from its start to its end: the poll loop.

Theory of operation. The loop sleeps until something comes (a signal, output, room for output) or
something is due. What is due is one of: loading what decides (once the command runs: until then
bytes are passed on and remembered), a limit, the end of a grace, a look for who is left of the tree,
the end of a drain, a note for others. Nothing ticks while the command is silent.

    running ── limit or signal ──> stopping: asked, after `kill_after` killed, until none is left
       └────── it ended ─────────> draining: what is in its pipe is passed on, then it is over

A command's end does not wait for who holds its output: what it wrote is passed on whole, what
comes after that for a moment only.
"""

from __future__ import annotations

import os
import select
import time

from streamguard._base.variables import MARK
from streamguard.runner import aside, kernel
from streamguard.runner._signal import name_of, signal
from streamguard.runner.child import Ends, Start, environment_given, marked
from streamguard.runner.conduit import Output
from streamguard.runner.keeper import EndingPlan
from streamguard.runner.keeper_link import KeeperLink
from streamguard.runner.result import Fired, Result
from streamguard.runner.stdin import Input
from streamguard.runner.wakeups import STOPPING

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamguard._base.waking import Sleeps, WakeTimer
    from streamguard.runner.judge import Judge
    from streamguard.runner.run import CommandRun

_NEVER = float("inf")
# What decides is loaded when the command has run for so long and then paused; at the latest, when
# half of the shortest limit is gone.
_LOADING = 0.05
_PAUSE = 0.02
_LATEST = 1.0
# After so many bytes in which no line could be JSON, none will be.
_EARLY_BYTES = 1 << 16
# How a line begins that may be a JSON object, and what may stand before its first key.
_OBJECT = b"\n{"
_INDENT = 64
# What a dead command's pipe may still bring: silence that ends it, and its end in any case.
_SILENT = 0.5
_DRAINED = 1.0
# After a verdict or a signal a reader may take so long for the rest.
_READER = 5.0
_NOTE_EVERY = 1.0
# How often it is looked how far somebody has come who writes on our behalf.
_LOOK = 0.02
# What `poll` takes, in seconds: more is asked for again.
LONGEST_POLL = 1_000_000.0


class PollLoop:
    """One life of the command."""

    def __init__(self, run: CommandRun, command: Sequence[str]) -> None:
        self._run = run
        self._settings = settings = run.settings
        self._poll = select.poll()
        self._poll.register(run.wakeups.fd, select.POLLIN)
        if run.wakeups.stop_fd is not None:
            self._poll.register(run.wakeups.stop_fd, select.POLLIN)
        self._environment = environment_given()
        if run.evidence is not None:
            run.evidence.attach(self._poll)
        if settings.notify_systemd:
            from streamguard.runner.notify import without_ours

            self._environment = without_ours(self._environment)
        if not settings.group_only:
            self._environment = marked(self._environment)
        self._output: Output | None = None
        self._judge: Judge | None = None
        self._early: list[tuple[float, bytes | int]] = []
        self._early_bytes = 0
        self._dead_at = _NEVER
        self._ended_at = _NEVER  # when the command closed its output
        self._last_came = 0.0
        self._owed = 0
        self.outcome = Result()
        self._note_at = _NEVER
        self._noted = 0.0
        self._judged_from: int | None = None
        self._cut_at = _NEVER  # when a limit or a signal first asked for its end
        self._limit_at = _NEVER
        self._held_until = _NEVER  # by who records, should he write nothing
        self._sleeps: Sleeps | None = None
        self._wake_timer: WakeTimer | None = None
        self._start(command)

    # -- the loop ------------------------------------------------------------------------

    def go(self) -> Result:
        """Wait for its end, and see to it."""
        now = time.monotonic()
        self._give_signs(now)
        self._decide(now, is_pause=False)  # its start may have told us that it is dead
        while not self._is_over(now):
            ready = self._poll.poll(self._milliseconds(now))
            now = time.monotonic()
            for fd, events in ready:
                self._handle(fd, events, now)
            self._see_to_record(now)
            self._decide(now, is_pause=not ready)
            if now >= self._note_at:
                self._note(now)
            self._give_signs(now)
            now = time.monotonic()
        return self._leave()

    def _start(self, command: Sequence[str]) -> None:
        run, settings = self._run, self._settings
        self._transcript = run.transcript_from_now()
        source, theirs, terminal = run.open_output()
        stdin = run.stdin.for_child(is_resumed=run.is_resumed)
        keys = stdin if terminal is None or stdin is not None else run.stdin_for(terminal)
        self._input = None
        if settings.watches_output and not run.stdin.is_closed:
            self._input = Input(keys or 0)
        self._complaints = run.complaints_of_resumed(terminal)
        errors = run.stderr_for(terminal)
        if self._complaints is not None:
            errors = self._complaints.theirs
        ends = Ends(keys, theirs, errors, terminal)
        plan = EndingPlan(
            self._environment.get(MARK) if not settings.group_only else None,
            signal=settings.signal or signal.SIGTERM,
            grace=_NEVER if settings.kill_after is None else settings.kill_after,
            leads_session=not settings.foreground,
            holds=None if run.lock is None else run.lock.fd,
        )
        start = Start(
            command,
            self._environment,
            run.wakeups,
            ends,
            group=os.getpgrp() if settings.foreground else None,
            closed=run.closed,
        )
        try:
            self._link = KeeperLink(
                plan,
                start,
                self.outcome,
                self._poll,
                adopts_orphans=run.adopts_orphans,
                sent=run.has_sent,
                lost=run.complain,
            )
        finally:
            for fd in (theirs, stdin):
                if fd is not None:
                    os.close(fd)
            if self._complaints is not None:
                self._complaints.begun()
        self.began = self._last_came = time.monotonic()
        run.has_begun(self._link.tree)
        if run.evidence is not None:
            run.evidence.began(run.attempt, self.outcome.pid, self.began, resumes=run.is_resumed)
        if source is not None:
            self._output = Output(
                source,
                run.sink,
                self._poll,
                read_along=settings.watches_output,
                in_portions=run.evidence is not None,
            )
        run.stdin.attach(self._poll, None if terminal is None else source)
        self._load_at = self.began + min(_LOADING, settings.shortest_limit / 2)
        self._load_by = self.began + min(_LATEST, settings.shortest_limit / 2)
        if settings.group_only:
            self._load_at = self._load_by = _NEVER
        self._total_at = _NEVER if settings.only_warn else run.began + (settings.total or _NEVER)

    def _milliseconds(self, now: float) -> float | None:
        due = min(self._link.due(), self._note_at, self._run.signs_due, self._held_until)
        if self.outcome.is_dead:
            if self._is_settled:
                due = min(due, self._drained_at(), self._over_by())
                if self._is_owed and not self._is_cut:
                    due = min(due, self._total_at)
            if self._run.sink.is_behind:
                due = min(due, now + _LOOK)
        elif self._is_the_keepers:
            pass
        elif self._judge is not None:
            due = min(due, self._limit_at)
        else:
            load_at = max(self._load_at, now + _PAUSE)
            due = min(due, load_at, self._load_by, self._total_at)
        return None if due == _NEVER else min(max(due - now, 0.0), LONGEST_POLL) * 1e3

    def _handle(self, fd: int, events: int, now: float) -> None:
        output = self._output
        if output is not None and fd in (output.source, self._run.sink.fd):
            if came := output.handle(fd, events):
                self._came(came, now)
            if output.source is None and not output.has_pending:
                self._output_ended(output, now)
                output.finish()
                self._run.output_has_ended()
        elif self._link.handle(fd):
            self._reap()
        elif self._wake_timer is not None and fd == self._wake_timer.fileno():
            self._wake_timer.read()
            self._look_for_sleep(now)
        elif fd == self._run.wakeups.stop_fd:
            self._suspend()
        elif fd == self._run.wakeups.fd:
            for number in self._run.wakeups.read():
                self._signal(number, now)
        elif self._run.evidence is None or not self._run.evidence.handle(fd):
            self._run.stdin.handle(fd, events)

    def _see_to_record(self, now: float) -> None:
        """Whoever is slow to write down what comes slows the command, too: but not an end of it."""
        self._held_until = _NEVER
        evidence, output = self._run.evidence, self._output
        if evidence is None or output is None:
            return
        until = None if self._is_cut else evidence.holds(now)
        output.hold(is_held=until is not None)
        if until is not None:
            self._held_until = until

    def _came(self, came: bytes | int, now: float) -> None:
        self._last_came = now
        if self._note_at == _NEVER and self._judge is not None:
            self._note_at = max(now, self._noted + _NOTE_EVERY)
        if self._judge is None:
            self._remember(came, now)
        elif isinstance(came, bytes):
            self._judge.output(came, now)
            if self._output is not None and not self._judge.wants_lines:
                self._output.read_along = False
        else:
            self._judge.activity(now)

    def _output_ended(self, output: Output, now: float) -> None:
        if output.failure is not None or self._ended_at != _NEVER:  # our reader has gone
            return
        self._ended_at = now
        if self._judge is not None:
            self._judge.output_ended(now)

    def _remember(self, came: bytes | int, now: float) -> None:
        """What came before there was anybody to tell."""
        if isinstance(came, int) and self._early and isinstance(self._early[-1][1], int):
            self._early.pop()
        self._early.append((now, came))
        if isinstance(came, int) or self._output is None:
            return
        self._early_bytes += len(came)
        if self._early_bytes <= _EARLY_BYTES:
            return
        settings = self._settings
        is_read = settings.record is not None or settings.first_json is not None
        if is_read or settings.depends_on_lines or self._may_be_json():
            self._load_by = now
        else:
            self._output.read_along = False

    @property
    def _said_early(self) -> bool:
        """Whether a command that has ended at once may be an agent, which may have come to nothing (B3)."""
        return self._settings.watches_output and bool(self._early) and self._may_be_json()

    def _may_be_json(self) -> bool:
        if self._settings.speaks_json:
            return True
        text = b"\n" + b"".join(came for _, came in self._early if isinstance(came, bytes))
        at = text.find(_OBJECT)
        while at >= 0:
            # Of bytes that are no text at all a few are brackets.
            if text[at + 2 : at + 2 + _INDENT].lstrip()[:1] in (b'"', b"}", b""):
                return True
            at = text.find(_OBJECT, at + 1)
        return False

    def _decide(self, now: float, *, is_pause: bool) -> None:
        if self.outcome.is_dead and self._dead_at == _NEVER:
            self._dead_at = now
            if self._output is not None:  # what it has written until it died is passed on whole
                self._owed = self._output.passed + self._output.left()
        self._link.pursue(now)
        if self.outcome.is_dead and not self._is_cut:
            if self._settings.reap and self._link.began is None:
                self._link.ask_tree(signal.SIGTERM, now)
            elif now >= self._total_at and self._is_owed:
                self._total_is_up(now, "the output of {} was not taken in {:.3g} s")
        elif self._is_the_keepers:
            pass
        elif self._settings.group_only:
            if now >= self._total_at:
                self._total_is_up(now, "{} was not done in {:.3g} s")
        else:
            is_time = now >= self._load_by or (is_pause and now >= self._load_at)
            if self._judge is None and is_time:
                self._load()
            self._limits(now)

    # -- limits --------------------------------------------------------------------------

    def _load(self) -> None:
        """What decides is loaded while the command works."""
        from streamguard.runner import kept

        self._judge = self._judged()
        if self._judge.heeds_sleep:
            self._heed_sleep()
        if self._output is not None and not self._judge.wants_lines:
            self._output.read_along = False
        kept.put_away()
        kernel.give_back_memory()
        self._note(time.monotonic())

    def _heed_sleep(self) -> None:
        """From here on it is heard of when this machine has slept: it costs a descriptor, no wakeup."""
        from streamguard._base.waking import Sleeps, wake_timer

        self._sleeps = Sleeps()
        self._wake_timer = wake_timer()
        if self._wake_timer is not None:
            self._poll.register(self._wake_timer, select.POLLIN)

    def _look_for_sleep(self, now: float) -> None:
        if self._sleeps is not None and self._judge is not None and (slept := self._sleeps.news()):
            self._judge.woke(now, slept)

    def _judged(self) -> Judge:
        """A judge of all that came until now."""
        from streamguard.runner.judge import Judge

        run = self._run
        judge = Judge(
            self._settings,
            run.began,
            self.began,
            run.chat,
            run.evidence,
            complain=run.complain,
            deeds=run.deeds,
            resumes=run.is_resumed,
            transcript=self._transcript,
            pid=self.outcome.pid,
            alert=self._alert,
        )
        run.deeds = judge.deeds
        for now, came in self._early:
            if isinstance(came, bytes):
                judge.output(came, now)
            else:
                judge.activity(now)
            judge.waits(now)
        self._early.clear()
        if self._ended_at != _NEVER:
            judge.output_ended(self._ended_at)
        return judge

    def _limits(self, now: float) -> None:
        if self._judge is None:
            return
        if self._output is None or not self._output.keeps_waiting:
            self._judge.waits(now)
        else:
            self._judge.is_kept(now)
        self._limit_at = self._judge.deadline()
        if now < self._limit_at:
            self._judged_from = None
            return
        self._look_for_sleep(now)
        if self._output is not None and self._is_arriving(self._output):
            return
        if (fired := self._judge.verdict(now)) is not None:
            if self._settings.only_warn:
                text = f"would end (mode warn): {fired.reason}{self._of_its_input()}"
                self._run.complain(text)
                facts = {"limit": fired.limit, "window": fired.window, "elapsed": fired.elapsed}
                self._alert("WouldEnd", text, facts)
                self._judge.mute(fired)
            else:
                self._fire(fired, now)
        self._limit_at = self._judge.deadline()

    def _is_arriving(self, output: Output) -> bool:
        """Whether something that had arrived by the deadline was not read yet: it goes first (T3)."""
        if self._judged_from is None:
            self._judged_from = output.passed + output.left()
        return output.passed < self._judged_from and output.has_more()

    def _total_is_up(self, now: float, what: str) -> None:
        elapsed = now - self._run.began
        reason = what.format(repr(self._settings.command[0]), elapsed)
        self._fire(Fired("total", self._settings.total, elapsed, reason), now)

    def _fire(self, fired: Fired, now: float) -> None:
        fired.reason += self._of_its_input()
        self.outcome.fired = fired
        self._cut_at = min(self._cut_at, now)
        self._link.ask_tree(self._settings.signal, now)
        if self._run.is_at_last:
            self._run.ends(fired.reason, self._link.ends_by + _READER - now)
        self._note_soon(now)

    def _alert(self, kind: str, text: str, facts: Mapping[str, object]) -> None:
        """Something that ends nothing, and that somebody may want to be told of now."""
        token = None if self._judge is None else self._judge.token
        self._run.concern(kind, text, {**facts, "pid": self.outcome.pid, "session_id": token})

    def _of_its_input(self) -> str:
        """Of a command that has written nothing: what it may wait for. Asked before it is ended."""
        output, given = self._output, self._input
        if output is None or output.passed or given is None or self.outcome.is_dead:
            return ""
        from streamguard.runner.parked import told_of

        return told_of(self.outcome.pid, given)

    # -- the end -------------------------------------------------------------------------

    def _is_over(self, now: float) -> bool:
        if not self._is_settled:
            return False
        if not self.outcome.is_dead:  # it cannot be ended
            return True
        output = self._output
        if output is None or not (output.is_open or self._is_owed):
            return True
        return now >= min(self._drained_at(), self._over_by())

    @property
    def _is_settled(self) -> bool:
        """Whether nobody is left who is to be ended."""
        if self._link.began is not None:
            return self._link.has_ended or (self._settings.group_only and self.outcome.is_dead)
        return self.outcome.is_dead and (self._settings.group_only or not self._settings.reap)

    def _over_by(self) -> float:
        """When even a reader who takes nothing holds us up no longer."""
        if self._is_cut:
            return max(self._dead_at, self._cut_at) + _READER
        if self._is_owed:
            return _NEVER  # but for `total`
        return self._dead_at + _DRAINED

    @property
    def _is_cut(self) -> bool:
        """Whether a limit or a signal ends it. Else it ends by itself, and so what it left (--reap)."""
        return self._cut_at != _NEVER

    @property
    def _is_the_keepers(self) -> bool:
        """Whether its end is under way, and certain: a signal alone may be ignored for ever."""
        if self._link.began is None:
            return False
        return self._settings.kill_after is not None or self.outcome.fired is not None

    @property
    def _is_owed(self) -> bool:
        """Whether something of what the command wrote is still to be passed on."""
        output = self._output
        if output is None:
            return False
        return output.has_pending or self._run.sink.is_behind or output.passed < self._owed

    def _drained_at(self) -> float:
        """When enough was waited for what comes after the command's death."""
        if self._output is None or self._is_owed:
            return _NEVER
        since = max(self._last_came, self._dead_at)
        return min(since + _SILENT, self._dead_at + _DRAINED)

    def _leave(self) -> Result:
        outcome = self.outcome
        if self._judge is None and (self._run.wants_all or self._said_early):
            self._judge = self._judged()
        if self._link.began is not None:
            outcome.ending_took = time.monotonic() - self._link.began
        if self._is_cut and self._settings.elsewhere is not None and not outcome.elsewhere:
            outcome.is_unproven, outcome.out_of_reach = True, self._settings.elsewhere
        if self._judge is not None:
            self._judge.end(time.monotonic())
            if outcome.is_dead and outcome.fired is None and self._link.began is None:
                outcome.fired = self._judge.ended(time.monotonic())
            outcome.result, outcome.token = self._judge.outcome, self._judge.token
            outcome.has_lost_session = self._judge.has_lost_session
            outcome.failed = self._judge.failed
            outcome.messages = self._judge.watch.messages
            outcome.has_progressed = self._judge.watch.progressed
            outcome.done = self._judge.deeds.so_far(self._run.attempt).as_json()
        if self._output is not None:
            outcome.is_seen = True
            self._output.finish(None if self._is_cut else self._owed)
            outcome.passed, outcome.lost = self._output.passed, self._output.lost
            outcome.failure = self._output.failure
            self._output.let_go()
        if self._complaints is not None:
            outcome.complaints = self._complaints.text()
        self._run.stdin.detach()
        self._link.close()
        if self._wake_timer is not None:
            self._wake_timer.close()
        return outcome

    # -- signals -------------------------------------------------------------------------

    def _signal(self, number: int, now: float) -> None:
        if number == signal.SIGCHLD:
            self._reap()
        elif number == signal.SIGCONT:
            if self._judge is not None:
                self._judge.resumed(now)
        elif number == signal.SIGTSTP:
            self._suspend()
        elif number == signal.SIGWINCH:
            source = None if self._output is None else self._output.source
            if not self._run.copy_size(source) and not self._settings.foreground:
                self._link.deliver(number)
        elif number == signal.SIGALRM and self._settings.group_only:
            self._total_is_up(now, "{} was not done in {:.3g} s")
        else:
            self._pass_on(number, now)

    def _pass_on(self, number: int, now: float) -> None:
        outcome = self.outcome
        if number not in STOPPING:
            self._link.pass_on(number)
            return
        self._cut_at = min(self._cut_at, now)
        if self._is_impatience(number):
            outcome.is_interrupted = True
            self._link.hurry(now)
        else:
            if outcome.passed_on is None and outcome.fired is None:
                outcome.passed_on = number
            self._link.ask_command(number, now)
            self._run.ends(f"ending: {name_of(number)}", self._link.ends_by + _READER - now)
            self._note_soon(now)

    def _is_impatience(self, number: int) -> bool:
        """Whether it is Ctrl-C, and not the first thing that asks for an end."""
        is_second = self.outcome.passed_on == number or self.outcome.fired is not None
        return number == signal.SIGINT and is_second and not self._settings.group_only

    def _reap(self) -> None:
        """Take note of every child's end: our own processes', or the command's, if it fell to us."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            aside.running.discard(pid)
            if pid == self.outcome.pid:
                self._link.command_was_reaped(status)

    def _suspend(self) -> None:
        """Ctrl-Z stops the command with us. Its group is an orphan's, which TSTP does not stop."""
        self._link.deliver(signal.SIGSTOP)
        self._run.suspend()
        self._link.deliver(signal.SIGCONT)
        if self._judge is not None:
            self._judge.resumed(time.monotonic())

    # -- for others ----------------------------------------------------------------------

    def _give_signs(self, now: float) -> None:
        """Tell who waits for signs of life, unless there should have been an end by now."""
        if self._run.pulse is not None and self._link.runs:
            self._run.pulse.runs(now)
        self._run.give_signs(now, is_overdue=now >= self._link.ends_by + _READER)

    def _note_soon(self, now: float) -> None:
        if self._judge is not None:
            self._note_at = min(self._note_at, now)

    def _note(self, now: float) -> None:
        self._note_at = _NEVER
        self._noted = now
        if self._judge is not None:
            self._run.publish(
                self._judge, self.outcome, is_stopping=self._link.began is not None, now=now
            )
