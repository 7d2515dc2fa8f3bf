"""Looking at a process tree: what it used, holds and waits in, as `Vitals`.

Of /proc: `stat`, `task/*/children`, `fd`, `net/tcp`, `wchan` and `syscall`; of psutil, where there is no
/proc, what it gives. A look is for a person who wonders why nothing comes: it decides nothing, never raises,
and takes some milliseconds at most. What is beyond that, or hidden from us, is left out, and said to be.
Of a descriptor its kind is read, of a connection its state, queues, port and class of address: names and
addresses go no further than here (E3). Imports procfs; psutil where it must. Knows no loops.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from streamguard._base.vitals import Peer, Sockets, Vitals, Waiters
from streamguard.process import procfs
from streamguard.process.identity import psutil_or_none

# Seconds that one look may take, and that all looks together may take of each second: of a thousand
# sessions that fall silent at one instant the last must not wait for the looks at the others.
LONGEST: Final = 0.012
SHARE: Final = 0.05
_MOST_DESCRIPTORS: Final = 2048  # of one process
_MOST_NETWORKS: Final = 4
_MOST_ROWS: Final = 20
_BLOCK: Final = 1 << 16
_CHECK_EVERY: Final = 64
_GRANTED: Final = (FileNotFoundError, ProcessLookupError, PermissionError)

_STATES: Final = {
    "01": "ESTABLISHED",
    "02": "SYN_SENT",
    "03": "SYN_RECV",
    "04": "FIN_WAIT1",
    "05": "FIN_WAIT2",
    "06": "TIME_WAIT",
    "07": "CLOSE",
    "08": "CLOSE_WAIT",
    "09": "LAST_ACK",
    "0A": "LISTEN",
    "0B": "CLOSING",
    "0C": "SYN_RECV",
}

# Calls that wait, by their number on this kind of machine: those on a descriptor are told with its kind.
_ON_A_DESCRIPTOR: Final = {"read", "write", "recv", "send", "accept", "connect"}
_CALLS: Final[dict[str, dict[int, str]]] = {
    "x86_64": {
        0: "read",
        19: "read",
        1: "write",
        20: "write",
        45: "recv",
        47: "recv",
        44: "send",
        46: "send",
        43: "accept",
        288: "accept",
        42: "connect",
        232: "epoll_wait",
        281: "epoll_wait",
        441: "epoll_wait",
        7: "poll",
        271: "poll",
        23: "select",
        270: "select",
        202: "futex",
        35: "sleep",
        230: "sleep",
        61: "wait for a child",
        247: "wait for a child",
        34: "wait for a signal",
        130: "wait for a signal",
        128: "wait for a signal",
        426: "io_uring",
        208: "aio",
    },
    "aarch64": {
        63: "read",
        65: "read",
        64: "write",
        66: "write",
        207: "recv",
        212: "recv",
        206: "send",
        211: "send",
        202: "accept",
        242: "accept",
        203: "connect",
        22: "epoll_wait",
        441: "epoll_wait",
        73: "poll",
        72: "select",
        98: "futex",
        101: "sleep",
        115: "sleep",
        260: "wait for a child",
        95: "wait for a child",
        133: "wait for a signal",
        137: "wait for a signal",
        426: "io_uring",
    },
}
# Where /proc/PID/syscall is not shown, the kernel's function says it, under names that change with it.
_FUNCTIONS: Final = (
    ("ep_poll", "epoll_wait"),
    ("do_epoll_wait", "epoll_wait"),
    ("futex", "futex"),
    ("anon_pipe_read", "read of a pipe"),
    ("pipe_read", "read of a pipe"),
    ("anon_pipe_write", "write to a pipe"),
    ("pipe_write", "write to a pipe"),
    ("unix_stream", "read of a socket"),
    ("sk_wait_data", "read of a socket"),
    ("inet_csk_accept", "accept of a socket"),
    ("n_tty_read", "read of a terminal"),
    ("hrtimer_nanosleep", "sleep"),
    ("do_nanosleep", "sleep"),
    ("do_wait", "wait for a child"),
    ("kernel_wait4", "wait for a child"),
    ("do_sys_poll", "poll"),
    ("do_poll", "poll"),
    ("poll_schedule_timeout", "poll"),
    ("do_select", "select"),
    ("sigsuspend", "wait for a signal"),
)
_PREPOSITIONS: Final = {"write": "to", "send": "to", "connect": "of"}


class _Usage(NamedTuple):
    """What `stat` says of one process that lives. `cpu`: with that of children it has waited for, in ticks."""

    pid: int
    state: str
    threads: int
    cpu: int
    pages: int


class _Sample(NamedTuple):
    at: float
    cpu: float


class Look:
    """One tree, looked at now and then: each look says what was used since the one before.

    `known`: who surely belongs to it now; all below them do, too.
    """

    def __init__(self, pid: int, known: Callable[[], Iterable[int]] | None = None) -> None:
        self._pid = pid
        self._known = known or (lambda: (pid,))
        self._before: _Sample | None = None

    def began(self, at: float) -> None:
        """The process was started then: until then it had used nothing."""
        self._before = _Sample(at, 0.0)

    def note(self, now: float) -> None:
        """From here on it is counted what is used. The cheap half of a look."""
        with suppress(Exception), _share:  # whatever it is, a look is no reason to fail
            if not _share.is_spent and procfs.is_there():
                round_ = _Round(time.perf_counter() + LONGEST)
                self._count(round_.tree(self._known()), round_, now)

    def take(self, now: float) -> Vitals | None:
        """How it is now; None where nothing is to be seen, or looks have taken enough for the moment."""
        with suppress(Exception), _share:
            if _share.is_spent:
                return None
            until = time.perf_counter() + LONGEST
            return self._of_proc(until, now) if procfs.is_there() else self._of_psutil(until, now)
        return None

    def _of_proc(self, until: float, now: float) -> Vitals | None:
        round_ = _Round(until)
        found = round_.tree(self._known())
        if not found:
            return None
        before, cpu = self._before, self._count(found, round_, now)
        is_counted = before is not None and cpu is not None
        parked = _waiters(found, round_)
        links = _Descriptors(found, round_)
        return Vitals(
            cpu=max(0.0, cpu - before.cpu) if before is not None and cpu is not None else None,
            over=now - before.at if is_counted and before is not None else None,
            rss=sum(each.pages for each in found) * _page_size(),
            processes=len(found),
            threads=sum(each.threads for each in found),
            sockets=links.tcp,
            unix=links.unix,
            pipes=links.pipes,
            parked=parked,
            is_partial=round_.is_partial,
        )

    def _count(self, found: list[_Usage], round_: _Round, now: float) -> float | None:
        """The processor time of all, in seconds; None if that is not all of them."""
        if not found or round_.is_partial:
            return None
        # What has ended and was waited for is in its parent's count: nothing is lost between two looks.
        cpu = sum(each.cpu for each in found) / os.sysconf("SC_CLK_TCK")
        self._before = _Sample(now, cpu)
        return cpu

    def _of_psutil(self, until: float, now: float) -> Vitals | None:
        if (psutil := psutil_or_none()) is None:
            return None
        root = psutil.Process(self._pid)
        if root.status() == psutil.STATUS_ZOMBIE:
            return None
        cpu, rss, threads, count, is_partial = 0.0, 0, 0, 0, False
        for process in (root, *root.children(recursive=True)):
            if time.perf_counter() >= until:
                is_partial = True
            count += 1
            if is_partial:
                continue
            with suppress(psutil.Error):
                times = process.cpu_times()
                cpu += times.user + times.system
                rss += process.memory_info().rss
                threads += process.num_threads()
        before, self._before = self._before, None if is_partial else _Sample(now, cpu)
        is_counted = before is not None and not is_partial
        return Vitals(
            cpu=max(0.0, cpu - before.cpu) if is_counted and before is not None else None,
            over=now - before.at if is_counted and before is not None else None,
            rss=rss,
            processes=count,
            threads=threads,
            is_partial=is_partial,
        )


class _Share:
    """How much of this second looks have taken already. Entered around each."""

    def __init__(self) -> None:
        self._second = 0
        self._spent = 0.0
        self._began = 0.0

    @property
    def is_spent(self) -> bool:
        return self._spent >= SHARE

    def __enter__(self) -> None:
        self._began = time.perf_counter()
        if (second := int(self._began)) != self._second:
            self._second, self._spent = second, 0.0

    def __exit__(self, *_: object) -> None:
        self._spent += time.perf_counter() - self._began


_share = _Share()


class _Round:
    """One look's way through /proc, within its time."""

    def __init__(self, until: float) -> None:
        self._until = until
        self.is_partial = False

    def is_late(self, margin: float = 0.0) -> bool:
        """Whether the time is over, but for a margin: then what comes of it is partial."""
        if time.perf_counter() < self._until - margin:
            return False
        self.is_partial = True
        return True

    def tree(self, seeds: Iterable[int]) -> list[_Usage]:
        """Who lives of `seeds` and all below them, the oldest first."""
        found: dict[int, _Usage] = {}
        left = list(dict.fromkeys(seeds))[::-1]
        while left:
            pid = left.pop()
            if pid in found:
                continue
            if found and self.is_late(LONGEST / 2):  # the other half is for what they hold
                break
            if (usage := _usage_of(pid)) is not None:
                found[pid] = usage
                left += self._children(pid)[::-1]
        return list(found.values())

    def _children(self, pid: int) -> list[int]:
        """Whom each of its threads has started."""
        children: list[int] = []
        for thread in self.names(f"/proc/{pid}/task"):
            said = _text(f"/proc/{pid}/task/{thread}/children")
            if said is None:
                self.is_partial = True  # a kernel that does not tell, or it has just ended
                break
            children += map(int, said.split())
        return children

    def names(self, folder: str, most: int | None = None) -> Iterator[str]:
        """The names in a folder, as long as there is time."""
        try:
            entries = os.scandir(folder)
        except OSError:
            return
        with entries:
            for number, entry in enumerate(entries):
                if number == most or (
                    number % _CHECK_EVERY == _CHECK_EVERY - 1 and self.is_late()
                ):
                    self.is_partial = True
                    return
                yield entry.name

    def lines(self, path: str) -> Iterator[str]:
        """The lines of a long file, as long as there is time."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except _GRANTED:
            return
        rest = b""
        try:
            while portion := os.read(fd, _BLOCK):
                *whole, rest = (rest + portion).split(b"\n")
                yield from map(bytes.decode, whole)
                if self.is_late():
                    return
        finally:
            os.close(fd)


class _Descriptors:
    """What the processes hold open, by kind; None where none of them shows it."""

    def __init__(self, found: list[_Usage], round_: _Round) -> None:
        self.tcp: tuple[Sockets, ...] | None = None
        self.unix: int | None = None
        self.pipes: int | None = None
        self._round = round_
        sockets: set[str] = set()
        pipes: set[str] = set()
        networks: dict[str, int] = {}
        is_shown = False
        for usage in found:
            if round_.is_late():
                break
            if not self._gather(usage.pid, sockets, pipes):
                continue
            is_shown = True
            if sockets and len(networks) < _MOST_NETWORKS:
                with suppress(OSError):
                    networks.setdefault(os.readlink(f"/proc/{usage.pid}/ns/net"), usage.pid)  # noqa: PTH115 - it is asked often
        if not is_shown:
            return
        self.pipes = len(pipes)
        self._join(sockets, tuple(networks.values()))

    def _gather(self, pid: int, sockets: set[str], pipes: set[str]) -> bool:
        is_shown = False
        for name in self._round.names(f"/proc/{pid}/fd", _MOST_DESCRIPTORS):
            try:
                link = os.readlink(f"/proc/{pid}/fd/{name}")  # noqa: PTH115 - it is asked often
            except OSError:
                continue
            is_shown = True
            # Children hold their parents' as well: each counts once.
            if link.startswith("socket:["):
                sockets.add(link[8:-1])
            elif link.startswith("pipe:["):
                pipes.add(link)
        return is_shown

    def _join(self, sockets: set[str], pids: Iterable[int]) -> None:
        alike: dict[tuple[str, Peer, int | None], list[int]] = {}
        left = set(sockets)
        for pid in pids:
            for line in self._lines(f"/proc/{pid}/net/unix", left):
                fields = line.split(maxsplit=7)
                if len(fields) > 6:
                    left.discard(fields[6])
        self.unix = len(sockets) - len(left)
        # The kernel goes through its whole table for each of these two: some milliseconds.
        for pid in pids:
            for file in ("tcp", "tcp6"):
                for line in self._lines(f"/proc/{pid}/net/{file}", left):
                    fields = line.split()
                    if len(fields) > 9 and fields[9] in left:
                        left.discard(fields[9])
                        _note(fields, alike)
        rows = [Sockets(*kind, *numbers) for kind, numbers in alike.items()]
        rows.sort(key=lambda row: (row.state == "LISTEN", -row.number))
        self.tcp = tuple(rows[:_MOST_ROWS])

    def _lines(self, path: str, left: set[str]) -> Iterable[str]:
        return self._round.lines(path) if left and not self._round.is_late() else ()


def _note(fields: list[str], alike: dict[tuple[str, Peer, int | None], list[int]]) -> None:
    """Add one line of `net/tcp` to those that are alike."""
    state = _STATES.get(fields[3], fields[3])
    address, _, port = fields[1 if state == "LISTEN" else 2].partition(":")
    number = int(port, 16) or None
    peer: Peer = "" if state == "LISTEN" or number is None else _class_of(address)
    to_send, _, to_read = fields[4].partition(":")
    row = alike.setdefault((state, peer, number), [0, 0, 0])
    row[0] += 1
    if state != "LISTEN":
        row[1] += int(to_send, 16)
        row[2] += int(to_read, 16)


def _class_of(address: str) -> Peer:
    """Where an address is, as `net/tcp` writes it: words of 32 bits in the machine's own order."""
    import ipaddress
    import sys

    words = [
        int(address[i : i + 8], 16).to_bytes(4, sys.byteorder) for i in range(0, len(address), 8)
    ]
    found = ipaddress.ip_address(b"".join(words))
    found = getattr(found, "ipv4_mapped", None) or found
    if found.is_loopback:
        return "loopback"
    return "private" if found.is_private or found.is_link_local else "public"


