"""Tiles in kernels: a register for each of some rows, which meet the same weights (Day 4.7, given code).

What is loaded once, 16 columns of a matrix, is used for all rows of the tile. R, the number of rows, is a number that
the compiler knows: a constant. All functions are for kernels only, as in `vectors.py`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tiny_llm.fast.llvm_code import FLOATS, INTS, LANES, Memory, Register, call, dot2, dot4, index, splat


@cache
def _tile(lanes: str, rows: int) -> Register:
    return Register({"ints": INTS, "floats": FLOATS}[lanes], rows)


def _zeros(lanes: str) -> Any:
    def typed(typing: Any, rows: Any) -> Any:
        tile = _tile(lanes, rows.literal_value)
        held = ir.ArrayType(tile.lanes, tile.rows)
        return tile(rows), lambda context, builder, signature, arguments: ir.Constant(held, None)

    return typed


@intrinsic(prefer_literal=True)
def zero_ints(typing: Any, rows: Any) -> Any:
    """R registers of 16 int32 each, all 0."""
    return _zeros("ints")(typing, rows)


@intrinsic(prefer_literal=True)
def zero_floats(typing: Any, rows: Any) -> Any:
    """R registers of 16 float32 each, all 0."""
    return _zeros("floats")(typing, rows)


def _multiplied(dot: Any) -> Any:
    """For each row r: totals[r] += weights · x[at + r · stride], by an instruction that adds up products."""

    def typed(typing: Any, totals: Any, weights: Any, x: Any, at: Any, stride: Any) -> Any:
        def make(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
            memory, result = Memory(context, builder, x, arguments[2]), arguments[0]
            where = index(context, builder, signature, arguments, 3)
            step = index(context, builder, signature, arguments, 4)
            for row in range(totals.rows):
                number = splat(builder, memory.load(where, ir.IntType(32)))
                total = dot(builder, builder.extract_value(arguments[0], row), arguments[1], number)
                result = builder.insert_value(result, total, row)
                where = builder.add(where, step)
            return result

        return totals(totals, weights, x, at, stride), make

    return typed


@intrinsic
def dot4_rows(typing: Any, totals: Any, weights: Any, x: Any, at: Any, stride: Any) -> Any:
    """For each row r of ``totals``: add 4 products per lane, weights · x[at + r · stride].

    Args:
        totals: a tile of int32.
        weights: 16 times 4 unsigned bytes.
        x: int32 that hold 4 signed bytes each.
    """
    return _multiplied(dot4)(typing, totals, weights, x, at, stride)


@intrinsic
def dot2_rows(typing: Any, totals: Any, weights: Any, x: Any, at: Any, stride: Any) -> Any:
    """For each row r of ``totals``: add 2 products per lane, weights · x[at + r · stride].

    Args:
        totals: a tile of float32.
        weights: 16 times 2 bfloat16.
        x: int32 that hold 2 bfloat16 each.
    """
    return _multiplied(dot2)(typing, totals, weights, x, at, stride)


@intrinsic
def fma_rows(typing: Any, totals: Any, weights: Any, x: Any, at: Any, stride: Any) -> Any:
    """For each row r of ``totals``: add weights · x[at + r · stride].

    Args:
        totals: a tile of float32.
        weights: 16 float32.
        x: float32.
    """

    def make(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        memory, result = Memory(context, builder, x, arguments[2]), arguments[0]
        where = index(context, builder, signature, arguments, 3)
        step = index(context, builder, signature, arguments, 4)
        for row in range(totals.rows):
            number = splat(builder, memory.load(where, ir.FloatType()))
            total = builder.extract_value(arguments[0], row)
            total = call(builder, "llvm.fma.v16f32", FLOATS, arguments[1], number, total)
            result = builder.insert_value(result, total, row)
            where = builder.add(where, step)
        return result

    return totals(totals, weights, x, at, stride), make


@intrinsic
def add_scaled_rows(
    typing: Any, totals: Any, sums: Any, scales: Any, minima: Any, steps: Any, offsets: Any, at: Any, stride: Any
) -> Any:
    """For each row r of ``totals``: add sums[r] · steps[i] · scales + offsets[i] · minima, where i = at + r · stride.

    Args:
        totals: a tile of float32; ``sums``: a tile of int32.
        scales, minima: 16 float32.
        steps, offsets: float32 numbers.
    """

    def make(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        result, factors = arguments[0], Memory(context, builder, steps, arguments[4])
        shifts = Memory(context, builder, offsets, arguments[5])
        where = index(context, builder, signature, arguments, 6)
        step = index(context, builder, signature, arguments, 7)
        for row in range(totals.rows):
            exact = builder.sitofp(builder.extract_value(arguments[1], row), FLOATS)
            scaled = builder.fmul(exact, splat(builder, factors.load(where, ir.FloatType())))
            shift = splat(builder, shifts.load(where, ir.FloatType()))
            total = builder.extract_value(arguments[0], row)
            total = call(builder, "llvm.fma.v16f32", FLOATS, scaled, arguments[2], total)
            total = call(builder, "llvm.fma.v16f32", FLOATS, shift, arguments[3], total)
            result = builder.insert_value(result, total, row)
            where = builder.add(where, step)
        return result

    return totals(totals, sums, scales, minima, steps, offsets, at, stride), make


@intrinsic(prefer_literal=True)
def load_rows(typing: Any, array: Any, at: Any, stride: Any, rows: Any) -> Any:
    """R registers from a float32 array: 16 numbers from element at + r · stride on, for each row r."""
    tile = _tile("floats", rows.literal_value)

    def make(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        memory = Memory(context, builder, array, arguments[0])
        where = index(context, builder, signature, arguments, 1)
        step = index(context, builder, signature, arguments, 2)
        result = ir.Constant(ir.ArrayType(FLOATS, tile.rows), ir.Undefined)
        for row in range(tile.rows):
            result = builder.insert_value(result, memory.load(where, FLOATS), row)
            where = builder.add(where, step)
        return result

    return tile(array, at, stride, rows), make


@intrinsic
def store_rows(typing: Any, array: Any, at: Any, stride: Any, tile: Any) -> Any:
    """Each register of a tile into a float32 array: 16 numbers to element at + r · stride and behind it."""

    def make(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        memory = Memory(context, builder, array, arguments[0])
        where = index(context, builder, signature, arguments, 1)
        step = index(context, builder, signature, arguments, 2)
        for row in range(tile.rows):
            memory.store(where, builder.extract_value(arguments[3], row))
            where = builder.add(where, step)
        return context.get_dummy_value()

    return types.none(array, at, stride, tile), make


__all__ = ["LANES", "add_scaled_rows", "dot2_rows", "dot4_rows", "load_rows", "store_rows", "zero_floats", "zero_ints"]
