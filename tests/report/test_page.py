"""The page, as its readers have it: in a browser, by mouse, by keyboard, by what a screen reader is told."""

from __future__ import annotations

import os
import sys
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pytest

from streamguard import events
from streamguard.evidence.report import drawing, page
from tests.report.browser import Browser, Page, find
from tests.report.support import Tape, finished, hundred, resumed_and_lost
from tests.report.test_card import TOKEN, hang

PYTHON = (3, 11)
REAL = os.environ.get("STREAMGUARD_REAL", "")
CHROMIUM = find()

# As in tests/real: 1 runs them all, and a missing browser is a failure; 0 skips them all.
pytestmark = [
    pytest.mark.skipif(REAL == "0", reason="STREAMGUARD_REAL=0"),
    pytest.mark.skipif(
        REAL != "1" and sys.version_info[:2] != PYTHON,
        reason="a page is the same on every Python, and shown on 3.11 only: STREAMGUARD_REAL=1",
    ),
    pytest.mark.skipif(
        REAL != "1" and CHROMIUM is None,
        reason="no chromium: .ci/tools installs it",
    ),
]

DRAWN = 'document.querySelectorAll("#lanes svg *").length'
RANGE = 'document.getElementById("range").textContent'
TIP = 'document.getElementById("tip").hidden ? "" : document.getElementById("tip").innerText'
IS_READY = f"{RANGE} !== ''"
# The browser tells the page a frame or more late which lanes are in sight, or near it by 200 px.
NEAR_IS_DRAWN = """[...document.querySelectorAll("#lanes svg")].every((svg) => {
    const box = svg.closest('[role="option"]').getBoundingClientRect();
    const inside = Math.min(box.bottom + 200, innerHeight + 200 - box.top);
    return Math.abs(inside) < 2 || (inside > 0) === Boolean(svg.firstChild);
})"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    assert CHROMIUM is not None, "STREAMGUARD_REAL=1, but no chromium: apt-get install chromium"
    browser = Browser(CHROMIUM, tmp_path_factory.mktemp("chromium"))
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A file for each run: the page, and the SVG."""
    folder = tmp_path_factory.mktemp("reports")

    def written(name, fill):
        tape = Tape(folder / name)
        fill(tape)
        run = tape.run()
        file = folder / f"{name}.html"
        file.write_text(page(run, file), "utf-8")
        (folder / f"{name}.svg").write_text(drawing(run), "utf-8")

    written("told", lambda tape: hang(tape, work_dir="/srv/agents"))
    written("lost", resumed_and_lost)
    written("fleet", hundred)
    written("fine", finished)
    written("evil", evil)
    written("empty", lambda _: None)
    written("dense", dense)
    written("busy", busy)
    written("cut", cut)
    return folder


def evil(tape):
    for i, name in enumerate(
        ("<script>alert(1)</script>", "</script><img src=x onerror=alert(2)>")
    ):
        stream = tape.stream(name)
        stream.begins(0)
        stream.chatters(0, 20)
        stream.works_on(name, 20, 40)
        stream.works_on("http://example.invalid/x.png", 25, 40)
        stream.hangs(i + 60)
    wide = tape.stream("Wide Names MATTER, MMMMM, 会話 " * 20)
    wide.begins(0)
    verdict = wide.is_judged(300, "tools", 90.0, in_flight=("WWWWWW " * 40,), work="MMMMM " * 40)
    wide.is_torn_down(301, verdict, confirmed=False, survivors=tuple(range(10**6, 10**6 + 50)))


def dense(tape):
    """Whatever one lane can hold: 4,000 calls, overlapping, pings, holds, silences."""
    stream = tape.stream("dense")
    stream.begins(0)
    for i in range(4000):
        stream.says(i * 2.0, n=5)
        stream.says(i * 2.0 + 1, kind="Liveness")
        stream.works_on(f"tool {i % 60}", i * 2.0, i * 2.0 + 0.5 + i % 7 * 30)
        if i % 10 == 0:
            stream.holds(f"reason {i % 11}", i * 2.0, i * 2.0 + 5)
            stream.is_half_silent(i * 2.0 + 9, window=9.0)
    stream.ends(8200)


