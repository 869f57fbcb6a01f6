"""Token payloads: what a turn's rows are about, outside the database, named by their content.

    payloads/4f/4f3a...   zstd of {"schema": 1, <fields of a record>}

A payload is written before the row that names it is, so a row without its payload is damage and a
payload without a row is garbage. Whoever reads one hashes it first; one that is missing, damaged
or of a newer schema is a `LostPayload` with a sentence, never an empty turn.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

import blake3
import obstore
import zstandard
from obstore.exceptions import BaseError
from obstore.store import ObjectStore

from tradewind.ledger.remote import SCHEMES, first_line, open_remote
from tradewind.types.errors import TradewindError, UserError
from tradewind.types.record import Json

SCHEMA = 1
"""Of the records in payloads."""
FOLDER = "payloads"
LIMIT = 2**30
"""Of one payload before compression, in bytes."""
DEADLINE_S = 60.0
"""For one call of an object store, its retries included, in seconds."""
KEEPERS = "keepers"
"""Folder with a mark of each ledger that keeps its payloads here."""


class LostPayload(TradewindError):
    """A payload that a row names cannot be had; `str` says which one, where, and why."""


@dataclass(frozen=True, slots=True)
class Kept:
    """One object of a listing."""

    key: str
    size: int
    """Bytes."""
    modified: float
    """Unix seconds, by the store's clock."""


class Store(Protocol):
    """Where payloads lie."""

    def write(self, key: str, data: bytes) -> None:
        """Keep `data` under `key`; the same key always comes with the same data."""

    def read(self, key: str) -> bytes | None:
        """What lies under `key`; None if there is nothing."""

    def sync(self, keys: Iterable[str]) -> None:
        """From here on these hold through a power cut."""

    def list(self, folder: str) -> Iterator[Kept]:
        """All that lies below a folder."""

    def delete(self, key: str) -> None:
        """Keep it no longer."""


class Payloads:
    """`Payloads.open("file:///runs/x/bucket")`. Safe to share between threads.

    Every method raises `UserError` if the place cannot be reached or refuses access.
    """

    def __init__(self, url: str, store: Store, keeper: str | None = None) -> None:
        self.url, self._store, self._keeper = url, store, keeper
        self._marked = keeper is None
        self._local = threading.local()

    @classmethod
    def open(cls, url: str, keeper: str | None = None) -> Payloads:
        """A folder (`file:///...`) or an object store (`s3://`, `gs://`, `az://`).

        `keeper` is the ledger whose payloads they are; a mark of it is left before the first one.
        """
        parts = urlsplit(url)
        if parts.scheme == "file":
            return cls(url, _Folder(Path(unquote(parts.path))), keeper)
        if parts.scheme in SCHEMES and parts.netloc:
            store = open_remote(url, "the store of token payloads", DEADLINE_S)
            return cls(url, _Objects(store), keeper)
        raise UserError(
            "token payloads lie in a folder or an object store",
            value=url,
            fix="write file:///absolute/folder or s3://bucket/prefix",
        )

    def put(self, record: str) -> str:
        """Keep a record, as the text of a JSON object; returns the name, 64 hex digits of BLAKE3.

        Text, because pydantic writes it four times as fast as Python would write the fields.
        """
        assert record.startswith("{") and len(record) > 2, record[:20]
        plain = f'{{"schema":{SCHEMA},{record[1:]}'.encode()
        assert len(plain) <= LIMIT, f"a payload of {len(plain)} bytes"
        data = self._compressor().compress(plain)
        name = blake3.blake3(data).hexdigest()
        with self._reach("written"):
            if not self._marked:
                self._store.write(f"{KEEPERS}/{self._keeper}", b"tradewind\n")
                self._marked = True
            self._store.write(_key(name), data)
        return name

    def get(self, name: str) -> Json:
        """The fields of the record that `put` was given; raises `LostPayload`."""
        with self._reach("read"):
            data = self._store.read(_key(name))
        where = f"payload {name[:16]} in {self.url}"
        if data is None:
            raise LostPayload(f"{where} is missing")
        if blake3.blake3(data).hexdigest() != name:
            raise LostPayload(f"{where} is damaged: its {len(data)} bytes have another hash")
        try:
            plain = zstandard.ZstdDecompressor().decompress(data, max_output_size=LIMIT)
            fields: Json = json.loads(plain)
        except (zstandard.ZstdError, ValueError) as error:
            raise LostPayload(f"{where} is none of ours ({error})") from error
        if (schema := fields.pop("schema", 0)) > SCHEMA:
            raise LostPayload(
                f"{where} was written by a newer tradewind (schema {schema}, this one reads "
                f"{SCHEMA})"
            )
        return fields

    def sync(self, names: Iterable[str]) -> None:
        """From here on these payloads hold through a power cut, too."""
        with self._reach("written"):
            self._store.sync(map(_key, names))

    def kept(self) -> list[Kept]:
        """All payloads that lie here, whoever needs them."""
        with self._reach("listed"):
            return [found for found in self._store.list(FOLDER) if len(name_of(found)) == 64]

    def keepers(self) -> list[str]:
        """The ledgers that keep payloads here."""
        with self._reach("listed"):
            return sorted(name_of(found) for found in self._store.list(KEEPERS))

    def delete(self, names: Iterable[str]) -> None:
        """Keep these no longer."""
        with self._reach("deleted"):
            for name in names:
                self._store.delete(_key(name))

    def _compressor(self) -> zstandard.ZstdCompressor:
        """One per thread: making it costs more than a small payload."""
        if not hasattr(self._local, "compressor"):
            self._local.compressor = zstandard.ZstdCompressor(level=1)
        found: zstandard.ZstdCompressor = self._local.compressor
        return found

    @contextlib.contextmanager
    def _reach(self, done: str) -> Iterator[None]:
        try:
            yield
        except (BaseError, OSError) as error:
            raise UserError(
                f"token payloads cannot be {done} ({first_line(error)})",
                value=self.url,
                fix="check that it exists, that this user may use it and that the disk is not full",
            ) from error


