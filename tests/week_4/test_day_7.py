"""Day 4.7: weights and activations in 8 bits and less, in registers, and a block that is one kernel."""

from __future__ import annotations

import numpy as np
import pytest
from week_2.decode_checks import check_numpy
from week_2.decode_oracle import random_numbers

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


# Task 6: the block and the model
