"""A deadline that a sentinel keeps, whatever its application does meanwhile (D7, F2)."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from contextlib import contextmanager, suppress
from math import inf, nan

import pytest

from streamguard import ConfigError, sentinel
from streamguard._base.boottime import boottime
from streamguard.process import ProcessTree, identity
from streamguard.process.members import TreeFacts
from streamguard.process.procfs import read_stat
from streamguard.process.sentinel import sentinel as module
from streamguard.process.sentinel import wire
from streamguard.process.sentinel.helper import Helper
from tests.process.backends import comes_true, is_dead, is_stopped
from tests.process.test_sentinel import ORPHAN, TREE, Host

# Long enough that what happens before it is over happens before it, on a busy machine, too.
SOON = 1.5
HOUR = 3600.0


@pytest.fixture(autouse=True)
def none_in_force(backends):
    """What a test leaves in force is not for the next one, nor for the count of descriptors."""
    yield
    for guard in tuple(module._in_force):
        guard.close()
    module._link.close()
    module._kept.clear()


@pytest.fixture
def host(backends):
    return lambda *args, **options: Host(backends, *args, **options)


def stop(application):
    application.process.send_signal(signal.SIGSTOP)
    assert comes_true(lambda: is_stopped(application.process.pid))


@pytest.mark.parametrize("how", ["adopted", "held"])
def test_a_stopped_application_does_not_keep_its_backend_past_the_deadline(host, backends, how):
    """F2: deaf, and with a child in a session of its own. The control: without a deadline it lives."""
    application = host().do("sentinel", "60")
    application.do("start", "kept", *TREE).do("adopt", "kept")
    application.do("start", "lent", "ignore", "ready", "hang")
    until = boottime() + SOON
    application.do("adopt" if how == "adopted" else "hold", "lent", str(until))
    stop(application)
    assert comes_true(lambda: is_dead(application.lent))
    assert boottime() >= until
    assert is_stopped(application.process.pid)
    assert not is_dead(application.kept)
    assert len(backends.living()) == 4  # the application, its helper, the control and its child


def test_the_whole_tree_ends(host, backends):
    """D4: an orphan is found by its mark, and its dead parent is no reason to pass it over."""
    application = host().do("sentinel", "60").do("start", "backend", *ORPHAN, "stop", "exit", "0")
    application.do("adopt", "backend", str(boottime() + SOON))
    os.kill(application.backend, signal.SIGCONT)
    assert comes_true(lambda: is_dead(application.backend))
    stop(application)
    here = {application.process.pid, application.helper}
    assert comes_true(lambda: backends.living() == here)


def test_renewals_keep_it_alive(host):
    """F2: until they end."""
    application = host().do("sentinel", "60").do("start", "backend", "ready", "hang")
    began = boottime()
    application.do("adopt", "backend", str(began + SOON))
    while boottime() < began + 2 * SOON:
        application.do("renew", "backend", str(boottime() + 20 * SOON))
        time.sleep(SOON / 20)
    assert not is_dead(application.backend)
    until = boottime() + SOON / 5
    application.do("renew", "backend", str(until))
    assert comes_true(lambda: is_dead(application.backend))
    assert boottime() >= until


def test_each_has_its_own(host):
    """F2: and who has none lives on with its application."""
    application = host().do("sentinel", "60")
    for name in ("later", "sooner", "never"):
        application.do("start", name, "ready", "hang")
    now = boottime()
    for name, until in ("later", now + 2 * SOON), ("sooner", now + SOON), ("never", inf):
        application.do("adopt", name, str(until))
    assert comes_true(lambda: is_dead(application.sooner))
    seen = boottime()
    assert seen > now + 2 * SOON or not is_dead(application.later)
    assert comes_true(lambda: is_dead(application.later))
    assert boottime() >= now + 2 * SOON
    assert not is_dead(application.never)
    assert not is_dead(application.process.pid)


def test_one_that_is_over_ends_it_at_once(host):
    """F2: a lease that was lost while its backend was started."""
    application = host().do("sentinel", "60").do("start", "backend", "ignore", "ready", "hang")
    application.do("adopt", "backend", str(boottime() - 1))
    assert comes_true(lambda: is_dead(application.backend))
    # It is dead for good: nothing more happens, and nobody else is hit.
    application.do("renew", "backend", str(boottime() + HOUR)).do("release", "backend")
    application.do("start", "other", "ready", "hang").do("adopt", "other")
    assert not is_dead(application.helper)
    application.die()
    assert comes_true(lambda: is_dead(application.other))


def test_a_deadline_can_be_taken_back(host):
    """F2: moved to an hour from now, to none, or released."""
    application = host().do("sentinel", "60")
    until = boottime() + SOON
    for name in ("renewed", "freed", "released", "due"):
        application.do("start", name, "ready", "hang").do("adopt", name, str(until))
    application.do("renew", "renewed", str(boottime() + HOUR)).do("renew", "freed", "inf")
    application.do("release", "released")
    assert comes_true(lambda: is_dead(application.due))
    assert boottime() >= until
    assert not any(map(is_dead, (application.renewed, application.freed, application.released)))


def test_a_helper_that_takes_over_keeps_the_deadlines(host):
    """F2: those that were renewed meanwhile, too. It is noticed with the next word."""
    application = host(stderr=subprocess.DEVNULL).do("sentinel", "60")
    until = boottime() + SOON
    for name in ("due", "renewed"):
        application.do("start", name, "ready", "hang").do("adopt", name, str(until))
    os.kill(application.helper, signal.SIGKILL)
    assert comes_true(lambda: is_dead(application.helper))
    application.do("renew", "renewed", str(boottime() + HOUR))
    stop(application)
    assert comes_true(lambda: is_dead(application.due))
    assert boottime() >= until
    assert not is_dead(application.renewed)


def test_a_dead_application_gives_no_grace_past_the_deadline(host):
    """F2, D7: a minute of it was written, for a backend that does not hear."""
    application = host().do("sentinel", "60").do("start", "backend", "ignore", "ready", "hang")
    until = boottime() + SOON
    application.do("adopt", "backend", str(until)).die()
    began = time.monotonic()
    assert comes_true(lambda: is_dead(application.backend))
    assert boottime() >= until
    assert time.monotonic() - began < 30
    assert comes_true(lambda: is_dead(application.helper))


def test_who_holds_a_lease_needs_no_sentinel_and_is_let_go_by_none(backends):
    """F2: the helper is started when it is needed; a sentinel's goodbye is not the lease's."""
    backend, guarded = backends.start("ready", "hang"), backends.start("ready", "hang")
    with ProcessTree.adopt(backend) as tree:
        held = module.hold(tree, 60, boottime() + HOUR)
    helper = module._link.pid
    assert helper is not None
    with sentinel() as guard:
        guard.adopt(guarded)
        assert guard.pid == helper
    assert module._link.pid == helper
    held.renew(boottime() - 1)
    assert backend.wait() == -9
    assert not is_dead(guarded.pid)
    held.drop()
    held.drop()
    held.renew(None)
    with sentinel() as guard:
        assert guard.pid == helper
    assert comes_true(lambda: is_dead(helper))


def test_many_are_renewed_at_once(backends):
    """F2: 300 leases, all of them told to a helper that is stopped, without waiting for it."""
    backend, due = backends.start("ready", "hang"), backends.start("ready", "hang")
    with ProcessTree.adopt(backend) as tree, ProcessTree.adopt(due) as other:
        last = module.hold(other, 60, boottime() + HOUR)
        held = [module.hold(tree, 60, boottime() + HOUR) for _ in range(300)]
        helper = module._link.pid
        assert comes_true(lambda: read_stat(helper).state == "S")  # it has heard all of it
        os.kill(helper, signal.SIGSTOP)
        for _ in range(5):
            module.renew_all(held, boottime() + HOUR)
        module.renew_all([last], boottime() - 1)
        os.kill(helper, signal.SIGCONT)
        assert due.wait() == -9
        assert module._link.pid == helper
        assert not is_dead(backend.pid)


@pytest.mark.parametrize("until", [nan, "soon", True])
def test_a_deadline_that_is_none(backends, until):
    """T12: validated where it is written."""
    backend = backends.start("ready", "hang")
    with sentinel() as guard:
        with pytest.raises(ConfigError, match="until="):
            guard.adopt(backend, until=until)
        guard.adopt(backend)
        with pytest.raises(ConfigError, match="until="):
            guard.renew(backend, until)
        guard.renew(1, boottime())  # which was not adopted


# --- the helper, in this process: what cannot be killed, as what belongs to another user


class InThread:
    """A helper in a thread, told by messages."""

    def __init__(self, end):
        self.end = end
        self.told = []

    def adopt(self, serial, backend, until):
        stat = read_stat(backend.pid)
        facts = TreeFacts(backend.pid, stat.started, None, None)
        body = wire.pack_adopted(wire.Adopted(serial, 60.0, until, facts))
        wire.send(self.end.fileno(), wire.ADOPT, body)

    def renew(self, serial, until):
        for body in wire.pack_renewals({serial: until}):
            wire.send(self.end.fileno(), wire.RENEW, body)

    def say_goodbye(self):
        with suppress(OSError):
            wire.send(self.end.fileno(), wire.GOODBYE)


@contextmanager
def helper_in_thread():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        link = InThread(ours)
        helper = Helper(theirs, link.told.append)
        thread = threading.Thread(target=lambda: (helper.listen(), helper.end_all()))
        thread.start()
        try:
            yield link
        finally:
            link.say_goodbye()
            thread.join()
            for held in helper._held.values():  # a helper's own process would be gone with them
                held.close()


class Immune:
    """A backend that no signal reaches, as long as it `is_immune`."""

    def __init__(self, backends, monkeypatch):
        self.process = backends.start("ready", "hang")
        self.is_immune = True
        self.tried = []
        send = identity.PidfdHandle.send

        def immune(handle, number):
            if handle.pid == self.process.pid and self.is_immune:
                self.tried.append(number)
                return False
            return send(handle, number)

        monkeypatch.setattr(identity.PidfdHandle, "send", immune)


def test_one_that_does_not_die_delays_nobody(backends, monkeypatch):
    """F2: others are ended and renewed meanwhile; and it is tried again, until it is dead."""
    due, renewed = (backends.start("ready", "hang") for _ in range(2))
    immune = Immune(backends, monkeypatch)
    slow = immune.process
    with helper_in_thread() as link:
        link.adopt(1, slow, boottime() - 1)
        assert comes_true(lambda: signal.SIGKILL in immune.tried)
        link.adopt(2, due, boottime() + SOON)
        link.adopt(3, renewed, boottime() + SOON)
        link.renew(3, boottime() + HOUR)
        assert due.wait() == -9
        assert not is_dead(slow.pid)
        assert not is_dead(renewed.pid)
        assert comes_true(lambda: any(f"still alive: {slow.pid}" in line for line in link.told))
        link.renew(1, boottime() + HOUR)  # too late
        immune.is_immune = False
        assert slow.wait() == -9
    assert not is_dead(renewed.pid)


def test_a_goodbye_comes_too_late_for_what_is_overdue(backends, monkeypatch):
    """F2: it is ended to the end. All else lives on."""
    other = backends.start("ready", "hang")
    immune = Immune(backends, monkeypatch)
    with helper_in_thread() as link:
        link.adopt(1, immune.process, boottime() - 1)
        link.adopt(2, other, inf)
        assert comes_true(lambda: signal.SIGKILL in immune.tried)
        link.say_goodbye()
        immune.is_immune = False
        assert immune.process.wait() == -9
    assert not is_dead(other.pid)


def test_a_renewal_that_waits_to_be_heard_counts(backends):
    """F2: a helper that was starved past a deadline first hears what was said before."""
    backend, due = backends.start("ready", "hang"), backends.start("ready", "hang")
    with sentinel() as guard:
        until = boottime() + SOON
        guard.adopt(backend, until=until)
        guard.adopt(due, until=until)
        os.kill(guard.pid, signal.SIGSTOP)
        guard.renew(backend, boottime() + HOUR)
        assert comes_true(lambda: boottime() > until)
        os.kill(guard.pid, signal.SIGCONT)
        assert due.wait() == -9
        assert not is_dead(backend.pid)
