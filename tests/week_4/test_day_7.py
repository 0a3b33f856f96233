"""Day 4.7: weights and activations in 8 bits and less, in registers, and a block that is one kernel."""

from __future__ import annotations

import numpy as np
import pytest
from week_2.decode_checks import check_numpy
from week_2.decode_oracle import random_numbers
from week_3.ragged import CASES

from .folded_rows import BEFORE, Before, check_fold_row
from .key_tiles import COUNTS, check_find, check_keys, check_values
from .online_softmax import check_add, check_same_scores, check_scores
from .small_compiled import (
    check_anywhere,
    check_compiled,
    check_ends,
    check_exponentials,
    check_gate_16,
    exponentials,
)
from .small_operations import check_gate_row, check_normalize, check_root
from .split_heads import NORMS, check_rotate, check_split
from .tiled_steps import check_attend, check_company, check_two_tiles, step_of

# Task 1: weights laid out


# Task 2: activations in 8 bits


# Task 3: the multiplication


# Task 4: small operations, fused


WIDTHS = (64, 96, 160)
HEADS = ((3, 1, 64), (4, 2, 32), (2, 2, 128))


@pytest.fixture
def small(lab):
    return lab.fast.small


@pytest.mark.parametrize(("width", "start"), [(32, 0), (64, 5), (96, 96), (128, 33), (160, 320)])
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


@pytest.mark.parametrize("below", [0.01, 1.0, 87.0])
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
    check_fold_row(lab, np.zeros(33), seen, BEFORE[before], f"with seen = {seen} after {before}")


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
