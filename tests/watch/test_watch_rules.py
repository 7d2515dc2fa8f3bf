"""The rules of time, one by one, as far as the watch alone can show them."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest

from streamguard._watch.watch import Due, Half, Limits, Stalled, Watch
from streamguard.signals import (
    Failed,
    Liveness,
    Progress,
    SessionOpened,
    TurnEnded,
    Usage,
    WaitEnded,
    Waiting,
    WorkFinished,
    WorkStarted,
)

PROGRESS = [Progress()]
PING = [Liveness()]


def begun(**limits):
    """A watch whose first pull was made at 0."""
    watch = Watch(Limits(**limits))
    watch.begin(0.0)
    return watch


def waiting(**limits):
    """One whose first pull also found nothing ready."""
    watch = begun(**limits)
    watch.asked(0.0)
    return watch


def answer(watch, signals, now, **kwargs):
    """The pull that waits brings a message, and the next one waits at once."""
    watch.answered(now)
    watch.see(signals, now, **kwargs)
    watch.asked(now)


def end_turn(watch, now, **kwargs):
    watch.answered(now)
    watch.see([TurnEnded(**kwargs)], now)


# -- T1: whose time it is ----------------------------------------------------------------------


def test_idle_is_the_time_the_backend_keeps_us_waiting():
    """T1: the sum over several pulls, whatever lies between them."""
    watch = waiting(idle=10.0)
    answer(watch, PROGRESS, 1.0)
    watch.answered(5.0)
    watch.asked(1000.0)
    assert watch.deadline() == 1001.0  # the half-time of 4 s waited and 1 s to come
    assert watch.due(1005.875) is None
    assert watch.due(1006.0) == Due("idle", 1006.0, 10.0, 996.0)


def test_a_consumer_that_takes_an_hour_adds_nothing():
    """T1"""
    watch = waiting(idle=10.0)
    watch.answered(1.0)
    watch.see(PROGRESS, 1.0)
    assert watch.deadline() == math.inf
    assert watch.judge(3601.0) is None
    watch.asked(3601.0)
    assert watch.due(3610.0) is None
    assert watch.due(3611.0) is not None


@pytest.mark.parametrize("signals", [PING, [Usage({"tokens": 3.0})], []])
def test_what_is_no_progress_does_not_zero_idle(signals):
    """T1, S0: neither a ping nor a count nor a message that says nothing."""
    watch = waiting(idle=10.0)
    answer(watch, PROGRESS, 1.0)
    answer(watch, signals, 9.0)
    assert watch.due(11.0) == Due("idle", 11.0, 10.0, 1.0)


def test_a_new_pull_does_not_zero_idle():
    """T1: the sum of a pull that ended without a message goes on with the next one."""
    watch = waiting(idle=10.0)
    watch.answered(8.0)
    watch.asked(20.0)
    assert watch.due(22.0) == Due("idle", 22.0, 10.0, 12.0)


@pytest.mark.parametrize("limit", ["turn", "tools"])
def test_turn_and_tools_are_judged_only_once_a_pull_waits(limit):
    """T1: they run on through the consumer's time, in which nobody is late for them."""
    watch = begun(gate=True, **{limit: 10.0})
    watch.see([WorkStarted("a", "Bash")], 0.0)
    assert watch.due(500.0) is None
    assert watch.judge(500.0) is None
    assert watch.deadline() == math.inf
    watch.asked(500.0)
    assert watch.deadline() == 500.0
    due = watch.judge(500.0)
    assert isinstance(due, Due)
    assert (due.limit, due.deadline) == (limit, 10.0)
    assert watch.verdict(due, 500.0).lateness == 0.0


def test_total_runs_through_everything_and_needs_no_pull():
    """T1: it is judged before anything is asked for, and its window is what was written."""
    watch = begun(total=0.3)
    watch.see([TurnEnded()], 0.125)
    assert watch.overdue_total(0.25) is None
    assert watch.total_deadline() == 0.3
    assert watch.overdue_total(0.3) == Due("total", 0.3, 0.3, 0.0)
    assert watch.judge(0.3) is None
    watch.asked(0.3)
    assert watch.judge(0.3) == Due("total", 0.3, 0.3, 0.0)


@pytest.mark.parametrize("since", [1e3 + 0.1 * k for k in range(50)])
def test_no_rounding_makes_a_verdict_early(since):
    """T2: a limit of 0.3 is never reached after 0.29999999999995453."""
    watch = Watch(Limits(idle=0.3))
    watch.begin(since)
    watch.asked(since)
    deadline = watch._silence().deadline
    assert deadline - since >= 0.3
    assert watch.verdict(watch.due(deadline), deadline).elapsed >= 0.3


def test_total_runs_from_the_first_begin():
    """T1: `begin` said again says nothing."""
    watch = begun(total=10.0, turn=5.0)
    watch.begin(3.0)
    watch.asked(3.0)
    assert watch.started == 0.0
    assert watch.total_deadline() == 10.0
    assert watch.due(8.0) == Due("turn", 8.0, 5.0, 3.0)  # from the first pull


# -- T2: exact deadlines -----------------------------------------------------------------------


def test_a_verdict_is_given_at_its_deadline_and_not_before():
    """T2: `>=`."""
    watch = waiting(idle=10.0)
    assert isinstance(watch.judge(5.0), Half)
    assert watch.deadline() == 10.0
    assert watch.judge(math.nextafter(10.0, 0)) is None
    assert watch.judge(10.0) == Due("idle", 10.0, 10.0, 0.0)


def test_half_time_is_told_once_in_a_silence():
    """T2: two wakeups a window."""
    watch = waiting(idle=10.0)
    assert watch.deadline() == 5.0
    assert watch.judge(4.875) is None
    assert watch.judge(5.0) == Half("idle", 10.0)
    assert watch.judge(5.0) is None
    assert watch.deadline() == 10.0
    answer(watch, PING, 6.0)
    assert watch.judge(7.0) is None
    answer(watch, PROGRESS, 8.0)
    assert watch.deadline() == 13.0
    assert watch.judge(13.0) == Half("idle", 10.0)


def test_only_silences_have_a_half_time():
    """T2"""
    watch = waiting(turn=10.0, total=20.0)
    assert watch.deadline() == 10.0
    assert watch.judge(5.0) is None


def test_without_limits_there_is_nothing_to_wait_for():
    """T2"""
    watch = waiting()
    assert watch.deadline() == math.inf
    assert watch.total_deadline() == math.inf
    assert watch.judge(1e9) is None


# -- `first` -----------------------------------------------------------------------------------


