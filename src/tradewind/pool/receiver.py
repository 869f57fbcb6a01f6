"""The receiver: keeps the engine at the newest version that passes every check.

    boot     wait for version 0 ─► same base? ─► engine starts ─► newest version ─► proof ─► serve
    follow   newest? ─► stage (the old version serves) ─► swap ─► proof ─► commit, attest
                 ├── refused before the swap: the old version goes on, retry later
                 ├── no proof: the old version is put back and proven, quarantine, retry later
                 └── no proof for two versions in a row: rebuild mirror and engine from the base
    pinned   an older or newer version, out of the undo log or through the bucket; proven like any

The proof (`proof.py`) is taken from the engine: the digests of the tensors that it serves must give
the state id, and its logprobs of the version's probes must be the trainer's. Between swap and proof
the engine decodes already, and what it samples there stays in the gate (`gate.py`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from tradewind.pool.config import PoolConfig
from tradewind.pool.engine import Bits, PutBack
from tradewind.pool.failures import Failures
from tradewind.pool.gate import Gate
from tradewind.pool.proof import FailedProof, Proof, Prover
from tradewind.pool.status import PoolStatus
from tradewind.types import (
    Attestation,
    PoolState,
    RefusedWeights,
    Stalled,
    TradewindError,
    UserError,
)
from tradewind.weights.bucket import NotInBucket, Source
from tradewind.weights.chain import read_base
from tradewind.weights.follow import Follower, Staged
from tradewind.weights.hostmirror import HostMirror
from tradewind.weights.manifest import Manifest
from tradewind.weights.state import State

log = logging.getLogger(__name__)


class EngineLost(TradewindError):
    """The engine died or holds weights that nobody published; only a new process helps."""


class Receiver:
    """Owns the mirror and the engine's weights; runs in one thread.

    `read_base` reads and hashes the base checkpoint: at boot, and when everything else has to be
    made anew from it.
    """

    def __init__(
        self,
        engine: Gate,
        bucket: Source,
        status: PoolStatus,
        config: PoolConfig,
        read_base: Callable[[], State],
    ) -> None:
        self._engine, self._bucket, self._status = engine, bucket, status
        self._config, self._read_base = config, read_base
        self._prover = Prover(engine)
        self._follower: Follower | None = None
        self._base_manifest: Manifest | None = None
        self._failures = Failures(config)

    def run(self, stop: threading.Event) -> None:
        """Boots, then follows until `stop`. Raises UserError if the pool cannot serve this run and
        EngineLost if it must be started again.
        """
        self.boot(stop)
        while not stop.is_set():
            self.follow()
            stop.wait(self._config.poll_s)

    def boot(self, stop: threading.Event) -> None:
        """Checks the base and starts the engine; `follow` makes it serve.

        Raises UserError for another base model, or if version 0 does not come, or the bucket cannot
        be reached, in time.
        """
        manifest = self._await_base(stop)
        if manifest is None:
            return
        base = replace(self._read_base(), probes=manifest.probes)
        _check_base(base, manifest)
        self._base_manifest = manifest
        self._follower = Follower(self._bucket, base, run_id=manifest.run_id)
        self._follower.log.keep = self._config.undo_versions
        self._follower.read_base = lambda: self._read_base().tensors
        if self._config.mirror is not None:
            self._follower.host = HostMirror(self._config.mirror, manifest.run_id)
        self._engine.start()

    def follow(self) -> None:
        """One look at the bucket: activates the newest version, or says why it does not."""
        follower = self._follower
        if follower is None:
            return
        if (error := self._engine.load().error) is not None:
            raise EngineLost(error)
        target: int | None = None
        pinned = self._status.pinned
        source = "bucket" if pinned is None else "pinned version"
        try:
            target = follower.newest() if pinned is None else pinned
            if target is not None and self._due(target, follower):
                self._activate(target, follower)
                self._failures.clear()
            elif target == follower.version:
                self._status.settles()
            self._status.trouble(source, None)
        except FailedProof as error:
            assert target is not None, "only a version can fail"
            self._quarantine(target, str(error), follower)
        except RefusedWeights as error:
            assert target is not None, "only a version can be refused"
            self._refuse(target, str(error) + self._mend(follower))
        except Stalled as error:
            raise EngineLost(str(error)) from error
        except (UserError, NotInBucket) as error:
            self._status.trouble(source, str(error))
        self._status.trouble("relay", self._bucket.trouble)

    def _await_base(self, stop: threading.Event) -> Manifest | None:
        """Version 0 of the run; None if the pool is stopped first."""
        deadline = time.monotonic() + self._config.base_wait_s
        while not stop.is_set():
            try:
                return read_base(self._bucket, run_id=self._config.run_id)
            except RefusedWeights:
                raise
            except NotInBucket:
                failure = UserError(
                    f"no base version appeared within {self._config.base_wait_s:.0f} s",
                    value=self._bucket.url,
                    fix="start the run first, and give the pool the bucket of the run",
                )
                self._status.waits("waits for version 0 in the bucket (owner: trainer)")
            except UserError as error:  # out of reach: it may be back soon
                failure = error
                self._status.waits(f"waits for the bucket: {error}")
            if time.monotonic() > deadline:
                raise failure
            stop.wait(self._config.poll_s)
        return None

    def _due(self, target: int, follower: Follower) -> bool:
        if not self._failures.due(target):
            return False
        if self._status.state is PoolState.STARTING:
            return True
        newer_only = self._status.pinned is None
        return target > follower.version if newer_only else target != follower.version

    def _activate(self, version: int, follower: Follower) -> None:
        """Stage, swap, prove, commit, attest. The mirror moves only after the proof."""
        staged, pause_s = None, 0.0
        if version == follower.version:
            proof = self._prover.prove(follower.state)
        else:
            staged = self._stage(version, follower)
            pause_s, proof = self._swap(staged, follower)
            follower.commit(staged)
        held_s = self._engine.opened()
        self._attest(follower.state, staged, pause_s, held_s, proof)

    def _stage(self, version: int, follower: Follower) -> Staged:
        """Out of the undo log; else through the bucket, from the mirror or, backwards, the base."""
        try:
            if (staged := follower.recall(version)) is not None:
                return staged
        except RefusedWeights as error:
            log.warning("%s", error)
            follower.log.clear()
        if version > follower.version:
            return follower.stage(version)
        return follower.rebuild(self._base(), version)

    def _base(self) -> State:
        assert self._base_manifest is not None, "nothing is staged before boot"
        return replace(self._read_base(), probes=self._base_manifest.probes)

    def _attest(
        self, state: State, staged: Staged | None, pause_s: float, held_s: float, proof: Proof
    ) -> None:
        attestation = Attestation(
            pool=self._status.pool,
            version=state.version,
            state_id=state.state_id,
            bytes_fetched=staged.bytes_fetched if staged else 0,
            stage_s=staged.stage_s if staged else 0.0,
            pause_ms=1000 * pause_s,
            activated_at=time.time(),
            probe_mean=proof.mean,
            probe_max=proof.largest,
        )
        fingerprint, proof_ms = self._prover.fingerprint, 1000 * held_s
        self._status.serves(attestation, str(proof), fingerprint, proof_ms)
        log.info(
            "version %d serves: %s, %d bytes staged in %.2f s, paused %.1f ms, proven %.0f ms "
            "after the swap began by %s",
            state.version,
            state.state_id[:15],
            attestation.bytes_fetched,
            attestation.stage_s,
            attestation.pause_ms,
            proof_ms,
            proof,
        )

    def _swap(self, staged: Staged, follower: Follower) -> tuple[float, Proof]:
        """Seconds for which decoding stood still, and the proof. Raises RefusedWeights with the old
        version in the engine, proven.
        """
        try:
            pause_s = self._give(staged.changed, staged.version)
            return pause_s, self._prover.prove(staged.state)
        except (FailedProof, PutBack) as failed:
            self._engine.withdrawn(f"version {staged.version} was taken back: {failed}")
            old = {name: staged.parent.tensors[name] for name in staged.changed}
            try:
                self._give(old, staged.parent.version)
                self._prover.prove(staged.parent)
            except RefusedWeights as error:
                self._rescue(follower, f"{failed} The old version could not be put back: {error}")
            self._engine.opened()
            raise

    def _give(self, tensors: Bits, version: int, afresh: bool = False) -> float:
        """`Engine.swap`; what the engine cannot take is refused, and the gate is as before."""
        try:
            return self._engine.swap(tensors, version, afresh)
        except RefusedWeights:
            raise
        except UserError as error:
            raise RefusedWeights(
                f"the engine: {error.what}", value=error.value, fix=error.fix
            ) from error

    def _quarantine(self, version: int, sentence: str, follower: Follower) -> None:
        """The old version serves and is proven; it is rebuilt if the fault seems to be ours.

        A rebuild that did not help is not repeated: then it is the version that is wrong.
        """
        self._status.quarantines(version, sentence)
        self._failures.failed(version)
        if self._failures.ours and not self._failures.rebuilt:
            try:
                self._rebuild(follower)
                sentence += f" This pool has rebuilt version {follower.version} from its base."
            except (UserError, NotInBucket) as error:
                sentence += f" A rebuild from the base is not possible now: {error}"
        self._refuse(version, sentence)

    def _mend(self, follower: Follower) -> str:
        """A version may be refused because our own mirror is damaged; says what was done then."""
        if follower.intact():
            return ""
        try:
            self._rebuild(follower)
        except (UserError, NotInBucket) as error:
            return f" The mirror is damaged, and cannot be rebuilt now: {error}"
        return f" The mirror was damaged: version {follower.version} was rebuilt from the base."

    def _rescue(self, follower: Follower, why: str) -> None:
        """The engine holds what nobody published: rebuild it, or give it up."""
        if self._failures.rebuilt:
            raise EngineLost(f"{why} The engine had been rebuilt from the base before")
        log.warning("%s", why)
        try:
            self._rebuild(follower)
        except (UserError, NotInBucket) as error:
            raise EngineLost(f"{why} A rebuild from the base is not possible: {error}") from error

    def _rebuild(self, follower: Follower) -> None:
        """Mirror and engine at the follower's version, from the base folder and the bucket alone.

        All of it is verified before the engine gets any; until then it raises as `rebuild` does.
        Raises EngineLost if the engine does not serve what it was given.
        """
        staged = follower.rebuild(self._base(), follower.version)
        try:
            self._give(staged.changed, staged.version, afresh=True)
            self._prover.prove(staged.state)
        except RefusedWeights as error:
            raise EngineLost(f"an engine rebuilt from the base fails its proof: {error}") from error
        self._engine.opened()
        follower.reseed(staged)
        self._failures.healed()
        self._status.rebuilt()
        log.warning("version %d was rebuilt from the base and proven", follower.version)

    def _refuse(self, version: int, sentence: str) -> None:
        if self._failures.refused(version):
            log.warning("version %d is refused: %s", version, sentence)
        self._bucket.doubt(sentence)
        self._status.refuses(sentence)


def _check_base(mine: State, base: Manifest) -> None:
    """Raises UserError unless the folder holds the run's base model."""
    if mine.state_id == base.state_id:
        return
    theirs = {entry.name: entry.leaf for entry in base.tensors}
    odd = sorted(
        n for n in mine.leaves.keys() | theirs.keys() if mine.leaves.get(n) != theirs.get(n)
    )
    raise UserError(
        f"this pool has another base model than the run {base.run_id!r}: {len(odd)} tensors "
        f"differ, first {odd[0]}",
        value=mine.state_id,
        fix="give the pool the checkpoint with which the run was started",
    )
