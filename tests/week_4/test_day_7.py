"""Day 4.7: weights and activations in 8 bits and less, in registers, and a block that is one kernel."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest
from week_2.decode_checks import check_numpy
from week_2.decode_oracle import random_numbers
from week_2.packed import on_cpu, random_matrix, rounded_to_bfloat16
from week_3.ragged import CASES

from coursekit.check import check, check_equal, check_raises, check_untouched
from coursekit.checking.comparison import plural
from coursekit.checking.kernel_run import run_as_python
from coursekit.checking.objects import copied

from .block8_checks import check_after, check_before, check_spread
from .eight_bits import (
    GROUP,
    Kept,
    as_python,
    check_groups,
    check_only_read,
    check_same_bits,
    copies,
    float32,
    kept,
    random_groups,
    registers,
    require,
    room,
)
from .folded_rows import BEFORE, Before, check_fold_row
from .head8 import check_head, check_one_product, check_results_are_kept
from .kept_steps import (
    HKV,
    LENGTHS,
    QUERIES_PER_HEAD,
    check_arrays,
    check_newest_is_right,
    check_tasks,
    check_told_apart,
    count_alive,
    kept_step_of,
    meta_of,
)
from .key_tiles import COUNTS, check_find, check_keys, check_values
from .online_softmax import check_add, check_same_scores, check_scores
from .products import Product, check_alone, grow, run_tile
from .records import SHAPES, Coded, check_records, lay_out
from .shares import check_order, check_shares, tiles_of_workers
from .small_compiled import (
    check_anywhere,
    check_compiled,
    check_ends,
    check_exponentials,
    check_gate_16,
    exponentials,
)
from .small_model8 import FAMILIES, SmallModel
from .small_operations import check_either_kind, check_gate_row, check_normalize, check_root
from .split_heads import NORMS, check_rotate, check_split
from .tables import check_table, random_weights
from .tiled_steps import check_attend, check_company, check_two_tiles, step_of
from .whole_model8 import (
    IDS,
    check_company_of_model,
    check_logits,
    check_pages,
    check_rounding,
    check_rows,
    fast_of,
    full_caches,
    run,
    run_in_two,
    uncompiled,
)

families = pytest.mark.parametrize("family", FAMILIES)


# Task 1: weights laid out


@pytest.mark.parametrize(("outputs", "width"), SHAPES)
@pytest.mark.parametrize("bits", [4, 8])
def test_task_1_codes_scales_and_minima_have_their_places_in_records(lab, bits, outputs, width):
    matrix = Coded.random(outputs, width, bits)
    laid = lay_out(lab, matrix)
    check_records(laid, matrix, f"a matrix [{outputs}, {width}] of {bits} bits")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_task_1_scales_and_minima_are_rounded_to_float16(lab, dtype):
    numbers = np.random.default_rng(411).normal(size=(2, 32, 3)).astype(np.float32)
    numbers = rounded_to_bfloat16(numbers) if dtype == "bfloat16" else numbers
    codes = np.random.default_rng(412).integers(16, size=(32, 96)).astype(np.uint8)
    parts = (on_cpu(lab, part, dtype) for part in numbers)
    laid = lab.fast.weights8.lay_out(on_cpu(lab, codes, "uint8"), *parts, 4)
    scales, minima = numbers.astype(np.float16).astype(np.float64)
    check_records(laid, Coded(codes, scales, minima, 4), f"a matrix whose scales and minima are {dtype}")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_task_1_a_bias_becomes_float32(lab, dtype):
    matrix = Coded.random(48, 64, 4)
    numbers = random_numbers(414, 48) * 3
    bias = rounded_to_bfloat16(numbers) if dtype == "bfloat16" else float32(numbers)
    laid = lay_out(lab, matrix, bias=on_cpu(lab, bias, dtype))
    check(
        laid.bias,
        bias,
        name=f"the bias, given as {dtype}",
        axes="output",
        framework="numpy",
        rtol=0,
        atol=0,
        suspects={
            "it is rounded to float16": bias.astype(np.float16),
            "it is rounded to bfloat16": rounded_to_bfloat16(bias),
        },
    )
    check_records(laid, matrix, "a matrix with a bias")


def test_task_1_without_a_bias_there_are_no_numbers_of_one(lab):
    bias = lay_out(lab, Coded.random(16, 64, 8)).bias
    check(bias, np.zeros(0), name="the bias of a matrix that has none", framework="numpy")


@pytest.mark.parametrize("biased", [False, True])
def test_task_1_day_2s_4_bits_are_kept_as_they_are(lab, biased):
    matrix = random_matrix(48, 2, 32)
    bias = on_cpu(lab, np.arange(48) - 20.0) if biased else None
    laid = lab.fast.weights8.lay_out_4_bits(matrix.tensor(lab), bias)
    expected = Coded(matrix.codes, matrix.scales, matrix.minima, 4)
    halves = matrix.codes.reshape(48, 2, 2, 16)
    in_pairs = halves.swapaxes(2, 3).reshape(48, 64)
    exchanged = halves[:, :, ::-1].reshape(48, 64)
    wrong = {
        "the codes of a group come in another order than Day 2.2's: use `unpack_nibbles`": in_pairs,
        "the two halves of a group are exchanged: use `unpack_nibbles`": exchanged,
    }
    check_records(laid, expected, "a matrix of Day 2.2", codes=wrong)
    wanted = np.arange(48) - 20.0 if biased else np.zeros(0)
    check(laid.bias, wanted, name="the bias of a matrix of Day 2.2", framework="numpy")


@pytest.mark.parametrize(("outputs", "width"), SHAPES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_task_1_in_8_bits_each_weight_gets_the_nearest_level(lab, outputs, width, dtype):
    weights = random_weights(outputs, width, dtype)
    check_table(lab, weights, f"{dtype} weights [{outputs}, {width}]", dtype)


def test_task_1_in_8_bits_halves_go_to_the_even_level(lab):
    weights = np.random.default_rng(413).integers(-127, 127, size=(16, 64)) + 0.5
    weights[:, ::32] = np.where(np.arange(16) % 2, 127, -127)[:, None]
    check_table(lab, weights / 8, "weights that lie halfway between two levels")
    scales = (1024 + 37 * np.arange(16)[:, None]) / 2**14  # float16 holds them
    check_table(
        lab, weights * scales, "weights halfway between two levels, which weight · (1 / scale) may miss"
    )


def test_task_1_in_8_bits_a_group_whose_scale_is_0_has_codes_of_128(lab):
    weights = random_weights(32, 96)
    weights[5, 32:64] = 0
    weights[20, :32] = 3e-6 * np.sign(weights[20, :32])
    name = "weights with a group of zeros, and one whose scale float16 rounds to 0"
    check_table(lab, weights, name)


def test_task_1_in_8_bits_numbers_that_a_rounded_scale_leads_too_far_are_kept_within_127(lab):
    weights = random_weights(16, 64)
    weights[3, :32] = 2.0**-24 * np.linspace(-170, 177, 32)
    name = "weights so small that float16 rounds their scale by a third"
    check_table(lab, weights, name)


def test_task_1_what_was_given_is_left_alone(lab):
    matrix = Coded.random(48, 64, 4)
    codes, scales, minima = (
        on_cpu(lab, part, dtype)
        for part, dtype in ((matrix.codes, "uint8"), (matrix.scales, "float32"), (matrix.minima, "float32"))
    )
    lab.fast.weights8.lay_out(codes, scales, minima, 4)
    check_untouched(codes, matrix.codes, name="the codes given", dtype="uint8")
    check_untouched(scales, matrix.scales, name="the scales given")
    check_untouched(minima, matrix.minima, name="the minima given")
    weights = random_weights(32, 96)
    given = on_cpu(lab, weights)
    lab.fast.weights8.lay_out_8_bits(given)
    check_untouched(given, weights, name="the weights given")
    nibbles = random_matrix(48, 2, 32).tensor(lab)
    before = lab.numpy(nibbles.nibbles)
    lab.fast.weights8.lay_out_4_bits(nibbles)
    check_untouched(nibbles.nibbles, before, name="the nibbles given", dtype="uint8")


# Task 2: activations in 8 bits


@pytest.fixture
def rows8(lab):
    return lab.fast.rows8


@pytest.mark.parametrize("step", [0.25, 3.0, 2.0**-126, 1e30])
def test_task_2_a_step_has_an_inverse(rows8, step):
    found = np.array([as_python(rows8.inverse_of, np.float32(step))])
    name = f"the inverse of a step of {step:g}"
    check(found, 1 / float32([step]), name=name, framework="numpy", rtol=1e-7, atol=0)


@pytest.mark.parametrize("step", [0.0, 2.0**-127, 1e-42])
def test_task_2_a_step_below_the_smallest_has_an_inverse_of_0(rows8, step):
    found = float(as_python(rows8.inverse_of, np.float32(step)))
    require(
        found == 0,
        f"the inverse of a step of {step:g}: 0 expected, as for all below SMALLEST; {found:g} found",
    )


@pytest.mark.parametrize("step", [1.0, 0.25])
def test_task_2_halves_go_to_the_even_number(lab, rows8, step):
    x = np.arange(-15.5, 16.5)[None] * step
    x[0, 3], x[0, 20:24] = -127 * step, np.array([3.4, 3.6, -3.4, -3.6]) * step
    rows = room(lab, 1)
    as_python(rows8.quantize_group, *registers(x[0]), 0, rows)
    check_groups(rows, 0, kept(x), f"32 numbers, most of them halfway, with a step of {step:g}", x)


@pytest.mark.parametrize("group", [0, 1, 4])
def test_task_2_a_group_becomes_32_codes_a_step_and_an_offset(lab, rows8, group):
    x, rows = random_groups(421 + group, 1), room(lab, 5)
    as_python(rows8.quantize_group, *registers(x[0]), group, rows)
    check_groups(rows, group, kept(x), f"32 numbers, written as group {group}", x)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("place", [0, 15, 16, 31])
def test_task_2_the_largest_magnitude_may_stand_anywhere_and_have_any_sign(lab, rows8, place, sign):
    x, rows = random_groups(431, 1), room(lab, 2)
    x[0, place] = sign * 2.5 * np.abs(x).max()
    as_python(rows8.quantize_group, *registers(x[0]), 1, rows)
    check_groups(rows, 1, kept(x), f"32 numbers of which number {place} is the largest by far", x)


@pytest.mark.parametrize("size", [0.0, 1e-38, 1e-43])
def test_task_2_a_group_of_zeros_or_nearly_so_has_codes_of_0(lab, rows8, size):
    x, rows = (size * np.linspace(-1, 1, 32)[None]).astype(np.float32).astype(np.float64), room(lab, 2)
    as_python(rows8.quantize_group, *registers(x[0]), 0, rows)
    check_groups(rows, 0, kept(x), f"32 numbers of {size:g} at most")


def test_task_2_the_registers_given_are_left_alone(lab, rows8):
    low, high = registers(random_groups(432, 1)[0])
    before = low.copy(), high.copy()
    as_python(rows8.quantize_group, low, high, 0, room(lab, 1))
    for name, found, was in zip(("low", "high"), (low, high), before, strict=True):
        check_only_read(found, was, name)


@pytest.mark.parametrize(("start", "width", "group"), [(0, 32, 0), (7, 96, 2), (64, 64, 1), (3, 160, 0)])
def test_task_2_a_row_is_read_where_it_lies_and_written_group_by_group(lab, rows8, start, width, group):
    x = random_groups(433, width // GROUP)
    memory = np.full(start + width + 5, np.nan, np.float32)
    memory[start : start + width] = x.reshape(-1)
    before, rows = memory.copy(), room(lab, group + width // GROUP + 2)
    as_python(rows8.quantize_row, memory, start, width, group, rows)
    name = f"the {width} numbers from x[{start}] on, written as groups from {group} on"
    check_groups(rows, group, kept(x), name, x)
    check_only_read(memory, before, "x")


def twice(x: np.ndarray) -> tuple[Kept, np.ndarray]:
    """The groups of a row and of what it leaves, and the numbers of both, [2n, 32]."""
    first = kept(x)
    numbers = np.concatenate([x, x - first.numbers])
    return kept(numbers), numbers


def exact_twice(count: int) -> np.ndarray:
    """Groups whose steps are powers of two, and of whose numbers the second row leaves nothing: [count, 32]."""
    rng = np.random.default_rng(434)
    x = rng.integers(-126, 127, size=(count, 32)) + rng.integers(-126, 127, size=(count, 32)) / 256
    x[:, 9], x[:, 20] = -127, 5 - 127 / 256
    return x * 2.0 ** -np.arange(count)[:, None]


@pytest.mark.parametrize(("start", "count", "group"), [(0, 1, 0), (5, 3, 2)])
def test_task_2_what_a_row_leaves_becomes_a_row_of_its_own_behind_it(lab, rows8, start, count, group):
    x = exact_twice(count)
    memory = np.full(start + x.size + 5, np.nan, np.float32)
    memory[start : start + x.size] = x.reshape(-1)
    before, rows = memory.copy(), room(lab, group + 2 * count + 1)
    as_python(rows8.quantize_row_twice, memory, start, x.size, group, rows)
    expected, numbers = twice(x)
    check_groups(rows, group, expected, f"{x.size} numbers as two rows, from group {group} on", numbers)
    check_only_read(memory, before, "x")


def test_task_2_two_rows_together_miss_a_number_by_half_a_second_step_at_most(lab, rows8):
    x, rows = random_groups(435, 4), room(lab, 8)
    as_python(rows8.quantize_row_twice, x.astype(np.float32).reshape(-1), 0, x.size, 0, rows)
    numbers = rows.codes.reshape(8, 32).astype(np.float64) * rows.steps[:, None].astype(np.float64)
    off = np.abs(x - numbers[:4] - numbers[4:]).max(axis=1) / rows.steps[4:]
    require(off.max() < 0.51, f"the two rows miss a number by {off.max():.3g} steps of the second row")
    check_groups_of_first(lab, rows, kept(x), x)


def check_groups_of_first(lab: Any, rows: Any, expected: Kept, x: np.ndarray) -> None:
    """The first of two rows is that of quantize_row."""
    count = len(x)
    first = lab.fast.rows8.Rows8(rows.codes[: count * GROUP], rows.steps[:count], rows.offsets[:count])
    check_groups(first, 0, expected, "the first of two rows", x)


def test_task_2_where_a_row_leaves_nothing_the_second_is_of_zeros(lab, rows8):
    x, rows = np.zeros((2, 32)), room(lab, 4)
    x[1] = np.arange(-127, 128, 8)[:32]
    as_python(rows8.quantize_row_twice, x.astype(np.float32).reshape(-1), 0, 64, 0, rows)
    check_groups(rows, 0, twice(x)[0], "a row that 8 bits hold exactly, as two rows")


@pytest.mark.parametrize("name", ["quantize_row", "quantize_row_twice"])
def test_task_2_compiled_the_rows_are_the_same_to_the_last_bit(lab, rows8, name):
    x = random_groups(436, 5)
    x[1], x[3] = 0, 1e-40
    x[2] = np.arange(32) + 0.5
    x[2, 7] = -127
    memory, function = x.astype(np.float32).reshape(-1), getattr(rows8, name)
    compiled, plain = room(lab, 12), room(lab, 12)
    function(memory, 0, 160, 1, compiled)
    as_python(function, memory, 0, 160, 1, plain)
    check_same_bits(compiled, plain, f"{name}, compiled")


# Task 3: the multiplication


@pytest.fixture
def multiply(lab):
    return lab.fast.multiply


@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize("rows", [1, 2, 4, 8])
@pytest.mark.parametrize("bits", [4, 8])
def test_task_3_a_tile_is_some_rows_times_16_outputs(lab, multiply, bits, rows, add):
    product = Product.random(11, 48, 64, bits)
    run_tile(lab, product, block=1, row=2, rows=rows, add=add)


@pytest.mark.parametrize(("block", "row", "T"), [(0, 0, 1), (2, 0, 2), (0, 9, 10), (2, 8, 10)])
@pytest.mark.parametrize("bits", [4, 8])
def test_task_3_a_tile_may_be_any_block_and_begin_at_any_row(lab, multiply, bits, block, row, T):
    rows = min(T - row, 2)
    run_tile(lab, Product.random(T, 48, 96, bits), block=block, row=row, rows=rows, add=False)


@pytest.mark.parametrize("bits", [4, 8])
def test_task_3_what_is_multiplied_is_only_read(lab, multiply, bits):
    product = Product.random(3, 48, 64, bits)
    weight, x, out = product.weight(lab), product.memory(lab), np.zeros(5 * 48, np.float32)
    before = [*copies(weight), *copies(x)]
    as_python(multiply.multiply_tile, weight, 1, x, 1, 2, False, out)
    names = "weight.records", "weight.bias", "x.codes", "x.steps", "x.offsets"
    arrays = weight.records, weight.bias, x.codes, x.steps, x.offsets
    for name, found, was in zip(names, arrays, before, strict=True):
        check_only_read(found, was, name)


@pytest.mark.parametrize("T", range(18))
@pytest.mark.parametrize("first", [0, 3])
def test_task_3_any_number_of_rows_is_cut_into_tiles(lab, multiply, monkeypatch, first, T):
    product = Product.random(first + T + 1, 48, 32, 4)
    last, where = first + T, (slice(first, first + T), slice(16, 32))
    out = product.out(True, where)
    weight, x = product.weight(lab, 1), product.memory(lab, first, last)
    tiles, inner = [], multiply.multiply_tile

    def noting(weight: Any, block: Any, x: Any, row: Any, rows: Any, add: Any, out: Any) -> None:
        tiles.append((row, rows))
        as_python(inner, weight, block, x, row, rows, add, out)

    with monkeypatch.context() as patches:
        patches.setattr(multiply, "multiply_tile", noting)
        as_python(multiply.multiply_block, weight, 1, x, first, last, True, out)
    covered = sorted(row + i for row, rows in tiles for i in range(rows))
    name = f"rows {first} … {last - 1}" if T else "no rows"
    check_equal(covered, list(range(first, last)), name=f"the rows that the tiles of {name} take")
    wanted = [8] * (T // 8) + [size for size in (4, 2, 1) if T & size]
    check_equal(sorted((rows for _, rows in tiles), reverse=True), wanted, name=f"the tiles of {name}")
    if T:
        product.check(out, True, where, name=f"{name} times block 1")


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
@pytest.mark.parametrize("T", [0, 1, 5, 13])
def test_task_3_workers_share_the_blocks_and_no_memory(lab, multiply, T, workers):
    product = Product.random(T + 1, 80, 64, 4)
    where = slice(0, T), slice(None)
    out, x = product.out(False, where), product.memory(lab, 0, T)
    run_as_python(multiply.multiply, product.weight(lab), x, T, False, workers, out, deep=True)
    product.check(out, False, where, name=f"{plural(T, 'row')} times 5 blocks by {plural(workers, 'worker')}")


@pytest.mark.parametrize(("blocks", "workers"), [(5, 1), (7, 4), (6, 3), (3, 8)])
def test_task_3_each_worker_takes_neighboring_blocks_and_about_as_many_as_others(
    lab, multiply, monkeypatch, blocks, workers
):
    for T in (3, multiply.AT_A_TIME + 1, 2 * multiply.AT_A_TIME):
        check_shares(tiles_of_workers(lab, monkeypatch, blocks, T, workers), blocks, T, workers)


def test_task_3_some_rows_go_through_all_blocks_of_a_worker_before_the_next_rows(lab, multiply, monkeypatch):
    T = 2 * multiply.AT_A_TIME + 13
    check_order(tiles_of_workers(lab, monkeypatch, 5, T, 2), multiply.AT_A_TIME)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("add", [False, True])
def test_task_3_rows_beyond_those_that_are_counted_are_left_alone(lab, multiply, add, bits):
    product = Product.random(11, 48, 96, bits)
    where = slice(0, 6), slice(None)
    out, x = product.out(add, where), product.memory(lab, 0, 6)
    run_as_python(multiply.multiply, product.weight(lab), x, 6, add, 2, out, deep=True)
    product.check(out, add, where, name="6 rows where there is room for 13")


def test_task_3_more_rows_than_are_taken_at_a_time(lab, multiply, monkeypatch):
    monkeypatch.setattr(multiply, "AT_A_TIME", 4, raising=False)
    product = Product.random(11, 48, 32, 4)
    where = slice(0, 11), slice(None)
    out = product.out(True, where)
    arguments = product.weight(lab), product.memory(lab), 11, True, 2, out
    run_as_python(multiply.multiply, *arguments, deep=True)
    product.check(out, True, where, name="11 rows, of which 4 are taken at a time")


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("add", [False, True])
def test_task_3_a_row_comes_out_the_same_among_any_number_of_others(lab, multiply, add, bits):
    product = Product.random(17, 16, 160, bits)
    for T in (1, 2, 3, 7, 8, 12, 17):
        check_alone(lab, product, T, add, as_python)


def call_compiled(kernel: Any, *arguments: Any) -> None:
    kernel(*arguments)


def test_task_3_compiled_a_row_comes_out_the_same_among_any_number_of_others(lab, multiply):
    for bits in (4, 8):
        product = Product.random(17, 48, 160, bits)
        for T in (1, 2, 5, 8, 15, 17):
            check_alone(lab, product, T, True, call_compiled)


@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize("bits", [4, 8])
def test_task_3_compiled_the_product_is_the_same_to_the_last_bit(lab, multiply, bits, add):
    product = Product.random(15, 48, 96, bits)
    where = slice(0, 15), slice(None)
    weight, x = product.weight(lab), product.memory(lab)
    compiled, plain = product.out(add, where), product.out(add, where)
    multiply.multiply(weight, x, 15, add, 2, compiled)
    run_as_python(multiply.multiply, weight, x, 15, add, 2, plain, deep=True)
    product.check(compiled, add, where, name="15 rows, compiled")
    assert compiled.tobytes() == plain.tobytes(), (
        "compiled, the numbers aren't those of Python to the last bit"
    )


def test_task_3_compiled_more_rows_than_are_taken_at_a_time(lab, multiply):
    product = grow(Product.random(13, 16, 32, 4), 40)
    where = slice(0, product.T), slice(None)
    out = product.out(False, where)
    multiply.multiply(product.weight(lab), product.memory(lab), product.T, False, 3, out)
    product.check(out, False, where, name=f"{product.T} rows, compiled")


# Task 4: small operations, fused


WIDTHS = (64, 96, 160)
HEADS = ((3, 1, 64), (4, 2, 32), (2, 2, 128))


@pytest.fixture
def small(lab):
    return lab.fast.small


@pytest.mark.parametrize(("width", "start"), [(32, 0), (64, 5), (96, 96), (128, 33), (48, 7), (16, 1)])
def test_task_4_the_root_mean_square_of_some_numbers_among_others(small, width, start):
    check_root(small, random_numbers(521, width) * 3, start, 0.25, f"{width} numbers from x[{start}] on")


@pytest.mark.parametrize(("size", "eps"), [(1e15, 1e-5), (1e-3, 1e-5), (1e-12, 1e-6), (0.0, 1e-5)])
def test_task_4_the_root_mean_square_of_numbers_of_any_size(small, size, eps):
    check_root(small, random_numbers(522, 96) * size, 16, eps, f"96 numbers of about {size:g}")


def test_task_4_each_of_the_numbers_counts_in_the_root_mean_square(small):
    for place in range(64):
        one = np.zeros(64)
        one[place] = 8.0
        check_root(small, one, 3, 0.0, f"64 numbers that are 0 but for number {place}, which is 8")


@pytest.mark.parametrize("width", WIDTHS)
def test_task_4_a_row_is_normalized(small, width):
    check_normalize(small, width)


@pytest.mark.parametrize("below", [1.0, 0.01, 87.0])
def test_task_4_exponentials_are_exact_to_almost_seven_digits(lab, below):
    check_exponentials(lab, np.linspace(-below, below, 4000))


def test_task_4_the_exponential_of_0_is_1(lab):
    found = exponentials(lab, np.array([0.0, -0.0]))
    check_numpy(found, np.ones(2), name="the exponentials of 0 and −0", rtol=0, atol=0)


def test_task_4_exponentials_beyond_both_ends_stay_there(lab):
    check_ends(lab)


@pytest.mark.parametrize("width", WIDTHS)
def test_task_4_sixteen_numbers_of_the_gate_meet_those_of_up(small, width):
    check_gate_16(small, random_numbers(531, 16) * 3, random_numbers(532, 16), width)


@pytest.mark.parametrize("width", WIDTHS)
def test_task_4_a_row_of_gate_and_up(small, width):
    gate, up = random_numbers(533, width) * 3, random_numbers(534, width)
    check_gate_row(small, gate, up, f"{width} numbers")


def test_task_4_large_gates_do_no_harm(small):
    gate = np.linspace(-1e4, 1e4, 64)
    check_gate_row(small, gate, random_numbers(535, 64) * 100, "gates from −10,000 to 10,000")


def test_task_4_rows_of_either_kind_are_left_to_put_group(lab):
    check_either_kind(lab)


@pytest.mark.parametrize("D", [32, 64, 128])
@pytest.mark.parametrize(("start", "at"), [(0, 0), (7, 40), (96, 3)])
def test_task_4_a_head_is_turned_by_the_angles_of_its_token(small, D, start, at):
    check_rotate(small, D, start, at)


@pytest.mark.parametrize("norms", NORMS)
@pytest.mark.parametrize("shape", HEADS, ids=str)
def test_task_4_a_token_is_split_into_queries_keys_and_values(lab, shape, norms):
    check_split(lab, shape, NORMS[norms])


def test_task_4_a_row_comes_out_the_same_to_the_last_bit_wherever_it_stands(lab):
    check_anywhere(lab)


def test_task_4_the_compiled_kernels_give_the_same_as_python_to_the_last_bit(lab):
    check_compiled(lab)


# Task 5: attention in tiles


counts = pytest.mark.parametrize("count", COUNTS)
head_sizes = pytest.mark.parametrize("D", [32, 64, 128])
four_or_eight = pytest.mark.parametrize(("row", "rows"), [(0, 4), (4, 8), (8, 4)])


@pytest.fixture
def page_tiles(lab):
    return lab.fast.page_tiles


@counts
@pytest.mark.parametrize("P", [1, 3, 16, 24])
@pytest.mark.parametrize(("start", "D"), [(0, 64), (64, 128), (37, 32)])
def test_task_5_each_token_of_a_tile_is_found_in_its_page(page_tiles, P, D, start, count):
    check_find(page_tiles, P, D, start, start + count)


@counts
@head_sizes
def test_task_5_keys_lie_side_by_side_in_their_tile(page_tiles, count, D):
    check_keys(page_tiles, count, D)


@counts
@head_sizes
def test_task_5_values_lie_one_behind_the_other_in_their_tile(page_tiles, count, D):
    check_values(page_tiles, count, D)


@counts
@four_or_eight
def test_task_5_each_query_is_multiplied_by_each_key(lab, row, rows, count):
    check_scores(lab, row, rows, count, 64)


@head_sizes
def test_task_5_scores_of_heads_of_any_size(lab, D):
    check_scores(lab, 0, 4, 50, D)


def test_task_5_a_score_is_the_same_to_the_last_bit_beside_any_others(lab):
    check_same_scores(lab, 64)


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize(
    ("seen", "count"), [(1, 1), (1, 64), (15, 16), (16, 17), (17, 31), (33, 33), (64, 64)]
)
def test_task_5_scores_become_weights_and_keys_that_are_not_seen_get_0(lab, seen, count, before):
    scores = random_numbers(591, count) * 3
    where = f"with {seen} of {count} keys seen after {before}"
    check_fold_row(lab, scores, seen, BEFORE[before], where)


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("seen", [0, -1, -16, -300])
def test_task_5_a_query_that_sees_nothing_of_a_tile_stays_as_it_is(lab, seen, before):
    for behind in (np.nan, 50.0):
        where = f"with seen = {seen} after {before}, all scores {behind:g}"
        check_fold_row(lab, np.zeros(33), seen, BEFORE[before], where, behind=behind)


@pytest.mark.parametrize("behind", [1e30, np.inf, -np.inf])
def test_task_5_the_scores_of_keys_that_are_not_seen_mean_nothing(lab, behind):
    scores, before = random_numbers(592, 40), BEFORE["a lower peak"]
    check_fold_row(lab, scores, 18, before, f"with {behind} behind the 18 keys seen", behind=behind)


@pytest.mark.parametrize("place", [0, 1, 15, 16, 40, 62])
def test_task_5_the_highest_score_may_be_that_of_any_key(lab, place):
    scores = random_numbers(593, 63)
    scores[place] = 50.0
    check_fold_row(lab, scores, 63, BEFORE["a lower peak"], f"where score {place} is the highest")


@pytest.mark.parametrize("shift", [-2e4, -80.0, 80.0, 2e4])
@pytest.mark.parametrize("D", [32, 128])
def test_task_5_only_the_differences_of_scores_count(lab, shift, D):
    scores = np.linspace(-3, 3, 33).astype(np.float32) + np.float32(shift)
    before = Before(float(scores[7]), 2.0)
    check_fold_row(lab, scores, 33, before, f"of scores near {shift:g}", D)
    check_fold_row(lab, scores, 33, BEFORE["nothing"], f"of scores near {shift:g}, the first ones", D)


@counts
@four_or_eight
def test_task_5_values_are_added_to_what_was_gathered(lab, row, rows, count):
    check_add(lab, row, rows, count, 64)


@head_sizes
def test_task_5_values_of_heads_of_any_size(lab, D):
    check_add(lab, 0, 4, 18, D)


@pytest.mark.parametrize("peak", [5, 70], ids=["the first", "the second"])
@pytest.mark.parametrize("seen", [None, -2, 0, 1, 20, 90])
def test_task_5_of_two_tiles_either_may_have_the_peak(lab, peak, seen):
    where = (
        f"after two tiles, the peak at key {peak}, of the second tile the first token sees {seen or 'all'}"
    )
    check_two_tiles(lab, peak, 23, 2, seen, where)


SOME: dict[str, tuple[list[tuple[int, int]], int, tuple[int, int, int]]] = {
    "a decode, a prompt, a chunk": ([(67, 1), (5, 5), (20, 3)], 3, (2, 3, 32)),
    "keys up to the edge of a tile": ([(64, 2), (65, 1), (129, 1)], 16, (1, 2, 64)),
}


@pytest.mark.parametrize("case", SOME)
def test_task_5_a_step_as_python(lab, case):
    lengths, P, sizes = SOME[case]
    check_attend(lab, step_of(594, lengths, P, sizes), python=True)


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "not causal"])
@pytest.mark.parametrize("P", [1, 3, 16, 24], ids=lambda P: f"pages of {P}")
@pytest.mark.parametrize("case", CASES)
def test_task_5_any_step_compiled(lab, case, P, causal):
    check_attend(lab, step_of(595, CASES[case](P), P, (2, 3, 32)), causal=causal)


@pytest.mark.parametrize("sizes", [(1, 1, 128), (3, 1, 64), (1, 9, 64), (2, 4, 96)], ids=str)
def test_task_5_heads_of_any_number_and_size_compiled(lab, sizes):
    lengths = [(300, 1), (130, 66), (63, 63), (64, 64), (65, 2)]
    check_attend(lab, step_of(596, lengths, 16, sizes), workers=3)


@pytest.mark.parametrize("scale", [30.0, -30.0])
def test_task_5_large_scores_do_no_harm_compiled(lab, scale):
    # Scores of some hundreds, which float32 rounds at about 1e-5.
    check_attend(lab, step_of(597, [(200, 3), (9, 9)], 3, (2, 2, 32), scale=scale), rtol=1e-3)


def test_task_5_a_token_comes_out_the_same_to_the_last_bit_alone_as_beside_others(lab):
    check_company(lab, [(70, 70), (130, 5), (33, 1), (64, 9)], 16, (2, 3, 64))


# Task 6: the block and the model


@families
def test_task_6_before_attention_gives_rotated_queries_and_keys_and_values(lab, family):
    check_before(lab, SmallModel(family), seed=601)


def test_task_6_after_attention_adds_both_products_to_the_stream(lab):
    check_after(lab, SmallModel("plain"), seed=601)


def test_task_6_what_attention_gave_may_lie_outside_of_the_room(lab):
    check_after(lab, SmallModel("plain"), seed=601, elsewhere=True, behind_x=7.0)


def test_task_6_all_parts_of_both_kernels_are_spread_over_the_workers(lab, monkeypatch):
    monkeypatch.setattr(
        lab.fast.small, "FEW", 0
    )  # so that small operations are spread for any number of tokens
    check_spread(lab, SmallModel("plain"))


def test_task_6_a_step_is_given_as_arrays_with_its_tasks(lab):
    meta, most = meta_of(lab), lab.fast.tiled_attention.QUERIES
    for heads, group in ((HKV, QUERIES_PER_HEAD), (3, 100)):
        step = kept_step_of(lab.fast.attend.TiledAttention(), meta, heads, group)
        check_arrays(lab, step, meta)
        check_tasks(step, LENGTHS, heads, group, most)


def test_task_6_the_steps_that_layers_ask_for_in_turn_are_made_once(lab):
    attention, metas = lab.fast.attend.TiledAttention(), [meta_of(lab, seed=seed) for seed in range(4)]
    for seed in range(6):
        kept_step_of(attention, meta_of(lab, seed=10 + seed))
    first = [kept_step_of(attention, meta) for meta in metas]
    for step, meta in zip(first, metas, strict=True):
        check_arrays(lab, step, meta)
    for layer in range(2, 4):
        for number, (step, meta) in enumerate(zip(first, metas, strict=True)):
            again = kept_step_of(attention, meta) is step
            assert again, (
                f"after other steps, layer {layer} asks for step {number} of 4, and it is made anew: the newest "
                "4 are kept"
            )


def test_task_6_other_heads_get_other_tasks(lab):
    attention, meta = lab.fast.attend.TiledAttention(), meta_of(lab)
    for heads, group in ((2, 3), (3, 2), (2, 200), (3, 3)):
        found = kept_step_of(attention, meta, heads, group)
        check_tasks(found, LENGTHS, heads, group, lab.fast.tiled_attention.QUERIES)


def test_task_6_steps_that_have_numbers_in_common_are_told_apart(lab):
    check_told_apart(lab, lab.fast.attend.TiledAttention())


def test_task_6_new_metadata_are_never_taken_for_old_ones(lab):
    check_newest_is_right(lab, lab.fast.attend.TiledAttention())


def test_task_6_of_the_steps_before_only_a_few_are_kept(lab):
    alive = count_alive(lab, lab.fast.attend.TiledAttention())
    assert alive <= 4, f"after 12 steps, {alive} are kept: only the newest 4 can be asked for again"


@pytest.mark.parametrize("shape", [(5, 64), (2, 3, 64), (64,), (0, 64)], ids=str)
def test_task_6_the_head_takes_two_rows_in_8_bits_for_one(lab, shape):
    check_head(lab, np.random.default_rng(620).normal(size=shape).astype(np.float32))


def test_task_6_the_head_takes_other_dtypes_and_arrays_that_lie_in_pieces(lab):
    x = np.random.default_rng(621).normal(size=(64, 3)).astype(np.float32)
    for dtype in ("bfloat16", "float32"):
        check_head(lab, x.T, lab.array(x, dtype).T)


def test_task_6_what_the_head_gave_stays_as_it_is(lab):
    check_results_are_kept(lab)


def test_task_6_the_head_multiplies_all_rows_at_once_on_all_threads(lab):
    check_one_product(lab, workers=3, tokens=5)


@families
def test_task_6_accelerate_leaves_the_model_as_it_is(lab, family):
    model = SmallModel(family).model(lab)
    before, blocks, logits = dict(vars(model)), list(model.blocks), lab.numpy(run(lab, model, IDS))
    fast = fast_of(lab, model)
    assert fast is not model, "the model itself came back: the fast one is another object"
    changed = [name for name, value in before.items() if vars(model).get(name) is not value]
    assert not changed, f"of the model that was given, this was exchanged: {', '.join(changed)}"
    added = vars(model).keys() - before.keys()
    assert not added, f"the model that was given has got something new: {', '.join(sorted(added))}"
    assert all(map(operator.is_, model.blocks, blocks)), "the blocks were exchanged in the model's own list"
    check(
        run(lab, model, IDS),
        logits,
        name="the logits of the model that was given, afterwards",
        rtol=0,
        atol=0,
    )


@families
def test_task_6_accelerate_exchanges_blocks_and_embedding_and_head(lab, family):
    model = SmallModel(family).model(lab)
    fast = fast_of(lab, model)
    assert isinstance(fast, type(model)), f"a {type(fast).__name__} came back, not a {type(model).__name__}"
    kinds = [type(part).__name__ for part in (*fast.blocks, fast.embedding, fast.head)]
    check_equal(
        kinds, ["Block8", "Block8", "Embedding8", "Linear8"], name="the kinds of blocks, embedding, head"
    )
    shared = [name for name in ("config", "rope", "norm") if getattr(fast, name) is not getattr(model, name)]
    assert not shared, f"not exchanged are config, rope and norm; these are others: {', '.join(shared)}"
    rooms = [block.rooms for block in fast.blocks]  # all of them there at a time, so that no two have one id
    count = len(set(map(id, rooms)))
    assert count == 1, f"{len(rooms)} blocks have {count} Rooms: one is enough for all"
    same = fast.head.weight.records is fast.embedding.table.records
    if model.config.tied_embeddings:
        assert same, "the head of tied embeddings is laid out a second time: it takes the embedding's table"
    else:
        assert not same, "the model has a head of its own, and the fast one took the embedding's table for it"


@families
def test_task_6_the_fast_model_gives_the_logits_of_the_same_weights(lab, family):
    small = SmallModel(family)
    fast = uncompiled(fast_of(lab, small.model(lab)))
    logits = run(lab, fast, IDS)
    check_logits(lab, logits, small, IDS, "without a cache")
    check_rounding(lab, logits, small, IDS)


def test_task_6_what_is_laid_out_already_stays(lab):
    model = SmallModel("biases").model(lab)
    fast, ready = fast_of(lab, model), copied(model)
    ready.embedding, ready.head = fast.embedding, fast.head
    again = fast_of(lab, ready)
    assert again.embedding is fast.embedding, "the embedding is an Embedding8 already, and was made anew"
    assert again.head is fast.head, "the head beside an Embedding8 was made anew"
    ready.head = model.head
    again = fast_of(lab, ready)
    assert again.head is model.head, "the head beside an Embedding8 was exchanged: it stays, of whatever kind"
    assert again.embedding is fast.embedding, "the embedding is an Embedding8 already, and was made anew"


def test_task_6_what_the_kernels_cannot_do_is_refused(lab):
    model = SmallModel("plain").model(lab)
    fast = fast_of(lab, model)
    check_raises(ValueError, lambda: lab.fast.accelerate.accelerate(fast), match="only once")


@families
def test_task_6_compiled_it_gives_these_logits_with_dense_caches(lab, family):
    small = SmallModel(family)
    fast = fast_of(lab, small.model(lab))
    check_logits(lab, run_in_two(lab, fast, IDS, full_caches(lab)), small, IDS, "with a cache, in two calls")
    check_rows(lab, fast, small)


@families
def test_task_6_compiled_it_gives_these_logits_on_pages(lab, family):
    small = SmallModel(family)
    check_pages(lab, fast_of(lab, small.model(lab)), small)


def test_task_6_compiled_a_sequence_on_pages_gets_the_same_alone_and_beside_others(lab):
    check_company_of_model(lab, fast_of(lab, SmallModel("norms of the heads").model(lab)))
