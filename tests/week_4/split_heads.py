"""Day 4.7's heads, turned and split apart: what they must give in float64, and what mistakes give."""

from __future__ import annotations

from typing import Any

import numpy as np
from week_2.decode_checks import check_numpy
from week_2.decode_oracle import random_numbers

from .small_operations import (
    EPS,
    FILL,
    ROW,
    ROWS,
    Shape,
    call,
    check_kept,
    float32,
    only_row,
    root,
)

NORMS = {
    "no norms": (False, False),
    "norms of query and key heads": (True, True),
    "a norm of the query heads alone": (True, False),
    "a norm of the key heads alone": (False, True),
}
"""Whether queries have a norm, and keys."""


def turned(heads: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """[…, D] turned by angles [D/2]."""
    a, b = np.split(heads, 2, axis=-1)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def pairs_of_neighbors(heads: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    a, b = heads[..., 0::2], heads[..., 1::2]
    return np.stack([a * cos - b * sin, b * cos + a * sin], axis=-1).reshape(heads.shape)


def angles(D: int) -> tuple[np.ndarray, np.ndarray]:
    return random_numbers(511, D // 2), random_numbers(512, D // 2)


def mistaken_turns(heads: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> dict[str, np.ndarray]:
    D = heads.shape[-1]
    first = np.resize(cos[:16], D // 2), np.resize(sin[:16], D // 2)
    right, b = np.split(turned(heads, cos, sin), 2, axis=-1)[0], heads[..., D // 2 :]
    return {
        "b · cos + a · sin was computed with the new a: it is the old one": np.concatenate(
            [right, b * cos + right * sin], axis=-1
        ),
        "turned the other way: the signs of the sines are exchanged": turned(heads, cos, -sin),
        "numbers next to each other were taken for a pair: a is in the first half, b in the second": (
            pairs_of_neighbors(heads, cos, sin)
        ),
        "cos and sin are exchanged": turned(heads, sin, cos),
        "all of the head got the first 16 angles": turned(heads, *first),
    }


def check_rotate(small: Any, D: int, start: int, at: int) -> None:
    """`rotate_head` from ``start`` of NaN to ``at`` of an array."""
    __tracebackhide__ = True
    head, (cos, sin) = random_numbers(513, D), angles(D)
    qkv, out = np.full(start + D + 20, np.nan, np.float32), np.full(at + D + 20, FILL, np.float32)
    qkv[start : start + D] = head
    given = {"qkv": qkv, "cos": only_row(cos), "sin": only_row(sin)}
    before = {name: array.copy() for name, array in given.items()}
    call(small.rotate_head, qkv, start, given["cos"], given["sin"], ROW, D, out, at)
    check_kept(given, before)
    right = np.full(len(out), FILL)
    right[at : at + D] = turned(head, cos, sin)
    wrong = {
        why: turn
        for why, turn in mistaken_turns(head, cos, sin).items()
        if not np.allclose(turn, right[at : at + D])
    }
    check_numpy(
        out,
        right,
        name=f"`out` after a head of {D} numbers was written to out[{at}] (it was full of {FILL:.0f} before)",
        suspects={why: np.concatenate([right[:at], turn, right[at + D :]]) for why, turn in wrong.items()},
        nan="another token's angle or another head's number was read: the test has put NaN there",
    )


def check_split(lab: Any, shape: Shape, norms: tuple[bool, bool]) -> None:
    """`split_row` of the row: queries, keys and values, and what is left in `qkv`."""
    __tracebackhide__ = True
    H, Hkv, D = shape
    heads, (cos, sin) = random_numbers(514, H + 2 * Hkv, D) * 2, angles(D)
    weights = [random_numbers(n, D) for n in (515, 516)]
    given = {"cos": only_row(cos), "sin": only_row(sin)}
    stored_norms = [
        float32(weight) if has else np.zeros(0, np.float32)
        for weight, has in zip(weights, norms, strict=True)
    ]
    given |= {"norms.query": stored_norms[0], "norms.key": stored_norms[1]}
    before = {name: array.copy() for name, array in given.items()}
    qkv = only_row(heads)
    head_norms = lab.fast.parts.HeadNorms(stored_norms[0], stored_norms[1], EPS)
    out = [np.full(ROWS * count * D, FILL, np.float32) for count in (H, Hkv, Hkv)]
    call(lab.fast.small.split_row, qkv, ROW, shape, head_norms, given["cos"], given["sin"], *out)
    check_kept(given, before)
    right = split(heads, shape, weights, norms, cos, sin)
    wrong = mistaken_splits(heads, shape, weights, norms, cos, sin)
    where = f"of a token with {H} query heads and {Hkv} key heads of {D} numbers"
    for place, name in enumerate(("queries", "keys", "values")):
        rows = out[place].reshape(ROWS, -1, D)
        check_numpy(
            rows[ROW],
            right[place],
            name=f"the {name} {where}",
            axes="heads D",
            suspects={
                why: parts[place]
                for why, parts in wrong.items()
                if not np.allclose(parts[place], right[place], atol=1e-4)
            },
            nan="something of another token was read: the test has put NaN there",
        )
        others = rows[[row for row in range(ROWS) if row != ROW]]
        full = np.full(others.shape, FILL)
        check_numpy(
            others, full, name=f"the {name} of the other tokens (full of {FILL:.0f} before)", rtol=0, atol=0
        )
    left = qkv.reshape(ROWS, H + 2 * Hkv, D)
    assert np.isnan(left[[row for row in range(ROWS) if row != ROW]]).all(), (
        "`qkv` of other tokens was written to"
    )
    kept = [head for head in range(H + 2 * Hkv) if not (head < H + Hkv and norms[head >= H])]
    check_numpy(
        left[ROW, kept],
        heads[kept],
        name=f"the heads in `qkv` that have no norm, {where}",
        axes="heads D",
        rtol=0,
        atol=0,
    )


def split(
    heads: np.ndarray, shape: Shape, weights: list[np.ndarray], norms: tuple[bool, bool], cos: Any, sin: Any
) -> tuple[np.ndarray, ...]:
    """Queries [H, D], keys [Hkv, D] and values [Hkv, D]."""
    H, Hkv, _ = shape
    query, key, value = np.split(heads, [H, H + Hkv])
    if norms[0]:
        query = query / root(query) * weights[0]
    if norms[1]:
        key = key / root(key) * weights[1]
    return turned(query, cos, sin), turned(key, cos, sin), value


def mistaken_splits(
    heads: np.ndarray, shape: Shape, weights: list[np.ndarray], norms: tuple[bool, bool], cos: Any, sin: Any
) -> dict[str, tuple[np.ndarray, ...]]:
    H, Hkv, _ = shape
    query, key, value = np.split(heads, [H, H + Hkv])
    right = split(heads, shape, weights, norms, cos, sin)
    late = [turned(part, cos, sin) for part in (query, key)]
    late = [part / root(part) * weights[n] if norms[n] else part for n, part in enumerate(late)]
    return {
        "the head norms were left out": split(heads, shape, weights, (False, False), cos, sin),
        "heads are normalized first, and then turned": (*late, value),
        "the keys were normalized with the weights of the queries": split(
            heads, shape, [weights[0]] * 2, (norms[0], norms[0]), cos, sin
        ),
        "the values were turned, too": (*right[:2], turned(value, cos, sin)),
        "the values of this place are keys": (*right[:2], key),
        "they were not turned": (query, key, value),
    }
