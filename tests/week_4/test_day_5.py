"""Day 4.5: documents on pages: what a question attends to, the tree, planning, and the engine."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from week_1.numpy_model import V
from week_2.continuous import new_request
from week_3.pages import pages_needed, stored

from coursekit import lab as door
from coursekit.check import CheckFailed, check, check_equal, check_raises, check_untouched
from coursekit.checking.objects import values_of

from .beside_joining import NAMES, due_behind, member_name, ran, sequences_that_run, shares
from .joined_attention import NO_KEYS, SCALE, JoinedStep, Row, mistaken
from .joined_engine import CLOSE, Engine, Noting, prompt, prompt_of, words
from .joining import (
    P,
    cache_of,
    give_pages,
    join_of,
    laid_out,
    members_of,
    named,
    request_of,
    segments_of,
    text,
)
from .pasts import check_meta, check_past, past_in

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
    what = told(system, documents, page_size)
    check_past(past_in(lab, join, page_size, what), join.question, page_size, what)


def test_task_1_empty_documents_have_no_tokens_to_see(lab):
    join = laid_out(lab, segments_of(lab, 5, (0, 6, 0)), 4)
    check_past(lab.documents.past.Past.of(join.question, 4), join.question, 4, told(5, (0, 6, 0), 4))
    join = laid_out(lab, segments_of(lab, 5, (0, 0)), 4)
    what = told(5, (0, 0), 4)
    check_past(past_in(lab, join, 4, what), join.question, 4, what)


@pytest.mark.parametrize(("system", "documents", "page_size"), EDGES)
def test_task_1_branches_that_this_step_computes_count_as_a_whole(lab, system, documents, page_size):
    """Their pages are there; how many of their tokens were computed before makes no difference."""
    join = laid_out(lab, segments_of(lab, system, documents), page_size, seed=1, computed="none")
    what = (
        f"{told(system, documents, page_size)}, where no token of the branches was computed before this step"
    )
    check_past(past_in(lab, join, page_size, what), join.question, page_size, what)


def test_task_1_the_branches_and_their_pages_stay_as_they_are(lab):
    join = laid_out(lab, segments_of(lab, 5, (6, 2, 9)), 4)
    before = [list(member.sequence.pages) for member in members_of(join)]
    lab.documents.past.Past.of(join.question, 4)
    check_equal(
        [list(member.sequence.pages) for member in members_of(join)],
        before,
        name="the pages of the branches and the question, afterwards",
    )


def test_task_1_a_document_that_stands_there_twice_counts_twice(lab):
    """The tree gives both branches the same full pages: what they hold is still there once for each."""
    one, other = tuple(text(8, 1)), tuple(text(7, 2))
    segments = lab.documents.prompt.Segments(tuple(text(5)), (one, one, other, other), tuple(text(2, 20)))
    join = laid_out(lab, segments, 4)
    for first, again in zip(join.question.branches[::2], join.question.branches[1::2], strict=True):
        count = len(again.request.token_ids)
        again.sequence.allocator.free(again.sequence.pages)
        give_pages(again, first.sequence.pages[: count // 4], count)
    what = f"{told(5, (8, 8, 7, 7), 4)}, where the second document is the first one again, and the fourth the third"
    check_past(lab.documents.past.Past.of(join.question, 4), join.question, 4, what)


@pytest.mark.parametrize("documents", [(0, 6), (0, 0, 8, 3), (6, 0, 8)])
def test_task_1_where_the_documents_stand_makes_no_difference(lab, documents):
    """Behind an empty first document, the first branch starts farther on than its system prompt ends."""
    offset: dict[str, Any] = {"strategy": "offset", "max_chunk_len": 8}
    join = laid_out(lab, segments_of(lab, 5, documents), 4, **offset)
    what = f"{told(5, documents, 4)}, with offset positions and a `max_chunk_len` of 8"
    check_past(lab.documents.past.Past.of(join.question, 4), join.question, 4, what)


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
    what = told(system, documents, page_size)
    check_past(past_in(lab, join, page_size, what), join.question, page_size, what)


def ordinary(lab: Any, cache: Any, count: int, computed: int) -> Any:
    """A request without documents, with pages for all its tokens."""
    sequence = lab.paged.sequence.PagedSequence(cache.allocator, cache.page_size)
    each = lab.scheduling.standing.Standing(new_request(lab, text(count, 40), 4), sequence)
    give_pages(each, computed=computed)
    return each


def step_of(lab: Any, line: list[tuple[Any, int]], page_size: int) -> tuple[list[Any], Any]:
    """The chunks of a step, and its metadata: each of the line brings so many of its tokens."""
    chunks = [
        lab.scheduling.standing.Chunk(each, count, each.sequence.length, 0, each.decoding)
        for each, count in line
    ]
    tables = lab.paged.tables.tables_of([each.sequence for each, _ in line])
    lengths, counts = [each.sequence.length for each, _ in line], [count for _, count in line]
    meta = lab.paged.metadata.ForwardMeta.build(tables, lengths, counts, page_size, lab.device)
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
    try:
        found = lab.documents.past.JoinMeta.build(chunks, meta, 4)
    except (TypeError, IndexError, ValueError) as error:
        raise CheckFailed(
            "a step of an ordinary request and a branch has no question: None expected, "
            f"{type(error).__name__} raised: {error}"
        ) from error
    if found is not None:
        raise CheckFailed(
            "a step of an ordinary request and a branch has no question: None expected, "
            f"{type(found).__name__} found"
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
    what = "a step in which ordinary requests and a branch stand between three questions"
    check_meta(lab, found, chunks, meta, 4, what)


def decode(each: Any) -> None:
    """By hand: a token was generated, and is all that is due."""
    each.sequence.length = len(each.request.token_ids)
    each.request.token_ids.append(7)
    each.sequence.reserve(1)


@pytest.mark.parametrize("decoding", [(0,), (0, 2), (0, 1, 2)])
def test_task_1_questions_that_decode_are_questions_too(lab, decoding):
    cache = cache_of(lab, 200, 4)
    joins = questions_of(lab, cache, [(5, (6, 2), 4), (4, (8, 4), 3), (0, (3,), 5)])
    for number in decoding:
        decode(joins[number].question)
    plain = ordinary(lab, cache, 6, 0)
    decode(plain)
    line = [(plain, 1), *((join.question, join.question.due) for join in joins)]
    chunks, meta = step_of(lab, line, 4)
    found = lab.documents.past.JoinMeta.build(chunks, meta, 4)
    what = f"a step of an ordinary request and three questions, of which {len(decoding)} decode"
    check_meta(lab, found, chunks, meta, 4, what)


# Task 2: attention that merges

REMEDIES = [(1.0, 1.0), (0.5, 1.0), (1.0, 0.8), (0.4, 0.7), (2.0, 1.3)]
ALL = (Row(2, 5, (5, 2, 3)),)
STEPS = {
    "one question, in the middle of its tokens": ALL,
    "a question that decodes": (Row(1, 4, (4, 1, 2)),),
    "two questions": (Row(3, 3, (2, 1, 4)), Row(2, 6, (7, 3, 1))),
    "questions between other sequences": (
        Row(2, 5), Row(3, 3, (4, 2, 2)), Row(1, 7), Row(1, 2, (3, 0, 5)), Row(4, 4)
    ),
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


def check_joined(
    lab: Any, step: JoinedStep, remedy: tuple[float, float], what: str, near: float = 1e-5, **options: Any
) -> None:
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
        rtol=near,
        atol=near / 5,
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
    if not calls:
        raise CheckFailed(
            "`attention` was not called: the questions' past is attended to in the way that is given"
        )
    for query, keys, _, meta, _, causal in calls:
        check_equal(
            causal, False, name="`causal`, for a part of the past: all of it stands before the question"
        )
        check_equal(
            query.shape[0],
            meta.starts[-1],
            name="how many rows of the query go with metadata for so many tokens",
        )
        if 0 in keys.shape:
            raise CheckFailed(f"keys of shape {list(keys.shape)} were handed to `attention`")


def test_task_2_every_part_of_the_past_is_attended_to_in_the_way_that_is_given(lab):
    """Here it doubles all values."""
    step, doubled = JoinedStep(STEPS["two questions"]), JoinedStep(STEPS["two questions"])
    past = [place for parts in doubled.past for places in parts.values() for place in places]
    doubled.values[past] *= 2

    def attention(*arguments: Any) -> Any:
        out, lse = lab.paged.attention.paged_attention(*arguments)
        return 2 * out, lse

    check(
        attend(lab, step, attention=attention),
        doubled.attended(),
        name=("the output, where `attention` doubles all values of the past", "the log-sum-exp"),
        rtol=1e-5,
        atol=2e-6,
        nan=NO_KEYS,
    )


def test_task_2_the_output_has_the_dtype_of_own_and_the_log_sum_exp_stays_float32(lab):
    step = JoinedStep(STEPS["questions between other sequences"]).rounded(lab, "bfloat16")
    query, keys, values = (lab.array(lab.numpy(x), "bfloat16") for x in step.arrays(lab))
    out, lse = step.attended(parts=("own",))
    own = lab.array(out, "bfloat16"), lab.array(lse)
    found = lab.documents.attention.attend_joined(query, keys, values, step.join(lab), own, SCALE)
    wanted, suspects = step.attended(), mistaken(step, 1.0, 1.0)
    # The output of each part is rounded, and that of the documents, and that of all.
    for number, name, dtype, near in (
        (0, "the output, in the dtype of `own`", "bfloat16", 2**-6),
        (1, "the log-sum-exp, float32 in any case", "float32", 1e-5),
    ):
        check(
            found[number],
            wanted[number],
            name=f"{name}, where queries, keys and values are bfloat16",
            suspects={why: wrong[number] for why, wrong in suspects.items()},
            nan=NO_KEYS,
            dtype=dtype,
            rtol=near,
            atol=near,
        )


def test_task_2_large_scores_do_not_overflow(lab):
    """The merge goes through the log-sum-exp: no weight is computed by itself."""
    step = JoinedStep(ALL)
    step.query *= 60
    # float32 holds a score of some hundreds to 3e-5, and a weight is off by as much, relatively.
    check_joined(lab, step, (1.0, 1.0), "a question with scores of up to some hundreds", near=1e-4)


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


# Task 3: what the tree knows a page by


def salted_of(lab: Any, cache: Any, first: int, salt: Any) -> Any:
    return lab.documents.bundle.SaltedSequence(cache.allocator, cache.page_size, first, salt)


def plain_of(lab: Any, cache: Any) -> Any:
    return lab.paged.sequence.PagedSequence(cache.allocator, cache.page_size)


@pytest.mark.parametrize("first", [0, 1, 4])
@pytest.mark.parametrize("salt", [17, "the documents", ("any", "thing")])
def test_task_3_one_token_tells_the_salt(lab, first, salt):
    ids = text(5)
    known = salted_of(lab, cache_of(lab), first, salt).salted(text(5))
    pair = (salt, ids[first])
    whole = [(salt, token) for token in ids]
    check_equal(
        known,
        [*ids[:first], pair, *ids[first + 1 :]],
        name=f"what the tree knows {ids} by, where token number {first} is the first that the salt {salt!r} touches",
        suspects={
            "the salt was left out": ids,
            "the salt stands beside its token, not in a pair with it": [*ids[:first], salt, *ids[first:]],
            "the salt took the place of the token: tokens that differ would look equal": [
                *ids[:first], salt, *ids[first + 1 :]
            ],
            "every token has the salt: one is enough": whole if first else None,
            "the pair is salt and id, in this order": [*ids[:first], (ids[first], salt), *ids[first + 1 :]],
            "every token from there on has the salt: one is enough": [*ids[:first], *whole[first:]],
            "the first token of all has the salt": [(salt, ids[0]), *ids[1:]],
        },
    )  # fmt: skip


@pytest.mark.parametrize("count", [0, 3, 4])
def test_task_3_tokens_that_end_before_the_salt_have_none(lab, count):
    known = salted_of(lab, cache_of(lab), 4, "salt").salted(text(count))
    check_equal(
        known, text(count), name=f"what the tree knows {count} tokens by, where the salt touches the fifth"
    )


def test_task_3_the_tokens_of_the_request_stay_as_they_are(lab):
    ids = text(5)
    salted_of(lab, cache_of(lab), 2, "salt").salted(ids)
    check_equal(ids, text(5), name="the token ids that were given, afterwards")


def compute(cache: Any, sequence: Any, ids: Any, upto: int | None = None) -> int:
    """By hand: search, take pages, publish and compute, up to so many tokens. How many were found."""
    stop = len(ids) if upto is None else upto
    found: int = cache.match(sequence, ids[: stop + 1])
    sequence.reserve(stop - sequence.length)
    cache.publish(sequence, ids, stop)
    cache.commit()
    sequence.length = stop
    return found


SALTED, OTHER, PLAIN = "a salted sequence", "one with another salt", "an ordinary one"
KINDS = {SALTED: "salt", "one with the same salt": "salt", OTHER: "other", PLAIN: None}


def sequence_of_kind(lab: Any, cache: Any, kind: str, first: int) -> Any:
    salt = KINDS[kind]
    return plain_of(lab, cache) if salt is None else salted_of(lab, cache, first, salt)


@pytest.mark.parametrize("first", [0, 3, 4, 5, 6])
@pytest.mark.parametrize("one", [SALTED, PLAIN])
@pytest.mark.parametrize("other", list(KINDS))
def test_task_3_pages_are_shared_where_tokens_and_salt_are_equal(lab, first, one, other):
    cache, ids = cache_of(lab), text(10)
    compute(cache, sequence_of_kind(lab, cache, one, first), ids)
    found = compute(cache, sequence_of_kind(lab, cache, other, first), ids)
    before_salt = first // P * P  # in full pages that end before the salt
    same = KINDS[one] == KINDS[other]
    check_equal(
        found,
        9 if same else before_salt,
        name=f"how many of 10 tokens {other} finds of those that {one} has computed, in pages of 3, where a salt "
        f"touches the tokens from number {first} on",
        suspects={
            "the salt was left out: keys and values differ behind it": None if same else 9,
            "pages that end before the salt's first token can be shared": None if same else 0,
            "`match` and `publish` know the tokens by different ids: the salt belongs to both": (
                before_salt if same and one != PLAIN else None
            ),
        },
    )


def test_task_3_what_hangs_below_the_salt_is_found_again(lab):
    cache, ids = cache_of(lab), text(14)
    longer = salted_of(lab, cache, 4, "salt")
    compute(cache, longer, ids, 7)
    again = salted_of(lab, cache, 4, "salt")
    check_equal(compute(cache, again, ids, 12), 6, name="the tokens found behind a salted page")
    check_equal(
        cache.match(longer, ids), 0, name="the tokens found by a sequence with a part-filled page of its own"
    )


def test_task_3_a_prompt_half_computed_goes_on_where_another_is(lab):
    cache, ids = cache_of(lab), text(14)
    first, second = (salted_of(lab, cache, 1, "salt") for _ in range(2))
    compute(cache, first, ids, 3)
    check_equal(cache.match(second, ids), 3, name="the tokens found at first")
    compute(cache, first, ids, 9)
    check_equal(cache.match(second, ids), 6, name="the tokens found later, behind those found before")


def test_task_3_the_last_token_is_left_to_compute(lab):
    cache, ids = cache_of(lab), text(6)
    compute(cache, salted_of(lab, cache, 0, "salt"), ids)
    found = cache.match(salted_of(lab, cache, 0, "salt"), ids)
    check_equal(found, 3, name="how many of 6 tokens, all computed, are found in pages of 3")


def branches_in_tree(lab: Any, cache: Any, segments: Any, **options: Any) -> Any:
    """A join whose members were all computed, and another one for the same request that has no pages."""
    first = join_of(lab, cache, request_of(lab, segments, **options))
    for member in members_of(first):
        compute(cache, member.sequence, member.request.token_ids)
    return first, join_of(lab, cache, request_of(lab, segments, **options), rank=1)


@pytest.mark.parametrize(
    "token_ids", [[], [1, 2, 3, 4, 5, 6, 7, 8]], ids=["no tokens", "tokens of the system prompt"]
)
def test_task_3_each_member_of_a_bundle_searches_with_its_own_tokens(lab, token_ids):
    cache = cache_of(lab)
    first, again = branches_in_tree(lab, cache, segments_of(lab, 7, (6, 1, 9), 8))
    found = cache.match(again.sequence, token_ids)
    lengths = {member_name(each): each.sequence.length for each in members_of(again)}
    expected = {"document A": 12, "document B": 6, "document C": 15, "the question": 6}
    check_equal(
        lengths,
        expected,
        name="the tokens that each member has after `match` of the bundle: all were computed before, in pages of 3",
        suspects={"the members searched with the tokens that were given, not with their own": dict.fromkeys(
            expected, 6 if token_ids else 0
        )},
    )  # fmt: skip
    check_equal(found, 39, name="what `match` of the bundle returns, all members together",
                suspects={"the number of members was returned": 4})  # fmt: skip
    for mine, other in zip(members_of(again), members_of(first), strict=True):
        pages = other.sequence.pages[: mine.sequence.length // P]
        check_equal(mine.sequence.pages, pages, name=f"the pages found for {member_name(mine)}")


def test_task_3_a_member_that_finds_nothing_stops_no_other(lab):
    cache = cache_of(lab)
    branches_in_tree(lab, cache, named(lab, 1, {"A": 6, "B": 7}))
    join = join_of(lab, cache, request_of(lab, named(lab, 1, {"D": 8, "B": 7, "E": 9, "A": 6}, seed=1)))
    found = cache.match(join.sequence, [])
    expected = {"document D": 0, "document B": 6, "document E": 0, "document A": 6, "the question": 0}
    check_equal(
        {member_name(each): each.sequence.length for each in members_of(join)},
        expected,
        name="the tokens found for each member, where A and B are in the tree, in pages of 3",
    )
    check_equal(found, 12, name="what `match` of this bundle returns")


def test_task_3_a_bundle_finds_what_its_members_do_not_have_yet(lab):
    cache = cache_of(lab)
    _, again = branches_in_tree(lab, cache, segments_of(lab, 7, (6, 1, 9), 8))
    cache.match(again.sequence, [])
    check_equal(cache.match(again.sequence, []), 0, name="the tokens that a second `match` of a bundle finds")


def test_task_3_a_question_that_resumes_searches_with_its_output_too(lab):
    cache = cache_of(lab)
    request = request_of(lab, segments_of(lab, 7, (6, 1), 8))
    request.token_ids += text(5, 30)
    first, again = join_of(lab, cache, request), join_of(lab, cache, request, rank=1)
    for member in members_of(first):
        compute(cache, member.sequence, member.request.token_ids)
    cache.match(again.sequence, [])
    found = {member_name(each): each.sequence.length for each in members_of(again)}
    expected = {"document A": 12, "document B": 6, "the question": 12}
    check_equal(
        found,
        expected,
        name="the tokens found for each member, where the question has 8 tokens and an output of 5, in pages of 3",
        suspects={"the question searched with its prompt alone, without its output": expected | {"the question": 6}},
    )  # fmt: skip


def test_task_3_the_members_of_a_bundle_search_in_their_order(lab, monkeypatch):
    cache = cache_of(lab)
    _, again = branches_in_tree(lab, cache, segments_of(lab, 7, (6, 1, 9), 8))
    searched: list[Any] = []
    tree = lab.prefix.trie_cache.TrieCache
    whole = tree.match

    def match(self: Any, sequence: Any, token_ids: Any) -> int:
        searched.append(sequence)
        count: int = whole(self, sequence, token_ids)
        return count

    monkeypatch.setattr(tree, "match", match)
    cache.match(again.sequence, [])
    names = {each.sequence: member_name(each) for each in members_of(again)}
    check_equal(
        [names.get(sequence, "another sequence") for sequence in searched],
        list(names.values()),
        name="the members of a bundle in the order in which `match` of the bundle lets them search",
    )


def test_task_3_a_question_is_found_with_the_same_documents_in_the_same_order_alone(lab):
    """Its keys depend on all that it sees, so its pages serve no other question."""
    documents = {"A": 6, "B": 4}
    for other, expected in (
        ({"A": 6, "B": 4}, 6),
        ({"B": 4, "A": 6}, 0),
        ({"A": 6}, 0),
        ({"A": 6, "C": 4}, 0),
        ({}, 0),
    ):
        cache = cache_of(lab)
        branches_in_tree(lab, cache, named(lab, 5, documents, 8))
        join = join_of(lab, cache, request_of(lab, named(lab, 5, other, 8)))
        found = cache.match(join.question.sequence, join.question.request.token_ids)
        check_equal(
            found,
            expected,
            name=f"how many of the 8 tokens of a question about {' and '.join(other) or 'nothing'} are found, where "
            "the same question about A and B was computed",
            suspects={"the salt was left out: a question's keys depend on its documents": 6},
        )


def test_task_3_with_offset_positions_a_document_is_found_in_its_place_alone(lab):
    """In another place its keys are turned by other angles. The first one stands where an ordinary text would."""
    cache = cache_of(lab)
    options: dict[str, Any] = {"strategy": "offset", "max_chunk_len": 10}
    branches_in_tree(lab, cache, named(lab, 6, {"A": 7, "B": 7}), **options)
    for documents, expected in (
        ({"A": 7, "B": 7}, (12, 12)),
        ({"B": 7, "A": 7}, (6, 6)),
        ({"C": 7, "B": 7}, (6, 12)),
    ):
        join = join_of(lab, cache, request_of(lab, named(lab, 6, documents), **options))
        found = tuple(cache.match(each.sequence, each.request.token_ids) for each in join.question.branches)
        check_equal(
            found,
            expected,
            name=f"how many of the 13 tokens of the branches {' and '.join(documents)} are found, where A and B were "
            "computed, with offset positions and a system prompt of 6",
            suspects={"the salt was left out: at another position the keys are others": (12, 12)},
        )
    plain = plain_of(lab, cache)
    found = cache.match(plain, [*text(6), *text(7, 1)])
    check_equal(
        found, 12, name="how many tokens an ordinary text finds that begins with the system prompt and A"
    )
    found = cache.match(plain_of(lab, cache), [*text(6), *text(7, 2)])
    check_equal(
        found, 6, name="how many tokens an ordinary text finds that begins with the system prompt and B"
    )


@pytest.mark.parametrize("kind", [SALTED, PLAIN])
def test_task_3_publish_lists_what_is_full_after_the_step(lab, kind):
    cache, ids = cache_of(lab), text(10)
    sequence = sequence_of_kind(lab, cache, kind, 4)
    sequence.reserve(10)
    cache.publish(sequence, ids, 8)
    check_equal(
        cache.tip(sequence).depth,
        2,
        name=f"how many pages of {kind} are published, of 8 tokens in pages of 3",
    )
    check_equal(len(cache.planned), 2, name="how many pages `planned` lists, before the step has run")


# Task 4: the life of the pages


def join_with(lab: Any, cache: Any, computed: dict[str, int], segments: Any = None, rank: int = 0) -> Any:
    """By hand: a join of which each member named has so many tokens, in pages that the tree knows."""
    join = join_of(lab, cache, request_of(lab, segments or segments_of(lab, 7, (6, 1, 9), 8)), rank)
    for member in members_of(join):
        if upto := computed.get(member_name(member), 0):
            compute(cache, member.sequence, member.request.token_ids, upto)
    return join


def lengths_of(join: Any) -> dict[str, int]:
    return {member_name(each): each.sequence.length for each in members_of(join)}


def pages_of(join: Any) -> dict[str, list[int]]:
    return {member_name(each): list(each.sequence.pages) for each in members_of(join)}


STATES = {
    "nothing is computed": {},
    "the branches are computed": {"document A": 13, "document B": 8, "document C": 16},
    "one branch is computed, and others in part": {"document A": 13, "document B": 6, "document C": 7},
    "all is computed": {"document A": 13, "document B": 8, "document C": 16, "the question": 8},
    "a part of one branch is computed": {"document A": 4},
}


def needed(count: int) -> int:
    return pages_needed(count, P)


@pytest.mark.parametrize("count", [0, 1, 100])
@pytest.mark.parametrize("state", list(STATES))
def test_task_4_a_bundle_lacks_the_pages_for_all_that_is_due(lab, state, count):
    """Documents of 6, 1 and 9 tokens behind a system prompt of 7, a question of 8, and pages of 3."""
    cache = cache_of(lab)
    join = join_with(lab, cache, STATES[state])
    members = members_of(join)
    lacks = [needed(len(each.request.token_ids)) - len(each.sequence.pages) for each in members]
    by_count = [max(0, needed(each.sequence.length + count) - len(each.sequence.pages)) for each in members]
    check_equal(
        cache.lacking(join.sequence, count),
        sum(lacks),
        name=f"how many pages a bundle lacks, where {state}, and `count` is {count}",
        suspects={
            "`count` was used: of a bundle all that is due of its members is asked": sum(by_count),
            "only the question was asked": lacks[-1],
            "the question was left out": sum(lacks[:-1]),
            "the tokens that are due were put together: each member has pages of its own": needed(
                sum(each.due for each in members)
            ),
        },
    )


def test_task_4_any_other_sequence_lacks_what_its_count_needs(lab):
    cache = cache_of(lab)
    for sequence in (plain_of(lab, cache), salted_of(lab, cache, 2, "salt")):
        sequence.reserve(4)
        sequence.advance(4)
        for count, expected in ((0, 0), (2, 0), (3, 1), (9, 3)):
            check_equal(
                cache.lacking(sequence, count),
                expected,
                name=f"how many pages a sequence with 4 tokens in 2 pages of 3 lacks for {count} more",
            )


def check_held_by(cache: Any, sequences: Any, when: str) -> None:
    """`check` finds no fault."""
    __tracebackhide__ = True
    try:
        cache.check(sequences)
    except RuntimeError as error:
        raise CheckFailed(f"{when}: {error}") from error


def sequences_of(*joins: Any) -> list[Any]:
    return [each.sequence for join in joins for each in members_of(join)]


@pytest.mark.parametrize("state", list(STATES))
def test_task_4_a_released_bundle_gives_up_all_pages_of_all_members(lab, state):
    cache = cache_of(lab)
    join = join_with(lab, cache, STATES[state])
    cache.release(join.sequence)
    check_equal(
        pages_of(join),
        {member_name(each): [] for each in members_of(join)},
        name=f"the pages of each member after `release` of the bundle, where {state}",
    )
    check_equal(
        sum(lengths_of(join).values()), 0, name="the tokens of all members after `release` of the bundle"
    )
    check_held_by(cache, sequences_of(join), "after `release` of a bundle")
    check_equal(cache.available, 60, name="the pages available after `release` of the only bundle")


@pytest.mark.parametrize("keep", [1, 8, 45])
def test_task_4_a_bundle_that_is_to_keep_tokens_keeps_them_all(lab, keep):
    """One number can't say how much each member is to keep: the members are released one by one."""
    cache = cache_of(lab)
    join = join_with(lab, cache, STATES["all is computed"])
    pages, lengths = pages_of(join), lengths_of(join)
    cache.release(join.sequence, keep)
    name = f"after `release` of a bundle that is to keep {keep} tokens: nothing is to change"
    check_equal(lengths_of(join), lengths, name=f"the tokens of each member {name}")
    check_equal(pages_of(join), pages, name=f"the pages of each member {name}")
    check_held_by(cache, sequences_of(join), "after a `release` that keeps tokens")


