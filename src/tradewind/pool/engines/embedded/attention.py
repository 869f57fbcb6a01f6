"""Grouped-query attention over the lanes (Ainslie et al. 2023, GQA), keys and values in place.

Shapes: H query heads, K kv heads, G = H / K, D head size, N batch rows of the step.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from tradewind.pool.engines.embedded.config import ModelShape
from tradewind.pool.engines.embedded.step import DecodeSpan, PromptSpan


def queries_and_kv(heads: Tensor, shape: ModelShape) -> tuple[Tensor, Tensor]:
    """(N, H + 2 K, D) as queries (N, H, D) and keys and values (N, 2, K, D): views."""
    kv = heads[:, shape.heads :].view(len(heads), 2, shape.kv_heads, shape.head_dim)
    return heads[:, : shape.heads], kv


def decode(span: DecodeSpan, layer: int, q: Tensor, kv: Tensor) -> Tensor:
    """Writes the new KV and attends, for one new id per row: the G query heads that share a kv head
    are the query rows.

    q: (n, H, D) and kv: (n, 2, K, D), both rotated already. Returns (n, H, D).
    """
    memory = span.lane.layers[layer][:, : span.count]  # (2, n, K, capacity, D)
    memory[:, span.rows, :, span.positions] = kv
    n, heads, size = q.shape
    kv_heads = memory.shape[2]
    grouped = q.reshape(n, kv_heads, heads // kv_heads, size)
    k, v = memory[:, :, :, span.shared : span.longest]
    if span.shared:
        rest, rest_weight = _flash(grouped, k, v, span.mask)
        out = _with_shared(grouped, memory[:, :1, :, : span.shared], rest, rest_weight)
    else:
        out = small_attention(grouped, k, v, span.mask)
    return out.view(n, heads, size)


def small_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Attention of a few query rows each, by two batched products: flash's blocks cost more here.

    q: (n, K, G, D); k, v: (n, K, L, D); mask: (n, 1, 1, L). Returns (n, K, G, D). As in flash,
    scores and their softmax are fp32 in every mode.
    """
    n, kv_heads, g, size = q.shape
    length = k.shape[2]
    keys = k.flatten(0, 1).transpose(1, 2).float()
    scores = torch.empty(n * kv_heads, g, length)
    torch.baddbmm(scores, q.flatten(0, 1).float(), keys, beta=0, alpha=size**-0.5, out=scores)
    if mask is not None:
        scores.view(n, kv_heads, g, length).add_(mask)
    return torch.bmm(scores.softmax(dim=-1).to(v.dtype), v.flatten(0, 1)).view(q.shape)


def _with_shared(q: Tensor, shared: Tensor, rest: Tensor, rest_weight: Tensor) -> Tensor:
    """Adds attention over keys that all rows share, read once: the rows become query rows.

    q, rest: (n, K, G, D); shared: (2, 1, K, S, D); rest_weight: (n, K, G), the log of the sum of
    exponentials behind `rest`. Attention over the union is the average of both parts weighted by
    those sums (Dao et al. 2022, FlashAttention, section 3.1). Returns (n, K, G, D).
    """
    n, kv_heads, g, size = q.shape
    rows = q.transpose(0, 1).reshape(1, kv_heads, n * g, size)
    out, weight = _flash(rows, shared[0], shared[1], None)
    out = out.view(kv_heads, n, g, size).transpose(0, 1)
    weight = weight.view(kv_heads, n, g).transpose(0, 1)
    share = torch.sigmoid(weight - rest_weight).unsqueeze(-1).to(out.dtype)
    return torch.lerp(rest, out, share)


def _flash(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Attention and the log of the sum of exponentials of its scores, per query row."""
    if mask is not None:
        mask = mask.expand(*q.shape[:3], k.shape[2])
    out, weight = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        q, k, v, 0.0, False, attn_mask=mask
    )
    return out, weight


def read_prompt(span: PromptSpan, layer: int, q: Tensor, kv: Tensor) -> Tensor:
    """As `decode` for many ids of each sequence, causal among themselves, all of the past visible.

    Batch rows are n sequences of `span.count` ids each.
    """
    memory = span.lane.layers[layer]  # (2, rows, K, capacity, D)
    n, end = len(span.rows), span.past + span.count
    parts = kv.reshape(n, span.count, *kv.shape[1:])
    memory[:, span.rows, :, span.past : end] = parts.permute(2, 0, 3, 1, 4)
    seen = memory[:, span.rows, :, :end] if n > 1 else memory[:, span.rows[0], None, :, :end]
    out = scaled_dot_product_attention(
        q.reshape(n, span.count, *q.shape[1:]).transpose(1, 2),
        seen[0],
        seen[1],
        attn_mask=span.mask,
        is_causal=span.mask is None,
        enable_gqa=True,
    )
    return out.transpose(1, 2).reshape(q.shape)
