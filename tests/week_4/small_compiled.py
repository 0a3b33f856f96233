"""Day 4.7's small operations on many numbers, in other places, and compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from week_2.decode_checks import check_numpy
from week_2.decode_oracle import NAN, random_numbers

from coursekit.check import CheckFailed

from .small_operations import EPS, call, float32, mistaken_gates, silu

ACCURACY = 2e-7
"""Times 1 + |x|: how far an exponential may be off, relative to it."""
OTHERWISE = (
    "\n  Numba computes otherwise than NumPy where a float32 meets a whole number or a Python float, in float64 "
    "(write np.float32(…) around it), and in np.sum and np.mean, which add in another order"
)
LOWEST, HIGHEST = 2.0**-126, 2.0**127


def exponentials(lab: Any, x: np.ndarray) -> np.ndarray:
    """e to the power of any numbers, float32, by the learner's function."""
    __tracebackhide__ = True
    numbers = float32(np.concatenate([x, np.zeros(-len(x) % 16)]))
    registers = [call(lab.fast.exponential.exponential, each) for each in numbers.reshape(-1, 16)]
    return np.concatenate(registers)[: len(x)]


def check_exponentials(lab: Any, x: np.ndarray) -> None:
    """They are as near as the docstring promises."""
    __tracebackhide__ = True
    x = x.astype(np.float32).astype(np.float64)
    found, right = exponentials(lab, x), np.exp(x)
    y = x * np.log2(np.e)

    def series(rest: np.ndarray, terms: int) -> np.ndarray:
        r = rest * np.log(2)
        return sum(r**k / np.prod(np.arange(1.0, k + 1)) for k in range(terms)) * 2.0 ** np.rint(y - rest)

    wrong = {
        # Small numbers have no whole part: a rest that wasn't multiplied by log₂ e gives 2 to the power of x, too.
        **({"this is 2 to the power of x: multiply by log₂ e first": 2.0**x} if y.max() > 0.5 else {}),
        "the whole number is the next below, not the nearest": series(y - np.floor(y), 7),
        "the whole number is the next towards 0, not the nearest": series(y - np.trunc(y), 7),
        "the series has seven terms; the last is missing": series(y - np.rint(y), 6),
        "only the power of the whole number was taken: the rest is missing": 2.0 ** np.rint(y),
        "only the power of the rest was taken: the whole number is missing": 2.0 ** (y - np.rint(y)),
    }
    off = np.abs(found / right - 1) / (1 + np.abs(x))
    if not (off <= ACCURACY).all():  # NaN, too
        relative = {
            why: other / right for why, other in wrong.items() if np.abs(other / right - 1).max() > 1e-6
        }
        check_numpy(
            found / right,
            np.ones(len(x)),
            name=f"the exponentials of numbers from {x[0]:g} to {x[-1]:g}, divided by the right ones",
            dtype=None,
            rtol=ACCURACY,
            atol=0,
            suspects=relative,
        )


def check_ends(lab: Any) -> None:
    """Below and above what a power of 2 may be."""
    __tracebackhide__ = True
    for sign, limit in ((-1.0, LOWEST), (1.0, HIGHEST)):
        x = sign * np.array([87.4, 88.1, 89.0, 104.0, 129.0, 1e3, 1e10, 1e30, np.inf])
        x = x[1:] if sign > 0 else x
        try:
            found = exponentials(lab, x)
        except ValueError as error:
            if "whole numbers from −126 to 127" not in str(error):
                raise
            raise CheckFailed(
                f"the exponentials of {x.tolist()}: `power_of_2` was called with {error}"
            ) from error
        check_numpy(
            found,
            np.full(len(x), limit),
            name=f"the exponentials of {x.tolist()}, which are limited",
            rtol=1e-6,
            atol=0,
        )


