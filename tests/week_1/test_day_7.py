"""Day 1.7: valid parameters, penalty and temperature, the three filters, the draw."""

from __future__ import annotations

import itertools
import math
import random
from functools import partial
from typing import Any

import numpy as np
import pytest
from shared.arguments import check_leaves_alone, float_dtypes

from coursekit.check import check, check_allowed, check_equal, check_raises

from . import sampling_oracle as oracle

V = 23
NEARLY_1 = math.nextafter(1.0, 0.0)


def random_logits(seed: int, size: int = V) -> np.ndarray:
    """Scores of both signs, as float32 holds them."""
    return (2.5 * np.random.default_rng(seed).normal(size=size)).astype(np.float32).astype(np.float64)


def log_of(*shares: float) -> np.ndarray:
    """Scores whose probabilities are `shares`."""
    return np.log(np.array(shares)).astype(np.float32).astype(np.float64)


def sampler(lab: Any, **params: Any) -> Any:
    return lab.sampler.Sampler(lab.sampler.SamplingParams(**params))


def draws(choose: Any, logits: Any, count: int) -> list[int]:
    return [choose(logits, []) for _ in range(count)]


# Task 1: valid parameters


def test_task_1_the_defaults_are_valid(lab):
    check_allowed(lab.sampler.SamplingParams, name="SamplingParams()", why="every default lies in its range")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", "warm"),
        ("temperature", True),
        ("temperature", None),
        ("top_k", -1),
        ("top_k", 2.5),
        ("top_k", 4.0),
        ("top_k", math.nan),
        ("top_k", True),
        ("top_k", "3"),
        ("top_p", 0.0),
        ("top_p", 0),
        ("top_p", 1.0001),
        ("top_p", -0.5),
        ("top_p", math.nan),
        ("top_p", True),
        ("top_p", "0.9"),
        ("min_p", -0.01),
        ("min_p", 1.01),
        ("min_p", math.nan),
        ("min_p", False),
        ("min_p", [0.1]),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", -1.2),
        ("repetition_penalty", math.nan),
        ("repetition_penalty", math.inf),
        ("repetition_penalty", 5e-324),
        ("repetition_penalty", 0.0099),
        ("repetition_penalty", 100.01),
        ("repetition_penalty", 1e300),
        ("repetition_penalty", "1.1"),
        ("repetition_penalty", True),
        ("seed", 1.5),
        ("seed", "seven"),
        ("seed", math.nan),
        ("seed", True),
    ],
)
def test_task_1_an_invalid_value_is_refused_by_name(lab, name, value):
    refused = f"{name} = {value!r}"
    error = check_raises(
        ValueError, lambda: lab.sampler.SamplingParams(**{name: value}), name=refused, match=name
    )
    if repr(value) not in str(error):
        raise AssertionError(f"the message about {refused} must show the value; it says {str(error)!r}")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("temperature", [0, 0.0, 1, 1e-300, 0.7, 50.0]),
        ("top_k", [0, 1, 40, 10**9]),
        ("top_p", [1, 1.0, 0.9, 1e-12]),
        ("min_p", [0, 0.0, 0.05, 1, 1.0]),
        ("repetition_penalty", [1, 1.0, 1.3, 0.5, 0.01, 100]),
        ("seed", [None, 0, 7, -3, 2**80]),
    ],
)
def test_task_1_every_value_in_range_is_kept(lab, name, values):
    for value in values:
        params = check_allowed(
            partial(lab.sampler.SamplingParams, **{name: value}),
            name=f"SamplingParams({name}={value!r})",
            why="both ends of the range are in the chapter's table",
        )
        check_equal(getattr(params, name), value, name=f"{name} of SamplingParams({name}={value!r})")


def test_task_1_the_first_of_several_good_values_does_not_hide_a_bad_one(lab):
    good = {"temperature": 0.8, "top_k": 5, "top_p": 0.9, "min_p": 0.1, "repetition_penalty": 1.1, "seed": 3}
    lab.sampler.SamplingParams(**good)
    for name in good:
        params = {**good, name: -5.5}
        refused = f"{name} = -5.5 among good values"
        check_raises(ValueError, partial(lab.sampler.SamplingParams, **params), name=refused, match=name)


