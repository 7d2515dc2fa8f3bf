"""What may be written for a knob, and what the environment may say."""

from __future__ import annotations

import functools
import linecache
import math
import os
import warnings
from datetime import timedelta
from fractions import Fraction
from types import SimpleNamespace

import pytest

from streamguard import (
    Activity,
    ConfigError,
    IdleTimeoutError,
    StreamGuardWarning,
    activity_stamp,
    derived_idle,
    idle_guard,
    idle_timeout,
    inflight_tool_gate,
)
from streamguard.testing import FakeClient, Script, hang, run_virtual, say
from tests.support import Disconnect, Events, take

KNOBS = ["first", "liveness", "turn", "exit_grace", "total", "tools", "disconnect_timeout"]


def off(knob):
    """What an error says of no limit: a disconnect is always bounded."""
    return "" if knob == "disconnect_timeout" else " (None, 0 or 'off' = no limit)"


def limits_of(operator):
    """The limits that are on, and the tools' allowances."""
    limits = operator.limits
    names = ("idle", "first", "liveness", "turn", "exit_grace", "total")
    return {name: getattr(limits, name) for name in names if getattr(limits, name) is not None}


def line_of(warning):
    """The line that a warning points at, which must be one of this file."""
    assert warning.filename == __file__
    return linecache.getline(warning.filename, warning.lineno)


def no_observer(_event):
    pass


# -- values --------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [-1, -0.5, math.nan, math.inf, -math.inf, "inf"])
@pytest.mark.parametrize("knob", KNOBS)
def test_a_limit_is_a_positive_number(knob, value):
    """T12: refused where it is written, by its name, with what to write instead."""
    with pytest.raises(ConfigError) as refused:
        idle_guard(180, **{knob: value})
    assert str(refused.value) == f"{knob}={value!r}: use a positive number of seconds{off(knob)}"


@pytest.mark.parametrize("value", [True, False, "soon", b"180", [180], Fraction(1, 2), 1j, ""])
@pytest.mark.parametrize("knob", KNOBS)
def test_a_limit_is_a_number_at_all(knob, value):
    """T12: `idle=True` and `total="soon"` are mistakes, and say what is right."""
    with pytest.raises(ConfigError) as refused:
        idle_guard(180, **{knob: value})
    assert str(refused.value) == (
        f"{knob}={value!r}: use seconds, a timedelta, or a text such as "
        f'"90s", "15m" or "1h30m"{off(knob)}'
    )


@pytest.mark.parametrize("knob", KNOBS)
def test_a_limit_that_is_written_in_words_is_told_how(knob):
    with pytest.raises(ConfigError) as refused:
        idle_guard(180, **{knob: "15 min"})
    assert str(refused.value) == f"{knob}='15 min': write \"15m\""


@pytest.mark.parametrize("value", [0, 0.0, timedelta(0), "0", "0s", "off", " Off ", None])
def test_zero_is_no_limit_wherever_one_may_be_off(value):
    """T12: as in a file, the environment and a flag."""
    assert limits_of(idle_guard(value)) == {}
    assert idle_timeout(value).limits.idle is None
    for knob in ("first", "liveness", "turn", "exit_grace", "total"):
        assert limits_of(idle_guard(180, **{knob: value})) == {"idle": 180}
    limits = idle_guard(180, tools={"Bash": value}, quiet=value, after_sleep=value).limits
    assert limits.allowance("Bash") is None
    assert (limits.quiet, limits.after_sleep) == (None, None)
    for knob in ("repeats", "tokens", "cost", "calls"):
        assert knob not in limits_of(idle_guard(180, **{knob: value}))
    assert idle_guard(180, repeats=value, tokens=value, cost=value, calls=value).limits == (
        idle_guard(180, repeats=None).limits
    )
    with pytest.raises(ConfigError, match="repeats is off"):
        idle_guard(180, repeats=value, end_on="repeats")


@pytest.mark.parametrize("value", [0, timedelta(0), "0", "0s", "off"])
def test_a_limit_that_must_be_there_says_that_it_cannot_be_off(value):
    with pytest.raises(
        ConfigError, match=r"disconnect_timeout=.*: it cannot be off; use a positive"
    ):
        idle_guard(180, disconnect_timeout=value)


