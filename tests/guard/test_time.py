"""Time as a stream shows it: T1 to T14 through real streams, on every loop."""

from __future__ import annotations

import anyio
import pytest

from streamguard import (
    Activity,
    DeadlineExceededError,
    FirstMessageTimeoutError,
    IdleTimeoutError,
    LivenessTimeoutError,
    ToolTimeoutError,
    TurnTimeoutError,
    idle_guard,
    idle_timeout,
    inflight_tool_gate,
)
from streamguard._loops.timekeeper import Timekeeper
from streamguard.events import HalfTime, HoldBegan, HoldOver, LoopStalled, TimedOut
from streamguard.testing import (
    Channel,
    Script,
    Tap,
    block_loop,
    call,
    done,
    failed,
    hang,
    opened,
    ping,
    pings,
    repeat,
    run_virtual,
    say,
    silence,
    tool,
    tool_end,
    tool_start,
    usage,
    wait_ended,
    waiting,
)
from streamguard.testing.messages import Ended, Opened, Pinged, Said, ToolDone
from tests.support import Disconnect, Events, take


@pytest.fixture(params=["asyncio", "trio"])
def virtual(request):
    """Runs an async function on a loop in virtual time, for what is hours in real time."""
    return lambda main: run_virtual(main, backend=request.param)


def texts(taken):
    return [message.text for message in taken.messages if isinstance(message, Said)]


# -- idle: whose time it is ----------------------------------------------------------------------


async def test_silence_from_the_start_is_a_verdict(loop, form):
    """T1: a backend that never says a word is found as one that falls silent later."""
    taken = await take(Script(hang()) | idle_guard(60), form)
    assert type(taken.error) is IdleTimeoutError
    assert loop.took(taken.elapsed, 60)
    assert taken.error.verdict.messages == 0
    assert taken.error.verdict.last_message_age is None


async def test_pings_every_ten_seconds_hide_nothing(loop, form):
    """T1: the API that sends nothing but pings is found at exactly 60 s."""
    taken = await take(Script(pings(10)) | idle_guard(60), form)
    assert type(taken.error) is IdleTimeoutError
    assert loop.took(taken.elapsed, 60)
    assert taken.error.verdict.last_signal == "Liveness"


async def test_counts_are_no_progress(loop, form):
    """S0: neither Liveness nor Usage resets `idle`."""
    counting = repeat(silence(10), usage(input_tokens=1))
    taken = await take(Script(say("a"), counting) | idle_guard(60), form)
    assert type(taken.error) is IdleTimeoutError
    assert loop.took(taken.elapsed, 60)


async def test_any_other_message_is_progress(loop, form):
    """S0: everything but pings and counts resets `idle`, a failure and a session included."""
    pause = silence(40)
    source = Script(
        *(say("a"), pause, opened("t"), pause, failed("rate_limit"), pause),
        *(tool_end("nobody's"), pause, wait_ended("nobody's"), pause, say("b"), hang()),
    )
    taken = await take(source | idle_guard(60), form)
    assert type(taken.error) is IdleTimeoutError
    assert texts(taken) == ["a", "b"]
    assert loop.took(taken.elapsed, 5 * 40 + 60)


async def test_an_unknown_message_is_progress(loop, form):
    """S1: a backend that nobody knows is alive as long as it says anything."""

    async def numbers():
        for number in range(10):
            await anyio.sleep(40)
            yield number
        await anyio.sleep_forever()

    taken = await take(numbers() | idle_guard(60), form)
    assert type(taken.error) is IdleTimeoutError
    assert taken.messages == list(range(10))
    assert loop.took(taken.elapsed, 400 + 60)


