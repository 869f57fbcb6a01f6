"""What `latest/<version>` and `serving/<number>` hold: a manifest, and who says so.

    {"digest": ..., "key": "manifests/...", "signature": ..., "signer": ...}

The signature is optional. It covers the pointer's own name, so that a promotion cannot be copied
over an announcement, and the manifest's digest, and with it everything else: tensors and frames are
named by their digests, and a shortcut must lead to the state id of a manifest.
"""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import Field, ValidationError

from tradewind.types.errors import RefusedWeights
from tradewind.types.record import Record
from tradewind.weights.bucket import Objects, TooLarge
from tradewind.weights.manifest import ManifestRef

MAX_POINTER = 4096
"""Bytes."""

PublicKey = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""Ed25519, as hexadecimal digits."""


class Pointer(Record):
    """Content of a pointer object.

    Example: `Pointer(key="manifests/00000003-9f….json.zst", digest="77…")`.
    """

    key: str
    digest: str = Field(pattern=r"^[0-9a-f]{64}$")
    """BLAKE3 of the manifest."""
    signer: PublicKey | None = None
    signature: str | None = Field(default=None, pattern=r"^[0-9a-f]{128}$")
    """Ed25519 over `message`, as hexadecimal digits."""

    @property
    def ref(self) -> ManifestRef:
        """The manifest that it names."""
        return ManifestRef(key=self.key, digest=self.digest)

    def to_bytes(self) -> bytes:
        """JSON, sorted and without spaces; no signer or signature where there is none."""
        fields = self.model_dump(mode="json", exclude_none=True)
        return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def parse(cls, data: bytes) -> Pointer:
        """Raises RefusedWeights if `data` is not a pointer."""
        try:
            return cls.model_validate_json(data)
        except ValidationError as error:
            raise RefusedWeights(
                "a version pointer in the bucket is damaged",
                value=data[:80],
                fix="restore the bucket's latest/ objects",
            ) from error


def read(bucket: Objects, name: str) -> Pointer:
    """The pointer `name`. Raises NotInBucket, or RefusedWeights if it is damaged."""
    try:
        return Pointer.parse(bucket.get(name, limit=MAX_POINTER))
    except TooLarge as error:
        raise RefusedWeights(
            "a version pointer is larger than it can be",
            value=name,
            fix="restore the object or publish a new version",
        ) from error


def message(name: str, ref: ManifestRef) -> bytes:
    """What is signed."""
    return "\n".join(("tradewind pointer 1", name, ref.key, ref.digest)).encode()


def number_of(name: str, folder: str) -> int | None:
    """The number of a pointer `<folder><8 digits>`; None for any other name."""
    digits = name.removeprefix(folder)
    return int(digits) if len(digits) == 8 and digits.isascii() and digits.isdigit() else None
