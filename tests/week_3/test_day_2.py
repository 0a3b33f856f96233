"""Day 3.2: the metadata of a step, attention over pages, and continuous batching on them."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from week_1 import numpy_model
from week_1.numpy_model import HKV, D, H
from week_2.continuous import new_request, prompt_of
from week_2.reading_model import V, alone, fingerprints, scores_after

from coursekit import lab as door
from coursekit.check import check, check_equal, check_raises

from .batch_model import RaggedModel, check_call, storage_for
from .inserting import heads_of, new_rows
from .paged_batches import (
    Watch,
    batch_of,
    check_empty,
    longest_of,
    many,
    run_all,
    running_of,
    wanted_of,
)
from .pages import (
    LAYERS,
    UNUSED,
    allocator_of,
    pages_needed,
    books,
    check_all_free,
    in_use,
    normal,
    pool_of,
    spoil,
)
from .ragged import PAGE_SIZES, CASES, RaggedStep, check_merged, check_step, pair_of, random_steps
from .ragged_step import NOTHING, WRONG_RULES, attend_alone, bottom_right, everything
from .random_model import real_model
from .step_oracle import TENSORS, Counted, check_on_meta, placed, without_numbers

QUICK = settings(max_examples=60, deadline=None, derandomize=True, database=None, report_multiple_bugs=False)
sizes_of_blocks = pytest.mark.parametrize("P", PAGE_SIZES, ids=lambda P: f"pages of {P}")
causal_or_not = pytest.mark.parametrize("causal", [True, False], ids=["causal", "not causal"])


# Task 1: the metadata of a step


def test_task_1_three_sequences_as_in_the_chapter(lab):
    step = Counted(4, [([1, 2, 4], 8, 1), ([3, 5], 3, 2), ([6], 0, 3)])
    check_equal(step.fields["cu_seqlens_q"], [0, 1, 3, 6], name="the oracle's cu_seqlens_q")
    check_equal(step.fields["slot_mapping"], [16, 15, 20, 24, 25, 26], name="the oracle's slots")
    step.check(lab)


@sizes_of_blocks
def test_task_1_one_sequence_alone(lab, P):
    blocks = [7, 2, 9, 4, 12, 30, 1, 8, 5]
    for past, new in ((0, 1), (0, P), (P, 1), (P - 1, 2), (2 * P - 1, 1), (P + 1, 2 * P)):
        Counted(P, [(blocks[: pages_needed(past + new, P)], past, new)]).check(lab)


def test_task_1_blocks_reserved_for_later_are_not_in_the_table(lab):
    """A table as wide as the longest answer that may come is read in every layer of every step."""
    Counted(3, [([5, 1, 8, 9, 2], 4, 1), ([3, 7, 4, 6], 0, 2)]).check(lab)
    Counted(3, [([5, 1, 8, 9, 2], 5, 1), ([3, 7, 4, 6], 5, 2)]).check(lab)


def test_task_1_sequences_may_share_blocks(lab):
    Counted(3, [([5, 1, 8], 6, 2), ([5, 1, 4], 7, 1), ([5, 2], 3, 3)]).check(lab)


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize(("new", "what"), [(0, "no token"), (-1, "−1 tokens"), (3, "one more than fit")])
def test_task_1_tokens_that_have_no_place_are_refused(lab, place, new, what):
    sequences = [placed(lab, 3, blocks, past) for blocks, past in (([1, 2], 4), ([3, 4], 4), ([5, 6], 4))]
    q_lens = [1, 2, 1]
    q_lens[place] = new
    build = lab.paged.metadata.ForwardMeta.build
    name = f"a step in which sequence {place} brings {what} (2 blocks of 3, 4 tokens in them)"
    check_raises(ValueError, lambda: build(sequences, q_lens, lab.device), name=name)


@QUICK
@given(
    P=st.sampled_from([1, 2, 3, 16]),
    lengths=st.lists(
        st.tuples(st.integers(0, 40), st.integers(1, 20), st.integers(0, 2)), min_size=1, max_size=5
    ),
    seed=st.integers(0, 99),
)
def test_task_1_any_sequences_in_any_blocks(P, lengths, seed):
    blocks = iter(np.random.default_rng(seed).permutation(np.arange(1, 400)).tolist())
    steps = [
        ([next(blocks) for _ in range(pages_needed(past + new, P) + later)], past, new)
        for past, new, later in lengths
    ]
    Counted(P, steps).check(door.active())


def test_task_1_the_tensors_go_where_they_were_asked_to(lab):
    """On torch's device "meta" tensors have shapes, and no numbers."""
    sequences = [placed(lab, 3, blocks, past) for blocks, past in (([1, 2], 4), ([3, 4], 1))]
    build = lab.paged.metadata.ForwardMeta.build
    meta = without_numbers(
        lambda: build(sequences, [1, 3], "meta"),
        "`build` asks a tensor on `device` for its numbers: count in plain lists, the tensors come last",
    )
    where = 'build(…, device="meta") should put all six tensors there'
    check_on_meta({name: getattr(meta, name) for name in TENSORS}, where)
    check_equal((meta.starts, meta.kv_lens), ([0, 1, 4], [5, 4]), name="the lists, which are on no device")


# Task 2: attention, sequence by sequence


