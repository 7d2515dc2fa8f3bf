"""R3: a session that the real command line does not know is begun afresh, in the library and under `run`.

Real time; the server sees that the prompt came, and once.
"""

from __future__ import annotations

import json
import shlex
import subprocess

import anyio
import pytest

from streamguard import ResumePoint, RetryPolicy, idle_guard, reconnecting_resume
from streamguard.backends import claude
from tests.loopback.script import stall, text
from tests.process.backends import PATIENCE
from tests.real.test_clis import outcomes
from tests.runner.commands import OURS, ROOT

UNKNOWN = "11111111-2222-4333-8444-555555555555"
RESUMING = {
    "claude": "{cli} -p Continue. --resume {{session_id}} --output-format stream-json --verbose {options}",
    "codex": "{cli} exec resume --json {options} {{session_id}} Continue.",
    "gemini": "{cli} -p Continue. --resume {{session_id}} --output-format stream-json {options}",
}


# Copilot's session begins one under the id that it is given, where there is none.
@pytest.fixture(params=["claude", "codex", "gemini", "qwen", "opencode"])
def cli(request, start_cli):
    return start_cli(request.param)


def talk(cli, backends, resume):
    session = cli.make_session(
        *cli.options,
        prompt="Begin.",
        point=ResumePoint(token=UNKNOWN),
        command=str(cli.executable),
        cwd=cli.home,
        env=cli.env(backends.env({})),
    )

    async def main():
        guard = idle_guard(2 * PATIENCE, kill_grace=1)
        async with session | guard | resume as chat:
            return [message async for message in chat], chat.point

    return anyio.run(main)


@pytest.mark.parametrize("has_sessions", [False, True])
def test_it_is_begun_afresh(cli, server, backends, has_sessions):
    """R3: also where the folder has other sessions (gemini says it in other words then)."""
    server.script(forever=text("Done."))
    if has_sessions:
        process = cli.start("Another.", env=backends.env({}))
        process.communicate(timeout=2 * PATIENCE)
    before = len(server.requests)
    messages, point = talk(cli, backends, reconnecting_resume(fresh_if_unknown=True))
    assert outcomes(messages)[-1] == "success"
    assert point.token not in (None, UNKNOWN)
    assert len(server.requests) == before + 1
    assert any("Begin." in said for _, said in server.requests[-1].history)
    assert backends.living() == set()


def test_without_the_word_it_is_not_tried_again(cli, server, backends):
    """R3: a control: nothing is asked, and nothing is waited for."""
    policy = RetryPolicy(random=lambda: 0.0)
    if cli.name == "claude":  # which says it in a message that ends the turn
        messages, point = talk(cli, backends, reconnecting_resume(policy=policy))
        assert outcomes(messages) == ["error"]
        assert point.attempt == 1
    else:
        with pytest.raises(Exception, match="process") as caught:
            talk(cli, backends, reconnecting_resume(policy=policy))
        assert caught.value.gave_up == "class"
        assert len(caught.value.attempts) == 1
    assert server.requests == []


@pytest.mark.parametrize("by", ["the point", "the options"])
def test_by_claudes_sdk(start_cli, server, backends, by):
    """R3: whichever way it was told what to resume."""
    sdk = pytest.importorskip("claude_agent_sdk")
    cli = start_cli("claude")
    server.script(forever=text("Done."))
    known = {"cwd": cli.home, "env": cli.env(backends.env({})), "setting_sources": []}
    point = ResumePoint(token=UNKNOWN)
    if by == "the options":
        known["resume"], point = UNKNOWN, None

    async def main():
        options = sdk.ClaudeAgentOptions(**known)
        guard = idle_guard(2 * PATIENCE, kill_grace=1)
        resume = reconnecting_resume(fresh_if_unknown=True)
        talk = claude.session(options, prompt="Begin.", point=point)
        async with talk | guard | resume as chat:
            messages = [message async for message in chat]
            return outcomes(messages), chat.point

    said, after = anyio.run(main)
    assert said == ["success"]
    assert (after.attempt, after.token in (None, UNKNOWN)) == (2, False)
    assert len(server.requests) == 1
    assert backends.living() == set()


@pytest.mark.parametrize("cli", RESUMING, indirect=True)
def test_under_run(cli, server, backends, tmp_path):
    """R3: a session that hung, and whose history was lost meanwhile."""
    status, lost = tmp_path / "status.json", tmp_path / "lost"
    server.script(text("I ", "think.") | stall(after=cli.midway), forever=text("Done."))
    resume = RESUMING[cli.name].format(
        cli=shlex.quote(str(cli.executable)), options=shlex.join(cli.options)
    )
    # What resumes has a home of its own, and so no history.
    lost.mkdir()
    elsewhere = f"sh -c {shlex.quote(f'{_other_home(cli, lost)} {resume}')}"
    words = [*OURS, "run", "--first", str(2 * PATIENCE), "--idle", "4", "--kill-after", "2"]
    words += ["--retries", "1", "--backoff", "0", "--fresh-if-unknown", "--resume-cmd", elsewhere]
    process = backends.popen(
        [*words, "--status-file", str(status), "--", cli.executable, *cli.words("Begin.")],
        env=cli.env({"PYTHONPATH": str(ROOT)}),
        cwd=cli.home,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    _, err = process.communicate(timeout=6 * PATIENCE)
    told = json.loads(status.read_text())
    assert (process.returncode, told["began_afresh"]) == (0, True), err.decode()
    assert told["result"] == "success"
    assert b"the agent does not know session " in err
    assert backends.living() == set()


def _other_home(cli, home):
    """Shell words that give the command line a home without a session, and with its settings."""
    if cli.name == "claude":
        return f"CLAUDE_CONFIG_DIR={shlex.quote(str(home))}"
    if cli.name == "codex":
        config = shlex.quote(str(cli.home / ".codex" / "config.toml"))
        return f"cp {config} {shlex.quote(str(home))}; CODEX_HOME={shlex.quote(str(home))}"
    settings = shlex.quote(str(cli.home / ".gemini"))
    kept = f"{settings}/settings.json"
    there = shlex.quote(str(home))
    return f"mkdir -p {there}/.gemini; cp {kept} {there}/.gemini; HOME={there}"
