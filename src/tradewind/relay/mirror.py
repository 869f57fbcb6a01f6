"""The relay's own mirror, from which it makes merged deltas.

    follow     newest version ─► staged, verified ─► mirror, the way back in the undo log
    shortcut   (start, end) ─► both states ─► coded ─► shelf ─► its name

It is a follower as any pool's, without an engine. A start that the undo log does not reach is
rebuilt from the base, with what the bucket has. A pool believes none of it: a shortcut must apply
to the state that the pool holds and lead to the state id of the version's manifest.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tradewind.relay.config import RelayConfig
from tradewind.relay.shelf import Shelf
from tradewind.relay.upstream import Upstream
from tradewind.types.errors import RefusedWeights, Stalled, TradewindError, UserError
from tradewind.weights.bucket import NotInBucket
from tradewind.weights.chain import read_base
from tradewind.weights.follow import Follower
from tradewind.weights.shortcut import publish_shortcut, shortcut_key
from tradewind.weights.state import State

log = logging.getLogger(__name__)


class WrongModel(UserError):
    """The relay's model is not the base of the run in the bucket."""


@dataclass(frozen=True, slots=True)
class MirrorStatus:
    """What a mirror has done."""

    version: int | None
    """None before the run's base is announced."""
    made: int
    """Merged deltas."""
    last_error: str | None
    """Why the last look at the bucket or the last merged delta failed."""


class Mirror:
    """`read_base` reads and hashes the base. Thread-safe: one state is made at a time."""

    def __init__(
        self, upstream: Upstream, shelf: Shelf, config: RelayConfig, read_base: Callable[[], State]
    ) -> None:
        self._upstream, self._shelf, self._config = upstream, shelf, config
        self._read_base = read_base
        self._lock = threading.Lock()
        self._base: State | None = None
        self._follower: Follower | None = None
        self._run_id = ""
        self._made = 0
        self._error: str | None = None

    def run(self, stop: threading.Event) -> None:
        """Follows until `stop`. Raises WrongModel if the model is not the run's base."""
        while not stop.is_set():
            self.follow()
            stop.wait(self._config.follow_s)

    def follow(self) -> None:
        """One look at the bucket; what fails is said in the status and tried again."""
        try:
            with self._locked():
                follower = self._opened()
                newest = follower.newest()
                if newest is not None and newest > follower.version:
                    follower.commit(follower.stage(newest))
            self._error = None
        except WrongModel:
            raise
        except NotInBucket:
            self._error = "waits for version 0 in the bucket (owner: trainer)"
        except (UserError, Stalled) as error:
            self._say(f"the mirror cannot follow: {error}")

    def shortcut(self, start: int, end: int) -> str:
        """The name of the merged delta from `start` to `end`, which is on the shelf then.

        Raises NotInBucket if one of them is not announced, RefusedWeights or UserError if a state
        cannot be made, Stalled if others are made for too long.
        """
        if not 0 <= start < end:
            raise NotInBucket(f"no shortcut leads from {start} to {end}")
        with self._locked():
            try:
                follower = self._opened()
                to = self._state(end, follower)
                key = shortcut_key(start, end, to.state_id)
                if self._shelf.exists(key):
                    return key
                begun = time.monotonic()
                publish_shortcut(
                    self._shelf,
                    self._run_id,
                    follower.base_state_id,
                    self._state(start, follower),
                    to,
                    threads=self._config.threads,
                )
            except TradewindError as error:
                self._say(f"no shortcut from {start} to {end}: {error}")
                raise
            self._made += 1
            log.info("shortcut %d to %d made in %.2f s", start, end, time.monotonic() - begun)
            return key

    @property
    def status(self) -> MirrorStatus:
        """What has been done so far."""
        version = self._follower.version if self._follower else None
        return MirrorStatus(version, self._made, self._error)

    def _opened(self) -> Follower:
        """The follower, at the base at first. Raises NotInBucket before the base is announced."""
        if self._follower is not None:
            return self._follower
        manifest = read_base(self._upstream, run_id=self._config.run_id)
        base = self._read_base()
        if base.state_id != manifest.state_id:
            raise WrongModel(
                f"the relay has another base model than the run {manifest.run_id!r}",
                value=base.state_id,
                fix="give the relay the checkpoint with which the run was started",
            )
        self._run_id, self._base = manifest.run_id, base
        self._follower = self._from_base()
        self._follower.log.keep = self._config.undo_versions
        self._follower.read_base = lambda: base.tensors
        return self._follower

    def _from_base(self) -> Follower:
        assert self._base is not None, "opened"
        return Follower(
            self._upstream, self._base, run_id=self._run_id, threads=self._config.threads
        )

    def _state(self, version: int, follower: Follower) -> State:
        """The mirror itself, which goes on to a later version; a state beside it for an earlier."""
        if version == follower.version:
            return follower.state
        if version > follower.version:
            follower.commit(follower.stage(version))
            return follower.state
        try:
            if (recalled := follower.recall(version)) is not None:
                return recalled.state
        except RefusedWeights as error:
            log.warning("%s", error)
            follower.log.clear()
        fresh = self._from_base()
        return fresh.stage(version).state if version else fresh.state

    def _say(self, sentence: str) -> None:
        if sentence != self._error:
            log.warning("%s", sentence)
        self._error = sentence

    @contextmanager
    def _locked(self) -> Iterator[None]:
        if not self._lock.acquire(timeout=self._config.make_s):
            raise Stalled("another merged delta", owner="relay", seconds=self._config.make_s)
        try:
            yield
        finally:
            self._lock.release()
