"""Events as spans, by the real SDK with an exporter in memory."""

from __future__ import annotations

import gc
import importlib
import sys

import anyio
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from streamguard import (
    Activity,
    ConfigError,
    IdleTimeoutError,
    idle_guard,
    reconnecting_resume,
    scope,
    session,
)
from streamguard.compat import SubprocessWatchdog, SubprocessWatchdogTimeout, WatchdogConfig
from streamguard.errors import DeadlineExceededError
from streamguard.events import observing_scopes
from streamguard.observers import OpenTelemetryObserver
from streamguard.testing import (
    Script,
    done,
    fail,
    hang,
    opened,
    say,
    silence,
    tool_end,
    tool_start,
)
from tests.sessions.backend import Backend
from tests.support import Disconnect

SECRET = "sk-not-for-logs"


class Traces:
    """What was exported, and an observer that exports it."""

    def __init__(self):
        self._exporter = InMemorySpanExporter()
        self._provider = TracerProvider(shutdown_on_exit=False)
        self._provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.observer = OpenTelemetryObserver(self._provider)
        self.tracer = self._provider.get_tracer("test")

    @property
    def spans(self):
        return {span.name: span for span in self._exporter.get_finished_spans()}

    def parent_of(self, name):
        parent = self.spans[name].parent
        return next(
            (n for n, s in self.spans.items() if parent and s.context.span_id == parent.span_id),
            None,
        )


@pytest.fixture
def traces():
    return Traces()


async def test_a_stream_is_a_span_below_the_current_one(loop, traces):
    """E6"""
    guard = idle_guard(60, activity=Activity("coder"), observer=traces.observer)
    with traces.tracer.start_as_current_span("request"):
        async for _ in Script(opened("s-1"), say("a"), done()) | guard:
            pass
    assert traces.parent_of("invoke_agent coder") == "request"
    attributes = traces.spans["invoke_agent coder"].attributes
    assert attributes["gen_ai.operation.name"] == "invoke_agent"
    assert attributes["gen_ai.agent.name"] == "coder"
    assert attributes["gen_ai.conversation.id"] == "s-1"
    assert traces.spans["invoke_agent coder"].status.status_code is StatusCode.UNSET


async def test_a_tool_is_a_span_below_its_stream(loop, traces):
    """E6: with the conventions' names."""
    script = Script(tool_start("t-1", "Bash"), silence(5), tool_end("t-1"), done())
    async for _ in script | idle_guard(60, observer=traces.observer):
        pass
    assert traces.parent_of("execute_tool Bash") == "invoke_agent"
    attributes = traces.spans["execute_tool Bash"].attributes
    assert attributes["gen_ai.operation.name"] == "execute_tool"
    assert attributes["gen_ai.tool.name"] == "Bash"
    assert attributes["gen_ai.tool.call.id"] == "t-1"
    assert attributes["streamguard.outcome"] == "finished"


async def test_a_verdict_is_an_event_of_a_span_that_failed(loop, traces):
    """E6: and so is the teardown. What was in flight is closed."""
    guard = idle_guard(60, tools=600, observer=traces.observer, disconnect=lambda: None)
    with pytest.raises(IdleTimeoutError):
        async for _ in Script(say("a"), hang()) | guard:
            pass
    span = traces.spans["invoke_agent"]
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes["error.type"] == "IdleTimeoutError"
    told = {event.name: event.attributes for event in span.events}
    assert told["streamguard.timed_out"]["streamguard.limit"] == "idle"
    assert told["streamguard.torn_down"]["streamguard.teardown.confirmed"] is True


