"""What a CLI does by itself when its API hangs: the table in docs/explanation/real-clients.md.

    python -m tests.real.alone gemini mid 3300

The CLI, where the API hangs (headers, mid, pings), and after how many seconds to give up. It
prints each line and each request with the seconds since the start.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from pathlib import Path

from tests.loopback.script import pings, stall, text
from tests.loopback.server import ModelServer
from tests.process.backends import Backends
from tests.real.clis import CLIS


def main(name: str, where: str, patience: float) -> None:
    backends, began = Backends(), time.monotonic()

    def say(what: object) -> None:
        print(f"{time.monotonic() - began:8.1f} s  {what!s:.150}", flush=True)  # noqa: T201

    def watched(request):
        say(request)
        return not request.offers_tools

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        with ModelServer(aside=watched) as server:
            cli = CLIS[name](server, Path(home), backends.popen)
            hangs = {
                "headers": stall(),
                "mid": stall(after=cli.midway),
                "pings": pings(after=cli.midway, every=5),
            }
            server.script(forever=text("I ", "think.") | hangs[where])
            giving_up = threading.Timer(patience, backends.kill)
            giving_up.start()
            process = cli.start("Begin.")
            for line in process.stdout:
                say(line.decode().strip())
            say(f"it has exited with {process.wait()}")
            giving_up.cancel()
        backends.clear()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
