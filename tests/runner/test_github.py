"""`streamguard run --github`: what GitHub Actions is told of a limit, and what it is not."""

from __future__ import annotations

import json
import os
import re

import pytest

from streamguard.runner import github
from tests.runner.commands import ENDLESS, INIT, OURS, SESSION, TEXT, TOOL, says, sh

LONG = "600"
SILENCE = ["--first", LONG, "--idle", "0.4", "--tools", "0.4", "--kill-after", "1"]
SECRET = "sk-ant-very-secret"
HANGS = sh(f": {SECRET}; {says(INIT, TEXT)}; exec sleep 600")
COMMAND = re.compile(
    r"^::(?P<level>error|warning|notice) (?P<properties>[^:\r\n]*)::(?P<text>.*)$"
)


@pytest.fixture
def summary(tmp_path):
    path = tmp_path / "summary.md"
    path.write_text("Before.\n")
    return path


@pytest.fixture
def actions(summary):
    return {**os.environ, "GITHUB_STEP_SUMMARY": str(summary)}


def in_actions(commands, environment, *words, **options):
    """As in a step: the variable is set that Actions sets."""
    words = ["env", "GITHUB_ACTIONS=true", *OURS, "run", *words]
    return commands.run(*words, env=environment, **options)


def annotations(err):
    """What the runner reads as its own; its rules, from its source."""
    found = []
    for line in err.splitlines():
        if not line.lstrip().startswith("::"):
            continue
        match = COMMAND.match(line)
        assert match, line
        name, _, value = match["properties"].partition("=")
        for code, character in (("%3A", ":"), ("%2C", ","), ("%0D", "\r"), ("%0A", "\n")):
            value = value.replace(code, character)
        text = match["text"].replace("%0D", "\r").replace("%0A", "\n").replace("%25", "%")
        found.append((match["level"], name, value.replace("%25", "%"), text))
    return found


def test_a_limit_is_one_annotation_and_a_part_of_the_summary(commands, actions, summary, tmp_path):
    more = ["--record", str(tmp_path / "evidence"), "--status-file", str(tmp_path / "told.json")]
    done = in_actions(commands, actions, *SILENCE, *more, "--", *HANGS)
    assert done.code == 124
    assert b"::" not in done.out
    ((level, name, title, text),) = annotations(done.err)
    assert (level, name, title) == ("error", "title", "streamguard: limit idle reached")
    (receipt,) = tmp_path.glob("evidence/*/receipts/*")
    assert text.startswith("'sh' idle for ")
    assert text.endswith(f"\nReceipt: {receipt}")
    told = summary.read_text()
    assert told.startswith("Before.\n\n### streamguard: `sh` was ended at a limit\n")
    for fact in ("`idle = 0.4 s`", "exit code 124", f"`{receipt}`", f"`{tmp_path}/told.json`"):
        assert fact in told
    assert re.search(r"- When: 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC, in attempt 1\n", told)
    assert "`context_for_resume.session_token` in the receipt" in told
    assert len(told) < 8192


def test_a_summary_is_named_from_where_the_run_is(commands, actions, summary, tmp_path):
    """Who writes it stands elsewhere."""
    named = {**actions, "GITHUB_STEP_SUMMARY": summary.name}
    in_actions(commands, named, *SILENCE, "--", *HANGS, cwd=tmp_path)
    assert "### streamguard" in summary.read_text()


def test_no_prompt_no_argument_and_no_session_is_in_either(commands, actions, summary):
    done = in_actions(commands, actions, *SILENCE, "--", *HANGS)
    (found,) = annotations(done.err)
    for text in (SECRET, SESSION, "Looking."):
        assert text not in str(found)
        assert text not in summary.read_text()
    assert "`--record DIR` or `--status-file FILE` keep its id" in summary.read_text()


@pytest.mark.parametrize("words", [["true"], ["false"], ["no_such_command"]])
def test_without_a_limit_nothing_is_told(commands, actions, summary, words):
    done = in_actions(commands, actions, *SILENCE, "--", *words)
    assert annotations(done.err) == []
    assert summary.read_text() == "Before.\n"


@pytest.mark.parametrize("off", [["--no-github"], []])
def test_it_is_off_elsewhere_and_can_be_put_off(commands, actions, summary, off):
    run = in_actions if off else lambda commands, env, *words: commands.guarded(*words, env=env)
    done = run(commands, actions, *SILENCE, *off, "--", *HANGS)
    assert done.code == 124
    assert annotations(done.err) == []
    assert summary.read_text() == "Before.\n"


