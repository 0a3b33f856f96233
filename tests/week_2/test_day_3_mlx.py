"""Day 2.3 with MLX: kernels in Metal's language that multiply by 4-bit weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from coursekit.check import check, check_equal, check_untouched
from coursekit.checking.comparison import plural

from .metal_calls import calls_of, check_simdgroups
from .metal_mistakes import row_mistakes
from .packed import SHAPES, Matrix, on_cpu, random_matrix, random_rows, rounded_to_bfloat16

# Sums of a few hundred products of about 1, in another order.
RTOL, ATOL = 1e-5, 3e-5
NOT_WRITTEN = (
    "some outputs hold NaN: no thread writes them (the grid counts threads), or a sum starts from nothing"
)
TRANSPOSED = "the outputs lie one row after another: element [row, output] is at row · outputs + output"


@pytest.fixture
def module(lab):
    """The learner's module, for what runs on any machine."""
    return lab.kernels.quantized_matmul_metal


@pytest.fixture
def metal(lab, module):
    """The learner's module, where kernels can run."""
    if reason := lab.kernels.metal.why_not():
        pytest.skip(reason)
    return module


def check_outputs(actual: Any, expected: np.ndarray, **options: Any) -> None:
    __tracebackhide__ = True
    usual: dict[str, Any] = {"rtol": RTOL, "atol": ATOL, "nan": NOT_WRITTEN}
    check(actual, expected, **usual | options)


def check_call(calls: list[dict[str, Any]], function: str, outputs: int, shape: tuple[int, ...]) -> None:
    """Whether one kernel was called, with a simdgroup for each output."""
    __tracebackhide__ = True
    check_simdgroups(calls, function, outputs, "output")
    check_equal([tuple(each) for each in calls[0]["output_shapes"]], [shape], name="output_shapes")
    given = len(calls[0]["inputs"])
    assert given == 4, f"the kernel is given {given} inputs, not x and the matrix's three parts"


# Task 2: one row


def test_task_2_the_kernel_is_called_with_a_simdgroup_for_each_output(lab, module, monkeypatch):
    calls = calls_of(lab, monkeypatch, module)
    module.multiply_row(on_cpu(lab, random_rows(96)), random_matrix(65, 3, 32).tensor(lab))
    check_call(calls, "multiply_row", 65, (65,))


@pytest.mark.parametrize(("outputs", "groups", "size"), SHAPES)
def test_task_2_one_row_times_the_matrix(lab, metal, outputs, groups, size):
    matrix, x = random_matrix(outputs, groups, size), random_rows(groups * size)
    check_outputs(
        metal.multiply_row(on_cpu(lab, x), matrix.tensor(lab)),
        x @ matrix.values.T,
        name=f"one row times a matrix of {outputs} × {groups * size} in groups of {size}",
        axes="output",
        suspects=row_mistakes(matrix, x),
    )


def test_task_2_one_input_of_1_finds_its_weights(lab, metal):
    matrix = random_matrix(3, 2, 12)
    tensor = matrix.tensor(lab)
    for k in range(24):
        x = np.eye(24)[k]
        y = metal.multiply_row(on_cpu(lab, x), tensor)
        check_outputs(y, matrix.values[:, k], name=f"the weights of input {k} of 24", axes="output")


def test_task_2_the_inputs_are_only_read(lab, metal):
    matrix, x = random_matrix(65, 2, 8), random_rows(16)
    given, tensor = on_cpu(lab, x), matrix.tensor(lab)
    before = lab.numpy(tensor.nibbles)
    metal.multiply_row(given, tensor)
    check_untouched(given, x, name="x")
    check_untouched(tensor.nibbles, before, name="the nibbles", dtype="uint8")


# Task 3: a few rows


def test_task_3_the_kernel_is_called_with_a_simdgroup_for_each_output(lab, module, monkeypatch):
    calls = calls_of(lab, monkeypatch, module)
    module.multiply_rows(on_cpu(lab, random_rows(5, 96)), random_matrix(65, 3, 32).tensor(lab))
    check_call(calls, "multiply_rows", 65, (5, 65))


def rows_mistakes(matrix: Matrix, x: np.ndarray) -> dict[str, np.ndarray]:
    right = x @ matrix.values.T
    return {
        "every row is multiplied as if it were the first": np.repeat(right[:1], len(x), axis=0),
        TRANSPOSED: right.T.reshape(right.shape),
        **row_mistakes(matrix, x),
    }