def test_a_consumer_that_takes_an_hour_adds_nothing(virtual, form):
    """T1: idle is the time the backend keeps us waiting, not the time we take."""

    async def main():
        source = Script(*[say("x"), silence(50)] * 3, done())
        events = Events()

        async def dawdle(_message):
            await anyio.sleep(3600)

        taken = await take(source | idle_guard(60, first=55, observer=events), form, dawdle)
        assert taken.error is None
        assert len(taken.messages) == 4
        assert not events.of(TimedOut)
        assert not events.of(LoopStalled)

    virtual(main)


def test_a_backend_that_ran_ahead_is_read_in_peace(virtual, form):
    """T1: what lies in a buffer is no silence, however late it is fetched."""

    async def main():
        source = Channel(Script(*[say("x"), silence(1)] * 5, done()))
        taken = await take(source | idle_guard(2), form, lambda _message: anyio.sleep(3600))
        assert taken.error is None
        assert len(taken.messages) == 6

    virtual(main)


def test_the_sum_goes_on_after_the_consumers_hour(virtual, form):
    """T1: 40 s before a ping and 20 s after it are 60 s, whatever the consumer did in between."""

    async def main():
        source = Script(silence(40), ping(), hang()) | idle_guard(60)
        taken = await take(source, form, lambda _message: anyio.sleep(3600))
        assert type(taken.error) is IdleTimeoutError
        assert taken.elapsed == pytest.approx(3660)

    virtual(main)


async def test_a_new_pull_does_not_zero_the_sum(loop):
    """T1: a consumer that looks in every 20 s, by a scope of its own, hides no silence."""
    messages = aiter(Channel(Script(say("a"), hang())) | idle_guard(60))
    await anext(messages)
    started, looks = anyio.current_time(), 0
    with pytest.raises(IdleTimeoutError):
        while True:
            with anyio.move_on_after(20):
                await anext(messages)
            looks += 1
    assert loop.took(anyio.current_time() - started, 60)
    assert looks <= 3


# -- first ---------------------------------------------------------------------------------------


async def test_first_stands_in_for_idle_until_the_first_progress(loop, form):
    """T1: a first token may take longer than a next one; a session that opens is none (S0)."""
    source = Script(opened("t"), silence(200), say("a"), hang())
    taken = await take(source | idle_guard(60, first=300), form)
    assert type(taken.error) is IdleTimeoutError
    assert loop.took(taken.elapsed, 200 + 60)


async def test_no_first_message_has_an_error_of_its_own(loop, form):
    """T1: `first` names itself, and `except IdleTimeoutError` catches it too."""
    stream = Script(opened("t"), hang()) | idle_guard(300, first=90)
    taken = await take(stream, form)
    assert type(taken.error) is FirstMessageTimeoutError
    assert isinstance(taken.error, IdleTimeoutError)
    assert loop.took(taken.elapsed, 90)
    verdict = taken.error.verdict
    assert (verdict.limit, verdict.first_seen, verdict.messages) == ("first", False, 1)
    assert verdict.token == "t"


async def test_each_turn_has_its_own_first(loop, form):
    """T1, T14: the second prompt's first message may take as long as the first one's."""
    activity = Activity()
    guard = idle_guard(60, first=90, activity=activity)
    source = Script(say("a"), done(), call(activity.mark_prompt), hang())
    taken = await take(source | guard, form)
    assert type(taken.error) is FirstMessageTimeoutError
    assert loop.took(taken.elapsed, 90)


# -- liveness ------------------------------------------------------------------------------------


async def test_liveness_is_unarmed_where_no_pings_come(loop, form):
    """T1: many backends send no pings, and must not be missed for it."""
    source = Script(say("a"), silence(100), say("b"), hang())
    taken = await take(source | idle_guard(120, liveness=30), form)
    assert type(taken.error) is IdleTimeoutError
    assert loop.took(taken.elapsed, 100 + 120)


