"""How a command ends whose reader leaves, or whom Ctrl-C reaches: as every Unix command does, without a traceback."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

from streamguard.cli import EXIT_FAILED


def ended(work: Callable[[], int]) -> int:
    """The exit code of `work`."""
    try:
        code = work()
        sys.stdout.flush()
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
        raise
    return code
