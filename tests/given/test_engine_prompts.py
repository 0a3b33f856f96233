"""What becomes of a prompt: given code of Day 4.6."""

from __future__ import annotations

from typing import Any

import pytest
from week_3.serving import END
from week_4.serving_llm import Alphabet, ids

from coursekit.lab import Lab

LAB = Lab()


def reader(
    enable_chunk_aware: bool = True, separator: str | None = " # # ", longest: int | None = None
) -> Any:
    return LAB.engine.prompts.PromptReader(Alphabet(), enable_chunk_aware, separator, longest)


def document_prompt(*segments: str) -> Any:
    return LAB.documents.prompt.DocumentPrompt(segments[0], tuple(segments[1:-1]), segments[-1])


def segments(*texts: str) -> Any:
    first, *documents, last = [tuple(ids(text)) for text in texts]
    return LAB.documents.prompt.Segments(first, tuple(documents), last)


def test_one_prompt_of_any_kind_is_a_list_of_one():
    as_list, documents = LAB.engine.prompts.as_list, document_prompt("a", "b", "c")
    assert as_list("abc") == ["abc"]
    assert as_list([1, 2]) == [[1, 2]]
    assert as_list((1, 2)) == [[1, 2]]
    assert as_list(documents) == [documents]


def test_several_prompts_stay_as_they_are():
    many = ["abc", [1, 2], document_prompt("a", "b", "c"), []]
    assert LAB.engine.prompts.as_list(many) == many
    assert LAB.engine.prompts.as_list([]) == []


@pytest.mark.parametrize("many", [[1, "abc"], ["abc", 1], [[1, 2], 3]])
def test_a_number_beside_prompts_is_refused(many):
    with pytest.raises(ValueError, match="a number stands among the prompts"):
        LAB.engine.prompts.as_list(many)


def test_a_text_is_tokenized_and_ids_are_copied():
    given = [3, 4]
    read = reader().read(given)
    assert read == [3, 4]
    assert read is not given
    assert reader().read("abc") == [0, 1, 2]


def test_a_control_tokens_spelling_is_letters_unless_it_is_asked_for():
    assert END not in reader().read("a<end>")
    assert reader().read("a<end>", control_tokens=True)[-1] == END


def test_a_text_with_separators_is_split_where_the_engine_is_chunk_aware():
    text = "ab # # cd # # ef # # g"
    assert reader().read(text) == segments("ab", "cd", "ef", "g")
    assert reader(enable_chunk_aware=False).read(text) == Alphabet().encode(text)
    assert reader(separator=None).read(text) == Alphabet().encode(text)
    assert reader(separator="x").read("abxcdxg") == segments("ab", "cd", "g")


def test_documents_may_come_in_each_of_three_ways():
    assert reader().read(document_prompt("ab", "cd", "g")) == segments("ab", "cd", "g")
    assert reader().read("g", ["cd", "ef"]) == segments("", "cd", "ef", "g")
    assert reader().read("ab # # cd # # g") == segments("ab", "cd", "g")


def test_in_a_document_no_spelling_is_a_control_token():
    read = reader().read(document_prompt("a", "b<end>", "c<end>"), control_tokens=True)
    assert END not in read.documents[0]
    assert read.question[-1] == END


@pytest.mark.parametrize("prompt", [document_prompt("a", "b", "c"), "a # # b # # c"], ids=["prompt", "text"])
def test_documents_that_are_given_twice_are_refused(prompt):
    with pytest.raises(ValueError, match="given twice"):
        reader().read(prompt, ["d"])


def test_documents_beside_token_ids_are_refused():
    with pytest.raises(ValueError, match="can't stand beside token ids"):
        reader().read([1, 2], ["d"])


@pytest.mark.parametrize(("prompt", "documents"), [("c", ["d"]), (document_prompt("a", "b", "c"), [])])
def test_documents_need_an_engine_that_is_chunk_aware(prompt, documents):
    with pytest.raises(ValueError, match="enable_chunk_aware=True"):
        reader(enable_chunk_aware=False).read(prompt, documents)
    with pytest.raises(ValueError, match="enable_chunk_aware=True"):
        reader(enable_chunk_aware=False).read_chat([{"role": "user", "content": "c"}], ["d"])


def test_a_document_that_is_too_long_is_refused_with_its_number():
    with pytest.raises(ValueError, match=r"(?s)2.*4.*3"):
        reader(longest=3).read("g", ["abc", "abcd"])


def test_the_documents_of_a_chat_stand_before_its_last_message():
    messages = [{"role": "user", "content": "abc"}]
    tokenizer = Alphabet()
    assert reader().read_chat(messages) == tokenizer.encode_chat(messages)
    read = reader().read_chat(messages, ["de"])
    before, after = tokenizer.encode_chat_parts(messages)
    assert (list(read.system), read.documents, list(read.question)) == (before, (tuple(ids("de")),), after)


@pytest.mark.parametrize(
    ("options", "reason"), [({"separator": ""}, "empty"), ({"longest": 0}, "at least 1")]
)
def test_settings_that_can_not_work_are_refused(options, reason):
    with pytest.raises(ValueError, match=reason):
        reader(**options)
