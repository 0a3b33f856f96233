"""Registers as types of Numba, and the code that LLVM gets for their instructions (Day 4.7, given code).

Kernels use what `vectors.py` and `tiles.py` make of it.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import models, register_model

from tiny_llm.fast.instructions import DOT2, DOT4, has

LANES = 16
"""How many numbers a register holds."""

_INT, _FLOAT = ir.IntType(32), ir.FloatType()
INTS, FLOATS = ir.VectorType(_INT, LANES), ir.VectorType(_FLOAT, LANES)


class Register(types.Type):
    """R registers with lanes of one kind."""

    def __init__(self, lanes: ir.VectorType, rows: int = 0) -> None:
        """R is ``rows``; 0 stands for a single register."""
        self.lanes = lanes
        self.rows = rows
        super().__init__(name=f"{lanes.element}x{LANES}" + (f"x{rows}" if rows else ""))


@register_model(Register)
class _RegisterModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Register) -> None:
        super().__init__(manager, kind, ir.ArrayType(kind.lanes, kind.rows) if kind.rows else kind.lanes)


Ints, Floats = Register(INTS), Register(FLOATS)


def splat(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """A register with the same number in all lanes."""
    nothing = ir.Constant(ir.VectorType(value.type, LANES), ir.Undefined)
    first = builder.insert_element(nothing, value, ir.Constant(_INT, 0))
    return builder.shuffle_vector(first, nothing, ir.Constant(INTS, [0] * LANES))


def constant(value: int) -> ir.Constant:
    return ir.Constant(INTS, [value] * LANES)


def call(builder: ir.IRBuilder, name: str, result: ir.Type, *arguments: ir.Value) -> ir.Value:
    kind = ir.FunctionType(result, [each.type for each in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)


class Memory:
    """An array argument of a function below, in the code that is being made."""

    def __init__(self, context: Any, builder: ir.IRBuilder, kind: Any, value: ir.Value) -> None:
        self.builder = builder
        self.data = context.make_array(kind)(context, builder, value).data

    def load(self, at: ir.Value, what: ir.Type) -> ir.Value:
        """What lies at an element, as a value of another type."""
        pointer = self.builder.bitcast(self.builder.gep(self.data, [at]), what.as_pointer())
        loaded = self.builder.load(pointer)
        loaded.align = 1
        return loaded

    def store(self, at: ir.Value, value: ir.Value) -> None:
        pointer = self.builder.bitcast(self.builder.gep(self.data, [at]), value.type.as_pointer())
        self.builder.store(value, pointer).align = 1


def index(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any, number: int) -> ir.Value:
    return context.cast(builder, arguments[number], signature.args[number], types.intp)


def dot4(builder: ir.IRBuilder, total: ir.Value, left: ir.Value, right: ir.Value) -> ir.Value:
    """total + Σ of four products per lane: unsigned bytes of ``left`` times signed bytes of ``right``."""
    if has(DOT4):
        return call(builder, "llvm.x86.avx512.vpdpbusd.512", INTS, total, left, right)
    for byte in range(4):
        unsigned = builder.and_(builder.lshr(left, constant(8 * byte)), constant(255))
        signed = builder.ashr(builder.shl(right, constant(24 - 8 * byte)), constant(24))
        total = builder.add(total, builder.mul(unsigned, signed))
    return total


class _BFloat(ir.types.Type):
    """LLVM's bfloat, which llvmlite doesn't have."""

    null = "0.0"
    intrinsic_name = "bf16"

    def _to_string(self) -> str:
        return "bfloat"

    __str__ = _to_string

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat)

    def __hash__(self) -> int:
        return hash(_BFloat)


_PAIRS = ir.VectorType(_BFloat(), 2 * LANES)


def dot2(builder: ir.IRBuilder, total: ir.Value, left: ir.Value, right: ir.Value) -> ir.Value:
    """total + Σ of two products of bfloat16 per lane."""
    if has(DOT2):
        pairs = builder.bitcast(left, _PAIRS), builder.bitcast(right, _PAIRS)
        return call(builder, "llvm.x86.avx512bf16.dpbf16ps.512", FLOATS, total, *pairs)
    for widen in (
        lambda each: builder.shl(each, constant(16)),
        lambda each: builder.and_(each, constant(-65536)),
    ):
        left_floats, right_floats = (builder.bitcast(widen(each), FLOATS) for each in (left, right))
        total = call(builder, "llvm.fma.v16f32", FLOATS, left_floats, right_floats, total)
    return total


def round_to_bfloat(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """16 float32 as 16 int16, the bits of the nearest bfloat16; of two equally near, the even one."""
    bits = builder.bitcast(value, INTS)
    odd = builder.and_(builder.lshr(bits, constant(16)), constant(1))
    rounded = builder.add(bits, builder.add(odd, constant(0x7FFF)))
    return builder.trunc(builder.lshr(rounded, constant(16)), ir.VectorType(ir.IntType(16), LANES))


def exchange(builder: ir.IRBuilder, rows: list[ir.Value]) -> list[ir.Value]:
    """16 registers with rows and columns exchanged: neighbors first, then pairs of neighbors, and so on."""
    rows = list(rows)
    for step in (1, 2, 4, 8):
        low = ir.Constant(INTS, [lane + (LANES - step if lane & step else 0) for lane in range(LANES)])
        high = ir.Constant(INTS, [lane + (LANES if lane & step else step) for lane in range(LANES)])
        for row in range(LANES):
            if not row & step:
                pair = rows[row], rows[row + step]
                rows[row], rows[row + step] = (builder.shuffle_vector(*pair, order) for order in (low, high))
    return rows