def test_first_stands_in_for_idle_until_the_first_progress():
    """T1: a first token may take longer than a next one."""
    watch = waiting(idle=10.0, first=30.0)
    assert watch.judge(15.0) == Half("first", 30.0)
    assert watch.due(29.0) is None
    assert watch.due(30.0) == Due("first", 30.0, 30.0, 0.0)
    answer(watch, PROGRESS, 29.0)
    assert watch.due(39.0) == Due("idle", 39.0, 10.0, 29.0)


def test_each_turn_has_its_own_first():
    """T1"""
    watch = waiting(idle=10.0, first=30.0)
    end_turn(watch, 1.0)
    watch.mark_prompt(2.0)
    watch.asked(2.0)
    assert watch.due(31.0) is None
    assert watch.due(32.0) == Due("first", 32.0, 30.0, 2.0)


def test_first_alone_leaves_later_silence_alone():
    """T12: each knob is optional."""
    watch = waiting(first=30.0)
    answer(watch, PROGRESS, 1.0)
    assert watch.deadline() == math.inf


def test_a_session_that_opens_does_not_end_first():
    """S0: nor does it start `first` anew, or have it told again."""
    watch = waiting(idle=10.0, first=30.0)
    assert watch.judge(15.0) == Half("first", 30.0)
    answer(watch, [SessionOpened("s")], 16.0)
    assert watch.judge(16.0) is None
    due = watch.judge(30.0)
    assert due == Due("first", 30.0, 30.0, 0.0)
    watch.mute(due)
    answer(watch, [SessionOpened("s")], 31.0)
    assert watch.deadline() == math.inf


# -- S0: what resets what ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "signal",
    [
        Progress(),
        SessionOpened("s"),
        WorkStarted("a"),
        WorkFinished("unknown"),
        WaitEnded("unknown"),
        Failed(),
    ],
    ids=lambda signal: type(signal).__name__,
)
def test_every_signal_but_pings_and_counts_resets_idle(signal):
    """S0 (the gate is off here: work that starts pauses nothing)"""
    watch = waiting(idle=10.0)
    answer(watch, [signal], 9.0)
    assert watch.due(18.0) is None
    assert watch.due(19.0) == Due("idle", 19.0, 10.0, 9.0)


@pytest.mark.parametrize(
    "signal",
    [Progress(), WorkStarted("a"), WorkFinished("a"), Failed()],
    ids=lambda signal: type(signal).__name__,
)
def test_every_signal_but_pings_counts_and_sessions_ends_first(signal):
    """S0"""
    watch = waiting(idle=10.0, first=30.0)
    answer(watch, [signal], 9.0)
    assert watch.due(19.0) == Due("idle", 19.0, 10.0, 9.0)


@pytest.mark.parametrize("signal", [SessionOpened("s"), WaitEnded("never announced")])
def test_what_shows_no_work_does_not_end_first(signal):
    """S0: the silence before the first progress goes on."""
    watch = waiting(idle=10.0, first=30.0)
    answer(watch, [signal], 9.0)
    assert watch.due(19.0) is None
    assert watch.due(30.0) == Due("first", 30.0, 30.0, 0.0)


def test_a_wait_announced_again_is_not_prolonged():
    """S0: it lapses an hour after it was first announced."""
    watch = waiting(idle=10.0)
    answer(watch, [Waiting("compaction", "compaction")], 0.0)
    answer(watch, [Waiting("compaction", "compaction")], 3000.0)
    assert watch.deadline() == 3605.0  # half-time of the window after the lapse


def announced_each(watch, apart, until, *others):
    """Compaction is announced over and over, and judged in between; what is judged due."""
    now = 0.0
    while now < until:
        watch.answered(now)
        watch.see([Waiting("compaction", "compaction"), *others], now)
        watch.asked(now)
        now += apart
        while (when := watch.deadline()) < now:
            if isinstance(judged := watch.judge(when), Due):
                return judged
    return None


@pytest.mark.parametrize("others", [[], PING, [Usage({"tokens": 1.0})]])
@pytest.mark.parametrize("apart", [30.0, 599.0, 3700.0])
def test_a_wait_announced_for_hours_ends_like_one_announced_once(apart, others):
    """T6: also where it is announced again after its lapse."""
    watch = waiting(idle=600.0)
    due = announced_each(watch, apart, 40_000.0, *others)
    assert due == Due("idle", 4200.0, 600.0, 3600.0)
    assert watch.last_progress == 0.0


def test_waits_that_are_announced_in_turns_end_too():
    """T6: the beginning of another wait is nothing that was done."""
    watch = waiting(idle=600.0)
    due = announced_each(watch, 30.0, 40_000.0, Waiting("auth", "auth"))
    assert due == Due("idle", 4200.0, 600.0, 3600.0)


@pytest.mark.parametrize(
    "signal",
    [
        Progress(),
        WorkStarted("a", background=True),
        WorkFinished("unknown"),
        Failed(),
        SessionOpened("s"),
        WaitEnded("compaction"),
        WaitEnded("another"),
    ],
    ids=lambda signal: type(signal).__name__,
)
def test_after_anything_else_it_is_another_wait(signal):
    """T6: with an allowance of its own, whether or not the one before has lapsed."""
    again = [Waiting("w", "compaction")]
    for at in (3000.0, 4000.0):
        watch = waiting(idle=600.0)
        answer(watch, again, 0.0)
        answer(watch, [signal], at)
        answer(watch, again, at + 100.0)
        assert watch.due(at + 4299.0) is None
        assert watch.due(at + 4300.0) == Due("idle", at + 4300.0, 600.0, at + 3700.0)


@pytest.mark.parametrize("what", ["touch", "mark_prompt"])
def test_after_what_is_said_beside_the_stream_it_is_another_wait(what):
    """T6, T14: outside evidence of progress, and a new turn."""
    watch = waiting(idle=600.0)
    answer(watch, [Waiting("w", "compaction")], 0.0)
    getattr(watch, what)(4000.0)
    answer(watch, [Waiting("w", "compaction")], 4100.0)
    assert watch.due(8300.0) == Due("idle", 8300.0, 600.0, 7700.0)


def test_a_wait_whose_end_is_moved_is_bounded():
    """T6: a backend may learn more of the same wait, but not for ever."""
    watch = waiting(idle=600.0)
    for now in range(0, 4200, 30):
        answer(watch, [Waiting("w", "rate_limit", now + 60.0)], float(now), wall=float(now))
    assert watch.due(4200.0) == Due("idle", 4200.0, 600.0, 3600.0)


def test_a_wait_that_was_announced_for_longer_may_take_that_long():
    """T6: an end that was told at once is its bound."""
    watch = waiting(idle=600.0)
    answer(watch, [Waiting("w", "rate_limit", 18_000.0)], 0.0)
    answer(watch, [Waiting("w", "rate_limit", 18_500.0)], 60.0, wall=60.0)
    assert watch.deadline() == 18_300.0