def test_it_can_be_asked_for_elsewhere(commands, actions, summary):
    done = commands.guarded(*SILENCE, "--github", "--", *HANGS, env=actions)
    assert len(annotations(done.err)) == 1


def test_a_configuration_can_put_it_off(commands, actions, tmp_path):
    (tmp_path / "streamguard.toml").write_text("[run]\ngithub = false\n")
    done = in_actions(commands, actions, *SILENCE, "--", *HANGS, cwd=tmp_path)
    assert (done.code, annotations(done.err)) == (124, [])


def test_what_an_agent_calls_its_tools_is_no_command_to_the_runner(commands, actions, summary):
    """Nor a heading, nor a link."""
    name = "x\n::error title=forged::%0A\n# forged `code` ``more``"
    tool = {**TOOL, "message": {"content": [{"type": "tool_use", "id": "t", "name": name}]}}
    lines = commands.folder / "lines"
    lines.write_text("".join(f"{json.dumps(each)}\n" for each in (INIT, tool)))
    done = in_actions(commands, actions, *SILENCE, "--", *sh(f"cat {lines}; sleep 600"))
    assert done.code == 124
    ((_, _, title, text),) = annotations(done.err)
    assert title == "streamguard: limit tools reached"
    assert "\\n::error title=forged::%0A\\n# forged" in text
    assert not any(line.startswith("# ") for line in summary.read_text().splitlines())


def test_a_warning_of_mode_warn_is_a_warning(commands, actions):
    environment = {**actions, "STREAMGUARD_MODE": "warn"}
    done = in_actions(
        commands, environment, *SILENCE, "--", *sh(f"{says(INIT, TEXT)}; exec sleep 2")
    )
    assert done.code == 0
    ((level, _, title, text),) = annotations(done.err)
    assert (level, title) == ("warning", "streamguard: would end")
    assert text.startswith("would end (mode warn): 'sh' idle for ")


def test_attempts_that_are_tried_again_are_warnings(commands, actions):
    words = ["--first", "0.4", "--retries", "1", "--backoff", "0", "--", *ENDLESS]
    done = in_actions(commands, actions, *words)
    assert [level for level, *_ in annotations(done.err)] == ["warning", "error"]


def test_a_work_that_was_done_is_no_error(commands, actions):
    """A command that only stays after its result ends with 0."""
    done_but_stays = says(INIT, TEXT, {"type": "result", "subtype": "success", "is_error": False})
    words = ["--idle", LONG, "--exit-grace", "0.3", "--", *sh(f"{done_but_stays}; sleep 600")]
    done = in_actions(commands, actions, *words)
    assert done.code == 0
    assert [level for level, *_ in annotations(done.err)] == ["warning"]


@pytest.mark.parametrize(
    ("path", "why"),
    [
        (".", "Is a directory"),
        ("none/summary.md", "No such file or directory"),
        ("", "GITHUB_STEP_SUMMARY is not set"),
        ("full.md", "it is full (1 MiB)"),
        ("pipe", "No such device or address"),
    ],
)
def test_a_summary_that_cannot_be_written_is_said_and_changes_nothing(
    commands, actions, tmp_path, path, why
):
    (tmp_path / "full.md").write_bytes(bytes(1 << 20))
    os.mkfifo(tmp_path / "pipe")
    environment = {**actions, "GITHUB_STEP_SUMMARY": path and str(tmp_path / path)}
    done = in_actions(commands, environment, *SILENCE, "--", *HANGS)
    assert done.code == 124
    assert len(annotations(done.err)) == 1
    assert f"streamguard run: --github: the step's summary is not written: {why}\n" in done.err


def test_what_the_runner_needs_escaped_is():
    line = github.annotation("error", "a: b, 100%", "100%\r\n::x", "next")
    assert line == "::error title=a%3A b%2C 100%25::100%25\\r\\n::x%0Anext"
    assert annotations(line) == [("error", "title", "a: b, 100%", "100%\\r\\n::x\nnext")]


def test_it_is_short_whatever_is_said():
    assert len(github.annotation("error", "x" * 10**6, "%" * 10**6)) < 5000


@pytest.mark.parametrize("text", ["`", "``` a", "a`b``c", "plain"])
def test_code_stays_code(text):
    shown = github._code(text)
    fence = shown[: len(shown) - len(shown.lstrip("`"))]
    assert shown.endswith(fence)
    assert fence not in shown[len(fence) : -len(fence)]


def test_what_is_no_duration_has_no_unit():
    """B2, B4: how often, or how much."""
    assert github._window("idle", 180.0) == " = 180 s"
    assert github._window("repeats", 5.0) == " = 5"
    assert github._window("empty", 0.0) == ""
