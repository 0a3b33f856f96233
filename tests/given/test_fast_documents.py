"""Questions about documents on Day 4.7's engine: beside the dense oracle of the same model, and in any company."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from fast_models import FAMILIES, Noted, differences, engine, random_ids, require_onednn, small_model
from torch import Tensor

from tiny_llm.documents import oracle
from tiny_llm.documents.prompt import Segments
from tiny_llm.documents.request import DocumentRequest
from tiny_llm.engine_core import generate_all
from tiny_llm.fast.accelerate import accelerate
from tiny_llm.fast.float_model import accelerate_floats
from tiny_llm.model import Transformer

OFF = 0.02
"""Relative to the logits of a token. Keys and values are rounded to bfloat16 on both sides, but attention adds up in
another order. So some activations near a tie come out as other codes in 8 bits; each changes the logits by 0.3 %."""
FAMILY = "three, and norms of the heads"


class NotedQuestion(DocumentRequest):
    """A greedy question that notes the logits of each of its tokens."""

    def __init__(self, segments: Segments, max_tokens: int = 5) -> None:
        self.logits: list[Tensor] = []
        super().__init__(segments, max_tokens, sample=self._greedy)

    def _greedy(self, logits: Tensor, token_ids: Sequence[int]) -> int:
        self.logits.append(logits.clone())
        return int(logits.argmax())


def segments_of(system: int, documents: Sequence[int], question: int, seed: int) -> Segments:
    """Random tokens, so many of each segment. The system prompt is the first part of one for all."""
    return Segments(
        tuple(random_ids(system, 900)),
        tuple(tuple(random_ids(length, seed + i)) for i, length in enumerate(documents)),
        tuple(random_ids(question, seed + 50)),
    )


PROMPTS = [
    segments_of(20, (33, 7, 16), 5, 1),
    segments_of(20, (70, 1), 40, 20),
    segments_of(0, (15, 17), 3, 30),
    segments_of(16, (), 9, 40),
    segments_of(5, (3, 2, 4), 1, 45),
]


def rounded(cache: Any) -> Any:
    """The same cache, which keeps keys and values as pages do."""

    class Rounded(cache):
        def update_and_fetch(self, key: Tensor, value: Tensor) -> Any:
            return super().update_and_fetch(*(x.bfloat16().float() for x in (key, value)))

    return Rounded


def oracle_logits(model: Transformer, segments: Segments, forced: Sequence[int]) -> Iterator[Tensor]:
    """The logits of each token of an answer that goes as ``forced`` does."""
    noted: list[Tensor] = []
    tokens = iter(forced)

    def sample(logits: Tensor, token_ids: Sequence[int]) -> int:
        noted.append(logits.clone())
        return next(tokens)

    list(oracle.generate_documents(model, segments, len(forced), sample=sample))
    yield from noted


def answer(core: Any, requests: Sequence[Any]) -> Sequence[Any]:
    generate_all(core, requests)
    assert [request.error for request in requests] == [None] * len(requests)
    assert all(bool(row.isfinite().all()) for request in requests for row in request.logits)
    return requests


@pytest.mark.parametrize("family", FAMILIES)
def test_a_question_gets_the_logits_of_the_dense_oracle(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fast = accelerate(small_model(family))
    requests = answer(engine(fast, token_budget=48), [NotedQuestion(each) for each in PROMPTS])
    monkeypatch.setattr(oracle, "MaskedCache", rounded(oracle.MaskedCache))
    for number, (segments, request) in enumerate(zip(PROMPTS, requests, strict=True)):
        expected = oracle_logits(fast, segments, request.output)
        for step, (ours, theirs) in enumerate(zip(request.logits, expected, strict=True)):
            off = float((ours - theirs).norm() / theirs.norm())
            assert off < OFF, f"question {number}, token {step}: {off:.2%} off"


def fast_model(form: str) -> Transformer:
    """A model on whose engine a request's company changes nothing."""
    if form == "8-bit":
        return accelerate(small_model(FAMILY))
    require_onednn(torch.bfloat16)
    return accelerate_floats(small_model(FAMILY, torch.bfloat16))


@pytest.mark.parametrize("form", ["8-bit", "bfloat16"])
def test_a_question_gets_the_same_alone_and_beside_others(form: str) -> None:
    fast = fast_model(form)
    alone = [answer(engine(fast), [NotedQuestion(each)])[0] for each in PROMPTS]
    for budget in (4096, 33):
        together = answer(engine(fast, token_budget=budget), [NotedQuestion(each) for each in PROMPTS])
        assert differences(together, alone) == []


@pytest.mark.parametrize("form", ["8-bit", "bfloat16"])
def test_an_ordinary_request_gets_the_same_beside_questions_as_alone(form: str) -> None:
    fast = fast_model(form)
    prompts = [random_ids(length, length) for length in (1, 17, 64, 130)]
    alone = [answer(engine(fast), [Noted(ids)])[0] for ids in prompts]
    beside = [Noted(ids) for ids in prompts]
    answer(engine(fast, token_budget=60), [*(NotedQuestion(each, 12) for each in PROMPTS), *beside])
    assert differences(beside, alone) == []
