"""The tables of docs/observers.md have what the code has: each event, each metric, each span and attribute."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client import CollectorRegistry

from streamguard.observers import PrometheusObserver, genai, instruments, opentelemetry

PAGE = (Path(__file__).parents[2] / "docs" / "observers.md").read_text(encoding="utf-8")


def table(title, head):
    """The first column of the table in the section `title` whose first row begins with `head`."""
    section = re.split(r"^## ", PAGE.split(f"\n## {title}\n", 1)[1], flags=re.MULTILINE)[0]
    ((rows),) = re.findall(rf"^\| {head} \|.*\n((?:\|.*\n)+)", section, re.MULTILINE)
    return re.findall(r"^\| `([^`]+)`", rows, re.MULTILINE)


def test_each_metric_of_prometheus():
    registry = CollectorRegistry()
    PrometheusObserver(registry)
    made = [metric.name.removeprefix("streamguard_") for metric in registry.collect()]
    assert sorted(table("Prometheus", "metric")) == sorted(made)


def test_each_metric_of_opentelemetry():
    made = [*genai.HISTOGRAMS, *instruments.COUNTERS]
    assert sorted(table("OpenTelemetry", "metric")) == sorted(made)


def test_each_attribute_and_each_span_of_opentelemetry():
    """Whatever is set is told, and what is told is set: by the source, since no one span has all."""
    source = Path(opentelemetry.__file__).read_text(encoding="utf-8")
    named = set(re.findall(r'"(streamguard\.[a-z_.]+)"', source))
    named |= {getattr(genai, name) for name in re.findall(r"genai\.([A-Z_]+)\b", source)}
    named = {name for name in named if "." in name and not name.startswith("http")}
    assert set(table("OpenTelemetry", "attribute")) == named
    assert f"version `{genai.VERSION}`" in PAGE
    spans = [name.split()[0] for name in table("OpenTelemetry", "span")]
    assert spans == [genai.INVOKE_AGENT, "attempt", genai.EXECUTE_TOOL, "hook"]
