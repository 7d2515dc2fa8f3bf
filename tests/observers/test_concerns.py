"""Streams that are busy and get nowhere, as all who look see them: metrics, spans, entries, and the report of their record."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
import structlog
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry

from streamguard import Activity, Recorder, idle_guard, session
from streamguard.evidence.report import page, read_run
from streamguard.evidence.report.story import stories
from streamguard.observers import OpenTelemetryObserver, PrometheusObserver, StructlogObserver
from streamguard.testing import (
    Script,
    done,
    opened,
    repeat,
    say,
    silence,
    tool,
    tool_progress,
    tool_start,
    usage,
)
from tests.support import take

SECRET = "sk-not-for-anybody"
SAME = tool("Bash", 1, input={"command": SECRET}, outcome=SECRET)
# By limit: what happens, its knobs, the event's name, and what becomes of it.
CONCERNS = {
    "quiet": (
        (
            tool_start("t", "Task"),
            tool_progress("t"),
            repeat(say("x"), silence(10), times=60),
            done(),
        ),
        {"quiet": 300},
        "work_quiet",
        ("completed", "finished"),
    ),
    "repeats": (
        (repeat(say("x"), SAME, times=5), done()),
        {"repeats": 5},
        "work_repeated",
        ("completed", "finished"),
    ),
    "tokens": (
        (say("x"), usage(input_tokens=9), done()),
        {"tokens": 5},
        "ceiling_passed",
        ("completed", "finished"),
    ),
    "empty": ((opened("s"), done(answered=False)), {}, "hollow_end", ("empty", "hollow")),
    "abandoned": (
        (say("x"), tool_start("b", "build", background=True), done()),
        {},
        "hollow_end",
        ("abandoned", "hollow"),
    ),
}


@pytest.mark.parametrize("hosted", [False, True], ids=["stream", "session"])
@pytest.mark.parametrize("limit", CONCERNS)
def test_a_concern_is_seen_wherever_somebody_looks(loop, tmp_path, limit, hosted):
    """E6, B1, B2, B3, B4: once, by its limit, and with nothing of what was asked or answered."""
    steps, knobs, name, (outcome, state) = CONCERNS[limit]
    registry, reader, exporter = (
        CollectorRegistry(),
        InMemoryMetricReader(),
        InMemorySpanExporter(),
    )
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    observers = [
        PrometheusObserver(registry, streams=["coder"]),
        OpenTelemetryObserver(tracers, MeterProvider([reader], shutdown_on_exit=False)),
        StructlogObserver(),
    ]

    @asynccontextmanager
    async def source(point):
        yield Script(*steps)

    def tell(event):
        for observer in observers:
            observer(event)

    async def main():
        activity = Activity("coder")
        async with Recorder(tmp_path / "run", flow="f", step="s", work_dir=tmp_path):
            guard = idle_guard(3600, activity=activity, observer=tell, **knobs)
            if hosted:
                async with session(source, prompt="go") | guard as chat:
                    async for _ in chat:
                        pass
            else:
                assert (await take(Script(*steps) | guard)).error is None

    with structlog.testing.capture_logs() as entries:
        loop.run(main)

    def sample(metric, **labels):
        return registry.get_sample_value(f"streamguard_{metric}", {"stream": "coder", **labels})

    assert sample("concerns_total", limit=limit) == 1
    assert sample("streams_ended_total", outcome=outcome) == 1

    spans = exporter.get_finished_spans()
    (told,) = [
        event for span in spans for event in span.events if event.name == f"streamguard.{name}"
    ]
    assert told.attributes["streamguard.limit"] == limit
    (agent,) = [span for span in spans if span.name == "invoke_agent coder"]
    assert agent.attributes["streamguard.outcome"] == outcome
    (counted,) = [
        metric
        for metric in reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics
        if metric.name == "streamguard.concerns"
    ]
    (point,) = counted.data.data_points
    assert (point.attributes["streamguard.limit"], point.value) == (limit, 1)

    (entry,) = [entry for entry in entries if entry["event"] == name]
    assert (entry["log_level"], entry["limit"]) == ("warning", limit)

    run = read_run(tmp_path / "run")
    (story,) = stories(run)
    assert story.state == state
    (mark,) = [mark for mark in story.session.marks if mark.facts.get("limit") == limit]
    assert mark.text == entry["message"]

    everything = [*map(repr, entries), *(span.to_json() for span in spans), page(run)]
    assert SECRET not in "".join(everything)
