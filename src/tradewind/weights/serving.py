"""The second pointer: which version users are served from.

    serving/00000000 ──► version 0      first promotion
    serving/00000001 ──► version 12     the newest number counts
    serving/00000002 ──► version 7      back to an older version: one more promotion

`latest` is what was trained, `serving` what somebody chose. Names are create-only as all others, so
the history of promotions stays, and of two promoters at the same time one is told that it lost.
"""

from __future__ import annotations

from tradewind.types.errors import Conflict, RefusedWeights, UserError
from tradewind.weights import pointer
from tradewind.weights.bucket import Bucket, NotInBucket, Objects
from tradewind.weights.chain import newest_version, read_pointer
from tradewind.weights.manifest import ManifestRef
from tradewind.weights.signing import Signer, pointer_to

FOLDER = "serving/"


def promote(bucket: Bucket, version: int, signer: Signer | None = None) -> int:
    """Makes `version` the one that users are served from; returns the number of the promotion.

    Idempotent: a version that is served already is not promoted again. Raises UserError if it is
    not announced, Conflict if another promoter chose another version at the same time.
    """
    ref = _announced(bucket, version)
    number = _newest(bucket)
    if number is not None and _read(bucket, number) == ref:
        return number
    number = 0 if number is None else number + 1
    try:
        name = promotion_key(number)
        bucket.put_new(name, pointer_to(name, ref, signer).to_bytes())
    except Conflict:
        held = _read(bucket, number)
        if held != ref:
            raise Conflict(
                f"version {version} was not promoted: another promoter chose {held.key} at the "
                f"same time, in {bucket.url}"
            ) from None
    return number


def serving_version(bucket: Objects) -> int | None:
    """The version that users are served from; None before the first promotion.

    Raises RefusedWeights if the pointer is damaged or names what is not announced.
    """
    number = _newest(bucket)
    if number is None:
        return None
    ref = _read(bucket, number)
    version = _version_of(ref)
    try:
        announced = read_pointer(bucket, version)
    except NotInBucket as error:
        raise _damaged("a promoted version is not announced", number) from error
    if announced != ref:
        raise _damaged(f"a promotion names another version {version} than is announced", number)
    return version


def promotion_key(number: int) -> str:
    """`serving/<number>`, 8 digits, so that names sort as numbers."""
    return f"{FOLDER}{number:08d}"


def _announced(bucket: Bucket, version: int) -> ManifestRef:
    try:
        return read_pointer(bucket, version)
    except NotInBucket as error:
        newest = newest_version(bucket)
        raise UserError(
            "a version that is not announced cannot be promoted",
            value=version,
            fix=f"promote one that is (the newest is {newest})",
        ) from error


def _newest(bucket: Objects) -> int | None:
    numbers = (pointer.number_of(key, FOLDER) for key in bucket.list(FOLDER))
    return max((number for number in numbers if number is not None), default=None)


def _read(bucket: Objects, number: int) -> ManifestRef:
    return pointer.read(bucket, promotion_key(number)).ref


def _version_of(ref: ManifestRef) -> int:
    digits = ref.key.removeprefix("manifests/")[:8]
    if not (ref.key.startswith("manifests/") and digits.isascii() and digits.isdigit()):
        raise RefusedWeights(
            "a promotion names no manifest", value=ref.key, fix="promote a version again"
        )
    return int(digits)


def _damaged(what: str, number: int) -> RefusedWeights:
    return RefusedWeights(what, value=promotion_key(number), fix="promote a version again")
