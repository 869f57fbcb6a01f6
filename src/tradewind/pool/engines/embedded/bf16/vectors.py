"""Sixteen numbers at a time inside numba's kernels: 512-bit vectors as values.

numba vectorises simple loops by itself. It does not know the one instruction that matters here,
VDPBF16PS: 32 products of bf16, added in pairs to 16 sums in fp32. Nor does it keep sums in
registers over a loop whose length it does not know. So kernels name their vectors; each function
below is one instruction or two.

Addresses are byte addresses in int64; memory is read and written unaligned.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic, models, register_model

from tradewind.pool.engines.embedded.bf16.blocks import LANES

Compiler = Callable[[Callable[..., Any]], Callable[..., Any]]
instruction: Compiler = intrinsic
"""Decorates what becomes instructions in place of a call. The function returns its signature and
what writes them: (context, builder, signature, values of the arguments) -> value of the result.
"""

I32, I64, F32 = ir.IntType(32), ir.IntType(64), ir.FloatType()
_FLOATS, _INTS = ir.VectorType(F32, LANES), ir.VectorType(I32, LANES)
_HALVES = ir.VectorType(ir.IntType(16), LANES)
_NOTHING = ir.Constant(I64, 0)


class _BFloat(ir.Type):  # type: ignore[misc]
    """LLVM's bf16, for which llvmlite has no name."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat)

    def __hash__(self) -> int:
        return hash(_BFloat)


class Vector(types.Type):
    """A vector as numba's type checker knows it."""

    def __init__(self, name: str, layout: ir.VectorType) -> None:
        self.layout = layout
        super().__init__(name)


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Vector) -> None:
        super().__init__(manager, kind, kind.layout)  # type: ignore[no-untyped-call]


FLOATS = Vector("floats", _FLOATS)
"""16 fp32."""
PAIRS = Vector("pairs", _INTS)
"""16 pairs of bf16, the first of each pair in the low half."""


# What the functions below are made of: llvmlite's builder in, LLVM's instructions out ------------


def read(b: Any, address: Any, layout: Any) -> Any:
    """What lies at `address`."""
    loaded = b.load(b.inttoptr(address, layout.as_pointer()))
    loaded.align = 1
    return loaded


def write(b: Any, address: Any, value: Any) -> Any:
    """Puts `value` at `address`."""
    stored = b.store(value, b.inttoptr(address, value.type.as_pointer()))
    stored.align = 1
    return _NOTHING


def repeat(b: Any, number: Any) -> Any:
    """A vector of 16 times `number`."""
    layout = ir.VectorType(number.type, LANES)
    first = b.insert_element(ir.Constant(layout, ir.Undefined), number, ir.Constant(I32, 0))
    return b.shuffle_vector(first, first, ir.Constant(_INTS, [0] * LANES))


def dot_pairs(b: Any, sums: Any, x: Any, y: Any) -> Any:
    """`sums[i] + x[2i] y[2i] + x[2i+1] y[2i+1]` (Intel SDM, VDPBF16PS)."""
    halves = ir.VectorType(_BFloat(), 2 * LANES)
    operands = [sums, b.bitcast(x, halves), b.bitcast(y, halves)]
    return _call(b, "llvm.x86.avx512bf16.dpbf16ps.512", _FLOATS, operands)


def no_floats() -> ir.Constant:
    """16 zeros."""
    return ir.Constant(_FLOATS, [0.0] * LANES)


def _call(b: Any, name: str, result: Any, operands: Any, **flags: Any) -> Any:
    """One of LLVM's own functions."""
    kind = ir.FunctionType(result, [operand.type for operand in operands])
    function = b.module.globals.get(name) or ir.Function(b.module, kind, name)
    return b.call(function, operands, **flags)


def _ints(number: int) -> ir.Constant:
    return ir.Constant(_INTS, [number] * LANES)


# For kernels -------------------------------------------------------------------------------------


@instruction
def zeros(_: Any) -> Any:
    """16 zeros."""
    return FLOATS(), lambda _c, b, _s, v: no_floats()


@instruction
def splat(_: Any, number: Any) -> Any:
    """16 times the same number."""
    return FLOATS(types.float32), lambda _c, b, _s, v: repeat(b, *v)


@instruction
def load(_: Any, address: Any) -> Any:
    """16 fp32 from memory."""
    return FLOATS(types.int64), lambda _c, b, _s, v: read(b, v[0], _FLOATS)


@instruction
def store(_: Any, address: Any, floats: Any) -> Any:
    """16 fp32 to memory."""
    return types.int64(types.int64, FLOATS), lambda _c, b, _s, v: write(b, *v)


@instruction
def load_pairs(_: Any, address: Any) -> Any:
    """32 bf16 from memory."""
    return PAIRS(types.int64), lambda _c, b, _s, v: read(b, v[0], _INTS)


