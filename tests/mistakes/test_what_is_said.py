"""Mistakes as they are made, and what is said to who made them: one line that tells what to write instead.

Each is written as a user would write it. The traceback ends at that line, or one of ours below it.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import traceback
import warnings
from pathlib import Path

import pytest

import streamguard
import streamguard.backends.codex
import streamguard.compat
import streamguard.observers
from streamguard import (
    ConfigError,
    StreamGuardWarning,
    from_config,
    idle_guard,
    session,
)
from streamguard.signals import SIGNALS
from streamguard.testing import FakeClient, run_virtual

OURS = str(Path(streamguard.__file__).parent)
WRITTEN_HERE = "<a user's line>"


async def numbers():
    yield 1


@contextlib.asynccontextmanager
async def opener(point):
    yield numbers()


async def returns_a_stream(point):
    return numbers()


async def yields_a_stream(point):
    yield numbers()


@contextlib.asynccontextmanager
async def yields_a_list(point):
    yield [1, 2]


class Client(FakeClient):
    async def disconnect(self) -> None:
        pass


client = Client()
NAMES = {
    **{name: getattr(streamguard, name) for name in streamguard.__all__},
    **{signal.__name__: signal for signal in SIGNALS},
    "asyncio": asyncio,
    "streamguard": streamguard,
    "run_virtual": run_virtual,
}

# What was written, what it raises, and what is said of it: all of these words.
SAID = {
    # -- the wrong keyword of Python's -----------------------------------------------------------
    "with numbers() | idle_guard(3) as messages: pass": (TypeError, "entered with `async with`"),
    "for message in numbers() | idle_guard(3): pass": (TypeError, "iterated with `async for`"),
    "list(numbers() | idle_guard(3))": (TypeError, "iterated with `async for`"),
    "await anext(numbers() | idle_guard(3))": (TypeError, "write messages = aiter(...) once"),
    "await (numbers() | idle_guard(3))": (TypeError, "object Guarded can't be used in 'await'"),
    "await idle_guard(3)": (TypeError, "an operator is piped onto a stream: async for message in"),
    "with idle_guard(3): pass": (TypeError, "async with stream | ... as messages"),
    "async with idle_guard(3): pass": (TypeError, "async with operator.monitor() as monitor"),
    "with session(opener) as chat: pass": (TypeError, "a session is entered with `async with`"),
    "for message in session(opener): pass": (TypeError, "in its block: async with ... as chat"),
    "async for message in session(opener): pass": (TypeError, "Write: async with ... as chat"),
    "await anext(session(opener))": (TypeError, "Write: async with ... as chat"),
    "session(opener).ask('x')": (AttributeError, "async with ... as chat, then chat.ask"),
    "session(opener).nonsense": (AttributeError, "'Session' object has no attribute 'nonsense'"),
    "with scope('step'): pass": (TypeError, "a time scope is entered with `async with`"),
    "with idle_guard(3).monitor(): pass": (TypeError, "a monitor is entered with `async with`"),
    "for x in idle_guard(3).monitor(): pass": (TypeError, "monitor.saw(message)"),
    "async for x in idle_guard(3).monitor(): pass": (TypeError, "monitor.saw(message)"),
    "async with Activity('x').hold(): pass": (TypeError, "plain `with`: with activity.hold(...)"),
    "with CircuitBreaker('api'): pass": (TypeError, "with await breaker.acquire() as permit"),
    "async with CircuitBreaker('api'): pass": (TypeError, "with await breaker.acquire()"),
    # -- what was not called, or in the wrong place ----------------------------------------------
    "numbers() | idle_guard": (
        TypeError,
        "idle_guard was not called: write stream | idle_guard(180)",
    ),
    "idle_guard | idle_timeout(3)": (TypeError, "idle_guard was not called"),
    "idle_guard(3) | idle_timeout": (TypeError, "idle_timeout was not called"),
    "numbers() | idle_guard(3) | idle_timeout": (TypeError, "idle_timeout was not called"),
    "session(opener) | idle_guard": (TypeError, "idle_guard was not called"),
    "session(opener) | reconnecting_resume": (TypeError, "| reconnecting_resume()"),
    "numbers() | keep_alive": (TypeError, "keep_alive was not called"),
    "numbers() | record_with": (TypeError, "| record_with(recorder)"),
    "session | idle_guard(3)": (TypeError, "session was not called: write session(open_client"),
    "numbers() | session(opener)": (TypeError, "a session opens its own stream, and stands first"),
    "numbers() | Recorder('run')": (TypeError, "stream | record_with(recorder)"),
    "numbers() | idle_guard(3) | Recorder('run')": (TypeError, "stream | record_with(recorder)"),
    "idle_guard(3) | numbers()": (TypeError, "Write the source first: stream | idle_guard(180)"),
    "idle_guard(3) | session(opener)": (TypeError, "Write the source first"),
    "numbers | idle_guard(3)": (TypeError, "write numbers() | idle_guard(3)"),
    "client.receive_response | idle_guard(3)": (
        TypeError,
        "it was not called: write client.receive_response() | idle_guard(3)",
    ),
    "returns_a_stream | idle_guard(3)": (TypeError, "(await returns_a_stream()) | idle_guard(3)"),
    "returns_a_stream(1) | idle_guard(3)": (TypeError, "(await ...) | idle_guard(3)"),
    "opener(1) | idle_guard(3)": (TypeError, "enter it first, async with ... as stream"),
    "client | idle_guard(3)": (TypeError, "client.receive_response() | idle_guard(3)"),
    "[1, 2] | idle_guard(3)": (TypeError, "iterated with plain `for`"),
    "idle_guard(3, disconnect=client.disconnect())": (ConfigError, "disconnect=client.disconnect"),
    "idle_guard(3, interrupt=client.disconnect())": (ConfigError, "was called already"),
    "Connection(numbers(), disconnect=client.disconnect())": (ConfigError, "was called already"),
    "idle_guard(3, disconnect=client)": (ConfigError, "such as disconnect=client.disconnect"),
    "idle_guard(3, client=client.disconnect)": (
        ConfigError,
        "did you mean disconnect=client.discon",
    ),
    "idle_guard(3, client=Client)": (ConfigError, "is a class: pass an object of it"),
    "activity_stamp(Activity)": (ConfigError, "give it an Activity or a function of one"),
    # -- names that are not there ----------------------------------------------------------------
    "idle_guard(1, idel=3)": (TypeError, "no keyword 'idel'; did you mean 'idle'?"),
    "idle_guard(timeout=3)": (TypeError, "no keyword 'timeout'; use idle or total"),
    "idle_guard(1, xyzzy=3)": (TypeError, "use one of idle, first, liveness"),
    "idle_guard(1, 2)": (
        TypeError,
        "only limit without a name, and was given 2 values; write the",
    ),
    "idle_guard(3).replace(idel=3)": (ConfigError, "no knob 'idel'; did you mean 'idle'?"),
    "idle_timeout(3, total=5)": (TypeError, "there is no keyword 'total'; use 'idle'"),
    "inflight_tool_gate(tools=60)": (TypeError, "without its name, inflight_tool_gate(60)"),
    "inflight_tool_gate(tool=60)": (
        TypeError,
        "inflight_tool_gate(tool=...): it takes no keywords",
    ),
    "activity_stamp(print, evry=3)": (TypeError, "did you mean 'every'?"),
    "keep_alive(every=3, make=print)": (TypeError, "write it without its name"),
    "reconnecting_resume(retry=3)": (TypeError, "did you mean 'retries'?"),
    "reconnecting_resume(max_retries=3)": (TypeError, "use retries"),
    "session(opener, promt='x')": (TypeError, "did you mean 'prompt'?"),
    "session(opener, 'x')": (TypeError, "write the others with their names: prompt"),
    "RetryPolicy(idel=Backoff(3))": (TypeError, "RetryPolicy(idel=...): there is no keyword"),
    "RetryPolicy(3)": (
        TypeError,
        "RetryPolicy() takes nothing without a name, and was given 1 value;",
    ),
    "Backoff(3, delay=5)": (TypeError, "no keyword 'delay'; use delays"),
    "Backoff(3, jiter=5)": (TypeError, "did you mean 'jitter'?"),
    "CircuitBreaker('api', open_afer=3)": (TypeError, "did you mean 'open_after'?"),
    "CircuitBreaker('api', failure_threshold=3)": (TypeError, "use open_after"),
    "CircuitBreaker('api', 3)": (TypeError, "only key without a name"),
    "from_config(pth='x')": (TypeError, "from_config(pth=...): there is no keyword"),
    "from_config().breaker('api', open_afer=3)": (TypeError, "did you mean 'open_after'?"),
    "Recorder('run', flo='x')": (TypeError, "did you mean 'flow'?"),
    "scope('step', timout=3)": (TypeError, "did you mean 'timeout'?"),
    "scope('stp')": (ConfigError, "there is no scope 'stp': did you mean 'step'?"),
    "await guarded_call(asyncio.sleep(0), idel=3)": (TypeError, "did you mean 'idle'?"),
    "ResumePoint(tokn='x')": (TypeError, "did you mean 'token'?"),
    "ResumePoint('x')": (TypeError, "takes nothing without a name"),
    "Connection(numbers(), clint=client)": (TypeError, "did you mean 'client'?"),
    "lines(client, max_lin=3)": (TypeError, "did you mean 'max_line'?"),
    "Activity('x').hold('human', 3)": (
        TypeError,
        "Activity.hold() takes only reason without a name",
    ),
    "sentinel(3)": (TypeError, "takes nothing without a name"),
    "streamguard.publishing(evry=3)": (TypeError, "did you mean 'every'?"),
    "idle_guard(3, read='claud')": (ConfigError, "Did you mean 'claude'? The backends are acp, "),
    "idle_guard(3, read='Claude')": (ConfigError, "Did you mean 'claude'?"),
    "idle_guard('claude-prnt')": (ConfigError, "'multica'; did you mean 'claude-print'?"),
    "idle_guard('claude_print')": (ConfigError, "did you mean 'claude-print'?"),
    "idle_guard(3, mode='enforced')": (ConfigError, "did you mean 'enforce'?"),
    "idle_guard(3, end_on='repeat')": (ConfigError, "did you mean 'repeats'?"),
    "TurnEnded('succes')": (
        ValueError,
        "TurnEnded.outcome cannot be 'succes'; did you mean 'success'?",
    ),
    "TurnEnded(True)": (ValueError, "use one of success, error, cancelled, incomplete, paused"),
    "Waiting('a', 'humn')": (ValueError, "did you mean 'human'?"),
    "WorkStarted('a', scope='tol')": (ValueError, "did you mean 'tool'?"),
    "Usage({}, span='trn')": (ValueError, "did you mean 'turn'?"),
    "streamguard.backends.codex.session(prmpt='x')": (TypeError, "did you mean 'prompt'?"),
    "streamguard.observers.PrometheusObserver(namspace='x')": (TypeError, "'namespace'?"),
    "streamguard.compat.SubprocessWatchdog(pidd=3)": (TypeError, "SubprocessWatchdog(pidd=...)"),
    # -- one kind of thing where another is wanted -----------------------------------------------
    "RetryPolicy(idle=3)": (ConfigError, "idle=3: use a Backoff, which says how often and after"),
    "RetryPolicy(network=(1, 2))": (ConfigError, "network=Backoff(2, (0, 5, 15))"),
    "RetryPolicy(classifier=3)": (ConfigError, "classifier=3 cannot be called"),
    "reconnecting_resume(policy=3)": (ConfigError, "pass a RetryPolicy"),
    "reconnecting_resume(policy=Backoff(3))": (ConfigError, "policy=RetryPolicy(idle=Backoff("),
    "reconnecting_resume(breaker='api')": (ConfigError, "breaker = CircuitBreaker('api'), once"),
    "reconnecting_resume(breaker=CircuitBreaker)": (ConfigError, "pass a CircuitBreaker"),
    "CircuitBreaker(3)": (ConfigError, "the key is a text, such as CircuitBreaker('anthropic/"),
    "idle_guard(3, process='123')": (ConfigError, "write the pid as a number, process=123"),
    "scope('step', 600)": (ConfigError, "for a limit write scope('step', timeout=600)"),
    "session(numbers())": (TypeError, "A stream that is open already is piped as it is"),
    "session(returns_a_stream)": (
        TypeError,
        "Write @contextlib.asynccontextmanager over it, and yield,",
    ),
    "session(yields_a_stream)": (TypeError, "Write @contextlib.asynccontextmanager over it"),
    "session(lambda: opener(1))": (ConfigError, "is called with one argument, the ResumePoint"),
    "reconnecting_resume(yields_a_stream)": (TypeError, "Write @contextlib.asynccontextmanager"),
    "resume_from('run')": (TypeError, "pass what plan_resume(run_dir, flow) gave"),
    "run_virtual(returns_a_stream(1))": (
        TypeError,
        "pass the function itself, run_virtual(returns_",
    ),
    "run_virtual(3)": (TypeError, "pass an `async def`, without calling it"),
    "run_virtual(asyncio.sleep, 1)": (TypeError, "called where one runs already"),
}


async def write(line: str) -> object:
    """What comes of `line` in a user's program."""
    is_statement = line.startswith(("with ", "for ", "async "))
    body = f"{line}; return" if is_statement else f"return {line}"
    made: dict[str, object] = {**NAMES, **globals()}
    exec(compile(f"async def made():\n    {body}", WRITTEN_HERE, "exec"), made)
    return await made["made"]()