def busy(tape):
    """One that talks, and gets nowhere, in each of the ways; and one that only did so at its end."""
    stream = tape.stream("issue-7")
    stream.begins(0)
    stream.chatters(0, 120)
    told = {"id": "t", "name": "Task", "window": 60.0, "elapsed": 61.0}
    stream.tell(events.WorkQuiet, 20, limit="quiet", **told)
    again = {"names": ("Bash",), "times": 5, "period": 1, "error": True}
    stream.tell(events.WorkRepeated, 50, limit="repeats", **again)
    stream.tell(events.CeilingPassed, 80, limit="tokens", ceiling=1e5, spent=1.2e5)
    stream.tell(events.HollowEnd, 119, limit="abandoned", work=("Task",))
    stream.tell(events.StreamEnded, 120, error=None, outcome="abandoned")


def cut(tape):
    """One whose record ends when its limit is reached."""
    stream = tape.stream("issue-7")
    stream.begins(0)
    stream.says(1, 2)
    stream.is_judged(182)


@pytest.fixture
def opened(browser, files):
    """Opens a run's page; in the end nothing was fetched and nothing went wrong."""
    pages = []

    def open_(name, **size):
        shown = Page(browser, **size)
        pages.append(shown)
        shown.open(files / f"{name}.html")
        if name != "empty":
            shown.until(IS_READY)
        return shown

    yield open_
    for shown in pages:
        assert [url for url in shown.requests() if not url.startswith(("file:", "data:"))] == []
        assert len([url for url in shown.requests() if url.startswith("file:")]) == 1
        assert shown.complaints() == []
        shown.close()


def plot(shown, lane=0):
    """Where a lane's picture is: left, top, width, height; scrolled into sight."""
    box = shown.ask(
        f"""(() => {{
            const svg = document.querySelector("#lane-{lane} svg");
            svg.scrollIntoView({{ block: "center" }});
            const box = svg.getBoundingClientRect();
            return [box.left, box.top, box.width, box.height];
        }})()"""
    )
    shown.until(f"document.querySelector('#lane-{lane} svg').firstChild")
    return box


def seconds(shown):
    """How long the stretch of time is that is shown, by the axis itself."""
    return shown.ask(
        """(() => {
            const shown = document.getElementById("window").width.baseVal.value;
            return shown / document.getElementById("overview").getBoundingClientRect().width;
        })()"""
    )


# -- the first second ------------------------------------------------------------------------------


def test_the_header_is_in_sight_before_anything_else(opened):
    """E5: what hung, since when, in flight, tried, left: without scrolling, on a laptop."""
    shown = opened("lost", width=1280, height=720)
    bottom = shown.ask('document.querySelector(".story").getBoundingClientRect().bottom')
    assert bottom < 720
    text = shown.ask('document.querySelector(".story").innerText')
    for answer in (
        "Since",
        "2025-11-18 03:22:04 UTC",
        "In flight",
        "Bash",
        "Tried",
        "Left",
        "STILL ALIVE",
    ):
        assert answer in text


def test_the_links_of_a_card_open_the_records(opened, files):
    """E5: in the browser's own reading of them, from where the page is."""
    shown = opened("told")
    links = shown.ask("[...document.querySelectorAll('.story a')].map((link) => link.href)")
    assert [url2pathname(urlsplit(link).path) for link in links] == [
        str(files / "told" / "build" / name)
        for name in (
            "receipts/implement-timeout.json",
            "llm/implement-partial.jsonl",
            "timeouts.jsonl",
        )
    ]
    assert shown.ask("[...document.querySelectorAll('.story a')].map((link) => link.text)") == [
        "receipt",
        "transcript",
        "log of timeouts",
    ]


