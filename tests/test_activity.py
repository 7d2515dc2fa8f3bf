"""`Activity`: what it shows at each stage, and what others may tell it, from anywhere."""

from __future__ import annotations

import functools
import gc
import threading
import time
from datetime import UTC, datetime, timedelta

import anyio
import pytest

from streamguard import (
    Activity,
    ConfigError,
    IdleTimeoutError,
    TurnTimeoutError,
    activity_stamp,
    idle_guard,
    live,
)
from streamguard import activity as activity_module
from streamguard._guard import attempt as attempt_module
from streamguard.events.teller import Teller
from streamguard.signals import Liveness, WorkFinished, WorkStarted
from streamguard.testing import (
    Script,
    call,
    done,
    hang,
    opened,
    ping,
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
from tests.support import take


def in_thread(function):
    """Call `function` in another thread, to its end, while the loop stands still."""
    errors = []

    def work():
        try:
            function()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert errors == []


async def after(seconds, function):
    await anyio.sleep(seconds)
    function()


# -- what it shows -------------------------------------------------------------------------------


def test_a_new_activity_shows_nothing_yet():
    """O8: it can be made before client and stream, and read at once."""
    activity = Activity("issue-7", issue=7, flow="build")
    assert activity.name == "issue-7"
    assert dict(activity.labels) == {"issue": 7, "flow": "build"}
    assert activity.status == "new"
    assert (activity.pulls, activity.messages) == (0, 0)
    assert activity.started is activity.last_message is activity.last_progress is None
    assert activity.waiting_since is activity.token is None
    assert dict(activity.in_flight) == dict(activity.usage) == {}
    assert activity not in live()
    assert repr(activity) == "<Activity 'issue-7', new, 0 messages>"


def test_labels_cannot_be_changed():
    """O8: evidence carries them as they were given."""
    activity = Activity(issue=7)
    with pytest.raises(TypeError):
        activity.labels["issue"] = 8


def test_every_field_at_every_stage(loop, form):
    """O8: read by others at any time, as somebody beside the stream would see it."""
    activity = Activity("a")
    seen = {}

    def look(stage):
        def note():
            counts = (activity.pulls, activity.messages)
            told = (dict(activity.in_flight), activity.token, dict(activity.usage))
            seen[stage] = (activity.status, counts, told)

        return Script(silence(1), call(note))  # a pull waits only once nothing is ready

    async def main():
        start = anyio.current_time()

        async def consume(message):
            if getattr(message, "text", "") == "hello":
                seen["in the body"] = (activity.status, activity.pulls, activity.messages)
                await anyio.sleep(100)

        async def look_from_beside():
            await anyio.sleep(5)
            seen["first wait"] = (activity.status, activity.waiting_since - start)
            assert activity in live()

        source = Script(
            *(silence(10), opened("t-1"), look("opened"), usage(input=3), say("hello")),
            *(tool_start("1", "Bash"), look("working"), tool_end("1")),
            *(waiting("w"), look("held"), wait_ended("w"), look("waiting")),
            *(done(), look("between")),
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(look_from_beside)
            ends = await take(source | idle_guard(180, activity=activity), form, consume)
        assert ends.error is None
        assert activity.started == start

    loop.run(main)
    assert seen["first wait"] == ("waiting", 0.0)
    assert seen["in the body"] == ("streaming", 3, 3)
    assert seen["opened"] == ("waiting", (2, 1), ({}, "t-1", {}))
    assert seen["working"] == ("working", (5, 4), ({"1": "Bash"}, "t-1", {"input": 3}))
    assert seen["held"][0] == "held"
    assert seen["waiting"][0] == "waiting"
    assert seen["between"][0] == "between turns"
    assert activity.status == "ended"
    assert activity.messages == 8
    assert activity.pulls == 9  # the last one brought the end
    assert activity.waiting_since is None
    assert activity not in live()
    assert activity.token == "t-1"


async def test_a_ping_is_a_message_and_no_progress(loop, form):
    """O8, T1: `last_message` and `last_progress` part ways."""
    activity = Activity()
    seen = []
    source = Script(
        say("a"),
        silence(20),
        ping(),
        call(lambda: seen.append(activity.last_message - activity.last_progress)),
    )
    await take(source | idle_guard(60, activity=activity), form)
    assert loop.took(seen[0], 20)


async def test_an_error_carries_the_activity(loop, form):
    """O8, T7: and the verdict its name and labels."""
    activity = Activity("issue-7", issue=7)
    guard = idle_guard(60, activity=activity)
    error = (await take(Script(hang()) | guard, form)).error
    assert error.activity is activity
    assert (error.verdict.name, error.verdict.labels) == ("issue-7", {"issue": 7})
    assert str(error).startswith("stream 'issue-7' idle for")
    assert activity.status == "ended"


async def test_without_one_a_stream_makes_its_own(loop, form):
    """O8: `Guarded.activity`."""
    stream = Script(say("a"), done()) | idle_guard(60)
    assert stream.activity.status == "new"
    await take(stream, form)
    assert stream.activity.messages == 2


async def test_one_activity_turn_after_turn(loop, form):
    """O1, O8: counts and the token go on, the rest shows the latest."""
    activity = Activity()
    guard = idle_guard(60, activity=activity)
    await take(Script(opened("t"), say("a"), done()) | guard, form)
    assert (activity.messages, activity.pulls, activity.status) == (3, 4, "ended")
    started = activity.started
    await anyio.sleep(500)
    seen = []
    look = call(lambda: seen.append(activity.status))
    await take(Script(say("b"), silence(1), look) | guard, form)
    assert seen == ["waiting"]
    assert (activity.messages, activity.pulls) == (4, 6)
    assert loop.took(activity.started - started, 500)
    assert activity.token == "t"


async def test_two_streams_at_once_are_refused(loop, form):
    """O1: one activity serves one stream at a time, and says so."""
    activity = Activity("shared")
    guard = idle_guard(60, activity=activity)

    async def second(_message):
        other = await take(Script(say("b")) | guard, form)
        refusals.append(other.error)

    async def beside():
        await anyio.sleep(10)
        await second(None)

    refusals = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(beside)
        taken = await take(Script(silence(20), say("a")) | guard, form)
    assert taken.error is None
    [refusal] = refusals
    assert isinstance(refusal, RuntimeError)
    assert "another stream right now" in str(refusal)
    assert activity.messages == 1


async def test_an_abandoned_stream_leaves_live_at_once(loop):
    """O7, O8: a bare `break`, and nobody holds the stream: its activity is no longer live."""
    activity = Activity("kept")
    source = aiter(Script(say("a"), hang()))
    stream = aiter(source | idle_guard(60, activity=activity))
    await anext(stream)
    assert activity in live()
    assert activity.status == "streaming"
    del stream
    gc.collect()
    assert activity not in live()
    assert activity.status == "ended"
    assert activity.messages == 1
    await source.aclose()


async def test_an_older_stream_that_closes_late_does_not_end_the_newer(loop):
    """O1, O8: what is shown is the latest stream, in whatever order they are closed."""
    activity = Activity()
    guard = idle_guard(60, activity=activity)
    older = Script(say("a"), hang()) | guard
    async for _ in older:
        break
    newer = aiter(Script(say("b"), hang()) | guard)
    await anext(newer)
    await older.aclose()
    assert activity in live()
    assert activity.status == "streaming"
    await newer.aclose()
    assert activity not in live()


async def test_live_lists_what_streams_now(loop, form):
    """O8: all of a process, each until its end."""
    a, b = Activity("a"), Activity("b")
    listed = []

    def look():
        # What an earlier test has abandoned may be there, too, until it is collected.
        listed.append([each for each in (a, b) if each in live()])

    async def run(activity, seconds):
        source = Script(say("x"), silence(seconds), call(look))
        await take(source | idle_guard(None, activity=activity), form)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, a, 100)
        tasks.start_soon(run, b, 200)
    look()
    assert listed == [[a, b], [b], []]


# -- stamps --------------------------------------------------------------------------------------


async def test_a_stamp_fills_an_activity(loop, form):
    """O8: `activity_stamp(activity)` is the same as `activity=`."""
    activity = Activity()
    await take(Script(say("a"), ping()) | activity_stamp(activity), form)
    assert activity.messages == 2


async def test_a_stamp_calls_a_heartbeat_at_each_message(loop, form):
    """O8: a function gets the activity, with the message counted already."""
    counts = []
    source = Script(say("a"), ping(), say("b"), say("c"))
    stamp = activity_stamp(lambda activity: counts.append(activity.messages))
    await take(source | stamp, form)
    assert counts == [1, 2, 3, 4]


async def test_a_heartbeat_comes_at_most_so_often(loop, form):
    """O8: `every` seconds."""
    times = []
    stamp = activity_stamp(lambda _: times.append(anyio.current_time()), every=30)
    source = Script(repeat(say("x"), silence(10), times=10), hang())
    await take(source | idle_guard(180) | stamp, form)
    assert [t - times[0] for t in times] == [0, 30, 60, 90]


async def test_each_stamp_has_its_own_interval(loop, form):
    """T12: callbacks accumulate."""
    often, seldom = [], []
    source = Script(repeat(say("x"), silence(10), times=10))
    stamps = activity_stamp(often.append) | activity_stamp(
        seldom.append, every=timedelta(seconds=50)
    )
    await take(source | stamps, form)
    assert (len(often), len(seldom)) == (10, 2)


def test_a_heartbeat_that_raises_disturbs_nothing(loop, form, caplog):
    """E6: it is logged, and the stream goes on."""

    async def main():
        def broken(_activity):
            raise ValueError("a full disk")

        taken = await take(Script(say("a"), say("b")) | activity_stamp(broken), form)
        assert taken.error is None
        assert len(taken.messages) == 2

    loop.run(main)
    assert "a full disk" in caplog.text


# -- holds ---------------------------------------------------------------------------------------


async def test_a_hold_pauses_idle_and_its_end_starts_a_fresh_window(loop, form):
    """T6: what the stream cannot show."""
    activity = Activity()

    async def permission():
        await anyio.sleep(40)
        with activity.hold("permission"):
            await anyio.sleep(300)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(permission)
        taken = await take(Script(hang()) | idle_guard(60, activity=activity), form)
    assert type(taken.error) is IdleTimeoutError
    assert loop.took(taken.elapsed, 40 + 300 + 60)


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_hold_decorates_the_callback_that_asks(loop, form, kind):
    """T6: a permission callback that the client calls from within the stream's own task."""
    activity = Activity()

    @activity.hold("permission")
    async def ask(question, *, seconds):
        """Ask somebody."""
        await anyio.sleep(seconds)
        return f"{question}: yes"

    @activity.hold("permission")
    def ask_at_once(question, *, seconds):
        """Ask somebody."""
        assert activity.status == "held"
        return f"{question}: yes"

    asking = ask if kind == "async" else ask_at_once
    assert asking.__doc__ == "Ask somebody."

    async def backend():
        answer = asking("rm?", seconds=500)
        yield answer if isinstance(answer, str) else await answer
        yield "done"

    taken = await take(backend() | idle_guard(60, activity=activity), form)
    assert taken.error is None
    assert taken.messages == ["rm?: yes", "done"]
    assert loop.took(taken.elapsed, 500 if kind == "async" else 0)


@pytest.mark.parametrize("kind", ["lambda", "object", "method", "partial"])
async def test_a_callback_that_only_returns_an_awaitable_is_held_to_its_end(loop, kind):
    """T6: callbacks come in many makes, and few of them are coroutine functions."""
    activity = Activity()

    async def ask():
        await anyio.sleep(100)

    class Asks:
        async def __call__(self):
            await ask()

    callback = {
        "lambda": lambda: ask(),  # noqa: PLW0108 - a lambda is the point
        "object": Asks(),
        "method": Asks().__call__,
        "partial": functools.partial(ask),
    }[kind]
    for _ in range(2):
        source = Script(say("a"), call(activity.hold()(callback)), say("b"))
        taken = await take(source | idle_guard(60, activity=activity))
        assert taken.error is None
        assert loop.took(taken.elapsed, 100)


def test_a_generator_cannot_be_held_by_its_call():
    """T6: it would hold nothing, so it is refused."""
    activity = Activity()

    async def messages():
        yield 1

    def lines():
        yield 1

    for generator in (messages, lines):
        with pytest.raises(TypeError, match="a generator does its work when it is iterated"):
            activity.hold()(generator)


def test_a_hold_that_was_not_called():
    """T6, T12: `@activity.hold` without its parentheses would replace the callback."""
    activity = Activity()
    with pytest.raises(ConfigError, match=r'as a decorator, @activity.hold\("permission"\)'):
        activity.hold(lambda: None)
    with pytest.raises(TypeError, match="hold cannot decorate 7"):
        activity.hold()(7)


def test_a_name_is_a_string():
    """O8, T12"""
    with pytest.raises(ConfigError, match=r"Activity\(7\): give it a name"):
        Activity(7)


async def test_concurrent_calls_of_one_decorated_callback(loop):
    """T6: each call is its own hold, ended in any order."""
    activity = Activity()

    @activity.hold("permission")
    async def ask(seconds):
        await anyio.sleep(seconds)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask, 200)
        tasks.start_soon(ask, 100)
        taken = await take(Script(hang()) | idle_guard(60, activity=activity))
    assert loop.took(taken.elapsed, 200 + 60)


