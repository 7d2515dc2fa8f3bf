"""The explorer of sessions: schedules, how one is run, and what is wrong with what came of it.

What a naive model can say (`session_model`) is compared instant by instant. Everything else is
judged by what must hold whatever happens: never two owners, nothing lost or doubled, no hang, no
cancellation swallowed or invented, nothing asked that is not safe to ask, nothing left behind.
"""

from __future__ import annotations

import asyncio
import copy
import gc
import itertools
import json
import math
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

import anyio
import anyio.lowlevel
import trio

from tests.models.explorer import Complaint, Schedule
from tests.models.session_model import ACTS, Model
from tests.models.session_world import AFTER, BEYOND, GIVEN, World

GRID = (0, 0.5, 1, 1.5, 2, 3, 4)
HOSTILE = (
    {"kind": "flush"},
    {"kind": "flush", "says": ["done:success"]},
    {"kind": "swallow", "times": 1},
    {"kind": "swallow", "times": 3},
    {"kind": "deaf"},
    {"kind": "slow", "takes": 1},
    {"kind": "slow", "takes": 20},
)
FAILURES = ("network", "network", "server", "unknown", "auth", "limit", "validation", "timeout")
# D5 and D6: how long the end of a session may take, whatever the upstream does: the pull's
# unwinding and the teardown's budget, and the same once more for the source and the connection.
BUDGET = 5 + 5 + 3 * 10 + 2 * 1 + 5 + 3 * 10 + 4 * (1 + 5) + 10


# -- drawing --------------------------------------------------------------------------------


def draw(random: Random) -> Schedule:
    """A schedule: half of them tame, so that the model can say all of it."""
    hostile = random.random() < 0.4
    some = random.random
    plan: Schedule = {
        "idle": random.choice((1.5, 2, 3)),
        "first": random.choice((None, None, None, 2, 4)),
        "tools": random.choice((3, 6, 90)),
        "turn": random.choice((None, None, None, 8, 16)),
        "total": random.choice((None, None, None, 6, 15, 40)),
        "exit_grace": random.choice((1, 2)),
        "disconnect_timeout": 10,
        "reuses": some() < 0.5,
        "retry": None,
        "keys": None,
        "keep_alive": None,
        "observer": None,
        "outer": None,
    }
    if some() < 0.85:
        plan["retry"] = {
            "retries": random.choice((0, 1, 2, 2)),
            "backoff": random.choice(([0], [0, 5, 15], [1])),
            "in_a_row": random.choice((10, 10, 2)),
            "reconnects": random.choice((50, 50, 2)),
        }
        if some() < 0.2:
            plan["keys"] = _keys(random)
    if some() < 0.1:
        plan["keep_alive"] = random.choice((0.75, 1, 2.5))
    if some() < 0.1:
        plan["observer"] = random.randint(1, 12)
    plan["attempts"] = [_attempt(random, hostile=hostile) for _ in range(random.randint(1, 4))]
    plan["sessions"] = [_acts(random)]
    keys = plan["keys"]
    if some() < 0.15 and (keys is None or not keys["values"]):
        plan["sessions"].append([["take", None, 0]])
    if some() < 0.3:
        plan["outer"] = {
            "kind": random.choice(("cancel", "cancel", "twice", "scope", "timeout")),
            "at": random.choice((0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 8, 10, 13)),
            "again": random.choice((0, 0, 0.5, 1, 5)),
            "first": some() < 0.5,
        }
    return plan


def _keys(random: Random) -> dict[str, Any]:
    kind = random.choice(("cursor", "unique", "repeating", "floats"))
    values: list[Any] = {
        "cursor": [],
        "unique": [f"m{number}" for number in range(300)],
        "repeating": [random.choice("ab") for _ in range(12)],
        "floats": [-1.0, -2.0, *(number + 0.5 for number in range(300))],
    }[kind]
    # What repeats is played again from its beginning: where else would be anybody's guess.
    again = None if kind == "repeating" else random.choice((None, None, 1, 2, 3))
    return {"values": values, "again": again}


