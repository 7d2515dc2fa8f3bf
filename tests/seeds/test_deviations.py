"""What is kept different from a seed on purpose, by its id: docs/how-to/moving/from-the-seeds.md gives the reasons.

What has a test that names the id elsewhere is not repeated: `record_failure` (S2-10) in
`tests/retry`, `plan_resume` (S2-18) in `tests/evidence`, the gate by id (S4-06) beside this file.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import subprocess

import anyio
import pytest

from streamguard import (
    Activity,
    ConfigError,
    DeadlineExceededError,
    ErrorClass,
    IdleTimeoutError,
    ResumePoint,
    RetryPolicy,
    StreamGuardError,
    StreamTimeoutError,
    classify,
    exit_code_for,
    from_config,
    idle_guard,
    reconnecting_resume,
    session,
)
from streamguard.compat import SubprocessWatchdog, SubprocessWatchdogTimeout, WatchdogConfig
from streamguard.errors import ERRORS
from streamguard.testing import (
    FakeClient,
    Script,
    done,
    fail,
    hang,
    opened,
    run_virtual,
    say,
    silence,
    tool_end,
    tool_start,
    usage,
)
from tests.runner.commands import ENDLESS, INIT, says, sh
from tests.sessions.backend import Backend
from tests.support import take

HANGS = Script(opened("sess-12345"), hang())
WELL = Script(say("b"), done())


def play(loop, *scripts, prompts=("x",), client=None, total=None, **options):
    """A session that asks `prompts`: its backend, the error that ended it, and after how long."""
    backend = Backend(list(scripts), client_options=client or {})

    async def main():
        began, error = anyio.current_time(), None
        guard = idle_guard(180, activity=Activity("issue-7"), total=total)
        try:
            pipe = guard | reconnecting_resume(**options)
            async with session(backend.open, prompt=prompts[0]) | pipe as chat:
                for number, prompt in enumerate(prompts):
                    async for _ in chat.ask(prompt) if number else chat:
                        pass
        except StreamGuardError as raised:
            error = raised
        return error, anyio.current_time() - began

    error, elapsed = loop.run(main)
    backend.check()
    return backend, error, elapsed


# -- S0: the idle retry --------------------------------------------------------------------------


def test_s0_04_the_error_says_what_was_seen_and_comes_of_no_timeout_error(loop, form):
    """There is no `wait_for` below it that could be mistaken for the stream's own timeout."""
    taken = loop.run(lambda: take(Script(say("a"), hang()) | idle_guard(180), form))
    assert "idle for 180 s (limit idle=180); 1 message seen" in str(taken.error)
    assert isinstance(taken.error, TimeoutError)
    assert not isinstance(taken.error.__cause__, TimeoutError)


def test_s0_09_s0_33_a_disconnect_has_30_s_and_what_follows_is_no_retry(loop):
    backend, error, elapsed = play(loop, HANGS, WELL, client={"disconnect_hangs": True})
    assert error.gave_up == "unsafe"
    assert error.teardown.disconnect == "abandoned"
    assert elapsed == pytest.approx(180 + 30, abs=0.1)
    assert len(backend.clients) == 1


def test_s0_33_who_wants_the_seeds_risk_says_so(loop):
    async def opening(point):
        backend.client_options = (
            {"disconnect_error": OSError("gone")} if point.attempt == 1 else {}
        )

    backend = Backend([HANGS, WELL], opening=opening)

    async def main():
        pipe = idle_guard(180) | reconnecting_resume(resume_after_unconfirmed_teardown=True)
        async with session(backend.open, prompt="x") | pipe as chat:
            return [message async for message in chat]

    assert loop.run(main)
    assert len(backend.clients) == 2


def test_s0_10_an_error_in_disconnect_is_a_warning_and_leaves_the_end_unproven(loop, caplog):
    _, error, _ = play(loop, HANGS, WELL, client={"disconnect_error": OSError("already gone")})
    assert error.gave_up == "unsafe"
    (told,) = [
        each for each in caplog.records if each.message.startswith("issue-7: disconnect raised")
    ]
    assert told.levelno == logging.WARNING


