"""Kernels that call one function of the learner's and store what it gives; it comes as an argument.

Import this only where Triton is, and after coursekit has chosen between its interpreter and its compiler.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def store_tile(
    load_tile: tl.constexpr,
    pages,
    table,
    positions,
    wanted,
    out,
    head,
    Hkv,
    P: tl.constexpr,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
):
    """One tile, at any positions: out [TILE, WIDTH]; wanted int32 [TILE]."""
    places = tl.arange(0, TILE)
    chosen = tl.load(wanted + places) != 0
    tile = load_tile(pages, table, head, tl.load(positions + places), chosen, Hkv, P, D, WIDTH)
    tl.store(out + places[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :], tile)


@triton.jit
def store_folded(
    fold_scores: tl.constexpr,
    scores,
    peaks,
    totals,
    weights,
    keep,
    new_peaks,
    new_totals,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
):
    """One tile of scores [ROWS, TILE] and the state before it; the four results are stored."""
    rows = tl.arange(0, ROWS)
    places = rows[:, None] * TILE + tl.arange(0, TILE)[None, :]
    w, k, p, t = fold_scores(tl.load(scores + places), tl.load(peaks + rows), tl.load(totals + rows))
    tl.store(weights + places, w)
    tl.store(keep + rows, k)
    tl.store(new_peaks + rows, p)
    tl.store(new_totals + rows, t)


@triton.jit
def store_finished(
    finish: tl.constexpr, gathered, peaks, totals, out, lse, ROWS: tl.constexpr, WIDTH: tl.constexpr
):
    """What the tiles left, gathered [ROWS, WIDTH]; the two results are stored."""
    rows = tl.arange(0, ROWS)
    places = rows[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    attended, sums = finish(tl.load(gathered + places), tl.load(peaks + rows), tl.load(totals + rows))
    tl.store(out + places, attended)
    tl.store(lse + rows, sums)