async def test_a_dead_transport_is_found_in_the_midst_of_a_tool(loop, form):
    """T1: once pings came, their absence counts, during tools and announced waits too."""
    source = Script(
        *(ping(), tool_start("1", "Bash"), waiting("w")),
        *(pings(20, times=3), hang()),
    )
    taken = await take(source | idle_guard(60, liveness=30), form)
    assert type(taken.error) is LivenessTimeoutError
    assert loop.took(taken.elapsed, 60 + 30)
    assert taken.error.verdict.in_flight == ("Bash",)


# -- tools ---------------------------------------------------------------------------------------


def test_a_tool_may_be_silent_for_two_hours(virtual, form):
    """T5: work in flight pauses `idle`, by default for 7200 s."""

    async def main():
        source = Script(say("a"), tool("Bash", 7199), silence(170), done())
        taken = await take(source | idle_guard(180), form)
        assert taken.error is None
        assert taken.elapsed == pytest.approx(7199 + 170)

    virtual(main)


def test_a_tool_that_outlives_two_hours_is_a_verdict(virtual, form):
    """T5: not for ever."""

    async def main():
        taken = await take(Script(say("a"), tool("Bash", 7201), done()) | idle_guard(180), form)
        assert type(taken.error) is ToolTimeoutError
        assert taken.elapsed == pytest.approx(7200)
        verdict = taken.error.verdict
        assert (verdict.limit, verdict.window, verdict.work) == ("tools", 7200, "Bash")
        assert "waited 7,200 s for Bash to finish" in str(taken.error)

    virtual(main)


async def test_each_tool_has_its_own_allowance(loop, form):
    """T5: by name, "*" for the others; None pauses for as long as it takes."""
    tools = {"Bash": 60, "Task": None, "*": 30}
    guard = idle_guard(20, tools=tools)

    async def fate(*steps):
        taken = await take(Script(*steps, done()) | guard, form)
        return type(taken.error), taken.elapsed

    error, elapsed = await fate(tool("Bash", 50))
    assert error is type(None)
    error, elapsed = await fate(tool("Bash", 70))
    assert error is ToolTimeoutError
    assert loop.took(elapsed, 60)
    error, elapsed = await fate(tool("Read", 40))
    assert error is ToolTimeoutError
    assert loop.took(elapsed, 30)
    error, elapsed = await fate(tool("Task", 500))
    assert error is type(None)
    assert loop.took(elapsed, 500)


async def test_a_tool_is_timed_although_the_backend_talks_on_at_once(loop, form):
    """T2, T5: what was ready after the tool's start leaves its deadline where it was."""
    source = Script(say("a"), silence(10), tool_start("Bash"), say("b"), hang())
    taken = await take(source | idle_guard(180, tools=20), form)
    assert type(taken.error) is ToolTimeoutError
    assert loop.took(taken.elapsed, 10 + 20)


async def test_a_verdict_is_what_was_known_when_it_was_decided(loop, form):
    """T7: what is said while the cancelled pull unwinds comes too late for it."""
    activity = Activity()

    async def mutters():
        try:
            await anyio.sleep_forever()
        finally:
            activity.touch()
        yield

    taken = await take(mutters() | idle_guard(60, activity=activity), form)
    assert type(taken.error) is IdleTimeoutError
    assert not taken.error.verdict.first_seen
    assert loop.took(taken.error.verdict.elapsed, 60)


async def test_idle_counts_from_the_tools_result(loop, form):
    """T5: the window after a tool is a whole one."""
    stream = Script(tool("Bash", 200), hang()) | idle_guard(60)
    taken = await take(stream, form)
    assert type(taken.error) is IdleTimeoutError
    assert loop.took(taken.elapsed, 200 + 60)
    assert isinstance(taken.messages[-1], ToolDone)


async def test_of_parallel_tools_the_last_one_ends_the_pause(loop, form):
    """S3: entries are keyed by id; duplicates and strays leave the gate correct."""
    source = Script(
        *(tool_start("1", "Bash"), tool_start("2", "Bash"), tool_start("2", "Bash")),
        *(silence(100), tool_end("1"), tool_end("1"), tool_end("9")),
        *(silence(100), tool_end("2"), hang()),
    )
    taken = await take(source | idle_guard(60), form)
    assert type(taken.error) is IdleTimeoutError
    assert loop.took(taken.elapsed, 200 + 60)


