"""Day 3.2: the metadata of a step, attention over pages, one run of the model, and an engine around it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shared.models import real_model
from shared.numbers import normal
from shared.pending import check_not_growing
from week_1 import numpy_model
from week_1.numpy_model import HKV, D, H
from week_2.continuous import new_request, prompt_of
from week_2.reading_model import V, alone, fingerprints, scores_after

from coursekit import lab as door
from coursekit.check import check, check_equal, check_raises, check_untouched
from coursekit.checking.objects import replaced

from .batch_model import RaggedModel, runner_of, storage_for
from .inserting import Listening, check_pool, heads_of, new_rows, pool_for
from .paged_batches import (
    Watch,
    batch_of,
    check_empty,
    core_of,
    many,
    most_tokens_of,
    numbers_of,
    run_all,
    running_of,
    wanted_of,
)
from .pages import UNUSED, allocator_of, books, in_use, pages_needed, spoil
from .ragged import (
    APART,
    CASES,
    PAGE_SIZES,
    RaggedStep,
    check_merged,
    check_step,
    pair_of,
    random_steps,
    wrong_sums,
)
from .ragged_step import NOTHING, WRONG_RULES, attend_alone, bottom_right, everything, grouped_apart
from .step_oracle import TENSORS, Counted, check_nowhere, check_on_meta, nowhere, table_of, without_numbers

QUICK = settings(max_examples=60, deadline=None, derandomize=True, database=None, report_multiple_bugs=False)
sizes_of_pages = pytest.mark.parametrize("P", PAGE_SIZES, ids=lambda P: f"pages of {P}")
causal_or_not = pytest.mark.parametrize("causal", [True, False], ids=["causal", "not causal"])
errors = pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt])
MIXED = "a decode, a first chunk, a later chunk, a whole prompt"


# Task 1: the metadata of a step

CHAPTER = [([1, 2, 4], 8, 1), ([3, 5], 3, 2), ([6], 0, 3)]


def test_task_1_three_sequences_as_in_the_chapter(lab):
    step = Counted(4, CHAPTER)
    check_equal(step.fields["cu_seqlens_q"], [0, 1, 3, 6], name="the oracle's cu_seqlens_q")
    check_equal(step.fields["slot_mapping"], [16, 15, 20, 24, 25, 26], name="the oracle's slot_mapping")
    step.check(lab)


@sizes_of_pages
def test_task_1_one_sequence_up_to_the_edges_of_pages(lab, P):
    pages = [7, 2, 9, 4, 12, 30, 1, 8, 5]
    for past, new in ((0, 1), (0, P), (P, 1), (P - 1, 2), (2 * P - 1, 1), (P + 1, 2 * P), (P, P)):
        Counted(P, [(pages[: pages_needed(past + new, P)], past, new)]).check(lab)


def test_task_1_pages_held_for_later_are_not_in_the_table(lab):
    """Attention would go through the table of the longest answer that may come, in every layer of every step."""
    Counted(3, [([5, 1, 8, 9, 2], 4, 1), ([3, 7, 4, 6], 0, 2)]).check(lab)
    Counted(3, [([5, 1, 8, 9, 2], 5, 1), ([3, 7, 4, 6], 5, 2)]).check(lab)
    Counted(3, [([5, 1, 8, 9, 2], 3, 6), ([3, 7, 4, 6], 5, 2)]).check(lab)


@pytest.mark.parametrize("spare", [1, 6])
def test_task_1_tables_may_be_wider_than_the_step_needs(lab, spare):
    Counted(4, CHAPTER).check(lab, spare)
    Counted(3, [([5, 1, 8, 9, 2], 5, 1), ([3, 7, 4, 6], 5, 2)]).check(lab, spare)


@pytest.mark.parametrize(
    "q_lens", [(0, 1, 2, 3), (3, 0, 0, 0), (0, 0, 0, 7), (1, 0, 0, 8), (2, 0, 5, 0)], ids=str
)
def test_task_1_sequences_that_bring_nothing_have_no_row(lab, q_lens):
    """The last one has no token in the pool yet."""
    held = [([1, 2], 5), ([3, 4, 8], 8), ([5, 9], 3), ([7, 6], 0)]
    Counted(4, [(*each, new) for each, new in zip(held, q_lens, strict=True)]).check(lab)


def test_task_1_a_sequence_without_pages_may_stand_by(lab):
    """A batch's empty seat: a row of null pages alone."""
    Counted(3, [([], 0, 0), ([4, 2], 3, 1), ([], 0, 0), ([9], 0, 3), ([], 0, 0)]).check(lab)


def test_task_1_sequences_may_share_pages(lab):
    Counted(3, [([5, 1, 8], 6, 2), ([5, 1, 4], 7, 1), ([5, 2], 3, 3)]).check(lab)


def build(lab: Any, rows: Sequence[Sequence[int]], lengths: list[int], q_lens: list[int], P: int = 3) -> Any:
    """The metadata of a step over a table with these rows."""
    return lab.paged.metadata.ForwardMeta.build(table_of(lab, rows), lengths, q_lens, P, lab.device)


@pytest.mark.parametrize(("row", "new"), [(0, 3), (3, 7), (9, 3), (9, 7)])
def test_task_1_a_sequence_that_lacks_pages_is_refused_by_its_row(lab, row, new):
    """Ten sequences of 4 tokens in 2 pages of 3, so 2 more fit; rows 1 and 2 bring nothing, row 6 has 4 pages."""
    q_lens = [2, 0, 0, 2, 1, 2, 1, 1, 1, 2]
    q_lens[row] = new
    rows = [[2 * n + 1, 2 * n + 2] for n in range(10)]
    rows[6] += [31, 32]
    name = f"a step whose q_lens are {q_lens}, where sequence {row} has room for 2 tokens"
    error = check_raises(ValueError, lambda: build(lab, rows, [4] * 10, q_lens), name=name)
    named = [word.strip(":,.") for word in str(error).split()]
    assert str(row) in named, f"{name}: the message should name row {row} of tables; it is {str(error)!r}"


@pytest.mark.parametrize("q_lens", [[0, 0, 0], [1, -1, 1], [-1, 1, 1], [0, 0, -1], [-1, -1, -1]], ids=str)
def test_task_1_a_step_needs_a_token_and_no_negative_number(lab, q_lens):
    call = partial(build, lab, [[1, 2], [3, 4], [5, 6]], [4, 4, 4], q_lens)
    check_raises(ValueError, call, name=f"a step whose q_lens are {q_lens}")


@pytest.mark.parametrize(
    ("lengths", "q_lens"),
    [
        ([4, 4, 4], [1, 1]),
        ([4, 4], [1, 1, 1]),
        ([4] * 4, [1, 1, 1]),
        ([4] * 3, [1] * 4),
        ([], []),
        ([4, 4], [1, 1]),
        ([4] * 4, [1] * 3 + [0]),
    ],
)
def test_task_1_there_must_be_two_numbers_for_each_row(lab, lengths, q_lens):
    call = partial(build, lab, [[1, 2], [3, 4], [5, 6]], lengths, q_lens)
    check_raises(ValueError, call, name=f"lengths {lengths} and q_lens {q_lens} for a table of 3 rows")


def test_task_1_a_step_without_any_sequence_is_refused(lab):
    tables = lab.array(np.zeros((0, 2)), "int32")
    call = partial(lab.paged.metadata.ForwardMeta.build, tables, [], [], 3, lab.device)
    check_raises(ValueError, call, name="a step over a table without rows")


@QUICK
@given(
    P=st.sampled_from([1, 2, 3, 16]),
    lengths=st.lists(
        st.tuples(st.integers(0, 40), st.sampled_from([0, 1, 1, 2, 5, 16, 20]), st.integers(0, 2)),
        min_size=1,
        max_size=5,
    ).filter(lambda lengths: any(new for _, new, _ in lengths)),
    spare=st.integers(0, 2),
    seed=st.integers(0, 99),
)
def test_task_1_any_sequences_in_any_pages(P, lengths, spare, seed):
    pages = iter(np.random.default_rng(seed).permutation(np.arange(1, 400)).tolist())
    steps = [
        ([next(pages) for _ in range(pages_needed(past + new, P) + later)], past, new)
        for past, new, later in lengths
    ]
    Counted(P, steps).check(door.active(), spare)


def test_task_1_metadata_stay_as_they_are_when_the_tables_change(lab):
    """A step is described once. Afterwards sequences take pages and lose them."""
    tables, lengths, q_lens = table_of(lab, [[5, 1], [3, 7]]), [4, 5], [2, 1]
    meta = lab.paged.metadata.ForwardMeta.build(tables, lengths, q_lens, 3, lab.device)
    before = {name: getattr(meta, name).tolist() for name in TENSORS}
    tables[...] = 0
    lengths.clear()
    q_lens.clear()
    for name, numbers in before.items():
        check_equal(getattr(meta, name).tolist(), numbers, name=f"{name}, after the tables have changed")
    check_equal(
        (meta.starts, meta.kv_lens), ([0, 2, 3], [6, 6]), name="the lists, after the tables have changed"
    )


def test_task_1_the_tensors_go_where_they_were_asked_to(lab):
    """On torch's device "meta" tensors have shapes, and no numbers. The tables are on the host."""
    if lab.backend == "mlx":
        pytest.skip("MLX's arrays belong to no device")
    tables = table_of(lab, [[1, 2], [3, 4]])
    meta = without_numbers(
        lambda: lab.paged.metadata.ForwardMeta.build(tables, [4, 1], [1, 3], 3, "meta"),
        "`build` asks a tensor on `device` for its numbers: compute on the host, and move the tensors last",
    )
    where = 'build(…, device="meta") should put all six tensors there'
    check_on_meta({name: getattr(meta, name) for name in TENSORS}, where)
    check_equal((meta.starts, meta.kv_lens), ([0, 1, 4], [5, 4]), name="the lists, which are on no device")


# Task 2: attention, sequence by sequence