@pytest.mark.parametrize("value", [0, timedelta(0), "0", "0s"])
def test_zero_of_a_wait_is_at_once(value):
    assert idle_guard(180, kill_grace=value).plan.kill_grace == 0
    with pytest.raises(ConfigError, match="kill_grace='off': use seconds"):
        idle_guard(180, kill_grace="off")


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("90", 90), ("90s", 90), ("15m", 900), ("1h30m", 5400), ("500ms", 0.5)],
)
def test_a_text_that_begins_with_a_digit_is_a_duration(written, seconds):
    """And so no name of a preset: `idle_guard("15m")`, `idle_guard("multica", idle="15m")`."""
    assert limits_of(idle_guard(written)) == {"idle": seconds}
    assert limits_of(idle_guard(idle=written)) == {"idle": seconds}
    assert limits_of(idle_timeout(written)) == {"idle": seconds}
    assert limits_of(idle_guard("multica", idle=written)) == {"idle": seconds}
    assert limits_of(idle_guard("multica").replace(written)) == {"idle": seconds}
    limits = idle_guard(180, tools={"Bash": written}, first=written).limits
    assert (limits.allowance("Bash"), limits.first) == (seconds, seconds)
    with pytest.raises(ConfigError, match="are both the idle limit"):
        idle_guard("10m", idle=written)


@pytest.mark.parametrize("value", [-1, math.nan, math.inf, True, [180]])
def test_idle_is_no_exception(value):
    """T12: in each operator that takes it."""
    for operator in (idle_guard, idle_timeout):
        with pytest.raises(ConfigError, match=r"^idle="):
            operator(value)


def test_a_number_beyond_all_floats_is_refused_too():
    """T12: an int may be larger than any instant."""
    with pytest.raises(ConfigError, match="use a positive number"):
        idle_guard(10**400)


def test_a_config_error_is_a_value_error():
    """T12: so that code which knows nothing of streamguard can catch it."""
    with pytest.raises(ValueError, match="idle=-1"):
        idle_guard(-1)


@pytest.mark.parametrize("value", [timedelta(seconds=-1), timedelta.min], ids=["-1", "min"])
def test_a_timedelta_must_be_positive_too(value):
    """T12"""
    with pytest.raises(ConfigError, match="positive"):
        idle_guard(value)


def test_a_timedelta_is_its_seconds():
    """T12: seconds or `timedelta`, for every knob."""
    minute = timedelta(minutes=1)
    two = timedelta(minutes=2)
    operator = idle_guard(minute, first=two, tools={"Bash": minute}, turn=timedelta(hours=1))
    assert limits_of(operator) == {"idle": 60, "first": 120, "turn": 3600}
    assert operator.limits.allowance("Bash") == 60


def test_none_is_off():
    """T12, O9: every knob is optional."""
    assert limits_of(idle_guard(None)) == {}
    assert limits_of(idle_guard(180, first=None, total=None)) == {"idle": 180}
    assert idle_guard(180, tools=None).limits.allowance("Bash") is None
    assert idle_timeout(None).limits.idle is None


def test_tools_by_name():
    """T5: `tools[...]` names the one that is wrong."""
    limits = idle_guard(180, tools={"Bash": 60, "Task": None}).limits
    assert [limits.allowance(name) for name in ("Bash", "Task", "Read")] == [60, None, 7200]
    limits = idle_guard(180, tools={"Bash": 60, "*": 30}).limits
    assert [limits.allowance(name) for name in ("Bash", "Read")] == [60, 30]
    with pytest.raises(ConfigError, match=r"tools\['Bash'\]=-1: use a positive number"):
        idle_guard(180, tools={"Bash": -1})
    with pytest.raises(ConfigError, match=r"tools\['\*'\]='long': use seconds"):
        inflight_tool_gate({"*": "long"})


@pytest.mark.parametrize("every", [-1, math.nan, "off", True])
def test_a_stamp_every_so_often(every):
    """T12"""
    with pytest.raises(ConfigError, match="every="):
        activity_stamp(no_observer, every=every)


# -- presets -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pace", "limits"),
    [
        ("tokens", {"idle": 120, "first": 300}),
        ("messages", {"idle": 900}),
        ("command", {"idle": 1800}),
    ],
)
def test_a_preset_by_how_finely_the_backend_talks(pace, limits):
    """O9"""
    assert limits_of(idle_guard(pace)) == limits


