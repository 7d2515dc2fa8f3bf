"""Reports as programs make them. Checked, never run.

Lines marked with two ignores must be errors, for mypy and for pyright each.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import assert_type

from streamguard.events import Event
from streamguard.evidence.report import (
    Entry,
    FleetReport,
    Run,
    drawing,
    entry,
    index,
    page,
    read_run,
    runs_in,
)
from streamguard.evidence.timeline import Line, Timeline
from streamguard.fleet import SqlStore


def one() -> None:
    run = read_run(Path("runs/17"))
    assert_type(run, Run)
    assert_type(page(run), str)
    assert_type(drawing(run), str)
    assert_type(run.start, float)


def many() -> None:
    runs = runs_in(Path("runs"))
    assert_type(runs, list[Path])
    entries = [entry(read_run(run), f"{run.name}/report.html") for run in runs]
    assert_type(entries, list[Entry])
    assert_type(index("runs", entries), str)


def of_a_fleet(store: SqlStore) -> None:
    sessions = [asdict(row) for row in store.live(all=True)]
    report = FleetReport("fleet.db", store.timeouts(), sessions)
    assert_type(report.page(), str)
    assert_type(FleetReport("log", [{"session": "k"}]).drawing(), str)
    FleetReport("fleet.db", store.live())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def written(timeline: Timeline, event: Event) -> None:
    timeline.event(event)
    timeline.message("issue-7", "Progress", 12.5)
    assert_type(timeline.take(), list[Line])
    assert_type(timeline.take(last=True), list[Line])
    timeline.take(True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


page(Path("runs/17"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
