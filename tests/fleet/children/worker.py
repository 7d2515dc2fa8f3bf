"""Claims sessions from the store at an address until none is left, and says whose keys it had; or counts up a circuit.

    python -m tests.fleet.children.worker claim ADDRESS OWNER
    python -m tests.fleet.children.worker count ADDRESS TIMES
    python -m tests.fleet.children.worker initialise ADDRESS -

It begins when a line comes.
"""

from __future__ import annotations

import sys
import threading
from dataclasses import replace

from streamguard.fleet.addresses import store_at
from streamguard.fleet.store import Beat


def claim_all(store, owner, keys) -> None:
    while claims := store.claim(owner, 1000, 2):
        for claimed in claims:
            keys.append(claimed.key)
            beat = Beat(key=claimed.key, token=claimed.token, owner=owner)
            assert store.beat([beat], 1000) == {claimed.key: "kept"}
            assert store.finish(beat)


def main(what: str, address: str, who: str) -> None:
    sys.stdin.readline()
    with store_at(address) as store:
        if what == "initialise":
            store.initialise()
        elif what == "count":
            for _ in range(int(who)):
                store.circuits.update(
                    "c",
                    lambda circuit, now: (replace(circuit, failures=circuit.failures + 1), now),
                )
        else:
            keys: list[str] = []
            threads = [
                threading.Thread(target=claim_all, args=(store, f"{who}-{n}", keys))
                for n in range(2)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            sys.stdout.write(" ".join(keys))


main(*sys.argv[1:])