def raised_by(line: str, kind: type[Exception]) -> Exception:
    with pytest.raises(kind) as caught, warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(write(line))
    return caught.value


@pytest.mark.parametrize("line", SAID)
def test_a_mistake_is_answered_with_what_to_write(line):
    kind, said = SAID[line]
    error = raised_by(line, kind)
    assert said in str(error)
    assert "\n" not in str(error)
    assert error.__cause__ is None or error.__suppress_context__
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    files = [file for file in files if file == WRITTEN_HERE or OURS in file]
    below = files[files.index(WRITTEN_HERE) + 1 :]
    assert len(below) <= (0 if kind is ConfigError and "|" not in line else 4)


async def test_a_session_that_is_given_no_stream(loop):
    async with session(yields_a_list) as chat:
        with pytest.raises(
            TypeError, match=r"yielded .*, which is no stream: yield an async iterable"
        ):
            await anext(aiter(chat))


# -- what is called is what it was ------------------------------------------------------------------


def test_what_makes_an_operator_is_a_function_still():
    """For help, for documents, for checkers and for pickle."""
    import copy
    import pickle

    assert inspect.signature(idle_guard).parameters["idle"].kind is inspect.Parameter.KEYWORD_ONLY
    assert idle_guard.__name__ == "idle_guard"
    assert "the operator that most people need" in idle_guard.__doc__
    assert "function idle_guard" in repr(idle_guard)
    assert pickle.loads(pickle.dumps(idle_guard)) is idle_guard
    assert copy.deepcopy(idle_guard) is idle_guard