def check_gate_16(small: Any, gate: np.ndarray, up: np.ndarray, width: int) -> None:
    """A register of silu(gate) · up; everything else is NaN."""
    __tracebackhide__ = True
    at = 2 * width + 16
    memory = np.full(4 * width, NAN, np.float32)
    memory[at : at + 16], memory[at + width : at + width + 16] = gate, up
    found = call(small.gate_16, memory, at, width)
    check_numpy(
        np.asarray(found),
        silu(gate) * up,
        name=f"silu(gate) · up of 16 numbers, where up lies {width} behind",
        suspects=mistaken_gates(gate, up),
        nan="a number beside the 16 and 16 was read: the test has put NaN there",
    )


def kernels(lab: Any) -> dict[str, tuple[Any, tuple[Any, ...], tuple[int, ...]]]:
    """For some rows: a kernel, the arguments before the arrays that it writes, and how long these are per row."""
    T, E, F, (H, Hkv, D) = 5, 96, 64, (3, 1, 64)
    x, gate_up = float32(random_numbers(541, T, E)), float32(random_numbers(542, T, 2 * F) * 3)
    qkv, half = float32(random_numbers(543, T, (H + 2 * Hkv) * D)), D // 2
    weights = [float32(random_numbers(n, size)) for n, size in ((544, E), (545, D), (546, D))]
    cos, sin = float32(random_numbers(547, T, half)), float32(random_numbers(548, T, half))
    norms = lab.fast.parts.HeadNorms(weights[1], weights[2], EPS)
    small = lab.fast.small
    return {
        "normalize_rows": (small.normalize_rows, (0, T, x, E, weights[0], EPS), (E,)),
        "gate_rows": (small.gate_rows, (0, T, gate_up, F), (F,)),
        "split_rows": (
            small.split_rows,
            (0, T, qkv, (H, Hkv, D), norms, cos, sin),
            (H * D, Hkv * D, Hkv * D),
        ),
    }


def run(arguments: tuple[Any, ...], lengths: tuple[int, ...], kernel: Callable[..., Any]) -> list[np.ndarray]:
    """The arrays that a kernel writes, [T, …]."""
    T, copies = arguments[1], [x.copy() if isinstance(x, np.ndarray) else x for x in arguments]
    out = [np.full(T * length, NAN, np.float32) for length in lengths]
    kernel(*copies, *out)
    return [x.reshape(T, -1) for x in out]


def check_anywhere(lab: Any) -> None:
    """All rows of a step, and each alone: as the first and only one of arrays of its own."""
    __tracebackhide__ = True
    for name, (kernel, arguments, lengths) in kernels(lab).items():
        T = arguments[1]
        together = run(arguments, lengths, lambda *given, kernel=kernel: call(kernel, *given))
        for row in range(T):
            own = (0, 1, *(row_of(x, row, T) for x in arguments[2:]))
            alone = run(own, lengths, lambda *given, kernel=kernel: call(kernel, *given))
            for one, all_rows in zip(alone, together, strict=True):
                if one[0].tobytes() != all_rows[row].tobytes():
                    raise CheckFailed(f"{name}: row {row} of {T} comes out otherwise than it does alone")


def row_of(x: Any, row: int, T: int) -> Any:
    """A row of an argument that has T rows, and other arguments as they are; weights have no rows."""
    per_row = isinstance(x, np.ndarray) and len(x) % T == 0
    return x.reshape(T, -1)[row].copy() if per_row else x


def check_compiled(lab: Any) -> None:
    """The same bits as Python gives."""
    __tracebackhide__ = True
    for name, (kernel, arguments, lengths) in kernels(lab).items():
        compiled = run(arguments, lengths, kernel)
        python = run(arguments, lengths, lambda *given, kernel=kernel: call(kernel, *given))
        for one, other in zip(compiled, python, strict=True):
            if one.tobytes() != other.tobytes():
                most = np.abs(one - other).max()
                cause = OTHERWISE if most < 1e-5 else ""
                raise CheckFailed(
                    f"{name}: compiled it gives other numbers than as Python, up to {most:g} apart{cause}"
                )