def _attempt(random: Random, *, hostile: bool) -> dict[str, Any]:
    some = random.random
    attempt: dict[str, Any] = {"open": {}, "close": {}, "disconnect": None, "manner": None}
    if some() < 0.15:
        attempt["open"]["takes"] = random.choice(GRID)
    if some() < 0.12:
        attempt["open"]["end"] = random.choice(("hang", "network", "server", "auth", "unknown"))
    if some() < 0.15:
        attempt["close"]["takes"] = random.choice((0.5, 1, 2))
    if some() < 0.6:
        attempt["disconnect"] = {"takes": random.choice((0, 0, 0.5, 1))}
    if hostile and some() < 0.6:
        attempt["manner"] = dict(random.choice(HOSTILE))
    if hostile and some() < 0.15:
        attempt["close"] = random.choice(
            (
                {"takes": 20},
                {"end": "hang"},
                {"end": "deaf"},
                {"end": "network"},
                {"end": "exit"},
            )
        )
    if hostile and some() < 0.15 and attempt["disconnect"] is not None:
        attempt["disconnect"] = random.choice(({"takes": 20}, {"end": "hang"}, {"end": "raise"}))
    if hostile and some() < 0.05:
        attempt["open"] = {"end": "exit"}
    attempt["turns"] = [_turn(random, hostile=hostile) for _ in range(random.randint(1, 2))]
    return attempt


def _turn(random: Random, *, hostile: bool) -> list[Any]:
    some = random.random
    steps: list[Any] = []
    if some() < 0.6:
        steps.append(["say", f"token:s{random.randint(1, 2)}" if some() < 0.9 else "lost:"])
    for _ in range(random.randint(0, 4)):
        if some() < 0.6:
            steps.append([random.choice(("wait", "wait", "at")), random.choice(GRID)])
        word = random.choice(
            ("progress", "progress", "progress", "ping", "work:t", "worked:t", "token:s3")
        )
        steps.append(["say", word] if some() < 0.95 else ["say", word, "progress"])
    if some() < 0.05:
        steps.append(["wait", 60])
    if some() < 0.06:
        steps.append(["say", f"failed:{random.choice(('server', 'network'))}"])
    last = some()
    if last < 0.45:
        steps.append(["say", f"done:{random.choice(('success', 'success', 'success', 'error'))}"])
        if some() < 0.2:
            steps.append(random.choice((["hang"], ["raise", "network"], ["wait", 0.5])))
    elif last < 0.55:
        pass
    elif last < 0.8:
        steps.append(["hang"])
    else:
        kind = random.choice(FAILURES)
        steps.append(["raise", "exit" if hostile and some() < 0.3 else kind])
    return steps


def _acts(random: Random) -> list[Any]:
    some = random.random
    acts: list[Any] = []
    for turn in range(random.choice((1, 1, 1, 2, 2, 3))):
        if turn:
            acts.append(["ask", f"more {turn}"])
        for _ in range(random.choice((0, 0, 1))):
            acts.append(
                random.choice(
                    (
                        ["within", random.choice(GRID[1:])],
                        ["sleep", random.choice(GRID)],
                        ["take", 1, 0],
                    )
                )
            )
        how = [word for word, odds in (("hand", 0.15), ("catch", 0.25)) if some() < odds]
        most = None if some() < 0.75 else random.randint(0, 3)
        acts.append(["take", most, random.choice((0, 0, 0, 0.5, 2, 5)), *how])
        if some() < 0.1:
            acts.append(["aclose"])
            if some() < 0.3:
                acts.append(["take", None, 0])
    if some() < 0.08:
        acts.append(["raise"])
    return acts


# -- running --------------------------------------------------------------------------------


async def play(world: World) -> list[Complaint]:
    """Run the world's consumer, with what happens to it from outside."""
    outer = world.plan.get("outer") or {"kind": None}
    if world.native:
        await _play_natively(world, outer)
    else:
        await _play_on_trio(world, outer)
    if world.hung:
        return [Complaint("hung", f"not free after {BEYOND:g} virtual seconds")]
    return []


