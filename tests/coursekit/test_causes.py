"""The usual mistakes are recognised by what they do to the numbers."""

import numpy as np
import pytest

from coursekit.checking.causes import find_cause, find_plain_cause

B, H, L, S, D = 2, 6, 5, 7, 8
RNG = np.random.default_rng(3)
X = RNG.normal(size=(B, H, L, D))


def attention(query, key, value, scale=None):
    scores = query @ key.swapaxes(-1, -2) * (1 / np.sqrt(D) if scale is None else scale)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ value


def causal(rows, columns, diagonal):
    """0 on and below a diagonal, −inf above it."""
    return np.where(np.tri(rows, columns, diagonal, dtype=bool), 0.0, -np.inf)


MASK = causal(L, S, S - L)
FOUR = "B H L D"


@pytest.mark.parametrize(
    ("actual", "expected", "axes", "says"),
    [
        (X.transpose(0, 2, 1, 3), X, FOUR, "axis H and axis L are swapped (transposed)"),
        (X[0, 0, :, :5].T, X[0, 0, :, :5], None, "the last two axes are swapped (transposed)"),
        (X.transpose(1, 2, 0, 3), X, FOUR, "the axes are in the order H L B D (transposed)"),
        (X.transpose(0, 2, 1, 3) + 1, X, FOUR, "as far as the shape tells"),
        (X.transpose(0, 2, 1, 3).reshape(X.shape), X, FOUR, "a reshape where a transpose is needed"),
        (RNG.permutation(X.ravel()).reshape(X.shape), X, FOUR, "the same numbers in another order"),
        (X.reshape(B, H, L * D), X, FOUR, "only the shape is not"),
        (X[:, :, None], X, FOUR, "an axis of size 1"),
        (X[:1, :1, :1, :1], np.full_like(X, X[0, 0, 0, 0]), FOUR, "once repeated (broadcast)"),
        (X[:, :, :-1], X, FOUR, "off by one along axis L: the last is missing"),
        (X[:, :, 1:], X, FOUR, "off by one along axis L: the first is missing"),
        (X, X[:, :, :-1], FOUR, "off by one along axis L: one too many at the end"),
        (
            np.roll(X, 1, axis=2),
            X,
            FOUR,
            "off by one along axis L: each row holds what the row before it should",
        ),
        (
            np.roll(X, -1, axis=3),
            X,
            FOUR,
            "off by one along axis D: each row holds what the row after it should",
        ),
        (X[:, ::-1], X, FOUR, "axis H is in reverse order"),
        (-X, X, FOUR, "the sign is flipped"),
        (X * np.sqrt(D), X, FOUR, "2.82843 times the expected one (√D, with D = 8)"),
        (X / D, X, FOUR, "(1/D, with D = 8)"),
        (X * 0.37, X, None, "every value is 0.37 times the expected one"),
        (X + 0.25, X, FOUR, "every value is 0.25 too large"),
        (X * RNG.uniform(1, 2, size=(B, H, L, 1)), X, FOUR, "right up to a factor of its own"),
        (np.where(np.arange(L)[:, None] == 2, np.nan, X), X, FOUR, "whole rows are NaN"),
        (
            np.where(np.arange(L)[:, None] == 2, np.nan, X),
            np.where(np.arange(L)[:, None] == 2, 0.0, X),
            FOUR,
            "rows that should be 0 are NaN",
        ),
        (causal(L, S, 0), MASK, "L S", "aligned top-left"),
        (causal(L, S, S - L - 1), MASK, "L S", "hides the diagonal too"),
        (causal(L, S, S - L + 1), MASK, "L S", "lets each token see the one after it"),
        (np.where(MASK == 0, -np.inf, 0.0), MASK, "L S", "the mask is inverted"),
        (np.where(np.tri(L, S, S - L - 1), -np.inf, 0.0), MASK, "L S", "the wrong triangle"),
        (np.zeros((L, S)), MASK, "L S", "nothing is masked"),
        (np.where(MASK == 0, 0.0, -1e9), MASK, "L S", "a large negative number"),
        (MASK == 0, MASK, "L S", "0 and −inf are expected"),
        (np.where(MASK == 0, np.nan, -np.inf), MASK, "L S", "0 · ∞ is NaN"),
    ],
)
def test_a_usual_mistake_is_recognised(actual, expected, axes, says):
    assert says in (find_cause(np.asarray(actual), expected, axes=axes) or "")


