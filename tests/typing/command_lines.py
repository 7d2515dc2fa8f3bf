"""Sessions of command lines and agents, and the doctor's facts, as users write them."""

from __future__ import annotations

import os
from typing import Any, assert_type

from streamguard import Connection, ResumePoint, Session, idle_guard, reconnecting_resume, session
from streamguard.backends import acp, claude, codex, copilot, facts, gemini, opencode, qwen
from streamguard.signals import Reader


async def of_command_lines(point: ResumePoint) -> None:
    talk = codex.session("--sandbox", "read-only", prompt="Fix it", cwd="repo", env={})
    assert_type(talk, Session[dict[str, Any]])
    async with talk | idle_guard("command") | reconnecting_resume() as chat:
        async for line in chat.ask("And the tests?"):
            assert_type(line, dict[str, Any])
    gemini.session(prompt="Fix it", command=["npx", "gemini"], point=point)
    qwen.session("--yolo", prompt="Fix it", cwd="repo")
    copilot.session("--allow-all", prompt="Fix it")
    opencode.session("--auto", prompt="Fix it", env=opencode.tapped())
    claude.cli_session("--model", "opus", prompt="Fix it", exclusive=False)
    session(codex.open_exec("--full-auto"), prompt="Fix it")
    codex.session(prompt=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    codex.session(["--json"])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def of_the_app_server(config: Any) -> None:
    assert_type(codex.client_session(config, prompt="Fix it", thread={"cwd": "."}), Session[Any])
    session(codex.open_client(), prompt="Fix it")


async def of_an_agent(client: object, connection: Any) -> None:
    assert_type(acp.session(client, "agent", "--acp", prompt="Fix it"), Session[Any])
    bridge = acp.Bridge(client)
    turn = bridge.prompt(connection, "s-1", "Fix it", process=7)
    assert_type(turn, acp.Turn)
    async for _ in turn | idle_guard(180, interrupt=turn.interrupt, disconnect=turn.disconnect):
        pass
    Connection(turn, disconnect=turn.disconnect)


def readers() -> list[Reader]:
    return [
        acp.read,
        claude.read,
        codex.read,
        copilot.read,
        gemini.read,
        opencode.read,
        qwen.read,
    ]


def of_a_doctor() -> None:
    assert_type(facts.installed("codex"), facts.Installed)
    config = facts.codex_config(os.environ)
    found = facts.collisions("codex", {"idle": 180, "first": None}, os.environ, config)
    assert_type(found, list[facts.Collision])
    assert_type([each.watchdog.seconds for each in found], list[float])
    facts.collisions("codex", {"idle": "180"}, os.environ)  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]
