"""Reading the chain of versions from a bucket. Nothing that is read is believed unchecked."""

from __future__ import annotations

from tradewind.types.errors import RefusedWeights
from tradewind.weights import pointer
from tradewind.weights.bucket import NotInBucket, Objects, TooLarge
from tradewind.weights.digest import digest_bytes
from tradewind.weights.manifest import (
    MAX_MANIFEST,
    Frame,
    Manifest,
    ManifestRef,
    pointer_key,
    unpack,
)


def newest_version(bucket: Objects, *, known: int | None = None) -> int | None:
    """The highest announced version; None before the base is announced.

    `known` is a version that is known to be announced: only later ones are listed.
    """
    after = None if known is None else pointer_key(known)
    versions = [pointer.number_of(key, "latest/") for key in bucket.list("latest/", after=after)]
    return max((v for v in versions if v is not None), default=known)


def read_pointer(bucket: Objects, version: int) -> ManifestRef:
    """What `latest/<version>` names. Raises NotInBucket before it is announced."""
    key = pointer_key(version)
    ref = pointer.read(bucket, key).ref
    if not ref.key.startswith(f"manifests/{version:08d}-"):
        raise _damaged(f"pointer {key} names a manifest of another version", ref.key)
    return ref


def read_base(bucket: Objects, *, run_id: str | None) -> Manifest:
    """The manifest of version 0. Raises NotInBucket before it is announced."""
    return read_manifest(bucket, read_pointer(bucket, 0), run_id=run_id)


def read_manifest(bucket: Objects, ref: ManifestRef, *, run_id: str | None) -> Manifest:
    """The manifest that `ref` names: its digest, form, name and run (None: any) are checked."""
    data = unpack(get_object(bucket, ref.key, MAX_MANIFEST))
    if digest_bytes(data) != ref.digest:
        raise _damaged("a manifest does not have the digest by which it is named", ref.key)
    manifest = Manifest.parse(data)
    if manifest.key != ref.key:
        raise _damaged(f"manifest {manifest.key} stands under another name", ref.key)
    if run_id is not None and manifest.run_id != run_id:
        raise RefusedWeights(
            f"a manifest belongs to another run, this one is {run_id!r}",
            value=manifest.run_id,
            fix="give the run id and the bucket of the same run",
        )
    return manifest


def read_frame(bucket: Objects, frame: Frame) -> bytes:
    """The frame's bytes: exactly its size and digest."""
    data = get_object(bucket, frame.key, frame.size)
    if len(data) != frame.size:
        raise _damaged(f"a frame is cut off at byte {len(data)} of {frame.size}", frame.key)
    if digest_bytes(data) != frame.digest:
        raise _damaged("a frame does not have the digest by which it is named", frame.key)
    return data


def get_object(bucket: Objects, key: str, limit: int) -> bytes:
    """An object that a version needs. Raises RefusedWeights if it is missing or too large."""
    try:
        return bucket.get(key, limit=limit)
    except NotInBucket as error:
        raise _damaged("an object that a version needs is missing", key) from error
    except TooLarge as error:
        raise _damaged("an object is larger than its version says", key) from error


def _damaged(what: str, key: str) -> RefusedWeights:
    return RefusedWeights(what, value=key, fix="restore the object or publish a new version")
