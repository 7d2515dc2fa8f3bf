"""Sessions that get somewhere, and those that do not: what limits on progress are measured against.

A session is a list of messages: when each comes, and what it says. `session(seed)` puts together what healthy
agents do, as users see them do it: many files, polling, a bulk rename, builds that fail otherwise each
time, sub-agents beside one another with long tools of their own, retries, long thoughts, people who are
asked, background work that comes to its end. None of it is to be told of, ever.

The shapes below it are what users complain about (a call without end, a cycle, a dead sub-agent behind one that
talks, an answer that is none, ...): each is to be told at its number. Knows signals alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import NamedTuple, TypeAlias

from streamguard.signals import (
    Failed,
    Liveness,
    Progress,
    SessionOpened,
    Signal,
    TurnEnded,
    Usage,
    WaitEnded,
    Waiting,
    WorkFinished,
    WorkProgressed,
    WorkStarted,
)

MINUTE = 60.0
HOUR = 3600.0
# The limits that the sessions are healthy under: the defaults.
QUIET = 900.0
REPEATS = 20


class Said(NamedTuple):
    """One message: how long after the one before it comes, and what it says."""

    after: float
    signals: tuple[Signal, ...]


Part: TypeAlias = list[Said]
END = TurnEnded("success", answered=True)


class Agent:
    """What one healthy agent does, by chance."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self._ids = 0

    def id(self, kind: str = "toolu") -> str:
        self._ids += 1
        return f"{kind}_{self._ids}"

    def soon(self) -> float:
        return self.random.uniform(0.0, 20.0)

    # -- what it does ------------------------------------------------------------------------

    def work(
        self,
        name: str,
        asked: object,
        came: object,
        *,
        takes: float | None = None,
        of: str | None = None,
        error: bool = False,
    ) -> Part:
        """A tool that is asked, and gives."""
        id_, takes = self.id(), self.soon() if takes is None else takes
        begun = WorkStarted(id_, name, parent=of, input=asked)
        over = WorkFinished(id_, error, came)
        signs = (WorkProgressed(of),) if of is not None else ()
        return [Said(self.soon(), (*signs, begun)), Said(takes, (*signs, over))]

    def talk(self) -> Part:
        return [Said(self.soon(), (Progress(),)) for _ in range(self.random.randint(1, 12))]

    def think(self) -> Part:
        """For long, without a word; the line lives."""
        pings = [Said(10.0, (Liveness(),)) for _ in range(self.random.randint(0, 60))]
        return [*pings, Said(self.random.uniform(60, 40 * MINUTE), (Progress(),))]

    def explore(self, of: str | None = None) -> Part:
        """Files, now and then one that it has read already."""
        known = [f"src/{n}.py" for n in range(self.random.randint(3, 30))]
        part: Part = []
        for _ in range(self.random.randint(2, 25)):
            file = self.random.choice(known)
            part += self.work("Read", {"file_path": file}, f"text of {file}", of=of)
        # The same twice in a row, or a few times: nobody's loop.
        again = self.random.randint(1, 6)
        return part + [
            s
            for _ in range(again)
            for s in self.work("Bash", {"command": "git status"}, "", of=of)
        ]

    def rename(self) -> Part:
        """Hundreds of calls that look alike, and all say nothing."""
        return [
            said
            for n in range(self.random.choice([60, 500]))
            for said in self.work("Bash", {"command": f"git mv a{n}.txt b{n}.txt"}, "", takes=0.1)
        ]

    def poll(self) -> Part:
        """The same question again and again, whose answer changes each time, or every few times."""
        every = self.random.randint(1, REPEATS - 2)
        asked = {"command": "gh run view 7 --json jobs"}
        return [
            said
            for n in range(self.random.randint(20, 120))
            for said in self.work("Bash", asked, f"{n // every} of 9 jobs are done", takes=30.0)
        ]

    def build(self) -> Part:
        """An edit, a build; the errors change, or not every time. What is edited is never the same."""
        part: Part = []
        errors = 30
        for n in range(self.random.randint(5, 30)):
            edit = {"file_path": "a.c", "old_string": f"x{n}", "new_string": f"x{n + 1}"}
            part += self.work("Edit", edit, "The file has been updated.")
            errors -= self.random.choice([0, 0, 1, 3])
            came = (f"{errors} errors", 2)
            part += self.work("Bash", "make", came, takes=MINUTE, error=errors > 0)
        return part

    def wait_for_a_person(self) -> Part:
        id_ = self.id("ask")
        waits = self.random.uniform(1.0, 12 * HOUR)
        return [Said(self.soon(), (Waiting(id_, "human"),)), Said(waits, (WaitEnded(id_),))]

    def retry(self) -> Part:
        """A server that is busy."""
        times = self.random.randint(1, 10)
        return [Said(self.random.uniform(0.5, 40.0), (Failed("server"),)) for _ in range(times)]

    def untold(self) -> Part:
        """Calls of which nobody tells what they were asked, or what came of them."""
        asked, came = self.random.choice([(None, None), ({"a": 1}, None), (None, "ok")])
        times = self.random.randint(1, 60)
        return [s for _ in range(times) for s in self.work("file_change", asked, came, takes=1.0)]

    def hooks(self) -> Part:
        """Every call has one, and they are all the same."""
        part: Part = []
        for n in range(self.random.randint(1, 40)):
            hook = f"hook:{self.id()}"
            part.append(Said(0.1, (WorkStarted(hook, "PreToolUse:Bash", "hook", input=1),)))
            part.append(Said(0.1, (WorkFinished(hook, outcome=1),)))
            part += self.work("Bash", {"command": f"echo {n}"}, f"{n}")
        return part

    def server_tools(self) -> Part:
        """Searches by the API, told anew with what they were asked."""
        part: Part = []
        for n in range(self.random.randint(1, 30)):
            id_ = self.id("srv")
            begun = WorkStarted(id_, "web_search", "server")
            asked = WorkStarted(id_, "web_search", "server", input={"query": f"q{n}"})
            over = WorkFinished(id_, outcome=(f"https://example.com/{n}",))
            part += [Said(1.0, (begun,)), Said(1.0, (asked,)), Said(5.0, (over,))]
        return part

    # -- sub-agents --------------------------------------------------------------------------

    def doings_of(self, call: str) -> Part:
        """What a sub-agent does: it speaks at least every quarter of an hour, or a tool of its own runs."""
        part: Part = []
        for _ in range(self.random.randint(1, 8)):
            match self.random.randrange(3):
                case 0:
                    part += self.explore(of=call)
                case 1:
                    takes = self.random.uniform(10.0, 2 * HOUR)
                    came = f"{self.random.random()}"
                    part += self.work("Bash", {"command": "make test"}, came, takes=takes, of=call)
                case _:
                    gap = self.random.uniform(1.0, QUIET - 30.0)
                    part.append(Said(gap, (WorkProgressed(call),)))
        return part

    def sub_agent(self) -> Part:
        """Its call waits for it."""
        call = self.id()
        begun = WorkStarted(call, "Task", "tool", input={"prompt": call})
        over = WorkFinished(call, outcome=f"report of {call}")
        return [Said(self.soon(), (begun,)), *self.doings_of(call), Said(self.soon(), (over,))]

    def sub_agents(self) -> Part:
        """Several beside one another."""
        return beside(*(self.sub_agent() for _ in range(self.random.randint(2, 4))))

    def sub_agent_in_the_background(self) -> Part:
        """Its call is over at once, and it goes on as a task, while the agent goes on, too."""
        call = self.id()
        task = f"task:{call}"
        begun = WorkStarted(call, "Task", input={"prompt": call})
        goes_on = WorkStarted(task, "local_agent", "task", call, background=True)
        launched = WorkFinished(call, outcome="launched")
        over = WorkFinished(task, outcome="done")
        start = [Said(1.0, (begun,)), Said(0.1, (goes_on,)), Said(0.1, (launched,))]
        theirs = [*self.doings_of(call), Said(1.0, (over,)), Said(0.0, (over,))]
        return [*start, *beside(theirs, self.explore())]

    def server_in_the_background(self) -> Part:
        """It says nothing for hours, and is ended when it has done its work."""
        task = f"task:{self.id()}"
        begun = WorkStarted(task, "local_bash", "task", "toolu_x", background=True)
        return [
            Said(1.0, (begun,)),
            *self.build(),
            *self.think(),
            Said(1.0, (WorkFinished(task),)),
        ]

    # -- all of it ---------------------------------------------------------------------------

    @property
    def doings(self) -> list[Callable[[], Part]]:
        return [
            *(self.talk, self.think, self.explore, self.rename, self.poll, self.build),
            *(self.wait_for_a_person, self.retry, self.untold, self.hooks, self.server_tools),
            *(self.sub_agent, self.sub_agents, self.sub_agent_in_the_background),
            self.server_in_the_background,
        ]

    def turn(self) -> Part:
        doings = self.random.choices(self.doings, k=self.random.randint(1, 4))
        spent = Usage({"input_tokens": 10, "output_tokens": 1}, "call", self.id("msg"))
        opened = SessionOpened("s")
        return [
            Said(self.soon(), (opened,)),
            Said(self.soon(), (opened, spent, Progress())),
            *(said for doing in doings for said in doing()),
            *self.talk(),
            Said(self.soon(), (self.random.choice([END, TurnEnded("success")]),)),
        ]