class _Folder:
    def __init__(self, root: Path) -> None:
        self._root = root

    def write(self, key: str, data: bytes) -> None:
        path = self._root / key
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_size == len(data):
                os.utime(path)  # somebody needs it from now on
                return
        part = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}")
        try:
            part.write_bytes(data)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            part.write_bytes(data)
        part.replace(path)

    def read(self, key: str) -> bytes | None:
        try:
            return (self._root / key).read_bytes()
        except FileNotFoundError:
            return None

    def sync(self, keys: Iterable[str]) -> None:
        paths = [self._root / key for key in keys]
        for path in (*paths, *{path.parent for path in paths}):
            with contextlib.suppress(FileNotFoundError):
                file = os.open(path, os.O_RDONLY)
                try:
                    os.fsync(file)
                finally:
                    os.close(file)

    def list(self, folder: str) -> Iterator[Kept]:
        for path in (self._root / folder).rglob("*"):
            with contextlib.suppress(FileNotFoundError):
                if path.is_file():
                    about = path.stat()
                    key = path.relative_to(self._root).as_posix()
                    yield Kept(key, about.st_size, about.st_mtime)

    def delete(self, key: str) -> None:
        (self._root / key).unlink(missing_ok=True)


class _Objects:
    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def write(self, key: str, data: bytes) -> None:
        obstore.put(self._store, key, data)

    def read(self, key: str) -> bytes | None:
        try:
            return bytes(obstore.get(self._store, key).bytes())
        except FileNotFoundError:  # obstore raises the builtin one
            return None

    def sync(self, keys: Iterable[str]) -> None:
        """An object store answers when an object is durable."""

    def list(self, folder: str) -> Iterator[Kept]:
        for batch in obstore.list(self._store, folder):
            for meta in batch:
                yield Kept(meta["path"], meta["size"], meta["last_modified"].timestamp())

    def delete(self, key: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            obstore.delete(self._store, key)


def _key(name: str) -> str:
    return f"{FOLDER}/{name[:2]}/{name}"


def name_of(found: Kept) -> str:
    """The last part of its key."""
    return found.key.rpartition("/")[2]