def test_a_mask_for_batches_is_recognised_too():
    wrong = np.broadcast_to(causal(L, S, 0), (B, 1, L, S))
    assert "top-left" in (find_cause(wrong, np.broadcast_to(MASK, (B, 1, L, S)), axes="B 1 L S") or "")


def test_noise_has_no_cause():
    assert find_cause(X + RNG.normal(size=X.shape) * 0.1, X, axes=FOUR) is None


def test_too_few_numbers_name_no_cause():
    assert find_cause(np.array([2.0]), np.array([1.0])) is None
    assert find_cause(np.array([2.0, 2.0]), np.array([1.0, 1.0])) is None


def test_an_array_that_should_be_empty_names_no_cause():
    assert find_cause(X[:, :, :1], X[:, :, :0], axes=FOUR, inputs={"x": X[:, :, :1]}) is None


def test_a_missing_scale_is_found_among_the_suspects_in_float32():
    query, key, value = RNG.normal(size=(3, B, H, L, D))
    suspects = {
        "the mask is ignored": lambda: X,
        "the scores are not divided by √D": lambda: attention(query, key, value, scale=1.0),
    }
    actual = attention(query, key, value, scale=1.0).astype(np.float32)
    cause = find_cause(actual, attention(query, key, value), axes=FOUR, suspects=suspects)
    assert cause == "the scores are not divided by √D"


def test_suspects_that_can_not_be_told_apart_are_all_named():
    suspects = {"twice": X * 2, "the square": X**2, "added to itself": X + X}
    assert find_cause(2 * X, X, suspects=suspects) == "twice; or added to itself"


def test_a_suspect_is_found_where_the_test_compares_exactly():
    cause = find_cause(
        np.multiply(X.astype(np.float32), np.float32(np.sqrt(D))),
        X,
        suspects={"times 1": lambda: X * (1 + 1e-7), "times √D": lambda: X * np.sqrt(D)},
        rtol=0.0,
        atol=0.0,
    )
    assert cause == "times √D"


def test_a_suspect_that_gives_the_right_result_is_no_cause():
    near = RNG.normal(1.0, 1e-8, size=X.shape) * X
    assert find_cause(near, X, suspects={"nothing at all": X}, rtol=0.0, atol=0.0) is None


def test_a_suspect_that_fails_says_so_and_keeps_the_learners_message():
    cause = find_cause(X, X + RNG.normal(size=X.shape), suspects={"no rotation": lambda: 1 / 0})
    assert cause == "unknown; the test could not try 'no rotation' (ZeroDivisionError: division by zero)"


def test_an_input_that_came_back_is_recognised():
    assert find_cause(X, X + 1, inputs={"the query": X}) == "this is the query, unchanged"


@pytest.mark.parametrize(
    ("actual", "says"),
    [
        ([1, 2, 3], "the last item is missing"),
        ([2, 3, 4], "the first item is missing"),
        ([1, 2, 3, 4, 5], "one item too many at the end"),
        ([0, 1, 2, 3, 4], "one item too many at the beginning"),
        ([4, 3, 2, 1], "reversed"),
        ([0, 1, 2, 3], "one place late"),
        ([2, 3, 4, 9], "one place early"),
        ([2, 3, 4, 1], "in another order"),
        ([4, 1, 2, 3], "in another order"),
        ([7, 7, 7, 7], None),
    ],
)
def test_a_list_that_is_shifted_or_cut_is_recognised(actual, says):
    cause = find_plain_cause(actual, [1, 2, 3, 4])
    assert (cause is None) if says is None else says in (cause or "")


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        ([5, 1, 1], [1, 1, 1]),
        ([3, 1], [1, 2]),
        ([[1], [], []], [[], [], []]),
        ([6, 1, 1, 1], [6, 6, 1, 1]),
    ],
)
def test_a_few_different_items_are_not_said_to_be_off_by_one(actual, expected):
    assert find_plain_cause(actual, expected) is None