async def test_without_a_gate_a_tool_is_silence(loop, form):
    """O9: `idle_timeout` alone knows no work in flight; the gate beside it does."""
    source = Script(tool("Bash", 100), done())
    taken = await take(source | idle_timeout(60), form)
    assert type(taken.error) is IdleTimeoutError
    assert loop.took(taken.elapsed, 60)
    for both in (
        idle_timeout(60) | inflight_tool_gate(),
        inflight_tool_gate() | idle_timeout(60),
    ):
        taken = await take(source | both, form)
        assert taken.error is None


async def test_background_work_pauses_the_next_turn_too(loop, form):
    """T5, S3: a turn's end drops all entries but those in the background."""
    source = Script(
        *(tool_start("fg", "Bash"), tool_start("bg", "Task", background=True), done()),
        *(say("b"), silence(100), say("c"), silence(100), tool_end("bg")),
        hang(),
    )
    taken = await take(source | idle_guard(60), form)
    assert type(taken.error) is IdleTimeoutError
    assert loop.took(taken.elapsed, 200 + 60)
    assert taken.error.verdict.in_flight == ()


async def test_background_work_has_an_allowance_too(loop, form):
    """T5: background work included."""
    source = Script(tool_start("bg", "Task", background=True), done(), say("b"), hang())
    taken = await take(source | idle_guard(60, tools=200), form)
    assert type(taken.error) is ToolTimeoutError
    assert taken.error.verdict.work == "Task"
    assert loop.took(taken.elapsed, 200)


# -- announced waits -----------------------------------------------------------------------------


async def test_an_announced_wait_pauses_idle_until_its_end(loop, form):
    """S0, T6: what the backend waits for itself is not its silence."""
    source = Script(
        *(say("a"), waiting("w", "rate_limit"), silence(500), wait_ended("w")),
        hang(),
    )
    taken = await take(source | idle_guard(60), form)
    assert type(taken.error) is IdleTimeoutError
    assert loop.took(taken.elapsed, 500 + 60)


def test_an_announced_wait_that_nobody_ends_lapses(virtual, form):
    """S0: without `until` or end it lapses after a hold's allowance, an hour."""

    async def main():
        taken = await take(Script(say("a"), waiting("w"), hang()) | idle_guard(60), form)
        assert type(taken.error) is IdleTimeoutError
        assert taken.elapsed == pytest.approx(3600 + 60)

    virtual(main)


# -- turn and total ------------------------------------------------------------------------------


async def test_a_turn_that_talks_for_ever_ends_at_its_limit(loop, form):
    """T1: `turn` is reset by nothing but the turn's end, and runs during tools."""
    source = Script(repeat(say("x"), tool("Bash", 30)))
    taken = await take(source | idle_guard(60, turn=100), form)
    assert type(taken.error) is TurnTimeoutError
    assert loop.took(taken.elapsed, 100)
    assert taken.error.verdict.in_flight == ("Bash",)


async def test_each_turn_has_its_own_time(loop, form):
    """T1, T14: from its first progress, where no prompt was marked."""
    turn = (say("x"), silence(70), done(), silence(500))
    taken = await take(Script(*turn, *turn, say("x"), hang()) | idle_guard(None, turn=100), form)
    assert type(taken.error) is TurnTimeoutError
    assert loop.took(taken.elapsed, 2 * 570 + 100)


