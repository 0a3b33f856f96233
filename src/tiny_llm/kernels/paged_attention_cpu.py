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
    raise NotImplementedError("Week 3 Day 3 Task 1: A tile out of pages")


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
    raise NotImplementedError("Week 3 Day 3 Task 2: The softmax of a tile")


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
    raise NotImplementedError("Week 3 Day 3 Task 3: One part of one sequence")


@kernel
def deal(kv_lens: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Cut the pasts of some sequences into parts of at most PART keys, and list them, the longest first.

    Args:
        kv_lens: int32 [B].
        rows: which of the B sequences.

    Returns:
        int32 [tasks, 2]: row and number of the part.
    """
    raise NotImplementedError("Week 3 Day 3 Task 4: All sequences, dealt to the threads")


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
    raise NotImplementedError("Week 3 Day 3 Task 4: All sequences, dealt to the threads")


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
    raise NotImplementedError("Week 3 Day 3 Task 5: From torch and back")
