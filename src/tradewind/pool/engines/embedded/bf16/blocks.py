"""How a matrix lies for our own product: what 16 sums need next lies together.

(V, K) ── pack ──► (V / 16, K / 2, 16, 2), one tile's 48 columns after the other
"""

from __future__ import annotations

import torch
from torch import Tensor

LANES = 16
BLOCKS = 3
"""Blocks of 16 columns of a tile."""
COLUMNS = BLOCKS * LANES


def pack(matrix: Tensor) -> Tensor:
    """matrix: (V, K) in bf16, K even. V is filled up with zeros to a multiple of 48."""
    short = -len(matrix) % COLUMNS
    if short:
        matrix = torch.cat((matrix, matrix.new_zeros(short, matrix.shape[1])))
    return matrix.view(-1, LANES, matrix.shape[1] // 2, 2).transpose(1, 2).contiguous()


def unpack(packed: Tensor, rows: int) -> Tensor:
    """The first `rows` rows of the matrix that was packed."""
    blocks, depth, _, _ = packed.shape
    return packed.transpose(1, 2).reshape(blocks * LANES, 2 * depth)[:rows]
