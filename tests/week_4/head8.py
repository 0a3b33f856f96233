"""The head of Day 4.7's models, beside float64."""

from __future__ import annotations

from typing import Any

import numpy as np
from week_2.packed import Matrix

from coursekit.check import check
from coursekit.checking.kernel_run import run_method_as_python

from .beside_head8 import passes_with_threads
from .small_model8 import GROUP, in_8_bits

OUTPUTS, WIDTH = 48, 64
HALF = 1 / (2 * 127 * 2 * 127)
"""Of a group's largest number: half a step of what is left, which is half a step of the first row at most."""


def _matrix() -> Matrix:
    dice, shape = np.random.default_rng(622), (OUTPUTS, WIDTH // GROUP)
    scales = dice.uniform(0.02, 0.04, shape).astype(np.float16).astype(np.float64)
    return Matrix(dice.integers(0, 16, (OUTPUTS, WIDTH), np.uint8), scales, -8 * scales)


def head_of(lab: Any) -> Any:
    return lab.fast.accelerate.Linear8(lab.fast.weights8.lay_out_4_bits(_matrix().tensor(lab)))


def call(head: Any, x: Any, **options: Any) -> Any:
    return run_method_as_python(head, "__call__", x, **{"spread": False, "deep": True, **options})


def check_results_are_kept(lab: Any) -> None:
    """What one call gave, after the next."""
    head, dice = head_of(lab), np.random.default_rng(623)
    one, other = (lab.array(dice.normal(size=(2, WIDTH)).astype(np.float32)) for _ in range(2))
    found = call(head, one)
    before = lab.numpy(found).copy()
    call(head, other)
    assert np.array_equal(lab.numpy(found), before), (
        "what the head gave for one step, the next step overwrites"
    )


def check_one_product(lab: Any, workers: int, tokens: int) -> None:
    """The loops over the workers are those of one product, which all of them share."""
    __tracebackhide__ = True
    passes = passes_with_threads(head_of(lab), lab.array(np.ones((tokens, WIDTH), np.float32)), workers)
    assert passes >= workers, (
        f"`multiply` runs on {passes} of {workers} threads: it takes as many workers as `get_num_threads()` says"
    )
    assert passes == workers, (
        f"for {tokens} inputs, `multiply` ran {passes / workers:.0f} times: one call for all of their rows reads the "
        f"weights once"
    )


def check_head(lab: Any, x: np.ndarray, given: Any = None) -> None:
    """Compare with float64, but for what 15 bits round.

    Args:
        x: float32 [..., 64].
        given: the same in another dtype, or in pieces; then x may be less exact.
    """
    __tracebackhide__ = True
    matrix, head = _matrix(), head_of(lab)
    given = lab.array(x) if given is None else given
    before = lab.numpy(given)
    found = call(head, given)
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
