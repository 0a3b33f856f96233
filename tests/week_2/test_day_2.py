"""Day 2.2: two codes per byte, groups with a scale and a minimum, a linear layer on 4 bits."""

from __future__ import annotations

from typing import Any

import gguf
import numpy as np
import pytest

from coursekit.check import check, check_raises, check_shape, check_untouched
from coursekit.checking.memory import held_bytes

from .quantized import (
    CONSTANT,
    KINDS,
    as_quantized,
    bits,
    nearest_codes,
    q4_1_parts,
    random_bytes,
    weights,
)

Q4_1 = gguf.GGMLQuantizationType.Q4_1

HALVES_SWAPPED = "the first half of the group is in the high nibbles: it belongs in the low ones"
INTERLEAVED = "neighbors share a byte: byte j holds codes j and j + G/2, not 2j and 2j + 1"

# Task 1: two codes per byte


def test_task_1_a_byte_holds_a_code_of_each_half(lab):
    codes = np.arange(1, 9)
    check(
        lab.quantize.pack_nibbles(lab.array(codes, "uint8")),
        np.array([0x51, 0x62, 0x73, 0x84]),
        name="the bytes of the codes 1 … 8",
        dtype="uint8",
        suspects={
            HALVES_SWAPPED: np.array([0x15, 0x26, 0x37, 0x48]),
            INTERLEAVED: np.array([0x21, 0x43, 0x65, 0x87]),
        },
    )


