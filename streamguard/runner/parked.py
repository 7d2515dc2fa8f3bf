"""Whether a command that has said nothing waits for its input: asked when a limit has come, of the kernel.

Command lines that read standard input for as long as it is open hang for ever where nobody writes to it and
nobody closes it: in CI, in a container, under another program. What `/proc` shows of each process in the
command's tree, measured with real ones:

| who | shows |
|---|---|
| codex, also with a prompt in its arguments; Python; `cat` | a thread in `read` of that very file: it waits for it |
| node, and what is made with it or with Bun (opencode, as codex; claude, which gives it up after 3 s) | an epoll set with that file in it: it may |

A thread's call is shown to root and, where the system restricts tracing (Yama), to nobody else; then what
it sleeps in tells less, and it may be so. Where there is no `/proc` nothing is known, and nothing is said.

Looked at by a process of ours, since `/proc` may keep who asks, for a moment at most. Standard library, and
`process.table` in that process.
"""

from __future__ import annotations

import os

from streamguard.runner import aside

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamguard.runner.stdin import Input

# A verdict waits for the answer.
_BOUND = 0.25
_READS, _MAY = b"reads", b"may"
# `read` and `readv`, as each machine numbers them.
_READING = {"x86_64": ("0", "19"), "aarch64": ("63", "65")}
# Where the kernel lets a thread sleep that reads a pipe, a terminal or a socket.
_SLEEPING = ("pipe_read", "n_tty_read", "unix_stream", "sk_wait_data")
_READABLE = 1  # EPOLLIN
_EPOLL = "anon_inode:[eventpoll]"


def told_of(pid: int, given: Input) -> str:
    """What there is to say of the command `pid`, as the end of a line; empty if nothing."""
    if not given.what:
        return ""
    try:
        found = aside.asked(lambda: _look(pid, given.file), _BOUND)
    except OSError:  # there is no process to be had
        return ""
    if found == _READS:
        return f"; it waits for standard input, {given.what}: if it needs none, say --stdin null"
    if found == _MAY:
        return f"; it may be waiting for standard input, {given.what}: if it needs none, try --stdin null"
    return ""


def _look(pid: int, file: tuple[int, int]) -> bytes:
    from streamguard.process.table import read_table

    found = b"-"
    for each in read_table().with_descendants([pid]):
        try:
            one = _of(each, file)
        except OSError:  # it is gone, or not ours to see
            continue
        if one == _READS:
            return one
        found = one or found
    return found


def _of(pid: int, file: tuple[int, int]) -> bytes:
    """What one process shows."""
    at = f"/proc/{pid}"
    reading = _READING.get(os.uname().machine, ())
    is_hidden = False
    for thread in os.listdir(f"{at}/task"):
        try:
            call, *arguments = _content(f"{at}/task/{thread}/syscall").split()
        except (OSError, ValueError):
            is_hidden = True
            continue
        if call in reading and _is_at(f"{at}/fd/{int(arguments[0], 16)}", file):
            return _READS
    if is_hidden and _is_at(f"{at}/fd/0", file):
        for thread in os.listdir(f"{at}/task"):
            if any(word in _content(f"{at}/task/{thread}/wchan") for word in _SLEEPING):
                return _MAY
    return _MAY if any(_is_at(f"{at}/fd/{fd}", file) for fd in _polled(at)) else b""


def _polled(at: str) -> Iterator[str]:
    """The descriptors whose input an epoll set of that process waits for."""
    for fd in os.listdir(f"{at}/fd"):
        if os.readlink(f"{at}/fd/{fd}") != _EPOLL:
            continue
        for line in _content(f"{at}/fdinfo/{fd}").splitlines():
            words = line.split()
            if words[:1] == ["tfd:"] and int(words[3], 16) & _READABLE:
                yield words[1]


def _is_at(path: str, file: tuple[int, int]) -> bool:
    try:
        there = os.stat(path)
    except OSError:
        return False
    return (there.st_dev, there.st_ino) == file


def _content(path: str) -> str:
    with open(path, "rb", buffering=0) as entry:
        return entry.read(1 << 16).decode(errors="replace")
