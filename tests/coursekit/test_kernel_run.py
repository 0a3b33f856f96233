"""A kernel run as plain Python: reading outside an array, and what the passes of a prange loop share, have names."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest
from numba import prange
from numba.extending import overload

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


class Room(NamedTuple):
    out: np.ndarray


@numba.njit(parallel=True)
def into_named_room(x: Any, room: Any) -> None:
    for row in prange(len(x)):
        room.out[0] += x[row]


def _make_sum(width: int) -> Any:
    @numba.njit
    def first_numbers(x: Any) -> float:
        total = 0.0
        for j in range(width):
            total += kind_of(x[j])
        return total

    return first_numbers


def kind_of(x):
    """It tells Python from compiled code, in which 2 stands for it."""
    return float(x) if x >= 0 else 0.0


@overload(kind_of)
def _kind_of(x):
    return lambda x: 2.0


sum_of_3, sum_of_9 = _make_sum(3), _make_sum(9)


@numba.njit(parallel=True)
def sums_of_rows(x: Any, out: Any) -> None:
    for row in prange(len(x)):
        out[row] = sum_of_3(x[row])


@numba.njit
def too_many_in_a_called_function(x: Any, out: Any) -> None:
    out[0] = sum_of_9(x)


@numba.njit
def by_module(x: Any) -> float:
    return this_module.sum_of_3(x)


def _make_plain(kernel: Any) -> Any:
    def plain(x: Any) -> Any:
        return kernel(x)

    return plain


sum_by_plain = _make_plain(sum_of_3)


@numba.njit
def by_plain_function(x: Any) -> float:
    return sum_by_plain(x)


@numba.njit
def all_in_parallel(x: Any, out: Any) -> None:
    doubled_in_one_array(x, out)


this_module = sys.modules[__name__]


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


def test_functions_that_a_kernel_calls_stay_compiled_unless_they_are_to_run_as_python_too() -> None:
    x, out = np.ones((2, 3)), np.zeros(2)
    run_as_python(sums_of_rows, x, out)
    np.testing.assert_array_equal(out, [6, 6])
    run_as_python(sums_of_rows, x, out, deep=True)
    np.testing.assert_array_equal(out, [3, 3])
    run_as_python(sums_of_rows, x, out)
    np.testing.assert_array_equal(out, [6, 6], err_msg="they are no longer compiled afterwards")


def test_a_function_called_through_its_module_runs_as_python_too() -> None:
    assert run_as_python(by_module, np.ones(3), spread=False, deep=True) == 3


def test_functions_behind_a_plain_function_run_as_python_too() -> None:
    """As those behind a function that has a compiled form of another name."""
    assert run_as_python(by_plain_function, np.ones(3), spread=False, deep=True) == 3


def test_an_index_outside_an_array_in_a_called_function_is_told() -> None:
    with pytest.raises(CheckFailed, match="index 4 is out of bounds"):
        run_as_python(too_many_in_a_called_function, np.ones(4), np.zeros(1), spread=False, deep=True)


def test_an_array_that_passes_share_in_a_called_function_is_named() -> None:
    with pytest.raises(CheckFailed, match=r"doubled_in_one_array: .* `total`, made before"):
        run_as_python(all_in_parallel, *numbers(), deep=True)


def test_an_array_of_a_named_tuple_in_which_passes_write_to_one_place_is_named() -> None:
    x, out = numbers()[0], np.zeros((3, 4))
    with pytest.raises(CheckFailed, match=r"places of `room\.out`\. .* places of its own"):
        run_as_python(into_named_room, x, Room(out))


def test_what_is_to_be_called_before_each_pass_is() -> None:
    calls: list[None] = []
    run_as_python(doubled, *numbers(), before_pass=lambda: calls.append(None))
    assert len(calls) == 3


def test_prange_is_what_it_was_afterwards() -> None:
    with pytest.raises(CheckFailed):
        run_as_python(doubled_in_one_array, *numbers())
    assert numba.prange is prange
    assert doubled.py_func.__globals__["prange"] is prange