def test_a_wait_may_turn_out_to_be_shorter():
    """S0: the latest end counts."""
    watch = waiting(idle=600.0)
    answer(watch, [Waiting("w", "rate_limit", 18_000.0)], 0.0)
    answer(watch, [Waiting("w", "rate_limit", 100.0)], 60.0, wall=60.0)
    assert watch.due(700.0) == Due("idle", 700.0, 600.0, 100.0)


def test_a_wait_that_was_over_when_it_was_announced_may_be_announced_again():
    """S0: nothing is prolonged by it."""
    watch = waiting(idle=10.0)
    over = Waiting("limit", "rate_limit", until=0.0)
    answer(watch, [over, Waiting("limit", "rate_limit")], 0.0)
    assert watch.deadline() == 3605.0


def test_a_session_that_cannot_be_resumed_leaves_no_token():
    """S0: the latest wins, also when it is none."""
    watch = waiting()
    answer(watch, [SessionOpened("s")], 1.0)
    answer(watch, [SessionOpened("t", resumable=False)], 2.0)
    assert watch.token is None


def test_work_that_turns_out_to_be_background_outlives_the_turn():
    """S3: a second start of the same id is the same work."""
    watch = waiting(gate=True)
    answer(watch, [WorkStarted("a"), WorkStarted("a", background=True)], 1.0)
    end_turn(watch, 2.0)
    assert list(watch.work) == ["a"]


def test_a_failure_neither_raises_nor_ends_the_turn():
    """S0: it only classifies the error that may follow."""
    watch = waiting(idle=10.0, turn=30.0)
    answer(watch, [Failed("rate_limit", 60.0, "slow down")], 1.0)
    assert watch.turn_open
    assert not watch.completed
    assert watch.judge(1.0) is None
    assert watch.due(30.0) == Due("idle", 11.0, 10.0, 1.0)


def test_a_failure_between_turns_opens_none():
    """T14: only Progress and WorkStarted do."""
    watch = waiting(idle=10.0)
    end_turn(watch, 1.0)
    watch.see([Failed(), SessionOpened("s"), Liveness(), WorkFinished("a"), WaitEnded("b")], 2.0)
    assert watch.completed


def test_the_latest_token_wins():
    """S0: a session may be given another one."""
    watch = waiting()
    watch.see([SessionOpened("one")], 1.0)
    watch.see([SessionOpened("two")], 2.0)
    assert watch.token == "two"


def test_counts_are_carried():
    """S0: later counts replace earlier ones of the same name."""
    watch = waiting()
    watch.see([Usage({"input": 1.0, "output": 2.0})], 1.0)
    watch.see([Usage({"output": 5.0})], 2.0)
    assert watch.deeds.usage == {"input": 1.0, "output": 5.0}


# -- liveness ----------------------------------------------------------------------------------


def test_liveness_is_armed_by_the_first_ping():
    """T1: many backends send none."""
    watch = waiting(liveness=5.0)
    assert watch.deadline() == math.inf
    answer(watch, PROGRESS, 1.0)
    assert watch.deadline() == math.inf
    answer(watch, PING, 2.0)
    assert watch.deadline() == 7.0
    assert watch.judge(7.0) == Due("liveness", 7.0, 5.0, 2.0)


@pytest.mark.parametrize("signals", [PROGRESS, PING, [Usage({})], []])
def test_any_message_resets_liveness(signals):
    """T1"""
    watch = waiting(liveness=5.0)
    answer(watch, PING, 2.0)
    answer(watch, signals, 6.0)
    assert watch.due(11.0) == Due("liveness", 11.0, 5.0, 6.0)


def test_a_touch_is_no_message():
    """T6: `touch` counts as progress, which says nothing of the transport."""
    watch = waiting(idle=10.0, liveness=5.0)
    answer(watch, PING, 2.0)
    watch.touch(6.0)
    assert watch.due(7.0) == Due("liveness", 7.0, 5.0, 2.0)


def test_what_is_heard_beside_the_stream_is_as_good_as_a_message():
    """S0: for every limit; but it was not delivered, so nobody counts it."""
    watch = waiting(idle=10.0, liveness=5.0)
    watch.hear(PING, 2.0)
    assert watch.due(7.0) == Due("liveness", 7.0, 5.0, 2.0)
    watch.hear(PROGRESS, 6.0)
    assert watch.deadline() == 11.0
    watch.hear(PING, 9.0)
    watch.hear(PING, 13.0)
    assert watch.due(16.0) == Due("idle", 16.0, 10.0, 6.0)
    assert (watch.messages, watch.last_message) == (0, None)


def test_liveness_runs_during_tools_and_holds():
    """T1: also through a hold that lapses on the way."""
    watch = waiting(liveness=20.0, gate=True)
    answer(watch, [Liveness(), WorkStarted("a")], 1.0)
    watch.hold("key", 8.0, 2.0)
    watch.touch(10.0)
    assert watch.due(21.0) == Due("liveness", 21.0, 20.0, 1.0)


def test_liveness_runs_only_while_a_pull_is_outstanding():
    """T1"""
    watch = waiting(liveness=5.0)
    answer(watch, PING, 1.0)
    watch.answered(3.0)
    watch.asked(100.0)
    assert watch.due(103.0) == Due("liveness", 103.0, 5.0, 98.0)


def test_liveness_does_not_run_between_turns():
    """T14: a session that waits for its next prompt was not dead when it comes."""
    watch = waiting(liveness=5.0)
    answer(watch, PING, 1.0)
    end_turn(watch, 2.0)
    watch.asked(2.0)
    assert watch.due(500.0) is None
    watch.mark_prompt(500.0)
    assert watch.due(504.0) is None
    assert watch.due(505.0) == Due("liveness", 505.0, 5.0, 500.0)


# -- T4: stalls --------------------------------------------------------------------------------


@pytest.mark.parametrize(("window", "bound"), [(10.0, 0.25), (0.25, 0.125)])
def test_a_deadline_noticed_in_time_is_confirmed(window, bound):
    """T4: at most min(250 ms, window / 2) late."""
    assert isinstance(waiting(idle=window).judge(window + bound), Due)
    assert isinstance(waiting(idle=window).judge(window + bound + 0.0625), Stalled)


@pytest.mark.parametrize(("window", "extension"), [(10.0, 1.0), (0.5, 0.5)])
def test_a_stall_moves_the_limit_to_now_and_min_of_window_and_a_second(window, extension):
    """T4"""
    watch = waiting(idle=window)
    now = window + 100.0
    assert watch.judge(now) == Stalled("idle", 100.0, extension)
    watch.judge(now)  # its half-time, which was slept through
    assert watch.deadline() == now + extension
    assert watch.due(now + extension - 0.125) is None
    due = watch.judge(now + extension)
    assert due == Due("idle", window, window, 0.0)
    assert watch.verdict(due, now + extension).lateness == 0.0