def attend_to(lab: Any, query: np.ndarray, key: np.ndarray, value: np.ndarray, *rest: Any) -> tuple[Any, Any]:
    arrays = [lab.array(x) for x in (query, key, value)]
    return pair_of(lab.paged.attention.attend_to(*arrays, *rest), "attend_to")


def check_attend_to(lab: Any, L: int, S: int, causal: bool, scale: float = 0.4, seed: int = 60) -> None:
    __tracebackhide__ = True
    query, key, value = normal(seed, L, H, D), normal(seed + 1, S, HKV, D), normal(seed + 2, S, HKV, D)
    actual = attend_to(lab, query, key, value, scale, causal)
    oracle = partial(attend_alone, query, key, value)
    wanted = oracle(scale, bottom_right if causal else everything)
    rules = WRONG_RULES if causal else {"causal, though it was asked not to be": bottom_right}
    wrong = {why: oracle(scale, seen) for why, seen in rules.items()}
    wrong["the scores are not scaled"] = oracle(1.0, bottom_right if causal else everything)
    names = ("the attention output", "the log-sum-exp")
    for n, axes in enumerate(("L H D", "L H")):
        check(
            actual[n],
            wanted[n],
            name=f"{names[n]} of {L} queries over {S} keys",
            axes=axes,
            suspects={why: other[n] for why, other in wrong.items()},
        )


@causal_or_not
@pytest.mark.parametrize(("L", "S"), [(1, 1), (1, 7), (2, 7), (5, 7), (6, 7), (7, 7)])
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
@sizes_of_blocks
@pytest.mark.parametrize("case", CASES)
def test_task_2_each_sequence_attends_to_its_own_pages(lab, case, P, causal):
    step = RaggedStep.random(7, CASES[case](P), P)
    check_step(lab, lab.paged.attention.paged_attention, step, causal=causal)


@sizes_of_blocks
@pytest.mark.parametrize("shared", [1, 2])
def test_task_2_sequences_may_share_the_blocks_of_their_pasts(lab, P, shared):
    lengths = [(2 * P + 4, 3), (2 * P + 1, 1), (P + 2, 2), (3 * P, 1), (2, 2)]
    step = RaggedStep.random(17, lengths, P, shared=shared)
    check_equal(step.tables[0][:1], step.tables[1][:1], name="the block that two sequences share")
    check_step(lab, lab.paged.attention.paged_attention, step)


@causal_or_not
@sizes_of_blocks
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
def test_task_2_any_step_over_any_blocks(step, causal):
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
        hidden = {name: getattr(meta, name).to("meta") for name in ("cu_seqlens_q", "seq_lens_kv")}
        arguments = query, keys, values, replace(meta, **hidden), scale, causal
        return without_numbers(
            lambda: lab.paged.attention.paged_attention(*arguments),
            "`paged_attention` asks `cu_seqlens_q` or `seq_lens_kv` for numbers; on the host these are in the "
            "lists `starts` and `kv_lens`",
        )

    check_step(lab, attention, step, causal=causal)


# Task 3: merging parts


def merged(lab: Any, parts: list[tuple[np.ndarray, np.ndarray]], dtype: str = "float32") -> tuple[Any, Any]:
    given = [(lab.array(out, dtype), lab.array(lse)) for out, lse in parts]
    return pair_of(lab.paged.attention.merge_attention(given), "merge_attention")


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
    wrong_sums = {
        "the parts' log-sum-exps are added up": sums.sum(axis=0),
        "the greatest log-sum-exp, not that of them all": sums.max(axis=0),
    }
    if len(parts) > 2:
        wrong_sums[only] = sum_of_two
    name = f"the log-sum-exp of {name}"
    check(lse, wanted[1], name=name, axes="T H", suspects=wrong_sums, nan=nothing)


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


@sizes_of_blocks
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("blocks", [1, 2])
def test_task_3_two_halves_of_a_sequence_give_the_whole(lab, case, P, blocks):
    """The past without the causal rule, the rest with it, as Week 4 does it with documents."""
    check_merged(lab, lab.paged.attention.paged_attention, RaggedStep.random(57, CASES[case](P), P), blocks)


@QUICK
@given(step=random_steps(), blocks=st.integers(0, 4))
def test_task_3_any_step_may_be_cut_between_blocks(step, blocks):
    lab = door.active()
    check_merged(lab, lab.paged.attention.paged_attention, step, blocks)


# Task 4: one run for all


def cache_of(lab: Any, step: RaggedStep, pool: Any, layer: int, **options: Any) -> Any:
    return lab.paged.attention.PagedCache(pool, layer, step.meta(lab), **options)


