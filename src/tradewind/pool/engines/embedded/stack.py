"""A stack: checkpoint tensors that arithmetic reads as one, in the layout it reads fastest.

    bits of q, k, v ── fuse rows ──► one matrix ── pack ──► stack.value ── linear(x) ──► q|k|v of x
    bits of q, k, v ◄── split, narrow (exact) ── unpack ◄── stack.value

The checkpoint's own copy is not kept: `bits` unpacks what is really multiplied, so a pool's proof
covers the arithmetic and not a copy beside it. A stack is never written in place: a swap builds a
new value and exchanges the reference, so a reader that holds the old one is not disturbed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tradewind.pool.engines.embedded.bf16.blocks import pack, unpack

Array = npt.NDArray[Any]

PACK_ROWS = 64
"""Batch rows for which oneDNN chooses its layout; measured fast from 1 to 512 rows."""

TORCH_DTYPES = {
    np.dtype(np.uint16): torch.bfloat16,
    np.dtype(np.float16): torch.float16,
    np.dtype(np.float32): torch.float32,
}
"""Wire array -> the number format that its bits mean."""


class Layout(StrEnum):
    """How a stack lies in memory."""

    PACKED = "packed"
    """Matrix in the blocks of oneDNN's kernels, for `linear`."""
    PAIRED = "paired"
    """Matrix in the blocks of our own product of bf16 with an fp32 result."""
    PLAIN = "plain"
    """As in the checkpoint: vectors, and the embedding table from which rows are gathered."""


def packs_matrices(dtype: torch.dtype) -> bool:
    """Whether oneDNN's packed kernels are there for this dtype on this processor."""
    x86 = torch.backends.cpu.get_cpu_capability().startswith("AVX")
    if not x86 or not torch._C._has_mkldnn:
        return False
    return dtype == torch.float32 or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def tensor_of(array: Array) -> Tensor:
    """A torch tensor of its own with the numbers that wire bits mean, in their own dtype."""
    owned = torch.from_numpy(np.array(array, order="C"))
    return owned.view(torch.bfloat16) if array.dtype == np.uint16 else owned


def bits_of(tensor: Tensor, stored: torch.dtype) -> Array:
    """The wire bits of `tensor` in `stored`; exact, because `tensor` came from such bits."""
    narrow = tensor.to(stored).contiguous()
    raw = narrow.view(torch.uint16) if stored == torch.bfloat16 else narrow
    return raw.numpy()


@dataclass(frozen=True)
class Value:
    """One state of a stack: immutable."""

    data: Tensor
    stored: tuple[torch.dtype, ...]
    """Dtype in which each part arrived and is handed out."""


class Stack:
    """Named tensors fused along their first dimension."""

    def __init__(self, names: Sequence[str], layout: Layout, dtype: torch.dtype) -> None:
        self.names = tuple(names)
        self.layout = layout
        self.dtype = dtype
        """Of the arithmetic; a plain table keeps the dtype in which it arrived."""
        self.rows: tuple[int, ...] = ()
        self._value: Value | None = None

    @property
    def value(self) -> Value:
        """The state that the next step computes with."""
        assert self._value is not None, f"{self.names} was never loaded"
        return self._value

    @value.setter
    def value(self, new: Value) -> None:
        self._value = new

    @property
    def data(self) -> Tensor:
        """The fused tensor in its layout."""
        return self.value.data

    def build(self, parts: Sequence[Tensor]) -> Value:
        """A value from parts in the order of `names`. Touches nothing that is being served."""
        self.rows = tuple(len(part) for part in parts)
        stored = tuple(part.dtype for part in parts)
        if len(parts) == 1 and self.layout is Layout.PLAIN and parts[0].dim() == 2:
            return Value(parts[0], stored)
        fused = torch.cat([part.to(self.dtype) for part in parts])
        if self.layout is Layout.PACKED and packs_matrices(self.dtype):
            fused = torch.ops.mkldnn._reorder_linear_weight(fused, PACK_ROWS)
        elif self.layout is Layout.PAIRED:
            fused = pack(fused)
        return Value(fused, stored)

    def rebuild(self, changed: Mapping[str, Array]) -> Value:
        """The value after `changed` (some of `names`) has replaced those parts."""
        old = [] if changed.keys() >= set(self.names) else self.parts(self.value)
        parts = [
            tensor_of(changed[name]) if name in changed else old[i]
            for i, name in enumerate(self.names)
        ]
        return self.build(parts)

    def parts(self, value: Value) -> list[Tensor]:
        """The tensors of `names` in their stored dtypes, out of a value."""
        dense = value.data.to_dense() if value.data.is_mkldnn else value.data
        if self.layout is Layout.PAIRED:
            dense = unpack(dense, sum(self.rows))
        split = torch.split(dense, list(self.rows)) if len(self.rows) > 1 else (dense,)
        return [part.to(dtype) for part, dtype in zip(split, value.stored, strict=True)]


def linear(x: Tensor, matrix: Stack, bias: Stack | None = None) -> Tensor:
    """`x @ W.T + b`. x: (N, in), result: (N, out), both in the matrix's dtype."""
    data, offset = matrix.data, None if bias is None else bias.data
    if data.is_mkldnn:
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, data, offset, "none", [], "")
        return out
    return torch.nn.functional.linear(x, data, offset)