async def _play_natively(world: World, outer: dict[str, Any]) -> None:
    loop = asyncio.get_running_loop()
    handles = []

    def cancel() -> None:
        if not task.done():
            world.native_cancels += 1
            task.cancel("from outside")

    def arm() -> None:
        if outer["kind"] in ("cancel", "twice"):
            handles.append(loop.call_at(start + outer["at"], cancel))
        if outer["kind"] == "twice":
            handles.append(loop.call_at(start + outer["at"] + outer["again"], cancel))

    start = loop.time()
    if outer.get("first"):  # its timer is older than any of the session's
        arm()
    task = asyncio.create_task(world.consume())
    if not outer.get("first"):
        # Timers of one instant ring in the order of their making, more or less.
        loop.call_soon(loop.call_soon, arm)
    await asyncio.wait({task}, timeout=BEYOND)
    for handle in handles:
        handle.cancel()
    if not task.done():
        world.hung = True
        world.over.set()
        task.cancel()
        await asyncio.wait({task}, timeout=100)
        task.cancel()
        await asyncio.wait({task}, timeout=100)
    if world.ended_at is None:  # cancelled before its first step
        world.ended, world.ended_at = "cancelled", outer["at"]
        world.cancels_left = world.native_cancels
        world.finished.set()
    if task.done() and not task.cancelled():
        task.exception()  # was seen by the consumer itself


async def _play_on_trio(world: World, outer: dict[str, Any]) -> None:
    ended = trio.Event()
    scope = trio.CancelScope()
    if outer["kind"] in ("cancel", "twice"):
        scope.deadline = trio.current_time() + outer["at"]

    async def run() -> None:
        try:
            with scope:
                await world.consume()
        finally:
            ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        with trio.move_on_after(BEYOND):
            await ended.wait()
        if not ended.is_set():
            world.hung = True
            world.over.set()
            scope.cancel()
            with trio.move_on_after(100):
                await ended.wait()
            nursery.cancel_scope.cancel()


class Sessions:
    """`session(open) | idle_guard(...) | reconnecting_resume(...)`."""

    name = "session"
    limit = 100 * BEYOND
    simplest: Mapping[str, Any] = {
        "outer": None,
        "observer": None,
        "keep_alive": None,
        "keys": None,
        "total": None,
        "turn": None,
        "tools": 6,
        "first": None,
        "retry": None,
        "reuses": False,
        "exit_grace": 1,
        "idle": 2,
    }

    def draw(self, random: Random) -> Schedule:
        """A schedule."""
        return draw(random)

    def is_valid(self, schedule: Schedule) -> bool:
        """Whether it can be run, and nothing in it may rightly last for ever."""
        if not (schedule["attempts"] and schedule["sessions"] and schedule["idle"]):
            return False
        if not all(attempt["turns"] for attempt in schedule["attempts"]):
            return False
        if schedule["disconnect_timeout"] != 10 or not schedule["exit_grace"]:
            return False
        if any(schedule.get(k) == 0 for k in ("first", "turn", "tools", "total", "keep_alive")):
            return False
        if not all(isinstance(acts, list) for acts in schedule["sessions"]):
            return False
        if (retry := schedule["retry"]) is not None and not retry["backoff"]:
            return False
        if schedule["keys"] is not None and retry is None:
            return False
        kinds = {"take": 3, "within": 2, "ask": 2, "sleep": 2, "aclose": 1, "raise": 1}
        return all(len(act) >= kinds[act[0]] for acts in schedule["sessions"] for act in acts)

    async def run(self, schedule: Schedule) -> list[Complaint]:
        """Play it, let everything end, and judge."""
        native = _is_native()
        if not native:  # trio shuffles the tasks that are ready: by the schedule, from here on
            trio._core._run._r.seed(json.dumps(schedule))  # type: ignore[attr-defined]
        world = self.world_of(copy.deepcopy(schedule), native)
        self.prepare(world)
        complaints = await play(world)
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        if not complaints:
            complaints += await self._leftovers(world)
            complaints += judge(world) + self.judge_more(world)
        return complaints

    def world_of(self, plan: Schedule, native: bool) -> World:
        """Where it is played."""
        return World(plan, native)

    def prepare(self, world: World) -> None:
        """What else is there in this world."""

    def judge_more(self, world: World) -> list[Complaint]:
        """What else must hold in it."""
        return []

    async def _leftovers(self, world: World) -> list[Complaint]:
        """What is still there when it should not be; then let it go."""
        if _is_hostile(world.plan) or (world.plan.get("outer") or {}).get("kind") == "twice":
            world.over.set()
            await anyio.sleep(500)
        elif not world.native:
            # On trio the timekeeper's task lasts as long as an alarm may that nobody needs (O7).
            await anyio.sleep(200)
        found = []
        for generation in range(3):  # the youngest first: collecting all takes its time
            if world.witness is not None and world.witness() is not None:
                gc.collect(generation)
        if world.witness is not None and world.witness() is not None:
            found.append(Complaint("frames", "the consumer's frame outlives it"))
        return found


