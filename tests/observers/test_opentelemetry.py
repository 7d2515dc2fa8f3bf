"""Events as spans, by the real SDK with an exporter in memory."""

from __future__ import annotations

import gc
import importlib
import sys
from contextlib import suppress

import anyio
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.trace import SpanKind, StatusCode

from streamguard import (
    Activity,
    ConfigError,
    IdleTimeoutError,
    events,
    idle_guard,
    reconnecting_resume,
    scope,
    session,
)
from streamguard.compat import SubprocessWatchdog, SubprocessWatchdogTimeout, WatchdogConfig
from streamguard.errors import DeadlineExceededError, StreamTruncatedError
from streamguard.events import HollowEnd, WorkBegan, WorkQuiet, WorkRepeated, observing_scopes
from streamguard.observers import OpenTelemetryObserver, genai, instruments
from streamguard.retry import Backoff, RetryPolicy
from streamguard.signals import TurnEnded, WorkFinished, WorkStarted
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
    usage,
)
from tests.sessions.backend import Backend
from tests.support import Disconnect

SECRET = "sk-not-for-logs"


class Traces:
    """What was exported, and an observer that exports it."""

    def __init__(self, provider=""):
        self._exporter = InMemorySpanExporter()
        self._provider = TracerProvider(shutdown_on_exit=False)
        self._provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._reader = InMemoryMetricReader()
        meters = MeterProvider([self._reader], shutdown_on_exit=False)
        self.observer = OpenTelemetryObserver(self._provider, meters, provider=provider)
        self.tracer = self._provider.get_tracer("test")

    @property
    def spans(self):
        return {span.name: span for span in self._exporter.get_finished_spans()}

    @property
    def metrics(self):
        """By name: the metric as it was exported."""
        data = self._reader.get_metrics_data()
        if data is None:
            return {}
        (resource,) = data.resource_metrics
        (told,) = resource.scope_metrics
        assert told.scope.schema_url == genai.SCHEMA_URL
        return {metric.name: metric for metric in told.metrics}

    def points(self, name):
        """What was measured: the attributes of each, and its count and sum, or its value."""
        return [
            (dict(p.attributes), (p.count, p.sum) if hasattr(p, "count") else p.value)
            for p in self.metrics[name].data.data_points
        ]

    def parent_of(self, name):
        parent = self.spans[name].parent
        return next(
            (n for n, s in self.spans.items() if parent and s.context.span_id == parent.span_id),
            None,
        )


@pytest.fixture
def traces():
    return Traces()


def quietly(signal):
    return signal


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
    assert traces.parent_of("attempt 1") == traces.parent_of("attempt 2") == "invoke_agent coder"
    assert traces.parent_of("execute_tool Bash") == "attempt 1"
    assert traces.spans["attempt 1"].attributes["error.type"] == "ConnectionError"
    assert traces.spans["attempt 2"].status.status_code is StatusCode.UNSET
    assert traces.spans["attempt 2"].attributes["streamguard.resumes"] is True
    assert traces.spans["invoke_agent coder"].status.status_code is StatusCode.UNSET
    assert SECRET not in "".join(span.to_json() for span in traces.spans.values())


async def test_a_session_that_is_given_up_failed(loop, traces):
    """E6"""
    backend = Backend([Script(opened("s-1"), say("a"), hang())])
    guard = idle_guard(60, observer=traces.observer)
    with pytest.raises(IdleTimeoutError):
        async with session(backend.open, prompt="go") | guard | reconnecting_resume() as chat:
            async for _ in chat:
                pass
    assert traces.spans["invoke_agent"].status.status_code is StatusCode.ERROR
    told = {event.name: event.attributes for event in traces.spans["invoke_agent"].events}
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
    names = {"invoke_agent", "attempt 1"} if hosted else {"invoke_agent"}
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


