"""A run that is read, told and drawn: what the person on call is told first, whatever was recorded."""

from __future__ import annotations

import json
import re
import stat
import subprocess
import sys
import time
from html.parser import HTMLParser
from urllib.parse import unquote
from xml.etree import ElementTree as ET

import pytest

from streamguard import Activity, ConfigError, Recorder, events, idle_guard
from streamguard.cli import main
from streamguard.evidence.report import drawing, page, read_run
from streamguard.evidence.report.drawing import LANES
from streamguard.evidence.report.folder import RunFile
from streamguard.evidence.report.story import headline, is_alarm, stories
from streamguard.evidence.report.tables import ROWS
from streamguard.evidence.report.wording import clock, clock_of, duration, instant, listed, several
from streamguard.evidence.stream_names import stream_of
from streamguard.testing import Script, hang, say, tool, tool_start
from tests.growth import MOST, growth_of
from tests.report.support import WALL, Tape, finished, hundred, resumed_and_lost
from tests.support import take

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def tape(tmp_path):
    return Tape(tmp_path / "run-17")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    """A hundred sessions and a million messages."""
    tape = Tape(tmp_path_factory.mktemp("fleet") / "run-18")
    hundred(tape)
    return tape.run()


def the_story(run):
    [story] = stories(run)
    return story


