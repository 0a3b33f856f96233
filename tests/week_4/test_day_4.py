"""Day 4.4: document prompts: their segments, positions and mask, and the dense oracle."""

from __future__ import annotations

from typing import Any

from coursekit.check import check_equal


def segments_of(lab: Any, system: int, documents: tuple[int, ...], question: int) -> Any:
    """Segments of these lengths; no two tokens are equal."""
    ids = iter(range(1000))
    take = lambda count: tuple(next(ids) for _ in range(count))  # noqa: E731
    return lab.documents.prompt.Segments(take(system), tuple(map(take, documents)), take(question))


def test_task_1_without_a_separator_the_text_is_a_question(lab):
    prompt = lab.documents.prompt.split_prompt("a question")
    check_equal(prompt, lab.documents.prompt.DocumentPrompt("", (), "a question"), name="the prompt")


def test_task_2_three_documents_share_their_positions(lab):
    segments = segments_of(lab, 10, (10, 10, 10), 9)
    found = lab.documents.positions.segment_positions(segments)
    check_equal(found, [*range(10), *[*range(10, 20)] * 3, *range(20, 29)], name="the positions")


def test_task_3_each_token_has_the_number_of_its_segment(lab):
    segments = segments_of(lab, 2, (3, 0, 1), 2)
    expected = [-1, -1, 0, 0, 0, 2, -2, -2]
    check_equal(lab.documents.positions.segment_ids(segments), expected, name="the segment ids")


def test_task_4_a_masked_cache_begins_empty(lab):
    cache = lab.documents.oracle.MaskedCache(None)
    check_equal(cache.length, 0, name="the length of a new cache")