@sizes_of_blocks
def test_task_4_new_tokens_are_written_to_their_slots_before_anyone_attends(lab, P):
    step = RaggedStep.random(77, CASES["a decode, a first chunk, a later chunk, a whole prompt"](P), P)
    slots, keys, values = new_rows(step)
    pool, seen = pool_of(lab, step.keys.shape[0], P), []
    answer = normal(78, len(slots), H, D)

    def attention(
        query: Any = None,
        keys: Any = None,
        values: Any = None,
        meta: Any = None,
        scale: Any = None,
        causal: Any = None,
    ) -> Any:
        check_call(query=query, keys=keys, values=values, meta=meta, scale=scale, causal=causal)
        seen.append(([lab.numpy(x) for x in (query, keys, values)], meta, scale, causal))
        return lab.array(answer), lab.array(answer[:, :, 0])

    cache = cache_of(lab, step, pool, 1, attention=attention)
    out = cache.attend(*(heads_of(lab, x) for x in (step.query, keys, values)), 0.3)
    assert seen, (
        "`attend` never called the cache's own `attention`. The test has given the cache another one than "
        "`paged_attention`, as Day 3.3 will: call `self.attention`"
    )
    check_equal(len(seen), 1, name="how often `attention` was called")
    check(out, answer.swapaxes(0, 1)[None], name="what `attend` returns", axes="1 H T D")
    arrays, meta, scale, causal = seen[0]
    check(arrays[0], step.query, name="the queries given to `attention`", axes="T H D", framework="numpy")
    assert meta is cache.meta, "attention was given other metadata than the cache has"
    check_equal((scale, causal), (0.3, True), name="scale and causal, as `attention` got them")
    wanted = []
    for new in (keys, values):
        pages = np.full((LAYERS, *step.keys.shape), np.nan)
        pages[1].reshape(-1, HKV, D)[slots] = new
        wanted.append(pages)
    for n, name in enumerate(("keys", "values")):
        mixed = {"keys and values are mixed up": wanted[1 - n]}
        check(
            arrays[1 + n],
            wanted[n][1],
            name=f"the {name} given to `attention`, NaN where this step writes nothing",
            axes="N P Hkv D",
            framework="numpy",
            suspects={why: other[1] for why, other in mixed.items()},
            rtol=0,
            atol=0,
            nan="new tokens are not in their slots when `attention` is called: write first, at `slot_mapping`",
        )
        what = f"pool.{name} afterwards, NaN where this step writes nothing"
        axes = "layers N P Hkv D"
        check(getattr(pool, name), wanted[n], name=what, axes=axes, suspects=mixed, rtol=0, atol=0)


@sizes_of_blocks
@pytest.mark.parametrize("case", CASES)
def test_task_4_what_attend_gives_is_attention_over_past_and_new(lab, case, P):
    step = RaggedStep.random(87, CASES[case](P), P)
    slots, keys, values = new_rows(step)
    pool = pool_of(lab, step.keys.shape[0], P)
    for part, pages in ((pool.keys, step.keys), (pool.values, step.values)):
        before = pages.copy()
        before.reshape(-1, HKV, D)[slots] = np.nan  # the new tokens come with the call
        part[2] = lab.array(before)
    cache = cache_of(lab, step, pool, 2)
    actual = cache.attend(*(heads_of(lab, x) for x in (step.query, keys, values)), step.scale)
    expected = step.expected()[0].swapaxes(0, 1)[None]
    check(actual, expected, name="what `attend` gives", axes="1 H T D", nan=UNUSED)


def sequences_of(lab: Any, allocator: Any, P: int, lengths: list[int]) -> list[Any]:
    """Sequences with room for so many tokens."""
    sequences = [lab.paged.sequence.PagedSequence(allocator, P) for _ in lengths]
    for sequence, length in zip(sequences, lengths, strict=True):
        sequence.reserve(length)
    return sequences


STEPS = [
    {0: 5, 1: 3},
    {1: 1, 2: 4},
    {0: 1, 1: 1, 2: 3},
    {2: 1},
    {2: 1, 1: 2, 0: 1},
]  # sequence -> tokens that it brings, step by step, in the order in which it is passed


@sizes_of_blocks
def test_task_4_decodes_chunks_and_prompts_share_a_run(lab, P):
    model = RaggedModel(lab)
    pool, allocator = storage_for(lab, model, 40, P)
    sequences = sequences_of(lab, allocator, P, [9, 9, 9])
    ids, lengths = [prompt_of(9, seed=n) for n in range(3)], [0, 0, 0]
    watched: list[list[int]] = []

    def attention(*arguments: Any, **named: Any) -> Any:
        watched.append([sequence.length for sequence in sequences])
        return model.read(*arguments, **named)

    for number, step in enumerate(STEPS):
        tokens = [ids[n][lengths[n] : lengths[n] + count] for n, count in step.items()]
        watched.clear()
        who = [sequences[n] for n in step]
        rows = lab.paged.batch.run_step(model, pool, who, tokens, attention)
        check_equal(
            watched,
            [lengths] * model.config.num_layers,
            name=f"the sequences' lengths while each layer of step {number} runs; they advance after all of it",
        )
        lengths = [length + step.get(n, 0) for n, length in enumerate(lengths)]
        expected = [[fingerprints(ids[n][: lengths[n]])[-1], lengths[n]] for n in step]
        check(rows, np.array(expected, float), name=f"the last rows of step {number}", axes="B E", rtol=0)
        check_equal([s.length for s in sequences], lengths, name=f"the lengths after step {number}")
    check_equal(len(model.runs), len(STEPS), name="how often the model ran, for so many steps")


def test_task_4_a_run_that_fails_counts_no_token(lab):
    model = RaggedModel(lab)
    pool, allocator = storage_for(lab, model, 40, 3)
    sequences = sequences_of(lab, allocator, 3, [9, 9])
    run_step = partial(lab.paged.batch.run_step, model, pool, sequences, attention=model.read)
    run_step(tokens=[[3, 1, 4], [5]])
    model.fails_at = 1
    check_raises(KeyError, lambda: run_step(tokens=[[9], [2, 6]]), name="a step whose model fails")
    check_equal([s.length for s in sequences], [3, 1], name="the lengths after the step that failed")


