"""Day 2.5 with MLX: decode attention as a kernel in Metal's language, and the cache that uses it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from shared.models import real_model
from shared.numbers import as_float32

from coursekit.check import check, check_equal, check_raises, check_untouched

from .decode_checks import attend, check_decode, check_found, fused_cache
from .decode_oracle import DTYPES, NAN, Past, random_numbers
from .flash_oracle import HIDDEN, average, causal, grouped
from .full_caches import whole_sequence
from .metal_calls import calls_of, check_simdgroups
from .packed import on_cpu
from .softmax_oracle import RAMPS

SPARE = "the spare room of the storage was attended to: the kernel needs the length, too"


@pytest.fixture
def module(lab):
    """The learner's module, for what runs on any machine."""
    return lab.kernels.decode_attention_metal


@pytest.fixture
def metal(lab, module):
    """The learner's module, where kernels can run."""
    if reason := lab.kernels.metal.why_not():
        pytest.skip(reason)
    return module


def storage(lab: Any, x: np.ndarray, dtype: str = "float32", room: int = 5) -> Any:
    """[B, Hkv, S + room, D] with NaN behind the S keys."""
    B, Hkv, _, D = x.shape
    return on_cpu(lab, np.concatenate([x, np.full((B, Hkv, room, D), NAN)], axis=2), dtype)


def run_parts(
    lab: Any, module: Any, past: Past, count: int, dtype: str = "float32"
) -> tuple[np.ndarray, ...]:
    """What the learner's attend_parts makes of a past in `count` parts, whose storage goes on with NaN."""
    (B, Hkv, G, L, D), S = past.query.shape, past.key.shape[2]
    query = on_cpu(lab, past.query.reshape(B, Hkv, G * L, D))
    key, value = (storage(lab, x, dtype) for x in (past.key, past.value))
    found = module.attend_parts(query, key, value, L, S, past.scale, count)
    assert isinstance(found, tuple | list), f"attend_parts returns out, peaks and totals, not {found!r}"
    check_equal(len(found), 3, name="the number of arrays that attend_parts returns")
    return tuple(lab.numpy(each) for each in found)


def check_parts(lab: Any, module: Any, past: Past, count: int, where: str, dtype: str = "float32") -> None:
    __tracebackhide__ = True
    found = run_parts(lab, module, past, count, dtype)
    # Sums of up to a hundred values that are not divided yet.
    check_found(found, past, count, where, atol=5e-5)


# Task 3: the kernel


def test_task_3_the_kernel_is_called_with_a_simdgroup_for_each_piece(lab, module, monkeypatch):
    calls = calls_of(lab, monkeypatch, module)
    run_parts(lab, module, Past.random(301, L=2, S=9), 3)
    check_simdgroups(calls, "attend_parts", 2 * 2 * 3, "piece")
    shapes = [tuple(shape) for shape in calls[0]["output_shapes"]]
    check_equal(shapes, [(2, 2, 3, 6, 8), (2, 2, 3, 6), (2, 2, 3, 6)], name="output_shapes")


@pytest.mark.parametrize(("L", "S"), [(1, 1), (2, 40), (1, 65), (5, 33), (7, 7)])
def test_task_3_one_part_is_the_whole_past(lab, metal, L, S):
    check_parts(lab, metal, Past.random(302, L, S), 1, f"for {L} of {S} tokens")


@pytest.mark.parametrize(("count", "L", "S"), [(2, 1, 2), (2, 2, 31), (3, 1, 50), (4, 5, 11)])
def test_task_3_each_part_attends_to_its_own_keys(lab, metal, count, L, S):
    check_parts(lab, metal, Past.random(303, L, S), count, f"for {L} of {S} tokens in {count} parts")


def test_task_3_a_query_that_sees_nothing_of_a_part_has_a_peak_of_minus_infinity_there(lab, metal):
    past = Past.random(304, L=5, S=6)
    nothing = past.parts(3)[1] == HIDDEN
    assert nothing.any(), "this case should have queries that see nothing of a part"
    check_parts(lab, metal, past, 3, "where the last part hides from the first queries")


@pytest.mark.parametrize("D", [1, 6, 32, 33, 70])
def test_task_3_any_head_size(lab, metal, D):
    check_parts(lab, metal, Past.random(305, L=2, S=9, D=D), 2, f"of heads of {D} numbers")


@pytest.mark.parametrize(("B", "Hkv", "G"), [(1, 1, 1), (3, 1, 4), (1, 5, 2)])
def test_task_3_rows_and_groups_are_kept_apart(lab, metal, B, Hkv, G):
    past = Past.random(306, L=2, S=13, B=B, Hkv=Hkv, G=G, D=6)
    check_parts(lab, metal, past, 2, f"of {B} rows, {Hkv} key heads, {G} query heads to each")