GROUPS = "query head h reads key-value head h % Hkv; neighbours should share one, h // (H / Hkv)"
SOFT_MASK = "a query that sees nothing gets all values: keys are hidden by a large negative number, not by −∞"
ROOTED = "the scores are divided by √D, not multiplied by `scale`"
NOTHING_SEEN = "where a query sees nothing, all scores and the log-sum-exp are −∞: −∞ − (−∞) is NaN"
AFTER_THE_MASK = "−∞ times a negative scale is +∞: scale the scores first, then add the mask"
HEADS_APART = (
    "the heads of the output are in the wrong order: those of a group, h // (H / Hkv), stand side by side"
)


def heads_apart(out: np.ndarray) -> np.ndarray:
    """[L, H, D] whose heads are sorted by their place in the group first."""
    L, heads, size = out.shape
    return out.reshape(L, HKV, heads // HKV, size).swapaxes(1, 2).reshape(out.shape)


def attend_to(lab: Any, query: np.ndarray, key: np.ndarray, value: np.ndarray, *rest: Any) -> tuple[Any, Any]:
    arrays = [lab.array(x) for x in (query, key, value)]
    return pair_of(lab.paged.attention.attend_to(*arrays, *rest), "attend_to")


def check_attend_to(lab: Any, L: int, S: int, causal: bool, scale: float = 0.4, seed: int = 60) -> None:
    __tracebackhide__ = True
    query, key, value = normal(seed, L, H, D), normal(seed + 1, S, HKV, D), normal(seed + 2, S, HKV, D)
    arrays = [lab.array(x) for x in (query, key, value)]
    actual = pair_of(lab.paged.attention.attend_to(*arrays, scale, causal), "attend_to")
    oracle = partial(attend_alone, query, key, value)
    wanted = oracle(scale, bottom_right if causal else everything)
    rules = WRONG_RULES if causal else {"causal, though it was asked not to be": bottom_right}
    wrong = {why: oracle(scale, seen) for why, seen in rules.items()}
    rule = bottom_right if causal else everything
    wrong["the scores are not scaled"] = oracle(1.0, rule)
    wrong[GROUPS] = oracle(scale, rule, share=lambda h, group: h)
    wrong[ROOTED] = oracle(D**-0.5, rule)
    wrong[APART] = grouped_apart(wrong[GROUPS], HKV)
    blind = min(L, max(0, L - S if causal else 0 if S else L))  # queries that see nothing
    if causal and blind:
        mean = oracle(0.0, everything)[0][:blind]
        for why, times in ((SOFT_MASK, S), (f"{SOFT_MASK} (their mean)", 1)):
            wrong[why] = np.concatenate([mean * times, wanted[0][blind:]]), wanted[1]
    names = ("the attention output", "the log-sum-exp")
    for n, axes in enumerate(("L H D", "L H")):
        check(
            actual[n],
            wanted[n],
            name=f"{names[n]} of {L} queries over {S} keys",
            axes=axes,
            suspects={why: other[n] for why, other in wrong.items()}
            | (wrong_sums(wanted[1]) if n else {HEADS_APART: heads_apart(wanted[0])}),
            nan=AFTER_THE_MASK if causal and scale < 0 and L > 1 else NOTHING_SEEN if blind else None,
        )
    for name, array, numbers in zip(("query", "key", "value"), arrays, (query, key, value), strict=True):
        check_untouched(array, numbers, name=name)


@causal_or_not
@pytest.mark.parametrize(("L", "S"), [(5, 7), (1, 1), (1, 7), (2, 7), (6, 7), (7, 7)])
def test_task_2_the_last_tokens_of_a_sequence_attend(lab, L, S, causal):
    check_attend_to(lab, L, S, causal)


@pytest.mark.parametrize(("L", "S"), [(5, 3), (3, 1), (4, 0), (1, 0)])
def test_task_2_a_query_that_sees_nothing_gets_zeros_and_minus_infinity(lab, L, S):
    check_attend_to(lab, L, S, True)
    if S == 0:
        check_attend_to(lab, L, S, False)


def test_task_2_three_keys_as_in_the_chapter(lab):
    """Scores ln 1, ln 2, ln 5, and values 8, 2, 12: query 0 sees two keys, query 1 all three."""
    query, key = np.ones((2, 1, 1)), np.log(np.array([1.0, 2, 5])).reshape(3, 1, 1)
    out, lse = attend_to(lab, query, key, np.array([8.0, 2, 12]).reshape(3, 1, 1), 1.0, True)
    name = "the averages (8 + 2·2) / 3 and (8 + 2·2 + 5·12) / 8"
    check(out, [[[4.0]], [[9.0]]], name=name, axes="L H D")
    check(lse, np.log([[3.0], [8.0]]), name="the log-sum-exps ln 3 and ln 8", axes="L H")


@causal_or_not
@pytest.mark.parametrize("scale", [300.0, -300.0])
def test_task_2_large_scores_do_no_harm(lab, scale, causal):
    check_attend_to(lab, 3, 7, causal, scale)


@causal_or_not
def test_task_2_bfloat16_is_computed_in_float32(lab, causal):
    step = RaggedStep.random(64, [(9, 4)], 3, dtype="bfloat16")
    query, key, value = step.dense(0)
    arrays = [lab.array(x, "bfloat16") for x in (query, key, value)]
    actual = pair_of(lab.paged.attention.attend_to(*arrays, 0.4, causal), "attend_to")
    wanted = attend_alone(query, key, value, 0.4, bottom_right if causal else everything)
    check(actual[0], wanted[0], name="the output, in the dtype of the query", axes="L H D", dtype="bfloat16")
    name = "the log-sum-exp, float32 and as exact as that"
    check(actual[1], wanted[1], name=name, axes="L H")


@pytest.mark.parametrize(("query", "pool"), [("float32", "bfloat16"), ("bfloat16", "float32")])
def test_task_2_the_output_has_the_dtype_of_the_query(lab, query, pool):
    step = RaggedStep.random(69, [(9, 4)], 3, dtype="bfloat16")
    dense = step.dense(0)
    arrays = [lab.array(x, dtype) for x, dtype in zip(dense, (query, pool, pool), strict=True)]
    out, lse = pair_of(lab.paged.attention.attend_to(*arrays, 0.4, True), "attend_to")
    wanted = attend_alone(*dense, 0.4, bottom_right)
    name = f"the output of {query} queries over {pool} keys, in the dtype of the query"
    check(out, wanted[0], name=name, axes="L H D", dtype=query)
    check(lse, wanted[1], name="the log-sum-exp, float32 in any case", axes="L H")


def test_task_2_nothing_on_the_way_is_rounded_to_16_bits(lab):
    """Scores 4 + 1/512 and 4: weights ½ ± 1/2048, which bfloat16 holds as ½ and ½. Values 128 and −128."""
    query, key = np.ones((1, 1, 2)), np.array([[4, 2**-9], [4, 0]]).reshape(2, 1, 2)
    value = np.array([[128.0, 64], [-128, -64]]).reshape(2, 1, 2)
    arrays = [lab.array(x, "bfloat16") for x in (query, key, value)]
    out, _ = pair_of(lab.paged.attention.attend_to(*arrays, 1.0, True), "attend_to")
    rounded = {
        "scores or weights were rounded to bfloat16 on the way; only the output is": np.zeros((1, 1, 2))
    }
    name = "the output where two values nearly cancel"
    wanted = [[[2**-3, 2**-4]]]
    check(out, wanted, name=name, axes="L H D", dtype="bfloat16", rtol=2**-8, atol=0, suspects=rounded)


@causal_or_not
@sizes_of_pages
@pytest.mark.parametrize("case", CASES)
def test_task_2_each_sequence_attends_to_its_own_pages(lab, case, P, causal):
    step = RaggedStep.random(7, CASES[case](P), P)
    check_step(lab, lab.paged.attention.paged_attention, step, causal=causal)


@sizes_of_pages
@pytest.mark.parametrize("shared", [1, 2])
def test_task_2_sequences_may_share_the_pages_of_their_pasts(lab, P, shared):
    lengths = [(2 * P + 4, 3), (2 * P + 1, 1), (P + 2, 2), (3 * P, 1), (2, 2)]
    step = RaggedStep.random(17, lengths, P, shared=shared)
    check_equal(step.tables[0][:1], step.tables[1][:1], name="the page that two sequences share")
    check_step(lab, lab.paged.attention.paged_attention, step)


@causal_or_not
@sizes_of_pages
def test_task_2_the_pool_may_be_bfloat16(lab, P, causal):
    step = RaggedStep.random(
        27, CASES["a decode, a first chunk, a later chunk, a whole prompt"](P), P, dtype="bfloat16"
    )
    check_step(lab, lab.paged.attention.paged_attention, step, causal=causal)


@causal_or_not
def test_task_2_a_sequence_of_which_nothing_is_there_sees_nothing(lab, causal):
    step = RaggedStep.random(37, [(4, 2), (0, 3), (0, 1), (2, 5), (7, 1)], 3)
    check_step(lab, lab.paged.attention.paged_attention, step, causal=causal)


@QUICK
@given(step=random_steps(), causal=st.booleans())
def test_task_2_any_step_over_any_pages(step, causal):
    lab = door.active()
    check_step(lab, lab.paged.attention.paged_attention, step, causal=causal)


def test_task_2_the_causal_rule_is_kept_unless_told_otherwise(lab):
    step = RaggedStep.random(47, [(7, 3), (2, 2)], 3)

    def attention(query: Any, keys: Any, values: Any, meta: Any, scale: float, causal: bool) -> Any:
        return lab.paged.attention.paged_attention(query, keys, values, meta, scale)

    check_step(lab, attention, step)


@causal_or_not
def test_task_2_lengths_are_read_from_the_lists(lab, causal):
    """What asks a tensor for a number waits for the device, in each layer, for each sequence."""
    step = RaggedStep.random(49, [(7, 3), (2, 2), (8, 1)], 3)

    def attention(query: Any, keys: Any, values: Any, meta: Any, scale: float, causal: bool) -> Any:
        hidden = {name: nowhere(lab, getattr(meta, name)) for name in ("cu_seqlens_q", "seq_lens_kv")}
        arguments = query, keys, values, replaced(meta, **hidden), scale, causal
        why = (
            "`paged_attention` asks `cu_seqlens_q` or `seq_lens_kv` for numbers; on the host these are in the "
            "lists `starts` and `kv_lens`"
        )
        attended = without_numbers(lambda: lab.paged.attention.paged_attention(*arguments), why)
        check_nowhere(lab, hidden.values(), why)
        return attended

    check_step(lab, attention, step, causal=causal)


# Task 3: merging parts


def merged(lab: Any, parts: list[tuple[np.ndarray, np.ndarray]], dtype: str = "float32") -> tuple[Any, Any]:
    given = [(lab.array(out, dtype), lab.array(lse)) for out, lse in parts]
    before = [(lab.numpy(out), lab.numpy(lse)) for out, lse in given]
    actual = pair_of(lab.paged.attention.merge_attention(given), "merge_attention")
    check_equal(len(given), len(before), name="how many parts are in the list that was given, afterwards")
    for pair, numbers in zip(given, before, strict=True):
        check_untouched(pair[0], numbers[0], name="the output of a part", dtype=dtype)
        check_untouched(pair[1], numbers[1], name="the log-sum-exp of a part")
    return actual


def merged_pair(
    one: tuple[np.ndarray, np.ndarray], two: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    lse = np.logaddexp(one[1], two[1])
    safe = np.where(lse == NOTHING, 0, lse)
    return sum(out * np.exp(own - safe)[..., None] for out, own in (one, two)), lse


def check_merge(
    lab: Any, parts: list[tuple[np.ndarray, np.ndarray]], wanted: tuple[np.ndarray, np.ndarray], name: str
) -> None:
    __tracebackhide__ = True
    out, lse = merged(lab, parts)
    outs, sums = (np.stack(side) for side in zip(*parts, strict=True))
    with np.errstate(over="ignore", invalid="ignore"):
        weights = np.exp(sums)[..., None]
        suspects = {
            "the parts are averaged, each counting the same": outs.mean(axis=0),
            "the parts are added up, without their shares": outs.sum(axis=0),
            "shares are in the proportion of the log-sum-exps, not of their exponentials": (
                (outs * sums[..., None]).sum(axis=0) / sums.sum(axis=0)[..., None]
            ),
            "the shares are not divided by their sum": (outs * weights).sum(axis=0),
            "only the last part counts": outs[-1],
        }
    if len(parts) > 2:
        two, sum_of_two = merged_pair(*parts[:2])
        share = np.exp(sum_of_two - np.where(wanted[1] == NOTHING, 0, wanted[1]))[..., None]
        only = f"only the first two of {len(parts)} parts are merged"
        suspects |= {only: two, f"{only}, with the shares that they have of all": two * share}
    nothing = "two parts that have seen nothing: −inf − (−inf) is NaN"
    check(out, wanted[0], name=f"the output of {name}", axes="T H D", suspects=suspects, nan=nothing)
    other_sums = {
        "the parts' log-sum-exps are added up": sums.sum(axis=0),
        "the greatest log-sum-exp, not that of them all": sums.max(axis=0),
    }
    if len(parts) > 2:
        other_sums[only] = sum_of_two
    name = f"the log-sum-exp of {name}"
    if np.isinf(wanted[1]).any():
        nowhere = "where no part has seen anything, the log-sum-exp is −inf; here is another number"
        other_sums[nowhere] = np.where(np.isinf(wanted[1]), lab.numpy(lse), wanted[1])
    check(lse, wanted[1], name=name, axes="T H", suspects=other_sums, nan=nothing)


def part_of(total: float, average: float) -> tuple[np.ndarray, np.ndarray]:
    return np.array([[[average]]]), np.log(np.array([[total]]))


def test_task_3_two_parts_as_in_the_chapter(lab):
    check_merge(lab, [part_of(3, 4), part_of(5, 12)], (np.array([[[9.0]]]), np.log([[8.0]])), "the two parts")


@pytest.mark.parametrize("edges", [(), (4,), (1,), (8,), (2, 3), (1, 4, 8)], ids=str)
def test_task_3_parts_of_the_keys_merge_to_the_whole(lab, edges):
    query, key, value = normal(65, 4, H, D), normal(66, 9, HKV, D), normal(67, 9, HKV, D)
    cuts = zip((0, *edges), (*edges, 9), strict=True)
    parts = [attend_alone(query, key[a:b], value[a:b], 0.4, everything) for a, b in cuts]
    wanted = attend_alone(query, key, value, 0.4, everything)
    check_merge(lab, parts, wanted, f"{len(parts)} parts")
    check_merge(lab, parts[::-1], wanted, f"{len(parts)} parts, the last one first")


@pytest.mark.parametrize("place", [0, 1, 2])
def test_task_3_a_part_that_has_seen_nothing_changes_nothing(lab, place):
    query, key, value = normal(68, 4, H, D), normal(69, 9, HKV, D), normal(70, 9, HKV, D)
    parts = [attend_alone(query, key[a:b], value[a:b], 0.4, everything) for a, b in ((0, 5), (5, 9))]
    parts.insert(place, (np.zeros((4, H, D)), np.full((4, H), NOTHING)))
    check_merge(lab, parts, attend_alone(query, key, value, 0.4, everything), "two parts and an empty one")


def test_task_3_where_no_part_has_seen_anything_there_are_zeros(lab):
    query, key, value = normal(71, 5, H, D), normal(72, 3, HKV, D), normal(73, 3, HKV, D)
    some = attend_alone(query, key, value, 0.4, bottom_right)
    empty = attend_alone(query, key[:0], value[:0], 0.4, everything)
    check_merge(lab, [some, empty], some, "a part whose first 2 queries see nothing, and an empty one")
    check_merge(lab, [empty] * 3, empty, "three empty parts")


@pytest.mark.parametrize("shift", [-500.0, 500.0])
def test_task_3_large_log_sum_exps_do_no_harm(lab, shift):
    query, key, value = normal(74, 4, H, D), normal(75, 9, HKV, D), normal(76, 9, HKV, D)
    parts = [attend_alone(query, key[a:b], value[a:b], 0.4, everything) for a, b in ((0, 5), (5, 9))]
    # float32 holds numbers near 500 to 3e-5, so shares have that error, too: round first.
    parts = [(out, (lse + shift).astype(np.float32).astype(np.float64)) for out, lse in parts]
    sums = np.stack([lse for _, lse in parts])
    lse = sums.max(axis=0) + np.log(np.exp(sums - sums.max(axis=0)).sum(axis=0))
    out = sum(out * np.exp(part - lse)[..., None] for out, part in parts)
    actual = merged(lab, parts)
    check(actual[0], out, name=f"the output, all scores {shift:+.0f}", axes="T H D", rtol=1e-4, atol=1e-4)
    check(actual[1], lse, name=f"the log-sum-exp, all scores {shift:+.0f}", axes="T H", atol=1e-4)


def test_task_3_outputs_in_bfloat16_stay_bfloat16(lab):
    parts = [part_of(3, 4), part_of(5, 12)]
    out, lse = merged(lab, parts, "bfloat16")
    check(out, [[[9.0]]], name="the merged output", axes="T H D", dtype="bfloat16")
    check(lse, np.log([[8.0]]), name="the merged log-sum-exp", axes="T H")


def test_task_3_no_share_is_rounded_to_16_bits(lab):
    """Log-sum-exps 4 + 1/512 and 4: shares ½ ± 1/2048, which bfloat16 holds as ½ and ½. Outputs 128 and −128."""
    sums, outs = np.array([4 + 2**-9, 4]).reshape(2, 1, 1), np.array([128.0, -128]).reshape(2, 1, 1, 1)
    out, _ = merged(lab, list(zip(outs, sums, strict=True)), "bfloat16")
    rounded = {"the parts are merged in bfloat16; that is for the output alone": np.zeros((1, 1, 1))}
    name = "the merged output where two parts nearly cancel"
    check(out, [[[2**-3]]], name=name, axes="T H D", dtype="bfloat16", rtol=2**-8, atol=0, suspects=rounded)


@sizes_of_pages
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("pages", [1, 2])
def test_task_3_two_halves_of_a_sequence_give_the_whole(lab, case, P, pages):
    """The past without the causal rule, the rest with it, as Week 4 does it with documents."""
    check_merged(lab, lab.paged.attention.paged_attention, RaggedStep.random(57, CASES[case](P), P), pages)


@QUICK
@given(step=random_steps(), pages=st.integers(0, 4))
def test_task_3_any_step_may_be_cut_between_pages(step, pages):
    lab = door.active()
    check_merged(lab, lab.paged.attention.paged_attention, step, pages)


# Task 4: one run for all


@sizes_of_pages
def test_task_4_new_tokens_are_in_their_places_before_attention_is_called(lab, P):
    step = RaggedStep.random(78, CASES[MIXED](P), P)
    _, keys, values = new_rows(step)
    answer, meta, pool = normal(79, len(keys), H, D), step.meta(lab), pool_for(lab, step)
    attention = Listening(lab, answer, pool)
    given = step.query, keys, values
    arrays = [lab.array(x) for x in given]
    write_and_attend = lab.paged.paged_cache.update_decode_state_and_compute_attn
    out = write_and_attend(pool, 2, meta, *arrays, 0.3, attention)
    attention.check(step, 2, meta, 0.3)
    check(out, answer, name="what `update_decode_state_and_compute_attn` returns", axes="T H D")
    check_pool(lab, pool, step, 2)
    for name, array, numbers in zip(("query", "key", "value"), arrays, given, strict=True):
        check_untouched(array, numbers, name=name)


@sizes_of_pages
@pytest.mark.parametrize("case", CASES)
def test_task_4_each_sequence_attends_to_its_past_and_its_new_tokens(lab, case, P):
    step = RaggedStep.random(87, CASES[case](P), P)
    _, keys, values = new_rows(step)
    arrays = [lab.array(x) for x in (step.query, keys, values)]
    write_and_attend = lab.paged.paged_cache.update_decode_state_and_compute_attn
    out = write_and_attend(pool_for(lab, step, layer=1), 1, step.meta(lab), *arrays, step.scale)
    check(out, step.expected()[0], name="what each token attends to", axes="T H D", nan=UNUSED)


@sizes_of_pages
def test_task_4_the_cache_turns_the_models_axes_and_turns_them_back(lab, P):
    step = RaggedStep.random(97, CASES[MIXED](P), P)
    _, keys, values = new_rows(step)
    answer, meta, pool = normal(98, len(keys), H, D), step.meta(lab), pool_for(lab, step)
    attention = Listening(lab, answer, pool)
    cache = lab.paged.paged_cache.PagedCache(pool, 3, meta, attention)
    given = step.query, keys, values
    arrays = [heads_of(lab, x) for x in given]
    out = cache.attend(*arrays, 0.3)
    attention.check(step, 3, meta, 0.3)
    check(out, answer.swapaxes(0, 1)[None], name="what `attend` returns", axes="1 H T D")
    check_pool(lab, pool, step, 3)
    for name, array, numbers in zip(("query", "key", "value"), arrays, given, strict=True):
        check_untouched(array, numbers.swapaxes(0, 1)[None], name=name)


@sizes_of_pages
def test_task_4_a_cache_attends_by_the_reference_path_unless_told_otherwise(lab, P):
    step = RaggedStep.random(88, CASES[MIXED](P), P)
    _, keys, values = new_rows(step)
    cache = lab.paged.paged_cache.PagedCache(pool_for(lab, step, layer=2), 2, step.meta(lab))
    actual = cache.attend(*(heads_of(lab, x) for x in (step.query, keys, values)), step.scale)
    expected = step.expected()[0].swapaxes(0, 1)[None]
    check(actual, expected, name="what `attend` gives", axes="1 H T D", nan=UNUSED)


STEPS = [
    [5, 0, 3, 0],
    [0, 4, 1, 0],
    [1, 3, 1, 0],
    [0, 1, 0, 6],
    [1, 1, 2, 0],
]  # how many tokens each sequence brings, step by step


class Runs:
    """Sequences that bring tokens to a runner, step by step, and what has become of them."""

    def __init__(self, lab: Any, runner: Any, allocator: Any, count: int = 4) -> None:
        self.lab, self.runner = lab, runner
        page_size = runner.pool.page_size
        self.sequences = [lab.paged.sequence.PagedSequence(allocator, page_size) for _ in range(count)]
        self.ids = [prompt_of(60, seed=n) for n in range(count)]
        self.lengths = [0] * count

    def run(self, q_lens: Sequence[int], reserve: bool = True) -> Any:
        """One run; the sequences take their pages first, unless they shall not."""
        for sequence, new in zip(self.sequences, q_lens, strict=True):
            sequence.reserve(new if reserve else 0)
        tables = table_of(self.lab, [sequence.pages for sequence in self.sequences], 1)
        brought = zip(self.ids, self.lengths, q_lens, strict=True)
        tokens = [token for ids, start, count in brought for token in ids[start : start + count]]
        rows = self.runner.run(self.sequences, tables, tokens, q_lens)
        self.lengths = [length + new for length, new in zip(self.lengths, q_lens, strict=True)]
        return rows

    def check_lengths(self, when: str) -> None:
        __tracebackhide__ = True
        check_equal(
            [each.length for each in self.sequences], self.lengths, name=f"the sequences' lengths {when}"
        )

    def check(self, rows: Any, q_lens: Sequence[int], when: str) -> None:
        """The last rows of the sequences that brought tokens to the RaggedModel, and all lengths."""
        __tracebackhide__ = True
        wanted = [
            [fingerprints(self.ids[n][:length])[-1], length]
            for n, length in enumerate(self.lengths)
            if q_lens[n]
        ]
        every = np.array(
            [
                [fingerprints(self.ids[n][:stop])[-1], stop]
                for n, length in enumerate(self.lengths)
                for stop in range(length - q_lens[n] + 1, length + 1)
            ],
            float,
        )
        suspects = {
            "these are the last B of the T rows; each sequence's last row is at `last_rows`": every[
                -len(wanted) :
            ],
            "these are the first B of the T rows; each sequence's last row is at `last_rows`": every[
                : len(wanted)
            ],
        }
        name = f"the last rows {when}"
        check(rows, np.array(wanted, float), name=name, axes="B E", rtol=0, suspects=suspects)
        self.check_lengths(when)


@sizes_of_pages
def test_task_4_decodes_chunks_and_prompts_share_a_run(lab, P):
    model = RaggedModel(lab)
    runner, allocator = runner_of(lab, model, 40, P)
    runs, watched = Runs(lab, runner, allocator), list[list[int]]()

    def attention(*arguments: Any) -> Any:
        watched.append([sequence.length for sequence in runs.sequences])
        return model.read(*arguments)

    runner.attention = attention
    for number, q_lens in enumerate(STEPS):
        watched.clear()
        before = list(runs.lengths)
        rows = runs.run(q_lens)
        name = f"how often the runner's own `attention` was called in step {number}: once per layer"
        check_equal(len(watched), model.config.num_layers, name=name)
        name = f"the lengths while each layer of step {number} runs: sequences advance after all layers"
        check_equal(watched, [before] * model.config.num_layers, name=name)
        runs.check(rows, q_lens, f"after step {number}")
    check_equal(len(model.runs), len(STEPS), name="how often the model ran, for so many steps")
    check_equal(
        model.head_rows, [], name="calls of `model.logits`: a run ends with the states, before the head"
    )


def test_task_4_a_run_takes_no_pages_and_gives_none_back(lab):
    runner, allocator = runner_of(lab, RaggedModel(lab))
    runs = Runs(lab, runner, allocator)
    for sequence in runs.sequences:
        sequence.reserve(9)
    before = books(allocator)
    for q_lens in STEPS:
        runs.run(q_lens, reserve=False)
    name = "what the allocator knows after some runs: pages are taken before, by the caller of `run`"
    check_equal(books(allocator), before, name=name)


@errors
def test_task_4_a_run_that_fails_counts_no_token(lab, error):
    model = RaggedModel(lab)
    runner, allocator = runner_of(lab, model)
    runs = Runs(lab, runner, allocator)
    runs.run([3, 0, 1, 0])
    model.fails_at, model.fails_with = 1, error
    check_raises(error, lambda: runs.run([1, 8, 0, 0]), name="a run whose model fails")
    runs.check_lengths("after the run that failed")
    for q_lens in ([0, 2, 1, 0], [1, 1, 1, 4], [1, 6, 0, 1]):
        runs.check(
            runs.run(q_lens), q_lens, f"of a run with q_lens {q_lens}, some time after one that failed"
        )


@pytest.mark.parametrize(
    ("count", "q_lens", "what"),
    [
        (0, [0, 0, 0, 0], "no token at all"),
        (4, [1, 0, 2, 0], "a token too many"),
        (2, [1, 0, 2, 0], "a token too few"),
        (2, [3, 0, -1, 0], "a sequence that brings −1"),
        (3, [1, 2], "q_lens for two sequences of four"),
        (4, [1, 2, 0, 0, 1], "q_lens for five sequences of four"),
        (9, [1, 1, 6, 1], "a sequence that lacks pages for its tokens"),
    ],
)
def test_task_4_what_makes_no_step_is_refused(lab, count, q_lens, what):
    model = RaggedModel(lab)
    runner, allocator = runner_of(lab, model)
    runs = Runs(lab, runner, allocator)
    runs.run([2, 1, 1, 3])
    for sequence in runs.sequences:
        sequence.reserve(3)
    before, tables = books(allocator), table_of(lab, [sequence.pages for sequence in runs.sequences])
    call = partial(runner.run, runs.sequences, tables, [1] * count, q_lens)
    check_raises(ValueError, call, name=f"a run with {what}")
    runs.check_lengths("after the refused run")
    check_equal(books(allocator), before, name="what the allocator knows after the refused run")
    check_equal(len(model.runs), 1, name="runs of the model: only the one before")


def test_task_4_arguments_are_left_as_they_are(lab):
    runner, allocator = runner_of(lab, RaggedModel(lab))
    runs = Runs(lab, runner, allocator)
    for sequence in runs.sequences:
        sequence.reserve(5)
    pages = [list(sequence.pages) for sequence in runs.sequences]
    tables, tokens, q_lens = table_of(lab, pages), [3, 1, 4, 1], [3, 0, 1, 0]
    runner.run(runs.sequences, tables, tokens, q_lens)
    check_equal(tables.tolist(), table_of(lab, pages).tolist(), name="the tables, afterwards")
    check_equal((tokens, q_lens), ([3, 1, 4, 1], [3, 0, 1, 0]), name="tokens and q_lens, afterwards")
    check_equal([each.pages for each in runs.sequences], pages, name="the sequences' pages, afterwards")


def test_task_4_a_step_goes_where_the_models_embedding_is(lab):
    """On torch's device "meta" tensors have shapes, and no numbers. The pool is elsewhere here, and never used."""
    if lab.backend == "mlx":
        pytest.skip("MLX's arrays belong to no device")
    usual, given = RaggedModel(lab), list[dict[str, Any]]()
    pool, allocator = storage_for(lab, usual, 40, 3)

    def hidden(tokens: Any, positions: Any, caches: Any) -> Any:
        built = {name: getattr(caches[0].meta, name) for name in TENSORS}
        given.append({"tokens": tokens, "the model's positions": positions} | built)
        raise KeyError("the model stops here, as the test wanted it to")

    embedding = SimpleNamespace(weight=usual.embedding.weight.to("meta"))
    model = SimpleNamespace(config=usual.config, embedding=embedding, hidden=hidden)
    runs = Runs(lab, lab.paged.model_runner.ModelRunner(model, pool), allocator)
    step = partial(runs.run, [3, 0, 1, 0])
    check_raises(KeyError, step, name="a step whose model stops once it has seen what it is given")
    where = 'tokens and metadata should go where the model\'s embedding is, on the device "meta" here'
    check_on_meta(given[0], where)
    check_equal(tuple(given[0]["tokens"].shape), (1, 4), name="the shape of the tokens")


def test_task_4_a_step_puts_nothing_off_until_later_steps(lab):
    """With MLX, which computes when a number is asked for; torch never has anything to put off."""
    model, put_off = real_model(lab, "llama"), []
    pool = lab.paged.pool.KvPool(model.config, 9, 3, device=lab.device)
    runner = lab.paged.model_runner.ModelRunner(model, pool)
    sequence = lab.paged.sequence.PagedSequence(allocator_of(lab, 9), 3)
    sequence.reserve(8)
    for tokens in ([5, 9], [2, 7], [4, 4], [1, 3]):  # chunks of one prompt: nothing is sampled
        runner.run([sequence], table_of(lab, [sequence.pages]), tokens, [2])
        put_off.append(lab.pending_operations(pool.keys[model.config.num_layers - 1]))
    check_not_growing(put_off, "the last layer's keys in the pool", "chunk of a prompt")


@st.composite
def histories(draw: Any) -> tuple[int, int, list[tuple[str, list[int]]]]:
    """Tokens per page, pages, and what happens to three sequences."""
    counts = st.lists(st.sampled_from([0, 0, 1, 1, 2, 5]), min_size=3, max_size=3)
    marks = st.lists(st.sampled_from([0, 1]), min_size=3, max_size=3)
    events = st.one_of(
        st.tuples(st.sampled_from(["run", "run", "fail"]), counts), st.tuples(st.just("release"), marks)
    )
    return draw(st.sampled_from([1, 2, 3])), draw(st.integers(3, 14)), draw(st.lists(events, max_size=10))


@QUICK
@given(history=histories())
def test_task_4_whatever_happens_each_sequence_goes_on_as_if_it_were_alone(history):
    lab, (P, num_pages, events) = door.active(), history
    model = RaggedModel(lab)
    runs = Runs(lab, *runner_of(lab, model, num_pages, P), count=3)
    for number, (what, counts) in enumerate(events):
        if what == "release":
            for n in range(3):
                if counts[n]:
                    runs.sequences[n].release()
                    runs.lengths[n], runs.ids[n] = 0, prompt_of(60, seed=9 * number + n)
        elif any(counts):
            model.fails_at = len(model.runs) if what == "fail" else None
            with suppress(KeyError, lab.paged.allocator.OutOfPages):
                runs.check(runs.run(counts), counts, f"of run {number}")
        runs.check_lengths(f"after event {number}, {what}")


@sizes_of_pages
@pytest.mark.parametrize("family", sorted(numpy_model.FAMILIES))
def test_task_4_the_model_of_week_1_gives_the_rows_that_it_gives_each_alone(lab, family, P):
    model, allocator = real_model(lab, family), allocator_of(lab, 40)
    pool = lab.paged.pool.KvPool(model.config, 40, P, device=lab.device)
    spoil(pool)
    runs = Runs(lab, lab.paged.model_runner.ModelRunner(model, pool), allocator)
    for number, q_lens in enumerate(STEPS):
        rows = runs.run(q_lens)
        prefixes = [runs.ids[n][: runs.lengths[n]] for n in range(4) if q_lens[n]]
        wholes = [model.hidden(lab.array([ids]), slice(0, len(ids))) for ids in prefixes]
        expected = np.stack([lab.numpy(whole)[0, -1] for whole in wholes])
        name = f"the last rows of step {number}, against each sequence alone"
        check(rows, expected, name=name, axes="B E", rtol=1e-4, atol=1e-5, nan=UNUSED)


# Task 5: which requests run, and with how many tokens


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "most"),
    [(5, 4, 8), (1, 1, 1), (9, 1, 9), (9, 11, 19), (9, 12, 19), (19, 500, 19)],
)
def test_task_5_the_last_token_generated_takes_no_room(lab, prompt, max_tokens, most):
    request = new_request(lab, prompt_of(prompt), max_tokens)
    name = f"the most tokens of a prompt of {prompt} and {max_tokens} of output, with 20 positions"
    suspects = {
        "the last token that is generated is counted: it never gets into the pool": min(
            prompt + max_tokens, 20
        ),
        "it is more than the model has positions for": prompt + max_tokens - 1,
    }
    check_equal(lab.paged.limits.most_tokens(request, 20), most, name=name, suspects=suspects)


