"""The bucket: immutable objects under names, on a folder or an object store.

Trainer and pools meet here and nowhere else. Objects are created once and never changed; only a
collection (see `collect`) deletes some. Create-only puts are atomic on both kinds of store, which
is all that the protocol of `publish` asks for (a conditional update is not: folders have none).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError
from obstore.store import LocalStore, ObjectStore

from tradewind.ledger.remote import SCHEMES, first_line, open_remote
from tradewind.types.errors import Conflict, TradewindError, UserError

DEADLINE_S = 60.0
"""For one call, its retries included, in seconds."""
PROBE = "writable"
"""Name of the object with which a store is tried out before the first write."""


_MISSING = (NotFoundError, FileNotFoundError)
"""obstore raises the builtin one."""


@dataclass(frozen=True, slots=True)
class Listed:
    """An object in a listing."""

    key: str
    size: int
    """Bytes."""
    modified: float
    """Unix seconds, by the store's clock."""


class NotInBucket(TradewindError):
    """No object has this name (yet)."""


class TooLarge(UserError):
    """An object is larger than its reader allows; nothing of it has been read."""


class Objects(Protocol):
    """What a reader needs of a bucket."""

    def get(self, key: str, *, limit: int) -> bytes:
        """The object `key`; raises NotInBucket, or TooLarge if it has more than `limit` bytes."""

    def list(self, prefix: str, *, after: str | None = None) -> list[str]:
        """Sorted keys below the folder `prefix`, those greater than `after` only."""


class Source(Objects, Protocol):
    """What a follower needs: a bucket, or a relay before one (`relayed`)."""

    @property
    def url(self) -> str:
        """Where it is."""

    @property
    def trouble(self) -> str | None:
        """What keeps it from its usual way while it goes another one."""

    @property
    def asks_next(self) -> bool:
        """Whether to ask for an object that may not be there is as cheap as to list."""

    def shortcut(self, start: int, end: int) -> str | None:
        """Name of a shortcut made for exactly this way; None where none is made on demand."""

    def doubt(self, sentence: str) -> None:
        """What came from here was refused, for this reason: try another way if there is one."""


class Bucket:
    """`Bucket.open("file:///data/bucket")`, `Bucket.open("s3://name/prefix")`.

    Every method raises UserError if the store cannot be reached or refuses access.
    """

    def __init__(self, url: str, store: ObjectStore) -> None:
        self.url = url
        self.trouble: str | None = None
        self.asks_next = True
        self._store = store
        self._creates_once = False

    @classmethod
    def open(cls, url: str, *, deadline_s: float = DEADLINE_S) -> Bucket:
        """Makes the folder of a `file://` bucket. Object stores take their keys and endpoint from
        the usual environment (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, ...). Raises UserError for
        another scheme or a folder that cannot be made.
        """
        parts = urlsplit(url)
        if parts.scheme == "file" and parts.netloc in ("", "localhost"):
            return cls(url, _open_folder(url, Path(unquote(parts.path))))
        if parts.scheme in SCHEMES and parts.netloc:
            return cls(url, open_remote(url, "the bucket", deadline_s))
        raise UserError(
            "a bucket must be a folder or an object store",
            value=url,
            fix="write file:///absolute/folder or s3://bucket/prefix",
        )

    def put_new(self, key: str, data: bytes) -> None:
        """Creates `key`; raises Conflict if it exists, whatever it holds.

        Raises UserError, and writes nothing, in a store that overwrites what it should only create.
        """
        if not self._creates_once:
            self._prove_create_only()
        with self._reach("written"):
            try:
                obstore.put(self._store, key, data, mode="create")
            except AlreadyExistsError as error:
                raise Conflict(f"{key} exists in {self.url}") from error

    def get(self, key: str, *, limit: int) -> bytes:
        """The object `key`; raises NotInBucket, or TooLarge if it has more than `limit` bytes."""
        with self._reach("read"):
            try:
                found = obstore.get(self._store, key)
            except _MISSING as error:
                raise NotInBucket(f"{key} is not in {self.url}") from error
            size = found.meta["size"]
            if size > limit:
                raise TooLarge(
                    f"an object of {size} bytes stands where at most {limit} are expected",
                    value=f"{self.url}/{key}",
                    fix="check that nothing else writes to this bucket",
                )
            return bytes(found.bytes())

    def shortcut(self, start: int, end: int) -> str | None:
        """See `Source`: a bucket makes nothing."""
        return None

    def doubt(self, sentence: str) -> None:
        """See `Source`: there is no other way."""

    def exists(self, key: str) -> bool:
        """Whether `key` is there."""
        with self._reach("read"):
            try:
                obstore.head(self._store, key)
            except _MISSING:
                return False
            return True

    def list(self, prefix: str, *, after: str | None = None) -> list[str]:
        """Sorted keys below the folder `prefix`, those greater than `after` only."""
        with self._reach("listed"):
            stream = obstore.list(self._store, prefix, offset=after)
            return sorted(meta["path"] for batch in stream for meta in batch)

    def objects(self, prefix: str) -> tuple[Listed, ...]:
        """What `list` lists, with size and age."""
        with self._reach("listed"):
            stream = obstore.list(self._store, prefix)
            found = [
                Listed(meta["path"], meta["size"], meta["last_modified"].timestamp())
                for batch in stream
                for meta in batch
            ]
        return tuple(sorted(found, key=lambda item: item.key))

    def delete(self, key: str) -> None:
        """Deletes `key` if it is there."""
        with self._reach("written"), suppress(*_MISSING):
            obstore.delete(self._store, key)

    def check_writable(self) -> None:
        """Writes one small object; raises UserError if that, or to create only, is not possible."""
        with self._reach("written"):
            obstore.put(self._store, PROBE, b"tradewind\n")
        self._prove_create_only()

    def _prove_create_only(self) -> None:
        with self._reach("written"):
            for _ in range(2):
                try:
                    obstore.put(self._store, PROBE, b"tradewind\n", mode="create")
                except AlreadyExistsError:
                    self._creates_once = True
                    return
        raise UserError(
            "this object store overwrites an object that it was asked to create only (it ignores "
            "`If-None-Match`), so two trainers could fork the history unnoticed",
            value=self.url,
            fix="use a folder or a store with conditional writes: Amazon S3, Google Cloud Storage, "
            "Azure, MinIO, Cloudflare R2",
        )

    @contextmanager
    def _reach(self, done: str) -> Iterator[None]:
        try:
            yield
        except (BaseError, OSError) as error:
            raise UserError(
                f"the bucket cannot be {done} ({first_line(error)})",
                value=self.url,
                fix="check that it exists, that the keys may use it and that the disk is not full",
            ) from error


def _open_folder(url: str, path: Path) -> ObjectStore:
    try:
        path.mkdir(parents=True, exist_ok=True)
        return LocalStore(path)
    except (BaseError, OSError) as error:
        raise UserError(
            f"the bucket folder cannot be made ({first_line(error)})",
            value=url,
            fix="give a folder that this user may write to",
        ) from error