@pytest.mark.parametrize("keep", [0, 3, 6, 7])
def test_task_4_any_other_sequence_keeps_its_first_tokens(lab, keep):
    cache = cache_of(lab)
    for sequence in (plain_of(lab, cache), salted_of(lab, cache, 2, "salt")):
        compute(cache, sequence, text(9), 7)
        cache.release(sequence, keep)
        check_equal(
            (sequence.length, len(sequence.pages)),
            (keep, needed(keep)),
            name=f"tokens and pages of a sequence that had 7, after `release` with keep {keep}",
        )
        check_held_by(cache, [sequence], "after `release`")
        cache.release(sequence)


def test_task_4_a_page_that_another_join_holds_stays(lab):
    cache = cache_of(lab)
    documents, all_done = {"A": 6, "B": 4}, {"document A": 11, "document B": 9, "document C": 12}
    first = join_with(lab, cache, all_done, named(lab, 5, documents))
    second = join_with(lab, cache, all_done, named(lab, 5, {"B": 4, "C": 7}, seed=1), rank=1)
    pages = pages_of(second)
    cache.release(first.sequence)
    check_equal(
        pages_of(second), pages, name="the pages of a join that shares some with one that was released"
    )
    check_held_by(cache, sequences_of(first, second), "after one of two joins was released")


