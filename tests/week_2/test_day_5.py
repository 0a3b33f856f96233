"""Day 2.5: decode attention as a compiled kernel, and the cache that uses it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from shared.models import real_model
from week_1.caches import attention_oracle

from coursekit.check import check, check_equal, check_raises, check_untouched
from coursekit.checking.kernel_run import run_as_python

from .decode_checks import (
    PEAK,
    TOTAL,
    attend,
    check_decode,
    check_fold,
    check_numpy,
    check_parts,
    fold,
    fused_cache,
    run_parts,
)
from .decode_oracle import (
    DTYPES,
    NAN,
    TILE,
    Past,
    random_numbers,
    stored,
    with_nan_behind,
)
from .flash_oracle import HIDDEN, average, causal, grouped
from .full_caches import whole_sequence
from .packed import on_cpu
from .softmax_oracle import RAMPS

SPARE = "the spare room of the storage was attended to: the kernel needs the length, too"


@pytest.fixture
def cpu_kernel(lab):
    return lab.kernels.decode_attention_cpu


# Task 1: scores and values of a tile


def test_task_1_the_loops_stay_within_their_arrays_and_only_read_what_they_are_given(cpu_kernel):
    queries, keys, values = (stored(random_numbers(n, 5, 8), "float32") for n in (279, 280, 281))
    weights = stored(random_numbers(282, 5, TILE), "float32")
    given = {"queries": queries, "keys": keys, "weights": weights, "values": values}
    before = {name: array.copy() for name, array in given.items()}
    scale, scores, out = np.float32(0.3), np.zeros((5, TILE), np.float32), np.zeros((5, 8), np.float32)
    run_as_python(cpu_kernel.score_tile, queries, keys, scale, scores, spread=False)
    run_as_python(cpu_kernel.add_values, weights, values, out, spread=False)
    for name, array in given.items():
        assert np.array_equal(array, before[name]), f"the {name} were written to: they may only be read"


@pytest.mark.parametrize(("count", "size"), [(1, 8), (3, 5), (4, 8), (63, 8), (TILE, 40)])
def test_task_1_every_query_is_multiplied_by_every_key_of_the_tile(cpu_kernel, count, size):
    queries, keys = random_numbers(251, 3, size), random_numbers(252, count, size)
    scores = np.full((3, TILE), NAN, np.float32)
    storage = with_nan_behind(keys, "float32")
    cpu_kernel.score_tile(stored(queries, "float32"), storage[:count], np.float32(0.3), scores)
    products = queries @ keys.T
    check_numpy(
        scores[:, :count],
        products * 0.3,
        name=f"the scores of 3 queries for {count} keys",
        axes="Q n",
        suspects={
            "the scores are not scaled": products,
            "the scores are scaled twice": products * 0.3**2,
        },
        nan="a score was added to what the array held before: assign it",
    )


def test_task_1_no_score_is_written_for_keys_that_the_tile_does_not_have(cpu_kernel):
    scores = np.full((2, TILE), 5.0, np.float32)
    queries, keys = random_numbers(251, 2, 8), random_numbers(252, 7, 8)
    cpu_kernel.score_tile(stored(queries, "float32"), stored(keys, "float32"), np.float32(1), scores)
    behind = scores[:, 7:]
    name = (
        "what stood behind the 7 scores (there are 7 keys, and reading an eighth is reading what isn't there)"
    )
    check_numpy(behind, np.full(behind.shape, 5.0), name=name, axes="Q n", rtol=0, atol=0)


@pytest.mark.parametrize(("count", "size"), [(1, 8), (2, 8), (4, 5), (7, 8), (63, 8), (TILE, 40)])
def test_task_1_weighted_values_are_added_to_what_was_gathered_before(cpu_kernel, count, size):
    weights, before = np.full((3, TILE), NAN), random_numbers(253, 3, size)
    weights[:, :count] = random_numbers(254, 3, count) ** 2
    values = random_numbers(255, count, size)
    out = stored(before, "float32").copy()
    storage = with_nan_behind(values, "float32")
    cpu_kernel.add_values(stored(weights, "float32"), storage[:count], out)
    added = weights[:, :count] @ values
    fours = count // 4 * 4
    check_numpy(
        out,
        before + added,
        name=f"out after {count} values",
        axes="Q D",
        suspects={
            "the values gathered before are overwritten": added,
            "the last keys, fewer than four, are left out": before + weights[:, :fours] @ values[:fours],
        },
        nan=f"a weight or a value beyond the {count} of the tile was used",
    )


# Task 2: the softmax of one query


def test_task_2_four_keys_in_two_tiles_as_in_the_chapter(cpu_kernel):
    scores = np.full(TILE, NAN)
    scores[:2] = np.log([1.0, 2.0])
    weights, peak, total, out = fold(cpu_kernel, scores, 2, HIDDEN, 0.0, np.zeros(1))
    check_numpy(weights[:2], [0.5, 1.0], name="the weights of the first tile", dtype=None)
    check_numpy(peak, [np.log(2.0)], name=f"{PEAK} after the first tile", dtype=None)
    check_numpy(total, [1.5], name=f"{TOTAL} after the first tile", dtype=None)
    check_numpy(out, [0.0], name="out, to which no value has been added yet")
    scores[:2] = np.log([8.0, 4.0])
    weights, peak, total, out = fold(cpu_kernel, scores, 2, peak[0], total[0], np.array([45.0]))
    check_numpy(weights[:2], [1.0, 0.5], name="the weights of the second tile", dtype=None)
    check_numpy(peak, [np.log(8.0)], name=f"{PEAK} after the second tile", dtype=None)
    check_numpy(total, [1.875], name=f"{TOTAL}: the first tile counts a quarter", dtype=None)
    check_numpy(out, [11.25], name="out: the first tile counts a quarter")


@pytest.mark.parametrize("seen", [1, 2, 5, 63, TILE])
@pytest.mark.parametrize("before", ["nothing", "a lower peak", "a higher peak"])
def test_task_2_keys_that_are_not_seen_get_no_weight(cpu_kernel, seen, before):
    scores = np.full(TILE, NAN)
    scores[:seen] = random_numbers(256, seen)
    out = random_numbers(257, 5)
    peak, total = {"nothing": (HIDDEN, 0.0), "a lower peak": (-4.5, 3.25), "a higher peak": (6.5, 1.75)}[
        before
    ]
    out = np.zeros(5) if before == "nothing" else out
    check_fold(cpu_kernel, scores, seen, peak, total, out, f"with {seen} keys seen after {before}")


@pytest.mark.parametrize("behind", [np.inf, 1e30, HIDDEN])
def test_task_2_what_stands_behind_the_seen_keys_means_nothing(cpu_kernel, behind):
    scores = np.full(TILE, behind)
    scores[:6] = random_numbers(258, 6)
    check_fold(
        cpu_kernel, scores, 6, 0.5, 2.0, random_numbers(259, 4), f"with {behind} behind the 6 seen keys"
    )


@pytest.mark.parametrize("place", [0, 1, 2, 3, 4, 30, 61, 62])
def test_task_2_the_highest_score_may_stand_anywhere(cpu_kernel, place):
    scores = random_numbers(260, TILE)
    scores[place] = 90.0
    check_fold(cpu_kernel, scores, 63, -1.0, 2.0, np.ones(3), f"when score {place} is far above the others")


@pytest.mark.parametrize("kind", RAMPS)
def test_task_2_large_scores_do_no_harm(cpu_kernel, kind):
    scores = np.full(TILE, NAN)
    ramp = RAMPS[kind]
    scores[: len(ramp)] = ramp
    where = f"of scores {kind}"
    check_fold(cpu_kernel, scores, len(ramp), HIDDEN, 0.0, np.zeros(3), where)
    check_fold(cpu_kernel, scores, len(ramp), ramp[3], 1.5, np.ones(3), f"{where}, after others")


# Task 3: the kernel


def test_task_3_the_kernel_stays_within_its_arrays_and_its_threads_share_none(cpu_kernel):
    past = Past.random(283, L=2, S=70)
    run_parts(cpu_kernel, past, 2, run_as_python)


@pytest.mark.parametrize(("L", "S"), [(1, 1), (1, 63), (1, 64), (1, 65), (2, 128), (5, 129), (7, 7)])
def test_task_3_one_part_is_the_whole_past(cpu_kernel, L, S):
    check_parts(cpu_kernel, Past.random(261, L, S), 1, f"for {L} of {S} tokens")


@pytest.mark.parametrize(("count", "L", "S"), [(2, 1, 2), (2, 2, 131), (3, 1, 200), (4, 5, 11)])
def test_task_3_each_part_attends_to_its_own_keys(cpu_kernel, count, L, S):
    where = f"for {L} of {S} tokens in {count} parts"
    check_parts(cpu_kernel, Past.random(262, L, S), count, where)


def test_task_3_a_query_that_sees_nothing_of_a_part_has_a_peak_of_minus_infinity_there(cpu_kernel):
    past = Past.random(263, L=5, S=6)
    nothing = past.parts(3)[1] == HIDDEN
    assert nothing.any(), "this case should have queries that see nothing of a part"
    check_parts(cpu_kernel, past, 3, "where the last part hides from the first queries")


@pytest.mark.parametrize(("B", "Hkv", "G"), [(1, 1, 1), (3, 1, 4), (1, 5, 2)])
def test_task_3_rows_and_groups_are_kept_apart(cpu_kernel, B, Hkv, G):
    past = Past.random(264, L=2, S=70, B=B, Hkv=Hkv, G=G, D=6)
    check_parts(cpu_kernel, past, 2, f"of {B} rows, {Hkv} key heads, {G} query heads to each")


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(("L", "S"), [(1, 63), (2, 130)])
def test_task_3_keys_and_values_may_be_the_bits_of_bfloat16(cpu_kernel, L, S, count):
    past = Past.random(266, L, S, "bfloat16")
    # Sums of up to 128 values that are not divided yet: float32 rounds them at about 6.
    check_parts(cpu_kernel, past, count, f"for {L} of {S} bfloat16 tokens", "bfloat16", atol=5e-5)


# Task 4: all parts together


def test_task_4_two_parts_as_in_the_chapter(cpu_kernel):
    out, peaks = np.array([[[[[45.0]], [[40.0]]]]], np.float32), np.log(np.array([[[[2], [8]]]], np.float32))
    merged = cpu_kernel.merge_parts(out, peaks, np.array([[[[1.5], [1.5]]]], np.float32))
    check_numpy(
        merged,
        [[[[82 / 3]]]],
        name="the parts together",
        axes="B Hkv Q D",
        suspects={
            "each part's `out` is relative to its own peak: it needs its share, too": [[[[85 / 1.875]]]],
            "each part's total is relative to its own peak: it needs its share, too": [[[[51.25 / 3]]]],
            "each part counts the same, whatever its peak": [[[[85 / 3]]]],
        },
    )


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("scale", [0.4, 40.0])
def test_task_4_parts_merge_to_attention_over_all_of_the_past(cpu_kernel, count, scale):
    past = Past.random(265, L=5, S=9)
    past.scale = scale
    out, peaks, totals = past.parts(count)
    given = [stored(x, "float32") for x in (out, peaks, totals)]
    before = [x.copy() for x in given]
    merged = cpu_kernel.merge_parts(*given)
    whole, _, whole_totals = past.parts(1)
    shared = out * np.exp(peaks - peaks.max(axis=2, keepdims=True))[..., None]
    check_numpy(
        merged,
        (whole / whole_totals[..., None])[:, :, 0],
        name=f"{count} parts together",
        axes="B Hkv Q D",
        rtol=1e-4,
        suspects={
            "each part counts the same, whatever its peak": lambda: out.sum(2) / totals.sum(2)[..., None],
            "out gets its share, total doesn't": lambda: shared.sum(2) / totals.sum(2)[..., None],
            "the parts are added without being divided": lambda: whole[:, :, 0],
        },
    )
    for name, array, was in zip(("out", "peaks", "totals"), given, before, strict=True):
        assert np.array_equal(array, was), f"merge_parts wrote into {name}, which it may only read"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("L", "S"),
    [(1, 1), (1, 63), (1, 64), (1, 65), (1, 300), (2, 128), (5, 129), (8, 600), (8, 8), (66, 66)],
)
def test_task_4_few_queries_over_many_keys(lab, dtype, L, S):
    past = Past.random(266, L, S, dtype)
    before = past.heads(), past.key, past.value
    arguments = [on_cpu(lab, x, dtype if n else "float32") for n, x in enumerate(before)]
    name = f"attention of {L} of {S} tokens over {dtype} keys and values"
    check_decode(lab, past, arguments=arguments, name=name)
    for name, argument, numbers in zip(("query", "key", "value"), arguments, before, strict=True):
        check_untouched(argument, numbers, name=name, axes="B H S D", dtype=None)


@pytest.mark.parametrize("count", [2, 3, 7])
def test_task_4_however_many_parts_the_past_is_cut_into(lab, cpu_kernel, monkeypatch, count):
    monkeypatch.setattr(cpu_kernel, "part_count", lambda heads, S: count)
    check_decode(lab, Past.random(267, L=5, S=7), name=f"attention over a past in {count} parts")


@pytest.mark.parametrize("B", [1, 3])
@pytest.mark.parametrize(("Hkv", "G"), [(1, 5), (3, 1), (2, 4)])
def test_task_4_grouped_heads_and_rows(lab, B, Hkv, G):
    past = Past.random(268, L=2, S=11, B=B, Hkv=Hkv, G=G, D=6)
    check_decode(lab, past, name=f"attention of {Hkv * G} query heads over {Hkv} key-value heads")


@pytest.mark.parametrize("scale", [2.5, 1.0, 0.0, -0.7])
def test_task_4_a_scale_that_is_given_is_used(lab, scale):
    past = Past.random(269, L=2, S=9)
    check_decode(lab, past, scale=scale, name=f"attention with a scale of {scale}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("L", "S"), [(1, 60), (3, 64)])
def test_task_4_what_lies_behind_length_is_not_read(lab, dtype, L, S):
    past = Past.random(270, L, S, dtype)
    behind = np.full((2, 2, 70 - S, 8), NAN)
    storage = [on_cpu(lab, np.concatenate([x, behind], axis=2), dtype) for x in (past.key, past.value)]
    arguments = [on_cpu(lab, past.heads()), *storage]
    check_decode(lab, past, arguments=arguments, length=S, name=f"attention over the first {S} of 70 places")


@pytest.mark.parametrize("dtype", DTYPES)
def test_task_4_storage_is_read_where_it_lies(lab, cpu_kernel, dtype):
    query = on_cpu(lab, random_numbers(271, 1, 4, 1, 8))
    key, value = (on_cpu(lab, random_numbers(n, 1, 2, 90, 8, dtype=dtype), dtype) for n in (272, 273))
    _, largest = lab.largest_array(cpu_kernel.decode_attention, query, key, value, length=80)
    assert largest < 2 * 80 * 8, f"{largest} numbers were written on the way: the keys or values were copied"


def test_task_4_arrays_that_are_not_contiguous_give_the_same(lab):
    past = Past.random(274, L=3, S=10)
    arrays = (past.heads(), past.key, past.value)
    arguments = [on_cpu(lab, x.swapaxes(1, 2)).swapaxes(1, 2) for x in arrays]
    check_decode(lab, past, arguments=arguments, name="attention over transposed arrays")


@pytest.mark.parametrize("dtype", DTYPES)
def test_task_4_the_result_has_the_dtype_of_the_query(lab, cpu_kernel, dtype):
    past = Past.random(275, L=2, S=9, dtype="bfloat16")
    query = random_numbers(276, *past.heads().shape, dtype=dtype)
    arguments = on_cpu(lab, query, dtype), *(on_cpu(lab, x, "bfloat16") for x in (past.key, past.value))
    expected = grouped(query, past.key, past.value, mask=causal(2, 9))
    atol = 1e-5 if dtype == "float32" else None
    actual = cpu_kernel.decode_attention(*arguments)
    check(actual, expected, name="attention", axes="B H L D", dtype=dtype, atol=atol)


@pytest.mark.parametrize("kind", RAMPS)
def test_task_4_large_scores_give_the_values_of_the_best_keys(lab, cpu_kernel, kind):
    scores, values = RAMPS[kind], random_numbers(277, 1, 1, 8, 3)
    query, key = np.eye(3)[None, None, :1], np.zeros((1, 1, 8, 3))
    key[0, 0, :, 0] = scores
    check(
        cpu_kernel.decode_attention(*(on_cpu(lab, x) for x in (query, key, values)), scale=1.0),
        average(scores[None, None, None], values),
        name=f"attention where the scores are {kind}",
        axes="B H L D",
    )


@pytest.mark.parametrize(
    ("H", "Hkv", "L", "held", "length", "what"),
    [
        (4, 2, 3, 2, None, "more queries than keys"),
        (4, 2, 3, 9, 2, "more queries than the length says there are keys"),
        (4, 2, 1, 9, 10, "a length beyond the storage"),
        (4, 2, 0, 9, None, "no queries at all"),
        (4, 2, 1, 9, 0, "a length of 0"),
        (4, 3, 1, 9, None, "3 key-value heads for 4 query heads"),
    ],
)
def test_task_4_what_can_not_be_is_refused(lab, cpu_kernel, H, Hkv, L, held, length, what):
    query, key = on_cpu(lab, np.zeros((1, H, L, 8))), on_cpu(lab, np.zeros((1, Hkv, held, 8)))
    check_raises(ValueError, lambda: cpu_kernel.decode_attention(query, key, key, length=length), name=what)


# Task 5: behind the seam


@pytest.mark.parametrize(
    ("capacity", "edges"),
    [(40, (12, 13, 21)), (4, (1,)), (4, (6,)), (4, (3, 4, 5)), (4, (12, 13, 21)), (4, (9, 10, 18, 27))],
    ids=str,
)
def test_task_5_prefill_and_decode_give_attention_over_the_whole_sequence(lab, capacity, edges):
    query, keys, values, expected = whole_sequence(28)
    cache, full = fused_cache(lab, capacity), lab.kv_cache.FullKvCache()
    unscaled = attention_oracle(query, keys, values, 8**-0.5, causal(28, 28))
    all_seen = np.zeros((28, 28))
    for start, stop in zip((0, *edges), (*edges, 28), strict=True):
        new, where = slice(start, stop), f"of tokens {start} … {stop - 1}"
        actual = attend(lab, cache, query, keys, values, new)
        now = slice(0, stop)
        later = attention_oracle(
            query[:, :, now], keys[:, :, now], values[:, :, now], 0.4, all_seen[now, now]
        )
        check(
            actual,
            expected[:, :, new],
            name=f"attention {where}",
            axes="B H L D",
            rtol=1e-4,
            atol=1e-5,
            suspects={
                "the scale given to attend is not passed on": unscaled[:, :, new],
                "new tokens see later ones: flash_attention needs causal=True": later[:, :, new],
            },
            nan=SPARE,
        )
        plain = lab.numpy(attend(lab, full, query, keys, values, new)).astype(np.float64)
        check(actual, plain, name=f"FullKvCache's attention {where}", axes="B H L D", rtol=1e-4, atol=1e-5)
        check_equal(cache.length, stop, name="cache.length")


def test_task_5_what_is_rewound_is_forgotten(lab):
    query, keys, values, expected = whole_sequence(14)
    cache = fused_cache(lab)
    attend(lab, cache, query, keys, values, slice(0, 10))
    attend(lab, cache, -query, 3 * keys, -values, slice(10, 13))
    cache.rewind(3)
    for new in (slice(10, 12), slice(12, 13), slice(13, 14)):
        actual = attend(lab, cache, query, keys, values, new)
        check(actual, expected[:, :, new], name="attention after a rewind", axes="B H L D", atol=1e-5)


@pytest.mark.parametrize("more", [0, 1])
def test_task_5_few_tokens_go_to_the_kernel_and_many_to_flash_attention(lab, monkeypatch, more):
    L = lab.fused_kv_cache.FEW_QUERIES + more
    cache, calls = fused_cache(lab, capacity=40), []
    for name in ("decode_attention", "flash_attention"):
        inner = getattr(lab.fused_kv_cache, name)

        def record(*arguments: Any, name: str = name, inner: Any = inner, **options: Any) -> Any:
            calls.append((name, [*arguments, *options.values()]))
            return inner(*arguments, **options)

        monkeypatch.setattr(lab.fused_kv_cache, name, record)
    arrays = [on_cpu(lab, random_numbers(278, 1, heads, L + 5, 8)) for heads in (6, 2, 2)]
    cache.append(*(x[:, :, :5] for x in arrays[1:]))
    cache.attend(*(x[:, :, 5:] for x in arrays), 0.4)
    expected = ["flash_attention" if more else "decode_attention"]
    check_equal([name for name, _ in calls], expected, name=f"the function that attends for {L} new tokens")
    if not more:
        held = [x for x in calls[0][1] if lab.is_array(x) and lab.shares_memory(x, cache.keys)]
        assert held, "the kernel was given a copy of the keys, not the cache's storage"
        assert all(x.is_contiguous() for x in held), (
            "the kernel was given a slice of the storage, of which it has to make a contiguous copy for every token: "
            "give it the whole storage and its length"
        )


def test_task_5_generation_gives_the_same_tokens(lab):
    model = real_model(lab, "llama", lambda x: on_cpu(lab, x))
    for prompt in ([30, 4, 17, 8], [5], list(range(12))):
        full, fused = (
            list(lab.generate.generate(model, prompt, 12, make_cache=make))
            for make in (lab.kv_cache.FullKvCache, lambda: fused_cache(lab))
        )
        check_equal(fused, full, name=f"the tokens after {prompt}")
