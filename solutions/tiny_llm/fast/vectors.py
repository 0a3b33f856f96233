"""Registers in kernels: 16 numbers of 32 bits that one instruction works on (Day 4.7, given code).

Numba has no such type. Here it gets two: 16 int32 (`Ints`) and 16 float32 (`Floats`). Each function stands for an
instruction or two. Where registers are shorter, or an instruction is missing, the compiler takes several others that do
the same.

All functions are for kernels only. Indices count elements of the array as it is, in memory order; none is checked.
"""

from __future__ import annotations

import operator
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

from tiny_llm.fast.llvm_code import (
    FLOATS,
    INTS,
    LANES,
    Floats,
    Ints,
    Memory,
    call,
    constant,
    exchange,
    index,
    round_to_bfloat,
    splat,
)


@intrinsic
def load_ints(typing: Any, array: Any, at: Any) -> Any:
    """16 int32, or 64 bytes, from element ``at`` on."""

    def make(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        where = index(context, builder, signature, arguments, 1)
        return Memory(context, builder, array, arguments[0]).load(where, INTS)

    return Ints(array, at), make


@intrinsic
def load_floats(typing: Any, array: Any, at: Any) -> Any:
    """16 float32 from element ``at`` on."""

    def make(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        where = index(context, builder, signature, arguments, 1)
        return Memory(context, builder, array, arguments[0]).load(where, FLOATS)

    return Floats(array, at), make


@intrinsic
def load_halves(typing: Any, array: Any, at: Any) -> Any:
    """16 float16 from element ``at`` on, widened."""

    def make(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        where = index(context, builder, signature, arguments, 1)
        memory = Memory(context, builder, array, arguments[0])
        return builder.fpext(memory.load(where, ir.VectorType(ir.HalfType(), LANES)), FLOATS)

    return Floats(array, at), make


@intrinsic
def fetch(typing: Any, array: Any, at: Any) -> Any:
    """Begin to bring what lies at element ``at`` from memory; it may be beyond the array."""

    def make(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        where = index(context, builder, signature, arguments, 1)
        data = Memory(context, builder, array, arguments[0]).data
        pointer = builder.bitcast(builder.gep(data, [where]), ir.IntType(8).as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, ir.IntType(32), ir.IntType(32), ir.IntType(32)])
        # to be read; wanted in all caches; data
        what = [ir.Constant(ir.IntType(32), number) for number in (0, 3, 1)]
        builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0"), [pointer, *what])
        return context.get_dummy_value()

    return types.none(array, at), make


@intrinsic
def load_bfloats(typing: Any, array: Any, at: Any) -> Any:
    """16 bfloat16 from element ``at`` on, widened."""

    def make(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        where = index(context, builder, signature, arguments, 1)
        halves = Memory(context, builder, array, arguments[0]).load(where, ir.VectorType(ir.IntType(16), LANES))
        return builder.bitcast(builder.shl(builder.zext(halves, INTS), constant(16)), FLOATS)

    return Floats(array, at), make


@intrinsic
def store_floats(typing: Any, array: Any, at: Any, x: Any) -> Any:
    """16 float32 to element ``at`` and behind it; into an array of 16-bit numbers as bfloat16, rounded."""

    def make(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        value = round_to_bfloat(builder, arguments[2]) if array.dtype.bitwidth == 16 else arguments[2]
        where = index(context, builder, signature, arguments, 1)
        Memory(context, builder, array, arguments[0]).store(where, value)
        return context.get_dummy_value()

    return types.none(array, at, x), make


@intrinsic
def store_bytes(typing: Any, array: Any, at: Any, x: Any) -> Any:
    """16 float32, whole numbers from −128 to 127, as int8 to element ``at`` and behind it."""

    def make(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        value = builder.trunc(builder.fptosi(arguments[2], INTS), ir.VectorType(ir.IntType(8), LANES))
        where = index(context, builder, signature, arguments, 1)
        Memory(context, builder, array, arguments[0]).store(where, value)
        return context.get_dummy_value()

    return types.none(array, at, x), make


@intrinsic
def transpose_bfloats(typing: Any, array: Any, starts: Any, offset: Any, target: Any, at: Any) -> Any:
    """32 numbers each of 16 tokens, widened, with tokens side by side.

    target[at + 16·i + j] is array[starts[j] + offset + i], for i < 32 and j < 16.

    Args:
        array: bits of bfloat16, 16-bit.
        starts: int64, the first 16 are read.
        target: float32.
    """

    def make(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        source, begins = (
            Memory(context, builder, kind, value) for kind, value in zip((array, starts), arguments, strict=False)
        )
        more = index(context, builder, signature, arguments, 2)
        memory, where = Memory(context, builder, target, arguments[3]), index(context, builder, signature, arguments, 4)
        begin = [begins.load(ir.Constant(ir.IntType(64), lane), ir.IntType(64)) for lane in range(LANES)]
        rows = exchange(builder, [source.load(builder.add(each, more), INTS) for each in begin])
        for row in rows:  # two numbers each: the first one is the lower half
            for half in (builder.shl(row, constant(16)), builder.and_(row, constant(-65536))):
                memory.store(where, builder.bitcast(half, FLOATS))
                where = builder.add(where, ir.Constant(where.type, LANES))
        return context.get_dummy_value()

    return types.none(array, starts, offset, target, at), make


@intrinsic
def floats(typing: Any, number: Any) -> Any:
    """The same number in all lanes."""

    def make(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        return splat(builder, context.cast(builder, arguments[0], signature.args[0], types.float32))

    return Floats(number), make


@intrinsic
def low_nibbles(typing: Any, x: Any) -> Any:
    """The lower four bits of each byte."""
    return Ints(x), lambda context, builder, signature, arguments: builder.and_(arguments[0], constant(0x0F0F0F0F))


@intrinsic
def high_nibbles(typing: Any, x: Any) -> Any:
    """The upper four bits of each byte."""

    def make(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        return builder.and_(builder.lshr(arguments[0], constant(4)), constant(0x0F0F0F0F))

    return Ints(x), make


@intrinsic
def fma(typing: Any, a: Any, b: Any, c: Any) -> Any:
    """a · b + c, rounded once."""
    return Floats(a, b, c), lambda context, builder, signature, arguments: call(
        builder, "llvm.fma.v16f32", FLOATS, *arguments
    )


@intrinsic
def largest(typing: Any, a: Any, b: Any) -> Any:
    """The larger number of each lane."""
    return Floats(a, b), lambda context, builder, signature, arguments: call(
        builder, "llvm.maxnum.v16f32", FLOATS, *arguments
    )


@intrinsic
def magnitude(typing: Any, x: Any) -> Any:
    """Without the sign."""
    return Floats(x), lambda context, builder, signature, arguments: call(
        builder, "llvm.fabs.v16f32", FLOATS, *arguments
    )


@intrinsic
def nearest(typing: Any, x: Any) -> Any:
    """The nearest whole numbers; of two equally near, the even one."""
    return Floats(x), lambda context, builder, signature, arguments: call(
        builder, "llvm.rint.v16f32", FLOATS, *arguments
    )


@intrinsic
def power_of_2(typing: Any, x: Any) -> Any:
    """2 to the power of whole numbers from −126 to 127."""

    def make(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        exponent = builder.add(builder.fptosi(arguments[0], INTS), constant(127))
        return builder.bitcast(builder.shl(exponent, constant(23)), FLOATS)

    return Floats(x), make


@intrinsic
def first_lanes(typing: Any, x: Any, count: Any, other: Any) -> Any:
    """The first ``count`` lanes of x, which may be none, or more than there are; ``other`` in the rest."""

    def make(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        bound = context.cast(builder, arguments[1], signature.args[1], types.int32)
        numbers = ir.Constant(INTS, list(range(LANES)))
        return builder.select(
            builder.icmp_signed("<", numbers, splat(builder, bound)), arguments[0], arguments[2]
        )

    return Floats(x, count, other), make


def _fold(name: str) -> Any:
    """A number from the lanes: neighbors first, then pairs of neighbors, and so on. Always in this order."""

    def make(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        x = arguments[0]
        for half in (8, 4, 2, 1):
            lanes = [ir.IntType(32)(lane ^ half) for lane in range(LANES)]
            other = builder.shuffle_vector(x, x, ir.Constant(INTS, [lane.constant for lane in lanes]))
            x = builder.fadd(x, other) if name == "add" else call(builder, "llvm.maxnum.v16f32", FLOATS, x, other)
        return builder.extract_element(x, ir.Constant(ir.IntType(32), 0))

    return make


@intrinsic
def sum_of_lanes(typing: Any, x: Any) -> Any:
    """The sum of all lanes, as float32; always added in the same order."""
    return types.float32(x), _fold("add")


@intrinsic
def largest_lane(typing: Any, x: Any) -> Any:
    """The largest number of all lanes, as float32."""
    return types.float32(x), _fold("max")


def _arithmetic(name: str) -> Any:
    @intrinsic
    def operation(typing: Any, a: Any, b: Any) -> Any:
        return Floats(a, b), lambda context, builder, signature, arguments: getattr(builder, name)(*arguments)

    return operation


_add, _subtract, _multiply, _divide = (_arithmetic(name) for name in ("fadd", "fsub", "fmul", "fdiv"))


@overload(operator.add)
def _plus(a, b):
    if a == Floats and b == Floats:
        return lambda a, b: _add(a, b)


@overload(operator.sub)
def _minus(a, b):
    if a == Floats and b == Floats:
        return lambda a, b: _subtract(a, b)


@overload(operator.mul)
def _times(a, b):
    if a == Floats and b == Floats:
        return lambda a, b: _multiply(a, b)


@overload(operator.truediv)
def _over(a, b):
    if a == Floats and b == Floats:
        return lambda a, b: _divide(a, b)
