"""docs/how-to/places: the files for GitHub Actions and cron do what their pages say, as they stand."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.process.backends import Backends, comes_true
from tests.runner.commands import INIT, OURS, ROOT, SESSION, TEXT, Commands, says
from tests.runner.test_github import annotations

PAGES = Path(ROOT, "docs", "how-to", "places")
# What says that it works, and then hangs; deaf for a moment, with a child in a session of its own.
HANGS = f"#!/bin/sh\n{says(INIT, TEXT)}\nsetsid sleep 600 &\nsleep 600\n"


@pytest.fixture
def commands(tmp_path):
    backends = Backends()
    yield Commands(backends, tmp_path)
    backends.clear()


@pytest.fixture
def tools(tmp_path):
    """A folder for PATH: what the files call, but an agent that hangs and installers that do nothing."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("npm", "pipx"):
        program(folder / name, "#!/bin/sh\necho installed\n")
    program(folder / "claude", HANGS)
    program(folder / "streamguard", f'#!/bin/sh\nexec {" ".join(OURS)} "$@"\n')
    return folder


def program(path, text):
    path.write_text(text)
    path.chmod(0o755)


def block(page, language):
    """The one block of that language."""
    (found,) = re.findall(rf"```{language}\n(.*?)```", (PAGES / page).read_text(), re.DOTALL)
    return found


# -- GitHub Actions ----------------------------------------------------------------------------


@pytest.fixture
def workflow():
    yaml = pytest.importorskip("ruamel.yaml")
    return yaml.YAML(typ="safe", pure=True).load(block("github-actions.md", "yaml"))


@pytest.fixture
def step(workflow, commands, tools, tmp_path):
    """Starts the `run:` of a step by its name, as the runner does: `bash -e` on a file, and its variables."""

    def start(name, **more):
        (job,) = workflow["jobs"].values()
        (found,) = (each for each in job["steps"] if each.get("name") == name)
        script = tmp_path / "step.sh"
        script.write_text(found["run"])
        variables = {**job["env"], **found.get("env", {})}
        values = {"${{ runner.temp }}": str(tmp_path), "${{ secrets.ANTHROPIC_API_KEY }}": "sk-1"}
        for variable, value in variables.items():
            for expression, meant in values.items():
                value = value.replace(expression, meant)  # noqa: PLW2901
            assert "${{" not in value
            variables[variable] = value
        environment = {
            **os.environ,
            **variables,
            "PATH": f"{tools}:{os.environ['PATH']}",
            "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
            **more,
        }
        words = ["env", "GITHUB_ACTIONS=true", "bash", "-e", str(script)]
        return commands.start(*words, env=environment, cwd=tmp_path, stdin=subprocess.PIPE)

    return start


def test_the_workflow_is_one(workflow):
    (job,) = workflow["jobs"].values()
    assert workflow["on"] == "workflow_dispatch"
    assert all(("run" in step) != ("uses" in step) for step in job["steps"])
    assert job["timeout-minutes"] > 60  # above --total 1h


def test_its_install_is_a_step(step, commands):
    done = commands.wait(step("Install"))
    assert (done.code, done.out) == (0, b"installed\ninstalled\n")


def test_a_hang_fails_the_step_with_one_annotation_and_a_summary(step, commands, tmp_path):
    """Its standard input stays open, as on some runners."""
    process = step("The agent", IDLE="1")
    assert process.wait(120) == 124
    ((level, _, title, text),) = annotations(process.stderr.read().decode())
    assert (level, title) == ("error", "streamguard: limit idle reached")
    (receipt,) = tmp_path.glob("streamguard/*/receipts/*")
    assert str(receipt) in text
    summary = (tmp_path / "summary.md").read_text()
    assert str(receipt) in summary
    for hidden in (SESSION, "sk-1", "Fix the failing test."):
        assert hidden not in text + summary
    status = json.loads((tmp_path / "streamguard" / "status.json").read_text())
    assert (status["limit"], status["session_id"]) == ("idle", SESSION)
    assert commands.living() == set()
    process.communicate()


def test_a_cancelled_job_ends_the_agent(step, commands):
    """The runner sends SIGINT to the step's shell, which `exec` has replaced."""
    process = step("The agent")
    assert process.stdout.readline()
    process.send_signal(signal.SIGINT)
    process.wait(60)
    assert commands.all_gone()
    process.communicate()


# -- cron --------------------------------------------------------------------------------------


@pytest.fixture
def job(commands, tools, tmp_path):
    """Starts the job as cron does: in the home, by `/bin/sh`, with what the table sets and no more."""
    lines = [line for line in block("cron.md", "crontab").splitlines() if line]
    (entry,) = (line for line in lines if line[0].isdigit())
    assert "%" not in entry  # a newline to cron
    *when, line = entry.split(None, 5)
    assert all(re.fullmatch(r"[\d*/,-]+", field) for field in when)
    assert len(when) == 5
    variables = dict(each.split("=", 1) for each in lines if each != entry)
    (tmp_path / "nightly").mkdir()

    def start(agent=HANGS, **more):
        program(tmp_path / "nightly" / "agent.sh", agent)
        environment = {"HOME": str(tmp_path), "SHELL": "/bin/sh", **variables, **more}
        environment["PATH"] = f"{tools}:{variables['PATH']}"
        return commands.start("/bin/sh", "-c", line, env=environment, cwd=tmp_path)

    return start


def test_a_job_that_hangs_is_ended_and_its_mail_says_why(job, commands, tmp_path):
    done = commands.wait(job(IDLE="1"))
    assert (done.code, done.out) == (124, b"")
    line, evidence = done.err.splitlines()
    assert line.startswith("streamguard run: 'agent.sh' idle for ")
    assert evidence.startswith("streamguard run: evidence: ")
    folder = tmp_path / "nightly"
    assert "Looking." in (folder / "agent.log").read_text()
    assert json.loads((folder / "status.json").read_text())["limit"] == "idle"
    assert list(folder.glob("evidence/*/receipts/*"))
    assert not (folder / "agent.lock").exists()
    assert commands.living() == set()


def test_the_next_one_does_not_begin_beside_it(job, commands, tmp_path):
    first = job()
    log = tmp_path / "nightly" / "agent.log"
    assert comes_true(lambda: log.exists() and "Looking." in log.read_text())
    before = log.read_text()
    done = commands.wait(job())
    assert done.code == 75
    assert f"--lock agent.lock: process {first.pid} has it since 20" in done.err
    assert log.read_text() == before
    first.terminate()
    first.communicate()
    assert commands.all_gone()


def test_a_job_that_is_done_mails_nothing(job, commands):
    assert commands.wait(job("#!/bin/sh\necho done\n")) == (0, b"", "")
