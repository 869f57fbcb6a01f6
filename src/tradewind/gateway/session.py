"""The key is the session: a rollout, an evaluation rollout, or the product's users."""

from __future__ import annotations

import hmac
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from tradewind.gateway.journal import Journal
from tradewind.gateway.refusal import ended, unknown_key
from tradewind.http.requests import bearer
from tradewind.ledger.keys import digest
from tradewind.ledger.turns import Session

_MOST_CACHED = 4096


@dataclass(frozen=True)
class User:
    """The product's users share one key; nothing of what they say is kept."""


class Sessions:
    """Looks keys up by their digest.

    An open session is believed for `cache_s`; after that, and for every write, the ledger is
    asked again, so a rollout that ended gets no further turn. An ended session never reopens.
    """

    def __init__(self, journal: Journal, user_key: str | None, cache_s: float) -> None:
        self._journal = journal
        self._user_digest = digest(user_key) if user_key else None
        self._cache_s = cache_s
        self._cache: OrderedDict[str, tuple[Session, float]] = OrderedDict()

    async def of(self, headers: Mapping[str, str]) -> Session | User:
        """The session of a request's key; raises `Refusal` (401, 409)."""
        key_digest = digest(_key(headers))
        if self._user_digest and hmac.compare_digest(key_digest, self._user_digest):
            return User()
        session = await self._lookup(key_digest)
        if session is None:
            raise unknown_key()
        if not session.open:
            raise ended(f"{session.rollout_id} has ended")
        if time.time() >= session.deadline:
            raise ended(f"the deadline of {session.rollout_id} has passed")
        return session

    def forget(self, rollout: str) -> None:
        """Drops what is cached about a rollout; the ledger said something newer."""
        for key, (session, _) in list(self._cache.items()):
            if session.rollout_id == rollout:
                del self._cache[key]

    async def still_open(self, rollout: str) -> bool:
        """Whether a rollout that was here lately goes on, by the ledger's word of now."""
        for key, (session, _) in list(self._cache.items()):
            if session.rollout_id == rollout:
                del self._cache[key]
                now = await self._lookup(key)
                return now is not None and now.open and time.time() < now.deadline
        return True

    async def _lookup(self, key_digest: str) -> Session | None:
        cached = self._cache.get(key_digest)
        if cached and (not cached[0].open or time.monotonic() - cached[1] < self._cache_s):
            return cached[0]
        session = await self._journal.read(self._journal.ledger.session, key_digest)
        if session is not None:
            self._cache[key_digest] = (session, time.monotonic())
            self._cache.move_to_end(key_digest)
            while len(self._cache) > _MOST_CACHED:
                self._cache.popitem(last=False)
        return session


def _key(headers: Mapping[str, str]) -> str:
    """Of `x-api-key`, as Anthropic's SDKs send it, or of a bearer token; raises `Refusal` (401)."""
    key = headers.get("x-api-key", "").strip() or bearer(headers)
    if not key:
        raise unknown_key()
    return key