def _is_native() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _is_hostile(plan: Schedule) -> bool:
    for attempt in plan["attempts"]:
        if (attempt.get("manner") or {}).get("kind", "plain") != "plain":
            return True
        for part in ("open", "close", "disconnect"):
            how = attempt.get(part) or {}
            if how.get("end", "ok") not in ("ok", "network", "server", "auth", "unknown"):
                return True
            if how.get("takes", 0) > 4:
                return True
        if any(
            step[0] == "raise" and step[1] == "exit" for turn in attempt["turns"] for step in turn
        ):
            return True
    return False


# -- judging --------------------------------------------------------------------------------


def judge(world: World) -> list[Complaint]:
    """Everything that must hold, and what the model says."""
    found = [Complaint("owners", each) for each in world.wrong]
    for rule in (
        _cancellation,
        _errors,
        _deliveries,
        _ends,
        _finished,
        _opens,
        _points,
        _outcomes,
        _as_predicted,
    ):
        found += [Complaint(rule.__name__[1:], each) for each in rule(world)]
    return found


def _cancellation(world: World) -> Iterator[str]:
    """T7, T9: nobody else's is swallowed, none is invented, and leaving takes a bounded time."""
    outer = world.plan.get("outer") or {"kind": None}
    was_cancelled = world.ended == "cancelled"
    at, ended = outer.get("at", math.inf), world.ended_at
    assert ended is not None
    cuts = [entry[0] for entry in world.log if entry[1] in ("moved on", "timed out")]
    match outer["kind"]:
        case "cancel" | "twice":
            if was_cancelled and ended < at:
                yield f"cancelled at {ended}, and nobody did before {at}"
            if not was_cancelled and ended > at:
                yield f"the cancellation at {at} was swallowed; it went on to {ended}"
        case "scope" | "timeout":
            if was_cancelled:
                yield f"cancelled at {ended}, and nobody did"
            if cuts and cuts[0] < at:
                yield f"cut by its scope at {cuts[0]}, which is due at {at}"
            left = world.block_left_at
            if not cuts and world.ended is None and (left is None or left + AFTER > at):
                yield f"its scope at {at} was swallowed; it went on to {ended}"
        case _:
            if was_cancelled:
                yield f"cancelled at {ended}, and nobody did"
    if outer["kind"] and ended > at + BUDGET + AFTER and (was_cancelled or cuts):
        yield f"cancelled at {at}, and free at {ended} only"
    # A cancel after the consumer's last word changes nothing that it could have told.
    is_late = world.cancels_left < world.native_cancels and ended <= at
    if world.native and world.cancels_left != world.native_cancels and not is_late:
        yield f"cancelling() is {world.cancels_left}, after {world.native_cancels} cancels"


