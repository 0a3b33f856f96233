"""The model with its blocks in 4 bits gives the golden tokens: the numbers are the same, only stored in less."""

from __future__ import annotations

import pytest

from coursekit.checking.memory import held_bytes
from coursekit.paths import Course
from programs.golden import load_golden
from programs.loaded import LoadedModel, load
from programs.smoke import MODEL, run_stage
from programs.stages import find_stages


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return load(MODEL, "float32", "cpu", bits=4, matmul="kernel")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["cached", "batched"])
def test_4_bit_weights_and_their_kernel_give_the_golden_tokens(loaded: LoadedModel, name: str) -> None:
    golden = load_golden(Course.find(), MODEL)
    run = run_stage(loaded, find_stages(name)[0], golden)
    assert run.partings == []
    assert run.tokens == sum(len(prompt.token_ids) for prompt in golden)


def test_the_model_takes_less_than_half_of_its_memory_in_float32(loaded: LoadedModel) -> None:
    assert held_bytes(loaded.model) < 250e6
