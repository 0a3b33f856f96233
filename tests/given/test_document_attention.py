"""Questions about documents get the same from every way to attend over pages."""

from __future__ import annotations

import pytest
import torch
from week_4.joined_attention import NO_KEYS, SCALE, JoinedStep, Row
from week_4.joined_engine import Engine, prompt_of, words

from coursekit.check import check

STEPS = {
    "one question": (Row(2, 5, (5, 2, 3)),),
    "questions between others": (Row(2, 5), Row(3, 3, (4, 2, 2)), Row(1, 7), Row(1, 2, (3, 0, 5)), Row(4, 4)),
    "parts without a token": (Row(2, 2, (5, 0, 0)), Row(2, 3, (0, 0, 0)), Row(1, 3, (0, 1, 0)), Row(1, 2, (0, 0, 3))),
}  # fmt: skip
WAYS = ("reference", "cpu", "auto", "triton")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("which", list(STEPS))
@pytest.mark.parametrize("remedy", [(1.0, 1.0), (0.5, 0.8)], ids=str)
@pytest.mark.parametrize("page_size", [3, 16])
def test_every_way_to_attend_merges_to_what_dense_attention_gives(lab, way, which, remedy, page_size):
    step = JoinedStep(STEPS[which], page_size)
    query, keys, values = step.arrays(lab)
    attention = lab.paged.attention_backends.choose_attention(way, torch.float32)
    own = tuple(lab.array(x) for x in step.attended(parts=("own",)))
    weigh = lab.documents.attention.Remedy(*remedy)
    found = lab.documents.attention.attend_joined(
        query, keys, values, step.join(lab), own, SCALE, attention, weigh
    )
    check(
        found,
        step.attended(*remedy),
        name=("the output", "the log-sum-exp"),
        rtol=1e-5,
        atol=2e-6,
        nan=NO_KEYS,
    )


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_attend_gives_the_answers_of_the_dense_model(lab, way):
    engine = Engine(lab, token_budget=15)
    engine.runner.attention = lab.paged.attention_backends.choose_attention(way, torch.float32)
    engine.answer(
        *(
            engine.ask(prompt_of(lab, 4, documents, 3, seed=n), 2)
            for n, documents in enumerate([(5, 2), (6,), ()])
        ),
        engine.push(words(7, 3)),
    )