class Elements(HTMLParser):
    """The elements of a page, and what a browser would fetch for it."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.fetched = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        for name, value in attributes:
            if name in ("src", "href", "srcset", "action", "data", "poster", "background"):
                self.fetched.append(value)


# -- the story -------------------------------------------------------------------------------------


def test_the_header_answers_what_since_when_in_flight_tried_and_left(tape):
    """E5: the five questions of the person on call."""
    resumed_and_lost(tape)
    story = the_story(tape.run())
    assert headline([story]) == "issue-7 hung"
    assert story.what == "Waited 200 s for Bash to finish (limit tools=200)"
    assert (instant(story.since), clock(story.decided)) == ("2025-11-18 03:22:04 UTC", "03:25:24")
    assert story.in_flight == "Bash"
    assert story.last_message == "progress, 3 min 20 s before the limit was reached"
    assert [line.split(":")[0] for line in story.tried] == [
        "tried once more, after 5 s",
        "disconnect still hung after 30 s and was abandoned; the backend may be alive",
        "teardown NOT confirmed after 41 s",
        "gave up (unsafe)",
    ]
    assert story.tried[0] == "tried once more, after 5 s: it hung"
    assert story.left == [
        "STILL ALIVE: 2 processes (4990, 5012)",
        "it will not be tried again, and a person should look",
    ]
    text = page(read_run(tape.folder))
    assert '<h1 class="bad">issue-7 hung</h1>' in text
    assert '<dd><p class="alarm">STILL ALIVE: 2 processes (4990, 5012)</p>' in text


def test_a_receipt_says_what_was_left(tape):
    """S2-13, S2-14: artifacts, changes, checkpoint, transcript; of that verdict and no other."""
    stream = tape.stream("issue-7")
    stream.begins(0)
    stream.says(1)
    stream.hangs(1)
    run = tape.run()
    [verdict] = run.sessions[0].marked("TimedOut")
    folder = tape.folder / "build" / "receipts"
    folder.mkdir(parents=True)
    receipt = {
        "timeout_event": {"stream": "issue-7", "reason": verdict.text},
        "partial_artifacts": [{"path": "out.md", "complete": False, "bytes_written": 18211}],
        "context_for_resume": {
            "last_successful_checkpoint": "tests written",
            "uncommitted_changes": ["src/app.py", "src/new.py"],
            "transcript_path": "build/llm/implement-partial.jsonl",
        },
    }
    (folder / "implement-timeout.json").write_text(json.dumps(receipt))
    receipt["timeout_event"]["reason"] = "another's"
    (folder / "another-timeout.json").write_text(json.dumps(receipt))
    assert the_story(read_run(tape.folder)).left == [
        "the backend is gone",
        "artifact out.md (partial, 18,211 bytes)",
        "uncommitted changes: src/app.py, src/new.py",
        "last checkpoint: tests written",
    ]


@pytest.mark.parametrize(
    ("left", "is_alarming"),
    [
        ("STILL ALIVE: 2 processes (4990, 5012)", True),
        ("the backend's end is NOT confirmed: it may be alive", True),
        ("the teardown's end is not recorded: the backend may be alive", True),
        ("the backend is gone", False),
        ("uncommitted changes: src/keepalive.py", False),
    ],
)
def test_what_alarms(left, is_alarming):
    """D5: a backend that may be alive, and nothing else."""
    assert is_alarm(left) is is_alarming


def _cut(tape, names):
    """Streams that fall silent, each with a receipt of its own."""
    folder = tape.folder / "build" / "receipts"
    folder.mkdir(parents=True)
    for number, name in enumerate(names):
        stream = tape.stream(name)
        stream.begins(number)
        verdict = stream.is_judged(number + 180)
        stream.ends(number + 181, TimeoutError())
        receipt = {
            "timeout_event": {"reason": verdict.reason, "stream": stream_of(stream.activity)},
            "context_for_resume": {"last_successful_checkpoint": f"of {number}"},
        }
        (folder / f"{number:04}-timeout.json").write_text(json.dumps(receipt))
    return tape.run()


def test_a_receipt_is_its_own_streams(tape):
    """E5: where verdicts read alike, and one stream's name begins another's."""
    run = _cut(tape, [""] * 12)
    told = {story.session.start: story.left for story in stories(run)}
    left = [told[start] for start in sorted(told)]
    assert [f"last checkpoint: of {number}" in lines for number, lines in enumerate(left)] == [
        True
    ] * 12


@pytest.mark.parametrize("drawn", [page, drawing])
def test_a_report_costs_so_much_for_each_session(tmp_path, drawn):
    """E5: what it tells of one is not looked for in all the others."""

    def draw(n):
        run = _cut(Tape(tmp_path / str(n)), [f"issue-{number}" for number in range(n)])
        return lambda: drawn(run)

    assert growth_of(draw, 200) <= MOST


@pytest.mark.parametrize(
    "receipt",
    [
        "",
        "[]",
        "{",
        '{"timeout_event": 3}',
        '{"partial_artifacts": 1, "timeout_event": {"reason": null}}',
    ],
)
def test_a_receipt_that_is_none_is_passed_over(tape, receipt):
    """E2: readers live with what a crash leaves."""
    tape.stream("issue-7").begins(0)
    folder = tape.folder / "build" / "receipts"
    folder.mkdir(parents=True)
    (folder / "x-timeout.json").write_text(receipt)
    assert the_story(tape.run()).state == "open"


def test_a_run_without_a_timeout_says_so(tape):
    """E5: and shows nobody as being in trouble."""
    finished(tape)
    finished(tape, "issue-8", 20)
    run = tape.run()
    assert headline(stories(run)) == "Both sessions finished"
    assert "<caption><span>Both sessions finished. Those in trouble come first.</span>" in page(
        run
    )
    assert {story.state for story in stories(run)} == {"finished"}
    assert "<article" not in page(run)


def test_a_run_that_was_cut_by_a_crash_says_what_was_in_flight(tape):
    """E2: with a torn last line, and a session that had been silent."""
    stream = tape.stream("issue-7")
    stream.begins(0)
    stream.chatters(0, 100)
    stream.works_on("Bash", 100, None)
    other = tape.stream("issue-8")
    other.begins(0)
    other.is_half_silent(200, window=120)
    tape.take()
    tape.take()
    tape.write(torn='{"kind":"counts","counts":[["issue-7","mess')
    run = read_run(tape.folder)
    story = next(story for story in stories(run) if story.session.name == "issue-7")
    assert run.unreadable == 1
    assert headline(stories(run)) == "Both sessions were going on when the record ends"
    assert (story.state, story.in_flight) == ("open", "Bash")
    assert story.what == "500 messages in 3 min 20 s; then the record ends"
    [left] = story.left
    assert left.startswith("the record ends at 03:16:04, before this session")
    [silent] = [story for story in stories(run) if story.session.name == "issue-8"]
    assert silent.since == WALL + 140


def test_a_hang_that_was_survived_is_none_any_more(tape):
    """E5: a later attempt went well."""
    stream = tape.stream("issue-7")
    stream.tell(events.AttemptStarted, 0, attempt=1, resumes=False)
    stream.hangs(10)
    stream.tell(events.AttemptEnded, 193, attempt=1, outcome="failed", error=None, confirmed=True)
    stream.tell(events.AttemptStarted, 193, attempt=2, resumes=True)
    stream.chatters(195, 220)
    stream.tell(
        events.AttemptEnded, 220, attempt=2, outcome="completed", error=None, confirmed=True
    )
    assert headline(stories(tape.run())) == "issue-7 recovered after a hang"


@pytest.mark.parametrize(
    ("happens", "state", "said"),
    [
        (lambda s: s.is_judged(90, enforced=False), "finished", "issue-7 finished"),
        (lambda s: s.is_judged(90, "exit_grace", 5.0), "finished", "issue-7 finished"),
        (lambda s: s.ends(90, ValueError("sk-secret")), "failed", "issue-7 failed"),
    ],
    ids=["warned", "slow to leave", "its own error"],
)
def test_what_is_no_hang(tape, happens, state, said):
    """T11, T14, T7: a warning, the end of a turn that was over, and an error of the stream's own."""
    stream = tape.stream("issue-7")
    stream.begins(0)
    stream.says(1)
    happens(stream)
    stream.ends(91)
    run = tape.run()
    assert (the_story(run).state, headline(stories(run))) == (state, said)
    assert "sk-secret" not in page(run)


