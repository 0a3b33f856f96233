"""Day 3.4: attention over pages in Triton, interpreted on the CPU or compiled for a GPU."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from week_1 import numpy_model
from week_2.decode_oracle import random_numbers

from coursekit import lab as door
from coursekit.check import check, check_equal

from .beside_triton import compiled, interpreted
from .beside_triton_memory import NAN
from .pages import allocator_of
from .ragged import CASES, RaggedStep, check_merged, check_step, pair_of, random_steps
from .triton_parts import TOLERANCE, Launch, check_compiles, counted, paged
from .triton_tiles import NOTHING, Tile, check_fold, finished, fold

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None,
    reason="Triton exists for Linux only, and is not installed here: the day can't be done, and costs no points",
)
FEW = settings(max_examples=6, deadline=None, derandomize=True, database=None, report_multiple_bugs=False)
SIZES = (2, 3, 24)  # Hkv, query heads to each, D: 24 is no power of two
DTYPES = ("float32", "bfloat16")


@pytest.fixture(scope="module")
def gpu_code() -> dict[str, Any]:
    """What became of the learner's functions in Triton's compiler; no GPU is needed."""
    found = compiled()
    if "missing" in found:
        pytest.skip(f"Triton's assembler for GPUs does not run on this machine: {found['missing']}")
    return found


# Task 1: a tile out of pages


def test_task_1_a_key_as_in_the_chapter(lab):
    """Head 1 of a token at offset 2 of page 5, with P 4, Hkv 3, D 2: numbers 5 · 24 + 2 · 6 + 1 · 2 and the next."""
    pages = np.arange(7 * 4 * 3 * 2, dtype=np.float64).reshape(7, 4, 3, 2)
    tile = Tile(pages, [3, 5], np.full(16, 6), np.arange(16) == 0, head=1)
    expected = np.zeros((16, 2))
    expected[0] = [134, 135]
    nan = "positions that are not wanted are zeros: a load with a mask needs `other`, too"
    check(tile.load(lab)[0], expected, name="the tile", axes="TILE WIDTH", rtol=0, atol=0, nan=nan)


@pytest.mark.parametrize("P", [1, 3, 16], ids=lambda P: f"pages of {P}")
@pytest.mark.parametrize(("start", "stop"), [(0, 16), (16, 29), (32, 33)])
def test_task_1_keys_come_from_their_pages_in_order(lab, P, start, stop):
    Tile.random(340, start, stop, P).check(lab, f"of positions {start} … {stop - 1} in pages of {P}")


@pytest.mark.parametrize(("head", "D"), [(0, 16), (2, 16), (1, 20), (2, 33)])
def test_task_1_of_every_head_and_head_size(lab, head, D):
    Tile.random(341, 3, 12, 4, sizes=(3, D), head=head).check(lab, f"of head {head}, D {D}")


def test_task_1_nothing_is_wanted(lab):
    tile = Tile.random(342, 0, 5, 3)
    tile.wanted[:] = False
    tile.check(lab, "of no position")


def test_task_1_any_positions_may_be_wanted(lab):
    tile = Tile.random(343, 0, 16, 3)
    tile.wanted[:] = np.arange(16) % 3 == 1
    tile.check(lab, "of every third position")


def test_task_1_bfloat16_stays_bfloat16(lab):
    Tile.random(344, 0, 13, 3, dtype="bfloat16").check(lab, "of a bfloat16 pool")


def test_task_1_a_pool_may_hold_more_numbers_than_int32_can_count(lab):
    """No such pool is made: of the addresses that are asked for, the watch keeps the memory away."""
    if not interpreted():
        pytest.skip("only the interpreter tells what addresses a kernel asks for")
    tile = Tile.random(345, 0, 1, 16)
    page = 2**31 // tile.pages[0].size + 5
    tile.table = [page]
    addresses = tile.far(lab)
    first = (page * 16 * 3 + tile.head) * 24 * 4
    check_equal(
        addresses[:3],
        [first, first + 4, first + 8],
        name="the numbers of the key, in bytes from the start of the pages (in int32 a product wraps round)",
    )


def test_task_1_it_compiles_for_a_gpu(lab, gpu_code):
    Tile.random(346, 0, 3, 3).check(lab, "of 3 positions")
    check_compiles(gpu_code, "load_tile")


# Task 2: the online softmax, a tile at a time


def test_task_2_two_tiles_of_two_queries_as_in_the_chapter(lab):
    scores = np.log([[1.0, 2.0], [4.0, 1.0]])
    before = np.full(2, NOTHING), np.zeros(2)
    weights, keep, peaks, totals = fold(lab, scores, *before)
    check(weights, [[0.5, 1.0], [1.0, 0.25]], name="the weights of the first tile", axes="ROWS TILE")
    check(keep, [0.0, 0.0], name="keep, where nothing was there before", axes="ROWS")
    check(totals, [1.5, 1.25], name="the totals after the first tile", axes="ROWS")
    weights, keep, peaks, totals = fold(
        lab, np.log([[8.0, 4.0], [2.0, 2.0]]), lab.numpy(peaks), lab.numpy(totals)
    )
    check(weights, [[1.0, 0.5], [0.5, 0.5]], name="the weights of the second tile", axes="ROWS TILE")
    check(keep, [0.25, 1.0], name="keep: the first query's peak has risen, the second's hasn't", axes="ROWS")
    check(peaks, np.log([8.0, 4.0]), name="the peaks after the second tile", axes="ROWS")
    check(totals, [1.875, 2.25], name="the totals after the second tile", axes="ROWS")


@pytest.mark.parametrize("before", ["nothing", "lower peaks", "higher peaks"])
def test_task_2_scores_of_a_tile_are_folded_in(lab, before):
    peaks, totals = {"nothing": (NOTHING, 0.0), "lower peaks": (-4.5, 3.25), "higher peaks": (6.5, 1.75)}[
        before
    ]
    scores = random_numbers(350, 8, 16)
    scores[2, 5:] = scores[5, :9] = NOTHING
    check_fold(lab, scores, np.full(8, peaks), np.full(8, totals), f"after {before}")


def test_task_2_a_query_that_has_seen_nothing_yet_waits(lab):
    scores = random_numbers(351, 8, 16)
    scores[[1, 4]] = NOTHING
    peaks, totals = random_numbers(352, 8), random_numbers(353, 8) ** 2
    peaks[[1, 2]], totals[[1, 2]] = NOTHING, 0.0
    check_fold(lab, scores, peaks, totals, "where query 1 sees nothing, as before, and query 4 nothing new")


@pytest.mark.parametrize("shift", [-2e4, 300.0, 2e4])
def test_task_2_large_scores_do_no_harm(lab, shift):
    scores = np.round(random_numbers(354, 8, 16) * 64) / 64 + shift
    check_fold(lab, scores, np.full(8, NOTHING), np.zeros(8), f"of scores near {shift:g}, the first")
    check_fold(
        lab, scores, np.full(8, shift - 3.0), np.full(8, 2.0), f"of scores near {shift:g}, after others"
    )


def test_task_2_what_was_gathered_is_divided_once_at_the_end(lab):
    gathered, peaks, totals = (
        random_numbers(355, 8, 16),
        random_numbers(356, 8) * 9,
        1.0 + random_numbers(357, 8) ** 2,
    )
    gathered[3], peaks[3], totals[3] = 0.0, NOTHING, 0.0
    actual, wanted = finished(lab, gathered, peaks, totals)
    nan = "a query that has seen nothing has a total of 0: divide by something else there"
    check(
        actual[0],
        wanted[0],
        name="what was attended to",
        axes="ROWS WIDTH",
        nan=nan,
        suspects={"not divided by the totals": gathered},
    )
    check(
        actual[1],
        wanted[1],
        name="the log-sum-exp",
        axes="ROWS",
        nan=nan,
        suspects={
            "the logarithm of the totals is missing": peaks + totals,
            "the peaks are missing": np.log(np.maximum(totals, 1e-30)),
            "these are the peaks alone": peaks,
        },
    )


def test_task_2_they_compile_for_a_gpu(lab, gpu_code):
    check_fold(lab, random_numbers(358, 8, 16), np.full(8, NOTHING), np.zeros(8), "of one tile")
    finished(lab, random_numbers(359, 8, 16), np.zeros(8), np.ones(8))
    check_compiles(gpu_code, "fold_scores")
    check_compiles(gpu_code, "finish")


# Task 3: one program


@pytest.mark.parametrize(("P", "causal", "Hkv"), [(1, True, 1), (3, True, 2), (16, True, 1), (3, False, 1)])
def test_task_3_a_chunk_a_decode_and_a_prompt_in_parts(lab, P, causal, Hkv):
    step = RaggedStep.random(360, [(140, 3), (70, 1), (6, 6)], P, sizes=(Hkv, 3, 24))
    Launch(step, causal).check(lab, f"over pages of {P}, causal={causal}")


@pytest.mark.parametrize("kv", [63, 64, 65, 128, 129, 257])
def test_task_3_keys_up_to_the_edges_of_tiles_and_parts(lab, kv):
    step = RaggedStep.random(361, [(kv, 2)], 16, sizes=(1, 2, 20))
    Launch(step).check(lab, f"of {kv} keys, tiles of 64, parts of 128")


@pytest.mark.parametrize(("Hkv", "group"), [(1, 1), (1, 2), (2, 3)])
def test_task_3_programs_share_out_the_queries_of_a_group(lab, Hkv, group):
    """17 tokens: more queries than one program takes, and the last of its rows belong to nobody."""
    step = RaggedStep.random(362, [(19, 17), (3, 2)], 3, sizes=(Hkv, group, 20))
    Launch(step).check(lab, f"of groups of {group}, 16 queries a program")


def test_task_3_a_sequence_may_be_shorter_than_its_queries(lab):
    """As in the first of two parts that are merged: the first queries see nothing."""
    step = RaggedStep.random(363, [(2, 4), (0, 2), (5, 1)], 3, sizes=(2, 2, 20))
    Launch(step).check(lab, "where some queries see nothing")
    Launch(step, causal=False).check(lab, "where a sequence has no keys")


def test_task_3_sums_are_float32_whatever_the_pages_are(lab):
    """All scores are 0, so all weights are 1, and nothing but the sums can be rounded."""
    step = RaggedStep.random(364, [(300, 1)], 16, sizes=(1, 2, 20), dtype="bfloat16")
    step.query[:] = 0.0
    Launch(step, PART=512).check(lab, "of 300 bfloat16 keys that count the same", rtol=1e-5, atol=1e-6)


def test_task_3_scores_whose_exponentials_are_0_count_like_others(lab):
    """Only differences of scores count: the first peak is −inf, and not 0."""
    step = RaggedStep.random(368, [(70, 3), (5, 1)], 16, sizes=(1, 2, 20))
    step.query[:] = 1.0
    step.keys[:] = (-20.0 - np.abs(step.keys)).astype(np.float32)
    zeros = (
        "each peak is −inf before the first tile; with 0 all weights become exp(−170), which is 0 in float32"
    )
    Launch(step).check(lab, "of scores near −170", zeros)


def test_task_3_bfloat16_pages(lab):
    step = RaggedStep.random(365, [(140, 3), (7, 1)], 16, sizes=SIZES, dtype="bfloat16")
    Launch(step).check(lab, "of bfloat16 pages", rtol=2e-2, atol=1e-2)


def test_task_3_scores_are_scaled_in_float32(lab):
    """The log-sum-exp of one key is its score; to round the scaled queries would change it by a thousandth."""
    step = RaggedStep.random(367, [(1, 1)] * 5, 16, sizes=SIZES, dtype="bfloat16", scale=0.7)
    launch = Launch(step)
    if interpreted():  # it cuts numbers off
        rounded = ((step.query * step.scale).astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)
    else:
        rounded = lab.numpy(lab.array(step.query * step.scale, "bfloat16"))
    other = replace(launch, step=replace(step, query=rounded, scale=1.0))
    check(
        launch.run(lab)[1],
        launch.expected()[1],
        name="lse of one key each, which is the score, of bfloat16 pages and scale 0.7",
        axes="parts T H",
        suspects={
            "the queries were scaled and rounded to bfloat16 again: scale what `dot` gives": (
                lambda: other.expected()[1]
            ),
            "the scores are not scaled": lambda: launch.expected(scale=1.0)[1],
        },
        nan="a query sees itself",
        **TOLERANCE,
    )


def test_task_3_it_compiles_for_a_gpu_and_multiplies_in_matrix_units(lab, gpu_code):
    Launch(RaggedStep.random(366, [(5, 2)], 3, sizes=SIZES)).check(lab, "of 2 queries")
    found = check_compiles(gpu_code, "attend_pages")
    wide = [dtype for dtype in found["products"] if dtype != "bf16"]
    assert not wide, (
        f"compiled for bfloat16, the kernel multiplies {len(wide)} of its {len(found['products'])} pairs of tiles in "
        f"{wide[0]}, without matrix units: give `dot` tiles in the dtype of the pages"
    )
    enough = len(found["products"]) > 1 and found["instructions"]
    assert enough, (
        f"compiled for bfloat16, the kernel has {len(found['products'])} products for matrix units; two are "
        "wanted, of queries and keys and of weights and values: are they taken with `dot`?"
    )


# Task 4: the grid


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "not causal"])
def test_task_4_decodes_chunks_and_prompts_in_one_launch(lab, causal):
    step = RaggedStep.random(370, CASES["a decode, a first chunk, a later chunk, a whole prompt"](3), 3)
    check_step(lab, paged(lab), step, causal=causal, **TOLERANCE)


def test_task_4_decodes_only(lab):
    step = RaggedStep.random(371, CASES["decodes only"](3), 3, shared=1)
    check_step(lab, paged(lab), step, **TOLERANCE)


@pytest.mark.parametrize("dtype", DTYPES)
def test_task_4_the_kernel_gets_query_and_pages_in_one_dtype(lab, monkeypatch, dtype):
    noted = counted(lab, monkeypatch)
    check_step(lab, paged(lab), RaggedStep.random(381, [(5, 2), (3, 1)], 3, sizes=(1, 2, 20), dtype=dtype))
    for _, arguments in noted.launches:
        for name in ("query", "keys", "values"):
            found = arguments[name].removeprefix("torch.")
            assert found == dtype, (
                f"attend_pages is launched with a {found} `{name}`, and query and pages came as {dtype}: the "
                "interpreter multiplies them all the same, a GPU doesn't"
            )


@pytest.mark.parametrize("dtype", DTYPES)
def test_task_4_parts_of_a_long_past_are_merged(lab, dtype):
    """1,025 tokens are three parts of 512; the other sequence ends in the first."""
    step = RaggedStep.random(372, [(1025, 1), (6, 2)], 16, sizes=(1, 3, 24), dtype=dtype)
    tolerance: dict[str, Any] = TOLERANCE if dtype == "float32" else {}
    check_step(lab, paged(lab), step, **tolerance)


def test_task_4_parts_are_merged_in_float32_and_rounded_once(lab):
    """All scores are 0, so all weights are 1; one rounding changes a number by 1/256 of it at most."""
    step = RaggedStep.random(380, [(1025, 1)], 16, sizes=(1, 2, 24), dtype="bfloat16")
    step.query[:] = 0.0
    check_step(lab, paged(lab), step, rtol=1 / 256, atol=1e-6)


@pytest.mark.parametrize("kv", [128, 129, 191, 257])
def test_task_4_keys_up_to_the_edges_of_parts(lab, monkeypatch, kv):
    small(lab, monkeypatch)
    check_step(lab, paged(lab), RaggedStep.random(373, [(kv, 1)], 16, sizes=(1, 2, 20)), **TOLERANCE)


@pytest.mark.parametrize("tokens", [5, 11])
def test_task_4_there_are_programs_for_all_queries(lab, monkeypatch, tokens):
    """With groups of 3, 5 tokens are 15 queries, 11 are 33: the third program of each key head."""
    small(lab, monkeypatch)
    step = RaggedStep.random(374, [(tokens + 2, tokens), (9, 1)], 3, sizes=(2, 3, 20))
    check_step(lab, paged(lab), step, **TOLERANCE)


@pytest.mark.parametrize(
    ("lengths", "group", "grid", "rows"),
    [
        ([(9, 1)], 1, (1, 2, 1), 16),
        ([(9, 1), (40, 6), (5, 2)], 3, (3, 2, 1), 32),
        ([(40, 22)], 3, (1, 4, 1), 64),
        ([(40, 32), (600, 1)], 2, (2, 2, 2), 64),
    ],
)
def test_task_4_the_grid_is_as_in_the_chapter(lab, monkeypatch, lengths, group, grid, rows):
    noted = counted(lab, monkeypatch)
    check_step(lab, paged(lab), RaggedStep.random(375, lengths, 16, sizes=(2, group, 20)), **TOLERANCE)
    launches = noted.launches
    check_equal(len(launches), 1, name="the launches of attend_pages in a call")
    found, options = launches[0]
    check_equal(found, grid, name="the grid (sequences, blocks of rows · Hkv, parts)")
    check_equal(options.get("ROWS", rows), rows, name="ROWS")


def test_task_4_a_sequence_of_which_nothing_is_there_sees_nothing(lab):
    step = RaggedStep.random(376, [(0, 2), (0, 1)], 3)
    check_step(lab, paged(lab), step, causal=False, **TOLERANCE)


@pytest.mark.parametrize(("D", "width"), [(5, 16), (8, 16), (16, 16), (20, 32), (33, 64)])
def test_task_4_a_tile_is_as_wide_as_a_gpu_needs(lab, monkeypatch, D, width):
    noted = counted(lab, monkeypatch)
    check_step(lab, paged(lab), RaggedStep.random(382, [(9, 2)], 16, sizes=(1, 2, D)), **TOLERANCE)
    found = noted.launches[0][1]["WIDTH"]
    check_equal(found, width, name=f"WIDTH for D = {D}, a power of two and at least 16")


@pytest.mark.parametrize("case", ["one prompt", "a chunk after a long past"])
def test_task_4_two_halves_of_a_sequence_give_the_whole(lab, case):
    check_merged(lab, paged(lab), RaggedStep.random(377, CASES[case](3), 3), pages=2, **TOLERANCE)


@FEW
@given(step=random_steps(sizes=(1, 2, 20)))
def test_task_4_any_step_over_any_pages(step):
    lab = door.active()
    check_step(lab, paged(lab), step, **TOLERANCE)


def test_task_4_the_causal_rule_is_kept_unless_told_otherwise(lab):
    step = RaggedStep.random(378, [(7, 3)], 3)
    function = lab.kernels.paged_attention_triton.paged_attention_triton
    actual = pair_of(function(*step.arguments(lab), step.meta(lab), step.scale), "paged_attention_triton")
    check(
        actual[0], step.expected()[0], name="attention without a word on `causal`", axes="T H D", **TOLERANCE
    )


def test_task_4_the_model_of_week_1_says_the_same_as_with_its_own_caches(lab):
    config = lab.config.ModelConfig(**numpy_model.config_fields("llama"))
    tensors = {name: lab.array(x) for name, x in numpy_model.random_tensors("llama").items()}
    model = lab.model.Transformer(config, lab.weights.Weights(config, tensors))
    pool = lab.paged.pool.KvPool(config, 9, 3, device=lab.device)
    pool.keys[...] = pool.values[...] = NAN
    sequence = lab.paged.sequence.PagedSequence(allocator_of(lab, 9), 3)
    ids, cache = [30, 4, 17, 8], lab.paged.paged_cache.PagedCache
    attention = paged(lab)
    expected = list(lab.generate.generate(model, ids, 4))
    for _ in expected:
        new = ids[sequence.length :]
        sequence.reserve(len(new))
        table = lab.array(np.array([sequence.pages]), "int32")
        meta = lab.paged.metadata.ForwardMeta.build(table, [sequence.length], [len(new)], 3, lab.device)
        caches = [cache(pool, layer, meta, attention) for layer in range(config.num_layers)]
        hidden = model.hidden(lab.array(np.array([new])), meta.positions, caches)
        sequence.advance(len(new))
        ids = [*ids, lab.generate.greedy(model.logits(hidden[0, -1]))]
    check_equal(ids[4:], expected, name="the tokens, against Day 2.1's `generate`")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_task_4_compiled_on_a_gpu_it_is_right(lab, dtype):
    lengths = [(1000, 1), (2, 2), (513, 40), (130, 130), (64, 1)]
    step = RaggedStep.random(379, lengths, 16, sizes=(3, 3, 64), dtype=dtype, scale=0.125)
    tolerance: dict[str, Any] = {"rtol": 1e-3, "atol": 1e-4} if dtype == "float32" else {}
    check_step(lab, paged(lab), step, **tolerance)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_task_4_the_bandwidth_that_it_reaches_at_decode(lab, dtype, record_property):
    """64 sequences of 4,096 tokens, one query each, H 9, Hkv 3, D 64. Nothing is asserted of the clock."""
    B, S, P, Hkv, D = 64, 4096, 16, 3, 64
    per = S // P
    rng = np.random.default_rng(380)
    pool = [lab.array(rng.normal(size=(B * per + 1, P, Hkv, D)).astype(np.float32), dtype) for _ in range(2)]
    query = lab.array(rng.normal(size=(B, 3 * Hkv, D)), dtype)
    tables = rng.permutation(np.arange(1, B * per + 1)).reshape(B, per)
    meta = lab.paged.metadata.ForwardMeta(
        positions=lab.array(np.full(B, S - 1)),
        slot_mapping=lab.array(tables[:, -1] * P + P - 1),
        cu_seqlens_q=lab.array(np.arange(B + 1), "int32"),
        seq_lens_kv=lab.array(np.full(B, S), "int32"),
        block_table=lab.array(tables, "int32"),
        last_rows=lab.array(np.arange(B)),
        starts=list(range(B + 1)),
        kv_lens=[S] * B,
    )
    function = lab.kernels.paged_attention_triton.paged_attention_triton

    def decode() -> Any:
        return function(query, *pool, meta, D**-0.5)

    out = lab.numpy(decode()[0])
    assert np.isfinite(out).all(), "NaN or infinity in the output"
    from triton.testing import do_bench

    milliseconds = do_bench(decode)
    moved = sum(x.nbytes for x in pool) * B * per / (B * per + 1)
    record_property("GB/s", moved / milliseconds / 1e6)
    print(
        f"\ndecode, {dtype}: {milliseconds:.3f} ms a layer, {moved / milliseconds / 1e6:,.0f} GB/s of keys and values"
    )


def small(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of 128 keys, at most 16 queries a program: edges that a short sequence reaches."""
    for name, size in (("PART", 128), ("MOST_ROWS", 16)):
        monkeypatch.setattr(lab.kernels.paged_attention_triton, name, size)
