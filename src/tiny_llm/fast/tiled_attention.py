"""Attention over pages in bfloat16, by tiles of keys and tiles of queries (Day 4.7).

The steps of Day 2.5 and Day 3.3, in registers: 16 keys side by side, and for the values 16 numbers of a head. Each
query is computed as it would be alone, to the last bit, in whichever step and beside whatever others it comes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import prange

from tiny_llm.fast.compiling import exact_inlined, exact_kernel
from tiny_llm.fast.small import exponential
from tiny_llm.fast.tiles import fma_rows, load_rows, store_rows, transpose_bfloats, zero_floats
from tiny_llm.fast.vectors import (
    fetch,
    first_lanes,
    floats,
    largest,
    largest_lane,
    load_bfloats,
    load_floats,
    store_floats,
    sum_of_lanes,
)

TILE = 64
"""Keys of a tile: a multiple of 32. The tiles of a sequence begin at its first key."""
ROWS = 8
"""Queries of a tile."""
NOTHING = np.float32(-1e30)
"""Below each score."""


@exact_inlined
def find(table, shape, head, start, stop, starts):
    """Where the numbers of a head begin for each token of a tile: elements of all pages.

    Args:
        table: int32, the pages of the sequence.
        shape: [N, P, Hkv, D] of the pages.
        starts: int64 [TILE]; overwritten. Behind the last token it goes on with the last one's.
    """
    P, Hkv, D = shape[1], shape[2], shape[3]
    for position in range(start, stop):
        starts[position - start] = ((table[position // P] * P + position % P) * Hkv + head) * D
    for i in range(stop - start, (stop - start + 15) // 16 * 16):
        starts[i] = starts[stop - start - 1]


@exact_kernel
def fetch_tile(keys, values, table, head, start, stop):
    """Begin to bring a tile from memory, which is used only after another one."""
    P, Hkv, D = keys.shape[1], keys.shape[2], keys.shape[3]
    for position in range(start, stop):
        at = ((table[position // P] * P + position % P) * Hkv + head) * D
        for i in range(0, D, 32):  # a line of the cache
            fetch(keys, at + i)
            fetch(values, at + i)


@exact_inlined
def load_keys(pages, starts, count, D, tile):
    """Keys of a head, 16 of them side by side.

    Args:
        pages: all pages of a layer, bits of bfloat16, uint16.
        starts: from :func:`find`.
        tile: float32 [TILE/16, D, 16]; overwritten.
    """
    for first in range(0, count, 16):
        for i in range(0, D, 32):
            transpose_bfloats(pages, starts[first:], i, tile, first * D + i * 16)


@exact_inlined
def load_values(pages, starts, count, D, tile):
    """Values of a head, float32 [TILE, D]."""
    for token in range(count):
        for i in range(0, D, 16):
            store_floats(tile, token * D + i, load_bfloats(pages, starts[token] + i))


def _make_fold(rows: int):  # type: ignore[no-untyped-def]
    @exact_inlined
    def fold(row, seen, offset, group, causal, count, D, scratch):
        """The online softmax of some queries of a key head, over one tile of keys.

        Args:
            row: the first of the queries.
            seen: how many keys of the tile the first of them sees; may be 0 or less, or more than there are.
            offset: how many queries before it belong to the same token. Each token sees one key more.
            count: keys of the tile.
        """
        for first in range(0, count, 32):
            left, right = zero_floats(rows), zero_floats(rows)
            for i in range(D):
                at = first * D + i * 16
                left = fma_rows(left, load_floats(scratch.keys, at), scratch.queries, row * D + i, D)
                right = fma_rows(
                    right, load_floats(scratch.keys, at + 16 * D), scratch.queries, row * D + i, D
                )
            store_rows(scratch.scores, first, TILE, left)
            store_rows(scratch.scores, first + 16, TILE, right)
        for i in range(rows):
            fold_row(
                i, row + i, min(count, seen + (offset + i) // group if causal else count), count, D, scratch
            )
        for i in range(0, D, 32):
            at = row * D + i
            left, right = (
                load_rows(scratch.gathered, at, D, rows),
                load_rows(scratch.gathered, at + 16, D, rows),
            )
            for token in range(count):
                left = fma_rows(
                    left, load_floats(scratch.values, token * D + i), scratch.weights, token, TILE
                )
                right = fma_rows(
                    right, load_floats(scratch.values, token * D + i + 16), scratch.weights, token, TILE
                )
            store_rows(scratch.gathered, at, D, left)
            store_rows(scratch.gathered, at + 16, D, right)

    return fold


@exact_inlined
def fold_row(i, query, seen, count, D, scratch):
    """Scores of a query to weights, and what it has gathered to the new peak."""
    blocks, at, nothing = (count + 15) // 16, i * TILE, floats(NOTHING)
    scores, weights = scratch.scores, scratch.weights
    peak = floats(scratch.peaks[query])
    for block in range(blocks):
        peak = largest(peak, first_lanes(load_floats(scores, at + block * 16), seen - block * 16, nothing))
    new = largest_lane(peak)
    top, total = floats(new), floats(0.0)
    for block in range(blocks):
        power = exponential(load_floats(scores, at + block * 16) - top)
        power = first_lanes(power, seen - block * 16, floats(0.0))
        total = total + power
        store_floats(weights, at + block * 16, power)
    if new > scratch.peaks[query]:
        shrink = np.exp(scratch.peaks[query] - new)
        factor = floats(shrink)
        for block in range(0, D, 16):
            here = query * D + block
            store_floats(scratch.gathered, here, load_floats(scratch.gathered, here) * factor)
        scratch.totals[query] *= shrink
        scratch.peaks[query] = new
    scratch.totals[query] += sum_of_lanes(total)


fold_8, fold_4 = _make_fold(8), _make_fold(4)

QUERIES = 256
"""Queries of a key head that a thread takes at a time."""


class Pages(NamedTuple):
    """A layer's pages, as bits of bfloat16."""

    keys: np.ndarray  # uint16 [N, P, Hkv, D]
    values: np.ndarray


