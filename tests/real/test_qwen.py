"""What users of Qwen Code have met, with the real command line. Real time, as in test_clis."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import anyio
import pytest

from streamguard import QuietWorkError, ToolTimeoutError, idle_guard, json_lines
from streamguard.process import marked_env
from tests.loopback.script import stall, text, tool
from tests.process.backends import PATIENCE
from tests.support import take

WINDOW = 4.0
DEAF = Path(__file__).parent / "deaf_mcp_server.py"


@pytest.fixture
def cli(start_cli):
    return start_cli("qwen")


def taken(cli, **limits):
    """Its lines under those limits, which are all that there is."""

    async def main():
        stream = json_lines(cli.start("Begin.", env=marked_env({})))
        return await take(stream | idle_guard(3 * PATIENCE, kill_grace=1, **limits))

    return anyio.run(main)


def test_an_mcp_call_that_never_returns_is_bounded_by_its_name(cli, server, backends):
    """T5"""
    settings = cli.home / ".qwen" / "settings.json"
    said = json.loads(settings.read_text())
    said["mcpServers"] = {"deaf": {"command": sys.executable, "args": ["-IS", str(DEAF)]}}
    settings.write_text(json.dumps(said))
    server.script(tool("mcp__deaf__wait", {}), forever=text("Ended."))
    done = taken(cli, tools={"mcp__deaf__wait": WINDOW})
    assert isinstance(done.error, ToolTimeoutError)
    assert "mcp__deaf__wait" in str(done.error)
    assert backends.living() == set()


def test_a_sub_agent_that_has_died_is_found_though_its_parent_waits(cli, server, backends):
    """The parent's tool is in flight, so nothing else would find it for two hours."""
    server.script(
        text("I look. ") + cli.shell("echo one"),
        text("Hm.") | stall(after=cli.midway),
        when=lambda request: "Begin." not in str(request.history),
    )
    server.script(cli.subagent("Count the files.", background=False))
    done = taken(cli, quiet={"agent": WINDOW}, end_on="quiet")
    assert isinstance(done.error, QuietWorkError)
    assert backends.living() == set()
