"""Day 3.3's functions for one tile: the arrays that they are called with, and what must be in them afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from week_2.decode_checks import check_numpy
from week_2.decode_oracle import NAN, TILE, filled_up, folded, random_numbers, stored

from coursekit.check import CheckFailed

from .pages import UNUSED
from .ragged_step import NOTHING, RaggedStep

FILL = 7.0  # in what a kernel may write, before it does
TIGHT: dict[str, Any] = {"rtol": 1e-5, "atol": 2e-6}
SWAPPED = (
    "row i of a key head's queries is token i // group, head i % group of the group; not the other way round"
)
BITS = "the bits of bfloat16 are taken for whole numbers: copy_as_floats widens them"

Numbers = tuple[np.ndarray, ...]


def padded(table: list[int], P: int) -> np.ndarray:
    """A page table as the kernels get it, with null pages for more than a tile behind its end."""
    return np.array(table + [0] * (2 * TILE // P + 2), np.int32)


def sequence(seed: int, kv_len: int, P: int, q_len: int = 1, **options: Any) -> RaggedStep:
    """A step of a single sequence; what isn't its own is NaN."""
    return RaggedStep.random(seed, [(kv_len, q_len)], P, **options)


def numbers_of_bits(step: RaggedStep, x: np.ndarray) -> np.ndarray:
    return stored(x, step.dtype).astype(np.float64)


def arrays_of(step: RaggedStep) -> dict[str, np.ndarray]:
    """Query [T, Hkv, H/Hkv, D], keys and values, as the kernels take them."""
    (T, H, D), Hkv = step.query.shape, step.keys.shape[2]
    query = stored(step.query, "float32").reshape(T, Hkv, H // Hkv, D)
    return {"query": query, "keys": stored(step.keys, step.dtype), "values": stored(step.values, step.dtype)}


def check_kept(given: dict[str, np.ndarray], before: dict[str, np.ndarray]) -> None:
    """A kernel has not written to what it may only read: these arrays are its caller's."""
    __tracebackhide__ = True
    for name, array in given.items():
        if array.tobytes() != before[name].tobytes():
            raise CheckFailed(
                f"the kernel wrote to the argument `{name}`, which is its caller's and only read here"
            )


# Task 1


def check_load(cpu_kernel: Any, step: RaggedStep, start: int, stop: int) -> None:
    """Have the values of a sequence brought to a tile; what stands behind them there stays."""
    __tracebackhide__ = True
    pages, table, P = step.values, padded(step.tables[0], step.P), step.P
    Hkv, D = pages.shape[2:]
    tile = np.full((Hkv, TILE, D), FILL, np.float32)
    given = {"pages": stored(pages, step.dtype), "table": table}
    before = {name: array.copy() for name, array in given.items()}
    cpu_kernel.load_tile(*given.values(), start, stop, tile)
    check_kept(given, before)
    flat, positions = pages.reshape(-1, Hkv, D), np.arange(start, stop)
    numbers, offsets = table[positions // P], positions % P

    def tile_of(rows: np.ndarray) -> np.ndarray:
        return np.concatenate([rows.swapaxes(0, 1), np.full((Hkv, TILE - len(rows), D), FILL)], axis=1)

    right = flat[numbers * P + offsets]
    wrong = {
        "a page's number was taken for a place: it stands for P places": flat[numbers + offsets],
        "the offset in the page, position % P, was left out": flat[numbers * P],
        "the table was not asked: position p does not lie in place p": flat[positions % len(flat)],
        "the table was read from its beginning, whatever `start`": flat[
            table[(positions - start) // P] * P + (positions - start) % P
        ],
        "the heads of a token are in the wrong order": right[:, ::-1],
        "every head was given the numbers of head 0": right[:, :1].repeat(Hkv, axis=1),
    }
    beyond = np.arange(start, start + TILE)
    wrong["the tile goes on behind `stop`"] = flat[table[beyond // P] * P + beyond % P]
    if step.dtype != "float32":
        wrong[BITS] = numbers_of_bits(step, flat)[numbers * P + offsets]
    check_numpy(
        tile,
        tile_of(right),
        name=f"the tile of positions {start} … {stop - 1}, pages of {P} (it was full of {FILL:.0f} before)",
        axes="Hkv TILE D",
        rtol=0,
        atol=0,
        suspects={why: tile_of(rows) for why, rows in wrong.items()},
        nan=UNUSED,
    )


# Task 2


def check_fold_tile(
    cpu_kernel: Any, start: int, stop: int, first_seen: int, L: int = 4, group: int = 3, seed: int = 90
) -> None:
    """Fold a tile into what queries have gathered before; of the first of them, nothing."""
    __tracebackhide__ = True
    Q, n, D = L * group, stop - start, 5
    scores, gathered = np.full((Q, TILE), NAN), random_numbers(seed + 1, Q, D)
    scores[:, :n] = random_numbers(seed, Q, n) * 3
    peaks, totals = random_numbers(seed + 2, Q) * 3, random_numbers(seed + 3, Q) ** 2 + 1
    peaks[0], totals[0], gathered[0] = NOTHING, 0.0, 0.0
    before = scores, peaks, totals, gathered
    arrays = [stored(x, "float32").copy() for x in before]
    powers = np.full(TILE, NAN, np.float32)
    cpu_kernel.fold_tile(arrays[0], start, stop, first_seen, group, powers, *arrays[1:])

    def after(sees: Callable[[int], int]) -> Numbers:
        parts = [x.copy() for x in before]
        for i in range(Q):
            seen = min(stop, sees(i)) - start
            parts[0][i] = 0
            if seen > 0:
                weights, *rest = folded(scores[i, :seen], peaks[i], totals[i], gathered[i])
                parts[0][i] = filled_up(weights)
                parts[1][i], parts[2][i], parts[3][i] = rest
        return tuple(parts)

    right = after(lambda i: first_seen + i // group)
    raw = np.where((right[0] == 0).all(axis=1)[:, None], scores, right[0])
    own = peaks.copy()
    wrong = {
        SWAPPED: after(lambda i: first_seen + i % L),
        "every token sees as much as the first": after(lambda i: first_seen),
        "every query sees the whole tile": after(lambda i: stop),
        "each head of a token sees one key more than the head before it": after(lambda i: first_seen + i),
        "a token sees the key after the last that it may see": after(lambda i: first_seen + i // group + 1),
        "a token doesn't see the last key that it may see": after(lambda i: first_seen + i // group - 1),
        "the tile is taken for the first one: subtract `start`": after(
            lambda i: start + first_seen + i // group
        ),
        "where a query sees nothing, its raw scores are left: add_values takes them for weights": (
            raw,
            *right[1:],
        ),
        "peaks and totals are not kept": (right[0], own, totals, right[3]),
    }
    where = f"after keys {start} … {stop - 1}, of which the first of {L} tokens sees those below {first_seen}"
    for place, name, axes in zip(
        range(4),
        ("the weights", "peaks", "totals", "gathered"),
        ("Q TILE", "Q", "Q", "Q D"),
        strict=True,
    ):
        check_numpy(
            arrays[place],
            right[place],
            name=f"{name} {where}",
            axes=axes,
            suspects={why: other[place] for why, other in wrong.items()},
            nan="a score behind the tile's last key was taken in, or the softmax of no scores",
            **TIGHT,
        )