def test_three_stalls_in_a_row_and_no_more():
    """T4"""
    watch = waiting(idle=10.0)
    for now in (20.0, 30.0, 40.0):
        assert isinstance(watch.judge(now), Stalled)
    assert isinstance(watch.judge(50.0), Due)


def test_progress_ends_the_row():
    """T4: in a row."""
    watch = waiting(idle=10.0)
    for now in (20.0, 30.0, 40.0):
        watch.judge(now)
    answer(watch, PROGRESS, 41.0)
    assert isinstance(watch.judge(60.0), Stalled)


def test_a_ping_ends_the_row_of_liveness_only():
    """T4: each limit's row lasts as long as its clock runs."""
    watch = waiting(idle=10.0)
    for now in (20.0, 30.0, 40.0):
        watch.judge(now)
    answer(watch, PING, 41.0)
    assert isinstance(watch.judge(60.0), Due)

    watch = waiting(liveness=10.0)
    answer(watch, PING, 0.0)
    for now in (20.0, 30.0, 40.0):
        assert isinstance(watch.judge(now), Stalled)
    answer(watch, PING, 41.0)
    assert isinstance(watch.judge(60.0), Stalled)


def test_another_limit_begins_its_own_row():
    """T4"""
    watch = waiting(turn=10.0, exit_grace=10.0)
    for now in (20.0, 30.0, 40.0):
        assert isinstance(watch.judge(now), Stalled)
    end_turn(watch, 41.0)
    watch.asked(41.0)
    assert watch.judge(60.0) == Stalled("exit_grace", 9.0, 1.0)


def test_another_piece_of_work_begins_its_own_row():
    """T4: the row of `tools` ends with what it was about."""
    watch = waiting(gate=True, tools=10.0)
    answer(watch, [WorkStarted("a")], 0.0)
    answer(watch, [WorkStarted("b")], 5.0)
    for now in (20.0, 30.0, 40.0):
        assert isinstance(watch.judge(now), Stalled)
    watch.see([WorkFinished("a")], 41.0)
    assert isinstance(watch.judge(60.0), Stalled)


def test_the_extension_outlives_the_message_that_follows():
    """T4: `turn` becomes now + 1 s, whatever came in it."""
    watch = waiting(turn=10.0)
    assert watch.judge(20.0) == Stalled("turn", 10.0, 1.0)
    answer(watch, PROGRESS, 20.5)
    assert watch.due(20.875) is None
    assert watch.due(21.0) is not None


@pytest.mark.parametrize("begins", ["prompt", "progress", "work"])
def test_what_ran_out_before_the_turn_is_no_stall_of_it(begins):
    """T2, T4: background work passes its allowance while no turn is open, and the loop runs."""
    watch = waiting(gate=True, tools=10.0)
    answer(watch, [WorkStarted("b", "Task", background=True)], 0.0)
    answer(watch, [TurnEnded()], 1.0)
    if begins == "prompt":
        watch.mark_prompt(60.0)
    else:
        signal = Progress() if begins == "progress" else WorkStarted("c", "Bash")
        watch.see([signal], 60.0)  # while the pull goes on waiting
    assert watch.deadline() == 60.0
    due = watch.judge(60.0)
    assert due == Due("tools", 10.0, 10.0, 0.0, "Task", "b")
    assert watch.verdict(due, 60.0).lateness == 0.0


def test_a_stall_is_told_of_the_turn_only():
    """T4: time before it began is none of the stall's."""
    watch = waiting(gate=True, tools=10.0)
    answer(watch, [WorkStarted("b", "Task", background=True)], 0.0)
    answer(watch, [TurnEnded()], 1.0)
    watch.mark_prompt(60.0)
    assert watch.judge(62.0) == Stalled("tools", 2.0, 1.0)


def test_a_stall_moves_the_limit_that_was_due_and_no_other():
    """T4"""
    watch = waiting(idle=5.0, turn=6.25)
    assert watch.judge(6.0) == Stalled("idle", 1.0, 1.0)
    watch.judge(6.0)  # its half-time, which was slept through
    assert watch.deadline() == 6.25
    assert watch.judge(6.25) == Due("turn", 6.25, 6.25, 0.0)
    assert watch.due(7.0) == Due("idle", 5.0, 5.0, 0.0)


def test_each_limit_that_was_due_is_moved():
    """T4: the loop stood still for all of them."""
    watch = waiting(idle=5.0, turn=6.0)
    assert watch.judge(10.0) == Stalled("idle", 5.0, 1.0)
    assert watch.judge(10.0) == Stalled("turn", 4.0, 1.0)
    watch.judge(10.0)  # the half-time of `idle`
    assert watch.deadline() == 11.0
    assert watch.judge(11.0) == Due("idle", 5.0, 5.0, 0.0)


def test_limits_that_stall_in_turns_are_put_off_three_times_each():
    """T4: a row is a limit's own."""
    watch = waiting(idle=5.0, turn=5.5)
    stalled = [watch.judge(now).limit for now in (10.0, 10.0, 20.0, 20.0, 30.0, 30.0)]
    assert stalled == ["idle", "turn"] * 3
    assert isinstance(watch.judge(40.0), Due)


def test_a_stall_moves_the_piece_of_work_that_was_due_and_no_other():
    """T4, T5: each has an allowance of its own."""
    watch = waiting(gate=True, tools=10.0)
    answer(watch, [WorkStarted("a", "Bash")], 0.0)
    answer(watch, [WorkStarted("b", "Read")], 2.5)
    assert watch.judge(12.0) == Stalled("tools", 2.0, 1.0)
    assert watch.deadline() == 12.5
    assert watch.judge(12.5) == Due("tools", 12.5, 10.0, 2.5, "Read", "b")


def test_an_extension_outlives_the_prompt_that_follows():
    """T4: the work runs on, and so does its clock."""
    watch = waiting(gate=True, tools=10.0)
    answer(watch, [WorkStarted("a", "Bash")], 0.0)
    watch.judge(20.0)
    watch.mark_prompt(20.5)
    assert watch.deadline() == 21.0
    assert watch.judge(21.0) == Due("tools", 10.0, 10.0, 0.0, "Bash", "a")


@pytest.mark.parametrize("again", [21.5, 5000.0])
def test_a_pull_that_comes_after_the_extension_is_no_stall(again):
    """T4: the consumer's own scope ended the pull; nobody waited, so nobody was late."""
    watch = waiting(idle=10.0)
    assert watch.judge(20.0) == Stalled("idle", 10.0, 1.0)
    watch.answered(20.5)
    watch.asked(again)
    assert isinstance(watch.judge(again), Due)


