"""D5: of one session, one owner at a time, also over several sessions of one program, and over attempts."""

from __future__ import annotations

import logging
import os
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from streamguard import (
    Connection,
    IdleTimeoutError,
    ResumePoint,
    SessionHeldError,
    idle_guard,
    reconnecting_resume,
    session,
)
from streamguard._base import filelock
from streamguard._base.filelock import FileLock, peek
from streamguard.errors import StreamGuardError
from streamguard.retry import ErrorClass, classify
from streamguard.sessions import exclusive
from streamguard.testing import Script, done, hang, opened, say, swallows_cancel
from tests.sessions.backend import Backend

TOKEN = "a-token-that-nobody-may-read"
POINT = ResumePoint(token=TOKEN, prompt="go")


@pytest.fixture(autouse=True)
def told_anew(monkeypatch):
    monkeypatch.setattr(exclusive, "_is_told", [])


def chat_of(backend=None, *, point=POINT, name="test", pipe=None):
    backend = backend or Backend([Script(say("a"), done())])
    made = session(backend.open, point=point, exclusive=name)
    return made if pipe is None else made | pipe


async def refusal(**more):
    """That of another session, which opens nothing; None if it is not refused."""
    backend = Backend([Script(say("b"), done())])
    try:
        async with chat_of(backend, **more) as chat:
            async for _ in chat:
                pass
    except SessionHeldError as error:
        assert backend.points == []
        return error
    assert len(backend.points) == 1
    return None


def files():
    folder = exclusive._ROOM / f"streamguard-{os.getuid()}/sessions"
    return sorted(folder.iterdir()) if folder.exists() else []


async def test_two_sessions_of_one_program(loop):
    """D5: the second one is refused, and told by whom; when the first has left, it is not."""
    async with chat_of() as chat:
        async for _ in chat:
            refused = await refusal()
            assert refused is not None
            assert "in this very program already" in str(refused)
            assert refused.holder.pid == os.getpid()
            assert TOKEN not in str(refused)
            assert await refusal(name="another") is None
            assert await refusal(point=ResumePoint(token="another", prompt="go")) is None
            assert len(files()) == 1
            assert TOKEN not in str(files())
            assert TOKEN not in files()[0].read_text()
            assert files()[0].stat().st_mode & 0o777 == 0o600
            assert files()[0].parent.stat().st_mode & 0o777 == 0o700
    assert await refusal() is None
    assert files() == []


async def test_it_is_refused_for_good(loop):
    """R3: no retry makes it better, and the breaker hears nothing of it."""
    async with chat_of() as chat:
        async for _ in chat:
            refused = await refusal(pipe=idle_guard(10) | reconnecting_resume())
            assert refused.gave_up == "unsafe"
            assert classify(refused) is ErrorClass.NEVER


async def test_a_reconnection_does_not_refuse_itself(loop):
    """D5: nor can anybody else come in its pause, or between turns."""
    backend = Backend(
        [Script(say("a"), hang()), (Script(say("b"), done()), Script(say("c"), done()))]
    )
    refused = []

    async def try_it():
        while True:
            refused.append(await refusal())
            await anyio.sleep(1)

    async with anyio.create_task_group() as group:
        pipe = idle_guard(10) | reconnecting_resume(backoff=[20])
        async with chat_of(backend, pipe=pipe) as chat:
            async for _ in chat:
                if not refused:
                    group.start_soon(try_it)
            await anyio.sleep(100)
            async for _ in chat.ask("more"):
                pass
        group.cancel_scope.cancel()
    assert len(backend.points) == 2
    assert len(refused) > 100
    assert all(refused)
    assert await refusal() is None
    backend.check()


async def test_a_fresh_session_has_it_once_its_name_is_known(loop):
    """D5: from the message that says it."""
    backend = Backend([Script(opened(TOKEN), say("a"), say("b"), done())])
    async with chat_of(backend, point=ResumePoint(prompt="go")) as chat:
        assert await refusal() is None
        seen = [await refusal() async for _ in chat]
    assert all(seen)
    assert await refusal() is None
    assert files() == []


