"""What the command's output means for the limits: bytes and lines in, deadline and verdict out.

The same `watch` as the library's decides. Loaded once the command runs, because this is most of
what `streamguard run` imports. Lines are read only as long as they may say something: the output
of a command that writes no JSON a backend is known by is not looked at any more after a while, unless
a limit was asked for that depends on lines.

Of a command that says nothing of its tools or results, limits on these are measured in what it
writes. Knows watch, reading and backends; no descriptors.
"""

from __future__ import annotations

import math
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Literal

from streamguard._base.defaults import LONGEST_LINE
from streamguard._base.done import Deeds
from streamguard._base.quoting import quoted
from streamguard._lines.splitter import Splitter
from streamguard._watch.watch import Due, Found, Half, Limits, Stalled, Watch
from streamguard.backends.stream_reading import PROGRESS, Reading
from streamguard.retry.failure_said import FailureSaid
from streamguard.runner.json_lines import object_in
from streamguard.runner.result import Fired
from streamguard.signals import SessionOpened, TurnEnded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from streamguard._base.vitals import Vitals
    from streamguard.errors import Limit
    from streamguard.process.look import Look
    from streamguard.runner.options import Settings
    from streamguard.runner.record import Evidence
    from streamguard.runner.transcript import Transcript
    from streamguard.signals import Failed, Outcome, Signal

# A banner may come before the first JSON line; after this much of anything else none will.
_SNIFFED: Final = 64 * 1024