async def test_the_last_message_came_when_it_came(loop, form):
    """O8: not when the one before it did, nor when the consumer is done with it."""
    activity = Activity()
    seen, came = [], []

    async def dawdle(_message):
        came.append(anyio.current_time())
        await anyio.sleep(100)
        seen.append((activity.last_message, activity.last_progress))

    source = Script(repeat(say("x"), silence(10), times=4), done())
    taken = await take(source | idle_guard(180, activity=activity), form, dawdle)
    assert taken.error is None
    assert seen == [(at, at) for at in came]


async def test_holds_nest(loop, form):
    """T6: the end of the last one starts the window."""
    activity = Activity()

    async def nested():
        with activity.hold("outer"):
            await anyio.sleep(100)
            with activity.hold("inner"):
                await anyio.sleep(100)
            await anyio.sleep(100)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(nested)
        taken = await take(Script(hang()) | idle_guard(60, activity=activity), form)
    assert loop.took(taken.elapsed, 300 + 60)


async def test_one_hold_can_be_entered_again(loop):
    """T6: reusable, within itself too."""
    activity = Activity()
    hold = activity.hold("again")

    async def twice():
        with hold, hold:
            await anyio.sleep(100)
        with hold:
            await anyio.sleep(100)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(twice)
        taken = await take(Script(hang()) | idle_guard(60, activity=activity))
    assert loop.took(taken.elapsed, 200 + 60)


