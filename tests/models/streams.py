"""Guarded streams in their three forms, on random schedules, against `streams_model`.

A schedule says what the source does and what it does when it is cancelled or closed, what the
consumer does with each message and how it leaves, what is said from elsewhere and when, who else
cancels, and what interrupt, disconnect and observers do. Most times are quarters, those of other
tasks odd eighths, so that what ties is what shall tie: limits with messages, with the
consumer's steps, with outer timeouts.

A *plain* schedule has one outcome, or a few where things tie: what was delivered and when, how it
ended and when. On a *rough* one (a source that flushes, swallows or goes deaf, an interrupt, a
second cancel) only what holds in any case is judged.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import anyio
import anyio.lowlevel

from streamguard import Activity, errors, events, idle_guard, signals
from streamguard import _loops as loops
from streamguard.testing import block_loop
from tests.models.explorer import Complaint, Schedule, Witness, passes
from tests.models.streams_model import (
    ERRORS,
    Outcome,
    Struck,
    allowed,
    is_unclear,
    struck,
    undisturbed,
)

INTERRUPT_BOUND = 5.0
UNWINDING_BOUND = 5.0
AFTERWARDS = 3.0
SETTLED = 60.0
FOREVER = 100.0
LEFT = ("break", "own", "impatient")

SIMPLEST: Schedule = {
    "scale": 1,
    "limits": {"idle": 1},
    "kind": "generator",
    "source": [["hang"]],
    "on_cancel": ["unwinds"],
    "on_close": ["none"],
    "work": [],
    "leave": ["none"],
    "patience": ["none", 0],
    "outer": ["none"],
    "asides": [],
    "interrupt": ["none"],
    "disconnect": ["none"],
    "disconnect_timeout": 2,
    "observer": "none",
    "marks": True,
    "hands_on": False,
    "ceiling": 0,
}


# -- what a schedule's messages say ----------------------------------------------------------


def read(message: Any) -> Any:
    """The reader: messages are `(number, what they say)`."""
    if ["odd"] in message[1]:
        raise Odd
    said = [SIGNALS[kind](*more) for kind, *more in message[1]]
    return None if said == [None] else said


SIGNALS: dict[str, Callable[..., Any]] = {
    "progress": signals.Progress,
    "nothing known": lambda: None,
    "ping": signals.Liveness,
    "usage": lambda: signals.Usage({"tokens": 1}),
    "session": lambda: signals.SessionOpened("token"),
    "failed": signals.Failed,
    "start": lambda id_, background: signals.WorkStarted(id_, "Bash", background=background),
    "finish": signals.WorkFinished,
    "wait": lambda id_: signals.Waiting(id_, "compaction"),
    "waited": signals.WaitEnded,
    "turn": lambda outcome, more: signals.TurnEnded(outcome, more_expected=more),
}


# -- one run ---------------------------------------------------------------------------------


def machine_sleeps() -> None:
    """This machine sleeps for a night, which no clock of a loop shows, and wakes (B5)."""
    timekeeper = loops.current().timekeeper
    if timekeeper._sleeps is not None:
        timekeeper._sleeps._before -= 28_800.0
        timekeeper.look_for_sleep()


class Own(Exception):  # noqa: N818 - it says whose it is
    """What a consumer's body raises."""


class Odd(BaseException):
    """What a reader raises."""


class Foreign(Exception):  # noqa: N818
    """What a source raises."""


