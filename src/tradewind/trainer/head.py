"""Hidden states -> log-probabilities of the targets, without keeping wide logits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

CHUNK_BYTES = 64 * 2**20
"""Size of the fp32 logits of one chunk of rows."""


class ChunkedLogProbs(torch.autograd.Function):
    """log softmax(h W^T / temperature)[target], chunk by chunk, in fp32.

    The forward pass keeps one number per row (its log-sum-exp); the backward pass recomputes the
    logits of a chunk, turns them into their gradient in place and multiplies it on. Cost: one more
    multiplication by W; gain: never more than `CHUNK_BYTES` of logits.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, temperature: Tensor, row: Tensor, target: Tensor
    ) -> tuple[Tensor, Tensor]:
        """hidden [R, H], weight [V, H], temperature [R], row and target [N] -> ([N], [R]).

        The second result is the entropy of each row in nats; it carries no gradient.
        """
        lse, entropy = hidden.new_empty(len(hidden), dtype=torch.float32), None
        entropy, logp = torch.empty_like(lse), lse.new_empty(len(row))
        for start, stop, entries in _chunks(len(hidden), len(weight), row):
            logits = _logits(hidden[start:stop], weight, temperature[start:stop])
            lse[start:stop] = logits.logsumexp(dim=1)
            picked = logits[row[entries] - start, target[entries]]
            logp[entries] = picked - lse[row[entries]]
            p = (logits - lse[start:stop, None]).exp_()
            entropy[start:stop] = lse[start:stop] - torch.linalg.vecdot(p, logits)
        ctx.save_for_backward(hidden, weight, temperature, row, target, lse)
        ctx.mark_non_differentiable(entropy)
        return logp, entropy

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        """d logp / d logits = (onehot - softmax) / temperature."""
        hidden, weight, temperature, row, target, lse = ctx.saved_tensors
        grad_hidden, grad_weight = torch.empty_like(hidden), torch.zeros_like(weight)
        per_row = lse.new_zeros(len(hidden)).index_add_(0, row, grad)
        for start, stop, entries in _chunks(len(hidden), len(weight), row):
            part = _logits(hidden[start:stop], weight, temperature[start:stop])
            part.sub_(lse[start:stop, None]).exp_().mul_(-per_row[start:stop, None])
            part.index_put_((row[entries] - start, target[entries]), grad[entries], accumulate=True)
            part = part.div_(temperature[start:stop, None]).to(hidden.dtype)
            torch.mm(part, weight, out=grad_hidden[start:stop])
            grad_weight.addmm_(part.t(), hidden[start:stop])
        return grad_hidden, grad_weight, None, None, None


def _logits(hidden: Tensor, weight: Tensor, temperature: Tensor) -> Tensor:
    """fp32 [R, V]. bf16 logits near 20 are spaced 0.125: products are bf16, the sum is not."""
    logits = torch.mm(hidden, weight.t()).float()
    return logits if bool((temperature == 1.0).all()) else logits.div_(temperature[:, None])


def _chunks(rows: int, vocabulary: int, row: Tensor) -> list[tuple[int, int, Tensor]]:
    """(first row, end row, entries that read these rows) of each chunk."""
    size = max(1, CHUNK_BYTES // (4 * vocabulary))
    out = []
    for start in range(0, rows, size):
        stop = min(start + size, rows)
        out.append((start, stop, torch.nonzero((row >= start) & (row < stop)).flatten()))
    return out
