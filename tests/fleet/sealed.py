"""A payload codec, as one encrypts with it what Temporal keeps."""

from __future__ import annotations

import hashlib
import os

from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadCodec


class Sealed(PayloadCodec):
    """How payloads are encrypted before they leave: here by what is good enough for a test, a stream made of hashes."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    async def encode(self, payloads):
        return [self._seal(payload) for payload in payloads]

    async def decode(self, payloads):
        return [self._open(payload) for payload in payloads]

    def _seal(self, payload: Payload) -> Payload:
        nonce = os.urandom(16)
        data = nonce + self._mixed(nonce, payload.SerializeToString())
        return Payload(metadata={"encoding": b"binary/sealed"}, data=data)

    def _open(self, payload: Payload) -> Payload:
        if payload.metadata["encoding"] != b"binary/sealed":
            return payload
        return Payload.FromString(self._mixed(payload.data[:16], payload.data[16:]))

    def _mixed(self, nonce: bytes, data: bytes) -> bytes:
        stream = hashlib.shake_256(self._key + nonce).digest(len(data))
        return bytes(one ^ other for one, other in zip(data, stream, strict=True))