def _errors(world: World) -> Iterator[str]:
    """What ended it is the consumer's own, the backend's own, or a verdict's: as itself."""
    if world.ended not in (None, "cancelled"):
        yield f"the consumer ended with {world.ended}"
    for entry in world.log:
        if entry[1] not in ("failed", "error"):
            continue
        name, gave_up, limit = entry[2:]
        if name not in KNOWN:
            yield f"{name} came out at {entry[0]}"
        if entry[1] == "failed" and limit is not None and world.plan["retry"] and gave_up is None:
            yield f"{name} at {entry[0]} does not say why it gave up"
    failures = [entry[2:] for entry in world.log if entry[1] == "failed"]
    closing = any((a["close"] or {}).get("end", "ok") != "ok" for a in world.plan["attempts"])
    acts = [act for acts in world.plan["sessions"] for act in acts]
    for entry in world.log:
        # What the backend raised was raised by a pull, or is none of the consumer's business.
        is_backends = entry[1] == "error" and entry[2] in ("ConnectionError", "StatusError")
        if is_backends and entry[2:] not in failures and not closing:
            yield f"{entry[2]} came out of the block at {entry[0]}, and out of no pull"
    for before, entry in itertools.pairwise(world.log):
        if entry[1] == "error" and before[1] == "caught" and entry[2] == before[2]:
            yield f"{entry[2]} was caught, and came out of the block at {entry[0]} once more"
    errors = [entry for entry in world.log if entry[1] == "error"]
    if any(entry[2] == "LeftError" for entry in errors) and ["raise"] not in acts:
        yield "LeftError was not raised by the consumer"


KNOWN = {
    "ConnectionError",
    "ConnectionResetError",
    "StatusError",
    "RuntimeError",
    "TimeoutError",
    "LeftError",
    "GeneratorExit",
    "IdleTimeoutError",
    "LeaseLostError",
    "FirstMessageTimeoutError",
    "ToolTimeoutError",
    "TurnTimeoutError",
    "TotalTimeoutError",
    "StreamGuardError",
    "ResumeDivergedError",
    "StreamTruncatedError",
}


def turns_of(world: World) -> list[list[tuple[Any, ...]]]:
    """The log by turns of the consumer."""
    turns: list[list[tuple[Any, ...]]] = [[]]
    for entry in world.log:
        if entry[1] == "ask" or (entry[1] == "session" and entry[2]):
            turns.append([])
        turns[-1].append(entry)
    return turns


def _deliveries(world: World) -> Iterator[str]:
    """R2, R6: nothing is lost, doubled or out of its order."""
    untaken: list[Any] = []
    for number, turn in enumerate(turns_of(world)):
        said = [entry[2] for entry in turn if entry[1] == "said" and entry[4] == number]
        got = [entry[2] for entry in turn if entry[1] == "got"]
        while world.plan["keys"] is not None and got and got[0] in untaken:
            del got[0]  # said to the session before this one, and played again
        untaken = [each for each in said if each not in got]
        # A turn that the consumer left may have had one message on its way, and a flush.
        is_whole = any(entry[1] in ("end", "failed") for entry in turn) and not any(
            entry[1] in ("closed", "gave in") or "LeaseLostError" in entry for entry in turn
        )
        if any(entry[1] == "failed" and entry[2] == "ResumeDivergedError" for entry in turn):
            if world.plan["keys"] is not None and not _is_unique(world.plan["keys"]):
                continue
            yield "ResumeDivergedError, though all is played again as it was"
        if _is_hostile(world.plan):
            # What swallows its cancellation may speak on when nobody listens any more, each attempt.
            opens = sum(entry[1] == "open" for entry in turn)
            if [each for each in said if each in got] != got or len(said) - len(got) > 1 + opens:
                yield f"said {said}, got {got}"
        elif got != said[: len(got)]:
            yield f"said {said}, got {got}"
        elif is_whole and len(got) != len(said):
            yield f"the turn is over; said {said}, got {got}"
        elif len(said) - len(got) > 1:
            yield f"said {said}, got {got}"


