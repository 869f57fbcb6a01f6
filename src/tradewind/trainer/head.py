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

    With z = h W^T / temperature, e = exp(z - max z), p = e / sum e, and d the gradient of z:

        d = grad * (onehot(target) - p)      dh = d W / temperature      dW = d^T h / temperature

    The e of the first `KEPT_BYTES` are kept for the backward pass; those of further chunks are
    computed again. d is made before any product, and 1 - p of a target in fp32: W[target] - p W,
    or h - p h, are differences of rounded numbers, and in bf16 nothing but rounding for a token
    of which the model is sure (at p = 0.99 an error of 40 to 100 %, above it many times the value).
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
            if trains and stop * len(weight) * hidden.itemsize <= KEPT_BYTES:
                kept.append(exps.to(hidden.dtype))
        logp -= (top + total.log())[row]
        if trains:
            ctx.kept = kept
            ctx.save_for_backward(hidden, weight, temperature, row, target, top, total, logp)
        ctx.mark_non_differentiable(entropy)
        return logp, entropy

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of hidden and weight."""
        hidden, weight, temperature, row, target, top, total, logp = ctx.saved_tensors
        grad = grad / temperature[row]
        per_row = total.new_zeros(len(hidden)).index_add_(0, row, grad)
        own = _own(row, target, grad, per_row, logp)
        scale = (-per_row / total).to(hidden.dtype)
        grad_hidden = torch.empty_like(hidden)
        grad_weight = torch.empty_like(weight) if len(hidden) else torch.zeros_like(weight)
        for number, (start, stop, entries) in enumerate(_chunks(len(hidden), len(weight), row)):
            if number < len(ctx.kept):
                exps, ctx.kept[number] = ctx.kept[number], None
            else:
                logits = _logits(hidden[start:stop], weight, temperature[start:stop])
                exps = logits.sub_(top[start:stop, None]).exp_().to(hidden.dtype)
            d = exps.mul_(scale[start:stop, None])
            d[row[entries] - start, target[entries]] = own[entries].to(d.dtype)
            torch.mm(d, weight, out=grad_hidden[start:stop])
            torch.addmm(
                grad_weight,
                d.t(),
                hidden[start:stop],
                beta=float(start > 0),
                out=grad_weight,
            )
        return grad_hidden, grad_weight, None, None, None


def _own(row: Tensor, target: Tensor, grad: Tensor, per_row: Tensor, logp: Tensor) -> Tensor:
    """fp32 [N]: d at each entry's target, the same for all entries of one row and target."""
    pairs, place = torch.unique(torch.stack([row, target]), dim=1, return_inverse=True)
    earned = grad.new_zeros(pairs.shape[1]).index_add_(0, place, grad)[place]
    rest = per_row[row] - earned  # credit of the row's other targets
    return earned * -torch.expm1(logp) - rest * logp.exp()


def _logits(hidden: Tensor, weight: Tensor, temperature: Tensor) -> Tensor:
    """fp32 [R, V]. In bf16 they are rounded once, after a sum in fp32 (0.125 apart near 20): torch
    has no product of bf16 with an fp32 result on CPUs.
    """
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