def test_a_turn_is_judged_only_when_nothing_is_ready(virtual, form):
    """T1, T3: the consumer's hour runs on the turn's clock, but a result that waits wins."""

    async def main():
        def dawdle(message):
            return None if isinstance(message, Ended) else anyio.sleep(3600)

        ready = Channel(Script(say("a"), say("b"), done()))
        taken = await take(ready | idle_guard(60, turn=100), form, dawdle)
        assert taken.error is None
        assert len(taken.messages) == 3
        unready = Channel(Script(say("a"), hang()))
        taken = await take(unready | idle_guard(60, turn=100), form, dawdle)
        assert type(taken.error) is TurnTimeoutError
        assert taken.elapsed == pytest.approx(3600)

    virtual(main)


async def test_total_is_never_reset(loop, form):
    """T1: nothing that the backend says gives it more time, a finished turn neither."""
    source = Script(repeat(say("x"), silence(7), done(), silence(7)))
    taken = await take(source | idle_guard(60, total=100), form)
    assert isinstance(taken.error, DeadlineExceededError)
    assert loop.took(taken.elapsed, 100)


def test_total_overdue_is_raised_before_anything_is_asked_for(virtual):
    """T1: bare, at the next pull, though a message would be ready."""

    async def main():
        tap = Tap(Script(*[say("x")] * 5))
        stream = tap | idle_guard(60, total=100)
        taken = await take(stream, "bare", lambda _message: anyio.sleep(70))
        assert type(taken.error) is DeadlineExceededError
        assert (tap.pulls, tap.closed) == (2, 1)
        assert taken.elapsed == pytest.approx(140)

    virtual(main)


@pytest.mark.parametrize("message", [object(), Said("x")], ids=["nobody's", "read"])
@pytest.mark.parametrize(("work", "late"), [(0.00001, 64), (0.01, 1), (30.0, 1)])
def test_total_of_a_consumer_that_never_lets_the_loop_run(virtual, work, late, message):
    """T1: no alarm can ring. The clock is read at each pull, but for many pulls within a moment once for all."""

    class Ready:
        """All there when it is asked for, for ever."""

        pulls = 0

        def __aiter__(self):
            return self

        async def __anext__(self):
            self.pulls += 1
            return message

    source = Ready()
    total = work * 500

    async def main():
        with pytest.raises(DeadlineExceededError):
            async for _ in source | idle_guard(None, total=total):
                block_loop(work)

    virtual(main)
    assert 500 <= source.pulls <= 500 + late


def test_total_that_is_only_told_of_goes_on(virtual):
    """T11: each message is counted, and looked at, while the loop does not run."""
    left = set()

    async def main():
        async def ready():
            for _ in range(50):
                yield object()

        stream = ready() | idle_guard(None, total=10, mode="warn")
        messages = aiter(stream)
        count = 0
        async for _ in messages:
            count += 1
            block_loop(1)
            assert stream.activity.messages == count
            left.add(messages._watch.left)
        assert count == 50

    virtual(main)
    assert min(left) >= 0


@pytest.mark.parametrize(("quick", "late"), [(3, 4), (40, 32), (1000, 64)])
def test_total_of_a_consumer_that_becomes_slow(virtual, quick, late):
    """T1: as many more may pass as came within a moment, and no more than 64."""
    pulls = 0

    async def ready():
        nonlocal pulls
        while True:
            pulls += 1
            yield object()

    async def main():
        with pytest.raises(DeadlineExceededError):
            async for _ in ready() | idle_guard(None, total=100):
                block_loop(0.00001 if pulls < quick else 10)

    virtual(main)
    assert quick + 9 <= pulls <= quick + 10 + late


async def test_total_cuts_the_block_in_which_the_consumer_works(loop):
    """T1, O5: hosted it strikes while the consumer works, and surfaces at the `async with`."""
    disconnect = Disconnect()
    guard = idle_guard(60, total=100, disconnect=disconnect)
    stream = Script(*[say("x")] * 5) | guard
    taken = await take(stream, "hosted", lambda _message: anyio.sleep(70))
    assert type(taken.error) is DeadlineExceededError
    assert len(taken.messages) == 2
    assert loop.took(taken.elapsed, 100)
    assert len(disconnect.calls) == 1