def test_what_is_written_beside_a_preset_wins():
    """O9, T12: the preset's `first` is a default."""
    assert limits_of(idle_guard("tokens", first=60)) == {"idle": 120, "first": 60}
    assert limits_of(idle_guard("tokens") | idle_guard(None, first=600))["first"] == 600


def test_a_preset_that_there_is_not():
    """O9, T12: the error lists those that there are."""
    with pytest.raises(ConfigError) as refused:
        idle_guard("token")
    assert str(refused.value) == (
        'idle=\'token\': use seconds, a text such as "90s", "15m" or "1h30m", or one of the presets '
        "'tokens', 'messages', 'command', 'mala-retry', 'mala-watchdog', 'flow', 'claude-print', "
        "'multica'; did you mean 'tokens'?"
    )


@pytest.mark.parametrize(
    ("total", "idle"), [(60, 300), (1500, 300), (3600, 720), (4500, 900), (86400, 900)]
)
def test_an_idle_limit_derived_from_the_job(total, idle):
    """S0-34: a fifth, between 5 and 15 minutes."""
    assert derived_idle(total) == idle
    assert derived_idle(timedelta(seconds=total)) == idle


def test_nothing_is_derived_from_nothing():
    """T12"""
    with pytest.raises(ConfigError, match="total=0"):
        derived_idle(0)


# -- other knobs ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ({"client": object()}, r"client=<object .*> has no disconnect\(\) to call"),
        ({"client": FakeClient}, "is a class: pass an object of it"),
        ({"client": 0}, r"client=0 has no disconnect\(\)"),
        ({"disconnect": "close"}, "disconnect='close' cannot be called: pass the function itself"),
        ({"observer": 3}, "observer=3 cannot be called: pass the function itself"),
        ({"activity": "issue-7"}, r"activity='issue-7': pass an Activity, such as Activity\("),
        ({"activity": Activity}, "pass an Activity, such as"),
        ({"read": "cluade"}, "read='cluade' is not a backend that is known"),
        ({"read": 3}, "read=3 is not a reader"),
        ({"read": math}, r"module math has no function read\(message\)"),
        ({"mode": "enforced"}, "mode='enforced': did you mean 'enforce'"),
        ({"mode": False}, "mode=False: use 'enforce', 'warn' or 'off'"),
        ({"tools": {7: 30}}, r"tools=\{7: \.\.\.\}: use the names of tools"),
        ({"disconnect": FakeClient.disconnect}, "called with no arguments, .* argument: 'self'"),
        ({"interrupt": no_observer}, "interrupt=.* is called with no arguments"),
        ({"observer": lambda: None}, "observer=.* is called with one argument, the event"),
        ({"observer": Disconnect().__call__}, "observer=.* where nothing can be awaited"),
    ],
)
def test_values_of_the_wrong_kind(written, hint):
    """T12: each is refused where it is written, and says what was expected."""
    with pytest.raises(ConfigError, match=hint):
        idle_guard(180, **written)


async def find_process():
    """What cannot be called where nothing can be awaited."""


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ({"interrupt": 7}, "interrupt=7 cannot be called"),
        ({"process": "claude"}, "process='claude': pass a pid, a process object"),
        ({"process": find_process}, "pass a pid, a process object .* or a plain function"),
        ({"process": True}, "True is no process"),
        ({"process": 0}, "pid 0 is no process"),
        ({"process": 1}, "pid 1 is this process, one that it descends from, or init"),
        ({"process": os.getpid()}, "is this process, one that it descends from"),
        ({"process": os.getppid()}, "is this process, one that it descends from"),
        ({"process": SimpleNamespace(pid=None)}, "has no pid yet: start it before"),
        ({"process": 2**31}, "pid 2147483648 is no process: it is larger than any pid"),
        ({"process": no_observer}, "process=.* is called with no arguments"),
        ({"kill_grace": -1}, "kill_grace=-1: use a number of seconds, 0 or more"),
    ],
)
def test_processes_that_cannot_be_ended_are_refused_where_they_are_written(written, hint):
    """T12, D4"""
    with pytest.raises(ConfigError, match=hint):
        idle_guard(180, **written)


