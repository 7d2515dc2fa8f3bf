"""`--transcript`: what a command writes to a file is evidence, and a JSON line in it is one (S3-02)."""

from __future__ import annotations

import os
import shlex
import time

import pytest

from streamguard._base.defaults import LONGEST_LINE
from streamguard.runner import transcript
from streamguard.runner.judge import Judge
from streamguard.runner.options import Settings
from streamguard.runner.transcript import Seen, Transcript, TranscriptError
from tests.runner.commands import OURS, sh

LONG = "600"
JSON = '{"type":"user"}\n'


@pytest.fixture
def path(tmp_path):
    return tmp_path / "session.jsonl"


class Watched:
    """A transcript of a file, with its attempt as far back as it takes to set times of the file."""

    def __init__(self, path):
        self.said = []
        self.file = Transcript(str(path), self.said.append)
        self.path = path
        self.began()

    def began(self, ago=1000.0):
        self.file._looked -= ago

    def changed(self, ago):
        """Have the file say that it last changed so long ago."""
        at = time.time() - ago
        os.utime(self.path, (at, at))

    def look(self, json_by=None):
        """How long ago something came, and whether JSON did."""
        seen = self.file.look(None if json_by is None else time.monotonic() + json_by)
        ago = None if seen.last is None else time.monotonic() - seen.last
        return ago, seen.has_json


def is_about(ago, seconds):
    # The look itself takes a moment, on a busy machine too: the file's time is minutes away from it.
    return ago is not None and seconds - 1 < ago < seconds + 60


# -- what counts as coming, and when it came -------------------------------------------------


def test_growth_counts_from_the_time_of_the_last_change(path):
    path.write_text("earlier\n")
    watched = Watched(path)
    assert watched.look() == (None, False)
    watched.began()
    path.write_text("earlier\nmore\n")
    watched.changed(ago=300)
    assert is_about(watched.look()[0], 300)
    assert watched.look() == (None, False)  # nothing since


@pytest.mark.parametrize("how", ["created", "replaced", "rewritten", "shorter"])
def test_whatever_way_it_comes(path, how):
    if how != "created":
        path.write_text("earlier, and long enough\n")
    watched = Watched(path)
    if how == "replaced":
        beside = path.with_name("beside")
        beside.write_text("earlier, and long enough\n")
        beside.rename(path)
    else:
        path.write_text({"rewritten": "changed, and long enough\n"}.get(how, "short\n"))
    watched.changed(ago=200)
    assert is_about(watched.look()[0], 200)


def test_a_file_that_was_moved_there_came_when_it_was_moved(path):
    """Its own last change was before the attempt."""
    watched = Watched(path)
    beside = path.with_name("beside")
    beside.write_text(JSON)
    old = time.time() - 100_000
    os.utime(beside, (old, old))
    beside.rename(path)
    assert is_about(watched.look()[0], 0)


@pytest.mark.parametrize("ago", [-5000, 100_000])
def test_a_time_that_cannot_be_right_is_no_time(path, ago):
    """Of another machine's clock, for one: what came, came between two looks."""
    watched = Watched(path)
    path.write_text(JSON)
    watched.changed(ago=ago)
    assert is_about(watched.look()[0], 0)


def test_where_the_wall_clock_was_set_the_files_time_says_nothing(path):
    watched = Watched(path)
    watched.file._offset -= 3600
    path.write_text(JSON)
    watched.changed(ago=500)
    assert is_about(watched.look()[0], 0)


def test_an_empty_or_a_removed_file_is_nothing_that_came(path):
    watched = Watched(path)
    path.touch()
    assert watched.look() == (None, False)
    path.unlink()
    assert watched.look() == (None, False)


# -- the first JSON line ---------------------------------------------------------------------


def test_what_was_there_before_is_no_json_line_of_this_attempt(path):
    """Also where the file is replaced by one that begins with the same."""
    path.write_text(JSON * 3)
    watched = Watched(path)
    assert watched.look(json_by=10) == (None, False)
    beside = path.with_name("beside")
    beside.write_text(JSON * 3 + "text\n")
    beside.rename(path)
    assert watched.look(json_by=10)[1] is False
    path.write_text(JSON * 3 + "text\n" + JSON)
    assert watched.look(json_by=10)[1] is True


