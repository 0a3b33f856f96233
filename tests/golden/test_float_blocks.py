"""Day 4.7's blocks in float32 give the golden tokens, also in the engine that programs call."""

from __future__ import annotations

import pytest

from coursekit.paths import Course
from programs.golden import load_golden, load_golden_documents
from programs.loaded import LoadedModel, load
from programs.smoke import MODEL, run_stage
from programs.stages import find_stages


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    from tiny_llm.fast.float_model import accelerate_floats

    plain = load(MODEL, "float32", "cpu")
    return LoadedModel(accelerate_floats(plain.model), plain.tokenizer)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["cached", "served"])
def test_packed_weights_and_fused_operations_give_the_golden_tokens(loaded: LoadedModel, name: str) -> None:
    golden, documents = load_golden(Course.find(), MODEL), load_golden_documents(Course.find(), MODEL)
    stage = find_stages(name)[0]
    run = run_stage(loaded, stage, golden, documents=documents)
    assert run.partings == []
    assert run.tokens == sum(len(prompt.token_ids) for prompt in golden)
    assert run.prompts >= len(golden) + (len(documents) if stage.documents else 0)