def test_a_stamp_needs_something_to_fill():
    """T12"""
    with pytest.raises(ConfigError, match="give it an Activity or a function of one"):
        activity_stamp("issue-7")
    with pytest.raises(ConfigError, match="is called with one argument, the activity"):
        activity_stamp(lambda: None)


def test_what_does_not_tell_how_it_is_called_is_called():
    """T12: a wrapper takes what it takes, and many a function written in C says nothing."""

    def with_client(function):
        return functools.wraps(function)(lambda: function(FakeClient()))

    async def disconnect(client):
        await client.disconnect()

    for callback in (with_client(disconnect), functools.partial(disconnect, FakeClient()), dict):
        assert idle_guard(180, disconnect=callback).plan.disconnects == (callback,)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("idel", "did you mean 'idle'"), ("disconect", "did you mean 'disconnect'")],
)
def test_a_misspelt_knob(name, hint):
    """T12: in `replace`, where Python does not check names."""
    with pytest.raises(ConfigError, match=f"there is no knob '{name}'; {hint}"):
        idle_guard(180).replace(**{name: 60})


def test_a_knob_that_is_like_no_other():
    """T12: all are listed."""
    with pytest.raises(ConfigError, match="use one of idle, first, liveness") as refused:
        idle_guard(180).replace(xyz=60)
    assert "observer" in str(refused.value)


# -- written twice -------------------------------------------------------------------------------


def test_of_a_knob_written_twice_the_tightest_wins():
    """T12: in either order."""
    a = idle_guard(180, turn=3600, tools=60, disconnect_timeout=5)
    b = idle_guard(60, turn=7000, tools=600, disconnect_timeout=50)
    for both in (a | b, b | a):
        assert limits_of(both) == {"idle": 60, "turn": 3600}
        assert both.limits.allowance("Bash") == 60
        assert both.plan.disconnect_timeout == 5


def test_off_is_the_widest():
    """T12: of None and a number the number is tighter."""
    for both in (idle_guard(None) | idle_timeout(60), idle_timeout(60) | idle_guard(None)):
        assert both.limits.idle == 60


def test_a_default_never_competes():
    """T12: what was written wins, however wide."""
    for both in (
        idle_guard(180) | inflight_tool_gate(86400),
        inflight_tool_gate(86400) | idle_guard(180),
    ):
        assert both.limits.allowance("Bash") == 86400
    for both in (
        idle_guard(180) | inflight_tool_gate(None),
        inflight_tool_gate(None) | idle_guard(1),
    ):
        assert both.limits.allowance("Bash") is None
    guard = idle_guard(180) | idle_guard(180, disconnect_timeout=90)
    assert guard.plan.disconnect_timeout == 90


def test_a_gate_is_there_if_any_operator_has_one():
    """O2: order does not matter."""
    assert not idle_timeout(60).limits.gate
    assert (idle_timeout(60) | inflight_tool_gate()).limits.gate
    assert (inflight_tool_gate() | idle_timeout(60)).limits.gate


def test_callbacks_accumulate_and_the_same_one_is_called_once():
    """T12: equal ones are not the same; of a method there is a new object each time."""
    client, first, second = FakeClient(), Disconnect(), Disconnect()
    assert first == second
    both = idle_guard(1, client=client, disconnect=first) | idle_guard(1, disconnect=second)
    again = both | idle_guard(1, disconnect=first, client=client)
    assert len(again.plan.disconnects) == 3
    one, other = Events(), Events()
    observed = idle_guard(1, observer=one) | idle_guard(1, observer=other) | both
    assert [id(observer) for observer in observed.plan.observers] == [id(one), id(other)]


def test_two_of_what_a_stream_has_only_one():
    """T12, O2: neither could win, so it is an error; the same one twice is none."""
    activity = Activity("a")
    with pytest.raises(ConfigError, match=r"activity= was written twice.*'a', new.*'b', new"):
        _ = idle_guard(1, activity=activity) | activity_stamp(Activity("b"))
    assert (idle_guard(1, activity=activity) | activity_stamp(activity)).plan.activity is activity
    with pytest.raises(ConfigError, match="read= was written twice"):
        _ = idle_guard(1, read="claude") | idle_guard(1, read=lambda _: None)
    assert (idle_guard(1, read="claude") | idle_guard(1)).plan.backend.name == "claude"
    assert (idle_guard(1, read="claude") | idle_guard(1, read="claude")).plan.backend is not None