def frees(cache: Any, join: Any, what: str) -> bool:
    """What `frees` says of a bundle: a bool, and nothing changes."""
    __tracebackhide__ = True
    pages, available = pages_of(join), cache.available
    said = cache.frees(join.sequence)
    if not isinstance(said, bool):
        raise CheckFailed(f"frees for {what}: a bool expected, {said!r} found")
    check_equal(
        (pages_of(join), cache.available), (pages, available), name=f"the pages of {what}, after `frees`"
    )
    return said


@pytest.mark.parametrize(
    ("state", "expected"), list(zip(STATES, [False, True, True, True, True], strict=True))
)
def test_task_4_a_bundle_frees_a_page_if_one_of_its_members_does(lab, state, expected):
    cache = cache_of(lab)
    join = join_with(lab, cache, STATES[state])
    check_equal(
        frees(cache, join, "a bundle"), expected, name=f"what `frees` says for a bundle, where {state}"
    )


@pytest.mark.parametrize("free", ["document A", "document B", "document C", "the question", None])
def test_task_4_one_member_that_frees_a_page_is_enough(lab, free):
    """All other pages are held by another user, too."""
    cache = cache_of(lab)
    join = join_with(lab, cache, STATES["all is computed"])
    for member in members_of(join):
        if member_name(member) != free:
            cache.allocator.share(member.sequence.pages[-1:])
    check_equal(
        frees(cache, join, "a bundle"),
        free is not None,
        name="what `frees` says for a bundle whose last pages are all held elsewhere"
        + ("" if free is None else f", but that of {free}"),
    )


