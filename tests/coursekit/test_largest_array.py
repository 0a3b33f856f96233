"""The lab sees the largest array that a function makes, and no accident hides one."""

import tracemalloc

import numpy as np
import pytest
import torch

from coursekit.errors import CourseError
from coursekit.lab import Lab


def largest(function, *arguments, **options):
    """How many elements the largest array has that `function` makes, seen through a lab."""
    return Lab("torch").largest_array(function, *arguments, **options)[1]


def test_the_result_comes_back_with_the_size_of_the_largest_array():
    result, size = Lab("torch").largest_array(lambda x, y: (x @ x.T).sum() * y, torch.ones(7, 3), y=2.0)
    assert (float(result), size) == (294.0, 49)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[2:, :1],
        lambda x: x.reshape(3, 10).mT[None],
        lambda x: x[:, :, None].expand(5, 6, 100),
        lambda x: x.view(torch.int32),
        lambda x: torch.broadcast_to(x, (50, 5, 6)).unfold(0, 10, 1),
    ],
)
def test_views_of_the_arguments_are_no_arrays_of_their_own(view):
    assert largest(view, torch.ones(5, 6)) == 0


def test_work_in_place_makes_nothing():
    assert largest(lambda x: x.mul_(2).add_(x), torch.ones(5, 6)) == 0


def test_a_view_of_something_new_is_as_large_as_what_is_behind_it():
    assert largest(lambda: torch.zeros(40)[:2]) == 40
    assert largest(lambda: torch.zeros(4).expand(100, 4)) == 4


@pytest.mark.parametrize(
    "copy",
    [
        lambda x: x.repeat(4, 1),
        lambda x: x.repeat_interleave(4, dim=0),
        lambda x: x[None].expand(4, 5, 6).reshape(20, 6),
        lambda x: x[None].expand(4, 5, 6).contiguous(),
        lambda x: torch.cat([x] * 4),
        lambda x: x.new_empty(20, 6).copy_(x.tile(4, 1)),
        lambda x: torch.tile(x, (4, 1)).bool(),
        lambda x: torch.einsum("ab,cb->cab", x, torch.ones(4, 6)),
        lambda x: x[torch.arange(20) % 5],
    ],
)
def test_a_copy_is_found_whatever_it_is_called(copy):
    assert largest(copy, torch.ones(5, 6)) == 120


def test_a_matrix_product_that_writes_a_broadcast_out_is_found():
    query, key = torch.ones(2, 9, 4, 8), torch.ones(2, 3, 50, 8)
    stacked = largest(lambda: query.reshape(2, 3, 12, 8) @ key.mT)
    broadcast = largest(lambda: query.reshape(2, 3, 3, 4, 8) @ key[:, :, None].mT)
    assert (stacked, broadcast) == (2 * 9 * 4 * 50, 2 * 9 * 50 * 8)


def test_arrays_made_from_lists_and_numpy_are_found_when_they_are_used():
    assert largest(lambda x: x + torch.tensor([[0.0] * 6] * 5), torch.ones(6)) == 30
    assert largest(lambda x: x + torch.from_numpy(np.zeros((5, 6), np.float32))[:1], torch.ones(6)) == 30
    table = torch.ones(70)
    assert largest(lambda x: x + table[:6], torch.ones(6)) == 70


@pytest.mark.parametrize(
    "make", [lambda: np.zeros((2000, 1000)), lambda: [0.0] * 2_000_000, lambda: np.zeros(16_000_000, bool)]
)
def test_large_arrays_outside_torch_are_found_too(make):
    assert 2_000_000 <= largest(make) < 2_010_000


def test_what_a_first_call_loads_does_not_count():
    loaded: list[np.ndarray] = []

    def load_then_make():
        if not loaded:
            loaded.append(np.zeros(2_000_000))
        return torch.zeros(3)

    assert largest(load_then_make) == 3


def test_an_error_in_the_function_is_passed_on_and_the_watch_ends():
    calls: list[int] = []

    def fail_the_second_time():
        calls.append(1)
        if len(calls) == 2:
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        largest(fail_the_second_time)
    assert not tracemalloc.is_tracing()
    assert largest(lambda: torch.zeros(4)) == 4


def test_mlx_says_that_it_cannot_count():
    pytest.importorskip("mlx.core", reason="MLX is not installed")
    with pytest.raises(CourseError, match=r"peak_bytes"):
        Lab("mlx").largest_array(lambda: None)


def test_mlx_tells_its_peak_of_memory_and_the_result():
    mx = pytest.importorskip("mlx.core", reason="MLX is not installed")
    row = mx.ones((1000,))
    result, used = Lab("mlx").peak_bytes(lambda x, times: (x[:, None] * x).sum() * times, row, times=2.0)
    assert result.item() == 2e6
    assert 4_000_000 <= used < 4_200_000, used


def test_what_mlx_has_before_the_call_is_not_counted():
    mx = pytest.importorskip("mlx.core", reason="MLX is not installed")
    large = mx.ones((1000, 1000))
    assert Lab("mlx").peak_bytes(lambda x: x[0] + 1, large)[1] < 100_000


def test_torch_says_that_it_tells_no_peak():
    with pytest.raises(CourseError, match=r"largest_array"):
        Lab("torch").peak_bytes(lambda: None)
