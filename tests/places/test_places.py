"""The files in docs/how-to/places are as good as they look: each is read, or run, as it stands."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process.backends import PATIENCE, Backends, comes_true
from tests.runner.commands import Commands

PLACES = Path(__file__).parents[2] / "docs" / "how-to" / "places"
INDEX = PLACES / "index.md"
# An agent that says that it works, and hangs when it is asked to.
AGENT = """\
#!/bin/sh
echo '{"type": "system", "subtype": "init", "session_id": "s"}'
echo "$@" >"$TOLD"
case ${DOES:-} in hang) sleep 600 & wait ;; fail) exit 3 ;; *) while [ -e "$TOLD" ]; do sleep 0.1; done ;; esac
"""
# Where the paths of that other machine are on this one, in the folder of the test.
HERE = {
    "/usr/local/bin/": "bin/",
    "/var/lib/agent": "",
    "/run/agent/": "",
    "/tmp/": "",
    "/dev/termination-log": "log",
}


def file_in(page, named):
    """The block of that page whose first line names it."""
    text = (PLACES / page).read_text("utf-8")
    blocks = re.findall(r"^```\w+\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    (found,) = (each for each in blocks if named in each.partition("\n")[0] + each.split("\n")[1])
    return found


class Place:
    """A machine of its own, as far as a PATH and a folder make one."""

    def __init__(self, folder, commands):
        self.folder = folder
        self.commands = commands
        self.told = folder / "told"
        home = folder / "bin"
        home.mkdir()
        ours = f'#!/bin/sh\nexec "{sys.executable}" -m streamguard "$@"\n'
        for name, text in (("streamguard", ours), ("claude", AGENT), ("agent", AGENT)):
            (home / name).write_text(text)
            (home / name).chmod(0o755)
        self.environment = {
            **os.environ,
            "PATH": f"{home}:{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(sys.path),
            "HOME": str(folder),
            "TOLD": str(self.told),
        }

    def here(self, text):
        """With the paths of that other machine as they are on this one."""
        return re.sub("|".join(HERE), lambda found: f"{self.folder}/{HERE[found[0]]}", text)

    def start(self, words, **more):
        return self.commands.start(*words, env={**self.environment, **more}, cwd=self.folder)

    def ends(self, process):
        """What has come of it, once it has nothing left to work for."""
        assert comes_true(self.told.exists)
        self.told.unlink()
        return self.commands.wait(process)


@pytest.fixture
def place(tmp_path):
    backends = Backends()
    yield Place(tmp_path, Commands(backends, tmp_path))
    backends.clear()


# -- systemd ---------------------------------------------------------------------------------------


def unit():
    return file_in("systemd.md", "agent.service")


def settings():
    return dict(re.findall(r"^(\w+)=(.*)$", unit(), re.MULTILINE))


def test_systemd_takes_the_unit(place):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze here")
    (place.folder / "agent.service").write_text(place.here(unit()))
    words = ["systemd-analyze", "verify", "--recursive-errors=no", "agent.service"]
    done = subprocess.run(
        words, cwd=place.folder, capture_output=True, text=True, check=False, timeout=PATIENCE * 2
    )
    if (
        "Unknown lvalue" not in done.stderr
        and "agent.service" not in done.stderr
        and done.returncode
    ):
        pytest.skip(f"no unit can be verified here: {done.stderr.strip()[-200:]}")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("does", ["", "fail"])
def test_the_units_command_tells_systemd_what_it_waits_for(place, does):
    """Its words, as systemd would split them, with the variables that systemd would set."""
    told = settings()
    assert (told["Type"], told["WatchdogSec"]) == ("notify", "2min")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(f"{place.folder}/notify")
        systemd.settimeout(PATIENCE)
        process = place.start(
            shlex.split(place.here(told["ExecStart"])),
            NOTIFY_SOCKET=f"{place.folder}/notify",
            WATCHDOG_USEC=str(120_000_000),
            DOES=does,
        )
        assert systemd.recv(4096) == b"READY=1"
        assert systemd.recv(4096) == b"WATCHDOG=1"
        done = place.ends(process)
        while not (last := systemd.recv(4096)).startswith(b"STOPPING=1"):
            assert last.startswith(b"STATUS=")
    assert done.code == (3 if does else 0)
    assert (place.folder / "evidence").is_dir()


def test_the_units_codes_are_those_of_run(place):
    """A command that cannot be run is not tried again; a limit is."""
    words = shlex.split(place.here(settings()["ExecStart"]))
    words = [*words[: words.index("--")], "--", "no_such_command"]
    done = place.commands.wait(place.start(words))
    assert str(done.code) in settings()["RestartPreventExitStatus"].split()
    assert "124" not in settings()["RestartPreventExitStatus"]


# -- Kubernetes ------------------------------------------------------------------------------------


def container():
    yaml = pytest.importorskip("ruamel.yaml")
    text = file_in("kubernetes.md", "agent-job.yaml")
    job = yaml.YAML(typ="safe").load(io.StringIO(text))
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    pod = job["spec"]["template"]["spec"]
    (one,) = pod["containers"]
    volumes = {volume["name"] for volume in pod["volumes"]}
    assert {mount["name"] for mount in one["volumeMounts"]} == volumes
    assert all(isinstance(word, str) for word in (*one["command"], *one["args"]))
    return job["spec"], one


def test_the_manifests_probe_says_what_is_so(place):
    """Alive, then old because nobody renews it, then over."""
    _, one = container()
    words = [place.here(word) for word in (*one["command"], *one["args"])]
    probes = [
        [place.here(word) for word in one["livenessProbe"]["exec"]["command"]],
        shell_probe(),
    ]
    probes[1] = ["sh", "-c", place.here(probes[1])]
    alive = place.folder / "alive"
    process = place.start(words)
    assert comes_true(alive.exists)
    assert [probed(place, probe) for probe in probes] == [0, 0]
    os.kill(process.pid, signal.SIGSTOP)
    os.utime(alive, (1, 1))
    assert [probed(place, probe) for probe in probes] == [1, 1]
    os.kill(process.pid, signal.SIGCONT)
    assert place.ends(process).code == 0
    assert [code != 0 for code in (probed(place, probe) for probe in probes)] == [True, True]
    assert json.loads((place.folder / "log").read_text())["exit_code"] == 0


def shell_probe():
    text = (PLACES / "kubernetes.md").read_text("utf-8")
    (line,) = re.findall(r"`sh -c '(test .*?)'`", text)
    return line


def probed(place, words):
    done = place.commands.wait(place.start(words))
    return done.code


def test_the_manifests_times_go_together():
    spec, one = container()
    probe = one["livenessProbe"]
    grace = spec["template"]["spec"]["terminationGracePeriodSeconds"]
    kill_after = int(one["args"][one["args"].index("--kill-after") + 1])
    assert grace >= kill_after + 15
    assert probe["timeoutSeconds"] < probe["periodSeconds"]
    (rule,) = spec["podFailurePolicy"]["rules"]
    assert rule["onExitCodes"]["values"] == [125, 126, 127]


# -- Docker ----------------------------------------------------------------------------------------


def dockerfile():
    """Its instructions, the last of each kind."""
    return dict(re.findall(r"^([A-Z]+) (.*)$", file_in("docker.md", "Dockerfile"), re.MULTILINE))


def test_the_images_entry_point_and_its_healthcheck(place):
    told = dockerfile()
    entry = json.loads(place.here(told["ENTRYPOINT"]))
    options, _, check = told["HEALTHCHECK"].partition(" CMD ")
    assert set(re.findall(r"--(\w+)=", options)) == {"interval", "timeout", "retries"}
    process = place.start([*entry, *json.loads(told["CMD"])])
    assert comes_true((place.folder / "alive").exists)
    check = json.loads(place.here(check))
    assert probed(place, check) == 0
    assert comes_true(place.told.exists)
    assert place.told.read_text() == "Work through the queue\n"
    assert place.ends(process).code == 0
    assert probed(place, check) == 1


def test_the_compose_file_runs_what_the_image_does():
    yaml = pytest.importorskip("ruamel.yaml")
    text = file_in("docker.md", "compose.yaml")
    ((_, service),) = yaml.YAML(typ="safe").load(io.StringIO(text))["services"].items()
    assert service["command"] == json.loads(dockerfile()["CMD"])
    assert service["restart"].startswith("on-failure")


# -- tmux ------------------------------------------------------------------------------------------


@pytest.fixture
def tmux(place):
    """A server of its own, whose script was given a name."""
    if shutil.which("tmux") is None:
        pytest.skip("no tmux: .ci/tools installs it")
    script = place.folder / "agent-in-tmux"
    script.write_text(file_in("tmux.md", "#!/bin/sh"))
    script.chmod(0o755)
    place.environment |= {"TMUX_TMPDIR": str(place.folder), "TERM": "xterm", "SHELL": "/bin/sh"}
    place.environment.pop("TMUX", None)
    place.environment.pop("XDG_STATE_HOME", None)

    def say(*words):
        return place.commands.wait(place.start(["tmux", *words])).out.decode()

    yield say
    say("kill-server")


def test_the_session_stays_with_its_status(place, tmux):
    place.environment["DOES"] = "fail"
    done = place.commands.wait(place.start(["./agent-in-tmux", "issue-7", "claude", "Fix it"]))
    assert (done.code, done.out) == (0, b"tmux attach -t issue-7\n")
    asked = ["display-message", "-p", "-t", "issue-7", "#{pane_dead}"]
    assert comes_true(
        lambda: tmux(*asked) == "1\n"
    )  # its status is tmux's to say, and not always there
    assert place.told.read_text() == "Fix it\n"
    status = json.loads((place.folder / ".local/state/agents/issue-7.json").read_text())
    assert status["exit_code"] == 3


def test_to_close_the_session_ends_all_of_it(place, tmux):
    place.environment["DOES"] = "hang"
    place.commands.wait(place.start(["./agent-in-tmux", "issue-7", "claude", "Fix it"]))
    assert comes_true(place.told.exists)
    tmux("kill-session", "-t", "issue-7")
    assert place.commands.all_gone()


# -- all of them -----------------------------------------------------------------------------------


def test_every_place_is_in_the_index():
    page = INDEX.read_text("utf-8")
    assert {path.name for path in PLACES.glob("*.md")} - {INDEX.name} == set(
        re.findall(r"\]\(([\w-]+\.md)\)", page)
    )


@pytest.mark.parametrize("page", sorted(PLACES.glob("*.md")), ids=lambda page: page.stem)
def test_what_a_page_points_to_is_there(page):
    for target, anchor in re.findall(r"\]\(([^)#:]+)(?:#([^)]+))?\)", page.read_text("utf-8")):
        file = page.parent / target
        assert file.is_file(), target
        headings = re.findall(r"^#+ (.+)$", file.read_text("utf-8"), re.MULTILINE)
        anchors = {re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in headings}
        assert not anchor or anchor in anchors, anchor