def test_task_4_a_bundle_in_the_step_frees_nothing(lab):
    """Its pages must stay: one of its members is in the step."""
    cache = cache_of(lab)
    join = join_with(lab, cache, STATES["all is computed"])
    join.sequence.pinned = True
    check_equal(
        frees(cache, join, "a bundle that is `pinned`"),
        False,
        name="what `frees` says for a bundle with a member in the step that is being planned (`pinned`)",
    )
    join.sequence.pinned = False
    check_equal(frees(cache, join, "a bundle"), True, name="what `frees` says for it in the next step")


def test_task_4_any_other_sequence_frees_its_last_page(lab):
    cache = cache_of(lab)
    first, second = plain_of(lab, cache), plain_of(lab, cache)
    compute(cache, first, text(8), 6)
    compute(cache, second, text(8), 8)
    check_equal(
        cache.frees(first), False, name="what `frees` says for a sequence whose pages another one holds, too"
    )
    check_equal(
        cache.frees(second), True, name="what `frees` says for a sequence with a last page of its own"
    )


def scheduler_of(lab: Any, pages: int = 60, limit: int = 64, page_size: int = P, **options: Any) -> Any:
    return lab.documents.scheduler.DocumentScheduler(cache_of(lab, pages, page_size), limit, **options)


def joins_in(lab: Any, scheduler: Any, *segments: Any, running: bool = True) -> list[Any]:
    """By hand: joins that run, or wait. Clients are called first, second, third."""
    found = []
    for some, client in zip(segments, ("first", "second", "third"), strict=False):
        scheduler.push(request_of(lab, some, client=client))
        found.append(scheduler.waiting[-1])
        if running:
            scheduler.running.append(scheduler.waiting.pop())
    return found


def compute_members(scheduler: Any, join: Any, computed: dict[str, int]) -> None:
    for member in members_of(join):
        if upto := computed.get(member_name(member), 0):
            compute(scheduler.cache, member.sequence, member.request.token_ids, upto)


def open_step(scheduler: Any) -> None:
    """By hand: a step is being planned, and what each had before it is noted, as `plan` does."""
    scheduler.planned, scheduler.begun, scheduler.preempted = [], [], []
    scheduler.had = {each: each.sequence.length for each in scheduler.running}
    scheduler.had_before = {
        member: member.sequence.length for join in scheduler.joins for member in join.sequence.members
    }
    scheduler.left = scheduler.token_budget


def chunk_by_hand(lab: Any, scheduler: Any, member: Any, count: int) -> None:
    """By hand: a member is in the step, with so many tokens."""
    cache, sequence, ids = scheduler.cache, member.sequence, member.request.token_ids
    had = sequence.length
    found = cache.match(sequence, ids)
    sequence.reserve(count)
    cache.publish(sequence, ids, sequence.length + count)
    scheduler.planned.append(lab.scheduling.standing.Chunk(member, count, had, found, False))


def check_undone(scheduler: Any, joins: Any, before: Any, when: str) -> None:
    """Every member has what it had; no page is lost."""
    __tracebackhide__ = True
    lengths, pages = before
    names = [join.request.client for join in joins]
    check_equal(
        {name: lengths_of(join) for name, join in zip(names, joins, strict=True)},
        lengths,
        name=f"how many tokens each member of each join has {when}",
    )
    check_equal(
        {name: pages_of(join) for name, join in zip(names, joins, strict=True)},
        pages,
        name=f"the pages of each member of each join {when}",
    )
    others = [each.sequence for each in scheduler.running + scheduler.waiting if each not in joins]
    check_held_by(scheduler.cache, [*sequences_of(*joins), *others], when)
    check_equal(len(scheduler.had_before), 0, name=f"how many entries `had_before` has {when}")
    check_equal(len(scheduler.planned), 0, name=f"how many chunks are planned {when}")


def known_of(joins: Any) -> Any:
    return (
        {join.request.client: lengths_of(join) for join in joins},
        {join.request.client: pages_of(join) for join in joins},
    )


def undo(scheduler: Any, when: str) -> None:
    """`undo`, where a page that is cut or given up in the wrong order is told as such."""
    __tracebackhide__ = True
    try:
        scheduler.undo()
    except (RuntimeError, ValueError, KeyError) as error:
        if isinstance(error, NotImplementedError):
            raise
        raise CheckFailed(
            f"`undo` {when} raised {type(error).__name__}: {error}\n  each member of each join must be released to "
            "what it had before the cache withdraws what was published"
        ) from error


def test_task_4_a_step_undone_leaves_each_member_what_it_had(lab):
    scheduler = scheduler_of(lab)
    joins = joins_in(
        lab, scheduler, named(lab, 7, {"A": 6, "B": 1}, 8), named(lab, 7, {"B": 1, "C": 9}, 5, seed=1)
    )
    compute_members(scheduler, joins[0], {"document A": 13, "document B": 4})
    compute_members(scheduler, joins[1], {"document C": 8})
    before = known_of(joins)
    open_step(scheduler)
    first, second = members_of(joins[0]), members_of(joins[1])
    for member, count in ((first[1], 4), (first[2], 5), (second[0], 1), (second[1], 8)):
        chunk_by_hand(lab, scheduler, member, count)
    when = "after a step of two joins was undone"
    undo(scheduler, when)
    check_undone(scheduler, joins, before, when)


def test_task_4_nothing_is_left_of_a_join_that_has_begun_in_the_step(lab):
    scheduler = scheduler_of(lab)
    joins = joins_in(lab, scheduler, named(lab, 7, {"A": 6, "B": 1}, 8), running=False)
    before = known_of(joins)
    open_step(scheduler)
    scheduler.begun, scheduler.running, scheduler.waiting = list(joins), list(joins), []
    for member, count in zip(members_of(joins[0]), (13, 1, 8), strict=True):
        chunk_by_hand(lab, scheduler, member, count)
    when = "after the step in which a join began was undone"
    undo(scheduler, when)
    check_undone(scheduler, joins, before, when)
    check_equal(scheduler.waiting == joins, True, name=f"whether the join waits again {when}")


def test_task_4_nothing_is_left_of_a_join_that_lost_its_pages_in_the_step(lab):
    """It waits without pages; what it had before the step is gone, whatever `had_before` says."""
    scheduler = scheduler_of(lab)
    joins = joins_in(lab, scheduler, named(lab, 7, {"A": 6, "B": 1}, 8), named(lab, 4, {"C": 9}, 5, seed=1))
    compute_members(scheduler, joins[0], {"document A": 5})
    compute_members(scheduler, joins[1], {"document C": 8})
    open_step(scheduler)
    kept = known_of(joins[:1])
    scheduler.preempt(joins[1])
    chunk_by_hand(lab, scheduler, members_of(joins[0])[0], 8)
    when = "after a step was undone in which the second join lost its pages"
    undo(scheduler, when)
    lost = {"document C": 0, "the question": 0}
    before = kept[0] | {"second": lost}, kept[1] | {"second": {name: [] for name in lost}}
    check_undone(scheduler, joins, before, when)


def test_task_4_ordinary_requests_are_undone_beside_joins(lab):
    scheduler = scheduler_of(lab)
    joins = joins_in(lab, scheduler, named(lab, 7, {"A": 6}, 8))
    scheduler.push(new_request(lab, text(9, 30), 4))
    plain = scheduler.waiting.pop()
    scheduler.running.append(plain)
    compute(scheduler.cache, plain.sequence, plain.request.token_ids, 4)
    compute_members(scheduler, joins[0], {"document A": 5})
    before = known_of(joins)
    open_step(scheduler)
    chunk_by_hand(lab, scheduler, plain, 5)
    chunk_by_hand(lab, scheduler, members_of(joins[0])[0], 8)
    when = "after a step of a join and an ordinary request was undone"
    undo(scheduler, when)
    check_undone(scheduler, joins, before, when)
    check_equal(plain.sequence.length, 4, name=f"the tokens of the ordinary request {when}")


def test_task_4_a_step_is_undone_where_planning_failed(lab):
    """Nothing was planned, and the join that waits had matched already."""
    scheduler = scheduler_of(lab)
    warm, other = joins_in(
        lab, scheduler, named(lab, 7, {"A": 6}, 8), named(lab, 7, {"A": 6}, 4, seed=1), running=False
    )
    compute_members(scheduler, warm, {"document A": 13})
    scheduler.cache.release(warm.sequence)
    before = known_of([warm, other])
    open_step(scheduler)
    scheduler.cache.match(other.sequence, [])
    when = "after planning failed where a join that waits had found pages already"
    undo(scheduler, when)
    check_undone(scheduler, [warm, other], before, when)


# Task 5: planning a join


def client_of(member: Any) -> str:
    request = member.request
    client: str = getattr(request, "owner", request).client
    return client


def plan_of(scheduler: Any) -> Any:
    """A plan, where no other user of the allocator is in the way."""
    __tracebackhide__ = True
    joins = {client_of(join): lengths_of(join) for join in scheduler.joins}
    try:
        return scheduler.plan()
    except Exception as error:
        if type(error).__name__ != "OutOfPages":
            raise
        raise CheckFailed(
            f"no member of a join was planned, with {scheduler.cache.available} pages available and "
            f"{scheduler.token_budget} tokens of the budget; tokens that each member has: {joins}"
        ) from error


def steps_of(scheduler: Any, most: int = 60) -> list[list[tuple[str, int, int]]]:
    """All steps until all requests have ended."""
    __tracebackhide__ = True
    found = []
    while scheduler.num_requests:
        before = {each: each.sequence.length for join in scheduler.joins for each in join.question.branches}
        found.append(shares(plan_of(scheduler)))
        for each, had in before.items():
            if each.sequence.length < had:
                raise CheckFailed(
                    f"step {len(found)}: {member_name(each)} had {had} tokens before it was planned, and has "
                    f"{each.sequence.length} now: branches keep their pages while their question runs"
                )
        ran(scheduler)
        if len(found) >= most:
            raise CheckFailed(f"after {most} steps, requests are still there; the last steps: {found[-3:]}")
    return found


