"""The tables of docs/how-to/observers.md have what the code has: each event, each metric, each span and attribute."""

from __future__ import annotations

import dataclasses
import logging
import re
from pathlib import Path

from prometheus_client import CollectorRegistry

from streamguard import events
from streamguard.breaker import circuit_events as circuits
from streamguard.events import flat
from streamguard.events.flat import name_of
from streamguard.observers import PrometheusObserver, genai, instruments, opentelemetry
from tests.observers.test_event_fields import below, made

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "observers.md").read_text(encoding="utf-8")


def rows(title, head):
    """The rows of the table in the section `title` whose first row begins with `head`, as their cells."""
    section = re.split(r"^## ", PAGE.split(f"\n## {title}\n", 1)[1], flags=re.MULTILINE)[0]
    (told,) = re.findall(rf"^\| {head} \|.*\n\|[-|]+\n((?:\|.*\n?)+)", section, re.MULTILINE)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in told.splitlines()]


def table(title, head):
    """Its first column."""
    return [cells[0].split("`")[1] for cells in rows(title, head)]


def kinds(base):
    """The kinds of events below `base` that are ever told, by their name in the log."""
    found = [kind for child in base.__subclasses__() for kind in (child, *below(child))]
    return {name_of(made(kind)): kind for kind in found if not kind.__subclasses__()}


def fields(kind):
    """What of an event the table is to name."""
    told = {field.name for field in dataclasses.fields(kind)} - {"activity", "at", "key"}
    if issubclass(kind, events.Concern):
        told -= {"vitals"}  # all of them have these
    return told - {"verdict", "teardown"}


def test_each_event():
    """E6: with its level and its fields; the watchdog's and the breaker's have tables of their own."""
    known = {**kinds(events.Event), **kinds(events.ScopeEvent)}
    known = {name: kind for name, kind in known.items() if not name.startswith("watchdog.")}
    told = {cells[0].strip("`"): cells for cells in rows("Events", "event")}
    assert told.keys() == known.keys()
    for name, kind in known.items():
        _, level, named, what = told[name]
        assert set(re.findall(r"`([a-z_]+)`", named)) == fields(kind), name
        levels = getattr(kind, "level", logging.WARNING)
        if isinstance(levels, int):
            assert level == logging.getLevelName(levels).lower(), name
        assert what.startswith("*concern:*") is issubclass(kind, events.Concern), name
        assert ("the verdict's" in named) is ("verdict" in kind.__dataclass_fields__), name


def test_each_event_of_watchdogs_and_breakers():
    told = {name for name in kinds(events.Event) if name.startswith("watchdog.")}
    assert set(table("Watchdogs", "event")) == told
    breakers = rows("Time scopes and circuit breakers", "event")
    known = kinds(circuits.CircuitEvent)
    assert {cells[0].strip("`") for cells in breakers} == known.keys()
    for name, named, _ in breakers:
        assert set(re.findall(r"`([a-z_]+)`", named)) == fields(known[name.strip("`")]), name


def test_the_fields_of_verdicts_and_teardowns():
    section = PAGE.split("A verdict's fields are", 1)[1].split("\n\n", 1)[0]
    told = set(re.findall(r"`([a-z_.]+)`", section))
    assert {*flat._VERDICT, "scope", "effective_scope", "when"} <= told
    assert {f"teardown.{name}" for name in flat._TEARDOWN} <= told


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
    values = [getattr(genai, name) for name in re.findall(r"genai\.([A-Z_]+)\b", source)]
    named |= {value for value in values if isinstance(value, str) and "." in value}
    named -= {genai.SCHEMA_URL}
    assert set(table("OpenTelemetry", "attribute")) == named
    assert f"version `{genai.VERSION}`" in PAGE
    spans = [name.split()[0] for name in table("OpenTelemetry", "span")]
    assert spans == [genai.INVOKE_AGENT, "attempt", genai.EXECUTE_TOOL, "hook"]