async def test_a_hold_lapses_by_itself(loop, form):
    """T6: always bounded, by default by an hour; the lapse starts a fresh window."""
    activity = Activity()

    async def forget(statuses):
        await anyio.sleep(50)
        with activity.hold("forgotten"):
            await anyio.sleep(3599)
            statuses.append(activity.status)
            await anyio.sleep(2)
            statuses.append(activity.status)
            await anyio.sleep(9999)

    statuses = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(forget, statuses)
        taken = await take(Script(hang()) | idle_guard(60, activity=activity), form)
        tasks.cancel_scope.cancel()
    assert type(taken.error) is IdleTimeoutError
    assert taken.elapsed == pytest.approx(50 + 3600 + 60)
    assert statuses == ["held", "waiting"]


@pytest.mark.parametrize("allowance", [100, timedelta(seconds=100)])
async def test_an_allowance_can_be_written(loop, allowance):
    """T6, T12: seconds or a timedelta."""
    activity = Activity()
    with activity.hold("short", allowance=allowance):
        taken = await take(Script(hang()) | idle_guard(60, activity=activity))
    assert taken.elapsed == pytest.approx(160)


@pytest.fixture
def wall(monkeypatch):
    """The wall clock, standing at noon."""
    noon = datetime(2030, 1, 1, 12, tzinfo=UTC).timestamp()
    monkeypatch.setattr(time, "time", lambda: noon)
    return noon