def _is_unique(keys: dict[str, Any]) -> bool:
    return len(set(keys["values"])) == len(keys["values"])


def _ends(world: World) -> Iterator[str]:
    """T8, T10: a turn ends well only if the backend has ended it."""
    over = False
    for number, turn in enumerate(turns_of(world)):
        if [entry[1] for entry in turn] in ([], ["ask"]):
            continue  # nobody pulled it: the turn before it is still the last
        over = over and turn[0][1] == "session"  # what had ended has, in another session, too
        for entry in turn:
            if entry[1] in ("closed", "failed") or (entry[1] == "ran out" and entry[3] == number):
                over = True
            if _is_done(entry) and entry[4] == number:
                over = True
            if entry[1] == "end" and not over:
                yield f"a hang ended well at {entry[0]}"


def _finished(world: World) -> Iterator[str]:
    """T3: what ended well, and was delivered, is neither failed nor asked again for a silence."""
    for turn in turns_of(world):
        is_done = False
        for entry in turn:
            if entry[1] == "got":
                words = entry[3]
                is_done = "done:success" in words or (is_done and not set(words) & {"progress"})
            if not is_done or world.plan["keys"] is not None:
                continue
            if entry[1] == "open":
                yield f"connection {entry[2]} was opened for a turn that had ended well"
            if entry[1] == "failed" and entry[4] in ("idle", "first", "tools", "turn"):
                yield f"{entry[2]} at {entry[0]}, on a turn that had ended well"


def _opens(world: World) -> Iterator[str]:
    """R3, R4: a second attempt only where nothing is repeated by it, and with the token."""
    plan = world.plan
    tokens: set[str | None] = {None}  # which it may be: what swallows a cancel may speak too late
    completed: set[str] = set()
    prompt = "go"
    tools = delivered = 0
    is_over = True
    is_hostile = _is_hostile(plan)
    # A session that its backend does not know, where the user has a word for that: once, and if no tool ran.
    may_forget = bool((plan.get("word") or {}).get("fresh"))
    forgotten, worked, latest, resumed = "", 0, -1, False
    for index, turn in enumerate(turns_of(world)):
        opens = 0
        if is_over or turn[0][1] != "session":
            tools = delivered = 0
        is_over = False
        if turn and turn[0][1] == "ask":
            prompt = turn[0][2]
        for entry in turn:
            match entry[1]:
                case "open":
                    _, _, number, _, asked, given = entry
                    if opens and plan["retry"] is None:
                        yield f"connection {number} was opened, and nobody had asked to reconnect"
                    if given is None and forgotten == "said":
                        forgotten = "done"
                        tokens.add(None)
                        if worked:
                            yield f"connection {number} begins afresh, after {worked} tool calls"
                    elif plan["keys"] is None and given is None and (tools or delivered):
                        yield (
                            f"connection {number} begins afresh, after {tools} tool calls and "
                            f"{delivered} messages"
                        )
                    if given not in tokens:
                        yield f"connection {number} has token {given!r}, not one of {tokens}"
                    if asked in completed and asked != GIVEN:
                        yield f"connection {number} is asked {asked!r}, which had ended"
                    opens += 1
                    latest, resumed = number, given is not None
                case "raised" if entry[3] == "forgotten" and resumed and may_forget:
                    forgotten = forgotten or "said"
                case "sent":
                    if entry[3] in completed and entry[3] != GIVEN:
                        yield f"{entry[3]!r} is sent at {entry[0]}, which had ended"
                case "said":
                    is_unknown = "unknown:" in entry[3] and may_forget and resumed
                    if is_unknown and int(entry[2].partition(".")[0]) == latest:
                        forgotten = forgotten or "said"
                    is_of_turn = entry[4] == index  # else of the turn before, left meanwhile
                    is_over = is_over or (is_of_turn and _is_done(entry))
                    for word in entry[3]:
                        kind, _, rest = word.partition(":")
                        if kind in ("token", "lost"):
                            is_sure = is_of_turn and not is_hostile
                            tokens = {rest or None} | (set() if is_sure else tokens)
                case "got":
                    worked += sum(word.startswith("work:") for word in entry[3])
                    tools += sum(word.startswith("work:") for word in entry[3])
                    delivered += any(word.partition(":")[0] in ACTS for word in entry[3])
                case "ran out" if entry[3] == index:
                    is_over = True
                case "end" if is_over:
                    completed.add(prompt)
                case _:
                    pass
    most = (plan["retry"] or {"reconnects": 0})["reconnects"] * len(plan["sessions"])
    turns = len(turns_of(world))
    if len(world.connections) > turns + most:
        yield f"{len(world.connections)} connections for {turns} turns and {most} reconnects"


