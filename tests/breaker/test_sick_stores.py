"""P3: a breaker's store that fails, hangs or is slow costs no message, turn, error, nor the loop.

Stores that block are tried in real time, since threads work there.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import suppress
from functools import partial

import anyio
import pytest

from streamguard import (
    Backoff,
    CircuitBreaker,
    CircuitOpenError,
    ConfigError,
    ErrorClass,
    RetryPolicy,
    idle_guard,
    reconnecting_resume,
    session,
)
from streamguard import _loops as loops
from streamguard.breaker import Circuit, CircuitReported, CircuitStoreFailed, MemoryStore, records
from streamguard.testing import Script
from tests.sessions.backend import Backend
from tests.sessions.test_rules import LOST, done, fail, opened, say, texts

DOWN = OSError("no database")


class Sick(MemoryStore):
    """Fails at each update from number `healthy` on, until `cured`."""

    def __init__(self, healthy=0, error=DOWN, blocks=False) -> None:
        super().__init__(time.monotonic)
        self.blocks = blocks
        self.healthy = healthy
        self.error = error
        self.cured = False

    def update(self, key, change, /):
        self.healthy -= 1
        if self.healthy < 0 and not self.cured:
            raise self.error
        return super().update(key, change)


class Remote(MemoryStore):
    """Takes its time, and notes in which thread."""

    blocks = True

    def __init__(self, takes: float = 0.0) -> None:
        super().__init__(time.monotonic)
        self.takes = takes
        self.threads: list[int] = []
        self.goes_on = threading.Event()
        self.goes_on.set()

    def update(self, key, change, /):
        self.threads.append(threading.get_ident())
        time.sleep(self.takes)
        self.goes_on.wait(20)
        return super().update(key, change)


GOOD = Script(opened("s"), say("a"), say("b"), done())
BAD = Script(opened("s"), say("a"), fail(LOST))


def chat_with(script, breaker):
    backend = Backend([script])
    resume = reconnecting_resume(breaker=breaker, retries=0)
    return session(backend.open, prompt="go") | idle_guard(180) | resume


@pytest.mark.parametrize("healthy", range(5))
@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("error", [DOWN, LookupError(), BaseException("rude")], ids=repr)
async def test_a_store_that_fails_harms_no_stream(loop, healthy, blocks, error):
    """P3: at whatever call it begins to; every message, the turn's end, the original error."""
    breaker = CircuitBreaker("k", store=Sick(healthy, error, blocks), open_after=1)
    for _ in range(3):
        async with chat_with(GOOD, breaker) as chat:
            assert await texts(chat) == ["a", "b"]
    breaker = CircuitBreaker("k", store=Sick(healthy, error, blocks))
    for _ in range(2):
        async with chat_with(BAD, breaker) as chat:
            with pytest.raises(type(LOST)) as caught:
                await texts(chat)
        assert caught.value.gave_up == "retries"
    breaker.flush()


def test_an_outage_of_the_store_is_said_once_and_each_failure_told(loop, caplog):
    """P3, E6: one line for it, whatever the number of messages."""

    async def main():
        events = []
        store = Sick()
        breaker = CircuitBreaker("k", store=store, observer=events.append)
        for _ in range(3):
            async with chat_with(GOOD, breaker) as chat:
                await texts(chat)
        store.cured = True
        async with chat_with(GOOD, breaker) as chat:
            await texts(chat)
        told = [event.error for event in events if isinstance(event, CircuitStoreFailed)]
        assert told
        assert set(told) == {store.error}
        # What could not be reported is made good.
        assert sum(isinstance(event, CircuitReported) for event in events) == 4

    caplog.set_level("INFO", "streamguard")
    loop.run(main)
    lines = [r.getMessage() for r in caplog.records if "its store" in r.getMessage()]
    assert [line.partition(":")[2].partition(";")[0] for line in lines] == [
        " its store fails (OSError)",
        " its store works again",
    ]