@pytest.mark.parametrize(("L", "S"), [(1, 33), (2, 20)])
def test_task_3_keys_and_values_may_be_bfloat16(lab, metal, L, S):
    past = Past.random(307, L, S, "bfloat16")
    check_parts(lab, metal, past, 2, f"for {L} of {S} bfloat16 tokens", "bfloat16")


@pytest.mark.parametrize("kind", RAMPS)
def test_task_3_large_scores_do_no_harm(lab, metal, kind):
    scores = RAMPS[kind]
    query, key = np.eye(3)[None, None, :1], np.zeros((1, 1, 8, 3))
    key[0, 0, :, 0] = scores
    past = Past(query[:, :, None], key, random_numbers(308, 1, 1, 8, 3), 1.0)
    check_parts(lab, metal, past, 2, f"of scores {kind}")


# Task 4: all parts together


def test_task_4_two_parts_as_in_the_chapter(lab, module):
    parts = ([[[[[45.0]], [[40.0]]]]], np.log([[[[2], [8]]]]), [[[[1.5], [1.5]]]])
    check(
        module.merge_parts(*(on_cpu(lab, np.array(x)) for x in parts)),
        np.array([[[[82 / 3]]]]),
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
def test_task_4_parts_merge_to_attention_over_all_of_the_past(lab, module, count, scale):
    past = Past.random(309, L=5, S=9)
    past.scale = scale
    out, peaks, totals = past.parts(count)
    given = [on_cpu(lab, x) for x in (out, peaks, totals)]
    whole, _, whole_totals = past.parts(1)
    check(
        module.merge_parts(*given),
        (whole / whole_totals[..., None])[:, :, 0],
        name=f"{count} parts together",
        axes="B Hkv Q D",
        rtol=1e-4,
        suspects={
            "each part counts the same, whatever its peak": lambda: out.sum(2) / totals.sum(2)[..., None],
            "the parts are added without being divided": lambda: whole[:, :, 0],
        },
    )
    for name, array, was in zip(("out", "peaks", "totals"), given, (out, peaks, totals), strict=True):
        check_untouched(array, as_float32(was), name=name)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("L", "S"), [(1, 1), (1, 150), (2, 65), (8, 40), (8, 8), (20, 20)])
def test_task_4_few_queries_over_many_keys(lab, metal, dtype, L, S):
    past = Past.random(310, L, S, dtype)
    before = past.heads(), past.key, past.value
    arguments = [on_cpu(lab, x, dtype if n else "float32") for n, x in enumerate(before)]
    name = f"attention of {L} of {S} tokens over {dtype} keys and values"
    check_decode(lab, past, arguments=arguments, name=name)
    for name, argument, numbers in zip(("query", "key", "value"), arguments, before, strict=True):
        check_untouched(argument, numbers, name=name, axes="B H S D", dtype=None)


@pytest.mark.parametrize("count", [2, 3, 7])
def test_task_4_however_many_parts_the_past_is_cut_into(lab, metal, monkeypatch, count):
    monkeypatch.setattr(metal, "part_count", lambda heads, S: count)
    check_decode(lab, Past.random(311, L=5, S=7), name=f"attention over a past in {count} parts")


@pytest.mark.parametrize("B", [1, 3])
@pytest.mark.parametrize(("Hkv", "G"), [(1, 5), (3, 1), (2, 4)])
def test_task_4_grouped_heads_and_rows(lab, metal, B, Hkv, G):
    past = Past.random(312, L=2, S=11, B=B, Hkv=Hkv, G=G, D=6)
    check_decode(lab, past, name=f"attention of {Hkv * G} query heads over {Hkv} key-value heads")


