"""The online softmax in registers: 16 keys side by side, and for the values 16 numbers of a head (Day 4.7)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tiny_llm.fast.compiling import exact_inlined, exact_kernel
from tiny_llm.fast.exponential import exponential
from tiny_llm.fast.page_tiles import TILE
from tiny_llm.fast.tiles import fma_rows, load_rows, store_rows, zero_floats
from tiny_llm.fast.vectors import (
    first_lanes,
    floats,
    largest,
    largest_lane,
    load_floats,
    store_floats,
    sum_of_lanes,
)

ROWS = 8
"""Queries of a tile, at most."""
NOTHING = np.float32(-1e30)
"""Below each score."""


class Scratch(NamedTuple):
    """Memory of a thread, small enough for its nearest caches; at first there may be anything in it, NaN too.

    Q: queries of a task, up to a multiple of 4.
    """

    starts: np.ndarray  # int64 [TILE]
    keys: np.ndarray  # float32 [TILE/16 · D · 16], of a tile: from `load_keys`
    values: np.ndarray  # float32 [TILE · D], of a tile: from `load_values`
    scores: np.ndarray  # float32 [ROWS · TILE], of the queries that are at work, the first of them in row 0
    weights: np.ndarray  # float32 [ROWS · TILE], likewise
    queries: np.ndarray  # float32 [Q · D], times the scale
    peaks: np.ndarray  # float32 [Q]: the highest score so far, or NOTHING
    totals: np.ndarray  # float32 [Q]: the sum of the weights so far
    gathered: np.ndarray  # float32 [Q · D]: the sum of the values so far, times their weights


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


@exact_inlined
def score_queries(row, rows, count, D, scratch):
    """Scores of some queries for the keys of a tile, into ``scratch.scores``: row r is that of query ``row`` + r.

    Two registers for each query are filled at a time, the scores of two blocks of 16 keys, whether or not the second
    block has any. A score begins at 0, and the products of the D numbers
    are added with ``fma_rows`` from the first to the last: so it is the same to the last bit in whichever row and
    beside whatever other queries and keys.

    Args:
        row: the first of the queries.
        rows: how many, a constant: 4 or 8.
        count: keys of the tile, from 1 to TILE.
        D: head size, a multiple of 32.
        scratch: ``keys`` and ``queries`` are read. The ``keys`` from number ``count`` on, up to a multiple of 32, may
            be anything, NaN too: a key has its own lane, so they spoil only their own scores, which
            :func:`fold_row` doesn't use. ``scores`` of the rows are written up to this multiple of 32; the other
            rows stay.
    """
    raise NotImplementedError("Week 4 Day 7 Task 5: Attention in tiles")


@exact_inlined
def fold_row(i, query, seen, count, D, scratch):
    """The scores of a query become weights, and what it has gathered so far is scaled to the new peak.

    The peak is the highest score that the query has seen, in this tile or before. A weight is e^(score − peak). If
    the peak rises by this tile, what was summed up before counts e^(old peak − new peak) times as much: the total
    and what was gathered. Then the tile's weights are added to the total; :func:`add_values` adds its values.

    Args:
        i: row of the query in ``scratch.scores`` and ``scratch.weights``.
        query: number of the query in ``scratch.peaks``, ``scratch.totals`` and ``scratch.gathered``.
        seen: how many keys of the tile it sees, at most ``count``. If it is 0 or less, peak, total and what was
            gathered stay as they are.
        count: keys of the tile, from 1 to TILE.
        D: head size, a multiple of 16.
        scratch: ``scores`` from number ``seen`` on may be anything, NaN too, and count nothing. The ``weights`` from
            there up to ``count`` are written as 0, all of them if no key is seen; there is room for writing them up
            to a multiple of 16. Of other rows and
            queries nothing is read or written. A peak is NOTHING, with total 0, until a key is seen.
    """
    raise NotImplementedError("Week 4 Day 7 Task 5: Attention in tiles")


@exact_inlined
def add_values(row, rows, count, D, scratch):
    """Add the values of a tile, times the queries' weights, to what these queries have gathered.

    They are added one token after the other, with ``fma_rows``. A weight of 0 adds nothing: so a query comes out the
    same to the last bit whether or not the tile has keys that it doesn't see.

    Args:
        row, rows, count, D: as for :func:`score_queries`.
        scratch: row r of ``weights`` is that of query ``row`` + r; ``weights`` and ``values`` from number ``count``
            on aren't read. ``gathered`` of these queries is changed.
    """
    raise NotImplementedError("Week 4 Day 7 Task 5: Attention in tiles")


@exact_inlined
def fold(row, rows, seen, offset, group, causal, count, D, scratch):
    """The online softmax of some queries of a key head, over one tile of keys.

    Args:
        row: the first of the queries.
        rows: how many, a constant: 4 or 8.
        seen: how many keys of the tile the first of them sees; may be 0 or less, or more than there are.
        offset: how many queries before it belong to the same token. Each token sees one key more.
        count: keys of the tile.
    """
    score_queries(row, rows, count, D, scratch)
    for i in range(rows):
        visible = min(count, seen + (offset + i) // group if causal else count)
        fold_row(i, row + i, visible, count, D, scratch)
    add_values(row, rows, count, D, scratch)
