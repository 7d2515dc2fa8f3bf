"""A worker that is killed, stopped, drained or fatal: another one goes on, soon, once, and without a gap.

Each test is run with its cure and without it: a control that passes in silence proves nothing, so it must show that the
old owner really had sessions, and outlived its lease.
"""

from __future__ import annotations

import pytest

from tests.fleet.acceptance.yard import FULL, SLACK, TTL

COUNT = 40 if FULL else 6


def keys(count: int = COUNT, name: str = "s") -> list[str]:
    return [f"{name}{number}" for number in range(count)]


def has_delivered(sessions, least: int = 1, **more):
    """Whether each of the sessions has got so many messages."""

    def so(truth):
        return all(len(truth.of("delivered", session=each, **more)) >= least for each in sessions)

    return so


def taken_by(yard, worker, sessions, least: int = 8) -> None:
    """The worker has all of the sessions, and each has got some messages."""
    yard.until(has_delivered(sessions, least, pid=worker.pid))


@pytest.mark.parametrize("faults", [[], ["no_checkpoints"]], ids=["", "control"])
def test_a_worker_that_is_killed(yard, faults):
    """F1, F3: others go on within the ttl and a second; no gap, and twice is what came since the last beat alone."""
    old, new = yard.worker("old", faults=faults), yard.worker("new", faults=faults)
    old.go()
    yard.until(old.is_up)
    sessions = yard.submit(keys(), kind="steady", messages=25)
    taken_by(yard, old, sessions, 12)
    new.go()
    yard.until(new.is_up)
    killed = old.kill()
    truth = yard.until_status(sessions, "done")
    waits = [at - killed for at in truth.handed_over().values()]
    assert len(waits) == len(sessions)
    assert max(waits) < TTL + 1 + SLACK
    for each in sessions:
        assert set(truth.numbers(each)) == set(range(27))
        twice = [seq for seq, times in truth.numbers(each).items() if times > 1]
        kept = max(b["sent"] for b in truth.of("beat", pid=old.pid) if each in b["kept"])
        first = truth.of("delivered", session=each, token=1)
        since = sum(line["at"] >= kept for line in first)
        if faults:
            assert len(twice) == len(first) >= 12
        else:
            assert len(twice) <= since + 1  # and the one that was at hand then


@pytest.mark.parametrize("faults", [[], ["no_fence"]], ids=["", "control"])
def test_a_worker_that_is_stopped_and_goes_on(yard, faults):
    """F2: it delivers nothing and opens nothing, though its timers and messages are all there at once."""
    old, new = yard.worker("old", faults=faults), yard.worker("new", faults=faults)
    old.go()
    yard.until(old.is_up)
    steady = yard.submit(keys(), kind="steady", messages=400)
    flaky = yard.submit(keys(2, "f"), kind="flaky", messages=400)
    taken_by(yard, old, [*steady, *flaky])
    new.go()
    yard.until(new.is_up)
    stopped = old.stop()
    taken_by(yard, new, [*steady, *flaky], 1)
    yard.until_after(stopped + TTL + 0.5)
    old.go_on()
    truth = yard.until(lambda truth: len(truth.of("ended", pid=old.pid)) == len(steady + flaky))
    assert min(truth.handed_over().values()) > stopped
    stale = truth.stale("delivered") + truth.stale("opened")
    if faults:
        assert set(stale) >= set(steady)
    else:
        assert not stale
        assert {line["error"] for line in truth.of("ended", pid=old.pid)} <= {
            "LeaseLostError",
            "CancelledError",
            "Cancelled",
        }
    assert truth.sessions("began", pid=old.pid) == {*steady, *flaky}


@pytest.mark.parametrize("kills", [False, True], ids=["", "control"])
def test_a_worker_that_is_drained(yard, kills):
    """F5: at a ttl of 30 s its sessions are elsewhere at once, nothing is doubled, and no attempt counted."""
    old, new = (yard.worker(name, ttl=30.0, flush=1.0) for name in ("old", "new"))
    old.go()
    yard.until(old.is_up)
    sessions = yard.submit(keys(), kind="steady", messages=40)
    taken_by(yard, old, sessions)
    new.go()
    yard.until(new.is_up)
    if kills:
        killed = old.kill()
        truth = yard.until_after(killed + 3)
        assert truth.sessions("began", pid=old.pid) == set(sessions)
        assert not truth.of("began", pid=new.pid)
        return
    asked = old.term()
    truth = yard.until(lambda truth: len(truth.of("began", pid=new.pid)) == len(sessions))
    assert max(truth.handed_over().values()) - asked < 1 + SLACK
    assert old.ended() == 0
    truth = yard.until_status(sessions, "done")
    assert truth.doubles() == 0
    assert all(set(truth.numbers(each)) == set(range(42)) for each in sessions)
    assert {row.attempt for row in yard.store.live(all=True)} == {1}


