"""Bearer keys: 256 random bits for their holder, a SHA-256 digest for the ledger."""

from __future__ import annotations

import hashlib
import secrets


def mint(kind: str) -> str:
    """A new key; `kind` is a readable prefix such as `model` or `result`."""
    return f"tw-{kind}-{secrets.token_urlsafe(32)}"


def digest(key: str) -> str:
    """What the ledger holds instead of `key`: 64 hex digits.

    A fast hash is enough: the keys are random, so they cannot be guessed from a dictionary.
    """
    return hashlib.sha256(key.encode()).hexdigest()
