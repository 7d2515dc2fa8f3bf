"""Events as Prometheus metrics, by the real client and a registry of the test's own."""

from __future__ import annotations

import gc
import sys

import anyio
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from streamguard import (
    Activity,
    CircuitBreaker,
    ConfigError,
    IdleTimeoutError,
    idle_guard,
    reconnecting_resume,
    session,
)
from streamguard.events import (
    CeilingPassed,
    HollowEnd,
    ProcessKilled,
    ProcessSurvived,
    StreamEnded,
    UnknownMessage,
    WorkQuiet,
)
from streamguard.observers import PrometheusObserver
from streamguard.testing import (
    Script,
    done,
    fail,
    hang,
    opened,
    say,
    silence,
    tool,
    tool_end,
    tool_start,
    usage,
)
from tests.sessions.backend import Backend


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
def sample(registry):
    def value(name, **labels):
        return registry.get_sample_value(f"streamguard_{name}", labels)

    return value


async def test_a_verdict_and_its_teardown(loop, registry, sample):
    """E6: by limit, with how late it was and whether the backend is gone."""
    guard = idle_guard(
        60,
        activity=Activity("coder"),
        disconnect=lambda: None,
        observer=PrometheusObserver(registry, streams=["coder"]),
    )

    with pytest.raises(IdleTimeoutError):
        async for _ in Script(say("a"), hang()) | guard:
            assert sample("streams", stream="coder") == 1
    assert sample("streams", stream="coder") == 0
    assert (
        sample("timeouts_total", stream="coder", limit="idle", enforced="yes", guard="idle_guard")
        == 1
    )
    assert sample("streams_ended_total", stream="coder", outcome="timeout") == 1
    assert sample("timeout_lateness_seconds_count") == 1
    assert sample("teardowns_total", confirmed="yes", disconnect="returned") == 1
    assert sample("teardown_seconds_count") == 1


async def test_who_was_not_named_is_other(loop, registry, sample):
    """E6: labels are bounded by what was named beforehand."""
    observer = PrometheusObserver(registry, tools=["Bash"])
    for i in range(20):
        script = Script(tool_start("t", "Bash"), tool_start("u", f"tool-{i}"), silence(5), done())
        async for _ in script | idle_guard(60, activity=Activity(str(i)), observer=observer):
            pass
    assert sample("streams_ended_total", stream="other", outcome="completed") == 20
    assert sample("work_seconds_count", tool="Bash", outcome="dropped") == 20
    assert sample("work_seconds_count", tool="other", outcome="dropped") == 20
    text = generate_latest(registry).decode()
    assert 'tool="tool-' not in text
    assert 'stream="1' not in text


async def test_work_and_holds_in_force(loop, registry, sample):
    """E6: gauges go up and down with them; a hold that is prolonged is still one."""
    activity = Activity("coder")
    observer = PrometheusObserver(registry, streams=["coder"], tools=["Bash"])
    seen = []

    script = Script(tool_start("t", "Bash"), silence(5), tool_end("t"), say("a"), done())
    async for _ in script | idle_guard(60, activity=activity, observer=observer):
        with activity.hold("human"):
            seen.append((sample("work_in_flight", tool="Bash"), sample("holds", reason="human")))
    assert seen[0] == (1, 1)
    assert seen[1][0] == 0
    assert sample("holds", reason="human") == 0
    assert sample("work_seconds_sum", tool="Bash", outcome="finished") == pytest.approx(5)


def test_a_stream_that_is_dropped_is_not_counted_for_ever(loop, registry, sample):
    """E6, O7: a consumer that breaks, or is cancelled, tells nobody."""
    observer = PrometheusObserver(registry)

    async def cancelled():
        with anyio.move_on_after(5):
            async for _ in Script(say("a"), hang()) | idle_guard(60, observer=observer):
                pass

    loop.run(cancelled)
    gc.collect()
    assert sample("streams", stream="other") == 0


async def test_a_session_that_reconnects_and_gives_up(loop, registry, sample):
    """E6: attempts, retries by class, and the reason."""
    backend = Backend([Script(opened("s"), say("a"), hang())])
    guard = idle_guard(60, activity=Activity("coder"), observer=PrometheusObserver(registry))
    with pytest.raises(IdleTimeoutError):
        async with session(backend.open, prompt="go") | guard | reconnecting_resume() as chat:
            async for _ in chat:
                pass
    assert sample("retries_total", stream="other", error_class="idle") == 2
    assert sample("attempts_total", stream="other", outcome="failed") == 3
    assert sample("reconnects_total", stream="other") == 2
    assert sample("gave_up_total", stream="other", reason="retries") == 1