@pytest.mark.parametrize("faults", [[], ["at_hand"]], ids=["", "control"])
def test_a_message_that_was_read_and_not_processed(yard, faults):
    """F3: its worker was killed while the consumer was at it, beats or not: it is delivered again."""
    old, new = yard.worker("old", faults=faults), yard.worker("new", faults=faults)
    old.go()
    yard.until(old.is_up)
    [session] = yard.submit(["s"], kind="steady", messages=1, every=0.0, busy=4.0)
    truth = yard.until(lambda truth: truth.of("delivered", seq=1))
    read = truth.of("delivered", seq=1)[0]["at"]
    yard.until(lambda truth: sum(b["sent"] > read for b in truth.of("beat")) >= 2)
    old.kill()
    assert not yard.truth().of("processed", seq=1)
    new.go()
    truth = yard.until_status([session], "done")
    assert bool(truth.of("processed", seq=1)) is not bool(faults)
    assert truth.of("processed", seq=2)


@pytest.mark.parametrize("faults", [[], ["begins_again"]], ids=["", "control"])
def test_tools_were_run_and_no_token_is_known(yard, faults):
    """F4: a fresh start on another worker would do it all again: a person is to look."""
    old, new = yard.worker("old", faults=faults), yard.worker("new", faults=faults)
    old.go()
    yard.until(old.is_up)
    [session] = yard.submit(["s"], kind="tools")
    yard.until(lambda truth: yard.store.show(session).delivered)
    old.kill()
    new.go()
    if faults:
        yard.until(lambda truth: truth.of("opened", pid=new.pid))
        return
    truth = yard.until_status([session], "parked")
    assert len(truth.of("opened")) == 1
    assert yard.store.show(session).why.startswith("unsafe")


@pytest.mark.parametrize("within", [False, True], ids=["", "control"])
def test_a_delay_outlives_its_worker(yard, within):
    """F5: a session that hung waits for its policy's delay, whoever is killed. Within a session it would be forgotten."""
    old, new = yard.worker("old", idle_delay=5.0), yard.worker("new", idle_delay=5.0)
    old.go()
    yard.until(old.is_up)
    [session] = yard.submit(["s"], kind="hangs", within=30.0 if within else None)
    if within:
        truth = yard.until(lambda truth: truth.of("delivered"))
        began = truth.of("delivered")[0]["at"]
        yard.until_after(began + 1.2)
    else:
        yard.until(lambda _: yard.store.show(session).why == "IdleTimeoutError")
        began = yard.truth().of("ended")[-1]["at"]
        assert yard.store.show(session).status == "waiting"
    old.kill()
    new.go()
    truth = yard.until_status([session], "done")
    again = truth.of("opened", pid=new.pid)[0]["at"]
    if within:
        assert again - began < 25.0  # its lease's end is all that was waited for
    else:
        assert again - began >= 4.9
    assert len(truth.of("opened", pid=old.pid)) == 1


def test_a_session_that_kills_its_workers(yard):
    """F5: it is parked after three attempts that workers were heard of in, and the next worker lives."""
    [session] = yard.submit(["s"], kind="kills")
    for number in range(4):
        worker = yard.worker(f"worker{number}", ttl=1.0)
        worker.go()
        assert worker.ended() != 0
    last = yard.worker("last", ttl=1.0)
    last.go()
    yard.until_status([session], "parked")
    assert yard.store.show(session).why.startswith("poison: 3 attempts")
    assert len(yard.truth().of("began")) == 4
    assert last.is_up(yard.truth())


def test_the_control_of_a_session_that_kills_its_workers(yard):
    """Without a limit it kills the fifth as well."""
    yard.submit(["s"], kind="kills")
    for number in range(5):
        worker = yard.worker(
            f"worker{number}", ttl=1.0, engine={"attempts_without_progress": 1000}
        )
        worker.go()
        assert worker.ended() != 0
