"""The bucket as a pool sees it through a relay of its region.

    pool ──► relay ──► bucket         the ordinary way
      └────────────────► bucket       if the relay is down or wrong, and the pool knows the bucket

The relay needs no trust for what it hands out: frames are named by their content, and whatever a
version decodes to must have its state id. What it could do is withhold: so a pool that knows the
bucket asks it directly for the newest version now and then, and whenever the relay has no object.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from typing import TypeVar
from urllib.parse import urlsplit

import httpx
from pydantic import ValidationError

from tradewind.types.errors import TradewindError, UserError
from tradewind.types.record import Record
from tradewind.weights.bucket import Bucket, NotInBucket, Source, TooLarge
from tradewind.weights.digest import digest_bytes

log = logging.getLogger(__name__)

KEY_NAME = "TRADEWIND_RELAY_KEY"
DEADLINE_S = 60.0
"""For one call, in seconds; a shortcut may have to be made first."""
CONNECT_S = 5.0
AVOID_S = 30.0
"""For how long a relay that failed is gone around, in seconds."""
ASK_BUCKET_S = 30.0
"""How often the newest version is asked of the bucket itself, in seconds."""
MOST_NAMES = 2**26
"""Bytes of a listing."""

T = TypeVar("T")


class Names(Record):
    """Answer of `GET /v1/names`."""

    names: tuple[str, ...]


class Made(Record):
    """Answer of `GET /v1/shortcuts/{start}/{end}`."""

    key: str


class RelayFailed(TradewindError):
    """The relay does not answer, or not with what was asked for; never leaves this module."""


class Relayed:
    """A `Source`; only `get` may be called by several threads. `bucket` is what lies behind the
    relay, if it is known.
    """

    def __init__(
        self,
        url: str,
        key: str,
        bucket: Bucket | None = None,
        *,
        deadline_s: float = DEADLINE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.url = url.rstrip("/")
        self.trouble: str | None = None
        self.asks_next = False  # the relay would ask the bucket for each of its pools
        self._bucket, self._clock = bucket, clock
        self._avoid_until = self._ask_bucket_at = clock()
        self._client = httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {key}"},
            timeout=httpx.Timeout(deadline_s, connect=min(CONNECT_S, deadline_s)),
        )

    def get(self, key: str, *, limit: int) -> bytes:
        """See `Objects`; raises UserError if neither relay nor bucket can be reached."""
        try:
            return self._ask(
                lambda: self._object(key, limit), lambda bucket: bucket.get(key, limit=limit)
            )
        except NotInBucket:
            if self._bucket is None or self._avoided:
                raise
            data = self._bucket.get(key, limit=limit)
            self.doubt(f"it does not know {key}, which is in {self._bucket.url}")
            return data

    def list(self, prefix: str, *, after: str | None = None) -> list[str]:
        """See `Objects`; raises UserError if neither relay nor bucket can be reached."""
        if prefix == "latest/" and self._bucket and self._clock() >= self._ask_bucket_at:
            self._ask_bucket_at = self._clock() + ASK_BUCKET_S
            with suppress(UserError):  # the relay may be the only one that reaches it
                return self._bucket.list(prefix, after=after)
        return self._ask(
            lambda: [*self._names(prefix, after)], lambda bucket: bucket.list(prefix, after=after)
        )

    def shortcut(self, start: int, end: int) -> str | None:
        """What the relay makes for exactly this way; None if it cannot: there are others."""
        return self._ask(lambda: self._made(start, end), lambda bucket: None)

    def close(self) -> None:
        """Ends the connections to the relay."""
        self._client.close()

    def doubt(self, sentence: str) -> None:
        """For a while the bucket is asked, if it is known."""
        if self._bucket is not None:
            self._avoid(f"the relay {self.url} is gone around: {sentence}")

    @property
    def _avoided(self) -> bool:
        return self._bucket is not None and self._clock() < self._avoid_until

    def _avoid(self, sentence: str) -> None:
        self._avoid_until = self._clock() + AVOID_S
        if sentence != self.trouble:
            log.warning("%s", sentence)
        self.trouble = sentence

    def _ask(self, relay: Callable[[], T], bucket: Callable[[Bucket], T]) -> T:
        """The relay's answer; the bucket's if the relay has none, or is avoided."""
        if self._avoided:
            assert self._bucket is not None, "only a pool that knows the bucket avoids the relay"
            return bucket(self._bucket)
        try:
            answer = relay()
        except (RelayFailed, httpx.HTTPError) as error:
            said = str(error) or type(error).__name__
            if self._bucket is None:
                raise UserError(
                    f"the relay cannot be used ({said})",
                    value=self.url,
                    fix="start it again, or name the bucket itself as `fallback`",
                ) from error
            self._avoid(f"the relay {self.url} cannot be used ({said}), the bucket is asked")
            return bucket(self._bucket)
        self.trouble = None
        return answer

    def _object(self, key: str, limit: int) -> bytes:
        data = self._read(f"/v1/objects/{key}", {}, limit)
        if key.startswith("frames/") and digest_bytes(data) != key.removeprefix("frames/"):
            raise RelayFailed(f"it hands out a damaged {key[:20]}...")
        return data

    def _names(self, prefix: str, after: str | None) -> tuple[str, ...]:
        data = self._read("/v1/names", {"prefix": prefix, "after": after or ""}, MOST_NAMES)
        try:
            return Names.model_validate_json(data).names
        except ValidationError as error:
            raise RelayFailed("it answers with something else than names") from error

    def _made(self, start: int, end: int) -> str | None:
        try:
            data = self._read(f"/v1/shortcuts/{start}/{end}", {}, MOST_NAMES)
            return Made.model_validate_json(data).key
        except (NotInBucket, RelayFailed, ValidationError) as error:
            log.info("no shortcut from %d to %d: %s", start, end, error)
            return None

    def _read(self, path: str, params: dict[str, str], limit: int) -> bytes:
        """The body of an answer. Raises NotInBucket for 404, TooLarge, RelayFailed for the rest."""
        with self._client.stream("GET", path, params=params) as answer:
            size = int(answer.headers.get("Content-Length", 0))
            if answer.status_code == HTTPStatus.NOT_FOUND:
                raise NotInBucket(f"{path} is not at {self.url}")
            if answer.status_code != HTTPStatus.OK:
                raise RelayFailed(f"it answers {answer.status_code}: {_start_of(answer)}")
            body = bytearray()
            for chunk in answer.iter_raw():
                body += chunk
                if max(size, len(body)) > limit:
                    raise TooLarge(
                        f"an object of more than {limit} bytes comes from the relay",
                        value=f"{self.url}{path}",
                        fix="check what the relay serves",
                    )
            return bytes(body)


def open_source(url: str, fallback: str | None = None) -> Source:
    """A bucket, or a relay (`http://host:port`) with the bucket behind it as `fallback`.

    The relay's key comes from TRADEWIND_RELAY_KEY. Raises UserError for what is neither.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        if fallback is not None:
            raise UserError(
                "a fallback is for a relay, and this is a bucket",
                value=url,
                fix="leave the fallback out",
            )
        return Bucket.open(url)
    key = os.environ.get(KEY_NAME)
    if not key:
        raise UserError(
            "there is no key for the relay", value=url, fix=f"set {KEY_NAME} in the environment"
        )
    return Relayed(url, key, Bucket.open(fallback) if fallback else None)


def _start_of(answer: httpx.Response) -> str:
    body = b""
    for chunk in answer.iter_raw():
        body += chunk
        if len(body) > 300:
            break
    return body[:300].decode(errors="replace")