@pytest.mark.parametrize("kind", ["epoch", "datetime", "zone"])
async def test_until_is_a_wall_clock_time(loop, wall, kind):
    """T6: an aware datetime of any zone, or an epoch."""
    until = {
        "epoch": wall + 5000,
        "datetime": datetime.fromtimestamp(wall + 5000, UTC),
        "zone": datetime.fromtimestamp(wall + 5000).astimezone(),
    }[kind]

    activity = Activity()
    with activity.hold("rate limit", until=until):
        taken = await take(Script(hang()) | idle_guard(60, activity=activity))
    assert taken.elapsed == pytest.approx(5000 + 60)


@pytest.mark.parametrize(("allowance", "held"), [(100, 100), (9000, 5000)])
async def test_of_until_and_allowance_the_first_comes(loop, wall, allowance, held):
    """T6, T12: of two that were written the tightest wins."""
    activity = Activity()
    with activity.hold("limit", allowance=allowance, until=wall + 5000):
        taken = await take(Script(hang()) | idle_guard(60, activity=activity))
    assert taken.elapsed == pytest.approx(held + 60)


async def test_until_that_is_past_holds_nothing(loop, wall):
    """T6: but its end is an end, and starts a fresh window."""
    activity = Activity()

    async def late():
        await anyio.sleep(50)
        with activity.hold("rate limit", until=wall - 10):
            await anyio.sleep(5)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(late)
        taken = await take(Script(hang()) | idle_guard(60, activity=activity))
    assert taken.elapsed == pytest.approx(50 + 60)


