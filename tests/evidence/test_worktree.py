"""What git is asked about a work tree runs nothing of it, and is bounded; with a real git (E4)."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import time
from pathlib import Path

import pytest

from streamguard.evidence import worktree
from streamguard.evidence.worktree import git_state
from tests.process.backends import comes_true

pytestmark = pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")

# Nobody else on this machine sleeps for so long.
NAP = 7_000_000 + os.getpid()
# What a busy machine may take to ask git.
PATIENCE = 30.0

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")


class Repository:
    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True)
        self("init", "-q", "-b", "main")
        self("config", "user.name", "a")
        self("config", "user.email", "a@b")
        self.write("a.txt", "text\n")
        self.commit()

    def __call__(self, *words):
        done = subprocess.run(
            ["git", "-C", self.path, *words], check=True, capture_output=True, text=True
        )
        return done.stdout

    def write(self, name, text):
        (self.path / name).write_text(text)

    def commit(self):
        self("add", ".")
        self("commit", "-qm", "x")

    def touch(self):
        """So that git has to read the file again."""
        os.utime(self.path / "a.txt", (1, 1))

    @property
    def state(self):
        git = git_state(self.path, PATIENCE)
        return git.state, git.changes


@pytest.fixture
def ran(tmp_path):
    return tmp_path / "ran"


@pytest.fixture(autouse=True)
def nothing_stays():
    """What a program of a test leaves, where that is the fault, is not the next test's."""
    yield
    for pid in sleeping():
        os.kill(int(pid), signal.SIGKILL)


@pytest.fixture
def program(tmp_path, ran):
    """A program that leaves a file and a process behind."""
    path = tmp_path / "program"
    path.write_text(f'#!/bin/sh\necho "$0" "$@" >>{ran}\nsetsid sleep {NAP} &\nexec sleep {NAP}\n')
    path.chmod(0o755)
    return path


@pytest.fixture
def repository(tmp_path):
    return Repository(tmp_path / "work")


