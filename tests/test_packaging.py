"""What is published is what users need, no more: contents, metadata, a clean install, cheap imports."""

from __future__ import annotations

import email
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from streamguard._base.distribution import NAME
from streamguard._version import __version__

ROOT = Path(__file__).parents[1]
FILES = f"{NAME.replace('-', '_')}-{__version__}"  # as a wheel's and an sdist's names begin
# Packages that a user may not have, or should not pay for by importing this one.
OPTIONAL = {"trio", "uvloop", "aiostream", "pytest", "hypothesis", "claude_agent_sdk", "ruamel"}


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel, built from the sdist, and the sdist."""
    for tool in ("build", "hatchling"):
        pytest.importorskip(tool)
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    return dist / f"{FILES}-py3-none-any.whl"


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of an environment that holds the wheel and its dependencies alone."""
    home = tmp_path_factory.mktemp("clean")
    venv.create(home, symlinks=True)
    python = home / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "-q", wheel, cwd=home)
    return home / "bin"


def test_the_wheel_holds_the_typed_package_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {name.partition("/")[0] for name in names} == {
        "streamguard",
        f"{FILES}.dist-info",
    }
    assert {"streamguard/py.typed", "streamguard/__main__.py"} <= names
    assert [name for name in names if "__pycache__" in name] == []


def test_the_metadata_asks_for_anyio_alone(wheel):
    with zipfile.ZipFile(wheel) as archive:
        raw = archive.read(f"{FILES}.dist-info/METADATA").decode()
    metadata = email.message_from_string(raw)
    wanted = metadata.get_all("Requires-Dist", [])
    unconditional = [requirement for requirement in wanted if "extra ==" not in requirement]
    assert [requirement.partition(">")[0] for requirement in unconditional] == ["anyio"]
    assert metadata["Name"] == NAME
    assert metadata["License-Expression"] == "MIT"
    assert metadata["Requires-Python"] == ">=3.11"


def test_the_sdist_can_be_tested(dist):
    with tarfile.open(dist / f"{FILES}.tar.gz") as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "LICENSE", "README.md", "tests/test_packaging.py"} <= names
    assert [name for name in names if name.startswith(".venv")] == []


def test_both_ways_to_the_command_work_in_a_clean_environment(installed):
    version = f"streamguard {__version__}\n"
    assert run(installed / "streamguard", "--version", cwd=installed) == version
    assert run(installed / "python", "-m", "streamguard", "--version", cwd=installed) == version


def test_every_public_name_is_there_without_any_extra(installed):
    script = (
        "import streamguard as s\n"
        "missing = [name for name in s.__all__ if not hasattr(s, name)]\n"
        "print(s.__version__, len(s.__all__) > 0, missing)"
    )
    told = run(installed / "python", "-I", "-c", script, cwd=installed)
    assert told == f"{__version__} True []\n"


@pytest.mark.parametrize("use", ["", "; s.idle_guard(180)"], ids=["import", "idle_guard"])
def test_importing_the_package_imports_nothing_optional(use):
    script = f"import sys, streamguard as s{use}; print(*sys.modules)"
    loaded = set(run(sys.executable, "-I", "-c", script).split())
    assert "streamguard" in loaded
    assert loaded & OPTIONAL == set()


def test_import_streamguard_alone_starts_no_event_loop_library():
    """Cost: `import streamguard` is cheap, its names are loaded when they are used."""
    script = "import sys, streamguard; print(*sys.modules)"
    loaded = set(run(sys.executable, "-I", "-c", script).split())
    assert loaded & {"asyncio", "anyio"} == set()


def test_doctor_names_a_namesake_that_was_installed_over_it(installed, tmp_path):
    """As pip does it with the other of that name: its package and its command are written over ours."""
    site = Path(
        run(
            installed / "python", "-c", "import sysconfig as s; print(s.get_path('purelib'))"
        ).strip()
    )
    info = site / "streamguard-0.2.0.dist-info"
    init = site / "streamguard/__init__.py"
    ours = init.read_text()
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: streamguard\nVersion: 0.2.0\n")
    (info / "RECORD").write_text("../../../bin/streamguard,,\nstreamguard/__init__.py,,\n")
    init.write_text("VOICES = 3\n")
    try:
        told = subprocess.run(
            [installed / "python", "-m", "streamguard", "doctor"],
            cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
    finally:
        init.write_text(ours)
        shutil.rmtree(info)
    assert told.returncode == 1, told
    words = " ".join(told.stdout.split())  # its lines are as wide as a terminal
    assert "! streamguard: version 0.2.0 is another project's" in words
    assert f"pip uninstall streamguard && pip install --force-reinstall {NAME}" in words