async def test_a_subagents_tools_are_below_its_call(loop, traces):
    """E6: and a tool whose caller is over, or was never told of, is below the agent."""

    async def messages():
        yield WorkStarted("t-1", "Task", scope="subagent")
        yield WorkStarted("t-2", "Read", parent="t-1")
        yield WorkStarted("t-3", "Skill", scope="subagent", parent="t-1")
        yield WorkStarted("t-4", "Grep", parent="t-3")
        yield WorkFinished("t-1")
        yield WorkStarted("t-5", "Late", parent="t-1")
        yield WorkStarted("t-6", "Orphan", parent="nobody")
        yield TurnEnded()

    async for _ in messages() | idle_guard(60, read=quietly, observer=traces.observer):
        pass
    parents = {name.split()[-1]: traces.parent_of(name) for name in traces.spans}
    assert parents == {
        "invoke_agent": None,
        "Task": "invoke_agent",
        "Read": "execute_tool Task",
        "Skill": "execute_tool Task",
        "Grep": "execute_tool Skill",
        "Late": "invoke_agent",
        "Orphan": "invoke_agent",
    }
    assert traces.points(genai.TOOL_CALLS) == [({}, (1, 1))]  # a subagent's are its own


async def test_a_subagent_of_claudes_in_its_own_words(loop, traces):
    """E6: the lines of the CLI name the call that each tool belongs to; what was asked stays with them."""

    def use(id_, name, parent=None):
        block = {"type": "tool_use", "id": id_, "name": name, "input": {"prompt": SECRET}}
        return {
            "type": "assistant",
            "message": {"role": "assistant", "content": [block]},
            "parent_tool_use_id": parent,
        }

    def answer(id_, parent=None):
        block = {"type": "tool_result", "tool_use_id": id_, "content": SECRET}
        return {
            "type": "user",
            "message": {"role": "user", "content": [block]},
            "parent_tool_use_id": parent,
        }

    async def lines():
        yield {"type": "system", "subtype": "init", "session_id": "s-1"}
        yield use("toolu_1", "Task")
        yield use("toolu_2", "Read", "toolu_1")
        yield answer("toolu_2", "toolu_1")
        yield answer("toolu_1")
        yield use("toolu_3", "Bash")
        yield answer("toolu_3")
        yield {
            "type": "result",
            "subtype": "success",
            "is_error": False,
            "result": SECRET,
            "session_id": "s-1",
            "usage": {"input_tokens": 3, "cache_read_input_tokens": 7, "output_tokens": 2},
            "total_cost_usd": 0.25,
        }

    guard = idle_guard(60, activity=Activity("coder"), observer=traces.observer)
    async for _ in lines() | guard:
        pass
    assert traces.parent_of("execute_tool Read") == "execute_tool Task"
    assert traces.parent_of("execute_tool Task") == "invoke_agent coder"
    assert traces.parent_of("execute_tool Bash") == "invoke_agent coder"
    attributes = traces.spans["invoke_agent coder"].attributes
    assert attributes[genai.PROVIDER] == "anthropic"
    assert attributes[genai.CONVERSATION] == "s-1"
    assert (attributes[genai.INPUT_TOKENS], attributes[genai.OUTPUT_TOKENS]) == (10, 2)
    assert attributes["streamguard.cost"] == 0.25
    assert SECRET not in "".join(span.to_json() for span in traces.spans.values())


async def test_a_tool_by_the_conventions(loop, traces):
    """E6: what a provider runs itself is an extension; a hook is no tool; what fails says so."""

    async def messages():
        yield WorkStarted("t-1", "web_search", scope="server")
        yield WorkStarted("t-2", "PreToolUse", scope="hook")
        yield WorkStarted("t-3", "Bash", input={"command": SECRET})
        yield WorkFinished("t-3", error=True, outcome=SECRET)
        yield WorkStarted("t-4")
        yield WorkFinished("t-4")
        yield TurnEnded()

    guard = idle_guard(60, read=quietly, activity=Activity("coder"), observer=traces.observer)
    async for _ in messages() | guard:
        pass
    spans = traces.spans
    assert all(span.kind is SpanKind.INTERNAL for span in spans.values())
    assert spans["execute_tool web_search"].attributes[genai.TOOL_TYPE] == "extension"
    hook = spans["hook PreToolUse"].attributes
    assert not [name for name in hook if name.startswith("gen_ai.") and name != genai.AGENT]
    assert spans["execute_tool Bash"].attributes[genai.ERROR] == "tool_error"
    assert spans["execute_tool Bash"].status.status_code is StatusCode.ERROR
    assert genai.TOOL not in spans["execute_tool"].attributes  # it has no name
    assert {name for told, _ in traces.points(genai.TOOL_DURATION) for name in told.values()} >= {
        "web_search",
        "Bash",
        "tool_error",
    }
    assert SECRET not in "".join(span.to_json() for span in spans.values())


