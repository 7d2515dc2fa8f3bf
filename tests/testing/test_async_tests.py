"""An `async def` test runs on the loop that it asks for, whatever plugins there are (conftest)."""

from __future__ import annotations

pytest_plugins = ["pytester"]

TESTS = """
    import anyio, pytest, sniffio
    from hypothesis import HealthCheck, given, settings, strategies

    by_examples = settings(max_examples=5, suppress_health_check=list(HealthCheck))

    async def test_runs(loop):
        await anyio.sleep(3600)
        assert sniffio.current_async_library() == {"uvloop": "asyncio"}.get(loop.name, loop.name)

    async def test_fails(loop):
        await anyio.sleep(3600)
        raise LookupError("as told")

    class TestMethods:
        async def test_fails(self, native):
            await anyio.sleep(3600)
            raise LookupError("as told")

    @by_examples
    @given(number=strategies.just(1))
    async def test_runs_by_examples(loop, number):
        await anyio.sleep(number)

    @by_examples
    @given(number=strategies.just(1))
    async def test_fails_by_examples(loop, number):
        await anyio.sleep(number)
        raise LookupError("as told")

    @pytest.mark.asyncio
    async def test_of_asyncio():
        raise LookupError("as told")

    @pytest.mark.trio
    async def test_of_trio():
        raise LookupError("as told")

    @pytest.mark.anyio
    async def test_of_anyio(anyio_backend):
        raise LookupError("as told")

    async def test_returns(loop):
        return "what nobody looks at"

    async def test_has_no_loop():
        pass
"""
NATIVE = ("asyncio", "uvloop")
LOOPS = (*NATIVE, "trio")
PASSED = {f"test_runs{by}[{loop}]" for by in ("", "_by_examples") for loop in LOOPS}
AS_TOLD = {
    *(f"test_fails{by}[{loop}]" for by in ("", "_by_examples") for loop in LOOPS),
    *(f"TestMethods::test_fails[{loop}]" for loop in NATIVE),
    *("test_of_asyncio", "test_of_trio", "test_of_anyio[asyncio]", "test_of_anyio[trio]"),
}
FAILED = {*(f"test_returns[{loop}]" for loop in LOOPS), "test_has_no_loop"}


def test_what_fails_in_an_async_test_fails_on_every_loop(pytester):
    pytester.makepyfile(TESTS)
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    result = pytester.inline_run("-p", "tests.conftest", "-W", "error")
    outcomes = {"passed": set(), "as told": set(), "failed": set()}
    for report in result.getreports("pytest_runtest_logreport"):
        name = report.nodeid.partition("::")[2]
        if report.when == "call":
            as_told = "LookupError: as told" in report.longreprtext
            outcomes["as told" if as_told else report.outcome].add(name)
    assert outcomes == {"passed": PASSED, "as told": AS_TOLD, "failed": FAILED}
