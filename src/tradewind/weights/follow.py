"""Following the weight stream: stage beside what is served, verify all of it, then commit.

    newest ──► stage: pointer ─► cheapest way from our state or the base ─► every frame, verified
                      ─► decode into a shadow ─► every tensor's digest ─► every state id
           ──► commit: the shadow becomes the mirror, what it replaces goes to the undo log
    recall ──► the same, out of the undo log: back or forward, without the network

The mirror is this side's copy of the policy, in checkpoint names. `stage` never touches it: a
refusal at any point leaves it as it was (promise W2). Several missed versions are one staging.
On a host with several pools one of them stages and the others map what it decoded (`hostmirror`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tradewind.weights.announced import Announced
from tradewind.weights.bucket import Source
from tradewind.weights.chain import read_manifest, read_pointer
from tradewind.weights.digest import leaves_of
from tradewind.weights.hostmirror import HostMirror
from tradewind.weights.shadow import refused
from tradewind.weights.staging import Meter, ReadBase, Staging
from tradewind.weights.state import State
from tradewind.weights.tensors import Array, TensorSet
from tradewind.weights.undo import UndoLog, Walk


@dataclass(frozen=True, slots=True)
class Staged:
    """A verified version, decoded beside the mirror."""

    parent: State
    """The mirror before it."""
    state: State
    changed: dict[str, Array]
    """Tensors that differ from `parent`, whole."""
    bytes_fetched: int
    """Of manifests, shortcuts and frames, those of given up ways included."""
    objects: int
    """Deltas fetched: singles of the chain, and shortcuts."""
    detours: tuple[str, ...]
    """Why cheaper ways were given up, a sentence each."""
    stage_s: float
    walk: Walk | None = None
    """How it was reached if it came out of the undo log."""

    @property
    def version(self) -> int:
        """The staged version."""
        return self.state.version

    @property
    def state_id(self) -> str:
        """Computed over the decoded tensors, and equal to the manifest's."""
        return self.state.state_id


