"""aiostream's own tests of its `timeout` operator, run against `idle_timeout`.

A pytest plugin and the way to run it. As a plugin it puts `idle_timeout` in the place of
`aiostream.pipe.timeout` and `aiostream.stream.timeout` before anything is collected; `run` fetches
the tests of the aiostream that is installed (nothing of them is kept here) and runs those that use
`timeout`. By hand:

    python tests/interop/conformance.py

An adapter lies between, for three things. aiostream's tests compare errors by exact class and
arguments; they await pipes; and where a message comes at the very instant of the limit, theirs
gives the error and ours the message (T3).
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import AsyncIterator, Callable, Generator
from importlib import metadata
from pathlib import Path
from typing import Any

import aiostream
from aiostream.core import wait_stream

from streamguard import IdleTimeoutError, idle_timeout

ROOT = Path(__file__).parents[2]
# Each runs twice: iterated and awaited.
NODES = (
    "test_time.py::test_timeout",
    "test_create.py::test_never",
    "test_combine.py::test_map",
    "test_combine.py::test_merge",
    "test_advanced.py::test_concatmap",
    "test_transform.py::test_cycle",
)


class Unavailable(Exception):  # noqa: N818 - not an error: there is nothing to run
    """aiostream's tests could not be fetched, or not whole."""


class Adapted:
    """A stream guarded by `idle_timeout`, as aiostream's tests want it."""

    def __init__(self, source: Any, seconds: float) -> None:
        self._guarded = source | idle_timeout(seconds)
        self._seconds = seconds

    def __aiter__(self) -> AdaptedIterator:
        return AdaptedIterator(aiter(self._guarded), self._seconds)

    def __or__(self, function: Callable[[Any], Any]) -> Any:
        return function(self)

    def __await__(self) -> Generator[Any, None, Any]:
        stream: Any = self
        return wait_stream(stream).__await__()


class AdaptedIterator:
    """Gives a bare `TimeoutError` in place of ours, and of a message at the tie."""

    def __init__(self, iterator: AsyncIterator[Any], seconds: float) -> None:
        self._iterator: Any = iterator
        self._seconds = seconds
        self.aclose = self._iterator.aclose

    def __aiter__(self) -> AdaptedIterator:
        return self

    async def __anext__(self) -> Any:
        clock = asyncio.get_running_loop().time
        asked = clock()
        try:
            message = await anext(self._iterator)
        except IdleTimeoutError as error:
            raise TimeoutError from error
        if clock() - asked == self._seconds:
            raise TimeoutError
        return message


def pytest_configure() -> None:
    """Put ours in the place of theirs."""
    theirs: Any = (aiostream.pipe, aiostream.stream)
    theirs[0].timeout = lambda seconds: lambda source: Adapted(source, seconds)
    theirs[1].timeout = Adapted


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    """Fetch aiostream's tests into `folder` and run those that use `timeout`."""
    tests = fetch(folder) / "tests"
    # A configuration of its own, so that neither theirs (which wants coverage) nor ours is used.
    settings = "[pytest]\nasyncio_default_fixture_loop_scope = function\n"
    (own := folder / "pytest.ini").write_text(settings, encoding="utf-8")
    plugins = ("-p", "pytest_asyncio.plugin", "-p", "tests.interop.conformance")
    # Nor what our own run was given beside it: those plugins are not loaded there.
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-c", str(own), *plugins),
            *("-W", "error::UserWarning", *(str(tests / node) for node in NODES)),
        ],
        cwd=folder,
        env=os.environ | alone,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def fetch(folder: Path) -> Path:
    """The sources of the installed aiostream, unpacked in `folder`."""
    wanted = f"aiostream=={metadata.version('aiostream')}"
    pip = [sys.executable, "-m", "pip", "download", "-q", "--retries", "0", "--timeout", "10"]
    options = ["--no-deps", "--no-binary", "aiostream", "--dest", str(folder), wanted]
    try:
        done = subprocess.run(
            [*pip, *options], capture_output=True, text=True, timeout=90, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"pip download {wanted} took more than {error.timeout} s") from None
    if done.returncode:
        reason = (done.stderr.strip() or "no reason given").splitlines()[-1]
        raise Unavailable(f"pip download {wanted}: {reason}")
    (archive,) = folder.glob("aiostream-*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    sources = folder / archive.name.removesuffix(".tar.gz")
    if not (sources / "tests" / "conftest.py").exists():
        raise Unavailable(f"the sources of {wanted} hold its tests without their fixtures")
    return sources


def main() -> int:
    """Run it by hand: what pytest says, and its exit code."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = run(Path(folder))
        except Unavailable as reason:
            sys.exit(str(reason))
    sys.stdout.write(done.stdout + done.stderr)
    return done.returncode


if __name__ == "__main__":
    raise SystemExit(main())