@pytest.mark.parametrize("generated", [1, 3])
def test_task_5_tokens_that_were_generated_already_are_counted_once(lab, generated):
    """They are part of the output, which has at most max_tokens tokens."""
    request = new_request(lab, prompt_of(5), 4, output=[7] * generated)
    name = f"the most tokens of a prompt of 5 and 4 of output, when {generated} of them are generated already"
    check_equal(lab.paged.limits.most_tokens(request, 20), 8, name=name)


def test_task_5_what_can_never_run_is_refused_with_a_reason(lab):
    page_refusal = lab.paged.limits.page_refusal
    for prompt, max_tokens in ((1, 1), (5, 4), (12, 1), (4, 9)):  # up to 12 tokens: 4 pages of 3
        reason = page_refusal(new_request(lab, prompt_of(prompt), max_tokens), 20, 3, 4)
        name = f"the refusal of {prompt} prompt tokens and {max_tokens} of output, with 4 pages of 3"
        assert reason is None, f"{name}: None expected, found {reason!r}"
    for prompt, max_tokens, needed in ((13, 1, 5), (4, 10, 5), (12, 2, 5), (2, 500, 7)):
        reason = page_refusal(new_request(lab, prompt_of(prompt), max_tokens), 20, 3, 4)
        name = f"{prompt} prompt tokens and up to {max_tokens} of output"
        assert isinstance(reason, str), f"{name} need {needed} pages, and there are 4: a reason is expected"
        for number in (needed, 4):
            words = [word.strip(";,.") for word in reason.split()]
            assert str(number) in words, (
                f"{name}: the reason should name {needed} and 4 pages; it is {reason!r}"
            )
    for length in (0, 20, 25):
        request = new_request(lab, prompt_of(length), 3)
        reason = page_refusal(request, 20, 3, 4)
        check_equal(reason, request.refusal(20), name=f"the reason for a prompt of {length}, 20 positions")


