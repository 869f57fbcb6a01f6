"""Attention over a forest, block by block; registered with transformers under `NAME`.

A block of 128 queries attends to its own tokens and to the ancestors of its first token, so the
cost follows the depth of the samples and not the length of the packed micro-batch, and no mask
larger than [128, K] exists. Query heads that share a key head are folded into the rows of one
matrix, so keys and values are never repeated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AttentionInterface

from tradewind.trainer.forest import Block

NAME = "tradewind_forest"


@dataclass(frozen=True)
class Window:
    """A block as the kernel wants it, made once per forward pass and used in every layer."""

    start: int
    stop: int
    keys: Tensor
    """int64 [K]"""
    bias: Tensor
    """[S * (stop - start), K], S query heads per key head: 0 where the key is seen, else -inf."""


def windows(blocks: tuple[Block, ...], shared: int, dtype: torch.dtype) -> tuple[Window, ...]:
    """Blocks for `shared` query heads per key head and arithmetic in `dtype`."""
    out = []
    for block in blocks:
        bias = torch.zeros(block.mask.shape, dtype=dtype, device=block.mask.device)
        bias.masked_fill_(~block.mask, float("-inf"))
        out.append(Window(block.start, block.stop, block.keys, bias.repeat(shared, 1)))
    return tuple(out)


class BlockAttention(torch.autograd.Function):
    """softmax(q k^T * scale) v over the windows; the backward pass recomputes one at a time.

    Saves q, k and v only, and adds key gradients into one buffer instead of one per window.
    """

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, cuts: tuple[Window, ...], scale: float
    ) -> Tensor:
        """q [G, S, T, D] (G key heads, S query heads each), k and v [G, T, D] -> [G, S, T, D]."""
        ctx.save_for_backward(q, k, v)
        ctx.cuts, ctx.scale = cuts, scale
        out = torch.empty_like(q)
        for cut in cuts:
            out[:, :, cut.start : cut.stop] = _attend(*_parts(q, k, v, cut), cut.bias, scale)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of q, k and v in the shapes of the forward pass."""
        q, k, v = ctx.saved_tensors
        grad_q = torch.empty_like(q)
        grad_k, grad_v = torch.zeros_like(k), torch.zeros_like(v)
        for cut in ctx.cuts:
            with torch.enable_grad():
                parts = [part.detach().requires_grad_() for part in _parts(q, k, v, cut)]
                out = _attend(parts[0], parts[1], parts[2], cut.bias, ctx.scale)
            here = slice(cut.start, cut.stop)
            dq, dk, dv = torch.autograd.grad(out, parts, grad[:, :, here])
            grad_q[:, :, here] = dq
            grad_k.index_add_(1, cut.keys, dk)
            grad_v.index_add_(1, cut.keys, dv)
        return grad_q, grad_k, grad_v, None, None


def _parts(q: Tensor, k: Tensor, v: Tensor, cut: Window) -> tuple[Tensor, Tensor, Tensor]:
    """The window's queries [G, S, B, D], keys and values [G, K, D]."""
    here = q[:, :, cut.start : cut.stop]
    return here, k.index_select(1, cut.keys), v.index_select(1, cut.keys)


def _attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, scale: float) -> Tensor:
    """q [G, S, B, D], k and v [G, K, D], bias [S * B, K] -> [G, S, B, D]."""
    groups, shared, rows, width = q.shape
    folded = q.reshape(1, groups, shared * rows, width)
    out = F.scaled_dot_product_attention(folded, k[None], v[None], attn_mask=bias, scale=scale)
    return out.view(groups, shared, rows, width)


def forest_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **options: Any,
) -> tuple[Tensor, None]:
    """transformers' attention interface: query [1, H, T, D], key and value [1, G, T, D].

    `options["cuts"]` are the windows of the forest, `options["scaling"]` the factor of q k^T.
    Returns [1, T, H, D].
    """
    assert attention_mask is None and query.shape[0] == 1, "a forest is one row and has no mask"
    _, heads, tokens, width = query.shape
    groups = key.shape[1]
    q = query.view(groups, heads // groups, tokens, width)
    out: Tensor = BlockAttention.apply(  # type: ignore[no-untyped-call]
        q, key[0], value[0], options["cuts"], options["scaling"]
    )
    return out.reshape(heads, tokens, width).transpose(0, 1)[None], None


AttentionInterface.register(NAME, forest_attention)
