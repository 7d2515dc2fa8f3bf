"""Files that others can have written: they are neither believed nor waited for."""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
import subprocess
import sys
import tomllib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamguard import ConfigError, from_config
from streamguard._base import trusted
from streamguard._base.configured import MOST, may_name_us
from streamguard._base.warning import StreamGuardWarning
from streamguard.specs import FlowSpec
from tests.runner.commands import OURS, ROOT

STRANGER = 65534
GUARD = "[guard]\nidle = 100\n[run]\nidle = 50\n"

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder that nothing is configured in, nor above it."""
    for name in ("STREAMGUARD_CONFIG", "STREAMGUARD_IDLE", "STREAMGUARD_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def own(folder):
    path = folder / "streamguard.toml"
    path.write_text(GUARD)
    path.chmod(0o644)
    return path


def guarded(*words, cwd=None, before=(), **environment):
    """`streamguard run`: how it ended, and what it said."""
    done = subprocess.run(
        [*before, *OURS, "run", *words, "--", "true"],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.returncode, done.stderr


def distrust(path):
    return trusted.look(str(path), MOST).distrust


# -- whose it is ---------------------------------------------------------------------------------


def test_what_is_ours_alone_is_believed(own):
    assert trusted.read(str(own), MOST) == GUARD.encode()
    assert from_config().path == own


@as_root
def test_a_file_of_another_user_is_not_believed(own):
    os.chown(own, STRANGER, STRANGER)
    with pytest.raises(trusted.UntrustedError, match=r"belongs to another user \(uid 65534\)"):
        trusted.read(str(own), MOST)


def test_a_file_that_everybody_may_write_to_is_not_believed(own):
    own.chmod(0o646)
    assert distrust(own) == "everybody may write to it"


def test_a_group_may_write_to_it_only_if_the_owner_is_alone_in_it(own, monkeypatch):
    """As useradd makes it for each user: with the umask 002, all that they have is like that."""
    own.chmod(0o664)
    owner = pwd.getpwuid(own.stat().st_uid).pw_name

    def group(name, *members):
        known = grp.struct_group((name, "x", own.stat().st_gid, list(members)))
        monkeypatch.setattr(grp, "getgrgid", lambda _: known)
        return distrust(own)

    assert group(owner) is None
    assert group(owner, owner) is None
    assert "a group may write to it" in group("users")
    assert "a group may write to it" in group(owner, "www-data")


@as_root
def test_a_folder_of_another_user_is_not_believed(own, folder):
    os.chown(folder, STRANGER, STRANGER)
    assert "its folder belongs to another user" in distrust(own)


def test_in_a_folder_that_all_may_write_to_it_must_be_sticky_and_the_file_have_one_name(
    own, folder
):
    folder.chmod(0o777)
    assert distrust(own) == "everybody may write to its folder"
    folder.chmod(0o1777)
    assert distrust(own) is None
    os.link(own, folder / "second")
    assert "second name" in distrust(own)
    folder.chmod(0o700)
    assert distrust(own) is None


def test_a_link_of_ours_to_a_file_of_ours_is_followed(own, folder):
    """Who keeps the files of a home in a repository has many."""
    below = folder / "a" / "b"
    below.mkdir(parents=True)
    (below / "first").symlink_to("../../streamguard.toml")
    (below / "streamguard.toml").symlink_to("first")
    assert distrust(below / "streamguard.toml") is None
    assert from_config(below / "streamguard.toml").guard().limits.idle == 100


@as_root
@pytest.mark.parametrize("whose", ["link", "second link", "target"])
def test_a_link_is_followed_only_if_all_of_its_way_is_trusted(own, folder, whose):
    below = folder / "below"
    below.mkdir()
    link, second = below / "streamguard.toml", folder / "second"
    link.symlink_to(second)
    second.symlink_to(own)
    changed = {"link": link, "second link": second, "target": own}[whose]
    os.chown(changed, STRANGER, STRANGER, follow_symlinks=False)
    assert "belongs to another user" in distrust(link)


def test_links_in_a_circle_and_to_nowhere_are_told(folder):
    link = folder / "streamguard.toml"
    link.symlink_to(link)
    assert "from one to the next" in distrust(link)
    link.unlink()
    link.symlink_to("nowhere")
    assert "No such file" in distrust(link)


# -- what it is ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (os.mkfifo, "a named pipe"),
        (os.mkdir, "a folder"),
        (lambda path: os.mknod(path, stat.S_IFSOCK | 0o600), "a socket"),
        (lambda path: path.symlink_to("/dev/zero"), "a device"),
    ],
    ids=["fifo", "folder", "socket", "device"],
)
@pytest.mark.parametrize("name", ["streamguard.toml", "pyproject.toml"])
def test_what_is_no_file_is_not_waited_for_and_told(folder, name, make, kind):
    make(folder / name)
    code, said = guarded()
    assert code == 0
    assert f"{folder / name} is not used: it is {kind}, and no regular file" in said
    with pytest.warns(StreamGuardWarning, match=kind):
        assert from_config().path is None


def test_what_is_too_large_is_not_read(folder):
    with (folder / "pyproject.toml").open("wb") as file:
        file.truncate(300 << 20)
    before = ["sh", "-c", 'ulimit -v 200000; exec "$@"', "sh"]  # KB of address space
    code, said = guarded(before=before)
    assert code == 0
    assert "it is larger than 1 MB" in said


@as_root
def test_what_cannot_be_read_is_told(own, folder):
    folder.chmod(0o755)
    own.chmod(0o600)
    assert as_stranger("streamguard.toml") == "it cannot be read: Permission denied"


def test_what_a_disk_fails_to_give_is_told(own, monkeypatch):
    def fail(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "read", fail)
    assert distrust(own) == "it cannot be read: Input/output error"


@pytest.mark.parametrize("there", ["fifo", "large", "folder"])
def test_a_file_that_is_named_is_a_file_of_bounded_size_too(own, there, monkeypatch):
    own.unlink()
    if there == "large":
        with own.open("wb") as file:
            file.truncate(MOST + 1)
    else:
        (os.mkfifo if there == "fifo" else os.mkdir)(own)
    monkeypatch.setenv("STREAMGUARD_CONFIG", str(own))
    with pytest.raises(ConfigError, match=r"STREAMGUARD_CONFIG=.*cannot be read: it is"):
        from_config()
    code, said = guarded()
    assert code == 125
    assert len(said.splitlines()) == 1


# -- what follows --------------------------------------------------------------------------------


@as_root
def test_run_passes_a_strangers_file_over_with_one_warning(own, folder):
    """Fault 7: it could name a status file, which root would write."""
    below = folder / "below"
    below.mkdir()
    own.write_text(f'[run]\nstatus_file = "{folder}/victim"\n[guard]\nmode = "off"\n')
    os.chown(own, STRANGER, STRANGER)
    code, said = guarded("--idle", "60", cwd=below)
    assert code == 0
    assert not (folder / "victim").exists()
    [line] = said.splitlines()
    assert line.startswith(f"streamguard run: warning: {own} is not used: it belongs to another")
    assert f"STREAMGUARD_CONFIG={own}" in line
    assert guarded("--idle", "60", cwd=below, STREAMGUARD_MODE="off") == (0, "")
    assert guarded("--idle", "60", cwd=below, STREAMGUARD_CONFIG=str(own)) == (0, "")
    assert not (folder / "victim").exists()  # "off" guards nothing


@as_root
def test_the_next_file_upwards_is_in_force_then(own, folder):
    below = folder / "below"
    below.mkdir()
    (below / "streamguard.toml").write_text("[guard]\nidle = 9\n")
    os.chown(below / "streamguard.toml", STRANGER, STRANGER)
    os.chdir(below)
    with pytest.warns(StreamGuardWarning, match="below/streamguard.toml is not used") as told:
        found = [from_config().path, from_config().path]
    assert found == [own, own]
    assert len(told) == 1


@as_root
def test_a_strangers_project_file_that_says_nothing_of_us_is_not_worth_a_word(folder):
    """In a container, root works on files of another user all day."""
    shared = folder / "pyproject.toml"
    for text in ("", '[project]\ndependencies = ["streamguard"]\n'):
        shared.write_text(text)
        os.chown(shared, STRANGER, STRANGER)
        assert guarded("--idle", "60") == (0, "")
    shared.write_text("[tool.streamguard.run]\nidle = 5\n")
    assert "is not used" in guarded("--idle", "60")[1]


@as_root
def test_a_user_may_be_ruled_by_files_of_root(own, folder):
    folder.chmod(0o755)
    assert as_stranger("streamguard.toml") == "None"
    os.chown(own, STRANGER + 1, 0)
    assert as_stranger("streamguard.toml") == "it belongs to another user (uid 65535)"


def as_stranger(name):
    """What one who is not root finds wrong with a file in this folder."""
    program = (
        f"import os, sys; sys.path.insert(0, {str(ROOT)!r}); from streamguard._base import trusted; "
        f"os.setgroups([]); os.setgid({STRANGER}); os.setuid({STRANGER}); "
        f"print(trusted.look({name!r}, 999).distrust)"
    )
    words = [sys.executable, "-S", "-c", program]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


# -- TOML that breaks ----------------------------------------------------------------------------

BROKEN = {
    "nested": b"a = " + b"[" * 5000,
    "nested well": b"a = " + b"[" * 5000 + b"]" * 5000,
    "number": b"a = " + b"9" * 5000,
    "bytes": b"a = '\xff\xfe'",
    "nul": b"a = '\0'",
}


@pytest.mark.parametrize("name", ["streamguard.toml", "pyproject.toml", "flow.toml"])
@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_toml_that_breaks_is_one_clear_error(folder, name, broken):
    path = folder / name
    path.write_bytes(b"# [tool.streamguard]\n" + broken)
    if name == "flow.toml":
        with pytest.raises(ConfigError, match=r"flow\.toml: (no valid TOML|cannot be read): "):
            FlowSpec.load(path)
        return
    with pytest.raises(ConfigError, match=rf"{name}: (no valid TOML|cannot be read): "):
        from_config()
    code, said = guarded()
    assert code == 125
    [line] = said.splitlines()
    assert name in line


@pytest.mark.parametrize("text", ["a: " + "[" * 5000, "a: " + "9" * 5000, "a: \0"])
def test_yaml_that_breaks_is_one_clear_error(folder, text):
    (folder / "flow.yaml").write_text(text)
    try:
        FlowSpec.load(folder / "flow.yaml")
    except ConfigError as error:
        assert "flow.yaml: no valid YAML: " in str(error)  # noqa: PT017 - it may also be read


# -- which files are worth reading ---------------------------------------------------------------

PLAIN = {
    "nothing": "[project]\nname = 'x'\n",
    "dependency": '[project]\nname = "x"\ndependencies = ["streamguard>=0.1", "streamguard"]\n',
    "poetry": '[tool.poetry.dependencies]\nstreamguard = "^0.1"\n[tool.uv.sources]\nx = 1\n',
    "package": '[tool.hatch.build.targets.wheel]\npackages = ["streamguard"]\n',
}
OF_OURS = [
    "[tool.streamguard]",
    "[ tool . streamguard . guard ]",
    "[tool.'streamguard'.guard]",
    '\t["tool"."streamguard"]',
    '["\\u0074ool".streamguard]',
    '[tool."\\U00000073treamguard"]',
    "tool.streamguard.guard.idle = 5",
    "\"tool\" . 'streamguard' = {}",
    "tool = { x = [\n1], streamguard = {} }",
    "[tool]\nstreamguard.guard.idle = 5",
    "[tool.x]\na = 1\r\n[tool] # ours\r\n'streamguard' = {guard = {idle = 5}}",
    "[[tool]]\nstreamguard = 1",
]


@pytest.mark.parametrize("text", PLAIN.values(), ids=PLAIN)
def test_a_project_file_that_only_mentions_us_is_not_ours(text):
    assert not may_name_us(text.encode())


@pytest.mark.parametrize("text", OF_OURS)
def test_every_way_to_write_our_table_is_seen(text):
    tool = tomllib.loads(text)["tool"]
    assert "streamguard" in (tool[0] if isinstance(tool, list) else tool)
    assert may_name_us(text.encode())


_blank = st.sampled_from(["", " ", "\t "])
_quote = st.sampled_from(["", "'", '"'])
_line = st.sampled_from(["[a]", "[tool]", "[tool.a]", "x = 1", "tool.a = 1", "# [tool]", "[[b]]"])


@st.composite
def _keys(draw):
    words = draw(st.sampled_from([["tool", "streamguard"], ["streamguard"], ["tool"], ["a"]]))
    quoted = [f"{quote}{word}{quote}" for word in words for quote in [draw(_quote)]]
    return f"{draw(_blank)}.{draw(_blank)}".join(quoted)


@st.composite
def _documents(draw):
    lines = draw(st.lists(_line, max_size=3))
    key, blank = draw(_keys()), draw(_blank)
    form = draw(
        st.sampled_from(["[{}]", "{} = 1", "{} = {{streamguard = 1}}", "[[{}]]", "{}.b = 1"])
    )
    return "\n".join([*lines, blank + form.format(blank + key + blank), *draw(st.lists(_line))])


@given(_documents())
@example("[tool]\nstreamguard = 1")
def test_no_way_to_write_our_table_is_missed(text):
    try:
        table = tomllib.loads(text).get("tool", {})
    except tomllib.TOMLDecodeError:
        return
    table = table[0] if isinstance(table, list) else table
    if isinstance(table, dict) and "streamguard" in table:
        assert may_name_us(text.encode())


@pytest.mark.parametrize("text", PLAIN.values(), ids=PLAIN)
def test_run_starts_without_the_configuration_where_we_are_only_mentioned(folder, text):
    (folder / "pyproject.toml").write_text(text)
    code, said = guarded(before=[], PYTHONPROFILEIMPORTTIME="1")
    assert code == 0
    assert "streamguard._base.configured" in said
    assert "streamguard.configuration" not in said
    # On a machine so busy that the command has not ended yet, what decides is loaded, and more with it.
    if "streamguard.runner.judge" not in said:
        slow = (" re", " tomllib", " pathlib")
        assert not any(line.endswith(slow) for line in said.splitlines())
