"""What is told of work and holds is what a comparison of all there was with all there is would find."""

from __future__ import annotations

import random
import sys
import threading
from operator import itemgetter

from streamguard._watch.watch import Watch
from streamguard.activity import Activity
from streamguard.events.changes import News
from streamguard.events.teller import Teller
from streamguard.signals import Waiting, WorkFinished, WorkStarted
from tests.sizes import size
from tests.watch.test_watch_model import Chance


class Told(Teller):
    """Writes down what it is told."""

    def __init__(self) -> None:
        super().__init__(Activity(), ())
        self.all: list[tuple[str, dict[str, object]]] = []

    def tell(self, kind, **facts) -> None:
        self.all.append((kind.__name__, facts))


class Compared:
    """The slow way: a copy of all there was, and what is different."""

    def __init__(self, watch):
        self.watch, self.work, self.holds = watch, {}, {}

    def look(self, now, signals):
        ends = [(s.id, s.error) for s in signals if isinstance(s, WorkFinished)]
        before, self.work = self.work, dict(self.watch.work)
        for id_, work in before.items():
            if id_ not in self.work:
                errors = [error for ended, error in ends if ended == id_]
                how = "failed" if any(errors) else "finished" if errors else "dropped"
                elapsed = now - work.since
                yield (
                    "WorkOver",
                    {
                        "at": now,
                        "id": id_,
                        "name": work.name,
                        "elapsed": elapsed,
                        "outcome": how,
                    },
                )
        for id_, work in self.work.items():
            if id_ not in before:
                yield (
                    "WorkBegan",
                    {
                        "at": now,
                        "id": id_,
                        "name": work.name,
                        "background": work.background,
                        "scope": work.scope,
                        "parent": work.parent,
                    },
                )
        yield from self.of_holds(now, {s.id: s.reason for s in signals if isinstance(s, Waiting)})

    def of_holds(self, now, reasons):
        before, self.holds = (
            self.holds,
            {key: until for until, _, key in sorted(self.watch.holds, key=itemgetter(1))},
        )
        for key, until in before.items():
            if key not in self.holds:
                yield "HoldOver", {"at": min(now, until)}
        for key, until in self.holds.items():
            if before.get(key) != until:
                reason = reasons.get(getattr(key, "id", None))
                yield "HoldBegan", {"at": now, "until": until, "reason": reason}


def some(told):
    """What both can know: a hold's id and, said again, its reason are what was told first."""
    for kind, facts in told:
        known = dict(facts)
        if kind.startswith("Hold"):
            del known["id"], known["reason"]
        yield kind, known


def test_what_is_told_is_what_is_different():
    """E6: whatever comes in one message, in its order."""
    kinds = set()
    for seed in range(size(dev=200, ci=2000)):
        chance = Chance(random.Random(seed))
        watch = Watch(chance.limits())
        told, slow, now = Told(), Compared(watch), 0.0
        news = News(watch, told)
        watch.begin(now)
        for _ in range(40):
            now += chance.source.choice([0.0, 0.5, 8.0, 4000.0])
            key = chance.source.choice([1, 2])
            signals = chance.signals(now)
            match chance.source.choice(["see", "see", "see", "hold", "release", "touch"]):
                case "see":
                    watch.see(signals, now)
                case "hold":
                    signals = []
                    watch.hold(key, chance.hold_end(now), now)
                case "release":
                    signals = []
                    watch.release(key, now)
                case _:
                    signals = []
                    watch.touch(now)
            news.look(now, signals)
            got = [(kind, facts) for kind, facts in some(told.all) if kind != "TurnOver"]
            told.all.clear()
            wanted = []
            for kind, facts in slow.look(now, signals):
                facts.pop("reason", None)
                wanted.append((kind, facts))
            assert got == wanted, seed
            kinds |= {kind for kind, _ in got}
    assert kinds == {"WorkBegan", "WorkOver", "HoldBegan", "HoldOver"}


def test_what_is_in_flight_may_be_read_while_it_changes():
    """O8: from another thread, at any time."""
    activity, watch = Activity(), Watch(Chance(random.Random(1)).limits())
    activity._watch = watch
    watch.begin(0.0)
    wrong: list[BaseException] = []
    is_over = threading.Event()

    def read() -> None:
        try:
            while not is_over.is_set():
                assert set(activity.in_flight.values()) <= {"Bash"}
                watch.is_held(1.0)
        except BaseException as error:
            wrong.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    reader = threading.Thread(target=read)
    reader.start()
    try:
        for number in range(3000):
            watch.see([WorkStarted(str(number), "Bash")], 1.0)
            watch.hold(number, 5.0, 1.0)
            if number > 20:
                watch.see([WorkFinished(str(number - 20))], 1.0)
                watch.release(number - 20, 1.0)
    finally:
        is_over.set()
        reader.join()
        sys.setswitchinterval(before)
    assert wrong == []
