"""Garbage collection: which objects nobody can need any more.

    stays for ever        latest/, serving/, manifests/: small, and the history
    stays while needed    frames/, shortcuts/

Needed is, for a run whose newest version is L and whose users are served from S:

- every single after the version of a live pool, and every shortcut that starts there or later;
- the cheapest way from the base and from each live pool to L, to S, and to each of the newest
  `keep` versions, which somebody may be fetching or a trainer may go back to;
- the frames of manifests that are not announced yet: a trainer that starts again announces them.

An upload whose manifest is still to come looks like garbage, too. So nothing is deleted that was
not garbage in every collection of one process for a grace period, counted by that process's own
monotonic clock: neither the store's clock nor this machine's can make an object old by a jump, and
a process that starts again counts anew. Whoever needs longer than the grace from frame to manifest
may lose the frame, and then pools refuse that version with a sentence.

So a pool that nobody knows of, if it can read the base, reaches L as a fresh one does. One that
cannot is refused with a sentence if the singles that it misses are gone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from tradewind.types.errors import RefusedWeights
from tradewind.weights.bucket import Bucket, Listed
from tradewind.weights.chain import newest_version, read_pointer
from tradewind.weights.manifest import MAX_MANIFEST, Delta, Manifest, unpack
from tradewind.weights.route import Hop, Trip
from tradewind.weights.serving import serving_version
from tradewind.weights.shortcut import FOLDER, read_shortcut

log = logging.getLogger(__name__)

KEEP = 32
"""Newest versions that stay reachable: more than there are between two rungs of the ladder, or
between two checkpoints of a trainer."""
GRACE_S = 3600.0
"""For so many seconds garbage must have been garbage before it is deleted."""


@dataclass(frozen=True, slots=True)
class Garbage:
    """What nobody needs: names in the order of deletion, shortcuts before frames."""

    objects: tuple[Listed, ...]
    newest: int
    serving: int | None

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(item.size for item in self.objects)


def find_garbage(
    bucket: Bucket,
    run_id: str,
    live: Iterable[int],
    *,
    keep: int = KEEP,
) -> Garbage:
    """What nobody needs now; deletes nothing. `live` are the versions that pools report.

    Raises RefusedWeights if a manifest or pointer is damaged: then it is not known what is needed.
    """
    newest = newest_version(bucket)
    if newest is None:
        return Garbage((), 0, None)
    serving = serving_version(bucket)
    frames, records = bucket.objects("frames/"), bucket.objects(FOLDER)
    inventory = _Inventory.take(bucket, run_id, newest, records, {item.key for item in frames})
    goals = set(range(max(1, newest - keep + 1), newest + 1))
    goals |= {serving} if serving else set()
    needed = inventory.needed({version for version in live if version <= newest}, goals)
    unused = tuple(item for item in (*records, *frames) if item.key not in needed)
    return Garbage(unused, newest, serving)


class Collector:
    """Deletes the garbage of one run's bucket, in two collections at least. Used by one thread.

    `clock` never jumps: seconds, from anywhere.
    """

    def __init__(
        self,
        bucket: Bucket,
        run_id: str,
        *,
        keep: int = KEEP,
        grace_s: float = GRACE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bucket, self._run_id = bucket, run_id
        self._keep, self._grace_s, self._clock = keep, grace_s, clock
        self._since: dict[str, float] = {}
        """By name: since when it has been garbage."""

    def collect(self, live: Iterable[int]) -> Garbage:
        """Deletes what has been garbage for the grace period; returns that.

        Raises RefusedWeights, and deletes nothing, if something in the bucket is damaged.
        """
        garbage = find_garbage(self._bucket, self._run_id, live, keep=self._keep)
        now = self._clock()
        self._since = {item.key: self._since.get(item.key, now) for item in garbage.objects}
        due = tuple(i for i in garbage.objects if now - self._since[i.key] >= self._grace_s)
        for item in due:
            self._bucket.delete(item.key)
        deleted = replace(garbage, objects=due)
        log.info("%d objects, %d bytes deleted", len(due), deleted.size)
        return deleted


@dataclass(frozen=True)
class _Inventory:
    """The deltas of a bucket."""

    deltas: dict[Hop, Delta]
    """Those that can be fetched: an earlier collection may have taken the frames of others."""
    pending: tuple[Manifest, ...]
    """Later than the newest announced version."""

    @classmethod
    def take(
        cls, bucket: Bucket, run_id: str, newest: int, records: tuple[Listed, ...], frames: set[str]
    ) -> _Inventory:
        announced = {read_pointer(bucket, version).key for version in range(newest + 1)}
        deltas: dict[Hop, Delta] = {}
        pending: list[Manifest] = []
        for item in bucket.objects("manifests/"):
            manifest = Manifest.parse(unpack(bucket.get(item.key, limit=MAX_MANIFEST)))
            if manifest.version > newest:
                pending.append(manifest)
            elif manifest.version and item.key in announced:
                size = sum(frame.size for frame in manifest.frames)
                deltas[Hop(manifest.version - 1, manifest.version, size)] = manifest
        for item in records:
            try:
                found = read_shortcut(bucket, item.key, run_id=run_id)
            except RefusedWeights as error:
                log.warning("%s is of no use to anybody: %s", item.key, error)
            else:
                deltas[Hop(found.from_version, found.version, found.size, item.key)] = found
        whole = {
            hop: delta
            for hop, delta in deltas.items()
            if all(frame.key in frames for frame in delta.frames)
        }
        return cls(whole, tuple(pending))

    def needed(self, live: set[int], goals: set[int]) -> set[str]:
        """Names of the shortcuts and frames that stay."""
        hops = list(self.deltas)
        kept: set[Hop] = set()
        for goal in goals:
            for held in {0, *live}:
                if held < goal:
                    kept.update(Trip(held, goal, base=True).cheapest(hops) or ())
        oldest = min(live - {0}, default=None)
        if oldest is not None:
            kept.update(hop for hop in hops if hop.start >= oldest)
        frames = {frame.key for hop in kept for frame in self.deltas[hop].frames}
        frames |= {frame.key for manifest in self.pending for frame in manifest.frames}
        return frames | {hop.key for hop in kept if hop.key is not None}