def test_s0_14_a_backend_that_was_silent_since_it_was_asked_is_asked_the_same_again(loop):
    """The prompt may never have reached it; "Continue." would go on with the turn before."""
    backend, error, _ = play(
        loop, (Script(opened("s-1"), say("a"), done()), Script(hang())), WELL, prompts=("x", "y")
    )
    assert error is None
    assert backend.prompts == ["x", "y", "y"]
    assert backend.tokens == [None, "s-1"]


def test_s0_14_a_session_id_from_elsewhere_is_given_with_the_point(loop):
    """What the seed kept in `lifecycle_ctx.session_id`."""
    backend = Backend([WELL])

    async def main():
        point = ResumePoint(token="sess-1")
        async with session(backend.open, prompt="x", point=point) | idle_guard(180) as chat:
            return [message async for message in chat]

    assert loop.run(main)
    assert (backend.tokens, backend.prompts) == (["sess-1"], ["x"])


def test_s0_16_text_that_was_delivered_forbids_a_fresh_start_too(loop):
    backend, error, _ = play(loop, Script(say("a"), hang()), WELL)
    assert error.gave_up == "unsafe"
    assert "1 message had been delivered without session context" in str(error.__notes__)
    assert len(backend.clients) == 1


def test_s0_17_s0_18_giving_up_raises_the_error_that_ended_the_attempt(loop):
    """The same object, with `gave_up` and a note: `except IdleTimeoutError` sees what hung."""
    _, error, elapsed = play(loop, HANGS)
    assert type(error) is IdleTimeoutError
    assert error.verdict.elapsed == 180
    assert error.gave_up == "retries"
    assert "its 2 retries made no difference" in str(error.__notes__)
    assert elapsed == pytest.approx(3 * 180 + 0 + 5, abs=0.1)


def test_s0_19_tool_calls_of_earlier_turns_count_on_the_same_connection(loop):
    """The conversation lives in that client alone: begun afresh, it would not know of them."""
    first = Script(tool_start("t", "Bash"), tool_end("t"), done())
    backend, error, _ = play(loop, (first, Script(hang())), WELL, prompts=("x", "y"))
    assert error.gave_up == "unsafe"
    assert "1 tool call occurred" in str(error.__notes__)
    assert len(backend.clients) == 1


def test_s0_24_a_backoff_that_does_not_fit_is_not_slept_out(loop):
    _, error, elapsed = play(loop, HANGS, total=362)
    assert type(error) is IdleTimeoutError
    assert error.gave_up == "deadline"
    assert elapsed == pytest.approx(360, abs=0.1)


def test_s0_24_the_total_covers_attempts_and_backoff(loop):
    _, error, elapsed = play(loop, HANGS, total=300)
    assert type(error) is DeadlineExceededError
    assert elapsed == pytest.approx(300, abs=0.1)


def test_s0_24_a_session_timeout_of_ones_own_strikes_in_the_backoff():
    """As in the seed, `asyncio.timeout` around it all is authoritative, and keeps its name."""

    async def main():
        pipe = idle_guard(180) | reconnecting_resume(backoff=(60,))
        with pytest.raises(TimeoutError) as raised:
            async with asyncio.timeout(200):
                async with session(Backend([HANGS]).open, prompt="x") | pipe as chat:
                    async for _ in chat:
                        pass
        assert not isinstance(raised.value, StreamGuardError)

    run_virtual(main)


def test_s0_27_the_log_of_a_retry(loop, caplog):
    caplog.set_level(logging.INFO, "streamguard")
    play(loop, HANGS)
    said = [record.getMessage() for record in caplog.records]
    assert any("retry 1 of 2 at once, resuming session sess-123" in line for line in said)
    assert any("retry 2 of 2 in 5 s, resuming session sess-123" in line for line in said)
    assert any("gave up (retries)" in line for line in said)
    assert not any("sess-12345" in line for line in said)
    caplog.clear()
    play(loop, Script(hang()), WELL)
    assert any("started afresh" in record.getMessage() for record in caplog.records)