A, B, C, Q, S = "document A", "document B", "document C", "the question", "the system prompt"
EARLY = "the question was planned before its branches are complete"
STOPPED = "the branches behind the first one that isn't complete had no turn"
ALONE = "the question waited for the next step: what its branches write in this one can be read in it"


def check_steps(
    lab: Any, segments: Any, expected: Any, what: str, suspects: Any = None, **options: Any
) -> None:
    """Plan one join from its beginning to its first token, and compare step by step."""
    __tracebackhide__ = True
    scheduler = scheduler_of(lab, **options)
    scheduler.push(request_of(lab, segments, 1))
    check_equal(steps_of(scheduler), expected, name=f"the steps (member, tokens found, tokens computed) of {what}",
                suspects=suspects)  # fmt: skip
    check_held_by(scheduler.cache, [], f"at the end of {what}")


def test_task_5_a_join_is_planned_as_a_whole_where_the_budget_allows(lab):
    expected = [[(A, 0, 12), (B, 6, 3), (C, 6, 10), (Q, 0, 2)]]
    late = {ALONE: [expected[0][:-1], expected[0][-1:]]}
    what = (
        "a join with a system prompt of 7 tokens, documents of 5, 2 and 9 and a question of 2, in pages of 3"
    )
    check_steps(lab, segments_of(lab, 7, (5, 2, 9)), expected, what, late, token_budget=100)


def test_task_5_all_branches_get_their_turn_behind_one_that_is_not_complete(lab):
    expected = [[(A, 0, 4), (B, 0, 4), (C, 0, 4)], [(A, 0, 4), (B, 0, 1), (C, 0, 2), (Q, 0, 2)]]
    early = [[(A, 0, 4), (B, 0, 4), (C, 0, 4), (Q, 0, 2)]]
    stopped = [[(A, 0, 4)], [(A, 0, 4), (B, 0, 4)], [(B, 0, 1), (C, 0, 4)], [(C, 0, 2), (Q, 0, 2)]]
    check_steps(
        lab,
        segments_of(lab, 0, (8, 5, 6)),
        expected,
        "a join with documents of 8, 5 and 6 tokens, in chunks of 4",
        {STOPPED: stopped, EARLY: early, ALONE: [expected[0], expected[1][:-1], expected[1][-1:]]},
        token_budget=100,
        chunk_size=4,
    )


def test_task_5_the_budget_is_one_for_all_members(lab):
    expected = [
        [(A, 0, 6)],
        [(A, 0, 2), (B, 0, 4)],
        [(B, 0, 1), (C, 0, 5)],
        [(C, 0, 1), (Q, 0, 5)],
        [(Q, 0, 2)],
    ]
    what = "a join with documents of 8, 5 and 6 tokens and a question of 7, with a budget of 6"
    check_steps(lab, segments_of(lab, 0, (8, 5, 6), 7), expected, what, token_budget=6)


def test_task_5_a_budget_of_one_token_is_enough(lab):
    expected = [[(A, 0, 1)], [(A, 0, 1)], [(B, 0, 1)], [(Q, 0, 1)], [(Q, 0, 1)]]
    check_steps(lab, segments_of(lab, 0, (2, 1)), expected, "a join with a budget of 1", token_budget=1)


def test_task_5_branches_that_are_complete_bring_nothing_any_more(lab):
    scheduler = scheduler_of(lab, token_budget=100)
    scheduler.push(request_of(lab, segments_of(lab, 4, (5, 2)), 3))
    scheduler.plan()
    ran(scheduler)
    (join,) = scheduler.joins
    check_equal(
        {member_name(each): len(each.sequence.pages) for each in join.question.branches},
        {A: 3, B: 2},
        name="how many pages each branch holds after the step, while their question runs",
    )
    expected = [[(Q, 0, 1)], [(Q, 0, 1)]]
    check_equal(
        steps_of(scheduler),
        expected,
        name="the steps of a join of complete branches that generates 2 more tokens",
    )


@pytest.mark.parametrize(
    ("system", "documents", "expected"),
    [
        (5, (), [(S, 0, 5), (Q, 0, 2)]),
        (0, (), [(Q, 0, 2)]),
        (5, (0, 0), [(S, 0, 5), (Q, 0, 2)]),
        (0, (0, 4, 0), [(B, 0, 4), (Q, 0, 2)]),
    ],
    ids=["no documents", "nothing but a question", "empty documents", "one that isn't empty"],
)
def test_task_5_a_join_has_no_branch_without_tokens(lab, system, documents, expected):
    check_steps(lab, segments_of(lab, system, documents), [expected], "a join", token_budget=100)


def planned_of(scheduler: Any) -> dict[str, list[tuple[str, int, int]]]:
    """The chunks of the next step, by client, which is not run yet."""
    found: dict[str, list[tuple[str, int, int]]] = {}
    for chunk in plan_of(scheduler):
        found.setdefault(client_of(chunk.running), []).extend(shares([chunk]))
    return found


def test_task_5_a_document_is_found_in_any_company_and_order(lab):
    """And one that is computed for another question in the same step is found, too."""
    scheduler = scheduler_of(lab, token_budget=200)
    joins_in(lab, scheduler, named(lab, 5, {"A": 6, "B": 7, "C": 3}), running=False)
    steps_of(scheduler)
    joins_in(
        lab,
        scheduler,
        named(lab, 5, {"C": 3, "A": 6}, seed=1),
        named(lab, 5, {"D": 8, "B": 7, "A": 6}, seed=2),
        named(lab, 5, {"D": 8, "E": 2}, seed=3),
        running=False,
    )
    expected = {
        "first": [(C, 6, 2), (A, 9, 2), (Q, 0, 2)],
        "second": [("document D", 3, 10), (B, 9, 3), (A, 9, 2), (Q, 0, 2)],
        "third": [("document D", 12, 1), ("document E", 3, 4), (Q, 0, 2)],
    }
    check_equal(
        planned_of(scheduler),
        expected,
        name="the step (member, tokens found, tokens computed) of three joins, where A, B and C were computed, "
        "in pages of 3 behind a system prompt of 5",
        suspects={
            "what was found for a bundle was not given back before its members searched": {
                client: [(name, 0, count) for name, _, count in some] for client, some in expected.items()
            }
        },
    )
    ran(scheduler)
    check_equal(
        scheduler.reused, 3 + 3 + 6 + 9 + 3 + 9 + 9 + 12 + 3, name="the tokens found in all steps (`reused`)"
    )


def test_task_5_what_a_bundle_has_found_is_given_back_before_its_members_search(lab):
    """Else a chunk would not know what was found for it, and `undo` not what the member had."""
    scheduler = scheduler_of(lab, token_budget=8)
    joins_in(lab, scheduler, named(lab, 6, {"A": 7, "B": 7}), running=False)
    steps_of(scheduler)
    (join,) = joins_in(lab, scheduler, named(lab, 6, {"A": 7, "C": 7, "B": 7}, seed=1), running=False)
    before = known_of([join])
    plan = scheduler.plan()
    told = [(member_name(chunk.running), chunk.had, chunk.found, chunk.count) for chunk in plan]
    kept = {
        "what was found for the bundle was not given back": [
            (A, 12, 0, 1), (C, 6, 0, 7)
        ]
    }  # fmt: skip
    check_equal(
        told,
        [(A, 0, 12, 1), (C, 0, 6, 7)],
        name="the chunks (member, tokens before the step, tokens found, tokens to compute) of a join that begins "
        "with A and B in the tree",
        suspects=kept,
    )
    lengths = lengths_of(join)
    check_equal(lengths, {A: 12, C: 6, B: 0, Q: 0}, name="the tokens of each member, where the budget ends before B",
                suspects={"what was found for the bundle is still there": {A: 12, C: 6, B: 12, Q: 0}})  # fmt: skip
    undo(scheduler, "after the step in which it began was planned")
    check_undone(scheduler, [join], before, "after the step in which it began was undone")


def test_task_5_an_ordinary_request_is_planned_as_before(lab):
    scheduler = scheduler_of(lab, token_budget=100)
    ids = [*text(6), *text(7, 1), 5]
    joins_in(lab, scheduler, named(lab, 6, {"A": 7}), running=False)
    steps_of(scheduler)
    for _ in range(2):
        scheduler.push(new_request(lab, ids, 1))
    plan = scheduler.plan()
    check_equal(
        [(chunk.had, chunk.found, chunk.count) for chunk in plan],
        [(0, 12, 2), (0, 12, 2)],
        name="had, found and count of two ordinary requests whose first 12 tokens are those of a branch in the tree",
    )


def running_join(
    lab: Any, scheduler: Any, documents: dict[str, int], computed: Any = None, seed: int = 0
) -> Any:
    """By hand: a join that runs, in a step that is being planned."""
    (join,) = joins_in(lab, scheduler, named(lab, 6, documents, 3, seed=seed))
    compute_members(scheduler, join, computed or {})
    open_step(scheduler)
    return join


@pytest.mark.parametrize(
    ("budget", "computed", "expected", "count"),
    [
        (20, 0, True, 10),
        (10, 0, True, 10),
        (9, 0, False, 9),
        (3, 4, False, 3),
        (6, 4, True, 6),
        (20, 10, True, 0),
    ],
)
def test_task_5_completes_says_whether_nothing_is_due_after_the_step(lab, budget, computed, expected, count):
    scheduler = scheduler_of(lab, token_budget=budget)
    join = running_join(lab, scheduler, {"A": 4}, {A: computed})
    said = scheduler.completes(join, join.question.branches[0])
    what = f"a branch of 10 tokens with {computed} computed, and {budget} left of the budget"
    check_equal(
        [chunk.count for chunk in scheduler.planned], [count] if count else [], name=f"the chunks of {what}"
    )
    check_equal(said, expected, name=f"what `completes` says for {what}")
    check_equal(
        join.sequence.pinned, count > 0, name=f"whether the bundle is `pinned` after `completes`, for {what}"
    )


