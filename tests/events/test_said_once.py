"""The lines of one hang, with the log as it is by default: each of them once, and none says what the error says."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager

import pytest

from streamguard import Activity, IdleTimeoutError, idle_guard, reconnecting_resume, session
from streamguard.limits import scope
from streamguard.testing import Script, hang, opened, say
from tests.support import take


@pytest.fixture
def lines(caplog):
    """What is logged as it is by default: warnings, and worse."""
    caplog.set_level(logging.WARNING, "streamguard")
    return lambda: [record.getMessage() for record in caplog.records]


async def test_a_hang_is_one_line_and_the_error_says_the_rest(loop, lines):
    taken = await take(Script(say("a"), hang()) | idle_guard(60))
    assert isinstance(taken.error, IdleTimeoutError)
    assert lines() == ["stream-1: ending: idle for 60 s (limit idle=60)"]
    assert str(taken.error) == (
        "stream-1 idle for 60 s (limit idle=60); 1 message seen, the last (progress) 60 s ago. "
        "Teardown confirmed after 0 s: the source was closed, no disconnect given"
    )
    assert not any(line in str(taken.error) or str(taken.error) in line for line in lines())


async def test_a_hang_with_retries_is_a_story(loop, lines):
    @asynccontextmanager
    async def open_it(point):
        yield Script(opened("s-1"), say("a"), hang())

    guarded = session(open_it, prompt="go") | idle_guard(60, activity=Activity("issue-7"))
    with pytest.raises(IdleTimeoutError) as caught:
        async with guarded | reconnecting_resume(backoff=(0, 5)) as chat:
            async for _ in chat:
                pass
    ending = "issue-7: ending: idle for 60 s (limit idle=60)"
    named = "issue-7: IdleTimeoutError (class idle): retry"
    assert lines() == [
        ending,
        f"{named} 1 of 2 at once, resuming session s-1",
        ending,
        f"{named} 2 of 2 in 5 s, resuming session s-1",
        ending,
        "issue-7: gave up (retries): IdleTimeoutError (class idle): its 2 retries made no difference",
    ]
    assert not [line for line in lines() if str(caught.value) in line]
    assert "messages seen" not in "".join(lines())


async def test_a_disconnect_that_hangs_is_told_in_other_words_than_the_errors(loop, lines):
    guard = idle_guard(60, disconnect=hang_for_ever, disconnect_timeout=5)
    taken = await take(Script(say("a"), hang()) | guard)
    assert lines() == [
        "stream-1: ending: idle for 60 s (limit idle=60)",
        "stream-1: disconnect still hung after 5 s and was abandoned; the backend may be alive",
        "stream-1: after 5 s the backend's end is NOT confirmed: it may be alive",
    ]
    assert "Teardown NOT confirmed after 5 s" in str(taken.error)


async def hang_for_ever():
    import anyio

    await anyio.sleep_forever()


async def test_where_no_error_is_raised_the_log_says_it_all(loop, lines, monkeypatch):
    """Mode `warn`."""
    monkeypatch.setenv("STREAMGUARD_MODE", "warn")
    from streamguard.testing import done, silence

    await take(Script(say("a"), silence(70), done()) | idle_guard(60))
    [line] = lines()
    assert line.startswith(
        "stream-1: would end (mode warn): stream-1 idle for 60 s (limit idle=60); 1"
    )


async def test_a_scope_says_that_its_time_is_up(loop, lines):
    with pytest.raises(TimeoutError) as caught:
        async with scope("step", "build", timeout=30):
            await hang_for_ever()
    assert lines() == ["time is up for step 'build'"]
    assert "step 'build' was not done in 30 s" in str(caught.value)
