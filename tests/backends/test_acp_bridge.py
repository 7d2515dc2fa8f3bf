"""Push to pull, with a connection of our own in the package's place; asyncio alone, as it is.

The real package and a real agent are in tests/real/test_acp.py.
"""

import asyncio
from types import SimpleNamespace

import pytest

from streamguard import idle_guard
from streamguard.backends import acp, of_client
from streamguard.signals import SessionOpened, WaitEnded, Waiting
from tests.support import take


class Connection:
    """What a turn needs of one: it answers when it is told to."""

    def __init__(self):
        self.asked = []
        self.cancelled = []
        self.answer = asyncio.Future()

    async def prompt(self, session_id, prompt):
        self.asked.append((session_id, prompt))
        return await self.answer

    async def cancel(self, session_id):
        self.cancelled.append(session_id)
        self.answer.set_result(ended("cancelled"))

    async def close(self):
        self.answer.set_exception(ConnectionError("closed"))


class Client:
    """A user's client, which answers at once."""

    async def request_permission(self, session_id, tool_call, options):
        return options[0]

    async def create_elicitation(self, message, mode):
        return f"answered: {message}"

    def other(self):
        return "mine"


def ended(reason):
    return SimpleNamespace(stop_reason=reason)


def update(kind="agent_message_chunk"):
    return SimpleNamespace(session_update=kind)


def bridged(**more):
    connection, bridge = Connection(), acp.Bridge(Client())
    return connection, bridge, bridge.prompt(connection, "s", ["Go"], **more)


def run(main):
    asyncio.run(main())


def test_nothing_is_asked_before_the_first_pull_and_the_session_comes_first():
    async def main():
        connection, _, turn = bridged(resumable=False)
        assert connection.asked == []
        assert await anext(turn) == SessionOpened("s", resumable=False)
        await asyncio.sleep(0)
        assert connection.asked == [("s", ["Go"])]
        await turn.aclose()

    run(main)


def test_updates_come_in_order_and_the_answer_last():
    async def main():
        connection, bridge, turn = bridged()
        await anext(turn)
        first, second, other = update(), update("plan"), update()
        await bridge.session_update("s", first)
        await bridge.session_update("another session", other)
        await bridge.session_update("s", second)
        connection.answer.set_result(ended("end_turn"))
        *updates, answer = [each async for each in turn]
        assert updates == [first, second]
        assert answer.stop_reason == "end_turn"
        assert await anext(turn, "over") == "over"

    run(main)


def test_a_person_who_is_asked_is_a_wait_that_ends():
    async def main():
        _, bridge, turn = bridged()
        await anext(turn)
        call = SimpleNamespace(tool_call_id="c")
        assert await bridge.request_permission("s", call, options=["yes"]) == "yes"
        asked, answered = await anext(turn), await anext(turn)
        assert asked.signals == (Waiting("permission:c", "human"),)
        assert asked.request["options"] == ["yes"]
        assert answered.signals == (WaitEnded("permission:c"),)
        await turn.aclose()

    run(main)


def test_so_is_an_elicitation():
    async def main():
        _, bridge, turn = bridged()
        await anext(turn)
        mode = SimpleNamespace(session_id="s")
        assert await bridge.create_elicitation(message="Who?", mode=mode) == "answered: Who?"
        asked, answered = await anext(turn), await anext(turn)
        assert asked.signals[0].reason == "human"
        assert answered.signals == (WaitEnded(asked.id),)
        await turn.aclose()

    run(main)


def test_a_client_without_elicitations_has_none():
    """The connection looks for it, and tells the agent."""
    assert not hasattr(acp.Bridge(object()), "create_elicitation")
    assert acp.Bridge(Client()).other() == "mine"


def test_an_error_comes_after_what_came_before_it():
    async def main():
        _connection, bridge, turn = bridged()
        await anext(turn)
        await bridge.session_update("s", update())
        await turn.disconnect()
        taken = await take(turn)
        assert len(taken.messages) == 1
        assert isinstance(taken.error, ConnectionError)

    run(main)


def test_a_turn_that_is_left_is_cancelled_and_makes_room_for_the_next():
    async def main():
        connection, bridge, turn = bridged()
        async with turn | idle_guard(60) as messages:
            async for _ in messages:
                break
        assert connection.cancelled == ["s"]
        assert connection.asked == [("s", ["Go"])]
        following = bridge.prompt(Connection(), "s", ["And now?"])
        assert isinstance(await anext(following), SessionOpened)
        await following.aclose()
        assert await anext(turn, "over") == "over"

    run(main)


def test_a_deaf_agent_does_not_hold_up_who_leaves(monkeypatch):
    """Neither an agent that does not read, nor one that does not answer."""
    monkeypatch.setattr("streamguard.backends.acp.bridge._FAREWELL", 0.01)

    class Deaf(Connection):
        async def cancel(self, session_id):
            await asyncio.Event().wait()

    async def main():
        bridge = acp.Bridge(Client())
        turn = bridge.prompt(Deaf(), "s", ["Go"])
        await anext(turn)
        await turn.aclose()
        assert len(asyncio.all_tasks()) <= 2
        await anext(bridge.prompt(Deaf(), "s", ["Go"]))

    run(main)


def test_a_cancelled_pull_loses_nothing():
    async def main():
        _connection, bridge, turn = bridged()
        await anext(turn)
        pull = asyncio.create_task(anext(turn))
        await asyncio.sleep(0)
        news = update()
        await bridge.session_update("s", news)
        pull.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pull
        assert await anext(turn) is news
        await turn.aclose()

    run(main)


def test_a_connection_gives_its_close():
    """S1: known by its package; nothing else of that package is a client."""

    def of_the_package(base):
        return type(base.__name__, (base,), {"__module__": "acp.client.connection"})

    async def main():
        connection = of_the_package(Connection)()
        backend, handles = of_client(connection)
        assert backend.name == "acp"
        assert handles.disconnect == connection.close
        assert of_client(of_the_package(Client)()) is None

    run(main)