def test_task_5_a_member_that_gets_no_chunk_is_not_complete(lab):
    """The last chunk of `planned` may be that of another member."""
    scheduler = scheduler_of(lab, token_budget=10)
    join = running_join(lab, scheduler, {"A": 4, "B": 4})
    first, second = join.question.branches
    scheduler.completes(join, first)
    said = scheduler.completes(join, second)
    check_equal(said, False, name="what `completes` says for a branch of 10 tokens, some of them due, where nothing "
                "is left of the budget",
                suspects={"the chunk of another member was taken for its own": True})  # fmt: skip
    empty = scheduler_of(lab, token_budget=10)
    join = running_join(lab, empty, {"A": 4})
    empty.left = 0
    said = empty.completes(join, join.question.branches[0])
    check_equal(
        said, False, name="what `completes` says where nothing is left of the budget and no chunk is planned"
    )
    check_equal(
        join.sequence.pinned, False, name="whether the bundle is `pinned`, with no member in the step"
    )


def test_task_5_members_stand_where_their_join_stands_by_now(lab):
    """A join that has waited long has a higher level than it came with, and so do its members."""
    scheduler = scheduler_of(lab, pages=8, token_budget=50)
    scheduler.push(request_of(lab, named(lab, 6, {"B": 9}, 3, seed=1), client="lower"))
    lower = scheduler.waiting.pop()
    scheduler.running.append(lower)
    compute_members(scheduler, lower, {B: 15, Q: 3})
    join = running_join(lab, scheduler, {"A": 4}, {A: 6})
    scheduler.cache.allocator.allocate(len(scheduler.cache.allocator.free_pages))
    join.level = 2
    scheduler.add(join)
    levels = {member_name(chunk.running): chunk.running.level for chunk in scheduler.planned}
    if not levels:
        raise CheckFailed(
            "a join of level 2 found no page: one of level 0 runs, whose pages it may take. Does each of its members "
            "have the level of the join?"
        )
    check_equal(set(levels.values()), {2}, name="the levels of the members in the step of a join of level 2")
    check_equal(
        [each.client for each in scheduler.preempted], ["lower"], name="the requests that lost their pages"
    )


def test_task_5_a_join_with_a_member_in_the_step_keeps_its_pages(lab):
    """The other one, which stands above it, needs a page."""
    scheduler = scheduler_of(lab, pages=6, token_budget=50, chunk_size=3)
    low, high = joins_in(lab, scheduler, named(lab, 0, {"A": 9}), named(lab, 0, {"B": 9}, seed=1))
    compute_members(scheduler, low, {A: 6})
    compute_members(scheduler, high, {B: 9})
    open_step(scheduler)
    scheduler.left = 50
    high.level = 1
    scheduler.add(low)
    scheduler.add(high)
    check_equal([shares([chunk])[0][0] for chunk in scheduler.planned], [A], name="the members in the step, for "
                "which there was one page: a join in the step (`pinned`) is not preempted")  # fmt: skip
    check_equal(scheduler.preempted == [], True, name="whether no request was preempted")


def test_task_5_two_questions_about_one_document_share_its_pages(lab):
    scheduler = scheduler_of(lab, token_budget=200)
    joins_in(lab, scheduler, named(lab, 6, {"A": 8}), named(lab, 6, {"A": 8}, seed=1), running=False)
    scheduler.plan()
    ran(scheduler)
    first, second = scheduler.running
    mine, theirs = (join.question.branches[0].sequence.pages for join in (first, second))
    check_equal(theirs[:4], mine[:4], name="the full pages that the second question's branch shares")
    scheduler.remove([first.request])
    check_held_by(
        scheduler.cache,
        sequences_of(second),
        "after the first of two questions about a document was cancelled",
    )
    check_equal(
        second.question.branches[0].sequence.pages, theirs, name="the pages of the question that stays"
    )


def test_task_5_a_document_may_stand_in_a_prompt_twice(lab):
    expected = [[(A, 0, 11), (A, 9, 2), (Q, 0, 2)]]
    scheduler = scheduler_of(lab, token_budget=100)
    document = tuple(text(6, 1))
    segments = lab.documents.prompt.Segments(tuple(text(5)), (document, document), tuple(text(2, 20)))
    scheduler.push(request_of(lab, segments, 1))
    check_equal(steps_of(scheduler), expected, name="the steps of a join with the same document twice")


happenings = st.lists(
    st.one_of(
        st.tuples(
            st.just("ask"),
            st.lists(st.sampled_from(NAMES[:5]), max_size=4, unique=True),
            st.integers(0, 2),
            st.sampled_from([0, 0, 1, 3]),
        ),
        st.tuples(st.just("ordinary"), st.integers(1, 9), st.integers(1, 4), st.sampled_from([0, 0, 2])),
        st.tuples(st.just("step"), st.integers(1, 3)),
        st.tuples(st.just("step"), st.integers(1, 3)),
        st.tuples(st.just("fail")),
        st.tuples(st.just("cancel"), st.integers(0, 5)),
    ),
    min_size=4,
    max_size=20,
)
HELD = "sequence.length", "sequence.pages"
COUNTS = dict(zip(NAMES, (5, 2, 9, 1, 6), strict=False))


class Dry:
    """A scheduler without a model: what happens to it is checked, step by step."""

    def __init__(self, lab: Any, options: dict[str, Any]) -> None:
        self.lab, self.number = lab, 0
        self.scheduler = scheduler_of(lab, **options)

    def ask(self, names: list[str], seed: int, priority: int) -> None:
        segments = named(
            self.lab, (0, 4, 6)[seed], {name: COUNTS[name] for name in names}, 2 + seed, seed=seed
        )
        self._push(request_of(self.lab, segments, 1 + seed, priority=priority, client=f"{self.number}"))

    def ordinary(self, count: int, max_tokens: int, priority: int) -> None:
        self._push(new_request(self.lab, [*text(4), *text(count, 1)], max_tokens, priority=priority))

    def _push(self, request: Any) -> None:
        """Ask only what can run alone, even if no page is shared."""
        documents = getattr(request, "documents", [])
        system = len(request.segments.system) if hasattr(request, "segments") else 0
        totals = [system + len(document) for _, document in documents] or [system]
        totals.append(request.prompt_len + request.max_tokens - 1)
        if sum(map(self._pages, totals)) <= self.scheduler.cache.allocator.num_pages - 1:
            self.number += 1
            self.scheduler.push(request)

    def _pages(self, count: int) -> int:
        return pages_needed(count, self.scheduler.cache.page_size)

    def step(self, times: int) -> None:
        __tracebackhide__ = True
        for _ in range(times):
            if self.scheduler.num_requests:
                self._check_plan(self._plan())
                ran(self.scheduler)
                self._check("after a step")

    def fail(self) -> None:
        __tracebackhide__ = True
        joins = self.scheduler.joins
        members = [member for join in joins for member in members_of(join)]
        before = dict(zip(members, values_of(members, *HELD), strict=True))
        self._plan()
        lost = list(self.scheduler.preempted)
        undo(self.scheduler, "of a step that failed")
        for join in joins:
            own, gone = members_of(join), join.request in lost
            for member, found in zip(own, values_of(own, *HELD), strict=True):
                wanted = (0, []) if gone else before[member]
                check_equal(
                    found, wanted, name="tokens and pages of a member of a join, after the step was undone"
                )
        self._check("after a step was undone")

    def cancel(self, number: int) -> None:
        __tracebackhide__ = True
        self.scheduler.remove(self.scheduler.requests[number : number + 1])
        self._check("after a request was cancelled")

    def finish(self) -> None:
        __tracebackhide__ = True
        for _ in range(400):
            if not self.scheduler.num_requests:
                break
            self.step(1)
        check_equal(self.scheduler.num_requests, 0, name="the requests that are left after 400 more steps")
        pages = self.scheduler.cache.allocator.num_pages - 1
        check_equal(self.scheduler.cache.available, pages, name="the pages available at the end")

    def _plan(self) -> list[Any]:
        __tracebackhide__ = True
        try:
            plan: list[Any] = self.scheduler.plan()
        except self.lab.paged.allocator.OutOfPages as error:
            raise CheckFailed(
                f"a request must be able to go on, for no other user has pages: {error}"
            ) from error
        return plan

    def _check_plan(self, plan: list[Any]) -> None:
        __tracebackhide__ = True
        told = f"the step {shares(plan)}"
        if len({chunk.running for chunk in plan}) < len(plan):
            raise CheckFailed(f"{told}: a member has more than one chunk")
        total = sum(chunk.count for chunk in plan)
        if total > self.scheduler.token_budget:
            raise CheckFailed(f"{told}: {total} tokens are more than the budget")
        for due in due_behind(plan):
            if due:
                raise CheckFailed(
                    f"{told}: the question is in it, and tokens of {', '.join(due)} are due behind the step"
                )

    def _check(self, when: str) -> None:
        __tracebackhide__ = True
        scheduler = self.scheduler
        if any(pages for (pages,) in values_of(scheduler.waiting, "sequence.pages")):
            raise CheckFailed(f"{when}: a request that waits has pages")
        check_held_by(scheduler.cache, sequences_that_run(scheduler), when)


def play(dry: Any, happens: Any) -> None:
    __tracebackhide__ = True
    for what, *arguments in happens:
        getattr(dry, what)(*arguments)
    dry.finish()


@settings(QUICK, max_examples=50)
@given(
    happens=happenings,
    options=st.fixed_dictionaries(
        {
            "page_size": st.integers(1, 4),
            "pages": st.integers(8, 30),
            "num_seats": st.integers(1, 4),
            "token_budget": st.sampled_from([1, 3, 7, 40]),
            "chunk_size": st.sampled_from([None, 2, 5]),
            "patience": st.sampled_from([2, 9]),
        }
    ),
)
def test_task_5_whatever_happens_all_come_to_their_ends_and_no_page_is_lost(happens, options):
    play(Dry(door.active(), options), happens)


# Task 6: the engine