@pytest.mark.parametrize("backend_name", ["asyncio", "trio"])
def test_a_store_that_blocks_is_never_called_on_the_loop(backend_name):
    """P3: nor by what is read, nor by `repr`."""
    store = Remote(0.1)
    breaker = CircuitBreaker("k", store=store, on_open="wait")

    async def main():
        for script, within in ((GOOD, 60), (BAD, 60), (BAD, 60), (BAD, 60), (GOOD, 0.5)):
            resume = reconnecting_resume(breaker=breaker, policy=RetryPolicy(network=Backoff(0)))
            repr(resume)
            chat_source = Backend([script])
            with anyio.move_on_after(within):
                async with session(chat_source.open, prompt="go") | resume as chat:
                    with suppress(type(LOST), CircuitOpenError):
                        await texts(chat)
            assert repr(breaker)
            assert breaker.status
            assert breaker.failures + breaker.retry_after + breaker.pause_left >= 0
        return threading.get_ident()

    here = anyio.run(main, backend=backend_name)
    assert breaker.flush()
    assert here not in store.threads
    assert (breaker.status, breaker.failures) == ("open", 3)


async def test_what_is_reported_goes_in_order(loop):
    """P3: progress before its success, whatever the store's thread is at."""
    store, order = Remote(), []
    breaker = CircuitBreaker("k", store=store, open_after=1, pause=0.01, observer=order.append)
    (await breaker.acquire()).failed()
    assert await anyio.to_thread.run_sync(breaker.flush)
    time.sleep(0.02)
    probe = await breaker.acquire()
    store.goes_on.clear()
    probe.progressed()
    probe.succeeded()
    store.goes_on.set()
    assert await anyio.to_thread.run_sync(breaker.flush)
    assert [getattr(event, "after", "reported") for event in order] == [
        *("open", "reported", "half_open", "closed", "reported"),
    ]
    assert (breaker.circuit.status, breaker.circuit.failures) == ("closed", 0)


@pytest.mark.parametrize("backend_name", ["asyncio", "trio"])
def test_a_store_that_hangs_is_waited_for_so_long_and_no_longer(monkeypatch, backend_name):
    """P3: then it goes without; the next do not wait for it at all; no lease is lost for good."""
    monkeypatch.setattr(records, "PATIENCE", 0.2)
    store = Remote()
    breaker = CircuitBreaker("k", store=store, open_after=1, pause=0.01)
    breaker.try_acquire().failed()
    time.sleep(0.02)
    store.goes_on.clear()

    async def main():
        began = time.monotonic()
        permit = await breaker.acquire()  # it would have been the probe
        assert 0.2 <= time.monotonic() - began < 5
        assert not permit.is_probe
        permit.succeeded()
        await anyio.sleep(0.1)
        began = time.monotonic()
        for _ in range(5):
            (await breaker.acquire()).released()
        assert time.monotonic() - began < 5 * 0.2
        store.goes_on.set()

    anyio.run(main, backend=backend_name)
    assert breaker.flush()
    assert breaker.circuit.leases == ()
    assert breaker.try_acquire().is_probe


@pytest.mark.parametrize("status", ["closed", "open"])
def test_many_that_ask_a_slow_store_are_no_outage_of_it(monkeypatch, status):
    """P3: one question for all who wait at a time, and still one probe; a queue is no hang."""
    monkeypatch.setattr(records, "PATIENCE", 3.0)
    store, events = Remote(), []
    breaker = CircuitBreaker("k", store=store, open_after=1, pause=0.3, observer=events.append)
    if status == "open":
        breaker.try_acquire().failed()
    store.takes = 0.1
    store.threads.clear()
    permits = []

    async def attempt():
        permits.append(await breaker.acquire(on_open="wait"))
        if permits[0].is_probe:
            permits[0].progressed()

    async def main():
        async with anyio.create_task_group() as tasks:
            for _ in range(200):
                tasks.start_soon(attempt)

    anyio.run(main)
    assert breaker.flush()
    assert len(permits) == 200
    assert [permit.is_probe for permit in permits].count(True) == (status == "open")
    assert not any(isinstance(event, CircuitStoreFailed) for event in events)
    assert len(store.threads) < 150


