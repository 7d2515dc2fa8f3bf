"""One run, whose folder is not there yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamguard.evidence import recorder
from tests.evidence.support import Run


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is shared with other tests may take longer than users would wait."""
    monkeypatch.setattr(recorder, "WORTH", 60.0)
    monkeypatch.setattr(recorder.Recorder.flush, "__defaults__", (60.0,))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)