def test_task_4_a_step_takes_no_blocks(lab):
    model = RaggedModel(lab)
    pool, allocator = storage_for(lab, model, 40, 3)
    sequences = sequences_of(lab, allocator, 3, [3, 3])
    run_step = partial(lab.paged.batch.run_step, model, pool, sequences, attention=model.read)
    run_step(tokens=[[3], [1, 4]])
    before = books(allocator)
    name = "a step of 2 and 2 tokens, with blocks reserved for 2 and 1"
    check_raises(ValueError, lambda: run_step(tokens=[[1, 5], [9, 2]]), name=name)
    state = "what the allocator knows after that: whoever calls `run_step` reserves, not `run_step`"
    check_equal(books(allocator), before, name=state)
    check_equal([s.length for s in sequences], [1, 2], name="the lengths after that")
    check_equal(len(model.runs), 1, name="runs of the model: only the step before that")


def test_task_4_a_step_goes_where_the_models_embedding_is(lab):
    """On torch's device "meta" tensors have shapes, and no numbers. The pool is elsewhere here, and never used."""
    usual, given = RaggedModel(lab), list[dict[str, Any]]()
    pool, allocator = storage_for(lab, usual, 40, 3)
    sequences = sequences_of(lab, allocator, 3, [4, 4])

    def hidden(tokens: Any, positions: Any, caches: Any) -> Any:
        built = {name: getattr(caches[0].meta, name) for name in TENSORS}
        given.append({"tokens": tokens, "the model's positions": positions} | built)
        raise KeyError("the model stops here, as the test wanted it to")

    embedding = SimpleNamespace(weight=usual.embedding.weight.to("meta"))
    model = SimpleNamespace(config=usual.config, embedding=embedding, hidden=hidden)
    step = partial(lab.paged.batch.run_step, model, pool, sequences, [[3, 1, 4], [5]])
    check_raises(KeyError, step, name="a step whose model stops once it has seen what it is given")
    where = 'tokens and metadata should go where the model\'s embedding is, on the device "meta" here'
    check_on_meta(given[0], where)
    check_equal(tuple(given[0]["tokens"].shape), (1, 4), name="the shape of the tokens")


@sizes_of_blocks
@pytest.mark.parametrize("family", sorted(numpy_model.FAMILIES))
def test_task_4_the_model_of_week_1_gives_the_rows_that_it_gives_each_alone(lab, family, P):
    model, allocator = real_model(lab, family), allocator_of(lab, 40)
    pool = lab.paged.pool.KvPool(model.config, 40, P, device=lab.device)
    spoil(pool)
    sequences, lengths = sequences_of(lab, allocator, P, [9, 9, 9]), [0, 0, 0]
    ids = [prompt_of(9, seed=n + 5) for n in range(3)]
    for number, step in enumerate(STEPS):
        tokens = [ids[n][lengths[n] : lengths[n] + count] for n, count in step.items()]
        rows = lab.paged.batch.run_step(model, pool, [sequences[n] for n in step], tokens)
        lengths = [length + step.get(n, 0) for n, length in enumerate(lengths)]
        wholes = [model.hidden(lab.array([ids[n][: lengths[n]]]), slice(0, lengths[n])) for n in step]
        expected = np.stack([lab.numpy(whole)[0, -1] for whole in wholes])
        name = f"the last rows of step {number}, against each sequence alone"
        check(rows, expected, name=name, axes="B E", rtol=1e-4, atol=1e-5, nan=UNUSED)


# Task 5: who runs, and with what


def test_task_5_what_is_due_is_what_the_pool_does_not_hold(lab):
    batch, prompt = batch_of(lab), prompt_of(7)
    each = running_of(lab, batch, prompt, 5)
    for held, count, expected in (
        (0, 7, prompt),
        (0, 4, prompt[:4]),
        (4, 2, prompt[4:6]),
        (6, 1, prompt[6:]),
    ):
        each.sequence.length = held
        check_equal(each.due, 7 - held, name=f"what is due when the pool holds {held} of 7 prompt tokens")
        name = f"the next {count} tokens when the pool holds {held}"
        check_equal(list(each.next_ids(count)), expected, name=name)
    each.sequence.length = 7
    check_equal(each.due, 0, name="what is due when the pool holds the whole prompt")
    each.accept(lab.array(scores_after(fingerprints(prompt)[-1])))
    first = alone(prompt, 1)
    check_equal(each.request.output, first, name="the request's output after it has accepted a token")
    check_equal((each.due, list(each.next_ids(1))), (1, first), name="what is due then: the token chosen")


def test_task_5_a_token_is_chosen_by_the_requests_own_sampler(lab):
    batch, given = batch_of(lab), []
    each = running_of(lab, batch, [4, 2, 4], 5, held=3)

    def sample(logits: Any, ids: Any) -> int:
        given.append(list(ids))
        return 11 + len(given)

    each.request.sample = sample
    for held in (3, 4):
        each.sequence.length = held
        each.accept(lab.array(np.zeros(V)))
    check_equal(given, [[4, 2, 4], [4, 2, 4, 12]], name="the ids that the sampler was given")
    check_equal(each.request.output, [12, 13], name="the output")
    check_equal(list(each.request.prompt_ids), [4, 2, 4], name="the request's prompt, afterwards")
    check_equal((each.due, list(each.ids)), (1, [4, 2, 4, 12, 13]), name="what is due, and prompt and output")


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "longest"),
    [(5, 4, 8), (1, 1, 1), (9, 1, 9), (9, 11, 19), (9, 12, 19), (19, 500, 19)],
)
def test_task_5_the_last_token_generated_takes_no_room(lab, prompt, max_tokens, longest):
    batch = batch_of(lab, RaggedModel(lab, max_positions=20))
    name = f"the longest of {prompt} prompt tokens and {max_tokens} of output, with 20 positions"
    check_equal(batch.longest(new_request(lab, prompt_of(prompt), max_tokens)), longest, name=name)