# Task 2: penalty and temperature


@pytest.mark.parametrize("penalty", [1.5, 0.6])
def test_task_2_positive_scores_are_divided_and_negative_ones_multiplied(lab, penalty):
    logits, ids = random_logits(1), [3, 0, 11, 22, 8]
    assert {np.sign(logits[i]) for i in ids} == {1.0, -1.0}, "this test needs scores of both signs"
    divided = logits.copy()
    divided[ids] /= penalty
    check(
        lab.sampler.apply_repetition_penalty(lab.array(logits), ids, penalty),
        oracle.penalize(logits, ids, penalty),
        name="the penalized scores",
        axes="V",
        suspects={
            "negative scores were divided too, which makes those tokens likelier": divided,
            "multiplied where the score is positive, divided where it is negative": oracle.penalize(
                logits, ids, 1 / penalty
            ),
        },
        inputs={"logits": logits},
    )


def test_task_2_a_token_that_occurs_twice_is_penalized_once(lab):
    logits, ids = random_logits(2), [5, 9, 5, 5, 9, 1]
    twice = logits
    for i in ids:
        twice = oracle.penalize(twice, [i], 1.4)
    before = list(ids)
    check(
        lab.sampler.apply_repetition_penalty(lab.array(logits), ids, 1.4),
        oracle.penalize(logits, ids, 1.4),
        name="the penalized scores",
        axes="V",
        suspects={"a token was penalized as often as it occurs": twice},
    )
    check_equal(ids, before, name="the caller's token ids, afterwards")


def test_task_2_a_long_text_is_penalized_as_a_whole(lab):
    logits, ids = random_logits(22), [7, 2] + [5, 9] * 600 + [1]
    check(
        lab.sampler.apply_repetition_penalty(lab.array(logits), ids, 1.4),
        oracle.penalize(logits, ids, 1.4),
        name="the scores penalized after 1203 tokens",
        axes="V",
    )


def test_task_2_a_score_of_zero_or_minus_infinity_stays(lab):
    logits = np.array([0.0, -np.inf, 2.0, -1.0])
    expected = [0.0, -np.inf, 1.0, -2.0]
    actual = lab.sampler.apply_repetition_penalty(lab.array(logits), (0, 1, 2, 3), 2.0)
    check(actual, expected, name="the penalized scores", axes="V")


@pytest.mark.parametrize(("ids", "penalty"), [([], 1.7), ([4, 2, 4], 1.0)], ids=["no ids", "penalty 1"])
def test_task_2_nothing_to_penalize_changes_nothing(lab, ids, penalty):
    logits = random_logits(3)
    actual = lab.sampler.apply_repetition_penalty(lab.array(logits), ids, penalty)
    check(actual, logits, name="the scores", axes="V")


@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
def test_task_2_temperature_divides_what_is_counted_from_the_highest(lab, temperature):
    logits = random_logits(4)
    check(
        lab.sampler.apply_temperature(lab.array(logits), temperature),
        (logits - logits.max()) / temperature,
        name="the scores at this temperature",
        axes="V",
        suspects={
            "the highest score was not subtracted": logits / temperature,
            "multiplied instead of divided": (logits - logits.max()) * temperature,
            "the mean was subtracted, not the highest score": (logits - logits.mean()) / temperature,
        },
    )


def test_task_2_a_very_low_temperature_does_not_overflow(lab):
    logits = np.array([300.0, 310.0, -400.0, 310.0, -np.inf])
    actual = lab.numpy(lab.sampler.apply_temperature(lab.array(logits), 1e-37))
    assert not np.isnan(actual).any(), (
        "NaN at temperature 1e-37: the highest score is subtracted after the division, when ∞ − ∞ is left"
    )
    check_equal(actual[[1, 3]].tolist(), [0.0, 0.0], name="the two highest scores at temperature 1e-37")
    assert (actual[[0, 2, 4]] < -1e30).all(), (
        f"the other scores must be far below; they are {actual[[0, 2, 4]]}"
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda s, logits: s.apply_repetition_penalty(logits, [1, 2, 3], 1.5),
        lambda s, logits: s.apply_temperature(logits, 0.5),
    ],
    ids=["penalty", "temperature"],
)
def test_task_2_the_callers_scores_are_left_as_they_are(lab, change):
    check_leaves_alone(lab, partial(change, lab.sampler), the_scores=random_logits(5))


