"""The command of a random run: `child.py TOKEN JOURNAL WRITER STEPS`, STEPS a list as JSON.

    ["out", n]     n lines to standard output, each with its writer and number     ["err", n]
    ["raw", n]     n bytes without a newline       ["say", text]      that line, as an agent writes it
    ["log", text]  that line to the transcript, which lies beside the journal
    ["sleep", ms]  ["hang"]    ["stop"]            by SIGSTOP: until somebody sends CONT
    ["fork", name, steps]      a child that follows those, and then ends; nobody waits for it
    ["daemon", name, steps]    the same in a session of its own, its parent dead
    ["setsid"]     ["close"]   its standard output ["deaf"]           to TERM, INT and HUP
    ["tty"]        spoil the terminal, if there is one
    ["bare", steps]            this program once more, with an empty environment
    ["exit", code] ["die", signal]

The journal has a line for each that is begun and done: what was written for certain, and what may
have been. `python -I -S`: only what is built in is imported.
"""

import os
import signal
import sys
from json import dumps, loads

_, TOKEN, JOURNAL, WRITER, STEPS = sys.argv

LINE = 500


class Child:
    def __init__(self, name):
        self.name = name
        self.lines = {1: 0, 2: 0}
        # High up: where standard output is closed, the next descriptor would be taken for it.
        opened = os.open(JOURNAL, os.O_WRONLY | os.O_APPEND)
        self.journal = os.dup2(opened, 60, inheritable=False)
        os.close(opened)

    def note(self, *what):
        # One write; its own file, so that nothing else makes it wait or fail.
        os.write(self.journal, (dumps([self.name, os.getpid(), *what]) + "\n").encode())

    def follow(self, steps):
        for step in steps:
            self.note("begins", *step[:2])
            getattr(self, "do_" + step[0])(*step[1:])
            self.note("did", *step[:2])

    def do_out(self, count):
        self._lines(1, count)

    def do_err(self, count):
        self._lines(2, count)

    def _lines(self, fd, count):
        for _ in range(count):
            head = f"{'oe'[fd - 1]} {self.name} {self.lines[fd]} "
            self.lines[fd] += 1
            self._write(fd, (head + "x" * (LINE - 1 - len(head)) + "\n").encode())

    def do_raw(self, count):
        self._write(1, b"r" * count)

    def do_say(self, text):
        self._write(1, (text + "\n").encode())

    def _write(self, fd, data):
        try:
            while data:
                data = data[os.write(fd, data) :]
        except OSError as error:
            self.note("failed", fd, error.errno)
            self.do_exit(74)

    def do_log(self, text):
        path = JOURNAL.rpartition("/")[0] + "/transcript"
        try:
            fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o600)
            os.write(fd, (text + "\n").encode())
            os.close(fd)
        except OSError:
            pass  # it is none, or may not grow

    def do_sleep(self, milliseconds):
        signal.sigtimedwait((), milliseconds / 1000)

    def do_hang(self):
        while True:
            signal.pause()

    def do_stop(self):
        os.kill(os.getpid(), signal.SIGSTOP)

    def do_fork(self, name, steps):
        if os.fork() == 0:
            begin(name, steps)

    def do_daemon(self, name, steps):
        pid = os.fork()
        if pid == 0:
            os.setsid()
            if os.fork() == 0:
                begin(name, steps)
            os._exit(0)
        os.waitpid(pid, 0)

    def do_setsid(self):
        if os.getpgrp() != os.getpid():  # else it leads one already
            os.setsid()

    def do_close(self):
        os.closerange(1, 2)  # whether it is open or not

    def do_deaf(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)

    def do_tty(self):
        import termios

        try:
            fd = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
            attributes = termios.tcgetattr(fd)
            attributes[3] &= ~(termios.ECHO | termios.ICANON)
            termios.tcsetattr(fd, termios.TCSANOW, attributes)
            os.close(fd)
        except (OSError, termios.error):
            pass

    def do_bare(self, steps):
        words = [*sys.orig_argv[:-2], self.name, dumps(steps)]
        os.execve(sys.executable, words, {})

    def do_exit(self, code):
        self.note("ends", code)
        os._exit(code)

    def do_die(self, number):
        self.note("ends", -number)
        signal.signal(number, signal.SIG_DFL) if number not in (9, 19) else None
        os.kill(os.getpid(), number)


def begin(name, steps):
    child = Child(name)
    child.note("is here")
    child.follow(steps)
    child.do_exit(0)


signal.signal(signal.SIGPIPE, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.SIG_DFL)
begin(WRITER, loads(STEPS))