def test_task_5_what_can_never_run_is_refused_with_a_reason(lab):
    batch = batch_of(lab, RaggedModel(lab, max_positions=20), num_pages=5)
    for prompt, max_tokens in ((1, 1), (5, 4), (12, 1), (4, 9)):  # up to 12 tokens: 4 blocks of 3
        request = new_request(lab, prompt_of(prompt), max_tokens)
        name = f"the refusal of {prompt} prompt tokens and {max_tokens} of output, with 4 blocks of 3"
        assert batch.refusal(request) is None, f"{name}: None expected, found {batch.refusal(request)!r}"
    for prompt, max_tokens in ((13, 1), (4, 10), (12, 2), (2, 500)):
        reason = batch.refusal(new_request(lab, prompt_of(prompt), max_tokens))
        name = f"{prompt} prompt tokens and up to {max_tokens} of output"
        assert isinstance(reason, str), f"{name} need a 5th block, and the pool has 4: a reason is expected"
    for length in (0, 20, 25):
        request = new_request(lab, prompt_of(length), 3)
        reason = batch.refusal(request)
        check_equal(reason, request.refusal(20), name=f"the reason for a prompt of {length}, 20 positions")


def test_task_5_blocks_that_others_hold_are_no_reason_to_refuse(lab):
    batch = batch_of(lab, num_pages=5)
    batch.allocator.allocate(4)
    assert batch.refusal(new_request(lab, prompt_of(5), 4)) is None, (
        "the pool is large enough, only full just now: this request may run later"
    )


def admitted(batch: Any, requests: list[Any], waiting: deque[Any]) -> tuple[list[int], list[int]]:
    """Let in: which requests run then, and which wait."""
    batch.admit(waiting)
    numbers = {id(request): n for n, request in enumerate(requests)}
    return [numbers[id(each.request)] for each in batch.running], [numbers[id(each)] for each in waiting]


def test_task_5_requests_come_in_from_the_left_while_there_is_a_place(lab):
    batch = batch_of(lab, max_running=3)
    requests = [new_request(lab, prompt_of(n + 2, seed=n), 3) for n in range(5)]
    waiting = deque(requests)
    check_equal(
        admitted(batch, requests, waiting), ([0, 1, 2], [3, 4]), name="who runs and who waits, 3 at a time"
    )
    batch.running.pop(1).sequence.release()
    state = ([0, 2, 3], [4])
    check_equal(admitted(batch, requests, waiting), state, name="who runs and who waits, once 1 has left")
    check_equal(admitted(batch, requests, waiting), state, name="who runs and who waits, asked again")


def test_task_5_whoever_comes_in_has_pages_for_its_longest(lab):
    batch = batch_of(lab, num_pages=30)
    requests = [new_request(lab, prompt_of(n), count) for n, count in ((5, 3), (3, 1), (1, 13))]
    batch.admit(deque(requests))
    for each in batch.running:
        needed = pages_needed(longest_of(each.request, 64), 3)
        name = f"blocks of a request of {len(each.request.prompt_ids)} tokens and {each.request.max_tokens} of output"
        check_equal(len(each.sequence.blocks), needed, name=name)
        check_equal(each.sequence.length, 0, name="tokens that the pool holds of it")
    check_equal(len(in_use(batch.allocator)), 3 + 1 + 5, name="blocks in use")


def test_task_5_one_that_has_to_wait_is_not_overtaken(lab):
    batch = batch_of(lab, num_pages=8, max_running=4)  # 7 blocks of 3
    requests = [new_request(lab, prompt_of(n), count) for n, count in ((6, 4), (9, 7), (1, 2), (2, 1))]
    waiting = deque(requests)
    name = "who runs and who waits: 3 blocks of 7 are taken, request 1 needs 5, the next two 1 each"
    check_equal(admitted(batch, requests, waiting), ([0], [1, 2, 3]), name=name)
    before = books(batch.allocator)
    check_equal(admitted(batch, requests, waiting), ([0], [1, 2, 3]), name=f"{name}, asked again")
    check_equal(books(batch.allocator), before, name="what the allocator knows: who waits holds no block")
    batch.running.pop().sequence.release()
    check_equal(admitted(batch, requests, waiting), ([1, 2, 3], []), name="who runs once 0 has left")


def test_task_5_out_of_blocks_when_nobody_runs_who_could_make_room(lab):
    batch = batch_of(lab, num_pages=8)
    others = batch.allocator.allocate(5)
    waiting = deque([new_request(lab, prompt_of(6), 4), new_request(lab, prompt_of(1), 1)])
    error = lab.paged.allocator.OutOfPages
    check_raises(error, lambda: batch.admit(waiting), name="to wait for blocks, when nobody runs,")
    check_equal((len(batch.running), len(waiting)), (0, 2), name="who runs, and who waits")
    check_equal(
        in_use(batch.allocator), dict.fromkeys(sorted(others), 1), name="the blocks in use: the others'"
    )


