"""The random inputs of the tests follow from the instructor's secret."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from grading.drawing import draw_anew, number_of


@pytest.fixture
def restored() -> Iterator[None]:
    own = np.random.default_rng
    yield
    np.random.default_rng = own


def numbers(seed: Any) -> list[float]:
    return np.random.default_rng(seed).normal(size=3).tolist()


SEEDS = [0, 35, np.int64(35), [35], [3, 5], (3, 5), np.array([3, 5])]


@pytest.mark.parametrize("seed", SEEDS, ids=repr)
def test_a_seed_gives_other_numbers_for_each_secret_and_the_same_for_one(restored, monkeypatch, seed):
    found = [numbers(seed)]
    own = np.random.default_rng
    for secret in ("a", "b", "a"):
        monkeypatch.setattr(np.random, "default_rng", own)
        draw_anew(secret)
        assert numbers(seed) == numbers(seed)
        found.append(numbers(seed))
    plain, a, b, again = found
    assert a == again
    assert len({tuple(each) for each in (plain, a, b)}) == 3


def test_different_seeds_stay_different(restored):
    draw_anew("a")
    assert len({tuple(numbers(seed)) for seed in (0, 1, [1, 2], [2, 1], (1, 2, 0))}) == 5


def test_a_generator_and_no_seed_are_left_alone(restored):
    draw_anew("a")
    generator = np.random.Generator(np.random.PCG64(3))
    assert np.random.default_rng(generator) is generator
    assert numbers(None) != numbers(None)


def test_the_number_of_a_secret_depends_on_all_of_it():
    secrets = ["", "a", "A", "a ", "a" * 1000, "ä", "a\n"]
    assert len({number_of(secret) for secret in secrets}) == len(secrets)
    assert all(0 <= number_of(secret) < 2**128 for secret in secrets)
    assert number_of("a") == number_of("a")
