"""Arrays of the frameworks cross to NumPy and back with their dtype, shape and numbers."""

import numpy as np
import pytest

from coursekit import arrays


@pytest.fixture(params=["torch", "mlx"])
def backend(request):
    if request.param == "mlx":
        mx = pytest.importorskip("mlx.core", reason="MLX is not installed")
        mx.set_default_device(mx.cpu)
    return request.param


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int64", "int32", "bool"])
def test_a_round_trip_keeps_dtype_shape_and_numbers(backend, dtype):
    values = np.array([[1, 0, 1], [0, 0, 1]])
    array = arrays.make_array(values, backend, dtype=dtype)
    assert arrays.framework(array) == backend
    assert arrays.dtype_name(array) == dtype
    back = arrays.to_numpy(array)
    assert back.dtype.name == ("float32" if dtype == "bfloat16" else dtype)
    assert np.array_equal(back, values)


def test_floats_become_float32_and_integers_the_usual_ones(backend):
    assert arrays.dtype_name(arrays.make_array(np.ones(3), backend)) == "float32"
    assert arrays.dtype_name(arrays.make_array([1.5, 2.5], backend)) == "float32"
    assert (
        arrays.dtype_name(arrays.make_array([1, 2], backend)) == {"torch": "int64", "mlx": "int32"}[backend]
    )
    assert arrays.dtype_name(arrays.make_array([True], backend)) == "bool"


def test_the_array_shares_no_memory_with_its_source(backend):
    source = np.zeros((2, 3), dtype=np.float32)
    array = arrays.make_array(source, backend)
    array[0, 0] = 7
    assert source[0, 0] == 0
    arrays.to_numpy(array)[0, 1] = 5
    assert arrays.to_numpy(array)[0, 1] == 0


def test_a_transposed_tensor_with_a_gradient_arrives_as_it_reads():
    tensor = arrays.make_array(np.arange(6.0).reshape(2, 3), "torch").requires_grad_().T
    assert np.array_equal(arrays.to_numpy(tensor), [[0, 3], [1, 4], [2, 5]])


def test_what_is_no_array_has_no_framework_and_no_dtype():
    assert arrays.framework([1.0]) is None
    with pytest.raises(TypeError, match="list is not an array"):
        arrays.dtype_name([1.0])


def test_arrays_share_memory_where_their_stretches_overlap(backend):
    array = arrays.make_array(np.zeros((4, 5)), backend, dtype="bfloat16")
    same = array if backend == "mlx" else array[:, 2:]  # MLX may copy what it slices
    assert arrays.share_memory(array, same)
    assert not arrays.share_memory(array, arrays.make_array(np.zeros((4, 5)), backend, dtype="bfloat16"))
    assert not arrays.share_memory(array, np.zeros((4, 5)))


def test_only_arrays_can_share_memory():
    with pytest.raises(TypeError, match="list is not an array"):
        arrays.share_memory(np.zeros(2), [0, 0])


def test_the_copy_of_a_transposed_array_lies_row_by_row_so_that_its_transpose_does_not():
    array = arrays.make_array(np.arange(6.0).reshape(2, 3).T, "torch")
    assert array.is_contiguous()
    assert not array.T.is_contiguous()
