"""Hidden states -> log-probabilities of the targets, without keeping wide logits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

CHUNK_BYTES = 64 * 2**20
"""Size of the fp32 logits of one chunk of rows."""
KEPT_BYTES = 256 * 2**20
"""Size of the exponentials that may be kept from the forward to the backward pass."""


class ChunkedLogProbs(torch.autograd.Function):
    """log softmax(h W^T / temperature)[target], chunk by chunk, in fp32.

    With z = h W^T / temperature, e = exp(z - max z) and p = e / sum e,

        d logp / d h  =  (W[target] - p W) / temperature
        d logp / d W  =  (onehot(target) - p)^T h / temperature

    so p W is made in the forward pass, while e is at hand, and gives the entropy as well: the mean
    of z under p is h (p W)^T / temperature. What is left for the backward pass is e^T h. The e of
    the first `KEPT_BYTES` are kept for it; those of further chunks are computed again.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, temperature: Tensor, row: Tensor, target: Tensor
    ) -> tuple[Tensor, Tensor]:
        """hidden [R, H], weight [V, H], temperature [R], row and target [N] -> ([N], [R]).

        The second result is the entropy of each row in nats; it carries no gradient.
        """
        trains = any(ctx.needs_input_grad[:2])
        top = hidden.new_empty(len(hidden), dtype=torch.float32)
        total, entropy = torch.empty_like(top), torch.empty_like(top)
        mean_weight = torch.empty_like(hidden) if trains else None
        logp, kept = top.new_empty(len(row)), []
        for start, stop, entries in _chunks(len(hidden), len(weight), row):
            here = slice(start, stop)
            logits = _logits(hidden[here], weight, temperature[here])
            logp[entries] = logits[row[entries] - start, target[entries]]
            torch.amax(logits, dim=1, out=top[here])
            shifted = logits.sub_(top[here, None])
            exps = torch.exp(shifted)
            torch.sum(exps, dim=1, out=total[here])
            entropy[here] = total[here].log() - torch.linalg.vecdot(exps, shifted) / total[here]
            if mean_weight is None:
                continue
            exps = exps.to(hidden.dtype)
            torch.mm(exps, weight, out=mean_weight[here])
            if stop * len(weight) * exps.itemsize <= KEPT_BYTES:
                kept.append(exps)
        logp -= (top + total.log())[row]
        if mean_weight is not None:
            mean_weight.div_(total[:, None])
            ctx.kept = kept
            ctx.save_for_backward(hidden, weight, temperature, row, target, top, total, mean_weight)
        ctx.mark_non_differentiable(entropy)
        return logp, entropy

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of hidden and weight."""
        hidden, weight, temperature, row, target, top, total, mean_weight = ctx.saved_tensors
        grad = grad / temperature[row]
        per_row = total.new_zeros(len(hidden)).index_add_(0, row, grad)
        grad = grad.to(hidden.dtype)[:, None]
        grad_hidden = mean_weight.mul_(-per_row[:, None])
        grad_hidden.index_add_(0, row, grad * weight[target])
        scaled = hidden * (-per_row / total)[:, None].to(hidden.dtype)
        grad_weight = torch.empty_like(weight) if len(hidden) else torch.zeros_like(weight)
        for number, (start, stop, _entries) in enumerate(_chunks(len(hidden), len(weight), row)):
            if number < len(ctx.kept):
                exps, ctx.kept[number] = ctx.kept[number], None
            else:
                logits = _logits(hidden[start:stop], weight, temperature[start:stop])
                exps = logits.sub_(top[start:stop, None]).exp_().to(hidden.dtype)
            torch.addmm(
                grad_weight, exps.t(), scaled[start:stop], beta=float(start > 0), out=grad_weight
            )
        grad_weight.index_add_(0, target, grad * hidden[row])
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
