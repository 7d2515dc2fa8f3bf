"""`.ci/tools` says what it would install and how large that is, and installs nothing without a yes.

Here every program that it could install with is a stub that writes down how it was called.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEEDED = "awk bash cat cksum dirname env flock ln mkdir mv rm sed sh tail timeout tr uname"
STUB = '#!/bin/sh\necho "${0##*/} $*" >>"$CALLS"\n'


class Machine:
    """One with nothing on it, and the user of this number."""

    def __init__(self, folder: Path, user: int) -> None:
        self.bin, self.calls_file = folder / "bin", folder / "calls"
        self.bin.mkdir()
        for name in NEEDED.split():
            (self.bin / name).symlink_to(shutil.which(name))
        for name in ("apt-get", "sudo", "npm", "python3"):
            self.stub(name, STUB)
        self.stub("sudo", STUB + '[ "$1" != -n ] || shift\n"$@"\n')
        self.stub("id", f"#!/bin/sh\necho {user}\n")
        self.stub("true", "#!/bin/sh\n")
        for name in ("tmux", "initdb"):  # else it would write to /etc
            self.stub(name, "#!/bin/sh\n")
        self.env = {
            "PATH": str(self.bin),
            "HOME": str(folder),
            "CALLS": str(self.calls_file),
            "STREAMGUARD_TOOLS": str(folder / "tools"),
        }

    def stub(self, name: str, text: str) -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    @property
    def calls(self) -> str:
        return self.calls_file.read_text() if self.calls_file.exists() else ""

    def run(self, *words: str, typed: str | None = None) -> str:
        """What it says; with `typed`, at a terminal where somebody types that."""
        ours = theirs = os.open(os.devnull, os.O_RDWR)
        if typed is not None:
            ours, theirs = os.openpty()
            os.write(ours, typed.encode())
        done = subprocess.run(
            [self.bin / "bash", ROOT / ".ci/tools", *words],
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.env,
            timeout=120,
            check=False,
        )
        for end in {ours, theirs}:
            os.close(end)
        assert done.returncode == 0, done.stdout
        return done.stdout


@pytest.fixture
def machine(tmp_path):
    return lambda user: Machine(tmp_path, user)


def test_it_says_what_and_how_large_and_asks(machine):
    user = machine(1000)
    told = user.run(typed="n\n")
    assert "Debian's packages, by apt-get and sudo, about 690 MB: chromium (500 MB), node" in told
    assert "codex (404 MB)" in told
    assert "nothing was installed; the tests that need it skip" in told
    assert user.calls == ""


def test_a_yes_at_the_terminal_installs(machine):
    user = machine(1000)
    user.run(typed="y\n")
    assert "sudo apt-get update" in user.calls
    assert "apt-get install -qq -y" in user.calls
    assert "@openai/codex@" in user.calls
    assert "--require-hashes" in user.calls


def test_where_nobody_can_be_asked_nothing_is_installed(machine):
    user = machine(1000)
    assert "to install it unasked: .ci/tools --yes" in user.run()
    assert user.calls == ""


def test_yes_asks_nobody(machine):
    user = machine(1000)
    assert "Install it?" not in user.run("--yes", typed="")
    assert "npm install" in user.calls


def test_sudo_asks_for_no_password_where_nobody_can_type_it(machine):
    user = machine(1000)
    user.run("--yes")
    assert "sudo -n apt-get update" in user.calls


def test_root_of_a_container_is_not_asked(machine):
    root = machine(0)
    assert "apt-get, about" in root.run()
    assert "apt-get install -qq -y" in root.calls
    assert "sudo" not in root.calls


def test_without_apt_get_it_says_what_is_for_you_to_install(machine):
    user = machine(1000)
    (user.bin / "apt-get").unlink()
    told = user.run("--yes")
    assert "for you to install, since there is no apt-get here, about 690 MB: chromium" in told
    assert "tools: missing, so their tests skip: chromium" in told


def test_what_it_does_not_know_is_told_and_installs_nothing(machine):
    user = machine(0)
    done = subprocess.run(
        ["bash", ROOT / ".ci/tools", "--no"],
        capture_output=True,
        text=True,
        env=user.env,
        check=False,
    )
    assert done.returncode == 2
    assert ".ci/tools --yes    does not ask" in done.stdout
    assert user.calls == ""
