"""Runs of Day 4.7's blocks, in rooms that are larger than needed and full of NaN."""

from __future__ import annotations

from typing import Any

import numpy as np

from coursekit.check import check
from coursekit.checking.kernel_run import run_as_python

from .small_model8 import HKV, D, E, H, SmallModel, angles, in_8_bits, most_off, rms_norm, without_ties

COUNT, MORE = 3, 2  # tokens of the step, and how many more there is room for
POSITIONS = np.array([5, 0, 17])
LEFT = 3.0  # where NaN would make an error that says less
STALE = (
    "something was read that this call has not written: the test has put NaN into all of `room`, and behind the "
    "first `count` rows of x"
)
LONGER = 7.0  # what a longer step has left behind this one's tokens
OTHER_EPS = 0.5  # of the norm that comes elsewhere in the block
FLOAT32 = 1e-4
"""Some hundred products of numbers up to 10, each rounded to 1/2²⁴ of itself."""


def single(values: np.ndarray) -> np.ndarray:
    """float32, in one row."""
    return np.ascontiguousarray(values, np.float32).reshape(-1)


def rows_of(seed: int, width: int, spread: float = 1.0) -> np.ndarray:
    """Activations of the step, float64 [COUNT, width] that float32 holds."""
    dice = np.random.default_rng(seed)
    return (dice.normal(size=(COUNT, width)) * spread).astype(np.float32).astype(np.float64)


