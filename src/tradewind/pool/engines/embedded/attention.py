"""Grouped-query attention over the lanes (Ainslie et al. 2023, GQA), keys and values in place.

Shapes: H query heads, K kv heads, G = H / K, D head size, N batch rows of the step.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from tradewind.pool.engines.embedded.step import DecodeSpan, PromptSpan, Step


def attend(step: Step, layer: int, q: Tensor, kv: Tensor) -> Tensor:
    """Writes the new KV and attends. q: (N, H, D) and kv: (N, 2K, D), both rotated already.

    Returns (N, H * D).
    """
    out = torch.empty_like(q)
    for decode in step.decodes:
        rows = slice(decode.start, decode.start + decode.count)
        out[rows] = _decode(decode, layer, q[rows], kv[rows])
    for prompt in step.prompts:
        rows = slice(prompt.start, prompt.start + prompt.count)
        out[rows] = _prompt(prompt, layer, q[rows], kv[rows])
    return out.view(len(q), -1)


def _decode(span: DecodeSpan, layer: int, q: Tensor, kv: Tensor) -> Tensor:
    """One new id per row: the G query heads that share a kv head are the query rows."""
    memory = span.lane.layers[layer][: span.count]  # (n, 2K, capacity, D)
    memory[torch.arange(span.count), :, span.positions] = kv
    n, heads, size = q.shape
    kv_heads = memory.shape[1] // 2
    seen = memory[:, :, : span.longest]
    grouped = q.view(n, kv_heads, heads // kv_heads, size)
    out = scaled_dot_product_attention(
        grouped, seen[:, :kv_heads], seen[:, kv_heads:], attn_mask=span.mask
    )
    return out.view(n, heads, size)


def _prompt(span: PromptSpan, layer: int, q: Tensor, kv: Tensor) -> Tensor:
    """Many ids of one sequence, causal among themselves, all of the past visible."""
    memory = span.lane.layers[layer][span.row]  # (2K, capacity, D)
    memory[:, span.past : span.past + span.count] = kv.transpose(0, 1)
    seen = memory[:, : span.past + span.count].unsqueeze(0)
    kv_heads = memory.shape[0] // 2
    out = scaled_dot_product_attention(
        q.transpose(0, 1).unsqueeze(0),
        seen[:, :kv_heads],
        seen[:, kv_heads:],
        attn_mask=span.mask,
        is_causal=span.mask is None,
        enable_gqa=True,
    )
    return out[0].transpose(0, 1)