class Follower:
    """One receiver of one run's weights; used by one thread.

    `mirror` holds the tensors of `version` (0: the base checkpoint), or is a state that has been
    hashed already. `base_state_id` is needed only if `version` is not 0. `threads` decode and hash
    at the same time.
    """

    def __init__(
        self,
        bucket: Source,
        mirror: Mapping[str, Array] | State,
        version: int = 0,
        *,
        run_id: str,
        base_state_id: str | None = None,
        threads: int = 1,
    ) -> None:
        self._state = (
            mirror if isinstance(mirror, State) else State.of(version, mirror, threads=threads)
        )
        assert self.version == 0 or base_state_id, "a mirror that is not the base must name it"
        self._bucket = bucket
        self._run_id = run_id
        self._threads = threads
        self.log = UndoLog()
        """Versions that `recall` reaches."""
        self._announced = Announced(bucket)
        self.base_state_id = base_state_id or self._state.state_id
        self.read_base: ReadBase | None = None
        """Reads the base checkpoint again: a late receiver can come from there, too."""
        self.host: HostMirror | None = None
        """What is shared with other pools of this host."""

    @property
    def version(self) -> int:
        """The version that the mirror holds."""
        return self._state.version

    @property
    def state_id(self) -> str:
        """The state id of the mirror."""
        return self._state.state_id

    @property
    def state(self) -> State:
        """What the mirror holds, with its digests."""
        return self._state

    @property
    def mirror(self) -> TensorSet:
        """The tensors of `version`."""
        return self._state.tensors

    def intact(self) -> bool:
        """Whether the mirror still has the digests that it had; hashes all of it."""
        state = self._state
        now = leaves_of(state.tensors, threads=self._threads)
        return now == state.leaves

    def newest(self) -> int | None:
        """The highest announced version; None before the base is announced."""
        return self._announced.newest()

    def stage(self, version: int) -> Staged:
        """Fetches, verifies and decodes `version`, which must be later than the mirror's.

        Raises RefusedWeights, and leaves the mirror as it is, for anything that does not check;
        UserError if the bucket cannot be reached; NotInBucket if `version` is not announced.
        """
        assert version > self.version, f"version {version} is not after {self.version}"
        if self.host is None:
            return self._stage(version)
        with self.host.locked() as alone:
            if not alone:
                return self._stage(version)
            return self._map(version, self.host) or self._share(self._stage(version), self.host)

    def _stage(self, version: int) -> Staged:
        started = time.monotonic()
        staging = Staging(
            Meter(self._bucket),
            self._state,
            self._run_id,
            self.base_state_id,
            self.read_base,
            self._threads,
            self._announced.pointer(version),
        )
        state = staging.reach(version)
        return Staged(
            parent=self._state,
            state=state,
            changed=self._changed(state),
            bytes_fetched=staging.bucket.size,
            objects=staging.objects,
            detours=tuple(staging.detours),
            stage_s=time.monotonic() - started,
        )

    def _map(self, version: int, host: HostMirror) -> Staged | None:
        """What another pool decoded, if it has the state id of the manifest."""
        started = time.monotonic()
        tensors = host.find(version)
        if tensors is None:
            return None
        meter = Meter(self._bucket)
        goal = read_manifest(meter, read_pointer(meter, version), run_id=self._run_id)
        state = State.of(version, tensors, threads=self._threads, probes=goal.probes)
        if (state.state_id, self.base_state_id) != (goal.state_id, goal.base_state_id):
            host.drop(version, f"it holds {state.state_id}, not {goal.state_id}")
            return None
        seconds = time.monotonic() - started
        changed = self._changed(state)
        return Staged(self._state, state, changed, meter.size, 0, (), seconds)

    def _share(self, staged: Staged, host: HostMirror) -> Staged:
        """The same over mapped files."""
        started = time.monotonic()
        state = host.share(staged.state)
        seconds = staged.stage_s + time.monotonic() - started
        return replace(staged, state=state, changed=self._changed(state), stage_s=seconds)

    def _changed(self, state: State) -> dict[str, Array]:
        return {
            name: state.tensors[name]
            for name, leaf in state.leaves.items()
            if leaf != self._state.leaves.get(name)
        }

    def commit(self, staged: Staged) -> None:
        """The staged version becomes the mirror; the undo log keeps the way back."""
        assert staged.parent is self._state, "staged from another state than the mirror's"
        if staged.walk is not None:
            self.log.commit(staged.walk)
        else:
            self.log.record(staged.parent, staged.state)
        self._state = staged.state

    def recall(self, version: int) -> Staged | None:
        """Stages a version out of the undo log; None if the log does not reach it.

        Verified like any other. Raises RefusedWeights, and leaves the mirror as it is, if the log
        is damaged.
        """
        started = time.monotonic()
        walk = self.log.walk(self._state, version)
        if walk is None:
            return None
        seconds = time.monotonic() - started
        return Staged(
            parent=self._state,
            state=walk.state,
            changed=walk.changed,
            bytes_fetched=0,
            objects=0,
            detours=(),
            stage_s=seconds,
            walk=walk,
        )

    def rebuild(self, base: State, version: int) -> Staged:
        """Stages any version, the mirror's own included, from `base` and the bucket alone.

        `changed` holds every tensor. Raises as `stage` does, and RefusedWeights for another base.
        """
        if base.state_id != self.base_state_id:
            raise refused("the base checkpoint has changed since this pool began", base.state_id)
        started = time.monotonic()
        fresh = Follower(self._bucket, base, run_id=self._run_id, threads=self._threads)
        staged = fresh.stage(version) if version else None
        state = staged.state if staged else base
        return Staged(
            parent=self._state,
            state=state,
            changed=dict(state.tensors),
            bytes_fetched=staged.bytes_fetched if staged else 0,
            objects=staged.objects if staged else 0,
            detours=staged.detours if staged else (),
            stage_s=time.monotonic() - started,
        )

    def reseed(self, staged: Staged) -> None:
        """As `commit` of a rebuilt state; trusts nothing of what was held before."""
        self.log.clear()
        self._state = staged.state
