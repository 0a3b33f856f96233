"""Every stage of the engine gives the golden tokens, on the real model."""

from __future__ import annotations

import pytest

from coursekit.paths import Course
from programs.golden import load_golden
from programs.loaded import LoadedModel, load
from programs.smoke import MODEL, run_stage
from programs.stages import STAGES, Stage


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return load(MODEL, "float32", "cpu")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)
def test_a_stage_gives_the_golden_tokens(loaded: LoadedModel, stage: Stage) -> None:
    golden = load_golden(Course.find(), MODEL)
    run = run_stage(loaded, stage, golden)
    assert run.partings == []
    assert run.tokens == sum(len(prompt.token_ids) for prompt in golden)


def test_the_tokenizer_gives_the_golden_prompt_ids(loaded: LoadedModel) -> None:
    for row in load_golden(Course.find(), MODEL):
        if row.prompt_ids[0] != loaded.tokenizer.encode("<|im_start|>")[0]:
            assert loaded.tokenizer.encode(row.prompt) == row.prompt_ids