def test_a_silence_that_ended_unnoticed_is_a_stall_of_the_next_pull():
    """T4: the loop stood still, and the first to run was the consumer, who asks again."""
    watch = waiting(idle=10.0)
    watch.answered(12.0)
    watch.asked(12.0)
    assert watch.judge(12.0) == Stalled("idle", 2.0, 1.0)


def test_a_verdict_that_was_put_off_is_no_stall():
    """T4: it was due in time; then somebody's cancel went before it."""
    watch = waiting(idle=10.0)
    assert isinstance(watch.judge(10.0), Due)
    watch.answered(13.0)
    watch.asked(13.0)
    due = watch.judge(13.0)
    assert isinstance(due, Due)
    assert watch.verdict(due, 13.0).lateness == 0.0


def test_another_end_of_the_process_is_another_matter():
    """T11: what was told of the one before is not told of this one."""
    watch = waiting(idle=10.0)
    watch.exited(1.0)
    watch.mute(watch.judge(1.5))
    watch.answered(2.0)
    watch.begin(2.0)
    watch.asked(2.0)
    watch.exited(3.0)
    assert watch.judge(3.5).limit == "exited"


def test_total_is_exempt_from_stalls():
    """T4"""
    watch = waiting(total=10.0)
    assert watch.judge(500.0) == Due("total", 10.0, 10.0, 0.0)
    watch = waiting(idle=10.0, total=15.5)
    assert watch.judge(15.0) == Stalled("idle", 5.0, 1.0)
    assert watch.due(15.5) == Due("total", 15.5, 15.5, 0.0)


# -- T5: work in flight ------------------------------------------------------------------------


def test_work_in_flight_pauses_idle():
    """T5: and what was waited before it is forgotten, since its start was progress."""
    watch = waiting(idle=10.0, gate=True)
    answer(watch, [WorkStarted("a", "Bash")], 4.0)
    assert watch.deadline() == 7204.0
    assert watch.due(7203.0) is None
    answer(watch, [WorkFinished("a")], 5000.0)
    assert watch.due(5010.0) == Due("idle", 5010.0, 10.0, 5000.0)


def test_a_ping_during_work_adds_no_silence():
    """T5: time waited with work in flight is not idle, however it is cut."""
    watch = waiting(idle=10.0, gate=True)
    answer(watch, [WorkStarted("a"), WorkStarted("b")], 1.0)
    answer(watch, PING, 100.0)
    answer(watch, [WorkFinished("a")], 200.0)
    assert watch.due(300.0) is None
    answer(watch, [WorkFinished("b")], 300.0)
    assert watch.due(310.0) == Due("idle", 310.0, 10.0, 300.0)


def test_work_is_in_flight_for_a_finite_time():
    """T5: an allowance per name; the verdict says which work."""
    watch = waiting(gate=True, tools=100.0, tools_by_name={"Bash": 20.0})
    answer(watch, [WorkStarted("a", "Read"), WorkStarted("b", "Bash")], 1.0)
    due = watch.judge(21.0)
    assert due == Due("tools", 21.0, 20.0, 1.0, "Bash", "b")
    answer(watch, [WorkFinished("b")], 21.0)
    assert watch.due(100.0) is None
    assert watch.due(101.0) == Due("tools", 101.0, 100.0, 1.0, "Read", "a")


def test_work_without_a_name_goes_by_its_id():
    """T5"""
    watch = waiting(gate=True, tools=20.0)
    answer(watch, [WorkStarted("toolu_1")], 0.0)
    due = watch.judge(20.0)
    assert due.work == "toolu_1"
    assert watch.verdict(due, 20.0).in_flight == ("toolu_1",)


def test_an_allowance_without_limit_must_be_said():
    """T5: `None` pauses for ever, the default does not."""
    watch = waiting(idle=10.0, gate=True, tools_by_name={"Task": None})
    answer(watch, [WorkStarted("a", "Task")], 0.0)
    assert watch.deadline() == math.inf
    assert Limits().allowance("Bash") == 7200.0


def test_without_a_gate_work_pauses_nothing():
    """T5: the gate is an operator of its own."""
    watch = waiting(idle=10.0, gate=False, tools=5.0)
    answer(watch, [WorkStarted("a", "Bash")], 0.0)
    assert watch.due(9.0) is None
    assert watch.due(10.0) == Due("idle", 10.0, 10.0, 0.0)


# -- S3: entries are keyed ---------------------------------------------------------------------


def test_duplicates_and_strays_leave_the_gate_correct():
    """S3: a second start is the same work, from its first start on; results may come twice."""
    watch = waiting(idle=10.0, gate=True, tools=20.0)
    answer(watch, [WorkFinished("a")], 0.0)
    answer(watch, [WorkStarted("a", "Bash")], 1.0)
    answer(watch, [WorkStarted("a", "Bash")], 5.0)
    answer(watch, [WorkFinished("other")], 6.0)
    assert watch.due(21.0) == Due("tools", 21.0, 20.0, 1.0, "Bash", "a")
    answer(watch, [WorkFinished("a"), WorkFinished("a")], 7.0)
    assert not watch.work
    assert watch.due(17.0) == Due("idle", 17.0, 10.0, 7.0)


def test_work_is_dropped_at_a_turns_end_and_late_results_are_ignored():
    """S3: background work excepted."""
    watch = waiting(idle=10.0, gate=True, exit_grace=5.0)
    answer(watch, [WorkStarted("a"), WorkStarted("b", background=True)], 1.0)
    end_turn(watch, 2.0)
    assert list(watch.work) == ["b"]
    watch.see([WorkFinished("b")], 3.0)
    watch.see([WorkFinished("a")], 50.0)
    watch.asked(50.0)
    assert watch.judge(50.0) == Due("exit_grace", 8.0, 5.0, 3.0)


def test_background_work_pauses_the_next_turn_too():
    """S3, T5: within its own finite allowance."""
    watch = waiting(idle=10.0, gate=True, tools=100.0)
    answer(watch, [WorkStarted("b", "Task", background=True)], 1.0)
    end_turn(watch, 2.0)
    watch.mark_prompt(3.0)
    watch.asked(3.0)
    assert watch.due(100.0) is None
    assert watch.due(101.0) == Due("tools", 101.0, 100.0, 1.0, "Task", "b")


# -- T6: holds ---------------------------------------------------------------------------------


def test_a_hold_pauses_idle_and_its_end_starts_a_fresh_window():
    """T6"""
    watch = waiting(idle=10.0)
    watch.hold("key", 1000.0, 9.0)
    assert watch.is_held(9.0)
    assert watch.due(900.0) is None
    watch.release("key", 900.0)
    assert not watch.is_held(900.0)
    assert watch.due(909.0) is None
    assert watch.due(910.0) == Due("idle", 910.0, 10.0, 900.0)


