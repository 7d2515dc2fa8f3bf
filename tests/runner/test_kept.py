"""What may be needed later is kept: nothing is read from the package's folder once the command runs."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
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
    "names", [names for group, names in vars(kept).items() if group.startswith("TO_")]
)
def test_every_module_that_is_kept_exists(names):
    keeping = kept.Kept()
    keeping.keep(names)
    for name in names:
        place = Path(ROOT, "streamguard", *name.split("."))
        is_room = (place / "__init__.py").exists()
        assert place.with_suffix(".py").exists() != is_room
        path, is_kept_as_room = keeping._at.get(f"streamguard.{name}", (None, is_room))
        assert is_kept_as_room == is_room
        assert path is None or Path(path).exists()


@pytest.mark.parametrize("is_possible", [True, False])
def test_what_was_put_away_can_be_imported(is_possible):
    program = f"""
    import os
    if not {is_possible}:
        del os.memfd_create
    from streamguard.runner import kept
    kept.keep(("process", "process.marks", "process.termination"))
    from streamguard.process import marks
    kept.put_away()
    kept.put_away()  # as each attempt does
    from streamguard.process.termination import Termination
    print(Termination.__name__)
    print(*kept._kept._code, sep=",")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=True,
    )
    left = "process,process.marks,process.termination".replace("process", "streamguard.process")
    assert done.stdout.splitlines() == ["Termination", "" if is_possible else left]


@pytest.mark.parametrize("is_cached", [True, False])
def test_what_is_kept_is_what_the_source_says(tmp_path, monkeypatch, is_cached):
    """Also where what was cached of it is of an older source, or of nobody's."""
    monkeypatch.setattr(sys, "dont_write_bytecode", not is_cached)
    source = tmp_path / "module.py"
    cached = tmp_path / "__pycache__" / f"module.{sys.implementation.cache_tag}.pyc"

    def value():
        keeping = kept.Kept()
        keeping._at["module"] = (str(source), False)
        keeping._code["module"] = kept._code_of("module", str(source))
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
