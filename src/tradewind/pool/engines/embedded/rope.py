"""Rotary position embedding (Su et al. 2021, RoFormer, section 3.4.2), in the half-split layout."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tradewind.pool.engines.embedded.config import Rope


def frequencies(rope: Rope, head_dim: int) -> Tensor:
    """Angle per position of each pair: (head_dim / 2,) in fp32."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    plain = 1.0 / rope.theta**exponents
    if rope.llama3 is None:
        return plain
    # Llama 3.1 report, section on long context: long waves are slowed down by `factor`, short
    # ones kept, those between interpolated.
    factor, low, high, original = rope.llama3
    waves = 2 * math.pi / plain
    keep = ((original / waves - low) / (high - low)).clamp(0.0, 1.0)
    return keep * plain + (1 - keep) * plain / factor


class RotaryTable:
    """cos and signed sin for every position of the context, grown on demand."""

    def __init__(self, rope: Rope, head_dim: int, dtype: torch.dtype) -> None:
        self._frequencies = frequencies(rope, head_dim)
        self._dtype = dtype
        self._cos = torch.empty(0, head_dim, dtype=dtype)
        self._sin = torch.empty(0, head_dim, dtype=dtype)

    def upto(self, longest: int) -> tuple[Tensor, Tensor]:
        """cos and signed sin of at least the positions below `longest`, each (P, head_dim)."""
        if longest > len(self._cos):
            self._grow(max(longest, 2 * len(self._cos), 256))
        return self._cos, self._sin

    def _grow(self, longest: int) -> None:
        angles = torch.outer(torch.arange(longest, dtype=torch.float32), self._frequencies)
        cos, sin = angles.cos(), angles.sin()
        self._cos = torch.cat((cos, cos), dim=1).to(self._dtype)
        # rotate_half negates the first half of what it moves there: the sign is kept in the table
        self._sin = torch.cat((-sin, sin), dim=1).to(self._dtype)


def rotate(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """heads: (N, H, D); cos, sin: (N, 1, D), rows of `RotaryTable.upto`. Returns (N, H, D)."""
    half = heads.shape[-1] // 2
    out = heads * cos
    out[..., :half].addcmul_(heads[..., half:], sin[..., :half])
    out[..., half:].addcmul_(heads[..., :half], sin[..., half:])
    return out