def test_total_runs_from_the_first_pull_not_from_the_pipe(virtual):
    """T1: a stream that is made early and read late has all its time."""

    async def main():
        stream = Script(silence(90), say("a"), hang()) | idle_guard(None, total=100)
        await anyio.sleep(1000)
        taken = await take(stream)
        assert type(taken.error) is DeadlineExceededError
        assert texts(taken) == ["a"]
        assert taken.elapsed == pytest.approx(100)

    virtual(main)


# -- T2: exact, and quiet ------------------------------------------------------------------------


@pytest.mark.parametrize("window", [0.1, 0.3, 1 / 3, 1.1, 59.999, 179.7, 12345.678])
def test_a_deadline_is_exact_and_never_early(virtual, form, window):
    """T2: `>=` at the deadline itself, where binary fractions do not add up."""

    async def main():
        await anyio.sleep(0.7)
        source = Script(say("a"), silence(window / 7), ping(), silence(window / 3), ping(), hang())
        taken = await take(source | idle_guard(window), form)
        verdict = taken.error.verdict
        assert taken.elapsed == pytest.approx(window, abs=1e-9)
        assert verdict.elapsed == pytest.approx(window, abs=1e-9)
        assert verdict.lateness == pytest.approx(0.0, abs=1e-9)

    virtual(main)


async def test_half_time_is_told_once_in_a_silence(loop, form):
    """T2: at half of the window, once, and again in the next silence."""
    events = Events()
    source = Script(
        *(say("a"), silence(50), ping(), silence(5), say("b")),
        *(silence(20), say("c"), hang()),
    )
    taken = await take(source | idle_guard(80, observer=events), form)
    assert type(taken.error) is IdleTimeoutError
    halves = events.of(HalfTime)
    assert [(half.limit, half.window) for half in halves] == [("idle", 80)] * 2
    start = events[0].at
    assert loop.took(halves[0].at - start, 40)
    assert loop.took(halves[1].at - start, 75 + 40)


async def test_half_time_disturbs_nothing(loop, form):
    """T8: a wait that is only to be observed is never cancelled."""
    tap = Tap(Script(say("a"), silence(50), say("b"), done()))
    taken = await take(tap | idle_guard(80), form)
    assert taken.error is None
    assert (tap.cancelled, len(taken.messages)) == (0, 3)


@pytest.fixture
def rings(monkeypatch):
    """How often a timekeeper was woken."""
    count = []
    ring = Timekeeper.ring

    def counted(timekeeper):
        count.append(timekeeper)
        ring(timekeeper)

    monkeypatch.setattr(Timekeeper, "ring", counted)
    return count


def test_a_silence_costs_two_wakeups(virtual, form, rings):
    """T2: half-time and deadline; nothing ticks."""

    async def main():
        taken = await take(Script(say("a"), hang()) | idle_guard(180), form)
        assert type(taken.error) is IdleTimeoutError

    virtual(main)
    assert 1 <= len(rings) <= 2


@pytest.mark.parametrize("every", [0.5, 7.0, 46.0, 59.0, 89.0, 100.0, 179.0])
def test_messages_cost_no_wakeups(virtual, form, rings, every):
    """T2: at most two for each silence, and of short silences most pass without any."""
    messages = int(50 * 180 / every)

    async def main():
        talk = repeat(say("x"), silence(every), times=messages)
        taken = await take(Script(talk, done()) | idle_guard(180), form)
        assert taken.error is None

    virtual(main)
    # A window that nobody watched half of is looked at again after half a window at the latest.
    assert len(rings) <= min(2 * messages, 4 * 50)


