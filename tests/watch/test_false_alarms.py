"""Limits on progress tell what gets nowhere at its number, and of what gets somewhere never (B1, B2, B3, B4).

A false kill costs more than a missed loop, so this is the measure: healthy sessions by the thousand, each
message that any test of a reader knows, and each shape that users complain about.
"""

from __future__ import annotations

import json
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

from streamguard._base import defaults
from streamguard._watch.in_flight import InFlight
from streamguard._watch.watch import Due, Found, Limits, Watch
from streamguard.backends import NAMES, find, resolve
from streamguard.signals import Progress, WorkFinished, WorkProgressed
from tests.backends.reading import said as said_by
from tests.models import healthy
from tests.sizes import size

RECORDED = Path(__file__).parents[1] / "real" / "recorded"
TOLD = {"quiet": defaults.QUIET, "repeats": defaults.REPEATS}


class Fed:
    """A watch that is fed a session, each message at its time, and all that it finds meanwhile."""

    def __init__(self, **limits):
        self.watch = Watch(Limits(gate=True, tools=None, half_time=False, **limits))
        self.now = 0.0
        self.found: list[tuple[float, int, Found | Due]] = []
        self.watch.begin(0.0)
        self.watch.asked(0.0)

    def feed(self, session):
        for number, (after, signals) in enumerate(session, 1):
            self._pass(self.now + after, number)
            self.watch.answered(self.now)
            self.watch.see(signals, self.now)
            self._take(number)
            if self.watch.struck is not None:
                return self
            self.watch.asked(self.now)
        return self

    def _pass(self, until, number):
        while (deadline := self.watch.deadline()) <= until:
            self.now = max(self.now, deadline)
            judged = self.watch.judge(self.now)
            if isinstance(judged, Due):
                self.found.append((self.now, number, judged))
                self.watch.mute(judged)
            elif judged is not None:
                self.found.append((self.now, number, judged))
            else:
                break
        self.now = until

    def _take(self, number):
        self.found += [(self.now, number, each) for each in self.watch.found]
        self.watch.found = ()

    @property
    def limits(self):
        """What was found, in its order."""
        return [each.limit for _, _, each in self.found]


# --- what gets somewhere ------------------------------------------------------------------------


@pytest.mark.parametrize("block", range(10))
def test_no_healthy_session_is_told_of(block):
    """B1, B2, B3: 10,000 of them in CI."""
    seeds = range(1_000 * block, 1_000 * block + size(dev=50, ci=1_000))
    messages = 0
    for seed in seeds:
        session = healthy.session(seed)
        fed = Fed(**TOLD).feed(session)
        assert fed.found == [], f"healthy session {seed}"
        assert fed.watch.abandoned == (), f"healthy session {seed}"
        messages += len(session)
    assert messages > 100 * len(seeds)


def test_each_doing_of_a_healthy_agent_is_in_those_sessions(monkeypatch):
    done = Counter()
    doings = [doing.__name__ for doing in healthy.Agent(0).doings]

    def counted(name, doing):
        def do(agent, **more):
            done[name] += 1
            return doing(agent, **more)

        return do

    for name in doings:
        monkeypatch.setattr(healthy.Agent, name, counted(name, getattr(healthy.Agent, name)))
    for seed in range(100):
        healthy.session(seed)
    assert len(doings) == 15
    assert min(done[name] for name in doings) > 20