def _waiters(found: list[_Usage], round_: _Round) -> tuple[Waiters, ...] | None:
    """Where the leading thread of each waits."""
    where: Counter[str] = Counter()
    for usage in found:
        if round_.is_late():
            break
        if (place := _place_of(usage)) is not None:
            where[place] += 1
    if not where:
        return None
    return tuple(Waiters(*each) for each in where.most_common(_MOST_ROWS))


def _place_of(usage: _Usage) -> str | None:
    match usage.state:
        case "R":
            return "running"
        case "T" | "t":
            return "stopped"
        case "D":
            return "the disk or the kernel"
        case _:
            return _call_of(usage.pid) or _function_of(usage.pid)


def _call_of(pid: int) -> str | None:
    """The system call that a process is in, and on what kind of thing."""
    said = _text(f"/proc/{pid}/syscall")
    fields = said.split() if said is not None else []
    if not fields or not fields[0].isdigit():
        return None
    call = _CALLS.get(os.uname().machine, {}).get(int(fields[0]))
    if call not in _ON_A_DESCRIPTOR or len(fields) < 2:
        return call
    return f"{call} {_PREPOSITIONS.get(call, 'of')} {_kind_of(pid, int(fields[1], 16))}"


def _kind_of(pid: int, fd: int) -> str:
    try:
        link = os.readlink(f"/proc/{pid}/fd/{fd}")  # noqa: PTH115 - it is asked often
    except OSError:
        return "a descriptor"
    if link.startswith("pipe:"):
        return "a pipe"
    if link.startswith("socket:"):
        return "a socket"
    return "a terminal" if link.startswith(("/dev/pts/", "/dev/tty", "/dev/console")) else "a file"


def _function_of(pid: int) -> str | None:
    function = _text(f"/proc/{pid}/wchan")
    if not function or not function.isidentifier():
        return None
    words = (words for known, words in _FUNCTIONS if known in function)
    return next(words, function)


def _usage_of(pid: int) -> _Usage | None:
    """What `stat` says; None for one that is gone or dead."""
    line = _text(f"/proc/{pid}/stat")
    if line is None:
        return None
    # The name in parentheses may hold anything, parentheses and spaces too.
    fields = line.rpartition(")")[2].split()
    state, threads = fields[0], int(fields[17])
    if state in "ZX" and threads <= 1:
        return None
    return _Usage(pid, state, threads, sum(map(int, fields[11:15])), int(fields[21]))


def _text(path: str) -> str | None:
    """A short file of /proc."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except _GRANTED:
        return None
    try:
        return os.read(fd, _BLOCK).decode(errors="replace")
    except OSError:  # it has ended meanwhile, or is not shown to us
        return None
    finally:
        os.close(fd)


def _page_size() -> int:
    return os.sysconf("SC_PAGE_SIZE")