def test_task_5_pages_that_others_hold_are_no_reason_to_refuse(lab):
    batch = batch_of(lab, num_pages=5)
    batch.allocator.allocate(4)
    assert batch.refusal(new_request(lab, prompt_of(5), 4)) is None, (
        "the pool is large enough, only full just now: this request may run later"
    )


def test_task_5_what_may_not_be_pushed_is_refused_and_changes_nothing(lab):
    batch = batch_of(lab, RaggedModel(lab, max_positions=20), num_pages=4, max_running=2)
    inside = new_request(lab, [1], 2)
    batch.push(inside)
    for request, what in (
        (new_request(lab, [], 2), "an empty prompt"),
        (new_request(lab, prompt_of(20), 2), "a prompt of 20 with 20 positions"),
        (new_request(lab, prompt_of(9), 2), "10 tokens where 3 pages have room for 9"),
        (new_request(lab, [1], 2, output=[5, 6]), "a request that is finished"),
        (inside, "a request that is in the engine already"),
    ):
        check_raises(ValueError, partial(batch.push, request), name=f"pushing {what}")
        check_equal(
            (batch.requests, batch.idle), ([inside], 1), name=f"requests and idle after pushing {what}"
        )
    batch.push(new_request(lab, [1], 2))
    third = partial(batch.push, new_request(lab, [1], 2))
    check_raises(ValueError, third, name="pushing a third request into an engine for two")
    check_equal(
        (len(batch.requests), batch.idle), (2, 0), name="how many requests are in the engine, and idle"
    )


