"""Prompts with documents: the dense oracle and the tokenizer against an independent implementation."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest

from coursekit.paths import Course
from programs.document_answers import request_of
from programs.document_cores import document_batch, document_pages
from programs.golden import GoldenDocuments, find_partings, load_golden_documents
from programs.loaded import LoadedModel, load
from programs.smoke import CHUNK_SIZE, MODEL, SEATS

if TYPE_CHECKING:
    from tiny_llm.request import Request

GOLDEN = load_golden_documents(Course.find(), MODEL)


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return load(MODEL, "float32", "cpu")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("row", GOLDEN, ids=lambda row: row.prompt)
def test_the_oracle_gives_the_golden_tokens(loaded: LoadedModel, row: GoldenDocuments) -> None:
    from tiny_llm.documents.oracle import generate_documents

    def answer(prompt: GoldenDocuments, max_tokens: int) -> list[int]:
        tokens = generate_documents(
            loaded.model,
            prompt.segments,
            max_tokens,
            loaded.tokenizer.end_ids,
            strategy=prompt.strategy,
            max_chunk_len=prompt.max_chunk_len,
        )
        return list(tokens)

    def generate(prompts: list[GoldenDocuments], max_tokens: list[int]) -> list[list[int]]:
        return [answer(*each) for each in zip(prompts, max_tokens, strict=True)]

    assert find_partings([row], generate) == [None]


@pytest.mark.timeout(600)
def test_the_engine_gives_the_golden_tokens_cold_and_warm_and_in_another_order(loaded: LoadedModel) -> None:
    from tiny_llm.engine_core import generate_all

    request = partial(request_of, loaded)
    pages = sum(document_pages(loaded.model, request(row, 24)) for row in GOLDEN)
    core = document_batch(loaded.model, SEATS, pages, 2 * CHUNK_SIZE)
    found: list[int] = []

    def generate(prompts: list[GoldenDocuments], max_tokens: list[int]) -> list[list[int]]:
        before = core.scheduler.reused
        requests = [request(*each) for each in zip(prompts, max_tokens, strict=True)]
        generate_all(core, requests)
        found.append(core.scheduler.reused - before)
        return [each.output for each in requests]

    assert find_partings(GOLDEN, generate) == [None] * len(GOLDEN)
    assert find_partings(GOLDEN[::-1], generate) == [None] * len(GOLDEN)
    assert found[-1] > found[0], "the second time, what the first one computed is found"


@pytest.mark.timeout(600)
def test_the_engine_gives_the_golden_tokens_with_too_few_pages(loaded: LoadedModel) -> None:
    from tiny_llm.engine_core import Step, generate_all

    small = 4  # tokens per page
    pages = max(document_pages(loaded.model, request_of(loaded, row, 24), small) for row in GOLDEN)
    core = document_batch(loaded.model, len(GOLDEN), pages + pages // 8, 2 * CHUNK_SIZE, page_size=small)
    preempted: set[Request] = set()

    def look(step: Step) -> None:
        preempted.update(step.preempted)

    def generate(prompts: list[GoldenDocuments], max_tokens: list[int]) -> list[list[int]]:
        requests = [request_of(loaded, *each) for each in zip(prompts, max_tokens, strict=True)]
        generate_all(core, requests, look)
        return [each.output for each in requests]

    assert find_partings(GOLDEN, generate) == [None] * len(GOLDEN)
    assert preempted
    assert core.scheduler.cache.evicted > 0


@pytest.mark.timeout(600)
def test_with_one_document_replaced_the_engine_computes_this_one_and_gives_the_oracle_s_tokens(
    loaded: LoadedModel,
) -> None:
    from tiny_llm.documents.oracle import generate_documents
    from tiny_llm.engine_core import Step, generate_all

    row = max(GOLDEN, key=lambda row: len(row.document_ids))
    other = next(each for each in GOLDEN if each is not row and each.document_ids)
    replaced = replace(row, document_ids=[other.document_ids[0], *row.document_ids[1:]])
    core = document_batch(loaded.model, 1, 200, 256)
    computed: list[int] = []
    for prompt in (row, replaced):
        request, steps = request_of(loaded, prompt, 24), list[Step]()
        generate_all(core, [request], steps.append)
        issued = sum(count for step in steps for _, count in step.issued)
        computed.append(issued - (request.num_generated - 1))
    oracle = generate_documents(
        loaded.model,
        replaced.segments,
        24,
        loaded.tokenizer.end_ids,
        strategy=row.strategy,
        max_chunk_len=row.max_chunk_len,
    )
    assert request.output == list(oracle)
    new, branches = replaced.document_ids[0], len(row.document_ids)
    assert computed[1] <= len(new) + len(row.question_ids) + 16 * branches < computed[0]


@pytest.mark.parametrize("row", GOLDEN, ids=lambda row: row.prompt)
def test_the_segments_have_the_golden_ids(loaded: LoadedModel, row: GoldenDocuments) -> None:
    from tiny_llm.documents.prompt import DocumentPrompt, encode_chat_prompt, encode_prompt

    encode = encode_chat_prompt if row.chat else encode_prompt
    prompt = DocumentPrompt(row.system, tuple(row.documents), row.question)
    assert encode(prompt, loaded.tokenizer, row.max_chunk_len) == row.segments


def test_the_prompts_differ_in_what_matters_to_pages_and_positions() -> None:
    systems = [len(row.system_ids) for row in GOLDEN]
    counts = {len(row.document_ids) for row in GOLDEN}
    assert {row.strategy for row in GOLDEN} == {"shared", "offset"}
    assert {row.chat for row in GOLDEN} == {True, False}
    assert min(counts) == 0
    assert max(counts) >= 5
    assert 0 in systems
    assert any(0 < length < 16 for length in systems)
    assert any(length > 16 and length % 16 for length in systems)
    assert any([] in row.document_ids for row in GOLDEN)