@pytest.mark.parametrize(("outputs", "groups", "size"), SHAPES)
@pytest.mark.parametrize("rows", [2, 3, 8])
def test_task_3_a_few_rows_times_the_matrix(lab, metal, outputs, groups, size, rows):
    matrix, x = random_matrix(outputs, groups, size), random_rows(rows, groups * size)
    check_outputs(
        metal.multiply_rows(on_cpu(lab, x), matrix.tensor(lab)),
        x @ matrix.values.T,
        name=f"{rows} rows times a matrix of {outputs} × {groups * size} in groups of {size}",
        axes="row output",
        suspects=rows_mistakes(matrix, x),
    )


def test_task_3_one_row_is_right_too(lab, metal):
    matrix, x = random_matrix(70, 3, 8), random_rows(1, 24)
    y = metal.multiply_rows(on_cpu(lab, x), matrix.tensor(lab))
    check_outputs(y, x @ matrix.values.T, name="one row as a matrix", axes="row output")


def test_task_3_a_row_of_nan_stays_out_of_the_other_rows(lab, metal):
    matrix, x = random_matrix(33, 3, 8), random_rows(3, 24)
    expected = x @ matrix.values.T
    x[1] = np.nan
    y = lab.numpy(metal.multiply_rows(on_cpu(lab, x), matrix.tensor(lab)))
    check(
        y[[0, 2]],
        expected[[0, 2]],
        name="the rows beside a row of NaN",
        axes="row output",
        framework="numpy",
        rtol=RTOL,
        atol=ATOL,
        nan="NaN of another row got into these: each row has a sum and inputs of its own",
    )


# Task 4: many rows, and the choice


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("leading", [(), (1,), (5,), (8,), (9,), (2, 3), (3, 1, 7)], ids=str)
def test_task_4_any_number_of_rows_keeps_its_axes_and_its_dtype(lab, metal, leading, dtype):
    matrix = random_matrix(70, 3, 32)
    x = rounded_to_bfloat16(random_rows(*leading, 96))
    coarse = dtype == "bfloat16"
    check_outputs(
        metal.MetalMatmul(matrix.tensor(lab))(on_cpu(lab, x, dtype)),
        x @ matrix.values.T,
        name=f"x {list(x.shape)} · Wᵀ in {dtype}",
        dtype=dtype,
        rtol=2**-8 if coarse else RTOL,
        # Rounded once, at the end; computed in bfloat16, sums of 96 products are off by far more.
        atol=1e-4 if coarse else ATOL,
        nan="NaN",
    )


@pytest.mark.parametrize("leading", [(0,), (2, 0)], ids=str)
def test_task_4_no_rows_give_no_outputs(lab, module, leading):
    multiply = module.MetalMatmul(random_matrix(70, 2, 8).tensor(lab))
    given = on_cpu(lab, np.zeros((*leading, 16)))
    check(multiply(given), np.zeros((*leading, 70)), name=f"the outputs for x {list(given.shape)}")


@pytest.mark.parametrize(
    ("leading", "wanted"),
    [
        ((), "multiply_row"),
        ((1, 1), "multiply_row"),
        ((2,), "multiply_rows"),
        ((2, 4), "multiply_rows"),
        ((9,), None),
    ],
    ids=str,
)
def test_task_4_the_number_of_rows_decides_which_kernel_multiplies(lab, module, monkeypatch, leading, wanted):
    calls, rows = [], int(np.prod(leading))
    for name in ("multiply_row", "multiply_rows"):

        def record(x: Any, weight: Any, name: str = name) -> Any:
            calls.append(name)
            return lab.array(np.zeros((*lab.numpy(x).shape[:-1], 70)), "float32")

        monkeypatch.setattr(module, name, record)
    module.MetalMatmul(random_matrix(70, 2, 8).tensor(lab))(on_cpu(lab, random_rows(*leading, 16)))
    check_equal(calls, [wanted] if wanted else [], name=f"the kernels that multiply {plural(rows, 'row')}")


def test_task_4_inputs_that_do_not_lie_in_one_piece(lab, metal):
    matrix, x = random_matrix(33, 2, 8), random_rows(3, 16)
    given = on_cpu(lab, x.T).T
    y = metal.MetalMatmul(matrix.tensor(lab))(given)
    check_outputs(y, x @ matrix.values.T, name="x as a transposed array", axes="row output")


def test_task_4_a_linear_layer_with_a_bias_takes_it(lab, metal):
    matrix, x, bias = random_matrix(70, 2, 32), random_rows(2, 3, 64), random_rows(70)
    layer = lab.quantize.QuantizedLinear(matrix.tensor(lab), on_cpu(lab, bias), metal.MetalMatmul)
    expected = x @ matrix.values.T + bias
    check_outputs(layer(on_cpu(lab, x)), expected, name="the layer's output", axes="B L out")