@pytest.mark.parametrize("way", ["scope", "native"])
@pytest.mark.parametrize("passes", range(12))
@pytest.mark.parametrize("blocks", [False, True])
async def test_a_probe_that_is_cancelled_at_any_pass_gives_its_place_back(
    native, way, passes, blocks
):
    """P3, O7: at once, and not when its lease is over."""
    import asyncio

    store = Remote()
    store.blocks = blocks
    breaker = CircuitBreaker("k", store=store, open_after=1, pause=0.001, on_open="wait")
    (await breaker.acquire()).failed()
    await anyio.to_thread.run_sync(breaker.flush)
    time.sleep(0.002)
    backend = Backend([Script(say("a"), done())])
    resume = reconnecting_resume(breaker=breaker)

    async def consume():
        async with session(backend.open, prompt="go") | resume as chat:
            await texts(chat)

    if way == "native":
        task = asyncio.ensure_future(consume())
        for _ in range(passes):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
    else:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(consume)
            for _ in range(passes):
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
    await anyio.to_thread.run_sync(breaker.flush)
    assert breaker.circuit.leases == ()


class Leaving(BaseException):
    """As rude as an observer gets without ending the program."""


@pytest.mark.parametrize("error", [RuntimeError, Leaving])
async def test_an_observer_that_raises_harms_no_stream(loop, error):
    """E6, P3"""

    def observer(_event):
        raise error("observer's own")

    breaker = CircuitBreaker(
        "k", clock=anyio.current_time, open_after=1, pause=1, observer=observer
    )
    breaker.try_acquire().failed()
    await anyio.sleep(1)
    async with chat_with(GOOD, breaker) as chat:
        assert await texts(chat) == ["a", "b"]
    assert (breaker.status, breaker.failures) == ("closed", 0)


def test_an_observer_that_ends_the_program_leaves_no_lease_and_no_half_report():
    """P3: SystemExit goes on, and what was to be remembered is."""

    def observer(event):
        if getattr(event, "after", "") in {"half_open", "closed"}:
            raise SystemExit

    now = 0.0
    breaker = CircuitBreaker("k", clock=lambda: now, open_after=1, observer=observer)
    breaker.try_acquire().failed()
    now = 30.0
    with pytest.raises(SystemExit):
        breaker.try_acquire()
    assert (breaker.status, breaker.circuit.leases) == ("half_open", ())
    probe = breaker.try_acquire()
    with pytest.raises(SystemExit):
        probe.succeeded()
    assert (breaker.status, breaker.failures) == ("closed", 0)


def test_an_observer_that_ends_the_program_does_not_end_the_stores_thread():
    """P3: what comes later is reported, too."""

    def observer(_event):
        raise SystemExit

    breaker = CircuitBreaker("k", store=Remote(), observer=observer)

    async def main():
        for _ in range(3):
            (await breaker.acquire()).failed()

    anyio.run(main)
    assert breaker.flush()
    assert breaker._records.known.status == "open"


def test_a_listener_that_raises_keeps_nobody_else_from_hearing(caplog):
    """P3: nor the change from being made, once."""
    store, heard = MemoryStore(), []

    def rude():
        raise RuntimeError("listener's own")

    store.listen("k", rude)
    store.listen("k", partial(heard.append, "k"))
    breaker = CircuitBreaker("k", store=store)
    breaker.try_acquire().failed()
    assert (breaker.failures, heard) == (1, ["k"])
    assert "listener" in caplog.text


async def test_a_store_whose_listening_fails_is_asked_again_and_again(loop):
    """P3"""

    class Deaf(MemoryStore):
        def listen(self, _key, _changed, /):
            raise OSError("no notifications")

    store = Deaf(loops.current().clock)
    breaker = CircuitBreaker("k", store=store, on_open="wait", open_after=1)
    breaker.try_acquire().failed()
    assert (await breaker.acquire()).is_probe


