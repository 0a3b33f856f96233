"""Day 4.7's softmax of one query and one tile: what it has before, what it must have then, and what mistakes give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from week_2.decode_checks import check_numpy
from week_2.decode_oracle import NAN, folded, random_numbers

from coursekit.check import CheckFailed

from .eight_bits import is_unwritten, unwritten
from .key_tiles import TILE
from .online_softmax import QUERIES, ROWS, check_rest, copy_of, empty_scratch, put, rows_changed
from .small_operations import FILL, call

NOTHING = np.float32(-1e30)
BEHIND = "a score that the query doesn't see was used, or the sums so far don't count e^(old peak − new peak)"


@dataclass
class Before:
    """What a query has when a tile comes: nothing yet, or a peak, a total and what it has gathered."""

    peak: float
    total: float

    def gathered(self, D: int) -> np.ndarray:
        return random_numbers(565, D) if self.total else np.zeros(D)


BEFORE = {
    "nothing": Before(float(NOTHING), 0.0),
    "a lower peak": Before(-4.5, 3.25),
    "a higher peak": Before(6.5, 1.75),
}


def check_fold_row(
    lab: Any, scores: np.ndarray, seen: int, before: Before, where: str, D: int = 64, behind: float = NAN
) -> None:
    """`fold_row` of query 5 in row 3; ``scores`` are those of the tile's keys."""
    __tracebackhide__ = True
    i, query, count = 3, 5, len(scores)
    scratch = empty_scratch(lab, D)
    row = scratch.scores[i * TILE : (i + 1) * TILE]
    row[:] = behind
    row[: max(seen, 0)] = scores[: max(seen, 0)]
    scratch.peaks[:], scratch.totals[:], scratch.gathered[:] = FILL, FILL, FILL
    scratch.peaks[query], scratch.totals[query] = before.peak, before.total
    gathered = before.gathered(D)
    put(scratch.gathered, query, gathered[None])
    own = scratch.weights[i * TILE : i * TILE + count]
    own[:] = unwritten(count)
    old = copy_of(scratch)
    call(lab.fast.online_softmax.fold_row, i, query, seen, count, D, scratch)
    one = rows_changed(QUERIES, 1, query, 1)
    allowed = {"peaks": one, "totals": one, "gathered": rows_changed(QUERIES * D, D, query, 1)}
    check_rest(
        scratch,
        old,
        allowed
        | {"weights": rows_changed(ROWS * TILE, TILE, i, 1), "scores": rows_changed(ROWS * TILE, TILE, i, 1)},
    )
    lacking = np.flatnonzero(is_unwritten(own))
    if len(lacking):
        raise CheckFailed(f"the weights {where}: nothing was written for key {lacking[0]}")
    actual = (
        own,
        scratch.peaks[[query]],
        scratch.totals[[query]],
        scratch.gathered[query * D : (query + 1) * D],
    )
    some = row[: max(seen, 0)].astype(np.float64)
    right = fold_alone(some, count, before, gathered)
    options = {"nan": BEHIND, "rtol": 2e-5, "atol": 0, "dtype": None}
    wrong = mistaken_folds(some, count, before, gathered)
    unseen = actual[0][max(seen, 0) :]
    name = f"the weights of keys that the query doesn't see, {where}"
    check_numpy(unseen, np.zeros(len(unseen)), name=name, axes="keys", rtol=0, atol=0)
    higher = {
        "the score of a key that the query doesn't see was taken for the peak": np.maximum(right[1], behind)
    }
    for place, name, axes in (
        (1, "the peak", "1"),
        (0, "the weights", "count"),
        (2, "the total", "1"),
        (3, "what was gathered", "D"),
    ):
        check_numpy(
            actual[place],
            right[place],
            name=f"{name} {where}",
            axes=axes,
            suspects={
                why: x[place]
                for why, x in wrong.items()
                if not np.allclose(x[place], right[place], rtol=1e-4, atol=0)
            }
            | (higher if place == 1 and behind > right[1] else {}),
            **options,
        )


Folded = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def fold_alone(seen: np.ndarray, count: int, before: Before, gathered: np.ndarray) -> Folded:
    """Weights [count], peak [1], total [1] and what was gathered [D], from the definition."""
    if not len(seen):
        return np.zeros(count), np.array([before.peak]), np.array([before.total]), gathered
    weights, peak, total, kept = folded(seen, before.peak, before.total, gathered)
    return np.concatenate([weights, np.zeros(count - len(seen))]), np.array([peak]), np.array([total]), kept


def mistaken_folds(seen: np.ndarray, count: int, before: Before, gathered: np.ndarray) -> dict[str, Folded]:
    right = fold_alone(seen, count, before, gathered)
    if not len(seen):
        return {}
    weights, peak, total, kept = right
    added = weights.sum()
    own = fold_alone(seen, count, Before(float(NOTHING), 0.0), gathered)
    with np.errstate(over="ignore"):
        up = np.exp(np.minimum(peak - before.peak, 700))
    return {
        "the peak has fallen: an earlier tile had a higher score": (own[0], own[1], total, kept),
        "each tile is measured against its own peak": (own[0], peak, total, kept),
        "the total so far is not scaled to the new peak": (
            weights,
            peak,
            np.array([before.total + added]),
            kept,
        ),
        "the total so far is forgotten": (weights, peak, np.array([added]), kept),
        "the weights of this tile are not added": (weights, peak, total - added, kept),
        "of the tile's weights only those of its last 16 keys are added": (
            weights,
            peak,
            total - added + weights[(count - 1) // 16 * 16 :].sum(),
            kept,
        ),
        "the weights of this tile are added before the total is scaled, and shrink with it": (
            weights,
            peak,
            (before.total + added) * np.exp(before.peak - peak),
            kept,
        ),
        "what was gathered is not scaled to the new peak": (weights, peak, total, gathered),
        "the factor is turned round: it is e^(old peak − new peak)": (
            weights,
            peak,
            before.total * up + added,
            gathered * up,
        ),
    }
