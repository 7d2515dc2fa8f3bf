"""What may be needed later is kept: nothing is read from the package's folder once the command runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from streamguard.runner import kept
from tests.runner.commands import INIT, RESULT, ROOT, TEXT, TOOL, says, sh

# Whoever asks for a module of ours that is not kept is told of in a file, in whatever process it is.
WATCHING = """
import os, sys
from streamguard.runner import kept
find = kept.Kept.find_spec
def watched(self, name, path=None, target=None):
    found = find(self, name, path, target)
    if name.partition(".")[0] == "streamguard":
        told = os.open(os.environ["TOLD"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(told, f"{name} {'kept' if found else 'missing'}\\n".encode())
        os.close(told)
    return found
kept.Kept.find_spec = watched
from streamguard.cli import main
main()
"""
HANGS = [*sh(f"{says(INIT, TEXT, TOOL)}; exec sleep 600")]
SILENT = ["--first", "600", "--idle", "0.3", "--tools", "0.3"]


@pytest.mark.parametrize(
    "words",
    [
        [*SILENT, *HANGS],
        [
            *SILENT,
            "--record",
            "evidence",
            "--errors",
            "json",
            "--status-file",
            "told.json",
            *HANGS,
        ],
        [*SILENT, "--retries", "1", "--resume-cmd", "echo {session_id}", *HANGS],
        ["--total", "0.3", "--pty", "--verbose", *sh("echo out; trap '' TERM; sleep 600")],
        ["--first-json", "0.4", "--transcript", "words", *sh("echo text >words; exec sleep 600")],
        ["--exit-grace", "0.2", *sh(f"{says(INIT, TEXT, RESULT)}; exec sleep 600")],
        [*SILENT, "--lock", "lock", *HANGS],
        [*SILENT, "--on-warn", "true", "--on-end", "true", "--github", *HANGS],
        ["--idle", "600", "--reap", *sh("sleep 600 >/dev/null & echo out")],
    ],
    ids=[
        "silence",
        "evidence",
        "again",
        "a terminal",
        "a transcript",
        "after the result",
        "lock",
        "notices",
        "reap",
    ],
)
def test_every_module_that_is_wanted_later_is_kept(commands, words):
    told = commands.folder / "told"
    command = [sys.executable, "-c", WATCHING, "run", "--kill-after", "0.2", *words]
    environment = {**os.environ, "TOLD": str(told)}
    done = commands.run(*command, env=environment, cwd=commands.folder)
    assert "Error" not in done.err
    wanted = told.read_text().splitlines()
    assert len(wanted) > 5
    assert "\n".join(line for line in wanted if line.endswith("missing")) == ""


@pytest.mark.parametrize(
    "name",
    [
        *kept.TO_JUDGE,
        *kept.TO_END,
        *kept.TO_TRY_AGAIN,
        *kept.TO_LOOK,
        *kept.TO_RECORD,
        *kept.TO_LOCK,
    ],
)
def test_every_module_that_is_kept_exists(name):
    place = Path(ROOT, "streamguard", *name.split("."))
    assert place.with_suffix(".py").exists() != (place / "__init__.py").exists()


@pytest.mark.parametrize("is_cached", [True, False])
def test_what_is_kept_is_what_the_source_says(tmp_path, monkeypatch, is_cached):
    """Also where what was cached of it is of an older source, or of nobody's."""
    monkeypatch.setattr(sys, "dont_write_bytecode", not is_cached)
    source = tmp_path / "module.py"
    cached = tmp_path / "__pycache__" / f"module.{sys.implementation.cache_tag}.pyc"

    def value():
        keeping = kept.Kept()
        keeping._at["module"] = (str(source), 0, 0, False)
        keeping._bytes["module"] = kept._code_of("module", str(source))
        os.close(keeping.fd)
        module = ModuleType("module")
        keeping.exec_module(module)
        assert cached.exists() is is_cached
        return module.value

    source.write_text("value = 1\n")
    assert value() == 1
    source.write_text("value = 22\n")
    assert [value(), value()] == [22, 22]
    if is_cached:
        cached.write_bytes(b"nothing that was ever compiled")
        assert value() == 22