async def test_the_metrics_of_the_conventions(loop, traces):
    """E6: with their units and buckets; what was measured is what the stream's clock says."""
    script = Script(tool_start("t-1", "Bash"), silence(5), tool_end("t-1"), silence(10), done())
    async for _ in script | idle_guard(60, activity=Activity("coder"), observer=traces.observer):
        pass
    tool = {genai.TOOL: "Bash", genai.AGENT: "coder"}
    assert traces.points(genai.TOOL_DURATION) == [(tool, (1, pytest.approx(5)))]
    agent = {genai.AGENT: "coder"}
    assert traces.points(genai.AGENT_DURATION) == [(agent, (1, pytest.approx(15)))]
    assert traces.points(genai.TOOL_CALLS) == [(agent, (1, 1))]
    for name in traces.metrics.keys() & genai.HISTOGRAMS.keys():
        (point,) = traces.metrics[name].data.data_points
        assert point.explicit_bounds == genai.HISTOGRAMS[name].bounds
        assert traces.metrics[name].unit == genai.HISTOGRAMS[name].unit


async def test_what_was_used_up_is_told_once_for_an_invocation(loop, traces):
    """E6, B4: over all attempts, as the backend tells it; the cache is read, too."""
    call = {"input_tokens": 10, "cache_read_input_tokens": 90, "output_tokens": 5}
    lost = Script(opened("s-1"), usage(call="1", **call), say("a"), fail(ConnectionError("reset")))
    rest = Script(
        opened("s-1"),
        usage(call="2", **call),
        usage(span="turn", input_tokens=400, output_tokens=20, total_cost_usd=0.5),
        done(),
    )
    guard = idle_guard(60, activity=Activity("coder"), observer=traces.observer)
    backend = Backend([lost, rest])
    async with session(backend.open, prompt="go") | guard | reconnecting_resume() as chat:
        async for _ in chat:
            pass
    attributes = traces.spans["invoke_agent coder"].attributes
    assert attributes[genai.INPUT_TOKENS] == 100 + 400
    assert attributes[genai.OUTPUT_TOKENS] == 5 + 20
    assert attributes["streamguard.cost"] == 0.5
    told = {about[genai.TOKEN_TYPE]: about for about, _ in traces.points(genai.TOKENS)}
    assert told["input"] == {
        genai.OPERATION: "invoke_agent",
        genai.AGENT: "coder",
        genai.TOKEN_TYPE: "input",
    }
    assert [measured for _, measured in traces.points(genai.TOKENS)] == [(1, 500), (1, 25)]
    assert traces.points("streamguard.cost") == [({genai.AGENT: "coder"}, 0.5)]


@pytest.mark.parametrize(
    ("messages", "named", "told"),
    [
        ([{"type": "system", "subtype": "init", "session_id": "s"}], "", "anthropic"),
        ([{"type": "thread.started", "thread_id": "t"}], "", "openai"),
        ([{"type": "thread.started", "thread_id": "t"}], "azure.ai.openai", "azure.ai.openai"),
        ([{"what": "ever"}], "", None),
    ],
    ids=["claude", "codex", "named", "nobody's"],
)
async def test_who_serves_the_model(loop, messages, named, told):
    """E6: as it was named, or as the backend lets one think."""
    traces = Traces(provider=named)

    async def source():
        for message in messages:
            yield message

    with suppress(StreamTruncatedError):  # those that are known would have ended their turn
        async for _ in source() | idle_guard(60, observer=traces.observer):
            pass
    assert traces.spans["invoke_agent"].attributes.get(genai.PROVIDER) == told


