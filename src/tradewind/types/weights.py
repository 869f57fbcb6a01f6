"""Weight versions, and a pool's word that it serves one."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from tradewind.types.record import Record


class WeightVersion(Record):
    """One published state of the policy.

    Example: `WeightVersion(version=3, state_id="b3:9f…", parent_state_id="b3:77…", ...)`.
    """

    version: int
    """0 is the base checkpoint; each publish adds one."""
    state_id: str
    """Merkle root over the digests of all tensors (promise W1)."""
    parent_state_id: str | None
    """State that the delta applies to; None for version 0."""
    manifest: str
    """Bucket key of the manifest."""
    stage: str
    """`base`, `midtrain`, `rl`, or `return`: an earlier version's weights again."""
    bytes_shipped: int
    """Bytes of frames and manifest uploaded for it."""
    bytes_full: int
    """Bytes of a dense bf16 copy."""


class PoolState(StrEnum):
    """What a pool is doing about weights."""

    STARTING = "starting"
    SERVING = "serving"
    REFUSING = "refusing"
    """Serves its old version, because a newer one failed a check; `detail` says why."""


class Attestation(Record):
    """A pool's proof of one swap."""

    pool: str
    version: int
    state_id: str
    """Recomputed by the pool over the tensors it holds, not copied from the manifest."""
    bytes_fetched: int
    stage_s: float
    """Fetch, verify and decode, while the old version went on serving."""
    pause_ms: float
    """How long decoding stood still."""
    activated_at: float
    """Unix seconds."""
    probe_mean: float | None = None
    """Mean |d logprob| between pool and trainer over the version's probes, in nats; None if the
    version has none and was proven by its state id alone."""
    probe_max: float | None = None
    """The largest of them."""


class Fingerprint(Record):
    """How far a pool's arithmetic is from the trainer's, on bytes that were proven equal.

    Example: `Fingerprint(version=1, tokens=69, mean=1.1e-5, largest=7e-5)`.
    """

    version: int
    """On which it was measured: the first with probes since the pool started."""
    tokens: int
    mean: float
    """Of |d logprob|, in nats."""
    largest: float


class Quarantine(Record):
    """A version that a pool had to take back, and why. It is tried again, more and more seldom."""

    version: int
    reason: str
    tries: int
    at: float
    """Unix seconds of the last try."""


class GoTo(Record):
    """`POST /v1/weights/go-to` of a pool. Example: `GoTo(version=7)`."""

    version: Annotated[int, Field(ge=0, lt=10**8)] | None
    """Where the pool goes and stays, back or forward; None: to the newest, as before."""


class PoolOrder(GoTo):
    """Where the controller wants all pools; each heeds a number once, so that who sends one of them
    elsewhere by hand is not overruled. Example: `PoolOrder(number=1, version=7)`.
    """

    number: int
    """Counts up; a pool that starts again heeds the newest."""


class PoolReport(Record):
    """Sent by each pool to the controller about once a second; the gateway routes by it."""

    pool: str
    url: str
    base_state_id: str
    """State id of the base checkpoint; must equal that of the run."""
    version: int
    state: PoolState
    detail: str | None = None
    max_batch: int
    running: int
    waiting: int
    tokens_per_s: float
    """Generated, over the last ten seconds."""
    dtype: str
    proof: str | None = None
    """How the active version was proven: by its state id alone, or by probes as well."""
    proof_ms: float | None = None
    """From the active version's swap to its proof: for so long its tokens were held back."""
    fingerprint: Fingerprint | None = None
    """None before the first version with probes."""
    quarantined: tuple[Quarantine, ...] = ()
    """Versions later than the active one that failed their proof; at most eight, newest last."""
    pinned: int | None = None
    """Version at which the pool was told to stay; None follows the newest."""
    rebuilds: int = 0
    """How often the pool has rebuilt mirror and engine from its base checkpoint."""
    attestations: tuple[Attestation, ...] = ()
    """Those not yet acknowledged by the controller."""
    at: float
    """Unix seconds."""