def test_a_hold_is_over_at_its_end():
    """T6: at the very instant."""
    watch = waiting(idle=10.0)
    watch.hold("key", 20.0, 1.0)
    assert watch.is_held(19.875)
    assert not watch.is_held(20.0)


def test_holds_nest():
    """T6: the end of the last one counts, in whatever order."""
    watch = waiting(idle=10.0)
    watch.hold("outer", 1000.0, 1.0)
    watch.hold("inner", 1000.0, 2.0)
    watch.release("outer", 50.0)
    assert watch.due(500.0) is None
    watch.release("inner", 500.0)
    assert watch.due(510.0) == Due("idle", 510.0, 10.0, 500.0)


def test_a_hold_lapses_without_being_told():
    """T6: the last one's lapse starts a fresh window, with its own half-time and verdict."""
    watch = waiting(idle=10.0)
    assert watch.judge(5.0) == Half("idle", 10.0)
    watch.hold("long", 60.0, 6.0)
    watch.hold("short", 30.0, 6.0)
    assert watch.deadline() == 65.0
    assert watch.judge(65.0) == Half("idle", 10.0)
    watch.answered(66.0)
    watch.asked(66.0)
    assert watch.judge(66.0) is None  # half-time was told in this window
    assert watch.deadline() == 70.0
    assert watch.judge(70.0) == Due("idle", 70.0, 10.0, 60.0)


def test_what_was_told_before_a_hold_is_judged_again_after_it():
    """T6, T11: a fresh window is a new silence."""
    watch = waiting(idle=10.0)
    watch.mute(watch.judge(10.0))
    assert watch.deadline() == math.inf
    watch.hold("key", 20.0, 15.0)
    assert watch.deadline() == 25.0
    assert watch.due(30.0) == Due("idle", 30.0, 10.0, 20.0)


def test_the_release_of_a_lapsed_hold_is_ignored():
    """T6: it ended when it lapsed."""
    watch = waiting(idle=10.0)
    watch.hold("key", 20.0, 1.0)
    watch.release("key", 28.0)
    watch.release("never held", 29.0)
    assert watch.due(30.0) == Due("idle", 30.0, 10.0, 20.0)


@pytest.mark.parametrize("until", [-1000.0, 4.0, 5.0])
def test_a_hold_that_is_over_when_it_begins_gives_a_fresh_window(until):
    """T6: and no verdict on a time before it."""
    watch = waiting(idle=10.0)
    watch.hold("key", until, 5.0)
    assert watch.due(14.0) is None
    assert watch.due(15.0) == Due("idle", 15.0, 10.0, 5.0)


def test_a_hold_without_an_end_waits_for_its_release():
    """T6: bounds are given by who holds."""
    watch = waiting(idle=10.0)
    watch.hold("key", math.inf, 5.0)
    assert watch.deadline() == math.inf


def test_a_hold_leaves_the_other_clocks_alone():
    """T6: it pauses idle, no more."""
    watch = waiting(idle=10.0, turn=30.0)
    watch.hold("key", math.inf, 5.0)
    assert watch.due(30.0) == Due("turn", 30.0, 30.0, 0.0)


def test_a_touch_counts_as_progress():
    """T6: it ends `first`, too, but opens no turn."""
    watch = waiting(idle=10.0, first=30.0)
    watch.touch(9.0)
    assert watch.last_progress == 9.0
    assert watch.messages == 0
    assert watch.due(19.0) == Due("idle", 19.0, 10.0, 9.0)
    end_turn(watch, 20.0)
    watch.touch(21.0)
    assert watch.completed


@pytest.mark.parametrize("aware", [True, False])
def test_an_announced_wait_holds_until_its_wall_clock_time(aware):
    """S0, T6"""
    wall = 1_700_000_000.0
    until = datetime.fromtimestamp(wall + 60, UTC) if aware else wall + 60
    watch = waiting(idle=10.0)
    answer(watch, [Waiting("w", "rate_limit", until)], 5.0, wall=wall)
    assert watch.due(74.0) is None
    assert watch.due(75.0) == Due("idle", 75.0, 10.0, 65.0)


def test_an_announced_wait_ends_with_its_announced_end():
    """T6: which starts a fresh window."""
    watch = waiting(idle=10.0)
    answer(watch, [Waiting("w", "human")], 5.0)
    answer(watch, [WaitEnded("w")], 500.0)
    assert watch.due(510.0) == Due("idle", 510.0, 10.0, 500.0)


def test_an_announced_wait_without_an_end_lapses():
    """S0: after the hold's allowance."""
    watch = waiting(idle=10.0)
    answer(watch, [Waiting("w", "human")], 5.0)
    assert watch.due(3614.0) is None
    assert watch.due(3615.0) == Due("idle", 3615.0, 10.0, 3605.0)


def test_an_announced_wait_belongs_to_its_turn():
    """S3, T14: what others hold does not."""
    watch = waiting(idle=10.0)
    watch.hold("w", 1000.0, 1.0)
    answer(watch, [Waiting("w", "human")], 2.0)
    end_turn(watch, 3.0)
    assert watch.is_held(3.0)
    watch.release("w", 4.0)
    assert not watch.is_held(4.0)


# -- T3, T14: turns ----------------------------------------------------------------------------


def test_a_turn_that_ended_is_completed_until_the_next_begins():
    """T3"""
    watch = begun()
    assert not watch.completed
    watch.see([TurnEnded()], 1.0)
    assert watch.completed
    assert watch.last_progress == 1.0
    assert watch.turns == 1
    watch.mark_prompt(2.0)
    assert not watch.completed


@pytest.mark.parametrize("signal", [Progress(), WorkStarted("a")])
def test_progress_and_work_open_the_next_turn(signal):
    """T14"""
    watch = begun(turn=10.0)
    watch.see([TurnEnded()], 1.0)
    watch.see([signal], 5.0)
    watch.asked(5.0)
    assert watch.due(15.0) == Due("turn", 15.0, 10.0, 5.0)


def test_turn_runs_from_the_first_pull_or_the_prompt():
    """T1: progress does not reset it, a prompt does."""
    watch = waiting(turn=10.0)
    answer(watch, PROGRESS, 9.0)
    assert watch.due(10.0) == Due("turn", 10.0, 10.0, 0.0)
    watch.mark_prompt(9.0)
    assert watch.due(18.0) is None
    assert watch.due(19.0) == Due("turn", 19.0, 10.0, 9.0)


def test_a_prompt_before_the_first_pull_begins_the_turn_but_not_the_whole():
    """T1, T14"""
    watch = Watch(Limits(turn=10.0, total=10.0))
    watch.mark_prompt(-5.0)
    assert watch.total_deadline() == math.inf
    watch.begin(0.0)
    watch.asked(0.0)
    assert watch.due(5.0) == Due("turn", 5.0, 10.0, -5.0)
    assert watch.total_deadline() == 10.0