@pytest.mark.parametrize(
    "until",
    [
        pytest.param(datetime(2030, 1, 1), id="naive"),  # noqa: DTZ001 - naive on purpose
        pytest.param(float("nan"), id="nan"),
        pytest.param(float("inf"), id="inf"),
        pytest.param(10**400, id="beyond all floats"),
        pytest.param("2030-01-01", id="str"),
        pytest.param(True, id="bool"),
        pytest.param(timedelta(5), id="timedelta"),
    ],
)
def test_until_must_be_a_certain_instant(until):
    """T6, T12: it is refused where it is written."""
    with pytest.raises(ConfigError, match=r"hold\(until=.*aware"):
        Activity().hold("rate limit", until=until)


@pytest.mark.parametrize(
    "allowance", [0, -1, float("nan"), float("inf"), True, "off", "long", None]
)
def test_an_allowance_must_be_a_positive_number(allowance):
    """T6: always bounded, so None is no allowance either."""
    with pytest.raises(ConfigError, match="allowance="):
        Activity().hold(allowance=allowance)


async def test_a_hold_made_before_the_stream_exists(loop, form):
    """T6: it holds from the first pull on, and its allowance runs from when it was made."""
    activity = Activity()
    with activity.hold("login", allowance=100):
        await anyio.sleep(70)
        taken = await take(Script(hang()) | idle_guard(60, activity=activity), form)
    assert taken.elapsed == pytest.approx(30 + 60)


async def test_a_hold_over_before_the_stream_exists_holds_nothing(loop):
    """T6"""
    activity = Activity()
    with activity.hold("login"):
        await anyio.sleep(70)
    taken = await take(Script(hang()) | idle_guard(60, activity=activity))
    assert taken.elapsed == pytest.approx(60)


def test_a_hold_made_where_no_loop_runs(loop):
    """T6: in a program's synchronous part, before the loop was started."""
    activity = Activity()
    with activity.hold("login", allowance=7200):

        async def main():
            # What passed on no loop's clock passed on the machine's.
            taken = await take(Script(hang()) | idle_guard(60, activity=activity))
            assert 7200 < taken.elapsed <= 7260

        loop.run(main)


def test_a_hold_made_in_one_loop_holds_in_the_next():
    """T6: clocks of two loops have nothing in common (trio's starts anywhere)."""
    activity = Activity()
    hold = activity.hold("login", allowance=7200)

    async def begin():
        hold.__enter__()
        await anyio.sleep(1_000_000)  # of that loop's time, which is nobody else's

    async def main():
        taken = await take(Script(hang()) | idle_guard(60, activity=activity))
        assert 7200 < taken.elapsed <= 7260

    run_virtual(begin, backend="trio")
    run_virtual(main, backend="asyncio")


async def test_a_hold_lasts_over_several_streams(loop):
    """T6, O1: it is the activity's, and its allowance does not begin anew with each stream."""
    activity = Activity()
    guard = idle_guard(60, activity=activity)
    with activity.hold("login", allowance=100):
        taken = await take(Script(silence(70), say("a")) | guard)
        assert taken.error is None
        taken = await take(Script(hang()) | guard)
    assert taken.elapsed == pytest.approx(30 + 60)


# -- touch and mark_prompt -----------------------------------------------------------------------


