"""Scenarios: what a command does, who reads it, which limits there are, which signals come when.

A scenario is a plain JSON value, drawn from a `Random` alone:

    steps     the command's (see `child`)
    options   words of `run`, by name: a value, or True for a flag; `transcript` is a file that the
              command writes ("log"), or what may be in its place (`TRANSCRIPTS`)
    out, err  what standard output and error are (`READERS`, `LISTENERS`)
    signals   [milliseconds since the start, name] that `run` is sent
    status    where the status file goes, or None
    company   whether a stranger leads the process group that `run` is in

Each can come to an end: where the command does not end by itself, or somebody may make it wait,
there is a `total`. Knows no processes.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Generator, Iterable
from random import Random
from typing import Any

Scenario = dict[str, Any]

READERS = {
    "eager": 34,
    "slow": 8,
    "late": 7,  # reads only when `run` is over
    "gone": 7,  # leaves after some bytes
    "file": 10,
    "append": 4,
    "full": 5,  # /dev/full
    "small": 5,  # a file that may not grow beyond 20,000 bytes
    "socket": 6,
    "pty": 5,
    "terminal": 9,  # the terminal of the session, at all three descriptors
    "closed": 3,
}
LISTENERS = {"read": 40, "file": 20, "never": 25, "closed": 8, "same": 7}
STATUS = {None: 20, "plain": 50, "fifo": 10, "descriptor": 8, "nowhere": 6, "link": 6}
# What is at its place at the start: nothing, what an earlier session wrote, or no file at all.
TRANSCRIPTS = {"new": 60, "begun": 25, "fifo": 8, "folder": 7}
LOGGED = ('{"a": 1}', "no JSON", "")
# A reader like this takes everything at once, so the command waits for nobody.
TAKES_ALL = ("eager", "file", "append", "full", "socket", "closed")

SESSION = "0b7e4e7e-5a0f-4d3f-9d55-6a1f7f8f0001"
_AGENT = {
    "opens": {"type": "system", "subtype": "init", "session_id": SESSION},
    "text": {
        "type": "assistant",
        "session_id": SESSION,
        "message": {"content": [{"type": "text", "text": "Looking."}]},
    },
    "tool": {
        "type": "assistant",
        "session_id": SESSION,
        "message": {"content": [{"type": "tool_use", "id": "t1", "name": "Bash"}]},
    },
    "tool done": {
        "type": "user",
        "session_id": SESSION,
        "message": {"content": [{"type": "tool_result", "tool_use_id": "t1"}]},
    },
    "result": {"type": "result", "subtype": "success", "is_error": False, "session_id": SESSION},
    "failure": {
        "type": "result",
        "subtype": "error_during_execution",
        "is_error": True,
        "session_id": SESSION,
    },
}
AGENT = {name: json.dumps(line) for name, line in _AGENT.items()}


def draw(source: Random) -> Scenario:
    scenario: Scenario = {
        "steps": _steps(source),
        "options": _options(source),
        "out": _weighted(source, READERS),
        "err": _weighted(source, LISTENERS),
        "signals": _signals(source),
        "status": _weighted(source, STATUS),
        "company": source.random() < 0.3,
    }
    if "transcript" in scenario["options"]:
        steps = scenario["steps"]
        steps.insert(source.randrange(len(steps) + 1), ["log", source.choice(LOGGED)])
    if scenario["out"] == "terminal":
        scenario["err"] = "terminal"
        if source.random() < 0.6:
            scenario["options"]["pty"] = True
            scenario["options"].pop("foreground", None)
        if source.random() < 0.5:
            scenario["steps"].insert(0, ["tty"])
    return bounded(scenario)


def is_refused(scenario: Scenario) -> bool:
    """Whether a limit is asked for that cannot be measured, or a file that cannot be looked at."""
    options = scenario["options"]
    if options.get("transcript") in ("fifo", "folder"):
        return True
    on_output = {"tools", "exit-grace"} & set(options)
    if "first-json" in options and "transcript" not in options:
        on_output.add("first-json")
    return scenario["out"] == "closed" and bool(on_output)


def bounded(scenario: Scenario) -> Scenario:
    """With a `total`, where nothing else sees to its end."""
    options = scenario["options"]
    waits = scenario["out"] not in TAKES_ALL or scenario["err"] not in ("read", "file", "closed")
    waits |= any(step[0] in ("hang", "stop") for step in every_step(scenario["steps"]))
    waits |= "retries" in options or any(name == "STOP" for _, name in scenario["signals"])
    if waits and "total" not in options:
        options["total"] = 0.9
    return scenario


def without(scenario: Scenario, words: Iterable[str]) -> Scenario:
    """The same with nothing of what is left out: what is known to be at fault hides the rest."""
    words = set(words)
    for key in ("out", "err", "status"):
        if scenario[key] in words:
            scenario[key] = _SIMPLEST[key]
    if words & {name for _, name in scenario["signals"]}:
        scenario["signals"] = []
    for name in words & set(scenario["options"]):
        del scenario["options"][name]
    return bounded(scenario)


def is_valid(scenario: Scenario) -> bool:
    """Whether a scenario that was made smaller still comes to an end."""
    return bounded(copy.deepcopy(scenario)) == scenario and all(
        step and isinstance(step[0], str) for step in every_step(scenario["steps"])
    )


def every_step(steps: list[list[Any]]) -> Generator[list[Any], None, None]:
    """All of them, those of children included."""
    for step in steps:
        yield step
        if isinstance(step[-1], list):
            yield from every_step(step[-1])


def _steps(source: Random) -> list[list[Any]]:
    steps: list[list[Any]] = []
    names = iter("abcdefghij")
    kind = source.random()
    if kind < 0.3:
        said = ["opens", *source.choices([*AGENT], k=source.randint(0, 4))]
        for name in said:
            steps.append(["say", AGENT[name]])
            if source.random() < 0.5:
                steps.append(["sleep", source.choice([5, 30, 120, 300])])
    for _ in range(source.randint(0, 5)):
        steps.append(_step(source, names, depth=0))
    if source.random() < 0.08 and not any(s[0] in ("fork", "daemon") for s in steps):
        steps.append(["raw", source.choice([1, 700, 70_000])])
    end = source.random()
    if end < 0.42:
        steps.append(["hang"])
    elif end < 0.47:
        steps.append(["stop"])
    elif end < 0.75:
        steps.append(["exit", source.choice([0, 0, 0, 1, 3, 77, 124, 125, 137, 143])])
    elif end < 0.82:
        steps.append(["die", source.choice([15, 9, 2, 1, 11, 6, 10])])
    if source.random() < 0.1:
        at = source.randrange(len(steps) + 1)
        steps = [*steps[:at], ["bare", steps[at:]]]
    return steps


def _step(source: Random, names: Any, depth: int) -> list[Any]:
    kind = source.random()
    if kind < 0.3:
        return ["out", source.choice([1, 1, 3, 40, 200, 600])]
    if kind < 0.38:
        return ["err", source.choice([1, 1, 3, 200, 400])]
    if kind < 0.58:
        return ["sleep", source.choice([2, 20, 60, 120, 250, 400])]
    if kind < 0.64:
        return ["deaf"]
    if kind < 0.65:
        return ["log", source.choice(LOGGED)]
    if kind < 0.68:
        return ["close"] if depth == 0 else ["setsid"]
    if kind < 0.71:
        return ["setsid"]
    if depth >= 2 or (name := next(names, None)) is None:
        return ["sleep", 20]
    inner = [_step(source, names, depth + 1) for _ in range(source.randint(0, 3))]
    inner += [["hang"]] if source.random() < 0.75 else []
    if source.random() < 0.08:
        inner = [["stop"], *inner]
    if source.random() < 0.3:
        inner = [["bare", inner]]
    return ["fork" if source.random() < 0.5 else "daemon", name, inner]


def _options(source: Random) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name, chance in (("idle", 0.5), ("first", 0.25), ("total", 0.35), ("tools", 0.15)):
        if source.random() < chance:
            options[name] = source.choice([0.2, 0.3, 0.4, 0.6])
    if "total" in options:
        options["total"] += source.choice([0, 0.3])
    if source.random() < 0.15:
        options["exit-grace"] = source.choice([0.1, 0.3])
    if source.random() < 0.08:
        options["turn"] = source.choice([0.3, 0.5])
    if source.random() < 0.12:
        options["first-json"] = source.choice([0.2, 0.4])
    if source.random() < 0.12:
        options["transcript"] = _weighted(source, TRANSCRIPTS)
    options["kill-after"] = source.choice([0.1, 0.2, 0.4])
    for name, chance in (
        ("reap", 0.3),
        ("preserve-status", 0.1),
        ("foreground", 0.12),
        ("verbose", 0.2),
    ):
        if source.random() < chance:
            options[name] = True
    if "foreground" not in options and source.random() < 0.1:
        options["pty"] = True
    if source.random() < 0.15:
        options |= {"retries": source.choice([1, 2]), "backoff": "0"}
    if source.random() < 0.1:
        options["errors"] = "json"
    if source.random() < 0.12:
        options["record"] = "evidence"
    if source.random() < 0.1:
        options["signal"] = source.choice(["INT", "HUP", "KILL", "USR1"])
    return options


def _signals(source: Random) -> list[list[Any]]:
    if source.random() < 0.62:
        return []
    kinds = [["TERM"], ["TERM"], ["INT"], ["INT", "INT"], ["HUP"], ["STOP", "CONT"], ["USR1"]]
    kinds += [["KILL"], ["KILL"], ["QUIT"], ["TSTP", "CONT"], ["TERM", "KILL"], ["WINCH"]]
    instant, signals = source.randrange(0, 800), []
    for name in source.choice(kinds):
        signals.append([instant, name])
        instant += source.choice([1, 20, 150])
    return signals


def _weighted(source: Random, table: dict[Any, int]) -> Any:
    return source.choices([*table], weights=[*table.values()])[0]


# -- smaller ones ----------------------------------------------------------------------------

_SIMPLEST = {"out": "eager", "err": "read", "signals": [], "status": None, "company": False}


def simpler(scenario: Scenario) -> Generator[Scenario, None, None]:
    """Scenarios that ask less: fewer steps, fewer options, simpler readers, fewer bytes."""
    for key, least in _SIMPLEST.items():
        if scenario[key] != least:
            yield {**scenario, key: copy.deepcopy(least)}
    for name in scenario["options"]:
        options = {key: value for key, value in scenario["options"].items() if key != name}
        yield {**scenario, "options": options}
    for i in range(len(scenario["signals"])):
        yield {**scenario, "signals": scenario["signals"][:i] + scenario["signals"][i + 1 :]}
    for steps in _fewer(scenario["steps"]):
        yield {**scenario, "steps": steps}


def _fewer(steps: list[list[Any]]) -> Generator[list[list[Any]], None, None]:
    for i, step in enumerate(steps):
        before, after = steps[:i], steps[i + 1 :]
        yield before + after
        if step[0] == "bare":
            yield before + step[1] + after
        if isinstance(step[-1], list):
            for inner in _fewer(step[-1]):
                yield [*before, [*step[:-1], inner], *after]
        elif step[0] in ("out", "err", "raw") and step[1] > 1:
            yield [*before, [step[0], step[1] // 4 or 1], *after]