def test_s0_28_who_runs_the_code_may_set_the_retries(tmp_path):
    """There, internal only; here `retries=0` is a line in a file, with no deployment."""
    (tmp_path / "streamguard.toml").write_text("[retry.idle]\nretries = 0\n")
    config = from_config(tmp_path / "streamguard.toml")
    assert config.retry_policy.backoff(ErrorClass.IDLE).retries == 0


# -- S1: the watchdog of a process ---------------------------------------------------------------


def test_s1_05_s4_08_it_fires_at_the_window_and_nothing_ticks(loop, form):
    """At 180 s: not after the next poll (S1: up to 10 s later, S4: up to half a window)."""
    taken = loop.run(lambda: take(Script(say("a"), hang()) | idle_guard(180), form))
    assert loop.took(taken.elapsed, 180)


def test_s1_06_s1_24_a_zombie_is_dead_and_costs_no_grace():
    """Nobody has reaped it, so `kill(pid, 0)` would find it alive for the whole grace."""
    process = subprocess.Popen(["sleep", "3600"])
    try:
        config = WatchdogConfig(timeout_seconds=0.2, kill_grace_seconds=120)
        with pytest.raises(SubprocessWatchdogTimeout) as raised:
            anyio.run(SubprocessWatchdog(process.pid, config).monitor)
        assert raised.value.teardown.confirmed
        assert raised.value.teardown.elapsed < 60
        assert "KILL" not in raised.value.teardown.signals
        assert process.wait() == -signal.SIGTERM
    finally:
        process.kill()
        process.wait()


async def test_s1_21_s4_20_a_guard_alone_never_tries_again(loop, form):
    """Retrying is said in words: `reconnecting_resume`."""
    client = FakeClient(HANGS, WELL)
    await client.connect("x")
    assert (
        type((await take(client.receive_response() | idle_guard(180, client=client), form)).error)
        is IdleTimeoutError
    )
    assert client.calls.count("query") == 0
    assert client.prompts == ["x"]


def test_s1_23_a_silent_tool_is_no_hang(loop, form):
    """There, three minutes of it were."""
    script = Script(tool_start("t", "Bash"), silence(3600), tool_end("t"), done())
    assert loop.run(lambda: take(script | idle_guard(180), form)).error is None


# -- S2: the policy ------------------------------------------------------------------------------


def test_s2_05_retries_and_delays():
    policy = RetryPolicy()
    for error_class in (ErrorClass.NETWORK, ErrorClass.SERVER):
        backoff = policy.backoff(error_class)
        assert (backoff.retries, tuple(backoff.delays)) == (3, (1, 2, 4))
    assert policy.backoff(ErrorClass.RATE_LIMIT).retries == 5
    assert policy.backoff(ErrorClass.IDLE).retries == 2  # there: three, as a "network timeout"


class Status(Exception):  # noqa: N818 - what SDKs raise, by its shape
    def __init__(self, status_code):
        super().__init__(status_code)
        self.status_code = status_code


@pytest.mark.parametrize(
    ("status", "error_class", "by_a_person"),
    [
        (400, "validation", False),
        (401, "auth", True),
        (403, "auth", True),
        (404, "validation", False),
        (422, "validation", False),
        (402, "permanent", True),  # the seed did not list it
        (413, "validation", False),  # nor this
        (418, "validation", False),  # it retried every other
        (408, "network", False),
        (429, "rate_limit", True),
        (502, "server", False),
    ],
)
def test_s2_08_what_is_retried(status, error_class, by_a_person):
    found = classify(Status(status))
    assert found == error_class
    retries = RetryPolicy().backoff(found).retries
    assert (retries > 0) == (status in {408, 429, 502})
    assert found.needs_a_person == by_a_person


def test_s2_08_an_unknown_error_is_retried_only_as_long_as_nothing_was_done(loop):
    class OddError(Exception):
        pass

    backend = Backend([Script(fail(OddError())), WELL])
    again = Backend([Script(opened("s-1"), say("a"), fail(OddError())), WELL])

    async def main(backend):
        pipe = idle_guard(180) | reconnecting_resume()
        async with session(backend.open, prompt="x") | pipe as chat:
            async for _ in chat:
                pass

    loop.run(main, backend)
    assert len(backend.clients) == 2
    with pytest.raises(OddError):
        loop.run(main, again)
    assert len(again.clients) == 1


