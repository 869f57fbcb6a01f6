"""What a pool says about itself: shared by its server, receiver and reporter threads."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable

from tradewind.pool.engine import EngineLoad
from tradewind.types import Attestation, PoolReport, PoolState

log = logging.getLogger(__name__)


class PoolStatus:
    """All methods are thread-safe. `news` is set whenever a report is worth sending at once."""

    def __init__(self, pool: str, url: str, base_state_id: str) -> None:
        self.news = threading.Event()
        self._lock = threading.Lock()
        self._pool = pool
        self._url = url
        self._base_state_id = base_state_id
        self._version = 0
        self._state = PoolState.STARTING
        self._detail: str | None = "opens the model"
        self._troubles: dict[str, str] = {}
        self._attestations: dict[int, Attestation] = {}

    @property
    def pool(self) -> str:
        """The pool's name."""
        return self._pool

    @property
    def url(self) -> str:
        """Under which the gateway reaches the pool."""
        return self._url

    @property
    def state(self) -> PoolState:
        """What the pool is doing about weights."""
        with self._lock:
            return self._state

    def waits(self, detail: str) -> None:
        """Nothing is served yet, because of `detail`."""
        with self._lock:
            self._detail = detail

    def serves(self, attestation: Attestation) -> None:
        """A version is active and proven."""
        with self._lock:
            self._state, self._detail = PoolState.SERVING, None
            self._version = attestation.version
            self._attestations[attestation.version] = attestation
        self.news.set()

    def refuses(self, sentence: str) -> None:
        """A newer version failed a check; a pool that serves nothing yet goes on starting."""
        with self._lock:
            if self._state is not PoolState.STARTING:
                self._state = PoolState.REFUSING
            self._detail = sentence
        self.news.set()

    def trouble(self, owner: str, sentence: str | None) -> None:
        """`owner` is out of reach while serving goes on; None when it is back."""
        with self._lock:
            known = self._troubles.pop(owner, None)
            if sentence is not None:
                self._troubles[owner] = sentence
        if sentence != known:
            log.warning("%s", sentence or f"the {owner} is back")

    def acknowledge(self, versions: Iterable[int]) -> None:
        """The controller has these attestations; they are not sent again."""
        with self._lock:
            for version in versions:
                self._attestations.pop(version, None)

    def report(self, load: EngineLoad) -> PoolReport:
        """The report of this moment."""
        with self._lock:
            details = [
                text for text in (self._detail, *self._troubles.values(), load.error) if text
            ]
            return PoolReport(
                pool=self._pool,
                url=self._url,
                base_state_id=self._base_state_id,
                version=self._version,
                state=self._state,
                detail="; ".join(details) or None,
                max_batch=load.max_batch,
                running=load.running,
                waiting=load.waiting,
                tokens_per_s=load.tokens_per_s,
                dtype=load.dtype,
                attestations=tuple(self._attestations.values()),
                at=time.time(),
            )
