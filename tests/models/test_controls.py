"""Controls: with an old fault put back, the explorer finds it.

Each control is a patch that takes one cure away, and what the explorer then complains of. It begins
at the schedule that finds it, to save time; in CI it begins at the first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from streamguard._guard import attempt, teardown
from streamguard._guard.attempt import Attempt
from streamguard._loops import Cut, _asyncio, timekeeper
from streamguard._watch import watch
from streamguard.backends import stream_reading as reading
from streamguard.breaker import circuit
from streamguard.breaker.records import Records
from streamguard.fleet import lease
from streamguard.fleet.holding import Holding
from streamguard.retry import decision
from streamguard.retry.policy import RetryPolicy
from streamguard.sessions import hosting, ledger, replay, turns
from streamguard.sessions import session as sessions
from streamguard.sessions.owner import Owner
from streamguard.testing import clocks
from tests.fleet.memory_store import MemoryCheckpoints
from tests.models import explorer
from tests.sizes import size

FORMS = explorer.subjects()


@dataclass(frozen=True)
class Control:
    """One fault."""

    name: str
    put_back: Callable[[pytest.MonkeyPatch], None]
    form: str
    loop: str
    kinds: frozenset[str]
    found_at: int
    among: Callable[[explorer.Schedule], bool] = lambda _: True


def alarm_covers_nobody(patch: pytest.MonkeyPatch) -> None:
    """An alarm that rang while nobody waited was taken for one that covers the next wait."""
    judges = Attempt._judges

    def old(self: Any, now: float) -> bool:
        steady, self.watch.steady = self.watch.steady, False
        is_due = judges(self, now)
        if not is_due and self.entry is not None:
            self.watch.steady = steady
        return is_due

    patch.setattr(Attempt, "_judges", old)


def dropped_ones_are_called(patch: pytest.MonkeyPatch) -> None:
    """A sleeper that had been dropped was still called, and a cut asked not whether anybody waits."""

    def cut(self: Any, *, force: bool = False) -> Cut:
        self._waits = True
        return as_it_is(self, force=force)

    as_it_is = _asyncio.AsyncioParking.cut
    patch.setattr(_asyncio.AsyncioParking, "cut", cut)

    def old(self: Any, curious: Any) -> None:
        for sleeper, _ in curious:
            now = self._clock()
            try:
                sleeper.on_confirmed(now)
            except Exception as error:
                self._failed(sleeper, error, now)

    patch.setattr(timekeeper.Timekeeper, "_confirm", old)


def flushed_cancels_are_foreign(patch: pytest.MonkeyPatch) -> None:
    """The cancel that a source lets go on after a message was taken for the caller's."""
    patch.setattr(Attempt, "is_our_cut", lambda *_: False)


def deaf_pulls_are_cut_once(patch: pytest.MonkeyPatch) -> None:
    """What swallowed our cancel was never cancelled again."""
    steps = {**attempt._STEPS}
    for do in (attempt.Do.CANCEL_AGAIN, attempt.Do.AWAIT_END):
        steps[do] = lambda _: None
    patch.setattr(attempt, "_STEPS", steps)


def deaf_closes_are_cut_once(patch: pytest.MonkeyPatch) -> None:
    """So it was with a close that is past its bound."""

    def old(self: Any, now: float) -> None:
        self._looks += 1
        cut = self._parking.cut()
        self.was_cut = self.was_cut or cut is Cut.SENT
        if cut is not Cut.SENT:
            self._loop.timekeeper.put(self, now + 0.05)

    patch.setattr(teardown.Bounded, "on_confirmed", old)


def ceilings_wait_for_the_next(patch: pytest.MonkeyPatch) -> None:
    """What a message has shown was looked at when the next one came."""
    tell = Attempt._tell_of_findings

    def old(self: Any, now: float) -> None:
        struck, self.watch.struck = self.watch.struck, None
        if struck is not None and struck.deadline < now:
            self.watch.struck = struck
        tell(self, now)
        self.watch.struck = struck

    patch.setattr(Attempt, "_tell_of_findings", old)


def turns_start_late(patch: pytest.MonkeyPatch) -> None:
    """Time before a turn began was taken for a stall."""
    decidable = watch.Watch._decidable

    def old(self: Any, due: Any) -> float:
        began, self._turn_started = self._turn_started, None
        try:
            return decidable(self, due)
        finally:
            self._turn_started = began

    patch.setattr(watch.Watch, "_decidable", old)


