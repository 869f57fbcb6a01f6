"""Model, masters and ranks: micro-batches in, one update out. Both stages stand on it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor

from tradewind.trainer import corpus
from tradewind.trainer.arithmetic import compute_dtype
from tradewind.trainer.bits import bits_of, from_bits
from tradewind.trainer.config import OptimiserConfig
from tradewind.trainer.forest import Forest, in_prefix_order, plant, split
from tradewind.trainer.master import MasterWeights, local
from tradewind.trainer.policy import Policy
from tradewind.trainer.ranks import Ranks
from tradewind.types import Sample, UserError
from tradewind.weights.probe import Ids, Probe

Objective = Callable[[Forest, Tensor, Tensor], tuple[Tensor, dict[str, Tensor]]]
"""(forest, logp [N], entropy [R]) -> (sum of the loss, sums to report; the same names always)."""

Bits = dict[str, np.ndarray]
"""bf16 weights by checkpoint name, as uint16 bits."""


class Learner:
    """One rank's share of the training state."""

    def __init__(self, policy: Policy, config: OptimiserConfig, ranks: Ranks | None = None) -> None:
        self.ranks = ranks or Ranks()
        self.policy = policy.to(self.ranks.device)
        self.token_budget = config.token_budget
        self.ranks.shard(self.policy)
        self.masters = MasterWeights(self.policy.trained(), config)

    @classmethod
    def open(cls, folder: Path, config: OptimiserConfig, ranks: Ranks | None = None) -> Learner:
        """Load a checkpoint folder and set the thread count.

        Raises:
            UserError: see `Policy.open`.
        """
        ranks = ranks or Ranks()
        if config.threads:
            torch.set_num_threads(config.threads)
        dtype = compute_dtype(config.dtype, ranks.device)
        return cls(Policy.open(folder, dtype, config.recompute), config, ranks)

    def backward(
        self, samples: Sequence[Sample], version: int, objective: Objective, number: int
    ) -> dict[str, float]:
        """Gradients of the objective over all samples, micro-batch by micro-batch.

        Every rank gets the same samples and takes every world-th micro-batch.

        Returns:
            Sums over all ranks of what the objective reports, `loss`, and `packed` tokens.

        Raises:
            UserError: a loss is not finite. Gradients are dropped, weights unchanged.
        """
        sums: dict[str, float] = {}
        for forest, real in self._forests(samples, version):
            logp, entropy = self.policy(forest)
            loss, report = objective(forest, logp, entropy)
            torch.autograd.backward(loss if real else loss * 0.0)
            self.masters.accumulate()
            for name, term in {**report, "loss": loss}.items():
                sums[name] = sums.get(name, 0.0) + (term.item() if real else 0.0)
            sums["packed"] = sums.get("packed", 0.0) + (forest.tokens if real else 0)
        sums = self.ranks.sums(sums)  # one rank's NaN is every rank's, so all raise together
        if not math.isfinite(sums["loss"]):
            self.masters.drop_gradients()
            raise UserError(
                f"the loss of step {number} is not finite",
                value=sums["loss"],
                fix="lower lr, or look for extreme rewards in this step's groups; nothing was "
                "committed, and a restart goes on from the last committed step",
            )
        return sums

    @torch.no_grad()
    def measure(
        self, samples: Sequence[Sample], version: int, objective: Objective
    ) -> dict[str, float]:
        """What the objective reports, without gradients."""
        sums: dict[str, float] = {}
        for forest, real in self._forests(samples, version):
            loss, report = objective(forest, *self.policy(forest))
            for name, term in {**report, "loss": loss}.items():
                sums[name] = sums.get(name, 0.0) + (term.item() if real else 0.0)
        return self.ranks.sums(sums)

    @torch.no_grad()
    def probe(self, sequences: Sequence[Ids]) -> tuple[Probe, ...]:
        """What `sequences` get by the rounded weights that this trainer publishes.

        In fp32 if it is the only rank, whatever it trains in: a pool is then told from a wrong one
        by its own rounding alone. Every rank must call it, with the same sequences; one
        micro-batch, no gradients.
        """
        policy = self.policy.exact() if self.ranks.world == 1 else self.policy
        samples = corpus.row_samples([list(ids) for ids in sequences], True, "probe")
        ordered = in_prefix_order(samples)
        logp, _ = policy(plant(ordered, 0).to(self.ranks.device))
        self.ranks.release(policy)
        parts = logp.float().cpu().split([len(sample.ids) - 1 for sample in ordered])
        dtype = str(policy.inner.dtype).removeprefix("torch.")
        pairs = zip(ordered, parts, strict=True)
        found = {s.ids: Probe.of(s.ids, p.tolist(), dtype) for s, p in pairs}
        return tuple(found[ids] for ids in sequences)

    def update(self, lr: float, scale: float, number: int) -> float:
        """One AdamW step with gradients times `scale`; the gradient norm before clipping."""
        # FSDP averages over ranks (gloo has no scaled sum), the loss is a sum over them
        return self.masters.step(lr, scale * self.ranks.world, number)

    def weights(self) -> Bits:
        """All bf16 weights; every rank must call it, the first rank gets them all."""
        out = {}
        for name, parameter in self.policy.trained():
            full: Tensor = parameter.detach()
            if isinstance(full, DTensor):
                full = full.full_tensor()
            if self.ranks.first:
                out[name] = bits_of(full)
        return out

    def adopt(self, published: Bits, *, afresh: bool = False) -> int:
        """Take over published weights (see `MasterWeights.adopt`); how many values differed on
        this rank.
        """
        parts = {}
        for name, parameter in self.policy.trained():
            tensor = from_bits(published[name]).to(self.ranks.device)
            if isinstance(parameter, DTensor):
                tensor = local(
                    distribute_tensor(tensor, parameter.device_mesh, parameter.placements)
                )
            parts[name] = tensor
        return self.masters.adopt(parts, afresh=afresh)

    def _forests(self, samples: Sequence[Sample], version: int) -> Iterator[tuple[Forest, bool]]:
        """This rank's micro-batches; False marks one that only keeps step with other ranks."""
        parts = split(samples, self.token_budget)
        world, rank = self.ranks.world, self.ranks.rank
        for index in range(rank, -(-len(parts) // world) * world, world):
            real = index < len(parts)
            yield plant(parts[index if real else -1], version).to(self.ranks.device), real
