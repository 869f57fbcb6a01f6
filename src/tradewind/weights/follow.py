"""Following the weight stream: stage beside what is served, verify all of it, then commit.

    newest ──► stage: pointer ─► manifests back to our state ─► every frame, verified
                      ─► decode into a shadow ─► every tensor's digest ─► every state id
           ──► commit: the shadow becomes the mirror, what it replaces goes to the undo log
    recall ──► the same, out of the undo log: back or forward, without the network

The mirror is this side's copy of the policy, in checkpoint names. `stage` never touches it: a
refusal at any point leaves it as it was (promise W2). Several missed versions are one staging.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tradewind.types.errors import RefusedWeights
from tradewind.weights.bucket import Bucket
from tradewind.weights.chain import newest_version, read_frame, read_manifest, read_pointer
from tradewind.weights.codec import decode_piece
from tradewind.weights.digest import Leaf, leaves_of, tensor_digest
from tradewind.weights.manifest import Manifest, TensorEntry
from tradewind.weights.state import State
from tradewind.weights.tensors import Array, TensorSet
from tradewind.weights.undo import UndoLog, Walk


@dataclass(frozen=True, slots=True)
class Staged:
    """A verified version, decoded beside the mirror."""

    parent: State
    """The state it was decoded from."""
    state: State
    changed: dict[str, Array]
    """Tensors that differ from `parent`, whole."""
    bytes_fetched: int
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
        bucket: Bucket,
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
        self._announced: int | None = None
        self.base_state_id = base_state_id or self._state.state_id

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
        self._announced = newest_version(self._bucket, known=self._announced)
        return self._announced

    def stage(self, version: int) -> Staged:
        """Fetches, verifies and decodes `version`, which must be later than the mirror's.

        Raises RefusedWeights, and leaves the mirror as it is, for anything that does not check;
        UserError if the bucket cannot be reached; NotInBucket if `version` is not announced.
        """
        assert version > self.version, f"version {version} is not after {self.version}"
        started = time.monotonic()
        manifests = self._manifests_to(version)
        for manifest in manifests:
            _check_tensors(manifest, self._state)
        frames = [[read_frame(self._bucket, f) for f in m.frames] for m in manifests]
        state = self._state  # those between share the shadow's arrays; only the last is kept
        shadow: dict[str, Array] = {}
        for manifest, data in zip(manifests, frames, strict=True):
            leaves = self._decode(manifest, [memoryview(frame) for frame in data], shadow)
            arrays = {name: shadow[name] for name in leaves}
            state = state.changed(manifest.version, arrays, leaves, manifest.probes)
            if state.state_id != manifest.state_id:
                raise _refused(
                    f"version {manifest.version} decodes to another state than its manifest says",
                    state.state_id,
                )
        return Staged(
            parent=self._state,
            state=state,
            changed=shadow,
            bytes_fetched=sum(m.weight_version().bytes_shipped for m in manifests),
            stage_s=time.monotonic() - started,
        )

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
        return Staged(self._state, walk.state, walk.changed, 0, seconds, walk)

    def rebuild(self, base: State, version: int) -> Staged:
        """Stages any version, the mirror's own included, from `base` and the bucket alone.

        `changed` holds every tensor. Raises as `stage` does, and RefusedWeights for another base.
        """
        if base.state_id != self.base_state_id:
            raise _refused("the base checkpoint has changed since this pool began", base.state_id)
        started = time.monotonic()
        fresh = Follower(self._bucket, base, run_id=self._run_id, threads=self._threads)
        staged = fresh.stage(version) if version else None
        state = staged.state if staged else base
        fetched = staged.bytes_fetched if staged else 0
        seconds = time.monotonic() - started
        return Staged(self._state, state, dict(state.tensors), fetched, seconds)

    def reseed(self, staged: Staged) -> None:
        """As `commit` of a rebuilt state; trusts nothing of what was held before."""
        self.log.clear()
        self._state = staged.state

    def _manifests_to(self, version: int) -> list[Manifest]:
        """Manifests from the one that follows our state up to `version`."""
        ref = read_pointer(self._bucket, version)
        chain = [read_manifest(self._bucket, ref, run_id=self._run_id)]
        while chain[-1].version > self.version + 1:
            previous = chain[-1].previous
            assert previous is not None, "only version 0 has no previous manifest"
            chain.append(read_manifest(self._bucket, previous, run_id=self._run_id))
        chain.reverse()
        if chain[0].parent_state_id != self.state_id:
            raise _refused(
                f"version {chain[0].version} applies to another state than this pool holds, "
                f"{self.state_id}",
                chain[0].parent_state_id,
            )
        for earlier, later in pairwise(chain):
            if later.parent_state_id != earlier.state_id:
                raise _refused(
                    f"version {later.version} does not follow version {earlier.version}",
                    later.parent_state_id,
                )
        for manifest in chain:
            if manifest.base_state_id != self.base_state_id:
                raise RefusedWeights(
                    f"version {manifest.version} was trained from another base model than "
                    f"this pool's, {self.base_state_id}",
                    value=manifest.base_state_id,
                    fix="start the pool with the run's base checkpoint",
                )
        return chain

    def _decode(
        self, manifest: Manifest, frames: list[memoryview], shadow: dict[str, Array]
    ) -> dict[str, Leaf]:
        """Brings the shadow from the manifest's parent to its state; returns the new leaves."""

        def restore(entry: TensorEntry) -> Array:
            old = shadow.get(entry.name)
            source = self.mirror[entry.name] if old is None else old
            out = np.empty_like(source) if old is None else old
            before, after = source.reshape(-1), out.reshape(-1)
            items = manifest.piece_bytes // out.itemsize
            for i, piece in enumerate(entry.pieces):
                cut = slice(i * items, (i + 1) * items)
                coded = frames[piece.frame][piece.offset : piece.offset + piece.size]
                decode_piece(coded, before[cut], after[cut], entry.dtype)
            if tensor_digest(out) != entry.digest:
                raise _refused(f"version {manifest.version} decodes wrongly", entry.name)
            return out

        with ThreadPoolExecutor(self._threads) as pool:
            arrays = list(pool.map(restore, manifest.tensors))
        shadow.update({e.name: a for e, a in zip(manifest.tensors, arrays, strict=True)})
        return {entry.name: entry.leaf for entry in manifest.tensors}


def _check_tensors(manifest: Manifest, state: State) -> None:
    """Every tensor of the manifest is one of ours, with our dtype and shape."""
    for entry in manifest.tensors:
        ours = state.leaves.get(entry.name)
        if ours is None:
            raise _refused(f"version {manifest.version} has a tensor that we do not", entry.name)
        if (ours.dtype, ours.shape) != (entry.dtype, entry.shape):
            raise _refused(
                f"version {manifest.version} has {entry.name} as {entry.dtype} "
                f"{list(entry.shape)}, we hold {ours.dtype} {list(ours.shape)}",
                None,
            )


def _refused(what: str, value: object) -> RefusedWeights:
    return RefusedWeights(
        what, value=value, fix="publish the version again, or restart the pool with another folder"
    )