@pytest.mark.parametrize(
    ("outcome", "work", "said"),
    [
        ("empty", (), "500 messages in 1 min 41 s; the turn ended with success and did nothing"),
        (
            "abandoned",
            ("Task",),
            "500 messages in 1 min 41 s; work was left open in the background",
        ),
    ],
)
@pytest.mark.parametrize("hosted", [False, True], ids=["stream", "session"])
def test_a_success_in_name_only(tape, outcome, work, said, hosted):
    """E5: it is shown as trouble, with what was told of it before."""
    stream = tape.stream("issue-7")
    if hosted:
        stream.tell(events.AttemptStarted, 0, attempt=1, resumes=False)
    stream.begins(0)
    stream.chatters(0, 100)
    stream.tell(events.HollowEnd, 101, limit=outcome, work=work)
    stream.tell(events.StreamEnded, 101, error=None, outcome=outcome)
    if hosted:
        ended = {"outcome": "completed", "error": None, "confirmed": True}
        stream.tell(events.AttemptEnded, 101, attempt=1, **ended)
    run = tape.run()
    story = the_story(run)
    assert (story.state, story.what) == ("hollow", said)
    assert headline([story]) == "issue-7 finished in name only"
    assert [line for line in story.tried if not work or "background: Task" in line]
    assert '<article class="story hollow">' in page(run)
    assert "<dt>Warnings</dt>" in page(run)
    assert '<line class="concern"' in drawing(run).split('class="base')[1]


@pytest.mark.parametrize(
    ("limit", "state"),
    [
        ("quiet", "hung"),
        ("repeats", "stopped"),
        ("tokens", "stopped"),
        ("cost", "stopped"),
        ("calls", "stopped"),
        ("empty", "hollow"),
        ("abandoned", "hollow"),
    ],
)
def test_what_was_busy_did_not_hang(tape, limit, state):
    """E5: where a limit on progress or on spending was to end it."""
    stream = tape.stream("issue-7")
    stream.begins(0)
    stream.chatters(0, 100)
    verdict = stream.is_judged(100, limit, 0.0, work="Bash", amount=5)
    stream.is_torn_down(101, verdict)
    stream.ends(101, RuntimeError())
    told = stories(tape.run())
    assert told[0].state == state
    assert told[0].is_trouble
    said = {"hung": "hung", "stopped": "was stopped", "hollow": "finished in name only"}
    assert headline(told) == f"issue-7 {said[state]}"


def test_who_left_something_alive_comes_first(fleet):
    """E5: of a hundred sessions, three hang, and one of them may still own its backend."""
    told = stories(fleet)
    assert headline(told) == "Of 100 sessions, 3 hung and 97 finished"
    assert [story.session.name for story in told[:4]] == [
        "issue-77",
        "issue-17",
        "issue-42",
        "issue-0",
    ]


