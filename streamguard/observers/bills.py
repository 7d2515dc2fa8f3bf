"""How much of what streams have used up an observer has not counted yet. Knows activities and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from streamguard.activity import Activity


class Bills:
    """Tokens, cost and calls of the model, by activity, since they were asked for last.

    What is used up is added up elsewhere, over a session, without counting twice. A count that a backend corrects
    downwards stays as it was: nobody can take back what was counted.
    """

    def __init__(self) -> None:
        self._paid: WeakKeyDictionary[Activity, Mapping[str, float]] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def begin(self, activity: Activity) -> None:
        """A stream begins: with what its session has used up before, or, if it has none, with nothing."""
        with self._lock:
            self._paid[activity] = _used(activity)

    def since(self, activity: Activity) -> Mapping[str, float]:
        """What came to it: `cost`, `calls`, and of tokens `input`, `output` and, if not told apart, `other`."""
        with self._lock:
            paid, used = self._paid.get(activity, {}), _used(activity)
            new = {name: count - paid.get(name, 0.0) for name, count in used.items()}
            new = {name: count for name, count in new.items() if count > 0}
            if new:
                self._paid[activity] = {**paid, **{name: used[name] for name in new}}
        return new


def _used(activity: Activity) -> Mapping[str, float]:
    done = activity.done
    if not done.spent:
        return {}
    tokens = dict(done.tokens)
    if (other := done.spent.get("tokens", 0.0) - sum(tokens.values())) > 0:
        tokens["other"] = other
    return {**{name: count for name, count in done.spent.items() if name != "tokens"}, **tokens}