def stalls_move_all_limits(patch: pytest.MonkeyPatch) -> None:
    """A stall of one limit put off the others, too."""
    decidable = watch.Watch._decidable

    def old(self: Any, due: Any) -> float:
        when = decidable(self, due)
        if due.limit == "total":
            return when
        of_work = (work.noticed for work in self.work.values() if work.noticed)
        return max(when, *(each.until for each in (*self._noticed.values(), *of_work)), -math.inf)

    patch.setattr(watch.Watch, "_decidable", old)


def waits_begin_again(patch: pytest.MonkeyPatch) -> None:
    """A wait that was announced again was a new one."""
    announce = watch.Watch._announce

    def old(self: Any, signal: Any, now: float, wall: float) -> None:
        if watch.Announced(signal.id) not in self._holds:
            self._waits = watch._NO_WAITS
        self._stir(now)
        announce(self, signal, now, wall)

    patch.setattr(watch.Watch, "_announce", old)


def nobody_lets_go(patch: pytest.MonkeyPatch) -> None:
    """A bare stream that was cancelled or left stayed live until it was collected."""
    patch.setattr(Attempt, "let_go", lambda *_: None)


def ends_are_one(patch: pytest.MonkeyPatch) -> None:
    """All turns raised the same end, which kept the frames of all who had got it."""
    one = StopAsyncIteration()
    patch.setattr(turns._Over, "error", property(lambda self: self._error or one))


def generator_exits_end_the_owner(patch: pytest.MonkeyPatch) -> None:
    """A GeneratorExit of the stream's was taken for the end of the owner's own task."""
    patch.setattr(Owner, "_is_collected", lambda _, error: isinstance(error, GeneratorExit))


def stores_may_raise(patch: pytest.MonkeyPatch) -> None:
    """What a breaker's store raised came out of whoever reported."""
    patch.setattr(Records, "report", lambda self, change, then: then(self.update(change)))


def stores_are_called_at_once(patch: pytest.MonkeyPatch) -> None:
    """A store that blocks was called where the report was made."""
    patch.setattr(Records, "blocks", property(lambda _: False))


def points_forget_the_end(patch: pytest.MonkeyPatch) -> None:
    """A point whose turn had ended asked its prompt again."""
    patch.setattr(turns.Turn, "is_completed", property(lambda _: False))


def points_begin_anew(patch: pytest.MonkeyPatch) -> None:
    """A point with tools run, and no token, began afresh in another process."""
    patch.setattr(turns.Turn, "_refuse_what_is_unsafe", lambda _: None)


def work_is_begun_again(patch: pytest.MonkeyPatch) -> None:
    """A session that its backend did not know was begun afresh though tools had run in it."""
    patch.setattr(decision, "_work_would_be_lost", lambda *_: None)


def limits_are_not_waited_out(patch: pytest.MonkeyPatch) -> None:
    """A usage limit was waited for as a rate limit is."""
    patch.setattr(RetryPolicy, "limit_wait", lambda *_: 60.0)


def ended_turns_are_asked_again(patch: pytest.MonkeyPatch) -> None:
    """A limit that came after a turn's good end began that turn once more."""
    never = property(lambda _: 0, lambda *_: None)
    patch.setattr(ledger.Ledger, "turns_ended_well", never, raising=False)


def outages_escalate(patch: pytest.MonkeyPatch) -> None:
    """Each failure of a probe counted, and each pause was as long as the first."""

    def failed(self: Any, before: Any, now: float) -> Any:
        after = as_it_is(self, before, now)
        limit = self.escalate_after
        return after if limit is None or after.failures < limit else escalated(after)

    def escalated(after: Any) -> Any:
        return circuit._moved(after, "escalated", "failures in a row")

    as_it_is = circuit.Rules._failed
    patch.setattr(circuit.Rules, "_failed", failed)
    patch.setattr(circuit.Rules, "pause_after", lambda self, _: self.pause)


def repeated_keys_are_replays(patch: pytest.MonkeyPatch) -> None:
    """A message whose key an earlier one had was taken for that one."""
    patch.setattr(replay.Replay, "_was_delivered", lambda self, key: key in self._delivered)


def hashes_are_compared(patch: pytest.MonkeyPatch) -> None:
    """Keys were compared by their hashes, and those of -1.0 and -2.0 are the same."""
    as_it_is = replay.Replay._was_delivered
    patch.setattr(replay.Replay, "_was_delivered", lambda self, key: as_it_is(self, hash(key)))


