"""What an application tells its helper: short messages, some with a process's descriptor.

One message is one send, and is taken whole or not at all: a socket of the local machine does not
split what is this short. Knows the form of messages, nothing of who sends them and why.
"""

from __future__ import annotations

import array
import os
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from streamguard.process.members import TreeFacts

HOST: Final = b"H"  # the application, and whom else no signal may hit
ADOPT: Final = b"A"
RENEW: Final = b"N"  # deadlines that are others now
RELEASE: Final = b"R"
GOODBYE: Final = b"G"

_HEAD: Final = struct.Struct("=cI")
_SPARED: Final = struct.Struct("=qd")
_SERIAL: Final = struct.Struct("=Q")
_ADOPTED: Final = struct.Struct("=Qddqdq")
_RENEWAL: Final = struct.Struct("=Qd")
_NO_SESSION: Final = -1
# A mark of ours has 32 letters. One that is longer than this is none, and would split a message.
_LONGEST_MARK: Final = 4096
# Of as many, a message is as short.
_MOST_RENEWALS: Final = 256

_FD_SIZE: Final = array.array("i").itemsize
_NO_SIGPIPE: Final[int] = getattr(socket, "MSG_NOSIGNAL", 0)


class WireMessage(NamedTuple):
    """One message as it arrived. The descriptor is the receiver's to close."""

    kind: bytes
    body: bytes
    fd: int | None


class Adopted(NamedTuple):
    """What an `ADOPT` says. `until`: on the clock of `boottime`; infinite without a deadline."""

    serial: int
    kill_grace: float
    until: float
    facts: TreeFacts


def send(fd: int, kind: bytes, body: bytes = b"", rider: int | None = None) -> None:
    """Send one message; BlockingIOError if there is no room for it just now.

    Any other OSError: nobody receives any more, or the rider could not go with it.
    """
    riders = [] if rider is None else [array.array("i", [rider])]
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds) for fds in riders]
    # Of a bare number, so that at the interpreter's end no socket object is left unclosed.
    end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fd)
    try:
        message = _HEAD.pack(kind, len(body)) + body
        end.sendmsg([message], ancillary, socket.MSG_DONTWAIT | _NO_SIGPIPE)
    finally:
        end.detach()


def receive(end: socket.socket) -> WireMessage | None:
    """Block for the next message; None when no more can come."""
    head, riders, _, _ = end.recvmsg(_HEAD.size, socket.CMSG_SPACE(_FD_SIZE), socket.MSG_WAITALL)
    fds = array.array("i")
    for _, kind, data in riders:
        if kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % _FD_SIZE])
    fd = fds[0] if fds else None
    if len(head) == _HEAD.size:
        kind, size = _HEAD.unpack(head)
        body = end.recv(size, socket.MSG_WAITALL) if size else b""
        if len(body) == size:
            return WireMessage(kind, body, fd)
    if fd is not None:
        with suppress(OSError):
            os.close(fd)
    return None


def pack_host(spared: Mapping[int, float]) -> bytes:
    """The body of a `HOST`: pids and start times."""
    return b"".join(_SPARED.pack(*one) for one in spared.items())


def unpack_host(body: bytes) -> dict[int, float]:
    """The same again."""
    return dict(_SPARED.iter_unpack(body))


def pack_serial(serial: int) -> bytes:
    """The body of a `RELEASE`."""
    return _SERIAL.pack(serial)


def unpack_serial(body: bytes) -> int:
    """The same again."""
    return int(_SERIAL.unpack(body)[0])


def pack_renewals(untils: Mapping[int, float]) -> Iterator[bytes]:
    """The bodies of as many `RENEW`s as it takes: deadlines by serial."""
    records = [_RENEWAL.pack(*one) for one in untils.items()]
    for first in range(0, len(records), _MOST_RENEWALS):
        yield b"".join(records[first : first + _MOST_RENEWALS])


def unpack_renewals(body: bytes) -> dict[int, float]:
    """One of them again."""
    return dict(_RENEWAL.iter_unpack(body))


def pack_adopted(adopted: Adopted) -> bytes:
    """The body of an `ADOPT`."""
    pid, started, session, mark = adopted.facts
    fixed = _ADOPTED.pack(
        adopted.serial,
        adopted.kill_grace,
        adopted.until,
        pid,
        started,
        _NO_SESSION if session is None else session,
    )
    encoded = b"" if mark is None else os.fsencode(mark)
    return fixed + (encoded if len(encoded) <= _LONGEST_MARK else b"")


def unpack_adopted(body: bytes) -> Adopted:
    """The same again."""
    serial, kill_grace, until, pid, started, session = _ADOPTED.unpack_from(body)
    mark = os.fsdecode(body[_ADOPTED.size :]) or None
    facts = TreeFacts(pid, started, None if session == _NO_SESSION else session, mark)
    return Adopted(serial, kill_grace, until, facts)
