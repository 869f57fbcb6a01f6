"""What every policy loss reads and returns, token by token."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Terms:
    """N sampled tokens of one micro-batch, flat; all tensors are fp32 of shape [N]."""

    logp: Tensor
    """Log-probability under the weights being trained; carries the gradient."""
    behaviour: Tensor
    """Log-probability recorded by the engine that sampled the token."""
    advantage: Tensor
    weight: Tensor
    """1 / branches of the rollout."""

    def log_ratio(self) -> Tensor:
        """log(pi / mu) per token, without gradient; clamped to +-20 so that exp stays finite."""
        return (self.logp.detach() - self.behaviour).clamp(-20.0, 20.0)


LossResult = tuple[Tensor, int, dict[str, Tensor]]
"""(sum of the loss over tokens, number of tokens, sums over tokens of each metric)."""

Loss = Callable[..., LossResult]
"""`loss(terms, **floats)`."""


def weighted_policy_gradient(terms: Terms, factor: Tensor) -> Tensor:
    """- sum_t weight_t * A_t * factor_t * log pi_t, the factor [N] taken as a constant."""
    scale = terms.weight * terms.advantage * factor.detach()
    return -(scale * terms.logp).sum()


def count(flags: Tensor) -> Tensor:
    """How many of the flags [N] are set, as a fp32 scalar."""
    return flags.sum(dtype=torch.float32)


Floats = Mapping[str, float]
