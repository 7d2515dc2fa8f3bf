"""A command that has its work done elsewhere: in a container, or on another machine.

To end such a client ends nothing there. What a container's client passes on of the environment is found by
its mark, if it is a process of this machine; on another machine nothing is. Knows command lines by their
words; imports nothing but the mark's name: the command's start pays for it.
"""

from __future__ import annotations

from streamguard._base.variables import MARK

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Sequence

_HAVE_CONTAINERS = ("docker", "podman", "nerdctl", "docker-compose", "podman-compose")
# What they may do with a command of ours, and how it is seen and ended by hand.
_IN_A_CONTAINER = {
    "exec": "top CONTAINER shows it, {0} restart CONTAINER ends it",
    "run": "ps shows it, {0} kill CONTAINER ends it",
}
_BEFORE = ("container", "compose")
_HAVE_MACHINES = ("lxc", "incus")
_HAVE_PODS = ("kubectl", "oc")
_IN_A_POD = ("exec", "run", "debug", "attach")
# Options before the verb whose value is a word of its own.
_WITH_VALUE = (
    *("-H", "--host", "-c", "--context", "--config", "-l", "--log-level", "--url", "--connection"),
    *("-n", "--namespace", "--kubeconfig", "-s", "--server", "--user"),
    *("-f", "--file", "-p", "--project-name", "--profile", "--env-file"),
)
_WITH_VALUE_SUDO = ("-u", "-g", "-h", "-C", "--user", "--group")


class _Client:
    def __init__(self, advice: str | None, unseen: str) -> None:
        self.advice = advice
        self.unseen = unseen


def advice(command: Sequence[str]) -> str | None:
    """What to do so that its work is ended with it, if anything; said at the start."""
    client = _client(command)
    return None if client is None else client.advice


def unseen(command: Sequence[str]) -> str | None:
    """What to say where it was ended, and nothing of its work was met; None if it does that itself."""
    client = _client(command)
    return None if client is None else client.unseen


def _client(command: Sequence[str]) -> _Client | None:
    words = list(command)
    if words and _name(words[0]) == "sudo":
        words = _from_verb(words, _WITH_VALUE_SUDO)
    name = _name(words[0]) if words else ""
    if name == "ssh":
        return _of_ssh(words)
    rest = _from_verb(words)
    said = [name]
    while rest and rest[0] in _BEFORE:
        said.append(rest[0])
        rest = _from_verb(rest)
    verb = rest[0] if rest else ""
    said.append(verb)
    if name in _HAVE_CONTAINERS and verb in _IN_A_CONTAINER:
        return _of_container(
            " ".join(said), name, verb, is_marked=any(MARK in word for word in rest)
        )
    if name in _HAVE_PODS and verb in _IN_A_POD:
        there = f"{name} exec POD -- streamguard run ..."
        return _far(f"{name} {verb}", there, f"{name} exec POD -- ps shows it")
    if (
        name in _HAVE_MACHINES and verb == "exec"
    ):  # their --env wants a value, which nobody knows yet
        there = f"{name} exec NAME -- streamguard run ..."
        return _far(f"{name} exec", there, f"{name} exec NAME -- ps shows it", "in a container")
    return None


def _of_container(said: str, name: str, verb: str, *, is_marked: bool) -> _Client:
    by_hand = f"{name} {_IN_A_CONTAINER[verb].format(name)}"
    inside = f"'{said}' runs its command in a container"
    if is_marked:
        return _Client(None, f"{inside}, where none of it was seen: it may live on ({by_hand})")
    remedy = f"-e {MARK} behind '{verb}'"
    return _Client(
        f"{inside}, which is not ended with '{name}': add {remedy}, and it is",
        f"{inside}, where it may live on ({by_hand}); with {remedy} it is ended, too",
    )


def _of_ssh(words: Sequence[str]) -> _Client | None:
    is_forwarding = any(w[:1] == "-" and w[1:].isalpha() and "N" in w for w in words)  # -N, -fN
    if is_forwarding:
        return None
    return _far("ssh", "ssh HOST streamguard run ...", "ssh HOST ps shows it")


def _far(said: str, there: str, by_hand: str, where: str = "on another machine") -> _Client:
    away = f"'{said}' runs its command {where}"
    return _Client(
        f"{away}, which no limit here reaches: run streamguard there ({there})",
        f"{away}, where it may live on ({by_hand}); run streamguard there ({there})",
    )


def _name(word: str) -> str:
    return word.rpartition("/")[2]


def _from_verb(words: Sequence[str], with_value: Sequence[str] = _WITH_VALUE) -> list[str]:
    """The words from the first one behind words[0] that is neither an option nor its value."""
    left = list(words[1:])
    while left and left[0].startswith("-"):
        left = left[2 if left[0] in with_value else 1 :]
    return left