def admitted(batch: Any, requests: list[Any]) -> tuple[list[int], list[int]]:
    """Admit; which requests run then, and which wait."""
    batch.admit()
    running = [each.request for each in batch.running]
    return numbers_of(requests, running), numbers_of(requests, batch.waiting)


def pushed(lab: Any, batch: Any, sizes: Sequence[tuple[int, int]]) -> list[Any]:
    """Requests with these prompts and outputs, all pushed."""
    requests = [new_request(lab, prompt_of(length, seed=n), count) for n, (length, count) in enumerate(sizes)]
    for request in requests:
        batch.push(request)
    return requests


def test_task_5_a_request_that_begins_has_pages_for_the_longest_that_it_may_become(lab):
    batch = batch_of(lab, num_pages=30)
    requests = pushed(lab, batch, [(5, 3), (3, 1), (1, 13)])
    check_equal(admitted(batch, requests), ([0, 1, 2], []), name="which requests run, and which wait")
    for each in batch.running:
        needed = pages_needed(most_tokens_of(each.request, 64), 3)
        name = (
            f"pages of a request of {each.request.prompt_len} tokens and {each.request.max_tokens} of output"
        )
        prompt = pages_needed(each.request.prompt_len, 3)
        suspects = {
            "these are the pages of the prompt alone: two requests may strand each other later": prompt
        }
        check_equal(len(each.sequence.pages), needed, name=name, suspects=suspects)
        check_equal(each.sequence.length, 0, name="tokens that the pool holds of it")
    check_equal(len(in_use(batch.allocator)), 3 + 1 + 5, name="pages in use")