def test_pings_cost_no_wakeups(virtual, form, rings):
    """T2: nor do messages that reset nothing, nor tools."""
    rounds = 20

    async def main():
        talk = repeat(tool("Bash", 60), pings(0.25, times=480), say("x"), times=rounds)
        taken = await take(Script(talk, done()) | idle_guard(180, liveness=70), form)
        assert taken.error is None
        assert len(taken.messages) > 480 * rounds

    virtual(main)
    assert len(rings) <= 4 * rounds * 180 / 70


def test_without_limits_nothing_ever_wakes(virtual, form, rings):
    """T2, O9: `idle_guard(None)` is a passthrough."""

    async def main():
        taken = await take(Script(say("a"), silence(100_000), done()) | idle_guard(None), form)
        assert taken.error is None
        assert len(taken.messages) == 2

    virtual(main)
    assert rings == []


# -- T14: between turns --------------------------------------------------------------------------


def test_between_turns_nobody_is_kept_waiting(virtual, form):
    """T14: after the turn's end `idle`, `first`, `liveness` and `turn` do not run."""

    async def main():
        guard = idle_guard(60, first=70, liveness=30, turn=100)
        source = Script(ping(), say("a"), done(), silence(5000), say("b"), hang())
        taken = await take(source | guard, form)
        # A message after the turn's end opens the next one.
        assert type(taken.error) is LivenessTimeoutError
        assert taken.elapsed == pytest.approx(5000 + 30)

    virtual(main)


def test_a_ping_between_turns_opens_none(virtual, form):
    """T14: only Progress and WorkStarted do."""

    async def main():
        source = Script(say("a"), done(), repeat(silence(50), ping(), times=10))
        taken = await take(source | idle_guard(60, liveness=20), form)
        assert taken.error is None
        assert sum(isinstance(message, Pinged) for message in taken.messages) == 10

    virtual(main)


async def test_exit_grace_ends_the_stream_normally(loop, form):
    """T14: the result came and the process never leaves: disconnect, and a run that is a success."""
    disconnect, events = Disconnect(), Events()
    guard = idle_guard(60, exit_grace=30, disconnect=disconnect, observer=events)
    tap = Tap(Script(say("a"), done(), hang()))
    taken = await take(tap | guard, form)
    assert taken.error is None
    assert len(taken.messages) == 2
    assert loop.took(taken.elapsed, 30)
    assert len(disconnect.calls) == 1
    assert tap.closed == 1
    [told] = events.of(TimedOut)
    assert told.verdict.limit == "exit_grace"


def test_without_exit_grace_a_finished_stream_may_stay_open(virtual, form):
    """T14: every knob is optional."""

    async def main():
        taken = await take(Script(say("a"), done(), silence(9999)) | idle_guard(60), form)
        assert taken.error is None
        assert taken.elapsed == pytest.approx(9999)

    virtual(main)


async def test_exit_grace_waits_for_background_work(loop, form):
    """T14: it begins when background work is done."""
    source = Script(
        *(tool_start("bg", "Task", background=True), done()),
        *(silence(100), tool_end("bg"), hang()),
    )
    taken = await take(source | idle_guard(60, exit_grace=30), form)
    assert taken.error is None
    assert loop.took(taken.elapsed, 100 + 30)


async def test_exit_grace_waits_for_announced_turns(loop, form):
    """T14: `more_expected` holds it until that turn has come and gone."""
    source = Script(
        *(say("a"), done(more_expected=True), silence(300)),
        *(say("b"), done(), hang()),
    )
    taken = await take(source | idle_guard(60, exit_grace=30), form)
    assert taken.error is None
    assert texts(taken) == ["a", "b"]
    assert loop.took(taken.elapsed, 300 + 30)


def test_a_turn_that_was_announced_and_never_comes_lapses(virtual, form):
    """T14, S4: an announcement holds the grace for a hold's allowance, not for ever."""

    async def main():
        source = Script(say("a"), done(more_expected=True), hang())
        taken = await take(source | idle_guard(60, exit_grace=30), form)
        assert taken.error is None
        assert taken.elapsed == pytest.approx(3600 + 30)

    virtual(main)