@pytest.mark.parametrize("width", [390, 800, 1600])
def test_the_next_step_is_in_sight_and_can_be_copied_whole(opened, width):
    """E5: a command is wrapped, never cut; one click marks all of it, and nothing of another."""
    shown = opened("told", width=width)
    assert shown.ask("document.documentElement.scrollWidth") <= width
    wide = "[...document.querySelectorAll('.story pre')].map((pre) => pre.scrollWidth - pre.clientWidth)"
    assert shown.ask(wide) == [0, 0]
    left, top = shown.ask(
        """(() => {
            const pre = document.querySelector('.story pre');
            pre.scrollIntoView({ block: "center" });
            const box = pre.querySelector("code").getClientRects()[0];
            return [box.left + 5, box.top + 5];
        })()"""
    )
    held = {"button": "left", "clickCount": 1}
    shown.mouse("mousePressed", left, top, buttons=1, **held)
    shown.mouse("mouseReleased", left, top, **held)
    shown.settle()
    taken = shown.ask("getSelection().toString().trim()")
    assert taken == f"cd /srv/agents && claude --resume {TOKEN} -p Continue."


@pytest.mark.parametrize("width", [785, 800, 1600])
@pytest.mark.parametrize("run", ["told", "lost", "busy"])
def test_no_table_is_cut_off_at_its_right(opened, run, width):
    """E5: in half of a screen, with a scrollbar beside the page, too."""
    shown = opened(run, width=width)
    beyond = (
        "[...document.querySelectorAll('.scroll')].map((it) => it.scrollWidth - it.clientWidth)"
    )
    assert shown.ask(beyond) == [0, 0]


def test_a_flag_at_the_last_instant_is_seen_whole(opened):
    """E5"""
    shown = opened("cut", width=800)
    beyond = """(() => {
        const flag = document.querySelector('#lanes .flag').getBoundingClientRect();
        return flag.right - document.querySelector('#lanes svg').getBoundingClientRect().right;
    })()"""
    assert shown.ask(beyond) <= 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read_in_both_colour_schemes(opened, scheme):
    """E5: what text is made of stands out from what it stands on, by WCAG's measure."""
    shown = opened("lost")
    shown.prefer(scheme)
    shown.settle()
    paper, weakest = shown.ask(
        """(() => {
            const light = (css) => css.match(/[0-9.]+/g).slice(0, 3).map((v) => v / 255)
                .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
                .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
            const ground = (element) => {
                for (; element; element = element.parentElement) {
                    const colour = getComputedStyle(element).backgroundColor;
                    if (!colour.endsWith(", 0)")) return light(colour);
                }
            };
            const ratios = [...document.querySelectorAll("h1, h2, p, dt, dd, td, th, b, i, a, code, button, output, caption")]
                .filter((element) => element.innerText && element.getClientRects().length && element.id !== "said"
                    && !element.closest("#tip"))
                .map((element) => {
                    const [a, b] = [light(getComputedStyle(element).color), ground(element)];
                    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
                });
            return [light(getComputedStyle(document.documentElement).backgroundColor), Math.min(...ratios)];
        })()"""
    )
    assert (paper > 0.8) if scheme == "light" else (paper < 0.05)
    assert weakest >= 4.5


@pytest.mark.parametrize("width", [360, 768, 1920])
def test_it_fits_every_width(opened, width):
    """E5: nothing runs out of the page, and the picture takes what there is."""
    shown = opened("fleet", width=width)
    assert shown.ask("document.documentElement.scrollWidth") <= width
    assert plot(shown)[2] > width * 0.5


# -- hands -----------------------------------------------------------------------------------------


