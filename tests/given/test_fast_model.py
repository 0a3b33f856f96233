"""The model that Day 4.7 makes fast, beside the one that it was made from."""

from __future__ import annotations

import pytest
import torch
from fast_models import FAMILIES, random_ids, small_model

from tiny_llm.fast.accelerate import accelerate
from tiny_llm.model import Transformer

LENGTH = 70
ROUNDING = 0.03  # of activations in 8 bits, relative to the logits of a token; it is half of that at most


def logits_of(model: Transformer, length: int = LENGTH) -> torch.Tensor:
    return model(torch.tensor([random_ids(length, 1)]), slice(0, length))[0]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_logits_are_those_of_the_same_weights_but_for_8_bits(family: str) -> None:
    model = small_model(family)
    expected, actual = logits_of(model), logits_of(accelerate(model))
    assert actual.shape == expected.shape
    assert actual.dtype == torch.float32
    off = (actual - expected).norm(dim=-1) / expected.norm(dim=-1)
    assert float(off.max()) < ROUNDING


@pytest.mark.parametrize("family", FAMILIES)
def test_the_model_itself_goes_on_as_before(family: str) -> None:
    model = small_model(family)
    before = logits_of(model)
    fast = accelerate(model)
    first = logits_of(fast)
    assert torch.equal(logits_of(model), before)
    assert torch.equal(logits_of(fast), first)


def test_two_fast_models_take_turns() -> None:
    one, other = (accelerate(small_model(family)) for family in list(FAMILIES)[:2])
    alone = logits_of(one, 9), logits_of(other, 30)
    assert torch.equal(logits_of(one, 9), alone[0])
    assert torch.equal(logits_of(other, 30), alone[1])


def test_a_batch_of_equal_rows_gives_equal_rows() -> None:
    fast = accelerate(small_model("two, and biases"))
    ids = torch.tensor([random_ids(20, 1), random_ids(20, 2)])
    both = fast(ids, slice(0, 20))
    for row in range(2):
        alone = fast(ids[row : row + 1], slice(0, 20))
        assert float((both[row] - alone[0]).norm() / alone.norm()) < ROUNDING
