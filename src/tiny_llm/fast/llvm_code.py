"""Pieces of LLVM code for registers (Day 4.7, given code)."""

from __future__ import annotations

from llvmlite import ir
from numba.core import cgutils

from tiny_llm.fast.instructions import DOT4, DOT4_OF_4, DOT4_OF_8, HALF, SIGNED_DOT4_OF_4, has
from tiny_llm.fast.registers import FLOATS, INT, INTS
from tiny_llm.fast.vectors import LANES

SHORTS, BYTES = ir.VectorType(ir.IntType(16), LANES), ir.VectorType(ir.IntType(8), LANES)


def splat(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """A register with the same number in all lanes."""
    nothing = ir.Constant(ir.VectorType(value.type, LANES), ir.Undefined)
    first = builder.insert_element(nothing, value, ir.Constant(INT, 0))
    return builder.shuffle_vector(first, nothing, ir.Constant(INTS, [0] * LANES))


def constant(value: int) -> ir.Constant:
    """A register with the same int32 in all lanes."""
    return ir.Constant(INTS, [value] * LANES)


def call(builder: ir.IRBuilder, name: str, result: ir.Type, *arguments: ir.Value) -> ir.Value:
    """The result of one of LLVM's own functions."""
    kind = ir.FunctionType(result, [each.type for each in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)


def fused(builder: ir.IRBuilder, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    """a · b + c of float32, rounded once."""
    return call(builder, "llvm.fma.v16f32", FLOATS, a, b, c)


_DOT4 = {
    DOT4: ("llvm.x86.avx512.vpdpbusd.512", INTS),
    DOT4_OF_8: ("llvm.x86.avx512.vpdpbusd.256", ir.VectorType(INT, 8)),
    DOT4_OF_4: ("llvm.aarch64.neon.usdot.v4i32.v16i8", BYTES),
}
"""LLVM's names for the instructions, and the type of what is multiplied."""


def dot4(builder: ir.IRBuilder, total: ir.Value, left: ir.Value, right: ir.Value) -> ir.Value:
    """total + Σ of four products per lane: unsigned bytes of ``left`` times signed bytes of ``right``."""
    for instruction, (name, kind) in _DOT4.items():
        if has(instruction):
            return _in_parts(builder, name, kind, total, left, right)
    if has(SIGNED_DOT4_OF_4):  # u · x = (u − 128) · x + 128 · x
        name, ones = "llvm.aarch64.neon.sdot.v4i32.v16i8", constant(0x01010101)
        total = _in_parts(builder, name, BYTES, total, builder.xor(left, constant(-0x7F7F7F80)), right)
        sums = _in_parts(builder, name, BYTES, constant(0), ones, right)
        return builder.add(total, builder.shl(sums, constant(7)))
    for byte in range(4):
        unsigned = builder.and_(builder.lshr(left, constant(8 * byte)), constant(255))
        signed = builder.ashr(builder.shl(right, constant(24 - 8 * byte)), constant(24))
        total = builder.add(total, builder.mul(unsigned, signed))
    return total


def _in_parts(
    builder: ir.IRBuilder, name: str, kind: ir.VectorType, total: ir.Value, left: ir.Value, right: ir.Value
) -> ir.Value:
    """The result of an instruction for shorter registers: its parts, joined.

    Args:
        kind: the type in which a part of ``left`` and ``right`` is given to the instruction.
    """
    lanes = kind.count * kind.element.width // INT.width

    def lanes_of(x: ir.Value, y: ir.Value, first: int, count: int) -> ir.Value:
        numbers = ir.Constant(ir.VectorType(INT, count), list(range(first, first + count)))
        return builder.shuffle_vector(x, y, numbers)

    parts = []
    for first in range(0, LANES, lanes):
        some, left_part, right_part = (lanes_of(x, x, first, lanes) for x in (total, left, right))
        factors = builder.bitcast(left_part, kind), builder.bitcast(right_part, kind)
        parts.append(call(builder, name, some.type, some, *factors))
    while len(parts) > 1:
        lanes *= 2
        parts = [lanes_of(x, y, 0, lanes) for x, y in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def round_to_bfloat(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """16 float32 as 16 int16, the bits of the nearest bfloat16; of two equally near, the even one."""
    bits = builder.bitcast(value, INTS)
    odd = builder.and_(builder.lshr(bits, constant(16)), constant(1))
    rounded = builder.add(bits, builder.add(odd, constant(0x7FFF)))
    return builder.trunc(builder.lshr(rounded, constant(16)), SHORTS)


def widen_halves(builder: ir.IRBuilder, bits: ir.Value) -> ir.Value:
    """16 float16, as int16, to float32."""
    if has(HALF):
        return builder.fpext(builder.bitcast(bits, ir.VectorType(ir.HalfType(), LANES)), FLOATS)
    # Without the instruction, LLVM would call a function that isn't there. The exponent moves from 5 bits to 8, which
    # changes its meaning by a factor; that of infinity and NaN has all bits set.
    wide = builder.zext(bits, INTS)
    sign = builder.shl(builder.and_(wide, constant(0x8000)), constant(16))
    number = builder.shl(builder.and_(wide, constant(0x7FFF)), constant(13))
    scaled = builder.fmul(builder.bitcast(number, FLOATS), ir.Constant(FLOATS, [2.0**112] * LANES))
    special = builder.icmp_unsigned(">=", number, constant(0x7C00 << 13))
    number = builder.select(special, builder.or_(number, constant(0x7F800000)), builder.bitcast(scaled, INTS))
    return builder.bitcast(builder.or_(number, sign), FLOATS)


def exchange(builder: ir.IRBuilder, rows: list[ir.Value]) -> list[ir.Value]:
    """16 registers of int32 with rows and columns exchanged: of neighbors first, then of pairs of them, and so on."""
    rows = list(rows)
    for step in (1, 2, 4, 8):
        low = ir.Constant(INTS, [lane + (LANES - step if lane & step else 0) for lane in range(LANES)])
        high = ir.Constant(INTS, [lane + (LANES if lane & step else step) for lane in range(LANES)])
        for row in range(LANES):
            if not row & step:
                pair = rows[row], rows[row + step]
                rows[row], rows[row + step] = (builder.shuffle_vector(*pair, order) for order in (low, high))
    return rows


def prefetch(builder: ir.IRBuilder, pointer: ir.Value) -> None:
    """Begin to bring what lies at a pointer to bytes, which may lie anywhere, to all caches."""
    to_be_read, in_all_caches, data = (ir.Constant(INT, number) for number in (0, 3, 1))
    call(builder, "llvm.prefetch.p0", ir.VoidType(), pointer, to_be_read, in_all_caches, data)