def test_the_weaker_mode_wins_in_a_pipe():
    """T11, T12: in either order, and unwritten is no mode."""
    warn, off, plain = (idle_guard(1, mode=mode) for mode in ("warn", "off", None))
    enforce = idle_guard(1, mode="enforce")
    for both, mode in (
        (warn | off, "off"),
        (off | warn, "off"),
        (warn | enforce, "warn"),
        (enforce | warn, "warn"),
        (plain | warn, "warn"),
        (plain | enforce, "enforce"),
        (plain | plain, None),
    ):
        assert both.plan.mode == mode


def test_replace_overrides():
    """T12: whatever was written, tighter or wider."""
    guard = idle_guard(60, total=3000, tools=30, disconnect=dict, observer=no_observer)
    assert limits_of(guard.replace(idle=180)) == {"idle": 180, "total": 3000}
    assert limits_of(guard.replace(total=None)) == {"idle": 60}
    assert guard.replace(tools={"Bash": 90}).limits.allowance("Bash") == 90
    assert limits_of(guard) == {"idle": 60, "total": 3000}
    assert limits_of(guard.replace(idle="tokens")) == {"idle": 120, "first": 300, "total": 3000}
    other = Disconnect()
    assert guard.replace(disconnect=other).plan.disconnects == (other,)


def test_replace_takes_away():
    """T12: None is off, or the default, for every knob."""
    guard = idle_guard(
        60,
        client=FakeClient(),
        activity=Activity(),
        observer=no_observer,
        mode="warn",
        read="claude",
    )
    bare = guard.replace(client=None, activity=None, observer=None, mode=None, read="auto")
    assert bare.plan == idle_guard(60).plan
    assert guard.replace(disconnect=None).plan.disconnects == ()
    bounds = idle_guard(60, disconnect_timeout=7, kill_grace=0)
    assert bounds.replace(disconnect_timeout=None, kill_grace=None).plan == idle_guard(60).plan


def test_replace_validates():
    """T12"""
    with pytest.raises(ConfigError, match="total=-5"):
        idle_guard(60).replace(total=-5)


# -- contradictions ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("idle", "others", "text"),
    [
        (300, {"turn": 60}, "idle=300 can never be reached: turn=60 comes first"),
        (60, {"turn": 60}, "idle=60 can never be reached: turn=60 comes first"),
        (10, {"turn": 120, "total": 60}, "turn=120 can never be reached: total=60 comes first"),
        (60, {"total": 60}, "idle=60 can never be reached: total=60 comes first"),
        (60, {"first": 300, "total": 90}, "first=300 can never be reached: total=90 comes first"),
        (
            60,
            {"liveness": 95, "turn": 90},
            "liveness=95 can never be reached: turn=90 comes first",
        ),
    ],
)
def test_two_values_that_cannot_both_matter(idle, others, text):
    """T12: one warning, which names both and points at the line that wrote them."""
    with pytest.warns(StreamGuardWarning) as warned:
        idle_guard(idle, **others)  # this line
    [warning] = warned
    assert str(warning.message) == text
    assert "# this line" in line_of(warning)


def test_the_warning_points_at_the_pipe_that_joined_them():
    """T12: also where neither operator alone contradicts itself, and in `replace`."""
    idle, turn = idle_timeout(300), idle_guard(None, turn=60)
    with pytest.warns(StreamGuardWarning) as warned:
        _ = idle | turn  # this line
    with pytest.warns(StreamGuardWarning) as warned_too:
        turn.replace(idle=300)  # this line
    for warning in (*warned, *warned_too):
        assert "# this line" in line_of(warning)


def test_a_contradiction_is_told_once():
    """T12: not again when the operator is piped, replaced or used."""
    with pytest.warns(StreamGuardWarning):
        guard = idle_guard(300, turn=60)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = (guard | inflight_tool_gate() | guard).replace(mode="warn")
        run_virtual(take, Script(say("a")) | again)
    with pytest.warns(StreamGuardWarning) as warned:
        _ = guard | idle_guard(None, total=30)
    assert [str(warning.message) for warning in warned] == [
        "idle=300 can never be reached: total=30 comes first",
        "turn=60 can never be reached: total=30 comes first",
    ]


