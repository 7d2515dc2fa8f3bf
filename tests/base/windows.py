"""Takes from this process what Python has not got on Windows: see `test_windows`."""

from __future__ import annotations

# What all these import is there in another way on Windows, so it is imported while it can be.
import argparse  # noqa: F401
import asyncio
import logging  # noqa: F401
import os
import select
import selectors
import signal
import subprocess  # noqa: F401
import sys
import tempfile  # noqa: F401

import anyio

MODULES = "fcntl grp posix pty pwd resource syslog termios tty"
OS = """
    chown chroot ctermid eventfd fchdir fchown fork forkpty getegid geteuid getgid getgroups getloadavg getpgid getpgrp
    getpriority getsid getuid killpg lchown lockf major makedev memfd_create mkfifo mknod nice openpty pidfd_open pipe2
    posix_fadvise posix_openpt posix_spawn posix_spawnp pread preadv pwrite pwritev register_at_fork sched_getaffinity
    sched_yield sendfile seteuid setns setpgid setsid setuid splice statvfs sync timerfd_create uname unshare wait
    wait3 wait4 waitid O_CLOEXEC O_DIRECTORY O_NOCTTY O_NOFOLLOW O_NONBLOCK O_PATH O_SYNC O_TMPFILE P_PID P_PIDFD
    WEXITED WIFEXITED WIFSIGNALED WNOHANG WNOWAIT WTERMSIG
"""
SIGNALS = """
    SIGALRM SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGTSTP SIGTTIN SIGTTOU SIGUSR1 SIGUSR2 SIGWINCH
    alarm pause pthread_kill pthread_sigmask setitimer siginterrupt sigwait
"""


def pretend() -> None:
    """From now on."""
    anyio.run(anyio.sleep, 0)  # imports what it runs with
    asyncio.set_event_loop_policy(_Policy())
    for name in MODULES.split():
        sys.modules[name] = None
    for module, names in ((os, OS), (signal, SIGNALS)):
        for name in names.split():
            if hasattr(module, name):
                delattr(module, name)
    for name in dir(select):
        if name.upper().startswith(("POLL", "EPOLL", "PIPE_BUF")):
            delattr(select, name)
    sys.platform, os.name = "win32", "nt"


class _Policy(asyncio.DefaultEventLoopPolicy):
    """A loop that polls as one does there."""

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.SelectorEventLoop(selectors.SelectSelector())