def test_between_turns_only_exit_grace_and_total_run():
    """T14"""
    watch = waiting(
        idle=1.0,
        first=1.0,
        liveness=1.0,
        gate=True,
        tools=1.0,
        turn=1.0,
        exit_grace=50.0,
        total=90.0,
    )
    answer(watch, [Liveness(), WorkStarted("b", background=True)], 0.5)
    end_turn(watch, 0.75)
    watch.asked(1.0)
    assert watch.due(51.0) is None
    assert watch.due(51.5) == Due("exit_grace", 51.5, 50.0, 1.5)
    watch.mute(watch.due(51.5))
    assert watch.due(89.0) is None
    assert watch.due(90.0) == Due("total", 90.0, 90.0, 0.0)


def test_exit_grace_runs_from_the_turns_end():
    """T14: not from the beginning, and not from a stray result."""
    watch = waiting(exit_grace=5.0)
    assert watch.deadline() == math.inf
    end_turn(watch, 10.0)
    watch.asked(11.0)
    answer(watch, [WorkFinished("a")], 12.0)
    assert watch.deadline() == 15.0
    assert watch.due(15.0) == Due("exit_grace", 15.0, 5.0, 10.0)
    answer(watch, PROGRESS, 14.0)
    assert watch.deadline() == math.inf


def test_exit_grace_waits_for_background_work():
    """T14: for its end, or for its allowance's."""
    watch = waiting(exit_grace=5.0, gate=True, tools=100.0)
    answer(watch, [WorkStarted("b", background=True)], 1.0)
    end_turn(watch, 2.0)
    watch.asked(2.0)
    assert watch.deadline() == 106.0
    answer(watch, [WorkFinished("b")], 50.0)
    assert watch.due(55.0) == Due("exit_grace", 55.0, 5.0, 50.0)


def test_exit_grace_waits_for_ever_if_that_was_said():
    """T5, T14: background work without a limit."""
    watch = waiting(exit_grace=5.0, gate=True, tools=None)
    answer(watch, [WorkStarted("b", background=True)], 1.0)
    end_turn(watch, 2.0)
    watch.asked(2.0)
    assert watch.deadline() == math.inf


def test_exit_grace_waits_for_announced_turns():
    """T14: but an announced turn that never comes lapses."""
    watch = waiting(exit_grace=5.0)
    end_turn(watch, 1.0, more_expected=True)
    watch.asked(1.0)
    assert watch.due(3605.0) is None
    assert watch.due(3606.0) == Due("exit_grace", 3606.0, 5.0, 3601.0)
    answer(watch, PROGRESS, 100.0)
    end_turn(watch, 200.0)
    watch.asked(200.0)
    assert watch.due(205.0) == Due("exit_grace", 205.0, 5.0, 200.0)


def test_a_prompt_forgets_the_announced_turn():
    """T14: the next end says for itself whether more is expected."""
    watch = waiting(exit_grace=5.0, idle=10.0)
    end_turn(watch, 1.0, more_expected=True)
    watch.mark_prompt(2.0)
    end_turn(watch, 3.0)
    watch.asked(3.0)
    assert watch.due(8.0) == Due("exit_grace", 8.0, 5.0, 3.0)


# -- ties, mode `warn`, verdicts ---------------------------------------------------------------


def test_of_limits_due_at_once_the_widest_is_named():
    """T7: it is what binds."""
    limits = {"idle": 10.0, "liveness": 10.0, "tools": 10.0, "turn": 10.0, "total": 10.0}
    named = []
    while limits:
        watch = waiting(**limits)
        answer(watch, PING, 0.0)
        if "tools" in limits:
            watch.limits = Limits(gate=True, **limits)
            watch.see([WorkStarted("a")], 0.0)
        due = watch.due(10.0)
        named.append(due.limit)
        del limits[due.limit]
    assert named == ["total", "turn", "tools", "idle", "liveness"]
    assert waiting(first=10.0, turn=10.0).due(10.0).limit == "turn"
    first = waiting(first=10.0, liveness=10.0)
    answer(first, PING, 0.0)
    assert first.due(10.0).limit == "first"


def test_of_limits_reached_the_earliest_is_named():
    """T7"""
    assert waiting(idle=9.0, turn=10.0, total=11.0).due(50.0).limit == "idle"


def test_what_was_told_is_not_told_again_in_the_same_silence():
    """T11: mode `warn`; the other limits go on, and so does the next silence."""
    watch = waiting(idle=10.0, turn=30.0)
    watch.mute(watch.judge(10.0))
    answer(watch, PING, 11.0)
    assert watch.deadline() == 30.0
    watch.mute(watch.judge(30.0))
    assert watch.deadline() == math.inf
    answer(watch, PROGRESS, 31.0)
    assert watch.due(41.0) == Due("idle", 41.0, 10.0, 31.0)
    watch.mute(watch.judge(41.0))
    watch.mark_prompt(42.0)
    assert watch.due(52.0).limit == "idle"
    assert watch.due(72.0).limit == "idle"
    watch.mute(watch.due(52.0))
    assert watch.due(72.0) == Due("turn", 72.0, 30.0, 42.0)


def test_liveness_is_told_once_until_a_message_comes():
    """T11"""
    watch = waiting(liveness=5.0)
    answer(watch, PING, 0.0)
    watch.mute(watch.judge(5.0))
    watch.touch(6.0)
    assert watch.deadline() == math.inf
    answer(watch, PING, 7.0)
    assert watch.deadline() == 12.0


def test_total_is_told_once():
    """T11"""
    watch = waiting(total=5.0)
    watch.mute(watch.judge(5.0))
    answer(watch, PROGRESS, 6.0)
    assert watch.deadline() == math.inf
    assert watch.total_deadline() == math.inf
    assert watch.overdue_total(100.0) is None


def test_exit_grace_is_told_once_for_each_end_of_a_turn():
    """T11"""
    watch = waiting(exit_grace=5.0)
    end_turn(watch, 1.0)
    watch.asked(1.0)
    watch.mute(watch.judge(6.0))
    assert watch.deadline() == math.inf
    answer(watch, [TurnEnded()], 7.0)
    assert watch.due(12.0) == Due("exit_grace", 12.0, 5.0, 7.0)


