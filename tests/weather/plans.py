"""What happens to session number N of a seed."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass, field
from typing import Any, Final

IDLE: Final = 0.8
# What ends an attempt before its time.
TROUBLES: Final = {
    "drop": 4,  # the stream ends in the midst of the turn
    "die": 4,  # the process is killed
    "fail": 2,  # it exits with an error
    "stall": 6,  # nothing comes any more
    "ping": 3,  # only keep-alives come
    "stop": 2,  # it is stopped, as by SIGSTOP
    "error": 1,  # it ends its turn with an error, in a message
}
# `streamguard run` tries again after a limit; a command that ends by itself has ended.
HANGS: Final = {"stall": 6, "ping": 3, "stop": 2}
CONSUMERS: Final = {"stays": 12, "breaks": 1, "cancels": 2, "slow": 2}
CLOSINGS: Final = {"": 8, "slow": 2, "hangs": 1, "raises": 1}


@dataclass(frozen=True)
class Attempt:
    """Says messages up to `upto`, then meets `trouble`; "" for none: it says all, and its turn ends well."""

    upto: int
    trouble: str = ""
    replay: int = 0  # how many messages it says again, of those that came before
    tree: bool = False  # whether it starts a process of its own
    deaf: bool = False  # whether its stream lets itself be cancelled
    closing: str = ""  # what its disconnect does


@dataclass(frozen=True)
class Plan:
    name: str
    seed: int
    messages: int
    attempts: tuple[Attempt, ...]
    consumer: str = "stays"
    leaves_at: int = 0
    tools: bool = False  # work in flight, whose results come in another order
    gap: float = 0.0  # seconds between two messages
    blocks: tuple[float, ...] = ()  # for how long the loop is blocked, at some of its messages
    full: bool = False  # its evidence goes to a disk that is full
    lost: bool = False  # the breaker's store fails
    command: bool = False  # by `streamguard run`
    extra: dict[str, Any] = field(default_factory=dict)

    def of_attempt(self, number: int) -> Attempt:
        return self.attempts[min(number, len(self.attempts)) - 1]

    def as_data(self) -> dict[str, Any]:
        return asdict(self)


def plan(seed: str, loop: str, number: int) -> Plan:
    draw = random.Random(f"{seed}:{loop}:{number}")
    messages = draw.randint(3, 30)
    command = draw.random() < 0.08
    troubles = draw.choices((0, 1, 2), (3, 5, 3))[0]
    attempts = []
    upto = 0
    for _ in range(troubles):
        upto = draw.randint(upto, messages - 1)
        trouble = _of(draw, HANGS if command else TROUBLES)
        attempts.append(
            Attempt(
                upto=upto,
                trouble=trouble,
                replay=0 if command else draw.choice((0, 0, 2, 5)),
                # What loses its parent before anybody has looked is not found, as the docs say.
                tree=trouble in {"stall", "ping", "stop"} and draw.random() < 0.5,
                deaf=draw.random() < 0.04,
                closing=_of(draw, CLOSINGS),
            )
        )
    attempts.append(Attempt(messages, replay=0 if command else draw.choice((0, 3))))
    consumer = "stays" if command else _of(draw, CONSUMERS)
    return Plan(
        name=f"{seed}:{loop}:{number}",
        seed=draw.randrange(1 << 30),
        messages=messages,
        attempts=tuple(attempts),
        consumer=consumer,
        leaves_at=draw.randint(1, messages),
        tools=draw.random() < 0.3,
        gap=draw.choice((0.0, 0.0, 0.01, IDLE / 4)),
        blocks=tuple(
            draw.uniform(0.1, 1.5) for _ in range(draw.choices((0, 1, 2), (30, 2, 1))[0])
        ),
        full=draw.random() < 0.05,
        lost=draw.random() < 0.1,
        command=command,
    )


def _of(draw: random.Random, weights: dict[str, int]) -> str:
    return draw.choices(list(weights), list(weights.values()))[0]