@pytest.mark.parametrize("scale", [2.5, 1.0, 0.0, -0.7])
def test_task_4_a_scale_that_is_given_is_used(lab, metal, scale):
    check_decode(lab, Past.random(313, L=2, S=9), scale=scale, name=f"attention with a scale of {scale}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("L", "S"), [(1, 60), (3, 64)])
def test_task_4_what_lies_behind_length_is_not_read(lab, metal, dtype, L, S):
    past = Past.random(314, L, S, dtype)
    kept = [storage(lab, x, dtype, room=70 - S) for x in (past.key, past.value)]
    arguments = [on_cpu(lab, past.heads()), *kept]
    name = f"attention over the first {S} of 70 places"
    check_decode(lab, past, arguments=arguments, length=S, name=name, nan=SPARE)


def test_task_4_the_kernel_is_given_the_storage_and_not_a_slice(lab, module, monkeypatch):
    calls = calls_of(lab, monkeypatch, module)
    past = Past.random(315, L=1, S=9)
    kept = [storage(lab, x, room=3) for x in (past.key, past.value)]
    module.decode_attention(on_cpu(lab, past.heads()), *kept, length=9)
    shapes = [lab.numpy(each).shape for each in calls[0]["inputs"] if lab.is_array(each)]
    assert shapes.count((2, 2, 12, 8)) == 2, (
        "the kernel was given a slice of the storage, of which MLX makes a contiguous copy for every token: "
        "give it the whole storage and the length"
    )


def test_task_4_arrays_that_are_not_contiguous_give_the_same(lab, metal):
    past = Past.random(316, L=3, S=10)
    arguments = [on_cpu(lab, x.swapaxes(1, 2)).swapaxes(1, 2) for x in (past.heads(), past.key, past.value)]
    check_decode(lab, past, arguments=arguments, name="attention over transposed arrays")


@pytest.mark.parametrize("dtype", DTYPES)
def test_task_4_the_result_has_the_dtype_of_the_query(lab, metal, dtype):
    past = Past.random(317, L=2, S=9, dtype="bfloat16")
    query = random_numbers(318, *past.heads().shape, dtype=dtype)
    arguments = on_cpu(lab, query, dtype), *(on_cpu(lab, x, "bfloat16") for x in (past.key, past.value))
    expected = grouped(query, past.key, past.value, mask=causal(2, 9))
    atol = 1e-5 if dtype == "float32" else None
    actual = metal.decode_attention(*arguments)
    check(actual, expected, name="attention", axes="B H L D", dtype=dtype, atol=atol)


@pytest.mark.parametrize("kind", RAMPS)
def test_task_4_large_scores_give_the_values_of_the_best_keys(lab, metal, kind):
    scores, values = RAMPS[kind], random_numbers(319, 1, 1, 8, 3)
    query, key = np.eye(3)[None, None, :1], np.zeros((1, 1, 8, 3))
    key[0, 0, :, 0] = scores
    check(
        metal.decode_attention(*(on_cpu(lab, x) for x in (query, key, values)), scale=1.0),
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
def test_task_4_what_can_not_be_is_refused(lab, module, H, Hkv, L, held, length, what):
    query, key = on_cpu(lab, np.zeros((1, H, L, 8))), on_cpu(lab, np.zeros((1, Hkv, held, 8)))
    check_raises(ValueError, lambda: module.decode_attention(query, key, key, length=length), name=what)


# Task 5: behind the seam


@pytest.mark.parametrize(
    ("capacity", "edges"),
    [(40, (12, 13, 21)), (4, (1,)), (4, (3, 4, 5)), (4, (9, 10, 18, 27))],
    ids=str,
)
def test_task_5_prefill_and_decode_give_attention_over_the_whole_sequence(lab, metal, capacity, edges):
    query, keys, values, expected = whole_sequence(28)
    cache = fused_cache(lab, capacity)
    for start, stop in zip((0, *edges), (*edges, 28), strict=True):
        new = slice(start, stop)
        check(
            attend(lab, cache, query, keys, values, new),
            expected[:, :, new],
            name=f"attention of tokens {start} … {stop - 1}",
            axes="B H L D",
            rtol=1e-4,
            atol=1e-5,
            suspects={
                "the scale given to attend is not passed on": lambda new=new, stop=stop: grouped(
                    query[:, :, new],
                    keys[:, :, :stop],
                    values[:, :, :stop],
                    mask=causal(new.stop - new.start, stop),
                ),
                "new tokens see later ones: flash_attention needs causal=True": lambda new=new, stop=stop: (
                    grouped(query[:, :, new], keys[:, :, :stop], values[:, :, :stop], 0.4)
                ),
            },
            nan=SPARE,
        )
        check_equal(cache.length, stop, name="cache.length")


def test_task_5_what_is_rewound_is_forgotten(lab, metal):
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

        def record(query: Any, key: Any, *arguments: Any, name: str = name, **options: Any) -> Any:
            calls.append((name, lab.numpy(key).shape[2]))
            return query

        monkeypatch.setattr(lab.fused_kv_cache, name, record)
    arrays = [on_cpu(lab, random_numbers(320, 1, heads, L + 5, 8)) for heads in (6, 2, 2)]
    cache.append(*(x[:, :, :5] for x in arrays[1:]))
    cache.attend(*(x[:, :, 5:] for x in arrays), 0.4)
    expected = ["flash_attention" if more else "decode_attention"]
    check_equal([name for name, _ in calls], expected, name=f"the function that attends for {L} new tokens")
    if not more:
        assert calls[0][1] == 40, (
            "the kernel was given a slice of the storage, of which MLX makes a contiguous copy for every token: "
            "give it the whole storage and its length"
        )


def test_task_5_generation_gives_the_same_tokens(lab, metal):
    model = real_model(lab, "llama", lambda x: on_cpu(lab, x))
    for prompt in ([30, 4, 17, 8], list(range(12))):
        full, fused = (
            list(lab.generate.generate(model, prompt, 6, make_cache=make))
            for make in (lab.kv_cache.FullKvCache, lambda: fused_cache(lab))
        )
        check_equal(fused, full, name=f"the tokens after {prompt}")
