"""Many at once: workers that spare one backend together, and a worker with many streams."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.fleet.acceptance.test_death import has_delivered, keys
from tests.fleet.acceptance.yard import FULL

PAUSE = 1.0
STREAMS, SECONDS = (300, 30.0) if FULL else (60, 5.0)


@pytest.mark.parametrize("is_shared", [True, False], ids=["", "control"])
def test_workers_that_share_a_breaker(yard, is_shared):
    """F6: of four workers one probes a backend that is out of service, once in each pause."""
    breaker = {
        "open_after": 4,
        "pause": PAUSE,
        "pause_growth": 1,
        "escalate_after": None,
        "on_open": "wait",
        "shared": is_shared,
    }
    workers = [
        yard.worker(f"worker{number}", limit=2, breaker=breaker, ttl=6.0) for number in range(4)
    ]
    for worker in workers:
        worker.go()
    for worker in workers:
        yard.until(worker.is_up)
    yard.submit(keys(8), kind="refused")
    truth = yard.until(lambda truth: len(truth.sessions("waits")) == 8)
    assert {line["pid"] for line in truth.of("waits")} == {worker.pid for worker in workers}
    began = max(line["at"] for line in truth.of("waits")) + PAUSE
    ended = began + 4 * PAUSE
    truth = yard.until_after(ended + 0.2)
    probes = sorted(line["at"] for line in truth.of("opened") if began < line["at"] < ended)
    apart = [later - before for before, later in pairwise(probes)]
    if is_shared:
        assert 1 <= len(probes) <= 4
        assert min(apart, default=PAUSE) >= 0.9 * PAUSE
    else:
        assert len(probes) > 4
        assert min(apart) < 0.9 * PAUSE


def test_many_streams(yard):
    """F1: a worker that is busy loses none of its leases."""
    ttl = 3.0
    worker = yard.worker("worker", limit=STREAMS, ttl=ttl, flush=0.5)
    worker.go()
    yard.until(worker.is_up)
    sessions = yard.submit(keys(STREAMS), kind="steady", messages=int(SECONDS * 10))
    yard.until(has_delivered(sessions))
    truth = yard.until_status(sessions, "done")
    sent = sorted(beat["sent"] for beat in truth.of("beat"))
    longest = max(later - before for before, later in pairwise(sent))
    if len(truth.of("began")) > STREAMS and longest > 0.7 * ttl:
        pytest.skip(f"the machine let the worker wait for {longest:.1f} s: no lease survives that")
    assert len(truth.of("began")) == STREAMS
    assert truth.doubles() == 0
    assert {line["error"] for line in truth.of("ended")} == {""}
