"""Grounds on which `streamguard run` has been at fault: other users, namespaces, few descriptors."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from tests.process.backends import PATIENCE
from tests.runner import traces
from tests.runner.commands import OURS, Done, sh

NOBODY = 65534


class Ground:
    """Where one test's command lines run, as which user, and who they leave.

    A command bears `token` in its words (`self.sleep` is one), so it is found although its environment
    was cleared.
    """

    def __init__(self, commands, folder, before, python=sys.executable):
        self.commands = commands
        self.python = python
        self.ours = [python, *OURS[1:]]
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
        return [*self.before, *self.ours, "run", *words]

    def line(self, *words):
        """The same for a shell's script."""
        return shlex.join([*self.ours, "run", *words])

    def start(self, *words, **options):
        return self.commands.start(*self.words(*words), cwd=self.folder, **options)

    def run(self, *words, **options):
        """Our command line, to its end."""
        return self._to_its_end(*self.words(*words), **options)

    def shell(self, script, *around):
        """A script in a shell that those words start, to its end."""
        return self._to_its_end(*self.before, *around, "sh", "-c", script)

    def wait(self, process, stdin=b""):
        """Its end, and what its pipes hold by then: who is left may hold them open."""
        if process.stdin is not None:
            process.stdin.write(stdin)
            process.stdin.close()
        process.wait(PATIENCE * 2)
        said = []
        for pipe in (process.stdout, process.stderr):
            os.set_blocking(pipe.fileno(), False)
            said.append(pipe.read() or b"")
        return Done(process.returncode, said[0], said[1].decode(errors="replace"))

    def _to_its_end(self, *words, **options):
        paths = [self.folder / f"said-{traces.new_token()}" for _ in range(2)]
        with paths[0].open("wb") as out, paths[1].open("wb") as err:
            options = {"cwd": self.folder, "stdout": out, "stderr": err, **options}
            process = self.commands.start(*words, **options)
        process.wait(PATIENCE * 2)
        out, err = (path.read_bytes() for path in paths)
        return Done(process.returncode, out, err.decode(errors="replace"))

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


def _ground(commands, before, python=sys.executable):
    folder = Path(tempfile.mkdtemp(prefix="streamguard-ground-"))
    folder.chmod(0o777)
    ground = Ground(commands, folder, before, python)
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
        # In a shell, because who has just been made nobody may still do what root may.
        usable = "-c 'import sys, streamguard; sys.exit(sys.version_info < (3, 11))'"
        pythons = [sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"]
        pythons = [p for p in pythons if commands.run(*before, *sh(f"{p} {usable}")).code == 0]
        if not pythons:
            pytest.skip("there is no Python that nobody may run")
        yield from _ground(commands, before, pythons[0])
        return
    yield from _ground(commands, before)


@pytest.fixture
def roots(ground):
    """For what only root may do."""
    if os.geteuid() != 0:
        pytest.skip("takes root")
    return ground
