"""The kernels between the matrix products of a step.

Every number in memory is bf16, every sum is fp32 and rounded once. A task is a record of addresses
and sizes; `next` counts the shares of work that were taken. Widths and head sizes are divisible by
32; rows lie one after the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.np.numpy_support import carray

from tradewind.pool.engines.embedded.bf16.team import address_of, kernel, part, take
from tradewind.pool.engines.embedded.bf16.vectors import (
    add,
    divide,
    dot,
    floor,
    larger,
    largest,
    load,
    load_pairs,
    multiply,
    multiply_add,
    narrow,
    number,
    set_number,
    splat,
    store,
    store_pairs,
    total,
    two_to,
    whole,
    widen,
    zeros,
)

BF16, FP32, INT64 = 2, 4, 8
"""Bytes of a number."""
HALVES, SINGLES, PAIRS = 32, 64, 64
"""Bytes of a vector's 16 bf16, 16 fp32, and 32 bf16."""

F32 = np.float32
LOWEST = F32(-1e30)
"""Score of a key that is not there."""


def _task(*fields: str, **others: str) -> np.dtype[Any]:
    """A record of int64 `fields` behind the count of shares that were taken, and `others`."""
    return np.dtype([*((name, "i8") for name in ("next", *fields)), *others.items()])


NORM = _task("rows", "width", "x", "delta", "weight", "out", eps="f4")
ROTATE = _task("rows", "heads", "skipped", "size", "x", "positions", "cos", "sin")
ATTEND = _task(
    *("entered", "rows", "heads", "kv_heads", "size", "capacity", "longest"),
    *("x", "positions", "keys", "values", "scores", "out"),
)
GATE = _task("rows", "width", "x", "out")

SHARE = 4
"""Rows of a share, where rows are cheap."""


@part
def exponential(x: Any) -> Any:
    """e to the power of 16 numbers, within 2 units in the last place; at least about 1e-38.

    e^x = 2^n e^r with |r| at most half the logarithm of 2, whose two parts keep r exact (Cody and
    Waite 1980, chapter 6); the polynomial is the one of Cephes' expf.
    """
    x = larger(x, splat(F32(-87.3)))
    n = floor(multiply_add(x, splat(F32(1.44269504)), splat(F32(0.5))))
    r = multiply_add(n, splat(F32(-0.693359375)), x)
    r = multiply_add(n, splat(F32(2.12194440e-4)), r)
    p = splat(F32(1.9875691500e-4))
    p = multiply_add(p, r, splat(F32(1.3981999507e-3)))
    p = multiply_add(p, r, splat(F32(8.3334519073e-3)))
    p = multiply_add(p, r, splat(F32(4.1665795894e-2)))
    p = multiply_add(p, r, splat(F32(1.6666665459e-1)))
    p = multiply_add(p, r, splat(F32(5.0000001201e-1)))
    e = add(multiply_add(p, multiply(r, r), r), splat(F32(1.0)))
    return multiply(e, two_to(n))


@kernel
def add_and_normalise(data: Any) -> None:
    """x += delta where there is one; out = x / rms(x) * weight (Zhang and Sennrich 2019, (4))."""
    task, ticket = carray(data, 1, NORM)[0], address_of(data)
    rows, width, eps = task.rows, task.width, task.eps
    line = width * BF16
    while True:
        first = take(ticket) * SHARE
        if first >= rows:
            break
        for row in range(first, min(first + SHARE, rows)):
            x, out = task.x + row * line, task.out + row * line
            if task.delta:
                delta = task.delta + row * line
                for i in range(0, line, HALVES):
                    narrow(x + i, add(widen(x + i), widen(delta + i)))
            squares = zeros()
            for i in range(0, line, HALVES):
                v = widen(x + i)
                squares = multiply_add(v, v, squares)
            scale = splat(F32(1.0) / np.sqrt(total(squares) / F32(width) + eps))
            for i in range(0, line, HALVES):
                scaled = multiply(widen(x + i), scale)
                narrow(out + i, multiply(scaled, widen(task.weight + i)))


@kernel
def rotate(data: Any) -> None:
    """Rotates each row's first `heads` heads in place; `skipped` others follow (`rope.rotate`).

    cos, sin: (positions, size), the sine with the sign of the half that it goes to.
    """
    task, ticket = carray(data, 1, ROTATE)[0], address_of(data)
    size = task.size * BF16
    half, line = size // 2, (task.heads + task.skipped) * size
    while True:
        first = take(ticket) * SHARE
        if first >= task.rows:
            break
        for row in range(first, min(first + SHARE, task.rows)):
            turn = whole(task.positions + row * INT64) * size
            cos, sin = task.cos + turn, task.sin + turn
            for head in range(task.heads):
                low = task.x + row * line + head * size
                high = low + half
                for i in range(0, half, HALVES):
                    a, b = widen(low + i), widen(high + i)
                    c = multiply_add(b, widen(sin + i), multiply(a, widen(cos + i)))
                    d = multiply(b, widen(cos + half + i))
                    narrow(low + i, c)
                    narrow(high + i, multiply_add(a, widen(sin + half + i), d))