def test_what_is_under_the_pointer_is_told(opened):
    """E5: hover."""
    shown = opened("lost")
    left, top, width, height = plot(shown)
    assert shown.ask(TIP) == ""
    # 03:12:34.4 is the left edge: a hundredth of the run before its beginning.
    at = left + width * (95 + 801 * 0.012) / (801 * 1.024)
    shown.mouse("mouseMoved", at, top + height / 2)
    shown.settle()
    told = shown.ask(TIP)
    assert told.startswith("03:14:1")
    assert "issue-7" in told
    assert "Bash, 1 min 1 s" in told
    shown.mouse("mouseMoved", left + width * (30 + 801 * 0.012) / (801 * 1.024), top + 10)
    shown.settle()
    assert " messages within " in shown.ask(TIP)
    shown.mouse("mouseMoved", 5, 5)
    shown.settle()
    assert shown.ask(TIP) == ""


def test_what_gets_nowhere_is_marked_and_told(opened):
    """E5: each concern is a mark on the lane, says what it is under the pointer, and is in the table."""
    shown = opened("busy")
    left, top, width, height = plot(shown)
    drawn = 'document.querySelectorAll("#lane-0 svg line.concern").length'
    assert shown.ask(drawn) == 4
    shown.mouse("mouseMoved", left + width * 50 / 120, top + height / 2)
    shown.settle()
    assert "Bash failed in the same way 5 times in a row (limit repeats)" in shown.ask(TIP)
    assert "issue-7: finished in name only" in shown.ask("document.body.innerText")
    table = shown.ask('document.getElementById("events").parentElement.innerText')
    for said in ("tool silent", "tool repeats itself", "ceiling passed", "finished in name only"):
        assert said in table


def test_dragging_zooms_in_and_a_double_click_out(opened):
    """E5: zoom."""
    shown = opened("lost")
    left, top, width, height = plot(shown)
    whole, y = seconds(shown), top + height / 2
    shown.drag((left + width * 0.25, y), (left + width * 0.5, y))
    shown.until(f"{RANGE}.includes('3 min')")
    assert seconds(shown) == pytest.approx(whole / 4, rel=0.02)
    twice = {"button": "left", "buttons": 1, "clickCount": 2}
    shown.mouse("mousePressed", left + width / 2, y, **twice)
    shown.mouse("mouseReleased", left + width / 2, y, button="left", clickCount=2)
    shown.settle()
    assert seconds(shown) == pytest.approx(whole * 0.75, rel=0.02)


def test_the_wheel_zooms_only_with_ctrl(opened):
    """E5: the page can still be scrolled."""
    shown = opened("lost", height=500)
    left, top, width, _ = plot(shown)
    before = shown.ask(RANGE)
    shown.mouse("mouseWheel", left + width / 2, top + 20, deltaX=0, deltaY=-120, modifiers=2)
    shown.until(f"{RANGE} !== {before!r}")
    assert seconds(shown) < 0.7
    zoomed = shown.ask(RANGE)
    scrolled = shown.ask("scrollY")
    shown.mouse("mouseWheel", left + width / 2, top + 20, deltaX=0, deltaY=60)
    shown.until(f"scrollY !== {scrolled}")
    assert shown.ask(RANGE) == zoomed


def test_everything_can_be_done_by_keyboard(opened):
    """E5: in an order that makes sense; each step is said."""
    shown = opened("lost")
    reached = []
    for _ in range(10):
        shown.press("Tab")
        reached.append(
            shown.ask(
                "[document.activeElement].map((it) => it.id || it.getAttribute('aria-labelledby')"
                " || it.tagName)[0]"
            )
        )
    assert reached == [
        "PRE",  # the command that is next, which may be longer than its box
        "in",
        "out",
        "earlier",
        "later",
        "whole",
        "verdict",
        "lanes",
        "sessions",
        "events",
    ]
    shown.ask("document.getElementById('lanes').focus()")
    whole = shown.ask(RANGE)
    for key, sign in (("+", -1), ("+", -1), ("-", 1)):
        before = seconds(shown)
        shown.press(key)
        assert (seconds(shown) - before) * sign > 0
    before = shown.ask(RANGE)
    shown.press("ArrowRight")
    after = shown.ask(RANGE)
    assert after != before
    shown.press("ArrowLeft")
    assert shown.ask(RANGE) == before
    shown.press("Escape")
    assert shown.ask(RANGE) == whole
    shown.press("n")
    assert (
        shown.ask("document.getElementById('said').textContent")
        == "03:12:44, attempt 1, 8 min 25 s, failed"
    )
    assert "attempt 1" in shown.ask(TIP)
    shown.press("n")
    assert "Bash, 1 min 1 s" in shown.ask(TIP)
    shown.press("p")
    assert "Bash, 1 min 1 s" not in shown.ask(TIP)
    shown.press("Escape")
    assert shown.ask(TIP) == ""
    shown.press("v")
    assert "waited 200 s for Bash" in shown.ask(TIP)
    assert seconds(shown) < 0.6


