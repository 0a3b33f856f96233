"""What the compiler makes of the functions in `tiles.py` (Day 4.7, given code)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from llvmlite import ir
from numba import types

from tiny_llm.fast.llvm_code import constant, dot4, exchange, fused, splat
from tiny_llm.fast.registers import (
    FLOAT,
    FLOAT_ROWS,
    FLOATS,
    FLOATS_GIVEN,
    INDEX,
    INT,
    INT_ROWS,
    INTS,
    INTS_GIVEN,
    ROWS,
    Memory,
    Register,
    array_of,
    compiled,
)
from tiny_llm.fast.tiles import (
    add_scaled_rows,
    dot4_rows,
    fma_rows,
    load_rows,
    store_rows,
    transpose_bfloats,
    zero_floats,
    zero_ints,
)
from tiny_llm.fast.vectors import LANES

_NUMBERS = array_of("float32", types.float32)
_TARGET = array_of("float32", types.float32, written=True)
_BFLOATS = array_of("int16 or uint16", types.int16, types.uint16)
_PLACES = array_of("int64", types.int64)
_PACKED = array_of("int32 or uint32", types.int32, types.uint32)


def _first(tile: Any, *others: Any) -> Any:
    """The type of a result that is as the first argument."""
    return tile


def _places(builder: ir.IRBuilder, at: ir.Value, stride: ir.Value, rows: int) -> Iterator[ir.Value]:
    """The index of each row."""
    for _ in range(rows):
        yield at
        at = builder.add(at, stride)


@compiled(zero_ints, ROWS, result=lambda rows: Register(INTS, rows.literal_value))
def _zero_ints(builder: ir.IRBuilder, rows: int) -> list[ir.Value]:
    return [ir.Constant(INTS, None)] * rows


@compiled(zero_floats, ROWS, result=lambda rows: Register(FLOATS, rows.literal_value))
def _zero_floats(builder: ir.IRBuilder, rows: int) -> list[ir.Value]:
    return [ir.Constant(FLOATS, None)] * rows


@compiled(
    load_rows,
    *(_NUMBERS, INDEX, INDEX, ROWS),
    result=lambda array, at, stride, rows: Register(FLOATS, rows.literal_value),
)
def _load_rows(
    builder: ir.IRBuilder, array: Memory, at: ir.Value, stride: ir.Value, rows: int
) -> list[ir.Value]:
    return [array.load(where, FLOATS) for where in _places(builder, at, stride, rows)]


@compiled(store_rows, _TARGET, INDEX, INDEX, FLOAT_ROWS, result=types.none)
def _store_rows(
    builder: ir.IRBuilder, array: Memory, at: ir.Value, stride: ir.Value, tile: list[ir.Value]
) -> None:
    for where, numbers in zip(_places(builder, at, stride, len(tile)), tile, strict=True):
        array.store(where, numbers)


@compiled(dot4_rows, INT_ROWS, INTS_GIVEN, _PACKED, INDEX, INDEX, result=_first)
def _dot4_rows(
    builder: ir.IRBuilder, totals: Any, weights: ir.Value, x: Memory, at: ir.Value, stride: ir.Value
) -> list[ir.Value]:
    places = zip(totals, _places(builder, at, stride, len(totals)), strict=True)
    return [dot4(builder, total, weights, splat(builder, x.load(where, INT))) for total, where in places]


@compiled(fma_rows, FLOAT_ROWS, FLOATS_GIVEN, _NUMBERS, INDEX, INDEX, result=_first)
def _fma_rows(
    builder: ir.IRBuilder, totals: Any, weights: ir.Value, x: Memory, at: ir.Value, stride: ir.Value
) -> list[ir.Value]:
    places = zip(totals, _places(builder, at, stride, len(totals)), strict=True)
    return [fused(builder, weights, splat(builder, x.load(where, FLOAT)), total) for total, where in places]


@compiled(
    add_scaled_rows,
    *(FLOAT_ROWS, INT_ROWS, FLOATS_GIVEN, FLOATS_GIVEN, _NUMBERS, _NUMBERS, INDEX, INDEX),
    result=_first,
)
def _add_scaled_rows(
    builder: ir.IRBuilder,
    totals: list[ir.Value],
    sums: list[ir.Value],
    scales: ir.Value,
    minima: ir.Value,
    steps: Memory,
    offsets: Memory,
    at: ir.Value,
    stride: ir.Value,
) -> list[ir.Value]:
    results = []
    for total, exact, where in zip(totals, sums, _places(builder, at, stride, len(totals)), strict=True):
        factor, shift = (splat(builder, memory.load(where, FLOAT)) for memory in (steps, offsets))
        scaled = builder.fmul(builder.sitofp(exact, FLOATS), factor)
        results.append(fused(builder, shift, minima, fused(builder, scaled, scales, total)))
    return results


@compiled(transpose_bfloats, _BFLOATS, _PLACES, INDEX, _TARGET, INDEX, result=types.none)
def _transpose_bfloats(
    builder: ir.IRBuilder, array: Memory, starts: Memory, offset: ir.Value, target: Memory, at: ir.Value
) -> None:
    tokens = [builder.add(starts.load(at.type(lane), at.type), offset) for lane in range(LANES)]
    pairs = exchange(builder, [array.load(token, INTS) for token in tokens])
    for pair in pairs:  # two numbers of each token: the first one is the lower half
        for number in (builder.shl(pair, constant(16)), builder.and_(pair, constant(-65536))):
            target.store(at, builder.bitcast(number, FLOATS))
            at = builder.add(at, at.type(LANES))
