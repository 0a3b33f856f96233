"""The seam between the tracks: what `arrays.py` promises, in both packages."""

from __future__ import annotations

import importlib.util
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from coursekit.arrays import dtype_name, make_array, pending_operations, to_numpy
from coursekit.backends import Backend
from coursekit.paths import Course


@pytest.fixture(params=list(Backend))
def backend(request: pytest.FixtureRequest) -> Backend:
    if request.param == Backend.MLX:
        mx = pytest.importorskip("mlx.core", reason="MLX is not installed")
        mx.set_default_device(mx.cpu)
    return request.param


@pytest.fixture
def seam(backend: Backend) -> ModuleType:
    """The reference's `arrays.py` of the backend."""
    path = Course.find().solution(backend.package) / "arrays.py"
    spec = importlib.util.spec_from_file_location(f"seam_{backend}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def array(backend: Backend, values: Any, dtype: str = "float32") -> Any:
    return make_array(values, backend, dtype=dtype)


@pytest.mark.parametrize("numbers", [[7], [], [3, 1], [[5, 0, 2], [1, 4, 9]]])
def test_integers_are_whole_numbers_of_the_usual_dtype(seam, backend, numbers):
    found = seam.integers(numbers, like=array(backend, [0.5], "float16"))
    assert dtype_name(found) == ("int64" if backend == Backend.TORCH else "int32")
    assert to_numpy(found).tolist() == numbers


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integers_have_the_dtype_of_integers_that_they_are_like(seam, backend, dtype):
    assert dtype_name(seam.integers([1, 2], like=array(backend, [0], dtype))) == dtype


@pytest.mark.parametrize("numbers", [[3, 1], [[5, 0, 2], [1, 4, 9]]])
def test_host_arrays_are_read_and_written_by_the_host(seam, numbers):
    found = seam.host_array(numbers)
    assert to_numpy(found).dtype == np.int32
    assert found.tolist() == numbers
    found[0] = 8
    assert found.tolist() == to_numpy(found).tolist() != numbers


def test_entries_of_a_host_array_are_written_by_lists_of_rows_and_columns(seam):
    table = seam.host_array([[0, 0, 0], [0, 0, 0]])
    table[[0, 1, 1], [2, 0, 1]] = seam.host_array([5, 6, 7])
    assert table.tolist() == [[0, 0, 5], [6, 7, 0]]
    table[[], []] = seam.host_array([])
    assert table.tolist() == [[0, 0, 5], [6, 7, 0]]


@pytest.mark.parametrize("make", ["empty", "zeros"])
def test_new_storage_has_the_shape_and_the_dtype_of_what_it_is_like(seam, backend, make):
    found = getattr(seam, make)([2, 0, 3], like=array(backend, [1.0], "bfloat16"))
    assert (tuple(found.shape), dtype_name(found)) == ((2, 0, 3), "bfloat16")
    found = getattr(seam, make)((2, 5), like=array(backend, [1], "int32"))
    assert (tuple(found.shape), dtype_name(found)) == ((2, 5), "int32")
    if make == "zeros":
        assert not to_numpy(found).any()


def test_an_axis_is_cut_into_parts_of_these_sizes(seam, backend):
    values = np.arange(24.0).reshape(2, 6, 2)
    parts = seam.split(array(backend, values), [1, 2, 3], axis=1)
    assert [to_numpy(part).tolist() for part in parts] == [
        values[:, :1].tolist(),
        values[:, 1:3].tolist(),
        values[:, 3:].tolist(),
    ]
    assert len(seam.split(array(backend, values), [6], axis=1)) == 1


@pytest.mark.parametrize("lengths", [[3], [1, 2], [2, 0, 1]])
def test_arrays_are_joined_along_their_first_axis_in_order(seam, backend, lengths):
    values = np.arange(6.0).reshape(3, 2)
    ends = np.cumsum(lengths)
    parts = tuple(array(backend, values[end - n : end]) for n, end in zip(lengths, ends, strict=True))
    assert to_numpy(seam.concatenate(parts)).tolist() == values.tolist()


def test_rows_are_replaced_in_a_copy(seam, backend):
    before = np.arange(8.0).reshape(4, 2)
    given, rows = array(backend, before), array(backend, [3, 1], "int64")
    found = seam.with_rows(given, rows, array(backend, [[-1.0, -2.0], [-3.0, -4.0]]))
    assert to_numpy(found).tolist() == [[0, 1], [-3, -4], [4, 5], [-1, -2]]
    assert to_numpy(given).tolist() == before.tolist()


def test_what_is_evaluated_waits_for_nothing(seam, backend):
    result = array(backend, [1.0, 2.0]) * 2 + 1
    assert (pending_operations(result) > 0) is (backend == Backend.MLX)
    seam.evaluate(result)
    assert pending_operations(result) == 0
    assert to_numpy(result).tolist() == [3, 5]


def test_only_an_array_waits_for_operations():
    assert pending_operations(np.zeros(2)) == 0
    with pytest.raises(TypeError, match="list is not an array"):
        pending_operations([1.0])


def test_an_mlx_array_waits_for_every_operation_since_it_was_evaluated(backend):
    x = array(backend, [1.0, 2.0])
    counts = []
    for _ in range(3):
        x = x + 1
        counts.append(pending_operations(x))
    assert counts == ([0, 0, 0] if backend == Backend.TORCH else sorted(set(counts)))
    to_numpy(x)
    assert pending_operations(x) == 0