@pytest.mark.parametrize("path", sorted(RECORDED.glob("*.jsonl")), ids=lambda path: path.stem)
def test_no_line_of_a_real_command_line_is_told_of(path):
    """B1, B2, B3: whether they come at once, or a minute after one another."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    backend = find(lines[0])
    # What was recorded for that is told, as far as it can be seen.
    may_be = {"empty"} if path.stem.endswith("-empty") else set()
    for after in (0.1, 60.0):
        session = [(after, tuple(said_by(backend, line))) for line in lines]
        assert set(Fed(**TOLD).feed(session).limits) <= may_be


# Where the tests of each reader have what they read; of LangGraph with its mode before it.
TABLES = {
    "acp": ("MESSAGES",),
    "anthropic": ("EVENTS",),
    "claude": ("BOTH_FORMS", "WIRE_ONLY", "GARBAGE"),
    "codex": ("LINES", "NOTIFICATIONS"),
    "gemini": ("LINES",),
    "google_adk": ("EVENTS",),
    "google_genai": ("CHUNKS",),
    "langgraph": ("PAYLOADS",),
    "openai": ("RESPONSES", "CHATS"),
    "openai_agents": ("EVENTS",),
    "pydantic_ai": ("EVENTS",),
}
WITHOUT = {
    "kimi",
    "litellm",
    "qwen",
}  # tables of another kind; their readers are measured by those above


def lines_in(name):
    module = import_module(f"tests.backends.test_{name}")
    for table in TABLES[name]:
        for row in getattr(module, table).values():
            yield row[:2] if name == "langgraph" else row[0]


def test_no_backend_is_left_out():
    recorded = {path.stem.partition("-")[0] for path in RECORDED.glob("*.jsonl")}
    assert set(TABLES) | recorded >= NAMES - {"litellm"}  # whose lines are OpenAI's


@pytest.mark.parametrize("name", TABLES)
def test_no_message_that_the_tests_of_a_reader_know_is_told_of(name):
    """B1, B2: one behind the other, though no agent would ever say them so; twice, as ids come again."""
    backend = resolve(name)
    session = [(10.0, tuple(said_by(backend, line))) for line in lines_in(name)]
    assert len(session) > 10
    limits = Fed(**TOLD).feed([*session, *session]).limits
    assert not {"quiet", "repeats"} & set(limits)


def test_control_the_same_sessions_are_told_of_where_their_outcomes_are_taken_away():
    """The generator would find a detector that looks at names and shapes alone."""

    def without_input(signal):
        same = {"input": 1} if hasattr(signal, "input") else {}
        same |= {"outcome": 1} if isinstance(signal, WorkFinished) else {}
        fields = {n: getattr(signal, n) for n in type(signal).__dataclass_fields__}
        return type(signal)(**{**fields, **same})

    told = 0
    for seed in range(60):
        session = [(s.after, tuple(map(without_input, s.signals))) for s in healthy.session(seed)]
        told += "repeats" in Fed(**TOLD).feed(session).limits
    assert told > 20


def test_control_sub_agents_are_told_of_where_their_window_is_too_short():
    told = sum("quiet" in Fed(quiet=60.0).feed(healthy.session(seed)).limits for seed in range(60))
    assert told > 10


def test_control_sub_agents_in_the_background_are_told_of_if_their_tools_are_nobodys(monkeypatch):
    """Their tools are begun by a call that is over: as nobody's, they would not speak for their task."""
    monkeypatch.setattr(InFlight, "goes_on_as", lambda _, id_: id_)
    told = 0
    for seed in range(200):
        agent = healthy.Agent(seed)
        session = agent.sub_agent_in_the_background()
        # Its lines name both: the call, and its task.
        (task,) = {s.id for s in healthy.signals_in(session) if s.id.startswith("task:")}
        named = [(after, (*signals, WorkProgressed(task))) for after, signals in session[2:-2]]
        told += "quiet" in Fed(**TOLD).feed([*session[:2], *named, *session[-2:]]).limits
    assert told > 20


# --- what does not ------------------------------------------------------------------------------


@pytest.mark.parametrize("times", [2, 3, 7, defaults.REPEATS, 50])
@pytest.mark.parametrize("shape", [healthy.equal_calls, healthy.failing_calls, healthy.launches])
def test_220_equal_calls_are_told_once_at_their_number(shape, times):
    """B2: the n-th is told, when it is over, and none before it or behind it."""
    session = shape(220)
    fed = Fed(repeats=times).feed(session)
    ((_, number, found),) = fed.found
    assert (found.limit, found.amount, len(found.names)) == ("repeats", times, 1)
    calls = len(session) // 220
    assert (number - 1) // calls == times - 1
    assert found.is_error is (shape is healthy.failing_calls)


@pytest.mark.parametrize("times", [3, defaults.REPEATS])
@pytest.mark.parametrize("length", [2, 3, 4])
def test_a_cycle_is_told_at_the_end_of_its_round(length, times):
    """B2"""
    ((_, number, found),) = Fed(repeats=times).feed(healthy.cycle(length, 220)).found
    assert (found.limit, len(found.names)) == ("repeats", length)
    assert number == 2 * length * times


