"""What a layer does between its matrix products, in compiled kernels; and the head.

Against torch's operations: a dozen passes over memory per layer become four, keys and values are
read once as they lie, and the head multiplies bf16 while its logits are fp32.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tradewind.pool.engines.embedded.attention import decode, queries_and_kv
from tradewind.pool.engines.embedded.bf16 import kernels
from tradewind.pool.engines.embedded.bf16.blocks import LANES
from tradewind.pool.engines.embedded.bf16.product import PRODUCT, ROWS, product
from tradewind.pool.engines.embedded.bf16.team import Team
from tradewind.pool.engines.embedded.config import ModelShape
from tradewind.pool.engines.embedded.rope import RotaryTable
from tradewind.pool.engines.embedded.stack import Layout, Stack
from tradewind.pool.engines.embedded.step import DecodeSpan, Step

DTYPE = torch.bfloat16


class VectorOperations:
    """Implements `Operations`."""

    head = Layout.PAIRED, DTYPE

    def __init__(self, shape: ModelShape, threads: int) -> None:
        self._shape, self._threads = shape, threads
        self._team = Team(threads)
        self._rotary = RotaryTable(shape.rope, shape.head_dim, DTYPE)
        self._scores = torch.empty(0)

    def begin(self, step: Step) -> None:
        """See `Operations.begin`."""
        self._positions = step.positions
        self._cos, self._sin = self._rotary.upto(step.longest)

    def add_and_normalise(self, x: Tensor, delta: Tensor | None, weight: Stack) -> Tensor:
        """See `Operations.add_and_normalise`."""
        out = torch.empty_like(x)
        self._team.run(
            kernels.add_and_normalise,
            kernels.NORM,
            rows=len(x),
            width=x.shape[1],
            x=x,
            delta=0 if delta is None else delta,
            weight=weight.data,
            out=out,
            eps=self._shape.eps,
        )
        return out

    def rotate(self, heads: Tensor) -> None:
        """See `Operations.rotate`."""
        self._team.run(
            kernels.rotate,
            kernels.ROTATE,
            rows=len(heads),
            heads=self._shape.heads + self._shape.kv_heads,
            skipped=self._shape.kv_heads,
            size=self._shape.head_dim,
            x=heads,
            positions=self._positions,
            cos=self._cos,
            sin=self._sin,
        )

    def decode(self, span: DecodeSpan, layer: int, heads: Tensor, out: Tensor) -> None:
        """See `Operations.decode`."""
        if span.shared:  # read once for all rows, by products
            out.copy_(decode(span, layer, *queries_and_kv(heads, self._shape)))
            return
        s, memory = self._shape, span.lane.layers[layer]
        self._team.run(
            kernels.attend,
            kernels.ATTEND,
            entered=0,
            rows=span.count,
            heads=s.heads,
            kv_heads=s.kv_heads,
            size=s.head_dim,
            capacity=span.lane.capacity,
            longest=span.longest,
            x=heads,
            positions=span.positions,
            keys=memory[0],
            values=memory[1],
            scores=self._score_memory(span.longest),
            out=out,
        )

    def _score_memory(self, longest: int) -> Tensor:
        """Room for what one share of each thread computes on its way."""
        group, reach = self._shape.heads // self._shape.kv_heads, (longest + 15) // 16 * 16
        if len(self._scores) < self._threads * group * reach:
            self._scores = torch.empty(2 * self._threads * group * reach)
        return self._scores

    def gate(self, fused: Tensor) -> Tensor:
        """See `Operations.gate`."""
        out = fused.new_empty(len(fused), fused.shape[1] // 2)
        self._team.run(
            kernels.gate, kernels.GATE, rows=len(out), width=out.shape[1], x=fused, out=out
        )
        return out

    def logits(self, x: Tensor, head: Stack) -> Tensor:
        """See `Operations.logits`."""
        rows, depth = x.shape
        short = -rows % ROWS
        padded = torch.cat((x, x.new_zeros(short, depth))) if short else x
        columns = len(head.data) * LANES
        out = torch.empty(rows + short, columns)
        self._team.run(
            product,
            PRODUCT,
            rows=rows + short,
            depth=depth // 2,
            columns=columns,
            x=padded,
            weights=head.data,
            out=out,
        )
        return out[:rows, : self._shape.vocab].contiguous()
