"""The fixture `virtual_time` reaches the test's loop, whoever runs the test, and no other's."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
RUNNERS = {
    "asyncio": ("-p", "pytest_asyncio.plugin"),
    "trio": ("-p", "pytest_trio.plugin"),
    "anyio": ("-p", "anyio.pytest_plugin"),
}
ALL = [option for options in RUNNERS.values() for option in options]
START = 1000


@pytest.fixture
def run_tests(pytester, monkeypatch):
    """Runs a test file with the plugin, and of other plugins only those that are named."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")

    def run(source, *options):
        pytester.makepyfile(source)
        return pytester.runpytest("-p", "streamguard.testing.plugin", "-rA", *options)

    return run


def test_a_sync_test_runs_what_it_likes_in_virtual_time_without_any_other_plugin(run_tests):
    result = run_tests("""
        import asyncio, anyio, pytest, trio

        async def an_hour(virtual_time, more):
            await anyio.sleep(3600 + more)
            return virtual_time.now()

        @pytest.mark.parametrize("backend", ["asyncio", "uvloop", "trio"])
        def test_run(virtual_time, backend):
            assert virtual_time.run(an_hour, virtual_time, 1, backend=backend) == 1000 + 3601

        def test_loop_factory(virtual_time):
            with asyncio.Runner(loop_factory=virtual_time.loop_factory) as runner:
                assert runner.run(an_hour(virtual_time, 2)) == 1000 + 3602

        def test_trio_clock(virtual_time):
            assert trio.run(an_hour, virtual_time, 3, clock=virtual_time.trio_clock()) == 4603

        @pytest.mark.parametrize("backend", ["asyncio", "trio"])
        def test_real_time_is_not_taken_for_virtual(virtual_time, backend):
            async def now():
                return virtual_time.now()

            with pytest.raises(RuntimeError, match="runs in real time"):
                anyio.run(now, backend=backend)

        def test_without_a_loop_there_is_no_time(virtual_time):
            with pytest.raises(RuntimeError, match="no running event loop"):
                virtual_time.now()
    """)
    result.assert_outcomes(passed=8)


ASYNCIO_TESTS = """
    import asyncio, pytest, pytest_asyncio, time
    from streamguard.testing import VirtualLoop

    @pytest_asyncio.fixture
    async def made_in():
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(0.001)
        yield asyncio.get_running_loop()

    @pytest.mark.asyncio
    async def test_virtual(virtual_time, made_in):
        assert made_in is asyncio.get_running_loop()
        began = virtual_time.now()
        await asyncio.sleep(3600)
        assert virtual_time.now() == began + 3600

    @pytest.mark.asyncio
    async def test_real(made_in):
        assert made_in is asyncio.get_running_loop()
        assert not isinstance(made_in, VirtualLoop)

    @pytest.fixture
    def indirectly(virtual_time):
        return virtual_time

    @pytest.mark.parametrize("n", [1, 2])
    @pytest.mark.asyncio
    async def test_indirect(indirectly, n):
        assert indirectly.now() == 1000

    @pytest.mark.asyncio(loop_scope="module")
    async def test_virtual_in_a_wider_loop(virtual_time):
        assert virtual_time.now() >= 1000

    @pytest.mark.asyncio(loop_scope="module")
    async def test_real_in_a_wider_loop():
        assert not isinstance(asyncio.get_running_loop(), VirtualLoop)
"""


@pytest.mark.parametrize("options", [RUNNERS["asyncio"], ALL], ids=["alone", "among others"])
def test_an_async_test_of_pytest_asyncio_runs_virtually_and_no_other_does(run_tests, options):
    result = run_tests(ASYNCIO_TESTS, *options)
    result.assert_outcomes(passed=6)
    # Neither kind of test gets another name.
    result.stdout.fnmatch_lines_random(
        ["PASSED *::test_virtual", "PASSED *::test_real", "PASSED *::test_indirect[[]1[]]"]
    )


def test_a_suite_with_loop_factories_of_its_own_keeps_them_for_other_tests(run_tests, pytester):
    pytester.makeconftest("""
        import asyncio

        class OwnLoop(asyncio.SelectorEventLoop):
            pass

        def pytest_asyncio_loop_factories(config, item):
            return {"own": OwnLoop}
    """)
    result = run_tests(
        """
        import asyncio, pytest

        @pytest.mark.asyncio
        async def test_virtual(virtual_time):
            assert virtual_time.now() == 1000

        @pytest.mark.asyncio
        async def test_own():
            assert type(asyncio.get_running_loop()).__name__ == "OwnLoop"
        """,
        *RUNNERS["asyncio"],
    )
    result.assert_outcomes(passed=2)


def test_a_pytest_asyncio_that_cannot_be_told_is_an_error_that_says_so(run_tests, pytester):
    pytester.makeconftest("""
        def pytest_configure(config):
            config.addinivalue_line("markers", "asyncio: as an old pytest-asyncio has it")
    """)
    result = run_tests("""
        import pytest

        @pytest.mark.asyncio
        def test_old(virtual_time):
            pass
    """)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*needs pytest-asyncio 1.4 or later*"])


