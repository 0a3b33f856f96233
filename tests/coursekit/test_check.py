"""A failing comparison says in plain words where a result parts from the expected one."""

import re

import numpy as np
import pytest

from coursekit.arrays import make_array
from coursekit.check import (
    CheckFailed,
    check,
    check_allowed,
    check_equal,
    check_raises,
    check_shape,
    check_untouched,
)

RNG = np.random.default_rng(7)
EXPECTED = RNG.normal(size=(2, 6, 5, 8))


def complaint(actual, expected, **options):
    """What `check` says, with NumPy standing in for a backend."""
    with pytest.raises(CheckFailed) as failed:
        check(actual, expected, **{"name": "the output", "framework": "numpy", **options})
    return str(failed.value)


def float32(array):
    return np.asarray(array, dtype=np.float32)


def test_the_right_result_passes(lab):
    check(lab.array(EXPECTED), EXPECTED, axes="B H L D")
    check(lab.array([[1, 2]]), np.array([[1, 2]]))
    check(lab.array([True, False]), np.array([True, False]))
    check((lab.array(EXPECTED), lab.array(-EXPECTED)), (EXPECTED, -EXPECTED))


def test_none_is_the_first_thing_to_be_told():
    assert (
        complaint(None, EXPECTED) == "the output: None found, a NumPy array expected; is a `return` missing?"
    )


def test_an_array_of_another_kind_is_named(lab):
    with pytest.raises(CheckFailed, match=r"a torch tensor expected, a NumPy array found$"):
        check(float32(EXPECTED), EXPECTED)
    with pytest.raises(CheckFailed, match=r"a torch tensor expected, a list found$"):
        check([1.0], [1.0])
    with pytest.raises(CheckFailed, match=r"a NumPy array expected, a torch tensor found$"):
        check(lab.array(EXPECTED), EXPECTED, framework="numpy")


def test_the_axis_whose_size_differs_is_named():
    text = complaint(float32(EXPECTED[:, :2]), EXPECTED, axes="B H L D")
    assert "shape [2, 6, 5, 8] (B, H, L, D) expected, [2, 2, 5, 8] found" in text
    assert "axis H: 6 expected, 2 found" in text
    assert "axis B" not in text
    assert "axis 1: 6 expected, 2 found" in complaint(float32(EXPECTED[:, :2]), EXPECTED)


def test_a_missing_axis_shows_in_the_shape_alone():
    text = complaint(float32(EXPECTED[0]), EXPECTED, axes="B H L D")
    assert "shape [2, 6, 5, 8] (B, H, L, D) expected, [6, 5, 8] found" in text
    assert "axes" not in text


@pytest.mark.parametrize(
    ("number", "said"),
    [(np.float32(0), "0.0"), (np.float32(0.25), "0.25"), (np.int64(0), "0"), (np.False_, "False")],
)
def test_one_number_everywhere_is_told_as_what_it_is_and_not_as_a_cause(number, said):
    expected = np.arange(12).reshape(3, 4).astype(number.dtype)
    text = complaint(np.full_like(expected, number), expected, dtype=None)
    assert text.endswith(f"\n  every value found is {said}")
    assert "every value found" not in complaint(expected[::-1].copy(), expected, dtype=None)
    assert "every value found" not in complaint(
        np.full_like(expected, number), np.ones_like(expected), dtype=None
    )


def test_a_float64_is_told_before_its_values():
    text = complaint(EXPECTED + 1, EXPECTED)
    assert text.startswith("the output: dtype float32 expected, float64 found")
    assert "likely cause: NumPy computes in float64 unless told otherwise" in text
    check(EXPECTED, EXPECTED, dtype=None, framework="numpy")


def test_integers_may_be_of_any_size_unless_one_is_asked_for():
    check(np.array([1, 2], dtype=np.int32), np.array([1, 2]), framework="numpy")
    assert "dtype int64 expected, int32 found" in complaint(
        np.array([1, 2], dtype=np.int32), np.array([1, 2]), dtype="int64"
    )
    assert "dtype integer expected, float32 found" in complaint(float32([1, 2]), np.array([1, 2]))
    assert "dtype bool expected, int64 found" in complaint(np.array([1, 0]), np.array([True, False]))


