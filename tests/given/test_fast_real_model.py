"""Day 4.7's engine on the model that the course runs by default: how well it predicts, and whose tokens it gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.quality.forms import BASE, FORMS
from benchmarks.quality.measuring import Findings, measure
from benchmarks.quality.pieces import Piece, read_pieces
from benchmarks.quality.report import score
from programs.loaded import load
from tiny_llm.engine.llm import LLM
from tiny_llm.engine.params import SamplingParams
from tiny_llm.model import Transformer
from tiny_llm.tokenizer import load_tokenizer

MODEL = "smollm2-135m"
TOKENS = 160  # of each of the five texts
PERPLEXITY, SAME = 0.02, 0.94
"""Of 795 positions: one of the bars of `bench quality`, and two standard errors of so few positions."""
GREEDY = SamplingParams(max_tokens=12, ignore_end=True)


def load_model(dtype: str = "float32", **how: Any) -> Transformer:
    return load(MODEL, dtype, "cpu", **how).model


@pytest.mark.timeout(400)
def test_it_predicts_as_the_same_weights_do_in_float32() -> None:
    pieces = [Piece(each.name, each.token_ids[:TOKENS]) for each in read_pieces(load_tokenizer(MODEL))]
    findings = Findings()
    for _ in measure(
        BASE, [form for form in FORMS if form.name == "fast-pages"], pieces, load_model, findings
    ):
        pass
    found = score(findings.forms[0][1], findings.base)
    assert len(findings.base.nll) == 5 * (TOKENS - 1)
    assert abs(found.change) < PERPLEXITY
    assert found.same > SAME


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM(MODEL, fast="8-bit") as llm:
        yield llm


@pytest.mark.timeout(400)
def test_a_prompt_is_answered_the_same_alone_beside_two_and_beside_nineteen(llm: LLM) -> None:
    piece = read_pieces(llm.tokenizer)[-1].token_ids
    prompts = [list(piece[7 * i : 7 * i + 5 + 4 * i]) for i in range(20)]
    alone = [llm.generate([ids], GREEDY)[0].outputs[0].token_ids for ids in prompts]
    for count in (3, 20):
        together = llm.generate(prompts[:count], GREEDY)
        assert [each.outputs[0].token_ids for each in together] == alone[:count]
