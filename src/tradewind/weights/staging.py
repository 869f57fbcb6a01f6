"""One staging: on the cheapest way to a version, and on another one if that is blocked.

    pointer, manifest of the goal ─► which hops are there? ─► cheapest way ─► every frame, verified
              ▲                                                    │ ─► decode ─► every state id
              └──────────── without the hop that failed ◄──────────┘

A shortcut that is missing or damaged, a single whose frames were collected, a base folder that
changed: each only takes a hop out of the map. The staging fails if no way is left, with the reason
why the last one was blocked. Wherever the way began, it ends in the state id of the goal's
manifest. A relay makes the one hop that is needed: then no other is looked for until it is blocked.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from tradewind.types.errors import RefusedWeights, UserError
from tradewind.weights.bucket import NotInBucket, Source
from tradewind.weights.chain import read_frame, read_manifest, read_pointer
from tradewind.weights.manifest import Delta, Manifest, ManifestRef
from tradewind.weights.route import Hop, Route, Trip
from tradewind.weights.shadow import Shadow, check_fit, refused
from tradewind.weights.shortcut import FOLDER, Shortcut, ends_of, read_shortcut
from tradewind.weights.state import State
from tradewind.weights.tensors import Array

log = logging.getLogger(__name__)

FETCHES = 4
"""Frames of a delta that are under way at a time: far away a round trip costs as much as bytes."""

ReadBase = Callable[[], Mapping[str, Array]]
"""Reads the base checkpoint again."""


class BlockedError(Exception):
    """A hop, or the base, that cannot be used; never leaves a staging."""

    def __init__(self, hop: Hop | None, refusal: RefusedWeights) -> None:
        super().__init__(str(refusal))
        self.hop, self.refusal = hop, refusal


@dataclass
class Meter:
    """Objects, and the bytes of what was read of them; pointers, of 100 bytes, are not counted."""

    bucket: Source
    size: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, key: str, *, limit: int) -> bytes:
        """See `Objects`; thread-safe."""
        data = self.bucket.get(key, limit=limit)
        if not key.startswith("latest/"):
            with self._lock:
                self.size += len(data)
        return data

    def list(self, prefix: str, *, after: str | None = None) -> list[str]:
        """See `Objects`."""
        return self.bucket.list(prefix, after=after)


@dataclass
class Staging:
    """Used once. `held` is what the pool holds; `read_base` is None if it cannot read the base."""

    bucket: Meter
    held: State
    run_id: str
    base_state_id: str
    read_base: ReadBase | None = None
    threads: int = 1
    pointer: ManifestRef | None = None
    """What the goal's pointer names, if it has been read."""
    objects: int = 0
    """Deltas of which frames were asked for."""
    detours: list[str] = field(default_factory=list)
    """Why ways were given up."""
    _manifests: dict[int, Manifest] = field(default_factory=dict)
    _shortcuts: dict[str, Shortcut] = field(default_factory=dict)

    def reach(self, version: int) -> State:
        """The state of `version`, proven; `held` is not written to.

        Raises RefusedWeights if no way leads there, NotInBucket if it is not announced, UserError
        if the bucket cannot be reached.
        """
        ref = self.pointer or read_pointer(self.bucket, version)
        goal = read_manifest(self.bucket, ref, run_id=self.run_id)
        self._manifests[version] = goal
        trip = Trip(self.held.version, version, self.read_base is not None)
        singles = trip.singles(sum(frame.size for frame in goal.frames))
        hops, mapped = self._first_look(trip, singles)
        while True:
            try:
                route = trip.cheapest(self._sized(trip, hops))
                assert route is not None, "a way that fails is the last one if there is no other"
                return replace(self._travel(route, goal), probes=goal.probes)
            except BlockedError as error:
                self.detours.append(str(error.refusal))
                if error.hop is None:
                    trip = Trip(trip.held, trip.goal, base=False)
                if not mapped:
                    hops, mapped = singles + self._listed(trip), True
                hops = [hop for hop in hops if _name(hop) != _name(error.hop)]
                if trip.cheapest(hops) is None:
                    raise error.refusal from None
                log.warning("on the way to version %d: %s", version, error.refusal)

    def _first_look(self, trip: Trip, singles: list[Hop]) -> tuple[list[Hop], bool]:
        """Hops to begin with, and whether they are all that there are."""
        if trip.goal - trip.held == 1:  # from one version to the next nothing beats the single
            return singles, False
        key = self.bucket.bucket.shortcut(trip.held, trip.goal)
        if key is not None and ends_of(key) == (trip.held, trip.goal):
            return [Hop(trip.held, trip.goal, 0, key)], False
        return singles + self._listed(trip), True

    def _listed(self, trip: Trip) -> list[Hop]:
        """The shortcuts that there are names of; their sizes are not known yet."""
        after = None if trip.base else f"{FOLDER}{trip.held + 1:08d}"
        found = []
        for key in self.bucket.list(FOLDER, after=after):
            ends = ends_of(key)
            if ends is not None and ends[0] < ends[1] <= trip.goal:
                found.append(Hop(ends[0], ends[1], 0, key))
        return found

    def _sized(self, trip: Trip, hops: list[Hop]) -> list[Hop]:
        """The singles, and those shortcuts that are worth reading, with their sizes."""
        worth = {hop.key for hop in trip.worth_reading(hops)}
        sized = [hop for hop in hops if hop.key is None]
        for hop in hops:
            if hop.key is not None and hop.key in worth:
                with _blocked(hop):
                    sized.append(replace(hop, size=self._shortcut(hop.key).size))
        return sized

    def _travel(self, route: Route, goal: Manifest) -> State:
        """Raises BlockedError before anything is decoded if anything that was read is wrong."""
        state = self._start(route[0])
        deltas = list(reversed([self._delta(hop) for hop in reversed(route)]))
        self._check_joints(state, route, deltas, goal)
        frames = []
        for hop, delta in zip(route, deltas, strict=True):
            self.objects += 1
            with _blocked(hop):
                frames.append(self._frames(delta))
        shadow = Shadow(state, self.threads)
        for hop, delta, data in zip(route, deltas, frames, strict=True):
            with _blocked(hop):
                shadow.apply(delta, data)
        return shadow.state

    def _frames(self, delta: Delta) -> list[bytes]:
        """All of them, verified; the first refusal calls off those that have not begun."""
        if len(delta.frames) < 2:
            return [read_frame(self.bucket, frame) for frame in delta.frames]
        with ThreadPoolExecutor(FETCHES) as pool:
            asked = [pool.submit(read_frame, self.bucket, frame) for frame in delta.frames]
            try:
                return [frame.result() for frame in asked]
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def _start(self, first: Hop) -> State:
        """The state from which a way begins: what is held, or the base, read again."""
        if first.start == self.held.version:
            return self.held
        assert self.read_base is not None and first.start == 0, "a way begins where a state is"
        try:
            base = State.of(0, self.read_base(), threads=self.threads)
        except UserError as error:
            raise BlockedError(
                None, refused(f"the base cannot be read again ({error.what})", error.value)
            ) from error
        if base.state_id != self.base_state_id:
            raise BlockedError(
                None, refused("the base checkpoint has changed since the start", base.state_id)
            )
        return base

    def _delta(self, hop: Hop) -> Delta:
        with _blocked(hop):
            return self._manifest(hop.end) if hop.key is None else self._shortcut(hop.key)

    def _manifest(self, version: int) -> Manifest:
        """By the reference of its successor if that has been read, else by its pointer."""
        if version not in self._manifests:
            later = self._manifests.get(version + 1)
            try:
                ref = later.previous if later else read_pointer(self.bucket, version)
            except NotInBucket as error:
                raise refused("the history has a hole", version) from error
            assert ref is not None, "only version 0 has no previous manifest"
            self._manifests[version] = read_manifest(self.bucket, ref, run_id=self.run_id)
        return self._manifests[version]

    def _shortcut(self, key: str) -> Shortcut:
        if key not in self._shortcuts:
            self._shortcuts[key] = read_shortcut(self.bucket, key, run_id=self.run_id)
        return self._shortcuts[key]

    def _check_joints(
        self, start: State, route: Route, deltas: list[Delta], goal: Manifest
    ) -> None:
        """Each delta applies to what the one before it leads to, the first one to `start`."""
        held = start.state_id
        for i, (hop, delta) in enumerate(zip(route, deltas, strict=True)):
            with _blocked(hop):
                if delta.parent_state_id != held:
                    what = (
                        f"does not follow version {hop.start}"
                        if i
                        else f"applies to another state than this pool holds, {held}"
                    )
                    raise refused(f"version {hop.end} {what}", delta.parent_state_id)
                if delta.base_state_id != self.base_state_id:
                    raise RefusedWeights(
                        f"version {hop.end} was trained from another base model than "
                        f"this pool's, {self.base_state_id}",
                        value=delta.base_state_id,
                        fix="start the pool with the run's base checkpoint",
                    )
                if hop is route[-1] and delta.state_id != goal.state_id:
                    raise refused(
                        f"a shortcut leads to another state than version {hop.end}", delta.state_id
                    )
                check_fit(delta, start)
            held = delta.state_id


@contextmanager
def _blocked(hop: Hop) -> Iterator[None]:
    """What is refused within blocks this hop."""
    try:
        yield
    except RefusedWeights as error:
        raise BlockedError(hop, error) from error


def _name(hop: Hop | None) -> tuple[int, str | None] | None:
    return None if hop is None else (hop.end, hop.key)