def readers_may_raise(patch: pytest.MonkeyPatch) -> None:
    """What a reader raised came into the stream, unless it was an Exception."""

    def signals(self: Any, message: object, reporter: Any) -> Any:
        def reader_failed(kind: type, error: BaseException) -> None:
            if not isinstance(error, Exception):
                raise error
            reporter.reader_failed(kind, error)

        told = SimpleNamespace(
            unknown_message=reporter.unknown_message, reader_failed=reader_failed
        )
        return as_it_is(self, message, told)

    as_it_is = reading.Reading.signals
    patch.setattr(reading.Reading, "signals", signals)


def struck_blocks_forget_why(patch: pytest.MonkeyPatch) -> None:
    """An error that a source made of its block's cancel ended the attempt, and hid the verdict."""
    patch.setattr(Attempt, "is_struck", False)


def nobody_hears_of_sleep(patch: pytest.MonkeyPatch) -> None:
    """What was waited for when the machine woke had all of its window (B5)."""
    patch.setattr(watch.Watch, "woke", lambda _self, _now: False)


def what_was_put_off_stays(patch: pytest.MonkeyPatch) -> None:
    """An entry that was put forward kept its alarm."""
    patch.setattr(timekeeper.Timekeeper, "_skip_forgotten", lambda _: None)


def what_came_is_delivered(patch: pytest.MonkeyPatch) -> None:
    """A message that came before its lease was over was handed over after."""
    patch.setattr(hosting.Hosting, "is_lost", False)


def unseen_ends_are_certain(patch: pytest.MonkeyPatch) -> None:
    """A backend whose end nobody had waited for was taken for gone."""

    async def leave(self: Any, exc: BaseException | None) -> bool:
        custody = self._hosting.custody
        end = custody.end
        custody.end = lambda **_: end(is_gone=self._conversation.owner.confirmed)
        return bool(await as_it_is(self, exc))

    as_it_is = sessions._Block.leave
    patch.setattr(sessions._Block, "leave", leave)


def whoever_asks_has_a_message(patch: pytest.MonkeyPatch) -> None:
    """A consumer that asked another prompt was taken to be at work on the turn before."""

    def come_back(self: Any, custody: Any) -> None:
        self._is_at_hand = False
        custody.asked()

    patch.setattr(turns.Turn, "_come_back", come_back)


def leases_are_good_until_told(patch: pytest.MonkeyPatch) -> None:
    """A worker that heard nothing went on until the store told it."""
    patch.setattr(lease, "FENCE", 1e6)
    patch.setattr(Holding, "_mind", lambda _: None)


def messages_at_hand_are_done(patch: pytest.MonkeyPatch) -> None:
    """A checkpoint counted the message that its consumer was at."""
    patch.setattr(turns.Conversation, "settled_point", turns.Conversation.latest_point)


def claims_do_not_wait_for_each_other(patch: pytest.MonkeyPatch) -> None:
    """A worker that had claimed what it had lost began it beside the one that was ending."""
    as_it_is = Holding.run

    async def run(self: Any, handler: Any) -> None:
        self.earlier = []
        await as_it_is(self, handler)

    patch.setattr(Holding, "run", run)


def claims_not_heard_of_count(patch: pytest.MonkeyPatch) -> None:
    """A worker whose network lost all answers made poison of what it claimed."""
    claim = MemoryCheckpoints.claim

    def old(self: Any, owner: str, ttl: float, limit: int) -> Any:
        for entry in self.entries.values():
            entry.is_heard_of = True
        return claim(self, owner, ttl, limit)

    patch.setattr(MemoryCheckpoints, "claim", old)