class Step(NamedTuple):
    """The sequences of a step."""

    starts: np.ndarray  # int32 [B + 1], `cu_seqlens_q`
    kv_lens: np.ndarray  # int32 [B]
    tables: np.ndarray  # int32 [B, most pages of one]
    tasks: np.ndarray  # int32 [tasks, 3], from :func:`deal`
    slots: np.ndarray  # int64 [T], `slot_mapping`


@exact_kernel
def deal(starts, kv_lens, heads, group):
    """The tasks of a step, the longest first: int32 [tasks, 3] of sequence, key head, first query."""
    count = 0
    for b in range(len(kv_lens)):
        count += heads * (((starts[b + 1] - starts[b]) * group + QUERIES - 1) // QUERIES)
    tasks, costs = np.empty((count, 3), np.int32), np.empty(count, np.int64)
    task = 0
    for b in range(len(kv_lens)):
        queries = (starts[b + 1] - starts[b]) * group
        for first in range(0, queries, QUERIES):
            for head in range(heads):
                tasks[task, 0], tasks[task, 1], tasks[task, 2] = b, head, first
                costs[task] = -min(QUERIES, queries - first) * kv_lens[b]
                task += 1
    return tasks[np.argsort(costs)]


class Scratch(NamedTuple):
    """Memory of a thread, small enough for its nearest caches."""

    starts: np.ndarray  # int64 [TILE]
    keys: np.ndarray  # float32 [TILE · D]
    values: np.ndarray  # float32 [TILE · D]
    scores: np.ndarray  # float32 [ROWS · TILE]
    weights: np.ndarray  # float32 [ROWS · TILE]
    queries: np.ndarray  # float32 [QUERIES · D]
    peaks: np.ndarray  # float32 [QUERIES]
    totals: np.ndarray  # float32 [QUERIES]
    gathered: np.ndarray  # float32 [QUERIES · D]


@exact_kernel
def make_scratch(D, most):
    """For tasks of up to ``most`` queries."""
    return Scratch(
        np.empty(TILE, np.int64),
        np.empty(TILE * D, np.float32),
        np.empty(TILE * D, np.float32),
        np.empty(ROWS * TILE, np.float32),
        np.empty(ROWS * TILE, np.float32),
        np.empty(most * D, np.float32),
        np.empty(most, np.float32),
        np.empty(most, np.float32),
        np.empty(most * D, np.float32),
    )


@exact_kernel
def attend_task(query, keys, values, step, task, scale, causal, scratch, out, lse):
    """Some queries of a sequence and key head, over all keys that they see.

    Args:
        query: float32 [T, Hkv, H/Hkv, D].
        keys: uint16 [N, P, Hkv, D], bits of bfloat16; values likewise.
        task: sequence, key head, and number of the first query: those of a token's heads come one after the other.
        out: float32 [T, Hkv, H/Hkv, D]; lse: float32 [T, Hkv, H/Hkv].
    """
    b, head, first = task
    group, D = query.shape[2], query.shape[3]
    begin, kv_len, table = step.starts[b], step.kv_lens[b], step.tables[b]
    tokens = step.starts[b + 1] - begin
    count = min(QUERIES, tokens * group - first)
    padded = (count + 3) // 4 * 4
    first_seen = kv_len - tokens + 1
    for i in range(padded):
        scratch.peaks[i], scratch.totals[i] = NOTHING, 0
        row = query[begin + (first + min(i, count - 1)) // group, head, (first + min(i, count - 1)) % group]
        for block in range(0, D, 16):
            store_floats(scratch.queries, i * D + block, load_floats(row, block) * floats(scale))
            store_floats(scratch.gathered, i * D + block, floats(0.0))
    most = min(kv_len, first_seen + (first + count - 1) // group) if causal else kv_len
    for start in range(0, most, TILE):
        stop = min(start + TILE, most)
        fetch_tile(keys, values, table, head, stop, min(stop + TILE, most))
        find(table, keys.shape, head, start, stop, scratch.starts)
        load_keys(keys.reshape(-1), scratch.starts, stop - start, D, scratch.keys)
        load_values(values.reshape(-1), scratch.starts, stop - start, D, scratch.values)
        row = 0
        while row < padded:
            rows = 8 if padded - row >= 8 else 4
            # how many keys the first and the last of these queries see
            seen = first_seen + (first + row) // group if causal else stop
            last_seen = first_seen + (first + row + rows - 1) // group if causal else stop
            if last_seen > start:
                if rows == 8:
                    fold_8(row, seen - start, (first + row) % group, group, causal, stop - start, D, scratch)
                else:
                    fold_4(row, seen - start, (first + row) % group, group, causal, stop - start, D, scratch)
            row += rows
    for i in range(count):
        token, each = begin + (first + i) // group, (first + i) % group
        total = scratch.totals[i] if scratch.totals[i] > 0 else np.float32(1)
        lse[token, head, each] = scratch.peaks[i] + np.log(total) if scratch.totals[i] > 0 else -np.inf
        share = floats(total)
        for block in range(0, D, 16):
            store_floats(out[token, head, each], block, load_floats(scratch.gathered, i * D + block) / share)


@exact_kernel
def attend_tasks(query, keys, values, step, first, workers, scale, causal, out, lse):
    """Every ``workers``-th task, from number ``first`` on."""
    tasks, group = step.tasks, query.shape[2]
    longest = 0
    for b in range(len(step.kv_lens)):
        longest = max(longest, (step.starts[b + 1] - step.starts[b]) * group)
    scratch = make_scratch(query.shape[3], min(QUERIES, longest + 3))
    for number in range(first, len(tasks), workers):
        task = tasks[number, 0], tasks[number, 1], tasks[number, 2]
        if number + workers < len(tasks):
            b = tasks[number + workers, 0]
            fetch_tile(
                keys, values, step.tables[b], tasks[number + workers, 1], 0, min(TILE, step.kv_lens[b])
            )
        attend_task(query, keys, values, step, task, scale, causal, scratch, out, lse)


@exact_kernel
def attend(query, keys, values, step, scale, causal, workers, out, lse):
    """Attention of a step over pages: arguments as for :func:`attend_task`, of all sequences."""
    for worker in prange(workers):
        attend_tasks(query, keys, values, step, worker, workers, scale, causal, out, lse)