def sleeping():
    """Processes that the program of a test has left."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if each.read_bytes() == f"sleep\0{NAP}\0".encode():
                found.append(each.parent.name)
        except OSError:
            continue
    return found


@pytest.mark.parametrize("how", ["clean", "process"])
@pytest.mark.parametrize("name", ["lfs", "a=b", "a.b.C", "\u00e9\\"])
@pytest.mark.parametrize("where", ["config", "included", "worktree"])
def test_no_filter_is_run(repository, program, how, name, where):
    """Fault 13."""
    repository.write(".git/info/attributes", f"*.txt filter={name}\n")
    file = repository.path / ".git" / {"worktree": "config.worktree"}.get(where, where)
    if where == "included":
        repository("config", "include.path", "included")
    if where == "worktree":
        repository("config", "extensions.worktreeConfig", "true")
    for what, value in ((how, str(program)), ("smudge", str(program)), ("required", "true")):
        subprocess.run(["git", "config", "-f", file, f"filter.{name}.{what}", value], check=True)
    repository.touch()
    began = time.monotonic()
    assert repository.state == ("clean", ())
    assert time.monotonic() - began < PATIENCE
    assert not (program.parent / "ran").exists()
    assert sleeping() == []


def test_the_control_such_a_filter_is_run_by_a_plain_git(repository, ran, program):
    """Else the test above shows nothing."""
    repository.write(".git/info/attributes", "*.txt filter=a=b\n")
    repository("config", "filter.a=b.clean", f"echo x >{ran}; cat")
    repository.touch()
    repository("status")
    assert ran.exists()


def test_a_file_that_only_a_filter_would_make_equal_counts_as_changed(repository):
    repository.write(".git/info/attributes", "*.txt filter=upper\n")
    repository("config", "filter.upper.clean", "tr a-z A-Z")
    repository.write("a.txt", "other\n")
    os.utime(repository.path / "a.txt", (2, 2))
    repository.commit()
    assert repository("show", "HEAD:a.txt") == "OTHER\n"
    assert repository.state == ("clean", ())  # git knows that nobody has touched it
    repository.touch()
    assert repository.state == ("changed", ("a.txt",))


@pytest.mark.parametrize(
    "settings",
    [
        {"core.fsmonitor": "{}"},
        {"core.fsmonitor": "true"},
        {"core.hooksPath": "{.parent}", "core.pager": "{}", "pager.status": "{}"},
        {"alias.status": "!{}", "alias.config": "!{}", "alias.ls-files": "!{}"},
        {"diff.external": "{}", "diff.x.textconv": "{}", "diff.x.command": "{}"},
        {"core.sshCommand": "{}", "core.askPass": "{}", "credential.helper": "!{}"},
        {"status.submoduleSummary": "true", "core.editor": "{}", "gpg.program": "{}"},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_no_program_that_a_configuration_names_is_run(repository, program, ran, settings):
    for name in ("post-index-change", "fsmonitor-watchman"):
        for folder in (program.parent, repository.path / ".git" / "hooks"):
            folder.mkdir(exist_ok=True)
            if not (folder / name).exists():
                shutil.copy(program, folder / name)
    for key, value in settings.items():
        repository("config", key, value.format(program))
    (repository.path / ".git" / "info" / "attributes").write_text("*.txt diff=x\n")
    repository.touch()
    assert repository.state == ("clean", ())
    assert not ran.exists()
    assert not list((repository.path / ".git").glob("fsmonitor--daemon*"))
    assert sleeping() == []


@pytest.mark.parametrize("url", ["ext::{}", "ssh://nowhere/x", "helped::x", "{}"])
def test_what_is_missing_in_a_partial_clone_is_not_fetched(repository, program, ran, url):
    """Fetching would run what the configuration says, or wait for a network."""
    tree = repository("rev-parse", "HEAD^{tree}").strip()
    objects = repository.path / ".git" / "objects"
    (objects / tree[:2] / tree[2:]).unlink()
    shutil.copy(program, program.parent / "git-remote-helped")
    for key, value in {
        "core.repositoryformatversion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.url": url.format(program),
        "remote.origin.promisor": "true",
        "remote.origin.uploadpack": str(program),
        "protocol.allow": "always",
        "core.sshCommand": str(program),
    }.items():
        repository("config", key, value)
    repository.write("b.txt", "new")
    repository("add", "b.txt")
    assert git_state(repository.path).state in ("unknown", "changed")
    assert not ran.exists()
    assert sleeping() == []


def test_a_submodule_is_asked_in_turn_and_runs_nothing_either(repository, program, ran, tmp_path):
    inner = Repository(tmp_path / "inner")
    allow = ("-c", "protocol.file.allow=always")
    repository(*allow, "submodule", "add", "-q", str(inner.path), "lib")
    repository.commit()
    module = repository.path / "lib"
    subprocess.run(["git", "-C", module, "config", "filter.x.clean", str(program)], check=True)
    subprocess.run(["git", "-C", module, "config", "core.fsmonitor", str(program)], check=True)
    (repository.path / ".git/modules/lib/info/attributes").write_text("*.txt filter=x\n")
    os.utime(module / "a.txt", (1, 1))
    assert repository.state == ("clean", ())
    (module / "new.txt").write_text("x")
    assert repository.state == ("changed", ("lib",))
    (repository.path / "sub").mkdir()
    assert git_state(repository.path / "sub", PATIENCE).changes == ("../lib",)
    (module / "new.txt").unlink()
    (module / "a.txt").write_text("other")
    assert repository.state == ("changed", ("lib",))
    assert not ran.exists()
    assert sleeping() == []


def test_a_submodule_that_only_looks_like_a_repository_is_passed_over(repository, tmp_path):
    inner = Repository(tmp_path / "inner")
    for name in ("lib", "other"):
        repository("-c", "protocol.file.allow=always", "submodule", "add", str(inner.path), name)
    repository.commit()
    (repository.path / "lib" / ".git").unlink()
    (repository.path / "lib" / ".git").mkdir()
    (repository.path / "other" / "new").write_text("x")
    state, changes = repository.state
    assert state == "changed"
    assert "other" in changes


# -- where it is asked ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"]
)
def test_a_caller_that_is_at_another_repository_changes_nothing(
    repository, tmp_path, monkeypatch, name
):
    """As in a hook of git's."""
    repository.write("a.txt", "changed")
    other = Repository(tmp_path / "other")
    there = {"GIT_DIR": ".git", "GIT_INDEX_FILE": ".git/index", "GIT_OBJECT_DIRECTORY": ".git"}
    monkeypatch.setenv(name, str(other.path / there.get(name, "")))
    monkeypatch.setenv("GIT_NOGLOB_PATHSPECS", "1")
    assert repository.state == ("changed", ("a.txt",))


def test_what_the_caller_configures_is_kept_and_the_rules_go_before_it(
    repository, program, ran, monkeypatch
):
    for number, (key, value) in enumerate(
        {"status.showUntrackedFiles": "all", "filter.x.clean": str(program)}.items()
    ):
        monkeypatch.setenv(f"GIT_CONFIG_KEY_{number}", key)
        monkeypatch.setenv(f"GIT_CONFIG_VALUE_{number}", value)
    monkeypatch.setenv("GIT_CONFIG_COUNT", "2")
    monkeypatch.setenv("GIT_CONFIG_PARAMETERS", f"'filter.x.clean'='{program}'")
    repository.write(".git/info/attributes", "*.txt filter=x\n")
    repository.touch()
    assert repository.state == ("clean", ())
    assert not ran.exists()