def test_task_5_a_request_that_has_to_wait_is_not_overtaken(lab):
    batch = batch_of(lab, num_pages=8, max_running=4)  # 7 pages of 3
    requests = pushed(lab, batch, [(6, 4), (9, 7), (1, 2), (2, 1)])
    name = "which requests run and which wait: 3 pages of 7 are taken, request 1 needs 5, the next two 1 each"
    suspects = {
        "requests that fit have overtaken one that has to wait": ([0, 2], [1, 3]),
        "all requests that fit have overtaken one that has to wait": ([0, 2, 3], [1]),
        "the request that has to wait has left the line": ([0], [2, 3]),
    }
    check_equal(admitted(batch, requests), ([0], [1, 2, 3]), name=name, suspects=suspects)
    before = books(batch.allocator)
    check_equal(admitted(batch, requests), ([0], [1, 2, 3]), name=f"{name}, asked again")
    check_equal(
        books(batch.allocator), before, name="what the allocator knows: a waiting request holds no page"
    )
    batch.running.pop().sequence.release()
    check_equal(admitted(batch, requests), ([1, 2, 3], []), name="which requests run once 0 has left")


def test_task_5_out_of_pages_when_no_request_runs_that_could_make_room(lab):
    batch = batch_of(lab, num_pages=8)
    others = batch.allocator.allocate(5)
    requests = pushed(lab, batch, [(6, 4), (1, 1)])
    error = lab.paged.allocator.OutOfPages
    check_raises(error, batch.admit, name="`admit`, when the first in line lacks pages and no request runs,")
    state = [each.request for each in batch.running], numbers_of(requests, batch.waiting)
    check_equal(state, ([], [0, 1]), name="which requests run, and which wait")
    held = dict.fromkeys(sorted(others), 1)
    check_equal(in_use(batch.allocator), held, name="the pages in use: those that others hold")
    batch.allocator.free(others)
    check_equal(
        admitted(batch, requests), ([0, 1], []), name="which requests run once others have freed pages"
    )


@errors
def test_task_5_a_request_that_cannot_begin_for_an_error_goes_on_waiting(lab, error):
    """Ctrl-C comes while pages are handed out: the request is not finished, and not aborted."""
    batch, calls = batch_of(lab, num_pages=30), list[int]()
    requests = pushed(lab, batch, [(5, 3), (3, 1), (1, 4)])

    def interrupted(count: int) -> list[int]:
        if len(calls) == 1:
            raise error("the allocator failed, as the test wanted it to")
        calls.append(count)
        return handed_out(count)

    handed_out, batch.allocator.allocate = batch.allocator.allocate, interrupted
    check_raises(error, batch.admit, name="`admit`, whose second request gets no pages because of an error,")
    name = "the requests in the engine, after the pages of request 1 could not be taken"
    lost = {"a request is lost: it leaves the line before it has its pages": [0, 2]}
    check_equal(numbers_of(requests, batch.requests), [0, 1, 2], name=name, suspects=lost)
    batch.allocator.allocate = handed_out
    check_equal(
        admitted(batch, requests), ([0, 1, 2], []), name="which requests run, and which wait, after all"
    )


def test_task_5_without_requests_nothing_is_admitted_and_nothing_planned(lab):
    batch = batch_of(lab)
    batch.admit()
    check_equal((batch.running, list(batch.plan())), ([], []), name="the requests that run, and the plan")


def plan_of(batch: Any) -> list[tuple[int, int]]:
    """The plan with the places in `running` for the requests; planning changes nothing."""
    running = list(batch.running)
    lengths, before = [each.sequence.length for each in running], books(batch.allocator)
    plan = batch.plan()
    check_equal(numbers_of(running, batch.running), list(range(len(running))), name="`running`, after `plan`")
    check_equal([each.sequence.length for each in running], lengths, name="the lengths, after `plan`")
    check_equal(books(batch.allocator), before, name="what the allocator knows, after `plan`")
    return [(numbers_of(running, [each])[0], count) for each, count in plan]


def test_task_5_decodes_come_first_and_then_one_chunk(lab):
    batch = batch_of(lab, max_running=9, chunk_size=4)
    running_of(lab, batch, prompt_of(9), 3)
    running_of(lab, batch, prompt_of(5), 3, held=5, output=[1])
    running_of(lab, batch, prompt_of(7), 3, held=2)
    running_of(lab, batch, prompt_of(1), 3)
    running_of(lab, batch, prompt_of(6), 3, held=5)
    running_of(lab, batch, prompt_of(2), 5, held=4, output=[7, 7, 8])
    running_of(lab, batch, prompt_of(3), 5, output=[4, 4, 2])
    name = "the plan: due are 9, 1 (a decode), 5, 1, 1, 1 (a decode) and 6; chunks of 4"
    suspects = {
        "the chunk stands before the decodes": [(0, 4), (1, 1), (5, 1)],
        "a chunk of every prompt: a step has one": [(1, 1), (5, 1), (0, 4), (2, 4), (3, 1), (4, 1), (6, 4)],
        "no chunk while any request decodes": [(1, 1), (5, 1)],
        "the chunk is longer than chunk_size": [(1, 1), (5, 1), (0, 9)],
        "the last prompt has the chunk; the first one has it": [(1, 1), (5, 1), (6, 4)],
    }
    check_equal(plan_of(batch), [(1, 1), (5, 1), (0, 4)], name=name, suspects=suspects)
    for chunk, what in (
        (4, "with 5 tokens due"),
        (1, "a prompt of 1 token, which is no decode yet"),
        (1, "the last token of a prompt, which is no decode yet"),
    ):
        batch.running.pop(0 if chunk == 4 else 1)
        check_equal(plan_of(batch)[-1], (1, chunk), name=f"the one of the others that brings a chunk: {what}")
    batch.running.pop(1)
    name = "the plan: two decodes, then a request that has 3 prompt tokens and 3 generated ones due"
    check_equal(plan_of(batch), [(0, 1), (1, 1), (2, 4)], name=name)
    batch.running[2].sequence.length = 4
    check_equal(plan_of(batch), [(0, 1), (1, 1), (2, 2)], name="the plan when 2 of these are due")
    batch.running[2].sequence.length = 5
    check_equal(plan_of(batch), [(0, 1), (1, 1), (2, 1)], name="the plan when only its newest token is due")


@pytest.mark.parametrize(("chunk_size", "count"), [(1, 1), (6, 6), (7, 7), (100, 7)])
def test_task_5_a_chunk_has_at_most_chunk_size_tokens(lab, chunk_size, count):
    batch = batch_of(lab, chunk_size=chunk_size)
    running_of(lab, batch, prompt_of(7), 3)
    check_equal(plan_of(batch), [(0, count)], name=f"the plan: 7 tokens are due, chunks of {chunk_size}")


# Task 6: an engine, and a driver for any engine


def sampling(lab: Any, held: Sequence[int], **options: Any) -> tuple[Any, Any, list[Any], Any]:
    """A model, its runner, requests with prompts of 4 tokens of which the pool holds so many, and their states."""
    model = RaggedModel(lab)
    runner, allocator = runner_of(lab, model)
    took_part, states = [], []
    for n, count in enumerate(held):
        sequence = lab.paged.sequence.PagedSequence(allocator, 3)
        sequence.reserve(4)
        sequence.advance(count)
        request = new_request(lab, prompt_of(4, seed=n), 3, **options)
        took_part.append(lab.paged.running.Running(request, sequence))
        states.append([fingerprints(request.token_ids[:count])[-1], count])
    return model, runner, took_part, lab.array(np.array(states, float))


def runner_output(state: np.ndarray) -> list[int]:
    """The output of a request that samples from this row."""
    return [int(np.argmax(scores_after(int(state[0]))))]


def test_task_6_requests_with_nothing_due_get_a_token_and_the_others_none(lab):
    model, runner, took_part, hidden = sampling(lab, (4, 2, 4, 3, 4))
    runner.sample(hidden, took_part)
    wanted = [alone(each.request.prompt_ids, n in (0, 2, 4)) for n, each in enumerate(took_part)]
    name = "the outputs after `sample`, where 0, 2, 0, 1 and 0 tokens are due"
    all_five = [runner_output(hidden_row) for hidden_row in lab.numpy(hidden)]
    suspects = {
        "a token is sampled in the middle of a prompt, too: only where nothing is due any more": all_five,
        "tokens went to the first requests of the step: each row has a request of its own": [
            *[all_five[n] for n in (0, 2, 4)],
            [],
            [],
        ],
        "the first rows went through the head, not those of the requests that sample": [
            all_five[0],
            [],
            all_five[1],
            [],
            all_five[2],
        ],
    }
    check_equal([each.request.output for each in took_part], wanted, name=name, suspects=suspects)
    check_equal(model.head_rows, [3], name="rows of each call of `model.logits`: one call, only these rows")
    check_equal([each.due for each in took_part], [1, 2, 1, 1, 1], name="what is due then")


def test_task_6_the_head_does_not_run_where_no_request_samples(lab):
    model, runner, took_part, hidden = sampling(lab, (1, 3, 2))
    runner.sample(hidden, took_part)
    check_equal(model.head_rows, [], name="calls of `model.logits`, where all are in the middle of a prompt")
    check_equal([each.request.output for each in took_part], [[], [], []], name="the outputs")


def test_task_6_a_sampler_gets_the_logits_of_its_own_request(lab):
    given: list[tuple[np.ndarray, list[int]]] = []

    def sample(logits: Any, ids: list[int]) -> int:
        given.append((lab.numpy(logits), list(ids)))
        return 11 + len(given)

    _, runner, took_part, hidden = sampling(lab, (3, 4, 4), sample=sample)
    runner.sample(hidden, took_part)
    check_equal([each.request.output for each in took_part], [[], [12], [13]], name="the outputs")
    for each, (logits, ids) in zip(took_part[1:], given, strict=True):
        check_equal(ids, each.request.prompt_ids, name="the ids that the sampler was given")
        scores = scores_after(fingerprints(ids)[-1])
        check(logits, scores, name="the logits that it was given", axes="V", framework="numpy")