def test_a_file_that_is_written_anew_is_all_of_this_attempt(path):
    path.write_text("of an earlier one\n" * 3)
    watched = Watched(path)
    path.write_text(JSON + "of an earlier one\n" * 4)
    assert watched.look(json_by=10)[1] is True


def test_a_torn_line_of_an_earlier_session_does_not_hide_the_next(path):
    path.write_text('{"torn": ')
    watched = Watched(path)
    path.write_text('{"torn": ' + JSON)
    assert watched.look(json_by=10)[1] is True


@pytest.mark.parametrize("text", ["text\n", "[1]\n", '{"no": "end"}', '{"torn": \n', "\n\n"])
def test_what_is_no_json_object_on_a_whole_line_is_none(path, text):
    watched = Watched(path)
    path.write_text(text)
    assert watched.look(json_by=10)[1] is False


def test_a_line_that_was_whole_too_late_does_not_count(path):
    """S3-02: the look may be late, but what it finds counts by the time of the file."""
    watched = Watched(path)
    path.write_text(JSON)
    watched.changed(ago=200)
    assert watched.look(json_by=-400)[1] is False
    assert watched.look(json_by=-100)[1] is True


def test_json_behind_much_text_is_found_and_a_line_that_is_too_long_is_none(path, monkeypatch):
    """S3-02: the bound is one line's, and no bound on the search."""
    monkeypatch.setattr(transcript, "_BOUND", 60.0)
    monkeypatch.setattr(transcript, "_SEARCHING", 50.0)
    watched = Watched(path)
    text = b"text that goes on for a while\n" * (LONGEST_LINE // 30 + 40_000)
    path.write_bytes(text)
    assert watched.look(json_by=10)[1] is False
    long = b'{"long": "%s"}\n' % (b"x" * LONGEST_LINE)
    path.write_bytes(text + long[:-9])
    assert watched.look(json_by=10)[1] is False
    path.write_bytes(text + long)
    assert watched.look(json_by=10)[1] is False
    path.write_bytes(text + long + JSON.encode())
    assert watched.look(json_by=10)[1] is True
    anew = Watched(path)
    path.write_bytes(JSON.encode() * 2 + text + long)
    assert anew.look(json_by=10)[1] is True


def test_what_was_searched_is_not_read_again(path, monkeypatch):
    """S3-02: but what was written anew in its place is."""
    lines = b"".join(b"line %d\n" % number for number in range(1000))
    path.write_bytes(lines + b'{"type":')
    first = transcript._found(str(path), wants_json=True)
    assert first["searched"][1] == len(lines)
    read = []
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda *words: read.append(words[1:]) or pread(*words))
    path.write_bytes(lines + b'{"type":1}\n')
    again = transcript._found(str(path), searched=first["searched"], wants_json=True)
    assert again["json_end"] == len(lines) + 11
    assert sum(size for size, _ in read) < len(lines) / 2
    path.write_bytes(b'{"a":1}\n' + lines + b'{"type":')
    anew = transcript._found(str(path), searched=first["searched"], wants_json=True)
    assert anew["json_end"] == 8


def test_a_search_that_takes_too_long_is_given_up_and_goes_on_at_the_next_look(path, monkeypatch):
    """S3-02: it is said, and no line is missed."""
    watched = Watched(path)
    monkeypatch.setattr(transcript, "_SEARCHING", -1.0)
    path.write_text("text\n" + JSON)
    assert watched.look(json_by=10)[1] is False
    assert watched.look(json_by=10)[1] is False
    assert watched.said == [
        f"--transcript {path}: no JSON line was found in it in 1 s, and there is more"
    ]
    monkeypatch.setattr(transcript, "_SEARCHING", 50.0)
    assert watched.look(json_by=10)[1] is True


OLD = '{"old":1}\nold text\n{"old":2}\n{"old":3}\n'