def test_task_5_nobody_waits_nobody_comes(lab):
    batch = batch_of(lab)
    batch.admit(deque())
    check_equal(len(batch.running), 0, name="who runs")


def plan_of(batch: Any) -> list[tuple[int, int]]:
    plan = batch.plan()
    return [
        (next(n for n, other in enumerate(batch.running) if other is each), count) for each, count in plan
    ]


def test_task_5_single_tokens_come_first_and_then_one_chunk(lab):
    batch = batch_of(lab, max_running=9, chunk_size=4)
    running_of(lab, batch, prompt_of(9), 3)
    running_of(lab, batch, prompt_of(5), 3, held=5, output=[1])
    running_of(lab, batch, prompt_of(7), 3, held=2)
    running_of(lab, batch, prompt_of(1), 3)
    running_of(lab, batch, prompt_of(6), 3, held=5)
    running_of(lab, batch, prompt_of(2), 5, held=4, output=[7, 7, 8])
    name = "who brings how many tokens: 9, 1, 5, 1, 1 and 1 are due, chunks of 4"
    check_equal(plan_of(batch), [(1, 1), (3, 1), (4, 1), (5, 1), (0, 4)], name=name)
    batch.running.pop(0)
    check_equal(plan_of(batch)[-1], (1, 4), name="who brings a chunk when the first prompt has gone")
    batch.running[1].sequence.length = 5
    check_equal(plan_of(batch)[-1], (1, 2), name="the last chunk, of 2 tokens")
    batch.running.pop(1)
    check_equal(plan_of(batch), [(n, 1) for n in range(4)], name="who brings what when no prompt is left")


@pytest.mark.parametrize(("chunk_size", "count"), [(1, 1), (6, 6), (7, 7), (100, 7)])
def test_task_5_a_chunk_is_at_most_so_long(lab, chunk_size, count):
    batch = batch_of(lab, chunk_size=chunk_size)
    running_of(lab, batch, prompt_of(7), 3)
    check_equal(plan_of(batch), [(0, count)], name=f"who brings what: 7 are due, chunks of {chunk_size}")


# Task 6: continuous batching on pages


def test_task_6_a_step_samples_for_those_who_have_nothing_due(lab):
    batch = batch_of(lab, max_running=9, chunk_size=4)
    requests = [new_request(lab, prompt_of(n, seed=n), 3) for n in (5, 2, 1)]
    batch.admit(deque(requests))
    wanted = wanted_of(requests)
    steps = [
        ([(2, 1), (0, 4)], [0, 0, 1]),
        ([(0, 1), (2, 1), (1, 2)], [1, 1, 2]),
        ([(0, 1), (1, 1), (2, 1)], [2, 2, 3]),
        ([(0, 1), (1, 1)], [3, 3, 3]),
    ]
    for number, (plan, produced) in enumerate(steps):
        actual = [(requests.index(each.request), count) for each, count in batch.step()]
        check_equal(actual, plan, name=f"who brought how many tokens to step {number}, as `step` returns it")
        name = f"the outputs after step {number}; a chunk that isn't a prompt's last brings no token"
        expected = [output[:count] for output, count in zip(wanted, produced, strict=True)]
        check_equal([each.output for each in requests], expected, name=name)
        check_equal(len(batch.running), sum(n < 3 for n in produced), name=f"who runs after step {number}")
    check_empty(batch, when="after the last token of all")


@sizes_of_blocks
@pytest.mark.parametrize(("max_running", "chunk_size"), [(1, 4), (3, 1), (3, 4), (12, 128)])
def test_task_6_every_request_gets_what_it_gets_alone(lab, max_running, chunk_size, P):
    batch = batch_of(lab, num_pages=90, P=P, max_running=max_running, chunk_size=chunk_size)
    requests = many(lab)
    outputs = run_all(lab, batch, requests)
    for number, (output, wanted) in enumerate(zip(outputs, wanted_of(requests), strict=True)):
        name = f"the output of request {number} of 9, {max_running} at a time, chunks of {chunk_size}"
        check_equal(output, wanted, name=name)
    check_equal([each.output for each in requests], outputs, name="the outputs that the requests hold")


def test_task_6_the_head_runs_only_on_rows_that_are_sampled(lab):
    model = RaggedModel(lab)
    outputs = run_all(lab, batch_of(lab, model), many(lab))
    check_equal(
        sum(model.head_rows), sum(map(len, outputs)), name="rows sent through the head, for all tokens"
    )


def test_task_6_the_head_runs_once_a_step_or_not_at_all(lab):
    model = RaggedModel(lab)
    batch, calls = batch_of(lab, model), []
    batch.admit(deque(new_request(lab, prompt_of(n, seed=n), 2) for n in (9, 2)))
    for _ in range(4):
        before = len(model.head_rows)
        batch.step()
        calls.append(model.head_rows[before:])
    name = (
        "rows of each call of `model.logits`, step by step: none where nobody samples, else one call for all"
    )
    check_equal(calls, [[], [], [2], [2]], name=name)


