"""Day 4.7's online softmax: a thread's memory full of NaN, what is in it for some queries, and what must come out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from week_2.decode_checks import check_numpy
from week_2.decode_oracle import NAN, folded, random_numbers

from coursekit.check import CheckFailed

from .key_tiles import TILE, in_sixteens, side_by_side
from .small_operations import FILL, call

ROWS = 8
NOTHING = np.float32(-1e30)
QUERIES = 20
BEHIND = "a score that the query doesn't see was used"


def empty_scratch(lab: Any, D: int) -> Any:
    """Memory for 20 queries, full of NaN."""
    make, keys = lab.fast.online_softmax.Scratch, TILE * D

    def numbers(count: int) -> np.ndarray:
        return np.full(count, NAN, np.float32)

    scores, queries = ROWS * TILE, QUERIES * D
    return make(
        np.zeros(TILE, np.int64),
        numbers(keys),
        numbers(keys),
        numbers(scores),
        numbers(scores),
        numbers(queries),
        numbers(QUERIES),
        numbers(QUERIES),
        numbers(queries),
    )


def put(rows: np.ndarray, first: int, numbers: np.ndarray) -> None:
    """Write rows of numbers to an array that lies in one piece, from row ``first`` on."""
    rows.reshape(-1, numbers.shape[1])[first : first + len(numbers)] = numbers


def put_keys(scratch: Any, keys: np.ndarray) -> None:
    """Keys [count, D] as `load_keys` writes them, the last one repeated up to a multiple of 16."""
    count = len(keys)
    whole = keys[np.minimum(np.arange(in_sixteens(count)), count - 1)]
    scratch.keys[: whole.size] = side_by_side(whole).reshape(-1)


def check_rest(scratch: Any, before: Any, changed: dict[str, np.ndarray]) -> None:
    """Nothing was written but where ``changed``, flat, is true."""
    __tracebackhide__ = True
    for name, array in scratch._asdict().items():
        old = getattr(before, name)
        same = (
            (array == old)
            | ((array != array) & (old != old))
            | changed.get(name, np.zeros(array.shape, bool))
        )
        if not same.all():
            place = int((~same).argmax())
            raise CheckFailed(
                f"`scratch.{name}[{place}]` was written to: it belongs to other rows or queries"
            )


def copy_of(scratch: Any) -> Any:
    return type(scratch)(*(array.copy() for array in scratch))


def rows_changed(size: int, width: int, first: int, rows: int) -> np.ndarray:
    changed = np.zeros((size // width, width), bool)
    changed[first : first + rows] = True
    return changed.reshape(-1)


def scores_of(lab: Any, queries: np.ndarray, keys: np.ndarray, row: int) -> np.ndarray:
    """What `score_queries` gives for queries number ``row`` and behind it: [rows, count]."""
    __tracebackhide__ = True
    (rows, D), count = queries.shape, len(keys)
    scratch = empty_scratch(lab, D)
    put(scratch.queries, row, queries)
    put_keys(scratch, keys)
    scratch.scores[:] = FILL
    before = copy_of(scratch)
    call(lab.fast.online_softmax.score_queries, row, rows, count, D, scratch)
    check_rest(scratch, before, {"scores": rows_changed(ROWS * TILE, TILE, 0, rows)})
    return scratch.scores.reshape(ROWS, TILE)[:rows, :count]


def check_scores(lab: Any, row: int, rows: int, count: int, D: int) -> None:
    __tracebackhide__ = True
    queries, keys = random_numbers(561, rows, D), random_numbers(562, count, D)
    found = scores_of(lab, queries, keys, row)
    right = queries @ keys.T
    wrong = {
        "only the first half of the numbers of a head was multiplied": queries[:, : D // 2]
        @ keys[:, : D // 2].T,
        "each row has the scores of the first query": right[[0] * rows],
        "the scores of each 32 keys go on with the sums of the 32 before": np.stack(
            [right[:, np.arange(n % 32, n + 1, 32)].sum(axis=1) for n in range(count)], axis=1
        ),
    }
    check_numpy(
        found,
        right,
        name=f"the scores of queries {row} … {row + rows - 1} for {count} keys of {D} numbers",
        axes="rows count",
        atol=2e-5,
        suspects={why: x for why, x in wrong.items() if not np.allclose(x, right)},
        nan="another query, or a key behind the tile's last 16, was used: the test has put NaN there",
    )


def check_same_scores(lab: Any, D: int) -> None:
    """A query's scores are the same to the last bit in any row, with 3 queries beside it or 7."""
    __tracebackhide__ = True
    queries, keys = random_numbers(563, 8, D), random_numbers(564, 40, D)
    eight = scores_of(lab, queries, keys, 0)
    for first, row in ((0, 0), (4, 12), (2, 5)):
        four = scores_of(lab, queries[first : first + 4], keys, row)
        if four.tobytes() != eight[first : first + 4].tobytes():
            raise CheckFailed(
                "the scores of a query for the same keys are not the same with 4 rows as with 8"
            )
    turned = scores_of(lab, queries, keys[::-1], 0)[:, ::-1]
    if turned.tobytes() != eight.tobytes():
        raise CheckFailed("the score of a query for a key depends on where in the tile the key stands")


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
    scratch.peaks[query], scratch.totals[query] = before.peak, before.total
    gathered = before.gathered(D)
    put(scratch.gathered, query, gathered[None])
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
    actual = (
        scratch.weights[i * TILE : i * TILE + count],
        scratch.peaks[[query]],
        scratch.totals[[query]],
        scratch.gathered[query * D : (query + 1) * D],
    )
    some = row[: max(seen, 0)].astype(np.float64)
    right = fold_alone(some, count, before, gathered)
    options = {"nan": BEHIND, "rtol": 2e-5, "atol": 1e-30, "dtype": None}
    wrong = mistaken_folds(some, count, before, gathered)
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
            },
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
        "the total so far is not scaled to the new peak": (weights, peak, before.total + added, kept),
        "the total so far is forgotten": (weights, peak, np.array([added]), kept),
        "the weights of this tile are not added": (weights, peak, total - added, kept),
        "what was gathered is not scaled to the new peak": (weights, peak, total, gathered),
        "the factor is turned round: it is e^(old peak − new peak)": (
            weights,
            peak,
            before.total * up + added,
            gathered * up,
        ),
    }


def check_add(lab: Any, row: int, rows: int, count: int, D: int) -> None:
    """`add_values`."""
    __tracebackhide__ = True
    weights, values = random_numbers(566, rows, count) ** 2, random_numbers(567, count, D)
    before = random_numbers(568, rows, D)
    scratch = empty_scratch(lab, D)
    scratch.weights.reshape(ROWS, TILE)[:rows, :count] = weights
    put(scratch.values, 0, values)
    put(scratch.gathered, row, before)
    old = copy_of(scratch)
    call(lab.fast.online_softmax.add_values, row, rows, count, D, scratch)
    check_rest(scratch, old, {"gathered": rows_changed(QUERIES * D, D, row, rows)})
    added = weights @ values
    check_numpy(
        scratch.gathered.reshape(QUERIES, D)[row : row + rows],
        before + added,
        name=f"what queries {row} … {row + rows - 1} have gathered after {count} values of {D} numbers",
        axes="rows D",
        atol=2e-5,
        suspects={
            "what was gathered before is overwritten": added,
            "each row was given the weights of the first": before + weights[[0] * rows] @ values,
            "every second register of the head is missing": np.where(
                np.arange(D) % 32 < 16, before + added, before
            ),
        },
        nan=f"a weight or a value behind the {count} of the tile, or of another row, was used",
    )