def test_nan_is_counted_and_placed():
    actual = float32(EXPECTED)
    actual[1, 2, 3, :2] = np.nan
    text = complaint(actual, EXPECTED, axes="B H L D")
    assert "2 of 480 values are NaN" in text
    assert "the first at [B=1, H=2, L=3, D=0]" in text


def test_expected_infinities_are_equal_to_themselves_and_others_are_told():
    mask = np.array([[0.0, -np.inf], [0.0, 0.0]])
    check(float32(mask), mask, framework="numpy")
    masked = float32(np.where(mask < 0, -5, mask))
    assert "1 of 4 values is finite and should be infinite" in complaint(masked, mask)
    text = complaint(float32(-mask + 0.0), mask)
    assert "1 of 4 values is infinite with the wrong sign" in text
    assert "the first at [0, 1]: -inf expected, inf found" in text
    text = complaint(float32([[-np.inf, -np.inf], [0, np.inf]]), mask)
    assert "2 of 4 values are infinite and should not be" in text


def test_the_worst_value_is_placed_and_the_wrong_ones_counted():
    actual = float32(EXPECTED)
    actual[0, 5, 4, 7] += 0.25
    actual[1, 0, 0, 1] -= 3.5
    text = complaint(actual, EXPECTED, axes="B H L D")
    assert "2 of 480 values differ" in text
    assert "the worst at [B=1, H=0, L=0, D=1]" in text
    found, expected = float(actual[1, 0, 0, 1]), EXPECTED[1, 0, 0, 1]
    assert f"{expected:.7g} expected, {found:.7g} found" in text
    assert "largest error: 3.5, among values of up to" in text


def test_half_precision_has_tolerances_of_its_own(lab):
    check(lab.array(EXPECTED, "bfloat16"), EXPECTED, dtype="bfloat16")
    check(lab.array(EXPECTED, "float16"), EXPECTED, dtype="float16")
    with pytest.raises(CheckFailed, match="values differ"):
        check(lab.array(lab.numpy(lab.array(EXPECTED, "bfloat16"))), EXPECTED)


def test_a_wrong_integer_is_placed():
    assert complaint(np.array([4, 5, 6]), np.array([4, 7, 6])) == (
        "the output: 1 of 3 values differs\n  the first at [1]: 7 expected, 5 found"
    )


def test_a_tuple_is_checked_part_by_part():
    parts = (EXPECTED, -EXPECTED)
    assert "a tuple of 2 expected, a NumPy array found" in complaint(float32(EXPECTED), parts)
    assert "a tuple of 2 expected, one of 1 found" in complaint((float32(EXPECTED),), parts)
    both = (float32(EXPECTED), float32(EXPECTED))
    assert complaint(both, parts).startswith("the output[1]: ")
    assert complaint(both, parts, name=("cos", "sin")).startswith("sin: ")
    assert complaint(None, parts, name=("cos", "sin")).startswith("(cos, sin): None found, a tuple expected")
    doubled = {"sin is doubled": (EXPECTED, -2 * EXPECTED)}
    found = (float32(EXPECTED), float32(-2 * EXPECTED))
    assert complaint(found, parts, suspects=doubled).endswith("likely cause: sin is doubled")
    assert complaint(found, parts, suspects={"doubled": lambda: (EXPECTED, -2 * EXPECTED)}).endswith(
        "likely cause: doubled"
    )


def test_a_single_number_has_no_place_to_name():
    text = complaint(float32(2.5), np.asarray(2.0))
    assert text.startswith(
        "the output: the value differs by more than rtol 1e-05, atol 1e-06\n  2 expected, 2.5 found"
    )


