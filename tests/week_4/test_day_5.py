"""Day 4.5: documents on pages: what a question attends to, the tree, planning, and the engine."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from week_2.continuous import new_request

from coursekit import lab as door
from coursekit.check import CheckFailed, check, check_equal, check_raises

from .joining import (
    P,
    cache_of,
    give_pages,
    join_of,
    laid_out,
    member_name,
    members_of,
    named,
    request_of,
    segments_of,
    text,
)
from .pasts import check_meta, check_past

QUICK = settings(max_examples=60, deadline=None, derandomize=True, database=None, report_multiple_bugs=False)


# Task 1: the past of a question


def told(system: int, documents: Any, page_size: int) -> str:
    counts = ", ".join(map(str, documents)) or "none"
    return f"a system prompt of {system} tokens, documents of {counts}, and pages of {page_size}"


EDGES = [
    (5, (6, 2), 4),  # the second document ends in the page in which the system prompt ends
    (5, (3, 7, 11), 4),  # documents that end exactly at the end of a page
    (4, (3, 4, 5), 4),  # the system prompt fills its pages
    (3, (3, 4, 5), 4),
    (0, (3, 4, 5), 4),
    (0, (8,), 4),
    (7, (1, 1), 16),  # all in one page
    (2, (3, 1, 2), 1),
    (6, (), 4),
    (8, (), 4),
    (0, (), 4),
]


@pytest.mark.parametrize(("system", "documents", "page_size"), EDGES)
def test_task_1_each_token_of_the_past_is_in_one_list_once(lab, system, documents, page_size):
    join = laid_out(lab, segments_of(lab, system, documents), page_size)
    past = lab.documents.past.Past.of(join.question, page_size)
    check_past(past, join.question, page_size, told(system, documents, page_size))


def test_task_1_empty_documents_have_no_tokens_to_see(lab):
    join = laid_out(lab, segments_of(lab, 5, (0, 6, 0)), 4)
    check_past(lab.documents.past.Past.of(join.question, 4), join.question, 4, told(5, (0, 6, 0), 4))
    join = laid_out(lab, segments_of(lab, 5, (0, 0)), 4)
    check_past(lab.documents.past.Past.of(join.question, 4), join.question, 4, told(5, (0, 0), 4))


@pytest.mark.parametrize(("system", "documents", "page_size"), EDGES)
def test_task_1_branches_that_this_step_computes_count_as_a_whole(lab, system, documents, page_size):
    """Their pages are there; how many of their tokens were computed before makes no difference."""
    join = laid_out(lab, segments_of(lab, system, documents), page_size, seed=1, computed="none")
    past = lab.documents.past.Past.of(join.question, page_size)
    what = (
        f"{told(system, documents, page_size)}, where no token of the branches was computed before this step"
    )
    check_past(past, join.question, page_size, what)


def test_task_1_the_branches_and_their_pages_stay_as_they_are(lab):
    join = laid_out(lab, segments_of(lab, 5, (6, 2, 9)), 4)
    before = [list(member.sequence.pages) for member in members_of(join)]
    lab.documents.past.Past.of(join.question, 4)
    check_equal(
        [list(member.sequence.pages) for member in members_of(join)],
        before,
        name="the pages of the branches and the question, afterwards",
    )


@QUICK
@given(
    system=st.integers(0, 9),
    documents=st.lists(st.integers(0, 9), max_size=5).map(tuple),
    page_size=st.integers(1, 5),
    computed=st.sampled_from(["all", "none"]),
)
def test_task_1_any_lengths_are_sorted_like_that(system, documents, page_size, computed):
    lab = door.active()
    join = laid_out(lab, segments_of(lab, system, documents), page_size, computed=computed)
    past = lab.documents.past.Past.of(join.question, page_size)
    check_past(past, join.question, page_size, told(system, documents, page_size))


def ordinary(lab: Any, cache: Any, count: int, computed: int) -> Any:
    """A request without documents, with pages for all its tokens."""
    sequence = lab.paged.sequence.PagedSequence(cache.allocator, cache.page_size)
    each = lab.scheduling.standing.Standing(new_request(lab, text(count, 40), 4), sequence)
    give_pages(each, computed=computed)
    return each


def step_of(lab: Any, line: list[tuple[Any, int]], page_size: int) -> tuple[list[Any], Any]:
    """The chunks of a step, and its metadata: each of the line brings so many of its tokens."""
    chunks = [
        lab.scheduling.standing.Chunk(each, count, each.sequence.length, 0, False) for each, count in line
    ]
    metadata = lab.paged.metadata
    tables = metadata.tables_of([each.sequence for each, _ in line])
    lengths, counts = [each.sequence.length for each, _ in line], [count for _, count in line]
    meta = metadata.ForwardMeta.build(tables, lengths, counts, page_size, lab.device)
    return chunks, meta


def questions_of(lab: Any, cache: Any, shapes: Any) -> list[Any]:
    """Joins whose branches are computed and whose questions are not, in pages in no order."""
    random.Random(7).shuffle(cache.allocator.free_pages)
    joins = [join_of(lab, cache, request_of(lab, segments_of(lab, *shape))) for shape in shapes]
    for join in joins:
        for member in members_of(join):
            isolated = hasattr(member, "branches")
            give_pages(member, computed=0 if isolated else len(member.request.token_ids))
    return joins


SHAPES = [(5, (6, 2), 4), (0, (), 3), (4, (8, 4), 2), (0, (3, 5, 1), 1), (6, (), 5)]


def test_task_1_a_step_without_questions_needs_no_metadata(lab):
    cache = cache_of(lab, 60, 4)
    join = questions_of(lab, cache, [(5, (6, 2), 4)])[0]
    branch = join.question.branches[0]
    branch.sequence.length = 3
    chunks, meta = step_of(lab, [(ordinary(lab, cache, 6, 0), 6), (branch, 4)], 4)
    found = lab.documents.past.JoinMeta.build(chunks, meta, 4)
    assert found is None, (
        f"a step of an ordinary request and a branch has no question: None expected, {type(found).__name__} found"
    )


@pytest.mark.parametrize("page_size", [1, 3, 4])
def test_task_1_the_metadata_say_for_each_question_what_it_sees(lab, page_size):
    cache = cache_of(lab, 200, page_size)
    joins = questions_of(lab, cache, SHAPES)
    line = [(join.question, len(join.question.request.token_ids)) for join in joins]
    chunks, meta = step_of(lab, line, page_size)
    found = lab.documents.past.JoinMeta.build(chunks, meta, page_size)
    check_meta(
        lab, found, chunks, meta, page_size, f"a step of {len(line)} questions in pages of {page_size}"
    )


def test_task_1_branches_and_ordinary_requests_between_questions_are_left_out(lab):
    cache = cache_of(lab, 200, 4)
    first, second, third = questions_of(lab, cache, [(5, (6, 2), 4), (4, (8, 4), 2), (0, (3,), 5)])
    branch = second.question.branches[1]
    branch.sequence.length = 2
    line = [
        (ordinary(lab, cache, 6, 2), 3),
        (first.question, 4),
        (branch, 6),
        (second.question, 1),
        (ordinary(lab, cache, 9, 8), 1),
        (third.question, 3),
        (ordinary(lab, cache, 2, 0), 2),
    ]
    chunks, meta = step_of(lab, line, 4)
    found = lab.documents.past.JoinMeta.build(chunks, meta, 4)
    what = "a step of an ordinary request, a question, a branch, a question, an ordinary request, a question and another"
    check_meta(lab, found, chunks, meta, 4, what)
