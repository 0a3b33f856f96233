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
    raise NotImplementedError("Week 3 Day 4 Task 1: A tile out of pages")


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
    raise NotImplementedError("Week 3 Day 4 Task 2: The online softmax, a tile at a time")


@triton.jit
def finish(gathered, peaks, totals):
    """What attention gives for the queries of a program, from what the tiles left.

    Args:
        gathered: float32 [ROWS, WIDTH], the weighted sum of the values. peaks, totals: as in :func:`fold_scores`.

    Returns:
        float32 [ROWS, WIDTH], and the log-sum-exp, float32 [ROWS]; zeros and −inf where a query has seen nothing.
    """
    raise NotImplementedError("Week 3 Day 4 Task 2: The online softmax, a tile at a time")


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
    raise NotImplementedError("Week 3 Day 4 Task 3: One program")


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
    raise NotImplementedError("Week 3 Day 4 Task 4: The grid")
