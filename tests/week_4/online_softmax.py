"""Day 4.7's online softmax: a thread's memory full of NaN, and what scores and values must be in it."""

from __future__ import annotations

from typing import Any

import numpy as np
from week_2.decode_checks import check_numpy
from week_2.decode_oracle import NAN, random_numbers

from coursekit.check import CheckFailed

from .key_tiles import TILE, in_sixteens, side_by_side
from .small_operations import FILL, call

ROWS = 8
QUERIES = 20


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


def check_rest(scratch: Any, before: dict[str, np.ndarray], changed: dict[str, np.ndarray]) -> None:
    """Nothing was written but where ``changed``, flat, is true."""
    __tracebackhide__ = True
    for name, array in scratch._asdict().items():
        old = before[name]
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


def copy_of(scratch: Any) -> dict[str, np.ndarray]:
    """Its arrays by name, as they are now."""
    return {name: array.copy() for name, array in scratch._asdict().items()}


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


def check_add(lab: Any, row: int, rows: int, count: int, D: int) -> None:
    """`add_values`."""
    __tracebackhide__ = True
    weights, values = random_numbers(566, rows, count) ** 2, random_numbers(567, count, D)
    before = random_numbers(568, rows, D)
    scratch = empty_scratch(lab, D)
    scratch.weights.reshape(ROWS, TILE)[:rows, :count] = weights
    put(scratch.values, 0, values)
    scratch.gathered[:] = FILL
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