def test_what_is_refused_does_not_look_as_if_it_could_be_done():
    """Frameworks ask what a thing is before they take it: a stream is iterated, and not awaited."""
    from collections.abc import Iterable

    for thing in (numbers() | idle_guard(3), session(opener)):
        assert not isinstance(thing, Iterable)
        assert not inspect.isawaitable(thing)


# -- milliseconds -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "idle_guard(180_000)",
            'idle=180000 is 50 hours; if milliseconds are meant, write 180; .*"50h"',
        ),
        ("idle_guard(3, total=3_600_000)", "total=3600000 is 1,000 hours; .* write 3600"),
        ("idle_guard(3, tools={'Bash': 600_000})", r"tools\['Bash'\]=600000 is 167 hours"),
        ("idle_timeout(180_000)", "idle=180000"),
        ("Activity('x').hold(allowance=180_000)", "allowance=180000"),
    ],
)
def test_what_looks_like_milliseconds_is_warned_of(line, said):
    with pytest.warns(StreamGuardWarning, match=said) as told:
        asyncio.run(write(line))
    assert [each.filename for each in told] == [WRITTEN_HERE]


@pytest.mark.parametrize("value", [86_400, "50h", "180000s"])
def test_a_day_and_what_has_a_unit_is_meant(value):
    idle_guard(value)


def test_a_unit_in_a_file_is_one_here(tmp_path):
    file = tmp_path / "streamguard.toml"
    file.write_text('[guard]\nidle = "50h"\n', "utf-8")
    assert from_config(file).guard().limits.idle == 180_000


# -- the fixture --------------------------------------------------------------------------------------


def test_virtual_time_says_how_it_is_used(virtual_time):
    with pytest.raises(TypeError, match=r"a plain test writes virtual_time.run\(main, ...\)"):
        virtual_time(numbers)
    with pytest.raises(TypeError, match="is not entered"), virtual_time:
        pass


async def test_virtual_time_is_not_entered_by_async_tests_either(virtual_time, loop):
    with pytest.raises(TypeError, match="is not entered"):
        async with virtual_time:
            pass
