"""Grounds on which `streamguard run` has been at fault: other users, namespaces, few descriptors."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import tempfile
from pathlib import Path

import pytest

from tests.process.backends import PATIENCE
from tests.run import traces
from tests.run.commands import OURS

NOBODY = 65534


class Ground:
    """Where one test's command lines run, as which user, and who they leave.

    A command bears `token` in its words (`self.sleep` is one), so it is found although its environment
    was cleared.
    """

    def __init__(self, commands, folder, before):
        self.commands = commands
        self.folder = folder
        self.before = before
        self.token = traces.new_token()

    @property
    def sleep(self):
        """A command that does not end within a test and is found by its words."""
        return f"sleep 1000.{self.token}"

    @property
    def status(self):
        return self.folder / "status.json"

    def told(self):
        """What the status file says."""
        return json.loads(self.status.read_text())

    def words(self, *words):
        return [*self.before, *OURS, "run", *words]

    def line(self, *words):
        """The same for a shell's script."""
        return shlex.join([*OURS, "run", *words])

    def start(self, *words, **options):
        return self.commands.start(*self.words(*words), cwd=self.folder, **options)

    def run(self, *words, **options):
        return self.commands.run(*self.words(*words), cwd=self.folder, **options)

    def shell(self, script, *around, **options):
        """A script in a shell that those words start."""
        words = [*self.before, *around, "sh", "-c", script]
        return self.commands.run(*words, cwd=self.folder, **options)

    def living(self):
        return traces.living(self.token)

    def all_gone(self):
        return not traces.gone([self.token], PATIENCE)

    def unshare(self, *flags):
        """Words for namespaces of one's own; where there can be none, the test is skipped."""
        words = ["unshare", *flags]
        if os.geteuid() != 0 or self.before:
            words.insert(1, "--map-root-user")
        if shutil.which("unshare") is None:
            pytest.skip("unshare is not installed")
        if self.commands.run(*self.before, *words, "true").code != 0:
            pytest.skip(f"{' '.join(words)} is not allowed here")
        return words


def _ground(commands, before):
    folder = Path(tempfile.mkdtemp(prefix="streamguard-ground-"))
    folder.chmod(0o777)
    ground = Ground(commands, folder, before)
    yield ground
    traces.end([ground.token])
    commands.backends.kill()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def ground(commands):
    """As who runs the tests."""
    yield from _ground(commands, [])


@pytest.fixture(params=["ourselves", "nobody"])
def anyones(request, commands):
    """As who runs the tests, and as a user who may do nothing."""
    before = []
    if request.param == "nobody":
        if os.geteuid() != 0 or shutil.which("setpriv") is None:
            pytest.skip("to become nobody takes root and setpriv")
        before = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    yield from _ground(commands, before)


@pytest.fixture
def roots(ground):
    """For what only root may do."""
    if os.geteuid() != 0:
        pytest.skip("takes root")
    return ground