async def test_what_was_used_up(loop, registry, sample):
    """E6, B4: while a turn goes on, and once, whichever streams share a name or an activity."""
    activity = Activity("coder")
    guard = idle_guard(
        60, activity=activity, observer=PrometheusObserver(registry, streams=["coder"])
    )
    steps = (
        usage(call="1", prompt_tokens=10, completion_tokens=5),
        tool("Bash", 5),
        usage(call="2", total_tokens=7),
        done(),
    )
    seen = []
    for _ in range(2):
        async for _ in Script(*steps) | guard:
            seen.append(sample("tokens_total", stream="coder", type="input"))
    assert seen[3] == 10  # before the turn's end
    assert sample("tokens_total", stream="coder", type="input") == 20
    assert sample("tokens_total", stream="coder", type="output") == 10
    assert sample("tokens_total", stream="coder", type="other") == 14
    assert sample("model_calls_total", stream="coder") == 4
    assert sample("cost_usd_total", stream="coder") is None


@pytest.mark.parametrize("span", ["process", "session", "turn"])
async def test_several_prompts_of_a_session_are_counted_once(loop, registry, sample, span):
    """E6, B4: over its attempts, and on a connection that counts on from prompt to prompt."""

    def turn(*tokens):
        return Script(opened("s"), *(usage(span=span, input_tokens=n) for n in tokens), done())

    lost = Script(opened("s"), usage(call="1", input_tokens=10), fail(ConnectionError()))
    observer = PrometheusObserver(registry, streams=["coder"])
    guard = idle_guard(60, activity=Activity("coder"), observer=observer)
    backend = Backend([lost, (turn(20, 30), turn(50))])
    async with session(backend.open, prompt="one") | guard | reconnecting_resume() as chat:
        async for _ in chat:
            pass
        async for _ in chat.ask("two"):
            pass
        whole = chat.activity.done.spent["tokens"]
    told = {"process": 10 + 50, "session": 50, "turn": 10 + 30 + 50}[span]
    assert sample("tokens_total", stream="coder", type="input") == whole == told


def test_concerns_and_hollow_ends(registry, sample):
    """E6: by limit, and by how a stream ended that was a success in name."""
    observer = PrometheusObserver(registry, streams=["coder"])
    about = {"activity": Activity("coder"), "at": 0.0}
    observer(WorkQuiet(**about, limit="quiet", id="t", name="Task", window=60, elapsed=61))
    observer(CeilingPassed(**about, limit="tokens", ceiling=10, spent=11))
    observer(HollowEnd(**about, limit="empty"))
    observer(StreamEnded(**about, error=None, outcome="empty"))
    for limit in ("quiet", "tokens", "empty"):
        assert sample("concerns_total", stream="coder", limit=limit) == 1
    assert sample("streams_ended_total", stream="coder", outcome="empty") == 1


def test_a_circuit(loop, registry, sample):
    """E6: the status in force is the one that is 1."""
    observer = PrometheusObserver(registry, circuits=["api"])

    async def main():
        breaker = CircuitBreaker("api", observer=observer)
        for _ in range(3):
            (await breaker.acquire()).failed()

    loop.run(main)
    assert sample("circuit", key="api", status="open") == 1
    assert sample("circuit", key="api", status="closed") == 0


def test_processes(registry, sample):
    """E6: how hard they had to be ended, and who is left."""
    observer = PrometheusObserver(registry)
    about = {"activity": Activity("a"), "at": 0.0, "pid": 7}
    observer(ProcessKilled(**about, signals=("TERM", "KILL"), exit=-9, elapsed=5.0))
    observer(ProcessSurvived(**about, survivors=()))
    observer(UnknownMessage(activity=about["activity"], at=0.0, type_name="x"))
    assert sample("processes_ended_total", signal="KILL") == 1
    assert sample("process_survivors_total") == 1
    assert sample("unknown_message_types_total") == 1


def test_twice_in_one_registry_is_an_error_that_leaves_nothing(registry):
    PrometheusObserver(registry)
    with pytest.raises(ConfigError, match="share it"):
        PrometheusObserver(registry)
    PrometheusObserver(registry, namespace="other")


def test_without_the_client_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ConfigError, match=r"pip install 'agent-streamguard\[prometheus\]'"):
        PrometheusObserver()
