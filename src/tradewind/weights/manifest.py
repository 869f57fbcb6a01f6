"""A manifest: what a version is, what it follows, and where its bytes lie.

    version 0 (base) <- version 1 <- version 2 ...     `previous` names key and digest

That makes the manifests a hash chain. The JSON is canonical (sorted keys, no spaces): one manifest
has one digest, that of its JSON. In the bucket it lies compressed. Frames are bucket objects named
by their BLAKE3; each is the concatenation of pieces (`codec`), in the order in which the manifest
lists them, without gaps. So a missing, repeated or reordered piece cannot be written. A piece says
which bytes of its tensor it restores; bytes that no piece restores are those of the parent. So
every rank of a trainer writes frames of its own, of the rows that it holds.
"""

from __future__ import annotations

import json
import math
from typing import Annotated, Protocol

import zstandard
from pydantic import Field, StringConstraints, ValidationError

from tradewind.types.errors import RefusedWeights
from tradewind.types.record import Record
from tradewind.types.weights import WeightVersion
from tradewind.weights.codec import HEADER_BYTES
from tradewind.weights.digest import Leaf, digest_bytes
from tradewind.weights.probe import Probe
from tradewind.weights.tensors import STORAGE

FORMAT = "tradewind-weights/3"
MAX_MANIFEST = 64 * 2**20
"""Bytes."""
LEVEL = 9
"""zstd level of manifests, which are a quarter of their size then."""
MAX_FRAME = 32 * 2**20
"""Bytes of one bucket object; bounds what a receiver holds for an unverified frame."""
MAX_PIECE = 64 * 2**20
"""Raw bytes of one piece."""

Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
StateId = Annotated[str, StringConstraints(pattern=r"^b3:[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0, lt=2**53)]


class Piece(Record):
    """Where one coded piece lies, and what it restores."""

    frame: Count
    """Index into `Manifest.frames`."""
    offset: Count
    size: Count
    begin: Count
    """Its first byte in the tensor."""
    raw: Annotated[int, Field(gt=0, le=MAX_PIECE)]
    """Bytes that it restores."""


class TensorEntry(Record):
    """A tensor that this version changes; in the base manifest, every tensor, without pieces."""

    name: str
    dtype: str
    shape: tuple[Count, ...]
    digest: Digest
    """Of the new bytes, see `digest`."""
    pieces: tuple[Piece, ...]
    """Ascending, without overlap."""

    @property
    def nbytes(self) -> int:
        """Raw size; the dtype has been checked."""
        return math.prod(self.shape) * STORAGE[self.dtype].itemsize

    @property
    def leaf(self) -> Leaf:
        """Its leaf of the state id."""
        return Leaf(self.dtype, self.shape, self.digest)


class Frame(Record):
    """A bucket object of pieces."""

    digest: Digest
    size: Annotated[int, Field(gt=0, le=MAX_FRAME)]

    @property
    def key(self) -> str:
        """Its name in the bucket."""
        return f"frames/{self.digest}"


class ManifestRef(Record):
    """Names a manifest and fixes its bytes."""

    key: str
    digest: Digest


class Delta(Protocol):
    """What leads to a version: a manifest from the one before it, a shortcut from farther off."""

    @property
    def key(self) -> str:
        """Its name in the bucket."""

    @property
    def version(self) -> int:
        """The version to which it leads."""

    @property
    def parent_state_id(self) -> str | None:
        """The state id to which it applies."""

    @property
    def state_id(self) -> str:
        """The state id of that version."""

    @property
    def base_state_id(self) -> str:
        """The state id of version 0."""

    @property
    def tensors(self) -> tuple[TensorEntry, ...]:
        """The tensors that it changes, sorted by name."""

    @property
    def frames(self) -> tuple[Frame, ...]:
        """Where their pieces lie."""


class Manifest(Record):
    """Example: version 3 of run "desk", which changes two of 272 tensors."""

    format: str = FORMAT
    run_id: str
    version: Count
    stage: str
    """`base`, `midtrain` or `rl`."""
    step: Count
    """RL or mid-training step that made it; 0 for the base."""
    parent_state_id: StateId | None
    """None exactly for version 0."""
    state_id: StateId
    base_state_id: StateId
    previous: ManifestRef | None
    """Manifest of the parent; None exactly for version 0."""
    tensors: tuple[TensorEntry, ...]
    """Sorted by name."""
    frames: tuple[Frame, ...]
    bytes_full: Count
    """Of a dense copy of all tensors."""
    probes: Annotated[tuple[Probe, ...], Field(max_length=64)] = ()
    """What the publisher's arithmetic says about these weights. Empty: only bytes can be proven."""
    created_at: Annotated[float, Field(allow_inf_nan=False)]
    """Unix seconds."""

    @property
    def key(self) -> str:
        """Its name in the bucket."""
        return manifest_key(self.version, self.state_id)

    def to_bytes(self) -> bytes:
        """Canonical JSON."""
        return canonical(self)

    def packed(self) -> bytes:
        """As it lies in the bucket."""
        return pack(self.to_bytes())

    def ref(self) -> ManifestRef:
        """The reference by which a successor or a pointer names this manifest."""
        return ManifestRef(key=self.key, digest=digest_bytes(self.to_bytes()))

    def weight_version(self) -> WeightVersion:
        """The record that the ledger keeps."""
        return WeightVersion(
            version=self.version,
            state_id=self.state_id,
            parent_state_id=self.parent_state_id,
            manifest=self.key,
            stage=self.stage,
            bytes_shipped=sum(frame.size for frame in self.frames) + len(self.packed()),
            bytes_full=self.bytes_full,
        )

    @classmethod
    def parse(cls, data: bytes) -> Manifest:
        """Reads and checks a manifest by itself. Raises RefusedWeights."""
        try:
            found = json.loads(data).get("format")
        except (ValueError, AttributeError, RecursionError) as error:
            raise _refused("a manifest is not JSON", str(error)) from error
        if found != FORMAT:
            raise RefusedWeights(
                f"a manifest has an unknown format, this pool reads {FORMAT}",
                value=found,
                fix="update the pool, or publish with a matching release",
            )
        try:
            manifest = cls.model_validate_json(data)
        except ValidationError as error:
            first = error.errors()[0]
            raise _refused(f"a manifest has a bad {first['loc']}", first["msg"]) from error
        if manifest.to_bytes() != data:
            raise _refused("a manifest is not in canonical form", manifest.key)
        _check_chain(manifest)
        check_layout(manifest)
        return manifest


def manifest_key(version: int, state_id: str) -> str:
    """`manifests/<version>-<first 16 hex digits of the state id>.json.zst`."""
    return f"manifests/{version:08d}-{state_id.removeprefix('b3:')[:16]}.json.zst"


def pointer_key(version: int) -> str:
    """`latest/<version>`, 8 digits, so that names sort as numbers."""
    return f"latest/{version:08d}"


def pack(data: bytes) -> bytes:
    """JSON as it lies in the bucket, compressed."""
    return zstandard.ZstdCompressor(level=LEVEL, write_checksum=False).compress(data)


def unpack(data: bytes, what: str = "a manifest") -> bytes:
    """The inverse of `pack`. Raises RefusedWeights, which calls the record `what`."""
    try:
        size = zstandard.frame_content_size(data)
        if not 0 <= size <= MAX_MANIFEST:
            raise _refused(f"{what} declares a size that it cannot have", size)
        return zstandard.ZstdDecompressor().decompress(data, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise _refused(f"{what} is damaged", str(error)) from error


def canonical(record: Record) -> bytes:
    """The one JSON form of a record: sorted keys, no spaces, ASCII."""
    plain = record.model_dump(mode="json")
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _check_chain(manifest: Manifest) -> None:
    if manifest.version == 0:
        if manifest.previous or manifest.parent_state_id or manifest.frames:
            raise _refused("a base manifest names a parent or frames", manifest.key)
        if manifest.state_id != manifest.base_state_id:
            raise _refused("a base manifest is not its own base", manifest.key)
    elif manifest.previous is None or manifest.parent_state_id is None:
        raise _refused("a manifest names no parent", manifest.key)
    elif manifest.previous.key != manifest_key(manifest.version - 1, manifest.parent_state_id):
        raise _refused(f"manifest {manifest.key} does not follow its parent", manifest.previous.key)


def check_layout(delta: Delta) -> None:
    """Entries are sorted and unique; pieces use up every frame exactly, in order.

    Raises RefusedWeights.
    """
    names = [entry.name for entry in delta.tensors]
    if names != sorted(set(names)):
        raise _refused("a delta lists tensors twice or out of order", delta.key)
    filled: list[int] = []
    for entry in delta.tensors:
        if entry.dtype not in STORAGE:
            raise _refused(f"tensor {entry.name} has an unknown dtype", entry.dtype)
        if delta.version and not entry.pieces and entry.nbytes:
            raise _refused(f"tensor {entry.name} has no pieces", delta.key)
        restored = 0
        for piece in entry.pieces:
            restored = _check_range(entry, piece, restored)
            if piece.frame == len(filled):
                filled.append(0)
            known = piece.frame < min(len(filled), len(delta.frames))
            if not known or piece.offset != filled[piece.frame] or not piece.size:
                raise _refused(
                    f"a piece of {entry.name} is missing, repeated or out of order", delta.key
                )
            filled[piece.frame] += piece.size
    if filled != [frame.size for frame in delta.frames]:
        raise _refused("a delta leaves bytes of its frames unused, or reads past them", delta.key)


def _check_range(entry: TensorEntry, piece: Piece, restored: int) -> int:
    """Where the piece ends in its tensor, of which `restored` bytes are behind it."""
    end = piece.begin + piece.raw
    itemsize = STORAGE[entry.dtype].itemsize
    if piece.begin < restored or end > entry.nbytes or piece.begin % itemsize or end % itemsize:
        raise _refused(f"a piece restores bytes that {entry.name} has not, or twice", piece.begin)
    if piece.size > piece.raw + HEADER_BYTES:
        raise _refused(f"a piece of {entry.name} is larger than its raw bytes", piece.size)
    return end


def _refused(what: str, value: object) -> RefusedWeights:
    return RefusedWeights(what, value=value, fix="publish the version again, the bucket is damaged")
