"""S0-30: fake clients record what is done to them and end as badly as they are told to."""

from __future__ import annotations

import anyio
import pytest

from streamguard.testing import (
    ClientFactory,
    FakeClient,
    Script,
    done,
    hang,
    run_virtual,
    say,
    silence,
)
from streamguard.testing.messages import Ended, Said

pytestmark = pytest.mark.parametrize("backend", ["asyncio", "trio"])


async def collect(source):
    return [message async for message in source]


def test_a_turn_is_asked_streamed_and_recorded(backend):
    client = FakeClient(Script(say("x"), done(), say("late"), hang()))

    async def main():
        async with client:
            await client.query("hello", session_id="s")
            return await collect(client.receive_response())

    assert run_virtual(main, backend=backend) == [Said("x"), Ended()]
    assert client.calls == ["connect", "query", "receive_response", "disconnect"]
    assert client.prompts == ["hello"]
    assert client.session_id == "s"
    assert client.disconnect_called
    assert client.disconnected


def test_each_turn_plays_the_next_script_and_the_last_repeats(backend):
    client = FakeClient(Script(say("1"), done()), Script(say("2"), done()))

    async def main():
        async with client:
            texts = []
            for prompt in "abc":
                await client.query(prompt)
                texts.append((await collect(client.receive_response()))[0].text)
            return texts

    assert run_virtual(main, backend=backend) == ["1", "2", "2"]


def test_the_backend_works_from_the_prompt_on_whether_read_or_not(backend):
    client = FakeClient(Script(silence(10), say("x"), done()))

    async def main():
        async with client:
            await client.query("go")
            await anyio.sleep(10.5)
            await collect(client.receive_response())
        return anyio.current_time()

    assert run_virtual(main, backend=backend) == 1000 + 10.5


def test_after_the_turn_the_stream_can_go_on(backend):
    client = FakeClient(Script(done(), silence(60), say("late")))

    async def main():
        await client.connect("go")
        return await collect(client.receive_messages())

    assert run_virtual(main, backend=backend) == [Ended(), Said("late")]


def test_a_client_can_be_read_without_being_asked_or_entered(backend):
    async def main():
        return await collect(FakeClient(Script(say("x"), done())).receive_response())

    assert run_virtual(main, backend=backend) == [Said("x"), Ended()]


def test_a_disconnect_from_elsewhere_ends_a_hanging_stream_normally(backend):
    client = FakeClient(Script(say("x"), hang()), disconnect_delay=7)

    async def main():
        began = anyio.current_time()
        async with anyio.create_task_group() as tg:
            tg.start_soon(client.disconnect)
            seen = await collect(client.receive_response())
        return seen, anyio.current_time() - began

    assert run_virtual(main, backend=backend) == ([Said("x")], 7)


def test_a_disconnect_need_not_end_the_stream(backend):
    client = FakeClient(Script(hang()), ends_stream=False)

    async def main():
        await client.disconnect()
        with anyio.move_on_after(1000) as scope:
            await collect(client.receive_response())
        return scope.cancelled_caught

    assert run_virtual(main, backend=backend)
    assert client.disconnected


def test_a_disconnect_can_raise(backend):
    client = FakeClient(Script(hang()), disconnect_error=OSError("pipe"))

    async def main():
        with pytest.raises(OSError, match="pipe"):
            await client.disconnect()

    run_virtual(main, backend=backend)
    assert client.disconnect_called
    assert not client.disconnected


def test_a_disconnect_can_hang_and_the_block_can_still_be_left(backend):
    client = FakeClient(Script(hang()), disconnect_hangs=True)

    async def main():
        async with client:
            with anyio.move_on_after(30) as scope:
                await client.disconnect()
            return scope.cancelled_caught

    assert run_virtual(main, backend=backend)
    assert client.calls == ["connect", "disconnect"]
    assert not client.disconnected


@pytest.mark.parametrize(("shielded", "takes"), [(True, 20), (False, 1)])
def test_a_slow_disconnect_can_be_shielded_as_an_sdk_does(backend, shielded, takes):
    client = FakeClient(disconnect_delay=20, disconnect_shielded=shielded)

    async def main():
        with anyio.move_on_after(1):
            await client.disconnect()
        return anyio.current_time() - 1000

    assert run_virtual(main, backend=backend) == takes


def test_a_cancelled_pull_of_a_response_loses_nothing(backend):
    client = FakeClient(Script(say("x"), silence(10), say("y"), done()))

    async def main():
        seen = []
        for _ in range(2):
            with anyio.move_on_after(5.5):
                async for message in client.receive_response():
                    seen.append(message)
        return seen

    assert run_virtual(main, backend=backend) == [Said("x"), Said("y"), Ended()]


def test_an_interrupt_plays_its_own_script(backend):
    client = FakeClient(Script(say("x"), hang()), on_interrupt=Script(done("cancelled")))

    async def main():
        async with anyio.create_task_group() as tg:
            tg.start_soon(client.interrupt)
            return await collect(client.receive_response())

    assert Ended("cancelled") in run_virtual(main, backend=backend)
    assert "interrupt" in client.calls


def test_an_interrupt_nobody_heeds_is_only_recorded(backend):
    client = FakeClient(Script(silence(5), done()))

    async def main():
        await client.connect("go")
        await client.interrupt()
        return await collect(client.receive_response())

    assert run_virtual(main, backend=backend) == [Ended()]
    assert client.calls == ["connect", "interrupt", "receive_response"]


def test_connecting_again_starts_from_the_first_script(backend):
    client = FakeClient(Script(say("1"), done()), Script(say("2"), done()))

    async def main():
        texts = []
        for _ in range(2):
            async with client:
                await client.query("go")
                texts.append((await collect(client.receive_response()))[0].text)
        return texts

    assert run_virtual(main, backend=backend) == ["1", "1"]


def test_a_factory_gives_another_client_per_attempt_and_the_last_repeats(backend):
    first, last = FakeClient(), FakeClient()
    factory = ClientFactory(first, last)
    assert [factory("a"), factory("b", 2), factory()] == [first, last, last]
    assert factory.create_calls == [("a",), ("b", 2), ()]
    assert factory.created == [first, last, last]


def test_a_factory_without_clients_is_refused(backend):
    with pytest.raises(ValueError, match="at least one"):
        ClientFactory()
