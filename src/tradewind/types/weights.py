"""Weight versions, and a pool's word that it serves one."""

from __future__ import annotations

from enum import StrEnum

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
    """`base`, `midtrain` or `rl`."""
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
    attestations: tuple[Attestation, ...] = ()
    """Those not yet acknowledged by the controller."""
    at: float
    """Unix seconds."""
