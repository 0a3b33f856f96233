"""Day 3.4 with MLX: attention over pages in Metal, by tiles that a threadgroup shares."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from week_2.metal_calls import SIMD, calls_of, check_simdgroups

from coursekit import lab as door
from coursekit.check import check, check_equal, check_raises

from .metal_pages import ROWS, check_refused, check_tiles, in_16_bits, inputs_of
from .ragged import CASES, RaggedStep, check_merged, check_step, pair_of, random_steps

TIGHT: dict[str, Any] = {"rtol": 1e-5, "atol": 5e-6}
FEW = settings(max_examples=5, deadline=None, derandomize=True, database=None, report_multiple_bugs=False)
causal_or_not = pytest.mark.parametrize("causal", [True, False], ids=["causal", "not causal"])


@pytest.fixture
def module(lab):
    """The learner's module, for what runs on any machine."""
    return lab.kernels.paged_attention_tiles_metal


@pytest.fixture
def metal(lab, module):
    """The learner's module, where kernels can run."""
    if reason := lab.kernels.metal.why_not():
        pytest.skip(reason)
    return module


@pytest.fixture
def attend(lab, metal):
    """The learner's source as a kernel, called with the right grid: called like attend_tiles, which is Task 4."""

    def launch(query: Any, keys: Any, values: Any, meta: Any, scale: float, causal: bool, parts: int) -> Any:
        (T, H, D), Hkv = query.shape, keys.shape[2]
        most = max(stop - start for start, stop in pairwise(meta.starts)) * H // Hkv
        numbers = [meta.cu_seqlens_q, meta.seq_lens_kv, meta.block_table, parts, scale, causal]
        kernel = lab.kernels.metal.metal_kernel(
            "attend_tiles", metal.NAMES, ("out", "lse"), metal.tile_source()
        )
        found = kernel(
            inputs=[query, keys, values, *numbers],
            template=[("D", D), ("ROWS", ROWS)],
            grid=(SIMD * ROWS * len(meta.kv_lens), -(-most // ROWS) * Hkv, parts),
            threadgroup=(SIMD * ROWS, 1, 1),
            output_shapes=[(parts, T, H, D), (parts, T, H)],
            output_dtypes=[lab.array(np.zeros(1), "float32").dtype] * 2,
        )
        return tuple(found)

    return launch


# Task 3: one program


@pytest.mark.parametrize("P", [1, 3, 16], ids=lambda P: f"pages of {P}")
@causal_or_not
def test_task_3_a_chunk_a_decode_and_a_prompt(lab, attend, P, causal):
    step = RaggedStep.random(360, [(40, 3), (33, 1), (6, 6)], P)
    check_tiles(lab, attend, step, causal=causal)


@pytest.mark.parametrize("kv_len", [1, 31, 32, 33, 64, 65])
def test_task_3_keys_up_to_the_edges_of_tiles(lab, attend, kv_len):
    check_tiles(lab, attend, RaggedStep.random(361, [(kv_len, 1)], 16, sizes=(1, 2, 20)))


@pytest.mark.parametrize(("tokens", "group"), [(8, 1), (9, 1), (3, 3), (5, 5), (17, 2)])
def test_task_3_blocks_share_out_the_queries_of_a_key_head(lab, attend, tokens, group):
    """Beside a sequence with a single token: it has fewer blocks."""
    step = RaggedStep.random(362, [(tokens + 2, tokens), (4, 1)], 3, sizes=(2, group, 6))
    check_tiles(lab, attend, step)


@pytest.mark.parametrize("D", [1, 6, 32, 33, 70])
def test_task_3_any_head_size(lab, attend, D):
    """More than a tile of keys: the next one must not be brought while the last is still read."""
    check_tiles(lab, attend, RaggedStep.random(363, [(66, 4)], 16, sizes=(1, 2, D)))


@pytest.mark.parametrize("count", [2, 3, 5])
@causal_or_not
def test_task_3_each_part_has_its_own_keys(lab, attend, count, causal):
    """A block's part is of the keys that its last query sees; the others see fewer of them."""
    step = RaggedStep.random(364, [(70, 2), (11, 1), (10, 10)], 3)
    check_tiles(lab, attend, step, count, causal=causal)


@pytest.mark.parametrize("count", [1, 3])
@causal_or_not
def test_task_3_what_sees_nothing_gets_zeros_and_minus_infinity(lab, attend, count, causal):
    """A sequence without a key, and one that is shorter than its queries, as in the first of two merged parts."""
    step = RaggedStep.random(365, [(0, 2), (2, 6), (5, 1)], 3)
    check_tiles(lab, attend, step, count, causal=causal)


@pytest.mark.parametrize("scale", [0.0, -0.7, 40.0])
def test_task_3_any_scale(lab, attend, scale):
    # Scores of some 200, which float32 rounds at 1e-5.
    step = RaggedStep.random(366, [(70, 2), (9, 1)], 3, scale=scale)
    check_tiles(lab, attend, step, 2, rtol=1e-4, atol=5e-5)


def test_task_3_scores_whose_exponentials_are_0_count_like_others(lab, attend):
    """Scores near −170. Only their differences count: the first peak is −inf, and not 0."""
    step = RaggedStep.random(367, [(40, 3)], 16, sizes=(1, 2, 20))
    step.query[:] = 1.0
    step.keys[:] = (-20.0 - np.abs(step.keys)).astype(np.float32)
    check_tiles(lab, attend, step, peaks=True, rtol=1e-4, atol=5e-5)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_task_3_query_and_pages_may_have_16_bits(lab, attend, dtype):
    check_tiles(lab, attend, in_16_bits(368, [(40, 2), (5, 1)], 3, dtype), 2)


def test_task_3_the_threads_share_what_they_read(module):
    source = module.tile_source()
    assert isinstance(source, str), "the source of a kernel is text"
    for word, why in (
        ("threadgroup float", "it declares no array that all threads of a threadgroup share"),
        ("threadgroup_barrier", "no thread waits for the others to bring their share of a tile"),
    ):
        assert word in source, f"the kernel's source has no `{word}`: {why}"


# Task 4: the grid


@pytest.mark.parametrize(
    ("lengths", "group", "parts", "blocks"),
    [([(9, 1)], 3, 1, 1), ([(9, 2), (5, 5), (3, 1)], 3, 4, 2), ([(9, 8), (9, 9)], 1, 1, 2)],
)
def test_task_4_the_grid_has_a_threadgroup_for_each_block(
    lab, module, monkeypatch, lengths, group, parts, blocks
):
    calls = calls_of(lab, monkeypatch, module)
    step = RaggedStep.random(370, lengths, 3, sizes=(2, group, 8))
    module.attend_tiles(*step.arguments(lab), step.meta(lab), step.scale, True, parts)
    check_simdgroups(calls, "attend_tiles", 8 * len(lengths) * blocks * 2 * parts, "row")
    (T, H, D), call = step.query.shape, calls[0]
    check_equal(tuple(call["threadgroup"]), (256, 1, 1), name="threadgroup: a simdgroup for each of ROWS")
    grid = (256 * len(lengths), blocks * 2, parts)
    check_equal(tuple(call["grid"]), grid, name="grid (threads of all sequences, blocks · Hkv, parts)")
    shapes = [tuple(shape) for shape in call["output_shapes"]]
    check_equal(shapes, [(parts, T, H, D), (parts, T, H)], name="output_shapes")


def test_task_4_the_kernel_is_given_the_pages_where_they_lie(lab, module, monkeypatch):
    step = RaggedStep.random(371, [(9, 1), (7, 2)], 3)
    arguments = [*step.arguments(lab), step.meta(lab), step.scale]
    shapes = inputs_of(lab, monkeypatch, module, lambda: module.paged_attention_tiles(*arguments))
    assert shapes.count(step.keys.shape) == 2, (
        f"the kernel is not given the layer's pages {list(step.keys.shape)}, twice, but arrays of shapes "
        f"{[list(shape) for shape in shapes]}: gathered keys and values are copies"
    )


@pytest.mark.parametrize("count", [1, 3])
def test_task_4_each_part_is_attended_to_by_itself(lab, metal, count):
    check_tiles(lab, metal.attend_tiles, RaggedStep.random(380, [(40, 3), (9, 1), (6, 6)], 3), count)


@pytest.mark.parametrize("P", [3, 16], ids=lambda P: f"pages of {P}")
@causal_or_not
@pytest.mark.parametrize("case", CASES)
def test_task_4_a_step_of_any_sequences(lab, metal, case, P, causal):
    step = RaggedStep.random(372, CASES[case](P), P)
    check_step(lab, metal.paged_attention_tiles, step, causal=causal, **TIGHT)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_task_4_the_output_has_the_dtype_of_the_query(lab, metal, dtype):
    """The second sequence is long enough for several parts."""
    step = in_16_bits(373, [(4, 4), (200, 1)], 16, dtype)
    check_step(lab, metal.paged_attention_tiles, step, **(TIGHT if dtype == "float32" else {}))


def test_task_4_the_causal_rule_is_kept_unless_told_otherwise(lab, metal):
    step = RaggedStep.random(374, [(7, 3)], 3)
    actual = metal.paged_attention_tiles(*step.arguments(lab), step.meta(lab), step.scale)
    out, _ = pair_of(actual, "paged_attention_tiles")
    check(out, step.expected()[0], name="attention without a word on `causal`", axes="T H D", **TIGHT)


@pytest.mark.parametrize("count", [1, 2, 5])
@causal_or_not
def test_task_4_however_many_parts_the_pasts_are_cut_into(lab, metal, monkeypatch, count, causal):
    monkeypatch.setattr(metal, "part_count", lambda heads, S: count)
    step = RaggedStep.random(375, [(40, 2), (3, 3), (0, 1), (11, 1)], 3, scale=2.0)
    check_step(lab, metal.paged_attention_tiles, step, causal=causal, rtol=1e-4, atol=2e-5)


def test_task_4_the_number_of_parts_is_that_for_the_longest_past(lab, module, monkeypatch):
    asked: list[tuple[int, int]] = []

    def count(heads: int, S: int) -> int:
        asked.append((heads, S))
        return 1

    monkeypatch.setattr(module, "part_count", count)
    calls_of(lab, monkeypatch, module)
    step = RaggedStep.random(376, [(9, 2), (23, 1), (5, 4)], 3)
    module.paged_attention_tiles(*step.arguments(lab), step.meta(lab), step.scale)
    check_equal(asked, [(3 * 2 * 2, 23)], name="what part_count is asked: threadgroups, and the longest past")


@pytest.mark.parametrize("case", ["one prompt", "a chunk after a long past"])
def test_task_4_two_sets_of_pages_merged_give_the_whole(lab, metal, case):
    step = RaggedStep.random(377, CASES[case](3), 3)
    check_merged(lab, metal.paged_attention_tiles, step, 2, **TIGHT)


def test_task_4_sizes_that_do_not_fit_are_refused(lab, module):
    check_refused(lab, module.paged_attention_tiles)


def test_task_4_heads_that_are_too_large_for_a_threadgroups_memory_are_refused(lab, module, monkeypatch):
    """32 · (D + 1) + 8 · D floats fit into 32,768 bytes up to D = 204."""
    calls_of(lab, monkeypatch, module)
    for D, fits in ((204, True), (205, False)):
        step = RaggedStep.random(378, [(2, 1)], 3, sizes=(1, 1, D))

        def attend(step: RaggedStep = step) -> Any:
            return module.paged_attention_tiles(*step.arguments(lab), step.meta(lab), step.scale)

        if fits:
            attend()
        else:
            check_raises(ValueError, attend, name=f"D = {D}")


@FEW
@given(step=random_steps())
def test_task_4_any_random_step(step):
    lab = door.active()
    if reason := lab.kernels.metal.why_not():
        pytest.skip(reason)
    check_step(lab, lab.kernels.paged_attention_tiles_metal.paged_attention_tiles, step, **TIGHT)