# -- reading ---------------------------------------------------------------------------------------


def test_several_processes_write_one_run(tape):
    """E1: each on its own clock, with streams of the same name."""
    finished(tape)
    tape.run()
    other = Tape(tape.folder, writer="x", wall=WALL + 100)
    finished(other)
    run = other.run()
    assert [session.name for session in run.sessions] == ["issue-7", "issue-7 (2)"]
    assert [session.start - WALL for session in run.sessions] == pytest.approx([0, 100])


def test_a_run_whose_beginning_was_rotated_away(tape):
    """E1: the rest is drawn, and the page says that something is missing."""
    finished(tape)
    tape.take(last=True)
    tape.write()
    file = tape.folder / "timeline.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    (tape.folder / "timeline.1.jsonl").write_text("".join(lines[1:4]))
    run = read_run(tape.folder)
    assert run.is_beheaded
    assert "what was before has been rotated away" in page(run)
    assert the_story(run).state == "finished"


@pytest.mark.parametrize(
    "line",
    [
        "\xff\xfe",
        "[]",
        "null",
        "{}",
        '{"kind": "mark", "writer": "w", "stream": "s"}',
        '{"kind": "counts", "writer": "w", "counts": [["s", "message", "x"]]}',
        '{"kind": "span", "writer": "w", "stream": "s", "of": "work", "id": 1, "name": "x", "from_at": NaN}',
        '{"kind": "counts", "writer": "w", "counts": [["s", "message", "x", 1, 1, 1e999, 1, 0]]}',
        '{"kind": "span", "writer": "nobody", "stream": "s", "of": "work", "id": 1, "name": "x", "from_at": 1}',
        '{"kind": "mark", "writer": "w", "stream": "s", "of": "A", "at": 1, "level": 1e999, "text": "t"}',
        *(
            f'{{"kind": "mark", "writer": "w", "stream": "s", "of": "A", "at": {at}, "level": 1, "text": "t"}}'
            for at in ("1e300", "1e12", "-1e12", f"{10**400}", "NaN")
        ),
        '{"kind": "writer", "writer": "v", "wall": 1e999, "at": 0}',
        "[" * 100_000,
    ],
)
def test_a_line_that_makes_no_sense_is_passed_over_and_counted(tape, line):
    """E2: the rest is read."""
    finished(tape)
    tape.take(last=True)
    tape.write(torn=line + "\n")
    run = read_run(tape.folder)
    assert run.unreadable == 1
    assert the_story(run).state == "finished"
    ET.fromstring(drawing(run))
    assert "1 line could not be read" in page(run)


def test_a_folder_that_is_no_run_is_refused_with_what_it_may_be(tmp_path):
    """E5: a message that helps."""
    with pytest.raises(ConfigError, match="no folder: give the folder of a run"):
        read_run(tmp_path / "nowhere")
    with pytest.raises(
        ConfigError, match=r"has no timeline\.jsonl: either no Recorder wrote there"
    ):
        read_run(tmp_path)
    finished(tape := Tape(tmp_path / "run-17"))
    tape.run()
    with pytest.raises(ConfigError, match=r"holds 1 run \(run-17\): give one of them"):
        read_run(tmp_path)


def test_an_empty_run_is_drawn(tape):
    """E5: a recorder that has recorded nothing yet."""
    run = tape.run()
    assert "Nothing was recorded" in page(run)
    assert ET.fromstring(drawing(run)).find(f"{SVG}title").text == "Nothing was recorded"


# -- the page --------------------------------------------------------------------------------------

EVIL = [
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(2)>",
    "<!--<script>",
    "]]>&amp;\"'`${alert(3)}",
    "line\nbreak\x00\x1b[31m",
    "\u202etxt.exe\u2066",
    "\ud800",
    "a" * 5000,
]