def of_claude(n):
    meta = {"session_id": "s", "uuid": f"u{n}", "timestamp": f"2026-01-01T00:00:{n % 60}Z"}
    call = {"type": "tool_use", "id": f"toolu_{n}", "name": "Bash", "input": {"command": "ls"}}
    message = {"id": f"msg_{n}", "content": [call], "usage": {"input_tokens": n}}
    yield {"type": "assistant", "message": message, **meta}
    gave = {"type": "tool_result", "tool_use_id": f"toolu_{n}", "content": f"saved to /{n}.txt"}
    beside = {"stdout": "much", "stderr": "", "persistedOutputPath": f"/{n}.txt"}
    yield {"type": "user", "message": {"content": [gave]}, "tool_use_result": beside, **meta}


def of_claude_in_the_background(n):
    call, over = of_claude(n)
    over["tool_use_result"] = {"stdout": "", "stderr": "", "backgroundTaskId": f"b{n}"}
    task = {"subtype": "task_started", "task_id": f"b{n}", "is_backgrounded": True}
    return call, {"type": "system", "session_id": "s", **task}, over


def of_codex(n):
    item = {"id": f"item_{n}", "type": "command_execution", "command": "ls"}
    yield {"type": "item.started", "item": {**item, "aggregated_output": "", "exit_code": None}}
    yield {"type": "item.completed", "item": {**item, "aggregated_output": "a", "exit_code": 0}}


def of_codexs_server(n):
    item = {"id": f"call_{n}", "type": "commandExecution", "command": "ls", "processId": f"{n}"}
    over = {**item, "aggregatedOutput": "a", "exitCode": 0, "durationMs": n}
    params = {"threadId": "t", "turnId": "u", "startedAtMs": n}
    yield {"method": "item/started", "params": {**params, "item": item}}
    yield {"method": "item/completed", "params": {**params, "item": over}}


def of_gemini(n):
    line = {"tool_id": f"t{n}", "tool_name": "ls", "timestamp": f"2026-01-01T00:00:{n % 60}Z"}
    yield {"type": "tool_use", **line, "parameters": {"path": "."}}
    yield {"type": "tool_result", **line, "status": "success", "output": "a"}


def of_acp(n):
    call = {"toolCallId": f"c{n}", "kind": "execute", "title": "ls"}
    shown = [{"type": "content", "content": {"type": "text", "text": "a"}}]
    screen = {"type": "terminal", "terminalId": f"term-{n}"}
    yield {"sessionId": "s", "update": {"sessionUpdate": "tool_call", **call}}
    over = {**call, "status": "completed", "content": [*shown, screen]}
    yield {"sessionId": "s", "update": {"sessionUpdate": "tool_call_update", **over}}


def of_openai(n):
    item = {"type": "mcp_call", "id": f"mcp_{n}", "name": "roll", "arguments": ""}
    yield {"type": "response.output_item.added", "sequence_number": n, "item": item}
    yield {"type": "response.mcp_call.completed", "sequence_number": n, "item_id": f"mcp_{n}"}
    done = {**item, "arguments": "{}", "output": "6"}
    yield {"type": "response.output_item.done", "sequence_number": n, "item": done}


def of_adk(n):
    event = {"invocationId": "e", "author": "a", "id": f"{n}", "timestamp": n}
    call = {"functionCall": {"id": f"fc{n}", "name": "w", "args": {"a": 1}}}
    over = {"functionResponse": {"id": f"fc{n}", "response": {"w": 1}}}
    yield {**event, "content": {"parts": [call]}}
    yield {**event, "content": {"parts": [over]}}


def of_pydantic_ai(n):
    part = {"tool_name": "w", "tool_call_id": f"t{n}", "timestamp": n}
    yield {"event_kind": "function_tool_call", "part": {**part, "args": {"a": 1}}}
    yield {"event_kind": "function_tool_result", "part": {**part, "content": "sunny"}}


def of_langgraph(n):
    calls = [{"id": f"t{n}", "name": "w", "args": {"a": 1}}]
    model = {"type": "ai", "content": "", "id": f"run-{n}", "tool_calls": calls}
    answer = {"type": "tool", "content": "sunny", "id": f"m-{n}", "tool_call_id": f"t{n}"}
    yield ("updates", {"agent": {"messages": [model]}})
    yield ("updates", {"tools": {"messages": [answer]}})


def of_openai_agents(n):
    call = {"type": "function_call", "call_id": f"call_{n}", "name": "f", "arguments": "{}"}
    over = {"type": "function_call_output", "call_id": f"call_{n}"}
    event = {"type": "run_item_stream_event"}
    yield {**event, "name": "tool_called", "item": {"raw_item": call}}
    yield {**event, "name": "tool_output", "item": {"raw_item": over, "output": "x"}}