def test_task_6_a_step_is_one_run_of_the_model(lab):
    model, requests = RaggedModel(lab), many(lab)
    batch = batch_of(lab, model)
    watch = Watch(batch, requests)
    run_all(lab, batch, requests, watch)
    check_equal(len(model.runs), len(watch.plans), name="runs of the model, for so many steps")
    shared = [run for run in model.runs if len(run) > 1 and max(count for count, _ in run) > 1]
    assert shared, "no run held a chunk and a decode together"
    tokens = sum(count for run in model.runs for count, _ in run)
    expected = sum(len(r.prompt_ids) + len(r.output) - 1 for r in requests if r.output)
    check_equal(tokens, expected, name="tokens computed in all: each once, and no last one")


def test_task_6_whoever_finishes_makes_room_in_the_next_step(lab):
    requests = [new_request(lab, prompt_of(1, seed=n), 2 if n else 9) for n in range(5)]
    batch = batch_of(lab, max_running=2)
    watch = Watch(batch, requests)
    run_all(lab, batch, requests, watch)
    together = [sorted(number for number, _ in plan) for plan in watch.plans]
    expected = [[0, 1], [0, 1], [0, 2], [0, 2], [0, 3], [0, 3], [0, 4], [0, 4], [0]]
    check_equal(together, expected, name="who took part, step by step, 2 at a time")


def test_task_6_blocks_come_back_with_the_last_token(lab):
    requests = [new_request(lab, prompt_of(4, seed=n), 3) for n in range(4)]
    batch = batch_of(lab, num_pages=5, max_running=4)  # 4 blocks of 3: two requests at a time
    watch = Watch(batch, requests)
    outputs = run_all(lab, batch, requests, watch)
    check_equal(outputs, wanted_of(requests), name="the outputs")
    most = max(len(plan) for plan in watch.plans)
    check_equal(most, 2, name="how many took part in a step at most: there are blocks for two")


def test_task_6_end_tokens_and_positions_end_a_request(lab):
    model = RaggedModel(lab, max_positions=16)
    requests = [new_request(lab, prompt_of(n, seed=n), 100) for n in (15, 9, 3, 5)]
    requests[2].end_ids = alone(requests[2].prompt_ids, 4)[3:]
    requests[3].end_ids = alone(requests[3].prompt_ids, 1)
    outputs = run_all(lab, batch_of(lab, model), requests)
    check_equal(outputs, wanted_of(requests, 16), name="the outputs, with 16 positions and two end tokens")
    check_equal(
        [len(output) for output in outputs[:2]], [1, 7], name="tokens produced up to the last position"
    )


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


def test_task_6_nothing_to_do(lab):
    model = RaggedModel(lab)
    batch = batch_of(lab, model)
    check_equal(run_all(lab, batch, []), [], name="the outputs of no requests")
    check_equal(run_all(lab, batch, [new_request(lab, [1], 0)]), [[]], name="the output for max_tokens 0")
    stream = lab.paged.batch.generate_paged(batch, new_request(lab, [1, 2], 0))
    check_equal(list(stream), [], name="the tokens of generate_paged for max_tokens 0")
    check_equal(model.runs, [], name="runs of the model, with no token to produce")


@pytest.mark.parametrize("place", [0, 2, 4], ids=["first", "in the middle", "last"])
@pytest.mark.parametrize("length", [0, 11, 12, 40])
def test_task_6_a_request_that_can_never_run_is_refused_and_the_others_go_on(lab, length, place):
    model = RaggedModel(lab, max_positions=12)
    batch = batch_of(lab, model, num_pages=4)  # 3 blocks of 3
    requests = [new_request(lab, prompt_of(n), 3) for n in (5, 7, 1, 3)]
    requests.insert(place, new_request(lab, prompt_of(length), 3))
    errors: list[Any] = []
    watch = Watch(batch, requests)

    def observe(plan: Any) -> None:
        errors.append(requests[place].error)
        watch(plan)

    outputs = lab.paged.batch.batch_generate_paged(batch, requests, observe)
    expected = wanted_of(requests, 12)
    expected[place] = []
    check_equal(outputs, expected, name="the outputs, [] for the request that was refused")
    assert isinstance(errors[0], str), (
        f"a prompt of {length} with 12 positions and 3 blocks of 3: its error should be set before anything runs"
    )
    others = [each.error for n, each in enumerate(requests) if n != place]
    check_equal(others, [None] * 4, name="the errors of the others")
    check_empty(batch, when="at the end")


def test_task_6_out_of_blocks_when_others_hold_them(lab):
    batch = batch_of(lab, num_pages=8)
    others = batch.allocator.allocate(5)
    requests = [new_request(lab, prompt_of(n), 3) for n in (2, 6)]
    error = lab.paged.allocator.OutOfPages
    call = partial(lab.paged.batch.batch_generate_paged, batch, requests)
    check_raises(error, call, name="a request of 3 blocks where the others leave 2")
    check_equal(requests[0].output, alone(requests[0].prompt_ids, 3), name="the output of the one that fits")
    held = dict.fromkeys(sorted(others), 1)
    check_equal(in_use(batch.allocator), held, name="the blocks in use afterwards: the others'")
    stream = lab.paged.batch.generate_paged(batch, new_request(lab, prompt_of(6), 3))
    check_raises(error, lambda: next(stream), name="generate_paged of 3 blocks where the others leave 2")
    check_equal(in_use(batch.allocator), held, name="the blocks in use after that")


