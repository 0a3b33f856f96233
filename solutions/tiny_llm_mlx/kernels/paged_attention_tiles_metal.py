"""Attention over pages in Metal, by tiles that a whole threadgroup shares (Day 3.4).

Day 3.3's simdgroups read a key once for every query. Here eight queries that read the same keys, the heads of a
group and neighboring tokens, are one threadgroup: it brings 32 keys, then their values, into its memory, and all of
them use what one has read.
"""

from __future__ import annotations

from itertools import pairwise

import mlx.core as mx

from ..paged.attention import Attended, merge_attention
from ..paged.metadata import ForwardMeta
from .decode_attention_metal import part_count
from .metal import SIMD, metal_kernel
from .paged_attention_metal import NAMES, check_sizes

ROWS = 8
"""Queries of a threadgroup: each has a simdgroup."""
MEMORY = 32768
"""Bytes of memory that a threadgroup has on Apple's GPUs."""


def tile_source() -> str:
    """The body of a Metal kernel: ROWS queries attend to one part of their sequence, 32 keys at a time.

    The queries of a sequence that share a key head are numbered token by token: number i is token i / group, query
    head head · group + i % group, for group = H / Hkv. A threadgroup has ROWS of them that follow one another, a
    *block*; its place in the grid is (sequence, block · Hkv + key head, part). A simdgroup has one query, a thread of
    it one key of a tile. Numbers behind the last query are *spare*: their threads help to load, and write nothing.

    What it finds: as in Day 3.3, and the constant ``ROWS``. Where n is what the block's last query sees, part p has
    keys p·n / parts … (p + 1)·n / parts − 1. The grid has 32 · ROWS · B threads, in y as many as there are blocks of
    the longest sequence, times Hkv, in z as many as there are parts.

    What it writes, every element once: ``out`` float [parts, T, H, D] and ``lse`` float [parts, T, H]; zeros and −inf
    where a query sees nothing of a part.
    """
    return """
    constexpr int SPAN = (D + 31) / 32;
    threadgroup float queries[ROWS][D];
    threadgroup float tile[32][D + 1];           // one more, so that 32 threads in a column meet 32 banks of memory
    int lane = thread_index_in_simdgroup;
    int own = simdgroup_index_in_threadgroup;    // which of the ROWS queries
    int thread_number = thread_index_in_threadgroup;
    int T = query_shape[0], H = query_shape[1], P = keys_shape[1], Hkv = keys_shape[2];
    int group = H / Hkv;
    int sequence = threadgroup_position_in_grid.x;
    int head = threadgroup_position_in_grid.y % Hkv;
    int block = threadgroup_position_in_grid.y / Hkv * ROWS;    // its first query
    int part = threadgroup_position_in_grid.z;
    int first = starts[sequence];
    int tokens = starts[sequence + 1] - first;
    int count = min(ROWS, tokens * group - block);
    if (count <= 0) {
        return;                                  // all threads of the threadgroup do
    }

    int kv_len = kv_lens[sequence];
    int i = block + own;
    int seen = kv_len, most = kv_len;
    if (causal) {
        seen = max(0, kv_len - tokens + i / group + 1);
        most = max(0, kv_len - tokens + (block + count - 1) / group + 1);
    }
    int place = (first + i / group) * H + head * group + i % group;
    bool spare = own >= count;
    for (int d = lane; d < D; d += 32) {
        queries[own][d] = spare ? 0 : float(query[place * D + d]);
    }

    float gathered[SPAN], peak = -INFINITY, total = 0;
    for (int n = 0; n < SPAN; ++n) {
        gathered[n] = 0;
    }
    int stop = (part + 1) * most / parts;
    for (int start = part * most / parts; start < stop; start += 32) {
        int held = min(32, stop - start);
        threadgroup_barrier(mem_flags::mem_threadgroup);        // the tile before is not needed any more
        for (int n = thread_number; n < held * D; n += 32 * ROWS) {
            int j = start + n / D;
            long page = tables[sequence * tables_shape[1] + j / P];
            tile[n / D][n % D] = keys[((page * P + j % P) * Hkv + head) * D + n % D];
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);        // all of the tile is there
        float score = -INFINITY;
        if (lane < held && start + lane < seen) {
            score = 0;
            for (int d = 0; d < D; ++d) {
                score += queries[own][d] * tile[lane][d];
            }
            score *= scale;
        }
        float highest = max(peak, simd_max(score));
        float base = highest == -INFINITY ? 0 : highest;
        float weight = exp(score - base);
        float keep = exp(peak - base);
        total = total * keep + simd_sum(weight);
        peak = highest;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (int n = thread_number; n < held * D; n += 32 * ROWS) {
            int j = start + n / D;
            long page = tables[sequence * tables_shape[1] + j / P];
            tile[n / D][n % D] = values[((page * P + j % P) * Hkv + head) * D + n % D];
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (int n = 0; n < SPAN; ++n) {
            gathered[n] *= keep;
        }
        for (int j = 0; j < held; ++j) {
            float share = simd_shuffle(weight, j);
            for (int n = 0; n < SPAN; ++n) {
                int d = lane + 32 * n;
                if (d < D) {
                    gathered[n] += share * tile[j][d];
                }
            }
        }
    }
    if (spare) {
        return;
    }
    place += part * T * H;
    for (int n = 0; n < SPAN; ++n) {
        int d = lane + 32 * n;
        if (d < D) {
            out[place * D + d] = total == 0 ? 0 : gathered[n] / total;
        }
    }
    if (lane == 0) {
        lse[place] = total == 0 ? -INFINITY : peak + log(total);
    }
    """