@pytest.mark.parametrize(
    "cut_to",
    ['{"old":3}\n', '{"old":2}\n{"old":3}\n', '{"old":1}\n', '{"old":2}\n', 'd text\n{"old":2}\n'],
)
@pytest.mark.parametrize("before", ["", "x" * 40_000 + "\n"], ids=["short", "long"])
@pytest.mark.parametrize("is_replaced", [True, False])
def test_a_file_that_was_cut_holds_what_it_held_before(path, cut_to, before, is_replaced):
    """S3-02: no JSON line of this attempt. What comes behind it is one."""
    path.write_text(OLD + before + OLD)
    watched = Watched(path)
    if is_replaced:
        beside = path.with_name("beside")
        beside.write_text(cut_to)
        beside.rename(path)
    else:
        path.write_text(cut_to)
    assert watched.look(json_by=10)[1] is False
    path.write_text(cut_to + "text\n")
    assert watched.look(json_by=10)[1] is False
    path.write_text(cut_to + "text\n" + JSON)
    assert watched.look(json_by=10)[1] is True


def test_a_line_that_only_begins_like_an_earlier_one_is_new(path):
    """S3-02."""
    path.write_text('{"old":1,"at":1}\n{"old":1,"at":2}\n')
    watched = Watched(path)
    path.write_text('{"old":1,"at":12}\n')
    assert watched.look(json_by=10)[1] is True


def test_where_more_has_come_behind_it_the_line_may_have_been_in_time(path):
    watched = Watched(path)
    path.write_text(JSON + "more\n")
    watched.changed(ago=200)
    assert watched.look(json_by=-400)[1] is True


# -- what is no file -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", ["folder", "fifo", "device", "loop", "below a file", "unreadable"]
)
def test_what_cannot_be_looked_at_is_refused_in_clear_words(commands, path, kind):
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "device":
        path = "/dev/zero"
    elif kind == "below a file":
        path.touch()
        path /= "below"
    else:
        path.touch(mode=0o000)
        if os.access(path, os.R_OK):
            pytest.skip("this user may read everything")
    done = commands.guarded("--idle", LONG, "--transcript", str(path), "--", "echo", "out")
    assert (done.code, done.out) == (125, b"")
    assert len(done.err.splitlines()) == 1
    assert done.err.startswith(f"streamguard run: --transcript {path}: it ")


def test_a_name_that_leads_nowhere_is_said_once_s3_02(path):
    """S3-02: it may come later, but a wrong path is found in no other way."""
    watched = Watched(path)
    assert watched.look() == watched.look(json_by=10) == (None, False)
    assert watched.said == [f"--transcript {path}: there is no such file yet"]
    path.write_text(JSON)
    assert watched.look(json_by=10)[1] is True


def test_what_becomes_no_file_later_is_said_once_and_counts_for_nothing(path):
    watched = Watched(path)
    os.mkfifo(path)
    assert watched.look(json_by=10) == watched.look(json_by=10) == (None, False)
    assert watched.said == [
        f"--transcript {path}: it is no regular file; name the file that the command writes"
    ]


def test_a_disk_that_stands_still_holds_up_nobody(path, monkeypatch):
    watched = Watched(path)
    monkeypatch.setattr(transcript, "_BOUND", 0.2)
    monkeypatch.setattr(transcript, "_found", lambda *_, **__: time.sleep(600))
    assert watched.look() == (None, False)
    assert watched.said == [f"--transcript {path}: it could not be looked at in 0.2 s"]


def test_without_a_folder_that_we_are_in_only_an_absolute_path_can_be_meant():
    with pytest.raises(TranscriptError, match="no absolute path"):
        Transcript("session.jsonl", print)


# -- what it means for the limits ------------------------------------------------------------


class Told:
    """A transcript that says what a test says, and counts the looks."""

    def __init__(self):
        self.looks = []
        self.last = None
        self.json_at = None

    def look(self, json_by=None):
        self.looks.append(json_by)
        last, self.last = self.last, None
        has_json = self.json_at is not None and json_by is not None and self.json_at <= json_by
        return Seen(last, has_json=has_json)


