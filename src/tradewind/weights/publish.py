"""Publishing a version.

    old, new ──► digests ──► pieces ──► frames/<digest>  ─┐   all of it durable
                                        manifests/<v>-<id> ┘   before
                                        latest/<v>             is created

`publish` uploads, `announce` creates the pointer; the trainer commits to its ledger in between.
Every write is create-only and named by content or version, so after a crash anywhere both calls
are made again with the same arguments and end in the same place.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from tradewind.types.errors import Conflict, UserError
from tradewind.types.weights import WeightVersion
from tradewind.weights.bucket import Bucket, NotInBucket
from tradewind.weights.chain import newest_version, read_frame, read_manifest, read_pointer
from tradewind.weights.codec import PIECE_BYTES
from tradewind.weights.digest import Leaf, digest_bytes, root
from tradewind.weights.manifest import (
    MAX_MANIFEST,
    Manifest,
    ManifestRef,
    manifest_key,
    pointer_key,
    unpack,
)
from tradewind.weights.probe import Probe
from tradewind.weights.signing import Signer, pointer_to
from tradewind.weights.state import State
from tradewind.weights.tensors import Array, TensorSet
from tradewind.weights.upload import Uploaded, changes_of, entry_of, upload


class Publisher:
    """Writes the versions of one run. `threads` code and hash at the same time; pointers are signed
    if there is a `signer`.
    """

    def __init__(
        self,
        bucket: Bucket,
        run_id: str,
        *,
        threads: int = 2,
        piece_bytes: int = PIECE_BYTES,
        signer: Signer | None = None,
    ) -> None:
        self._bucket = bucket
        self._signer = signer
        self._run_id = run_id
        self._threads = threads
        self._piece_bytes = piece_bytes

    def publish(
        self,
        version: int,
        parent: WeightVersion | None,
        old: Mapping[str, Array],
        new: Mapping[str, Array],
        stage: str,
        *,
        step: int = 0,
        probes: tuple[Probe, ...] = (),
    ) -> WeightVersion:
        """Uploads `new` as `version`, a delta to `old`, the tensors of `parent`; announces nothing.

        Version 0 has no parent, and `old` is not looked at. `probes` are what the publisher
        computes with `new`. Idempotent: the probes of the first attempt stand. Raises UserError if
        `old` is not what `parent` published or names, shapes or dtypes differ, and Conflict if
        `version` is not the one after `parent` or the bucket belongs to another run.
        """
        after = State.of(version, TensorSet.of(new), threads=self._threads, probes=probes)
        if parent is None:
            if version != 0:
                raise Conflict(f"version {version} has no parent, only version 0 is the base")
            return self._put_manifest(self._base(after, stage))
        if version != parent.version + 1:
            raise Conflict(f"version {version} cannot follow version {parent.version}")
        before = State.of(parent.version, TensorSet.of(old), threads=self._threads)
        _check_fit(before.leaves, after.leaves, parent)
        delta = upload(
            self._bucket,
            changes_of(before, after),
            threads=self._threads,
            piece_bytes=self._piece_bytes,
        )
        return self.seal(parent, before.leaves, after.leaves, delta, stage, step, probes)

    def seal(
        self,
        parent: WeightVersion,
        before: Mapping[str, Leaf],
        after: Mapping[str, Leaf],
        delta: Uploaded,
        stage: str,
        step: int,
        probes: tuple[Probe, ...],
    ) -> WeightVersion:
        """Names an uploaded delta as the version after `parent`; like `publish` in all else.

        `before` and `after` are the leaves of all tensors of both versions.
        """
        _check_fit(before, after, parent)
        state = root(after)
        previous = self._ref_of(parent)
        base = read_manifest(self._bucket, previous, run_id=self._run_id).base_state_id
        manifest = Manifest(
            run_id=self._run_id,
            version=parent.version + 1,
            stage=stage,
            step=step,
            parent_state_id=parent.state_id,
            state_id=state,
            base_state_id=base,
            previous=previous,
            tensors=delta.entries(after),
            frames=delta.frames,
            bytes_full=sum(entry_of(name, leaf).nbytes for name, leaf in after.items()),
            created_at=time.time(),
            probes=probes,
        )
        return self._put_manifest(manifest)

    def announce(self, version: WeightVersion) -> None:
        """Creates `latest/<version>`: from then on pools go to it. Idempotent.

        Raises Conflict if another trainer announced a different state under this number, or if
        the parent is not announced.
        """
        ref = self._ref_of(version)
        manifest = read_manifest(self._bucket, ref, run_id=self._run_id)
        if manifest.previous and self._pointer(version.version - 1) != manifest.previous:
            raise Conflict(f"version {version.version} does not follow an announced parent")
        try:
            name = pointer_key(version.version)
            self._bucket.put_new(name, pointer_to(name, ref, self._signer).to_bytes())
        except Conflict:
            held = read_pointer(self._bucket, version.version)
            if held != ref:
                raise Conflict(
                    f"version {version.version} is already announced as {held.key}, "
                    f"another trainer writes to {self._bucket.url}"
                ) from None

    def history(self) -> list[WeightVersion]:
        """All announced versions, from 0 on.

        Raises Conflict if one is missing or does not follow the one before it, RefusedWeights if
        a manifest is damaged.
        """
        newest = newest_version(self._bucket)
        found: list[WeightVersion] = []
        previous: ManifestRef | None = None
        for number in range(0 if newest is None else newest + 1):
            ref = self._pointer(number)
            if ref is None:
                raise Conflict(f"the history has {newest} but not {number} in {self._bucket.url}")
            manifest = read_manifest(self._bucket, ref, run_id=self._run_id)
            if manifest.previous != previous:
                raise Conflict(f"{ref.key} does not follow {previous and previous.key}")
            found.append(manifest.weight_version())
            previous = ref
        return found

    def _base(self, state: State, stage: str) -> Manifest:
        return Manifest(
            run_id=self._run_id,
            version=0,
            stage=stage,
            step=0,
            parent_state_id=None,
            state_id=state.state_id,
            base_state_id=state.state_id,
            previous=None,
            tensors=tuple(entry_of(name, state.leaves[name]) for name in sorted(state.leaves)),
            frames=(),
            bytes_full=state.tensors.nbytes,
            created_at=time.time(),
            probes=state.probes,
        )

    def _put_manifest(self, manifest: Manifest) -> WeightVersion:
        try:
            self._bucket.put_new(manifest.key, manifest.packed())
        except Conflict:
            # an earlier attempt uploaded it with another time, or another trainer did
            held = Manifest.parse(unpack(self._bucket.get(manifest.key, limit=MAX_MANIFEST)))
            if not _same_version(held, manifest):
                raise Conflict(
                    f"{manifest.key} in {self._bucket.url} was written by run {held.run_id!r} "
                    f"with other content"
                ) from None
            for frame in held.frames:
                read_frame(self._bucket, frame)
            manifest = held
        return manifest.weight_version()

    def _ref_of(self, version: WeightVersion) -> ManifestRef:
        try:
            data = self._bucket.get(version.manifest, limit=MAX_MANIFEST)
        except NotInBucket as error:
            raise UserError(
                f"the manifest of version {version.version} is not in the bucket",
                value=version.manifest,
                fix="use the bucket with which the run was started",
            ) from error
        expected = manifest_key(version.version, version.state_id)
        if version.manifest != expected:
            raise Conflict(f"version {version.version} is {expected}, not {version.manifest}")
        return ManifestRef(key=version.manifest, digest=digest_bytes(unpack(data)))

    def _pointer(self, version: int) -> ManifestRef | None:
        try:
            return read_pointer(self._bucket, version)
        except NotInBucket:
            return None


def _same_version(held: Manifest, ours: Manifest) -> bool:
    """Equal but for the time, for how the delta was coded, which a new release may change, and for
    the last digits of the probes, which depend on the machine.
    """
    free = ("created_at", "tensors", "frames", "probes")
    return held == ours.model_copy(update={name: getattr(held, name) for name in free})


def _check_fit(
    before: Mapping[str, Leaf], after: Mapping[str, Leaf], parent: WeightVersion
) -> None:
    if root(before) != parent.state_id:
        raise UserError(
            f"the weights before the step are not those of version {parent.version}",
            value=root(before),
            fix=f"resume from the checkpoint of version {parent.version} ({parent.state_id})",
        )
    kinds = [
        {name: (leaf.dtype, leaf.shape) for name, leaf in leaves.items()}
        for leaves in (before, after)
    ]
    if kinds[0] != kinds[1]:
        odd = sorted(name for name, _ in kinds[0].items() ^ kinds[1].items())
        raise UserError(
            "names, shapes or dtypes of the weights changed between two versions",
            value=odd[:5],
            fix="publish the tensors under the names of the base checkpoint",
        )