def _points(world: World) -> Iterator[str]:
    """The point says what was done and delivered in this turn, at every instant."""
    if world.plan["keys"] is not None:
        return
    for length, point in world.points:
        before = world.log[:length]
        if point["done"] != point["tools_run"] and before and before[-1][1] == "got":
            yield f"{point['done']} tools by the activity, {point['tools_run']} by the point"
        begin = max(
            (i for i, e in enumerate(before) if e[1] == "ask" or (e[1] == "session" and e[2])),
            default=0,
        )
        turn = before[begin:]
        work = {
            word
            for entry in turn
            if entry[1] == "got"
            for word in entry[3]
            if word.startswith("work:")
        }
        if any(entry[1] == "open" for entry in turn) and point["tools_run"] < len(work):
            yield f"tools_run={point['tools_run']} at {turn[-1][0]}, and {sorted(work)} were run"


def _outcomes(world: World) -> Iterator[str]:
    """Each attempt that began has ended, and its end is said as it was."""
    started = [attempt for kind, attempt, *_ in world.events if kind == "AttemptStarted"]
    ended = [tuple(rest) for kind, *rest in world.events if kind == "AttemptEnded"]
    if sorted(started) != sorted(attempt for attempt, *_ in ended):
        yield f"attempts {started} began, {[attempt for attempt, *_ in ended]} ended"
    kinds = [event[0] for event in world.events]
    if (began := kinds.count("StreamStarted")) != (over := kinds.count("StreamEnded")):
        yield f"{began} streams began, {over} ended"
    good = sum(entry[1] == "ran out" or _is_done(entry) for entry in world.log)
    told = sum(
        kind == "StreamEnded" and outcome == "completed" for kind, _, outcome, _ in world.events
    )
    if told > good:
        yield f"{told} streams are said to be completed, and {good} were"
    if len(world.plan["sessions"]) > 1:
        return
    ran_out = {entry[2] for entry in world.log if entry[1] == "ran out"}
    done = {int(entry[2].partition(".")[0]) for entry in world.log if _is_done(entry)}
    for attempt, outcome, error in ended:
        if outcome == "completed" and attempt - 1 not in ran_out | done:
            yield f"attempt {attempt} is said to be completed"
        if outcome == "failed" and error is None:
            yield f"attempt {attempt} is said to have failed, without an error"


def _is_done(entry: tuple[Any, ...]) -> bool:
    return entry[1] == "said" and any(word.startswith("done:") for word in entry[3])


COMPARED = ("open", "got", "end", "failed", "error", "left", "kept alive", "gave in", "closed")


def _as_predicted(world: World) -> Iterator[str]:
    """The model's log and the world's, up to where the model is sure."""
    model = Model(world.plan)
    model.walk()
    until = min(model.unsure_from, world.sure_until)
    told = [entry for entry in model.log if entry[0] < until]
    seen = [entry for entry in world.log if entry[0] < until and entry[1] in COMPARED]
    for expected, real in zip(told, seen, strict=False):
        if expected != real:
            yield f"expected {expected}, got {real} (sure until {until})"
            return
    if len(told) != len(seen):
        more = seen[len(told) :] or [("nothing",)]
        less = told[len(seen) :] or [("nothing",)]
        yield f"expected {less[0]}, got {more[0]} (sure until {until})"


SUBJECTS = (Sessions(),)
