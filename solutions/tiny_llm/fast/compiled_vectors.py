"""What the compiler makes of the functions in `vectors.py` (Day 4.7, given code).

Where registers are shorter, or an instruction is missing, LLVM takes several others that do the same.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types

from tiny_llm.fast.llvm_code import (
    BYTES,
    SHORTS,
    call,
    constant,
    fused,
    prefetch,
    round_to_bfloat,
    splat,
    widen_halves,
)
from tiny_llm.fast.registers import (
    COUNT,
    FLOATS,
    FLOATS_GIVEN,
    INDEX,
    INT,
    INTS,
    INTS_GIVEN,
    NUMBER,
    Floats,
    Ints,
    Memory,
    array_of,
    compiled,
)
from tiny_llm.fast.vectors import (
    LANES,
    fetch,
    first_lanes,
    floats,
    fma,
    high_nibbles,
    largest,
    largest_lane,
    load_bfloats,
    load_floats,
    load_halves,
    load_ints,
    low_nibbles,
    magnitude,
    nearest,
    power_of_2,
    store_bytes,
    store_floats,
    sum_of_lanes,
)

_BITS_16 = types.int16, types.uint16
_WHOLE_TYPES = types.int8, types.uint8, *_BITS_16, types.int32, types.uint32
_WHOLE = array_of("whole numbers", *_WHOLE_TYPES)
_ANY = array_of("float32 or whole numbers", types.float32, *_WHOLE_TYPES)
_TARGET = array_of("float32, int16 or uint16", types.float32, *_BITS_16, written=True)


@compiled(load_ints, _WHOLE, INDEX, result=Ints)
def _load_ints(builder: ir.IRBuilder, array: Memory, at: ir.Value) -> ir.Value:
    return array.load(at, INTS)


@compiled(load_floats, array_of("float32", types.float32), INDEX, result=Floats)
def _load_floats(builder: ir.IRBuilder, array: Memory, at: ir.Value) -> ir.Value:
    return array.load(at, FLOATS)


@compiled(load_halves, array_of("uint8", types.uint8), INDEX, result=Floats)
def _load_halves(builder: ir.IRBuilder, array: Memory, at: ir.Value) -> ir.Value:
    return widen_halves(builder, array.load(at, SHORTS))


@compiled(load_bfloats, array_of("int16 or uint16", *_BITS_16), INDEX, result=Floats)
def _load_bfloats(builder: ir.IRBuilder, array: Memory, at: ir.Value) -> ir.Value:
    bits = builder.zext(array.load(at, SHORTS), INTS)
    return builder.bitcast(builder.shl(bits, constant(16)), FLOATS)


@compiled(fetch, _ANY, INDEX, result=types.none)
def _fetch(builder: ir.IRBuilder, array: Memory, at: ir.Value) -> None:
    prefetch(builder, array.pointer(at, BYTES.element))


@compiled(store_floats, _TARGET, INDEX, FLOATS_GIVEN, result=types.none)
def _store_floats(builder: ir.IRBuilder, array: Memory, at: ir.Value, x: ir.Value) -> None:
    array.store(at, x if array.dtype == types.float32 else round_to_bfloat(builder, x))


@compiled(store_bytes, array_of("int8", types.int8, written=True), INDEX, FLOATS_GIVEN, result=types.none)
def _store_bytes(builder: ir.IRBuilder, array: Memory, at: ir.Value, x: ir.Value) -> None:
    array.store(at, builder.trunc(builder.fptosi(x, INTS), BYTES))


@compiled(floats, NUMBER, result=Floats)
def _floats(builder: ir.IRBuilder, number: ir.Value) -> ir.Value:
    return splat(builder, number)


@compiled(low_nibbles, INTS_GIVEN, result=Ints)
def _low_nibbles(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    return builder.and_(x, constant(0x0F0F0F0F))


@compiled(high_nibbles, INTS_GIVEN, result=Ints)
def _high_nibbles(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    return builder.and_(builder.lshr(x, constant(4)), constant(0x0F0F0F0F))


@compiled(fma, FLOATS_GIVEN, FLOATS_GIVEN, FLOATS_GIVEN, result=Floats)
def _fma(builder: ir.IRBuilder, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    return fused(builder, a, b, c)


@compiled(largest, FLOATS_GIVEN, FLOATS_GIVEN, result=Floats)
def _largest(builder: ir.IRBuilder, a: ir.Value, b: ir.Value) -> ir.Value:
    return call(builder, "llvm.maxnum.v16f32", FLOATS, a, b)


@compiled(magnitude, FLOATS_GIVEN, result=Floats)
def _magnitude(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    return call(builder, "llvm.fabs.v16f32", FLOATS, x)


@compiled(nearest, FLOATS_GIVEN, result=Floats)
def _nearest(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    return call(builder, "llvm.rint.v16f32", FLOATS, x)


@compiled(power_of_2, FLOATS_GIVEN, result=Floats)
def _power_of_2(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    exponent = builder.add(builder.fptosi(x, INTS), constant(127))
    return builder.bitcast(builder.shl(exponent, constant(23)), FLOATS)


@compiled(first_lanes, FLOATS_GIVEN, COUNT, FLOATS_GIVEN, result=Floats)
def _first_lanes(builder: ir.IRBuilder, x: ir.Value, count: ir.Value, other: ir.Value) -> ir.Value:
    numbers = ir.Constant(INTS, list(range(LANES)))
    return builder.select(builder.icmp_signed("<", numbers, splat(builder, count)), x, other)


def _halves(builder: ir.IRBuilder, x: ir.Value, half: int) -> ir.Value:
    """x with the lanes ``half`` apart exchanged."""
    return builder.shuffle_vector(x, x, ir.Constant(INTS, [lane ^ half for lane in range(LANES)]))


@compiled(sum_of_lanes, FLOATS_GIVEN, result=types.float32)
def _sum_of_lanes(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    for half in (8, 4, 2, 1):
        x = builder.fadd(x, _halves(builder, x, half))
    return builder.extract_element(x, ir.Constant(INT, 0))


@compiled(largest_lane, FLOATS_GIVEN, result=types.float32)
def _largest_lane(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    for half in (8, 4, 2, 1):
        x = call(builder, "llvm.maxnum.v16f32", FLOATS, x, _halves(builder, x, half))
    return builder.extract_element(x, ir.Constant(INT, 0))