def test_a_result_that_a_test_computes_with_has_its_shape_first(lab):
    copy = check_shape(lab.array(EXPECTED), EXPECTED.shape)
    assert np.array_equal(copy, float32(EXPECTED))
    with pytest.raises(CheckFailed, match=r"the angles: None found, a torch tensor expected"):
        check_shape(None, (2, 3), name="the angles")
    with pytest.raises(
        CheckFailed, match=r"the angles: shape \[2, 3\] \(B, L\) expected, \[2, 4\] found\n  axis L"
    ):
        check_shape(lab.array(np.zeros((2, 4))), (2, 3), name="the angles", axes="B L")
    with pytest.raises(CheckFailed, match="a torch tensor expected, a NumPy array found"):
        check_shape(EXPECTED, EXPECTED.shape)


def test_a_plain_value_is_not_an_array(lab):
    check(3, 3)
    check(0.1 + 0.2, 0.3)
    with pytest.raises(CheckFailed, match=r"an int expected, a torch tensor found: tensor\(3\)"):
        check(lab.array(3), 3)
    with pytest.raises(CheckFailed, match="an int expected, a bool found"):
        check(True, 1)
    with pytest.raises(CheckFailed, match=r"2 expected, 2\.5 found"):
        check(2.5, 2.0)


@pytest.mark.parametrize(
    ("actual", "expected", "says"),
    [
        (
            [1, 2, 9],
            [1, 2, 3],
            "1 of 3 items differs; the first at index 2: 3 expected, 9 found",
        ),
        ([7], [3], "the item differs; 3 expected, 7 found"),
        ([1, 2], [1, 2, 3], "3 items expected, 2 found"),
        ([1, 2], [1], "1 item expected, 2 found"),
        ((1, 2), [1, 2], "a list expected, a tuple found"),
        (None, [1], "None found"),
        ("the cut sat", "the cat sat", "the texts part at character 5"),
        ("the cat", "the cat sat", "the texts part at character 7"),
        ({"a": 1, "c": 2}, {"a": 1, "b": 2}, "'b' is missing\n.*'c' does not belong there"),
        ({"a": 1}, {"a": 2}, "at 'a': 2 expected, 1 found"),
        (4, 5, "5 expected, 4 found"),
    ],
)
def test_plain_values_say_where_they_part(actual, expected, says):
    with pytest.raises(CheckFailed) as failed:
        check_equal(actual, expected, name="the ids")
    assert re.search(says, str(failed.value))
    assert str(failed.value).startswith("the ids: ")


def refuse(message):
    raise ValueError(message)


def test_an_error_that_must_come_is_given_back():
    error = check_raises(ValueError, lambda: refuse("top_p must be in (0, 1]"), match="TOP_P")
    assert "top_p" in str(error)
    check_raises((KeyError, ValueError), lambda: refuse("no"))


def interrupt():
    raise KeyboardInterrupt


