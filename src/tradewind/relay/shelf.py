"""The shelf: objects in a folder, up to a number of bytes; what was not asked for longest goes."""

from __future__ import annotations

import threading
from pathlib import Path

from tradewind.weights.bucket import Bucket


class Shelf(Bucket):
    """A folder in the layout of a bucket; thread-safe. Holds what it held when it was closed."""

    @classmethod
    def at(cls, folder: Path, limit: int) -> Shelf:
        """`limit` bytes at most. Raises UserError if the folder cannot be made."""
        shelf = cls.open(folder.absolute().as_uri())
        assert isinstance(shelf, Shelf)
        shelf._lock = threading.Lock()
        shelf._limit = limit
        # in the order in which they were put there: when each was last asked for is not kept
        held = sorted(shelf.objects(""), key=lambda item: item.modified)
        shelf._sizes = {item.key: item.size for item in held}
        shelf._drop(shelf._surplus())
        return shelf

    _lock: threading.Lock
    _limit: int
    _sizes: dict[str, int]
    """Least recently used first."""

    @property
    def size(self) -> int:
        """Bytes of all objects."""
        with self._lock:
            return sum(self._sizes.values())

    def get(self, key: str, *, limit: int) -> bytes:
        """See `Bucket`."""
        data = super().get(key, limit=limit)
        with self._lock:
            if key in self._sizes:
                self._sizes[key] = self._sizes.pop(key)
        return data

    def put_new(self, key: str, data: bytes) -> None:
        """See `Bucket`; an object that is larger than the whole shelf does not stay."""
        super().put_new(key, data)
        with self._lock:
            self._sizes[key] = len(data)
            surplus = self._surplus()
        self._drop(surplus)

    def delete(self, key: str) -> None:
        """See `Bucket`."""
        with self._lock:
            self._sizes.pop(key, None)
        super().delete(key)

    def _surplus(self) -> list[str]:
        """Names that must go, and are no longer counted."""
        total, gone = sum(self._sizes.values()), []
        for key, size in list(self._sizes.items()):
            if total <= self._limit:
                break
            total -= size
            del self._sizes[key]
            gone.append(key)
        return gone

    def _drop(self, keys: list[str]) -> None:
        for key in keys:
            super().delete(key)
