"""Attention over pages in bfloat16, by tiles of keys and tiles of queries (Day 4.7).

The steps of Day 2.5 and Day 3.3, in registers: 16 keys side by side, and for the values 16 numbers of a head. Each query
is computed as it would be alone, to the last bit, in whichever step and beside whatever others it comes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import prange

from tiny_llm.fast.compiling import exact_inlined, exact_kernel
from tiny_llm.fast.small import exponential
from tiny_llm.fast.tiles import dot2_rows, load_rows, store_rows, zero_floats
from tiny_llm.fast.vectors import (
    first_lanes,
    floats,
    largest,
    largest_lane,
    load_floats,
    load_ints,
    store_floats,
    sum_of_lanes,
)

TILE = 128
"""Keys of a tile: a multiple of 32. The tiles of a sequence begin at its first key."""
ROWS = 8
"""Queries of a tile."""
NOTHING = np.float32(-1e30)
"""Below each score."""


@exact_inlined
def pack_keys(pages, table, head, start, stop, packed):
    """Keys of a head, 16 of them side by side, two numbers of each.

    Args:
        pages: bits of bfloat16, int32 [N, P, Hkv, D/2]: two numbers each.
        table: int32, the pages of the sequence.
        packed: int32 [D/2 · TILE] = [TILE/16, D/2, 16]; what is behind the last key is left as it is.
    """
    P, pairs = pages.shape[1], pages.shape[3]
    for position in range(start, stop):
        page, offset = table[position // P], position % P
        at = (position - start) // 16 * pairs * 16 + (position - start) % 16
        for pair in range(pairs):
            packed[at + pair * 16] = pages[page, offset, head, pair]


@exact_inlined
def pack_values(pages, table, head, start, stop, packed):
    """Values of a head, those of two neighboring tokens side by side.

    Args:
        pages: bits of bfloat16, uint16 [N, P, Hkv, D].
        packed: uint32 [TILE/2 · D] = [TILE/2, D], with the even token's number in the lower half.
    """
    P, D = pages.shape[1], pages.shape[3]
    for position in range(start, stop, 2):
        even = pages[table[position // P], position % P, head]
        at = (position - start) // 2 * D
        if position + 1 < stop:
            odd = pages[table[(position + 1) // P], (position + 1) % P, head]
            for i in range(D):
                packed[at + i] = np.uint32(even[i]) | (np.uint32(odd[i]) << np.uint32(16))
        else:
            for i in range(D):
                packed[at + i] = even[i]


def _make_fold(rows: int):  # type: ignore[no-untyped-def]
    @exact_inlined
    def fold(queries, row, first_seen, offset, group, causal, start, stop, keys, values, scores, weights, state):
        """The online softmax of some queries of a key head, over one tile of keys.

        Args:
            queries: bits of bfloat16, int32 [Q · D/2]. row: the first of them.
            first_seen: how many keys query 0 sees; one more for each ``group`` queries.
            keys, values: the packed tile, as int32.
            scores: float32 [rows · TILE]; weights: int16 [rows · TILE], bits of bfloat16; scratch.
            state: peaks [Q], totals [Q], gathered [Q · D].
        """
        peaks, totals, gathered = state
        D = len(gathered) // len(peaks)
        pairs = D // 2
        count = stop - start
        for block in range((count + 15) // 16):
            tile = zero_floats(rows)
            for pair in range(pairs):
                some = load_ints(keys, (block * pairs + pair) * 16)
                tile = dot2_rows(tile, some, queries, row * pairs + pair, pairs)
            store_rows(scores, block * 16, TILE, tile)
        for i in range(rows):
            seen = min(stop, first_seen + (offset + row + i) // group if causal else stop) - start
            fold_row(i, row + i, seen, count, scores, weights, peaks, totals, gathered, D)
        pairs_of_keys = weights.view(np.int32)
        for block in range(D // 16):
            at = row * D + block * 16
            tile = load_rows(gathered, at, D, rows)
            for pair in range((count + 1) // 2):
                some = load_ints(values, pair * D + block * 16)
                tile = dot2_rows(tile, some, pairs_of_keys, pair, TILE // 2)
            store_rows(gathered, at, D, tile)

    return fold


@exact_inlined
def fold_row(i, query, seen, count, scores, weights, peaks, totals, gathered, D):
    """Scores of a query to weights, and what it has gathered to the new peak."""
    blocks = (count + 15) // 16
    at = i * TILE
    if seen <= 0:
        for block in range(blocks):
            store_floats(weights, at + block * 16, floats(0.0))
        return
    nothing = floats(NOTHING)
    peak = floats(peaks[query])
    for block in range(blocks):
        some = first_lanes(load_floats(scores, at + block * 16), seen - block * 16, nothing)
        peak = largest(peak, some)
    new = largest_lane(peak)
    top, total = floats(new), floats(0.0)
    for block in range(blocks):
        some = first_lanes(load_floats(scores, at + block * 16), seen - block * 16, nothing)
        power = first_lanes(exponential(some - top), seen - block * 16, floats(0.0))
        total = total + power
        store_floats(weights, at + block * 16, power)
    if new > peaks[query]:
        shrink = np.exp(peaks[query] - new)
        totals[query] *= shrink
        factor = floats(shrink)
        for block in range(D // 16):
            here = query * D + block * 16
            store_floats(gathered, here, load_floats(gathered, here) * factor)
        peaks[query] = new
    totals[query] += sum_of_lanes(total)


fold_8, fold_4 = _make_fold(8), _make_fold(4)


QUERIES = 256
"""Queries of a key head that a thread takes at a time."""


class Step(NamedTuple):
    """The sequences of a step."""

    starts: np.ndarray  # int32 [B + 1], `cu_seqlens_q`
    kv_lens: np.ndarray  # int32 [B]
    tables: np.ndarray  # int32 [B, most pages of one]


@exact_kernel
def deal(step, heads, group):
    """The tasks of a step, the longest first: int32 [tasks, 3] of sequence, key head, first query."""
    count = 0
    for b in range(len(step.kv_lens)):
        count += heads * (((step.starts[b + 1] - step.starts[b]) * group + QUERIES - 1) // QUERIES)
    tasks, costs = np.empty((count, 3), np.int32), np.empty(count, np.int64)
    task = 0
    for b in range(len(step.kv_lens)):
        queries = (step.starts[b + 1] - step.starts[b]) * group
        for first in range(0, queries, QUERIES):
            for head in range(heads):
                tasks[task, 0], tasks[task, 1], tasks[task, 2] = b, head, first
                costs[task] = -min(QUERIES, queries - first) * step.kv_lens[b]
                task += 1
    return tasks[np.argsort(costs)]


@exact_kernel
def attend_task(query, keys, values, step, b, head, first, scale, causal, out, lse):
    """Some queries of a sequence and key head, over all keys that they see.

    Args:
        query: float32 [T, Hkv, H/Hkv, D].
        keys: int32 [N, P, Hkv, D/2]; values: uint16 [N, P, Hkv, D].
        first: number of the first query: those of a token's heads come one after the other.
        out: float32 [T, Hkv, H/Hkv, D]; lse: float32 [T, Hkv, H/Hkv].
    """
    group, D = query.shape[2], query.shape[3]
    begin, kv_len, table = step.starts[b], step.kv_lens[b], step.tables[b]
    tokens = step.starts[b + 1] - begin
    count = min(QUERIES, tokens * group - first)
    padded = (count + 3) // 4 * 4
    first_seen = kv_len - tokens + 1 + first // group if causal else kv_len
    offset = first % group
    bits, state = np.zeros(padded * D, np.int16), (
        np.full(padded, NOTHING, np.float32),
        np.zeros(padded, np.float32),
        np.zeros(padded * D, np.float32),
    )
    for i in range(count):
        number = first + i
        row = query[begin + number // group, head, number % group]
        for block in range(0, D, 16):
            store_floats(bits, i * D + block, load_floats(row, block) * floats(scale))
    queries = bits.view(np.int32)
    packed_keys, packed_values = np.zeros(TILE * D // 2, np.int32), np.zeros(TILE * D // 2, np.uint32)
    scores, weights = np.empty(ROWS * TILE, np.float32), np.empty(ROWS * TILE, np.int16)
    most = min(kv_len, first_seen + (offset + count - 1) // group) if causal else kv_len
    for start in range(0, most, TILE):
        stop = min(start + TILE, most)
        pack_keys(keys, table, head, start, stop, packed_keys)
        pack_values(values, table, head, start, stop, packed_values)
        row = 0
        while padded - row >= 8:
            fold_8(queries, row, first_seen, offset, group, causal, start, stop, packed_keys, packed_values, scores, weights, state)
            row += 8
        if padded - row >= 4:
            fold_4(queries, row, first_seen, offset, group, causal, start, stop, packed_keys, packed_values, scores, weights, state)
    peaks, totals, gathered = state
    for i in range(count):
        number = first + i
        token, each = begin + number // group, number % group
        total = totals[i] if totals[i] > 0 else np.float32(1)
        lse[token, head, each] = peaks[i] + np.log(total) if totals[i] > 0 else -np.inf
        for j in range(D):
            out[token, head, each, j] = gathered[i * D + j] / total


@exact_kernel
def attend(query, keys, values, step, scale, causal, workers, out, lse):
    """Attention of a step over pages: arguments as for :func:`attend_task`, of all sequences."""
    tasks = deal(step, query.shape[1], query.shape[2])
    for worker in prange(workers):
        for task in range(worker, len(tasks), workers):
            b, head, first = tasks[task]
            attend_task(query, keys, values, step, b, head, first, scale, causal, out, lse)
