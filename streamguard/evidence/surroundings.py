"""What is around a step when it is cut: the state of its work tree, and what it had written.

Asked on a thread, and within bounds: a user's callback may wait for anything. What git says of the
work tree is `worktree`'s to find out. Knows nothing of verdicts.
"""

from __future__ import annotations

import inspect
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

CALLBACK_LIMIT: Final = 5.0
_MOST_PATHS: Final = 1000

StrPath: TypeAlias = "str | os.PathLike[str]"


@dataclass(frozen=True)
class Artifact:
    """Something a step was to write. `bytes_written` is found out if it is not given."""

    path: StrPath
    _: KW_ONLY
    complete: bool = False
    bytes_written: int | None = None


Artifacts: TypeAlias = "Iterable[StrPath | Artifact] | Callable[[], Iterable[StrPath | Artifact]]"


@dataclass(frozen=True, kw_only=True)
class ArtifactsFound:
    """Artifacts as they are written down, and what could not be told of."""

    artifacts: tuple[Mapping[str, Any], ...] = ()
    outside: tuple[str, ...] = ()
    error: BaseException | None = None


def find_artifacts(named: Artifacts, homes: tuple[Path, ...]) -> ArtifactsFound:
    """What became of the artifacts `named`; only what lies in one of `homes` is looked at.

    A relative path is one in the last of `homes`.
    """
    listed, error = _listed(named)
    found: list[Mapping[str, Any]] = []
    outside: list[str] = []
    for each in listed[:_MOST_PATHS]:
        artifact = each if isinstance(each, Artifact) else Artifact(each)
        written = os.fspath(artifact.path)
        try:
            real = homes[-1].joinpath(written).resolve()
            is_inside = any(real.is_relative_to(home.resolve()) for home in homes)
            size = real.stat().st_size if is_inside and real.is_file() else 0
        except (OSError, ValueError):  # a link to itself, a NUL in the path
            is_inside, size = False, 0
        if not is_inside:
            outside.append(written)
            continue
        bytes_written = size if artifact.bytes_written is None else artifact.bytes_written
        found.append(
            {"path": written, "complete": artifact.complete, "bytes_written": bytes_written}
        )
    return ArtifactsFound(artifacts=tuple(found), outside=tuple(outside), error=error)


def _listed(named: Artifacts) -> tuple[list[StrPath | Artifact], BaseException | None]:
    if not callable(named):
        return list(named), None
    listed: list[StrPath | Artifact] = []
    error = called(lambda: listed.extend(named()), "artifacts")
    return ([], error) if isinstance(error, TimeoutError) else (listed, error)


def called(callback: Callable[[], object], what: str) -> BaseException | None:
    """What went wrong when a user's callback was called, for at most `CALLBACK_LIMIT` seconds."""
    failures: list[BaseException] = []

    def call() -> None:
        try:
            if inspect.iscoroutine(given := callback()):
                given.close()  # or Python would also warn that it was never awaited
                failures.append(TypeError("nothing can be awaited here"))
        except BaseException as error:  # noqa: BLE001 - it is told, as all that fails here
            failures.append(error)

    # In a thread that can be left behind.
    thread = threading.Thread(target=call, name=f"streamguard {what}", daemon=True)
    thread.start()
    thread.join(CALLBACK_LIMIT)
    if thread.is_alive():
        return TimeoutError(f"it did not return in {CALLBACK_LIMIT:g} s")
    return failures[0] if failures else None
