"""Day 3.3 with MLX: attention over pages as a kernel in Metal's language."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from week_1 import numpy_model
from week_2.continuous import prompt_of
from week_2.metal_calls import calls_of, check_simdgroups

from coursekit import lab as door
from coursekit.check import check, check_equal

from .metal_pages import check_parts, check_refused, in_16_bits, inputs_of
from .pages import allocator_of, spoil
from .ragged import CASES, RaggedStep, check_merged, check_step, pair_of, random_steps

TIGHT: dict[str, Any] = {"rtol": 1e-5, "atol": 5e-6}
FEW = settings(max_examples=8, deadline=None, derandomize=True, database=None, report_multiple_bugs=False)
sizes_of_pages = pytest.mark.parametrize("P", [1, 3, 16], ids=lambda P: f"pages of {P}")
causal_or_not = pytest.mark.parametrize("causal", [True, False], ids=["causal", "not causal"])


@pytest.fixture
def module(lab):
    """The learner's module, for what runs on any machine."""
    return lab.kernels.paged_attention_metal


@pytest.fixture
def metal(lab, module):
    """The learner's module, where kernels can run."""
    if reason := lab.kernels.metal.why_not():
        pytest.skip(reason)
    return module


# Task 3: one part of one sequence


def test_task_3_the_kernel_is_called_with_a_simdgroup_for_each_query_and_part(lab, module, monkeypatch):
    calls = calls_of(lab, monkeypatch, module)
    step = RaggedStep.random(331, [(9, 2), (5, 5)], 3)
    module.attend_parts(*step.arguments(lab), step.meta(lab), step.scale, True, 4)
    check_simdgroups(calls, "attend_parts", 4 * 7 * 6, "piece")
    shapes = [tuple(shape) for shape in calls[0]["output_shapes"]]
    check_equal(shapes, [(4, 7, 6, 8), (4, 7, 6)], name="output_shapes")


@pytest.mark.parametrize(("kv_len", "L"), [(1, 1), (16, 1), (17, 1), (31, 1), (40, 3), (7, 7)])
def test_task_3_one_part_is_the_whole_past(lab, metal, kv_len, L):
    check_parts(lab, metal.attend_parts, RaggedStep.random(332, [(kv_len, L)], 16))


@sizes_of_pages
def test_task_3_the_pages_are_those_of_the_table(lab, metal, P):
    lengths = [(2 * P, 1), (2 * P + 1, 2), (7, 3), (3 * P, 1)]
    check_parts(lab, metal.attend_parts, RaggedStep.random(333, lengths, P))


def test_task_3_sequences_may_share_pages(lab, metal):
    step = RaggedStep.random(334, [(20, 3), (14, 1), (17, 2)], 4, shared=2)
    check_equal(step.tables[0][:2], step.tables[1][:2], name="the pages that two sequences share")
    check_parts(lab, metal.attend_parts, step)


def test_task_3_without_the_causal_rule_every_token_sees_all_of_its_sequence(lab, metal):
    step = RaggedStep.random(335, [(9, 4), (6, 6), (5, 1)], 3)
    check_parts(lab, metal.attend_parts, step, causal=False)
    check_parts(lab, metal.attend_parts, step, 2, causal=False)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_task_3_each_part_has_its_own_keys(lab, metal, count):
    check_parts(lab, metal.attend_parts, RaggedStep.random(336, [(23, 2), (11, 1), (10, 10)], 3), count)


def test_task_3_more_parts_than_keys(lab, metal):
    check_parts(lab, metal.attend_parts, RaggedStep.random(337, [(2, 2), (5, 1)], 3), 4)


@pytest.mark.parametrize("count", [1, 2])
@causal_or_not
def test_task_3_what_sees_nothing_gets_zeros_and_minus_infinity(lab, metal, count, causal):
    """A sequence without a key, and one that is shorter than its queries, as in the first of two merged parts."""
    step = RaggedStep.random(338, [(0, 2), (2, 4), (5, 1)], 3)
    check_parts(lab, metal.attend_parts, step, count, causal=causal)


