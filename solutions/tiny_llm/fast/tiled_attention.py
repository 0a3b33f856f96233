"""Attention over pages in bfloat16, by tiles of keys and tiles of queries (Day 4.7).

The steps of Day 2.5 and Day 3.3, in registers: 16 keys side by side, and for the values 16 numbers of a head. Each
query is computed as it would be alone, to the last bit, in whichever step and beside whatever others it comes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import prange

from tiny_llm.fast.compiling import exact_kernel
from tiny_llm.fast.online_softmax import NOTHING, fold, make_scratch
from tiny_llm.fast.page_tiles import TILE, fetch_tile, find, load_keys, load_values
from tiny_llm.fast.vectors import floats, load_floats, store_floats

QUERIES = 256
"""Queries of a key head that a thread takes at a time."""


class Pages(NamedTuple):
    """A layer's pages, as bits of bfloat16."""

    keys: np.ndarray  # uint16 [N, P, Hkv, D]
    values: np.ndarray


class Step(NamedTuple):
    """The sequences of a step."""

    starts: np.ndarray  # int32 [B + 1], `cu_seqlens_q`
    kv_lens: np.ndarray  # int32 [B], `seq_lens_kv`
    tables: np.ndarray  # int32 [B, most pages of one], `block_table`
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
                    fold(row, 8, seen - start, (first + row) % group, group, causal, stop - start, D, scratch)
                else:
                    fold(row, 4, seen - start, (first + row) % group, group, causal, stop - start, D, scratch)
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
