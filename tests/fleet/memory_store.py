"""A store in this process, on a clock of one's own: for tests in virtual time, and naive enough to be a model."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamguard.errors import StoreError
from streamguard.fleet.store import Beat, Checkpoint, Claimed, Row


@dataclass
class Entry:
    spec: dict[str, Any]
    submitted: float
    number: int
    status: str = "waiting"
    token: int = 0
    owner: str = ""
    attempt: int = 0
    fruitless: int = 0
    is_heard_of: bool = False
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    not_before: float = 0.0
    expires: float = 0.0
    beaten: float = 0.0
    why: str = ""
    cancel: str | None = None


class MemoryCheckpoints:
    """Everything in one dict."""

    blocks = False

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.entries: dict[str, Entry] = {}
        self.lines: list[dict[str, Any]] = []
        self.is_away = False
        self.beats = 0
        self.is_fenced = True  # the control

    def _now(self) -> float:
        if self.is_away:
            raise StoreError("the store is away")
        return self.clock()

    def _held(self, beat: Beat) -> Entry | None:
        entry = self.entries.get(beat.key)
        if entry is None or (entry.status != "running" and self.is_fenced):
            return None
        is_ours = (entry.token, entry.owner) == (beat.token, beat.owner)
        return entry if is_ours or not self.is_fenced else None

    def _take(self, entry: Entry, beat: Beat) -> None:
        if beat.checkpoint is not None:
            entry.checkpoint = copy.deepcopy(beat.checkpoint)
        if beat.progressed:
            entry.fruitless = 0

    def submit(self, key: str, spec: Mapping[str, Any]) -> bool:
        now = self._now()
        if key in self.entries:
            return False
        self.entries[key] = Entry(dict(spec), now, len(self.entries), not_before=now)
        return True

    def claim(self, owner: str, ttl: float, limit: int) -> list[Claimed]:
        now, claimed = self._now(), []
        for key, entry in sorted(self.entries.items(), key=lambda item: item[1].not_before):
            is_free = entry.status == "waiting" and entry.not_before <= now
            is_lost = entry.status == "running" and entry.expires <= now
            if len(claimed) == limit or not (is_free or is_lost):
                continue
            if entry.cancel is not None:
                entry.status, entry.why = "cancelled", entry.cancel
                continue
            if is_lost and not entry.is_heard_of:
                entry.fruitless = max(0, entry.fruitless - 1)
            before, entry.is_heard_of = entry.fruitless, False
            entry.status, entry.owner, entry.token = "running", owner, entry.token + 1
            entry.attempt, entry.fruitless = entry.attempt + 1, entry.fruitless + 1
            entry.expires, entry.beaten = now + ttl, now
            claimed.append(
                Claimed(
                    key=key,
                    token=entry.token,
                    owner=owner,
                    attempt=entry.attempt,
                    fruitless=before,
                    spec=copy.deepcopy(entry.spec),
                    checkpoint=copy.deepcopy(entry.checkpoint),
                )
            )
        return claimed

    def beat(self, beats: Sequence[Beat], ttl: float) -> dict[str, Any]:
        now, kept = self._now(), {}
        self.beats += 1
        for beat in beats:
            if (entry := self._held(beat)) is not None:
                self._take(entry, beat)
                entry.is_heard_of = True
                entry.expires, entry.beaten = now + ttl, now
                kept[beat.key] = "kept" if entry.cancel is None else "cancel"
        return kept

    def _end(self, beat: Beat, status: str, why: str = "") -> Entry | None:
        self._now()
        if (entry := self._held(beat)) is not None:
            self._take(entry, beat)
            entry.status, entry.why, entry.owner = status, why, ""
        return entry

    def finish(self, beat: Beat, *, cancelled: bool = False) -> bool:
        entry = self._end(beat, "cancelled" if cancelled else "done")
        if entry is not None and cancelled:
            entry.why = entry.cancel or ""
        return entry is not None

    def give_back(self, beat: Beat, delay: float, *, counts: bool = True, why: str = "") -> bool:
        if (entry := self._end(beat, "waiting", why)) is None:
            return False
        entry.not_before = self._now() + delay
        if not counts:
            entry.attempt -= 1
            entry.fruitless = max(0, entry.fruitless - 1)
        return True

    def park(self, beat: Beat, why: str) -> bool:
        return self._end(beat, "parked", why) is not None

    def release(self, key: str) -> bool:
        now, entry = self._now(), self.entries.get(key)
        if entry is None or entry.status != "parked":
            return False
        entry.status, entry.fruitless, entry.not_before, entry.why = "waiting", 0, now, ""
        return True

    def cancel(self, key: str, why: str) -> bool:
        self._now()
        entry = self.entries.get(key)
        if entry is None or entry.status in ("done", "cancelled"):
            return False
        if entry.status == "running":
            entry.cancel = why
        else:
            entry.status, entry.why = "cancelled", why
        return True

    def log_timeout(self, beat: Beat, line: Mapping[str, Any]) -> bool:
        self._now()
        if self._held(beat) is None:
            return False
        self.lines.append(dict(line))
        return True

    def timeouts(self, since: float = 0.0) -> Iterator[dict[str, Any]]:
        return iter(self.lines)

    def live(self, *, all: bool = False) -> list[Row]:  # noqa: A002
        now = self._now()
        return [
            self._row(key, entry, now)
            for key, entry in self.entries.items()
            if all or entry.status not in ("done", "cancelled")
        ]

    def show(self, key: str) -> Row | None:
        now = self._now()
        return self._row(key, self.entries[key], now) if key in self.entries else None

    def _row(self, key: str, entry: Entry, now: float) -> Row:
        return Row(
            key=key,
            status=entry.status,  # type: ignore[arg-type]
            owner=entry.owner,
            attempt=entry.attempt,
            fruitless=entry.fruitless,
            delivered=entry.checkpoint.delivered,
            why=entry.why,
            wait=max(0.0, entry.not_before - now) if entry.status == "waiting" else 0.0,
            silent=now - entry.beaten if entry.status == "running" else 0.0,
            age=now - entry.submitted,
            cancelling=entry.cancel is not None and entry.status == "running",
        )

    def interrupt(self) -> None:
        pass

    def close(self) -> None:
        pass
