"""Another distribution that has our package's name, or our command's, is named with what to do."""

from __future__ import annotations

import subprocess
import sys

import pytest

from streamguard._base.distribution import NAME, install
from streamguard.cli.namesakes import namesakes


@pytest.fixture
def site(tmp_path):
    """Put a distribution there: `site("name", RECORD="...")`; then look for namesakes."""

    def put(name, version="0.2.0", **files):
        info = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        for file, text in {"METADATA": metadata, **files}.items():
            (info / file.replace("_txt", ".txt")).write_text(text)

    put.look = lambda: [tuple(each) for each in namesakes([str(tmp_path)])]
    return put


COMMAND = "[gui_scripts]\na = b:c\n\n[console_scripts]\nother = x:y\nstreamguard = voice:main\n"


def test_ours_and_those_that_have_nothing_of_ours_are_none(site):
    site(NAME, RECORD="streamguard/__init__.py,,\n", entry_points_txt=COMMAND)
    site("streamguard-extras", RECORD="streamguard_extras/streamguard.py,,\n", top_level_txt="x\n")
    plugin = "[pytest11]\nstreamguard = their.plugin\n[console_scripts]\nother = x:y\n"
    site("plugin", entry_points_txt=plugin)
    site("nothing")
    assert site.look() == []


@pytest.mark.parametrize("name", ["streamguard", "StreamGuard"])
def test_one_of_that_name_is_found_by_it(site, name):
    """An old editable install of ours, too: it lists no file of its package."""
    site(name)
    assert site.look() == [(name, "0.2.0", "the package 'streamguard', too")]


@pytest.mark.parametrize(
    "files",
    [
        {"RECORD": "a.py,,\nstreamguard/x.py,sha256=1,2\n"},
        {"RECORD": "streamguard.py,sha256=1,2\n"},
        {"top_level_txt": "a\nstreamguard\n"},
    ],
)
def test_one_with_files_of_the_package_is_found(site, files):
    site("voice-guard", **files)
    assert site.look() == [("voice-guard", "0.2.0", "the package 'streamguard', too")]


def test_one_with_the_command_is_found_and_says_what_to_do(site, tmp_path):
    site("voice-guard", entry_points_txt=COMMAND)
    site("both", "1.0", RECORD="streamguard/x.py,,\n", entry_points_txt=COMMAND)
    assert {has for _, _, has in site.look()} == {
        "the command 'streamguard'",
        "the package 'streamguard', too and the command 'streamguard'",
    }
    (first,) = (each for each in namesakes([str(tmp_path)]) if each.name == "voice-guard")
    assert first.advice.endswith(
        "pip uninstall voice-guard && pip install --force-reinstall agent-streamguard"
    )


def test_importing_looks_for_none():
    script = "import sys, streamguard; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-I", "-c", script], capture_output=True, text=True, check=True
    )
    assert {"importlib.metadata", "streamguard.cli"}.isdisjoint(done.stdout.split())


def test_a_hint_names_the_distribution():
    assert install() == "pip install agent-streamguard"
    assert install("claude", "top") == "pip install 'agent-streamguard[claude,top]'"