@part
def _keep(source: int, target: int, size: int) -> None:
    for i in range(0, size, PAIRS):
        store_pairs(target + i, load_pairs(source + i))


@part
def _score(query: int, keys: int, scores: int, count: int, size: int) -> None:
    """query: one head; keys: (count, size). Writes `count` products."""
    for t in range(count):
        sums = zeros()
        for i in range(0, size, PAIRS):
            sums = dot(sums, load_pairs(query + i), load_pairs(keys + t * size + i))
        set_number(scores + t * FP32, total(sums))


@part
def _weigh(scores: int, count: int, scale: Any) -> Any:
    """Scores become e^(scale (score - largest)), in place; returns their sum."""
    end = (count + 15) // 16 * SINGLES
    for i in range(count * FP32, end, FP32):
        set_number(scores + i, LOWEST)
    top = load(scores)
    for i in range(SINGLES, end, SINGLES):
        top = larger(top, load(scores + i))
    least, scales, sums = splat(-largest(top) * scale), splat(scale), zeros()
    for i in range(0, end, SINGLES):
        e = exponential(multiply_add(load(scores + i), scales, least))
        store(scores + i, e)
        sums = add(sums, e)
    return total(sums)


@part
def _mix(weights: int, values: int, out: int, count: int, size: int, total_weight: Any) -> None:
    """out = weights @ values / total_weight. weights: (count,) in fp32; values: (count, size)."""
    share = splat(F32(1.0) / total_weight)
    for i in range(0, size, 2 * HALVES):
        a, b = zeros(), zeros()
        for t in range(count):
            weight, at = splat(number(weights + t * FP32)), values + t * size + i
            a = multiply_add(weight, widen(at), a)
            b = multiply_add(weight, widen(at + HALVES), b)
        narrow(out + i, multiply(a, share))
        narrow(out + i + HALVES, multiply(b, share))


@kernel
def attend(data: Any) -> None:
    """One new id per row: its keys and values go into memory, its queries see all keys so far.

    x: (rows, heads + 2 kv_heads, size), rotated. keys, values: (rows, kv_heads, capacity, size).
    scores: fp32, for each thread (heads / kv_heads) times `longest` rounded up to 16.
    """
    task, ticket = carray(data, 1, ATTEND)[0], address_of(data)
    size, kv_heads = task.size * BF16, task.kv_heads
    group = task.heads // kv_heads
    line, reach = (task.heads + 2 * kv_heads) * size, (task.longest + 15) // 16 * SINGLES
    scores = task.scores + take(ticket + INT64) * group * reach
    while True:
        share = take(ticket)
        if share >= task.rows * kv_heads:
            break
        row, head = share // kv_heads, share % kv_heads
        position = whole(task.positions + row * INT64)
        keys = task.keys + share * task.capacity * size
        values = task.values + share * task.capacity * size
        x = task.x + row * line
        _keep(x + (task.heads + head) * size, keys + position * size, size)
        _keep(x + (task.heads + kv_heads + head) * size, values + position * size, size)
        queries = x + head * group * size
        out = task.out + (row * task.heads + head * group) * size
        for g in range(group):
            _score(queries + g * size, keys, scores + g * reach, position + 1, size)
        for g in range(group):
            weight = _weigh(scores + g * reach, position + 1, F32(1.0) / np.sqrt(F32(task.size)))
            _mix(scores + g * reach, values, out + g * size, position + 1, size, weight)


@kernel
def gate(data: Any) -> None:
    """out = silu(g) * u for rows of g | u. x: (rows, 2 width); out: (rows, width)."""
    task, ticket = carray(data, 1, GATE)[0], address_of(data)
    line = task.width * BF16
    one = splat(F32(1.0))
    while True:
        first = take(ticket) * SHARE
        if first >= task.rows:
            break
        for row in range(first, min(first + SHARE, task.rows)):
            x, out = task.x + row * 2 * line, task.out + row * line
            for i in range(0, line, HALVES):
                g = widen(x + i)
                closed = add(one, exponential(multiply(g, splat(F32(-1.0)))))
                narrow(out + i, multiply(divide(g, closed), widen(x + line + i)))
