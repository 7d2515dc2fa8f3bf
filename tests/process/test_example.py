"""examples/guarded_process.py does what it says."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import anyio

from streamguard.process import marked_env

PATH = Path(__file__).parents[2] / "examples" / "guarded_process.py"


def test_a_command_line_that_hangs(backends, capsys, monkeypatch):
    """D4: caught, ended with what it had started, and told; however far it came in its time."""
    spec = importlib.util.spec_from_file_location("guarded_process", PATH)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    monkeypatch.setattr(example, "marked_env", lambda: backends.env(marked_env()))

    assert anyio.run(example.main) == 0
    told = capsys.readouterr().out
    assert "caught: stream-1 idle for" in told
    started = re.findall(r"(?:the backend,|as) process (\d+)", told)
    assert re.findall(r"process (\d+) is gone", told) == started
    assert "STILL THERE" not in told
    assert re.search(r"would exit with (137|124)$", told.strip())
    assert backends.living() == set()
