"""Every stage of the engine gives the golden tokens, on the real model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from coursekit.paths import Course
from programs.golden import load_golden, load_golden_documents
from programs.loaded import LoadedModel, load
from programs.seats import Observe, Seen
from programs.smoke import MODEL, run_stage
from programs.stage import Limits, Stage
from programs.stages import SERVED, STAGES

if TYPE_CHECKING:
    from tiny_llm.request import Request


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return load(MODEL, "float32", "cpu")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("stage", [each for each in STAGES if not each.scarce], ids=lambda stage: stage.name)
def test_a_stage_gives_the_golden_tokens(loaded: LoadedModel, stage: Stage) -> None:
    golden = load_golden(Course.find(), MODEL)
    documents = load_golden_documents(Course.find(), MODEL)
    run = run_stage(loaded, stage, golden, documents=documents)
    assert run.partings == []
    assert run.tokens == sum(len(prompt.token_ids) for prompt in golden)
    ways = 1 + len(stage.others)
    assert run.prompts == ways * len(golden) + (len(documents) if stage.documents else 0)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("stage", [each for each in STAGES if each.scarce], ids=lambda stage: stage.name)
def test_at_least_half_of_the_requests_are_preempted_and_get_the_golden_tokens(
    loaded: LoadedModel, stage: Stage
) -> None:
    preempted: list[set[Request]] = []

    def watched(loaded: LoadedModel, requests: Sequence[Request], limits: Limits, observe: Observe) -> None:
        lost: set[Request] = set()
        preempted.append(lost)

        def look(seen: Seen) -> None:
            lost.update(seen.preempted)
            observe(seen)

        stage.run(loaded, requests, limits, look)

    golden = load_golden(Course.find(), MODEL)
    run = run_stage(loaded, replace(stage, run=watched), golden)
    assert run.partings == []
    assert run.tokens == sum(len(prompt.token_ids) for prompt in golden)
    assert len(preempted[0]) >= len(golden) / 2, "in the first run, which has all prompts"


def test_the_tokenizer_gives_the_golden_prompt_ids(loaded: LoadedModel) -> None:
    for row in load_golden(Course.find(), MODEL):
        if row.prompt_ids[0] != loaded.tokenizer.encode("<|im_start|>")[0]:
            assert loaded.tokenizer.encode(row.prompt) == row.prompt_ids


def test_the_engine_that_programs_call_is_reached_through_grpc_and_through_http_as_well() -> None:
    assert [name for name, _ in SERVED.others] == ["gRPC", "HTTP"]
    assert SERVED.documents is not None
