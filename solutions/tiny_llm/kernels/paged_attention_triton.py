"""Attention over pages in Triton (Day 3.4): Day 3.3's kernel for a GPU, or for Triton's interpreter.

Many copies of a kernel run at the same time: *programs*. Each works on whole tiles where the CPU's kernel goes number
by number. A program takes a block of queries of one sequence, one key head, and one part of the past.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from tiny_llm.kernels.compiling_triton import dot, tl, triton
from tiny_llm.paged.attention import Attended, merge_attention
from tiny_llm.paged.metadata import ForwardMeta

TILE = 64
"""Keys between two updates of the online softmax."""
PART = 512
"""Keys of one sequence that a program goes through: a multiple of TILE."""
FEWEST_ROWS, MOST_ROWS = 16, 64
"""Queries of a program: a GPU multiplies matrices of at least 16 rows, and has registers for some 64."""
FEWEST_COLUMNS = 16
"""The least WIDTH of a tile: a GPU doesn't multiply tiles that have fewer columns in common."""


@triton.jit
def load_tile(
    pages, table, head, positions, wanted, Hkv, P: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr
):
    """The keys (or the values) of one head at some positions of a sequence.

    Args:
        pages: points to a layer's pages [N, P, Hkv, D], contiguous.
        table: points to the pages of the sequence, by number, int32.
        head: which key head.
        positions: int32 [TILE].
        wanted: bool [TILE]: which of them to read. Nothing is read for the others, neither table nor page.
        Hkv: key heads. P: tokens per page. D: head size.
        WIDTH: a power of two, at least D: tiles have no other sizes.

    Returns:
        [TILE, WIDTH] in the dtype of the pages; zeros where nothing is wanted, and from column D on.
    """
    numbers = tl.load(table + positions // P, mask=wanted, other=0).to(tl.int64)
    rows = (numbers * P + positions % P) * Hkv + head
    columns = tl.arange(0, WIDTH)
    inside = wanted[:, None] & (columns < D)[None, :]
    return tl.load(pages + rows[:, None] * D + columns[None, :], mask=inside, other=0.0)


@triton.jit
def fold_scores(scores, peaks, totals):
    """The online softmax: take in the scores of a tile, for all queries at once.

    Args:
        scores: float32 [ROWS, TILE]; −inf where a query may not look.
        peaks: float32 [ROWS], the highest score of each query so far; −inf before the first.
        totals: float32 [ROWS], the sum of its weights so far, relative to ``peaks``.

    Returns:
        weights: float32 [ROWS, TILE], relative to the new peaks; zeros where the score is −inf.
        keep: float32 [ROWS], what to multiply the values by that were gathered so far.
        peaks and totals, up to date.
    """
    highest = tl.maximum(peaks, tl.max(scores, axis=1))
    base = tl.where(highest == -float("inf"), 0.0, highest)
    weights = tl.exp(scores - base[:, None])
    keep = tl.exp(peaks - base)
    return weights, keep, highest, totals * keep + tl.sum(weights, axis=1)


@triton.jit
def finish(gathered, peaks, totals):
    """What attention gives for the queries of a program, from what the tiles left.

    Args:
        gathered: float32 [ROWS, WIDTH], the weighted sum of the values. peaks, totals: as in :func:`fold_scores`.

    Returns:
        float32 [ROWS, WIDTH], and the log-sum-exp, float32 [ROWS]; zeros and −inf where a query has seen nothing.
    """
    divisors = tl.where(totals == 0.0, 1.0, totals)
    return gathered / divisors[:, None], peaks + tl.log(divisors)


# T and table_width change from step to step. Without this list, Triton would compile the kernel again for the number
# 1, and for multiples of 16.
@triton.jit(do_not_specialize=["T", "table_width"])
def attend_pages(
    query,
    keys,
    values,
    starts,
    kv_lens,
    tables,
    out,
    lse,
    T,
    H,
    Hkv,
    table_width,
    scale,
    causal: tl.constexpr,
    P: tl.constexpr,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
    PART: tl.constexpr,
):
    """One program. Its ids: 0 is the sequence, 1 is (block of ROWS queries) · Hkv + key head, 2 is the part.

    The queries of a sequence that share a key head are numbered token by token: number i is the query of token
    i // group in query head head · group + i % group, for group = H/Hkv.

    Args:
        query: points to [T, H, D], contiguous, in the dtype of the pages.
        keys: points to a layer's pages [N, P, Hkv, D], contiguous; values likewise.
        starts: int32 [B + 1], ``cu_seqlens_q``. kv_lens: int32 [B]. tables: int32 [B, table_width].
        out: float32 [parts, T, H, D]; this program's queries are written, for its part.
        lse: float32 [parts, T, H]; likewise.
        scale: what to multiply the scores by.
        causal: whether a token sees only what stands before it, and itself; if False, all of its sequence.
        T, H, Hkv, P, D, WIDTH, TILE, PART: sizes, WIDTH as in :func:`load_tile`. ROWS: queries of a program.
    """
    sequence, head, part = tl.program_id(0), tl.program_id(1) % Hkv, tl.program_id(2)
    first, last, kv_len = (
        tl.load(starts + sequence),
        tl.load(starts + sequence + 1),
        tl.load(kv_lens + sequence),
    )
    group = H // Hkv
    i = tl.program_id(1) // Hkv * ROWS + tl.arange(0, ROWS)
    token, mine = i // group, i < (last - first) * group
    row = (first + token) * H + head * group + i % group
    columns = tl.arange(0, WIDTH)
    inside = mine[:, None] & (columns < D)[None, :]
    queries = tl.load(query + row[:, None] * D + columns[None, :], mask=inside, other=0.0)

    seen = kv_len - (last - first) + token + 1 if causal else kv_len + token * 0
    seen = tl.where(mine, seen, 0)
    stop = tl.minimum((part + 1) * PART, tl.max(seen, axis=0))
    table = tables + sequence * table_width
    gathered = tl.zeros((ROWS, WIDTH), tl.float32)
    peaks, totals = tl.full((ROWS,), -float("inf"), tl.float32), tl.zeros((ROWS,), tl.float32)
    for start in range(part * PART, stop, TILE):
        positions = start + tl.arange(0, TILE)
        key = load_tile(keys, table, head, positions, positions < stop, Hkv, P, D, WIDTH)
        scores = tl.where(
            positions[None, :] < seen[:, None], dot(queries, tl.trans(key)) * scale, -float("inf")
        )
        weights, keep, peaks, totals = fold_scores(scores, peaks, totals)
        value = load_tile(values, table, head, positions, positions < stop, Hkv, P, D, WIDTH)
        gathered = gathered * keep[:, None] + dot(weights.to(value.dtype), value)

    attended, sums = finish(gathered, peaks, totals)
    row = row.to(tl.int64) + part * T * H
    tl.store(out + row[:, None] * D + columns[None, :], attended, mask=inside)
    tl.store(lse + row, sums, mask=mine)


def paged_attention_triton(
    query: Tensor, keys: Tensor, values: Tensor, meta: ForwardMeta, scale: float, causal: bool = True
) -> Attended:
    """Day 3.2's attention by the Triton kernel: one read of each page per key head, no copy of the past.

    The results of the parts take 4 · parts · T · H · D bytes until they are merged, where parts is the longest
    past / PART, rounded up: much for a long chunk with a long past.

    Args:
        query: [T, H, D]; on the GPU if there is one, otherwise on the CPU, where the interpreter runs the kernel.
        keys: a layer's pages [N, P, Hkv, D], in the dtype of ``query``, with the new tokens written; values likewise.
        meta: the step.
        scale: what to multiply the scores by.
        causal: as in :func:`tiny_llm.paged.attention.paged_attention`.

    Returns:
        [T, H, D] in the dtype of ``query``, and the log-sum-exp, float32 [T, H].
    """
    (T, H, D), (_, P, Hkv, _) = query.shape, keys.shape
    most = max(stop - start for start, stop in pairwise(meta.starts)) * H // Hkv
    rows = min(max(triton.next_power_of_2(most), FEWEST_ROWS), MOST_ROWS)
    parts = max(1, triton.cdiv(max(meta.kv_lens), PART))
    out = torch.empty(parts, T, H, D, dtype=torch.float32, device=query.device)
    lse = torch.empty(parts, T, H, dtype=torch.float32, device=query.device)
    attend_pages[(len(meta.kv_lens), triton.cdiv(most, rows) * Hkv, parts)](
        query.contiguous(),
        keys,
        values,
        meta.cu_seqlens_q,
        meta.seq_lens_kv,
        meta.block_table,
        out,
        lse,
        T,
        H,
        Hkv,
        meta.block_table.shape[1],
        scale,
        causal=causal,
        P=P,
        D=D,
        WIDTH=max(triton.next_power_of_2(D), FEWEST_COLUMNS),
        ROWS=rows,
        TILE=TILE,
        PART=PART,
    )
    pieces = list(zip(out, lse, strict=True))
    attended, sums = pieces[0] if parts == 1 else merge_attention(pieces)
    return attended.to(query.dtype), sums