TRIO_TESTS = """
    import pytest, trio
    from pytest_trio import trio_fixture

    runs = []

    def own_run(*args, **options):
        runs.append(options["clock"])
        return trio.run(*args, **options)

    @pytest.fixture
    async def slept():
        await trio.sleep(5)
        return trio.current_time()

    @pytest.mark.trio
    async def test_virtual(virtual_time):
        await trio.sleep(3600)
        assert virtual_time.now() == 1000 + 3600

    @pytest.mark.trio
    async def test_virtual_with_a_fixture(virtual_time, slept):
        assert slept == virtual_time.now() == 1000 + 5

    @pytest.mark.trio
    async def test_real():
        assert isinstance(trio.lowlevel.current_clock(), trio._core._run.SystemClock)

    @pytest.mark.trio(run=own_run)
    async def test_a_run_of_its_own_is_kept(virtual_time):
        assert runs == [trio.lowlevel.current_clock()]
        assert virtual_time.now() == 1000

    @pytest.mark.trio
    async def test_a_clock_of_its_own_is_kept(virtual_time, autojump_clock):
        assert trio.lowlevel.current_clock() is autojump_clock
        assert virtual_time.now() == autojump_clock.current_time()
"""


@pytest.mark.parametrize("options", [RUNNERS["trio"], ALL], ids=["alone", "among others"])
def test_an_async_test_of_pytest_trio_runs_virtually_and_no_other_does(run_tests, options):
    run_tests(TRIO_TESTS, *options).assert_outcomes(passed=5)


def test_trio_mode_is_served_too(run_tests, pytester):
    source = """
        import trio

        async def test_virtual(virtual_time):
            await trio.sleep(3600)
            assert virtual_time.now() == 1000 + 3600
    """
    result = run_tests(source, *RUNNERS["trio"], "-o", "trio_mode=true")
    result.assert_outcomes(passed=1)


ANYIO_TESTS = """
    import anyio, pytest
    from streamguard.testing.clocks import virtual_now

    pytestmark = pytest.mark.anyio

    @pytest.fixture
    async def slept():
        await anyio.sleep(5)
        yield anyio.current_time()
        virtual_now() if was_virtual.pop() else None

    was_virtual = []

    async def test_virtual(virtual_time):
        await anyio.sleep(3600)
        assert virtual_time.now() == 1000 + 3600

    async def test_virtual_with_an_async_fixture(virtual_time, slept):
        was_virtual.append(True)
        assert slept == virtual_time.now() == 1000 + 5

    async def test_virtual_with_the_fixture_first(anyio_backend, slept, virtual_time):
        was_virtual.append(True)
        assert slept == virtual_time.now() == 1000 + 5

    async def test_real():
        with pytest.raises(RuntimeError, match="real time"):
            virtual_now()
"""


@pytest.mark.parametrize("options", [RUNNERS["anyio"], ALL], ids=["alone", "among others"])
def test_an_async_test_of_anyio_runs_virtually_on_each_backend(run_tests, options):
    result = run_tests(ANYIO_TESTS, *options)
    result.assert_outcomes(passed=8)
    result.stdout.fnmatch_lines_random(
        ["PASSED *::test_virtual[[]asyncio[]]", "PASSED *::test_virtual[[]trio[]]"]
    )


def test_the_backend_options_of_a_suite_are_kept(run_tests):
    result = run_tests(
        """
        import anyio, asyncio, pytest, uvloop

        @pytest.fixture
        def anyio_backend():
            return "asyncio", {"debug": True, "use_uvloop": True}

        @pytest.mark.anyio
        async def test_virtual(virtual_time):
            assert asyncio.get_running_loop().get_debug()
            assert isinstance(asyncio.get_running_loop(), uvloop.Loop)
            assert virtual_time.now() == 1000
        """,
        *RUNNERS["anyio"],
    )
    result.assert_outcomes(passed=1)


def test_an_async_fixture_of_a_wider_scope_makes_a_real_loop_and_the_error_says_so(run_tests):
    result = run_tests(
        """
        import anyio, pytest

        @pytest.fixture(scope="module")
        def anyio_backend():
            return "asyncio"

        @pytest.fixture(scope="module")
        async def wide():
            await anyio.sleep(0)

        @pytest.mark.anyio
        async def test_virtual(wide, virtual_time):
            virtual_time.now()
        """,
        *RUNNERS["anyio"],
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*a wider async fixture makes it*"])


def test_the_plugin_costs_a_run_that_does_not_use_it_nothing_but_pytest():
    code = (
        "import sys, pytest; before = set(sys.modules);"
        "import streamguard.testing.plugin;"
        "new = {name.split('.')[0] for name in set(sys.modules) - before};"
        "assert not new & {'anyio', 'trio', 'asyncio', 'pytest_asyncio'}, sorted(new);"
        "own = {name for name in sys.modules if name.startswith('streamguard.testing.')};"
        "assert own == {'streamguard.testing.plugin'}, own"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, cwd=ROOT)


def test_the_plugin_is_registered_as_an_entry_point():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"streamguard": "streamguard.testing.plugin"}
