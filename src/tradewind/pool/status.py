"""What a pool says about itself: shared by its server, receiver and reporter threads."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable

from tradewind.pool.engine import EngineLoad
from tradewind.types import Attestation, Fingerprint, PoolReport, PoolState, Quarantine

log = logging.getLogger(__name__)

SHOWN = 8
"""Quarantined versions in a report."""


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
        self._proof: str | None = None
        self._proof_ms: float | None = None
        self._fingerprint: Fingerprint | None = None
        self._quarantined: dict[int, Quarantine] = {}
        self._pinned: int | None = None
        self._rebuilds = 0

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

    def serves(
        self,
        attestation: Attestation,
        proof: str,
        fingerprint: Fingerprint | None = None,
        proof_ms: float = 0.0,
    ) -> None:
        """A version is active and proven; it and those before it are in quarantine no longer."""
        with self._lock:
            self._state, self._detail = PoolState.SERVING, None
            self._version = attestation.version
            self._attestations[attestation.version] = attestation
            self._proof, self._proof_ms, self._fingerprint = proof, proof_ms, fingerprint
            for version in [v for v in self._quarantined if v <= attestation.version]:
                del self._quarantined[version]
        self.news.set()

    def refuses(self, sentence: str) -> None:
        """A newer version failed a check; a pool that serves nothing yet goes on starting."""
        with self._lock:
            if self._state is not PoolState.STARTING:
                self._state = PoolState.REFUSING
            self._detail = sentence
        self.news.set()

    def settles(self) -> None:
        """The active version is the wanted one; what was refused is not asked for any more."""
        with self._lock:
            if self._state is PoolState.REFUSING:
                self._state, self._detail = PoolState.SERVING, None

    def quarantines(self, version: int, reason: str) -> None:
        """`version` was active for a moment and failed its proof; the old one is back."""
        with self._lock:
            known = self._quarantined.pop(version, None)
            tries = 1 + (known.tries if known else 0)
            self._quarantined[version] = Quarantine(
                version=version, reason=reason, tries=tries, at=time.time()
            )
            while len(self._quarantined) > SHOWN:
                del self._quarantined[next(iter(self._quarantined))]
        self.news.set()

    def rebuilt(self) -> None:
        """Mirror and engine have been made anew from the base checkpoint."""
        with self._lock:
            self._rebuilds += 1
        self.news.set()

    def pins(self, version: int | None) -> None:
        """From the receiver's next look on the pool goes to `version` and stays there; None: to the
        newest. A version that the undo log holds needs no network.
        """
        with self._lock:
            self._pinned = version
        self.news.set()

    @property
    def pinned(self) -> int | None:
        """See `pins`."""
        with self._lock:
            return self._pinned

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
        held = f"{load.held} tokens wait for the proof of a new version" if load.held else None
        with self._lock:
            said = (self._detail, *self._troubles.values(), held, load.error)
            details = [text for text in said if text]
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
                proof=self._proof,
                proof_ms=self._proof_ms,
                fingerprint=self._fingerprint,
                quarantined=tuple(self._quarantined.values()),
                pinned=self._pinned,
                rebuilds=self._rebuilds,
                attestations=tuple(self._attestations.values()),
                at=time.time(),
            )