def test_task_6_steps_one_by_one(lab):
    batch = batch_of(lab, max_running=9, chunk_size=4)
    requests = pushed(lab, batch, [(5, 3), (2, 3), (1, 3)])
    wanted = wanted_of(requests)
    steps = [
        ([(0, 4)], [0, 0, 0], []),
        ([(0, 1)], [1, 0, 0], []),
        ([(0, 1), (1, 2)], [2, 1, 0], []),
        ([(0, 1), (1, 1), (2, 1)], [3, 2, 1], [0]),
        ([(1, 1), (2, 1)], [3, 3, 2], [1]),
        ([(2, 1)], [3, 3, 3], [2]),
    ]
    for number, (plan, produced, complete) in enumerate(steps):
        step = batch.step()
        actual = [(numbers_of(requests, [request])[0], count) for request, count in step.issued]
        check_equal(
            actual, plan, name=f"`issued` of step {number}: the requests, and how many tokens each brought"
        )
        name = f"the outputs after step {number}; a chunk that isn't a prompt's last brings no token"
        expected = [output[:count] for output, count in zip(wanted, produced, strict=True)]
        check_equal([each.output for each in requests], expected, name=name)
        check_equal(numbers_of(requests, step.finished), complete, name=f"`finished` of step {number}")
        inside = [n for n in range(3) if produced[n] < 3]
        check_equal(
            numbers_of(requests, batch.requests), inside, name=f"the requests left after step {number}"
        )
    check_empty(batch, when="after the last token of all")


def test_task_6_a_step_without_requests_runs_nothing(lab):
    model = RaggedModel(lab)
    batch = batch_of(lab, model)
    step = batch.step()
    check_equal((step.issued, step.finished), ([], []), name="what a step without requests has done")
    check_equal(model.runs, [], name="runs of the model")
    pushed(lab, batch, [(2, 1)])
    batch.step()
    step = batch.step()
    check_equal((step.issued, step.finished), ([], []), name="what a step after the last one has done")
    check_equal(len(model.runs), 1, name="runs of the model")


def test_task_6_a_finished_request_makes_room_for_the_next_step(lab):
    """Four pages of 3 are two requests at a time."""
    batch = batch_of(lab, num_pages=5, max_running=4)
    requests = pushed(lab, batch, [(4, 3)] * 4)
    watch = Watch(batch, requests)
    while batch.requests:
        watch(batch.step())
    check_equal([each.output for each in requests], wanted_of(requests), name="the outputs")
    together = [sorted(number for number, _ in plan) for plan in watch.plans]
    name = "the requests that took part, step by step: two have pages at a time"
    check_equal(together, [[0], [0, 1], [0, 1], [1, 2], [2, 3], [2, 3], [3]], name=name)


@errors
def test_task_6_after_a_model_that_fails_the_same_tokens_are_due(lab, error):
    model = RaggedModel(lab)
    batch = batch_of(lab, model)
    requests = pushed(lab, batch, [(5, 4), (2, 3), (7, 2)])
    for _ in range(3):
        batch.step()
    before = [each.output for each in requests]
    model.fails_at, model.fails_with = len(model.runs), error
    check_raises(error, batch.step, name="a step whose model fails")
    check_equal([each.output for each in requests], before, name="the outputs after the step that failed")
    for _ in range(30):
        batch.step()
    check_equal([each.output for each in requests], wanted_of(requests), name="the outputs at the end")
    check_empty(batch, when="at the end")


def test_task_6_a_request_goes_on_behind_the_tokens_that_it_has_generated(lab):
    batch = batch_of(lab)
    whole = new_request(lab, prompt_of(5), 6)
    output = wanted_of([whole])[0]
    requests = [new_request(lab, whole.prompt_ids, 6, output=output[:count]) for count in (3, 1, 5)]
    outputs = run_all(lab, batch, requests)
    check_equal(outputs, [output] * 3, name="the outputs of requests that were pushed with 3, 1 and 5 tokens")


def in_the_middle(lab: Any) -> tuple[Any, list[Any]]:
    """Six pages of 3: requests 0 and 1 run, 2 and 3 wait for pages."""
    batch = batch_of(lab, num_pages=7, max_running=5)
    requests = pushed(lab, batch, [(4, 5), (2, 7), (4, 4), (3, 5)])
    for _ in range(2):
        batch.step()
    check_equal(numbers_of(requests, batch.waiting), [2, 3], name="the requests that wait")
    return batch, requests


@pytest.mark.parametrize(
    "leaving", [(), (0,), (1,), (2,), (3,), (1, 2), (3, 0), (2, 3), (0, 1), (0, 1, 2, 3)], ids=str
)
@pytest.mark.parametrize("kind", [list, set])
def test_task_6_aborted_requests_leave_and_the_others_go_on(lab, leaving, kind):
    batch, requests = in_the_middle(lab)
    outputs = [each.output for each in requests]
    batch.abort(kind(requests[n] for n in leaving))
    staying = [n for n in range(4) if n not in leaving]
    check_equal(
        numbers_of(requests, batch.requests), staying, name=f"the requests left when {leaving} are aborted"
    )
    running = [n for n in (0, 1) if n in staying]
    check_equal(len(in_use(batch.allocator)), 3 * len(running), name="pages in use: 3 for each that runs")
    check_equal([each.output for each in requests], outputs, name="the outputs: `abort` changes none")
    while batch.requests:
        batch.step()
    wanted = [alone if n in staying else outputs[n] for n, alone in enumerate(wanted_of(requests))]
    check_equal([each.output for each in requests], wanted, name="the outputs at the end")
    check_empty(batch, when="at the end")


def test_task_6_requests_that_are_not_in_the_engine_are_passed_over_by_abort(lab):
    """The twin of a request has the same tokens, and is another request."""
    batch, requests = in_the_middle(lab)
    twin = new_request(lab, requests[0].prompt_ids, 5, output=requests[0].output)
    before = books(batch.allocator)
    batch.abort([twin, new_request(lab, [3], 1)])
    check_equal(numbers_of(requests, batch.requests), [0, 1, 2, 3], name="the requests that are left")
    check_equal(books(batch.allocator), before, name="what the allocator knows")
    batch.abort([requests[1]])
    batch.abort([requests[1]])
    check_equal(
        numbers_of(requests, batch.requests), [0, 2, 3], name="the requests left when 1 is aborted twice"
    )
    check_equal(len(in_use(batch.allocator)), 3, name="pages in use: those of request 0")
    batch.abort(batch.requests)
    check_empty(batch, when="after all were aborted")


@sizes_of_pages
@pytest.mark.parametrize(("max_running", "chunk_size"), [(1, 4), (3, 1), (3, 4), (12, 128)])
def test_task_6_every_request_gets_what_it_gets_alone(lab, max_running, chunk_size, P):
    batch = batch_of(lab, num_pages=90, P=P, max_running=max_running, chunk_size=chunk_size)
    requests = many(lab)
    outputs = run_all(lab, batch, requests)
    for number, (output, wanted) in enumerate(zip(outputs, wanted_of(requests), strict=True)):
        name = f"the output of request {number} of 9, {max_running} at a time, chunks of {chunk_size}"
        check_equal(output, wanted, name=name)
    check_equal([each.output for each in requests], outputs, name="the outputs that the requests hold")


def test_task_6_a_step_is_one_run_of_the_model_and_at_most_one_of_the_head(lab):
    model, requests = RaggedModel(lab), many(lab)
    batch, calls = batch_of(lab, model), list[int]()
    watch = Watch(batch, requests)

    def observe(step: Any) -> None:
        watch(step)
        calls.append(len(model.head_rows))

    lab.engine_core.generate_all(batch, requests, observe)
    check_equal(
        len(watch.plans), len(model.runs), name="how often `observe` was called, for the runs of the model"
    )
    most = max(now - before for before, now in zip([0, *calls], calls, strict=False))
    check_equal(most, 1, name="calls of `model.logits` in one step, at most")
    produced = sum(each.num_generated for each in requests)
    check_equal(sum(model.head_rows), produced, name="rows sent through the head, for so many tokens")
    shared = [run for run in model.runs if len(run) > 1 and max(count for count, _ in run) > 1]
    assert shared, "no run held a chunk and a decode together"
    tokens = sum(count for run in model.runs for count, _ in run)
    expected = sum(len(each.token_ids) - 1 for each in requests if each.num_generated)
    check_equal(tokens, expected, name="tokens computed in all: each once, and no last one")


def test_task_6_end_tokens_and_positions_end_a_request(lab):
    model = RaggedModel(lab, max_positions=16)
    requests = [new_request(lab, prompt_of(n, seed=n), 100) for n in (15, 9, 3, 5)]
    requests[2].end_ids = alone(requests[2].prompt_ids, 4)[3:]
    requests[3].end_ids = alone(requests[3].prompt_ids, 1)
    outputs = run_all(lab, batch_of(lab, model), requests)
    check_equal(outputs, wanted_of(requests, 16), name="the outputs, with 16 positions and two end tokens")
    lengths = [len(output) for output in outputs[:2]]
    check_equal(lengths, [1, 7], name="tokens produced up to the last position")


def drawn(lab: Any, draw: Any, scores: np.ndarray, ids: list[int]) -> int:
    return draw(lab.array(scores), ids)


def test_task_6_samplers_belong_to_one_request(lab):
    def sampler(seed: int) -> Any:
        return lab.sampler.Sampler(lab.sampler.SamplingParams(temperature=3.0, seed=seed))

    prompts = [prompt_of(n) for n in (5, 9, 2)]
    requests = [
        new_request(lab, prompt, 7, **({"sample": sampler(seed)} if seed else {}))
        for prompt, seed in zip(prompts, (0, 3, 4), strict=True)
    ]
    expected = [alone(prompts[0], 7)]
    for prompt, seed in zip(prompts[1:], (3, 4), strict=True):
        draw = sampler(seed)
        expected.append(alone(prompt, 7, choose=partial(drawn, lab, draw)))
    check_equal(run_all(lab, batch_of(lab), requests), expected, name="the outputs")