@pytest.mark.parametrize("call", [0, 3, 8])
@pytest.mark.parametrize("who", ["model", "sample", "observe"])
def test_task_6_blocks_go_back_after_an_error(lab, who, call):
    model, samples = RaggedModel(lab), list[int]()
    batch, requests = batch_of(lab, model), many(lab)
    watch = Watch(batch, requests)

    def sample(logits: Any, ids: Any) -> int:
        samples.append(len(ids))
        if who == "sample" and len(samples) == call + 1:
            raise KeyError("sample failed, as the test wanted it to")
        return int(np.argmax(lab.numpy(logits)))

    def observe(plan: Any) -> None:
        watch(plan)
        if who == "observe" and len(watch.plans) == call + 1:
            raise KeyError("the onlooker failed, as the test wanted it to")

    for request in requests:
        request.sample = sample
    model.fails_at = call if who == "model" else None
    run = partial(lab.paged.batch.batch_generate_paged, batch, requests, observe)
    check_raises(KeyError, run, name=f"a batch whose {who} fails at call {call}")
    check_empty(batch, when=f"after the {who} failed at call {call}")


def stream_of(lab: Any, batch: Any, prompt: list[int], count: int, **options: Any) -> Any:
    return lab.paged.batch.generate_paged(batch, new_request(lab, prompt, count, **options))


@sizes_of_blocks
@pytest.mark.parametrize(("length", "count"), [(1, 4), (4, 1), (13, 6)])
def test_task_6_one_request_as_a_stream(lab, length, count, P):
    batch, prompt = batch_of(lab, P=P), prompt_of(length)
    stream = stream_of(lab, batch, prompt, count)
    check_all_free(batch.allocator, when="before the first token was asked for")
    check_equal(list(stream), alone(prompt, count), name=f"the {count} tokens after a prompt of {length}")
    check_empty(batch, when="at the end of the stream")


@pytest.mark.parametrize("taken", [1, 3])
def test_task_6_blocks_go_back_when_the_caller_asks_for_no_more(lab, taken):
    model = RaggedModel(lab)
    batch, prompt = batch_of(lab, model), prompt_of(7)
    stream = stream_of(lab, batch, prompt, 6)
    check_equal([next(stream) for _ in range(taken)], alone(prompt, taken), name="the first tokens")
    check_equal(len(model.runs), 1 + taken, name=f"runs of the model for 2 chunks and {taken} tokens")
    assert in_use(batch.allocator), "a request that goes on holds no block"
    stream.close()
    check_empty(batch, when=f"after the stream was closed at token {taken}")


@pytest.mark.parametrize("call", [0, 1, 4])
def test_task_6_blocks_go_back_when_a_stream_fails(lab, call):
    model = RaggedModel(lab)
    batch, model.fails_at = batch_of(lab, model), call
    check_raises(
        KeyError, lambda: list(stream_of(lab, batch, prompt_of(7), 6)), name="a stream whose model fails"
    )
    check_empty(batch, when=f"after run {call} failed")


@pytest.mark.parametrize(("length", "count"), [(0, 3), (12, 3), (5, 6)])
def test_task_6_a_stream_that_can_never_run_is_refused(lab, length, count):
    batch = batch_of(lab, RaggedModel(lab, max_positions=12), num_pages=4)
    request = new_request(lab, prompt_of(length), count)
    stream = lab.paged.batch.generate_paged(batch, request)
    name = f"a prompt of {length} and {count} tokens of output, with 12 positions and 3 blocks of 3"
    error = check_raises(ValueError, lambda: next(stream), name=name)
    check_equal(request.error, str(error), name="the request's error, which is the message")
    check_empty(batch, when="after the refusal")


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
def test_task_6_whoever_comes_and_goes_each_is_as_if_alone(wanted, P, spare, max_running, chunk_size):
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
        length, most = len(request.prompt_ids), request.max_tokens
        fits = 0 < length < limit and pages_needed(longest_of(request, limit), P) < num_pages
        name = f"a prompt of {length}, {most} tokens of output, {num_pages - 1} blocks of {P}, {limit} positions"
        check_equal(request.error is None, fits, name=f"whether {name} are accepted")
        expected = alone(request.prompt_ids, most, request.end_ids, limit) if fits else []
        check_equal(output, expected, name=f"the output of {name}")
    computed = sum(count for run in model.runs for count, _ in run)
    due = sum(len(r.prompt_ids) + len(r.output) - 1 for r in requests if r.output)
    check_equal(computed, due, name="tokens computed in all, each once")


@sizes_of_blocks
@pytest.mark.parametrize("family", sorted(numpy_model.FAMILIES))
def test_task_6_the_model_of_week_1_says_the_same_as_with_its_own_caches(lab, family, P):
    model = real_model(lab, family)
    pool = lab.paged.pool.KvPool(model.config, 40, P, device=lab.device)
    spoil(pool)
    batch = lab.paged.batch.PagedBatch(model, pool, allocator_of(lab, 40), max_running=2, chunk_size=4)
    lengths = ((5, 9), (13, 7), (1, 4), (4, 1), (7, 5))
    requests = [new_request(lab, prompt_of(n, seed=n), count) for n, count in lengths]
    expected = [list(lab.generate.generate(model, r.prompt_ids, r.max_tokens)) for r in requests]
    outputs = run_all(lab, batch, requests)
    check_equal(
        outputs, expected, name="the outputs of five requests, two at a time, against Day 2.1's `generate`"
    )
    stream = list(stream_of(lab, batch, prompt_of(13, seed=13), 7))
    check_equal(stream, expected[1], name="the tokens of generate_paged, against Day 2.1's `generate`")