def test_sessions_are_chosen_by_keyboard_and_come_into_sight(opened):
    """E5: of a hundred."""
    shown = opened("fleet", height=600)
    shown.ask("document.getElementById('lanes').focus()")
    chosen = 'document.getElementById("lanes").getAttribute("aria-activedescendant")'
    shown.press("ArrowDown")
    assert shown.ask(chosen) == "lane-1"
    shown.press("End")
    assert shown.ask(chosen) == "lane-99"
    shown.until('document.querySelectorAll("#lane-99 svg *").length > 0')
    box = shown.ask(
        "(b => [b.top, b.bottom])(document.getElementById('lane-99').getBoundingClientRect())"
    )
    assert box[0] >= 0
    assert box[1] <= 600
    assert shown.ask(
        "[...document.querySelectorAll('[aria-selected=true]')].map((e) => e.id)"
    ) == ["lane-99"]


def test_the_buttons_do_the_same(opened):
    """E5: for fingers, and for who uses neither mouse nor keys."""
    shown = opened("lost")
    whole = shown.ask(RANGE)
    for button in ("in", "later", "earlier", "out", "whole"):
        shown.ask(f"document.getElementById('{button}').click()")
        shown.settle()
    assert shown.ask(RANGE) == whole
    shown.ask("document.getElementById('verdict').click()")
    shown.until(f"{RANGE} !== {whole!r}")


def test_without_a_verdict_there_is_no_way_to_it(opened):
    """E5: a button that does nothing is none."""
    shown = opened("fine")
    assert shown.ask("document.getElementById('verdict').checkVisibility()") is False
    before = shown.ask(RANGE)
    shown.ask("document.getElementById('lanes').focus()")
    shown.press("v")
    assert shown.ask(RANGE) == before


# -- for who does not see --------------------------------------------------------------------------


def test_a_screen_reader_is_told_everything(opened):
    """E5: roles and names; the pictures' own elements are not in its way."""
    shown = opened("lost")
    named = shown.named()
    assert ("heading", "issue-7 hung") in named
    assert ("toolbar", "What is shown of the timeline") in named
    for button in ("Zoom in", "Zoom out", "Earlier", "Later", "Whole run", "To the limit"):
        assert ("button", button) in named
    assert ("listbox", "Sessions over time") in named
    options = [name for role, name in named if role == "option"]
    assert len(options) == 1
    assert options[0].startswith("issue-7: hung, ")
    assert options[0].endswith(" messages, 4 tool calls, 2 attempts, in 13 min 21 s")
    assert {("region", "Sessions"), ("region", "Events")} <= set(named)
    assert ("rowheader", "issue-7") in named
    for column in ("Session", "State", "Longest silence", "Time (UTC)", "Details"):
        assert ("columnheader", column) in named
    assert not [role for role, _ in named if role in ("img", "SvgRoot", "graphics-symbol")]
    assert shown.ask("document.documentElement.lang") == "en"


# -- bounds ----------------------------------------------------------------------------------------


