"""What a stream is called that nobody has named: its backend and a number, from when somebody is first told of it."""

from __future__ import annotations

import gc
import itertools
import logging
import threading
import weakref

import anyio
import pytest

from streamguard import Activity, IdleTimeoutError, Recorder, events, guarded_call, idle_guard
from streamguard import activity as activities
from streamguard.evidence.report import page, read_run
from streamguard.signals import Progress
from streamguard.testing import Script, hang, say
from tests.support import take


async def claude_like():
    """Messages that are claude's by their shape."""
    yield {"type": "system", "subtype": "init", "session_id": "0e3f6a0e"}
    yield {"type": "assistant", "message": {"role": "assistant", "content": []}}
    await anyio.sleep_forever()


async def cut(script, **known):
    taken = await take(script | idle_guard(5, **known))
    assert isinstance(taken.error, IdleTimeoutError)
    return taken.error


async def test_a_stream_without_a_name_is_called_after_its_backend(loop, caplog):
    error = await cut(claude_like())
    assert error.activity.name == error.verdict.name == ""
    assert error.activity.display_name == error.verdict.stream == "claude-1"
    assert str(error).startswith("claude-1 idle for 5 s (limit idle=5); 2 messages seen")
    lines = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert {record.getMessage().partition(":")[0] for record in lines} == {"claude-1"}
    assert {record.streamguard["stream"] for record in lines} == {"claude-1"}


async def test_each_has_a_number_of_its_own_and_keeps_it(loop):
    errors = [await cut(Script(say(1), hang())), await cut(claude_like())]
    assert [error.verdict.stream for error in errors] == ["stream-1", "claude-2"]
    again = errors[0].activity
    error = await cut(Script(say(1), hang()), activity=again)
    assert error.verdict.stream == again.display_name == "stream-1"


async def test_a_single_call_is_called_one(loop):
    for number in (1, 2):
        with pytest.raises(IdleTimeoutError) as caught:
            await guarded_call(anyio.sleep_forever(), 5)
        assert str(caught.value).startswith(f"call-{number} idle for 5 s (limit idle=5)")
    guard = idle_guard(5, activity=Activity("search"))
    with pytest.raises(IdleTimeoutError, match="stream 'search' idle for 5 s"):
        await guarded_call(anyio.sleep_forever(), guard)


async def test_a_name_that_was_given_is_what_is_shown(loop):
    error = await cut(claude_like(), activity=Activity("issue-7"))
    assert error.activity.display_name == error.verdict.name == "issue-7"
    assert str(error).startswith("stream 'issue-7' idle for 5 s")


async def test_its_events_log_and_report_call_it_the_same(loop, tmp_path, caplog):
    seen = []
    async with Recorder(tmp_path / "run", flow="nightly"):
        error = await cut(claude_like(), observer=seen.append)
    name = error.activity.display_name
    assert {event.activity.display_name for event in seen} == {name}
    assert [session.name for session in read_run(tmp_path / "run").sessions] == [name]
    assert f"{name} hung" in page(read_run(tmp_path / "run"))
    assert any(record.getMessage().startswith(f"{name}: ") for record in caplog.records)


async def test_a_stream_of_which_nobody_is_told_has_no_number(loop, monkeypatch):
    """It costs nothing then: neither a number nor memory."""
    numbers = itertools.count(1)
    monkeypatch.setattr(activities, "_numbers", numbers)
    logging.disable(logging.CRITICAL)
    try:
        activity = Activity()
        await take(Script(say(Progress())) | idle_guard(5, activity=activity))
    finally:
        logging.disable(logging.NOTSET)
    assert next(numbers) == 1
    assert activity not in activities._called


def test_the_name_goes_with_its_stream():
    activity = Activity()
    assert activity.display_name
    assert activity in activities._called
    gone = weakref.ref(activity)
    del activity
    gc.collect()
    assert gone() is None  # so nothing but the stream keeps the entry


def test_threads_that_ask_at_once_are_told_the_same():
    activity = Activity()
    told, barrier = [], threading.Barrier(8)

    def ask():
        barrier.wait()
        told.append(activity.display_name)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(told) == 8
    assert len(set(told)) == 1


@pytest.mark.parametrize("name", ["", "issue-7"])
def test_metrics_count_by_backend_and_never_by_number(name):
    """A label for each stream would have no end."""
    prometheus_client = pytest.importorskip("prometheus_client")
    from streamguard.observers.prometheus import PrometheusObserver

    registry = prometheus_client.CollectorRegistry()
    observer = PrometheusObserver(registry, streams=("claude", "issue-7"))
    for _ in range(3):
        activity = Activity(name)
        assert activity.display_name
        observer(events.Reconnected(activity=activity, at=0.0, attempt=2, resumes=True))
    labels = {
        sample.labels["stream"]
        for metric in registry.collect()
        for sample in metric.samples
        if "stream" in sample.labels
    }
    assert labels == {name or "other"}