async def test_a_touch_counts_as_progress(loop, form):
    """T6: evidence from elsewhere (stderr, a growing file)."""
    activity = Activity()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(after, 50, activity.touch)
        taken = await take(Script(hang()) | idle_guard(60, activity=activity), form)
    assert loop.took(taken.elapsed, 50 + 60)
    assert taken.error.verdict.messages == 0


def test_a_touch_of_no_stream_is_nothing():
    """T6: before the first pull, after the end, outside of any loop."""
    activity = Activity()
    activity.touch()
    assert activity.last_progress is None
    run_virtual(take, Script(say("a")) | idle_guard(60, activity=activity))
    last = activity.last_progress
    activity.touch()
    assert activity.last_progress == last


async def test_a_prompt_that_was_marked_between_two_streams(loop):
    """T1, T14: the next stream's turn began with it."""
    activity = Activity()
    guard = idle_guard(80, turn=100, activity=activity)
    await take(Script(say("a"), done()) | guard)
    await anyio.sleep(1000)
    activity.mark_prompt()
    await anyio.sleep(30)
    taken = await take(Script(say("b"), tool("Bash", 200)) | guard)
    assert type(taken.error) is TurnTimeoutError
    assert taken.elapsed == pytest.approx(70)
    taken = await take(Script(say("c"), tool("Bash", 200)) | guard)
    assert taken.elapsed == pytest.approx(100)


# -- from other threads --------------------------------------------------------------------------


async def test_a_touch_from_another_thread_reaches_a_parked_pull(loop, form):
    """T6: it is marshalled to the loop, and moves the deadline that was set."""
    activity = Activity()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(after, 50, lambda: in_thread(activity.touch))
        taken = await take(Script(hang()) | idle_guard(60, activity=activity), form)
    assert loop.took(taken.elapsed, 50 + 60)


async def test_a_hold_from_another_thread_pauses_a_parked_pull(loop, form):
    """T6: begun in one thread and ended in another."""
    activity = Activity()
    hold = activity.hold("approval in the browser")

    async def approve():
        await anyio.sleep(40)
        in_thread(hold.__enter__)
        await anyio.sleep(300)
        assert activity.status == "held"
        in_thread(lambda: hold.__exit__(None, None, None))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(approve)
        taken = await take(Script(hang()) | idle_guard(60, activity=activity), form)
    assert type(taken.error) is IdleTimeoutError
    assert loop.took(taken.elapsed, 40 + 300 + 60)


async def test_a_hold_that_is_over_before_the_loop_heard_of_it(loop):
    """T6: a thread's short hold leaves nothing behind."""
    activity = Activity()

    def briefly():
        with activity.hold("a moment"):
            pass

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(after, 10, lambda: in_thread(briefly))
        taken = await take(Script(hang()) | idle_guard(60, activity=activity))
    assert type(taken.error) is IdleTimeoutError
    assert taken.elapsed <= 70 + 2.0


async def test_a_prompt_marked_in_another_thread(loop, form):
    """T6, T14: opens the turn in a stream that waits between turns."""
    activity = Activity()
    guard = idle_guard(60, activity=activity)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(after, 500, lambda: in_thread(activity.mark_prompt))
        taken = await take(Script(say("a"), done(), hang()) | guard, form)
    assert type(taken.error) is IdleTimeoutError
    assert loop.took(taken.elapsed, 500 + 60)


def test_a_hold_ended_after_the_loop_was_closed(loop):
    """T6: a thread that comes too late finds nobody, and no error."""
    activity = Activity()
    hold = activity.hold("approval")
    kept = []

    async def main():
        stream = aiter(Script(say("a"), hang()) | idle_guard(60, activity=activity))
        await anext(stream)
        kept.append(stream)
        hold.__enter__()

    loop.run(main)
    in_thread(lambda: hold.__exit__(None, None, None))
    in_thread(activity.touch)
    assert len(kept) == 1


def test_live_is_read_while_other_threads_begin_streams(loop):
    """O8: at any time, from anywhere."""
    stop = threading.Event()
    errors = []

    def read():
        try:
            while not stop.is_set():
                for activity in live():
                    repr(activity)
        except BaseException as error:
            errors.append(error)

    async def main():
        for _ in range(300):
            await take(Script(say("a")) | idle_guard(60))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        loop.run(main)
    finally:
        stop.set()
        reader.join()
    assert errors == []


