"""Attention over a forest, block by block; registered with transformers under `NAME`.

A block of 128 queries attends to its own tokens and to the ancestors of its first token, so the
cost follows the depth of the samples and not the length of the packed micro-batch, and no mask
larger than [128, K] exists. Query heads that share a key head are folded into the rows of one
matrix, so keys and values are never repeated.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AttentionInterface

from tradewind.trainer.forest import Block

NAME = "tradewind_forest"


class BlockAttention(torch.autograd.Function):
    """softmax(q k^T * scale) v over the blocks; the backward pass recomputes one block at a time.

    Saves q, k and v only, and adds key gradients into one buffer instead of one per block.
    """

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, blocks: tuple[Block, ...], scale: float
    ) -> Tensor:
        """q [G, S, T, D] (G key heads, S query heads each), k and v [G, T, D] -> [G, S, T, D]."""
        ctx.save_for_backward(q, k, v)
        ctx.blocks, ctx.scale = blocks, scale
        out = torch.empty_like(q)
        for block in blocks:
            out[:, :, block.start : block.stop] = _attend(
                q[:, :, block.start : block.stop], k[:, block.keys], v[:, block.keys], block, scale
            )
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of q, k and v in the shapes of the forward pass."""
        q, k, v = ctx.saved_tensors
        grad_q = torch.empty_like(q)
        grad_k, grad_v = torch.zeros_like(k), torch.zeros_like(v)
        for block in ctx.blocks:
            here = slice(block.start, block.stop)
            with torch.enable_grad():
                parts = [
                    part.detach().requires_grad_()
                    for part in (q[:, :, here], k[:, block.keys], v[:, block.keys])
                ]
                out = _attend(parts[0], parts[1], parts[2], block, ctx.scale)
            dq, dk, dv = torch.autograd.grad(out, parts, grad[:, :, here])
            grad_q[:, :, here] = dq
            grad_k.index_add_(1, block.keys, dk)
            grad_v.index_add_(1, block.keys, dv)
        return grad_q, grad_k, grad_v, None, None


def _attend(q: Tensor, k: Tensor, v: Tensor, block: Block, scale: float) -> Tensor:
    """q [G, S, B, D], k and v [G, K, D] -> [G, S, B, D]."""
    groups, shared, rows, width = q.shape
    mask = block.mask.repeat(shared, 1)
    out = F.scaled_dot_product_attention(
        q.reshape(1, groups, shared * rows, width), k[None], v[None], attn_mask=mask, scale=scale
    )
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

    `options["blocks"]` are those of the forest, `options["scaling"]` is the factor of q k^T.
    Returns [1, T, H, D].
    """
    assert attention_mask is None and query.shape[0] == 1, "a forest is one row and has no mask"
    _, heads, tokens, width = query.shape
    groups = key.shape[1]
    q = query.view(groups, heads // groups, tokens, width)
    out: Tensor = BlockAttention.apply(  # type: ignore[no-untyped-call]
        q, key[0], value[0], options["blocks"], options["scaling"]
    )
    return out.reshape(heads, tokens, width).transpose(0, 1)[None], None


AttentionInterface.register(NAME, forest_attention)
