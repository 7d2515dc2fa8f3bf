from streamguard import IdleTimeoutError, idle_guard
from streamguard.testing import Script, done, hang, say, silence, tool
from tests.support import Disconnect, take


async def test_idle(loop, form):
    d = Disconnect()
    stream = Script(say("a"), silence(60), say("b"), hang()) | idle_guard(180, disconnect=d)
    taken = await take(stream, form)
    assert isinstance(taken.error, IdleTimeoutError), taken
    assert loop.took(taken.elapsed, 240)
    assert len(d.calls) == 1
    assert taken.error.teardown.confirmed


async def test_tool(loop, form):
    stream = Script(say("a"), tool("Bash", 600), done()) | idle_guard(180)
    taken = await take(stream, form)
    assert taken.error is None, taken
    assert loop.took(taken.elapsed, 600)
