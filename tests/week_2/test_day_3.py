"""Day 2.3: 4-bit matrices laid out for a kernel, the kernels, and torch's own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from coursekit.check import check, check_equal, check_untouched
from coursekit.checking.comparison import plural
from coursekit.checking.kernel_run import run_as_python
from coursekit.checking.memory import held_bytes

from .decode_oracle import stored
from .packed import BLOCK, SHAPES, Matrix, on_cpu, random_matrix, random_rows, rounded_to_bfloat16

NAN = float("nan")
# Sums of a few hundred products of about 1, in another order.
RTOL, ATOL = 1e-5, 3e-5

HIGH_FIRST = "outputs 0 … 31 of a block are in the high nibbles: they belong in the low ones"
POISONED = "the outputs (the array held NaN before the call: overwrite it, don't add to it)"
LEFT_OVER = "the array's old content is still in it: you add to it, or don't write all of it"
FILLING = "the scales or minima that fill the last block got into outputs that exist"
FIRST_SCALES = "every group is scaled like the first: a group has in / groups inputs, not always 32"
WHOLE_NUMBERS = "the partial sums are whole numbers: `np.zeros(BLOCK, np.float32)`, not an array of integers"
SHARED = "the sums of one block go on into the next: each block needs an array of its own"


@pytest.fixture
def cpu_kernels(lab):
    return lab.kernels.quantized_matmul_cpu


def poisoned(*shape: int) -> np.ndarray:
    return np.full(shape, NAN, np.float32)


def as_float32(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float32)


def check_numpy(actual: Any, expected: np.ndarray, **options: Any) -> None:
    __tracebackhide__ = True
    usual: dict[str, Any] = {"rtol": RTOL, "atol": ATOL, "nan": LEFT_OVER}
    check(actual, expected, framework="numpy", **usual | options)


# Task 1: outputs side by side


def packings(matrix: Matrix) -> dict[str, np.ndarray]:
    """The bytes that usual mistakes give."""
    codes = np.zeros((matrix.blocks * BLOCK, matrix.codes.shape[1]), np.uint8)
    codes[: len(matrix.codes)] = matrix.codes
    rows = np.stack([block.T for block in np.split(codes, matrix.blocks)])
    shape = (matrix.blocks, matrix.codes.shape[1], BLOCK)
    scrambled = codes.reshape(shape)
    halves = codes.reshape(len(codes), -1, 2, matrix.group_size // 2)
    in_file_order = halves.swapaxes(2, 3).reshape(matrix.blocks, BLOCK, -1).swapaxes(1, 2)
    return {
        HIGH_FIRST: rows[..., 32:] + 16 * rows[..., :32],
        "neighboring outputs share a byte: byte j holds outputs j and j + 32, not 2j and 2j + 1": (
            rows[..., ::2] + 16 * rows[..., 1::2]
        ),
        "reshaped where it should be transposed: a block holds 64 outputs, which lie along the last axis": (
            scrambled[..., :32] + 16 * scrambled[..., 32:]
        ),
        "reshaped where it should be transposed, and neighboring outputs share a byte": (
            scrambled[..., ::2] + 16 * scrambled[..., 1::2]
        ),
        "the codes of a group come out in another order than Day 2.2's: use `unpack_nibbles`": (
            in_file_order[..., :32] + 16 * in_file_order[..., 32:]
        ),
    }


@pytest.mark.parametrize(("outputs", "groups", "size"), SHAPES)
def test_task_1_a_row_of_bytes_holds_one_input_of_64_outputs(lab, cpu_kernels, outputs, groups, size):
    matrix = random_matrix(outputs, groups, size)
    packed = cpu_kernels.pack_outputs(matrix.tensor(lab))
    nibbles = matrix.packed()[0]
    check_numpy(
        packed.nibbles,
        nibbles.astype(np.int64),
        name="nibbles",
        axes="block in byte",
        dtype="uint8",
        suspects=packings(matrix),
    )
    check_equal(packed.outputs, outputs, name="outputs")


@pytest.mark.parametrize(("outputs", "groups", "size"), SHAPES)
def test_task_1_scales_and_minima_lie_as_the_outputs_do(lab, cpu_kernels, outputs, groups, size):
    matrix = random_matrix(outputs, groups, size)
    packed = cpu_kernels.pack_outputs(matrix.tensor(lab))
    _, scales, minima = (part.astype(np.float64) for part in matrix.packed())
    found = {"scales": (packed.scales, scales, minima), "minima": (packed.minima, minima, scales)}
    for name, (part, expected, other) in found.items():
        check_numpy(
            part,
            expected,
            name=name,
            axes="block group output",
            suspects={"scales and minima are mixed up": other},
        )


def test_task_1_what_the_kernels_read_lies_in_one_piece(lab, cpu_kernels):
    packed = cpu_kernels.pack_outputs(random_matrix(70, 3, 8).tensor(lab))
    for name in ("nibbles", "scales", "minima"):
        assert getattr(packed, name).flags.c_contiguous, (
            f"{name}: neighboring outputs are not neighbors in memory: a transpose alone moves nothing "
            "(as_numpy makes a contiguous copy)"
        )


def test_task_1_the_matrix_that_was_given_is_left_alone(lab, cpu_kernels):
    matrix = random_matrix(65, 2, 8)
    tensor = matrix.tensor(lab)
    before = lab.numpy(tensor.nibbles)
    cpu_kernels.pack_outputs(tensor)
    check_untouched(tensor.nibbles, before, name="the nibbles given", dtype="uint8")
    check_untouched(tensor.scales, matrix.scales, name="the scales given", dtype="float16")


# Task 2: one row


def test_task_2_a_byte_has_a_low_and_a_high_code(cpu_kernels):
    for byte in (0x00, 0x01, 0x10, 0x0F, 0xF0, 0x7A, 0xA7, 0xFF):
        given = np.uint8(byte)
        for name, code in (("low", byte % 16), ("high", byte // 16)):
            found = getattr(cpu_kernels, name)(given)
            assert found == code, f"{name}(0x{byte:02x}): {code} expected, {found} found"


def test_task_2_codes_come_as_float32(cpu_kernels):
    for name in ("low", "high"):
        function = getattr(cpu_kernels, name)
        value = function(np.uint8(0xA7))
        # Called from Python it gives a plain float; what it is in a kernel is known to the compiler, if that is on.
        compiled = getattr(function, "nopython_signatures", None)
        kind = str(compiled[0].return_type) if compiled else type(value).__name__
        assert kind == "float32", (
            f"{name} returns {kind}, not float32: only half as many of those fit a register"
        )


def row_mistakes(matrix: Matrix, x: np.ndarray) -> dict[str, np.ndarray]:
    """What usual mistakes in `multiply_row` give; x [in]."""
    size, groups, outputs = matrix.group_size, matrix.scales.shape[1], len(matrix.codes)
    x_sums = x.reshape(groups, size).sum(axis=1)
    partials = np.einsum("ogk,gk->og", matrix.codes.reshape(-1, groups, size), x.reshape(groups, size))
    scaled, least = matrix.scales * partials, matrix.minima * x_sums
    sums = {
        "the minimum is added once per group: it counts once for every input, so it is multiplied by Σ x": (
            scaled + matrix.minima
        ),
        "the minimum is multiplied by the Σ x of all groups so far: start it at 0 in each group": (
            scaled + matrix.minima * np.cumsum(x_sums)
        ),
        "the partial sum goes on from group to group: start it at 0 in each": (
            matrix.scales * np.cumsum(partials, axis=1) + least
        ),
        "the minima are left out": scaled,
        "the scales are left out": partials + least,
        "the minimum is multiplied by the scale, too": matrix.scales * (partials + least),
        "the minimum of the first group is used for all": scaled + matrix.minima[:, :1] * x_sums,
        "Σ x holds only the last of each four inputs": scaled
        + matrix.minima * x.reshape(groups, -1, 4)[..., 3].sum(axis=1),
    }
    wrong = {mistake: groups_of.sum(axis=1) for mistake, groups_of in sums.items()}
    wrong["only the last group counts: add the groups up"] = (scaled + least)[:, -1]
    wrong[FIRST_SCALES] = x @ matrix.scaled_like_the_first_group().values.T
    wrong["outputs j and j + 32 are mixed up"] = x @ matrix.halves_swapped().values.T
    again = np.tile(matrix.codes[:, :size], groups)
    wrong["every group takes the codes of the first"] = x @ matrix.with_parts(codes=again).values.T
    wrong["every group takes the inputs of the first"] = np.tile(x[:size], groups) @ matrix.values.T
    low_only = matrix.codes[np.arange(outputs) // BLOCK * BLOCK + np.arange(outputs) % 32]
    wrong["outputs 32 … 63 take the low codes"] = x @ matrix.with_parts(codes=low_only).values.T
    blocks = matrix.times(x).reshape(-1, BLOCK)
    wrong[SHARED] = blocks.cumsum(axis=0).reshape(-1)[:outputs]
    for at_a_time in (1, 4):
        wrong[f"{WHOLE_NUMBERS}; {at_a_time} at a time"] = (
            scaled_whole_numbers(matrix, x, at_a_time) + least
        ).sum(axis=1)
    return wrong


def scaled_whole_numbers(matrix: Matrix, x: np.ndarray, at_a_time: int) -> np.ndarray:
    """scale · partial [out, groups] where `partial` is an array of integers, which cuts off what is added."""
    size, groups = matrix.group_size, matrix.scales.shape[1]
    products = (matrix.codes * x).reshape(-1, groups, size // at_a_time, at_a_time).sum(axis=3)
    partial = np.zeros(matrix.scales.shape)
    for step in range(size // at_a_time):
        partial = np.trunc(partial + products[:, :, step])
    return matrix.scales * partial


@pytest.mark.parametrize("size", [4, 8, 32])
def test_task_2_the_kernel_stays_within_its_arrays_and_its_threads_share_none(cpu_kernels, size):
    matrix, x = random_matrix(130, 2, size), random_rows(2 * size)
    run_as_python(cpu_kernels.multiply_row, as_float32(x), *matrix.packed(), poisoned(matrix.blocks * BLOCK))


@pytest.mark.parametrize(("outputs", "groups", "size"), SHAPES)
def test_task_2_one_row_times_the_matrix(cpu_kernels, outputs, groups, size):
    matrix, x = random_matrix(outputs, groups, size), random_rows(groups * size)
    out = poisoned(matrix.blocks * BLOCK)
    cpu_kernels.multiply_row(as_float32(x), *matrix.packed(), out)
    mistakes = row_mistakes(matrix, x)
    check_numpy(out[:outputs], matrix.times(x)[:outputs], name=POISONED, axes="output", suspects=mistakes)
    check_numpy(out[outputs:], np.zeros(len(out) - outputs), name="the outputs that fill the block")


def test_task_2_what_fills_a_block_stays_out_of_the_other_outputs(cpu_kernels):
    matrix, x = random_matrix(70, 3, 8), random_rows(24)
    out = poisoned(2 * BLOCK)
    cpu_kernels.multiply_row(as_float32(x), *matrix.packed(beyond=NAN), out)
    check_numpy(
        out[:70], matrix.times(x)[:70], name="the outputs beside a filling of NaN", axes="output", nan=FILLING
    )


def test_task_2_the_inputs_are_only_read(cpu_kernels):
    matrix, x = random_matrix(65, 2, 8), as_float32(random_rows(16))
    given = matrix.packed()
    before = [part.copy() for part in (x, *given)]
    cpu_kernels.multiply_row(x, *given, poisoned(2 * BLOCK))
    for name, part, old in zip(("x", "nibbles", "scales", "minima"), (x, *given), before, strict=True):
        assert np.array_equal(part, old), f"multiply_row wrote into {name}, which it may only read"


# Task 3: a few rows


@pytest.mark.parametrize("size", [4, 32])
def test_task_3_the_kernels_stay_within_their_arrays_and_threads_share_none(cpu_kernels, size):
    matrix, x = random_matrix(130, 2, size), random_rows(3, 2 * size)
    nibbles, scales, minima = matrix.packed()
    tile = nibbles[0, :size], scales[0, 0], minima[0, 0], poisoned(size, BLOCK)
    run_as_python(cpu_kernels.unpack_tile, *tile, spread=False)
    out = poisoned(3, matrix.blocks * BLOCK)
    run_as_python(cpu_kernels.multiply_rows, as_float32(x), nibbles, scales, minima, out)


@pytest.mark.parametrize("size", [4, 32, 64])
def test_task_3_a_tile_is_a_group_of_64_outputs_as_floats(cpu_kernels, size):
    matrix = random_matrix(64, 1, size)
    nibbles, scales, minima = matrix.packed()
    tile = poisoned(size, BLOCK)
    cpu_kernels.unpack_tile(nibbles[0], scales[0, 0], minima[0, 0], tile)
    swapped_parts = matrix.with_parts(scales=matrix.minima, minima=matrix.scales)
    doubled = np.tile(np.arange(32), 2)
    first_half = matrix.with_parts(scales=matrix.scales[doubled], minima=matrix.minima[doubled])
    half_scales = matrix.with_parts(scales=matrix.scales[doubled])
    half_minima = matrix.with_parts(minima=matrix.minima[doubled])
    check_numpy(
        tile,
        matrix.in_blocks()[0],
        name="the tile",
        axes="input output",
        suspects={
            "outputs j and j + 32 are mixed up": matrix.halves_swapped().in_blocks()[0],
            "scale and minimum are mixed up": swapped_parts.in_blocks()[0],
            "outputs 32 … 63 have the scales and minima of outputs 0 … 31": first_half.in_blocks()[0],
            "outputs 32 … 63 have the scales of outputs 0 … 31": half_scales.in_blocks()[0],
            "outputs 32 … 63 have the minima of outputs 0 … 31": half_minima.in_blocks()[0],
        },
    )


@pytest.mark.parametrize(("outputs", "groups", "size"), SHAPES)
@pytest.mark.parametrize("rows", [2, 3, 8])
def test_task_3_a_few_rows_times_the_matrix(cpu_kernels, outputs, groups, size, rows):
    matrix, x = random_matrix(outputs, groups, size), random_rows(rows, groups * size)
    out = poisoned(rows, matrix.blocks * BLOCK)
    cpu_kernels.multiply_rows(as_float32(x), *matrix.packed(), out)
    by_group = np.einsum(
        "rgk,ogk->rgo",
        x.reshape(rows, groups, size),
        matrix.values.reshape(outputs, groups, size),
    )
    check_numpy(
        out[:, :outputs],
        matrix.times(x)[:, :outputs],
        name=POISONED,
        axes="row output",
        suspects={
            "every row is multiplied as if it were the first": np.repeat(
                (x @ matrix.values.T)[:1], rows, axis=0
            ),
            "only the last group counts: add the groups up": by_group[:, -1],
            "every group is multiplied by the first G inputs": x[:, :size]
            @ matrix.values.reshape(outputs, groups, size).sum(axis=1).T,
        },
    )
    beyond = np.zeros((rows, out.shape[1] - outputs))
    check_numpy(out[:, outputs:], beyond, name="the outputs that fill the block")


@pytest.mark.parametrize("rows", [1, 11])
def test_task_3_any_number_of_rows_is_right(cpu_kernels, rows):
    matrix, x = random_matrix(130, 2, 64), random_rows(rows, 128)
    out = poisoned(rows, 3 * BLOCK)
    cpu_kernels.multiply_rows(as_float32(x), *matrix.packed(), out)
    check_numpy(out, matrix.times(x), name=plural(rows, "row"), axes="row output")


def test_task_3_what_fills_a_block_stays_out_of_the_other_outputs(cpu_kernels):
    matrix, x = random_matrix(70, 3, 8), random_rows(3, 24)
    out = poisoned(3, 2 * BLOCK)
    cpu_kernels.multiply_rows(as_float32(x), *matrix.packed(beyond=NAN), out)
    expected = matrix.times(x)[:, :70]
    check_numpy(
        out[:, :70], expected, name="the outputs beside a filling of NaN", axes="row output", nan=FILLING
    )


# Task 4: many rows, and the choice


@pytest.mark.parametrize("size", [4, 32])
def test_task_4_the_kernel_stays_within_its_arrays_and_its_threads_share_none(cpu_kernels, size):
    matrix = random_matrix(130, 2, size)
    out = poisoned(matrix.blocks, 2 * size, BLOCK)
    run_as_python(cpu_kernels.unpack_all, *matrix.packed(), out)


@pytest.mark.parametrize(("outputs", "groups", "size"), SHAPES)
def test_task_4_the_whole_matrix_is_unpacked(cpu_kernels, outputs, groups, size):
    matrix = random_matrix(outputs, groups, size)
    out = poisoned(matrix.blocks, groups * size, BLOCK)
    cpu_kernels.unpack_all(*matrix.packed(), out)
    check_numpy(
        out,
        matrix.in_blocks(),
        name=POISONED.replace("outputs", "matrix"),
        axes="block input output",
        suspects={
            "outputs j and j + 32 are mixed up": lambda: matrix.halves_swapped().in_blocks(),
            FIRST_SCALES: lambda: matrix.scaled_like_the_first_group().in_blocks(),
        },
    )


def below(matrix: Matrix, x: np.ndarray) -> np.ndarray:
    """[blocks, rows, 64], reshaped to [rows, blocks · 64] as it is."""
    rows = x.reshape(-1, x.shape[-1])
    stacked = (rows @ matrix.in_blocks()).reshape(len(rows), -1)
    return stacked[:, : len(matrix.codes)].reshape(*x.shape[:-1], -1)


INPUTS = [(1,), (2,), (3,), (16,), (17,), (), (1, 1), (2, 3), (3, 2, 5)]


@pytest.mark.parametrize("leading", INPUTS, ids=str)
@pytest.mark.parametrize(("outputs", "groups", "size"), [(65, 3, 32), (63, 5, 4), (192, 2, 64)])
def test_task_4_inputs_of_any_shape(lab, cpu_kernels, leading, outputs, groups, size):
    matrix, x = random_matrix(outputs, groups, size), random_rows(*leading, groups * size)
    given = on_cpu(lab, x)
    y = cpu_kernels.KernelMatmul(matrix.tensor(lab))(given)
    check(
        y,
        x @ matrix.values.T,
        name=f"x {list(x.shape)} · Wᵀ",
        rtol=RTOL,
        atol=ATOL,
        suspects={
            "the outputs that fill the last block are not cut off": lambda: matrix.times(x),
            "the blocks lie below one another: they must come to lie side by side before the reshape": (
                lambda: below(matrix, x)
            ),
        },
    )
    check_untouched(given, x, name="x")


@pytest.mark.parametrize("rows", [1, 3, 18])
@pytest.mark.parametrize(("dtype", "rounding"), [("bfloat16", 2**-8), ("float16", 2**-11)])
def test_task_4_half_precision_goes_in_and_comes_out(lab, cpu_kernels, rows, dtype, rounding):
    matrix = random_matrix(80, 18, 32)
    x = on_cpu(lab, random_rows(rows, 18 * 32), dtype)
    y = cpu_kernels.KernelMatmul(matrix.tensor(lab))(x)
    exact = lab.numpy(x).astype(np.float64) @ matrix.values.T
    # In float32, and rounded once, at the end.
    name, suspects = f"{plural(rows, 'row')} in {dtype}", {}
    if dtype == "bfloat16":
        as_whole_numbers = stored(lab.numpy(x), dtype).astype(np.float64)
        suspects["the bits of bfloat16 were taken for whole numbers: turn x to float32 before `as_numpy`"] = (
            rounded_to_bfloat16(as_whole_numbers @ matrix.values.T)
        )
    options = {"dtype": dtype, "rtol": rounding, "atol": ATOL}
    check(y, exact, name=name, axes="row output", suspects=suspects, **options)


@pytest.mark.parametrize("rows", [1, 3, 18])
def test_task_4_inputs_that_do_not_lie_in_one_piece(lab, cpu_kernels, rows):
    matrix, x = random_matrix(70, 3, 8), random_rows(rows, 24)
    multiply = cpu_kernels.KernelMatmul(matrix.tensor(lab))
    spread = on_cpu(lab, np.repeat(x, 2, axis=1))[:, ::2]
    turned = on_cpu(lab, x.T).T
    for name, given in (("every other number of an array", spread), ("a transposed array", turned)):
        check(multiply(given), x @ matrix.values.T, name=f"x as {name}", rtol=RTOL, atol=ATOL)
    stacked = random_rows(2, rows, 24)
    swapped = on_cpu(lab, stacked.swapaxes(0, 1)).swapaxes(0, 1)
    name = "x with its first two axes swapped"
    check(multiply(swapped), stacked @ matrix.values.T, name=name, rtol=RTOL, atol=ATOL)


def test_task_4_no_output_shares_memory_with_one_before(lab, cpu_kernels):
    matrix = random_matrix(64, 2, 8)
    multiply = cpu_kernels.KernelMatmul(matrix.tensor(lab))
    for rows in (1, 3, 18):
        x, other = random_rows(rows, 16), random_rows(rows, 16)[::-1, ::-1].copy()
        first = multiply(on_cpu(lab, x))
        multiply(on_cpu(lab, other))
        name = f"the first output of {plural(rows, 'row')}, after a second call"
        check(
            first,
            x @ matrix.values.T,
            name=name,
            rtol=RTOL,
            atol=ATOL,
            suspects={"the second call wrote over the output of the first": other @ matrix.values.T},
        )


@pytest.mark.parametrize(
    ("leading", "wanted"),
    [
        ((), "multiply_row"),
        ((1,), "multiply_row"),
        ((2,), "multiply_rows"),
        ((16,), "multiply_rows"),
        ((4, 4), "multiply_rows"),
        ((17,), "unpack_all"),
        ((2, 9), "unpack_all"),
        ((40,), "unpack_all"),
    ],
    ids=str,
)
def test_task_4_each_number_of_rows_takes_its_fastest_way(lab, cpu_kernels, monkeypatch, leading, wanted):
    matrix, x, rows = random_matrix(64, 2, 8), random_rows(*leading, 16), math.prod(leading)
    multiply = cpu_kernels.KernelMatmul(matrix.tensor(lab))
    called: list[str] = []

    def noting(name: str, kernel: Any) -> Any:
        def call(*arguments: Any) -> None:
            called.append(name)
            kernel(*arguments)

        return call

    for name in ("multiply_row", "multiply_rows", "unpack_all"):
        monkeypatch.setattr(cpu_kernels, name, noting(name, getattr(cpu_kernels, name)))
    multiply(on_cpu(lab, x))
    name = f"the kernels called for {plural(rows, 'row')}, x {list(x.shape)}"
    check_equal(called, [wanted], name=name)


def test_task_4_the_matrix_is_kept_in_one_form(lab, cpu_kernels):
    matrix = random_matrix(128, 18, 32)
    multiply = cpu_kernels.KernelMatmul(matrix.tensor(lab))
    for rows in (1, 3, 40):
        multiply(on_cpu(lab, random_rows(rows, 576)))
    kept, weights = held_bytes(multiply), 128 * 576
    assert kept < 1.1 * weights, (
        f"after calls with 1, 3 and 40 rows it holds {kept / weights:.2f} bytes per weight: its own form takes 0.75; "
        "neither the form of Day 2.2 nor floats should be kept beside it"
    )


@pytest.mark.parametrize("leading", [(0,), (2, 0)], ids=str)
def test_task_4_no_rows_give_no_outputs(lab, cpu_kernels, leading):
    multiply = cpu_kernels.KernelMatmul(random_matrix(70, 2, 8).tensor(lab))
    given = on_cpu(lab, np.zeros((*leading, 16)))
    check(multiply(given), np.zeros((*leading, 70)), name=f"the outputs for x {list(given.shape)}")


def test_task_4_a_linear_layer_with_a_bias_takes_it(lab, cpu_kernels):
    matrix, x, bias = random_matrix(70, 2, 32), random_rows(2, 3, 64), random_rows(70)
    layer = lab.quantize.QuantizedLinear(matrix.tensor(lab), on_cpu(lab, bias), cpu_kernels.KernelMatmul)
    expected = x @ matrix.values.T + bias
    check(layer(on_cpu(lab, x)), expected, name="the layer's output", axes="B L out", rtol=RTOL, atol=ATOL)


# Task 5: torch's kernel


def torch_matmul(lab: Any, matrix: Matrix) -> Any:
    return lab.kernels.quantized_matmul_torch.TorchInt4Matmul(matrix.tensor(lab))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("leading", [(1,), (3,), (32,), (33,), (), (2, 5)], ids=str)
def test_task_5_torchs_kernel_agrees_to_the_rounding_of_bfloat16(lab, leading, dtype):
    for outputs, groups, size in ((16, 3, 32), (144, 2, 64), (80, 1, 128)):
        matrix, x = random_matrix(outputs, groups, size), random_rows(*leading, groups * size)
        x = rounded_to_bfloat16(x)
        y = torch_matmul(lab, matrix)(on_cpu(lab, x, dtype))
        steps = np.repeat(matrix.scales, size, axis=1)
        check(
            y,
            x @ matrix.values.T,
            name=f"x {list(x.shape)} · Wᵀ for {outputs} outputs in groups of {size}",
            dtype=dtype,
            rtol=2**-7,
            # Weights and zeros are rounded before they are multiplied: an error for each product.
            atol=float((np.abs(x) @ np.abs(matrix.values).T).max()) / 128,
            suspects={
                "torch subtracts 8 from each code: 8 · scale belongs to the zero": x
                @ (matrix.values - 8 * steps).T,
                "8 · scale is taken from the zero instead of added": x @ (matrix.values - 16 * steps).T,
                "scale and zero are exchanged": x @ mixed_up(matrix).T,
            },
        )


def mixed_up(matrix: Matrix) -> np.ndarray:
    """The weights if torch takes the zeros for the scales and the scales for the zeros."""
    zeros = matrix.minima + 8 * matrix.scales
    return matrix.with_parts(scales=zeros, minima=matrix.scales - 8 * zeros).values


def whole_numbers(outputs: int, groups: int, size: int) -> Matrix:
    """A matrix whose weights, scales and zeros, and sums of a few weights, bfloat16 holds exactly."""
    matrix = random_matrix(outputs, groups, size)
    rng = np.random.default_rng(23)
    scales = 2.0 ** rng.integers(-1, 1, size=matrix.scales.shape)
    return matrix.with_parts(scales=scales, minima=scales * rng.integers(-8, 8, size=matrix.scales.shape))


def test_task_5_the_zeros_are_computed_in_float32_and_rounded_once(lab):
    matrix = random_matrix(16, 1, 32)
    scales, minima = np.full((16, 1), np.float16(0.1), float), np.full((16, 1), np.float16(-0.79), float)
    middle = matrix.with_parts(codes=np.full((16, 32), 8, np.uint8), scales=scales, minima=minima)
    x = np.eye(32)[:2]
    check(
        torch_matmul(lab, middle)(on_cpu(lab, x)),
        x @ middle.values.T,
        name="weights whose code is 8, which torch reads as the zero itself",
        axes="row output",
        rtol=2**-7,
        atol=1e-6,
    )


@pytest.mark.parametrize("leading", [(0,), (2, 0)], ids=str)
def test_task_5_no_rows_give_no_outputs(lab, leading):
    given = on_cpu(lab, np.zeros((*leading, 32)))
    outputs = torch_matmul(lab, random_matrix(16, 1, 32))(given)
    check(outputs, np.zeros((*leading, 16)), name=f"the outputs for x {list(given.shape)}")


@pytest.mark.parametrize("rows", [1, 5, 32, 34])
def test_task_5_numbers_that_bfloat16_holds_come_out_exactly(lab, rows):
    matrix = whole_numbers(48, 3, 32)
    x = np.zeros((rows, 96))
    for row in range(rows):
        x[row, [7 * row % 96, (7 * row + 41) % 96]] = (1, -2)
    check(
        torch_matmul(lab, matrix)(on_cpu(lab, x)),
        x @ matrix.values.T,
        name="sums of two weights",
        axes="row output",
        rtol=0,
        atol=0,
    )


def test_task_5_up_to_32_rows_are_rounded_and_more_are_not(lab):
    matrix = whole_numbers(16, 1, 32)
    fine = 1 + 2.0**-12  # bfloat16 makes 1 of it
    multiply = torch_matmul(lab, matrix)
    for leading in ((1,), (32,), (33,), (2, 20)):
        x, rows = np.zeros((*leading, 32)), math.prod(leading)
        x[..., 5] = fine
        x_seen = x if rows > 32 else np.round(x)
        other = np.round(x) if rows > 32 else x
        check(
            multiply(on_cpu(lab, x)),
            x_seen @ matrix.values.T,
            name=f"{plural(rows, 'row')}, x {list(x.shape)}, of numbers that bfloat16 can't hold",
            suspects={
                "torch's kernel is for 32 rows at most: more go to Task 4's"
                if rows > 32
                else "up to 32 rows are for torch's kernel, and x must be bfloat16 there": other
                @ matrix.values.T
            },
        )


def test_task_5_inputs_that_do_not_lie_in_one_piece(lab):
    matrix, x = whole_numbers(32, 2, 32), np.eye(64)[[3, 60, 33]]
    given = on_cpu(lab, x.T).T
    check(
        torch_matmul(lab, matrix)(given), x @ matrix.values.T, name="x as a transposed array", rtol=0, atol=0
    )
