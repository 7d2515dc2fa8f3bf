"""A session's card: what was tried, where its records are, and what to do next, to be pasted."""

from __future__ import annotations

import html
import json
import re
import shlex
import shutil
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

import pytest

from streamguard import Activity, events, plan_resume, resume_from
from streamguard.cli import main
from streamguard.evidence.report import drawing, page, read_run
from streamguard.evidence.report.states import SAID, counted
from streamguard.evidence.report.story import answers, headline, stories
from tests.report import showcase
from tests.report.support import AT, Tape, finished, hundred, resumed_and_lost

TOKEN = "0e3f6a0e-1111-4c1e-9d6d-0123456789ab"


@pytest.fixture
def tape(tmp_path):
    return Tape(tmp_path / "run-17")


class Links(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        if tag == "a":
            self.found.append(dict(attributes)["href"])


def hang(tape, *, flow="build", step="implement", confirmed=True, **context):
    """A session that hangs, with its receipt, its transcript and the log of its flow."""
    stream = tape.stream("issue-7")
    stream.begins(0)
    stream.says(1, kind="WorkFinished")
    stream.is_half_silent(91)
    verdict = stream.is_judged(181)
    stream.is_torn_down(183, verdict, confirmed=confirmed)
    stream.ends(183, TimeoutError())
    return recorded(tape, verdict, flow=flow, step=step, confirmed=confirmed, **context)


def recorded(tape, verdict, *, flow="build", step="implement", confirmed=True, **context):
    folder = tape.folder / flow
    for name in ("receipts", "llm"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    known = {
        "transcript_path": f"/recorded/elsewhere/{flow}/llm/{step}-partial.jsonl",
        "session_token": TOKEN,
        "backend": "claude",
        "work_dir": "/srv/it's here",
        "tools_run": 3,
        "attempt": 1,
        "backend_ended": confirmed,
    }
    receipt = {
        "status": "timeout",
        "flow_key": flow,
        "step_id": step,
        "final_action": "fail",
        "timeout_event": {
            "stream": "issue-7",
            "reason": verdict.reason,
            "timestamp": "2025-11-18T03:15:45.000Z",
        },
        "context_for_resume": known | context,
        "teardown": {"survivors": [] if confirmed else [4990, 5012], "pid": 4990},
    }
    file = folder / "receipts" / f"{step}-timeout.json"
    file.write_text(json.dumps(receipt))
    file.chmod(0o600)
    (folder / "llm" / f"{step}-partial.jsonl").write_text("{}\n")
    (folder / "timeouts.jsonl").write_text("{}\n")
    return tape.run()


def the_story(run):
    [story] = stories(run)
    return story


# -- one count -------------------------------------------------------------------------------------


def states_in(text):
    """The states that the table of sessions says, with how many there are of each."""
    table = text[text.index('id="sessions"') : text.index('id="events"')]
    said = re.findall(r'<td class="state">(.*?)</td>', table)
    return {state: said.count(state) for state in said}


def test_the_headline_counts_as_the_table_does(tape):
    """E5: each session once, in either."""
    resumed_and_lost(tape)
    for number in range(3):
        finished(tape, f"well {number}")
    tape.stream("open").begins(0)
    tape.stream("failed").begins(0)
    run = tape.run()
    [said] = re.findall(r"<h1[^>]*>(.*?)</h1>", page(run))
    assert said == ("Of 6 sessions, 1 hung, 2 were going on when the record ends and 3 finished")
    in_table = states_in(page(run))
    assert in_table == {"hung": 1, "end not recorded": 2, "finished": 3}
    assert sorted(map(int, re.findall(r"(\d+) (?:hung|were|finished)", said))) == [1, 2, 3]


def test_of_a_hundred_sessions_all_are_counted(tmp_path):
    tape = Tape(tmp_path / "run-18")
    hundred(tape)
    told = stories(tape.run())
    assert sum(map(int, re.findall(r", (\d+) | and (\d+) ", headline(told))[0][:1])) == 3
    assert headline(told) == "Of 100 sessions, 3 hung and 97 finished"


def test_every_state_can_be_counted():
    said = counted([*SAID, "stopped", "open"], "run")
    assert said == (
        "Of 9 runs, 1 hung, 1 failed, 2 were stopped, 2 were going on when the record ends, 1 finished in "
        "name only, 1 recovered after a hang and 1 finished"
    )


# -- what was tried --------------------------------------------------------------------------------


def session_of(tape, delays, *, last="failed"):
    """A session that hangs at first, and again after each of those delays; `last`: how that ends."""
    stream = tape.stream("issue-7")
    at = 0.0
    for number, delay in enumerate((None, *delays), 1):
        if delay is not None:
            why = {"error_class": "idle", "retry": number - 1, "why": "again"}
            stream.tell(events.RetryScheduled, at, delay=delay, **why)
            at += delay
        stream.tell(events.AttemptStarted, at, attempt=number, resumes=number > 1)
        stream.begins(at)
        stream.says(at + 1)
        outcome = "failed" if number <= len(delays) else last
        if outcome == "failed":
            verdict = stream.is_judged(at + 181)
            stream.is_torn_down(at + 182, verdict)
        stream.ends(at + 182, TimeoutError() if outcome == "failed" else None)
        ended = {"attempt": number, "error": None, "confirmed": True}
        stream.tell(events.AttemptEnded, at + 182, outcome=outcome, **ended)
        at += 182
    return the_story(tape.run())


@pytest.mark.parametrize(
    ("delays", "said"),
    [
        ((0.0,), "tried once more, at once: it hung"),
        ((0.0, 5.0), "tried 2 more times, at once and after 5 s: both hung"),
        ((0.32, 5.0, 15.0), "tried 3 more times, after 320 ms, after 5 s and after 15 s: all 3 hung"),
        ((5.0, 5.0), "tried 2 more times, each time after 5 s: both hung"),
        (tuple(range(1, 9)), "tried 8 more times, after 1 s, after 2 s, after 3 s, after 4 s and so on: all 8 hung"),
    ],
)  # fmt: skip
def test_further_attempts_are_told_in_words(tape, delays, said):
    story = session_of(tape, delays)
    assert story.state == "hung"
    assert said in story.tried
    assert "disconnected from the backend, in 1 s" in story.tried


def test_an_attempt_that_went_well_is_told(tape):
    story = session_of(tape, (0.0, 5.0), last="completed")
    assert (
        "tried 2 more times, at once and after 5 s: the 1st hung, the 2nd ended well"
        in story.tried
    )
    assert story.next_steps == []


# -- words -----------------------------------------------------------------------------------------


def test_nothing_is_said_in_the_words_of_our_own_types(tape):
    """Neither of signals, nor of events."""
    stream = tape.stream("issue-7")
    stream.begins(0)
    stream.says(1, kind="WorkStarted")
    stream.works_on("Bash", 1, 2)
    stream.hangs(2)
    types = {name for name in vars(events) if name[:1].isupper()}
    types |= {"Progress", "WorkStarted", "WorkFinished", "TurnEnded", "SessionOpened", "Liveness"}
    run = hang(tape)
    for text in (page(run), drawing(run)):
        shown = re.sub(r"<(style|script)[^>]*>.*?</\1>|<[^>]+>", " ", text, flags=re.DOTALL)
        assert types & set(re.findall(r"\w+", shown)) == set()


def test_the_kind_of_the_last_message_is_said(tape):
    stream = tape.stream("issue-7")
    stream.begins(0)
    stream.says(1, kind="WorkStarted")
    stream.is_judged(1.32, elapsed=0.32, last_signal="WorkStarted")
    story = the_story(tape.run())
    assert story.last_message == "a tool began, 320 ms before the limit was reached"
    [since] = answers(story)["Since"]
    assert since == (
        "2025-11-18 03:12:45.000 UTC, for 320 ms: the limit was reached at 03:12:45.320"
    )


# -- records ---------------------------------------------------------------------------------------


def files_of(links, page_at):
    return [(page_at.parent / unquote(link)).resolve() for link in links]


def test_the_card_links_to_the_records_from_where_the_page_is(tmp_path):
    """Also when run and page are named by who knows whom, and the page is written elsewhere."""
    tape = Tape(tmp_path / "runs" / "a & <b> #1 100%?")
    hang(tape, flow="build <it>", step="imp'lement #2")
    wanted = [
        tape.folder / "build <it>" / "receipts" / "imp'lement #2-timeout.json",
        tape.folder / "build <it>" / "llm" / "imp'lement #2-partial.jsonl",
        tape.folder / "build <it>" / "timeouts.jsonl",
    ]
    for output in (None, tmp_path / "pages" / "x.html", tape.folder / "build <it>" / "y.html"):
        file = output or tape.folder / "report.html"
        file.parent.mkdir(exist_ok=True)
        assert main(["report", str(tape.folder), *(["-o", str(output)] if output else [])]) == 0
        links = Links(file.read_text()).found
        assert files_of(links, file) == wanted
        assert not [link for link in links if set(link) & set(" <>#?&'\"")]


def test_the_links_lead_there_when_the_run_was_moved(tape, tmp_path):
    hang(tape)
    assert main(["report", str(tape.folder)]) == 0
    moved = tmp_path / "archive"
    shutil.move(tape.folder, moved)
    for _ in range(2):
        links = Links((moved / "report.html").read_text()).found
        assert len(links) == 3
        assert all(file.is_file() for file in files_of(links, moved / "report.html"))
        assert (
            main(["report", str(moved)]) == 0
        )  # and anew, from a receipt that names the old place


def test_on_stdout_the_links_are_absolute(tape, capsysbinary):
    hang(tape)
    assert main(["report", str(tape.folder), "-o", "-"]) == 0
    links = Links(capsysbinary.readouterr().out.decode()).found
    paths = [url2pathname(urlsplit(link).path) for link in links]
    assert paths[2] == str(tape.folder / "build" / "timeouts.jsonl")


def test_what_is_not_there_is_no_link(tape):
    hang(tape)
    (tape.folder / "build" / "llm" / "implement-partial.jsonl").unlink()
    records = the_story(read_run(tape.folder)).records
    assert [record.what for record in records] == ["receipt", "log of timeouts"]


@pytest.mark.parametrize("path", ["../../../etc/passwd", "/etc/passwd", "..", "\0", "x" * 5000, 7])
def test_a_receipt_names_no_file_outside_of_its_run(tape, path):
    """Its transcript is looked for in the flow's own folder."""
    run = hang(tape, transcript_path=path)
    links = Links(page(run)).found
    assert [link.split("/")[0] for link in links] == ["build", "build"]


# -- what next -------------------------------------------------------------------------------------


def lines_of(run):
    return [step.lines for step in the_story(run).next_steps]


def test_the_command_that_goes_on_can_be_pasted(tape):
    """Quoted for a shell, and then for HTML."""
    run = hang(tape)
    command, _ = lines_of(run)
    assert shlex.split(command) == [
        *("cd", "/srv/it's here", "&&"),
        *("claude", "--resume", TOKEN, "-p", "Continue."),
    ]
    [shown, _] = re.findall(r"<code>(.*?)</code>", page(run), re.DOTALL)
    assert html.unescape(shown) == command
    assert "'" not in shown


@pytest.mark.parametrize(
    ("backend", "words"),
    [
        ("codex", f"codex exec resume {TOKEN} Continue."),
        ("opencode", f"opencode run --session {TOKEN} Continue."),
        ("gemini", f"gemini --resume {TOKEN} -p Continue."),
    ],
)
def test_each_backend_has_its_own_command(tape, backend, words):
    run = hang(tape, backend=backend, work_dir=None)
    assert lines_of(run)[0] == words


def test_the_code_that_goes_on_runs(tape):
    """It makes the point at which the session goes on."""
    code = lines_of(hang(tape, work_dir=str(tape.folder)))[1]
    opened = []

    def session(open_, *, point):
        opened.append(point)
        return Piped()

    class Piped:
        def __or__(self, other):
            return self

    known = {"your_open": None, "your_guard": None}
    exec(compile(code.replace(", session\n", "\n"), "card", "exec"), known | {"session": session})
    assert opened[0].token == TOKEN
    assert opened[0] == resume_from(plan_resume(tape.folder, "build"))


def test_first_a_backend_that_may_be_alive_is_looked_at(tape):
    """D5: and Python has to be told that a person has."""
    run = hang(tape, confirmed=False)
    first, command, code = the_story(run).next_steps
    assert "two programs in one session corrupt it" in first.says
    assert first.lines == "ps -o pid,stat,etime,args -p 4990,5012"
    assert command.says.startswith("Then go on")
    assert "resume_after_unconfirmed_teardown=True" in code.lines


def test_without_a_receipt_the_record_says_who_may_be_alive(tape):
    resumed_and_lost(tape)
    [first] = the_story(tape.run()).next_steps
    assert first.lines == "ps -o pid,stat,etime,args -p 4990,5012"


@pytest.mark.parametrize(
    ("context", "says"),
    [
        ({"session_token": None}, "It cannot be resumed: its session has no name, and 3 tool calls ran"),
        ({"session_token": None, "tools_run": 0}, "Start it again: there is no session to resume"),
    ],
)  # fmt: skip
def test_without_a_session_it_is_said_what_was_done(tape, context, says):
    run = hang(tape, **context)
    [step] = the_story(run).next_steps
    assert step.says.startswith(says)
    assert step.lines == ""


@pytest.mark.parametrize("token", ["--model x", "-x", "a b", "$(reboot)", "x" * 300, "a\nb", "é"])
def test_a_session_with_a_strange_name_gets_no_command(tape, token):
    run = hang(tape, session_token=token)
    assert not [line for line in lines_of(run) if "claude" in line]


def test_of_a_run_of_a_command_nothing_is_said_in_python(tmp_path):
    """`streamguard run --record`: there is no program to go on in."""
    tape = Tape(tmp_path / "run-17")
    tape.lines[0] |= {"flow": "run", "step": "claude-4211"}
    run = hang(tape, flow="run", step="claude-4211")
    [command] = lines_of(run)
    assert "claude --resume" in command


def test_where_the_record_ends_it_is_said_how_to_see_whether_it_goes_on(tape):
    stream = tape.stream("issue-7")
    stream.begins(0)
    stream.tell(events.ProcessAdopted, 1, pid=4990, proof="child")
    assert lines_of(tape.run()) == ["ps -o pid,stat,etime,args -p 4211,4990"]


def test_a_plan_is_only_shown_where_it_is_this_sessions(tape):
    """`plan_resume` gives the latest of a flow."""
    hang(tape)
    other = tape.stream("issue-8")
    other.begins(300)
    verdict = other.is_judged(600)
    other.is_torn_down(601, verdict)
    other.ends(601, TimeoutError())
    run = recorded(tape, verdict, step="later")
    receipt = tape.folder / "build" / "receipts" / "later-timeout.json"
    said = json.loads(receipt.read_text())
    said["timeout_event"] |= {"timestamp": "2025-11-18T04:00:00.000Z", "stream": "issue-8"}
    receipt.write_text(json.dumps(said))
    told = {story.session.name: story for story in stories(read_run(run.folder))}
    assert [step.is_code for step in told["issue-7"].next_steps] == [False]
    assert [step.is_code for step in told["issue-8"].next_steps] == [False, True]


def test_an_older_recorders_receipt_is_read(tape):
    """Without the backend's name."""
    run = hang(tape)
    receipt = tape.folder / "build" / "receipts" / "implement-timeout.json"
    said = json.loads(receipt.read_text())
    del said["context_for_resume"]["backend"]
    receipt.write_text(json.dumps(said))
    [code] = lines_of(read_run(run.folder))
    assert code.startswith("from streamguard import")
    assert Activity("x").backend is None
    assert AT


def test_the_picture_in_readme_is_what_is_drawn_now():
    """If it is not: `python -m tests.report.showcase`."""
    assert showcase.FILE.read_text("utf-8") == showcase.showcase()
    assert "prefers-color-scheme" not in showcase.showcase()
    assert showcase.FILE.stat().st_size < 150_000
