"""How a work tree stands: what git says of it, without running anything that belongs to it.

What is asked about may be what an agent has just been at, with its `.git/config` and its
`.gitattributes`, and is asked by who supervises the agent. So:

- No program that a configuration names is run: no filter (a file that only a filter would make equal
  counts as changed), no hook, no monitor of files, and nothing that fetches what is missing. The
  names of the filters are asked for first, which runs nothing, and each is switched off.
- Submodules have a configuration of their own, so git does not look into them; they are asked in turn.
- git itself refuses a repository of another user's, and we leave it at that (`safe.directory`).
- The caller's GIT_DIR and the like are left out: they are about another repository than the one that
  is asked about. What says where git's own configuration is, and what it trusts, stays.
- It takes two seconds at most, in all; then git and all of its group are killed. What it says is
  bounded, too.

`core.worktree` and `include.path` are obeyed: they lead to other files, but run nothing.
"""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, Literal, NamedTuple, TypeAlias

GIT_LIMIT: Final = 2.0
_MOST_PATHS: Final = 1000
_MOST_SAID: Final = 16 << 20
_MOST_LISTED: Final = 64 << 20  # some 600,000 files
_MOST_ERRORS: Final = 64 << 10
_TO_DIE: Final = 0.5
_DEEPEST: Final = 8
_GITLINK: Final = re.compile(rb"(?:^|\0)160000 [^\t\0]*\t([^\0]+)")
# What the evidence of a run consists of, with what a rotation and `streamguard report` leave.
_OF_THE_RUN: Final = (
    "timeline*.jsonl",
    "report.html",
    "*/timeouts*.jsonl",
    "*/receipts/*-timeout.json*",  # also while it is being written
    "*/llm/*-partial*.jsonl",
)

_KEPT: Final = (
    "GIT_CEILING_DIRECTORIES",
    "GIT_DISCOVERY_ACROSS_FILESYSTEM",
    "GIT_EXEC_PATH",
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_SYSTEM",
    "GIT_CONFIG_NOSYSTEM",
)
_COUNTED: Final = ("GIT_CONFIG_COUNT", "GIT_CONFIG_KEY_", "GIT_CONFIG_VALUE_")
# Set by us, and shown by a git that knows such settings (since 2.31).
_PROBE: Final = "streamguard.probe"
_RULES: Final = (
    (_PROBE, "1"),
    ("core.fsmonitor", "false"),
    ("core.hooksPath", os.devnull),
    ("credential.helper", ""),
    ("status.submoduleSummary", "false"),
)
_FILTER_RULES: Final = (("clean", ""), ("smudge", ""), ("process", ""), ("required", "false"))

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


def git_state(work_tree: Path, limit: float = GIT_LIMIT, *, run: Path | None = None) -> Git:
    """The state of a work tree, asked for at most `limit` seconds.

    The evidence in the folder `run`, and in others beside it, is no change of anybody's.
    """
    try:
        without = [] if run is None else _without_evidence(work_tree, run)
        return _state(work_tree, _Bounds(time.monotonic() + limit, limit), without)
    except _UnknownError as error:
        return Git(state="unknown", why=str(error))


class _UnknownError(Exception):
    """Why the state cannot be known."""


class _OverdueError(_UnknownError):
    """It was not said in time."""


class _Bounds(NamedTuple):
    """How long git may take, and above which folder it looks for no repository."""

    at: float
    limit: float
    top: str | None = None

    @property
    def left(self) -> float:
        return self.at - time.monotonic()

    def half(self) -> _Bounds:
        """Until half of what is left is over."""
        return self._replace(at=self.at - self.left / 2)

    def passed(self) -> _UnknownError:
        return _OverdueError(f"git did not answer in {self.limit:g} s")


class _Said(NamedTuple):
    status: int
    out: bytes
    errors: bytes
    is_all: bool  # else it was cut, and git was killed


def _state(work_tree: Path, bounds: _Bounds, without: Sequence[str], depth: int = 0) -> Git:
    rules = [*_RULES, *_rules_for_filters(work_tree, bounds)]
    try:
        said = _ask_for_changes(work_tree, "all", without, rules, bounds.half())
    except _OverdueError:  # of folders that are new, then, the name alone
        said = _ask_for_changes(work_tree, "normal", without, rules, bounds)
    if said.is_all and said.status != 0:
        if b"not a git repository" in said.errors:
            return Git(state="no repository")
        raise _failed(said)
    told = said.out[: said.out.rfind(b"\0") + 1]
    return _git_of(os.fsdecode(told), _changed_modules(work_tree, bounds, rules, depth))


def _ask_for_changes(
    work_tree: Path,
    untracked: str,
    without: Sequence[str],
    rules: Sequence[tuple[str, str]],
    bounds: _Bounds,
) -> _Said:
    words = [
        *("status", "--porcelain=v2", "--branch", "--no-ahead-behind", "-z"),
        *(f"--untracked-files={untracked}", "--ignore-submodules=dirty", "--", *without),
    ]
    return _ask(work_tree, words, rules, bounds, _MOST_SAID)


def _rules_for_filters(work_tree: Path, bounds: _Bounds) -> list[tuple[str, str]]:
    """What switches off each filter that any configuration in force has."""
    listing = ("config", "--list", "--name-only", "-z")
    said = _ask(work_tree, listing, _RULES, bounds, _MOST_SAID)
    if said.status != 0:
        raise _failed(said)
    keys = os.fsdecode(said.out).split("\0")
    if _PROBE not in keys:
        raise _UnknownError("git is older than 2.31, and would run the repository's own programs")
    filters = {
        key.removeprefix("filter.").rpartition(".")[0]
        for key in keys
        if key.startswith("filter.") and key.count(".") > 1
    }
    return [
        (f"filter.{name}.{what}", value)
        for name in sorted(filters)
        for what, value in _FILTER_RULES
    ]


