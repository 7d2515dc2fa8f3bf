"""`streamguard fleet demo`: real workers, a real SIGKILL, and what is told is what was."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter

from streamguard.cli import main
from streamguard.demo.fleet_show import SESSIONS, VICTIM, delivered_in
from streamguard.fleet import store_at
from tests.process.backends import PATIENCE, is_dead


def demo(*words):
    return subprocess.run(
        [sys.executable, "-m", "streamguard", "fleet", "demo", *words],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE * 4,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def test_a_worker_is_killed_and_the_other_goes_on(tmp_path):
    folder = tmp_path / "fleet"
    told = demo("--dir", str(folder))
    assert (told.returncode, told.stderr) == (0, ""), told.stdout
    story = (
        "Three sessions are queued",
        "Worker A is process",
        f"{VICTIM} begins on worker",
        "was silent for 1.5 s: caught",
        "KILLED: worker",
        f"{VICTIM} goes on where it was, after",
        f"{VICTIM} is done",
        "none are missing",
        "$ streamguard fleet list --all",
        "KEY ",
        "$ streamguard fleet log",
        "(limit idle=1.5)",
    )
    places = [told.stdout.find(part) for part in story]
    assert -1 not in places, told.stdout
    assert places == sorted(places)
    assert re.search(rf"{VICTIM} goes on where it was, .* s after the kill\n", told.stdout)

    # What was said of the kill is so: that worker never came to its own end, the other one did.
    killed = re.search(r"KILLED: worker (\w), process (\d+), by SIGKILL", told.stdout)
    other = "AB".replace(killed[1], "")
    assert "has stopped" not in (folder / f"worker-{killed[1]}.log").read_text()
    assert "has stopped" in (folder / f"worker-{other}.log").read_text()

    delivered = delivered_in(folder)
    came = Counter((key, step) for key, step, _, _ in delivered)
    assert came.keys() == {(k, step) for k, n in SESSIONS.items() for step in range(1, n + 1)}
    said = re.search(r"and (\w+) came twice", told.stdout)[1]
    assert said == str(sum(n > 1 for n in came.values()) or "none")
    of_victim = [worker for key, _, worker, _ in delivered if key == VICTIM]
    assert of_victim[0] == int(killed[2])
    assert of_victim == sorted(of_victim, key=of_victim.index)  # no two at a time
    assert len(set(of_victim)) == 2
    assert all(map(is_dead, {agent for *_, agent in delivered} | set(of_victim)))
    with store_at(folder / "fleet.db") as store:
        assert {row.status for row in store.live(all=True)} == {"done"}


def test_it_touches_no_fleet_that_is_there(tmp_path, capsys):
    (tmp_path / "fleet.db").touch()
    assert main(["fleet", "demo", "--dir", str(tmp_path)]) == 2
    assert "a fleet is there already" in capsys.readouterr().err
    assert main(["fleet", "demo", "--dir", str(tmp_path / "fleet.db")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