@dataclass
class Run:
    """All that happens in one run of a schedule."""

    schedule: Schedule
    form: str
    began: float = 0.0
    yielded: list[int] = field(default_factory=list)
    delivered: list[tuple[int, float]] = field(default_factory=list)
    disconnects: list[float] = field(default_factory=list)
    interrupts: list[float] = field(default_factory=list)
    end: str = ""
    at: float = 0.0
    error: BaseException | None = None
    complaints: list[Complaint] = field(default_factory=list)
    is_inside: bool = True
    sent: int = 0
    begun: int = 0
    ended: int = 0
    stream: Any = None
    sent_at: float | None = None
    swallowed: int = 0
    cancels_seen: int = 0
    source_reached_its_end: bool = False
    told: anyio.Event = field(default_factory=anyio.Event)
    is_over: anyio.Event = field(default_factory=anyio.Event)
    is_at_work: bool = False
    cancel: Callable[[], Any] = lambda: None
    start: Callable[..., Any] = lambda: None

    def __post_init__(self) -> None:
        self.began = anyio.current_time()
        self.scale = self.schedule["scale"]
        self.cancelled = anyio.get_cancelled_exc_class()
        self.native = self.cancelled is asyncio.CancelledError
        self.activity = Activity("explored")

    @property
    def now(self) -> float:
        # Of a loop that has run for days, the last digits are noise.
        return round((anyio.current_time() - self.began) / self.scale, 6)

    def complain(self, kind: str, detail: str) -> None:
        self.complaints.append(Complaint(kind, f"{detail} (at {self.now:g})"))

    async def sleep(self, length: float) -> None:
        await anyio.sleep(length * self.scale)

    async def sleep_until(self, when: float) -> None:
        await anyio.sleep_until(self.began + when * self.scale)

    # -- the source --------------------------------------------------------------------------

    def source(self) -> Any:
        return Channel(self) if self.schedule["kind"] == "channel" else self.generate()

    async def generate(self) -> AsyncGenerator[Any, None]:
        kept = Witness()
        number = 0
        try:
            for step in flat(self.schedule["source"]):
                if step[0] == "say":
                    self.yielded.append(number)
                    yield (number, step[1])
                    number += 1
                else:
                    await self.do(step, self.wait)
        except self.cancelled:
            flushed = self.schedule["on_cancel"]
            if flushed == ["ends"]:
                return
            if flushed[0] != "flushes":
                raise
            for i in range(flushed[1]):
                self.yielded.append(1000 + i)
                yield (1000 + i, [["progress"]])
            if flushed[2] == "raises":
                raise
        finally:
            del kept
            await self.closing()
        self.source_reached_its_end = True

    async def do(self, step: Any, wait: Callable[[float], Any]) -> None:
        match step:
            case ["sleep", d]:
                await wait(d)
            case ["hang"]:
                await wait(FOREVER)
            case ["told"]:
                with anyio.move_on_after(FOREVER * self.scale):
                    await self.told.wait()
            case ["block", d]:
                block_loop(d * self.scale)
            case ["raise"]:
                raise Foreign
            case ["genexit"]:
                raise GeneratorExit

    async def wait(self, length: float) -> None:
        """What a source waits for, and what it does when that is cancelled."""
        until = self.now + length
        while True:
            try:
                await self.sleep_until(until)
                return
            except self.cancelled:
                self.cancels_seen += 1
                match self.schedule["on_cancel"]:
                    case ["swallows", n] if self.swallowed < n:
                        self.swallowed += 1
                        continue
                    case ["deaf", d]:
                        await self.deaf(d)
                    case ["raises"]:
                        raise Foreign from None
                raise

    async def deaf(self, length: float) -> None:
        until = self.now + length
        with anyio.CancelScope(shield=True):
            while self.now < until:
                try:
                    await self.sleep_until(until)
                except self.cancelled:
                    self.cancels_seen += 1

    async def closing(self) -> None:
        """What closing the source takes."""
        match self.schedule["on_close"]:
            case ["takes", d]:
                await self.sleep(d)
            case ["times out", d]:
                async with timeout_of_its_own(self, d):
                    await self.sleep(FOREVER)
            case ["swallows", n]:
                for _ in range(n):
                    try:
                        await self.sleep(FOREVER)
                    except self.cancelled:
                        self.cancels_seen += 1
                await self.sleep(FOREVER)
            case ["raises"]:
                raise Foreign

    # -- what is around it -------------------------------------------------------------------

    async def disconnect(self) -> None:
        self.disconnects.append(self.now)
        what, length = self.schedule["disconnect"]
        await self.sleep(length)
        if what == "raises":
            raise Foreign("disconnect")

    async def interrupt(self) -> None:
        self.interrupts.append(self.now)
        match self.schedule["interrupt"]:
            case ["returns", d]:
                await self.sleep(d)
            case ["raises", d, hops]:
                await self.sleep(d)
                later = self.told.set
                for _ in range(hops):
                    later = hop(later)
                later()
                raise Foreign("interrupt")
            case ["tells", d]:
                await self.sleep(d)
                self.told.set()
            case ["hangs"]:
                await self.sleep(FOREVER)

    def observe(self, event: object) -> None:
        self.begun += isinstance(event, events.StreamStarted)
        self.ended += isinstance(event, events.StreamEnded)
        match self.schedule["observer"]:
            case "raises":
                raise Foreign("observer")
            case "raises worse":
                raise BaseException("observer")

    async def do_asides(self) -> None:
        holds: dict[str, Any] = {}
        for at, what, *more in self.schedule["asides"]:
            await self.sleep_until(at)
            if self.is_over.is_set():
                return
            match what, more:
                case "hold", [key, allowance]:
                    if key in holds:
                        holds.pop(key).__exit__(None, None, None)
                    holds[key] = self.activity.hold("aside", allowance=allowance * self.scale)
                    holds[key].__enter__()
                case "release", [key]:
                    if key in holds:
                        holds.pop(key).__exit__(None, None, None)
                case _:
                    self.do_at_once(what, *more)

    def do_at_once(self, what: str, *more: float) -> None:
        match what, more:
            case "touch", _:
                self.activity.touch()
            case "prompt", _:
                self.activity.mark_prompt()
            case "block", [d]:
                block_loop(d * self.scale)
            case "sleep", _:
                machine_sleeps()

    async def do_cancels(self) -> None:
        match self.schedule["outer"]:
            case ["cancel", at, late]:
                times = [at]
            case ["cancel2", at, late, gap]:
                times = [at, at + gap]
            case _:
                return
        for at in times:
            await self.sleep_until(at)
            await passes(late)
            if self.is_inside:
                self.sent += 1
                self.sent_at = self.now if self.sent_at is None else self.sent_at
                self.cancel()

    # -- the consumer ------------------------------------------------------------------------

    async def consume(self) -> None:
        task = asyncio.current_task() if self.native else None
        before = task.cancelling() if task is not None else 0
        kept = Witness()
        try:
            await self.guarded_under_outer()
        except BaseException as error:
            self.end, self.error = self.name_of(error), error.with_traceback(None)
        finally:
            del kept
        self.is_inside = False
        self.at = self.now
        self.look_at_activity()
        if task is not None:
            for _ in range(self.sent if self.end == "cancelled" else 0):
                task.uncancel()
            if (left := task.cancelling() - before) not in self.may_be_left():
                self.complain("cancelling", f"{left} more cancels are counted than before")
        try:
            await self.sleep(AFTERWARDS / self.scale)
        except self.cancelled:
            if not (self.native and self.sent and self.end != "cancelled"):
                self.complain("afterwards", "what the consumer did after the stream was cancelled")

    def may_be_left(self) -> set[int]:
        # A cancel that came as the last thing reaches what is awaited next.
        return set(range(self.sent + 1)) if self.sent and self.end != "cancelled" else {0}

    def look_at_activity(self) -> None:
        """Whether what others see of it is true at once."""
        if self.schedule["outer"][0] == "cancel2":
            return  # a teardown may have been left, and goes on
        if self.activity.status not in ("ended", "new"):
            self.complain("status", f"{self.end}, and the activity is {self.activity.status!r}")
        if self.ended != self.begun:
            self.complain("events", f"{self.begun} streams started and {self.ended} ended")
        self.stream = None

    def name_of(self, error: BaseException) -> str:
        match error:
            case self.cancelled():
                return "cancelled"
            case Own():
                return "own"
            case Foreign():
                return "source"
            case TimeoutError() if not isinstance(error, errors.StreamGuardError):
                return "outer"
        return type(error).__name__

    async def guarded_under_outer(self) -> None:
        match self.schedule["outer"]:
            case ["timeout", at]:
                async with outer_timeout(self, at):
                    await self.guarded()
            case ["scope", at]:
                with anyio.CancelScope(deadline=self.began + at * self.scale) as scope:
                    await self.guarded()
                if scope.cancelled_caught:
                    self.end = "outer"
            case ["cancel" | "cancel2", *_] if not self.native:
                with anyio.CancelScope() as scope:
                    self.cancel = scope.cancel
                    await self.guarded()
                if scope.cancelled_caught:
                    self.end = "cancelled"
            case _:
                await self.guarded()

    async def guarded(self) -> None:
        schedule = self.schedule
        operator = self.operator()
        self.end = "end"
        if self.form == "bare":
            # Somebody keeps it, so that it must say by itself that it has ended.
            self.stream = stream = self.source() | operator
            try:
                await self.take_all(aiter(stream), lambda _: None)
            finally:
                # Python tells nobody of a loop that was left in its body (O7).
                # A pull that was to be handed on may not even have begun.
                if self.is_at_work or schedule["hands_on"] or self.end in LEFT:
                    with anyio.CancelScope(shield=True):
                        await stream.aclose()
        elif self.form == "block":
            async with self.source() | operator as messages:
                await self.take_all(aiter(messages), lambda _: None)
        else:
            async with operator.monitor() as monitor:
                marks = monitor.waiting if self.schedule["marks"] else nullcontext
                source = self.source()
                try:
                    await self.take_all(aiter(source), monitor.saw, marks)
                finally:
                    with anyio.CancelScope(shield=True), suppress(Foreign):
                        await source.aclose()

    def operator(self) -> Any:
        schedule = self.schedule
        limits = {k: v * self.scale for k, v in schedule["limits"].items()}
        return idle_guard(
            limits.pop("idle", None),
            tools=limits.pop("tools", None),
            after_sleep=limits.pop("after_sleep", None),
            **limits,
            disconnect=self.disconnect if schedule["disconnect"][0] != "none" else None,
            disconnect_timeout=schedule["disconnect_timeout"] * self.scale,
            interrupt=self.interrupt if schedule["interrupt"][0] != "none" else None,
            activity=self.activity,
            read=read,
            calls=schedule.get("ceiling") or None,
            end_on="calls" if schedule.get("ceiling") else (),
            observer=self.observe if schedule["observer"] != "none" else None,
        )

    async def take_all(
        self, messages: Any, saw: Callable[[Any], None], marks: Callable[[], Any] = nullcontext
    ) -> None:
        leave, impatient = self.schedule["leave"], 0
        while True:
            with self.patience() as patience:
                try:
                    with marks():
                        message = await self.pull(messages)
                except StopAsyncIteration:
                    return
            if patience is not None and patience.cancelled_caught:
                impatient += 1
                if impatient > 3:
                    self.end = "impatient"
                    return
                continue
            saw(message)
            self.delivered.append((message[0], self.now))
            await self.work()
            if leave[0] != "none" and len(self.delivered) >= leave[1]:
                self.end = leave[0] if leave[0] == "break" else "own"
                if leave[0] == "raise":
                    raise Own
                return

    async def pull(self, messages: Any) -> Any:
        if not self.schedule["hands_on"]:
            return await anext(messages)
        if self.native:
            return await asyncio.ensure_future(anext_in_a_task(messages))
        outcome: list[Any] = []

        async def pull() -> None:
            try:
                outcome.append(await anext(messages))
            except (Exception, GeneratorExit) as error:
                outcome.append(error)

        async with anyio.create_task_group() as group:
            group.start_soon(pull)
        if isinstance(outcome[0], BaseException):
            raise outcome[0]
        return outcome[0]

    def patience(self) -> Any:
        kind, length = self.schedule["patience"]
        if kind == "none":
            return nullcontext()
        return anyio.move_on_after(length * self.scale)

    async def work(self) -> None:
        works = self.schedule["work"]
        if len(self.delivered) > len(works):
            return
        before, self.is_at_work = self.now, True
        try:
            for what, *more in works[len(self.delivered) - 1]:
                match what, more:
                    case "work", [d]:
                        await self.sleep(d)
                    case "work under a timeout", [d]:
                        async with timeout_of_its_own(self, d):
                            await self.sleep(FOREVER)
                    case "hold", [d]:
                        with self.activity.hold("own"):
                            await self.sleep(d)
                    case _:
                        self.do_at_once(what, *more)
            self.is_at_work = False
        except self.cancelled:
            if not self.may_be_cancelled_at_work():
                self.complain(
                    "body", f"the consumer's own work, begun at {before:g}, was cancelled"
                )
            raise

    def may_be_cancelled_at_work(self) -> bool:
        if self.schedule["outer"][0] != "none":
            return True
        if self.form == "bare":
            return False
        # O5: only what strikes the block. A verdict that an interrupt leaves undecided does at
        # last at `total`'s instant.
        return self.form == "monitor" or "total" in self.schedule["limits"]