@pytest.mark.parametrize(
    "write",
    [
        lambda: idle_guard(60, turn=60.5, total=61),
        lambda: idle_guard(60, turn=300, total=300),
        lambda: idle_guard(60, first=300),
        lambda: idle_guard("tokens"),
        lambda: idle_guard("tokens", turn=200),
        lambda: idle_guard(10, total=20, turn=15) | inflight_tool_gate(),
        lambda: idle_guard(180, tools=60),
        lambda: idle_guard(10, disconnect_timeout=100, total=20),
    ],
)
def test_no_warning_where_both_may_matter(write):
    """T12: and defaults never warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write()


SAME = "first=60 changes nothing: idle=60 is as long. Leave it out, or give a first message longer"


@pytest.mark.parametrize(
    "write",
    [
        lambda: idle_guard(60, first=60),
        lambda: idle_guard(timedelta(minutes=1), first=60.0),
        lambda: idle_guard(60) | idle_guard(None, first=60),
        lambda: idle_guard(60, first=300).replace(first=60),
    ],
)
def test_a_first_that_is_as_long_as_idle_changes_nothing_k21(write):
    """A longer one is what it is for; see below."""
    with pytest.warns(StreamGuardWarning) as warned:
        write()
    assert [str(warning.message) for warning in warned] == [SAME]


# -- the environment -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "idle"),
    [
        *[("180", 180), (" 0.5 ", 0.5), ("1e3", 1000)],
        *[
            ("5m", 300),
            ("90s", 90),
            ("1.5m", 90),
            ("2h", 7200),
            ("1d", 86400),
            (" 5 m ", 300),
            ("1h30m", 5400),
        ],
        *[("250ms", 0.25), ("0x10", 16)],
    ],
)
def test_the_environment_says_the_limit(monkeypatch, value, idle):
    """O9, S4-01: `idle_guard()` is what configuration says; a duration as on the command line."""
    monkeypatch.setenv("STREAMGUARD_IDLE", value)
    assert limits_of(idle_guard()) == {"idle": idle}
    assert limits_of(idle_guard(60)) == {"idle": 60}


@pytest.mark.parametrize("value", ["0", "0.0", "-0", "0s", "0m", " 0 ms "])
def test_zero_in_the_environment_is_off(monkeypatch, value):
    """T12: the documented exception."""
    monkeypatch.setenv("STREAMGUARD_IDLE", value)
    assert limits_of(idle_guard()) == {}


@pytest.mark.parametrize(
    "value",
    ["-1", "nan", "inf", "-3m", "tokens", "1,5", "m", "3 parsecs", "5mms", "30m1h", "1e999d", " "],
)
def test_the_environment_is_validated_too(monkeypatch, value):
    """T12: where it is first needed, by the variable's name."""
    monkeypatch.setenv("STREAMGUARD_IDLE", value)
    with pytest.raises(ConfigError) as refused:
        idle_guard()
    assert str(refused.value) == (
        f"environment variable STREAMGUARD_IDLE={value!r}: "
        "use a duration such as 180, 90s, 1.5m or 2h (0 = off)"
    )


@pytest.mark.parametrize("value", [None, ""])
def test_no_limit_said_anywhere(monkeypatch, value):
    """O9: a ConfigError that says both ways to say one."""
    monkeypatch.delenv("STREAMGUARD_IDLE", raising=False)
    if value is not None:
        monkeypatch.setenv("STREAMGUARD_IDLE", value)
    with pytest.raises(ConfigError) as refused:
        idle_guard()
    assert str(refused.value) == (
        "idle_guard() was given no limit and nothing is configured: write idle_guard(180), set "
        "STREAMGUARD_IDLE to a duration such as 180 or 5m (0 = off), or write `idle = 180` below "
        "[guard] in streamguard.toml"
    )


async def test_the_limit_of_the_environment_guards(monkeypatch, loop, form):
    """O9: end to end."""
    monkeypatch.setenv("STREAMGUARD_IDLE", str(60))
    taken = await take(Script(hang()) | idle_guard(), form)
    assert type(taken.error) is IdleTimeoutError
    assert loop.took(taken.elapsed, 60)