async def test_a_fresh_session_that_somebody_has_is_logged(loop, caplog):
    """D5: it is at work already. The other one keeps it."""
    async with chat_of() as first:
        async for _ in first:
            backend = Backend([Script(opened(TOKEN), say("a"), done())])
            async with chat_of(backend, point=ResumePoint(prompt="go")) as chat:
                assert len([each async for each in chat]) == 3
            assert f"process {os.getpid()} " in caplog.text
            assert TOKEN not in caplog.text
            assert await refusal() is not None


async def test_another_name_for_it_is_taken_as_well(loop):
    """D5: a backend that goes on under another name goes on under both."""
    backend = Backend([Script(opened("another"), say("a"), done())])
    async with chat_of(backend) as chat:
        async for _ in chat:
            pass
        assert await refusal() is not None
        assert await refusal(point=ResumePoint(token="another", prompt="go")) is not None
    assert files() == []


async def test_an_end_that_is_not_confirmed_keeps_it(loop):
    """D5: as long as this program lives."""

    async def stream():
        yield "a"
        await anyio.sleep_forever()

    deaf, gone = swallows_cancel(stream()), anyio.Event()

    @asynccontextmanager
    async def open_(point):
        yield Connection(deaf, disconnect=gone.wait)

    with pytest.raises(IdleTimeoutError) as caught:
        pipe = idle_guard(10, disconnect_timeout=5)
        async with session(open_, point=POINT, exclusive="test") | pipe as chat:
            async for _ in chat:
                pass
    assert not caught.value.teardown.confirmed
    await anyio.sleep(1000)
    assert await refusal() is not None
    gone.set()
    deaf.release()
    await anyio.sleep(100)
    assert await refusal() is not None


async def test_the_next_attempt_after_an_unconfirmed_end_has_it_too(loop):
    """D5: where its user takes the risk; and nobody else gets it for that."""

    async def stream():
        yield "a"
        await anyio.sleep_forever()

    deaf, gone, attempts = swallows_cancel(stream()), anyio.Event(), []

    async def well():
        yield "b"

    @asynccontextmanager
    async def open_(point):
        attempts.append(point.attempt)
        yield Connection(well() if point.attempt > 1 else deaf, disconnect=gone.wait)

    pipe = idle_guard(10, disconnect_timeout=5)
    resume = reconnecting_resume(backoff=[0], resume_after_unconfirmed_teardown=True)
    async with session(open_, point=POINT, exclusive="test") | pipe | resume as chat:
        assert [each async for each in chat] == ["a", "b"]
    assert attempts == [1, 2]
    assert await refusal() is not None
    gone.set()
    deaf.release()
    await anyio.sleep(100)


class Lease:
    """One that does not end."""

    key = "k"
    is_over = has_session = False

    def term(self, now):
        return now, now + 1000

    def __getattr__(self, name):
        return lambda *_, **__: None


async def test_a_lease_goes_before(loop):
    """F2: of one that is stopped, the lease is over, but not the lock."""
    async with chat_of() as chat:
        async for _ in chat:
            leased = ResumePoint(token=TOKEN, prompt="go", custody=Lease())
            assert await refusal(point=leased) is None
            assert await refusal() is not None


async def test_one_that_could_not_be_opened_lets_go_of_it(loop):
    async def fails(point):
        raise ConnectionError("no")

    with pytest.raises(ConnectionError):
        async with chat_of(Backend([Script(done())], opening=fails)) as chat:
            async for _ in chat:
                pass
    assert await refusal() is None


async def test_one_that_is_cancelled_lets_go_of_it(loop):
    backend = Backend([Script(say("a"), hang())])
    with anyio.move_on_after(5):
        async with chat_of(backend) as chat:
            async for _ in chat:
                pass
    assert await refusal() is None
    assert files() == []


async def test_it_can_be_left_off(loop):
    """Also by the kill switch: nothing is in the way then."""
    async with chat_of() as chat:
        async for _ in chat:
            assert await refusal(name=None) is None
            assert await refusal(pipe=idle_guard(10, mode="off")) is None


@pytest.mark.parametrize("name", ["", True, 3])
def test_a_name_that_is_none(name):
    with pytest.raises(TypeError, match="exclusive="):
        session(Backend([]).open, exclusive=name)


# --- where there is no such lock