class Judge:
    """The limits of one attempt that began at `began`, of a run that began at `run_began`.

    `deeds`: what earlier attempts have done. `pid`: the command's, of which vitals are taken. Where a limit's clock is not that of the messages, it is
    *measured* by a watch of its own:

    | limit | its clock |
    |---|---|
    | `first_json` | what `first` is, for a narrower idea of a message |
    | `tools` | silence of a command that says nothing of its tools, where `idle` is off |
    | `exit_grace` | from the end of its output, of a command that has said no result |
    """

    def __init__(
        self,
        settings: Settings,
        run_began: float,
        began: float,
        say: Callable[[str], None],
        evidence: Evidence | None = None,
        *,
        complain: Callable[[str], None] | None = None,
        deeds: Deeds | None = None,
        resumes: bool = False,
        transcript: Transcript | None = None,
        pid: int = 0,
        alert: Callable[[str, str, Mapping[str, object]], None] | None = None,
    ) -> None:
        self._evidence = evidence
        self._pid = pid
        self._began = began
        self._vital_signs: Look | None = None
        self._transcript = transcript
        self._name = settings.command[0].rpartition("/")[2]
        self._say = say
        self._complain = complain or say  # what everybody should know
        self._alert = alert
        self.watch = Watch(
            Limits(
                idle=settings.idle,
                first=settings.first,
                liveness=settings.liveness,
                gate=True,
                tools=settings.tools,
                tools_by_name=settings.tools_by_name or {},
                turn=settings.turn,
                exit_grace=settings.exit_grace,
                total=None if settings.total == math.inf else settings.total,
                after_sleep=settings.after_sleep,
                quiet=settings.quiet,
                quiet_by_name=settings.quiet_by_name or {},
                repeats=settings.repeats,
                ceilings=settings.ceilings,
                end_on=settings.end_on,
                half_time=settings.verbose or settings.on_warn is not None or evidence is not None,
            )
        )
        self.deeds = self.watch.deeds = deeds or _deeds_here()
        self.deeds.begin_process(is_resumed=resumes)
        self.deeds.begin_attempt()
        self.watch.begin(run_began)
        self.watch.asked(began)
        self._struck = self.watch  # whose limit was reached last
        self._watches = [self.watch]
        self._measured: dict[Limit, Watch] = {}
        if settings.first_json is not None:
            self._measure("first_json", Limits(first=settings.first_json, half_time=False), began)
        if settings.tools_are_silence:  # until a backend's own line comes
            self._measure("tools", Limits(idle=settings.tools, half_time=False), began)
        self._exit_grace = settings.exit_grace if settings.wants_exit_grace else None
        self._reading = Reading(None)
        self._wants_after_sleep = settings.wants_after_sleep
        self._lines = Splitter(LONGEST_LINE)
        self._is_certain = settings.speaks_json
        self._depends_on_lines = settings.depends_on_lines
        self._is_text = False  # and will be: only its recorder wants to see it
        self._only_warns = settings.only_warn
        self._sniffed = 0
        self.wants_lines = self._sees_output = settings.watches_output
        self.outcome: Outcome | Literal["empty", "abandoned"] | None = None
        self.token: str | None = None  # the latest, also of a session that is over
        self.has_lost_session = False
        self._failure = FailureSaid()

    def output(self, chunk: bytes, now: float) -> None:
        """Bytes came."""
        if not self.wants_lines or self._is_text:
            self.activity(now)
            if self._evidence is not None:
                self._evidence.text(chunk, now)
            return
        for watch in self._measured.values():
            watch.answered(now)
        if "tools" in self._measured:
            self._measured["tools"].touch(now)
        self._lines.feed(chunk)
        ready = self._lines.ready
        if not ready:
            self.watch.answered(now)
            self._part_of_a_line(now)
        while ready:
            self._line(ready.popleft(), now)
        if not self._is_certain:
            self._sniff(len(chunk), now)
        if self._evidence is not None:
            self._evidence.flush()

    def end(self, now: float) -> None:
        """No more output comes: what has no newline at its end is a line, too."""
        self._lines.end()
        while self._lines.ready:
            self._line(self._lines.ready.popleft(), now)

    def output_ended(self, now: float) -> None:
        """The command has closed its output: if it has said no result, its work ends here."""
        self.end(now)
        is_measured = "exit_grace" in self._measured
        if self._exit_grace is not None and not is_measured and self.watch.turn_open:
            windows = Limits(exit_grace=self._exit_grace, half_time=False)
            self._measure("exit_grace", windows, now).see((TurnEnded("incomplete"),), now)

    def activity(self, now: float) -> None:
        """Bytes came that nobody read."""
        self.watch.answered(now)
        self.watch.see(PROGRESS, now)
        if "tools" in self._measured:
            self._measured["tools"].touch(now)

    def waits(self, now: float) -> None:
        """It is the command that keeps us waiting."""
        for watch in self._watches:
            if watch.waiting_since is not None:
                continue
            if watch.steady and watch.mark == now:
                watch.waiting_since = now  # all that `asked` would do at that instant
            else:
                watch.asked(now)

    def is_kept(self, now: float) -> None:
        """It is our own reader that keeps the command waiting: no silence of the command's."""
        for watch in self._watches:
            if watch.waiting_since is not None:
                watch.answered(now)

    def resumed(self, now: float) -> None:
        """We, and with us the command, were stopped and go on: that was no silence."""
        self.watch.touch(now)
        if "first_json" in self._measured:
            self._measured["first_json"].mark_prompt(now)
        if "tools" in self._measured:
            self._measured["tools"].touch(now)

    @property
    def backend(self) -> str | None:
        """Whose lines these are; None as long as nobody knows."""
        found = self._reading.backend
        return None if found is None else found.name

    @property
    def heeds_sleep(self) -> bool:
        """Whether it matters that this machine has slept."""
        return self.watch.limits.heeds_sleep

    def woke(self, now: float, slept: float) -> None:
        """This machine had slept (B5). Of a command that nobody understands it may be at work itself."""
        is_understood = self._reading.backend is not None or self._wants_after_sleep
        is_lost = is_understood and self.watch.woke(now)
        window = self.watch.limits.after_sleep if is_lost else None
        left = "what is at work goes on" if window is None else f"it has {window:g} s to go on"
        self._say(f"this machine had slept for {slept:.3g} s: {left}")
        self._tell("MachineWoke", now, slept=slept, window=window)

    def deadline(self) -> float:
        """When `verdict` has something to say; inf if never."""
        nearest = self.watch.total_deadline()
        for watch in self._watches:
            nearest = min(nearest, watch.deadline())
        return nearest

    def verdict(self, now: float) -> Fired | None:
        """What has been reached. It may move a limit, or say that half of one is gone."""
        if (total := self.watch.overdue_total(now)) is not None:
            return self._fired(total, self.watch, total.limit, now)
        self._look(now)
        for measured, watch in ((None, self.watch), *self._measured.items()):
            match watch.judge(now):
                case Due() as due:
                    return self._fired(due, watch, measured or due.limit, now)
                case Half(limit, window):
                    vitals = self._vitals(now)
                    how = "" if vitals is None else f" [{vitals}]"
                    half = f"{window / 2:g} s, half of its limit {limit}={window:g}"
                    text = f"'{quoted(self._name)}' has been silent for {half}{how}"
                    self._say(text)
                    told = None if vitals is None else vitals.as_json()
                    facts = {"limit": limit, "window": window}
                    self._tell("HalfTime", now, **facts, vitals=told)
                    self._tell_others("HalfTime", text, {**facts, "elapsed": window / 2})
                case Stalled(limit, lateness, extension):
                    facts = {"limit": limit, "lateness": lateness, "extended_by": extension}
                    self._tell("LoopStalled", now, **facts)
                    self._say(
                        f"{limit} was noticed {lateness:.3g} s late: this machine stood still, or "
                        f"we were stopped; waiting {extension:g} s more"
                    )
                case Found() as found:
                    self._concern(found, now)
                case None:
                    pass
        return None

    def _concern(self, found: Found, now: float) -> None:
        """Say what a person may want to know, while nothing is ended for it."""
        from streamguard import events

        kind, facts = found.told()
        event = getattr(events, kind)(activity=None, at=now, **facts)
        text = event.text()
        self._complain(f"warning: {quoted(text)}")
        vitals = None if self._evidence is None else self._vitals(now)
        self._tell(kind, now, vitals=None if vitals is None else vitals.as_json(), **facts)
        self._tell_others(kind, text, facts)

    def _tell_others(self, kind: str, text: str, facts: Mapping[str, object]) -> None:
        """Tell who is not reading the log: an event by its name, and what of it is a number."""
        if self._alert is not None:
            self._alert(kind, text, facts)

    def ended(self, now: float) -> Fired | None:
        """The command has ended by itself: what it did last, and whether that is a reason to complain (B3)."""
        watch = self.watch
        if (strike := watch.strike) is not None:
            return self._fired(strike, watch, strike.limit, now)
        if not watch.completed or not watch.ended_well:
            return None
        if left := watch.abandoned:
            self.outcome = "abandoned"
            if "abandoned" in watch.limits.end_on:
                return self._fired(Due("abandoned", now, 0.0, now), watch, "abandoned", now)
            self._concern(Found("abandoned", names=left), now)
        elif watch.ended_empty:
            self.outcome = "empty"
        return None

    def mute(self, fired: Fired) -> None:
        """Only warn: once for each silence."""
        if fired.due is not None:
            self._struck.mute(fired.due)

    def _measure(self, limit: Limit, windows: Limits, began: float) -> Watch:
        watch = self._measured[limit] = Watch(windows)
        watch.begin(began)
        watch.asked(began)
        self._watches.append(watch)
        return watch

    def _is_told(self, limit: Limit) -> None:
        """What that limit waits for has come: its clock is needed no longer."""
        if limit in self._measured:
            del self._measured[limit]
            self._watches = [self.watch, *self._measured.values()]

    def _look(self, now: float) -> None:
        """Look at the transcript, if what is about to be judged is a silence."""
        if self._transcript is None or not any(_is_silent(each, now) for each in self._watches):
            return
        for_json = self._measured.get("first_json")
        seen = self._transcript.look(None if for_json is None else for_json.deadline())
        if seen.has_json:
            self._is_told("first_json")
        if seen.last is None:
            return
        for watch in (self.watch, self._measured.get("tools")):
            if watch is None:
                continue
            if watch.last_progress is None or seen.last > watch.last_progress:
                watch.touch(min(max(seen.last, watch.mark), now))

    def _line(self, line: bytes | None, now: float) -> None:
        watch = self.watch
        signals: tuple[Signal, ...] = PROGRESS
        message = None if line is None else object_in(line)
        if message is not None:
            self._is_told("first_json")
            signals = self._reading.signals(message, self)
            if self._reading.backend is not None:
                self._is_certain = True
                self._is_told("tools")  # it says which tools it runs
        if watch.steady and signals is PROGRESS:  # then no more of it counts, see `Watch.steady`
            watch.upto += 1
            watch.mark, watch.waiting_since = now, None
            if self._failure.failed is not None:
                self._note(signals)
        else:
            watch.answered(now)
            watch.see(signals, now, time.time())
            self._note(signals)
            if watch.found:
                found, watch.found = watch.found, ()
                for each in found:
                    self._concern(each, now)
        if self._evidence is not None:
            said = None if signals is PROGRESS else signals
            self._evidence.message(line or b"", said, now, is_object=message is not None)

    @property
    def failed(self) -> Failed | None:
        """What its lines say of a failure that it did not get over."""
        return self._failure.failed

    def _note(self, signals: Iterable[Signal]) -> None:
        for signal in signals:
            self._failure.take(signal)
            match signal:
                case TurnEnded(outcome):
                    self.outcome = outcome
                case SessionOpened(token, resumable):
                    self.token = token if resumable else None
                    self.has_lost_session = not resumable
                case _:
                    pass

    def _part_of_a_line(self, now: float) -> None:
        """Of a backend that is known only whole lines count; else it may be no line at all."""
        if self._reading.backend is not None:
            return
        if not bytes(self._lines._partial[:64]).lstrip().startswith(b"{"):
            self.watch.see(PROGRESS, now)
        elif self.watch.progressed or self.watch.limits.first is None:
            self.watch.touch(now)  # but the beginning of a JSON line is no first message

    def _sniff(self, count: int, now: float) -> None:
        self._sniffed += count
        if self._sniffed <= _SNIFFED or self._is_certain:
            return
        if self._depends_on_lines or "first_json" in self._measured:
            return
        if self._evidence is None:
            self.wants_lines = False
        else:
            self._is_text = True
            self._evidence.text(bytes(self._lines._partial), now)
        self._lines = Splitter(0)

    def _tell(self, kind: str, now: float, **facts: object) -> None:
        if self._evidence is not None:
            self._evidence.event(kind, now, **facts)
            self._evidence.flush()

    def _vitals(self, now: float) -> Vitals | None:
        """How the command and its tree are (B6)."""
        if not self._pid:
            return None
        if self._vital_signs is None:
            from streamguard.process.look import Look

            self._vital_signs = Look(self._pid)
            self._vital_signs.began(self._began)
        return self._vital_signs.take(now)

    def _fired(self, due: Due, watch: Watch, limit: Limit, now: float) -> Fired:
        self._struck = watch
        named = due._replace(limit=limit)
        late = watch.lateness(due, now)
        known = {"name": self._name, "vitals": self._vitals(now)}
        verdict = self.watch.verdict(named, now, late, **known)
        if not self._only_warns:
            self.end(now)  # what it hangs on may be a question without a newline
        if self._evidence is not None:
            backend = self._reading.backend
            self._evidence.verdict(
                verdict,
                enforced=not self._only_warns,
                backend=None if backend is None else backend.name,
            )
        reason = verdict.reason
        if not self._sees_output:  # so nothing can be said of it
            reason = reason.rpartition("; ")[0]
        return Fired(
            limit=limit,
            window=due.window,
            elapsed=verdict.elapsed,
            reason=reason.replace("stream ", "", 1),
            due=due,
            verdict=verdict,
        )

    # What a reading notices of its reader. A person at a command line can do nothing about it.
    def unknown_message(self, kind: type) -> None:
        """A dict of no backend that is known."""

    def reader_failed(self, kind: type, error: BaseException) -> None:
        """A reader raised; the line counts as progress."""
        del kind  # always a dict
        self._say(f"a line could not be understood: {type(error).__name__}")


def _deeds_here() -> Deeds:
    """Nothing was done yet. A command that does not say where it works does so in our folder."""
    deeds = Deeds()
    with suppress(OSError):  # it may be gone
        deeds.work_dir = os.getcwd()
    return deeds


def _is_silent(watch: Watch, now: float) -> bool:
    """Whether a silence is about to be judged, or half of one."""
    due = watch.due(now)
    return now >= watch.deadline() if due is None else due.limit in ("idle", "first")