# -- S3: claude-print ----------------------------------------------------------------------------

# Far longer than a start takes on a busy machine, or far shorter than the command lives.
LONG, SHORT = "600", "0.3"


def test_s3_01_the_first_output_of_an_agent_is_what_it_does(commands):
    """There, the first bytes on a terminal, and an agent's greeting would do."""
    greeting = sh(f"{says(INIT)}; exec sleep 600")
    done, told = commands.status("--first-output-timeout", "2", "--", *greeting)
    assert (done.code, told["limit"]) == (124, "first")
    plain = sh("echo anything; sleep 1")
    assert commands.guarded("--first-output-timeout", LONG, "--", *plain).code == 0


def test_s3_04_the_stop_hooks_limit_is_that_of_the_turn(commands):
    done, told = commands.status(
        "--stop-hook-timeout", SHORT, *sh(f"{says(INIT)}; exec sleep 600")
    )
    assert (done.code, told["limit"]) == (124, "turn")


def test_s3_05_s3_07_the_kinds_of_timeout_are_limits_and_types():
    """`get_timeout_type()` is `error.verdict.limit`, `has_timeout_fired()` the error itself."""
    assert {limit: ERRORS[limit].__name__ for limit in ("first", "turn", "total")} == {
        "first": "FirstMessageTimeoutError",
        "turn": "TurnTimeoutError",
        "total": "TotalTimeoutError",
    }
    assert all(
        issubclass(ERRORS[limit], StreamTimeoutError) for limit in ("first", "turn", "total")
    )


def test_s3_08_s3_10_s3_11_how_it_ends_the_child_and_what_it_says(commands):
    """124 where TERM was enough; 137 where it was not; what it said names the limit."""
    done, told = commands.status("--first", SHORT, "--", *ENDLESS)
    assert (done.code, told["signals_sent"][0]) == (124, "TERM")
    assert "KILL" not in told["signals_sent"]
    assert done.err.startswith("streamguard run: 'sleep' gave no first message in ")
    assert "; sent TERM" in done.err
    deaf = sh("trap '' TERM; echo out; sleep 600; sleep 600")
    words = ["--first", LONG, "--idle", SHORT, "--kill-after", "0.2"]
    done, told = commands.status(*words, "--", *deaf)
    assert done.code == 137
    assert told["signals_sent"][-1] == "KILL"
    assert commands.living() == set()


def test_s3_11_wrong_usage_is_125_for_a_command_and_2_for_a_program(commands):
    """The command keeps to GNU's codes, where 125 is its own trouble and 2 the command's."""
    assert commands.guarded("--idle", "soon", "--", "true").code == 125
    assert commands.guarded("--idle", LONG, "--", *sh("exit 2")).code == 2
    assert exit_code_for(ConfigError("a knob")) == 2
    assert exit_code_for(IdleTimeoutError("idle")) == 124
    assert exit_code_for(KeyboardInterrupt()) == 130
    assert exit_code_for(RuntimeError("the assistant's")) == 1


# -- S4: the idle watchdog -----------------------------------------------------------------------


async def test_s4_13_s4_14_the_error_is_the_reason_and_the_disposition(loop, form):
    """One text in one place, and with it what a task's record wants to know."""
    activity = Activity("task-7", issue="MUL-1")
    worked = (tool_start("t"), tool_end("t"), usage(output_tokens=12))
    source = Script(opened("sess-1"), *worked, say("a"), hang())
    error = (await take(source | idle_guard(300, activity=activity), form)).error
    assert str(error).startswith(
        "stream 'task-7' idle for 300 s (limit idle=300); 5 messages seen, the last (progress) "
    )
    assert str(error).startswith(error.verdict.reason)
    assert error.verdict.token == "sess-1"
    assert error.verdict.labels == {"issue": "MUL-1"}
    assert error.activity.name == "task-7"
    assert (error.done.tools_run, error.done.usage) == (1, {"output_tokens": 12})
    assert (error.done.attempts, error.done.work_dir) == (1, None)