# Task 3: top-k, top-p, min-p


@pytest.mark.parametrize("k", [1, 2, 7, V - 1])
def test_task_3_top_k_keeps_the_k_best(lab, k):
    logits = random_logits(6)
    actual = lab.sampler.keep_top_k(lab.array(logits), k)
    check(actual, oracle.top_k(logits, k), name=f"the scores, with the {k} best kept", axes="V")


@pytest.mark.parametrize("k", [0, V, V + 1, 10**6])
def test_task_3_top_k_of_none_or_of_all_keeps_all(lab, k):
    logits = random_logits(7)
    check(
        lab.sampler.keep_top_k(lab.array(logits), k),
        logits,
        name=f"the scores, with k = {k}",
        axes="V",
        suspects={"none is kept: k = 0 keeps all": np.full(V, -np.inf)},
    )


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_task_3_top_k_keeps_exactly_k_and_of_equal_scores_the_lower_ids(lab, k):
    logits = np.array([-1.0, 2.0, 0.5, 2.0, -3.0, 2.0, 0.5])
    at_least = np.where(logits >= np.sort(logits)[-k], logits, -np.inf)
    check(
        lab.sampler.keep_top_k(lab.array(logits), k),
        oracle.top_k(logits, k),
        name=f"the scores, with the {k} best kept",
        axes="V",
        suspects={
            "all tokens with the same score as the k-th were kept": at_least,
            "of equal scores the higher ids were kept": oracle.top_k(logits[::-1], k)[::-1],
        },
    )


def test_task_3_top_k_among_many_equal_scores(lab):
    logits = np.zeros(3000)
    check(
        lab.sampler.keep_top_k(lab.array(logits), 5),
        oracle.only(logits, range(5)),
        name="the scores",
        axes="V",
    )


def fewest_of(logits, order, p):
    """The ids, taken in this order, until they reach p."""
    shares = oracle.probabilities(logits)[order]
    return np.array(order)[np.cumsum(shares) - shares < p]


def is_near(p, logits):
    """Whether a sum of the likeliest shares comes so near to p that rounding decides who reaches it."""
    sums = np.cumsum(oracle.probabilities(logits)[oracle.best_first(logits)])
    return np.abs(sums - p).min() < 1e-5