@pytest.mark.parametrize("name", EVIL, ids=range(len(EVIL)))
def test_names_stay_names(tape, name):
    """E3: whatever a tool, a session or a reason is called, it is text."""
    plain = Elements(page(Tape(tape.folder.with_name("plain")).run())).tags
    stream = tape.stream(name)
    stream.begins(0)
    stream.works_on(name, 1, 2)
    stream.holds(name, 2, 3)
    stream.is_judged(90, in_flight=(name,), work=name)
    run = tape.run()
    elements = Elements(page(run))
    assert elements.tags.count("script") == plain.count("script") == 2
    assert "img" not in elements.tags
    assert page(run).count("<!--") == 0
    page(run).encode()
    drawn = ET.fromstring(drawing(run).encode())
    assert {element.tag for element in drawn.iter()}.isdisjoint({f"{SVG}script", f"{SVG}img"})


def test_the_page_asks_for_nothing(tape):
    """E5: self-contained; and forbids itself what it does not need."""
    resumed_and_lost(tape)
    text = page(tape.run())
    assert Elements(text).fetched == ["data:,"]
    assert re.search(r"https?://(?!www\.w3\.org/2000/svg)", text) is None
    [policy] = re.findall(r'Content-Security-Policy" content="([^"]+)"', text)
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy


def test_the_tables_say_what_the_picture_shows(tape):
    """E5: for those who do not see it."""
    resumed_and_lost(tape)
    run = tape.run()
    rows = re.findall(r'<tr[^>]*><td class="when">.*?</tr>', page(run))
    told = [re.sub(r"<[^>]+>", "|", row) for row in rows]
    for what in (
        "attempt",
        "tool",
        "held",
        "silence",
        "limit reached",
        "teardown",
        "pause",
        "retry",
    ):
        assert any(f"|{what}|" in row for row in told), what
    assert len(told) == sum(len(s.marks) + len(s.spans) for s in run.sessions)


def test_the_tables_have_a_bound_and_leave_out_what_matters_least(fleet):
    """E5: a hundred sessions with a hundred tool calls each."""
    text = page(fleet)
    assert text.count("<tr") <= ROWS + 100 + 2
    assert text.count('<tr class="verdict">') == 3
    assert re.search(r"[\d,]+ lesser ones left out", text)


def test_a_million_messages_make_a_page_that_a_mail_can_carry(fleet):
    """E5: it is aggregated while it is written."""
    assert sum(session.counted("message") for session in fleet.sessions) == 1_000_000
    assert len(page(fleet)) < 5_000_000


# -- the SVG ---------------------------------------------------------------------------------------


def test_the_svg_has_a_title_a_description_and_every_shape(tape):
    """E5: for mails and tickets."""
    resumed_and_lost(tape)
    drawn = ET.fromstring(drawing(tape.run()))
    assert drawn.get("width") == "1000"
    assert drawn.find(f"{SVG}title").text == "issue-7 hung"
    assert "STILL ALIVE: 2 processes" in drawn.find(f"{SVG}desc").text
    kinds = {element.get("class", "").split(" ")[0] for element in drawn.iter()}
    assert {
        "messages",
        "work",
        "idle",
        "hold",
        "teardown",
        "backoff",
        "attempt",
        "verdict",
    } <= kinds


def test_the_svg_of_many_sessions_shows_the_first_and_says_so(fleet):
    """E5: those in trouble are among them."""
    text = drawing(fleet)
    drawn = ET.fromstring(text)
    assert f"… and {100 - LANES} more sessions" in text
    assert len([e for e in drawn.iter() if e.get("class") == "flag"]) == 3 + 1  # one in the legend
    assert len(list(drawn.iter())) < LANES * 450


def test_no_text_of_the_svg_runs_out_of_it(tape):
    """E5: legible at 1,000 px; six and a half are what a letter takes."""
    stream = tape.stream("issue-7: " + "rewrite the importer " * 20)
    stream.begins(0)
    stream.works_on("a tool with a name that is longer than most " * 5, 1, 1.1)
    stream.is_judged(300, in_flight=("Bash " * 60,))
    for text in ET.fromstring(drawing(tape.run())).iter(f"{SVG}text"):
        assert float(text.get("x")) + 6.5 * len(text.text) < 1000 + 20, text.text


# -- the command, and a real recorder --------------------------------------------------------------