LENGTHS = [
    (5, (2, 3, 4)),
    (3, (5, 6, 7)),
    (2, (3, 9)),
    (4, (1,)),
    (0, (4, 2)),
    (6, ()),
    (0, ()),
    (4, (0, 5, 0)),
    (1, (3, 3, 3, 3, 3)),
]


def offset_request(engine: Any, segments: Any, stride: int, max_tokens: int = 3, **options: Any) -> Any:
    """A request with offset positions."""
    request = engine.request(segments, max_tokens, strategy="offset", max_chunk_len=stride, **options)
    request.stride = stride
    engine.core.push(request)
    return request


@pytest.mark.parametrize(("system", "documents"), LENGTHS)
@pytest.mark.parametrize("page_size", [3, 4])
def test_task_6_the_answer_is_that_of_the_dense_model_under_the_mask(lab, system, documents, page_size):
    engine = Engine(lab, page_size=page_size)
    engine.answer(engine.ask(prompt_of(lab, system, documents, 3)))


@pytest.mark.parametrize(("system", "documents"), [(5, (2, 3, 4)), (3, (6, 1)), (0, (4, 0, 2)), (4, ())])
def test_task_6_with_offset_positions_too(lab, system, documents):
    engine = Engine(lab)
    engine.answer(offset_request(engine, prompt_of(lab, system, documents, 3), 6))


@pytest.mark.parametrize("options", [{"token_budget": 1}, {"token_budget": 7}, {"chunk_size": 2}], ids=str)
def test_task_6_chunks_of_branches_and_questions_change_no_answer(lab, options):
    engine = Engine(lab, **options)
    engine.answer(
        *(engine.ask(prompt_of(lab, 4, (5, 2, 7), 3, seed=n)) for n in range(2)), engine.push(words(9, 3))
    )


@pytest.mark.parametrize("remedy", [(0.5, 1.0), (1.0, 0.7), (0.4, 0.8), (1.5, 1.2)], ids=str)
def test_task_6_a_remedy_weighs_the_documents_in_every_layer(lab, remedy):
    engine = Engine(lab, remedy=remedy)
    engine.answer(
        engine.ask(prompt_of(lab, 4, (5, 2, 7), 3)),
        engine.ask(prompt_of(lab, 4, (), 3, seed=1)),
        engine.push(words(9, 3)),
    )


def test_task_6_ordinary_requests_beside_joins_get_what_they_get_alone(lab):
    engine = Engine(lab, token_budget=11)
    segments = prompt_of(lab, 6, (5, 4), 3)
    text_of_first = [*segments.system, *segments.documents[0], *segments.question]
    engine.answer(
        engine.push(text_of_first),
        engine.ask(segments),
        engine.push(words(12, 3), 5),
        engine.ask(prompt_of(lab, 6, (5,), 3, seed=1)),
        engine.push(text_of_first[:8], 5),
    )


def test_task_6_a_document_has_the_same_keys_in_any_company(lab):
    """Its neighbour is replaced by another of the same length: no bit of what the pool holds of it changes."""
    kept = []
    for neighbour in "BC":
        engine = Engine(lab, page_size=4)
        engine.ask(prompt(lab, 5, [("A", 6), (neighbour, 6)], 3))
        engine.step()
        (join,) = engine.scheduler.joins
        branch = join.question.branches[0]
        of_branch = [x[:, branch.sequence.pages].astype(np.float32) for x in stored(lab, engine.pool)]
        kept.append([x.reshape(x.shape[0], -1, *x.shape[3:])[:, :11] for x in of_branch])
    for name, one, other in zip(("keys", "values"), *kept, strict=True):
        check(
            one,
            other,
            name=f"the {name} of a branch beside another document",
            framework="numpy",
            rtol=0,
            atol=0,
        )


def test_task_6_the_order_of_documents_makes_no_difference_with_shared_positions(lab):
    documents = [("A", 6), ("B", 2), ("C", 5)]
    found = []
    for order in ((0, 1, 2), (2, 0, 1), (1, 2, 0)):
        engine = Engine(lab)
        request = engine.ask(prompt(lab, 4, [documents[n] for n in order], 3), 1)
        engine.answer(request)
        found.append(request.sample.logits[0])
    for other in found[1:]:
        check(
            other, found[0], name="the logits with the documents in another order", framework="numpy", **CLOSE
        )


def test_task_6_documents_are_found_in_any_order_and_company_and_one_is_replaced(lab):
    """Only what is not full of a document, the question and the output are computed again."""
    engine = Engine(lab, pages=100)
    before = 0
    for documents, expected, what in (
        (
            [("A", 7), ("B", 6), ("C", 9)],
            13 + (12 - 6) + (15 - 6),
            "cold, where only the system prompt is shared",
        ),
        ([("A", 7), ("B", 6), ("C", 9)], 1 + 3 + 3, "warm"),
        ([("C", 9), ("A", 7), ("B", 6)], 3 + 1 + 3, "in another order"),
        ([("C", 9)], 3, "alone"),
        ([("A", 7), ("D", 8), ("C", 9)], 1 + (14 - 6) + 3, "with one replaced"),
        ([("D", 8), ("B", 6)], 2 + 3, "in another company"),
    ):
        request = engine.ask(prompt(lab, 6, documents, 2, seed=before), 3)
        engine.answer(request)
        own = 2 + 2  # the question, and the output but for its last token
        check_equal(
            engine.computed - before - own,
            expected,
            name=f"how many tokens of branches are computed for {' '.join(name for name, _ in documents)} {what}: a "
            "system prompt of 6, documents of 7, 6, 9 and 8, pages of 3",
        )
        before = engine.computed


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_task_6_cancelling_a_question_takes_nothing_from_another(lab, steps):
    engine = Engine(lab, token_budget=8)
    first = engine.ask(prompt_of(lab, 6, (7, 9), 3))
    engine.step()
    second = engine.ask(prompt_of(lab, 6, (7, 9), 2, seed=1))
    for _ in range(steps):
        engine.step()
    engine.core.abort([first])
    engine.check_pages("after a question was cancelled")
    if first in engine.core.requests:
        raise CheckFailed("a question that was cancelled is still there")
    engine.answer(second)


def test_task_6_a_step_lists_a_document_request_once(lab):
    engine = Engine(lab, token_budget=20)
    first, plain = engine.ask(prompt_of(lab, 3, (5, 4), 2)), engine.push(words(4, 3))
    second = engine.ask(prompt_of(lab, 3, (2,), 2, seed=1), 1)
    step = engine.step()
    names = {first: "first", plain: "ordinary", second: "second"}
    found = [(names.get(request, "a branch"), count) for request, count in step.issued]
    check_equal(
        found,
        [("first", 14), ("ordinary", 4), ("second", 2)],
        name="what a step lists as issued: two questions and an ordinary request, with a budget of 20",
        suspects={
            "the chunks of branches are there by themselves: they belong to their question's request": [
                ("a branch", 8), ("a branch", 4), ("first", 2), ("ordinary", 4), ("a branch", 2)
            ]
        },
    )  # fmt: skip
    check_equal(step.finished == [], True, name="whether no request has finished in the first step")
    step = engine.step()
    issued = {names.get(request, "a branch"): count for request, count in step.issued}
    check_equal(issued, {"first": 1, "ordinary": 1, "second": 2}, name="what the second step lists as issued")
    check_equal(step.finished == [second], True, name="whether a request with one token finishes in its step")


def test_task_6_a_step_without_the_question_lists_its_request(lab):
    engine = Engine(lab, token_budget=4)
    request = engine.ask(prompt_of(lab, 3, (5, 4), 2))
    step = engine.step()
    check_equal(
        step.issued == [(request, 4)],
        True,
        name="whether a step of a branch alone lists the document request",
    )
    check_equal(request.output, [], name="the output while a branch is being computed")


def test_task_6_branches_are_never_sampled(lab):
    engine = Engine(lab)
    rows: list[int] = []
    head = engine.model.logits

    def logits(hidden: Any) -> Any:
        rows.append(int(np.prod(hidden.shape[:-1])))
        return head(hidden)

    engine.model.logits = logits
    request = engine.ask(prompt_of(lab, 3, (5, 4, 2), 2), 2)
    plain = engine.push(words(4, 3), 2)
    engine.step()
    check_equal(
        rows, [2], name="how many rows the head ran on, in a step of 3 branches, a question and a request"
    )
    engine.answer(request, plain)
    small = Engine(lab, token_budget=6)
    small.ask(prompt_of(lab, 3, (3, 5), 2), 2)
    small.model.logits = logits
    rows.clear()
    small.step()
    check_equal(
        rows, [], name="how often the head ran in a step in which a branch was completed, and no question"
    )
    for join in small.scheduler.joins:
        check_equal(
            [each.request.output for each in join.question.branches], [[], []], name="the outputs of branches"
        )


@pytest.mark.parametrize("which", ["document", "ordinary"])
def test_task_6_a_sampler_that_fails_ends_its_request_alone(lab, which):
    def failing(logits: Any, ids: Any) -> int:
        raise ArithmeticError("no token is good enough")

    engine = Engine(lab)
    options: dict[str, Any] = {"sample": failing} if which == "document" else {}
    bad = engine.ask(prompt_of(lab, 3, (5, 4), 2), **options)
    plain = engine.push(words(4, 3))
    if which == "ordinary":
        plain.sample, bad, plain = failing, plain, bad
    good = engine.ask(prompt_of(lab, 3, (5, 4), 3, seed=1))
    step = engine.step()
    check_equal(
        step.finished == [bad], True, name="whether the request whose sampler failed is the one that ended"
    )
    check_equal(bad.error, "ArithmeticError: no token is good enough", name="the error of this request")
    engine.answer(good, plain)


def test_task_6_a_question_that_lost_its_pages_resumes_where_it_was(lab):
    """One of a higher level comes, and the pages are few; both answers are those of the dense model."""
    engine = Engine(lab, pages=14, token_budget=40)
    low = engine.ask(prompt_of(lab, 3, (6, 5), 4), 9)
    for _ in range(3):
        engine.step()
    high = engine.ask(prompt(lab, 3, [("C", 7), ("D", 8)], 3, seed=1), 3, priority=3)
    engine.answer(low, high)
    if not engine.preempted:
        raise CheckFailed("the question of the lower level was to lose its pages to the other, and has not")


