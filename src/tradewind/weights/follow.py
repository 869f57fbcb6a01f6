"""Following the weight stream: stage beside what is served, verify all of it, then commit.

    newest ──► stage: pointer ─► cheapest way from our state or the base ─► every frame, verified
                      ─► decode into a shadow ─► every tensor's digest ─► every state id
           ──► commit: the shadow becomes the mirror          (roll_back: the other way round)

The mirror is this side's copy of the policy, in checkpoint names. `stage` never touches it: a
refusal at any point leaves it as it was (promise W2). Several missed versions are one staging.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from tradewind.weights.bucket import Bucket
from tradewind.weights.chain import newest_version
from tradewind.weights.staging import Meter, ReadBase, Staging
from tradewind.weights.state import State
from tradewind.weights.tensors import Array, TensorSet


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

    `mirror` holds the tensors of `version` (0: the base checkpoint). `base_state_id` is needed
    only if `version` is not 0. `threads` decode and hash at the same time.
    """

    def __init__(
        self,
        bucket: Bucket,
        mirror: Mapping[str, Array],
        version: int = 0,
        *,
        run_id: str,
        base_state_id: str | None = None,
        threads: int = 1,
    ) -> None:
        assert version == 0 or base_state_id, "a mirror that is not the base must name its base"
        self._bucket = bucket
        self._run_id = run_id
        self._threads = threads
        self._state = State.of(version, mirror, threads=threads)
        self._previous: State | None = None
        self._announced: int | None = None
        self.base_state_id = base_state_id or self._state.state_id
        self.read_base: ReadBase | None = None
        """Reads the base checkpoint again: a late receiver can come from there, too."""

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

    def newest(self) -> int | None:
        """The highest announced version; None before the base is announced."""
        self._announced = newest_version(self._bucket, known=self._announced)
        return self._announced

    def stage(self, version: int) -> Staged:
        """Fetches, verifies and decodes `version`, which must be later than the mirror's.

        Raises RefusedWeights, and leaves the mirror as it is, for anything that does not check;
        UserError if the bucket cannot be reached; NotInBucket if `version` is not announced.
        """
        assert version > self.version, f"version {version} is not after {self.version}"
        started = time.monotonic()
        staging = Staging(
            Meter(self._bucket),
            self._state,
            self._run_id,
            self.base_state_id,
            self.read_base,
            self._threads,
        )
        state = staging.reach(version)
        return Staged(
            parent=self._state,
            state=state,
            changed={
                name: state.tensors[name]
                for name, leaf in state.leaves.items()
                if leaf != self._state.leaves.get(name)
            },
            bytes_fetched=staging.bucket.size,
            objects=staging.objects,
            detours=tuple(staging.detours),
            stage_s=time.monotonic() - started,
        )

    def commit(self, staged: Staged) -> None:
        """The staged version becomes the mirror; what it replaces is kept for `roll_back`."""
        assert staged.parent is self._state, "staged from another state than the mirror's"
        self._previous, self._state = self._state, staged.state

    def roll_back(self) -> dict[str, Array]:
        """Goes back to the state before the last `commit`; returns the tensors that differ.

        Possible once after each commit; asserts otherwise.
        """
        assert self._previous is not None, "there is no version to go back to"
        undone, self._state, self._previous = self._state, self._previous, None
        return {
            name: self._state.tensors[name]
            for name, leaf in self._state.leaves.items()
            if undone.leaves[name] != leaf
        }