CONTROLS = [
    Control("taken late", what_came_is_delivered, "lease", "asyncio", frozenset({"lease"}), 6),
    Control("not certain", unseen_ends_are_certain, "lease", "uvloop", frozenset({"owners"}), 249),
    Control("settled", whoever_asks_has_a_message, "lease", "trio", frozenset({"owners"}), 1),
    Control("B4", ceilings_wait_for_the_next, "block", "asyncio", frozenset({"outcome"}), 139),
    Control("1", alarm_covers_nobody, "block", "asyncio", frozenset({"outcome", "when"}), 741),
    Control("2", dropped_ones_are_called, "bare", "asyncio", frozenset({"afterwards"}), 48),
    Control(
        "3",
        dropped_ones_are_called,
        "block",
        "asyncio",
        frozenset({"afterwards"}),
        48,
        lambda schedule: schedule["on_close"] == ["none"],
    ),
    Control("4", dropped_ones_are_called, "bare", "asyncio", frozenset({"cancelling"}), 27),
    Control("5", flushed_cancels_are_foreign, "bare", "trio", frozenset({"invented"}), 948),
    Control("5", flushed_cancels_are_foreign, "block", "trio", frozenset({"missed"}), 948),
    Control("7", deaf_pulls_are_cut_once, "block", "trio", frozenset({"late"}), 720),
    Control("7 (close)", deaf_closes_are_cut_once, "bare", "uvloop", frozenset({"late"}), 234),
    Control("12", turns_start_late, "block", "asyncio", frozenset({"when", "outcome"}), 640),
    Control("13", stalls_move_all_limits, "bare", "asyncio", frozenset({"outcome", "when"}), 184),
    Control("15", waits_begin_again, "block", "asyncio", frozenset({"outcome", "late"}), 478),
    Control("18", nobody_lets_go, "bare", "trio", frozenset({"status"}), 0),
    Control("6", ends_are_one, "session", "asyncio", frozenset({"frames"}), 5),
    Control("8", generator_exits_end_the_owner, "session", "asyncio", frozenset({"hung"}), 97),
    Control("9", stores_may_raise, "store", "uvloop", frozenset({"as_predicted"}), 1),
    Control("9 (blocks)", stores_are_called_at_once, "store", "asyncio", frozenset({"stalls"}), 7),
    Control("14", readers_may_raise, "bare", "asyncio", frozenset({"outcome"}), 49),
    Control("16", points_forget_the_end, "session", "asyncio", frozenset({"opens"}), 539),
    Control("16 (unsafe)", points_begin_anew, "session", "trio", frozenset({"opens"}), 4),
    Control("17", outages_escalate, "outage", "asyncio", frozenset({"outage"}), 0),
    Control("19", repeated_keys_are_replays, "session", "uvloop", frozenset({"deliveries"}), 33),
    Control(
        "19 (hashes)", hashes_are_compared, "session", "asyncio", frozenset({"as_predicted"}), 68
    ),
    Control("struck", struck_blocks_forget_why, "block", "asyncio", frozenset({"disguised"}), 359),
    Control("fence", leases_are_good_until_told, "fleet", "trio", frozenset({"fence"}), 4),
    Control("at hand", messages_at_hand_are_done, "fleet", "asyncio", frozenset({"gap"}), 3),
    Control(
        "two of one key",
        claims_do_not_wait_for_each_other,
        "fleet",
        "asyncio",
        frozenset({"two owners"}),
        176,
    ),
    Control("unheard", claims_not_heard_of_count, "fleet", "trio", frozenset({"end"}), 4),
    Control("begun again", work_is_begun_again, "word", "asyncio", frozenset({"opens"}), 420),
    Control("not waited", limits_are_not_waited_out, "word", "trio", frozenset({"waits"}), 38),
    Control("ended", ended_turns_are_asked_again, "word", "asyncio", frozenset({"finished"}), 912),
    Control("asleep", nobody_hears_of_sleep, "bare", "trio", frozenset({"outcome", "when"}), 6),
    Control("put off", what_was_put_off_stays, "block", "asyncio", frozenset({"timers"}), 34),
]


def found(control: Control, first: int, schedules: int) -> int | None:
    """The first schedule that complains of the fault."""
    subject = FORMS[control.form]
    for start in range(first, first + schedules, explorer.BATCH):
        names = [f"1:{i}" for i in range(start, min(start + explorer.BATCH, first + schedules))]
        drawn = [(name, subject.draw(explorer.seeded(name))) for name in names]
        drawn = [(name, schedule) for name, schedule in drawn if control.among(schedule)]
        for name, _, complaints in explorer.try_all(subject, control.loop, drawn):
            if control.kinds & {complaint.kind for complaint in complaints}:
                return int(name.partition(":")[2])
    return None


@pytest.mark.parametrize("control", CONTROLS, ids=lambda c: f"{c.name}-{c.form}-{c.loop}")
def test_control(control, monkeypatch):
    monkeypatch.setattr(clocks, "UNANNOUNCED_THREADS", 0.01)
    control.put_back(monkeypatch)
    first = size(dev=control.found_at, ci=0)
    assert found(control, first, size(dev=1, ci=20_000)) is not None