def beside(*parts: Part) -> Part:
    """Several parts at once: the messages of all in the order in which they come."""
    told: list[tuple[float, int, int, tuple[Signal, ...]]] = []
    for which, part in enumerate(parts):
        now = 0.0
        for number, said in enumerate(part):
            now += said.after
            told.append((now, which, number, said.signals))
    told.sort(key=lambda each: each[:3])
    before = [0.0, *(each[0] for each in told)]
    return [Said(at - before[n], signals) for n, (at, _, _, signals) in enumerate(told)]


def session(seed: int) -> Part:
    """A healthy session: a few turns of one agent."""
    agent = Agent(seed)
    return [said for _ in range(agent.random.randint(1, 3)) for said in agent.turn()]


# --- shapes that get nowhere ------------------------------------------------------------------


def round_of(*steps: tuple[str, object, object], times: int, error: bool = False) -> Part:
    """The same steps, one after the other, again and again. Each is told in two messages."""
    agent = Agent(0)
    return [
        said
        for _ in range(times)
        for name, asked, came in steps
        for said in agent.work(name, asked, came, takes=1.0, error=error)
    ]


def equal_calls(times: int) -> Part:
    return round_of(("Bash", {"command": "ls"}, "a\nb"), times=times)


def failing_calls(times: int) -> Part:
    return round_of(("Edit", {"old_string": "x"}, "String not found."), times=times, error=True)


