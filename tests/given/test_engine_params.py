"""The settings of a request, the sizes of an engine, and what it answers: given code of Day 4.6."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from coursekit.lab import Lab

LAB = Lab()

REFUSED: list[tuple[str, Any, str]] = [
    ("presence_penalty", 2.1, "-2 to 2"),
    ("presence_penalty", float("nan"), "-2 to 2"),
    ("frequency_penalty", -2.1, "-2 to 2"),
    ("frequency_penalty", "1", "-2 to 2"),
    ("frequency_penalty", True, "-2 to 2"),
    ("max_tokens", 0, "1 or more"),
    ("max_tokens", -1, "1 or more"),
    ("max_tokens", 1.0, "1 or more"),
    ("max_tokens", True, "1 or more"),
    ("stop", 7, "strings"),
    ("stop", ["a", 7], "strings"),
    ("stop", {"a"}, "strings"),
    ("stop", [""], "empty"),
    ("stop", "", "empty"),
    ("stop", ["a" * 257], "longer than 256"),
    ("stop", ["a"] * 17, "17 strings; at most 16"),
    ("stop_token_ids", 7, "whole numbers"),
    ("stop_token_ids", [1.0], "whole numbers"),
    ("stop_token_ids", [True], "whole numbers"),
    ("stop_token_ids", "12", "whole numbers"),
    ("ignore_end", 1, "True or False"),
    ("logprobs", -1, "0 to 20"),
    ("logprobs", 21, "0 to 20"),
    ("logprobs", True, "0 to 20"),
    ("n", 0, "1 to 128"),
    ("n", 129, "1 to 128"),
    ("n", None, "1 to 128"),
    ("priority", -1, "priority"),
    ("priority", 10**6, "priority"),
    ("client", None, "a string"),
    ("documents", "one text", "strings"),
    ("documents", [b"bytes"], "strings"),
    ("temperature", -1.0, "temperature"),
    ("top_p", 0.0, "top_p"),
    ("seed", "7", "seed"),
]


@pytest.mark.parametrize(("name", "value", "reason"), REFUSED)
def test_a_value_out_of_range_is_refused_with_the_fields_name(name, value, reason):
    with pytest.raises(ValueError, match=reason) as refused:
        LAB.engine.params.SamplingParams(**{name: value})
    assert name in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("presence_penalty", -2),
        ("frequency_penalty", 2.0),
        ("max_tokens", None),
        ("max_tokens", 1),
        ("stop", ["a" * 256] * 16),
        ("stop_token_ids", [0]),
        ("logprobs", 0),
        ("logprobs", 20),
        ("n", 128),
        ("client", ""),
        ("documents", [""]),
    ],
)
def test_a_value_at_the_edge_is_taken(name, value):
    params = LAB.engine.params.SamplingParams(**{name: value})
    assert getattr(params, name) == (tuple(value) if isinstance(value, list) else value)


def test_without_arguments_an_answer_is_greedy_and_has_at_most_128_tokens():
    params = LAB.engine.params.SamplingParams()
    assert (params.temperature, params.max_tokens, params.n) == (0, 128, 1)
    assert (params.stop, params.stop_token_ids, params.documents) == ((), (), ())


def test_one_stop_string_is_a_list_of_one():
    assert LAB.engine.params.SamplingParams(stop="END").stop == ("END",)


def test_lists_are_copied_so_that_they_can_not_change_any_more():
    stops, ids, documents = ["a"], [7], ["text"]
    params = LAB.engine.params.SamplingParams(stop=stops, stop_token_ids=ids, documents=documents)
    for each in (stops, ids, documents):
        each.clear()
    assert (params.stop, params.stop_token_ids, params.documents) == (("a",), (7,), ("text",))
    with pytest.raises(dataclasses.FrozenInstanceError):
        params.n = 2


@pytest.mark.parametrize("name", ["num_seats", "num_pages", "page_size", "token_budget"])
@pytest.mark.parametrize("value", [0, -1, 1.0, True, None])
def test_a_size_of_an_engine_is_a_whole_number_above_0(name, value):
    with pytest.raises(ValueError, match=name):
        LAB.engine.limits.Limits(**{name: value})


def test_an_output_counts_the_tokens_of_all_answers():
    output = LAB.engine.output
    answers = [
        output.CompletionOutput(i, text, [1] * (i + 2), output.FinishReason.STOP)
        for i, text in enumerate("ab")
    ]
    whole = output.RequestOutput(3, 0, answers)
    assert (whole.text, whole.completion_tokens) == ("a", 5)
    assert f"{output.FinishReason.STOP} {output.FinishReason.LENGTH}" == "stop length"
