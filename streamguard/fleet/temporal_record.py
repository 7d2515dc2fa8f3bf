"""`SessionRecord`: what Temporal keeps of a session between its workers, as details of its activity's heartbeats.

Temporal counts attempts of its own: also those of a drain, and those that no worker began. Ours are counted here, as
a store counts them: which attempts counted, how many in a row came to no progress, and a token that grows with each worker,
over releases, too. A record that is not `is_over` when the next worker takes it was left by one that was lost. It
holds the prompt and the session's token; Temporal's payload codec encrypts it with all other payloads. Values only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from streamguard.errors import ConfigError
from streamguard.fleet.store import JSON, Beat, Checkpoint, Claimed

_VERSION: Final = 1


@dataclass(frozen=True, kw_only=True)
class SessionRecord:
    """A session, as its last worker has left it. The fields are those of `Claimed`; `is_over`: it was given back."""

    token: int = 0
    attempt: int = 0
    fruitless: int = 0
    progressed: bool = False
    is_over: bool = True
    checkpoint: Checkpoint = field(default_factory=Checkpoint)

    def taken(self) -> SessionRecord:
        """As the next worker begins with it."""
        return replace(
            self,
            token=self.token + 1,
            attempt=self.attempt + 1,
            fruitless=self.fruitless if self.is_over else self._fruitless(counts=True),
            progressed=False,
            is_over=False,
        )

    def beaten(self, beat: Beat) -> SessionRecord:
        """With what a beat says."""
        return replace(
            self,
            progressed=self.progressed or beat.progressed,
            checkpoint=beat.checkpoint or self.checkpoint,
        )

    def given_back(self, *, counts: bool = True) -> SessionRecord:
        """As the next worker finds it. Not `counts`: as if it had not been taken."""
        return replace(
            self,
            attempt=self.attempt if counts else self.attempt - 1,
            fruitless=self._fruitless(counts=counts),
            progressed=False,
            is_over=True,
        )

    def released(self) -> SessionRecord:
        """As a person lets it go on."""
        return replace(self, fruitless=0, progressed=False, is_over=True)

    def _fruitless(self, *, counts: bool) -> int:
        return 0 if self.progressed else self.fruitless + counts

    def claimed(self, key: str, owner: str, spec: Mapping[str, JSON]) -> Claimed:
        """What its worker holds."""
        return Claimed(
            key=key,
            token=self.token,
            owner=owner,
            attempt=self.attempt,
            fruitless=self.fruitless,
            spec=spec,
            checkpoint=self.checkpoint,
        )

    def as_json(self) -> dict[str, Any]:
        """What `from_json` takes."""
        kept = self.checkpoint
        return {
            "version": _VERSION,
            "token": self.token,
            "attempt": self.attempt,
            "fruitless": self.fruitless,
            "progressed": self.progressed,
            "over": self.is_over,
            "delivered": kept.delivered,
            "point": kept.point,
            "state": kept.state,
        }

    @classmethod
    def from_json(cls, said: Any) -> SessionRecord:
        """What `as_json` gave; None: of a session that nobody has had. ConfigError for anything else."""
        if said is None:
            return cls()
        try:
            if said["version"] != _VERSION:
                raise ConfigError(
                    f"a session's record is of version {said['version']!r}, and this streamguard knows {_VERSION}: "
                    "upgrade the workers that are older"
                )
            return cls(
                token=said["token"],
                attempt=said["attempt"],
                fruitless=said["fruitless"],
                progressed=said["progressed"],
                is_over=said["over"],
                checkpoint=Checkpoint(
                    point=said["point"], state=said["state"], delivered=said["delivered"]
                ),
            )
        except (KeyError, TypeError) as error:
            raise ConfigError(
                f"a session's record cannot be read ({type(error).__name__}): something else than streamguard has sent "
                "its activity's last heartbeat"
            ) from None
