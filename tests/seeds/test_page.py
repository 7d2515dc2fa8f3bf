"""docs/how-to/moving/from-the-seeds.md stays true: every requirement is on it once, and what it shows is there."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

from streamguard import IdleTimeoutError
from streamguard.events import StreamEnded
from streamguard.testing import ClientFactory, FakeClient, Script, done, hang, opened, say
from tests.seeds import daemon
from tests.seeds.test_rows import ENDS
from tests.sessions.backend import Backend

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "moving" / "from-the-seeds.md"
TEXT = PAGE.read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", TEXT, re.DOTALL | re.MULTILINE))
# How many requirements each of the five has.
REQUIREMENTS = {0: 34, 1: 28, 2: 21, 3: 15, 4: 20}
IDS = {f"S{seed}-{n:02}" for seed, count in REQUIREMENTS.items() for n in range(1, count + 1)}
# What is kept different: each with its reason.
DIFFERENT = {
    0: {4, 9, 10, 14, 16, 17, 18, 19, 24, 27, 28, 30, 33},
    1: {5, 6, 21, 23, 24},
    2: {5, 8, 10, 11, 18},
    3: {1, 4, 5, 7, 8, 10, 11},
    4: {6, 8, 13, 14, 20},
}
ID = re.compile(r"\bS[0-4]-\d\d\b")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)


def rows(text):
    """The cells of each line of a table; a bar that is escaped is none."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_every_requirement_is_named_once():
    named = ID.findall(TEXT)
    assert sorted(named) == sorted(IDS)


def test_every_requirement_is_in_the_section_of_its_system():
    by_section = {
        name: {found.partition("-")[0] for found in ID.findall(body)}
        for name, body in SECTIONS.items()
    }
    assert sorted(map(sorted, by_section.values())) == [[f"S{seed}"] for seed in range(5)]


def test_what_is_different_has_its_reason():
    told = {}
    for body in re.findall(
        r"^### Different on purpose\n(.*?)(?=^##)", TEXT, re.DOTALL | re.MULTILINE
    ):
        for there, here, why, ids in rows(body)[2:]:
            assert min(map(len, (there, here, why))) > 10
            told |= dict.fromkeys(ID.findall(ids))
    assert set(told) == {f"S{seed}-{n:02}" for seed, those in DIFFERENT.items() for n in those}


def test_every_table_is_whole():
    for table in re.findall(r"(?:^\|.*\n)+", TEXT, re.MULTILINE):
        head, _, *body = rows(table)
        assert all(len(row) == len(head) for row in body)
        assert all(all(row) for row in body)


def test_the_presets_that_are_named_are_there():
    from streamguard.presets import PRESETS

    offered = {row[2].strip('`"') for row in rows(TEXT.partition("\n## ")[0])[2:]}
    assert len(offered) == len(REQUIREMENTS)
    used = re.findall(r'(?:idle_guard\("|--preset |preset = "|_PRESET=)([\w-]+)', TEXT)
    assert used
    assert offered | set(used) <= set(PRESETS)


@pytest.mark.parametrize("block", blocks("python"), ids=range(len(blocks("python"))))
def test_every_block_is_code_whose_imports_are_there(block):
    tree = ast.parse(block)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("streamguard"):
            module = import_module(node.module)
            assert [name.name for name in node.names if not hasattr(module, name.name)] == []


