"""Attention over pages as a kernel in Metal, which walks the block table itself (Day 3.3).

Nothing is gathered: each query reads the keys and values of its sequence where they lie in the pool. A simdgroup has
one query, and keeps no scores.
"""

from __future__ import annotations

import mlx.core as mx

from ..paged.attention import Attended, merge_attention
from ..paged.metadata import ForwardMeta
from .decode_attention_metal import part_count
from .metal import SIMD, metal_kernel

NAMES = ("query", "keys", "values", "starts", "kv_lens", "tables", "parts", "scale", "causal")
"""What the kernel calls its inputs."""


def attend_source() -> str:
    """The body of a Metal kernel: one query of one sequence attends to one part of the keys that it sees.

    A simdgroup has a *piece*: one part, one of the T tokens, one query head. Pieces are counted head by head, token
    by token, part by part. A token that sees n keys has in part p the keys p·n / parts … (p + 1)·n / parts − 1.

    What it finds: ``query`` [T, H, D]; ``keys`` and ``values``, a layer's pages [N, P, Hkv, D]; ``starts`` int
    [B + 1], the first token of each sequence, and T; ``kv_lens`` int [B]; ``tables`` int [B, width], the pages of
    each sequence; their sizes in ``query_shape``, ``keys_shape``, ``starts_shape`` and ``tables_shape``; the numbers
    ``parts`` (int), ``scale`` (float) and ``causal`` (bool); the constant ``D``. The grid has 32 · parts · T · H
    threads. If causal, token i of L sees keys 0 … kv_len − L + i of its sequence, which may be none; otherwise all
    kv_len.

    What it writes, every element once: ``out`` float [parts, T, H, D], and ``lse`` float [parts, T, H], the
    log-sum-exp of the scores; zeros and −inf where a query sees nothing of a part.
    """
    return """
    constexpr int SPAN = (D + 31) / 32;          // numbers of a key that a thread holds
    int lane = thread_index_in_simdgroup;
    int piece = thread_position_in_grid.x / 32;
    int T = query_shape[0], H = query_shape[1], P = keys_shape[1], Hkv = keys_shape[2];
    int head = piece % H;
    int token = piece / H % T;
    int part = piece / H / T;

    int row = 0;                                 // how many sequences, after the first, have begun
    for (int b = 1 + lane; b < starts_shape[0]; b += 32) {
        row += starts[b] <= token;
    }
    row = simd_sum(row);
    int seen = kv_lens[row];
    if (causal) {
        seen = max(0, seen - starts[row + 1] + token + 1);
    }

    float q[SPAN], gathered[SPAN], peak = -INFINITY, total = 0;
    for (int n = 0; n < SPAN; ++n) {
        int d = lane + 32 * n;
        q[n] = gathered[n] = 0;
        if (d < D) {
            q[n] = query[(token * H + head) * D + d];
        }
    }
    for (int j = part * seen / parts; j < (part + 1) * seen / parts; ++j) {
        long page = tables[row * tables_shape[1] + j / P];   // long: a pool may have more than 2^31 numbers
        long key = ((page * P + j % P) * Hkv + head / (H / Hkv)) * D;
        float score = 0;
        for (int n = 0; n < SPAN; ++n) {
            int d = lane + 32 * n;
            if (d < D) {
                score += q[n] * keys[key + d];
            }
        }
        score = simd_sum(score) * scale;
        float highest = max(peak, score);
        float keep = exp(peak - highest);
        float weight = exp(score - highest);
        for (int n = 0; n < SPAN; ++n) {
            int d = lane + 32 * n;
            if (d < D) {
                gathered[n] = gathered[n] * keep + weight * values[key + d];
            }
        }
        total = total * keep + weight;
        peak = highest;
    }
    for (int n = 0; n < SPAN; ++n) {
        int d = lane + 32 * n;
        if (d < D) {
            out[piece * D + d] = total == 0 ? 0 : gathered[n] / total;
        }
    }
    if (lane == 0) {
        lse[piece] = total == 0 ? -INFINITY : peak + log(total);
    }
    """


def attend_parts(
    query: mx.array,
    keys: mx.array,
    values: mx.array,
    meta: ForwardMeta,
    scale: float,
    causal: bool,
    parts: int,
) -> Attended:
    """Attend to each part of the past by itself, by the kernel of :func:`attend_source`.

    Args:
        query: [T, H, D], any float dtype.
        keys: a layer's pages [N, P, Hkv, D], any float dtype; values likewise.
        meta: the step.
        scale: what to multiply the scores by.
        causal: as in :func:`attend_source`.
        parts: how many parts the keys that a query sees are cut into.

    Returns:
        out [parts, T, H, D] and lse [parts, T, H], both float32; see :func:`attend_source`.
    """
    T, H, D = query.shape
    kernel = metal_kernel("attend_pages", NAMES, ("out", "lse"), attend_source())
    out, lse = kernel(
        inputs=[
            query,
            keys,
            values,
            meta.cu_seqlens_q,
            meta.seq_lens_kv,
            meta.block_table,
            parts,
            float(scale),
            bool(causal),
        ],
        template=[("D", D)],
        grid=(SIMD * parts * T * H, 1, 1),
        threadgroup=(SIMD, 1, 1),
        output_shapes=[(parts, T, H, D), (parts, T, H)],
        output_dtypes=[mx.float32] * 2,
    )
    return out, lse


def paged_attention_metal(
    query: mx.array, keys: mx.array, values: mx.array, meta: ForwardMeta, scale: float, causal: bool = True
) -> Attended:
    """Day 3.2's attention by the kernel: no copy of the past, and no array of scores.

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
        ValueError: the sizes don't fit, as in :func:`check_sizes`.
    """
    T, H, _ = query.shape
    check_sizes(query, keys, values, meta)
    parts = part_count(T * H, max(meta.kv_lens))
    out, lse = attend_parts(query, keys, values, meta, scale, causal, parts)
    pieces = list(zip(out, lse, strict=True))
    attended, sums = pieces[0] if parts == 1 else merge_attention(pieces)
    return attended.astype(query.dtype), sums


def check_sizes(query: mx.array, keys: mx.array, values: mx.array, meta: ForwardMeta) -> None:
    """Look at the sizes first (given code): a GPU says nothing of an index outside of an array.

    Args:
        query, keys, values, meta: as in :func:`paged_attention_metal`.

    Raises:
        ValueError: T is not the number of the step's tokens, D not that of the pages, keys and values have different
            shapes, or Hkv doesn't divide H.
    """
    (T, H, D), Hkv = query.shape, keys.shape[2]
    if meta.starts[-1] != T:
        raise ValueError(f"the step has {meta.starts[-1]} tokens, and there are queries of {T}")
    if keys.shape != values.shape or keys.shape[3] != D:
        raise ValueError(
            f"queries of {D} numbers don't fit keys of shape {keys.shape} and values of shape {values.shape}"
        )
    if H % Hkv:
        raise ValueError(f"{H} query heads can't share {Hkv} key-value heads evenly")
