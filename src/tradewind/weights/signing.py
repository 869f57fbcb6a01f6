"""Signed pointers: whoever may write to the bucket is not thereby the trainer.

    trainer   TRADEWIND_SIGNING_KEY ──► Signer ──► signs each pointer that it creates
    pool      trust = ["<public key>"] ──► Trusting(source) ──► refuses pointers of anyone else

Ed25519 (RFC 8032), by the package `cryptography`, needed only where keys are used.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tradewind.types.errors import RefusedWeights, UserError
from tradewind.weights.bucket import Source
from tradewind.weights.manifest import ManifestRef
from tradewind.weights.pointer import Pointer, message

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

VARIABLE = "TRADEWIND_SIGNING_KEY"
"""Environment variable with the private key, 64 hexadecimal digits."""
FOLDERS = ("latest/", "serving/")


class Signer:
    """Holds a private key; raises UserError for one that is none."""

    def __init__(self, secret: str) -> None:
        key = _ed25519()
        try:
            self._key: Ed25519PrivateKey = key.Ed25519PrivateKey.from_private_bytes(
                bytes.fromhex(secret)
            )
        except ValueError as error:
            raise UserError(
                "the signing key is not 64 hexadecimal digits",
                value=f"{len(secret)} characters",
                fix=f"make one with `tradewind weights keygen` and set {VARIABLE}",
            ) from error

    @classmethod
    def from_environment(cls) -> Signer | None:
        """None without a key: pointers are not signed then."""
        secret = os.environ.get(VARIABLE)
        return cls(secret) if secret else None

    @property
    def public(self) -> str:
        """The public key, for the pools' `trust`."""
        public: str = self._key.public_key().public_bytes_raw().hex()
        return public

    def sign(self, name: str, ref: ManifestRef) -> Pointer:
        """The signed pointer to `ref` for the object `name`."""
        signature = self._key.sign(message(name, ref)).hex()
        return Pointer(key=ref.key, digest=ref.digest, signer=self.public, signature=signature)


def pointer_to(name: str, ref: ManifestRef, signer: Signer | None) -> Pointer:
    """Signed if there is somebody to sign."""
    return signer.sign(name, ref) if signer else Pointer(key=ref.key, digest=ref.digest)


def new_key() -> str:
    """A private key, 64 hexadecimal digits."""
    secret: str = _ed25519().Ed25519PrivateKey.generate().private_bytes_raw().hex()
    return secret


class Trusting:
    """A source whose pointers count only if one of `trusted` signed them.

    Raises UserError for a key that is none; `get` of a pointer raises RefusedWeights for one that
    nobody, a stranger, or somebody else in a stranger's name has signed.
    """

    def __init__(self, source: Source, trusted: Iterable[str]) -> None:
        self._source = source
        key = _ed25519()
        try:
            self._trusted = {
                public: key.Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
                for public in trusted
            }
        except ValueError as error:
            raise UserError(
                "a trusted key is not an Ed25519 public key",
                value=list(trusted),
                fix="give the 64 hexadecimal digits that `tradewind weights keygen` printed",
            ) from error

    def get(self, key: str, *, limit: int) -> bytes:
        """See `Objects`; raises RefusedWeights for a pointer that is not trusted."""
        data = self._source.get(key, limit=limit)
        if key.startswith(FOLDERS):
            self._check(key, Pointer.parse(data))
        return data

    def list(self, prefix: str, *, after: str | None = None) -> list[str]:
        """See `Objects`."""
        return self._source.list(prefix, after=after)

    @property
    def url(self) -> str:
        """See `Source`."""
        return self._source.url

    @property
    def trouble(self) -> str | None:
        """See `Source`."""
        return self._source.trouble

    @property
    def asks_next(self) -> bool:
        """See `Source`."""
        return self._source.asks_next

    def shortcut(self, start: int, end: int) -> str | None:
        """See `Source`."""
        return self._source.shortcut(start, end)

    def doubt(self, sentence: str) -> None:
        """See `Source`."""
        self._source.doubt(sentence)

    def _check(self, name: str, pointer: Pointer) -> None:
        from cryptography.exceptions import InvalidSignature

        if pointer.signer is None or pointer.signature is None:
            raise _refused(f"{name} is not signed, and this pool trusts signed versions only", name)
        trusted = self._trusted.get(pointer.signer)
        if trusted is None:
            what = f"{name} is signed by a key that this pool does not trust"
            raise _refused(what, pointer.signer)
        try:
            trusted.verify(bytes.fromhex(pointer.signature), message(name, pointer.ref))
        except InvalidSignature as error:
            raise _refused(f"the signature of {name} is not that of its content", name) from error


def _refused(what: str, value: str) -> RefusedWeights:
    return RefusedWeights(
        what,
        value=value,
        fix=f"publish with {VARIABLE} set to a key whose public half is in the pool's `trust`",
    )


def _ed25519() -> Any:
    """The module."""
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise UserError(
            "signed versions need the package cryptography",
            value=error.name,
            fix="pip install 'tradewind[sign]'",
        ) from error
    return ed25519