def test_each_work_is_told_once_and_then_pauses_nothing():
    """T5, T11: idle runs from the end of its allowance, not from before."""
    watch = waiting(idle=10.0, gate=True, tools=20.0)
    answer(watch, [WorkStarted("a", "Bash")], 0.0)
    answer(watch, [WorkStarted("b", "Read")], 5.0)
    watch.mute(watch.judge(20.0))
    assert watch.due(24.0) is None  # the other still pauses
    watch.mute(watch.judge(25.0))
    assert watch.due(34.0) is None
    assert watch.due(35.0) == Due("idle", 35.0, 10.0, 25.0)


def test_work_that_is_told_late_paused_idle_until_then():
    """T5: its allowance ended in the consumer's time, which is not idle either."""
    watch = begun(idle=10.0, gate=True, tools=20.0)
    watch.see([WorkStarted("a", "Bash")], 0.0)
    watch.asked(500.0)
    watch.mute(watch.judge(500.0))
    assert watch.due(509.0) is None
    assert watch.due(510.0) == Due("idle", 510.0, 10.0, 500.0)


def test_a_verdict_records_what_was_known():
    """T7"""
    watch = waiting(idle=10.0, gate=True, tools=20.0)
    answer(watch, [SessionOpened("token"), WorkStarted("a", "Bash"), WorkStarted("id")], 1.0)
    answer(watch, PING, 4.0)
    due = watch.judge(21.125)
    verdict = watch.verdict(due, 21.125)
    assert verdict.limit == "tools"
    assert verdict.window == 20.0
    assert verdict.elapsed == 20.125
    assert verdict.lateness == 0.125
    assert verdict.at == 21.125
    assert verdict.messages == 2
    assert verdict.first_seen
    assert verdict.last_signal == "Liveness"
    assert verdict.last_message_age == 17.125
    assert verdict.in_flight == ("Bash", "id")
    assert verdict.work == "Bash"
    assert verdict.token == "token"


def test_a_verdict_on_nothing_says_so():
    """T7: a session alone is not a first message; an earlier turn is."""
    watch = waiting(first=10.0)
    verdict = watch.verdict(watch.judge(10.0), 10.0)
    assert verdict.messages == 0
    assert not verdict.first_seen
    assert verdict.last_signal is None
    assert verdict.last_message_age is None
    assert verdict.in_flight == ()
    end_turn(watch, 11.0)
    watch.mark_prompt(12.0)
    watch.asked(12.0)
    assert watch.verdict(watch.judge(22.0), 22.0).first_seen


def test_a_verdict_is_never_early():
    """T2: also one that others made up and that no clock of ours has reached."""
    watch = waiting(idle=10.0)
    watch.judge(100.0)
    assert watch.verdict(Due("idle", 100.0, 0.0, 0.0), 100.0).lateness == 0.0


# -- the shortcut ------------------------------------------------------------------------------


def test_plain_progress_is_steady_and_everything_else_is_not():
    """Cost: steady means that all sums are zero before and after plain progress."""
    watch = begun(idle=10.0, gate=True)
    assert not watch.steady
    watch.see(PROGRESS, 1.0)
    assert watch.steady
    for disturb in (
        lambda: watch.asked(2.0),
        lambda: watch.answered(2.0),
        lambda: watch.touch(2.0),
        lambda: watch.mark_prompt(2.0),
        lambda: watch.hold("key", 2.0, 2.0),
        lambda: watch.release("never held", 2.0),
        lambda: watch.mute(Due("idle", 2.0, 10.0, -8.0)),
        watch.leave_steady,
        lambda: watch.see(PING, 2.0),
        lambda: watch.see([TurnEnded()], 2.0),
        lambda: watch.see([], 2.0),
    ):
        disturb()
        assert not watch.steady
        watch.release("key", 2.0)
        watch.see(PROGRESS, 2.0)
        assert watch.steady


def test_a_hold_keeps_the_watch_from_being_steady():
    """Cost: its end would have to be noticed."""
    watch = begun(idle=10.0)
    watch.hold("key", 100.0, 1.0)
    watch.see(PROGRESS, 2.0)
    assert not watch.steady


@pytest.mark.parametrize(("now", "kind"), [(6.0, Half), (11.5, Stalled)])
def test_a_silence_of_which_something_was_told_is_not_steady(now, kind):
    """Cost: the message that ends it must end what was told, too."""
    watch = begun(idle=10.0)
    watch.see(PROGRESS, 1.0)
    watch.waiting_since = watch.mark = 1.0  # the shortcut
    assert watch.steady
    assert isinstance(watch.judge(now), kind)
    assert not watch.steady


def test_a_stray_release_does_not_spoil_the_shortcut():
    """Cost: what was waited up to it is in the sum, which the shortcut does not zero."""
    watch = begun(idle=10.0)
    watch.see(PROGRESS, 1.0)
    watch.waiting_since = watch.mark = 2.0  # the shortcut
    watch.release("never held", 4.0)
    assert not watch.steady
    assert watch.due(12.0) == Due("idle", 12.0, 10.0, 2.0)


def test_what_was_seen_while_steady_counts_as_progress():
    """O8: whatever ends the steadiness."""
    watch = begun(idle=10.0)
    watch.see(PROGRESS, 1.0)
    watch.upto, watch.mark = 2, 5.0  # the shortcut: the next pull began at 5.0
    assert watch.last_progress == 5.0
    watch.leave_steady()
    assert watch.last_progress == 5.0
    watch.see(PING, 7.0)
    assert watch.last_progress == 5.0


# -- S4-06: work without an id ------------------------------------------------------------------


def test_work_without_an_id_pauses_until_any_end_without_one():
    """S4-06: an end with an id is another's; a stray end changes nothing."""
    watch = waiting(idle=10.0, gate=True, tools=100.0)
    answer(watch, [WorkFinished("")], 0.0)
    answer(watch, [WorkStarted("", "Bash")], 1.0)
    answer(watch, [WorkFinished("other")], 2.0)
    assert watch.due(100.0) is None
    assert watch.due(101.0) == Due("tools", 101.0, 100.0, 1.0, "Bash")
    answer(watch, [WorkFinished("")], 5.0)
    assert watch.due(15.0) == Due("idle", 15.0, 10.0, 5.0)


def test_work_without_an_id_ends_with_its_turn():
    """S4-06: or no hang of the next turn would be noticed."""
    watch = waiting(idle=10.0, gate=True)
    answer(watch, [WorkStarted("")], 1.0)
    end_turn(watch, 2.0)
    assert not watch.work


def test_the_latest_work_without_an_id_has_all_its_time():
    """S4-06, T5: which of them has ended nobody can tell, but which has begun."""
    watch = waiting(idle=10.0, gate=True, tools=20.0)
    answer(watch, [WorkStarted("")], 1.0)
    answer(watch, [WorkStarted("")], 15.0)
    assert watch.due(34.0) is None
    assert watch.due(35.0) == Due("tools", 35.0, 20.0, 15.0, "a tool")
    assert watch.deeds.tools_run == 2
