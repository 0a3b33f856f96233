"""Day 4.7's small operations: how the tests call them, what they must give in float64, and what mistakes give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from unittest.mock import patch

import numpy as np
from week_2.decode_checks import check_numpy
from week_2.decode_oracle import NAN, random_numbers, stored

from coursekit.check import CheckFailed, check_equal
from coursekit.checking.kernel_run import run_as_python

FILL = 7.0  # in what may be written, before it is
ROW, ROWS = 1, 3  # the tests ask for row 1 of 3; in the others is NaN
EPS = np.float32(1e-2)  # large: a wrong place shows
NOT_HANDED_ON = (
    "given rows in 8 bits, {name} does not leave them to `put_group`{error}. It takes both kinds of rows: Rows8, and "
    "arrays of float32"
)
INFINITE = "∞ / ∞ or 0 · ∞: e^gate is infinite here, and `exponential` of −gate is limited"
ELSEWHERE = "another row or another place was read: the test has put NaN there"

Shape = tuple[int, int, int]


def call(function: Any, *arguments: Any) -> Any:
    """A function of registers, as Python."""
    __tracebackhide__ = True
    return run_as_python(function, *arguments, spread=False, deep=True)


def float32(x: np.ndarray) -> np.ndarray:
    return stored(x, "float32").reshape(-1).copy()


def only_row(numbers: np.ndarray, other: float = NAN) -> np.ndarray:
    """The row among others, float32, one behind the other."""
    rows = np.full((ROWS, *numbers.shape), other)
    rows[ROW] = numbers
    return float32(rows)


def check_kept(given: Mapping[str, np.ndarray], before: Mapping[str, np.ndarray]) -> None:
    """What may only be read is as it was."""
    __tracebackhide__ = True
    for name, array in given.items():
        if array.tobytes() != before[name].tobytes():
            raise CheckFailed(f"the argument `{name}` was written to, which may only be read")


def check_written(
    function: Any, given: Mapping[str, Any], arguments: tuple[Any, ...], right: np.ndarray, **options: Any
) -> None:
    """Call a function whose last argument is a float32 array; it must write this row there, and nothing else."""
    __tracebackhide__ = True
    out = only_row(np.full(right.shape, FILL), FILL)
    before = {name: array.copy() for name, array in given.items()}
    call(function, *arguments, out)
    check_kept(given, before)
    rows = out.reshape(ROWS, -1)
    wrong = {
        why: x
        for why, x in options.pop("suspects", {}).items()
        if not np.allclose(x, right, rtol=1e-4, atol=1e-4)
    }
    check_numpy(rows[ROW], right, suspects=wrong, **{"nan": ELSEWHERE} | options)
    others = rows[[row for row in range(ROWS) if row != ROW]]
    name = f"what stands in the rows beside row {ROW} (it was full of {FILL:.0f} before)"
    check_numpy(others, np.full(others.shape, FILL), name=name, rtol=0, atol=0)


def root(x: np.ndarray, eps: float = float(EPS)) -> Any:
    """The root of the mean square, which RMSNorm divides by."""
    return np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps)


def mistaken_roots(x: np.ndarray, eps: float) -> dict[str, Any]:
    square = (x**2).mean()
    return {
        "the mean was not taken: divide the sum of the squares by `width`": 1 / np.sqrt((x**2).sum() + eps),
        "eps was added to the root, not to the mean": 1 / (np.sqrt(square) + eps),
        "eps was not added": 1 / np.sqrt(square) if square else np.inf,
        "this is the root of the mean square; one divided by it is asked for": np.sqrt(square + eps),
        "the root was not taken": 1 / (square + eps),
        "the mean was subtracted, as LayerNorm does": 1 / np.sqrt(x.var() + eps),
    }


def check_root(small: Any, x: np.ndarray, start: int, eps: float, where: str) -> None:
    """`root_mean_square` of numbers that lie between NaN."""
    __tracebackhide__ = True
    memory = np.full(start + len(x) + 40, NAN, np.float32)
    memory[start : start + len(x)] = x
    before = memory.copy()
    found = call(small.root_mean_square, memory, start, len(x), np.float32(eps))
    check_kept({"x": memory}, {"x": before})
    right = 1 / root(x, float(np.float32(eps)))
    wrong = {
        why: np.array([number])
        for why, number in mistaken_roots(x, float(np.float32(eps))).items()
        if not np.isclose(number, right[0], rtol=1e-3)
    }
    check_numpy(
        np.array([found]),
        right,
        name=f"1 / √(mean(x²) + eps) of {where}",
        dtype=None,
        atol=0,
        suspects=wrong,
        nan="a number before or behind the `width` numbers was read: the test has put NaN there",
    )


def check_normalize(small: Any, width: int) -> None:
    """`normalize_row` into an array of float32."""
    __tracebackhide__ = True
    x, weight = random_numbers(501, width) * 3, random_numbers(502, width)
    given = {"x": only_row(x), "weight": float32(weight)}
    plain = x / root(x)
    check_written(
        small.normalize_row,
        given,
        (given["x"], ROW, width, given["weight"], EPS),
        plain * weight,
        name=f"the norm of {width} numbers",
        axes="width",
        suspects={
            "the weight was left out": plain,
            "the weight is multiplied by as it is, not 1 + weight": plain * (1 + weight),
            "the row was not divided by its root mean square": x * weight,
            "the row was multiplied by its root mean square": x * root(x) * weight,
            "the two registers of a group were written in the wrong order": swapped(plain * weight),
            "both registers of a group have the weights of the first": plain * first_of_two(weight),
            "the weights of the first group were taken for each": plain * np.resize(weight[:32], width),
        },
    )


def swapped(x: np.ndarray) -> np.ndarray:
    """Of each 32 numbers the last 16 first."""
    return x.reshape(-1, 2, 16)[:, ::-1].reshape(-1)


def first_of_two(x: np.ndarray) -> np.ndarray:
    """Of each 32 numbers the first 16 twice."""
    return x.reshape(-1, 2, 16)[:, [0, 0]].reshape(-1)


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def mistaken_gates(gate: np.ndarray, up: np.ndarray) -> dict[str, np.ndarray]:
    with np.errstate(all="ignore"):
        return {
            "gate and up are exchanged: silu is for the gate": gate * silu(up),
            "silu(x) is x · sigmoid(x); the x was left out": up / (1 + np.exp(-gate)),
            "the sign of the exponent is wrong: silu(x) = x / (1 + e⁻ˣ)": gate / (1 + np.exp(gate)) * up,
            "up was left out": silu(gate),
            "the gate has no silu": gate * up,
        }


def check_gate_row(small: Any, gate: np.ndarray, up: np.ndarray, where: str) -> None:
    """`gate_row` into an array of float32."""
    __tracebackhide__ = True
    width = len(gate)
    given = {"gate_up": only_row(np.concatenate([gate, up]))}
    with np.errstate(all="ignore"):
        right = silu(gate) * up
    wrong = mistaken_gates(gate, up) | {
        "the two registers of a group were written in the wrong order": swapped(right),
        "both registers of a group have the first 16 numbers": first_of_two(right),
    }
    check_written(
        small.gate_row,
        given,
        (given["gate_up"], ROW, width),
        right,
        name=f"silu(gate) · up of {where}",
        axes="width",
        suspects=wrong,
        nan=INFINITE if np.abs(gate).max() > 1e3 else ELSEWHERE,
    )


def check_handed_on(
    lab: Any, function: Any, arguments: tuple[Any, ...], width: int, right: np.ndarray
) -> None:
    """A function whose last argument are rows leaves them to `put_group`, group by group, whatever they are."""
    __tracebackhide__ = True
    name, taken, loads = getattr(function, "py_func", function).__name__, {}, []
    numbers, inner = ROWS * width, lab.fast.small.load_floats
    steps = np.full((2, numbers // 32), NAN, np.float32)
    rows = lab.fast.rows8.Rows8(np.full(numbers, -128, np.int8), *steps)

    def put_group(low: np.ndarray, high: np.ndarray, group: int, given: Any) -> None:
        if given is not rows:
            raise CheckFailed(f"{name} gave `put_group` other rows than those that it was given itself")
        if group in taken:
            raise CheckFailed(f"{name} gave `put_group` group {group} twice")
        taken[int(group)] = np.concatenate([low, high])

    def load_floats(array: np.ndarray, at: int) -> Any:
        loads.append(at)
        return inner(array, at)

    with patch.multiple(lab.fast.small, put_group=put_group, load_floats=load_floats):
        try:
            call(function, *arguments, rows)
        except (AttributeError, TypeError) as error:
            raise CheckFailed(NOT_HANDED_ON.format(name=name, error=f" ({error})")) from error
    first, count = ROW * width // 32, width // 32
    if not taken or not np.isnan(steps).all():
        raise CheckFailed(NOT_HANDED_ON.format(name=name, error=""))
    check_equal(
        sorted(taken), [*range(first, first + count)], name=f"the groups that {name} gives `put_group`"
    )
    check_numpy(
        np.concatenate([taken[group] for group in sorted(taken)]),
        right,
        name=f"the numbers that {name} gives `put_group`",
        axes="width",
    )
    if len(loads) > 4 * width // 16:
        raise CheckFailed(
            f"{name} loads {len(loads)} registers for a row of {width} numbers, which fill {width // 16}: is "
            "something computed for each group anew that is the same for the whole row?"
        )


def check_either_kind(lab: Any) -> None:
    """`normalize_row` and `gate_row` leave their rows to `put_group`."""
    __tracebackhide__ = True
    x, weight, up = (random_numbers(seed, 160) for seed in (536, 537, 538))
    norm = only_row(x), ROW, 160, float32(weight), EPS
    check_handed_on(lab, lab.fast.small.normalize_row, norm, 160, x / root(x) * weight)
    gate_up = only_row(np.concatenate([x, up])), ROW, 160
    check_handed_on(lab, lab.fast.small.gate_row, gate_up, 160, silu(x) * up)
