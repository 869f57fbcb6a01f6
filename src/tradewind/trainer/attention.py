"""Attention over a forest, block by block; registered with transformers under `NAME`.

A block of 128 queries attends to its own tokens and to the ancestors of its first token, so the
cost follows the depth of the samples and not the length of the packed micro-batch, and no mask
larger than [128, K] exists. Query heads that share a key head are folded into the rows of one
matrix, so keys and values are never repeated.

    k, v ──► one gather of the keys of all blocks ──► split ─┐
    q ─────► split ──────────────────────────────────────────┴─► block by block ──► cat

One gather and one split: their backward passes are one scatter and one cat, not one per block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AttentionInterface

from tradewind.trainer.forest import Block
from tradewind.trainer.short_attention import ShortAttention, serves

NAME = "tradewind_forest"


@dataclass(frozen=True)
class Cuts:
    """The blocks as the kernel wants them, made once per forward pass and used in every layer."""

    rows: list[int]
    """Queries of each block; their sum is T."""
    reach: list[int]
    """Keys of each block."""
    keys: Tensor
    """int64 [sum of reach], the keys of all blocks one after another."""
    bias: tuple[Tensor, ...]
    """For each block [S * rows, reach], S query heads per key head: 0 where the key is seen, else
    -inf."""


def cuts(blocks: tuple[Block, ...], shared: int, dtype: torch.dtype) -> Cuts:
    """Blocks for `shared` query heads per key head and arithmetic in `dtype`."""
    bias = []
    for block in blocks:
        whole = torch.zeros(block.mask.shape, dtype=dtype, device=block.mask.device)
        bias.append(whole.masked_fill_(~block.mask, float("-inf")).repeat(shared, 1))
    rows = [block.stop - block.start for block in blocks]
    reach = [len(block.keys) for block in blocks]
    return Cuts(rows, reach, torch.cat([block.keys for block in blocks]), tuple(bias))


def attend(q: Tensor, k: Tensor, v: Tensor, cuts: Cuts, scale: float) -> Tensor:
    """softmax(q k^T * scale) v for each block.

    q [G, S, T, D] (G key heads, S query heads each), k and v [G, T, D] -> [G, S, T, D].
    """
    queries = torch.split(q, cuts.rows, 2)
    keys = torch.split(k.contiguous().index_select(1, cuts.keys), cuts.reach, 1)
    values = torch.split(v.contiguous().index_select(1, cuts.keys), cuts.reach, 1)
    parts = zip(queries, keys, values, cuts.bias, strict=True)
    return torch.cat([_block(*part, scale) for part in parts], dim=2)


def _block(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, scale: float) -> Tensor:
    """q [G, S, B, D], k and v [G, K, D], bias [S * B, K] -> [G, S, B, D]."""
    groups, shared, rows, width = q.shape
    folded = q.reshape(groups, shared * rows, width)
    if serves(q, k.shape[1]):
        out: Tensor = ShortAttention.apply(folded, k, v, bias, scale)  # type: ignore[no-untyped-call]
    else:
        out = F.scaled_dot_product_attention(folded[None], k[None], v[None], bias, scale=scale)
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

    `options["cuts"]` are those of the forest, `options["scaling"]` the factor of q k^T.
    Returns [1, T, H, D].
    """
    assert attention_mask is None and query.shape[0] == 1, "a forest is one row and has no mask"
    _, heads, tokens, width = query.shape
    groups = key.shape[1]
    q = query.view(groups, heads // groups, tokens, width)
    out = attend(q, key[0], value[0], options["cuts"], options["scaling"])
    return out.reshape(heads, tokens, width).transpose(0, 1)[None], None


AttentionInterface.register(NAME, forest_attention)
