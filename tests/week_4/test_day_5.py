"""Day 4.5: documents on pages: what a question attends to, the tree, planning, and the engine."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from week_2.continuous import new_request

from coursekit import lab as door
from coursekit.check import CheckFailed, check, check_equal, check_untouched

from .joined_attention import NO_KEYS, SCALE, JoinedStep, Row, mistaken
from .joining import (
    cache_of,
    give_pages,
    join_of,
    laid_out,
    members_of,
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


# Task 2: attention that merges

REMEDIES = [(1.0, 1.0), (0.5, 1.0), (1.0, 0.8), (0.4, 0.7), (2.0, 1.3)]
ALL = (Row(2, 5, (5, 2, 3)),)
STEPS = {
    "one question, in the middle of its tokens": ALL,
    "a question that decodes": (Row(1, 4, (4, 1, 2)),),
    "two questions": (Row(3, 3, (2, 1, 4)), Row(2, 6, (7, 3, 1))),
    "questions between other sequences": (Row(2, 5), Row(3, 3, (4, 2, 2)), Row(1, 7), Row(1, 2, (3, 0, 5)), Row(4, 4)),
    "a question without documents": (Row(2, 2, (5, 0, 0)), Row(1, 3, (4, 1, 1))),
    "a question without a system prompt": (Row(2, 2, (0, 2, 1)), Row(1, 3, (4, 1, 1))),
    "a question without a past": (Row(2, 3, (0, 0, 0)), Row(1, 3, (4, 1, 1))),
    "no question with a past": (Row(2, 3, (0, 0, 0)), Row(1, 4)),
    "documents without loose tokens": (Row(2, 3, (3, 2, 0)),),
    "documents without full pages": (Row(2, 3, (3, 0, 4)),),
}  # fmt: skip
some_steps = pytest.mark.parametrize("which", list(STEPS))


def attend(lab: Any, step: JoinedStep, attention: Any = None, **options: Any) -> Any:
    """Call `attend_joined` with attention over the own tokens in float32."""
    query, keys, values = step.arrays(lab)
    out, lse = step.attended(parts=("own",))
    own = lab.array(out), lab.array(lse)
    if attention is not None:
        options["attention"] = attention
    return lab.documents.attention.attend_joined(query, keys, values, step.join(lab), own, SCALE, **options)


def check_joined(lab: Any, step: JoinedStep, remedy: tuple[float, float], what: str, **options: Any) -> None:
    """Compare output and log-sum-exp with dense attention."""
    __tracebackhide__ = True
    if remedy != (1.0, 1.0):
        options["remedy"] = lab.documents.attention.Remedy(*remedy)
        what = f"{what}, with temperature {remedy[0]:g} and scale {remedy[1]:g}"
    suspects = {} if not step.questions else mistaken(step, *remedy)
    check(
        attend(lab, step, **options),
        step.attended(*remedy),
        name=(f"the output of {what}", f"the log-sum-exp of {what}"),
        rtol=1e-5,
        atol=2e-6,
        suspects=suspects,
        nan=NO_KEYS,
    )


@some_steps
@pytest.mark.parametrize("page_size", [1, 3, 4])
def test_task_2_the_questions_attend_to_all_that_they_see(lab, which, page_size):
    check_joined(lab, JoinedStep(STEPS[which], page_size), (1.0, 1.0), which)


@some_steps
@pytest.mark.parametrize("remedy", REMEDIES[1:])
def test_task_2_a_remedy_weighs_the_documents_alone(lab, which, remedy):
    check_joined(lab, JoinedStep(STEPS[which], 3, seed=5), remedy, which)


def test_task_2_a_remedy_of_ones_changes_no_bit(lab):
    step = JoinedStep(ALL)
    plain = attend(lab, step)
    remedied = attend(lab, step, remedy=lab.documents.attention.Remedy(1.0, 1.0))
    for name, one, other in zip(("output", "log-sum-exp"), remedied, plain, strict=True):
        check(one, lab.numpy(other), name=f"the {name} with a temperature and a scale of 1", rtol=0, atol=0)


def test_task_2_the_tokens_of_other_sequences_stay_as_they_were(lab):
    step = JoinedStep(STEPS["questions between other sequences"])
    query, keys, values = step.arrays(lab)
    generator = np.random.default_rng(3)
    out, lse = generator.normal(size=step.query.shape), generator.normal(size=step.query.shape[:2])
    own = lab.array(out), lab.array(lse)
    joined = lab.documents.attention.attend_joined(query, keys, values, step.join(lab), own, SCALE)
    others = [
        t for b, row in enumerate(step.rows) if row.past is None for t in range(step.starts[b], step.starts[b + 1])
    ]  # fmt: skip
    for name, found, given_ in zip(("output", "log-sum-exp"), joined, own, strict=True):
        check(
            found[others],
            lab.numpy(given_)[others],
            name=f"the {name} of tokens that are no question's",
            rtol=0,
            atol=0,
        )


def test_task_2_what_comes_in_stays_as_it_is(lab):
    step = JoinedStep(STEPS["two questions"])
    query, keys, values = step.arrays(lab)
    out, lse = (lab.array(x) for x in step.attended(parts=("own",)))
    before = {
        "the query": query, "the keys": keys, "the values": values, "own[0]": out, "own[1]": lse
    }  # fmt: skip
    copies = {name: lab.numpy(array).copy() for name, array in before.items()}
    lab.documents.attention.attend_joined(query, keys, values, step.join(lab), (out, lse), SCALE)
    for name, array in before.items():
        check_untouched(array, copies[name], name=name)


def test_task_2_the_way_to_attend_that_is_given_is_used(lab):
    step = JoinedStep(STEPS["two questions"])
    calls: list[Any] = []

    def attention(*arguments: Any) -> Any:
        __tracebackhide__ = True
        if len(arguments) != 6:
            raise CheckFailed(
                f"`attention` takes its six arguments by position; {len(arguments)} came by position"
            )
        calls.append(arguments)
        return lab.paged.attention.paged_attention(*arguments)

    check_joined(lab, step, (0.5, 0.8), "two questions", attention=attention)
    assert calls, "`attention` was not called: the questions' past is attended to in the way that is given"
    for query, keys, _, meta, _, causal in calls:
        check_equal(
            causal, False, name="`causal`, for a part of the past: all of it stands before the question"
        )
        check_equal(
            query.shape[0],
            meta.starts[-1],
            name="how many rows of the query go with metadata for so many tokens",
        )
        assert 0 not in keys.shape, f"keys of shape {list(keys.shape)} were handed to `attention`"


def test_task_2_large_scores_do_not_overflow(lab):
    """The merge goes through the log-sum-exp: no weight is computed by itself."""
    step = JoinedStep(ALL)
    step.query *= 60
    check_joined(lab, step, (1.0, 1.0), "a question with scores of up to some hundreds")


rows = st.one_of(
    st.builds(lambda new, old: Row(new, old + new), st.integers(1, 3), st.integers(0, 4)),
    st.builds(
        lambda new, old, *past: Row(new, old + new, past),
        st.integers(1, 3),
        st.integers(0, 4),
        st.integers(0, 7),
        st.integers(0, 3),
        st.integers(0, 5),
    ),
)


@settings(QUICK, max_examples=25)
@given(
    some=st.lists(rows, min_size=1, max_size=4),
    page_size=st.integers(1, 4),
    remedy=st.sampled_from(REMEDIES),
)
def test_task_2_any_step_is_merged_like_that(some, page_size, remedy):
    some = [*some, Row(1, 1, (1, 1, 1))]
    told = "; ".join(
        f"{row.new} new of {row.own} tokens"
        + ("" if row.past is None else ", past: {} system, {} full pages, {} loose".format(*row.past))
        for row in some
    )
    check_joined(door.active(), JoinedStep(some, page_size), remedy, f"a step of sequences of {told}")
