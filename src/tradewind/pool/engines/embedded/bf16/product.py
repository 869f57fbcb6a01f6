"""A matrix product of bf16 with an fp32 result, for the head: torch has none for CPUs.

A tile is 8 rows by 48 columns: its 24 sums stay in registers while the depth is walked through.
Weights lie as `blocks.pack` has them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.np.numpy_support import carray

from tradewind.pool.engines.embedded.bf16.blocks import BLOCKS, COLUMNS, LANES
from tradewind.pool.engines.embedded.bf16.team import address_of, kernel, take
from tradewind.pool.engines.embedded.bf16.vectors import (
    I32,
    I64,
    PAIRS,
    dot_pairs,
    instruction,
    no_floats,
    read,
    repeat,
    write,
)

ROWS = 8
"""Of a tile."""

PRODUCT = np.dtype([(n, "i8") for n in ("next", "rows", "depth", "columns", "x", "weights", "out")])


def _apart(b: Any, address: Any, stride: Any, count: int) -> list[Any]:
    """`count` addresses, `stride` bytes apart."""
    return [b.add(address, b.mul(stride, ir.Constant(I64, i))) for i in range(count)]


@instruction
def tile(_: Any, x: Any, weights: Any, out: Any, depth: Any, across: Any) -> Any:
    """Writes 8 rows of x times 48 columns: `depth` pairs deep, rows of out `across` bytes apart."""

    def emit(_c: Any, b: Any, _s: Any, v: Any) -> Any:
        x, weights, out, depth, across = v
        pair, vector = ir.Constant(I64, 4), ir.Constant(I64, 4 * LANES)
        rows = _apart(b, x, b.mul(depth, pair), ROWS)
        columns = _apart(b, weights, b.mul(depth, vector), BLOCKS)
        before, loop = b.block, b.append_basic_block("depth")
        after = b.append_basic_block("done")
        b.branch(loop)
        b.position_at_end(loop)
        k = b.phi(I64)
        sums = {(i, j): b.phi(no_floats().type) for i in range(ROWS) for j in range(BLOCKS)}
        xs = [repeat(b, read(b, b.add(at, b.mul(k, pair)), I32)) for at in rows]
        ws = [read(b, b.add(at, b.mul(k, vector)), PAIRS.layout) for at in columns]
        new = {(i, j): dot_pairs(b, old, xs[i], ws[j]) for (i, j), old in sums.items()}
        following = b.add(k, ir.Constant(I64, 1))
        for value, first, later in (
            (k, ir.Constant(I64, 0), following),
            *((sums[at], no_floats(), new[at]) for at in sums),
        ):
            value.add_incoming(first, before)
            value.add_incoming(later, loop)
        b.cbranch(b.icmp_signed("<", following, depth), loop, after)
        b.position_at_end(after)
        for i, line in enumerate(_apart(b, out, across, ROWS)):
            for j, at in enumerate(_apart(b, line, vector, BLOCKS)):
                write(b, at, new[i, j])
        return ir.Constant(I64, 0)

    return types.int64(*[types.int64] * 5), emit


@kernel
def product(data: Any) -> None:
    """out = x @ weights. x: (rows, 2 depth) in bf16, rows a multiple of 8; out: (rows, columns)."""
    task, ticket = carray(data, 1, PRODUCT)[0], address_of(data)
    block, across = task.depth * 4 * LANES, task.columns * 4
    while True:
        share = take(ticket)
        if share >= task.columns // COLUMNS:
            break
        weights, out = task.weights + share * BLOCKS * block, task.out + share * COLUMNS * 4
        for row in range(0, task.rows, ROWS):
            x = task.x + row * task.depth * 4
            tile(x, weights, out + row * across, task.depth, across)
