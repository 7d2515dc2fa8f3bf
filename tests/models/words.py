"""The explorer of what sessions overcome where the user has a word for it: an unknown session, a usage limit.

Up to the first of these a session is what it is without, and the model says what that is. From there on: a session is begun
afresh where its backend has said that it does not know it, once, and never after a tool call; a limit is waited out to its
end, and not beyond the bound; and nothing else changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from random import Random
from typing import Any, ClassVar

from streamguard import reconnecting_resume
from tests.models.explorer import Complaint, Schedule
from tests.models.session_world import ERRORS, StatusError, World
from tests.models.sessions import Sessions, turns_of

LIMIT = 400.0  # seconds; more than any retry waits
TOKENS = ("s1", "s2", "s3")


def _limited() -> Exception:
    error = StatusError(429)
    error.retry_after = LIMIT  # type: ignore[attr-defined]
    return error


def _forgotten() -> Exception:
    text = "\n".join(f"No conversation found with session ID: {token}" for token in TOKENS)
    return RuntimeError(text)


ERRORS.update({"limited": _limited, "forgotten": _forgotten})
ENDS = (
    ["say", "unknown:", "done:error"],
    ["raise", "forgotten"],
    ["say", f"limit:{LIMIT:g}", "done:error"],
    ["raise", "limited"],
)


class WordedWorld(World):
    """A world whose user has said more."""

    def operator(self) -> Any:
        operator = super().operator()
        word = self.plan["word"]
        settings = operator.plan.reconnecting
        said = reconnecting_resume(
            policy=settings.policy,
            prompt=settings.prompt,
            fresh_if_unknown=word["fresh"],
            wait_for_limit=word["wait"],
        ).plan.reconnecting
        return type(operator)(replace(operator.plan, reconnecting=said), repr(operator))


class Worded(Sessions):
    """Sessions with these two words, and backends that want them."""

    name = "word"
    simplest: ClassVar[Mapping[str, Any]] = {**Sessions.simplest}

    def draw(self, random: Random) -> Schedule:
        schedule = super().draw(random)
        some = random.random
        schedule["keys"] = None
        usual = {"retries": 2, "backoff": [0, 5, 15], "in_a_row": 10, "reconnects": 50}
        schedule["retry"] = schedule["retry"] or usual
        if schedule["total"] is not None:
            schedule["total"] = random.choice((6, 500, 1000))
        wait = random.choice((None, 300, 500, 900))
        schedule["word"] = {"fresh": some() < 0.7, "wait": wait}
        for attempt in schedule["attempts"]:
            for number, turn in enumerate(attempt["turns"]):
                if some() < 0.6:
                    steps = [step for step in turn[:-1] if "done" not in step[-1:]]
                    attempt["turns"][number] = [*steps, list(random.choice(ENDS))]
        return schedule

    def is_valid(self, schedule: Schedule) -> bool:
        return super().is_valid(schedule) and bool(schedule.get("word") and schedule["retry"])

    def world_of(self, plan: Schedule, native: bool) -> World:
        return WordedWorld(plan, native)

    def judge_more(self, world: World) -> list[Complaint]:
        return [Complaint("waits", each) for each in _waits(world)]


def _waits(world: World) -> Iterator[str]:
    """P2: as long as it lasts, and no longer than was said."""
    wait = world.plan["word"]["wait"]
    if wait is None:
        return
    for turn in turns_of(world):
        over, latest = None, -1
        for entry in turn:
            if entry[1] == "open":
                if over is not None and entry[0] < over:
                    yield f"connection {entry[2]} was opened at {entry[0]}, its limit is over at {over}"
                if over is not None and wait < LIMIT:
                    yield f"{LIMIT:g} s were waited for a limit, and {wait} are allowed"
                over, latest = None, entry[2]
            is_raised = entry[1] == "raised" and entry[3] == "limited" and entry[2] == latest
            is_said = entry[1] == "said" and entry[3][0].startswith("limit:")
            if is_raised or (is_said and int(entry[2].partition(".")[0]) == latest):
                over = entry[0] + LIMIT


SUBJECTS = (Worded(),)