async def test_a_watchdogs_events_have_its_names_s1_28(loop, traces):
    """S1-10, S1-28: and its verdict says whose it is."""
    config = WatchdogConfig(timeout_seconds=180)
    observer = traces.observer
    watchdog = SubprocessWatchdog(None, config, disconnect=Disconnect(), observer=observer)
    with pytest.raises(SubprocessWatchdogTimeout):
        await watchdog.monitor()
    told = {event.name: event.attributes for event in traces.spans["invoke_agent backend"].events}
    assert told["streamguard.watchdog.started"]["streamguard.timeout_seconds"] == 180
    assert told["streamguard.watchdog.timeout"]["streamguard.idle_seconds"] >= 180
    assert told["streamguard.timed_out"]["streamguard.guard"] == "watchdog"


async def test_a_session_is_a_span_with_one_for_each_attempt(loop, traces):
    """E6"""
    scripts = [Script(opened("s-1"), tool_start("t", "Bash"), fail(ConnectionError(SECRET)))]
    backend = Backend([*scripts, Script(opened("s-1"), say("b"), done())])
    guard = idle_guard(60, activity=Activity("coder"), observer=traces.observer)

    async with session(backend.open, prompt="go") | guard | reconnecting_resume() as chat:
        async for _ in chat:
            pass
    assert traces.parent_of("attempt 1") == traces.parent_of("attempt 2") == "session coder"
    assert traces.parent_of("execute_tool Bash") == "attempt 1"
    assert traces.spans["attempt 1"].attributes["error.type"] == "ConnectionError"
    assert traces.spans["attempt 2"].status.status_code is StatusCode.UNSET
    assert traces.spans["attempt 2"].attributes["streamguard.resumes"] is True
    assert traces.spans["session coder"].status.status_code is StatusCode.UNSET
    assert SECRET not in "".join(span.to_json() for span in traces.spans.values())


async def test_a_session_that_is_given_up_failed(loop, traces):
    """E6"""
    backend = Backend([Script(opened("s-1"), say("a"), hang())])
    guard = idle_guard(60, observer=traces.observer)
    with pytest.raises(IdleTimeoutError):
        async with session(backend.open, prompt="go") | guard | reconnecting_resume() as chat:
            async for _ in chat:
                pass
    assert traces.spans["session"].status.status_code is StatusCode.ERROR
    told = {event.name: event.attributes for event in traces.spans["session"].events}
    assert told["streamguard.gave_up"]["streamguard.reason"] == "retries"


@pytest.mark.parametrize("hosted", [False, True], ids=["bare", "session"])
def test_a_cancelled_consumer_leaves_no_span_open(loop, traces, hosted):
    """E6: closed at once where there is a block, else when the stream is dropped."""
    backend = Backend([Script(tool_start("t", "Bash"), hang())])
    guard = idle_guard(60, observer=traces.observer)

    async def consume():
        with anyio.move_on_after(5):
            if hosted:
                async with session(backend.open, prompt="go") | guard as chat:
                    async for _ in chat:
                        pass
            else:
                async for _ in Script(tool_start("t", "Bash"), hang()) | guard:
                    pass

    loop.run(consume)
    gc.collect()
    names = {"session", "attempt 1"} if hosted else {"invoke_agent"}
    assert traces.spans.keys() == names | {"execute_tool Bash"}


async def test_a_time_scope_is_an_event_of_the_current_span(loop, traces):
    """E6, P4: it belongs to no stream."""
    with traces.tracer.start_as_current_span("request"), observing_scopes(traces.observer):
        with pytest.raises(DeadlineExceededError):
            async with scope("step", "build", timeout=60):
                await anyio.sleep(120)
    (told,) = traces.spans["request"].events
    assert told.name == "streamguard.scope_timed_out"
    assert told.attributes["streamguard.scope"] == "step 'build'"


def test_without_the_api_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.delitem(sys.modules, "streamguard.observers.opentelemetry")
    monkeypatch.delattr("streamguard.observers.opentelemetry", raising=False)
    with pytest.raises(ConfigError, match=r"pip install 'streamguard\[opentelemetry\]'"):
        importlib.import_module("streamguard.observers.opentelemetry")
