"""The head of Day 4.7's models, beside float64."""

from __future__ import annotations

from typing import Any

import numpy as np
from week_2.packed import Matrix

from coursekit.check import check
from coursekit.checking.kernel_run import run_as_python

from .small_model8 import GROUP, in_8_bits

OUTPUTS, WIDTH = 48, 64
HALF = 1 / (2 * 127 * 2 * 127)
"""Of a group's largest number: half a step of what is left, which is half a step of the first row at most."""


def _matrix() -> Matrix:
    dice, shape = np.random.default_rng(622), (OUTPUTS, WIDTH // GROUP)
    scales = dice.uniform(0.02, 0.04, shape).astype(np.float16).astype(np.float64)
    return Matrix(dice.integers(0, 16, (OUTPUTS, WIDTH), np.uint8), scales, -8 * scales)


def check_head(lab: Any, x: np.ndarray, given: Any = None) -> None:
    """Compare with float64, but for what 15 bits round.

    Args:
        x: float32 [..., 64].
        given: the same in another dtype, or in pieces; then x may be less exact.
    """
    __tracebackhide__ = True
    matrix, accelerate = _matrix(), lab.fast.accelerate
    head = accelerate.Linear8(lab.fast.weights8.lay_out_4_bits(matrix.tensor(lab)))
    given = lab.array(x) if given is None else given
    before = lab.numpy(given)
    found = run_as_python(accelerate.Linear8.__call__, head, given, spread=False, deep=True)
    numbers = before.astype(np.float64)
    peaks = np.abs(numbers.reshape(*numbers.shape[:-1], WIDTH // GROUP, GROUP)).max(axis=-1, initial=0)
    off = np.repeat(peaks * HALF, GROUP, axis=-1) @ np.abs(matrix.values).T
    once = in_8_bits(numbers)
    check(
        found,
        numbers @ matrix.values.T,
        name="the head's scores",
        rtol=1e-6,
        atol=1e-5 + float(off.max(initial=0)),
        suspects={
            "only the first of the two rows was multiplied": once @ matrix.values.T,
            "only what the first row leaves was multiplied": (numbers - once) @ matrix.values.T,
        },
    )
    assert np.array_equal(lab.numpy(given), before), "the head wrote into what it was given"