@pytest.mark.parametrize("p", [0.2, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("seed", [8, 9, 10])
def test_task_3_top_p_keeps_the_fewest_that_reach_p(lab, p, seed):
    logits = next(each for each in map(random_logits, itertools.count(seed, 100)) if not is_near(p, each))
    order = oracle.best_first(logits)
    sums = np.cumsum(oracle.probabilities(logits)[order])
    check(
        lab.sampler.keep_top_p(lab.array(logits), p),
        oracle.top_p(logits, p),
        name=f"the scores, with p = {p}",
        axes="V",
        suspects={
            "the token that reaches p was dropped": oracle.only(logits, np.array(order)[sums <= p]),
            "the least likely tokens were kept": oracle.only(logits, fewest_of(logits, order[::-1], p)),
            "the tokens were taken in the order of their ids": oracle.only(
                logits, fewest_of(logits, range(V), p)
            ),
        },
    )


@pytest.mark.parametrize(("p", "kept"), [(0.125, 1), (0.5, 4), (0.75, 6), (0.51, 5), (0.49, 4)])
def test_task_3_top_p_stops_where_p_is_reached_exactly(lab, p, kept):
    logits = np.full(8, 1.5)
    actual = lab.sampler.keep_top_p(lab.array(logits), p)
    check(
        actual,
        oracle.only(logits, range(kept)),
        name=f"8 equal scores, with p = {p}",
        axes="V",
        suspects={
            "a token stays though those before it reach p already": oracle.only(logits, range(kept + 1))
        },
    )


def test_task_3_top_p_among_many_equal_scores_keeps_the_lower_ids(lab):
    logits = np.zeros(4096)  # a power of two, so that the sums of the probabilities are exact
    actual = lab.sampler.keep_top_p(lab.array(logits), 0.25)
    check(actual, oracle.only(logits, range(1024)), name="4096 equal scores, with p = 0.25", axes="V")


def test_task_3_top_p_of_1_keeps_all_of_a_large_vocabulary(lab):
    logits = np.random.default_rng(21).normal(size=49152)
    actual = lab.sampler.keep_top_p(lab.array(logits), 1.0)
    check(actual, logits, name="49152 scores, with p = 1", axes="V")


@pytest.mark.parametrize("p", [1e-12, 0.3])
def test_task_3_top_p_keeps_at_least_one(lab, p):
    logits = log_of(0.1, 0.7, 0.2)
    check(lab.sampler.keep_top_p(lab.array(logits), p), oracle.only(logits, [1]), name=f"p = {p}", axes="V")


def test_task_3_top_p_of_1_keeps_all(lab):
    logits = random_logits(11) * 8  # the least likely have probabilities that vanish beside 1
    check(lab.sampler.keep_top_p(lab.array(logits), 1.0), logits, name="the scores, with p = 1", axes="V")


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("seed", [12, 13, 14])
def test_task_3_min_p_measures_against_the_most_likely(lab, share, seed):
    logits = random_logits(seed)
    p = oracle.probabilities(logits)
    assert np.abs(p / p.max() - share).min() > 1e-4, (
        "this test needs probabilities that aren't too near the limit"
    )
    check(
        lab.sampler.keep_min_p(lab.array(logits), share),
        oracle.min_p(logits, share),
        name=f"the scores, with min_p = {share}",
        axes="V",
        suspects={
            "the probabilities were compared with min_p, not with min_p times the best": oracle.only(
                logits, np.flatnonzero(p >= share)
            ),
            "the scores were compared with min_p times the best score; it is about probabilities": oracle.only(
                logits, np.flatnonzero(logits >= logits.max() * share)
            ),
        },
    )


def test_task_3_min_p_of_0_keeps_all_and_1_keeps_the_best(lab):
    logits = np.array([0.5, 3.0, -60.0, 3.0, 2.999, -np.inf])
    check(lab.sampler.keep_min_p(lab.array(logits), 0.0), logits, name="the scores, with min_p = 0", axes="V")
    expected = oracle.only(logits, [1, 3])
    check(
        lab.sampler.keep_min_p(lab.array(logits), 1.0),
        expected,
        name="the scores, with min_p = 1",
        axes="V",
        suspects={"the best token is dropped too: keep what is exactly as likely": np.full(6, -np.inf)},
    )


FILTERS = {
    "top_k": lambda s, logits: s.keep_top_k(logits, 4),
    "top_p": lambda s, logits: s.keep_top_p(logits, 0.8),
    "min_p": lambda s, logits: s.keep_min_p(logits, 0.1),
}


@pytest.mark.parametrize("name", FILTERS)
def test_task_3_what_an_earlier_filter_dropped_stays_dropped(lab, name):
    logits = np.array([1.0, -np.inf, 0.4, -np.inf, 0.9, -2.0, -np.inf])
    actual = lab.numpy(FILTERS[name](lab.sampler, lab.array(logits)))
    check_equal(np.isneginf(actual[[1, 3, 6]]).tolist(), [True] * 3, name=f"dropped ids, after {name}")
    expected = {"top_k": [0, 2, 4, 5], "top_p": [0, 2, 4], "min_p": [0, 2, 4]}[name]
    check_equal(np.flatnonzero(np.isfinite(actual)).tolist(), expected, name=f"ids that {name} keeps")


@pytest.mark.parametrize("name", FILTERS)
def test_task_3_a_filter_leaves_the_callers_scores_as_they_are(lab, name):
    check_leaves_alone(lab, partial(FILTERS[name], lab.sampler), the_scores=random_logits(15))


# Task 4: draw


def order_suspects(logits, numbers, params, expected):
    """What is drawn where a step is missing or out of order, or where random numbers are taken otherwise."""

    def tokens(steps=oracle.STEPS, numbers=numbers):
        return lambda: np.array(oracle.tokens(logits, [2, 5, 5, 17], numbers, params, steps, expected))

    order = oracle.STEPS
    swaps = [(*order[:i], order[i + 1], order[i], *order[i + 2 :]) for i in range(len(order) - 1)]
    return {
        **{f"{step} is left out": tokens([s for s in order if s != step]) for step in order},
        **{f"{new[i]} comes before {order[i]}": tokens(new) for i, new in enumerate(swaps)},
        "the temperature comes last": tokens([*(s for s in order if s != "temperature"), "temperature"]),
        "two random numbers are taken per token": tokens(numbers=numbers[1::2]),
        "the generator starts anew for every token": tokens(numbers=numbers[:1] * len(logits)),
    }


def test_task_4_draw_inverts_the_running_sum(lab):
    logits = random_logits(16, 9)
    logits[[0, 4, 8]] = -np.inf
    sums = np.cumsum(oracle.probabilities(logits))
    array = lab.array(logits)
    for uniform in (np.arange(400) + 0.5) / 400:
        if np.abs(sums - uniform).min() > 1e-6:
            check(
                lab.sampler.draw(array, float(uniform)),
                oracle.draw(logits, uniform),
                name=f"draw at {uniform}",
            )


def test_task_4_every_token_gets_its_share(lab):
    logits, count = log_of(0.1, 0.4, 0.2, 0.3), 1000
    array = lab.array(logits)
    drawn = [lab.sampler.draw(array, (i + 0.5) / count) for i in range(count)]
    check_equal(np.bincount(drawn, minlength=4).tolist(), [100, 400, 200, 300], name="draws of each token")


@pytest.mark.parametrize(("uniform", "expected"), [(0.0, 0), (0.25, 1), (0.5, 2), (0.75, 3), (NEARLY_1, 3)])
def test_task_4_a_sum_must_exceed_the_number_not_just_reach_it(lab, uniform, expected):
    check(
        lab.sampler.draw(lab.array(np.zeros(4)), uniform),
        expected,
        name=f"draw at {uniform} of 4 equal tokens",
        suspects={
            "the sum that reaches the number is taken: it must exceed it": max(0, expected - 1),
            "the number points past the last token: the last sum may be less than 1": 4,
        },
    )


@pytest.mark.parametrize("size", [5, 101, 1024, 4999])
@pytest.mark.parametrize("uniform", [0.0, 1 - 2.0**-24, NEARLY_1])
def test_task_4_a_dropped_token_is_never_drawn_not_even_by_rounding(lab, size, uniform):
    logits = random_logits(size, size)
    logits[:2] = logits[-2:] = -np.inf
    expected = 2 if uniform == 0 else size - 3
    logits[expected] = logits.max()  # so that this token alone fills the end of the range
    check(
        lab.sampler.draw(lab.array(logits), uniform),
        expected,
        name=f"draw at {uniform} of {size} tokens",
        suspects={"a dropped token was drawn: 0 must draw the first whose sum exceeds it": 0}
        if uniform == 0
        else {"the number points past the last token: the last sum may be less than 1": size},
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_task_4_small_probabilities_add_up_in_any_dtype(lab, dtype):
    array = lab.array(np.zeros(5000), dtype)
    for expected in (0, 1234, 3333, 4998, 4999):
        check(lab.sampler.draw(array, (expected + 0.5) / 5000), expected, name="draw of 5000 equal tokens")


def test_task_4_draw_leaves_the_scores_as_they_are(lab):
    check_leaves_alone(lab, lambda logits: lab.sampler.draw(logits, 0.4), the_scores=random_logits(23))


def test_task_4_temperature_0_takes_the_best_and_no_random_number(lab):
    choose = sampler(lab, temperature=0, top_k=3, top_p=0.5, seed=5)
    for scores, expected in (([0.1, 4.0, 4.0, 0.0], 1), ([-3.0, -2.0, -9.0, -2.0], 1)):
        check(choose(lab.array(scores), [0, 2]), expected, name="the token at temperature 0")
    check(
        choose.random.random(),
        random.Random(5).random(),
        name="the sampler's first random number, not taken yet",
    )


def test_task_4_temperature_0_compares_the_scores_as_they_are(lab):
    if "float64" not in float_dtypes(lab):
        pytest.skip("there is no float64 on this device")
    scores = lab.array([1.0, 1.0 + 1e-12, 0.5], "float64")
    check(sampler(lab)(scores), 1, name="the token at temperature 0, from 1, 1 + 1e-12, 0.5")


def test_task_4_the_callers_logits_and_ids_are_left_as_they_are(lab):
    ids = [5, 2, 5]

    def choose(logits):
        for temperature in (0.0, 0.8):
            params = {"top_k": 9, "top_p": 0.9, "min_p": 0.01, "repetition_penalty": 1.2, "seed": 6}
            sampler(lab, temperature=temperature, **params)(logits, ids)

    check_leaves_alone(lab, choose, the_logits=random_logits(24))
    check_equal(ids, [5, 2, 5], name="the caller's token ids, afterwards")


def test_task_4_temperature_0_still_heeds_the_penalty(lab):
    choose = sampler(lab, repetition_penalty=2.0)
    logits = lab.array([1.5, 2.0, -1.0])
    check(choose(logits, []), 1, name="the token before anything has occurred")
    check(
        choose(logits, [1, 2]),
        0,
        name="the token after token 1 has occurred",
        suspects={"the penalty is not applied at temperature 0": 1},
    )
    check(choose(logits), 1, name="the token when no ids are given")


@pytest.mark.parametrize(
    "params",
    [
        {"temperature": 1.0},
        {"temperature": 0.4},
        {"temperature": 3.0},
        {"temperature": 1.5, "top_k": 5},
        {"temperature": 0.9, "top_p": 0.7},
        {"temperature": 2.0, "min_p": 0.2},
        {"temperature": 1.0, "repetition_penalty": 1.8},
        {"temperature": 1.2, "top_k": 12, "top_p": 0.85, "min_p": 0.06, "repetition_penalty": 1.3},
    ],
    ids=str,
)
def test_task_4_the_steps_are_taken_in_order_with_one_number_per_token(lab, params):
    choose = sampler(lab, seed=71, **params)
    logits = [random_logits(700 + step) for step in range(40)]
    generator = random.Random(71)
    numbers = [generator.random() for _ in range(80)]
    expected = oracle.tokens(logits, [2, 5, 5, 17], numbers, params)
    drawn = [choose(lab.array(row), [2, 5, 5, 17, *expected[:step]]) for step, row in enumerate(logits)]
    check(
        np.array(drawn),
        np.array(expected),
        name=f"40 tokens drawn with {params}",
        framework="numpy",
        suspects=order_suspects(logits, numbers, params, expected),
    )


@pytest.mark.parametrize(
    ("shares", "params", "possible", "otherwise", "steps"),
    [
        ((0.4, 0.3, 0.2, 0.1), {"top_k": 2, "top_p": 0.55}, {0}, {0, 1}, "top-k top-p"),
        ((0.5, 0.3, 0.2), {"temperature": 3.0, "top_p": 0.45}, {0, 1}, {0}, "temperature top-p"),
        ((0.6, 0.25, 0.15), {"temperature": 0.5, "min_p": 0.3}, {0}, {0, 1}, "temperature min-p"),
        ((0.4, 0.3, 0.16, 0.14), {"top_p": 0.75, "min_p": 0.38}, {0, 1, 2}, {0, 1}, "top-p min-p"),
    ],
)
def test_task_4_each_step_sees_the_scores_of_the_one_before(lab, shares, params, possible, otherwise, steps):
    """`otherwise` are the tokens that come up where the first of the two `steps` is left out, or comes last."""
    choose = sampler(lab, **{"temperature": 1.0, "seed": 4, **params})
    drawn = set(draws(choose, lab.array(log_of(*shares)), 150))
    first, second = steps.split()
    hint = f" (is {first} applied, and before {second}?)" if drawn == otherwise else ""
    check_equal(drawn, possible, name=f"the tokens drawn with {params}{hint}")


def test_task_4_the_penalty_comes_before_the_temperature(lab):
    """Once the highest score is subtracted, no score is positive, and a penalty would have the opposite effect."""
    choose = sampler(lab, temperature=0.05, repetition_penalty=1.5, seed=1)
    drawn = set(draws(lambda logits, _: choose(logits, [0]), lab.array([6.0, 5.0, 1.0]), 60))
    hint = " (is the penalty applied, and before the temperature?)" if drawn == {0} else ""
    check_equal(drawn, {1}, name=f"the tokens that come up{hint}")


@pytest.mark.parametrize("params", [{"temperature": 1e-6}, {"temperature": 1.0, "top_k": 1}], ids=str)
def test_task_4_a_choice_that_is_certain_takes_a_random_number_too(lab, params):
    choose, numbers = sampler(lab, seed=8, **params), random.Random(8)
    draws(choose, lab.array([1.0, 4.0, 2.0]), 3)
    for _ in range(3):
        numbers.random()
    check_equal(
        choose.random.random(),
        numbers.random(),
        name=f"the sampler's fourth random number, after 3 tokens with {params}",
    )


def test_task_4_draws_follow_the_probabilities(lab):
    """A chi-square test with a fixed seed: 5 degrees of freedom, and 20.5 is passed once in a thousand seeds."""
    shares, count = np.array([0.05, 0.3, 0.1, 0.25, 0.1, 0.2]), 3000
    drawn = draws(sampler(lab, temperature=1.0, seed=2), lab.array(log_of(*shares)), count)
    expected = shares * count
    distance = float((((np.bincount(drawn, minlength=6) - expected) ** 2) / expected).sum())
    assert distance < 20.5, (
        f"{np.bincount(drawn, minlength=6)} draws of each token; about {expected} expected"
    )


def test_task_4_a_seed_gives_the_same_draws_beside_another_request(lab):
    logits = lab.array(np.zeros(400))
    alone = draws(sampler(lab, temperature=1.0, seed=9), logits, 12)
    one, other = sampler(lab, temperature=1.0, seed=9), sampler(lab, temperature=1.0, seed=10)
    beside, others = [], []
    for _ in range(12):
        others += draws(other, logits, 2)
        random.random()
        np.random.default_rng().random()
        beside += draws(one, logits, 1)
    check_equal(beside, alone, name="the draws with seed 9, with another request between them")
    assert others[:12] != alone, "another seed must give other draws"


def test_task_4_without_a_seed_each_sampler_draws_differently(lab):
    logits = lab.array(np.zeros(1000))
    one, other = (draws(sampler(lab, temperature=1.0), logits, 24) for _ in range(2))
    assert one != other, "two samplers without a seed drew the same 24 tokens"


@pytest.mark.parametrize("temperature", [1e-3, 1e-50, 1e-310])
def test_task_4_the_lowest_temperatures_choose_the_best(lab, temperature):
    choose = sampler(lab, temperature=temperature, seed=3)
    drawn = draws(choose, lab.array([1.0, 60.0, -80.0, 58.0]), 20)
    check_equal(drawn, [1] * 20, name=f"20 draws at temperature {temperature}")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_task_4_half_precision_logits_are_accepted(lab, dtype):
    array = lab.array(random_logits(19), dtype)
    before = lab.numpy(array).astype(np.float64)
    choose = sampler(lab, temperature=0.8, top_k=9, top_p=0.9, min_p=0.01, repetition_penalty=1.2, seed=6)
    kept = oracle.penalize(before, [1, 2], 1.2) / 0.8
    kept = oracle.min_p(oracle.top_p(oracle.top_k(kept, 9), 0.9), 0.01)
    check(choose(array, [1, 2]), oracle.draw(kept, random.Random(6).random()), name="the token")
