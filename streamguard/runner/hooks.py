"""`--on-warn` and `--on-end`: commands of the user's, run beside the command or when it has ended.

Each has a process of ours that nobody waits for while the command runs, and a keeper of its own: so it is
ended with all that it has started, when it is done or when its time is up, and should we be killed. It
decides nothing: what becomes of it is a line on standard error. Its input is empty, its output goes to
standard error, and what happened is in its environment. Imported where it is asked for.
"""

from __future__ import annotations

import os
import select
import time

from streamguard._base.configured import PREFIX, variable
from streamguard._base.defaults import HOOK
from streamguard._base.quoting import quoted
from streamguard._base.variables import MARK
from streamguard.runner import aside
from streamguard.runner._signal import name_of, signal
from streamguard.runner.child import CannotRunError, Ends, Start, environment_given, marked
from streamguard.runner.keeper import EndingPlan
from streamguard.runner.keeper_link import KeeperLink
from streamguard.runner.outbox import write_all
from streamguard.runner.result import Result
from streamguard.runner.wakeups import STOPPING

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from streamguard.runner.wakeups import Wakeups

# What is told, by the names of variables; what is not known is not in the environment, ours included.
FACTS = (
    "EVENT",
    "REASON",
    "LIMIT",
    "WINDOW",
    "ELAPSED",
    "PID",
    "EXIT",
    "RECEIPT",
    "STATUS_FILE",
    "SESSION_ID",
)
# So many may run at one time: a hook that hangs may not fill the machine.
_AT_ONCE = 4
# From the request to end to KILL; then its keeper needs some more, to prove it.
_GRACE = 1.0
_PROVING = 2.0
LONGEST = HOOK + _GRACE + _PROVING


class Hooks:
    """The hooks of one run. `complain` is told of those that could not be started."""

    def __init__(
        self,
        program: str,
        wakeups: Wakeups,
        closed: frozenset[int],
        complain: Callable[[str], None],
    ) -> None:
        self._program = program
        self._wakeups = wakeups
        self._closed = closed
        self._complain = complain
        self._running: list[int] = []

    def begin(self, option: str, words: Sequence[str], facts: Mapping[str, object]) -> None:
        """Start that, and wait for nothing."""
        self._running = [pid for pid in self._running if not aside.has_ended(pid)]
        if len(self._running) >= _AT_ONCE:
            self._complain(f"{option} is not run: {_AT_ONCE} of them still are")
            return
        hook = _Hook(f"{self._program}: {option}", words, self._environment(facts))
        try:
            pid = aside.fork(
                hook.see_to, (2,), before=lambda: hook.start(self._wakeups, self._closed)
            )
        except OSError as error:
            self._complain(f"{option} is not run: {error.strerror}")
        else:
            self._running.append(pid)

    def finish(self) -> None:
        """Wait until all of them are done, within their bounds; a signal that asks us to end ends that."""
        until = time.monotonic() + LONGEST
        poll = select.poll()
        poll.register(self._wakeups.fd, select.POLLIN)
        while self._are_any() and (left := until - time.monotonic()) > 0:
            poll.poll(left * 1e3)  # the end of each wakes us
            if STOPPING.intersection(self._wakeups.read()):
                break
        for pid in self._running:
            aside.dismiss(pid, 0.0)  # its keeper ends what it has started

    def _are_any(self) -> bool:
        self._running = [pid for pid in self._running if not aside.has_ended(pid)]
        return bool(self._running)

    def _environment(self, facts: Mapping[str, object]) -> dict[str, str]:
        environment = marked(environment_given())
        for name in FACTS:
            environment.pop(variable(PREFIX, name), None)
            if (fact := facts.get(name)) is not None:
                text = f"{fact:g}" if isinstance(fact, float) else str(fact)
                environment[variable(PREFIX, name)] = quoted(text)
        return environment


class _Hook:
    """One hook, in its process."""

    def __init__(self, who: str, words: Sequence[str], environment: dict[str, str]) -> None:
        self._who = who
        self._words = words
        self._environment = environment
        self._outcome = Result()
        self._link: KeeperLink | None = None

    def start(self, wakeups: Wakeups, closed: frozenset[int]) -> Sequence[int]:
        """Have it started, where the run works, and with its standard error."""
        nothing = os.open(os.devnull, os.O_RDWR)
        plan = EndingPlan(
            self._environment[MARK], signal=signal.SIGTERM, grace=_GRACE, leads_session=True
        )
        ends = Ends(nothing, nothing if 2 in closed else 2, None)
        start = Start(self._words, self._environment, wakeups, ends, group=None, closed=closed)
        self._poll = select.poll()
        try:
            self._link = KeeperLink(
                plan,
                start,
                self._outcome,
                self._poll,
                adopts_orphans=False,
                sent=_pass_over,
                lost=_pass_over,
            )
        except CannotRunError as error:
            self._say(str(error))
        except OSError as error:
            self._say(f"it cannot be run: {error.strerror}")
        return () if self._link is None else self._link.descriptors

    def see_to(self) -> None:
        """Until it has ended, and nothing of it is left."""
        link, outcome = self._link, self._outcome
        if link is None:
            return
        up_at = time.monotonic() + HOOK
        is_late = False
        while not link.has_ended:
            due = min(link.due(), up_at if link.began is None else link.due())
            left = due - time.monotonic()
            ready = self._poll.poll(None if left == float("inf") else max(left, 0.0) * 1e3)
            try:
                for fd, _ in ready:
                    link.handle(fd)
            except CannotRunError as error:
                self._say(str(error))
                return
            now = time.monotonic()
            link.pursue(now)
            if link.began is None and (outcome.is_dead or now >= up_at):
                is_late = not outcome.is_dead
                link.ask_tree(signal.SIGTERM, now)
        link.close()
        if is_late:
            self._say(f"{self._words[0]!r} was ended: it was not done in {HOOK:g} s")
        elif outcome.status:
            code = os.waitstatus_to_exitcode(outcome.status)
            how = f"with {code}" if code >= 0 else f"by {name_of(-code)}"
            self._say(f"{self._words[0]!r} ended {how}")

    def _say(self, text: str) -> None:
        try:
            write_all(2, f"{quoted(f'{self._who}: {text}')}\n".encode(errors="replace"))
        except OSError:
            pass  # nobody listens


def _pass_over(_what: str) -> None:
    """What becomes of a hook is said when it is over."""