def test_task_6_a_request_is_pushed_as_soon_as_the_engine_has_room(lab):
    core = core_of(lab, num_seats=2)
    requests = [new_request(lab, [n], count) for n, count in ((1, 3), (2, 1), (3, 1), (4, 0), (5, 2), (6, 1))]
    outputs = lab.engine_core.generate_all(core, requests)
    check_equal(outputs, [[1] * 3, [2], [3], [], [5] * 2, [6]], name="the outputs")
    expected = "push 1, push 2, step, push 3, step, push 5, step, push 6, step"
    check_equal(", ".join(core.calls), expected, name="how an engine with room for two was driven")


def test_task_6_the_driver_knows_nothing_of_an_engine_but_its_interface(lab):
    core, seen = core_of(lab, num_seats=1), list[Any]()
    requests = [new_request(lab, [n], 2) for n in (1, 13, 2)]
    requests[0].error = "an old error"
    outputs = lab.engine_core.generate_all(core, requests, observe=seen.append)
    reasons = [each.error for each in requests]
    name = "the errors afterwards: the engine's reason, or None in the place of an old one"
    check_equal(reasons, [None, "the test refuses it", None], name=name)
    name = "the outputs, where the engine refuses the second request"
    check_equal(outputs, [[1, 1], [], [2, 2]], name=name)
    steps = [(numbers_of(requests, [request for request, _ in step.issued])) for step in seen]
    check_equal(steps, [[0], [0], [2], [2]], name="the steps that `observe` was shown")


def test_task_6_nothing_to_do(lab):
    model = RaggedModel(lab)
    batch = batch_of(lab, model)
    check_equal(run_all(lab, batch, []), [], name="the outputs of no requests")
    check_equal(run_all(lab, batch, [new_request(lab, [1], 0)]), [[]], name="the output for max_tokens 0")
    complete = new_request(lab, [1], 2, output=[5, 6])
    check_equal(
        run_all(lab, batch, [complete]), [[5, 6]], name="the output of a request that is finished already"
    )
    check_equal(model.runs, [], name="runs of the model, with no token to produce")


@pytest.mark.parametrize("place", [0, 2, 4], ids=["first", "in the middle", "last"])
@pytest.mark.parametrize("length", [0, 11, 12, 40])
def test_task_6_a_request_that_can_never_run_is_refused_and_the_others_go_on(lab, length, place):
    model = RaggedModel(lab, max_positions=12)
    batch = batch_of(lab, model, num_pages=4)  # 3 pages of 3
    requests = [new_request(lab, prompt_of(n), 3) for n in (5, 7, 1, 3)]
    requests.insert(place, new_request(lab, prompt_of(length), 3))
    errors: list[Any] = []
    watch = Watch(batch, requests)

    def observe(step: Any) -> None:
        errors.append(requests[place].error)
        watch(step)

    outputs = lab.engine_core.generate_all(batch, requests, observe)
    expected = wanted_of(requests, 12)
    expected[place] = []
    check_equal(outputs, expected, name="the outputs, [] for the request that was refused")
    assert isinstance(errors[0], str), (
        f"a prompt of {length} with 12 positions and 3 pages of 3: its error should be set before anything runs"
    )
    others = [each.error for n, each in enumerate(requests) if n != place]
    check_equal(others, [None] * 4, name="the errors of the others")
    check_empty(batch, when="at the end")


def test_task_6_out_of_pages_when_others_hold_them(lab):
    batch = batch_of(lab, num_pages=8)
    others = batch.allocator.allocate(5)
    requests = [new_request(lab, prompt_of(n), 3) for n in (2, 6)]
    error = lab.paged.allocator.OutOfPages
    call = partial(lab.engine_core.generate_all, batch, requests)
    check_raises(error, call, name="a request of 3 pages where the others leave 2")
    check_equal(requests[0].output, alone(requests[0].prompt_ids, 3), name="the output of the one that fits")
    held = dict.fromkeys(sorted(others), 1)
    check_equal(in_use(batch.allocator), held, name="the pages in use afterwards: the others'")
    check_equal(batch.requests, [], name="the requests in the engine afterwards")


@errors
@pytest.mark.parametrize("call", [0, 5])
@pytest.mark.parametrize("what", ["model", "sampler", "observer"])
def test_task_6_the_engine_is_empty_after_an_error(lab, what, call, error):
    model, samples = RaggedModel(lab), list[int]()
    batch, requests = batch_of(lab, model), many(lab)
    watch = Watch(batch, requests)

    def sample(logits: Any, ids: Any) -> int:
        samples.append(len(ids))
        if what == "sampler" and len(samples) == call + 1:
            raise error("the sampler failed, as the test wanted it to")
        return int(np.argmax(lab.numpy(logits)))

    def observe(step: Any) -> None:
        watch(step)
        if what == "observer" and len(watch.plans) == call + 1:
            raise error("the observer failed, as the test wanted it to")

    for request in requests:
        request.sample = sample
    model.fails_at, model.fails_with = call if what == "model" else None, error
    run = partial(lab.engine_core.generate_all, batch, requests, observe)
    check_raises(error, run, name=f"a batch whose {what} fails at call {call}")
    when = f"after the {what} failed at call {call}"
    if error is KeyboardInterrupt:
        when += " with a KeyboardInterrupt, which is no Exception (`finally` runs for it, too)"
    check_empty(batch, when=when)


def test_task_6_a_request_that_finished_in_the_step_that_failed_leaves_too(lab):
    """Its last token is there when the sampler of the next request fails: it is finished, and still has its pages."""
    batch = batch_of(lab)

    def sample(logits: Any, ids: Any) -> int:
        raise KeyError("the sampler failed, as the test wanted it to")

    first, second = new_request(lab, [1], 2), new_request(lab, [2], 2, sample=sample)
    run = partial(lab.engine_core.generate_all, batch, [first, second])
    check_raises(
        KeyError, run, name="a batch whose second sampler fails in the step that finishes the first request"
    )
    check_equal(first.num_generated, 2, name="how many tokens the first request has: all of its 2")
    check_empty(batch, when="after the sampler failed")


@errors
def test_task_6_the_engine_is_empty_after_an_error_of_push(lab, error):
    """The second of the requests that are pushed before the first step."""

    def fails(token: int) -> None:
        if token == 2:
            raise error("`push` failed, as the test wanted it to")

    core = core_of(lab, num_seats=3, fails=fails)
    run = partial(lab.engine_core.generate_all, core, [new_request(lab, [n], 2) for n in (1, 2, 3)])
    check_raises(error, run, name="a batch in which the engine's `push` fails")
    left = [each.token_ids[0] for each in core.requests]
    check_equal(
        left, [], name="the first tokens of the requests that are still in the engine after `push` failed"
    )


def test_task_6_a_request_that_is_finished_already_loses_an_old_error(lab):
    core, done = core_of(lab, num_seats=1), new_request(lab, [3], 2, output=[5, 6])
    done.error = "an old error"
    lab.engine_core.generate_all(core, [done])
    check_equal(done.error, None, name="the error of a request that was finished before: set anew, like all")


STOPS = st.lists(st.integers(0, V - 1), max_size=6)
REQUESTS = st.lists(st.tuples(st.integers(0, 14), st.integers(0, 9), STOPS), max_size=8)


@QUICK
@given(
    wanted=REQUESTS,
    P=st.sampled_from([1, 2, 3, 16]),
    spare=st.integers(0, 12),
    max_running=st.integers(1, 4),
    chunk_size=st.integers(1, 6),
)
def test_task_6_whatever_comes_and_goes_each_request_is_as_if_alone(
    wanted, P, spare, max_running, chunk_size
):
    lab, limit = door.active(), 13
    num_pages = 2 + spare
    model = RaggedModel(lab, max_positions=limit)
    batch = batch_of(lab, model, num_pages=num_pages, P=P, max_running=max_running, chunk_size=chunk_size)
    requests = [
        new_request(lab, prompt_of(length, seed=n), count, ends)
        for n, (length, count, ends) in enumerate(wanted)
    ]
    outputs = run_all(lab, batch, requests)
    for request, output in zip(requests, outputs, strict=True):
        length, most = request.prompt_len, request.max_tokens
        fits = 0 < length < limit and pages_needed(most_tokens_of(request, limit), P) < num_pages
        name = (
            f"a prompt of {length}, {most} tokens of output, {num_pages - 1} pages of {P}, {limit} positions"
        )
        check_equal(request.error is None, fits, name=f"whether {name} are accepted")
        expected = alone(request.prompt_ids, most, request.end_ids, limit) if fits else []
        check_equal(output, expected, name=f"the output of {name}")
    computed = sum(count for run in model.runs for count, _ in run)
    due = sum(len(each.token_ids) - 1 for each in requests if each.num_generated)
    check_equal(computed, due, name="tokens computed in all, each once")


@sizes_of_pages
@pytest.mark.parametrize("family", sorted(numpy_model.FAMILIES))
def test_task_6_the_model_of_week_1_says_the_same_as_with_its_own_caches(lab, family, P):
    model = real_model(lab, family)
    pool = lab.paged.pool.KvPool(model.config, 40, P, device=lab.device)
    spoil(pool)
    runner = lab.paged.model_runner.ModelRunner(model, pool)
    batch = lab.paged.batch.PagedBatch(runner, allocator_of(lab, 40), max_running=2, chunk_size=4)
    lengths = ((5, 9), (13, 7), (1, 4), (4, 1), (7, 5))
    requests = [new_request(lab, prompt_of(n, seed=n), count) for n, count in lengths]
    expected = [list(lab.generate.generate(model, r.prompt_ids, r.max_tokens)) for r in requests]
    outputs = run_all(lab, batch, requests)
    name = "the outputs of five requests, two at a time, against Day 2.1's `generate`"
    check_equal(outputs, expected, name=name)
