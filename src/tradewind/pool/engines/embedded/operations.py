"""What a layer does between its matrix products, in torch: for every dtype and processor.

`bf16/operations.py` does the same in compiled kernels; this is what it is compared with.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import rms_norm, silu

from tradewind.pool.engines.embedded.attention import decode, queries_and_kv
from tradewind.pool.engines.embedded.config import ModelShape
from tradewind.pool.engines.embedded.rope import RotaryTable, rotate
from tradewind.pool.engines.embedded.stack import Layout, Stack, linear
from tradewind.pool.engines.embedded.step import DecodeSpan, Step


class Operations(Protocol):
    """H query heads, K kv heads, D head size, N batch rows of a step."""

    head: tuple[Layout, torch.dtype]
    """How `logits` wants the head's matrix."""

    def begin(self, step: Step) -> None:
        """The calls that follow belong to `step`."""

    def add_and_normalise(self, x: Tensor, delta: Tensor | None, weight: Stack) -> Tensor:
        """x += delta, in place; returns x / rms(x) * weight. x, delta: (N, hidden)."""

    def rotate(self, heads: Tensor) -> None:
        """Rotates queries and keys in place. heads: (N, H + 2 K, D): queries, keys, values."""

    def decode(self, span: DecodeSpan, layer: int, heads: Tensor, out: Tensor) -> None:
        """Keeps the new keys and values, and attends. heads: the span's rows of those rotated;
        out: (n, H, D).
        """

    def gate(self, fused: Tensor) -> Tensor:
        """silu(gate) * up. fused: (N, 2 W), gate first; returns (N, W)."""

    def logits(self, x: Tensor, head: Stack) -> Tensor:
        """(N, vocab) in fp32. x: (N, hidden)."""


class TorchOperations:
    """Implements `Operations`."""

    head = Layout.PACKED, torch.float32
    """fp32 in every mode: bf16 logits near 20 are 0.125 apart."""

    def __init__(self, shape: ModelShape, dtype: torch.dtype) -> None:
        self._shape = shape
        self._rotary = RotaryTable(shape.rope, shape.head_dim, dtype)

    def begin(self, step: Step) -> None:
        """See `Operations.begin`."""
        cos, sin = self._rotary.upto(step.longest)
        self._cos, self._sin = cos[step.positions].unsqueeze(1), sin[step.positions].unsqueeze(1)

    def add_and_normalise(self, x: Tensor, delta: Tensor | None, weight: Stack) -> Tensor:
        """See `Operations.add_and_normalise`."""
        if delta is not None:
            x.add_(delta)
        return rms_norm(x, (x.shape[-1],), weight.data, self._shape.eps)

    def rotate(self, heads: Tensor) -> None:
        """See `Operations.rotate`."""
        moved = heads[:, : self._shape.heads + self._shape.kv_heads]
        moved.copy_(rotate(moved, self._cos, self._sin))

    def decode(self, span: DecodeSpan, layer: int, heads: Tensor, out: Tensor) -> None:
        """See `Operations.decode`."""
        out.copy_(decode(span, layer, *queries_and_kv(heads, self._shape)))

    def gate(self, fused: Tensor) -> Tensor:
        """See `Operations.gate`."""
        gate, up = fused.chunk(2, dim=-1)
        return silu(gate).mul_(up)

    def logits(self, x: Tensor, head: Stack) -> Tensor:
        """See `Operations.logits`."""
        return linear(x.float(), head)


def vectors_fit(shape: ModelShape) -> bool:
    """Whether the kernels in `bf16` can compute this model: they read 32 numbers at a time."""
    widths = [shape.hidden, shape.head_dim, shape.width]
    widths += [shape.experts.width] if shape.experts is not None else []
    return all(width % 32 == 0 for width in widths)


def choose_operations(shape: ModelShape, dtype: torch.dtype, threads: int) -> Operations:
    """The fastest that there are for this model, this dtype and this processor."""
    cpu = torch.cpu.get_capabilities()
    if dtype == torch.bfloat16 and cpu.get("avx512_bf16") and vectors_fit(shape):
        # imported here: compiled at import, in one to two seconds
        from tradewind.pool.engines.embedded.bf16.operations import VectorOperations
        from tradewind.pool.engines.embedded.bf16.team import there

        if there():
            return VectorOperations(shape, threads)
    return TorchOperations(shape, dtype)