def judged(told, **limits):
    wanted = Settings()
    wanted.command = ("agent",)
    for name, value in limits.items():
        setattr(wanted, name, value)
    return Judge(wanted, 0.0, 0.0, lambda text: None, transcript=told)


def test_idle_goes_on_from_the_last_change_and_is_looked_at_once_for_each_window():
    told = Told()
    judge = judged(told, idle=10.0)
    told.last = 7.0
    assert judge.deadline() == 10.0
    assert judge.verdict(10.0) is None
    assert judge.deadline() == 17.0
    assert judge.verdict(17.0).limit == "idle"
    assert len(told.looks) == 2


def test_a_change_before_the_last_output_puts_nothing_off():
    told = Told()
    judge = judged(told, idle=10.0)
    judge.output(b"text\n", 5.0)
    judge.waits(5.0)
    told.last = 4.0
    assert judge.verdict(15.0).limit == "idle"


def test_first_is_over_with_the_first_that_comes_there():
    told = Told()
    judge = judged(told, first=10.0, idle=3.0)
    told.last = 9.0
    assert judge.verdict(10.0) is None
    assert judge.deadline() == 12.0
    assert judge.verdict(12.0).limit == "idle"


def test_a_json_line_there_ends_the_wait_for_one_and_text_does_not():
    """S3-02."""
    for json_at, limit in ((9.9, None), (10.1, "first_json"), (None, "first_json")):
        told = Told()
        told.json_at, told.last = json_at, 9.5
        judge = judged(told, first_json=10.0)
        assert judge.deadline() == 10.0
        fired = judge.verdict(10.0)
        assert (fired and fired.limit) == limit
        assert told.looks == [10.0]


def test_limits_that_no_evidence_puts_off_want_no_look():
    for limits in ({"turn": 10.0}, {"total": 10.0}):
        told = Told()
        judge = judged(told, **limits)
        assert judge.verdict(10.0).limit in limits
        assert told.looks == []


# -- the command line ------------------------------------------------------------------------


@pytest.mark.parametrize("more", [[], ["--foreground"], ["--pty"]])
def test_a_command_that_only_writes_there_goes_on(commands, path, more):
    """Eight times 0.5 s are more than the limit, each alone is far less."""
    script = f"for i in 1 2 3 4 5 6 7 8; do echo $i >>{path}; sleep 0.5; done; exit 3"
    words = ["--idle", "3.5", "--transcript", str(path), *more]
    assert commands.guarded(*words, "--", *sh(script)).code == 3


@pytest.mark.parametrize(
    ("line", "code"), [('{\\"type\\":1}', 3), ("no JSON", 124)], ids=["JSON", "text"]
)
def test_its_first_json_line_is_one(commands, path, line, code):
    """S3-02: the seed's watchdog looks there, and nowhere else."""
    path.write_text(JSON)
    script = f'echo "{line}" >>{path}; sleep 4; exit 3'
    words = ["--first-json", "3", "--transcript", str(path), "--", *sh(script)]
    done, told = commands.status(*words)
    assert (done.code, told["limit"]) == (code, None if code == 3 else "first_json")


def test_a_closed_output_is_made_up_for(commands, path):
    script = f"echo '{JSON.strip()}' >>{path}; sleep 4; exit 3"
    words = [*OURS, "run", "--first-json", "3", "--transcript", str(path), "--", *sh(script)]
    assert commands.run(*sh(f"exec {shlex.join(words)} >&-")).code == 3


def test_a_relative_name_is_meant_from_where_run_began(commands, path):
    words = ["--first-json", "3", "--transcript", path.name]
    script = f"cd /; echo '{JSON.strip()}' >>{path}; sleep 4; exit 3"
    assert commands.guarded(*words, "--", *sh(script), cwd=path.parent).code == 3


def test_nothing_that_it_could_put_off_is_warned_of(commands, path):
    done = commands.guarded("--total", LONG, "--transcript", str(path), "true")
    assert done.code == 0
    assert "warning: --transcript changes nothing" in done.err