@pytest.mark.parametrize("shape", [(4,), (6,), (3, 32), (2, 5, 3, 64)])
def test_task_1_groups_of_any_size_are_packed_along_the_last_axis(lab, shape):
    codes = np.random.default_rng(shape[-1]).integers(16, size=shape)
    low, high = codes[..., : shape[-1] // 2], codes[..., shape[-1] // 2 :]
    given = lab.array(codes, "uint8")
    check(
        lab.quantize.pack_nibbles(given),
        low + 16 * high,
        name="the bytes",
        dtype="uint8",
        suspects={HALVES_SWAPPED: high + 16 * low, INTERLEAVED: codes[..., ::2] + 16 * codes[..., 1::2]},
    )
    check_untouched(given, codes, name="the codes", dtype="uint8")


@pytest.mark.parametrize("shape", [(4,), (3, 32), (5, 3, 16), (2, 5, 3, 64)])
def test_task_1_bytes_are_unpacked_along_the_last_axis(lab, shape):
    nibbles = np.random.default_rng(shape[-1]).integers(256, size=shape)
    low, high = nibbles % 16, nibbles // 16
    axes = {
        f"the halves are joined along axis {axis}, not along the last one": np.concatenate((low, high), axis)
        for axis in range(len(shape) - 1)
    }
    check(
        lab.quantize.unpack_nibbles(lab.array(nibbles, "uint8")),
        np.concatenate((low, high), axis=-1),
        name=f"the codes of bytes {list(shape)}",
        dtype="uint8",
        suspects={HALVES_SWAPPED: np.concatenate((high, low), axis=-1), **axes},
    )


def test_task_1_every_byte_is_unpacked_into_its_two_codes(lab):
    nibbles = np.arange(256).reshape(4, 64)
    low, high = nibbles % 16, nibbles // 16
    given = lab.array(nibbles, "uint8")
    check(
        lab.quantize.unpack_nibbles(given),
        np.concatenate((low, high), axis=1),
        name="the codes",
        dtype="uint8",
        suspects={
            HALVES_SWAPPED: np.concatenate((high, low), axis=1),
            INTERLEAVED: np.stack((low, high), axis=-1).reshape(4, 128),
            "the low codes still lie under the high ones: shift them out": np.concatenate((low, nibbles), 1),
        },
    )
    check_untouched(given, nibbles, name="the bytes", dtype="uint8")


def test_task_1_every_pair_of_codes_comes_back(lab):
    codes = np.stack(np.meshgrid(np.arange(16), np.arange(16)), axis=-1).reshape(256, 2)
    back = lab.quantize.unpack_nibbles(lab.quantize.pack_nibbles(lab.array(codes, "uint8")))
    check(back, codes, name="the codes, packed and unpacked", dtype="uint8")


# Task 2: quantize and dequantize


def test_task_2_the_chapters_example(lab):
    weight = np.array([[-1.0, 2.75, 0.0, 0.1, 0.9, -0.6, 1.13, 2.4]])
    quantized = lab.quantize.quantize(lab.array(weight), group_size=8)
    sixteenths = np.array([[3.75 / 16]])
    check(
        quantized.scales,
        np.array([[0.25]]),
        name="the scale",
        dtype="float16",
        suspects={"the range is divided by 16: there are 15 steps between 16 levels": sixteenths},
    )
    check(quantized.minima, np.array([[-1.0]]), name="the minimum", dtype="float16")
    check(
        quantized.nibbles,
        np.array([[[0x80, 0x2F, 0x94, 0xE4]]]),
        name="the bytes",
        dtype="uint8",
        suspects={"the codes are rounded down: take the nearest": np.array([[[0x70, 0x1F, 0x84, 0xD4]]])},
    )
    values = np.array([[-1.0, 2.75, 0.0, 0.0, 1.0, -0.5, 1.25, 2.5]])
    check(
        lab.quantize.dequantize(quantized),
        values,
        name="the values read back",
        axes="out in",
        suspects={
            "the minimum is multiplied by the scale, too: code · scale + minimum": (values + 1) - 0.25,
            "the minimum is left out": values + 1,
            "the minimum is subtracted: add it": values + 2,
        },
    )


@pytest.mark.parametrize("group_size", [4, 32, 64])
def test_task_2_each_group_of_neighbors_has_its_own_scale_and_minimum(lab, group_size):
    weight = weights("signed", 5, 192)
    given = lab.array(weight)
    quantized = lab.quantize.quantize(given, group_size)
    groups = weight.reshape(5, 192 // group_size, group_size)
    low, high = groups.min(axis=2), groups.max(axis=2)
    strided = weight.reshape(5, group_size, 192 // group_size)
    exact: dict[str, Any] = {"rtol": 1e-3, "atol": 1e-7, "dtype": "float16", "axes": "out groups"}
    check(
        quantized.minima,
        low,
        name="the minima",
        suspects={"a group is G neighbors of a row, not every n-th": strided.min(axis=1)},
        **exact,
    )
    check(
        quantized.scales,
        (high - low) / 15,
        name="the scales",
        suspects={
            "the range is divided by 16: there are 15 steps between 16 levels": (high - low) / 16,
            "the levels run from −max to max, not from the minimum to the maximum": np.abs(groups).max(2)
            / 7.5,
        },
        **exact,
    )
    check_shape(quantized.nibbles, (5, 192 // group_size, group_size // 2), name="the nibbles")
    check_untouched(given, weight, name="the weight", axes="out in")


def test_task_2_groups_have_32_weights_unless_told_otherwise(lab):
    quantized = lab.quantize.quantize(lab.array(weights("signed", 3, 96)))
    check_shape(quantized.scales, (3, 3), name="the scales", axes="out groups")


@pytest.mark.parametrize("kind", KINDS)
def test_task_2_each_weight_gets_the_nearest_level_that_will_be_read_back(lab, kind):
    weight = weights(kind, 6, 128)
    quantized = lab.quantize.quantize(lab.array(weight), 32)
    scales = check_shape(quantized.scales, (6, 4), name="the scales").astype(np.float64)
    minima = check_shape(quantized.minima, (6, 4), name="the minima").astype(np.float64)
    nibbles = check_shape(quantized.nibbles, (6, 4, 16), name="the nibbles")
    codes = np.concatenate((nibbles % 16, nibbles // 16), axis=2)
    groups = weight.reshape(6, 4, 32)
    nearest, tied = nearest_codes(groups, scales, minima)
    low, high = groups.min(axis=2, keepdims=True), groups.max(axis=2, keepdims=True)
    step = np.where(high == low, 1, (high - low) / 15)
    read_back = np.where(scales == 0, 1, scales)[..., None]
    check(
        lab.array(codes),
        np.where(tied, codes, nearest),
        name=f"the codes of {KINDS[kind]}",
        axes="out groups G",
        suspects={
            "the codes come from the scale and minimum before they were rounded to float16": np.where(
                tied, codes, np.clip(np.rint((groups - low) / step), 0, 15)
            ),
            "the codes come from the minimum before it was rounded to float16": np.where(
                tied, codes, np.clip(np.rint((groups - low) / read_back), 0, 15)
            ),
            "the codes are rounded down: take the nearest": np.floor(
                np.clip((groups - minima[..., None]) / read_back, 0, 15)
            ),
        },
    )


@pytest.mark.parametrize("group_size", [4, 32, 64])
@pytest.mark.parametrize("kind", KINDS)
def test_task_2_no_weight_is_further_off_than_half_a_step(lab, kind, group_size):
    weight = weights(kind, 7, 192)
    quantized = lab.quantize.quantize(lab.array(weight), group_size)
    back = check_shape(lab.quantize.dequantize(quantized), (7, 192), name="the values read back")
    groups = weight.reshape(7, -1, group_size)
    low, high = groups.min(axis=2), groups.max(axis=2)
    # float16 keeps 11 bits: half a unit in the last place of the minimum, and of the scale 15 times.
    rounding = (np.abs(low) + (high - low)) / 2**11 + 1e-7
    allowed = ((high - low) / 30 + rounding)[..., None]
    error = np.abs(back.reshape(groups.shape) - groups)
    assert (error <= allowed).all(), (
        f"{KINDS[kind]}: a value read back is {float((error / allowed).max()):.2f} times further from its weight "
        "than half a step and the rounding of scale and minimum explain"
    )


@pytest.mark.parametrize("value", CONSTANT)
def test_task_2_a_group_of_equal_weights_has_scale_zero_and_no_nan(lab, value):
    weight = weights("signed", 3, 64)
    weight[1, 32:] = value
    quantized = lab.quantize.quantize(lab.array(weight), 32)
    scales = check_shape(quantized.scales, (3, 2), name="the scales")
    assert scales[1, 1] == 0, f"the scale of a group of equal weights is {scales[1, 1]}, should be 0"
    check(quantized.nibbles[1, 1], np.zeros(16, int), name="the nibbles of a group of equal weights")
    back = lab.quantize.dequantize(quantized)
    check(back[1, 32:], np.full(32, np.float16(value), float), name="the group, read back", rtol=0, atol=0)
    assert np.isfinite(lab.numpy(back)).all(), "there is a NaN or an infinity among the values read back"


def test_task_2_a_range_too_small_for_float16_has_scale_zero_and_no_nan(lab):
    weight = np.full((2, 32), 0.25)
    weight[1, ::3] += 2.0**-23  # a fifteenth of it rounds to 0 in float16
    quantized = lab.quantize.quantize(lab.array(weight), 32)
    check(quantized.scales, np.zeros((2, 1)), name="the scales", dtype="float16")
    check(quantized.nibbles, np.zeros((2, 1, 16), int), name="the nibbles where the scale is 0")
    check(lab.quantize.dequantize(quantized), np.full((2, 32), 0.25), name="the values read back")


@pytest.mark.parametrize("turned", [False, True], ids=["every other row", "transposed"])
def test_task_2_weights_that_do_not_lie_in_one_piece(lab, turned):
    weight = weights("signed", 5, 64)
    given = lab.array(weight.T).T if turned else lab.array(np.repeat(weight, 2, axis=0))[::2]
    actual, expected = lab.quantize.quantize(given), lab.quantize.quantize(lab.array(weight))
    for name, kind in (("scales", "float16"), ("minima", "float16"), ("nibbles", "uint8")):
        wanted = lab.numpy(getattr(expected, name))
        check(getattr(actual, name), wanted, name=f"the {name}", dtype=kind, rtol=0, atol=0)


def test_task_2_dequantizing_changes_nothing_in_the_matrix(lab):
    quantized = lab.quantize.quantize(lab.array(weights("signed", 3, 64)))
    before = [lab.numpy(part) for part in (quantized.nibbles, quantized.scales, quantized.minima)]
    lab.quantize.dequantize(quantized)
    for name, kind, was in zip(
        ("nibbles", "scales", "minima"), ("uint8", "float16", "float16"), before, strict=True
    ):
        check_untouched(getattr(quantized, name), was, name=f"the {name}", dtype=kind)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_task_2_weights_of_other_dtypes_are_quantized_in_float32(lab, dtype):
    small = lab.array(weights("offset", 4, 96), dtype)
    expected = lab.quantize.quantize(lab.array(lab.numpy(small), "float32"))
    actual = lab.quantize.quantize(small)
    for name, kind in (("scales", "float16"), ("minima", "float16"), ("nibbles", "uint8")):
        check(
            getattr(actual, name),
            lab.numpy(getattr(expected, name)),
            name=f"the {name} of {dtype} weights, against the same weights in float32",
            dtype=kind,
            rtol=0,
            atol=0,
        )


def test_task_2_what_only_float64_tells_apart_is_equal_in_float32(lab):
    weight = 60 + np.linspace(0, 1e-6, 32)[None]
    quantized = lab.quantize.quantize(lab.array(weight, "float64"))
    check(
        quantized.scales,
        np.zeros((1, 1)),
        name="the scale of float64 weights that float32 rounds to 60",
        dtype="float16",
        rtol=0,
        atol=0,
    )
    check(quantized.nibbles, np.zeros((1, 1, 16), int), name="the nibbles", dtype="uint8")


@pytest.mark.parametrize("group_size", [0, -4, 1, 2, 6, 36, 64, 192])
def test_task_2_a_group_size_that_does_not_fit_is_refused(lab, group_size):
    weight = lab.array(weights("signed", 2, 96))
    check_raises(
        ValueError, lambda: lab.quantize.quantize(weight, group_size), name=f"group_size={group_size} for 96"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_task_2_bytes_of_a_gguf_file_are_read_as_gguf_reads_them(lab, kind):
    stored = gguf.quantize(weights(kind, 5, 96).astype(np.float32), Q4_1)
    values = lab.quantize.dequantize(as_quantized(lab, *q4_1_parts(stored)))
    expected = gguf.dequantize(stored, Q4_1)
    check(values, expected, name="the values", axes="out in")
    assert np.array_equal(bits(lab.numpy(values)), bits(expected)), (
        "the values differ from GGUF's in their last bits: multiply and add in float32, one after the other"
    )


def test_task_2_any_bytes_are_read_as_gguf_reads_them(lab):
    stored = random_bytes(blocks=(9, 4))
    nibbles, scales, minima = q4_1_parts(stored)
    values = lab.quantize.dequantize(as_quantized(lab, nibbles, scales, minima))
    expected = gguf.dequantize(stored, Q4_1)
    products = np.concatenate((nibbles % 16, nibbles // 16), axis=2) * scales[..., None].astype(float)
    check(
        values,
        expected,
        name="the values",
        axes="out in",
        suspects={
            "the minimum is subtracted: add it": (products - minima[..., None]).reshape(9, 128),
            "scale and minimum are exchanged": lambda: gguf.dequantize(swapped(stored), Q4_1),
        },
    )
    assert np.array_equal(bits(lab.numpy(values)), bits(expected)), (
        "the values differ from GGUF's in their last bits: compute in float32, not in float16 or float64"
    )


def swapped(stored: np.ndarray) -> np.ndarray:
    """Q4_1 rows in which scale and minimum have changed places."""
    blocks = stored.reshape(len(stored), -1, 20)
    return blocks[..., [2, 3, 0, 1, *range(4, 20)]].reshape(stored.shape)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_task_2_another_dtype_is_a_rounding_at_the_end(lab, dtype):
    quantized = lab.quantize.quantize(lab.array(weights("offset", 5, 96)))
    wide = lab.numpy(lab.quantize.dequantize(quantized))
    # The name of a dtype becomes the framework's own through an array of it.
    values = lab.quantize.dequantize(quantized, lab.array([0.0], dtype).dtype)
    rounded = lab.numpy(lab.array(wide, dtype)).astype(np.float64)
    check(values, rounded, name=f"the values in {dtype}", axes="out in", dtype=dtype, rtol=0, atol=0)


# Task 3: a linear layer on 4 bits


def layer(lab: Any, bias: np.ndarray | None, dtype: str = "float32") -> tuple[Any, np.ndarray]:
    """A QuantizedLinear 96 → 40, and the matrix that its codes stand for."""
    quantized = lab.quantize.quantize(lab.array(weights("signed", 40, 96)))
    given = None if bias is None else lab.array(bias, dtype)
    matrix = lab.numpy(lab.quantize.dequantize(quantized)).astype(np.float64)
    return lab.quantize.QuantizedLinear(quantized, given), matrix


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("leading", [(), (1,), (5,), (2, 3), (3, 1, 2)])
def test_task_3_it_multiplies_by_the_dequantized_matrix(lab, leading, with_bias):
    rng = np.random.default_rng(223)
    x = rng.normal(size=(*leading, 96)).astype(np.float32).astype(np.float64)
    bias = rng.normal(size=40).astype(np.float32).astype(np.float64) if with_bias else None
    multiply, matrix = layer(lab, bias)
    product, added = x @ matrix.T, np.zeros(40) if bias is None else bias
    given = lab.array(x)
    check(
        multiply(given),
        product + added,
        name="the outputs",
        axes=" ".join(f"B{i}" for i in range(len(leading))) + " out",
        rtol=1e-5,
        atol=2e-5,
        suspects={"the bias is not added": product, "the bias is added twice": product + 2 * added},
    )
    check_untouched(given, x, name="x")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_task_3_the_outputs_have_the_dtype_of_the_inputs(lab, dtype):
    rng = np.random.default_rng(224)
    bias = rng.normal(size=40)
    multiply, matrix = layer(lab, bias, dtype)
    x = lab.array(rng.normal(size=(3, 96)), dtype)
    expected = lab.numpy(x).astype(float) @ matrix.T + bias
    rtol, atol = {"float32": (0, 1e-4), "bfloat16": (4e-3, 0.15), "float16": (1e-3, 0.02)}[dtype]
    check(multiply(x), expected, name="the outputs", axes="rows out", dtype=dtype, rtol=rtol, atol=atol)


def test_task_3_a_layer_multiplies_in_the_way_that_it_is_given(lab):
    quantized = lab.quantize.quantize(lab.array(weights("signed", 40, 96)))
    seen, kept = [], lab.array(np.arange(120.0).reshape(3, 40))

    def way(weight: Any) -> Any:
        def multiply(x: Any) -> Any:
            seen.append(x)
            return kept

        return multiply

    bias = np.linspace(-1, 1, 40)
    multiply = lab.quantize.QuantizedLinear(quantized, lab.array(bias), matmul=way)
    x = lab.array(np.ones((3, 96)))
    check(
        multiply(x),
        np.arange(120.0).reshape(3, 40) + bias,
        name="the result of the given matmul, plus the bias",
    )
    assert len(seen) == 1, f"the given matmul was called {len(seen)} times for one call of the layer"
    assert seen[0] is x, "the given matmul should get x as it is"
    name = "the array that the given matmul returned and may have kept"
    check_untouched(kept, np.arange(120.0).reshape(3, 40), name=name)


def test_task_3_no_float_copy_of_the_matrix_is_kept(lab):
    quantized = lab.quantize.quantize(lab.array(weights("signed", 128, 192)))
    multiply = lab.quantize.QuantizedLinear(quantized)
    for _ in range(2):
        multiply(lab.array(np.ones((2, 192))))
    in_float32 = 128 * 192 * 4
    kept = held_bytes(multiply)
    assert kept < in_float32 / 4, (
        f"after two calls the layer holds {kept} bytes; its 4-bit matrix takes {quantized.nbytes}, a float32 copy "
        f"{in_float32}: dequantize for the call and keep nothing"
    )


def test_task_3_each_call_reads_the_matrix_anew(lab):
    quantized = lab.quantize.quantize(lab.array(weights("signed", 40, 96)))
    multiply, x = lab.quantize.QuantizedLinear(quantized), np.ones((2, 96))
    before = lab.numpy(multiply(lab.array(x)))
    quantized.nibbles[...] = 0  # every weight is now its group's minimum
    check(
        multiply(lab.array(x)),
        np.tile(32 * lab.numpy(quantized.minima).astype(float).sum(axis=1), (2, 1)),
        name="the outputs, after the caller has set all codes of its matrix to 0",
        axes="rows out",
        rtol=1e-5,
        atol=2e-5,
        suspects={"a float copy of the matrix was kept from an earlier call": before},
    )