LOOPS = {
    "claude": of_claude,
    "claude, in the background": of_claude_in_the_background,
    "codex": of_codex,
    "codex, the app-server": of_codexs_server,
    "gemini": of_gemini,
    "acp": of_acp,
    "openai": of_openai,
    "google_adk": of_adk,
    "pydantic_ai": of_pydantic_ai,
    "langgraph": of_langgraph,
    "openai_agents": of_openai_agents,
}


@pytest.mark.parametrize("what", LOOPS)
def test_220_equal_calls_are_told_at_their_number_whosever_they_are(what):
    """B2: though ids, times and names of files are others each time."""
    backend = resolve(what.partition(",")[0])
    calls = [list(LOOPS[what](n)) for n in range(220)]
    lines = [line for call in calls for line in call]
    session = [(1.0, tuple(said_by(backend, line))) for line in lines]
    told = [(n, each) for _, n, each in Fed(**TOLD).feed(session).found if each.limit == "repeats"]
    ((number, found),) = told
    assert found.amount == defaults.REPEATS
    assert (number - 1) // len(calls[0]) == defaults.REPEATS - 1


def test_one_time_less_is_nothing():
    """B2: the control of the numbers above."""
    less = defaults.REPEATS - 1
    for session in (healthy.equal_calls(less), *(healthy.cycle(n, less) for n in (2, 3, 4))):
        assert Fed(**TOLD).feed(session).found == []


def test_a_dead_sub_agent_behind_one_that_talks_is_named_at_its_window():
    """B1: 900 s after its last word, though the other talks, and a timer beats for both."""
    fed = Fed(**TOLD).feed(healthy.dead_behind_a_talker(2 * healthy.HOUR))
    ((at, _, found),) = fed.found
    assert (found.limit, found.key, at) == ("quiet", "dead", 60.0 + defaults.QUIET)


def test_a_slow_drip_is_what_turn_is_for():
    """Words are no loop: under `idle=60` one every 59 s is a stream that works, for as long as a turn may last."""
    session = healthy.slow_drip(59.0, 10 * healthy.HOUR)
    assert Fed(idle=60.0, **TOLD).feed(session).found == []
    (at, _, found), *_ = Fed(idle=60.0, turn=healthy.HOUR, **TOLD).feed(session).found
    assert (found.limit, at) == ("turn", healthy.HOUR)


@pytest.mark.parametrize("says_so", [True, False])
def test_an_empty_success_is_told_with_its_end(says_so):
    """B3"""
    fed = Fed(**TOLD).feed(healthy.empty_success(says_so=says_so))
    assert [(number, each.limit) for _, number, each in fed.found] == [(2, "empty")]
    assert fed.watch.ended_empty


@pytest.mark.parametrize("name", ["claude-empty", "codex-empty", "opencode-empty"])
def test_the_empty_success_of_a_real_command_line_is_told_with_its_end(name):
    """B3"""
    lines = [json.loads(line) for line in (RECORDED / f"{name}.jsonl").read_text().splitlines()]
    backend = find(lines[0])
    fed = Fed(**TOLD).feed([(1.0, tuple(said_by(backend, line))) for line in lines])
    assert fed.limits == ["empty"]


def test_background_work_that_is_dropped_is_known_at_the_end():
    """B3"""
    fed = Fed(**TOLD).feed(healthy.abandoned())
    assert fed.watch.completed
    assert fed.watch.abandoned == ("local_bash",)


@pytest.mark.parametrize(
    ("limit", "ceiling", "at"), [("tokens", 1_000, 11), ("cost", 0.5, 6), ("calls", 7, 8)]
)
def test_spending_that_runs_away_is_told_at_the_first_message_beyond(limit, ceiling, at):
    """B4: counts that are told twice, or for all so far, are counted once."""
    session = healthy.runaway(200, tokens=100, cost=0.1)
    fed = Fed(ceilings={limit: ceiling}).feed(session)
    assert [(number, each.limit) for _, number, each in fed.found] == [(at, limit)]


def test_what_is_fed_is_what_was_meant():
    """The shapes have as many messages, and as much work, as they say."""
    begun = [s for s in healthy.signals_in(healthy.equal_calls(220)) if hasattr(s, "input")]
    assert len(begun) == 220
    assert Progress() in healthy.signals_in(healthy.slow_drip(59.0, 600.0))