async def test_a_message_within_the_grace_is_delivered(loop, form):
    """T14, T3: what comes after the result and before the grace's end is no reason to end."""
    source = Script(say("a"), done(), silence(20), usage(tokens=1))
    taken = await take(source | idle_guard(60, exit_grace=30), form)
    assert taken.error is None
    assert len(taken.messages) == 3
    assert loop.took(taken.elapsed, 20)


async def test_a_marked_prompt_opens_the_next_turn(loop, form):
    """T14: from `mark_prompt()` on the backend owes an answer."""
    activity = Activity()
    guard = idle_guard(60, exit_grace=100, activity=activity)
    source = Script(
        *(say("a"), done(), silence(50), call(activity.mark_prompt)),
        hang(),
    )
    taken = await take(source | guard, form)
    assert type(taken.error) is IdleTimeoutError
    assert loop.took(taken.elapsed, 50 + 60)


async def test_a_turn_runs_from_the_prompt_that_was_marked_before_it(loop, form):
    """T1: a prompt that was sent before the stream was first pulled began the turn."""
    activity = Activity()
    guard = idle_guard(80, turn=100, activity=activity)
    prompted = anyio.current_time()
    activity.mark_prompt()
    await anyio.sleep(30)
    taken = await take(Script(say("a"), tool("Bash", 90)) | guard, form)
    assert type(taken.error) is TurnTimeoutError
    assert loop.took(anyio.current_time() - prompted, 100)


async def test_the_sessions_token_is_on_the_verdict_of_a_later_turn(loop, form):
    """T7: the latest token wins, and stays known."""
    source = Script(opened("t1"), say("a"), opened("t2"), done(), say("b"), hang())
    taken = await take(source | idle_guard(60), form)
    assert taken.error.verdict.token == "t2"
    assert any(isinstance(message, Opened) for message in taken.messages)


# -- what is said again, and what ran out unseen (T2, T4, T6) ------------------------------------


def compacting(times, apart):
    """A CLI that says over and over that it compacts, and then nothing more."""
    said = waiting("compaction", "compaction")
    return [step for _ in range(times) for step in (said, silence(apart))]


@pytest.mark.parametrize("times", [1, 600])
async def test_compaction_that_is_announced_for_hours_ends(loop, form, times):
    """T6: after its allowance and an idle window, however often it was announced."""
    events = Events()
    stream = Script(*compacting(times, 30), hang()) | idle_guard(600, observer=events)
    taken = await take(stream, form)
    assert type(taken.error) is IdleTimeoutError
    assert loop.took(taken.elapsed, 4200)
    assert len(events.of(TimedOut)) == 1
    assert [len(events.of(kind)) for kind in (HoldBegan, HoldOver)] == [1, 1]


async def test_two_compactions_may_take_an_hour_each(loop, form):
    """T6: something else happened in between."""
    script = Script(*compacting(115, 30), say("done"), *compacting(115, 30), done())
    taken = await take(script | idle_guard(600), form)
    assert taken.error is None
    assert loop.took(taken.elapsed, 6900)


async def test_background_work_that_ran_out_between_turns_is_no_stall(loop, form):
    """T2, T4: the verdict comes with the prompt, at once: the loop has run all the while."""
    events, activity = Events(), Activity()
    script = Script(tool_start("b", "Task", background=True), done(), hang())
    stream = script | idle_guard(600, tools=10, activity=activity, observer=events)
    async with anyio.create_task_group() as tasks:

        async def prompt():
            await anyio.sleep(60)
            activity.mark_prompt()

        tasks.start_soon(prompt)
        taken = await take(stream, form)
    assert type(taken.error) is ToolTimeoutError
    assert loop.took(taken.elapsed, 60)
    assert not events.of(LoopStalled)
