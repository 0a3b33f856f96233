"""Day NEW_NAME: the running mean, of a whole sequence and in parts."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from shared.arguments import check_leaves_alone, float_dtypes
from shared.numbers import normal

from coursekit.check import check, check_equal, check_shape

Suspects = dict[str, Callable[[], np.ndarray]]


def means(x: np.ndarray) -> np.ndarray:
    """[..., L, E] → [..., L, E]: row i is the mean of the rows 0 … i, added up one by one."""
    out = np.zeros_like(x)
    for i in range(x.shape[-2]):
        out[..., i, :] = sum(x[..., j, :] for j in range(i + 1)) / (i + 1)
    return out


def suspects(x: np.ndarray) -> Suspects:
    """The results of the usual mistakes in the running mean."""
    L, E = x.shape[-2:]
    return {
        "the sum is not divided": lambda: x.cumsum(axis=-2),
        "each row is divided by the number of all tokens": lambda: x.cumsum(axis=-2) / L,
        "the mean runs over the numbers of a vector, not over the tokens": lambda: (
            x.cumsum(axis=-1) / np.arange(1, E + 1)
        ),
    }


def suspects_in_parts(x: np.ndarray, cut: int) -> Suspects:
    """The results of the usual mistakes in the second of two parts, which begins at row ``cut``."""
    past, part = x[..., :cut, :].sum(axis=-2, keepdims=True), x[..., cut:, :]
    rows = np.arange(1, part.shape[-2] + 1)[:, None]
    return {
        "the tokens of earlier parts are forgotten": lambda: means(part),
        "the sum of earlier parts is left out, though their tokens are counted": lambda: (
            part.cumsum(axis=-2) / (cut + rows)
        ),
        "the count begins anew with each part, though the sum goes on": lambda: (
            (past + part.cumsum(axis=-2)) / rows
        ),
        "a part counts as one token, not as the tokens that it has": lambda: (
            (past + part.cumsum(axis=-2)) / (1 + rows)
        ),
    }


def running_mean(lab: Any, x: np.ndarray, dtype: str = "float32") -> Any:
    """The learner's running mean of a NumPy array."""
    return lab.NEW_MODULE.running_mean(lab.array(x, dtype))


def in_parts(lab: Any) -> Any:
    """The learner's running mean of a sequence that is about to come in parts."""
    return lab.NEW_MODULE.RunningMean()


@pytest.mark.parametrize("shape", [(5, 8), (1, 8), (2, 3, 7, 4)], ids=["L E", "1 E", "B H L D"])
def test_task_1_each_row_is_the_mean_of_itself_and_of_those_before(lab, shape):
    x = normal(511, *shape)
    check(running_mean(lab, x), means(x), name="the running mean", suspects=suspects(x))


def test_task_1_three_tokens_worked_by_hand(lab):
    x = np.array([[1.0, 2.0], [3.0, 0.0], [8.0, 1.0]])
    expected = np.array([[1.0, 2.0], [2.0, 1.0], [4.0, 1.0]])
    check(running_mean(lab, x), expected, name="the running mean", axes="L E", suspects=suspects(x))


def test_task_1_a_later_token_leaves_no_trace_in_earlier_rows(lab):
    x = normal(512, 5, 8)
    x[3:] = np.nan
    found = lab.numpy(running_mean(lab, x))
    check_equal(np.isnan(found).any(axis=-1).tolist(), [False] * 3 + [True] * 2, name="rows with a NaN")


def test_task_1_sums_of_large_numbers_fit_though_the_dtype_is_small(lab):
    found = running_mean(lab, np.full((3, 2), 40000.0), "float16")
    check(found, np.full((3, 2), 40000.0), name="the running mean", dtype="float16")


def test_task_1_the_result_has_the_dtype_of_x(lab):
    for dtype in float_dtypes(lab):
        found = running_mean(lab, normal(513, 5, 8), dtype)
        check_equal(lab.dtype(found), dtype, name="the dtype of the result")


def test_task_1_no_tokens_have_no_means(lab):
    check_shape(running_mean(lab, np.zeros((2, 0, 8))), (2, 0, 8), name="the running mean", axes="B L E")


def test_task_1_x_is_left_as_it_was(lab):
    check_leaves_alone(lab, lab.NEW_MODULE.running_mean, x=normal(514, 5, 8))


@pytest.mark.parametrize("cut", [1, 3, 6])
def test_task_2_two_parts_give_what_the_whole_gives(lab, cut):
    x = normal(521, 2, 7, 8)
    part = in_parts(lab)
    first, second = (part(lab.array(x[:, rows])) for rows in (slice(cut), slice(cut, None)))
    check(first, means(x)[:, :cut], name="the means of the first part", suspects=suspects(x[:, :cut]))
    wrong = suspects_in_parts(x, cut)
    check(second, means(x)[:, cut:], name="the means of the second part", suspects=wrong)


def test_task_2_a_part_without_tokens_changes_nothing(lab):
    x = normal(522, 4, 8)
    part = in_parts(lab)
    for rows in (slice(0, 0), slice(0, 2), slice(2, 2)):
        check_shape(part(lab.array(x[rows])), x[rows].shape, name="the means of a part", axes="L E")
    check(part(lab.array(x[2:])), means(x)[2:], name="the means of the last part")


def test_task_2_two_sequences_know_nothing_of_each_other(lab):
    x = normal(523, 3, 8)
    one, other = in_parts(lab), in_parts(lab)
    one(lab.array(x * 2 + 1))
    check(other(lab.array(x)), means(x), name="the means of the second sequence")


def test_task_2_the_result_has_the_dtype_of_x(lab):
    for dtype in float_dtypes(lab):
        found = in_parts(lab)(lab.array(normal(524, 5, 8), dtype))
        check_equal(lab.dtype(found), dtype, name="the dtype of the result")


def test_task_2_x_is_left_as_it_was(lab):
    def call(x: Any) -> None:
        part = in_parts(lab)
        part(x)
        part(x)

    check_leaves_alone(lab, call, x=normal(525, 5, 8))
