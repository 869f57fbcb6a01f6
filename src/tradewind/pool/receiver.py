"""The receiver: keeps the engine at the newest version that passes every check.

    boot     wait for version 0 ─► same base? ─► engine starts ─► newest version ─► proof ─► serve
    follow   newest? ─► stage (the old version serves) ─► swap ─► proof ─► commit, attest
                 └── refused: the old version goes on, the sentence is reported, retry later

The proof is taken from the engine: the digests of the tensors that it serves must give the state
id. If they do not, the engine is given its old tensors back before anything else happens.
"""

from __future__ import annotations

import logging
import threading
import time

from tradewind.pool.config import PoolConfig
from tradewind.pool.engine import Engine
from tradewind.pool.status import PoolStatus
from tradewind.types import (
    Attestation,
    PoolState,
    RefusedWeights,
    Stalled,
    TradewindError,
    UserError,
)
from tradewind.weights.bucket import Bucket, NotInBucket
from tradewind.weights.chain import read_base
from tradewind.weights.digest import leaves_of, root
from tradewind.weights.follow import Follower, Staged
from tradewind.weights.manifest import Manifest
from tradewind.weights.state import State
from tradewind.weights.tensors import TensorSet

log = logging.getLogger(__name__)


class EngineLost(TradewindError):
    """The engine died or holds weights that nobody published; only a new process helps."""


class Receiver:
    """Owns the mirror and the engine's weights; runs in one thread."""

    def __init__(
        self,
        engine: Engine,
        bucket: Bucket,
        status: PoolStatus,
        config: PoolConfig,
        base: State,
    ) -> None:
        self._engine, self._bucket, self._status = engine, bucket, status
        self._config, self._base = config, base
        self._follower: Follower | None = None
        self._refused: int | None = None
        self._retry_at = 0.0
        self._retry_s = config.retry_s

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

        Raises UserError for another base model or if version 0 does not come in time.
        """
        base = self._await_base(stop)
        if base is None:
            return
        _check_base(self._base, base)
        self._follower = Follower(self._bucket, self._base.tensors, run_id=base.run_id)
        self._follower.read_base = lambda: self._base.tensors  # mapped files, so read again
        self._engine.start()

    def follow(self) -> None:
        """One look at the bucket: activates the newest version, or says why it does not."""
        follower = self._follower
        if follower is None:
            return
        if (error := self._engine.load().error) is not None:
            raise EngineLost(error)
        newest: int | None = None
        try:
            newest = follower.newest()
            if newest is not None and self._due(newest, follower):
                self._activate(newest, follower)
                self._refused, self._retry_s = None, self._config.retry_s
            self._status.trouble("bucket", None)
        except RefusedWeights as error:
            assert newest is not None, "only a version can be refused"
            self._refuse(newest, str(error))
        except (UserError, NotInBucket) as error:
            self._status.trouble("bucket", str(error))

    def _await_base(self, stop: threading.Event) -> Manifest | None:
        """Version 0 of the run; None if the pool is stopped first."""
        deadline = time.monotonic() + self._config.base_wait_s
        self._status.waits("waits for version 0 in the bucket (owner: trainer)")
        while not stop.is_set():
            try:
                return read_base(self._bucket, run_id=self._config.run_id)
            except NotInBucket:
                if time.monotonic() > deadline:
                    raise UserError(
                        f"no base version appeared within {self._config.base_wait_s:.0f} s",
                        value=self._bucket.url,
                        fix="start the run first, and give the pool the bucket of the run",
                    ) from None
            stop.wait(self._config.poll_s)
        return None

    def _due(self, newest: int, follower: Follower) -> bool:
        if newest == self._refused and time.monotonic() < self._retry_at:
            return False
        starting = self._status.state is PoolState.STARTING
        return newest > follower.version or starting

    def _activate(self, version: int, follower: Follower) -> None:
        """Stage, swap, prove, commit, attest. The mirror moves only after the proof."""
        if version == follower.version:
            staged, pause_s = None, 0.0
            self._prove(follower.state)
        else:
            staged = follower.stage(version)
            pause_s = self._swap(staged)
            follower.commit(staged)
        attestation = Attestation(
            pool=self._status.pool,
            version=version,
            state_id=follower.state_id,
            bytes_fetched=staged.bytes_fetched if staged else 0,
            stage_s=staged.stage_s if staged else 0.0,
            pause_ms=1000 * pause_s,
            activated_at=time.time(),
        )
        self._status.serves(attestation)
        log.info(
            "version %d serves: %s, %d bytes staged in %.2f s, paused %.1f ms",
            version,
            follower.state_id[:15],
            attestation.bytes_fetched,
            attestation.stage_s,
            attestation.pause_ms,
        )

    def _swap(self, staged: Staged) -> float:
        """Seconds for which decoding stood still. Raises RefusedWeights with the old version back
        in the engine.
        """
        try:
            pause_s = self._engine.swap(staged.changed, staged.version)
        except Stalled as error:
            raise EngineLost(str(error)) from error
        except UserError as error:
            raise RefusedWeights(
                f"the engine: {error.what}", value=error.value, fix=error.fix
            ) from error
        try:
            self._prove(staged.state)
        except RefusedWeights:
            self._put_back(staged)
            raise
        return pause_s

    def _put_back(self, staged: Staged) -> None:
        old = {name: staged.parent.tensors[name] for name in staged.changed}
        try:
            self._engine.swap(old, staged.parent.version)
            self._prove(staged.parent)
        except (Stalled, UserError) as error:
            raise EngineLost(f"the old version could not be put back: {error}") from error

    def _prove(self, state: State) -> None:
        """What the engine serves has the digests of `state`.

        Tensors that the engine never reads (a tied head that is stored twice) are taken from the
        mirror.
        """
        served = self._engine.tensors()
        tags = {name: state.tensors.tag(name) for name in served if name in state.tensors}
        leaves = {**state.leaves, **leaves_of(TensorSet(served, tags))}
        if root(leaves) != state.state_id:
            odd = sorted(name for name in leaves if leaves[name] != state.leaves.get(name))
            raise RefusedWeights(
                f"after the swap to version {state.version} the engine serves other tensors",
                value=odd[:3],
                fix="start the pool again, and report this with its log",
            )

    def _refuse(self, version: int, sentence: str) -> None:
        if version != self._refused:
            self._retry_s = self._config.retry_s
            log.warning("version %d is refused: %s", version, sentence)
        self._refused = version
        self._retry_at = time.monotonic() + self._retry_s
        self._retry_s = min(2 * self._retry_s, self._config.retry_max_s)
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
