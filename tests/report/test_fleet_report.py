"""A fleet's log, drawn: when each session fell silent, and what became of it as far as the store knows."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree as ET

import pytest

from streamguard.evidence.report import FleetReport
from streamguard.evidence.report.story import headline
from streamguard.evidence.report.wording import clock, instant


def line(session="issue-7", at="2025-11-18T03:15:44.000Z", attempt=1, **more):
    return {
        "timestamp": at,
        "session": session,
        "limit": "idle",
        "timeout_ms": 180_000,
        "elapsed_ms": 180_000,
        "reason": f"stream 'talk' idle for 180 s (limit idle=180); {attempt} messages seen",
        "attempt": attempt,
        "worker": "host-a:17:aa",
        "logged": 1.0,
        **more,
    }


def row(key="issue-7", status="done", **more):
    return {"key": key, "status": status, "attempt": 2, "delivered": 1234, "why": "", **more}


def words(text):
    bare = re.sub(r"<(style|script)[^>]*>.*?</\1>", "", text, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", bare).split())


def test_it_says_since_when_and_what_was_tried_and_what_became_of_it():
    lines = [line(), line(at="2025-11-18T03:25:44.000Z", attempt=2, worker="host-b:4:bb")]
    [story] = FleetReport("fleet.db", lines, [row(status="parked", why="poison: 3 attempts")]).told
    assert headline([story]) == "issue-7 hung"
    assert (instant(story.since), clock(story.decided)) == ("2025-11-18 03:22:44 UTC", "03:25:44")
    assert story.what == "Idle for 180 s (limit idle=180)"
    [tried] = story.tried
    assert tried.startswith("03:15:44 attempt 1 on host-a:17:aa: Idle for 180 s")
    assert story.left == ["it is parked, for a person to look: poison: 3 attempts"]
    assert [step.lines for step in story.next_steps] == ["streamguard fleet release issue-7"]


@pytest.mark.parametrize(
    ("now", "state", "left"),
    [
        (row(), "recovered", "it is done, with 1,234 messages in 2 attempts"),
        (row(status="waiting"), "open", "it waits for a worker"),
        (row(status="running", owner="w"), "open", "it runs on w"),
        (row(status="cancelled", why="not wanted"), "finished", "it was cancelled: not wanted"),
        (
            row(status="parked", why="unsafe: its backend may still be alive on w"),
            "hung",
            "the backend's end is NOT",
        ),
        (None, "hung", "the store was not asked"),
    ],
)
def test_what_became_of_it_is_what_the_store_says(now, state, left):
    [story] = FleetReport("f", [line()], [now] if now else []).told
    assert story.state == state
    assert story.left[0].startswith(left)
    assert story.is_alarming == ("NOT" in left)


def test_the_page_and_the_picture_say_it():
    """And nothing of messages, of which there is no line."""
    report = FleetReport("fleet.db", [line(), line("other")], [row(), row("other", "parked")])
    page = words(report.page())
    assert "Of 2 sessions, 1 hung and 1 recovered after a hang: the fleet in fleet.db" in page
    assert "attempt 1 on host-a:17:aa" in page
    assert "other: hung" in page
    assert "1,234" in page
    assert " 0 messages" not in page
    drawn = report.drawing()
    ET.fromstring(drawn)
    assert " 0 messages" not in drawn


def test_whatever_is_in_a_line_is_text():
    """Keys and workers are named by others."""
    evil = "</script><b onclick=x>\x1b[2J\u202e"
    lines = [line(evil, worker=evil, reason=evil, limit=evil), line(evil, attempt="many")]
    report = FleetReport(evil, lines, [row(evil, why=evil)])
    assert report.run.unreadable == 1
    for text in (report.page(), report.drawing()):
        assert "<b onclick" not in text
        assert "\x1b" not in text
        assert "\u202e" not in text


@pytest.mark.parametrize(
    "wrong",
    [{}, line(at="yesterday"), line(at=None), {**line(), "elapsed_ms": "long"}, {"session": "k"}],
)
def test_what_cannot_be_read_is_counted(wrong):
    report = FleetReport("f", [wrong, line()])
    assert report.run.unreadable == 1
    assert len(report.told) == 1
    assert "1 line could not be read" in words(report.page())


def test_an_empty_log_is_a_page():
    assert "Nothing was recorded" in words(FleetReport("f", []).page())
    ET.fromstring(FleetReport("f", []).drawing())


def test_lines_survive_json():
    [told] = FleetReport("f", [json.loads(json.dumps(line()))]).told
    assert told.session.name == "issue-7"