def test_the_command_writes_the_page_into_the_run(tape, capsys):
    """E5: for its owner's eyes (E2), and says where."""
    finished(tape)
    tape.run()
    file = tape.folder / "report.html"
    assert main(["report", str(tape.folder)]) == 0
    assert capsys.readouterr().out == f"{file}\n"
    assert file.read_text().startswith("<!DOCTYPE html>")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_the_command_writes_an_svg_elsewhere_or_to_stdout(tape, tmp_path, capsysbinary):
    finished(tape)
    tape.run()
    assert main(["report", str(tape.folder), "--svg", "-o", str(tmp_path / "x.svg")]) == 0
    capsysbinary.readouterr()
    assert main(["report", str(tape.folder), "--svg", "-o", "-"]) == 0
    assert capsysbinary.readouterr().out == (tmp_path / "x.svg").read_bytes()


def test_what_is_no_file_of_its_own_is_not_replaced(tape, tmp_path, capsys):
    """As root, `-o /dev/stdout` would take it away from everybody."""
    finished(tape)
    tape.run()
    with (tmp_path / "log").open("w+") as log:
        log.write("before\n")
        log.flush()
        assert main(["report", str(tape.folder), "-o", f"/dev/fd/{log.fileno()}"]) == 0
        log.seek(0)
        assert log.read().startswith("before\n<!DOCTYPE html>")
    assert capsys.readouterr().out == ""
    (tmp_path / "link").symlink_to("page.html")
    assert main(["report", str(tape.folder), "-o", str(tmp_path / "link")]) == 0
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "page.html").read_text().startswith("<!DOCTYPE html>")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["{run}/nowhere"], 2, "is no folder"),
        (["{run}", "-o", "{run}/nowhere/x.html"], 1, "make it, or choose another -o FILE"),
        (["{run}", "-o", "{run}/taken"], 1, "taken: a folder, and no file; another place may do"),
        (["{run}/..", "--svg"], 2, "holds 1 run (run-17): give one of them"),
    ],
)
def test_the_command_says_what_is_wrong(tape, capsys, arguments, code, said):
    finished(tape)
    tape.run()
    (tape.folder / "taken").mkdir()
    words = [argument.format(run=tape.folder) for argument in arguments]
    assert main(["report", *words]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("streamguard report: ")
    assert said in err


def test_a_folder_of_runs_gets_an_index(tmp_path, capsys):
    """E5: those in trouble first, then the latest; a page for each."""
    finished(earlier := Tape(tmp_path / "earlier"))
    resumed_and_lost(lost := Tape(tmp_path / "lost & <b>found"))
    finished(later := Tape(tmp_path / "later", wall=WALL + 9000))
    hollow = Tape(tmp_path / "hollow")
    stream = hollow.stream("issue-7")
    stream.begins(0)
    stream.tell(events.StreamEnded, 9, error=None, outcome="empty")
    for tape in (earlier, lost, later, hollow, Tape(tmp_path / "nothing")):
        tape.run()
    assert main(["report", str(tmp_path)]) == 0
    names = sorted(tape.folder.name for tape in (earlier, lost, later, hollow))
    pages = [tmp_path / name / "report.html" for name in (*names, "nothing")]
    assert capsys.readouterr().out.splitlines() == [str(tmp_path / "index.html"), *map(str, pages)]
    text = (tmp_path / "index.html").read_text()
    assert "Of 5 runs, 1 hung, 1 finished in name only and 3 finished" in text
    links = Elements(text).fetched
    assert links == [
        "data:,",
        "lost%20%26%20%3Cb%3Efound/report.html",
        "hollow/report.html",
        "later/report.html",
        "earlier/report.html",
        "nothing/report.html",
    ]
    for link in links[1:]:
        assert (tmp_path / unquote(link)).read_text().startswith("<!DOCTYPE html>")
    assert main(["report", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'index.html'}\n", "the pages say the same"


@pytest.mark.parametrize("theirs", ["index.html", "earlier/report.html"])
def test_a_page_of_somebody_else_is_not_replaced(tmp_path, capsys, theirs):
    """E5: of a folder of runs; it says which page that is, and writes none."""
    finished(earlier := Tape(tmp_path / "earlier"))
    earlier.run()
    (tmp_path / theirs).write_text("<p>mine</p>")
    assert main(["report", str(tmp_path)]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert f"{tmp_path / theirs}: not written by streamguard, so nothing was replaced" in said.err
    assert [file.read_text() for file in tmp_path.glob("**/*.html")] == ["<p>mine</p>"]


CRASHING = """
import asyncio, sys
from streamguard import Activity, Recorder, idle_guard
from streamguard.signals import Progress, WorkStarted

async def messages():
    yield WorkStarted("t1", "Bash")
    while True:
        yield Progress()
        await asyncio.sleep(0.005)

async def main():
    async with Recorder(sys.argv[1], flow="build"):
        guard = idle_guard(60, activity=Activity("issue-7"), read=lambda signal: signal)
        async for _ in messages() | guard:
            pass

asyncio.run(main())
"""


def test_what_a_killed_program_has_recorded_is_drawn(tmp_path):
    """E2: SIGKILL in the midst of it; what was in flight is known."""
    program = subprocess.Popen([sys.executable, "-c", CRASHING, str(tmp_path / "run")])
    try:
        until = time.monotonic() + 60
        while not is_recorded(tmp_path / "run") and time.monotonic() < until:
            time.sleep(0.05)
    finally:
        program.kill()
        program.wait()
    run = read_run(tmp_path / "run")
    story = the_story(run)
    assert (story.state, story.in_flight) == ("open", "Bash")
    assert story.session.counted("message") > 10
    assert headline([story]) == "issue-7 was going on when the record ends"
    assert "Bash" in page(run)
    ET.fromstring(drawing(run))


def is_recorded(folder):
    """Whether the tool and some messages have reached the disk."""
    try:
        [session] = read_run(folder).sessions
    except (ConfigError, ValueError):
        return False
    return bool(session.of("work")) and session.counted("message") > 10


def test_what_a_real_recorder_leaves_is_drawn(loop, tmp_path):
    """E5: messages, tools, verdict and teardown of a stream that hangs, and its receipt."""

    async def record():
        recorder = Recorder(tmp_path / "run", flow="build", step="implement", work_dir=tmp_path)
        async with recorder:
            script = Script(say("x"), tool("Bash", 100), tool_start("e", "Edit"), hang())
            guard = idle_guard(60, tools=200, activity=Activity(f"issue of {loop.name}"))
            await take(script | guard)
        assert recorder.failures == {}

    loop.run(record)
    run = read_run(tmp_path / "run")
    story = the_story(run)
    assert run.unreadable == 0
    assert story.what.startswith("Waited 200 s for Edit to finish")
    assert story.decided - story.since == pytest.approx(200)
    assert story.session.counted("message") == 4
    # The wall's clock stands still while the loop's leaps, so what is told late may come to lie earlier.
    assert sorted(span.name for span in story.session.of("work")) == ["Bash", "Edit"]
    assert story.records[0] == RunFile("receipt", "build/receipts/implement-timeout.json")
    assert "the backend is gone" in story.left
    assert f"issue of {loop.name} hung" in page(run)
    ET.fromstring(drawing(run))


# -- words -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0 s"),
        (0.0004, "0.4 ms"),
        (0.32, "320 ms"),
        (0.9996, "1 s"),
        (12.34, "12.3 s"),
        (59.96, "60 s"),
        (60, "1 min"),
        (200, "3 min 20 s"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_durations(seconds, said):
    assert duration(seconds) == said


def test_instants_say_the_day_where_there_are_several():
    assert clock_of(WALL, WALL + 600)(WALL + 0.32) == "03:12:44"
    assert clock_of(WALL, WALL + 60)(WALL + 0.32) == "03:12:44.320"
    assert clock_of(WALL, WALL + 86400)(WALL + 86400) == "11-19 03:12:44"


def test_numbers_and_lists():
    assert (several(1, "message"), several(1200, "message")) == ("1 message", "1,200 messages")
    assert several(2, "process", "processes") == "2 processes"
    assert listed(["a", "b", "c"], most=2) == "a, b and 1 more"
    assert instant(1e300) == "1970-01-01 00:00:00 UTC"