def test_the_options_that_are_named_are_the_commands():
    words = [sys.executable, "-m", "streamguard", "run", "--help"]
    known = subprocess.run(words, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", SECTIONS["claude-print"]))
    claudes = {"--output-format"}
    assert {name for name in named - claudes if name not in known} == set()


def test_the_statuses_on_the_page_are_those_of_the_tests():
    """S4-15: the function that people copy, on every end there is."""
    (block,) = [block for block in blocks("python") if "def status_of" in block]
    names = {}
    exec(compile(block, str(PAGE), "exec"), names)
    for outcome, error, _ in ENDS.values():
        ended = StreamEnded(activity=None, at=0.0, error=error and error("x"), outcome=outcome)
        assert names["status_of"](ended) == daemon.status_of(ended)


def run_block(defines):
    """The names of the block that defines this function; any preset is 180 s of idle."""
    (block,) = [block for block in blocks("python") if f"def {defines}(" in block]
    names = {}
    code = re.sub(r'idle_guard\("[\w-]+"', "idle_guard(180", block)
    exec(compile(code, str(PAGE), "exec"), names)
    return names


def test_malas_session_on_the_page_survives_a_hang(loop):
    pytest.importorskip("claude_agent_sdk")
    names, handled, options = run_block("run_session"), [], []
    clients = ClientFactory(
        FakeClient(Script(opened("s-1"), say("a"), hang())),
        FakeClient(Script(say("b"), done()), Script(say("c"), done())),
    )
    names["ClaudeAgentOptions"] = lambda **knobs: options.append(knobs)
    names["ClaudeSDKClient"] = lambda _options: clients()
    followups = ["The gate says no.", None]

    async def gate():
        return followups.pop(0)

    loop.run(names["run_session"], "issue-7", "Fix it.", handled.append, gate)
    assert [message.text for message in handled if hasattr(message, "text")] == ["a", "b", "c"]
    assert options == [{"resume": None}, {"resume": "s-1"}]
    asked = [prompt for client in clients.created for prompt in client.prompts]
    assert asked == ["Fix it.", "Continue on issue issue-7.", "The gate says no."]


async def test_the_watchdogs_session_on_the_page_ends_a_hang(loop):
    client, handled = FakeClient(Script(say("a"), hang())), []
    await client.connect("x")
    with pytest.raises(IdleTimeoutError):
        await run_block("talk")["talk"](client, handled.append)
    assert (len(handled), client.disconnected) == (1, True)


def test_malas_own_variable_reaches_the_watchdog_on_the_page_s1_18(monkeypatch):
    """S1-18."""
    monkeypatch.setenv("MALA_WATCHDOG_TIMEOUT", "75")
    names, made = run_block("watch"), []
    names["SubprocessWatchdog"] = SimpleNamespace(for_client=lambda *words: made.append(words))
    names["watch"]("client")
    ((client, config),) = made
    assert (client, config.timeout_seconds) == ("client", 75)


def test_the_flow_on_the_page_leaves_its_evidence(loop, tmp_path, monkeypatch):
    names, handled = run_block("build"), []
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "build.yaml").write_text(*blocks("yaml"))
    monkeypatch.chdir(tmp_path)
    backend = Backend([Script(opened("s-1"), say("a"), hang()), Script(say("b"), done())])
    loop.run(names["build"], tmp_path / "run", backend.open, handled.append)
    assert [message.text for message in handled if hasattr(message, "text")] == ["a", "b"]
    receipt = tmp_path / "run" / "build" / "receipts" / "build-step-3-timeout.json"
    assert json.loads(receipt.read_bytes())["recovered"] is True


def test_multicas_task_on_the_page_is_blocked_or_completed(loop, monkeypatch):
    """S4-01: its two variables reach the guard that the page shows."""
    (shell,) = [block for block in blocks("sh") if "STREAMGUARD_PRESET" in block]
    for name, value in re.findall(r"^(STREAMGUARD_\w+)=(\S+)", shell, re.MULTILINE):
        monkeypatch.setenv(name, value)

    class Task:
        process = None

        def __init__(self, *steps):
            self.script, self.is_cancelled = Script(*steps), False

        def messages(self, _prompt):
            return self.script

        def cancel(self):
            self.is_cancelled = True

    execute_and_drain = run_block("execute_and_drain")["execute_and_drain"]
    hung, well = Task(opened("s-1"), hang()), Task(say("a"), done())
    told = loop.run(execute_and_drain, "task-7", hung, "p", print)
    assert (told["status"], told["failure_reason"]) == ("blocked", "idle_watchdog")
    assert (told["session_id"], hung.is_cancelled) == ("s-1", True)
    assert "'task-7' idle for 60 s" in told["comment"]
    monkeypatch.delenv("STREAMGUARD_IDLE")
    told = loop.run(execute_and_drain, "task-7", Task(opened("s-1"), hang()), "p", print)
    assert "'task-7' idle for 300 s" in told["comment"]
    told = loop.run(execute_and_drain, "task-7", well, "p", print)
    assert (told, well.is_cancelled) == ({"status": "completed"}, False)


LINK = re.compile(r"\]\(([^)]+)\)")


def anchors(page):
    """GitHub's anchors of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_leads_somewhere():
    for link in LINK.findall(TEXT):
        file, _, anchor = link.partition("#")
        page = (PAGE.parent / file) if file else PAGE
        assert page.is_file(), link
        if anchor:
            assert anchor in anchors(page), link


def test_the_page_is_linked():
    assert "docs/how-to/moving/from-the-seeds.md" in (ROOT / "README.md").read_text(
        encoding="utf-8"
    )
    assert "from-the-seeds.md" in (ROOT / "docs" / "explanation" / "design.md").read_text(
        encoding="utf-8"
    )
