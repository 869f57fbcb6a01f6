"""Configuration of the trainer and of mid-training."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tradewind.types.config import Config


class OptimiserConfig(Config):
    """What both stages share: arithmetic, AdamW and memory."""

    lr: float = Field(default=5e-6, gt=0)
    """Peak learning rate."""
    betas: tuple[float, float] = (0.9, 0.95)
    """AdamW's decay of the first and second moment."""
    eps: float = Field(default=1e-8, gt=0)
    """AdamW's epsilon."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Decoupled decay per step, times the learning rate."""
    clip: float = Field(default=1.0, gt=0)
    """Largest global norm of the gradient; larger ones are scaled down to it."""
    warmup_steps: int = Field(default=0, ge=0)
    """Steps over which the learning rate rises linearly to its peak."""
    schedule: Literal["constant", "cosine"] = "constant"
    """Shape of the learning rate after the warm-up; the cosine ends with the last of `steps`."""
    lr_floor: float = Field(default=0.1, ge=0, le=1)
    """Where the cosine ends, as a share of the peak."""
    token_budget: int = Field(default=1024, ge=1)
    """Packed tokens per micro-batch; bounds activation memory. One longer sample runs alone."""
    dtype: Literal["auto", "fp32", "bf16"] = "auto"
    """Arithmetic and storage of the parameters; auto is bf16 where the device has units for it.
    Masters, moments and gradients are fp32 in both cases."""
    threads: int = Field(default=0, ge=0)
    """CPU threads; 0 takes torch's default."""
    recompute: bool = False
    """Recompute activations in the backward pass: less memory, about a third more time."""
    checkpoint_every: int = Field(default=5, ge=1)
    """Steps between checkpoints. After a crash the steps since the newest one are replayed."""
    keep_checkpoints: int = Field(default=2, ge=2)
    """How many checkpoints stay on disk. A crash may come before the step of the newest one is
    committed: then the run goes on from the one before it."""
    lease_ttl_s: float = Field(default=15.0, gt=0)
    """How long the trainer's place in the ledger outlives its last sign of life."""
    shortcut_span: int = Field(default=16, ge=0)
    """Every so many versions, one delta against the base is published, and from there one to each
    version that follows, so that a late pool fetches two objects at most. 0: none are."""
    collect_span: int = Field(default=64, ge=0)
    """Every so many versions, what no pool needs any more is deleted from the bucket. 0: never."""
    seed: int = 0
    """Seeds the order of the corpus; a step itself draws no random numbers."""


class TrainerConfig(OptimiserConfig):
    """`[trainer]`: reinforcement learning."""

    steps: int = Field(default=20, ge=0)
    """RL steps in the run."""
    groups_per_step: int = Field(default=8, ge=1)
    """Closed groups that one step consumes."""
    max_staleness: int = Field(default=2, ge=0)
    """How many versions the oldest token of a group may lie behind; 0 is synchronous."""
    loss: str = "dppo"
    """Name in `algo/losses/registry.py`."""
    loss_floats: dict[str, float] = Field(default_factory=dict)
    """Keyword values of the loss; each has a default."""
    rehearsal_rows: int = Field(default=0, ge=0)
    """Rows of the corpus whose next-token loss each step lowers beside its own, so that what
    mid-training taught is not unlearnt. 0: none; the control arm of a run never has any."""
    rehearsal_length: int = Field(default=256, ge=2)
    """Tokens per row of them; documents in it do not see each other."""
    rehearsal_weight: float = Field(default=0.1, gt=0)
    """What the mean loss of their tokens weighs, where that of the sampled tokens weighs 1."""
    k3_alarm: float = Field(default=0.01, gt=0)
    """Mean k3 of pi/mu above which an event is written."""
    k3_gate: float | None = Field(default=None, gt=0)
    """Mean k3 over tokens of the trained version above which the step is refused; 0.001 suits an
    engine and a trainer of the same numerics. None: measure only."""
    wait_deadline_s: float = Field(default=900.0, gt=0)
    """Longest wait without one more closed group before the trainer ends with a sentence."""
    publish_deadline_s: float = Field(default=900.0, gt=0)
    """Longest wait for the publication of the step before, when the next one is ready to change the
    weights, before the trainer ends with a sentence."""
    poll_s: float = Field(default=0.2, gt=0)
    """Seconds between two looks at the ledger while waiting."""


class MidtrainConfig(OptimiserConfig):
    """`[midtrain]`: next-token training on the product's documents."""

    lr: float = Field(default=5e-5, gt=0)
    """Peak learning rate."""
    steps: int = Field(default=40, ge=0)
    """Optimiser steps."""
    schedule: Literal["constant", "cosine"] = "cosine"
    """Shape of the learning rate after the warm-up."""
    sequence_length: int = Field(default=512, ge=2)
    """Tokens per row."""
    rows_per_step: int = Field(default=4, ge=1)
    """Rows in one optimiser step."""
    isolate_documents: bool = True
    """Tokens attend only within their document, and positions restart with it. False lets a row
    read across documents, as plain packing does."""
    heldout_every: int = Field(default=10, ge=1)
    """Steps between two measurements of the held-out loss."""
    heldout_rows: int = Field(default=32, ge=1)
    """Most rows of the held-out split that a measurement reads."""
    checkpoint_every: int = Field(default=20, ge=1)
    """Steps between checkpoints."""
