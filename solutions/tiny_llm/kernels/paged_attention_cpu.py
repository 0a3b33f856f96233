"""Attention over pages, compiled (Day 3.3): the kernel walks the block table, and no past is gathered in memory.

The functions for a tile of keys are Day 2.5's. A tile comes from another place: its tokens lie in several pages, and
are brought side by side in a buffer that is small enough to stay in the nearest cache.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numba import get_num_threads, prange
from torch import Tensor

from tiny_llm.kernels.compiling import as_numpy, copy_as_floats, inlined, kernel
from tiny_llm.kernels.decode_attention_cpu import TILE, add_values, fold_scores, score_tile
from tiny_llm.paged.attention import Attended, merge_attention
from tiny_llm.paged.metadata import ForwardMeta

PART = 1024
"""Keys of one sequence that a thread takes at a time: a multiple of TILE."""


@inlined
def load_tile(pages: np.ndarray, table: np.ndarray, start: int, stop: int, tile: np.ndarray) -> None:
    """Bring the keys (or the values) at positions ``start`` … ``stop`` − 1 of a sequence side by side, head by head.

    Args:
        pages: [N, P, Hkv, D], contiguous, float32 or the bits of bfloat16.
        table: int32, the pages of the sequence, in order.
        tile: float32 [Hkv, TILE, D]; the first ``stop`` − ``start`` rows of each head are written.
    """
    P, Hkv = pages.shape[1], pages.shape[2]
    for position in range(start, stop):
        page, offset = table[position // P], position % P
        for head in range(Hkv):
            copy_as_floats(pages[page, offset, head], tile[head, position - start])


@inlined
def fold_tile(
    scores: np.ndarray,
    start: int,
    stop: int,
    first_seen: int,
    group: int,
    powers: np.ndarray,
    peaks: np.ndarray,
    totals: np.ndarray,
    gathered: np.ndarray,
) -> None:
    """The online softmax of all queries of one key head, each up to the last key that it sees.

    Args:
        scores: float32 [Q, TILE], of the keys ``start`` … ``stop`` − 1; overwritten by weights, 0 where not seen.
        start: position of the tile's first key.
        stop: one more than the position of its last.
        first_seen: how many keys of the sequence the first new token sees; each later one sees one more.
        group: queries per token: H/Hkv.
        powers: float32 [TILE]; scratch.
        peaks: float32 [Q], totals: float32 [Q], gathered: float32 [Q, D]: what :func:`fold_scores` keeps.
    """
    for i in range(len(scores)):
        seen = min(stop, first_seen + i // group) - start
        if seen <= 0:
            scores[i, :] = 0
        else:
            peaks[i], totals[i] = fold_scores(scores[i], seen, powers, peaks[i], totals[i], gathered[i])


@kernel
def attend_part(
    query: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    table: np.ndarray,
    start: int,
    stop: int,
    first_seen: int,
    scale: np.float32,
    out: np.ndarray,
    lse: np.ndarray,
) -> None:
    """The new tokens of one sequence attend to its keys at positions ``start`` … ``stop`` − 1, in all heads.

    Args:
        query: float32 [L, Hkv, H/Hkv, D].
        keys: a layer's pages [N, P, Hkv, D], contiguous, float32 or the bits of bfloat16; values likewise.
        table: int32, the pages of the sequence.
        first_seen: how many keys the first of the L tokens sees; each later one sees one more.
        scale: what to multiply the scores by.
        out: float32 [L, H, D]; overwritten; zeros where a token sees none of these keys.
        lse: float32 [L, H], the log-sum-exp of the scores; overwritten; −inf where a token sees none.
    """
    L, Hkv, group, D = query.shape
    Q = L * group
    queries, gathered = np.empty((Hkv, Q, D), np.float32), np.zeros((Hkv, Q, D), np.float32)
    for i in range(Q):
        for head in range(Hkv):
            queries[head, i] = query[i // group, head, i % group]
    peaks, totals = np.full((Hkv, Q), -np.inf, np.float32), np.zeros((Hkv, Q), np.float32)
    scores, powers = np.empty((Hkv, Q, TILE), np.float32), np.empty(TILE, np.float32)
    tile = np.empty((Hkv, TILE, D), np.float32)
    for begin in range(start, stop, TILE):
        end = min(begin + TILE, stop)
        load_tile(keys, table, begin, end, tile)
        for head in range(Hkv):
            score_tile(queries[head], tile[head, : end - begin], scale, scores[head])
            fold_tile(
                scores[head], begin, end, first_seen, group, powers, peaks[head], totals[head], gathered[head]
            )
        load_tile(values, table, begin, end, tile)
        for head in range(Hkv):
            add_values(scores[head], tile[head, : end - begin], gathered[head])
    for i in range(Q):
        for head in range(Hkv):
            total = totals[head, i]
            nothing = total == 0
            lse[i // group, head * group + i % group] = peaks[head, i] + np.log(1 if nothing else total)
            out[i // group, head * group + i % group] = gathered[head, i] / (1 if nothing else total)


@kernel
def deal(kv_lens: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Cut the pasts of some sequences into parts of at most PART keys, and list them, the longest first.

    Args:
        kv_lens: int32 [B].
        rows: which of the B sequences.

    Returns:
        int32 [tasks, 2]: row and number of the part.
    """
    count = ((kv_lens[rows] + PART - 1) // PART).sum()
    tasks, sizes = np.empty((count, 2), np.int32), np.empty(count, np.int32)
    task = 0
    for row in rows:
        for part in range((kv_lens[row] + PART - 1) // PART):
            tasks[task, 0], tasks[task, 1] = row, part
            sizes[task] = min(PART, kv_lens[row] - part * PART)
            task += 1
    return tasks[np.argsort(-sizes)]


@kernel
def attend_pages(
    query: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    starts: np.ndarray,
    kv_lens: np.ndarray,
    tables: np.ndarray,
    rows: np.ndarray,
    scale: np.float32,
    causal: bool,
    workers: int,
    out: np.ndarray,
    lse: np.ndarray,
) -> None:
    """Attend for some sequences of a ragged batch, in parts; the parts are dealt to the threads like cards.

    Args:
        query: float32 [T, Hkv, H/Hkv, D].
        keys: a layer's pages [N, P, Hkv, D], contiguous, float32 or the bits of bfloat16; values likewise.
        starts: int32 [B + 1], ``cu_seqlens_q``. kv_lens: int32 [B]. tables: int32 [B, most pages of one].
        rows: int32, which of the B sequences.
        scale: what to multiply the scores by.
        causal: whether a token sees only the tokens before it, and itself; if False, all of its sequence.
        workers: how many threads.
        out: float32 [parts, T, H, D]: of each part that a sequence has, [L, H, D] is overwritten.
        lse: float32 [parts, T, H], likewise.
    """
    tasks = deal(kv_lens, rows)
    for worker in prange(workers):
        for task in range(worker, len(tasks), workers):
            row, part = tasks[task]
            first, last, kv_len = starts[row], starts[row + 1], kv_lens[row]
            first_seen = kv_len - (last - first) + 1 if causal else kv_len
            start, stop = part * PART, min((part + 1) * PART, kv_len)
            attend_part(
                query[first:last],
                keys,
                values,
                tables[row],
                start,
                stop,
                first_seen,
                scale,
                out[part, first:last],
                lse[part, first:last],
            )


def paged_attention_cpu(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    meta: ForwardMeta,
    scale: float,
    causal: bool = True,
    rows: Sequence[int] | None = None,
) -> Attended:
    """Day 3.2's attention by the kernel: one read of each page, no copy of the past, scores of one tile at a time.

    It is right for any number of queries, and fast for a few per sequence. The results of the parts take
    4 · parts · T · H · D bytes until they are merged, where parts is the longest past / PART, rounded up.

    Args:
        query: [T, H, D] on the CPU.
        keys: a layer's pages [N, P, Hkv, D], float32 or bfloat16, with the new tokens written; values likewise.
        meta: the step.
        scale: what to multiply the scores by.
        causal: as in :func:`tiny_llm.paged.attention.paged_attention`.
        rows: which sequences of the step to attend for, by number; all when None.

    Returns:
        [T, H, D] in the dtype of ``query``, computed in float32, and the log-sum-exp, float32 [T, H]. Zeros and −inf
        for the tokens of the other sequences.
    """
    (T, H, D), Hkv = query.shape, keys.shape[2]
    chosen = range(len(meta.kv_lens)) if rows is None else rows
    parts = max([1, *(-(-meta.kv_lens[row] // PART) for row in chosen)])
    out, lse = np.zeros((parts, T, H, D), np.float32), np.full((parts, T, H), -np.inf, np.float32)
    attend_pages(
        as_numpy(query.float()).reshape(T, Hkv, H // Hkv, D),
        as_numpy(keys),
        as_numpy(values),
        meta.cu_seqlens_q.numpy(),
        meta.seq_lens_kv.numpy(),
        meta.block_table.numpy(),
        np.array(chosen, np.int32),
        np.float32(scale),
        causal,
        get_num_threads(),
        out,
        lse,
    )
    pieces = [(torch.from_numpy(part), torch.from_numpy(sums)) for part, sums in zip(out, lse, strict=True)]
    attended, sums = pieces[0] if parts == 1 else merge_attention(pieces)
    return attended.to(query.dtype), sums