@as_root
def test_a_repository_of_another_user_is_gits_to_refuse(repository, monkeypatch):
    for path in (repository.path, *repository.path.rglob("*")):
        os.chown(path, 65534, 65534)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    git = git_state(repository.path, PATIENCE)
    assert git.state == "unknown"
    assert "another user's (see safe.directory)" in git.why
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "safe.directory")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "*")
    assert repository.state == ("clean", ())


def test_a_git_in_the_work_tree_is_not_the_one(repository, program, ran, monkeypatch):
    shutil.copy(program, repository.path / "git")
    monkeypatch.chdir(repository.path)
    monkeypatch.setenv("PATH", f".::{os.environ['PATH']}")
    assert repository.state == ("changed", ("git",))
    assert not ran.exists()


# -- how long, and how much ----------------------------------------------------------------------


def fake(tmp_path, monkeypatch, script):
    path = tmp_path / "bin" / "git"
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{path.parent}:/usr/bin:/bin")


@pytest.mark.parametrize(
    "script",
    [
        f"sleep {NAP} & sleep {NAP}",
        f"sleep {NAP} & exit 0",
        f"sleep {NAP} >/dev/null 2>&1 & printf 'streamguard.probe\\0'; exit 0",
        f"trap '' TERM HUP INT; exec >&- 2>&-; sleep {NAP} & sleep {NAP}",
        # Half of the time for each of what git is asked.
        "case $* in *config*) sleep 0.3; printf 'streamguard.probe\\0';; *) sleep 0.3;; esac",
    ],
    ids=["hangs", "leaves a child", "leaves a quiet child", "closes its output", "slow twice"],
)
def test_the_bound_holds_for_all_of_it_and_nothing_is_left(tmp_path, monkeypatch, script):
    fake(tmp_path, monkeypatch, script)
    began = time.monotonic()
    git = git_state(tmp_path, 0.5)
    assert time.monotonic() - began < PATIENCE
    if ">/dev/null" not in script:
        assert (git.state, git.why) == ("unknown", "git did not answer in 0.5 s")
    assert comes_true(lambda: sleeping() == [])


def test_files_in_a_new_folder_are_changes_each(repository):
    """S2-14: uncommitted changes by file."""
    (repository.path / "new" / "deep").mkdir(parents=True)
    repository.write("new/a.py", "a")
    repository.write("new/deep/b.py", "b")
    assert repository.state == ("changed", ("new/a.py", "new/deep/b.py"))


def test_where_there_are_too_many_of_them_the_folder_is_named(tmp_path, monkeypatch):
    """S2-14: to know that there are changes is more than not to know."""
    fake(
        tmp_path,
        monkeypatch,
        "case $* in *config*) printf 'streamguard.probe\\0';; *ls-files*) ;; "
        f"*=all*) exec sleep {NAP};; *) printf '? new/\\0';; esac",
    )
    assert git_state(tmp_path, PATIENCE).changes == ("new/",)
    assert comes_true(lambda: sleeping() == [])


def test_a_configuration_that_includes_a_pipe_is_not_waited_for(repository):
    os.mkfifo(repository.path / ".git" / "pipe")
    with (repository.path / ".git" / "config").open("a") as file:
        file.write("[include]\npath = pipe\n")
    assert git_state(repository.path, 0.3).why == "git did not answer in 0.3 s"


def test_what_git_says_is_bounded(tmp_path, monkeypatch):
    fake(
        tmp_path,
        monkeypatch,
        "case $* in *config*) printf 'streamguard.probe\\0';; *ls-files*) ;; "
        "*) exec yes '? a' | tr '\\n' '\\0';; esac",
    )
    monkeypatch.setattr(worktree, "_MOST_SAID", 1 << 20)
    git = git_state(tmp_path, PATIENCE)
    assert git.state == "changed"
    assert len(git.changes) == 1000
    assert 200_000 < git.more_changes < 300_000


def test_a_git_that_cannot_be_kept_from_running_programs_is_not_asked(tmp_path, monkeypatch):
    fake(tmp_path, monkeypatch, "printf 'core.bare\\0'")
    assert "older than 2.31" in git_state(tmp_path, PATIENCE).why


def test_errors_without_end_are_not_kept(tmp_path, monkeypatch):
    fake(tmp_path, monkeypatch, "head -c 5000000 /dev/zero >&2; exit 3")
    assert git_state(tmp_path, PATIENCE).why == "git failed with exit status 3"
