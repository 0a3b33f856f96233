"""A kernel run as plain Python: reading outside an array, and what the passes of a prange loop share, have names."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest
from numba import prange

from coursekit.checking.comparison import CheckFailed
from coursekit.checking.kernel_run import run_as_python


@numba.njit(parallel=True)
def doubled(x: Any, out: Any) -> None:
    for row in prange(len(x)):
        total = np.zeros(x.shape[1])
        for j in range(x.shape[1]):
            total[j] += 2 * x[row, j]
        out[row] = total


@numba.njit(parallel=True)
def doubled_in_one_array(x: Any, out: Any) -> None:
    total = np.zeros(x.shape[1])
    for row in prange(len(x)):
        total[:] = 0
        for j in range(x.shape[1]):
            total[j] += 2 * x[row, j]
        out[row] = total


@numba.njit(parallel=True)
def summed_into_one_place(x: Any, out: Any) -> None:
    for row in numba.prange(len(x)):
        out[0] += x[row]


@numba.njit(parallel=True)
def in_rows_of_one_array(x: Any, out: Any) -> None:
    totals = np.zeros(x.shape)
    for row in prange(len(x)):
        totals[row] = 2 * x[row]
        out[row] = totals[row]


@numba.njit
def on_one_core(x: Any, out: Any) -> None:
    for row in range(len(x)):
        out[row] = 2 * x[row]


@numba.njit
def one_too_many(x: Any) -> float:
    total = 0.0
    for j in range(len(x) + 1):
        total += x[j]
    return total


def numbers() -> tuple[np.ndarray, np.ndarray]:
    return np.random.default_rng(1).normal(size=(3, 4)), np.full((3, 4), np.nan)


@pytest.mark.parametrize("kernel", [doubled, in_rows_of_one_array])
def test_a_kernel_whose_passes_share_nothing_gives_its_result(kernel: Any) -> None:
    x, out = numbers()
    run_as_python(kernel, x, out)
    np.testing.assert_array_equal(out, 2 * x)


def test_an_array_made_before_the_loop_and_written_by_every_pass_is_named() -> None:
    with pytest.raises(CheckFailed, match=r"doubled_in_one_array: .* `total`, made before"):
        run_as_python(doubled_in_one_array, *numbers())


def test_an_argument_in_which_passes_write_to_one_place_is_named() -> None:
    with pytest.raises(CheckFailed, match=r"places of `out`\. .* places of its own"):
        run_as_python(summed_into_one_place, numbers()[0], np.zeros((3, 4)))


def test_a_kernel_whose_loop_is_not_spread_is_refused_unless_it_need_not_be() -> None:
    x, out = numbers()
    with pytest.raises(CheckFailed, match="on_one_core has no `prange` loop"):
        run_as_python(on_one_core, x, out)
    run_as_python(on_one_core, x, out, spread=False)
    np.testing.assert_array_equal(out, 2 * x)


def test_an_index_outside_an_array_is_told_with_what_the_compiled_kernel_would_do() -> None:
    with pytest.raises(
        CheckFailed, match=r"one_too_many reads .* outside an array: index 4 .* Numba"
    ) as found:
        run_as_python(one_too_many, numbers()[0][0], spread=False)
    assert isinstance(found.value.__cause__, IndexError)


def test_prange_is_what_it_was_afterwards() -> None:
    with pytest.raises(CheckFailed):
        run_as_python(doubled_in_one_array, *numbers())
    assert numba.prange is prange
    assert doubled.py_func.__globals__["prange"] is prange