@pytest.mark.parametrize("B", [31, 32, 33, 70])
def test_task_3_any_number_of_sequences(lab, metal, B):
    lengths = [(1 + b % 3, 1 + (b % 3) // 2) for b in range(B)]
    check_parts(lab, metal.attend_parts, RaggedStep.random(339, lengths, 2, sizes=(1, 2, 5)))


@pytest.mark.parametrize("D", [1, 6, 32, 33, 70])
def test_task_3_any_head_size(lab, metal, D):
    check_parts(lab, metal.attend_parts, RaggedStep.random(340, [(9, 2), (5, 1)], 3, sizes=(2, 2, D)), 2)


@pytest.mark.parametrize(("Hkv", "G"), [(1, 1), (1, 4), (5, 2), (3, 1)])
def test_task_3_heads_and_groups_are_kept_apart(lab, metal, Hkv, G):
    check_parts(lab, metal.attend_parts, RaggedStep.random(341, [(9, 2), (4, 1)], 3, sizes=(Hkv, G, 6)))


@pytest.mark.parametrize("scale", [0.0, -0.7, 40.0, -40.0])
def test_task_3_any_scale(lab, metal, scale):
    # Scores of some 200, which float32 rounds at 1e-5.
    step = RaggedStep.random(342, [(23, 2), (9, 1)], 3, scale=scale)
    check_parts(lab, metal.attend_parts, step, 2, rtol=1e-4, atol=5e-5)


def test_task_3_scores_whose_exponentials_are_0_count_like_others(lab, metal):
    """Scores near −170. Only their differences count: the first peak is −inf, and not 0."""
    step = RaggedStep.random(343, [(20, 3)], 16, sizes=(1, 2, 20))
    step.query[:] = 1.0
    step.keys[:] = (-20.0 - np.abs(step.keys)).astype(np.float32)
    check_parts(lab, metal.attend_parts, step, peaks=True, rtol=1e-4, atol=5e-5)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_task_3_query_and_pages_may_have_16_bits(lab, metal, dtype):
    check_parts(lab, metal.attend_parts, in_16_bits(344, [(19, 2), (5, 1)], 3, dtype), 2)


def test_task_3_the_kernel_is_given_the_pages_where_they_lie(lab, module, monkeypatch):
    step = RaggedStep.random(345, [(9, 1), (7, 2)], 3)
    arguments = [*step.arguments(lab), step.meta(lab), step.scale, True, 1]
    shapes = inputs_of(lab, monkeypatch, module, lambda: module.attend_parts(*arguments))
    assert shapes.count(step.keys.shape) == 2, (
        f"the kernel is not given the layer's pages {list(step.keys.shape)}, twice, but arrays of shapes "
        f"{[list(shape) for shape in shapes]}: gathered keys and values are copies"
    )


# Task 4: all sequences, dealt to the threads


@sizes_of_pages
@causal_or_not
@pytest.mark.parametrize("case", CASES)
def test_task_4_a_step_of_any_sequences(lab, metal, case, P, causal):
    step = RaggedStep.random(346, CASES[case](P), P)
    check_step(lab, metal.paged_attention_metal, step, causal=causal, **TIGHT)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_task_4_the_output_has_the_dtype_of_the_query(lab, metal, dtype):
    step = in_16_bits(347, [(9, 1), (4, 4), (200, 1)], 16, dtype)
    check_step(lab, metal.paged_attention_metal, step, **(TIGHT if dtype == "float32" else {}))


@pytest.mark.parametrize(("query", "pool"), [("float32", "bfloat16"), ("bfloat16", "float32")])
def test_task_4_query_and_pages_may_differ_in_dtype(lab, metal, query, pool):
    step = RaggedStep.random(348, [(9, 2), (5, 5)], 16, dtype="bfloat16")
    arrays = [
        lab.array(x, dtype) for x, dtype in ((step.query, query), (step.keys, pool), (step.values, pool))
    ]
    actual = metal.paged_attention_metal(*arrays, step.meta(lab), step.scale)
    out, lse = pair_of(actual, "paged_attention_metal")
    wanted, name = step.expected(), f"attention of {query} queries over {pool} pages"
    check(out, wanted[0], name=name, axes="T H D", dtype=query, **(TIGHT if query == "float32" else {}))
    check(lse, wanted[1], name="the log-sum-exp, float32 in any case", axes="T H", **TIGHT)


def test_task_4_the_causal_rule_is_kept_unless_told_otherwise(lab, metal):
    step = RaggedStep.random(349, [(7, 3)], 3)
    actual = metal.paged_attention_metal(*step.arguments(lab), step.meta(lab), step.scale)
    out, _ = pair_of(actual, "paged_attention_metal")
    check(out, step.expected()[0], name="attention without a word on `causal`", axes="T H D", **TIGHT)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@causal_or_not
def test_task_4_however_many_parts_the_pasts_are_cut_into(lab, metal, monkeypatch, count, causal):
    monkeypatch.setattr(metal, "part_count", lambda heads, S: count)
    step = RaggedStep.random(350, [(23, 2), (3, 3), (0, 1), (11, 1)], 3, scale=2.0)
    check_step(lab, metal.paged_attention_metal, step, causal=causal, rtol=1e-4, atol=2e-5)


def test_task_4_the_number_of_parts_is_that_for_the_longest_past(lab, module, monkeypatch):
    asked: list[tuple[int, int]] = []

    def count(heads: int, S: int) -> int:
        asked.append((heads, S))
        return 1

    monkeypatch.setattr(module, "part_count", count)
    calls_of(lab, monkeypatch, module)
    step = RaggedStep.random(351, [(9, 2), (23, 1), (5, 4)], 3)
    module.paged_attention_metal(*step.arguments(lab), step.meta(lab), step.scale)
    check_equal(asked, [(7 * 6, 23)], name="what part_count is asked: T · H, and the longest past")


def test_task_4_parts_are_merged_in_float32_and_rounded_once(lab, metal, monkeypatch):
    """Two parts of equal weight, whose mean is rounded down, while that of the rounded parts is rounded up."""
    step = RaggedStep.random(352, [(9, 1)], 16, dtype="bfloat16")
    (T, H, D) = step.query.shape
    halves = np.array([1 + 2.5 * 2**-9, 1 + 9 * 2**-9]).reshape(2, 1, 1, 1) + np.zeros((2, T, H, D))
    parts = lab.array(halves, "float32"), lab.array(np.zeros((2, T, H)), "float32")
    monkeypatch.setattr(metal, "attend_parts", lambda *arguments, **options: parts)
    monkeypatch.setattr(metal, "part_count", lambda heads, S: 2)
    out, _ = metal.paged_attention_metal(*step.arguments(lab), step.meta(lab), step.scale)
    wanted = np.full(step.query.shape, 1.0 + 2**-7)
    check(out, wanted, name="the merged parts", axes="T H D", dtype="bfloat16", rtol=0, atol=0)


@pytest.mark.parametrize("P", [3, 16])
@pytest.mark.parametrize("case", ["one prompt", "a chunk after a long past", "decodes only"])
def test_task_4_two_sets_of_pages_merged_give_the_whole(lab, metal, case, P):
    step = RaggedStep.random(353, CASES[case](P), P)
    for pages in (1, 2):
        check_merged(lab, metal.paged_attention_metal, step, pages, **TIGHT)


def test_task_4_sizes_that_do_not_fit_are_refused(lab, module):
    check_refused(lab, module.paged_attention_metal)


@FEW
@given(step=random_steps())
def test_task_4_any_random_step(step):
    lab = door.active()
    if reason := lab.kernels.metal.why_not():
        pytest.skip(reason)
    check_step(lab, lab.kernels.paged_attention_metal.paged_attention_metal, step, **TIGHT)


def run_batch(lab: Any, attention: Any) -> list[list[int]]:
    """Three requests by continuous batching on pages, with the model of Week 1."""
    config = lab.config.ModelConfig(**numpy_model.config_fields("llama"))
    tensors = {name: lab.array(x) for name, x in numpy_model.random_tensors("llama").items()}
    model = lab.model.Transformer(config, lab.weights.Weights(config, tensors))
    pool = lab.paged.pool.KvPool(config, 30, 3)
    spoil(pool)
    runner = lab.paged.model_runner.ModelRunner(model, pool, attention)
    batch = lab.paged.batch.PagedBatch(runner, allocator_of(lab, 30), 3, 4)
    requests = [lab.request.Request(prompt_of(n, seed=n), most) for n, most in ((5, 4), (11, 3), (1, 5))]
    return lab.engine_core.generate_all(batch, requests)


def test_task_4_continuous_batching_gives_the_same_tokens(lab, metal):
    reference = run_batch(lab, lab.paged.attention.paged_attention)
    outputs = run_batch(lab, metal.paged_attention_metal)
    check_equal(outputs, reference, name="the outputs of three requests, against Day 3.2's attention")
