"""What is as the seeds have it, under another name: one test for each that no test of theirs shows."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from contextlib import asynccontextmanager

import anyio
import pytest

from streamguard import (
    Activity,
    ErrorClass,
    IdleTimeoutError,
    Recorder,
    RetryPolicy,
    derived_idle,
    idle_guard,
    reconnecting_resume,
    session,
)
from streamguard.retry import retry_after
from streamguard.testing import FakeClient, Script, done, fail, hang, opened, say, silence
from tests.runner.commands import ENDLESS, INIT, says, sh
from tests.sessions.backend import Backend
from tests.support import take

LONG, SHORT = "600", "0.3"


# -- S0: the idle retry --------------------------------------------------------------------------


def test_s0_01_s0_02_alive_open_and_silent_is_what_idle_detects(loop, form):
    """No end of the stream, no result, no error: only silence, in any of its pulls."""
    talk = [say("x"), silence(179)] * 5
    taken = loop.run(lambda: take(Script(*talk, hang()) | idle_guard(180), form))
    assert type(taken.error) is IdleTimeoutError
    assert len(taken.messages) == 5
    assert loop.took(taken.elapsed, 5 * 179 + 1)


def test_s0_03_without_a_limit_it_passes_everything_through(loop, form):
    script = Script(say("a"), silence(1e6), say("b"), done())
    taken = loop.run(lambda: take(script | idle_guard(None), form))
    assert (len(taken.messages), taken.error) == (3, None)


def test_s0_05_a_normal_end_is_a_normal_end(loop, form):
    taken = loop.run(lambda: take(Script(say("a"), done()) | idle_guard(180), form))
    assert taken.error is None


async def test_s0_15_the_resume_prompt_names_the_issue(loop):
    backend = Backend([Script(opened("s-1"), hang()), Script(done())])
    guard = idle_guard(180, activity=Activity("mala", issue_id="mala-7"))
    resume = reconnecting_resume(prompt="Continue on issue {issue_id}.")
    async with session(backend.open, prompt="Fix it.") | guard | resume as chat:
        assert [message async for message in chat]
    assert backend.prompts == ["Fix it.", "Continue on issue mala-7."]


def test_s0_20_the_session_id_is_known_from_the_first_message_that_has_it(loop, form):
    """There, from the result alone, which a turn that hangs never gives."""
    activity = Activity()
    source = Script(opened("s-1"), hang())
    loop.run(lambda: take(source | idle_guard(180, activity=activity), form))
    assert activity.token == "s-1"


async def test_s0_25_s0_26_each_attempt_has_a_client_of_its_own_entered_and_left(loop):
    walk = []

    @asynccontextmanager
    async def open_client(point):
        walk.append(f"enter {point.attempt}")
        try:
            yield Script(opened("s-1"), hang()) if point.attempt == 1 else Script(done())
        finally:
            walk.append(f"leave {point.attempt}")

    pipe = idle_guard(180) | reconnecting_resume()
    async with session(open_client, prompt="x") | pipe as chat:
        assert [message async for message in chat]
    assert walk == ["enter 1", "leave 1", "enter 2", "leave 2"]


def test_s0_34_the_hour_of_the_seed():
    assert derived_idle(3600) == 720


# -- S1: the watchdog of a process ---------------------------------------------------------------


def test_s1_12_one_error_comes_out_of_the_block_as_itself(loop):
    """No group of one, though a task group hosts the monitor."""
    taken = loop.run(lambda: take(Script(say("a"), hang()) | idle_guard(180), "hosted"))
    assert type(taken.error) is IdleTimeoutError


async def test_s1_13_a_result_at_the_last_instant_is_no_timeout(loop, form):
    client = FakeClient(Script(say("a"), silence(180), done()))
    await client.connect("x")
    taken = await take(client.receive_response() | idle_guard(180, client=client), form)
    assert not client.disconnect_called
    await client.disconnect()
    assert taken.error is None


async def test_s1_15_without_a_pid_the_client_is_disconnected_for_real(loop, form):
    client = FakeClient(Script(say("a"), hang()))
    await client.connect("x")
    taken = await take(client.receive_response() | idle_guard(180, client=client), form)
    assert client.disconnected
    assert taken.error.teardown.disconnect == "returned"


@pytest.mark.parametrize("off", ["0", "false", "no", "off"])
def test_s1_17_s1_19_switched_off_by_the_environment_alone(loop, form, monkeypatch, off):
    monkeypatch.setenv("STREAMGUARD_MODE", off)
    script = Script(say("a"), silence(1000), done())
    assert loop.run(lambda: take(script | idle_guard(180), form)).error is None


def test_s1_25_the_watchdog_knows_no_sdk_and_no_command_line():
    """In a process of its own, so that nothing is there already."""
    code = (
        "import sys; import streamguard.compat\n"
        "heavy = ('claude_agent_sdk', 'openai', 'streamguard.cli', 'streamguard.runner', 'psutil')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    words = [sys.executable, "-c", code]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "[]\n"


# -- S2: the policy ------------------------------------------------------------------------------


class RateLimitedError(Exception):
    def __init__(self, **headers):
        super().__init__("slow down")
        self.status_code = 429
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


@pytest.mark.parametrize(("headers", "waited"), [({}, 60), ({"retry_after": "7"}, 7)])
async def test_s2_06_a_rate_limit_waits_as_long_as_the_server_says(loop, headers, waited):
    """60 s if it says nothing; and the same prompt again."""
    times = []

    async def opening(_point):
        times.append(anyio.current_time())

    backend = Backend(
        [Script(opened("s-1"), fail(RateLimitedError(**headers))), Script(done())], opening=opening
    )

    pipe = idle_guard(180) | reconnecting_resume()
    async with session(backend.open, prompt="x") | pipe as chat:
        assert [message async for message in chat]
    assert waited <= times[1] - times[0] <= 1.1 * waited + 0.01  # never earlier


def test_s2_06_at_most_300_s_and_five_times_and_then_a_person():
    assert retry_after(RateLimitedError(retry_after="9999")) == 300
    policy = RetryPolicy()
    assert policy.backoff(ErrorClass.RATE_LIMIT).retries == 5
    assert ErrorClass.RATE_LIMIT.needs_a_person


def test_s2_07_the_jitter_is_up_to_half_of_the_delay():
    policy = RetryPolicy()
    delays = [policy.jittered(ErrorClass.NETWORK, 4.0, float("inf")) for _ in range(1000)]
    assert min(delays) >= 4.0
    assert max(delays) <= 6.0
    assert max(delays) - min(delays) > 1.0


def test_s2_12_s2_17_where_it_stood_and_where_that_is_written(loop, tmp_path):
    async def main():
        async with Recorder(tmp_path, flow="build", step="step-3", agent="coder") as recorder:
            recorder.mark(phase="work", progress="3 of 7 files", checkpoint="build-step-2")
            await take(Script(say("a"), hang()) | idle_guard(180))

    loop.run(main)
    receipt = json.loads((tmp_path / "build/receipts/step-3-timeout.json").read_bytes())
    assert receipt["last_known_state"] == {
        "step_id": "step-3",
        "agent_key": "coder",
        "phase": "work",
        "progress_indicator": "3 of 7 files",
        "vitals": None,  # no process is known
    }
    assert receipt["context_for_resume"]["last_successful_checkpoint"] == "build-step-2"
    assert (tmp_path / "build/timeouts.jsonl").is_file()
    assert (tmp_path / "build/llm/step-3-partial.jsonl").is_file()


# -- S3: claude-print ----------------------------------------------------------------------------


def test_s3_03_the_whole_run_has_a_limit_and_0_is_off(commands):
    done_, told = commands.status("--timeout", SHORT, "--", *ENDLESS)
    assert (done_.code, told["limit"]) == (124, "total")
    assert commands.guarded("--timeout", "0", "--", *sh("sleep 1")).code == 0


def test_s3_06_of_several_limits_the_first_is_kept_once(commands):
    words = ["--first", SHORT, "--turn", LONG, "--total", LONG, "--idle", LONG]
    done_, told = commands.status(*words, "--", *ENDLESS)
    assert (done_.code, told["limit"]) == (124, "first")
    assert len(done_.err.splitlines()) == 1


def test_s3_12_the_four_options_are_understood(commands):
    options = (
        "--timeout",
        "--first-output-timeout",
        "--stream-json-timeout",
        "--stop-hook-timeout",
    )
    words = [word for option in options for word in (option, LONG)]
    script = sh(f"{says(INIT)}; exit 7")
    assert commands.guarded(*words, "--", *script, "stream-json").code == 7


def test_s3_13_the_command_may_clean_up_and_nothing_of_ours_is_left(commands, tmp_path):
    """TERM first: a trap has its grace. There is no FIFO and no folder of ours."""
    kept = tmp_path / "kept"
    kept.touch()
    script = f"trap 'rm {kept}; exit 0' TERM; echo ready; while :; do sleep .05; done"
    words = ["--first", LONG, "--idle", SHORT, "--kill-after", LONG]
    done_ = commands.guarded(*words, "--", *sh(script))
    assert done_.code == 124
    assert done_.out == b"ready\n"
    assert not kept.exists()
    assert commands.living() == set()


def test_s3_14_the_error_comes_in_the_format_that_was_chosen(commands):
    done_ = commands.guarded("--errors", "json", "--first", SHORT, "--", *ENDLESS)
    told = json.loads(done_.err)
    assert (told["limit"], told["exit_code"]) == ("first", 124)


# -- S4: the idle watchdog -----------------------------------------------------------------------


def test_s4_02_drain_and_teardown_have_bounds_of_their_own(loop, form):
    """A backend that hangs in its end, too, keeps nobody: 2 h of total, 30 s for the disconnect."""
    client = FakeClient(Script(say("a"), hang()), disconnect_hangs=True)

    async def main():
        await client.connect("x")
        guard = idle_guard(None, total=7200, client=client)
        return await take(client.receive_response() | guard, form)

    taken = loop.run(main)
    assert taken.error.verdict.limit == "total"
    assert 7200 + 30 <= taken.elapsed <= 7200 + 60


async def test_s4_03_one_verdict_ends_the_stream_and_the_backend(loop, form):
    client = FakeClient(Script(say("a"), hang()))
    await client.connect("x")
    taken = await take(client.receive_response() | idle_guard(300, client=client), form)
    assert client.disconnected
    assert taken.error.teardown.confirmed


async def test_s4_04_a_message_counts_from_its_arrival_not_from_the_end_of_its_processing(
    loop, form
):
    """A slow step downstream is not the backend's silence, nor is it forgiven twice."""
    source = Script(say("a"), silence(100), say("b"), hang())
    activity = Activity()
    guard = idle_guard(300, activity=activity)
    taken = await take(source | guard, form, lambda _message: anyio.sleep(250))
    assert type(taken.error) is IdleTimeoutError
    assert len(taken.messages) == 2


def test_s4_16_the_warning_has_task_idle_time_and_threshold(loop, caplog):
    guard = idle_guard(300, activity=Activity("task-7"))
    loop.run(lambda: take(Script(say("a"), hang()) | guard))
    (told,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert told.streamguard["event"] == "timed_out"
    assert told.streamguard["stream"] == "task-7"
    assert (told.streamguard["elapsed"], told.streamguard["window"]) == (300, 300)


def test_s4_17_long_texts_are_cut_in_the_transcript(loop, tmp_path):
    async def main():
        async with Recorder(tmp_path, flow="f", step="s"):
            await take(Script(say("x" * 20_000), done()) | idle_guard(300))

    loop.run(main)
    written = (tmp_path / "f/llm/s-partial.jsonl").read_text()
    assert "x" * 8000 in written
    assert "x" * 8193 not in written
    assert "[cut: " in written


async def test_s4_18_the_session_id_is_told_as_soon_as_it_is_shown(loop):
    """Each message is there for who wants to save it, and the activity has the token by then."""
    seen, activity = [], Activity()
    guard = idle_guard(300, activity=activity)
    async for _ in Script(opened("s-1"), say("a"), done()) | guard:
        seen.append(activity.token)
    assert seen == ["s-1"] * 3
