"""Upstream: the bucket, of which everything is fetched once.

    asked for ──► shelf, checked ──► given out
                    │ not there, or damaged
                    ▼
                  one flight ──► bucket ──► checked ──► shelf ──► given out

Objects never change, so what is on the shelf is right for ever; only listings grow old. Nothing is
given out that is not what its name says: frames have the digest that names them, manifests and
shortcuts their canonical form and their own name.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tradewind.relay.flights import Flights
from tradewind.relay.shelf import Shelf
from tradewind.types.errors import Conflict, RefusedWeights, UserError
from tradewind.weights.bucket import NotInBucket, Objects
from tradewind.weights.digest import digest_bytes
from tradewind.weights.manifest import MAX_FRAME, MAX_MANIFEST, Manifest, unpack
from tradewind.weights.pointer import MAX_POINTER, Pointer
from tradewind.weights.shortcut import Shortcut

log = logging.getLogger(__name__)

FOLDERS = ("latest/", "shortcuts/", "serving/")
"""What may be listed."""
DEADLINE_S = 60.0
"""For a flight of somebody else, in seconds."""


@dataclass
class Traffic:
    """Counters since the start."""

    asked: int = 0
    """Objects that pools asked for."""
    fetched: int = 0
    """Objects that were fetched from the bucket."""
    bytes_out: int = 0
    bytes_in: int = 0
    listings: int = 0
    """Asked of the bucket."""
    damaged: int = 0
    """Objects, on the shelf or in the bucket, that were not what their names say."""


class Upstream:
    """A `Source` that reads through the shelf; thread-safe."""

    def __init__(
        self,
        bucket: Objects,
        shelf: Shelf,
        *,
        names_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bucket, self._shelf = bucket, shelf
        self._names_s, self._clock = names_s, clock
        self._flights = Flights()
        self._lock = threading.Lock()
        self._names: dict[str, tuple[float, Sequence[str]]] = {}
        self.traffic = Traffic()
        self.trouble: str | None = None
        """Why the last request to the bucket failed."""
        self.asks_next = True

    @property
    def url(self) -> str:
        """See `Source`."""
        return f"the relay before {self._shelf.url}"

    def shortcut(self, start: int, end: int) -> str | None:
        """See `Source`: made elsewhere."""
        return None

    def doubt(self, sentence: str) -> None:
        """See `Source`."""

    def get(self, key: str, *, limit: int) -> bytes:
        """See `Objects`. Raises NotInBucket for a name that no object can have, RefusedWeights if
        the bucket holds something else than the name says.
        """
        kind = _kind_of(key)
        if kind is None:
            raise NotInBucket(f"{key} is no name of an object")
        data = self._on_shelf(key, kind)
        if data is None:
            data = self._flights.once(key, lambda: self._fetch(key, kind), DEADLINE_S)
        with self._lock:
            self.traffic.asked += 1
            self.traffic.bytes_out += len(data)
        return data

    def list(self, prefix: str, *, after: str | None = None) -> list[str]:
        """See `Objects`; up to `names_s` seconds old. Raises NotInBucket for another folder."""
        if prefix not in FOLDERS:
            raise NotInBucket(f"{prefix} is not listed by a relay")
        names = self._fresh(prefix)
        if names is None:
            names = self._flights.once(prefix, lambda: self._listing(prefix), DEADLINE_S)
        return [name for name in names if name > (after or "")]

    def _on_shelf(self, key: str, kind: _Kind) -> bytes | None:
        try:
            data = self._shelf.get(key, limit=kind.limit)
            kind.check(key, data)
        except (NotInBucket, FileNotFoundError):
            return None
        except UserError as error:  # too large, unreadable or damaged: as if it were not there
            log.warning("%s is dropped from the cache: %s", key, error)
            self._count_damage()
            self._shelf.delete(key)
            return None
        return data

    def _fetch(self, key: str, kind: _Kind) -> bytes:
        """Out of the bucket, unless an earlier flight has just put it on the shelf."""
        held = self._on_shelf(key, kind)
        if held is not None:
            return held
        with self._noted():
            data = self._bucket.get(key, limit=kind.limit)
        with self._lock:
            self.traffic.fetched += 1
            self.traffic.bytes_in += len(data)
        try:
            kind.check(key, data)
        except RefusedWeights:
            self._count_damage()
            raise
        try:
            self._shelf.put_new(key, data)
        except Conflict:
            pass  # a shortcut that was made here at the same time
        except UserError as error:
            log.warning("not cached: %s", error)
        return data

    def _fresh(self, prefix: str) -> Sequence[str] | None:
        with self._lock:
            at, names = self._names.get(prefix, (float("-inf"), ()))
        return names if self._clock() - at < self._names_s else None

    def _listing(self, prefix: str) -> Sequence[str]:
        """Pointers are only ever added, behind the last: the rest is not asked for again."""
        with self._lock:
            _, held = self._names.get(prefix, (0.0, ()))
        grows = prefix != "shortcuts/" and bool(held)
        with self._noted():
            asked_at = self._clock()
            found = self._bucket.list(prefix, after=held[-1] if grows else None)
        names = (*held, *found) if grows else found
        with self._lock:
            self.traffic.listings += 1
            self._names[prefix] = (asked_at, names)
        return names

    @contextmanager
    def _noted(self) -> Iterator[None]:
        """The status says whether the bucket can be reached."""
        try:
            yield
        except UserError as error:
            self.trouble = str(error)
            raise
        self.trouble = None

    def _count_damage(self) -> None:
        with self._lock:
            self.traffic.damaged += 1


@dataclass(frozen=True)
class _Kind:
    """How an object of a folder is recognised."""

    name: re.Pattern[str]
    limit: int
    """Bytes."""
    check: Callable[[str, bytes], None]
    """Raises RefusedWeights."""


def _check_frame(key: str, data: bytes) -> None:
    if digest_bytes(data) != key.removeprefix("frames/"):
        raise _damaged("a frame does not have the digest by which it is named", key)


def _check_manifest(key: str, data: bytes) -> None:
    if Manifest.parse(unpack(data)).key != key:
        raise _damaged("a manifest stands under another name", key)


def _check_shortcut(key: str, data: bytes) -> None:
    if Shortcut.parse(unpack(data, "a shortcut")).key != key:
        raise _damaged("a shortcut stands under another name", key)


def _check_pointer(key: str, data: bytes) -> None:
    Pointer.parse(data)


_KINDS = (
    _Kind(re.compile(r"frames/[0-9a-f]{64}"), MAX_FRAME, _check_frame),
    _Kind(re.compile(r"manifests/[0-9]{8}-[0-9a-f]{16}\.json\.zst"), MAX_MANIFEST, _check_manifest),
    _Kind(
        re.compile(r"shortcuts/[0-9]{8}-[0-9]{8}-[0-9a-f]{16}\.json\.zst"),
        MAX_MANIFEST,
        _check_shortcut,
    ),
    _Kind(re.compile(r"(latest|serving)/[0-9]{8}"), MAX_POINTER, _check_pointer),
)


def _kind_of(key: str) -> _Kind | None:
    return next((kind for kind in _KINDS if kind.name.fullmatch(key)), None)


def _damaged(what: str, key: str) -> RefusedWeights:
    return RefusedWeights(what, value=key, fix="restore the object in the bucket")