async def test_a_verdict_is_counted_and_names_the_error(loop, traces):
    """E6: once, over all attempts of a session."""
    backend = Backend([Script(opened("s-1"), say("a"), hang())])
    guard = idle_guard(60, activity=Activity("coder"), observer=traces.observer)
    with pytest.raises(IdleTimeoutError):
        async with session(backend.open, prompt="go") | guard | reconnecting_resume() as chat:
            async for _ in chat:
                pass
    ((attributes, (count, _)),) = traces.points(genai.AGENT_DURATION)
    assert attributes == {genai.AGENT: "coder", genai.ERROR: "IdleTimeoutError"}
    assert count == 1
    ((attributes, verdicts),) = traces.points("streamguard.verdicts")
    assert attributes == {
        genai.AGENT: "coder",
        "streamguard.limit": "idle",
        "streamguard.guard": "idle_guard",
        "streamguard.enforced": True,
    }
    assert verdicts == 3  # attempts
    span = traces.spans["invoke_agent coder"]
    assert span.attributes["streamguard.limit"] == "idle"
    assert span.attributes["streamguard.outcome"] == "failed"


def test_a_concern_is_counted_and_is_an_event_of_what_it_is_about(traces):
    """E6: a tool that is quiet has it on its own span."""
    observer, about = traces.observer, {"activity": Activity("coder"), "at": 1.0}
    observer(events.StreamStarted(**about))
    observer(WorkBegan(**about, id="t", name="Task", background=True, scope="subagent"))
    observer(WorkQuiet(**about, limit="quiet", id="t", name="Task", window=60, elapsed=61))
    observer(
        WorkRepeated(**about, limit="repeats", names=("Bash",), times=5, period=1, error=True)
    )
    observer(HollowEnd(**about, limit="abandoned", work=("Task",)))
    observer(events.StreamEnded(**about, error=None, outcome="abandoned"))
    spans = traces.spans
    assert [e.name for e in spans["execute_tool Task"].events] == ["streamguard.work_quiet"]
    told = [e.name for e in spans["invoke_agent coder"].events]
    assert told == ["streamguard.work_repeated", "streamguard.hollow_end"]
    assert spans["invoke_agent coder"].attributes["streamguard.outcome"] == "abandoned"
    assert spans["invoke_agent coder"].status.status_code is StatusCode.UNSET
    counted = {told["streamguard.limit"]: n for told, n in traces.points("streamguard.concerns")}
    assert counted == {"quiet": 1, "repeats": 1, "abandoned": 1}


def test_names_that_a_model_chooses_are_bounded(traces):
    """E6: of the many, the first are told apart."""
    observer, activity = traces.observer, Activity("coder")
    about = {"activity": activity, "at": 0.0}
    observer(events.StreamStarted(**about))
    for i in range(3 * instruments.NAMES):
        observer(WorkBegan(**about, id="t", name=f"tool-{i}", background=False))
        observer(
            events.WorkOver(**about, id="t", name=f"tool-{i}", elapsed=1.0, outcome="finished")
        )
    points = traces.points(genai.TOOL_DURATION)
    assert len(points) == instruments.NAMES + 1
    assert sum(count for _, (count, _) in points) == 3 * instruments.NAMES


def test_every_name_is_one_of_the_conventions():
    """E6: as far as the package has them, which is of before the metrics of agents."""
    known = {value for value in vars(gen_ai_attributes).values() if isinstance(value, str)}
    ours = {value for value in vars(genai).values() if isinstance(value, str)}
    ours = {name for name in ours if name.startswith("gen_ai.")} - genai.HISTOGRAMS.keys()
    assert ours
    assert ours <= known


def test_a_session_that_is_cancelled_between_its_attempts_leaves_no_span_open(loop, traces):
    """E6: its program may hold the activity for long."""
    activity = Activity("coder")
    backend = Backend([Script(opened("s-1"), fail(ConnectionError(SECRET)))])
    guard = idle_guard(60, activity=activity, observer=traces.observer)

    async def consume():
        policy = reconnecting_resume(policy=RetryPolicy(network=Backoff(1, (30.0,))))
        with anyio.move_on_after(5):
            async with session(backend.open, prompt="go") | guard | policy as chat:
                async for _ in chat:
                    pass

    loop.run(consume)
    assert traces.spans.keys() == {"invoke_agent coder", "attempt 1"}


def test_without_the_api_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.delitem(sys.modules, "streamguard.observers.opentelemetry")
    monkeypatch.delattr("streamguard.observers.opentelemetry", raising=False)
    with pytest.raises(ConfigError, match=r"pip install 'agent-streamguard\[opentelemetry\]'"):
        importlib.import_module("streamguard.observers.opentelemetry")
