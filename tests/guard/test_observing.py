"""`observer=` and `on_warn=`: one or several, everywhere, and operators that have nothing else."""

from __future__ import annotations

import pytest

from streamguard import (
    Activity,
    CircuitBreaker,
    ConfigError,
    IdleTimeoutError,
    idle_guard,
    idle_timeout,
    inflight_tool_gate,
    keep_alive,
    reconnecting_resume,
    session,
)
from streamguard.compat import SubprocessWatchdog
from streamguard.configuration import from_config
from streamguard.events import StreamEnded, StreamStarted, TimedOut, observing_scopes
from streamguard.limits import scope
from streamguard.testing import Script, hang, run_virtual, say
from tests.support import Events, take


def observer(_event):
    pass


def another(_event):
    pass


class Listening(list):
    """An observer that is a list, and one all the same."""

    def __call__(self, event):
        self.append(event)


ONE, OTHER = Listening(), Listening()


@pytest.mark.parametrize(
    ("written", "heard"),
    [
        (observer, (observer,)),
        ([observer, another], (observer, another)),
        ((observer, another), (observer, another)),
        ((each for each in (observer, another)), (observer, another)),
        (ONE, (ONE,)),
        ([ONE, OTHER], (ONE, OTHER)),
        ([], ()),
        (None, ()),
    ],
    ids=["one", "list", "tuple", "generator", "that is a list", "lists", "none of them", "None"],
)
def test_one_or_several(written, heard):
    plan = idle_guard(180, observer=written).plan
    assert [id(each) for each in plan.observers] == [id(each) for each in heard]


def test_whoever_warns_may_be_several_too():
    assert idle_guard(180, on_warn=[observer, another]).plan.on_warn == (observer, another)


@pytest.mark.parametrize("knob", ["observer", "on_warn"])
@pytest.mark.parametrize("wrong", ["log", b"log", 3, [observer, 3], {"a": 1}, [None]])
def test_each_of_them_is_checked(knob, wrong):
    with pytest.raises(ConfigError, match=f"{knob}=.* cannot be called: pass the function itself"):
        idle_guard(180, **{knob: wrong})
    with pytest.raises(ConfigError, match=f"{knob}=.* cannot be called"):
        idle_guard(180).replace(**{knob: wrong})


def test_several_wherever_there_is_an_observer():
    heard = Listening(), Listening()
    breaker = CircuitBreaker("api", observer=heard)
    breaker.isolate()
    assert len(heard[0]) == len(heard[1]) == 1

    async def scoped():
        with observing_scopes(heard), pytest.raises(Exception, match="step"):
            async with scope("step", timeout=1):
                await take(Script(hang()) | idle_guard(None))

    run_virtual(scoped)
    assert len(heard[0]) == len(heard[1]) == 2
    watchdog = SubprocessWatchdog(None, disconnect=dict, observer=[observer, another])
    assert watchdog._observers[-2:] == (observer, another)
    config = from_config()
    assert config.guard(idle=60, observer=[observer, another]).plan.observers == (
        observer,
        another,
    )
    with pytest.raises(ConfigError, match="observer=3 cannot be called"):
        CircuitBreaker(observer=3)


# -- an operator that has nothing but observers ---------------------------------------------------


def test_beside_others_it_needs_no_limit_and_sets_none():
    for pipe in (
        idle_guard(180) | idle_guard(observer=observer),
        idle_guard(observer=observer) | idle_guard(180),
        idle_guard(180) | (idle_guard(observer=observer) | idle_guard(on_warn=another)),
    ):
        assert pipe.limits.idle == 180
        assert pipe.plan.observers == (observer,)
    bare = idle_timeout(60) | idle_guard(observer=observer)
    assert not bare.limits.gate
    assert bare.limits.quiet is None


def test_nor_does_it_take_what_is_configured(tmp_path, monkeypatch):
    (tmp_path / "streamguard.toml").write_text("[guard]\nidle = 100\nfirst = 50\n")
    monkeypatch.chdir(tmp_path)
    beside = idle_guard(180) | idle_guard(observer=observer)
    assert (beside.limits.idle, beside.limits.first) == (180, None)
    off = idle_guard(None) | idle_guard(observer=observer)
    assert (off.limits.idle, off.limits.first) == (None, None)
    # Where no other operator sets a limit, it is an `idle_guard()`.
    alone = idle_guard(observer=observer)
    assert (alone.limits.idle, alone.limits.first) == (100, 50)
    for other in (keep_alive(15, dict), reconnecting_resume(), inflight_tool_gate(60)):
        piped = alone | other
        assert (piped.limits.idle, piped.limits.first) == (100, 50)
        late = piped | idle_guard(180)
        assert (late.limits.idle, late.limits.first) == (180, None)
        assert late.plan.observers == (observer,)


def test_alone_it_observes(loop, form):
    seen = Events()
    taken = loop.run(take, Script(say("a"), say("b")) | idle_guard(observer=seen), form)
    assert len(taken.messages) == 2
    assert [type(event) for event in seen][:1] == [StreamStarted]
    assert isinstance(seen[-1], StreamEnded)
    assert idle_guard(observer=seen).limits.idle is None


async def test_piped_onto_a_guarded_stream_it_hears_of_its_verdict(loop, form):
    seen = Events()
    stream = Script(say("a"), hang()) | idle_guard(180) | idle_guard(observer=[seen])
    taken = await take(stream, form)
    assert isinstance(taken.error, IdleTimeoutError)
    assert TimedOut in [type(event) for event in seen]


def test_without_observers_a_limit_is_needed_as_ever():
    for knobs in ({}, {"observer": []}, {"mode": "warn"}, {"activity": Activity()}):
        with pytest.raises(ConfigError, match="was given no limit"):
            idle_guard(**knobs)


def test_set_anew_it_is_still_beside_others():
    again = idle_guard(observer=observer).replace(observer=[another])
    assert again.plan.observers == (another,)
    assert (again | idle_guard(180)).plan.observers == (another,)
    limited = idle_guard(observer=observer).replace(idle=60)
    assert (limited | idle_guard(180)).limits.idle == 60


def test_in_a_session():
    piped = session(lambda _point: None) | idle_guard(180) | idle_guard(observer=observer)
    assert "idle_guard(observer=" in repr(piped)


def test_it_is_shown_as_it_was_written():
    assert repr(idle_guard(180, observer=dict)) == "idle_guard(180, observer=<class 'dict'>)"
    assert repr(idle_guard(observer=dict)) == "idle_guard(observer=<class 'dict'>)"