@pytest.mark.parametrize("until", [30, 0, 1_763_000_000_000, datetime(1970, 1, 2, tzinfo=UTC)])
def test_an_instant_that_is_none(until):
    """T6: a duration, or milliseconds, would hold for ever or not at all."""
    with pytest.raises(
        ConfigError, match="more than a year from now: use seconds since the epoch"
    ):
        Activity().hold(until=until)


# -- what is said beside the stream ----------------------------------------------------------------


@pytest.mark.parametrize("from_thread", [False, True])
async def test_signals_that_come_beside_the_stream(loop, form, from_thread):
    """S0, T5: they mean what they mean in a message, and are none."""
    activity = Activity()

    def hear(*signals):
        def say_it():
            activity.hear(*signals)

        return call((lambda: in_thread(say_it)) if from_thread else say_it)

    work = (hear(WorkStarted("w", "search")), silence(500), hear(WorkFinished("w")))
    script = Script(say("a"), *work, silence(50), say("b"), *work[:1], hang())
    taken = await take(script | idle_guard(60, tools=600, activity=activity), form)
    assert loop.took(taken.elapsed, 1150)
    assert taken.error.verdict.limit == "tools"
    assert activity.messages == 2


async def test_what_is_heard_shows_that_the_transport_lives(loop, form):
    """T1: and does no work."""
    activity = Activity()
    beating = repeat(silence(10), call(lambda: activity.hear(Liveness())), times=3)
    guard = idle_guard(200, liveness=40, activity=activity)
    taken = await take(Script(say("a"), beating, hang()) | guard, form)
    assert loop.took(taken.elapsed, 70)
    assert taken.error.verdict.limit == "liveness"


def test_only_signals_can_be_heard():
    """S2: and where no stream is guarded, nobody hears them."""
    activity = Activity()
    activity.hear(Liveness())
    assert activity.status == "new"
    with pytest.raises(TypeError, match=r"hear\('ping'\): pass signals"):
        activity.hear("ping")


# -- made when it is asked for -------------------------------------------------------------------


class Holder:
    """What a stream is left in, for the collector to find."""

    def __init__(self, stream):
        self.stream, self.me = stream, self


class Ready:
    """All there when it is asked for, for ever; and no generator, of which trio would complain."""

    def __aiter__(self):
        return self

    async def __anext__(self):
        return "x"


async def left_to_the_collector():
    stream = aiter(Ready() | idle_guard(60))
    await anext(stream)
    Holder(stream)


async def test_a_stream_that_is_collected_is_not_live_any_more(loop):
    """O7, E5: the collector clears all references to it before it says so itself."""
    gc.collect()
    before = len(activity_module._live)
    for _ in range(20):
        await left_to_the_collector()
    gc.collect()
    assert len(activity_module._live) == before


async def test_the_collector_may_end_a_stream_while_another_s_activity_is_made(loop, monkeypatch):
    """E5: it runs at any line, in this very thread."""
    stream = Script(repeat(say("x"))) | idle_guard(60)
    messages = aiter(stream)
    await anext(messages)
    await left_to_the_collector()
    collected = []

    class Collecting(Activity):
        def __init__(self, *args, **kwargs):
            collected.append(gc.collect())
            super().__init__(*args, **kwargs)

    monkeypatch.setattr(attempt_module, "Activity", Collecting)
    assert stream.activity in live()
    assert collected
    await messages.aclose()


async def test_an_activity_that_another_thread_asks_for_while_the_stream_begins(loop, monkeypatch):
    """E5, T6: it is bound all the same, and holds."""
    inside = threading.Event()

    class Slow(Teller):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            inside.set()
            time.sleep(0.2)  # the first pull is made meanwhile, or waits for this

    monkeypatch.setattr(attempt_module, "Teller", Slow)
    stream = Script(repeat(say("x"))) | idle_guard(60)
    messages = aiter(stream)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(stream.activity))
    thread.start()
    assert inside.wait(30)
    await anext(messages)
    thread.join()
    assert seen == [stream.activity]
    assert stream.activity.messages == 1
    assert stream.activity in live()
    await messages.aclose()
    assert stream.activity not in live()