def test_ctrl_c_is_caught_where_it_is_expected_and_only_there():
    assert isinstance(check_raises(KeyboardInterrupt, interrupt), KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        check_raises(ValueError, interrupt)
    with pytest.raises(CheckFailed, match="KeyboardInterrupt expected, ValueError raised"):
        check_raises(KeyboardInterrupt, lambda: refuse("no"))


def test_an_error_that_does_not_come_or_is_another_is_told():
    with pytest.raises(
        CheckFailed, match=r"a top_p above 1: should be refused with ValueError; .* 3 came back"
    ):
        check_raises(ValueError, lambda: 3, name="a top_p above 1")
    with pytest.raises(
        CheckFailed, match=r"nothing was raised; a NumPy array of shape \[2, 6, 5, 8\] came back"
    ):
        check_raises(ValueError, lambda: EXPECTED)
    with pytest.raises(CheckFailed, match=r"a tuple \(a NumPy array of shape \[2\], 3\) came back"):
        check_raises(ValueError, lambda: (np.zeros(2), 3))
    with pytest.raises(CheckFailed, match="should mention '5'; it says '3 heads'"):
        check_raises(ValueError, lambda: refuse("3 heads"), match=("3", "5"))
    with pytest.raises(CheckFailed, match="KeyError or TypeError expected, ValueError raised: no"):
        check_raises((KeyError, TypeError), lambda: refuse("no"))
    with pytest.raises(CheckFailed, match="should mention 'top_p'; it says 'no'"):
        check_raises(ValueError, lambda: refuse("no"), match="top_p")


def test_a_stub_is_never_taken_for_the_error_that_must_come():
    def stub():
        raise NotImplementedError("Week 1 Day 7 Task 1: Sampling")

    with pytest.raises(NotImplementedError, match="Task 1"):
        check_raises(RuntimeError, stub)


def test_an_argument_that_was_written_to_is_named_as_the_cause():
    before = np.array([1.0, -2.0, 3.0])
    check_untouched(make_array(before, "torch"), before, name="the scores")
    with pytest.raises(
        CheckFailed, match=r"(?s)the scores, afterwards.*wrote into the array that it was given"
    ):
        check_untouched(make_array(2 * before, "torch"), before, name="the scores")


def test_numbers_that_look_equal_get_more_digits():
    assert "1 expected, 1.00000001 found" in complaint(
        np.array([1 + 1e-8]), [1.0], rtol=0, atol=0, dtype=None
    )
    with pytest.raises(CheckFailed, match=r"^x: 0\.5 expected, 0\.50000001 found$"):
        check(0.5 + 1e-8, 0.5, rtol=0, atol=0, name="x")
    assert "123456789 expected, 123456788 found" in complaint(np.array([123456788]), [123456789])


def test_an_argument_may_not_change_by_the_least_bit(lab):
    before = np.array([1.0, 2.0])
    with pytest.raises(CheckFailed, match="wrote into the array that it was given"):
        check_untouched(lab.array(before * (1 + 1e-6)), before, name="x")


def test_a_valid_call_that_is_refused_is_told_with_the_rule():
    def refuse():
        raise ValueError("no room")

    assert check_allowed(lambda: 3, name="a run", why="any run is") == 3
    with pytest.raises(CheckFailed, match=r"^a run: is valid, but was refused: no room\n  the stop may be"):
        check_allowed(refuse, name="a run", why="the stop may be the end")
    with pytest.raises(ZeroDivisionError):
        check_allowed(lambda: 1 // 0, name="a run", why="any run is")


def test_plain_values_have_suspects_too():
    for actual, expected in ((2, 1), ([1, 2, 3], [1, 2]), ("ab", "a"), ({1}, {2}), ({1: 2}, {1: 3})):
        with pytest.raises(CheckFailed, match=r"likely cause: it went on$"):
            check_equal(actual, expected, name="x", suspects={"it stopped": 0, "it went on": actual})
    with pytest.raises(CheckFailed, match=r"likely cause: it went on$"):
        check(2, 1, suspects={"it went on": 2})
    with pytest.raises(CheckFailed, match=r"0\.25 found\n  likely cause: halved$"):
        check(0.25, 0.5, suspects={"halved": 0.25 + 1e-9, "doubled": 1.0})


def test_a_suspect_of_a_tuple_must_fit_all_of_its_parts():
    cos, sin = np.arange(6.0), -(np.arange(6.0) ** 2)
    suspects = {"cos and sin are exchanged": (sin, cos), "cos stands twice": lambda: (cos, cos)}
    assert complaint((cos, cos), (cos, sin), suspects=suspects, dtype=None).endswith(
        "cause: cos stands twice"
    )
    assert "cause: cos and sin are exchanged" in complaint(
        (sin, cos), (cos, sin), suspects=suspects, dtype=None
    )


@pytest.mark.parametrize(("expected", "suspected"), [([1, 2, 3], [1, 3]), (5, 6)])
def test_a_suspected_plain_value_is_named_as_the_cause(expected, suspected):
    suspects = {"another slip": None, "the well-known slip": suspected}
    with pytest.raises(CheckFailed, match="likely cause: the well-known slip"):
        check_equal(suspected, expected, suspects=suspects)
    with pytest.raises(CheckFailed) as other:
        check_equal([7, 7, 7], [1, 2, 3], suspects=suspects)
    assert "likely cause" not in str(other.value)
