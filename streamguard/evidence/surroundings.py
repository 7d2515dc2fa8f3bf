"""What is around a step when it is cut: the state of its work tree, and what it had written.

Asked on a thread, and within bounds: git may wait for a lock or a disk, and a user's callback for
anything. Knows nothing of verdicts.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

GIT_LIMIT: Final = 2.0
CALLBACK_LIMIT: Final = 5.0
_MOST_PATHS: Final = 1000
# What the evidence of a run consists of, with what a rotation and `streamguard report` leave.
_OF_THE_RUN: Final = (
    "timeline*.jsonl",
    "report.html",
    "*/timeouts*.jsonl",
    "*/receipts/*-timeout.json*",  # also while it is being written
    "*/llm/*-partial*.jsonl",
)

StrPath: TypeAlias = "str | os.PathLike[str]"
GitState: TypeAlias = Literal["clean", "changed", "no repository", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Git:
    """A work tree: whether it has uncommitted changes, and which; its branch and head.

    "unknown": git did not say it in time, or failed; `why` says more.
    """

    state: GitState
    branch: str | None = None
    head: str | None = None
    changes: tuple[str, ...] = ()
    more_changes: int = 0
    why: str = ""


@dataclass(frozen=True)
class Artifact:
    """Something a step was to write. `bytes_written` is found out if it is not given."""

    path: StrPath
    _: KW_ONLY
    complete: bool = False
    bytes_written: int | None = None


Artifacts: TypeAlias = "Iterable[StrPath | Artifact] | Callable[[], Iterable[StrPath | Artifact]]"


def git_state(work_tree: Path, limit: float = GIT_LIMIT, *, run: Path | None = None) -> Git:
    """The state of a work tree, asked for at most `limit` seconds.

    The evidence in the folder `run`, and in others beside it, is no change of anybody's.
    """
    # No lock of the index, no program of the repository's own, no question to anybody.
    command = [
        *("git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-C", os.fspath(work_tree)),
        *("status", "--porcelain=v2", "--branch", "-z", "--untracked-files=normal", "--"),
        *([] if run is None else _without_evidence(work_tree, run)),
    ]
    environment = {
        **os.environ,
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C",
        "GIT_LITERAL_PATHSPECS": "0",
    }
    try:
        done = subprocess.run(  # noqa: S603 - our own words, and a path
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=limit,
            check=False,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        return Git(state="unknown", why=f"git did not answer in {limit:g} s")
    except OSError as error:
        return Git(state="unknown", why=f"git cannot be run: {error.strerror}")
    if done.returncode != 0:
        if b"not a git repository" in done.stderr:
            return Git(state="no repository")
        return Git(state="unknown", why=f"git failed with exit status {done.returncode}")
    return _git_of(done.stdout.decode("utf-8", "backslashreplace"))


def _without_evidence(work_tree: Path, run: Path) -> list[str]:
    """Pathspecs; none where git would refuse them: outside, and in a repository within."""
    home, root = run.resolve(), work_tree.resolve()
    between = [home, *home.parents]
    if root not in between or any(
        (each / ".git").exists() for each in between[: between.index(root)]
    ):
        return []
    is_among_runs = root not in between[:2]
    plain = re.sub(r"[*?\[\\]", r"\\\g<0>", os.fspath(home.parent if is_among_runs else home))
    runs = f"{plain}/*" if is_among_runs else plain
    return [f":(exclude,glob){runs}/{name}" for name in _OF_THE_RUN]


def _git_of(told: str) -> Git:
    branch = head = None
    changes: list[str] = []
    fields = iter(told.split("\0"))
    for field in fields:
        match field.split(" ", 1):
            case ["#", rest]:
                name, _, value = rest.partition(" ")
                head = value if name == "branch.oid" and value != "(initial)" else head
                branch = value if name == "branch.head" and value != "(detached)" else branch
            case ["1", rest]:
                changes.append(rest.split(" ", 7)[-1])
            case ["u", rest]:
                changes.append(rest.split(" ", 9)[-1])
            case ["2", rest]:
                changes.append(rest.split(" ", 8)[-1])
                next(fields, None)  # where it was renamed from
            case ["?", path]:
                changes.append(path)
            case _:
                pass
    return Git(
        state="changed" if changes else "clean",
        branch=branch,
        head=head,
        changes=tuple(changes[:_MOST_PATHS]),
        more_changes=max(0, len(changes) - _MOST_PATHS),
    )


@dataclass(frozen=True, kw_only=True)
class Found:
    """Artifacts as they are written down, and what could not be told of."""

    artifacts: tuple[Mapping[str, Any], ...] = ()
    outside: tuple[str, ...] = ()
    error: BaseException | None = None


def find_artifacts(named: Artifacts, homes: tuple[Path, ...]) -> Found:
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
    return Found(artifacts=tuple(found), outside=tuple(outside), error=error)


def _listed(named: Artifacts) -> tuple[list[StrPath | Artifact], BaseException | None]:
    if not callable(named):
        return list(named), None
    listed: list[StrPath | Artifact] = []
    failures: list[BaseException] = []

    def call() -> None:
        try:
            listed.extend(named())
        except BaseException as error:  # noqa: BLE001 - it is told, as all that fails here
            failures.append(error)

    # In a thread that can be left behind.
    thread = threading.Thread(target=call, name="streamguard artifacts", daemon=True)
    thread.start()
    thread.join(CALLBACK_LIMIT)
    if thread.is_alive():
        return [], TimeoutError(f"it did not return in {CALLBACK_LIMIT:g} s")
    return listed, failures[0] if failures else None