def _changed_modules(
    work_tree: Path, bounds: _Bounds, rules: Sequence[tuple[str, str]], depth: int
) -> list[str]:
    """The submodules whose own work trees have changes."""
    listing = ("ls-files", "--stage", "-z", "--", ":/")
    said = _ask(work_tree, listing, rules, bounds, _MOST_LISTED)
    if not said.is_all:
        raise _UnknownError("the work tree has too many files to look for submodules")
    if said.status != 0:
        raise _failed(said)
    changed: list[str] = []
    for link in _GITLINK.finditer(said.out):
        path = os.fsdecode(link[1])
        module = work_tree / path
        if module.is_symlink() or not (module / ".git").exists():
            continue
        if depth >= _DEEPEST:
            raise _UnknownError("its submodules are nested too deeply")
        # What only looks like a repository would be taken for a part of the one above it.
        within = bounds._replace(top=os.path.realpath(module.parent))
        if _state(module, within, (), depth + 1).state == "changed":
            changed.append(path)
    return changed


def _failed(said: _Said) -> _UnknownError:
    if not said.is_all:
        return _UnknownError("git says too much")
    if b"dubious ownership" in said.errors:
        return _UnknownError("git refuses a repository of another user's (see safe.directory)")
    return _UnknownError(f"git failed with exit status {said.status}")


def _ask(
    work_tree: Path,
    words: Iterable[str],
    rules: Sequence[tuple[str, str]],
    bounds: _Bounds,
    most: int,
) -> _Said:
    """Run git until it ends, its time is up, or it has said `most` bytes. Nothing of it is left."""
    command = ["git", "--no-pager", "--no-optional-locks", "-C", os.fspath(work_tree), *words]
    try:
        process = subprocess.Popen(  # noqa: S603 - our own words, and a path
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,  # a group of its own, to be ended as one
            env=_environment(rules, bounds.top),
        )
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise _UnknownError(f"git cannot be run: {why}") from error
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        with process.stdout as out, process.stderr as errors:
            told, is_all = _read(out, errors, bounds, most)
            while is_all and not _has_ended(process):
                if bounds.left <= 0:
                    raise bounds.passed()
                time.sleep(0.001)
    finally:
        _end(process)
    return _Said(process.returncode or 0, told[0], told[1], is_all)


def _read(
    out: IO[bytes], errors: IO[bytes], bounds: _Bounds, most: int
) -> tuple[tuple[bytes, bytes], bool]:
    """What comes from both, and whether `out` was at its end."""
    parts: dict[int, list[bytes]] = {out.fileno(): [], errors.fileno(): []}
    room = {out.fileno(): most, errors.fileno(): _MOST_ERRORS}
    with selectors.DefaultSelector() as selector:
        for fd in parts:
            selector.register(fd, selectors.EVENT_READ)
        while selector.get_map():
            if bounds.left <= 0:
                raise bounds.passed()
            for key, _ in selector.select(bounds.left):
                data = os.read(key.fd, 1 << 16)
                if not data:
                    selector.unregister(key.fd)
                parts[key.fd].append(data[: room[key.fd]])
                room[key.fd] -= min(len(data), room[key.fd])
            if not room[out.fileno()]:
                break
    said = b"".join(parts[out.fileno()]), b"".join(parts[errors.fileno()])
    return said, room[out.fileno()] > 0


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    if not hasattr(os, "waitid"):  # macOS, before Python 3.13
        return process.poll() is not None
    how = os.WEXITED | os.WNOHANG | os.WNOWAIT
    try:
        return os.waitid(os.P_PID, process.pid, how) is not None
    except ChildProcessError:  # somebody else has waited for it
        process.poll()
        return True


def _end(process: subprocess.Popen[bytes]) -> None:
    """Leave nothing of it alive. Until it is waited for, nobody else can get its group's number."""
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(
            subprocess.TimeoutExpired
        ):  # it waits for a disk, and dies when that is back
            process.wait(_TO_DIE)


def _environment(rules: Sequence[tuple[str, str]], top: str | None) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or name in _KEPT or name.startswith(_COUNTED)
    }
    try:
        count = int(kept.get("GIT_CONFIG_COUNT") or 0)
    except ValueError:
        count = 0
    for number, (key, value) in enumerate(rules, start=count):
        kept[f"GIT_CONFIG_KEY_{number}"] = key
        kept[f"GIT_CONFIG_VALUE_{number}"] = value
    if top is not None:
        kept["GIT_CEILING_DIRECTORIES"] = top
    return {
        **kept,
        # A `git` in the work tree itself is not the one that is meant.
        "PATH": os.pathsep.join(filter(os.path.isabs, os.get_exec_path())),
        "GIT_CONFIG_COUNT": str(count + len(rules)),
        "GIT_ALLOW_PROTOCOL": "",  # what is missing in a partial clone is not fetched
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C",
    }


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


def _git_of(told: str, modules: Iterable[str]) -> Git:
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
    changes += [module for module in modules if module not in changes]
    changes = [os.fsencode(path).decode("utf-8", "backslashreplace") for path in changes]
    return Git(
        state="changed" if changes else "clean",
        branch=branch,
        head=head,
        changes=tuple(changes[:_MOST_PATHS]),
        more_changes=max(0, len(changes) - _MOST_PATHS),
    )