async def anext_in_a_task(messages: Any) -> Any:
    # A coroutine that `create_task` takes; the end comes out of it as it is.
    return await anext(messages)


class Channel:
    """A source that runs ahead of its consumer, and can go on after a cancelled pull."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.messages: list[Any] = []
        self.failure: BaseException | None = None
        self.changed = anyio.Event()
        self.kept = Witness()
        run.start(self.produce)

    async def produce(self) -> None:
        number = 0
        try:
            for step in flat(self.run.schedule["source"]):
                if step[0] == "say":
                    self.run.yielded.append(number)
                    self.messages.append((number, step[1]))
                    self.changed.set()
                    number += 1
                else:
                    await self.run.do(step, self.run.sleep)
            self.failure = StopAsyncIteration()
            self.run.source_reached_its_end = True
        except (Foreign, GeneratorExit) as error:
            self.failure = error
        self.changed.set()

    def __aiter__(self) -> Channel:
        return self

    async def __anext__(self) -> Any:
        while not self.messages:
            if isinstance(self.failure, StopAsyncIteration):
                raise StopAsyncIteration
            if self.failure is not None:
                failure, self.failure = self.failure, StopAsyncIteration()
                raise failure
            self.changed = anyio.Event()
            await self.heard()
        return self.messages.pop(0)

    async def heard(self) -> None:
        while True:
            try:
                await self.changed.wait()
                return
            except self.run.cancelled:
                self.run.cancels_seen += 1
                match self.run.schedule["on_cancel"]:
                    case ["swallows", n] if self.run.swallowed < n:
                        self.run.swallowed += 1
                        continue
                    case ["deaf", d]:
                        await self.run.deaf(d)
                    case ["raises"]:
                        raise Foreign from None
                    case ["ends"]:
                        self.failure = StopAsyncIteration()
                        return
                    case ["flushes", n, _] if self.run.swallowed < n:
                        self.run.swallowed += 1
                        number = 1000 + self.run.swallowed
                        self.run.yielded.append(number)
                        self.messages.append((number, [["progress"]]))
                        return
                raise

    async def aclose(self) -> None:
        await self.run.closing()


@asynccontextmanager
async def outer_timeout(run: Run, at: float) -> AsyncGenerator[None, None]:
    """`asyncio.timeout_at`, which cancels the task natively; on trio a scope."""
    when = run.began + at * run.scale
    if run.native:
        async with asyncio.timeout_at(when):
            yield
    else:
        with anyio.fail_after(when - anyio.current_time()):
            yield


@asynccontextmanager
async def timeout_of_its_own(run: Run, length: float) -> AsyncGenerator[None, None]:
    """A timeout that whoever set it expects."""
    try:
        async with outer_timeout(run, run.now + length):
            yield
    except TimeoutError:
        pass


def hop(function: Callable[[], Any]) -> Callable[[], Any]:
    """`function` a pass of the loop later."""
    if anyio.get_cancelled_exc_class() is asyncio.CancelledError:
        loop = asyncio.get_running_loop()
        return lambda: loop.call_soon(function)
    import trio

    token = trio.lowlevel.current_trio_token()
    return lambda: token.run_sync_soon(function)


def flat(steps: Any) -> list[Any]:
    """The steps of a source, with those that repeat written out."""
    found: list[Any] = []
    for step in steps:
        if step[0] == "every":
            found += [["sleep", step[1]], ["say", step[3]]] * step[2]
        else:
            found.append(step)
    return found


# -- the judge -------------------------------------------------------------------------------


def is_plain(schedule: Schedule) -> bool:
    """Whether the model knows every outcome."""
    return (
        schedule["on_cancel"] == ["unwinds"]
        and schedule["on_close"] == ["none"]
        and schedule["interrupt"] == ["none"]
        and schedule["outer"][0] != "cancel2"
    )


def judge(run: Run) -> list[Complaint]:
    complaints = run.complaints + list(judge_deliveries(run))
    if blocks_of(run.schedule) and is_unclear(run.schedule, run.form, native=run.native):
        return complaints
    if is_plain(run.schedule):
        wrong = list(judge_plain(run))
        if not wrong:
            return complaints
        complaints += wrong
    complaints += judge_rough(run, struck(run.schedule, run.form, native=run.native))
    return complaints


def judge_deliveries(run: Run) -> Any:
    numbers = [number for number, _ in run.delivered]
    if numbers != run.yielded[: len(numbers)]:
        yield Complaint("delivered", f"{numbers} of {run.yielded}")
    lost = len(run.yielded) - len(numbers)
    if run.schedule["kind"] == "generator" and lost:
        is_cut = run.end not in ("end", "source", "break", "own")
        if lost > 1 or not (is_cut or run.schedule["patience"][0] != "none"):
            yield Complaint("lost", f"{run.end}: {numbers} of {run.yielded}")


def judge_plain(run: Run) -> Any:
    outcome = Outcome(tuple(run.delivered), run.end, run.at, len(run.disconnects))
    expected: list[Outcome] = []
    for possible in allowed(run.schedule, run.form, native=run.native):
        if outcome == possible:
            return
        expected.append(possible)
    kind = "outcome" if all(outcome.end != e.end for e in expected) else "when"
    shown = "; ".join(str(tuple(e)) for e in expected[:4])
    yield Complaint(kind, f"{tuple(outcome)}, and the rules say: {shown}")


def judge_rough(run: Run, first: Struck | None) -> Any:
    schedule = run.schedule
    verdict = getattr(run.error, "verdict", None)
    is_verdict = run.end in ERRORS.values() and run.end != "end"
    outer = schedule["outer"]
    own = schedule["patience"][0] != "none" and schedule["on_cancel"][0] == "flushes"
    if run.end == "cancelled" and not run.sent and not own:  # or the rest of the consumer's own
        yield Complaint("invented", "a cancellation that nobody sent")
    if run.end == "outer" and outer[0] == "none":
        yield Complaint("invented", f"a timeout that nobody set: {run.error!r}")
    swallows = schedule["on_cancel"] != ["unwinds"] or schedule["on_close"][0] in (
        "swallows",
        "raises",
    )
    sent_at = run.sent_at if run.native and not swallows else None
    # One that comes as the last thing reaches what is awaited next.
    if sent_at is not None and run.end != "cancelled" and run.at > sent_at:
        yield Complaint("swallowed", f"a native cancel at {sent_at}: {run.end}")
    disturbed = outer[0] != "none" or schedule["patience"][0] != "none"
    if disturbed and schedule["on_cancel"] != ["unwinds"]:
        return  # what the source makes of somebody else's cancel is not foreseen
    # A generator's `finally` runs in its last pull, and what it takes there is silence.
    closes_in_pull = schedule["kind"] == "generator" and schedule["on_close"] != ["none"]
    if closes_in_pull and (first is None or may_end_by_itself(run)):
        return
    if is_verdict and first is None:
        yield Complaint("false verdict", f"{run.end} at {run.at:g}: no limit was reached")
    elif is_verdict and first is not None and verdict is not None:
        # An impatient consumer pulls sooner, and a bare `total` is judged at each pull.
        is_sooner = schedule["patience"][0] != "none" and verdict.limit == "total"
        if (verdict.at - run.began) / run.scale < first.at - 1e-6 and not is_sooner:
            yield Complaint(
                "early", f"{verdict.limit} at {verdict.at - run.began:g}, not {first.at:g}"
            )
        goes_on = schedule["interrupt"] != ["none"] or schedule["on_cancel"][0] in (
            "flushes",
            "swallows",
        )
        if verdict.limit not in first.limits and not goes_on and not disturbed:
            yield Complaint("limit", f"{verdict.limit}, and {first.limits} were reached first")
    yield from judge_end(run)
    if first is None:
        if run.disconnects:
            yield Complaint("disconnect", f"at {run.disconnects}, with no limit reached")
        return
    # What an interrupt brings may end the turn well, and then nothing is due any more; so may what
    # a source says that has swallowed our cancel.
    goes_on = ("swallows", "flushes") if schedule["kind"] == "channel" else ("swallows",)
    yields_on = schedule["interrupt"] != ["none"] or schedule["on_cancel"][0] in goes_on
    # One that flushes and then ends does so in its next pull, which its closing may keep waiting.
    yields_on |= closes_in_pull and schedule["on_cancel"][0] == "flushes"
    went_on = yields_on and any(at >= first.at for _, at in run.delivered)
    comes_first = first.is_certain and (outer[0] == "none" or outer[1] > first.at)
    impatient = schedule["patience"][0] != "none"
    if (
        run.end == "end"
        and comes_first
        and not impatient
        and "exit_grace" not in first.limits
        and not run.source_reached_its_end
        and not went_on
    ):
        yield Complaint("missed", f"{first.limits} at {first.at:g}, and the stream ended well")
    # A monitor that is told of no wait cannot know whose error it is that ends a grace.
    of_body = (
        run.form == "monitor" and not schedule["marks"] and "exit_grace" in schedule["limits"]
    )
    by_itself = of_body or ["raise"] in schedule["source"] or schedule["on_close"] == ["raises"]
    if run.end == "source" and comes_first and not (by_itself or impatient):
        yield Complaint("disguised", f"{first.limits} at {first.at:g} came out as {run.error!r}")
    if run.at > first.at + budget(schedule) and comes_first and not went_on:
        yield Complaint(
            "late", f"{run.end} at {run.at:g}, {first.limits} were due at {first.at:g}"
        )
    if len(run.disconnects) > 1:
        yield Complaint("disconnect", f"called at {run.disconnects}")
    wants = schedule["disconnect"] != ["none"] and schedule["interrupt"] == ["none"]
    if is_verdict and wants and not run.disconnects:
        yield Complaint("disconnect", "there was a verdict, and it was not called")


def may_end_by_itself(run: Run) -> bool:
    """Whether its source may come to its end, if nobody else disturbs it."""
    polite = undisturbed(run.schedule, run.form, native=run.native)
    return any(outcome.end in ("end", "source", "GeneratorExit") for outcome in polite)


def judge_end(run: Run) -> Any:
    """A source that is slow or deaf when it is closed changes when it ends, within bounds, not how."""
    schedule = run.schedule
    if schedule["outer"][0] != "none" or schedule["patience"][0] != "none":
        return
    if schedule["interrupt"] != ["none"] or schedule["on_cancel"][0] in ("flushes", "swallows"):
        return
    polite = undisturbed(schedule, run.form, native=run.native)
    due = max(outcome.at for outcome in polite)
    if run.at > due + budget(schedule):
        yield Complaint("late", f"{run.end} at {run.at:g}, due at {due:g}")
    only_slow = schedule["on_cancel"][0] in ("unwinds", "deaf") and schedule["on_close"] != [
        "raises"
    ]
    if only_slow and run.end not in {outcome.end for outcome in polite}:
        yield Complaint("end", f"{run.end} at {run.at:g}, not {polite[0].end} at {due:g}")


def budget(schedule: Schedule) -> float:
    """How long a verdict may take to surface, all bounds and all misbehaviour together."""
    seconds = UNWINDING_BOUND + 2 * schedule["disconnect_timeout"] * schedule["scale"]
    seconds += AFTERWARDS
    if schedule["interrupt"] != ["none"]:
        seconds += INTERRUPT_BOUND + sum(
            step[1] for step in flat(schedule["source"]) if step[0] == "sleep"
        )
    work = sum(each[1] for works in schedule["work"] for each in works if len(each) > 1)
    match schedule["on_cancel"]:
        case ["swallows", n]:
            seconds += n + 1
        case ["deaf", d]:
            seconds += 2 * d
        case ["flushes", n, _]:
            # Each message begins a new silence: the hang is noticed once more at most.
            seconds += (n + 1) * max(schedule["limits"].values(), default=0)
    match schedule["on_close"]:
        case ["swallows", n]:
            seconds += 2 * (n + 1)
        case ["takes", d]:
            seconds += d
        case ["times out", d]:
            seconds += d
    return seconds / schedule["scale"] + work


# -- drawing ---------------------------------------------------------------------------------


def may_be_handed_on(schedule: Schedule, form: str) -> bool:
    """Whether pulls may be made in other tasks than the consumer's.

    anyio cancels a task that waits for another in each pass: time would stand still while that
    other is deaf, and a teardown be left that a scope's one cancel waits for. Each hand-over takes
    passes, so what comes at `total`'s instant is anybody's. And asyncio does not hand on a
    GeneratorExit as it is.
    """
    polite = schedule["on_cancel"] == ["unwinds"] and schedule["on_close"] == ["none"]
    scopes = schedule["outer"][0] == "scope" or schedule["patience"][0] != "none"
    struck = form == "monitor" or (form == "block" and "total" in schedule["limits"])
    return polite and not scopes and not struck and ["genexit"] not in schedule["source"]


def blocks_of(schedule: Schedule) -> list[tuple[list[Any], int]]:
    """Where the schedule blocks the loop: each as a list of steps, and its place in it."""
    lists = [schedule["source"], *schedule["work"], schedule["asides"]]
    return [(steps, i) for steps in lists for i, step in enumerate(steps) if "block" in step]


def has_clear_blocks(schedule: Schedule) -> bool:
    """Whether the loop is blocked once at most, and at no instant at which anything else is due.

    What is due together with a block, or while another one lasts, comes before or after it, as the
    loop likes: such a schedule has any number of outcomes.
    """
    blocks, asides = blocks_of(schedule), schedule["asides"]
    is_aside = bool(blocks) and blocks[0][0] is asides
    return len(blocks) < 2 and not (is_aside and len(asides) > 1)


class Drawing:
    """Draws one schedule."""

    def __init__(self, random: Random, form: str) -> None:
        self.random = random
        self.form = form
        self.chance = lambda p: random.random() < p
        self.choice = random.choice

    def length(self, most: float = 2.0) -> float:
        return self.choice([0.25, 0.5, 0.5, 0.75, 1.0, 1.0, 1.25, 1.5, 2.0, 3.0])

    def schedule(self) -> Schedule:
        schedule: Schedule = {**SIMPLEST, "limits": self.limits()}
        is_long = self.chance(0.08)
        schedule["scale"] = 120 if is_long else 1
        schedule["kind"] = self.choice(["generator", "generator", "channel"])
        # After a block, what another task has to hand on first may be too late (T3).
        no_blocks = is_long or schedule["kind"] == "channel"
        schedule["source"] = self.source(is_long, no_blocks)
        schedule["work"] = [self.work(no_blocks) for _ in range(self.choice([0, 1, 2, 4, 6]))]
        if self.chance(0.25):
            schedule["leave"] = [self.choice(["break", "raise"]), self.choice([1, 2, 3])]
        if self.chance(0.35):
            schedule["asides"] = self.asides(no_blocks)
        if self.chance(0.5):
            schedule["disconnect"] = [
                self.choice(["returns", "returns", "raises", "hangs"]),
                self.choice([0.25, 0.5, 1.0, 2.0]),
            ]
            if schedule["disconnect"][0] == "hangs":
                schedule["disconnect"][1] = 20.0
        schedule["disconnect_timeout"] = self.choice([0.5, 1, 2])
        schedule["observer"] = self.choice(
            ["none", "none", "none", "hears", "raises", "raises worse"]
        )
        schedule["marks"] = self.chance(0.7)
        if self.chance(0.3):
            schedule["outer"] = self.outer(schedule)
        elif self.chance(0.1):
            schedule["patience"] = ["scope", self.length()]
        if not is_long and self.chance(0.4):
            self.roughen(schedule)
        if not no_blocks and self.chance(0.08):
            self.stall(schedule)
        elif self.chance(0.03):
            self.outlive(schedule)
        self.clear_blocks(schedule)
        self.limit_calls(schedule)
        schedule["hands_on"] = self.chance(0.15) and may_be_handed_on(schedule, self.form)
        if self.chance(0.3):
            self.nap(schedule)
        return schedule

    def nap(self, schedule: Schedule) -> None:
        """Let the machine sleep while the stream is silent, more often than not."""
        schedule["limits"]["after_sleep"] = self.length()
        times = self.random.sample(range(24), self.choice([1, 1, 2]))
        naps = [[time * 0.25 + 0.125, "sleep"] for time in times]
        schedule["asides"] = sorted([*schedule["asides"], *naps], key=lambda aside: aside[0])

    def limits(self) -> dict[str, float]:
        limits: dict[str, float] = {}
        for name, share in (
            ("idle", 0.85),
            ("first", 0.3),
            ("liveness", 0.25),
            ("turn", 0.25),
            ("tools", 0.6),
            ("exit_grace", 0.3),
            ("total", 0.4),
        ):
            if self.chance(share):
                limits[name] = self.length()
                if name in ("turn", "total") or self.chance(0.2):
                    limits[name] += self.choice([0, 1, 2, 5])
        return limits or {"idle": 1.0}

    def source(self, is_long: bool, no_blocks: bool) -> list[Any]:
        steps: list[Any] = []
        for _ in range(self.choice([0, 1, 2, 3, 4, 6, 8])):
            if self.chance(0.6):
                steps.append(["sleep", self.length()])
            if is_long and self.chance(0.4):
                said = [self.choice([["wait", "a"], ["ping"], ["progress"]])]
                steps.append(["every", 0.25, self.choice([4, 12, 40, 160]), said])
            if steps and steps[-1][0] == "sleep" and not no_blocks and self.chance(0.05):
                steps.append(["block", self.length()])
            steps.append(["say", self.message()])
        steps.append([self.choice(["hang", "hang", "hang", "end", "end", "raise", "genexit"])])
        return [step for step in steps if step != ["end"]]

    def message(self) -> list[Any]:
        if self.chance(0.45):
            return [["progress"]]
        return [self.signal() for _ in range(self.choice([1, 1, 1, 2]))]

    def signal(self) -> list[Any]:
        id_ = self.choice(["a", "b", "a", "b", ""])
        return self.choice(
            [
                ["progress"],
                ["ping"],
                ["ping"],
                ["usage"],
                ["session"],
                ["failed"],
                ["odd"],
                ["start", id_, False],
                ["start", id_, False],
                ["start", id_, True],
                ["finish", id_],
                ["finish", id_],
                ["wait", id_],
                ["waited", id_],
                ["turn", "success", False],
                ["turn", "success", False],
                ["turn", "error", False],
                ["turn", "success", True],
            ]
        )

    def work(self, no_blocks: bool) -> list[Any]:
        actions: list[Any] = []
        for _ in range(self.choice([0, 1, 1, 1, 2])):
            kind = self.choice(
                ["work"] * 6 + ["work under a timeout", "hold", "touch", "prompt", "block"]
            )
            if kind in ("touch", "prompt"):
                actions.append([kind])
            elif kind != "block" or (not no_blocks and self.chance(0.3)):
                actions.append([kind, self.length()])
        return actions

    def asides(self, no_blocks: bool) -> list[Any]:
        times = sorted(self.random.sample(range(40), self.choice([1, 2, 3, 5])))
        asides: list[Any] = []
        for time in times:
            at, key = time * 0.25 + 0.125, self.choice(["x", "y"])
            what = self.choice(
                ["hold", "hold", "release", "release", "touch", "touch", "prompt", "block"]
            )
            if what == "block" and (no_blocks or self.chance(0.5)):
                what = "touch"
            more = {"hold": [key, self.length()], "release": [key], "block": [self.length()]}
            asides.append([at, what, *more.get(what, [])])
        return asides

    def stall(self, schedule: Schedule) -> None:
        """Block the loop, as often as not while one limit comes due, and just before another."""
        when, length = self.random.randrange(1, 32) * 0.25 + 0.125, self.length()
        schedule["asides"] = [[when, "block", length]]
        if self.chance(0.5):
            schedule["source"] = [["hang"]]
            soon = self.choice([0.125, 0.375, 0.625, 1.125])
            schedule["limits"] |= {"idle": when + 0.125, "turn": when + length + soon}

    def outlive(self, schedule: Schedule) -> None:
        """Let work in the background outlive its turn and its allowance, before another turn begins."""
        said = [["start", "a", True]], [["turn", "success", False]]
        schedule["source"] = [*(["say", each] for each in said), [self.choice(["hang", "raise"])]]
        schedule["limits"]["tools"] = self.length()
        if self.chance(0.5):
            schedule["work"] = [[], [["work", self.length() + 2], ["prompt"]]]
        else:
            schedule["work"], schedule["limits"]["exit_grace"] = [], 40
            schedule["asides"] = [[self.length() + 2.125, "prompt"]]

    def limit_calls(self, schedule: Schedule) -> None:
        """In some: a ceiling that is reached, by itself and where a limit ties; nobody from outside."""
        dice = Random(repr(schedule))  # of its own: the other schedules stay what they were
        if self.form == "monitor" or dice.random() > 0.08:
            return
        quiet = ("on_cancel", "on_close", "leave", "patience", "outer", "interrupt")
        schedule |= {name: SIMPLEST[name] for name in quiet}
        schedule["ceiling"] = dice.choice([1, 1, 2])
        for step in schedule["source"]:
            if step[0] == "say" and dice.random() < 0.6:
                step[1] = [*([["usage"]] * dice.choice([1, 1, 2])), *step[1]]
        for steps in (schedule["source"], schedule["asides"], *schedule["work"]):
            steps[:] = [step for step in steps if "block" not in step]

    def clear_blocks(self, schedule: Schedule) -> None:
        """Leave one block at most, and alone if it is an aside."""
        for steps, i in reversed(blocks_of(schedule)[:-1]):
            del steps[i]
        if not has_clear_blocks(schedule):
            schedule["asides"] = [aside for aside in schedule["asides"] if "block" in aside]

    def outer(self, schedule: Schedule) -> list[Any]:
        # An instant at which something is due anyway, as often as not.
        ties = [*schedule["limits"].values(), self.length()]
        at = self.choice(ties) + self.choice([0, 0, 0.25, 0.5, 1, 2])
        match self.choice(["timeout", "scope", "cancel", "cancel", "cancel2"]):
            case "cancel":
                return ["cancel", at, self.choice([0, 0, 1, 2, 3, 4, 5, 6])]
            case "cancel2" if schedule["scale"] == 1:
                return ["cancel2", at, self.choice([0, 1, 2, 3]), self.choice([0, 0.25, 0.5])]
            case other:
                return ["scope" if other == "cancel2" else other, at]

    def roughen(self, schedule: Schedule) -> None:
        if self.chance(0.5):
            schedule["on_cancel"] = self.choice(
                [
                    ["flushes", 1, "raises"],
                    ["flushes", 2, "raises"],
                    ["flushes", 1, "ends"],
                    ["swallows", 1],
                    ["swallows", 2],
                    ["swallows", 4],
                    ["deaf", 1.0],
                    ["deaf", 4.0],
                    ["deaf", 8.0],
                    ["raises"],
                ]
            )
            if schedule["on_cancel"] == ["raises"] and self.chance(0.5):
                schedule["on_cancel"] = ["ends"]  # as if it were complete
        if self.chance(0.4) and self.form != "monitor":  # there the source is not ours to close
            schedule["on_close"] = self.choice(
                [
                    ["takes", 0.5],
                    ["takes", 3.0],
                    ["takes", 8.0],
                    ["raises"],
                    ["times out", 0.5],
                    ["times out", schedule["disconnect_timeout"]],
                    ["swallows", 1],
                    ["swallows", 3],
                ]
            )
        if self.chance(0.3):
            schedule["interrupt"] = self.choice(
                [
                    ["returns", 0.5],
                    ["raises", 0, 1],
                    ["raises", 0, 2],
                    ["raises", 0.5, 0],
                    ["raises", 0, 3],
                    ["raises", 0, 4],
                    ["tells", 0.5],
                    ["hangs"],
                ]
            )
            if self.chance(0.7):
                last = [
                    "say",
                    self.choice(
                        [[["progress"]], [["turn", "success", False]], [["turn", "error", False]]]
                    ),
                ]
                schedule["source"] = [
                    s for s in schedule["source"] if s[0] not in ("hang", "raise", "genexit")
                ]
                schedule["source"] += [["told"], last, ["hang"]]


# -- subjects --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Streams:
    """Guarded streams in one form."""

    name: str
    limit: float = 60_000.0
    simplest: Any = field(default_factory=lambda: SIMPLEST)

    def draw(self, random: Random) -> Schedule:
        return Drawing(random, self.name).schedule()

    def is_valid(self, schedule: Schedule) -> bool:
        positive = [
            *schedule["limits"].values(),
            schedule["disconnect_timeout"],
            schedule["scale"],
        ]
        steps = schedule["source"]
        # What blocks before it has waited at all is not asked yet, and not judged here.
        blocks = [i for i, step in enumerate(steps) if step[0] == "block"]
        return (
            bool(schedule["limits"])
            and (not schedule["hands_on"] or may_be_handed_on(schedule, self.name))
            and all(value > 0 for value in positive)
            and all(at % 0.25 == 0.125 for at, *_ in schedule["asides"])
            and has_clear_blocks(schedule)
            and not (schedule["kind"] == "channel" and blocks_of(schedule))
            and all(step[1] and step[2] for step in steps if step[0] == "every")
            and all(i > 0 and steps[i - 1][0] == "sleep" and steps[i - 1][1] > 0 for i in blocks)
        )

    async def run(self, schedule: Schedule) -> list[Complaint]:
        run = Run(schedule, self.name)
        async with anyio.create_task_group() as group:
            run.start = group.start_soon
            if run.native:
                task = asyncio.get_running_loop().create_task(run.consume())
                run.cancel = task.cancel
                group.start_soon(run.do_asides)
                group.start_soon(run.do_cancels)
                await asyncio.wait({task})
                task.result()
            else:
                async with anyio.create_task_group() as consumers:
                    consumers.start_soon(run.consume)
                    group.start_soon(run.do_asides)
                    group.start_soon(run.do_cancels)
            run.is_over.set()
            group.cancel_scope.cancel()
        await anyio.sleep(SETTLED * run.scale)
        return judge(run)


SUBJECTS = (Streams("bare"), Streams("block"), Streams("monitor"))