async def goes_on(caplog):
    """Sessions do, and it is said once."""
    for _ in range(2):
        async with chat_of() as chat:
            async for _ in chat:
                assert await refusal() is None
    told = [each for each in caplog.records if "not kept to one program" in each.message]
    assert len(told) == 1
    assert told[0].levelno == logging.WARNING


async def test_a_place_that_is_not_there(loop, caplog, monkeypatch, tmp_path):
    monkeypatch.setattr(exclusive, "_ROOM", tmp_path / "nowhere")
    await goes_on(caplog)


@pytest.mark.parametrize("part", ["", "/sessions"])
async def test_a_folder_that_others_may_enter(loop, caplog, part):
    home = Path(f"{exclusive._ROOM}/streamguard-{os.getuid()}")
    home.mkdir(mode=0o700)
    Path(f"{home}{part}").mkdir(exist_ok=True)
    Path(f"{home}{part}").chmod(0o755)
    await goes_on(caplog)


def path_of(token=TOKEN):
    return Path(exclusive.Exclusive("test", None)._path(token))


async def test_a_link_in_its_place_is_not_followed(loop, caplog, tmp_path):
    target = tmp_path / "target"
    target.write_text("mine")
    path_of().symlink_to(target)
    await goes_on(caplog)
    assert target.read_text() == "mine"


async def test_a_file_of_somebody_else(loop, caplog, monkeypatch):
    path_of().touch(mode=0o600)
    if os.getuid() == 0:
        os.chown(path_of(), 4711, 4711)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 4711)
    await goes_on(caplog)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
async def test_something_else_in_its_place(loop, caplog, make):
    make(path_of())
    await goes_on(caplog)


async def test_a_file_system_without_such_locks(loop, caplog, monkeypatch):
    def refuses(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", refuses)
    await goes_on(caplog)


async def test_a_disk_that_is_full_holds_all_the_same(loop, caplog, monkeypatch):
    """It only cannot say who has it."""

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    async with chat_of() as chat:
        async for _ in chat:
            refused = await refusal()
            assert refused.holder is None
            assert "has not said who it is" in str(refused)
    assert "No space left" in caplog.text


# --- the lock itself


def test_a_lock_is_taken_once(tmp_path):
    path = str(tmp_path / "lock")
    lock = FileLock.take(path)
    assert FileLock.take(path) is None
    lock.write("long " * 10)
    lock.write("short")
    assert (lock.read(), peek(path)) == ("short", "short")
    lock.release()
    lock.release()
    assert peek(path) is None
    assert not lock.is_held


def test_one_that_is_kept_can_be_read_by_the_next(tmp_path):
    path = str(tmp_path / "lock")
    FileLock.take(path).release(keep_file=True)
    lock = FileLock.take(path)
    assert lock.read() == ""
    lock.write("me")
    lock.close()
    again = FileLock.take(path)
    assert again.read() == "me"
    Path(path).write_bytes(Path(path).read_bytes().replace(b"me", b"he"))
    assert again.read() is None
    again.release()


def test_one_whose_file_was_taken_away_meanwhile_is_none(tmp_path):
    """Who comes next would find another file, and lock that."""
    path = tmp_path / "lock"
    lock = FileLock.take(str(path))
    path.unlink()
    other = FileLock.take(str(path))
    assert other is not None
    lock.close()
    assert FileLock.take(str(path)) is None
    other.release()


def test_a_file_that_is_taken_away_before_it_is_locked_is_opened_again(tmp_path, monkeypatch):
    """Whoever had it lets go of it, and removes it, between the two."""
    path = tmp_path / "lock"
    before = FileLock.take(str(path))
    lock_it = filelock._lock

    def late(fd):
        before.release()
        return lock_it(fd)

    monkeypatch.setattr(filelock, "_lock", late)
    lock = FileLock.take(str(path))
    assert lock is not None
    assert path.stat().st_ino == os.fstat(lock._fd).st_ino
    assert FileLock.take(str(path)) is None
    lock.release()


def test_the_error_travels():
    import pickle

    error = SessionHeldError("held")
    assert isinstance(error, StreamGuardError)
    assert pickle.loads(pickle.dumps(error)).gave_up == "unsafe"