def cycle(length: int, times: int) -> Part:
    steps = [("Bash", {"command": f"step {n}"}, f"{n}") for n in range(length)]
    return round_of(*steps, times=times)


def launches(times: int) -> Part:
    """A command in the background that is begun again and again; each goes on under an id of its own."""
    part: Part = []
    agent = Agent(0)
    for _ in range(times):
        begun, *rest = agent.work("Bash", {"command": "serve &"}, "launched", takes=1.0)
        task = f"task:{agent.id()}"
        part += [begun, Said(0.1, (WorkStarted(task, "", "task", background=True),)), *rest]
        part.append(Said(1.0, (WorkFinished(task),)))
    return part


def dead_behind_a_talker(until: float) -> Part:
    """Two sub-agents; the one called `dead` speaks at 60 s last, the other every ten seconds."""
    start = tuple(WorkStarted(name, "Task", "subagent") for name in ("dead", "alive"))
    dead = [Said(30.0, (WorkProgressed("dead"),)), Said(30.0, (WorkProgressed("dead"),))]
    alive = [Said(10.0, (WorkProgressed("alive"),)) for _ in range(int(until / 10))]
    # A timer of the command line's goes on for both.
    timer = [Said(30.0, (Liveness(),)) for _ in range(int(until / 30))]
    return [Said(0.0, start), *beside(dead, alive, timer)]


def slow_drip(every: float, until: float) -> Part:
    """A word, just before anybody would call it a silence."""
    return [Said(every, (Progress(),)) for _ in range(int(until / every))]


def empty_success(*, says_so: bool) -> Part:
    """A turn that ends with success, in which nothing was done and nothing was said."""
    opened = Said(0.1, (SessionOpened("s"),))
    return [opened, Said(5.0, (TurnEnded("success", answered=False if says_so else None),))]


def abandoned() -> Part:
    """An answer, and the end of the stream, while work goes on in the background."""
    task = WorkStarted("task:x", "local_bash", "task", "toolu_1", background=True)
    return [Said(1.0, (task,)), Said(1.0, (Progress(),)), Said(1.0, (END,))]


def runaway(calls: int, *, tokens: float, cost: float) -> Part:
    """One turn of very many calls of the model; the cost is told as the session's so far."""
    return [
        Said(
            5.0,
            (
                Usage({"input_tokens": tokens - 1, "output_tokens": 1}, "call", f"msg_{n}"),
                Usage({"input_tokens": tokens - 1, "output_tokens": 1}, "call", f"msg_{n}"),
                Usage({"total_cost_usd": cost * (n + 1)}, "session"),
                Progress(),
            ),
        )
        for n in range(calls)
    ]


def signals_in(part: Iterable[Said]) -> list[Signal]:
    """All that is said, in its order."""
    return [signal for said in part for signal in said.signals]