REFUSED = {
    "an empty question": (lambda lab: prompt_of(lab, 3, (4,), 0), {}, "empty"),
    "a question that ends too late": (lambda lab: prompt_of(lab, 3, (20,), 8), {}, "position"),
    "a document's token that the model does not have": (
        lambda lab: lab.documents.prompt.Segments((1, 2), ((3, V),), (4,)), {}, f"token {V}"
    ),
    "a system prompt's token that the model does not have": (
        lambda lab: lab.documents.prompt.Segments((1, -2), ((3,),), (4,)), {}, "token -2"
    ),
    "a question's token that the model does not have": (
        lambda lab: lab.documents.prompt.Segments((1,), ((3,),), (4, V + 3)), {}, f"token {V + 3}"
    ),
    "a token of a second document": (
        lambda lab: lab.documents.prompt.Segments((1,), ((3,), (4, 99)), (4,)), {}, "token 99"
    ),
    "a priority that there is not": (lambda lab: prompt_of(lab, 3, (4,)), {"priority": 4}, "priority"),
    "a client that is no string": (lambda lab: prompt_of(lab, 3, (4,)), {"client": 5}, "client"),
    "more pages than there are": (lambda lab: prompt_of(lab, 3, (9, 9, 9, 9)), {}, "pages"),
}  # fmt: skip


def reason_of(engine: Engine, request: Any, what: str) -> str:
    """Why the engine refuses a request that can never run."""
    __tracebackhide__ = True
    reason = engine.core.refusal(request)
    if not isinstance(reason, str):
        raise CheckFailed(f"refusal, for {what}: a reason expected, {reason!r} found")
    return reason


@pytest.mark.parametrize("what", list(REFUSED))
def test_task_6_what_can_never_run_is_refused_and_changes_nothing(lab, what):
    make, options, word = REFUSED[what]
    engine = Engine(lab, pages=15, limit=30)
    request = engine.request(make(lab), **options)
    reason = reason_of(engine, request, what)
    if word not in reason:
        raise CheckFailed(f"refusal, for {what}: the reason should mention {word!r}; it says {reason!r}")
    check_raises(ValueError, lambda: engine.core.push(request), name=f"pushing {what}")
    check_equal(len(engine.core.requests), 0, name=f"the requests in the engine after {what} was refused")
    check_equal(engine.scheduler.cache.available, 15, name=f"the pages available after {what} was refused")


IN_SYSTEM, IN_DOCUMENT, IN_QUESTION = V, V + 1, V + 2  # tokens that the model does not have
TWO_REASONS = {
    "a question that ends too late, and an unknown token in a document": (
        ((1,), ((3,) * 19 + (IN_DOCUMENT,),), (4,) * 12), {}, "position"
    ),
    "a question that ends too late, and more pages than there are": (
        ((1,), ((3,) * 20,) * 3, (4,) * 12), {}, "position"
    ),
    "an unknown token in the system prompt, and one in a document": (
        ((1, IN_SYSTEM), ((3, IN_DOCUMENT),), (4,)), {}, f"token {IN_SYSTEM}"
    ),
    "an unknown token in the system prompt, and one in the question": (
        ((1, IN_SYSTEM), (), (4, IN_QUESTION)), {}, f"token {IN_SYSTEM}"
    ),
    "an unknown token in a document, and one in the question": (
        ((1,), ((3,), (3, IN_DOCUMENT)), (4, IN_QUESTION)), {}, f"token {IN_DOCUMENT}"
    ),
    "an unknown token in the question, and a priority that there is not": (
        ((1,), ((3,),), (4, IN_QUESTION)), {"priority": 4}, f"token {IN_QUESTION}"
    ),
    "an unknown token in a document, and more pages than there are": (
        ((1,), ((3,) * 9,) * 3 + ((3,) * 8 + (IN_DOCUMENT,),), (4,)), {}, f"token {IN_DOCUMENT}"
    ),
    "a priority that there is not, and more pages than there are": (
        ((1,), ((3,) * 9,) * 4, (4,)), {"priority": 4}, "priority"
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", list(TWO_REASONS))
def test_task_6_of_two_reasons_the_first_one_is_given(lab, what):
    """In the order of the chapter: the request's own, unknown tokens, the scheduler's, the pages."""
    segments, options, word = TWO_REASONS[what]
    engine = Engine(lab, pages=15, limit=30)
    request = engine.request(lab.documents.prompt.Segments(*segments), **options)
    reason = reason_of(engine, request, what)
    if word not in reason:
        raise CheckFailed(
            f"refusal, for {what}: the first of these two reasons was to be given, which mentions {word!r}; "
            f"it says {reason!r}"
        )


def test_task_6_ordinary_requests_are_refused_as_before(lab):
    engine = Engine(lab, pages=5, limit=30)
    for ids, max_tokens, word in (
        ([], 3, "empty"),
        (list(words(40, 3)), 3, "40"),
        ([V], 3, f"{V}"),
        ([1] * 14, 9, "pages"),
    ):
        request = lab.request.Request(ids, max_tokens)
        reason = reason_of(engine, request, "an ordinary request that can never run")
        if word not in reason:
            raise CheckFailed(f"refusal, for an ordinary request: {word!r} expected in {reason!r}")
    check_equal(
        engine.core.refusal(lab.request.Request([1, 2], 3)), None, name="refusal, for one that can run"
    )


@pytest.mark.parametrize(
    ("system", "documents", "max_tokens", "needed_pages"),
    [
        (3, (9, 9), 2, 4 + 4 + 1),
        (3, (9, 9), 3, 4 + 4 + 2),
        (5, (), 2, 2 + 1),
        (0, (), 3, 2),
        (0, (0, 6), 2, 2 + 1),
    ],
)
def test_task_6_what_can_run_alone_is_accepted_and_runs(lab, system, documents, max_tokens, needed_pages):
    """Its pages are counted as if none were shared."""
    for pages in (needed_pages, needed_pages - 1):
        engine = Engine(lab, pages=pages)
        request = engine.request(prompt_of(lab, system, documents, 2), max_tokens)
        name = f"a join that needs up to {needed_pages} pages, of which there are {pages}"
        if pages < needed_pages:
            reason_of(engine, request, name)
            continue
        check_equal(engine.core.refusal(request), None, name=f"refusal, for {name}")
        engine.core.push(request)
        engine.answer(request)


def test_task_6_the_output_ends_with_the_positions(lab):
    """The question starts behind the longest document: that many positions are used already."""
    engine = Engine(lab, limit=16)
    request = engine.ask(prompt_of(lab, 3, (5, 8, 7), 2), 9)
    engine.answer(request)
    check_equal(
        len(request.output), 3, name="how many tokens are generated: 16 positions, the question ends at 12"
    )


def test_task_6_a_step_that_fails_can_be_made_again(lab):
    engine = Engine(lab, token_budget=9)
    request, plain = engine.ask(prompt_of(lab, 5, (4, 7), 3)), engine.push(words(5, 3))
    for _ in range(5):
        engine.fail()
        engine.step()
    engine.answer(request, plain)


documents_ = st.lists(
    st.tuples(st.sampled_from(NAMES[:5]), st.sampled_from([0, 1, 2, 3, 4, 5, 6, 7])), max_size=5
)
events = st.lists(
    st.one_of(
        st.tuples(
            st.just("ask"),
            st.integers(0, 7),
            documents_,
            st.integers(1, 4),
            st.integers(1, 4),
            st.sampled_from([None, None, 7]),
            st.sampled_from([0, 0, 1, 3]),
        ),
        st.tuples(st.just("push"), st.integers(1, 9), st.integers(1, 4)),
        st.tuples(st.just("step"), st.integers(1, 3)),
        st.tuples(st.just("fail")),
        st.tuples(st.just("cancel"), st.integers(0, 3)),
    ),
    min_size=2,
    max_size=7,
)


class Wet:
    """The engine, and what happens to it."""

    def __init__(self, lab: Any, options: dict[str, Any]) -> None:
        self.lab, self.engine = lab, Engine(lab, **options)
        self.pushed: list[Any] = []

    def ask(
        self, system: int, documents: Any, question: int, max_tokens: int, stride: Any, priority: int
    ) -> None:
        segments = prompt(self.lab, system, documents, question, seed=question)
        options = {} if stride is None else {"strategy": "offset", "max_chunk_len": stride}
        request = self.engine.request(segments, max_tokens, priority=priority, **options)
        if stride is not None:
            request.stride = stride
        self._push(request)

    def push(self, count: int, max_tokens: int) -> None:
        ids = [*words(4, 1), *words(count, 50)]
        self._push(self.lab.request.Request(ids, max_tokens, sample=Noting(self.lab)))

    def _push(self, request: Any) -> None:
        if self.engine.core.refusal(request) is None:
            self.engine.core.push(request)
            self.pushed.append(request)

    def step(self, times: int) -> None:
        __tracebackhide__ = True
        for _ in range(times):
            self.engine.step()

    def fail(self) -> None:
        __tracebackhide__ = True
        if self.engine.core.requests:
            self.engine.fail()

    def cancel(self, number: int) -> None:
        __tracebackhide__ = True
        gone = self.engine.core.requests[number : number + 1]
        self.engine.core.abort(gone)
        self.pushed = [each for each in self.pushed if each not in gone]
        self.engine.check_pages("after a request was cancelled")

    def finish(self) -> None:
        __tracebackhide__ = True
        self.engine.answer(*self.pushed)


@settings(QUICK, max_examples=25)
@given(
    happens=events,
    options=st.fixed_dictionaries(
        {
            "page_size": st.integers(1, 4),
            "pages": st.integers(12, 40),
            "num_seats": st.integers(1, 4),
            "token_budget": st.sampled_from([1, 5, 9, 60]),
            "chunk_size": st.sampled_from([None, 3]),
        }
    ),
)
def test_task_6_any_schedule_gives_each_request_the_answer_of_the_dense_model(happens, options):
    play(Wet(door.active(), options), happens)