@instruction
def store_pairs(_: Any, address: Any, pairs: Any) -> Any:
    """32 bf16 to memory."""
    return types.int64(types.int64, PAIRS), lambda _c, b, _s, v: write(b, *v)


@instruction
def widen(_: Any, address: Any) -> Any:
    """16 bf16 from memory, as fp32: exact."""

    def emit(_c: Any, b: Any, _s: Any, v: Any) -> Any:
        return b.bitcast(b.shl(b.zext(read(b, v[0], _HALVES), _INTS), _ints(16)), _FLOATS)

    return FLOATS(types.int64), emit


@instruction
def narrow(_: Any, address: Any, floats: Any) -> Any:
    """16 fp32 to memory as bf16, to the nearest, ties to even; a NaN stays one."""

    def emit(_c: Any, b: Any, _s: Any, v: Any) -> Any:
        rounded = b.fptrunc(v[1], ir.VectorType(_BFloat(), LANES))
        return write(b, v[0], b.bitcast(rounded, _HALVES))

    return types.int64(types.int64, FLOATS), emit


@instruction
def add(_: Any, x: Any, y: Any) -> Any:
    """x + y."""
    return FLOATS(FLOATS, FLOATS), lambda _c, b, _s, v: b.fadd(*v)


@instruction
def multiply(_: Any, x: Any, y: Any) -> Any:
    """x * y."""
    return FLOATS(FLOATS, FLOATS), lambda _c, b, _s, v: b.fmul(*v)


@instruction
def divide(_: Any, x: Any, y: Any) -> Any:
    """x / y."""
    return FLOATS(FLOATS, FLOATS), lambda _c, b, _s, v: b.fdiv(*v)


@instruction
def multiply_add(_: Any, x: Any, y: Any, z: Any) -> Any:
    """x * y + z, rounded once."""

    def emit(_c: Any, b: Any, _s: Any, v: Any) -> Any:
        return _call(b, "llvm.fma.v16f32", _FLOATS, v)

    return FLOATS(FLOATS, FLOATS, FLOATS), emit


@instruction
def dot(_: Any, sums: Any, x: Any, y: Any) -> Any:
    """See `dot_pairs`."""
    return FLOATS(FLOATS, PAIRS, PAIRS), lambda _c, b, _s, v: dot_pairs(b, *v)


@instruction
def larger(_: Any, x: Any, y: Any) -> Any:
    """The larger of each two numbers; not a number where one is not."""

    def emit(_c: Any, b: Any, _s: Any, v: Any) -> Any:
        return _call(b, "llvm.maximum.v16f32", _FLOATS, v)

    return FLOATS(FLOATS, FLOATS), emit


@instruction
def floor(_: Any, x: Any) -> Any:
    """The next whole number below."""
    return FLOATS(FLOATS), lambda _c, b, _s, v: _call(b, "llvm.floor.v16f32", _FLOATS, v)


@instruction
def two_to(_: Any, whole: Any) -> Any:
    """2 to the power of whole numbers from -126 to 127."""

    def emit(_c: Any, b: Any, _s: Any, v: Any) -> Any:
        exponent = b.add(b.fptosi(v[0], _INTS), _ints(127))
        return b.bitcast(b.shl(exponent, _ints(23)), _FLOATS)

    return FLOATS(FLOATS), emit


@instruction
def total(_: Any, x: Any) -> Any:
    """The sum of the 16 numbers, added as a tree."""

    def emit(_c: Any, b: Any, _s: Any, v: Any) -> Any:
        start = ir.Constant(F32, -0.0)
        name = "llvm.vector.reduce.fadd.v16f32"
        return _call(b, name, F32, [start, *v], fastmath=("reassoc",))

    return types.float32(FLOATS), emit


@instruction
def largest(_: Any, x: Any) -> Any:
    """The largest of the 16 numbers; not a number if one is not."""

    def emit(_c: Any, b: Any, _s: Any, v: Any) -> Any:
        return _call(b, "llvm.vector.reduce.fmaximum.v16f32", F32, v)

    return types.float32(FLOATS), emit


@instruction
def whole(_: Any, address: Any) -> Any:
    """An int64 from memory."""
    return types.int64(types.int64), lambda _c, b, _s, v: read(b, v[0], I64)


@instruction
def number(_: Any, address: Any) -> Any:
    """An fp32 from memory."""
    return types.float32(types.int64), lambda _c, b, _s, v: read(b, v[0], F32)


@instruction
def set_number(_: Any, address: Any, value: Any) -> Any:
    """An fp32 to memory."""
    return types.int64(types.int64, types.float32), lambda _c, b, _s, v: write(b, *v)
