r"""Signed requests: HMAC-SHA-256 over timestamp, nonce, method, path and the body's digest.

Tradewind-Key-Id:    k1                      which of the shared secrets; for rotation
Tradewind-Timestamp: 1767225600              Unix seconds, at most five minutes off
Tradewind-Nonce:     9f2c...                 never used before
Tradewind-Signature: v1=<hex of HMAC-SHA-256(secret, text)>

text = "v1\n<timestamp>\n<nonce>\n<METHOD>\n<path>\n<hex of SHA-256(body)>"

The path is the one below the base URL (`/rollouts/...`): a proxy may put a prefix before it.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Mapping

from tradewind.envs.shelf import Shelf
from tradewind.types.errors import TradewindError, UserError

WINDOW_S = 300.0
SHORTEST_SECRET = 16
_PREFIX = "Tradewind-"
_MAX_NONCE = 200


class BadSignature(TradewindError):
    """A request that is not proven to come from the holder of a shared secret, now and once."""

    def __init__(self, code: str, sentence: str) -> None:
        self.code = code
        """bad_signature, unknown_key, stale or replayed."""
        super().__init__(sentence)


def parse_keys(text: str, source: str) -> dict[str, str]:
    """`id:secret,id:secret` as a dict; raises `UserError` that names `source`, never a secret."""
    found = {}
    for pair in text.split(","):
        name, _, secret = pair.strip().partition(":")
        if not name or len(secret) < SHORTEST_SECRET:
            raise UserError(
                "this does not hold a signing key",
                value=source,
                fix=f"set it to id:secret with {SHORTEST_SECRET} characters or more, "
                "several with commas",
            )
        found[name] = secret
    return found


def sign(
    key: tuple[str, str], method: str, path: str, body: bytes, *, at: float | None = None
) -> dict[str, str]:
    """The four headers. `key` is (id, secret); `path` begins with /rollouts; `at`: now if None."""
    key_id, secret = key
    timestamp, nonce = str(int(time.time() if at is None else at)), secrets.token_hex(16)
    return {
        f"{_PREFIX}Key-Id": key_id,
        f"{_PREFIX}Timestamp": timestamp,
        f"{_PREFIX}Nonce": nonce,
        f"{_PREFIX}Signature": "v1=" + _mac(secret, timestamp, nonce, method, path, body),
    }


class SignatureCheck:
    """Checks requests; remembers the nonces of the last two windows, on a shelf."""

    def __init__(
        self,
        keys: Mapping[str, str],
        window_s: float = WINDOW_S,
        clock: Callable[[], float] = time.time,
        shelf: Shelf | None = None,
    ) -> None:
        """`keys`: shared secrets by id; two during a rotation. Without a shelf, memory."""
        self._keys, self._window_s, self._clock = dict(keys), window_s, clock
        self._shelf = shelf or Shelf()

    def check(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> None:
        """Raise `BadSignature` unless the request is signed, fresh and new."""
        names = ("Key-Id", "Timestamp", "Nonce", "Signature")
        key_id, timestamp, nonce, signature = (headers.get(_PREFIX + name, "") for name in names)
        if not signature or not nonce or len(nonce) > _MAX_NONCE:
            raise BadSignature("bad_signature", "the request is not signed; see docs/environments")
        secret = self._keys.get(key_id)
        if secret is None:
            raise BadSignature("unknown_key", f"there is no signing key {key_id[:40]!r} here")
        expected = "v1=" + _mac(secret, timestamp, nonce, method, path, body)
        if not hmac.compare_digest(expected.encode(), signature.encode()):
            raise BadSignature("bad_signature", "the signature does not fit this request")
        self._fresh(timestamp)
        self._new(f"{key_id} {nonce}")

    def _fresh(self, timestamp: str) -> None:
        now = self._clock()
        try:
            off = now - int(timestamp)
        except ValueError:
            raise BadSignature("stale", "the timestamp is no whole number of seconds") from None
        if abs(off) > self._window_s:
            raise BadSignature(
                "stale",
                f"the timestamp is {abs(off):.0f} s {'old' if off > 0 else 'in the future'}, "
                f"more than {self._window_s:.0f}; set both clocks",
            )

    def _new(self, nonce: str) -> None:
        now = self._clock()
        if not self._shelf.new_nonce(nonce, now + 2 * self._window_s, now):
            raise BadSignature("replayed", "this nonce was used before")


def _mac(secret: str, timestamp: str, nonce: str, method: str, path: str, body: bytes) -> str:
    digest = hashlib.sha256(body).hexdigest()
    text = "\n".join(("v1", timestamp, nonce, method.upper(), path, digest))
    return hmac.new(secret.encode(), text.encode(), hashlib.sha256).hexdigest()