def test_a_million_messages_are_drawn_with_few_elements(opened):
    """E5: their number depends on the screen: lanes in sight, and pixels."""
    shown = opened("fleet")
    shown.ask("document.getElementById('lanes').scrollIntoView()")
    shown.ask("document.getElementById('lanes').focus()")
    shown.until(NEAR_IS_DRAWN)
    in_sight = shown.ask(
        "[...document.querySelectorAll('#lanes svg')].filter((svg) => svg.firstChild).length"
    )
    counts = [shown.ask(DRAWN)]
    assert 10 < in_sight <= (900 + 400) / 44 + 1
    for _ in range(12):
        shown.press("+")
        counts.append(shown.ask(DRAWN))
    assert seconds(shown) < 0.01
    assert max(counts) <= in_sight * 450
    shown.press("0")
    assert shown.ask(DRAWN) == counts[0]
    shown.ask("document.querySelector('#lane-60').scrollIntoView()")
    shown.until(
        "document.querySelector('#lane-60 svg').firstChild && !document.querySelector('#lane-0 svg').firstChild"
    )
    assert shown.ask(DRAWN) <= in_sight * 450


def test_a_lane_with_all_that_it_can_hold(opened):
    """E5: four thousand calls, holds and silences at once; near and far."""
    shown = opened("dense")
    shown.ask("document.getElementById('lanes').focus()")
    most = 0
    for _ in range(14):
        most = max(most, shown.ask(DRAWN))
        shown.press("+")
    assert 100 < most < 5000


def test_names_stay_names(opened):
    """E3: nothing of them runs; and what they would fetch is not fetched (see `opened`)."""
    shown = opened("evil")
    left, top, width, height = plot(shown)
    for share in (0.1, 0.2, 0.5, 0.9):
        shown.mouse("mouseMoved", left + width * share, top + height / 2)
        shown.settle()
    options = [name for role, name in shown.named() if role == "option"]
    assert any("<script>alert(1)</script>" in name for name in options)
    assert shown.ask("document.images.length") == 0


# -- elsewhere -------------------------------------------------------------------------------------


def test_an_empty_run_is_a_page_all_the_same(opened):
    """E5: without an error."""
    assert "Nothing was recorded" in opened("empty").ask("document.body.innerText")


def test_without_scripts_the_tables_say_it(browser, files):
    """E5: as in the preview of a mail."""
    shown = Page(browser)
    shown.call("Emulation.setScriptExecutionDisabled", value=True)
    shown.open(files / "lost.html")
    names = {name for _, name in shown.named()}
    assert any("The tables below say the same" in name for name in names)
    assert ("rowheader", "issue-7") in shown.named()
    shown.close()


def test_a_print_has_every_lane(opened):
    """E5: also those that are not in sight."""
    shown = opened("fleet")
    shown.ask("dispatchEvent(new Event('beforeprint'))")
    assert (
        shown.ask(
            "[...document.querySelectorAll('#lanes svg')].filter((svg) => svg.firstChild).length"
        )
        == 100
    )
    width = plot(shown)[2]
    boxes = shown.ask(
        "[...document.querySelectorAll('#lanes svg')].map((svg) => svg.viewBox.baseVal.width)"
    )
    assert boxes == [pytest.approx(width, abs=1)] * 100  # so that it is shrunk to the paper


@pytest.mark.parametrize("name", ["lost", "fleet", "evil"])
def test_the_svg_is_legible_at_its_own_width(browser, files, name):
    """E5: no text is cut off or small, as it is really set."""
    shown = Page(browser, width=1000)
    shown.open(files / f"{name}.svg")
    texts = shown.ask(
        """[...document.querySelectorAll("text")].map((text) => {
            const box = text.getBoundingClientRect();
            return [box.left, box.right, parseFloat(getComputedStyle(text).fontSize), text.textContent];
        })"""
    )
    assert len(texts) > 15
    assert [text for text in texts if text[0] < 0 or text[1] > 1000 or text[2] < 11] == []
    assert shown.complaints() == []
    assert len(shown.requests()) == 1
    shown.close()
