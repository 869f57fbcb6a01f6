"""Attention of a block that sees few keys, on a CPU: five small products instead of one kernel.

PyTorch's fused kernel for CPUs never stores the probabilities and makes them again in the backward
pass, one head after another. With few keys they are small: kept, the backward pass is four batched
products in bf16. Forward and backward together take half the time (`benchmarks/README.md`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

SHORT = 512
"""The most keys of a block whose probabilities are kept; the memory for them grows with it."""


def serves(q: Tensor, keys: int) -> bool:
    """Whether this is the faster way for a block of `keys` keys; in fp32 it is not."""
    return q.dtype == torch.bfloat16 and q.device.type == "cpu" and keys <= SHORT


class ShortAttention(torch.autograd.Function):
    """softmax(q k^T * scale + bias) v, with scores and their exponentials in fp32.

    With p the probabilities, d the gradient of the result and dp = d v^T:

        dv = p^T d      ds = p * (dp - sum(dp * p)) * scale      dq = ds k      dk = ds^T q
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor, scale: float) -> Tensor:
        """q [G, B, D], k and v [G, K, D], bias [B, K] (0 or -inf) -> [G, B, D]."""
        scores = torch.bmm(q.float(), k.float().mT).mul_(scale).add_(bias)
        p = torch.softmax(scores, -1).to(q.dtype)
        ctx.save_for_backward(q, k, v, p)
        ctx.scale = scale
        return torch.bmm(p, v)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of q, k and v."""
        q, k, v, p = ctx.saved_tensors
        dp = torch.bmm(grad, v.mT).mul_(p)
        ds = dp.sub_(p * dp.sum(-1, keepdim=True)).mul_(ctx.scale)
        return torch.bmm(ds, k), torch.bmm(ds.mT, q), torch.bmm(p.mT, grad), None, None
