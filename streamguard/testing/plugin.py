"""The pytest plugin: the fixture `virtual_time`, for sync and async tests alike.

A test that requests `virtual_time` runs on a virtual clock, whoever runs it: pytest-asyncio
(which must know loop factories: 1.4 or later), pytest-trio, anyio's plugin, or the test itself
by `virtual_time.run(...)`. No other test is touched.

pytest imports this module in every environment where streamguard is installed, so it imports
pytest and nothing else; the rest comes with the first test that asks for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, cast

import pytest

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Awaitable, Callable, Generator, Mapping

    from trio.testing import MockClock

    from streamguard.testing.clocks import Backend, VirtualLoop

T = TypeVar("T")
Args = TypeVarTuple("Args")

FIXTURE = "virtual_time"
ASYNCIO_HOOK = "pytest_asyncio_loop_factories"


class VirtualTime:
    """What the fixture `virtual_time` gives."""

    if not TYPE_CHECKING:  # so that a checker, too, says what is wrong

        def __call__(self, *_: object) -> None:
            """What most try first; so it says what to write."""
            raise TypeError(
                "virtual_time is not called: a plain test writes virtual_time.run(main, ...), and an `async "
                "def` test runs in virtual time as soon as it names the fixture"
            )

        def __enter__(self) -> None:
            raise TypeError(
                "virtual_time is not entered: a test that names the fixture runs in virtual time as a whole; a "
                "plain test writes virtual_time.run(main, ...)"
            )

        __exit__ = __aexit__ = __call__
        __aenter__ = __enter__

    @property
    def loop_factory(self) -> type[VirtualLoop]:
        """For everything that takes a loop factory: `asyncio.Runner`, `anyio.run`."""
        from streamguard.testing.clocks import VirtualLoop

        return VirtualLoop

    def trio_clock(self) -> MockClock:
        """A fresh clock for `trio.run(main, clock=...)`."""
        from streamguard.testing.clocks import virtual_clock

        return virtual_clock()

    def run(
        self,
        async_fn: Callable[[*Args], Awaitable[T]],
        *args: *Args,
        backend: Backend = "asyncio",
    ) -> T:
        """Run `async_fn(*args)` in virtual time, from a sync test, and give its result."""
        from streamguard.testing.clocks import run_virtual

        return run_virtual(async_fn, *args, backend=backend)

    def now(self) -> float:
        """The virtual time of the running loop; RuntimeError if it runs in real time."""
        from streamguard.testing.clocks import virtual_now

        return virtual_now()


@pytest.fixture
def virtual_time(request: pytest.FixtureRequest) -> VirtualTime:
    """Virtual time: sleeps and timeouts end at once, exactly, and in their order.

    In a sync test call `virtual_time.run(async_fn, *args, backend=...)`, where `backend` is
    "asyncio", "uvloop" or "trio". An async test simply runs virtually; `virtual_time.now()` is its time. For async fixtures of
    a wider scope than the test's, anyio must be told by its own means: let a fixture
    `anyio_backend` return `("asyncio", streamguard.testing.virtual_options("asyncio"))`.
    """
    if "anyio_backend" in request.fixturenames:
        # Where anyio's plugin looks, and pytest keeps what it finds there.
        backend = request.getfixturevalue("anyio_backend")
        request.node.funcargs["anyio_backend"] = _virtual_backend(request.node, backend)
    if request.node.get_closest_marker("asyncio") and not _asyncio_can_be_told(request.config):
        raise pytest.UsageError("virtual_time in an async test needs pytest-asyncio 1.4 or later")
    if marker := request.node.get_closest_marker("trio"):
        virtual = pytest.mark.trio(run=_VirtualTrioRun(marker.kwargs.get("run")))
        request.node.add_marker(virtual, append=False)
    return VirtualTime()


@pytest.hookimpl(hookwrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Generator[None, None, None]:
    """Give pytest-asyncio its loop factory, for this test only.

    Its hook, once implemented, must answer for every test of the run and then parametrizes
    them all; so it is implemented just as long as a test that wants it is looked at.
    """
    if FIXTURE not in metafunc.fixturenames or not _asyncio_can_be_told(metafunc.config):
        yield
        return
    plugins = metafunc.config.pluginmanager
    factories = _LoopFactories()
    plugins.register(factories)
    try:
        yield
    finally:
        plugins.unregister(factories)


@pytest.hookimpl(hookwrapper=True, trylast=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, None, None]:
    """Let anyio's plugin set up the async fixtures of a virtual test in its virtual loop."""
    by_anyio = fixturedef.func
    if (
        getattr(by_anyio, "__module__", None) != "anyio.pytest_plugin"
        or "anyio_backend" not in fixturedef.argnames
        or fixturedef.scope != "function"
        or FIXTURE not in request.fixturenames
    ):
        yield
        return

    def virtually(anyio_backend: object, **kwargs: Any) -> Generator[Any, Any, Any]:
        yield from by_anyio(anyio_backend=_virtual_backend(request.node, anyio_backend), **kwargs)

    # As anyio does it: exchanged for the time of the call.
    vars(fixturedef)["func"] = virtually
    try:
        yield
    finally:
        vars(fixturedef)["func"] = by_anyio


def _asyncio_can_be_told(config: pytest.Config) -> bool:
    return hasattr(config.hook, ASYNCIO_HOOK)


class _LoopFactories:
    """Answers pytest-asyncio's question before anybody else does."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_asyncio_loop_factories(self) -> Mapping[str, Callable[[], AbstractEventLoop]]:
        from streamguard.testing.clocks import VirtualLoop

        return {"virtual": VirtualLoop}


class _VirtualTrioRun:
    """`trio.run`, or what a test's marker has in its place, on a virtual clock."""

    def __init__(self, run: Callable[..., Any] | None) -> None:
        self._run = run

    def __call__(self, async_fn: Callable[..., Any], *args: Any, **options: Any) -> Any:
        import trio

        from streamguard.testing.clocks import virtual_clock
        from streamguard.testing.trio_deadlock import raising_deadlocks

        # A clock that the test chose itself, by pytest-trio's own fixtures, stays.
        options["clock"] = options.get("clock") or virtual_clock()
        return (self._run or trio.run)(raising_deadlocks, async_fn, *args, **options)


_backends = pytest.StashKey[tuple[str, dict[str, Any]]]()


def _virtual_backend(item: pytest.Item, backend: object) -> tuple[str, dict[str, Any]]:
    """The same backend with virtual options, the same for a test and all its fixtures."""
    if _backends not in item.stash:
        from streamguard.testing.clocks import virtual_options

        name, options = cast(
            "tuple[Backend, dict[str, Any]]",
            (backend, {}) if isinstance(backend, str) else backend,
        )
        virtual = virtual_options("uvloop" if options.get("use_uvloop") else name)
        item.stash[_backends] = (name, {**options, **virtual})
    return item.stash[_backends]
