"""A shortcut: one delta that leads over many versions.

    0 ── 1 ── 2 ── 3 ── ... ── 16 ── 17 ── ... ── 23      manifests: the chain
    └──────────── anchor ──────┘└─── cumulative ──┘       shortcuts

It carries no proof and needs none: it leads to a version whose state id the chain's manifest names,
and what it decodes to must have that state id. Nor does anybody need it: whoever finds it missing
or damaged goes another way.
"""

from __future__ import annotations

import json
import re

from pydantic import ValidationError

from tradewind.types.errors import Conflict, RefusedWeights
from tradewind.types.record import Record
from tradewind.weights.bucket import Bucket, Objects
from tradewind.weights.chain import get_object
from tradewind.weights.manifest import (
    MAX_MANIFEST,
    Count,
    Frame,
    StateId,
    TensorEntry,
    canonical,
    check_layout,
    pack,
    unpack,
)
from tradewind.weights.state import State
from tradewind.weights.upload import changes_of, upload

FORMAT = "tradewind-shortcut/2"
FOLDER = "shortcuts/"
_NAME = re.compile(r"shortcuts/([0-9]{8})-([0-9]{8})-[0-9a-f]{16}\.json\.zst")


class Shortcut(Record):
    """Example: from version 16 to version 23 of run "desk"."""

    format: str = FORMAT
    run_id: str
    from_version: Count
    from_state_id: StateId
    """What it applies to."""
    version: Count
    """Where it leads."""
    state_id: StateId
    base_state_id: StateId
    tensors: tuple[TensorEntry, ...]
    """Those that differ between the two versions, sorted by name."""
    frames: tuple[Frame, ...]
    size: Count
    """Bytes of all frames."""

    @property
    def key(self) -> str:
        """Its name in the bucket."""
        return shortcut_key(self.from_version, self.version, self.state_id)

    @property
    def parent_state_id(self) -> str:
        """What it applies to, as a manifest calls it."""
        return self.from_state_id

    def to_bytes(self) -> bytes:
        """Canonical JSON."""
        return canonical(self)

    def packed(self) -> bytes:
        """As it lies in the bucket."""
        return pack(self.to_bytes())

    @classmethod
    def parse(cls, data: bytes) -> Shortcut:
        """Reads and checks a shortcut by itself. Raises RefusedWeights."""
        try:
            found = json.loads(data).get("format")
        except (ValueError, AttributeError, RecursionError) as error:
            raise _refused("a shortcut is not JSON", str(error)) from error
        if found != FORMAT:
            raise _refused(f"a shortcut has an unknown format, this pool reads {FORMAT}", found)
        try:
            shortcut = cls.model_validate_json(data)
        except ValidationError as error:
            first = error.errors()[0]
            raise _refused(f"a shortcut has a bad {first['loc']}", first["msg"]) from error
        if shortcut.to_bytes() != data:
            raise _refused("a shortcut is not in canonical form", shortcut.key)
        if shortcut.version <= shortcut.from_version:
            raise _refused("a shortcut does not lead to a later version", shortcut.key)
        if shortcut.size != sum(frame.size for frame in shortcut.frames):
            raise _refused("a shortcut gives its frames another size", shortcut.size)
        check_layout(shortcut)
        return shortcut


def shortcut_key(start: int, end: int, state_id: str) -> str:
    """`shortcuts/<end>-<start>-<first 16 hex digits of the state id at the end>.json.zst`, so that
    those that lead to a version are listed by its number.
    """
    return f"{FOLDER}{end:08d}-{start:08d}-{state_id.removeprefix('b3:')[:16]}.json.zst"


def ends_of(key: str) -> tuple[int, int] | None:
    """(start, end) of the shortcut that has this name; None if no shortcut can have it."""
    found = _NAME.fullmatch(key)
    return (int(found[2]), int(found[1])) if found else None


def read_shortcut(bucket: Objects, key: str, *, run_id: str | None) -> Shortcut:
    """The shortcut of this name: form, name and run (None: any) are checked.

    Raises RefusedWeights, and UserError if the bucket cannot be reached.
    """
    shortcut = Shortcut.parse(unpack(get_object(bucket, key, MAX_MANIFEST), "a shortcut"))
    if shortcut.key != key:
        raise _refused(f"shortcut {shortcut.key} stands under another name", key)
    if run_id is not None and shortcut.run_id != run_id:
        raise _refused(f"a shortcut belongs to another run, this one is {run_id!r}", key)
    return shortcut


def publish_shortcut(
    bucket: Bucket, run_id: str, base_state_id: str, start: State, end: State, *, threads: int = 1
) -> Shortcut | None:
    """Uploads the delta from `start` to `end`; its name is created when its frames are durable.

    Both must be announced versions. Idempotent; None if the shortcut is there already. Raises
    UserError if the bucket cannot be written.
    """
    key = shortcut_key(start.version, end.version, end.state_id)
    if bucket.exists(key):
        return None
    delta = upload(bucket, changes_of(start, end), threads=threads)
    shortcut = Shortcut(
        run_id=run_id,
        from_version=start.version,
        from_state_id=start.state_id,
        version=end.version,
        state_id=end.state_id,
        base_state_id=base_state_id,
        tensors=delta.entries(end.leaves),
        frames=delta.frames,
        size=delta.size,
    )
    try:
        bucket.put_new(key, shortcut.packed())
    except Conflict:
        return None  # another process was faster
    return shortcut


def _refused(what: str, value: object) -> RefusedWeights:
    return RefusedWeights(what, value=value, fix="remove the shortcut, the chain does without it")