PROGRAM = """
    import sys, time, anyio
    from streamguard import CircuitBreaker
    from streamguard.breaker import MemoryStore, records

    class Slow(MemoryStore):
        blocks = True
        def update(self, key, change, /):
            time.sleep({takes})
            answer = super().update(key, change)
            print(self._circuits[key].failures, flush=True)
            return answer

    records.PATIENCE = {patience}
    breaker = CircuitBreaker("k", store=Slow())

    async def main():
        (await breaker.acquire()).failed()

    anyio.run(main)
"""


@pytest.mark.parametrize(("takes", "patience"), [(0.5, 20), (60, 0.5)])
def test_the_end_of_a_program_waits_for_reports_but_not_for_ever(takes, patience):
    """P3: what was reported last is written, unless the store hangs."""
    program = textwrap.dedent(PROGRAM).format(takes=takes, patience=patience)
    began = time.monotonic()
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert 1 <= time.monotonic() - began < 20
    assert ran.stderr == "" or "its store fails" in ran.stderr
    if takes < patience:
        assert ran.stdout.split()[-1] == "1"


# -- circuits as JSON ---------------------------------------------------------------------------

CIRCUITS = [
    Circuit(),
    Circuit(status="open", failures=4, generation=9, opened_at=-12.5, not_before=3.25),
    Circuit(
        *("half_open", 3, 2, 1e9, 7.0, 1),
        leases=(("a", 12.5), ("b", 1e300)),
        cause="the pause is over",
    ),
    Circuit(status="escalated", cause='"quoted" \u2028'),
]


@pytest.mark.parametrize("circuit", CIRCUITS)
def test_a_circuit_goes_through_json_and_back(circuit):
    """P3: with its generation and its leases, exactly."""
    text = json.dumps(circuit.as_json(), allow_nan=False)
    assert Circuit.from_json(json.loads(text)) == circuit


def told(**changes):
    return {**CIRCUITS[2].as_json(), **changes}


@pytest.mark.parametrize(
    "garbage",
    [
        *(None, "text", 7, [], {}, {"status": "open"}),
        *(told(status="ajar"), told(status=["open"]), told(status=None)),
        *(told(failures=-1), told(failures=1.0), told(failures=True)),
        *(told(generation="1"), told(generation=-2), told(successes=None)),
        *(told(opened_at=None), told(opened_at=math.inf), told(opened_at="1")),
        *(told(not_before=math.nan), told(not_before=-math.inf), told(not_before=True)),
        *(told(leases=None), told(leases={}), told(leases=["ab"]), told(leases=[["a"]])),
        *(told(leases=[["a", "b"]]), told(leases=[[1, 2]]), told(leases=[["a", math.nan]])),
        *(told(leases=[["a", 1], ["a", 2]]), told(cause=None), told(more=1)),
        *(told(leases="ab"), told(failures=10**400, opened_at=10**400)),
    ],
)
def test_what_is_no_circuit_is_refused(garbage):
    """T12: a table may hold anything."""
    with pytest.raises(ConfigError):
        Circuit.from_json(garbage)


def test_a_store_that_keeps_json_is_as_good_as_memory():
    """P3: the same steps, the same circuit."""
    rows: dict[str, str] = {}

    class Json(MemoryStore):
        def update(self, key, change, /):
            kept = json.loads(rows.get(key) or json.dumps(Circuit().as_json()))
            after, answer = change(Circuit.from_json(kept), now)
            rows[key] = json.dumps(after.as_json(), allow_nan=False)
            return answer

    now = 5.0
    one = CircuitBreaker("k", store=Json())
    other = CircuitBreaker("k", clock=lambda: now)
    for breaker in (one, other):
        now = 5.0
        for _ in range(3):
            breaker.try_acquire().failed(ErrorClass.SERVER)
        now += 30
        breaker.try_acquire().failed()
        now += 60
        probe = breaker.try_acquire()
        probe.progressed()
        breaker.throttle(7)
        probe.failed()
    assert one.circuit == other.circuit
    assert (one.status, one.failures, one.retry_after) == ("open", 5, 120)