def attend_tiles(
    query: mx.array,
    keys: mx.array,
    values: mx.array,
    meta: ForwardMeta,
    scale: float,
    causal: bool,
    parts: int,
) -> Attended:
    """Attend to each part of the past by itself, by the kernel of :func:`tile_source`.

    Args:
        query: [T, H, D], any float dtype.
        keys: a layer's pages [N, P, Hkv, D], any float dtype; values likewise.
        meta: the step.
        scale: what to multiply the scores by.
        causal: whether a token sees only what stands before it, and itself; if False, all of its sequence.
        parts: how many parts the past is cut into.

    Returns:
        out [parts, T, H, D] and lse [parts, T, H], both float32; see :func:`tile_source`.
    """
    (T, H, D), Hkv = query.shape, keys.shape[2]
    kernel = metal_kernel("attend_tiles", NAMES, ("out", "lse"), tile_source())
    numbers = [meta.cu_seqlens_q, meta.seq_lens_kv, meta.block_table, parts, float(scale), bool(causal)]
    out, lse = kernel(
        inputs=[query, keys, values, *numbers],
        template=[("D", D), ("ROWS", ROWS)],
        grid=(SIMD * ROWS * len(meta.kv_lens), block_count(meta, H // Hkv) * Hkv, parts),
        threadgroup=(SIMD * ROWS, 1, 1),
        output_shapes=[(parts, T, H, D), (parts, T, H)],
        output_dtypes=[mx.float32] * 2,
    )
    return out, lse


def block_count(meta: ForwardMeta, group: int) -> int:
    """Blocks of ROWS queries of the sequence that brings the most tokens.

    Args:
        meta: the step.
        group: query heads that share a key head.
    """
    most = max(stop - start for start, stop in pairwise(meta.starts)) * group
    return -(-most // ROWS)


def paged_attention_tiles(
    query: mx.array, keys: mx.array, values: mx.array, meta: ForwardMeta, scale: float, causal: bool = True
) -> Attended:
    """Day 3.2's attention by the kernel of :func:`tile_source`: a key is read once for a block of queries.

    Args:
        query: [T, H, D], the tokens of all sequences one after the other.
        keys: a layer's pages [N, P, Hkv, D], any float dtype, with the new tokens written; values likewise.
        meta: the step.
        scale: what to multiply the scores by.
        causal: as in :func:`tiny_llm.paged.attention.paged_attention`.

    Returns:
        [T, H, D] in the dtype of ``query``, computed in float32, and the log-sum-exp, float32 [T, H]; zeros and −inf
        where a token sees nothing.

    Raises:
        ValueError: the sizes don't fit, as in :func:`check_sizes`, or a tile of 32 keys of D numbers and ROWS queries
            need more than :data:`MEMORY`.
    """
    (_, H, D), Hkv = query.shape, keys.shape[2]
    check_sizes(query, keys, values, meta)
    needed = 4 * (32 * (D + 1) + ROWS * D)
    if needed > MEMORY:
        raise ValueError(
            f"tiles of heads of {D} numbers need {needed} bytes, and a threadgroup has {MEMORY}; choose metal"
        )
    groups = len(meta.kv_lens) * block_count(meta, H // Hkv) * Hkv
    parts = part_count(groups, max(meta.kv_lens))
    pieces = list(zip(*attend_tiles(query, keys, values, meta, scale, causal, parts), strict=True))
    attended, sums = pieces[0] if parts == 1 else merge_attention(pieces)
    return attended.astype(query.dtype), sums
