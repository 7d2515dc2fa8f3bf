"""All rows on each Python, one after another: an environment for each, made once and kept in `build/`."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
_HOMES: Final = ROOT / "build" / "benchmarks"
# A `pythonX.Y` on the PATH proves nothing: a version manager's shim fails unless that version is selected.
_ASKED: Final = (
    "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2], sys.executable)"
)


class NotFoundError(Exception):
    """There is no such Python on this machine."""


def run(versions: Sequence[str], words: Sequence[str]) -> int:
    """`python -m benchmarks WORDS` on each; how many of them went wrong."""
    pythons = [environment(version) for version in versions]  # installing is no quiet work
    failed = 0
    for version, python in zip(versions, pythons, strict=True):
        print(f"\n=== Python {version}", flush=True)
        command = [python, "-m", "benchmarks", *words]
        failed += subprocess.run(command, cwd=ROOT, env=_clean(), check=False).returncode != 0
    return failed


def environment(version: str) -> Path:
    """The Python of an environment with all that the rows need."""
    home = _HOMES / version
    python, stamp = home / "bin" / "python", home / "installed"
    wanted = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"making an environment for Python {version}", flush=True)
        subprocess.run([find(version), "-m", "venv", "--clear", home], check=True)
        packages = f"{ROOT}[bench]"
        install = [python, "-m", "pip", "install", "--quiet", "--editable", packages]
        subprocess.run(install, env=_clean(), check=True)
        stamp.write_text(wanted)
    return python


def find(version: str) -> str:
    """A Python that really is `version` and can make environments."""
    for candidate in _candidates(version):
        try:
            said = subprocess.run(
                [candidate, "-c", _ASKED], capture_output=True, text=True, check=False
            )
        except OSError:
            continue
        found, _, path = said.stdout.strip().partition(" ")
        if found == version:
            return path
    raise NotFoundError(
        f"Python {version} with venv is needed and was not found: looked at this one, for "
        f"python{version} on the PATH, and in pyenv's versions"
    )


def _candidates(version: str) -> Iterator[str]:
    yield sys.executable
    for folder in os.get_exec_path():
        yield f"{folder}/python{version}"
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    yield from map(str, sorted(pyenv.glob(f"versions/{version}.*/bin/python")))


def _clean() -> dict[str, str]:
    """The environment without what would change a Python, or streamguard."""
    return {
        name: value
        for name, value in os.environ.items()
        if name not in {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
        and not name.startswith("STREAMGUARD_")
    }
