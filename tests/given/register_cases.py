"""What functions of registers give, compiled and as NumPy, for many numbers: cases for `test_registers.py`.

Each case is a kernel: it runs as Python and compiled. As a program it prints the cases in which the two differ.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
from register_inputs import (
    bytes_of_all_kinds,
    counts,
    finite,
    floats_of_all_kinds,
    half_patterns,
    records,
    scattered,
    starts,
)

from tiny_llm.fast import instructions
from tiny_llm.fast.compiling import exact_kernel
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
from tiny_llm.fast.vectors import (
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


def arithmetic(a, b, c, out):
    n = len(a)
    for at in range(0, n, 16):
        x, y, z = load_floats(a, at), load_floats(b, at), load_floats(c, at)
        store_floats(out, at, x + y)
        store_floats(out, n + at, x - y)
        store_floats(out, 2 * n + at, x * y)
        store_floats(out, 3 * n + at, x / y)
        store_floats(out, 4 * n + at, fma(x, y, z))
        store_floats(out, 5 * n + at, magnitude(x))
        store_floats(out, 6 * n + at, nearest(x))


def larger(a, b, out):
    for at in range(0, len(a), 16):
        # Of 0 and −0 it may be either: + 0 makes both the same.
        store_floats(out, at, largest(load_floats(a, at), load_floats(b, at)) + floats(0.0))
        out[len(a) + at] = largest_lane(load_floats(a, at)) + np.float32(0)


def sums(a, out):
    for at in range(0, len(a), 16):
        out[at // 16] = sum_of_lanes(load_floats(a, at))


def powers(exponents, out):
    for at in range(0, len(exponents), 16):
        store_floats(out, at, power_of_2(load_floats(exponents, at)))


def lanes(a, counts, out):
    for i in range(len(counts)):
        store_floats(out, 16 * i, first_lanes(load_floats(a, 0), counts[i], load_floats(a, 16)))


def spread(numbers, more, out):
    for i in range(len(numbers)):
        store_floats(out, 16 * i, floats(numbers[i]))
        store_floats(out, 16 * (len(numbers) + i), floats(more[i]))


def widened(signed, unsigned, out):
    for at in range(0, len(signed), 16):
        store_floats(out, at, load_bfloats(signed, at))
        store_floats(out, len(signed) + at, load_bfloats(unsigned, at))


RECORD = 53
"""Bytes of a record; odd, so float16 lie at odd places, too."""


def widened_halves(stream, out):
    for record in range(len(stream) // RECORD):
        store_floats(out, 16 * record, load_halves(stream, record * RECORD + RECORD - 32))


def fetched(a, whole, out):
    for at in range(0, len(a), 16):
        fetch(a, at)
        fetch(a, at + 10**15)
        fetch(whole, -at - 10**15)
        store_floats(out, at, load_floats(a, at))


def narrowed(a, signed, unsigned):
    for at in range(0, len(a), 16):
        store_floats(signed, at, load_floats(a, at))
        store_floats(unsigned, at, load_floats(a, at))


def in_bytes(a, out):
    for at in range(0, len(a), 16):
        store_bytes(out, at, load_floats(a, at))


def four_products(weights, bytes_of_weights, x, ones, zeros, out):
    n = len(weights)
    for at in range(0, n, 16):
        some, same = load_ints(weights, at), load_ints(bytes_of_weights, 4 * at)
        sums = dot4_rows(dot4_rows(zero_ints(3), some, x, at, 5), same, x, at + 3, -1)
        low = dot4_rows(zero_ints(3), low_nibbles(some), x, at, 1)
        high = dot4_rows(zero_ints(3), high_nibbles(some), x, at, 1)
        one, nothing = floats(1.0), floats(0.0)
        # Sums below 2²⁴ are exact as float32.
        for place, tile in enumerate((sums, low, high)):
            tile_out = add_scaled_rows(zero_floats(3), tile, one, nothing, ones, zeros, 0, 1)
            store_rows(out, (3 * place * n) + at, n, tile_out)


def one_product(totals, weights, x, out):
    n = len(weights)
    for at in range(0, n, 16):
        some = load_floats(weights, at)
        store_rows(out, at, n, fma_rows(load_rows(totals, at, n, 5), some, x, at + 4, -1))


def side_by_side(signed, unsigned, starts, out):
    for offset in range(7):
        transpose_bfloats(signed, starts[offset:], offset, out, 600 * offset)
        transpose_bfloats(unsigned, starts, 2 * offset, out, 600 * (7 + offset) + 1)


def scaled(totals, weights, x, scales, minima, steps, offsets, out):
    n = len(scales)
    for at in range(0, n, 16):
        sums = dot4_rows(zero_ints(2), load_ints(weights, at), x, at, 3)
        tile, some, more = load_rows(totals, at, n, 2), load_floats(scales, at), load_floats(minima, at)
        store_rows(out, at, n, add_scaled_rows(tile, sums, some, more, steps, offsets, at, 2))


def one_row(totals, weights, x, out):
    for at in range(0, len(totals), 16):
        sums = dot4_rows(zero_ints(1), load_ints(weights, at), x, at, 0)
        tile = load_rows(totals, at, 0, 1)
        store_rows(out, at, 7, add_scaled_rows(tile, sums, floats(0.5), floats(2), totals, totals, at, 9))


def _room(count: int, dtype: Any = np.float32) -> np.ndarray:
    return np.full(count, 7, dtype)


def _integers(kind: Any, count: int) -> np.ndarray:
    return bytes_of_all_kinds(np.dtype(kind).itemsize * count).view(kind)


_A, _B, _C = floats_of_all_kinds(1), floats_of_all_kinds(2), floats_of_all_kinds(3)
_N = 640
CASES: dict[str, tuple[Callable[..., None], tuple[np.ndarray, ...]]] = {
    "arithmetic": (arithmetic, (_A, _B, _C, _room(7 * len(_A)))),
    "beside a tie": (arithmetic, (*scattered(4), _room(7 * 1600))),
    "larger": (larger, (_A, _B, _room(2 * len(_A)))),
    "sums": (sums, (_A, _room(len(_A) // 16))),
    "powers": (powers, (np.arange(-126, 128).clip(-126, 127).repeat(8).astype(np.float32), _room(2032))),
    "lanes": (lanes, (_A[:32], counts(), _room(16 * len(counts())))),
    "spread": (spread, (_A, _A.astype(np.float64) * 1.1, _room(32 * len(_A)))),
    "whole numbers spread": (spread, (np.arange(-40, 40), np.arange(80).astype(np.uint8), _room(32 * 80))),
    "widened": (widened, (half_patterns().view(np.int16), half_patterns(), _room(2 * 65536))),
    "widened halves": (widened_halves, (records(RECORD), _room(65536))),
    "fetched": (fetched, (_A, _integers(np.uint8, 64), _room(len(_A)))),
    "narrowed": (narrowed, (_A, _room(len(_A), np.int16), _room(len(_A), np.uint16))),
    "in bytes": (in_bytes, (np.arange(-128, 128).astype(np.float32), _room(256, np.int8))),
    "four products": (
        four_products,
        (
            _integers(np.int32, _N),
            _integers(np.uint8, 4 * _N),
            _integers(np.int32, _N + 20),
            np.ones(3, np.float32),
            np.zeros(3, np.float32),
            _room(9 * _N),
        ),
    ),
    "four products of other types": (
        four_products,
        (
            _integers(np.uint32, _N),
            _integers(np.int8, 4 * _N),
            _integers(np.uint32, _N + 20),
            np.ones(3, np.float32),
            np.zeros(3, np.float32),
            _room(9 * _N),
        ),
    ),
    "one product": (
        one_product,
        (floats_of_all_kinds(5)[:1600], _A[:320], floats_of_all_kinds(6)[:340], _room(1600)),
    ),
    "side by side": (
        side_by_side,
        (half_patterns().view(np.int16), half_patterns(), starts(23, 65536 - 32 - 12), _room(600 * 14)),
    ),
    "scaled": (
        scaled,
        (
            finite(8, 2 * _N),
            _integers(np.int32, _N),
            _integers(np.int32, _N + 20),
            floats_of_all_kinds(9)[:_N],
            floats_of_all_kinds(10)[:_N],
            finite(11, _N + 20),
            finite(12, _N + 20),
            _room(2 * _N),
        ),
    ),
    "one row": (one_row, (finite(13, _N), _integers(np.int32, _N), _integers(np.int32, _N), _room(_N))),
}


def run(name: str, compiled: bool) -> list[np.ndarray]:
    """All arrays of a case after the kernel ran on copies of them."""
    kernel, given = CASES[name]
    arrays = [each.copy() for each in given]
    with np.errstate(all="ignore"):
        (exact_kernel(kernel) if compiled else kernel)(*arrays)
    return arrays


def difference(name: str) -> str:
    """Where a case comes out otherwise compiled than in NumPy, to the last bit; NaN is NaN. Empty if nowhere."""
    for number, (found, expected) in enumerate(zip(run(name, True), run(name, False), strict=True)):
        bits = f"u{found.itemsize}"
        different = found.view(bits) != expected.view(bits)
        if found.dtype.kind == "f":
            different &= ~(np.isnan(found) & np.isnan(expected))
        if different.any():
            first = int(different.argmax())
            return (
                f"argument {number}, element {first}: {found[first]!r} compiled, {expected[first]!r} in "
                f"NumPy; {int(different.sum())} of {found.size} differ"
            )
    return ""


if __name__ == "__main__":
    print(
        json.dumps(
            {
                "dot4": instructions.has(instructions.DOT4),
                "differences": {name: difference(name) for name in CASES},
            }
        )
    )