def with_more(values: np.ndarray, behind: float = np.nan) -> np.ndarray:
    """float32, with room for more tokens behind."""
    flat = single(values)
    return np.concatenate([flat, np.full(len(flat) // COUNT * MORE, behind, np.float32)])


def _behind(array: np.ndarray) -> int:
    """Where, in an array of the room, this step's tokens end."""
    return len(array) // (COUNT + MORE) * COUNT


def spoiled_room(lab: Any, parts: Any) -> Any:
    """A room for more tokens than the step has: NaN for this step's, its codes −128, which no number has."""
    room = lab.fast.rooms.make_room(parts, COUNT + MORE)
    for array in (*room.rows[1:], *room[1:]):
        array.fill(np.nan)
    room.rows.codes.fill(-128)
    for array in room[1:]:
        array[_behind(array) :] = LONGER
    return room


def _check_kept(array: np.ndarray, before: np.ndarray, name: str) -> None:
    assert np.array_equal(array, before, equal_nan=True), f"{name} was written to: it is only read"


def _left(room: Any) -> dict[str, np.ndarray]:
    """By name, what the room has behind this step's tokens, as it is now."""
    arrays = {"rows": room.rows.codes, **{name: getattr(room, name) for name in room._fields[1:]}}
    return {name: array[_behind(array) :].copy() for name, array in arrays.items()}


def _check_left(room: Any, before: dict[str, np.ndarray]) -> None:
    """The room may have served a longer step: what that has left stays."""
    now = _left(room)
    longer = [name for name in before if not np.array_equal(now[name], before[name], equal_nan=True)]
    assert not longer, (
        f"room.{longer[0]} was written to behind the {COUNT} tokens of this step: the room has place for the longest "
        f"step so far, and only the first `count` rows are this step's work"
    )


def parts_of(lab: Any, small: SmallModel, block: int = 0) -> Any:
    """The weights of a block, laid out by the learner's functions."""
    return lab.fast.parts.parts_of(small.model(lab))[block]


def check_before(lab: Any, small: SmallModel, seed: int, workers: int = 2) -> None:
    """Compare with the simulation in NumPy, and with the same weights without any rounding."""
    __tracebackhide__ = True
    x, parts = rows_of(seed, E), parts_of(lab, small)._replace(mlp_eps=np.float32(OTHER_EPS))
    room, given = spoiled_room(lab, parts), with_more(x)
    cos, sin = map(single, angles(POSITIONS))
    before, left = given.copy(), _left(room)
    run_as_python(
        lab.fast.block8.before_attention,
        given,
        COUNT,
        parts,
        room,
        cos,
        sin,
        workers,
        spread=False,
        deep=True,
    )
    _check_kept(given, before, "x")
    expected = small.before(x, POSITIONS, rounding=without_ties)
    wrong: dict[str, dict[str, Any]] = {
        "the bias of qkv isn't added": {"biased": False},
        "x was normalized with the weight of the MLP's norm": {"norm": "mlp_norm"},
        "x was normalized with `mlp_eps`": {"eps": OTHER_EPS},
        "x was normalized with the weight of the MLP's norm and its eps": {
            "norm": "mlp_norm",
            "eps": OTHER_EPS,
        },
        "x wasn't normalized": {"norm": None},
    }
    mistakes = {why: small.before(x, POSITIONS, rounding=in_8_bits, **how) for why, how in wrong.items()}
    found = (room.query, room.key, room.value)
    for i, (name, heads) in enumerate((("query", H), ("key", HKV), ("value", HKV))):
        size = COUNT * heads * D
        check(
            found[i][:size].reshape(COUNT, heads, D),
            expected[i],
            name=f"room.{name}",
            axes="T H D",
            framework="numpy",
            suspects={why: each[i] for why, each in mistakes.items()},
            nan=STALE,
            rtol=FLOAT32,
            atol=FLOAT32,
        )
    _check_left(room, left)
    if small.family != "norms of the heads":  # a norm divides by what was rounded, too
        for name, found_one, exact, most in zip(
            ("query", "key", "value"), found, small.before(x, POSITIONS), _most_off(small, x), strict=True
        ):
            off = np.abs(found_one[: exact.size].reshape(exact.shape) - exact) / (most + 1e-4)
            assert off.max() <= 1, f"room.{name} is {off.max():.2f} times as far off as 8 bits can be"


def _most_off(small: SmallModel, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """How far queries, keys and values can be off, at most, when x is rounded to 8 bits after its norm."""
    off = most_off(rms_norm(x, small.part("attention_norm.weight")), small.part("qkv.weight"))
    query, key, value = np.split(off.reshape(COUNT, -1, D), [H, H + HKV], axis=1)
    cos, sin = (np.abs(table)[:, None] for table in angles(POSITIONS))

    def turned(heads: np.ndarray) -> np.ndarray:
        a, b = np.split(heads, 2, axis=-1)
        return np.concatenate([a * cos + b * sin, b * cos + a * sin], axis=-1)

    return turned(query), turned(key), value


def check_after(
    lab: Any,
    small: SmallModel,
    seed: int,
    workers: int = 2,
    elsewhere: bool = False,
    behind_x: float = np.nan,
) -> None:
    """Compare with the simulation in NumPy.

    elsewhere: whether what attention gave lies outside of the room.
    behind_x: what is in x behind the first tokens.
    """
    __tracebackhide__ = True
    x, heads = rows_of(seed, E), rows_of(seed + 1, H * D, 0.5)
    parts = parts_of(lab, small)._replace(attention_eps=np.float32(OTHER_EPS))
    room, given = spoiled_room(lab, parts), with_more(x, behind_x)
    attended = with_more(heads) if elsewhere else room.heads
    other = rows_of(seed + 2, H * D, 0.5)  # what the room has, where it isn't asked for
    room.heads[:] = with_more(other if elsewhere else heads)
    room.gate_up.fill(LEFT)
    before, rest, left = attended.copy(), given[COUNT * E :].copy(), _left(room)
    run_as_python(
        lab.fast.block8.after_attention,
        attended,
        given,
        COUNT,
        parts,
        room,
        workers,
        spread=False,
        deep=True,
    )
    _check_kept(attended, before, "heads")
    wrong: dict[str, dict[str, Any]] = {
        "the product with `out` has overwritten x: it must be added to it": {"kept": (False, True)},
        "the product with `down` has overwritten x: it must be added to it": {"kept": (True, False)},
        "x was normalized with the weight of attention's norm": {"norm": "attention_norm"},
        "x was normalized with `attention_eps`": {"eps": OTHER_EPS},
        "x was normalized with the weight of attention's norm and its eps": {
            "norm": "attention_norm",
            "eps": OTHER_EPS,
        },
        "x wasn't normalized before the MLP": {"norm": None},
        "the product with `gate_up` was added to what an earlier block has left in the room": {"stale": LEFT},
    }
    check(
        given[: COUNT * E].reshape(COUNT, E),
        small.after(heads, x, rounding=without_ties),
        name="x after the block",
        axes="T E",
        framework="numpy",
        suspects={why: small.after(heads, x, rounding=in_8_bits, **how) for why, how in wrong.items()}
        | (
            {"`room.heads` was read, not `heads`": small.after(other, x, rounding=in_8_bits)}
            if elsewhere
            else {}
        ),
        nan=STALE,
        rtol=FLOAT32,
        atol=FLOAT32,
    )
    same = np.array_equal(given[COUNT * E :], rest, equal_nan=True)
    assert same, (
        f"x was written to behind the {COUNT} tokens of this step: only its first `count` rows are changed"
    )
    _check_left(room, left)


def check_spread(lab: Any, small: SmallModel, workers: int = 3) -> None:
    """Each small operation and each product is a loop over the workers, when all of them are."""
    __tracebackhide__ = True
    x, parts, kernels = rows_of(1, E), parts_of(lab, small), lab.fast.block8
    cos, sin = map(single, angles(POSITIONS))
    for kernel, operations, products in (("before_attention", 2, 1), ("after_attention", 3, 3)):
        room, passes = spoiled_room(lab, parts), 0
        room.heads[:] = with_more(rows_of(2, H * D))

        def one_more() -> None:
            nonlocal passes
            passes += 1

        given = (room.heads,) if kernel == "after_attention" else ()
        tables = () if given else (cos, sin)
        run_as_python(
            getattr(kernels, kernel),
            *(*given, with_more(x), COUNT, parts, room, *tables, workers),
            deep=True,
            before_pass=one_more,
        )
        wanted = (operations + products) * workers
        assert passes >= wanted, (
            f"{kernel} runs {passes} passes of `prange` loops with {workers} workers, not {wanted}: not all of its "
            f"{products + operations} parts are spread over `workers`"
        )
